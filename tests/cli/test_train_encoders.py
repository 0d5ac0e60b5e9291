#!/usr/bin/env python3
"""qkv train: encoders with heads, and the objectives that they learn by.

usage: test_train_encoders.py QKV [unittest arguments]
"""
import json
import os
import re

from qkv_cli import EncoderTest, main, make_text, read, read_text, run_qkv, write


class TrainEncoders(EncoderTest):
    # Each key changes the first step's loss.
    NOISES = {"classify": (["data.train=classes.tsv"], ["token_drop=0.5", "token_swap=0.5", "token_mask=0.5"]),
              "tag": (["data.train=tags.conll"], ["token_mask=0.5"]),
              "masked": (["data.train=lines.txt", 'data.separator="\\n"'], ["mask_rate=0.6", "mask_random=0.9", "mask_keep=0.8",
                                                                          "next_sentence=true"]),
              "span_corruption": (["data.train=lines.txt"], ["span_density=0.5", "span_length=1"]),
              "span_corruption of a decoder": (["data.train=lines.txt", "model.architecture=decoder"], ["span_density=0.5", "span_length=1"]),
              "denoise": (["data.train=stops.txt"], ["infill=0.6", "deletion=0.4", "permute_sentences=false", "span_length=1"])}

    def test_keys_of_noise_decide_what_is_learnt(self):
        write(os.path.join(self.shared, "stops.txt"), "the quick . fox runs . a dog . " * 40)

        def first_loss(name, objective, *sets):
            objective = objective.split()[0]
            model = ["model.architecture=encoder_decoder", "tokenizer.type=char"] if objective in ("span_corruption", "denoise") else []
            arguments = [a for s in (f"train.out={self.path(name)}", f"train.objective={objective}", "train.steps=1", "train.log_every=1",
                                     "model.dropout=0", *model, *sets) for a in ("--set", s)]
            result = run_qkv("train", "config.toml", *arguments, cwd=self.shared)
            self.assertEqual(result.status, 0, result)
            return json.loads(read_text(self.path(name, "metrics.jsonl")).splitlines()[0])["loss"]

        for objective, (data, keys) in self.NOISES.items():
            plain = first_loss(objective, objective, *data)
            for key in keys:
                with self.subTest(objective=objective, key=key):
                    self.assertNotEqual(first_loss(objective + key, objective, *data, "train." + key), plain)

    def test_texts_of_rows_and_what_is_left_out(self):
        rows = [json.dumps({"body": text, "n": i}) for i, text in enumerate(["the quick fox runs"] * 3 + [make_text(), "no"])]
        write(os.path.join(self.shared, "rows.jsonl"), "\n".join(rows) + "\n")
        sets = ["model.architecture=decoder", "tokenizer.type=char", "train.steps=1", "model.width=8",
                "data.train=rows.jsonl", "data.text_column=body"]
        arguments = [a for s in (*sets, f"train.out={self.path('rows')}") for a in ("--set", s)]
        result = run_qkv("train", "windows.toml", *arguments, "--set", "data.deduplicate=true", "--set", "data.min_characters=3",
                         cwd=self.shared)
        self.assertEqual(result.status, 0, result)
        self.assertIn("(3 left out: 2 repeated, 1 of other lengths)", result.err)
        told = json.loads(self.ok("eval", "rows", "--data", os.path.join(self.shared, "rows.jsonl"), "--text-column", "body", "--json").out)
        self.assertGreater(told["tokens"], 100)
        # A vocabulary trained by SentencePiece has <s> and </s>, but documents end with <|endoftext|>.
        result = run_qkv("train", "windows.toml", *arguments, "--set", "tokenizer.type=unigram", "--set", "tokenizer.vocab_size=320",
                         "--set", f"train.out={self.path('pieces')}", cwd=self.shared)
        self.assertEqual(result.status, 0, result)
        ids = json.loads(read_text(self.path("pieces/last/generation_config.json")))
        self.assertEqual([ids["eos_token_id"], "decoder_start_token_id" in ids], [0, False])
        self.ok("eval", "pieces", "--data", os.path.join(self.shared, "rows.jsonl"), "--text-column", "body")
        for more, says in ((["data.text_column=text"], ["rows.jsonl", "text"]), (["data.max_ratio=2"], ["max_ratio", "sequence_to_sequence"]),
                           (["data.min_characters=9", "data.max_characters=8"], ["max_characters", "8"])):
            refused = run_qkv("train", "windows.toml", *arguments, *(a for s in (*more, "train.out=other") for a in ("--set", s)), cwd=self.shared)
            self.assertNotEqual(refused.status, 0)
            for part in says:
                self.assertIn(part, refused.err)
        write(os.path.join(self.shared, "one.tsv"), "text\tlabel\n" + "".join(f"fox {i}\tanimal\n" for i in range(9)))
        refused = run_qkv("train", "windows.toml", "--set", "train.objective=classify", "--set", "data.train=one.tsv",
                          "--set", f"train.out={self.path('one')}", cwd=self.shared)
        self.assertEqual(refused.status, 1, refused)
        self.assertIn("all examples are of the class 'animal'", refused.err)

    def test_runs(self):
        for name in ("masked", "classify", "tag", "answer"):
            self.assertTrue(os.path.exists(os.path.join(self.run_dir(name), "report.html")), name)
        for name, parts in (("classify", ["Confusion matrix (test)", "naive Bayes", "Validation scores", "(right: "]),
                            ("tag", ["Confusion matrix (validation)", "words and suffixes", "nats per word"]),
                            ("answer", ["exact match", "F1", "<h2>Scores</h2>"])):
            page = read_text(os.path.join(self.run_dir(name), "report.html"))
            for part in parts:
                self.assertIn(part, page, name)
            records = [json.loads(line) for line in read(os.path.join(self.run_dir(name), "metrics.jsonl")).splitlines()]
            self.assertTrue(any(r.get("sample") for r in records), name)
            self.assertTrue(any("valid_loss" in r for r in records), name)
        self.assertIn("baselines: most frequent class", self.training("classify").err)
        self.assertIn("test of the best model", self.training("classify").err)
        self.assertIn("243 training, 27 validation and 30 test examples of 2 classes", self.training("classify").err)
        self.assertNotIn("test of the best model", self.training("tag").err)
        # The chosen settings and those derived from them are written down, and starts the same run again.
        again = run_qkv("train", "tag/config.toml", "--set", f"train.out={self.path('again')}", cwd=self.shared)
        self.assertEqual(again.status, 0, again)
        self.assertEqual(read(self.path("again/best/model.safetensors")),
                         read(os.path.join(self.run_dir("tag"), "best/model.safetensors")))

    def test_cross_validation(self):
        sets = [a for s in ("train.objective=classify", f"data.train={os.path.join(self.shared, 'classes.tsv')}", "data.folds=3",
                            "train.out=folds", "train.steps=60") for a in ("--set", s)]
        self.write("config.toml", self.CONFIG)
        done = self.ok("train", "config.toml", *sets)
        rows = [re.split(r"  +", line.strip()) for line in done.out.splitlines()]
        self.assertEqual([r[0] for r in rows], ["fold", "1", "2", "3", "mean", "deviation"], done)
        scores = json.loads(read(self.path("folds/cross_validation.json")))["scores"]
        names = {"baseline_naive_bayes": "baseline: naive Bayes", "baseline_most_frequent_class": "baseline: most frequent class"}
        self.assertEqual(set(rows[0][1:]), {names.get(name, name) for name in scores})
        self.assertIn("baseline_naive_bayes", scores)
        for name, value in scores.items():
            column = rows[0].index(names.get(name, name))
            self.assertEqual([r[column] for r in rows[1:]],
                             [f"{v:.4f}" if name == "matthews" else f"{100 * v:.2f}%" for v in (*value["folds"], value["mean"], value["deviation"])])
        self.assertGreater(scores["accuracy"]["mean"], 0.8)
        again = self.ok("train", "config.toml", *sets, "--resume")
        self.assertEqual(again.out, done.out)
        self.assertEqual(again.err.count("is finished"), 3, again)
        self.refused("train", "config.toml", *sets, status=1, says=["folds", "--resume", "--overwrite"])
        folds = [self.path("folds", f"fold-{f}") for f in (1, 2, 3)]
        found = self.ok("classify", folds[0], "--ensemble", *folds[1:], stdin="the apple\nsaw the\n").out
        self.assertLessEqual({line.split("\t")[0] for line in found.splitlines()}, set(self.KINDS))
        self.ok("train", "config.toml", *sets, "--set", "train.out=dry", "--dry-run")
        self.assertFalse(os.path.exists(self.path("dry")))
        self.refused("train", "config.toml", *sets, "--set", "data.folds=1", status=2, says="data.folds")
        self.refused("train", "config.toml", *sets, "--set", "train.objective=masked", status=2, says="data.folds")

    def test_bad_training_data(self):
        def refuse(says, objective, *sets, status=1):
            arguments = [a for s in (f"train.objective={objective}", *sets) for a in ("--set", s)]
            self.refused("train", "config.toml", *arguments, says=says, status=status, allow_progress=True)
        self.write("config.toml", self.CONFIG)
        self.write("ragged.tsv", "text\tlabel\na\tb\nc\n")
        refuse(["ragged.tsv:3", "2 fields"], "classify", "data.train=ragged.tsv")
        self.write("empty.tsv", "text\tlabel\na\t\n")
        refuse(["empty.tsv:2", "'label'", "empty"], "classify", "data.train=empty.tsv")
        refuse(["empty.tsv", "'class'", "it has: text, label"], "classify", "data.train=empty.tsv", "data.label_column=class")
        self.write("header.tsv", "text\tlabel\n")
        refuse(["header.tsv", "no example"], "classify", "data.train=header.tsv")
        refuse(["text.txt", ".tsv"], "classify", "data.train=text.txt")
        self.write("ragged.conll", "a X\nb\n")
        refuse(["ragged.conll:2", "column 2"], "tag", "data.train=ragged.conll", "data.tag_column=2")
        self.write("answers.tsv", "question\tcontext\tanswer\nwho\tthe fox\tdog\n")
        refuse(["answers.tsv:2", "'dog'", "'context'"], "answer", "data.train=answers.tsv")
        refuse(["mask_rate", "masked"], "classify", "data.train=empty.tsv", "train.mask_rate=0.5", status=2)
        refuse(["objective", "'guess'"], "guess", "data.train=empty.tsv", status=2)
        refuse(["model.from", "nowhere"], "classify", "data.train=empty.tsv", "model.from=nowhere", status=2)
        self.assertFalse(os.path.exists(self.path("runs")))

    def test_overwritten_scores(self):
        self.write("config.toml", self.CONFIG)
        arguments = [a for s in (f"data.train={self.shared}/classes.tsv", "train.steps=2", "train.out=run")
                     for a in ("--set", s)]
        self.ok("train", "config.toml", *arguments, "--set", "train.objective=classify")
        self.assertIn("Confusion matrix", read_text(self.path("run/report.html")))
        self.ok("train", "config.toml", *arguments, "--set", "train.objective=masked", "--overwrite")
        self.assertFalse(os.path.exists(self.path("run/evaluation.json")))
        self.assertNotIn("Confusion matrix", read_text(self.path("run/report.html")))

    def test_from_another(self):
        self.write("config.toml", "".join(line + "\n" for line in self.CONFIG.splitlines() if "model." not in line))
        arguments = [a for s in ("train.objective=classify", f"data.train={self.shared}/classes.tsv", "train.steps=2",
                                 f"model.from={self.run_dir('masked')}", "train.out=run") for a in ("--set", s)]
        self.ok("train", "config.toml", *arguments)
        self.assertEqual(read(self.path("run/best/tokenizer.json")),
                         read(os.path.join(self.run_dir("masked"), "best/tokenizer.json")))
        self.ok("classify", "run", stdin="saw\n")
        self.refused("train", "config.toml", *arguments, "--set", "model.width=24", "--set", "train.out=other", status=2,
                     says=["model.width", "24", "16"])
        self.refused("train", "config.toml", *arguments, "--set", "tokenizer.path=x", "--set", "train.out=other", status=2,
                     says=["tokenizer.path", "model.from"])
        self.assertFalse(os.path.exists(self.path("other")))


if __name__ == "__main__":
    main()
