#!/usr/bin/env python3
"""Sums of several steps, with their steps written out or not, and questions with answers.

usage: make.py DIR [EXAMPLES] [SEED]

DIR/plain.txt and DIR/reasoned.txt have the same sums, one a line; DIR/plain.jsonl and DIR/reasoned.jsonl
have 100 other sums as questions for each.
"""
import json
import pathlib
import random
import sys

TERMS, LARGEST = 5, 20


def steps_of(terms):
    """12+7=19, 19+3=22: each step adds one number to the sum so far."""
    total, steps = terms[0], []
    for term in terms[1:]:
        steps.append(f"{total}+{term}={total + term}")
        total += term
    return ", ".join(steps)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    chooser = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    questions, lines = {}, {"plain": [], "reasoned": []}
    while len(lines["plain"]) < count or len(questions) < 100:
        terms = [chooser.randint(1, LARGEST) for _ in range(TERMS)]
        question, answer = "+".join(map(str, terms)), sum(terms)
        if len(questions) < 100:
            questions[question] = answer
        elif question not in questions:
            lines["plain"].append(f"Q: {question} A: {answer}")
            lines["reasoned"].append(f"Q: {question} R: {steps_of(terms)} A: {answer}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, those in lines.items():
        (folder / f"{name}.txt").write_text("\n".join(those) + "\n")
    for name, prompt in (("plain", "\nQ: {} A:"), ("reasoned", "\nQ: {} R:")):
        rows = [json.dumps({"input": prompt.format(q), "output": a}) for q, a in questions.items()]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")


main()
