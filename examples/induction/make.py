#!/usr/bin/env python3
"""Random letters that come three times, for a model that learns to go on by looking back.

usage: make.py FILE [LINES] [SEED]

Each line has 6 to 24 random letters and digits, three times. Only what comes again can be known. Lengths differ, so no fixed
distance finds the letter that came next.
"""
import pathlib
import random
import string
import sys

LETTERS = string.ascii_letters + string.digits


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    file, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 25000
    chooser = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as out:
        for _ in range(count):
            out.write(3 * "".join(chooser.choices(LETTERS, k=chooser.randint(6, 24))) + "\n")


main()
