#!/usr/bin/env python3
"""Models whose layers differ: [model.kind.NAME] and layer_kinds, from training to generation.

usage: test_layer_kinds.py QKV [unittest arguments]
"""
import json

from qkv_cli import CliTest, load_safetensors, main, make_text, read, read_text, safetensors_bytes

LAYERS = """
[model]
preset = "gemma3"
layers = 7
width = 24
heads = 4
context = 24
hidden = 32

[model.kind.local]
patterns = ["window 5"]
heads = 2
kv_heads = 1
hidden = 40
"""


class LayerKinds(CliTest):
    def setUp(self):
        super().setUp()
        self.write("text.txt", make_text())
        self.write("config.toml", 'data.train = "text.txt"\ndata.cache = false\ntokenizer.type = "char"\n' + LAYERS +
                   '\n[train]\nout = "run"\nsteps = 8\nbatch = 2\neval_every = 8\ncheckpoint_every = 4\n'
                   'precision = "f32"\n')

    def test_from_training_to_generation(self):
        self.ok("train", "config.toml")
        shown = self.ok("inspect", "run").out
        self.assertRegex(shown, r"layer_kinds +\[local, local, local, local, local, default\]")
        self.assertRegex(shown, r"\n  heads +4\n")
        self.assertRegex(shown, r"heads of local +2\n")
        self.assertRegex(shown, r"rotary_base of local +10000\n")
        # Six layers remember one key and value of 6 numbers each; one, the model's own, two.
        self.assertIn(f"{6 * 1 * 12 + 2 * 12} values per token", shown)
        kinds = json.loads(self.ok("inspect", "run", "--json").out)["config"]["kinds"]
        self.assertEqual(kinds["local"], {"heads": 2, "kv_heads": 1, "hidden": 40, "patterns": ["window 5"],
                                          "rotary_base": 10000.0})
        text = self.ok("generate", "run", "--prompt", "the", "--tokens", "40", "--temperature", "0").out
        self.assertEqual(text, self.ok("generate", "run/last", "--prompt", "the", "--tokens", "40", "--temperature",
                                       "0").out)
        # A run that stopped goes on to the same weights.
        self.ok("train", "config.toml", "--set", "train.out=halves", "--set", "train.steps=4",
                "--set", "train.schedule=constant", "--set", "train.warmup_steps=0")
        self.ok("train", "--resume", "halves", "--set", "train.steps=8")
        self.ok("train", "config.toml", "--set", "train.out=whole", "--set", "train.schedule=constant",
                "--set", "train.warmup_steps=0")
        self.assertEqual(read(self.path("halves/last/model.safetensors")),
                         read(self.path("whole/last/model.safetensors")))

    def test_each_layer_shows_its_own_heads(self):
        self.ok("train", "config.toml")
        length = 12
        ids = [3 + i % 5 for i in range(2 * length)]
        self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [2, length], ids)}))
        self.ok("forward", "run", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--attentions",
                "--hidden-states")
        out = load_safetensors(self.path("out.safetensors"))
        for layer in range(7):
            shape, values = out[f"attentions.{layer}"]
            local = layer != 5
            self.assertEqual(shape, [2, 2 if local else 4, length, length])
            for row in range(len(values) // length):
                query, seen = row % length, values[row * length:(row + 1) * length]
                self.assertAlmostEqual(sum(seen), 1, places=5)
                for key, p in enumerate(seen):
                    self.assertEqual(p > 0, key <= query and (not local or query - key < 5), (layer, query, key))
        self.assertEqual(out["hidden_states.7"][0], [2, length, 24])

    def test_only_some_kinds_have_experts(self):
        self.ok("train", "config.toml", "--set", "model.kind.local.experts=3", "--set", "model.kind.local.expert_hidden=5",
                "--set", "train.steps=2")
        self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, 6], [3, 4, 5, 6, 7, 8])}))
        self.ok("forward", "run", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--hidden-states")
        out = load_safetensors(self.path("out.safetensors"))
        self.assertEqual(sorted(name for name in out if name.startswith("router_logits")),
                         [f"router_logits.{i}" for i in range(6)])  # layers without experts are not counted
        self.assertEqual(out["router_logits.4"][0], [6, 3])

    def test_plan_counts_every_kind(self):
        plan = json.loads(self.ok("plan", "config.toml", "--json").out)
        wider = json.loads(self.ok("plan", "config.toml", "--json", "--set", "model.kind.local.hidden=80").out)
        self.assertGreater(wider["parameters"], plan["parameters"])
        self.assertGreater(wider["flops_per_step"], plan["flops_per_step"])
        self.assertGreater(wider["memory"]["activations"], plan["memory"]["activations"])
        self.assertGreater(plan["seconds_per_step"], 0)

    def test_adapters_of_one_kind(self):
        self.ok("train", "config.toml", "--set", "model.kind.local.hidden_layers=2", "--set", "train.steps=2")
        self.write("lora.toml", 'data.train = "text.txt"\ndata.cache = false\nmodel.from = "run"\nmodel.lora_rank = 2\n'
                   'model.lora_targets = ["inner.1"]\ntrain.out = "lora"\ntrain.steps = 2\n')
        plan = json.loads(self.ok("plan", "lora.toml", "--json").out)
        self.assertGreater(plan["seconds_per_step"], 0)
        self.ok("train", "lora.toml")

    def test_training_goes_on_with_the_same_kinds(self):
        self.ok("train", "config.toml")
        more = 'data.train = "text.txt"\ndata.cache = false\nmodel.from = "run"\ntrain.out = "more"\ntrain.steps = 2\n'
        self.write("more.toml", more + "model.kind.local.patterns = ['window 3']\n")
        self.ok("train", "more.toml")
        config = json.loads(self.ok("inspect", "more", "--json").out)["config"]
        self.assertEqual(config["kinds"]["local"]["patterns"], ["window 3"])
        self.assertEqual(config["kinds"]["local"]["heads"], 2)
        for key, says in (("local.heads = 4", "does not fit"), ("other.heads = 4", "no such layers")):
            self.write("other.toml", more.replace('"more"', '"other"') + f"model.kind.{key}\n")
            self.refused("train", "other.toml", says=[f"model.kind.{key.split('.')[0]}", says])


if __name__ == "__main__":
    main()
