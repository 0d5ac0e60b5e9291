#!/usr/bin/env python3
"""Letters with digits in any order, and the same in the alphabet's order: what a model must look up by its key.

usage: make.py FILE [EXAMPLES] [SEED]

Each source has 2 to 8 pairs of a letter and a digit. The target repeats them by their letters, so each digit must be found by its letter.
"""
import pathlib
import random
import string
import sys


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    file, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 30000
    chooser = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        out.write("source\ttarget\n")
        for _ in range(count):
            pairs = [f"{key} {chooser.choice(string.digits)}" for key in chooser.sample(string.ascii_lowercase, chooser.randint(2, 8))]
            out.write(" ".join(pairs) + "\t" + " ".join(sorted(pairs)) + "\n")


main()
