#!/usr/bin/env python3
"""Texts with several labels, and texts with numbers: train, classify, eval, forward, rerank.

usage: test_labels.py QKV [unittest arguments]
"""
import json
import math
import random

from qkv_cli import CliTest, configuration, load_safetensors, main, read_text, safetensors_bytes, write

ANIMALS, OTHERS = ("cow", "dog", "fox"), ("the", "saw", "ran", "over", "hill", "slowly")


def sentences(count, seed):
    draw = random.Random(seed)
    return [[draw.choice(OTHERS + ANIMALS) for _ in range(draw.randint(4, 9))] for _ in range(count)]


def rows(kind, count, seed):
    """text and label: the animals of the text, or the share of foxes in it."""
    out = "text\tlabel\n"
    for words in sentences(count, seed):
        label = "; ".join(a for a in ANIMALS if a in words) if kind == "multi_label" else f"{5 * words.count('fox') / len(words):.4f}"
        out += f"{' '.join(words)}\t{label}\n"
    return out


class Labels(CliTest):
    trained = {}

    def run_of(self, kind, **more):
        """A run that learns the kind; its folder."""
        for part, count in (("train", 300), ("valid", 60)):
            self.write(f"{kind}-{part}.tsv", rows(kind, count, len(part)))
        config = {"data__train": f"{kind}-train.tsv", "data__valid": f"{kind}-valid.tsv", "tokenizer__type": "wordpiece",
                  "tokenizer__vocab_size": 80, "model__architecture": "encoder", "model__pooling": "mean", "model__context": 24,
                  "model__dropout": 0.0, "objective": kind, "steps": 150, "eval_every": 50, "checkpoint_every": 50,
                  "batch_tokens": 512, "learning_rate": 0.01, "out": kind, **more}
        if kind == "multi_label":
            config["data__label_separator"] = ";"
        text = configuration(**config).replace("batch = 4\n", "")
        self.write(f"{kind}.toml", text)
        return self.ok("train", f"{kind}.toml")

    def numbers_of(self, kind, lines):
        """The logits that qkv forward gives for each line, as the tokenizer reads it."""
        out = []
        for line in lines:
            ids = json.loads(self.ok("tokenizer", "encode", kind, "--jsonl", stdin=json.dumps(line) + "\n").out)
            write(self.path("in.safetensors"), safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids)}))
            self.ok("forward", kind, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
            out.append(load_safetensors(self.path("out.safetensors"))["logits"][1])
        return out

    def test_several_labels(self):
        trained = self.run_of("multi_label")
        self.assertRegex(trained.err, r"300 training, 60 validation and 0 test examples of 3 labels")
        self.assertRegex(trained.err, r"validation loss [0-9.]+ \(micro F1 [0-9.]+%, macro F1 [0-9.]+%, exact match [0-9.]+%\)")
        config = json.loads(read_text(self.path("multi_label/best/config.json")))
        self.assertEqual(config["qkv"]["problem"], "multi_label")
        lines = [" ".join(words) for words in sentences(20, 9)]
        found = [json.loads(x) for x in self.ok("classify", "multi_label", "--json", stdin="\n".join(lines)).out.splitlines()]
        for line, f in zip(lines, found):
            self.assertEqual(sorted(f["labels"]), [a for a in ANIMALS if a in line.split()], f)
            self.assertEqual(sorted(f["probabilities"]), list(ANIMALS))
            self.assertEqual(f["labels"], sorted(f["labels"], key=lambda a: -f["probabilities"][a]))
        # Lines, rows, and another threshold.
        plain = self.ok("classify", "multi_label", stdin="the fox saw\n\nthe hill\n").out.split("\n")
        self.assertRegex(plain[0], r"^fox\t0\.[0-9]{4}$")
        self.assertEqual(plain[1:], ["", "", ""])
        self.write("few.csv", "text\nthe fox saw the cow\nthe hill\n")
        columns = self.ok("classify", "multi_label", "--file", "few.csv").out.splitlines()
        self.assertEqual(columns[0], "text,predicted_labels")
        self.assertIn(columns[1], ("the fox saw the cow,fox;cow", "the fox saw the cow,cow;fox"))
        all_ = self.ok("classify", "multi_label", "--threshold", "0", stdin="the fox\n").out
        self.assertEqual(sorted(all_.split("\t")[::2]), list(ANIMALS))
        self.refused("classify", "multi_label", "--best", "2", stdin="a\n", says=["--best", "--threshold"])
        # The scores of eval, from what classify says.
        judged = json.loads(self.ok("eval", "multi_label", "--data", "multi_label-valid.tsv", "--json", "--errors", "2").out)
        examples = [line.split("\t") for line in read_text(self.path("multi_label-valid.tsv")).splitlines()[1:]]
        said = [json.loads(x) for x in
                self.ok("classify", "multi_label", "--json", stdin="\n".join(t for t, _ in examples)).out.splitlines()]
        right = wrong = missed = exact = 0
        loss = 0.0
        for (_, label), f in zip(examples, said):
            gold = {x for x in label.split("; ") if x}
            right += len(gold & set(f["labels"]))
            wrong += len(set(f["labels"]) - gold)
            missed += len(gold - set(f["labels"]))
            exact += gold == set(f["labels"])
            loss -= sum(math.log(p if a in gold else 1 - p) for a, p in f["probabilities"].items()) / 3
        self.assertAlmostEqual(judged["micro_f1"], 2 * right / (2 * right + wrong + missed), 9)
        self.assertAlmostEqual(judged["exact_match"], exact / 60, 9)
        self.assertAlmostEqual(judged["loss"], loss / 60, 4)
        self.assertEqual([x["label"] for x in judged["labels"]], list(ANIMALS))
        self.assertIn("occurs", self.ok("eval", "multi_label", "--data", "multi_label-valid.tsv").out)
        self.write("new.tsv", "text\tlabel\nthe fox\tfox;owl\nthe hill\t\n")
        self.assertIn("'owl' 1", self.ok("eval", "multi_label", "--data", "new.tsv").out)

    def test_numbers(self):
        trained = self.run_of("regression")
        self.assertRegex(trained.err, r"validation loss [0-9.]+ \(Pearson 0\.9[0-9]+, Spearman 0\.[0-9]+, RMSE [0-9.]+, MAE [0-9.]+\)")
        self.assertIn("baselines", self.run_of("regression", data__test_fraction=0.2, out="tested").err)
        config = json.loads(read_text(self.path("regression/best/config.json")))
        self.assertEqual((config["qkv"]["problem"], config["qkv"]["labels"]), ("regression", ["label"]))
        lines = [" ".join(words) for words in sentences(8, 9)]
        plain = self.ok("classify", "regression", stdin="\n".join(lines) + "\n\n").out.split("\n")
        logits = [z[0] for z in self.numbers_of("regression", lines)]
        for line, said, z in zip(lines, plain, logits):
            self.assertAlmostEqual(float(said), z, 3)
            self.assertLess(abs(z - 5 * line.split().count("fox") / len(line.split())), 0.8, line)
        self.assertEqual(plain[8:], ["", ""])
        found = json.loads(self.ok("classify", "regression", "--json", stdin=lines[0]).out)
        self.assertEqual(list(found), ["text", "label"])
        self.write("few.csv", "text\nthe fox\n\n")
        self.assertEqual(self.ok("classify", "regression", "--file", "few.csv").out.splitlines()[0], "text,predicted_label")
        judged = json.loads(self.ok("eval", "regression", "--data", "regression-valid.tsv", "--json").out)
        self.assertAlmostEqual(judged["rmse"] ** 2, judged["loss"], 6)
        self.assertGreater(judged["pearson"], 0.9)
        self.assertRegex(self.ok("eval", "regression", "--data", "regression-valid.tsv", "--errors", "2").out, r"largest error first")
        self.refused("eval", "regression", "--data", "regression-valid.tsv", "--label-separator", ";", says=["--label-separator"])
        self.refused("classify", "regression", "--threshold", "0.2", stdin="a\n", says=["--threshold"])
        self.write("bad.tsv", "text\tlabel\nthe fox\tmany\n")
        self.refused("eval", "regression", "--data", "bad.tsv", says=["bad.tsv:2", "'label'", "a number", "'many'"])

    def test_losses_and_gradients_of_forward(self):
        draw = random.Random(4)
        for kind, columns in (("multi_label", 3), ("regression", 1)):
            self.run_of(kind, steps=1, eval_every=1, checkpoint_every=1, model__pooling="first")
            config = json.loads(read_text(self.path(kind, "best/config.json")))
            self.assertEqual((config["model_type"], config["problem_type"]),
                             ("bert", "regression" if kind == "regression" else "multi_label_classification"))
            ids = [draw.randrange(40) for _ in range(12)]
            labels = [float(draw.random() < 0.5) if kind == "multi_label" else draw.uniform(-2, 2) for _ in range(2 * columns)]
            inputs = {"input_ids": ("I64", [2, 6], ids), "labels": ("F32", [2, columns] if columns > 1 else [2], labels)}
            write(self.path("in.safetensors"), safetensors_bytes(inputs))
            self.ok("forward", kind, "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--gradients")
            got = load_safetensors(self.path("out.safetensors"))
            z = got["logits"][1]
            terms = ([math.log1p(math.exp(-abs(a))) + max(a, 0) - a * t for a, t in zip(z, labels)] if kind == "multi_label"
                     else [(a - t) ** 2 for a, t in zip(z, labels)])
            self.assertAlmostEqual(got["loss"][1][0], sum(terms) / len(terms), 5)
            slopes = ([1 / (1 + math.exp(-a)) - t for a, t in zip(z, labels)] if kind == "multi_label"
                      else [2 * (a - t) for a, t in zip(z, labels)])
            bias = next(v for n, (_, v) in got.items() if n.startswith("grad.") and n.endswith("classifier.bias"))
            for c in range(columns):
                self.assertAlmostEqual(bias[c], sum(slopes[c::columns]) / len(slopes), 5)
            inputs["labels"] = ("I64", [2], [0, 1])
            write(self.path("in.safetensors"), safetensors_bytes(inputs))
            self.refused("forward", kind, "--inputs", "in.safetensors", "--outputs", "o", "--gradients", says=["labels", "F32"])

    def test_data_that_cannot_be_learned(self):
        for kind, label, says in (("regression", "three", ["'label'", "a number"]), ("regression", "", ["'label'", "empty"]),
                                  ("regression", "nan", ["a number"]), ("multi_label", "", ["no label to learn"])):
            self.write("rows.tsv", f"text\tlabel\nthe fox\t{label}\n" * 1 + f"the dog\t{label}\n")
            self.write("c.toml", configuration(data__train="rows.tsv", data__valid_fraction=0.0, objective=kind,
                                               tokenizer__type="wordpiece", model__architecture="encoder",
                                               batch_tokens=64).replace("batch = 4\n", ""))
            self.refused("train", "c.toml", says=says)
        self.write("c.toml", configuration(data__train="rows.tsv", objective="classify", data__label_separator=";",
                                           model__architecture="encoder").replace("batch = 4\n", ""))
        self.refused("train", "c.toml", says=["label_separator"])


if __name__ == "__main__":
    main()
