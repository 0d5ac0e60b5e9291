#!/usr/bin/env python3
"""qkv merge, and the training of the adapters that it merges.

usage: test_merge.py QKV [unittest arguments]
"""
import json
import os
import re
import shutil

from qkv_cli import CliTest, configuration, main, make_text, read


class Adapters(CliTest):
    """A run beside another run's model, on a text with other letters."""
    CONFIG = """
data = {{ train = "other.txt", valid_fraction = 0.1 }}
model = {{ from = "{base}", lora_rank = 4, lora_dropout = 0.1 }}
train = {{ out = "adapted", steps = 60, batch = 8, learning_rate = 1e-2, eval_every = 20, checkpoint_every = 20, sample_tokens = 0 }}
"""

    def setUp(self):
        super().setUp()
        self.write("config.toml", configuration(steps=150, learning_rate=1e-2, model__width=32))
        self.ok("train", "config.toml")
        self.run_dir = self.path("run")
        self.write("other.txt", make_text().translate(str.maketrans("theoa", "htoae")))
        self.write("adapt.toml", self.CONFIG.format(base=self.run_dir))

    def scores(self, model):
        return json.loads(self.ok("eval", model, "--data", "other.txt", "--json").out)

    def test_learns_beside_the_model_and_runs_as_it_is_or_merged(self):
        self.ok("train", "adapt.toml")
        files = os.listdir(self.path("adapted", "best"))
        self.assertIn("adapter_model.safetensors", files)
        self.assertNotIn("model.safetensors", files)
        with open(self.path("adapted", "best", "adapter_config.json"), encoding="utf8") as file:
            config = json.load(file)
        self.assertEqual((config["peft_type"], config["r"], config["lora_alpha"]), ("LORA", 4, 8))
        adapted, base = self.scores("adapted"), self.scores(self.run_dir)
        self.assertLess(adapted["loss"], base["loss"] - 0.1)
        self.ok("merge", "adapted", "--out", "merged")
        self.assertAlmostEqual(self.scores("merged")["loss"], adapted["loss"], places=3)
        self.assertEqual(self.ok("generate", "adapted", "--prompt", "t", "--tokens", "9", "--seed", "2").out,
                         self.ok("generate", "merged", "--prompt", "t", "--tokens", "9", "--seed", "2").out)
        self.assertIn("adapter", self.ok("inspect", "adapted").out)

    def test_resumes_bit_for_bit(self):
        def read(run):
            with open(self.path(run, "last", "adapter_model.safetensors"), "rb") as file:
                return file.read()

        self.ok("train", "adapt.toml", "--set", "train.out=whole")
        self.ok("train", "adapt.toml", "--set", "train.keep=3")
        older = [name for name in os.listdir(self.path("adapted")) if re.fullmatch(r"step-0*40", name)]
        self.assertEqual(len(older), 1, os.listdir(self.path("adapted")))
        shutil.rmtree(self.path("adapted", "last"))
        shutil.copytree(self.path("adapted", older[0]), self.path("adapted", "last"))
        self.ok("train", "adapt.toml", "--set", "train.keep=3", "--resume")
        self.assertEqual(read("whole"), read("adapted"))

    def test_what_makes_no_sense_is_refused(self):
        self.refused("train", "adapt.toml", "--set", "model.lora_rank=0", status=2, says=["lora_dropout", "lora_rank"])
        self.refused("train", "adapt.toml", "--set", "model.lora_targets=[\"nothing\"]", says=["lora_targets", "'nothing'"])
        self.refused("train", "adapt.toml", "--set", "model.from=", status=2, says="model.from")
        self.refused("merge", self.run_dir, "--out", "x", says="adapter")
        self.refused("train", "adapt.toml", "--set", "model.lora_rank=1000", says="rank")
        self.refused("train", "adapt.toml", "--set", "train.out=run", "--overwrite", status=2, says=["train.out", "must stay"])
        self.refused("train", "adapt.toml", "--set", "train.freeze=[\"*\"]", status=2, says="train.freeze")
        self.refused("train", "adapt.toml", "--set", "model.lora_targets=[]", status=2, says="lora_targets")

    def test_an_adapter_has_its_models_settings(self):
        self.ok("train", "adapt.toml")
        with open(self.path("run", "best", "generation_config.json"), "w", encoding="utf8") as file:
            json.dump({"do_sample": False, "max_new_tokens": 3}, file)
        for name in ("config.json", "generation_config.json", "tokenizer.json"):
            os.remove(self.path("adapted", "best", name))
        text = self.ok("generate", "adapted/best", "--prompt", "the ").out
        self.assertEqual(len(text), len("the ") + 3 + 1)
        self.ok("merge", "adapted/best", "--out", "merged")
        self.assertEqual(self.ok("generate", "merged", "--prompt", "the ").out, text)


if __name__ == "__main__":
    main()
