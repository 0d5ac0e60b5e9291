#!/usr/bin/env python3
"""qkv inspect.

usage: test_inspect.py QKV [unittest arguments]
"""
import json
import os

from qkv_cli import FinishedRun, main, read, safetensors_bytes


def words_of(text):
    """The text with one space for each run of blanks."""
    return " ".join(text.split())


class Inspect(FinishedRun):
    def test_run(self):
        out = self.ok("inspect", self.run_dir, "--tensors").out
        for part in ("gpt2", "layers 1", "width 16", "transformer.wte.weight", "parameters"):
            self.assertIn(part, words_of(out))
        self.assertNotIn("transformer.wte.weight", self.ok("inspect", self.run_dir).out)

    def test_json(self):
        facts = json.loads(self.ok("inspect", self.run_dir, "--json", "--tensors").out)
        self.assertEqual((facts["model_type"], facts["config"]["layers"], facts["config"]["width"]), ("gpt2", 1, 16))
        shapes = {t["name"]: t["shape"] for t in facts["tensors"]}
        self.assertEqual(shapes["transformer.wte.weight"][1], 16)
        self.assertGreaterEqual(facts["parameters"], shapes["transformer.wte.weight"][0] * 16)
        self.assertNotIn("tensors", json.loads(self.ok("inspect", self.run_dir, "--json").out))

    def test_presets(self):
        self.write("t.txt", "the quick brown fox jumps over the lazy dog. " * 60)
        self.write("c.toml", """
data = { train = "t.txt", cache = false }
tokenizer.type = "char"
model = { context = 16, width = 16, layers = 1, heads = 2 }
train = { out = "p", steps = 3, batch = 2, warmup_steps = 1 }
""")
        self.ok("train", "c.toml", "--preset", "llama")
        self.assertEqual(json.loads(read(self.path("p/best/config.json")))["model_type"], "llama")
        out = self.ok("inspect", "p").out
        for part in ("activation silu", "gated true", "positions rotary", "d_qk 8", "rotary_width 8", "normalization rms", "norm pre"):
            self.assertIn(part, words_of(out))
        for part in ("rotary_base", "head_activation", "experts"):  # they have their defaults
            self.assertNotIn(part, out)
        self.ok("train", "c.toml", "--set", "model.experts=3", "--set", "model.expert_hidden=8", "--set", "model.shared_hidden=4",
                "--set", "model.attention_cap=5", "--set", 'model.patterns=["window 4 global 1", "all"]', "--set", "train.out=m")
        out = self.ok("inspect", "m").out
        for part in ("experts 3", "expert_hidden 8", "shared_hidden 4", "attention_cap 5", "patterns [window 4 global 1, all]",
                     "KV cache 32 values per token"):
            self.assertIn(part, words_of(out))
        self.ok("train", "c.toml", "--preset", "deepseek-mla", "--set", "model.kv_latent=4", "--set", "model.rotary_width=2",
                "--set", "train.out=d")
        out = self.ok("inspect", "d").out
        for part in ("kv_latent 4", "KV cache 6 values per token"):
            self.assertIn(part, words_of(out))
        for run in ("m", "d"):
            self.assertGreaterEqual(len(self.ok("generate", run, "--prompt", "the", "--tokens", "9").out), 9)
        self.ok("train", "c.toml", "--set", "model.mixer=lstm", "--set", "train.out=r")
        out = self.ok("inspect", "r").out
        for part in ("mixer lstm", "KV cache 0 values per token"):
            self.assertIn(part, words_of(out))
        for part in ("heads", "d_qk"):  # which no layer has
            self.assertNotIn(part, out)
        for name, settings, words in [("gopher", [], ["relative_attention transformer_xl"]),
                                      ("gpt2", ["model.relative_attention=shaw", "model.relative_attention_distance=3"],
                                       ["relative_attention shaw", "relative_attention_distance 3"]),
                                      ("gpt2", ["model.normalization=batch", "model.embedding_unit=true"], ["normalization batch", "norm pre", "embedding_unit true"]),
                                      ("gpt2", ["model.positions=rotary", "model.grid=4"], ["grid 4"])]:
            self.ok("train", "c.toml", "--preset", name, "--overwrite", "--set", "train.out=v",
                    *[part for s in settings for part in ("--set", s)])
            out = self.ok("inspect", "v").out
            for part in words:
                self.assertIn(part, words_of(out))
            self.assertGreaterEqual(len(self.ok("generate", "v", "--prompt", "the", "--tokens", "9").out), 9)
        self.write("e.toml", """
data = { train = "t.txt", cache = false }
tokenizer.vocab_size = 60
model = { context = 24, width = 16, layers = 1, heads = 2 }
train = { steps = 3, batch_tokens = 96, warmup_steps = 1 }
""")
        for name in ("xlnet", "deberta-v3", "longformer"):
            self.ok("train", "e.toml", "--preset", name, "--set", "train.out=" + name)
            self.ok("fill", name, stdin="the quick [MASK] fox\n")
        # Rotary positions do not end with the context.
        self.assertGreaterEqual(len(self.ok("generate", "p", "--prompt", "the", "--tokens", "40").out), 40)
        self.refused("train", "c.toml", "--preset", "lama", status=2, says=["c.toml", "preset", "llama", "lama"])
        self.refused("train", "c.toml", "--preset", "llama", "--set", "model.norm=post", "--set", "model.branches=one_norm",
                     "--set", "train.out=q", status=2, says=["branches", "pre-norms"])
        self.assertFalse(os.path.exists(self.path("q")))

    def test_safetensors_file(self):
        self.write("x.safetensors", safetensors_bytes({"a": ("F32", [2, 3], [0] * 6)}))
        out = self.ok("inspect", "x.safetensors").out
        self.assertIn("[2, 3]", out)
        self.assertIn("1 tensors, 6 elements, 24 bytes", out)

    def test_bad_input(self):
        self.refused("inspect", "missing", status=1, says="missing")
        self.write("text.txt", "any text at all")
        self.refused("inspect", "text.txt", status=1, says=["text.txt", "not a safetensors file", "model directory"])
        self.write("m.gguf", "GGUF")
        self.refused("generate", "m.gguf", "--prompt", "a", status=1, says=["m.gguf: it ends after 4 bytes"])
        self.refused("generate", "text.txt", "--prompt", "a", status=1, says=["text.txt: is a file"])
        self.refused("generate", "gpt2", "--prompt", "a", status=1, says=["gpt2: no such directory", "huggingface-cli download gpt2"])
        self.refused("inspect", ".", status=1, says="config.json")


if __name__ == "__main__":
    main()
