#!/usr/bin/env python3
"""Prints the suites that .ci/run adds for what the last commits touched, one a line: TARGET MINUTES WORDS.

usage: touched.py [FILE...]

TARGET is of the Makefile, MINUTES what it takes on two cores. tools/changed.py says what the last commits touched;
FILEs stand in its place. `make check-all` runs every suite in full.
"""
import fnmatch
import sys

from changed import base, changed_files

ARITHMETIC = ["qkv/kernels/*", "qkv/ops/*", "qkv/quant/*", "qkv/tensor/*", "qkv/autograd/*"]
MODELS = ["qkv/batch/*", "qkv/nn/*", "qkv/models/*"]
# target, minutes, words, patterns of files (* is any path); those to drop first come last
SUITES = [
    ("seeds", 1, "60 random models of each suite against the specification",
     [*ARITHMETIC, *MODELS, "qkv/optim/*", "formal/*", "tests/formal/*"]),
    ("isa", 1, "tests again on slower instruction sets", [*ARITHMETIC, "tests/CMakeLists.txt"]),
    ("benches", 2, "benchmarks: build", ["bench/*", "qkv/*.h", "CMakeLists.txt", "cmake/*"]),
    ("shape-fuzz", 10, "random shapes under ASan and UBSan",
     [*ARITHMETIC, *MODELS, "qkv/optim/*", "qkv/infer/*", "qkv/io/family/*", "qkv/bridge/*", "tests/fuzz/*"]),
    ("tidy", 8, "clang-tidy on what changed", ["*.cc", "*.h"]),
]


def touched(names):
    """The suites for these files."""
    return [(target, minutes, words) for target, minutes, words, patterns in SUITES
            if any(fnmatch.fnmatchcase(name, pattern) for name in names for pattern in patterns)]


def main():
    for target, minutes, words in touched(sys.argv[1:] or changed_files(base()[0])):
        print(target, minutes, words)


if __name__ == "__main__":
    main()
