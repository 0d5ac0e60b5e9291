#!/usr/bin/env python3
"""Makes sentences whose names are tagged: make.py SENTENCES SEED > entities.conll

Everything is made up, the names too: each is put together from syllables, so that most names of one file are in no other, and
a tagger has to look at what stands around them.
"""
import random
import sys

SYLLABLES = "ba den dor el fa gar hol im ka len mar ne or pel ran sil ta ul ver wen".split()
VERBS = "visited praised left bought met founded joined warned".split()
PATTERNS = ["PER lives in LOC .", "PER works for ORG .", "ORG opened an office in LOC last year .",
            "The mayor of LOC VERB PER .", "In LOC , PER VERB the head of ORG .", "PER VERB PER in the streets of LOC .",
            "Shares of ORG fell after PER VERB the plant .", "It rained in LOC when PER arrived .",
            "Nobody VERB the old bridge .", "The baker VERB a horse in May ."]


def name(draw, syllables):
    return "".join(draw.choice(SYLLABLES) for _ in range(syllables)).capitalize()


def entity(draw, kind):
    """Words of a name: one or two of a person, one of a place, two of a firm."""
    if kind == "PER":
        return [name(draw, 2) for _ in range(draw.choice([1, 2, 2]))]
    return [name(draw, 3)] if kind == "LOC" else [name(draw, 2), draw.choice(["Works", "Bank", "Lines"])]


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    for _ in range(count):
        for word in draw.choice(PATTERNS).split():
            if word in ("PER", "LOC", "ORG"):
                for i, part in enumerate(entity(draw, word)):
                    print(f"{part}\t{'B' if i == 0 else 'I'}-{word}")
            else:
                print(f"{draw.choice(VERBS) if word == 'VERB' else word}\tO")
        print()


if __name__ == "__main__":
    main()
