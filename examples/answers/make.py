#!/usr/bin/env python3
"""Makes questions with texts that hold their answers: make.py EXAMPLES SEED > questions.tsv

Everything is made up: people, towns, trades and pets drawn at random, in sentences in random order.
"""
import random
import sys

PEOPLE = "Anna Bela Carl Dora Emil Fritz Greta Hanna Ivan Jonas Karla Lena Moritz Nora Otto Paula".split()
TOWNS = "Aalen Bremen Celle Dresden Erfurt Fulda Gera Halle Ilmenau Jena Kassel Lemgo Mainz Neuss".split()
TRADES = ["baker", "carpenter", "doctor", "engineer", "gardener", "painter", "school teacher", "train driver"]
PETS = ["cat", "grey parrot", "horse", "small dog", "rabbit", "tortoise"]
FACTS = [("lives in {}", "Where does {} live?", TOWNS), ("works as a {}", "What does {} work as?", TRADES),
         ("has a {}", "Which animal does {} have?", PETS)]


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    print("question\tcontext\tanswer")
    for _ in range(count):
        # Three people, each with another kind of fact; one is asked for.
        facts = list(zip(draw.sample(PEOPLE, 3), draw.sample(FACTS, 3)))
        sentences, questions = [], []
        for person, (says, asks, values) in facts:
            value = draw.choice(values)
            sentences.append(f"{person} {says.format(value)}.")
            questions.append((asks.format(person), value))
        question, answer = draw.choice(questions)
        print(f"{question}\t{' '.join(sentences)}\t{answer}")


if __name__ == "__main__":
    main()
