#!/usr/bin/env python3
"""Trains what examples/ makes its own data for, on less of it, and expects that the task is learnt.

usage: test_examples.py QKV [unittest arguments]
"""
import json
import os
import subprocess
import sys
import unittest

from qkv_cli import CliTest, main

# The longer ones are left to `make check-all`; all their commands run with fewer steps in `make docs-check`.
long = unittest.skipUnless("QKV_CHECK_ALL" in os.environ, "trained by make check-all")
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")


class MadeData(CliTest):
    def out(self, *arguments, stdin=""):
        return self.ok(*arguments, stdin=stdin, timeout=600).out

    def made(self, name, file, count, seed):
        path = os.path.join(self.folder, file)
        with open(path, "w") as out:
            subprocess.run([sys.executable, os.path.join(EXAMPLES, name, "make.py"), str(count), str(seed)], stdout=out,
                           check=True)
        return path

    def trained(self, name, file, count, *settings):
        more = [part for setting in settings for part in ("--set", setting)]
        self.out("train", os.path.join(EXAMPLES, name, f"{name}.toml"), "--set",
                 f"data.train={self.made(name, file, count, 1)}", "--set", "train.out=run", "--set", "train.precision=f32",
                 *more)

    def figures(self, name, file, count, *options):
        """Scores on data that the run has not seen."""
        return json.loads(self.out("eval", "run", "--data", self.made(name, file, count, 2), "--json", *options))

    def test_entities(self):
        self.trained("entities", "entities.conll", 2000, "train.steps=250")
        self.assertGreater(self.figures("entities", "test.conll", 300)["f1"], 0.95)
        line = "Nobody warned Silta Benel in the streets of Gardorul ."
        words = self.out("tag", "run", stdin=line + "\n").split()
        self.assertEqual([word.rsplit("/", 1)[0] for word in words], line.split())
        self.assertIn("Gardorul/B-LOC", words)

    @long
    def test_answers(self):
        self.trained("answers", "questions.tsv", 3000, "train.steps=400")
        self.assertGreater(self.figures("answers", "test.tsv", 200)["exact_match"], 0.9)

    @long
    def test_entailment(self):
        self.trained("entailment", "pairs.tsv", 12000, "train.steps=500")
        self.assertGreater(self.figures("entailment", "test.tsv", 300, "--second-column", "second")["accuracy"], 0.95)
        text = "Anna has a red hat. Otto has a blue kite."
        labels = self.out("classify", "run", stdin="".join(f"{text}\t{second}\n" for second in (
            "Otto has a blue kite.", "Anna has a green hat.", "Lena has a red hat."))).split()
        self.assertEqual(labels[::2], ["entailment", "contradiction", "neutral"])

    @long
    def test_summaries(self):
        self.trained("summaries", "reports.tsv", 6000, "train.steps=600")
        self.assertGreater(self.figures("summaries", "test.tsv", 100)["exact_match"], 0.9)
        text = "On Sunday Jena received Celle. A dog ran across the field. It ended six to no for Celle."
        self.assertEqual(self.out("summarize", "run", stdin=text + "\n"), "Celle beat Jena 6:0 on Sunday.\n")

    def test_chat(self):
        self.trained("chat", "conversations.jsonl", 3000, "train.steps=400")
        self.assertLess(self.figures("chat", "test.jsonl", 100)["loss"], 0.05)
        answers = self.out("chat", "run", "--temperature", "0",
                           stdin="What is 3 plus 4?\nTurn round: sun moon lake\nThanks.\n")
        self.assertEqual(answers, "3 plus 4 is 7.\nlake moon sun\nYou are welcome.\n")


if __name__ == "__main__":
    main()
