#!/usr/bin/env python3
"""Breaks one place of the code at a time and lists the test suites that notice.

usage: breaks.py [--only N,N...] [--tests REGEX] [--scratch FOLDER]

It works in a clone of HEAD in FOLDER (default: build/breaks), which a later call continues with. tools/breaks.toml has
the places. Every suite is a name of ctest without its shard: unit, formal, cli_train. A row of the table is printed
for each place as soon as its tests have run, some minutes each. A place that no suite notices is a fault of the tests:
the exit status is 1.
"""
import argparse
import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")


def run(*words, **options):
    return subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **options)


def clone(folder):
    """A clone of HEAD whose build is up to date."""
    if os.path.exists(folder):
        run("git", "-C", folder, "fetch", "-q")
        run("git", "-C", folder, "reset", "-q", "--hard", "origin/HEAD")
    else:
        run("git", "clone", "-q", ROOT, folder)
    build(folder)


def build(folder):
    if not os.path.exists(f"{folder}/build/build.ninja"):
        run("cmake", "--preset", "release", cwd=folder)
    run("cmake", "--build", "build", cwd=folder)


def failed_suites(folder, tests):
    """The suites that fail, and seconds by suite."""
    results = f"{folder}/build/breaks.xml"
    subprocess.run(["ctest", "-j", "2", "-LE", "isa", "-R", tests, "--output-junit", results], cwd=f"{folder}/build",
                   env={**os.environ, "OMP_WAIT_POLICY": "passive"}, stdout=subprocess.DEVNULL, check=False)
    failed, seconds = set(), {}
    for case in ET.parse(results).getroot().iter("testcase"):
        suite = re.sub(r"_\d+$", "", case.get("name"))
        seconds[suite] = seconds.get(suite, 0) + float(case.get("time"))
        if case.find("failure") is not None or case.get("status") == "fail":
            failed.add(suite)
    return failed, seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--tests", default=".")
    parser.add_argument("--scratch", default=os.path.join(ROOT, "build/breaks"))
    o = parser.parse_args()
    with open(os.path.join(ROOT, "tools/breaks.toml"), "rb") as file:
        breaks = tomllib.load(file)["break"]
    chosen = [int(n) for n in o.only.split(",")] if o.only else range(1, len(breaks) + 1)
    folder = os.path.abspath(o.scratch)
    clone(folder)
    always, seconds = failed_suites(folder, o.tests)
    print("seconds without a fault:", ", ".join(f"{suite} {s:.0f}" for suite, s in sorted(seconds.items())), flush=True)
    if always:
        print(f"these fail without a fault and are not looked at: {', '.join(sorted(always))}", flush=True)
    unnoticed = 0
    for n in chosen:
        place = breaks[n - 1]
        path = os.path.join(folder, place["file"])
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count(place["old"]) != 1:
            raise SystemExit(f"tools/breaks.toml: {place['name']}: {place['file']} has the text OLD "
                             f"{text.count(place['old'])} times, expected once")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(place["old"], place["new"]))
        try:
            build(folder)
            noticed = failed_suites(folder, o.tests)[0] - always
        finally:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        unnoticed += not noticed
        print(f"| {n} | {place['name']} | {', '.join(sorted(noticed)) or 'none'} |", flush=True)
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
