#!/usr/bin/env python3
"""Runs clang-tidy on the sources that changed, or on all of them; any finding is an error.

usage: tidy.py BUILD [--all] [--limit-s SECONDS] [--jobs N]

BUILD holds compile_commands.json. Changed is what differs from a base, uncommitted changes included. The base is the
first of these that exists: $QKV_TIDY_BASE; where HEAD left origin/main, if it did; the nearest tag before HEAD;
HEAD~20; HEAD~1. Without any, the files of HEAD are taken. The newest changes come first, and no file is begun after
SECONDS: how many are left is printed, and `make check-all` looks at all. A changed header is looked at through a source
that includes it.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

# Highway compiles these once for each instruction set by including them in themselves, which clang-tidy cannot follow.
LEFT_OUT = re.compile(r"^qkv/kernels/cpu/")


def git(*words):
    """Standard output of a git command, stripped; None where it fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def commit(name):
    return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")


def base():
    """(commit or None, why it)"""
    if given := os.environ.get("QKV_TIDY_BASE"):
        if not commit(given):
            raise SystemExit(f"QKV_TIDY_BASE: there is no commit {given}")
        return commit(given), f"QKV_TIDY_BASE={given}"
    head = commit("HEAD")
    left = git("merge-base", "HEAD", "origin/main")
    if left and left != head:
        return left, "where HEAD left origin/main"
    if tag := git("describe", "--tags", "--abbrev=0", "HEAD~1"):
        return commit(tag), f"the tag {tag}"
    for name in "HEAD~20", "HEAD~1":
        if found := commit(name):
            return found, name
    return None, "nothing: the files of HEAD"


def changed_files(since):
    """Newest first: uncommitted ones, then by commit."""
    words = [f"{since}..HEAD"] if since else ["-1", "HEAD"]
    names = (git("diff", "--name-only", "HEAD") or "").split("\n")
    names += (git("log", "--name-only", "--format=", "--root", *words) or "").split("\n")
    return [name for name in dict.fromkeys(names) if name and os.path.exists(name)]


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
