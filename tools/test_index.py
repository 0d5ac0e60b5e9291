#!/usr/bin/env python3
"""Checks that each source file's test can be found by its name or by a line in the test.

usage: test_index.py [REPOSITORY] [FILE.cc...]

A file qkv/FOLDER/NAME.cc has a test when one of these exists:
- tests/**/NAME_test.cc;
- tests/**/test_NAME.py, where the command line's NAME_command.cc counts as NAME;
- a line `Covers: qkv/FOLDER/NAME.cc, ...` in a comment of a file below tests/. A name may hold `*`.
Unit tests mirror the folders: tests/unit/FOLDER/NAME_test.cc is of qkv/FOLDER, and where files of qkv are called NAME,
one of them is there.
Prints one line a violation, "file: why", and exits with 1 when there is any. With FILE.cc it prints the tests of these
files instead.
"""
import fnmatch
import os
import re
import sys

COVERS = re.compile(r"^\s*(?://|#)\s*Covers:\s*(.*?)\s*$")
PATTERN = re.compile(r"qkv/[\w*/-]+\.cc")


def files_below(root, top, suffixes):
    """Paths from the root of the repository, in order."""
    for folder, folders, names in os.walk(os.path.join(root, top)):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            if name.endswith(suffixes):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def claims_of(root, test):
    """(line number, pattern or None where the text is none) of a test's Covers lines."""
    with open(os.path.join(root, test), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if match := COVERS.match(line):
                for name in (part.strip() for part in match[1].rstrip(",").split(",")):
                    yield number, name


def names_of(source):
    """Names that a test of this file may have."""
    base = source.split("/")[-1][:-len(".cc")]
    short = base.removesuffix("_command") if source.startswith("qkv/cli/") else base
    return {f"{base}_test.cc", f"test_{base}.py", f"test_{short}.py"}


def misplaced(sources, tests):
    """Problems of unit tests that are not in the folder of what they test."""
    folders_of = {}
    for source in sources:
        folders_of.setdefault(source.split("/")[-1], set()).add(source.split("/")[1])
    known = set().union(*folders_of.values())
    for test in tests:
        if not test.startswith("tests/unit/") or not test.endswith("_test.cc"):
            continue
        folder, name = test.split("/")[2], test.split("/")[-1].replace("_test.cc", ".cc")
        if folder not in known:
            yield f"{test}: a unit test is in tests/unit/FOLDER of qkv/FOLDER"
        elif folder not in folders_of.get(name, {folder}):
            yield f"{test}: {name} is in {' and '.join(f'qkv/{f}' for f in sorted(folders_of[name]))}"


def index(root):
    """({source: [test, ...]}, problems)"""
    sources = list(files_below(root, "qkv", (".cc",)))
    tests = list(files_below(root, "tests", (".cc", ".py")))
    found = {source: [test for test in tests if test.split("/")[-1] in names_of(source)] for source in sources}
    problems = []
    for test in tests:
        for number, pattern in claims_of(root, test):
            matching = fnmatch.filter(sources, pattern) if PATTERN.fullmatch(pattern) else []
            if not matching:
                problems.append(f"{test}:{number}: no file matches '{pattern}': correct the Covers line")
            for source in matching:
                if test not in found[source]:
                    found[source].append(test)
    for source, its_tests in found.items():
        if not its_tests:
            problems.append(f"{source}: no test is named after it, and no test says `Covers: {source}`")
    problems += misplaced(sources, tests)
    if not sources:
        problems.append(f"{root}: no sources found")
    return found, problems


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found, problems = index(root)
    for source in sys.argv[2:]:
        print(f"{source}: {', '.join(found.get(source, [])) or 'no test'}")
    for problem in problems:
        print(problem)
    print(f"{len(found)} files, {len(problems)} violations")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
