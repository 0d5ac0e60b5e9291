#!/usr/bin/env python3
"""Makes questions with texts that hold their answers: make.py EXAMPLES SEED > questions.tsv

Everything is made up: people, towns, trades and pets drawn at random, in sentences in random order.
"""
import random
import sys

PEOPLE = "Anna Bela Carl Dora Emil Fritz Greta Hanna Ivan Jonas Karla Lena Moritz Nora Otto Paula".split()
TOWNS = "Aalen Bremen Celle Dresden Erfurt Fulda Gera Halle Ilmenau Jena Kassel Lemgo Mainz Neuss".split()
TRADES = ["baker", "carpenter", "doctor", "engineer", "gardener", "painter", "school teacher", "train driver"]
PETS = ["cat", "grey parrot", "horse", "old dog", "rabbit", "tortoise"]
FACTS = [("lives in {}", "Where does {} live?", TOWNS), ("works as a {}", "What does {} work as?", TRADES),
         ("has a {}", "Which animal does {} have?", PETS)]


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    print("question\tcontext\tanswer")
    for _ in range(count):
        sentences, questions = [], []
        for person in draw.sample(PEOPLE, 3):
            for says, asks, values in draw.sample(FACTS, 2):
                value = draw.choice(values)
                sentences.append(f"{person} {says.format(value)}.")
                questions.append((asks.format(person), value))
        # An answer is found by its first place: only those that stand once in the text are asked for.
        context = " ".join(draw.sample(sentences, len(sentences)))
        questions = [q for q in questions if context.count(q[1]) == 1]
        if questions:
            question, answer = draw.choice(questions)
            print(f"{question}\t{context}\t{answer}")


if __name__ == "__main__":
    main()
