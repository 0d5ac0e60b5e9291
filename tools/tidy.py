#!/usr/bin/env python3
"""Runs clang-tidy on the sources that changed, or on all of them; any finding is an error.

usage: tidy.py BUILD [--all] [--limit-s SECONDS] [--jobs N]

BUILD holds compile_commands.json. tools/changed.py says what changed. The newest changes come first, and no file is
begun after SECONDS: how many are left is printed, and `make check-all` looks at all. A changed header is looked at
through a source that includes it.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

from changed import base, changed_files, git

# Highway compiles these once for each instruction set by including them in themselves, which clang-tidy cannot follow.
LEFT_OUT = re.compile(r"^qkv/kernels/cpu/")


def sources_of(names, known):
    """The sources of `known` to look at; of a header its own, or one that includes it."""
    chosen = []
    for name in names:
        if name in known:
            chosen.append(name)
        elif name.endswith(".h") and not LEFT_OUT.match(name):
            own = name[:-2] + ".cc"
            includers = (git("grep", "-l", f'#include "{name}"', "--", "*.cc") or "").split("\n")
            chosen += [source for source in [own, *includers] if source in known][:1]
    return list(dict.fromkeys(chosen))


def known_sources(build):
    """Sources of the compilation database, from the root of the repository."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        paths = {os.path.relpath(os.path.join(entry["directory"], entry["file"])) for entry in json.load(file)}
    return {path for path in paths if path.endswith(".cc") and not path.startswith("..") and not LEFT_OUT.match(path)}


def findings(build, source):
    """Output of clang-tidy about a source; empty if it has no findings."""
    done = subprocess.run(["clang-tidy", "-p", build, "--quiet", "--warnings-as-errors=*",
                           "--extra-arg=-Wno-unknown-warning-option", source], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    o = parser.parse_args()
    known = known_sources(o.build)
    if o.all:
        sources = sorted(known)
    else:
        since, why = base()
        print(f"changes since {(since or 'HEAD')[:12]} ({why})", flush=True)
        sources = sources_of(changed_files(since), known)
    end = time.monotonic() + o.limit_s

    def look(source):
        return None if time.monotonic() > end else findings(o.build, source)

    bad = left = 0
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        for source, said in zip(sources, pool.map(look, sources)):
            left += said is None
            bad += bool(said)
            if said:
                print(f"== {source}\n{said}", flush=True)
    rest = f"; {left} not looked at for want of time" if left else ""
    print(f"{len(sources) - left} sources, {bad} with findings{rest}")
    return 1 if bad or (o.all and left) else 0


if __name__ == "__main__":
    sys.exit(main())
