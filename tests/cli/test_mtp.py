#!/usr/bin/env python3
"""Multi-token prediction: model.mtp_layers, from training to drafts, resumed, added to a trained model, exported.

usage: test_mtp.py QKV [unittest arguments]
"""
# Covers: qkv/cli/gguf_output.cc
import json
import re

from qkv_cli import CliTest, load_safetensors, main, make_text, read

SETTINGS = """
data.train = "text.txt"
data.cache = false
tokenizer.type = "bpe"
tokenizer.vocab_size = 280

[model]
preset = "llama"
layers = 2
width = 24
heads = 2
context = 32
mtp_layers = 2
mtp_form = "{form}"

[train]
out = "run"
steps = 40
batch = 4
learning_rate = 5e-3
schedule = "constant"
warmup_steps = 0
eval_every = 40
checkpoint_every = 20
precision = "f32"
"""


class MultiTokenPrediction(CliTest):
    def setUp(self):
        super().setUp()
        self.write("text.txt", make_text())

    def train(self, form, *arguments):
        self.write("config.toml", SETTINGS.format(form=form))
        return self.ok("train", "config.toml", "--overwrite", *arguments)

    def generate(self, model, *arguments):
        return self.ok("generate", model, "--prompt", "the f", "--tokens", "40", *arguments)

    def test_drafts_by_its_own_modules(self):
        """Each form drafts what the model then writes, greedy and sampled, and is right more often than by chance."""
        for form in "chained", "joined", "parallel":
            with self.subTest(form=form):
                self.train(form)
                self.assertRegex(self.ok("inspect", "run").out, 
                                 r"mtp_layers +2\n" + ("" if form == "chained" else rf" +mtp_form +{form}\n"))
                records = [json.loads(line) for line in read(self.path("run/metrics.jsonl")).splitlines()]
                valid = [record for record in records if "valid_loss" in record][-1]
                measured = json.loads(self.ok("eval", "run", "--data", "text.txt", "--json").out)
                for name in "loss_mtp_1", "loss_mtp_2":
                    self.assertLess(valid["valid_" + name], 4)
                    self.assertLess(measured[name], 4)
                self.assertRegex(self.ok("eval", "run", "--data", "text.txt").out,
                                 r"\nloss of mtp_1 +\d\.\d{4} nats per token\nloss of mtp_2 ")
                for options in (["--temperature", "0"], ["--seed", "3", "--samples", "2"],
                                ["--seed", "1", "--stop", "z"]):
                    drafted = self.generate("run", *options, "--draft", "mtp")
                    self.assertEqual(drafted.out, self.generate("run", *options).out)
                    taken, of = map(int, re.findall(r"\d+", drafted.err)[:2])
                    self.assertGreater(taken, of / 10)

    def test_runs_that_stopped_go_on(self):
        self.train("joined", "--set", "train.out=halves", "--set", "train.steps=20")
        self.ok("train", "--resume", "halves", "--set", "train.steps=40")
        self.train("joined", "--set", "train.out=whole")
        self.assertEqual(read(self.path("halves/last/model.safetensors")),
                         read(self.path("whole/last/model.safetensors")))

    def test_modules_for_a_trained_model(self):
        """They may be added and left out; adapters of a model leave its modules alone."""
        self.train("chained", "--set", "model.mtp_layers=0", "--set", "train.out=base")
        self.refused("generate", "base", "--prompt", "the", "--draft", "mtp",
                     says=["--draft", "no modules of multi-token prediction", "model.mtp_layers"])
        more = ('data.train = "text.txt"\ndata.cache = false\nmodel.from = "base"\n{}\n[train]\nout = "{}"\nsteps = 3\n'
                'batch = 2\neval_every = 3\nprecision = "f32"\n')
        self.write("more.toml", more.format('model.mtp_layers = 1\nmodel.mtp_form = "joined"', "more"))
        self.ok("train", "more.toml")
        self.generate("more", "--draft", "mtp")
        self.write("adapted.toml", more.format("model.lora_rank = 2", "adapted").replace('"base"', '"more"'))
        self.ok("train", "adapted.toml")
        names = load_safetensors(self.path("adapted/best/adapter_model.safetensors"))
        self.assertTrue(any("layers.1." in name for name in names))
        self.assertFalse(any("layers.2." in name or "mtp" in name for name in names))
        self.generate("adapted", "--draft", "mtp")
        self.write("none.toml", more.format("model.mtp_layers = 0", "none").replace('"base"', '"more"'))
        self.ok("train", "none.toml")
        self.assertFalse(any("mtp" in name for name in load_safetensors(self.path("none/best/model.safetensors"))))

    def test_gguf_files_are_without_them(self):
        self.train("joined")
        text = self.generate("run", "--temperature", "0").out
        self.assertIn("without the modules of multi-token prediction",
                      self.ok("convert", "run", "--out", "run.gguf").err)
        self.assertEqual(self.generate("run.gguf", "--temperature", "0").out, text)
        self.refused("generate", "run.gguf", "--prompt", "the", "--draft", "mtp", says=["no modules"])

    def test_what_is_refused(self):
        for setting, says in (("model.memory=8", "memory"), ("model.order=prefix", "in the order stack"),
                              ("model.branches=reversible", "reversible")):
            with self.subTest(setting=setting):
                self.write("config.toml", SETTINGS.format(form="joined"))
                self.refused("train", "config.toml", "--set", setting, "--set", "model.tied=false",
                             says=["mtp_layers", says])


if __name__ == "__main__":
    main()
