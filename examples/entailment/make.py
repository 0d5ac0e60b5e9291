#!/usr/bin/env python3
"""Makes pairs of texts, of which the second follows from the first, contradicts it, or neither: make.py PAIRS SEED > pairs.tsv

Everything is made up: people and their things, in sentences in random order. A word alone tells nothing: what counts is whether the
other text has it, too.
"""
import random
import sys

PEOPLE = "Anna Bela Carl Dora Emil Fritz Greta Hanna Ivan Jonas Karla Lena Moritz Nora Otto Paula".split()
COLOURS = "red green blue black white yellow".split()
THINGS = "bicycle boat coat hat house kite lamp tent".split()


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    print("text\tsecond\tlabel")
    for _ in range(count):
        # Two people, each with a thing of another colour, and words that neither has.
        people, colours, things = draw.sample(PEOPLE, 3), draw.sample(COLOURS, 3), draw.sample(THINGS, 2)
        text = " ".join(f"{person} has a {colour} {thing}." for person, colour, thing in zip(people, colours, things))
        label, chosen = draw.choice(["entailment", "contradiction", "neutral"]), draw.randrange(2)
        person, colour, thing = people[chosen], colours[chosen], things[chosen]
        if label == "contradiction":
            colour = colours[2]  # the thing has another
        if label == "neutral":
            person = people[2]  # nothing is said about them
        print(f"{text}\t{person} has a {colour} {thing}.\t{label}")


if __name__ == "__main__":
    main()
