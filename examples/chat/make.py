#!/usr/bin/env python3
"""Conversations made from nothing, a line of JSON each: numbers that are added, words that are turned round, and thanks; one
to three questions each.

    make.py COUNT SEED > conversations.jsonl
"""
import json
import random
import sys

WORDS = "sun tree rain wind leaf stone bird moon star lake snow fire road ship bell lamp book door salt corn".split()


def question(rng):
    kind = rng.randrange(3)
    if kind == 0:
        a, b = rng.randrange(10), rng.randrange(10)
        return f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}."
    if kind == 1:
        words = rng.sample(WORDS, 3)
        return "Turn round: " + " ".join(words), " ".join(reversed(words))
    return rng.choice(["Thank you!", "Thanks."]), "You are welcome."


def conversation(rng):
    messages = []
    for _ in range(rng.randint(1, 3)):
        asked, answer = question(rng)
        messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return {"messages": messages}


rng = random.Random(int(sys.argv[2]))
for _ in range(int(sys.argv[1])):
    print(json.dumps(conversation(rng)))
