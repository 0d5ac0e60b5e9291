#!/usr/bin/env python3
"""CLINC150's queries (https://github.com/clinc/oos-eval, CC BY 3.0) as texts and as pairs of query and intent.

    python3 examples/text_to_text/clinc150.py data_full.json 10 [MORE_TEXTS ...]

writes runs/clinc150/: texts.txt, all training queries without their intents (twice), the English side of
../translation's Tatoeba pairs and the lines of MORE_TEXTS (of a .csv file its column "text"); train.tsv, 10 queries of
each intent, valid.tsv, 5, and test.tsv, all of the test split.
"""
import csv
import gzip
import json
import os
import random
import sys



def read(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf8", newline="") as file:
        return file.read()


def lines_of(path):
    text = read(path)
    return [row["text"] for row in csv.DictReader(text.splitlines(True))] if path.endswith(".csv") else text.splitlines()


if len(sys.argv) < 3:
    sys.exit(__doc__)
data = json.loads(read(sys.argv[1]))
out = "runs/clinc150"
os.makedirs(out, exist_ok=True)


def plain(text):
    """As the queries are: lower case, without punctuation."""
    return " ".join("".join(c for c in text.lower() if c not in "?!.,").split())


def some(examples, count):
    by_intent = {}
    for query, intent in examples:
        by_intent.setdefault(intent, []).append(query)
    chance = random.Random(1)
    chosen = [(q, intent) for intent in sorted(by_intent) for q in chance.sample(by_intent[intent], count)]
    chance.shuffle(chosen)
    return chosen


def write(name, examples):
    with open(os.path.join(out, name), "w", encoding="utf8") as file:
        file.write("source\ttarget\n")
        for query, intent in examples:
            file.write(f"{query}\t{intent.replace('_', ' ')}\n")


here = os.path.dirname(os.path.abspath(__file__))
pairs = lines_of(os.path.join(here, "../translation/tatoeba_en_de.tsv.gz"))
texts = 2 * [query for query, _ in data["train"]] + sorted({plain(pair.split("\t")[0]) for pair in pairs})
texts += [plain(text) for path in sys.argv[3:] for text in lines_of(path)]
texts = [t for t in texts if len(t) > 8]
random.Random(1).shuffle(texts)
with open(os.path.join(out, "texts.txt"), "w", encoding="utf8") as file:
    file.writelines(t + "\n" for t in texts)
write("train.tsv", some(data["train"], int(sys.argv[2])))
write("valid.tsv", some(data["val"], 5))
write("test.tsv", data["test"])
print(f"{out}: {len(texts)} texts, {150 * int(sys.argv[2])} pairs to learn from, {len(data['test'])} to test")
