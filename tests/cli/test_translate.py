#!/usr/bin/env python3
"""qkv translate, and runs that learn from pairs.

usage: test_translate.py QKV [unittest arguments]
"""
import json
import math
import os
import re
import shutil
import subprocess

from qkv_cli import CliTest, command, main, read, read_text, WORDS


class Translate(CliTest):
    """Pairs to an encoder-decoder, and what is done with it."""

    CONFIG = """
data.train = "pairs.tsv"
data.valid_fraction = 0.1
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 12
model.width = 16
model.layers = 1
model.heads = 2
train.out = "run"
train.steps = 6
train.batch_tokens = 300
train.eval_every = 3
train.warmup_steps = 2
train.precision = "f32"
"""

    def setUp(self):
        super().setUp()
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in WORDS * 5))
        self.write("config.toml", self.CONFIG)

    def test_a_model_is_taught_between_the_tokens_that_it_names(self):
        """As T5, whose targets begin with padding."""
        self.ok("train", "config.toml")
        config = json.loads(read(self.path("run/best/config.json")))
        for name in ("config.json", "generation_config.json"):
            more = {"length_penalty": 0.5} if name.startswith("gen") else {}
            fields = json.loads(read(self.path("run/best", name)))
            self.write("run/best/" + name, json.dumps({**fields, **more, "decoder_start_token_id": 70, "eos_token_id": 71}))
        self.write("on.toml", re.sub("(?m)^(model|tokenizer).*", "", self.CONFIG) + 'model.from = "run"\n')
        learnt = self.ok("train", "on.toml", "--set", "train.out=on", "--set", "train.steps=60",
                         "--set", "train.learning_rate=1e-2", "--set", "train.eval_every=30").err
        fields = json.loads(read(self.path("on/best/generation_config.json")))
        self.assertEqual((fields["decoder_start_token_id"], fields["eos_token_id"], fields["length_penalty"]), (70, 71, 0.5))
        self.assertNotEqual(config["decoder_start_token_id"], 70)
        # Training and evaluation use the same objective: the loss of eval is that of the run.
        loss = json.loads(self.ok("eval", "on", "--data", "pairs.tsv", "--json").out)["loss"]
        self.assertLess(abs(loss - float(re.findall(r"validation loss ([0-9.]+)", learnt)[-1])), 0.5)

    def test_files_say_what_surrounds_sources(self):
        self.ok("train", "config.toml")
        path = "run/best/config.json"
        config = json.loads(read(self.path(path)))
        end = config["eos_token_id"]
        self.assertEqual((config["source_begin_token_ids"], config["source_end_token_ids"]), ([], [end]))
        scores = lambda: json.loads(self.ok("translate", "run", "--json", stdin="abc\n").out.splitlines()[0])
        before = scores()
        for ends, equal in (([], False), ([end, end], False), ([end], True)):
            self.write(path, json.dumps({**config, "source_end_token_ids": ends}))
            self.assertEqual(scores() == before, equal, ends)
        self.write(path, json.dumps({**config, "source_end_token_ids": []}))
        self.write("on.toml", re.sub("(?m)^(model|tokenizer).*", "", self.CONFIG) + 'model.from = "run"\n')
        self.ok("train", "on.toml", "--set", "train.out=on")
        self.assertEqual(json.loads(read(self.path("on/best/config.json")))["source_end_token_ids"], [])
        self.write(path, json.dumps({**config, "source_end_token_ids": [99999]}))
        self.refused("translate", "run", stdin="abc\n", says=["source_end_token_ids", "99999"])
        # A native model that another program made, without a word about it: as its tokenizer has it.
        self.write(path, json.dumps({k: v for k, v in config.items() if not k.startswith("source_")}))
        self.assertEqual(scores(), before)  # qkv trained it: an end token, as ever
        os.remove(self.path("run/best/generation_config.json"))
        as_tokenized = scores()
        self.assertNotEqual(as_tokenized, before)
        # Models made of such a one read sources as it does.
        self.ok("average", "run", "run", "--out", "same")
        self.ok("average", "same", "same", "--out", "again")
        for made in "same", "again":
            made_scores = json.loads(self.ok("translate", made, "--json", stdin="abc\n").out.splitlines()[0])
            self.assertEqual(made_scores, as_tokenized, made)
        self.ok("train", "on.toml", "--set", "train.out=further", "--set", "train.learning_rate=0", "--set", "train.precision=f32")
        further = json.loads(self.ok("translate", "further", "--json", stdin="abc\n").out.splitlines()[0])
        self.assertEqual(further["text"], as_tokenized["text"])
        self.assertAlmostEqual(further["logprob"], as_tokenized["logprob"], delta=1e-4)

    def test_a_run_and_its_use(self):
        trained = self.ok("train", "config.toml")
        self.assertIn("58 training pairs", trained.err)
        self.assertTrue(os.path.exists(self.path("run/report.html")))
        records = [json.loads(line) for line in read(self.path("run/metrics.jsonl")).splitlines()]
        self.assertTrue(any("sample" in r and "prompt" in r for r in records))
        lines = "quick\n\nfox\r\nthis line is too long for it\nlast"
        plain = self.ok("translate", "run", stdin=lines)
        self.assertEqual(len(plain.out.splitlines()), 5, plain)
        self.assertEqual(plain.out.splitlines()[1], "")
        self.assertIn("1 text is longer", plain.err)
        whole = [json.loads(line) for line in self.ok("translate", "run", "--json", "--best", "3", stdin=lines).out.splitlines()]
        self.assertEqual([w["source"] for w in whole], ["quick", "", "fox", "this line is too long for it", "last"])
        self.assertEqual([w["text"] for w in whole], plain.out.splitlines())
        scores = [b["score"] for b in whole[0]["best"]]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        # A line's translation does not depend on its neighbours.
        self.assertEqual(self.ok("translate", "run", stdin="fox\n").out, plain.out.splitlines()[2] + "\n")
        report = json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out)
        self.assertEqual(report["pairs"], 65)
        self.assertGreater(report["loss"], 0)
        self.assertIn("tok:13a", report["signature"])
        self.assertIn("nc:6", report["chrf_signature"])
        self.assertTrue(0 <= report["chrf"] <= 100 and 0 <= report["rouge_l"] <= 1)
        self.write("a.txt", "fox\njumps\n")
        self.write("b.txt", "xof\nspmuj\n")
        text = self.ok("eval", "run", "--data", "a.txt", "--target", "b.txt").out
        for part in ("BLEU = ", "chrF2 = ", "nc:6", "ROUGE-L ", "exact match "):
            self.assertIn(part, text)
        self.refused("translate", "run", "--strict", stdin=lines, status=1, says=["1 of texts 1 to 5", "11 tokens"])
        self.refused("generate", "run", "--prompt", "x", status=1, says=["encoder_decoder", "qkv translate"])
        self.refused("score", "run", "--prompt", "x", "--choice", "y", status=1, says="encoder_decoder")
        self.refused("translate", "run", "--best", "9", status=2, says=["--best", "--beams"])

    def test_ways_of_writing(self):
        self.ok("train", "config.toml")
        lines = "quick\n\nfox\n"
        # As many lines of each source, also of an empty one.
        best = self.ok("translate", "run", "--best", "2", stdin=lines).out.splitlines()
        self.assertEqual(len(best), 6)
        self.assertEqual(best[2:4], ["", ""])
        # The options have an effect: each changes these outputs.
        plain = self.ok("translate", "run", "--json", stdin="quick\nfox\njumps\n").out
        for option in (["--begin", "zz"], ["--length-penalty", "-3"], ["--tokens", "1"], ["--beams", "1", "--no-repeat-ngram", "1"]):
            self.assertNotEqual(self.ok("translate", "run", "--json", *option, stdin="quick\nfox\njumps\n").out, plain, option)
        for line in self.ok("translate", "run", "--begin", "zz", stdin=lines).out.splitlines()[::2]:
            self.assertTrue(line.startswith("zz"), line)
        early = [json.loads(x) for x in self.ok("translate", "run", "--json", "--stop-early", stdin=lines).out.splitlines()]
        self.assertEqual([x["source"] for x in early], ["quick", "", "fox"])
        # From JSON, and in small groups, it is the same.
        rows = "".join(json.dumps({"source": s}) + "\n" for s in ("quick", "", "fox"))
        whole = self.ok("translate", "run", "--json", stdin=lines).out
        self.assertEqual(self.ok("translate", "run", "--json", "--json-lines", stdin=rows).out, whole)
        self.assertEqual(self.ok("translate", "run", "--lines", "1", stdin=lines).out, self.ok("translate", "run", stdin=lines).out)
        self.refused("translate", "run", "--json-lines", stdin='{"text": "a"}\n', status=1, says=[":1: ", "source"])
        # Drawn outputs depend on the seed alone.
        drawn = [self.ok("translate", "run", "--temperature", "2", "--seed", seed, "--best", "3", stdin=lines).out for seed in "112"]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        self.assertEqual(len(set(drawn[0].splitlines()[:3])), 3)
        self.assertEqual(self.ok("translate", "run", "--top-k", "1", stdin=lines).out,
                         self.ok("translate", "run", "--beams", "1", stdin=lines).out)
        self.refused("translate", "run", "--temperature", "1", "--beams", "2", status=2, says="--beams", stdin=lines)
        self.refused("translate", "run", "--top-p", "3", status=2, says="--top-p", stdin=lines)

    def test_outputs_as_they_come(self):
        self.ok("train", "config.toml")
        with subprocess.Popen(command("translate", "run", "--lines", "2", threads=None), cwd=self.folder, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            process.stdin.write(b"quick\nfox\n")
            process.stdin.flush()
            self.assertNotEqual(process.stdout.readline() + process.stdout.readline(), b"")  # before the input ends
            process.stdin.close()

    def test_what_eval_leaves_out_and_cuts(self):
        self.ok("train", "config.toml")
        self.write("odd.tsv", "source\ttarget\nfox\txof\n\tx\n  \tx\nfox\t\n")
        odd = self.ok("eval", "run", "--data", "odd.tsv")
        self.assertIn("3 pairs have an empty side", odd.err)
        self.assertIn("% of 1", odd.out)
        self.assertIn("nats per character", odd.out)
        self.write("long.tsv", "source\ttarget\nfox\t" + "abc " * 40 + "\n")
        cut = self.ok("eval", "run", "--data", "long.tsv")
        self.assertIn("1 sources or targets are longer", cut.err)
        self.assertNotIn("nats per character", cut.out)
        self.refused("eval", "run", "--data", "long.tsv", "--strict", status=1, says=["long.tsv", "1 sources or targets", "--strict"])
        self.ok("eval", "run", "--data", "odd.tsv", "--strict")
        # A file without a header, in training and after it.
        self.write("bare.tsv", read_text(self.path("pairs.tsv")).split("\n", 1)[1])
        named = ["--columns", "source,target", "--json"]
        self.assertEqual(self.ok("eval", "run", "--data", "bare.tsv", *named).out, self.ok("eval", "run", "--data", "pairs.tsv", "--json").out)
        self.ok("train", "config.toml", "--set", "data.train=bare.tsv", "--set", 'data.columns=["source", "target"]', "--set", "train.out=bare")
        self.assertEqual(read(self.path("bare/last/model.safetensors")), read(self.path("run/last/model.safetensors")))
        self.assertIn("1 targets cut", self.ok("train", "config.toml", "--dry-run", "--set", "data.train=long.tsv",
                                               "--set", "data.valid=odd.tsv", "--set", "train.out=other").err)
        # As its makers generate.
        path = "run/best/generation_config.json"
        self.write(path, json.dumps({**json.loads(read(self.path(path))), "num_beams": 2}))
        self.assertEqual(json.loads(self.ok("eval", "run", "--data", "odd.tsv", "--json").out)["beams"], 2)
        self.assertEqual(json.loads(self.ok("eval", "run", "--data", "odd.tsv", "--beams", "3", "--json").out)["beams"], 3)
        with open(self.path("bytes.tsv"), "wb") as f:
            f.write(b"source\ttarget\nfox\txof\nfox\tx\xff\n")
        self.write("wordpiece.toml", re.sub(r"tokenizer.type = .*", 'tokenizer.type = "wordpiece"', self.CONFIG))
        self.refused("train", "wordpiece.toml", "--set", "data.train=bytes.tsv", "--set", "data.valid_fraction=0",
                     "--set", "train.out=b", status=1, says=["bytes.tsv:3: ", "0xFF"])

    def test_eval_of_restored_texts(self):
        self.write("text.txt", "the fox . a dog . " * 60)
        for objective, key, option in (("span_corruption", "train.span_density=0.6", ("--span-density", "0.6")),
                                       ("denoise", "train.infill=0.6", ("--infill", "0.6")),
                                       ("denoise", "train.deletion=0.3", ("--deletion", "0.3")),
                                       ("denoise", "train.span_length=1", ("--span-length", "1")),
                                       ("denoise", "train.permute_sentences=false", ("--keep-order",))):
            with self.subTest(objective=objective, key=key):
                out = key.split("=")[0][6:]
                self.ok("train", "config.toml", "--set", f"train.objective={objective}", "--set", key, "--set", "data.train=text.txt",
                        "--set", "data.valid=text.txt", "--set", "train.steps=2", "--set", f"train.out={out}")
                valid = [r["valid_loss"] for r in map(json.loads, read(self.path(out, "metrics.jsonl")).splitlines()) if "valid_loss" in r]
                arguments = ("eval", out + "/last", "--data", "text.txt", "--objective", objective)
                told = json.loads(self.ok(*arguments, *option, "--json").out)
                self.assertAlmostEqual(told["loss"], valid[-1], places=4)
                self.assertAlmostEqual(told["perplexity"], math.exp(told["loss"]))
                self.assertIn(f"{told['loss']:.4f} nats per target token ({told['target_tokens']} for", self.ok(*arguments, *option).out)
                # Without options it is as in the run; of a model without its run as usual.
                shutil.copytree(self.path(out, "last"), self.path(out + "_alone"))
                for more in ((), ("--objective", objective)):
                    self.assertEqual(json.loads(self.ok("eval", out, "--data", "text.txt", *more, "--json").out), told)
                others = [json.loads(self.ok(*command, "--json").out)["loss"]
                          for command in (("eval", out + "_alone", *arguments[2:]), (*arguments, *option, "--mask-seed", "4"))]
                self.assertNotAlmostEqual(others[0], told["loss"], places=5)
                self.assertNotAlmostEqual(others[1], told["loss"], places=5)
        self.refused("eval", out + "_alone", "--data", "text.txt", status=2, says=["text.txt", "--target", "--objective"])
        self.refused("eval", out, "--data", "pairs.tsv", "--infill", "0.5", status=2, says=["--infill", "--objective"])
        for more in (("--target", "text.txt"), ("--beams", "3"), ("--strict",), ("--span-density", "0.2")):
            self.refused("eval", out, "--data", "text.txt", "--objective", "denoise", *more, status=2, says=more[0])
        self.refused("eval", "span_density", "--data", "text.txt", "--objective", "denoise", status=1, says=["span_density", "<mask>"])
        self.refused("eval", out, "--data", "none.txt", "--objective", "denoise", status=1, says="none.txt")

    def test_two_vocabularies(self):
        self.ok("train", "config.toml", "--set", "tokenizer.separate=true")
        self.assertTrue(os.path.exists(self.path("run/best/source/tokenizer.json")))
        self.assertIn("source_vocab_size", self.ok("inspect", "run").out)
        self.assertEqual(len(self.ok("translate", "run", stdin="quick\n\nfox\n").out.splitlines()), 3)
        self.assertIn("loss", json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out))
        os.rename(self.path("run/best/source"), self.path("elsewhere"))
        self.refused("translate", "run", stdin="fox\n", status=1, says=["tokenizer of the sources", "best/source"])

    def test_recurrences(self):
        sets = [a for s in ("model.encoder=lstm", "model.decoder=gru", "model.source_attention=additive",
                            "model.reverse_source=true") for a in ("--set", s)]
        self.ok("train", "config.toml", *sets)
        saved = json.loads(read(self.path("run/last/config.json")))["qkv"]
        self.assertEqual([saved[k] for k in ("encoder", "decoder", "bidirectional", "source_attention", "reverse_source")],
                         ["lstm", "gru", True, "additive", True])
        best = json.loads(self.ok("translate", "run", "--json", "--best", "2", "--beams", "2", stdin="quick\n").out)
        self.assertEqual(len(best["best"]), 2)
        self.assertIn("loss", json.loads(self.ok("eval", "run", "--data", "pairs.tsv", "--json").out))
        shown = self.ok("inspect", "run").out
        for part in ("encoder-decoder", "encoder           lstm", "decoder           gru", "bidirectional     true", "source_attention  additive"):
            self.assertIn(part, shown)
        self.assertNotIn("heads", shown)
        self.refused("train", "config.toml", "--set", "model.source_attention=dot", status=2, says=["source_attention", "decoder"])

    def test_bleu_while_training(self):
        # BLEU looks at runs of four words.
        self.write("words.tsv", "source\ttarget\n" + "".join(f"{w}\t{t}\n" for w, t in (("x", "a b c d e"), ("y", "e d c b a"))) * 30)
        sets = [a for s in ("data.train=words.tsv", "train.steps=40", "train.eval_every=5", "train.learning_rate=0.02")
                for a in ("--set", s)]
        result = self.ok("train", "config.toml", *sets, "--set", "train.eval_bleu=5", "--set", "train.best_by=bleu")
        self.assertRegex(result.err, r"validation loss .*, BLEU \d+\.\d\d")
        bleu = {r["step"]: r["valid_bleu"] for r in map(json.loads, read(self.path("run/metrics.jsonl")).splitlines())
                if "valid_bleu" in r}
        self.assertEqual(sorted(bleu), list(range(5, 45, 5)))
        self.assertGreater(len(set(bleu.values())), 1, bleu)
        best = max(bleu, key=lambda step: (bleu[step], -step))  # the first of equals
        kept = json.loads(read(self.path("run/evaluation.json")))
        self.assertEqual((kept["step"], kept["scores"]["bleu"]), (best, bleu[best]))
        page = read_text(self.path("run/report.html"))
        for part in ("Validation BLEU", "Best validation BLEU", "<h2>Scores</h2>"):
            self.assertIn(part, page)
        self.ok("train", "config.toml", *sets, "--set", "train.out=plain")
        self.assertNotIn("valid_bleu", read_text(self.path("plain/metrics.jsonl")))
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("plain/last/model.safetensors")))
        self.ok("train", "config.toml", *sets, "--set", "train.out=exact", "--set", "train.eval_bleu=5", "--set", "train.best_by=exact_match")
        exact = [(r["valid_exact_match"], -r["step"]) for r in map(json.loads, read(self.path("exact/metrics.jsonl")).splitlines())
                 if "valid_exact_match" in r]
        self.assertEqual(max(exact)[0], 1)
        kept = json.loads(read(self.path("exact/evaluation.json")))
        self.assertEqual((kept["scores"]["exact_match"], -kept["step"]), max(exact))
        for sets, says in ((["train.best_by=bleu"], "train.eval_bleu"), (["train.best_by=exact_match"], "train.eval_bleu"), (["train.eval_bleu=-1"], "eval_bleu")):
            self.refused("train", "config.toml", *(a for s in sets for a in ("--set", s)), "--set", "train.out=bad",
                         status=2, says=says)
        self.write("windows.toml", self.CONFIG.replace("train.batch_tokens = 300\n", ""))
        self.refused("train", "windows.toml", "--set", "train.eval_bleu=5", "--set", "model.architecture=decoder", status=2,
                     says="sequence_to_sequence")

    def test_equal_runs_have_equal_bits(self):
        self.ok("train", "config.toml")
        self.ok("train", "config.toml", "--set", "train.out=other", "--set", "train.steps=6")
        self.assertEqual(read(self.path("run/last/model.safetensors")), read(self.path("other/last/model.safetensors")))

    def test_bad_input(self):
        def refuse(says, *sets, status=(1, 2)):
            arguments = [a for s in sets for a in ("--set", s)]
            self.refused("train", "config.toml", *arguments, says=says, status=status, allow_progress=True)
        self.write("ragged.tsv", "source\ttarget\na\tb\nc\n")
        refuse(["ragged.tsv:3", "2 fields"], "data.train=ragged.tsv")
        self.write("quotes.csv", "source,target\n\"a,b\n")
        refuse(["quotes.csv:2", "never closed"], "data.train=quotes.csv")
        refuse(["pairs.tsv", "'german'", "it has: "], "data.target_column=german")
        self.write("few.txt", "x\n")
        refuse(["text.txt", "few.txt", "each line needs"], "data.train=text.txt", "data.train_target=few.txt")
        refuse(["text.txt", ".tsv"], "data.train=text.txt")
        refuse(["batch", "batch_tokens"], "train.batch=fit", status=2)
        refuse(["train_target", "sequence_to_sequence"], "model.architecture=decoder", "data.train_target=few.txt", status=2)
        refuse(["batch_tokens", "sequence_to_sequence"], "model.architecture=decoder", status=2)
        self.write("config.toml", self.CONFIG.replace("train.batch_tokens = 300\n", ""))
        refuse(["encoder_layers"], "model.architecture=decoder", "model.encoder_layers=2", status=2)
        self.assertFalse(os.path.exists(self.path("run")))

    def test_lines_stay_lines(self):
        """Outputs that hold line ends stand in one line each."""
        self.write("lines.jsonl", "".join(json.dumps({"source": w, "target": "x\n\ny"}) + "\n" for w in WORDS * 30))
        self.ok("train", "config.toml", "--set", "data.train=lines.jsonl", "--set", "train.steps=30", "--set", "train.learning_rate=0.02",
                "--set", "train.eval_every=30")
        self.assertIn("\n", json.loads(self.ok("translate", "run", "--json", stdin="fox\n").out)["text"])
        self.assertEqual(len(self.ok("translate", "run", stdin="fox\nquick\n").out.splitlines()), 2)

    def test_other_models_do_not_translate(self):
        self.train(steps=1)
        self.refused("translate", "run", status=1, says=["run", "decoder", "encoder-decoder"], stdin="a\n")


if __name__ == "__main__":
    main()
