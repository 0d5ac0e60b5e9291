#!/usr/bin/env python3
"""qkv classify.

usage: test_classify.py QKV [unittest arguments]
"""
import json
import os

from qkv_cli import EncoderTest, main, read, run_qkv, WORDS


class Classify(EncoderTest):
    def test_which_text_follows(self):
        arguments = [a for s in (f"train.out={self.path('next')}", "train.objective=masked", "data.train=lines.txt", "train.steps=3",
                                 'data.separator="\\n"', "train.next_sentence=true") for a in ("--set", s)]
        self.assertEqual(run_qkv("train", "config.toml", *arguments, cwd=self.shared).status, 0)
        told = [json.loads(line) for line in self.ok("classify", "next", "--json", "--best", "2", stdin="the fox\truns\nthe\tdog\n").out.splitlines()]
        for line in told:
            self.assertEqual({b["label"] for b in line["best"]}, {"next", "random"})
            self.assertAlmostEqual(sum(b["probability"] for b in line["best"]), 1, places=3)
        self.assertEqual(len(self.ok("fill", "next", stdin="the [MASK] runs\n").out.splitlines()), 1)

    def test_classify(self):
        lines = "the apple\n\nsaw\r\n  \na lazy drill and\nlast plum"
        plain = self.ask("classify", "classify", stdin=lines)
        self.assertEqual(plain.err, "")
        rows = [line.split("\t") for line in plain.out.split("\n")]
        self.assertEqual([r[0] for r in rows], ["fruit", "", "tool", "", "tool", "fruit", ""])
        found = self.jsons("classify", "classify", "--best", "5", stdin=lines)
        self.assertEqual([f["label"] for f in found], [r[0] or None for r in rows[:-1]])
        for f, row in zip(found, rows):
            if f["label"] is None:
                self.assertEqual(f, {"label": None})
                continue
            self.assertEqual(row[1], f"{f['probability']:.4f}")
            self.assertEqual({b["label"] for b in f["best"]}, set(self.KINDS))
            self.assertEqual(f["best"][0], {"label": f["label"], "probability": f["probability"]})
            self.assertAlmostEqual(sum(b["probability"] for b in f["best"]), 1, places=6)
        self.assertEqual(found[2]["text"], "saw")
        best = self.ask("classify", "classify", "--best", "2", stdin="saw\n").out.split("\t")
        self.assertEqual([best[0], best[2]], ["tool", "fruit"])
        # A line says the same alone, from a file, and a few tokens at a time.
        self.assertEqual(self.ask("classify", "classify", stdin="saw\n").out, plain.out.split("\n")[2] + "\n")
        self.write("in.txt", lines)
        for arguments in (["--file", self.path("in.txt")], ["--batch-tokens", "1", "--file", self.path("in.txt")]):
            self.assertEqual(self.ask("classify", "classify", *arguments).out, plain.out)
        self.assertEqual(self.ask("classify", "classify", stdin="").out, "")
        # More lines than are read at a time.
        many = self.ask("classify", "classify", stdin=(lines + "\n") * 250)
        self.assertEqual(many.out, plain.out * 250)
        self.refused("classify", self.run_dir("classify"), "--strict", stdin=(lines + "\n") * 250 + "fox " * 20 + "\n",
                     status=1, says=":1501: longer")
        self.assertEqual(self.ask("classify", "classify", "--dtype", "bf16", stdin="saw\n").out[:4], "tool")

    def test_pairs_of_texts(self):
        first = self.jsons("classify", "classify", stdin="the\tapple pear\n")[0]
        self.assertEqual((first["text"], first["second"]), ("the", "apple pear"))
        line = json.dumps({"text": "the", "second": "apple pear"})
        self.assertEqual(self.jsons("classify", "classify", "--json-lines", stdin=line), [first])
        # A pair is not the same as one text, and the order counts.
        others = self.jsons("classify", "classify", stdin="the apple pear\napple pear\tthe\n")
        self.assertEqual(len({first["probability"], *(o["probability"] for o in others)}), 3)
        self.assertNotIn("second", others[0])
        # A tab inside a JSON string divides nothing.
        line = json.dumps({"text": "the\tapple pear"})
        self.assertNotIn("second", self.jsons("classify", "classify", "--json-lines", stdin=line)[0])

    def test_labels_that_are_numbers(self):
        found = self.jsons("classify", "numbers", "--best", "9", stdin="the\n")[0]
        self.assertEqual({b["label"] for b in found["best"]}, {str(5 * len(w)) for w in WORDS})
        labels = json.loads(read(os.path.join(self.run_dir("numbers"), "best/config.json")))["id2label"]
        labels = [labels[str(i)] for i in range(len(labels))]
        self.assertEqual(labels, sorted(labels, key=int))

    def test_labels_that_training_does_not_show(self):
        self.write("config.toml", self.CONFIG)
        self.write("train.tsv", "text\tlabel\n" + "a\tx\nb\ty\n" * 20)
        self.write("valid.tsv", "text\tlabel\na\tx\nc\tz\n")
        result = self.ok("train", "config.toml", "--set", "train.objective=classify", "--set", "data.train=train.tsv",
                         "--set", "data.valid=valid.tsv", "--set", "train.out=run", "--set", "train.steps=2")
        self.assertIn("of 3 classes (z never in training)", result.err)
        labels = [b["label"] for b in json.loads(self.ok("classify", "run", "--json", "--best", "9", stdin="a").out)["best"]]
        self.assertEqual(sorted(labels), ["x", "y", "z"])


if __name__ == "__main__":
    main()
