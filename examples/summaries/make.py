#!/usr/bin/env python3
"""Makes match reports with their one-line summaries: make.py REPORTS SEED > reports.tsv

Everything is made up: teams, days, goals and what else happened, in sentences of several wordings.
"""
import random
import sys

TEAMS = "Aalen Bremen Celle Dresden Erfurt Fulda Gera Halle Ilmenau Jena Kassel Lemgo Mainz Neuss".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "no one two three four five six".split()
OPENINGS = ["{a} and {b} met on {day}.", "On {day} {b} received {a}.", "It was {day} when {a} came to {b}."]
ASIDES = ["The rain did not stop all day.", "Many had come to watch.", "The grass was in bad shape.",
          "A dog ran across the field.", "The second half began late.", "Both sides changed three players."]
WINS = ["It ended {more} to {less} for {winner}.", "{winner} won by {more} goals to {less}.",
        "{winner} scored {more} goals, the others {less}."]
DRAWS = ["It ended without a winner after {n} goals each.", "Both sides scored {n} goals."]


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    draw = random.Random(seed)
    print("source\ttarget")
    for _ in range(count):
        a, b = draw.sample(TEAMS, 2)
        day, goals = draw.choice(DAYS), [draw.randrange(7), draw.randrange(7)]
        if goals[0] == goals[1]:
            result = draw.choice(DRAWS).format(n=NUMBERS[goals[0]])
            summary = f"{a} and {b} drew {goals[0]}:{goals[1]} on {day}."
        else:
            (more, winner), (less, loser) = sorted(zip(goals, (a, b)), reverse=True)
            result = draw.choice(WINS).format(winner=winner, more=NUMBERS[more], less=NUMBERS[less])
            summary = f"{winner} beat {loser} {more}:{less} on {day}."
        text = [draw.choice(OPENINGS).format(a=a, b=b, day=day), result]
        for aside in draw.sample(ASIDES, draw.randrange(1, 4)):
            text.insert(draw.randrange(1, len(text) + 1), aside)
        print(f"{' '.join(text)}\t{summary}")


if __name__ == "__main__":
    main()
