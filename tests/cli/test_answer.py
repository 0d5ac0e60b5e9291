#!/usr/bin/env python3
"""qkv answer.

usage: test_answer.py QKV [unittest arguments]
"""
import json
import os
import random

from qkv_cli import EncoderTest, main


class Answer(EncoderTest):
    def test_answer(self):
        lines = "which fruit\tthe quick pear\n\nwhich tool\tan axe over it\n"
        plain = self.ask("answer", "answer", stdin=lines)
        self.assertEqual(len(plain.out.split("\n")), 4)
        self.assertEqual(plain.out.split("\n")[1], "")
        found = self.jsons("answer", "answer", stdin=lines)
        self.assertEqual([f["answer"] for f in found], [a or None for a in plain.out.split("\n")[:-1]])
        for f, line in zip(found, lines.split("\n")):
            if f["answer"] is not None:
                context = line.split("\t")[1]
                self.assertEqual(f["question"], line.split("\t")[0])
                self.assertEqual(context[f["begin"]:f["end"]], f["answer"])
                self.assertTrue(f["answer"])
        for limit in ("1", "2"):
            for f in self.jsons("answer", "answer", "--longest", limit, stdin=lines):
                self.assertLessEqual(len((f["answer"] or "").split()), int(limit))
        # Bytes, not characters.
        (found,) = self.jsons("answer", "answer", "--longest", "1", "--json-lines",
                              stdin=json.dumps({"question": "which fruit", "context": "\u00e9\u00e9 pear \u00e9"}))
        self.assertEqual("\u00e9\u00e9 pear \u00e9".encode()[found["begin"]:found["end"]].decode(), found["answer"])
        self.ok("train", os.path.join(self.shared, "config.toml"), "--set", "train.objective=answer", "--set",
                f"data.train={self.shared}/answers.tsv", "--set", "tokenizer.type=byte", "--set", "train.out=bytes",
                "--set", "train.steps=1", "--set", "model.context=48")
        chooser = random.Random(1)
        contexts = ["".join(chooser.choice("\u00e9\u00fc\u4e00\u4e8c a") for _ in range(8)) + "z" for _ in range(60)]
        for longest in ("1", "2"):  # tokens of bytes, yet answers of characters
            found = self.ok("answer", "bytes", "--json", "--longest", longest,
                            stdin="".join(f"q\t{c}\n" for c in contexts)).out.splitlines()
            for context, f in zip(contexts, map(json.loads, found)):
                self.assertEqual(context.encode()[f["begin"]:f["end"]].decode(), f["answer"])
        self.refused("answer", self.run_dir("answer"), stdin="\nwhich fruit\n", status=1,
                     says=[":2: expected a question, a tab"])
        self.assertEqual(self.ask("answer", "answer", stdin="\n  \n").out, "\n\n")


if __name__ == "__main__":
    main()
