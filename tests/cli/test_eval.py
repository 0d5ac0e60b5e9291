#!/usr/bin/env python3
"""qkv eval.

usage: test_eval.py QKV [unittest arguments]
"""
# Covers: qkv/cli/eval_encoder.cc
import json
import math
import os

from qkv_cli import configuration, EncoderTest, FinishedRun, main, make_text, read, read_text, run_qkv, WORDS


class Eval(FinishedRun):
    def test_text_and_json_agree(self):
        text = self.ok("eval", self.run_dir, "--data", "text.txt").out
        figures = json.loads(self.ok("eval", self.run_dir, "--data", "text.txt", "--json").out)
        self.assertEqual(figures["characters"], len(make_text()))
        self.assertEqual(figures["tokens"], len(make_text()) - 1)
        self.assertIn(f"{figures['loss']:.4f}", text)
        self.assertLess(figures["loss"], 3.4)

    def test_a_directory_or_its_run(self):
        run, best = (self.ok("eval", d, "--data", "text.txt", "--json").out
                     for d in (self.run_dir, os.path.join(self.run_dir, "best")))
        self.assertEqual(run, best)

    def test_options_of_a_prefix_lm(self):
        self.write("prefix.toml", configuration(out="prefix", steps=2, model__order="prefix"))
        self.ok("train", "prefix.toml")
        whole, one = (json.loads(self.ok("eval", "prefix", "--data", "text.txt", "--json", *batch).out)["loss"]
                      for batch in ((), ("--batch", "1")))
        self.assertAlmostEqual(whole, one, places=5)
        self.refused("eval", "prefix", "--data", "text.txt", "--mask-rate", "0.2", status=2, says="a prefix LM")

    def test_bad_text(self):
        self.write("empty.txt", "")
        self.write("one.txt", "a")
        self.write("latin1.txt", b"the caf\xe9")
        self.refused("eval", self.run_dir, "--data", "missing.txt", status=1, says="missing.txt")
        self.refused("eval", self.run_dir, "--data", ".", status=1, says="directory")
        self.refused("eval", self.run_dir, "--data", "empty.txt", status=1, says=["empty.txt", "empty"])
        self.refused("eval", self.run_dir, "--data", "one.txt", status=1, says=["one.txt", "short"])
        self.refused("eval", self.run_dir, "--data", "latin1.txt", status=1, says=["latin1.txt", "UTF-8"])

    def test_bad_directory(self):
        os.mkdir(self.path("hollow"))
        self.refused("eval", "missing", "--data", "text.txt", status=1, says="missing")
        self.refused("eval", "hollow", "--data", "text.txt", status=1, says=["hollow", "config.json"])


class EvalEncoders(EncoderTest):
    def evaluated(self, name, file, *arguments):
        data = ("--data", os.path.join(self.shared, file))
        return (json.loads(self.ask("eval", name, *data, "--json", *arguments).out),
                self.ask("eval", name, *data, *arguments).out)

    def test_what_the_vocabulary_lacks(self):
        arguments = [a for s in (f"train.out={self.path('words')}", "model.architecture=decoder", "data.train=text.txt",
                                 "tokenizer.type=word", "train.steps=1") for a in ("--set", s)]
        self.assertEqual(run_qkv("train", "windows.toml", *arguments, cwd=self.shared).status, 0)
        self.write("known.txt", "the quick fox the quick fox")
        self.write("unknown.txt", "the quick fox zzz quick fox")
        known, unknown = (self.ok("eval", "words", "--data", name) for name in ("known.txt", "unknown.txt"))
        self.assertIn("bits per byte", known.out)
        self.assertNotIn("bits per byte", unknown.out)
        self.assertIn("the vocabulary lacks some of the text", unknown.err)
        self.assertNotIn("bits_per_byte", json.loads(self.ok("eval", "words", "--data", "unknown.txt", "--json").out))

    def test_eval_of_classes(self):
        figures, text = self.evaluated("classify", "classes.tsv")
        self.assertEqual(set(figures), {"loss", "accuracy", "macro_f1", "micro_f1", "matthews", "examples", "truncated", "missed", "classes",
                                        "confusion"})
        self.assertEqual(figures["examples"], 300)
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "classes.tsv")).splitlines()[1:]]
        said = [f["label"] for f in self.jsons("classify", "classify", stdin="".join(r[0] + "\n" for r in rows))]
        kinds = sorted(self.KINDS)
        self.assertEqual(figures["confusion"], [[sum(1 for (_, g), p in zip(rows, said) if (g, p) == (gold, predicted))
                                                 for predicted in kinds] for gold in kinds])
        right = sum(g == p for (_, g), p in zip(rows, said))
        self.assertAlmostEqual(figures["accuracy"], right / 300)
        self.assertIn(f"accuracy      {100 * right / 300:.2f}%", text)
        self.assertAlmostEqual(figures["micro_f1"], right / 300)
        self.assertNotIn("micro_f1", text)  # the same
        for i, c in enumerate(figures["classes"]):
            self.assertEqual(c["label"], kinds[i])
            self.assertEqual(c["support"], 150)
            self.assertAlmostEqual(c["precision"], figures["confusion"][i][i] / c["predicted"])
            self.assertAlmostEqual(c["recall"], figures["confusion"][i][i] / 150)
            self.assertRegex(text, rf"(?m)^{c['label']} +{100 * c['precision']:.2f}% +{100 * c['recall']:.2f}% ")
            self.assertRegex(text, rf"(?m)^{c['label']} +{figures['confusion'][i][0]} +{figures['confusion'][i][1]}$")
        # Columns by other names, in a file without a header.
        self.write("bare.csv", "".join(f'{label},"{text}"\n' for text, label in rows))
        named = self.ask("eval", "classify", "--data", "bare.csv", "--columns", "kind,line", "--text-column", "line",
                         "--label-column", "kind", "--json").out
        self.assertEqual(json.loads(named), figures)
        self.write("long.tsv", "text\tlabel\n" + "fox " * 30 + "\ttool\n")
        self.assertIn("truncated     1 were longer than 16 tokens", self.ask("eval", "classify", "--data", "long.tsv").out)
        self.refused("eval", self.run_dir("classify"), "--data", "long.tsv", "--strict", status=1, says=["long.tsv", "1 examples", "16 tokens"])
        self.refused("eval", self.run_dir("masked"), "--data", "long.tsv", "--strict", status=2, says=["--strict", "only for"])

    def test_eval_of_many_classes(self):
        self.write("config.toml", self.CONFIG)
        self.write("many.tsv", "text\tlabel\n" + "".join(f"{WORDS[i % 8]}\tc{i % 21}\n" for i in range(84)))
        self.ok("train", "config.toml", "--set", "train.objective=classify", "--set", "data.train=many.tsv", "--set",
                "train.steps=1", "--set", "train.out=many")
        text = self.ok("eval", "many", "--data", "many.tsv").out
        self.assertIn("classes       21: --json lists them", text)
        self.assertNotIn("precision", text)
        self.assertEqual(len(json.loads(self.ok("eval", "many", "--data", "many.tsv", "--json").out)["classes"]), 21)

    def test_eval_of_tags(self):
        figures, text = self.evaluated("tag", "tags.conll")
        self.assertEqual(set(figures), {"loss", "accuracy", "macro_f1", "micro_f1", "examples",
                                        "words", "truncated", "missed", "classes", "confusion"})
        sentences = [[line.split("\t") for line in s.splitlines()]
                     for s in read_text(os.path.join(self.shared, "tags.conll")).split("\n\n")]
        self.assertEqual(figures["examples"], len(sentences))
        found = self.jsons("tag", "tag", stdin="".join(" ".join(w for w, _ in s) + "\n" for s in sentences))
        pairs = [(gold, tag) for s, f in zip(sentences, found) for (_, gold), tag in zip(s, f["tags"])]
        self.assertEqual(figures["words"], len(pairs))
        self.assertAlmostEqual(figures["accuracy"], sum(g == p for g, p in pairs) / len(pairs))
        self.assertIn(f"of            {len(pairs)} words in {len(sentences)} sentences", text)
        # Words that are cut away are wrong, and said to be.
        self.write("long.conll", "fox N O\n" * 40)
        arguments = ("eval", "tag", "--data", "long.conll", "--word-column", "1", "--tag-column", "3")
        cut = json.loads(self.ask(*arguments, "--json").out)
        self.assertEqual((cut["words"], cut["truncated"]), (40, 1))
        self.assertGreaterEqual(cut["missed"], 26)
        self.assertEqual(sum(map(sum, cut["confusion"])), 40 - cut["missed"])
        self.assertLessEqual(cut["accuracy"], 1 - cut["missed"] / 40)
        # Nothing was found for them, so that they are missed, but not found wrongly.
        self.assertAlmostEqual(cut["micro_f1"], 2 * 40 * cut["accuracy"] / (40 + 40 - cut["missed"]))
        text = self.ask(*arguments).out
        self.assertIn(f"{cut['missed']} words beyond count as wrong", text)
        self.assertIn("(cut away)", text)

    def test_eval_of_answers(self):
        figures, text = self.evaluated("answer", "answers.tsv")
        self.assertEqual(set(figures), {"loss", "exact_match", "f1", "examples", "truncated", "missed"})
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "answers.tsv")).splitlines()[1:]]
        said = [f["answer"] for f in self.jsons("answer", "answer", stdin="".join(f"{q}\t{c}\n" for q, c, _ in rows))]

        def words(text):
            return [w for w in text.split() if w not in ("a", "an", "the")]
        exact = sum(words(a) == words(p) for (_, _, a), p in zip(rows, said)) / len(rows)
        self.assertAlmostEqual(figures["exact_match"], exact)
        self.assertGreaterEqual(figures["f1"], exact)
        self.assertIn(f"exact match   {100 * exact:.2f}%", text)
        self.write("far.tsv", "q\tc\ta\nwhich tool\t" + "fox " * 30 + "saw\tsaw\n")
        arguments = ("eval", "answer", "--data", "far.tsv", "--text-column", "q", "--second-column", "c",
                     "--label-column", "a")
        far = json.loads(self.ask(*arguments, "--json").out)
        self.assertEqual((far["missed"], far["truncated"], far["exact_match"], far["f1"], far["loss"]), (1, 1, 0, 0, 0))
        self.assertIn("1 of them lost the answer", self.ask(*arguments).out)

    def test_eval_of_hidden_tokens(self):
        figures, text = self.evaluated("masked", "lines.txt", "--separator", "\n")
        self.assertEqual(set(figures), {"loss", "perplexity", "hidden", "tokens", "sequences", "mask_rate", "seed"})
        self.assertAlmostEqual(figures["perplexity"], math.exp(figures["loss"]))
        self.assertIn(f"perplexity    {figures['perplexity']:.2f}", text)
        self.assertEqual(figures["sequences"], 300)
        other, _ = self.evaluated("masked", "lines.txt", "--separator", "\n", "--mask-seed", "5")
        self.assertNotEqual(other["loss"], figures["loss"])
        more, _ = self.evaluated("masked", "lines.txt", "--separator", "\n", "--mask-rate", "0.5")
        self.assertGreater(more["hidden"], 2 * figures["hidden"])
        # eval hides the same tokens as the validation of the run, so the loss is the same.
        self.write("config.toml", self.CONFIG)
        self.ok("train", "config.toml", "--set", "train.objective=masked", "--set", f"data.train={self.shared}/lines.txt",
                "--set", f"data.valid={self.shared}/lines.txt", "--set", 'data.separator="\\n"', "--set", "train.steps=2",
                "--set", "train.out=run")
        valid = [r["valid_loss"] for r in map(json.loads, read(self.path("run/metrics.jsonl")).splitlines())
                 if "valid_loss" in r]
        again = json.loads(self.ok("eval", "run/last", "--data", f"{self.shared}/lines.txt", "--separator", "\n",
                                   "--batch-tokens", "300", "--json").out)
        self.assertAlmostEqual(again["loss"], valid[-1], places=5)

    def test_eval_refuses(self):
        def refuse(name, data, *arguments, says, status=1):
            self.refused("eval", self.run_dir(name), "--data", data, *arguments, says=says, status=status)
        classes, tags = (os.path.join(self.shared, f) for f in ("classes.tsv", "tags.conll"))
        for name, option, kinds in (("classify", "--beams=2", "an encoder-decoder"), ("classify", "--batch=2", "a language"),
                                    ("tag", "--second-column=a", "a classifier or a model that finds answers"),
                                    ("masked", "--tag-column=1", "a tagger"), ("answer", "--separator=x", "a masked"),
                                    ("pairs", "--mask-rate=0.1", "masked")):
            refuse(name, classes, option, status=2, says=[option.split("=")[0], f"only for", kinds])
        refuse("decoder", classes, "--target=a", says=["this checkpoint is a decoder", "trained on pairs"])
        refuse("classify", classes, "--label-column", "class", says=["classes.tsv", "'class'"])
        refuse("classify", "nowhere.tsv", says=["nowhere.tsv"])
        refuse("answer", classes, says=["classes.tsv", "'question'"])
        refuse("tag", tags, "--tag-column", "3", says=["tags.conll:1", "column 3"])
        refuse("masked", "empty.txt", says=["empty.txt"])
        refuse("classify", classes, "--mask-rate", "2", says=["--mask-rate"], status=2)


if __name__ == "__main__":
    main()
