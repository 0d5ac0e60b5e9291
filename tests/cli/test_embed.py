#!/usr/bin/env python3
"""qkv embed, and runs that learn the vectors.

usage: test_embed.py QKV [unittest arguments]
"""
import json
import shutil

from qkv_cli import EncoderTest, main, read_text, run_qkv, WORDS


class Embed(EncoderTest):
    def test_vectors_of_pairs(self):
        fruit = [(f"{a} {b}", f"{b} {a} {a}") for a in WORDS for b in WORDS if a != b]
        self.write("pairs.tsv", "one\tother\n" + "".join(f"{a}\t{b}\n" for a, b in fruit))
        arguments = [a for s in (f"train.out={self.path('vectors')}", "train.objective=embed", f"data.train={self.path('pairs.tsv')}",
                                 "data.text_column=one", "data.second_column=other") for a in ("--set", s)]
        trained = run_qkv("train", "config.toml", *arguments, cwd=self.shared)
        self.assertEqual(trained.status, 0, trained)
        self.assertRegex(trained.err, r"baselines: shared words [0-9.]+%")
        self.assertRegex(trained.err, r"retrieval accuracy [0-9.]+% of [0-9]+ candidates")
        self.write("few.tsv", "one\tother\n" + "".join(f"{a}\t{b}\n" for a, b in fruit[::3][:12]))
        columns = ["--text-column", "one", "--second-column", "other"]
        told = json.loads(self.ok("eval", "vectors", "--data", "few.tsv", *columns, "--json").out)
        self.assertEqual((told["pairs"], told["candidates"], told["accuracy"]), (12, 12, told["recall_at_1"]))

        def vectors(lines):
            return [json.loads(line)["embedding"] for line in self.ok("embed", "vectors", "--json", stdin="\n".join(lines) + "\n").out.splitlines()]
        rows = [line.split("\t") for line in read_text(self.path("few.tsv")).splitlines()[1:]]
        first, second = vectors([r[0] for r in rows]), vectors([r[1] for r in rows])
        ranks = []
        for i, v in enumerate(first):
            cosines = [sum(a * b for a, b in zip(v, w)) for w in second]
            ranks.append(1 + sum(c > cosines[i] for c in cosines))
        self.assertAlmostEqual(told["recall_at_1"], sum(r == 1 for r in ranks) / 12)
        self.assertAlmostEqual(told["mean_reciprocal_rank"], sum(1 / r for r in ranks) / 12, places=5)
        text = self.ok("eval", "vectors", "--data", "few.tsv", *columns).out
        self.assertIn(f"mean reciprocal rank {told['mean_reciprocal_rank']:.4f}", text)
        # Without options the columns are those of the run; without its run the model needs the other text's name.
        self.assertEqual(json.loads(self.ok("eval", "vectors", "--data", "few.tsv", "--json").out), told)
        shutil.copytree(self.path("vectors/best"), self.path("alone"))
        self.refused("eval", "alone", "--data", "few.tsv", status=2, says="--second-column")
        self.refused("eval", "vectors", "--data", "few.tsv", "--label-column", "x", status=2, says=["--label-column", "only for"])
        self.refused("embed", "vectors", "--query", "", stdin="fox\n", status=1, says="--query")
        self.refused("embed", "vectors", "--best", "2", stdin="fox\n", status=2, says="--query")

    def test_embed(self):
        lines = "the apple\n\nsaw the fox\nthe apple\n"
        vectors = [[float(x) for x in line.split()] for line in self.ask("embed", "masked", stdin=lines).out.splitlines()]
        self.assertEqual([len(v) for v in vectors], [16, 0, 16, 16])
        self.assertEqual(vectors[0], vectors[3])
        for v in (vectors[0], vectors[2]):
            self.assertAlmostEqual(sum(x * x for x in v), 1, places=4)
        found = self.jsons("embed", "masked", stdin=lines)
        self.assertEqual(found[1], {"embedding": None})
        self.assertEqual(found[2]["text"], "saw the fox")
        for a, b in zip(found[2]["embedding"], vectors[2]):
            self.assertAlmostEqual(a, b, places=5)
        pooled = {p: self.ask("embed", "masked", "--pooling", p, stdin="saw the fox\n").out for p in ("first", "mean")}
        self.assertNotEqual(pooled["first"], pooled["mean"])
        self.assertEqual(pooled["first"], self.ask("embed", "masked", stdin="saw the fox\n").out)
        self.refused("embed", self.run_dir("masked"), "--pooling", "max", status=2, says=["--pooling"], stdin="a\n")
        # Every encoder has vectors.
        for name in ("classify", "tag", "answer"):
            v = [float(x) for x in self.ask("embed", name, stdin="the fox\n").out.split()]
            self.assertAlmostEqual(sum(x * x for x in v), 1, places=4)
        # Nothing but empty lines, and nothing at all.
        self.assertEqual(self.ask("embed", "masked", stdin="\n \n").out, "\n\n")
        self.assertEqual(self.ask("embed", "masked", stdin="").out, "")

    def test_embed_of_a_query(self):
        lines = "saw\n\nthe apple\nquick brown fox\n"
        ranked = self.ask("embed", "masked", "--query", "the apple", stdin=lines).out.splitlines()
        self.assertEqual(ranked[0], "1.0000\tthe apple")
        self.assertEqual(len(ranked), 3)
        cosines = [float(r.split("\t")[0]) for r in ranked]
        self.assertEqual(cosines, sorted(cosines, reverse=True))
        vectors = {f["text"]: f["embedding"] for f in self.jsons("embed", "masked", stdin=lines.replace("\n\n", "\n"))}
        for found in self.jsons("embed", "masked", "--query", "the apple", stdin=lines):
            expected = sum(a * b for a, b in zip(vectors[found["text"]], vectors["the apple"]))
            self.assertAlmostEqual(found["cosine"], expected, places=5)
        self.assertEqual(self.ask("embed", "masked", "--query", "the apple", "--best", "1", stdin=lines).out,
                         ranked[0] + "\n")


if __name__ == "__main__":
    main()
