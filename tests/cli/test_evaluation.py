#!/usr/bin/env python3
"""How models are judged: labels that training lacks, mistakes, the settings of a run, scripts without spaces; reports
of cross-validations; losses above that of guessing.

usage: test_evaluation.py QKV [unittest arguments]
"""
# Covers: qkv/cli/eval_pairs.cc, qkv/cli/eval_settings.cc
import json
import math
import os
import re
import shutil

from qkv_cli import CliTest, EncoderTest, main, make_text, read_text, write


class Labelled(EncoderTest):
    def train_here(self, name, *sets, config=None):
        self.write("config.toml", config or self.CONFIG)
        arguments = [a for s in (f"train.out={name}", *sets) for a in ("--set", s)]
        return self.ok("train", "config.toml", *arguments)

    def evaluated(self, name, *arguments):
        return (json.loads(self.ok("eval", name, *arguments, "--json").out), self.ok("eval", name, *arguments).out)

    def test_classes_that_training_lacks_are_wrong(self):
        self.write("more.tsv", "text\tlabel\nthe apple\tfruit\nsaw\ttool\nan apple\tgame\na saw\tgame\npear\tzebra\n")
        figures, text = self.evaluated(self.run_dir("classify"), "--data", "more.tsv")
        self.assertEqual(figures["unseen"], {"game": 2, "zebra": 1})
        self.assertEqual(figures["accuracy"], 2 / 5)
        self.assertEqual(figures["examples"], 5)
        self.assertEqual([c["label"] for c in figures["classes"]], ["fruit", "tool", "game", "zebra"])
        self.assertEqual([c["recall"] for c in figures["classes"]], [1, 1, 0, 0])
        self.assertEqual([c["predicted"] for c in figures["classes"]][2:], [0, 0])
        self.assertEqual(sum(map(sum, figures["confusion"])), 5)
        self.assertIn("3 examples have a label that training did not have and count as wrong: 'game' 2, 'zebra' 1\n", text)
        self.assertIn("accuracy      40.00%", text)
        # The loss is that of the labels that it knows.
        self.write("known.tsv", "text\tlabel\nthe apple\tfruit\nsaw\ttool\n")
        known, text = self.evaluated(self.run_dir("classify"), "--data", "known.tsv")
        self.assertAlmostEqual(known["loss"], figures["loss"], places=5)
        self.assertNotIn("unseen", known)
        self.assertNotIn("unseen", text)
        # Nothing but such labels: no loss at all.
        self.write("none.tsv", "text\tlabel\nthe apple\tgame\n")
        none, text = self.evaluated(self.run_dir("classify"), "--data", "none.tsv")
        self.assertEqual((none["loss"], none["accuracy"]), (None, 0))
        self.assertIn("1 example has a label", text)
        # The text is not the label.
        self.write("many.tsv", "label\ttext\n" + "".join(f"word {i}\tfruit\n" for i in range(1002)))
        self.refused("eval", self.run_dir("classify"), "--data", "many.tsv", status=1, says=["many.tsv:", "more than 1000", "column"])

    def test_tags_that_training_lacks_are_wrong(self):
        self.write("more.conll", "the\tO\napple\tIT\n\nan\tDET\napple\tIT\nsaw\tNOUN\nruns\tDET\n")
        figures, text = self.evaluated(self.run_dir("tag"), "--data", "more.conll")
        self.assertEqual(figures["unseen"], {"DET": 2, "NOUN": 1})
        self.assertEqual(figures["words"], 6)
        self.assertLessEqual(figures["accuracy"], 0.5)
        self.assertIn("3 words have a label that training did not have and count as wrong: 'DET' 2, 'NOUN' 1\n", text)

    def test_mistakes_of_classes(self):
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "classes.tsv")).splitlines()[1:41]]
        wrong = {"fruit": "tool", "tool": "fruit"}
        self.write("wrong.csv", "text,label\n" + "".join(f"{text},{wrong[label]}\n" for text, label in rows))
        run = self.run_dir("classify")
        figures, text = self.evaluated(run, "--data", "wrong.csv", "--errors")
        said = self.jsons("classify", "classify", stdin="".join(text + "\n" for text, _ in rows))
        mistakes = [(i, s["label"], s["probability"]) for i, s in enumerate(said) if s["label"] != wrong[rows[i][1]]]
        self.assertGreater(len(mistakes), 20)
        mistakes.sort(key=lambda m: -m[2])
        self.assertEqual(len(figures["errors"]), 20)
        for found, (_, _, probability) in zip(figures["errors"], mistakes):
            i = int(found["place"].split(":")[1]) - 2
            self.assertEqual((found["text"], found["true"], found["predicted"]), (rows[i][0], wrong[rows[i][1]], said[i]["label"]))
            self.assertAlmostEqual(found["probability"], probability, places=4)
        self.assertIn(f"20 of {len(mistakes)} mistakes, the most confident first\n", text)
        first = figures["errors"][0]
        self.assertIn(f"{first['place']}: true {first['true']}, predicted {first['predicted']} "
                      f"(probability {first['probability']:.4f}): {first['text']}\n", text)
        three, text = self.evaluated(run, "--data", "wrong.csv", "--errors", "3")
        self.assertEqual(three["errors"], figures["errors"][:3])
        self.assertEqual(len(re.findall(r"(?m)^wrong.csv:", text)), 3)
        self.assertNotIn("errors", self.evaluated(run, "--data", "wrong.csv")[0])
        self.refused("eval", run, "--data", "wrong.csv", "--errors", "0", status=2, says="--errors")
        self.refused("eval", self.run_dir("masked"), "--data", "text.txt", "--errors", status=2, says=["--errors", "only for"])
        self.refused("eval", self.run_dir("decoder"), "--data", "text.txt", "--errors", status=2, says=["--errors", "pairs"])

    def test_mistakes_of_tags_and_answers(self):
        self.write("wrong.conll", "the\tIT\napple\tO\n\n" + "fox\tO\n" * 40)
        figures, text = self.evaluated(self.run_dir("tag"), "--data", "wrong.conll", "--errors", "100")
        sure = figures["errors"][:2]
        self.assertEqual({e["word"]: (e["true"], e["predicted"]) for e in sure}, {"the": ("IT", "O"), "apple": ("O", "IT")})
        self.assertEqual({e["text"] for e in sure}, {"the apple"})
        self.assertEqual({e["place"] for e in sure}, {"wrong.conll:1"})
        self.assertTrue(all(e["predicted"] is None for e in figures["errors"] if e["probability"] == 0))
        self.assertIn("predicted (cut away)", text)
        self.assertIn("wrong.conll:1: 'apple': true O, predicted IT (probability ", text)
        self.write("wrong.tsv", "question\tcontext\tanswer\nwhich fruit\tan apple and a saw\tand a saw\n")
        figures, text = self.evaluated(self.run_dir("answer"), "--data", "wrong.tsv", "--errors")
        if figures["exact_match"] < 1:
            (error,) = figures["errors"]
            self.assertEqual((error["text"], error["second"], error["true"]), ("which fruit", "an apple and a saw", "and a saw"))
            self.assertEqual(error["f1"], figures["f1"])
            self.assertIn("true and a saw, predicted ", text)

    def test_chunks_are_those_of_tags_that_describe_them(self):
        plain, text = self.evaluated(self.run_dir("tag"), "--data", os.path.join(self.shared, "tags.conll"))
        self.assertFalse({"f1", "chunk_precision", "chunk_recall"} & set(plain))
        self.assertNotIn("chunks", text)
        self.assertNotIn("micro_f1", text)
        for name in ("accuracy", "macro_f1"):
            self.assertIn(f"{name.replace('_f1', ' F1').replace('_', ' '):<12}  {100 * plain[name]:.2f}%", text)
        tags = read_text(os.path.join(self.shared, "tags.conll")).replace("\tIT", "\tB-IT")
        self.write("chunks.conll", tags)
        self.train_here("chunks", "train.objective=tag", "data.train=chunks.conll", "train.best_by=f1")
        chunks, text = self.evaluated("chunks", "--data", "chunks.conll")
        self.assertLessEqual({"f1", "chunk_precision", "chunk_recall", "micro_f1"}, set(chunks))
        self.assertRegex(text, r"(?m)^chunks +precision ")
        self.assertNotIn("micro_f1", text)
        refused = self.refused("train", "config.toml", "--set", "train.objective=tag", "--set", f"data.train={self.shared}/tags.conll",
                               "--set", "train.best_by=f1", "--set", "train.out=none", status=1, says=["best_by", "accuracy"])
        self.assertFalse(os.path.exists(self.path("none")), refused)

    def test_columns_are_those_of_the_run(self):
        rows = [line.split("\t") for line in read_text(os.path.join(self.shared, "classes.tsv")).splitlines()[1:]]
        self.write("named.csv", "line,kind\n" + "".join(f"{t},{k}\n" for t, k in rows))
        self.train_here("named", "train.objective=classify", "data.train=named.csv", "data.text_column=line",
                        "data.label_column=kind", "train.steps=2")
        given = self.ok("eval", "named", "--data", "named.csv", "--text-column", "line", "--label-column", "kind").out
        self.assertEqual(self.ok("eval", "named", "--data", "named.csv").out, given)
        self.assertEqual(self.ok("eval", "named/best", "--data", "named.csv").out, given)
        # A file with the usual names is read by these, and an option is stronger than the run.
        self.write("usual.csv", "text,label\n" + "".join(f"{t},{k}\n" for t, k in rows))
        self.assertEqual(self.ok("eval", "named", "--data", "usual.csv").out, given)
        self.write("both.csv", "line,kind,other\n" + "".join(f"{t},{k},fruit\n" for t, k in rows))
        self.assertEqual(self.ok("eval", "named", "--data", "both.csv").out, given)
        other = json.loads(self.ok("eval", "named", "--data", "both.csv", "--label-column", "other", "--json").out)
        self.assertEqual(other["classes"][0]["support"], 300)
        self.write("neither.csv", "a,b\nx,y\n")
        self.refused("eval", "named", "--data", "neither.csv", status=1, says=["neither.csv", "'line'"])
        # Files without a header, and with one.
        self.write("bare.csv", "".join(f"{k},{t}\n" for t, k in rows))
        self.train_here("bare", "train.objective=classify", "data.train=bare.csv", 'data.columns=["kind","line"]',
                        "data.text_column=line", "data.label_column=kind", "train.steps=2")
        bare = self.ok("eval", "bare", "--data", "bare.csv").out
        self.assertIn("of            300 examples", bare)
        self.write("headed.csv", "kind,line\n" + "".join(f"{k},{t}\n" for t, k in rows))
        self.assertEqual(self.ok("eval", "bare", "--data", "headed.csv").out, bare)
        # Without its run a model is judged by the usual columns.
        shutil.copytree(self.path("named/best"), self.path("alone"))
        self.refused("eval", "alone", "--data", "named.csv", status=1, says=["named.csv", "'text'"])
        # Settings that cannot be read are no reason not to judge.
        self.write("named/config.toml", "[data]\nunheard = 1\n")
        odd = self.ok("eval", "named", "--data", "usual.csv")
        self.assertEqual(odd.out, given)
        self.assertIn("note: the run's settings are not used: named/config.toml:2: data.unheard", odd.err)

    def test_what_is_hidden_is_what_the_run_hid(self):
        shutil.copy(os.path.join(self.shared, "lines.txt"), self.path("lines.txt"))
        self.train_here("masked", "train.objective=masked", "data.train=lines.txt", 'data.separator="\\n"', "train.mask_rate=0.5",
                        "train.steps=2")
        figures, _ = self.evaluated("masked", "--data", "lines.txt")
        self.assertEqual((figures["mask_rate"], figures["sequences"]), (0.5, 300))
        other, _ = self.evaluated("masked", "--data", "lines.txt", "--mask-rate", "0.15", "--separator", "fox")
        self.assertEqual(other["mask_rate"], 0.15)
        self.assertNotEqual(other["sequences"], 300)
        self.train_here("spans", "train.objective=span_corruption", "model.architecture=encoder_decoder", "tokenizer.type=char",
                        "data.train=lines.txt", 'data.separator="\\n"', "train.span_density=0.4", "train.steps=2")
        restored, _ = self.evaluated("spans", "--data", "lines.txt")
        given, _ = self.evaluated("spans", "--data", "lines.txt", "--objective", "span_corruption", "--span-density", "0.4",
                                  "--separator", "\n")
        self.assertEqual(restored, given)
        self.assertEqual(restored["objective"], "span_corruption")
        sparse, _ = self.evaluated("spans", "--data", "lines.txt", "--span-density", "0.15")
        self.assertLess(sparse["target_tokens"], restored["target_tokens"])
        # Pairs are pairs.
        self.write("pairs.tsv", "source\ttarget\nfox\tdog\n")
        self.assertEqual(self.evaluated("spans", "--data", "pairs.tsv")[0]["pairs"], 1)


class Pairs(CliTest):
    CONFIG = """
data.train = "pairs.tsv"
data.cache = false
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 64
model.width = 16
model.layers = 1
model.heads = 2
train.steps = 2
train.batch_tokens = 300
train.precision = "f32"
train.eval_bleu = 2
"""

    def train_on(self, pairs, *sets):
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{a}\t{b}\n" for a, b in pairs) * 8)
        self.write("config.toml", self.CONFIG)
        self.ok("train", "config.toml", *(a for s in sets for a in ("--set", s)))

    def judged(self, *arguments):
        return (json.loads(self.ok("eval", "runs/model", "--data", "pairs.tsv", *arguments, "--json").out),
                self.ok("eval", "runs/model", "--data", "pairs.tsv", *arguments).out)

    def test_scripts_without_spaces(self):
        self.train_on([("the cat", "\u732b\u304c\u3044\u308b"), ("a dog", "\u72ac\u3067\u3059")])
        figures, text = self.judged()
        self.assertIn("tok:char", figures["signature"])
        self.assertEqual([figures[k] for k in ("rouge_l", "rouge_l_precision", "rouge_l_recall")], [None] * 3)
        self.assertIn("tokenizer           char, chosen because the targets are Japanese", text)
        self.assertIn("ROUGE-L             n/a", text)
        # Characters of the references: 4 and 3, each 8 times.
        self.assertIn("ref_len = 56", text)
        for name, length in (("13a", 16), ("none", 16), ("intl", 16), ("zh", 32)):  # zh divides no kana
            figures, text = self.judged("--bleu-tokenize", name)
            self.assertIn(f"tok:{name}|", figures["signature"])
            self.assertNotIn("tokenizer ", text)
            self.assertIn(f"ref_len = {length}", text)
        self.refused("eval", "runs/model", "--data", "pairs.tsv", "--bleu-tokenize", "mecab", status=2, says=["--bleu-tokenize", "mecab"])

    def test_scripts_with_spaces(self):
        self.train_on([("one", "eins zwei, drei"), ("four", "vier"), ("none", "\u4e00")])
        figures, text = self.judged()
        self.assertIn("tok:13a", figures["signature"])
        self.assertIn("tokenizer           13a, the default", text)
        self.assertIn("8 of 24 targets have no Latin letter or digit", text)
        self.assertIsNotNone(figures["rouge_l"])

    def test_worst_translations(self):
        self.train_on([("one", "eins"), ("two", "zwei"), ("three", "drei")])
        figures, text = self.judged("--errors", "5")
        self.assertEqual(len(figures["errors"]), min(5, round(24 * (1 - figures["exact_match"]))))
        scores = [e["chrf"] for e in figures["errors"]]
        self.assertEqual(scores, sorted(scores))
        for error in figures["errors"]:
            self.assertIn((error["source"], error["target"]), [("one", "eins"), ("two", "zwei"), ("three", "drei")])
            self.assertNotEqual(error["output"], error["target"])
        self.assertEqual(len(re.findall("(?m)^chrF2   ", text)), len(scores))
        self.assertIn(f"source  {figures['errors'][0]['source']}\n", text)

    def test_columns_and_prefix_are_those_of_the_run(self):
        self.write("config.toml", self.CONFIG)
        self.write("pairs.tsv", "en\tde\n" + "one\teins\ntwo\tzwei\n" * 8)
        self.ok("train", "config.toml", "--set", "data.source_column=en", "--set", "data.target_column=de", "--set",
                "data.prefix=to German: ")
        figures, _ = self.judged()
        given, _ = self.judged("--source-column", "en", "--target-column", "de", "--prefix", "to German: ")
        self.assertEqual(figures, given)
        without, _ = self.judged("--prefix", "")
        self.assertNotEqual(without["loss"], figures["loss"])


class Reports(EncoderTest):
    def test_of_a_cross_validation(self):
        self.write("config.toml", self.CONFIG)
        self.ok("train", "config.toml", *(a for s in ("train.objective=classify", f"data.train={self.shared}/classes.tsv", "data.folds=3",
                                                      "train.out=folds", "train.steps=40") for a in ("--set", s)))
        scores = json.loads(read_text(self.path("folds/cross_validation.json")))["scores"]
        self.assertLessEqual({"accuracy", "matthews", "baseline_naive_bayes", "baseline_most_frequent_class"}, set(scores))
        self.assertEqual(os.path.normpath(self.ok("report", "folds").out.strip()), "folds/report.html")
        page = read_text(self.path("folds/report.html"))
        for part in ("Cross-validation, 3 folds", "baseline: naive Bayes", f"{100 * scores['accuracy']['mean']:.2f}%",
                     f"{scores['matthews']['mean']:.4f}", "fold-3", "all folds together", 'aria-label="Loss'):
            self.assertIn(part, page)
        self.ok("report", "folds/fold-1")
        page = read_text(self.path("folds/fold-1/report.html"))
        for part in ("Test accuracy", "naive Bayes", f"{100 * scores['accuracy']['folds'][0]:.2f}%"):
            self.assertIn(part, page)
        # Fields of earlier runs had names with spaces: they go together with the new ones.
        records = self.path("folds/fold-2/metrics.jsonl")
        write(records, read_text(records).replace("baseline_naive_bayes", "baseline_naive Bayes"))
        self.ok("report", "folds")
        self.assertIn("baseline: naive Bayes", read_text(self.path("folds/report.html")))
        self.refused("report", "folds/fold-4", status=1, says=["folds/fold-4", "metrics.jsonl", "fold-1, fold-2, fold-3"])
        self.refused("classify", "folds", stdin="fox\n", status=1, says=["cross-validation", "folds/fold-1"])


class Training(CliTest):
    def test_a_loss_above_that_of_guessing(self):
        trained = self.train(learning_rate=20.0, warmup_steps=0, steps=10, eval_every=5)
        vocabulary = len(set(make_text())) + 1
        losses = [float(x) for x in re.findall(r"validation loss ([0-9.]+)", trained.err)]
        self.assertGreater(losses[0], 1.5 * math.log(vocabulary))
        self.assertRegex(trained.err, r"above the loss of guessing, ln\([0-9]+\) = [0-9.]+: lower the learning rate")
        self.assertNotIn("guessing", self.train(out="fine").err)

    def test_a_sample_begins_with_a_word(self):
        for kind in ("char", "bpe"):
            for fraction in (0.1, 0.11, 0.123, 0.2):
                self.train(out=f"{kind}{fraction}", tokenizer__type=kind, data__valid_fraction=fraction, steps=1, sample_tokens=2)
                records = map(json.loads, read_text(self.path(f"{kind}{fraction}", "metrics.jsonl")).splitlines())
                prompt = next(r["prompt"] for r in records if "sample" in r)
                self.assertIn(" " + " ".join(prompt.split()), " " + " ".join(make_text().split()), prompt)


if __name__ == "__main__":
    main()
