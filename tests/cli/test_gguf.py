#!/usr/bin/env python3
# Covers: qkv/cli/gguf_output.cc, qkv/cli/quantize_command.cc, qkv/convert/gguf_file.cc, qkv/io/gguf/directory.cc
"""GGUF files: qkv convert and qkv quantize write them, and every command reads them.

usage: test_gguf.py QKV [unittest arguments]
"""
import json
import os
import struct

from qkv_cli import CliTest, main

CONFIG = """
data = { train = "text.txt" }
tokenizer = { vocab_size = 300 }
model = { preset = "llama", context = 64, width = 64, layers = 2, heads = 4, kv_heads = 2, hidden = 160 }
train = { out = "run", steps = 40, batch = 4, precision = "f32", eval_every = 20, learning_rate = 3e-3, sample_tokens = 0 }
"""
ADAPTER = """
data = {{ train = "text.txt" }}
model = {{ from = "{base}", lora_rank = 4 }}
train = {{ out = "{out}", steps = 12, batch = 2, eval_every = 4, checkpoint_every = 4, keep = 3, learning_rate = 3e-3, sample_tokens = 0 }}
"""


class Gguf(CliTest):
    def setUp(self):
        super().setUp()
        self.write("c.toml", CONFIG)
        self.ok("train", "c.toml")

    def loss(self, model):
        return json.loads(self.ok("eval", model, "--data", "text.txt", "--json").out)["loss"]

    def types(self, model):
        tensors = json.loads(self.ok("inspect", model, "--json", "--tensors").out)["tensors"]
        return {t["name"]: t["dtype"] for t in tensors}

    def bytes_of(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()

    def test_a_file_is_the_model(self):
        self.ok("convert", "run", "--out", "m.gguf")
        self.assertEqual(self.loss("m.gguf"), self.loss("run"))
        for model in ("run", "m.gguf"):
            self.assertEqual(self.ok("generate", "run", "--prompt", "the ", "--tokens", "12", "--seed", "3").out,
                             self.ok("generate", model, "--prompt", "the ", "--tokens", "12", "--seed", "3").out)
        self.assertIn("llama model", self.ok("inspect", "m.gguf").out)
        self.ok("convert", "m.gguf", "--out", "back")
        self.assertEqual(self.bytes_of("back", "model.safetensors"), self.bytes_of("run", "best", "model.safetensors"))
        self.assertEqual(json.loads(self.bytes_of("back", "config.json")),
                         json.loads(self.bytes_of("run", "best", "config.json")))
        self.assertEqual(self.loss("back"), self.loss("run"))

    def test_quantised_models_stay_near(self):
        whole, size = self.loss("run"), os.path.getsize(self.path("run", "best", "model.safetensors"))
        for kind, share, near in (("q8_0", 0.4, 1e-3), ("q4_0", 0.35, 2e-2), ("f16", 0.6, 1e-4)):
            with self.subTest(kind):
                self.ok("quantize", "run", "--type", kind, "--out", f"{kind}.gguf")
                self.assertLess(os.path.getsize(self.path(f"{kind}.gguf")), share * size)
                self.assertIn(kind, self.types(f"{kind}.gguf").values())
                self.assertAlmostEqual(self.loss(f"{kind}.gguf"), whole, delta=near * whole)
        self.ok("quantize", "q8_0.gguf", "--type", "q4_k_m", "--out", "again", "--requantize")
        self.assertIn("q5_0", self.types("again").values())  # 64 numbers are no block of q4_k

    def test_calibration_weighs_columns_by_a_text(self):
        self.ok("quantize", "run", "--type", "q4_0", "--out", "plain.gguf")
        got = self.ok("quantize", "run", "--type", "q4_0", "--out", "text.gguf", "--calibrate", "text.txt",
                      "--calibration-tokens", "700")
        self.assertRegex(got.err, r"calibrated on 700 tokens of text.txt: perplexity [0-9.]+ before")
        self.assertNotEqual(self.bytes_of("text.gguf"), self.bytes_of("plain.gguf"))
        self.assertAlmostEqual(self.loss("text.gguf"), self.loss("run"), delta=2e-2 * self.loss("run"))
        self.ok("quantize", "run", "--type", "q4_0", "--out", "again.gguf", "--calibrate", "text.txt",
                "--calibration-tokens", "700")
        self.assertEqual(self.bytes_of("text.gguf"), self.bytes_of("again.gguf"))
        self.write("empty.txt", "")
        self.refused("quantize", "run", "--type", "q4_0", "--out", "n.gguf", "--calibrate", "empty.txt",
                     says=["empty.txt: has fewer than two tokens"])
        self.refused("quantize", "run", "--type", "q4_0", "--out", "n.gguf", "--calibrate", "none.txt",
                     says=["none.txt"])
        self.assertFalse(os.path.exists(self.path("n.gguf")))

    def test_adapters_learn_beside_quantised_weights(self):
        self.ok("quantize", "run", "--type", "q8_0", "--out", "q8.gguf")
        before = self.bytes_of("q8.gguf")
        self.write("a.toml", ADAPTER.format(base="q8.gguf", out="adapted"))
        self.ok("train", "a.toml")
        self.assertLess(self.loss("adapted"), self.loss("q8.gguf"))
        self.assertEqual(self.bytes_of("q8.gguf"), before)
        self.ok("merge", "adapted", "--out", "merged")
        self.assertAlmostEqual(self.loss("merged"), self.loss("adapted"), delta=1e-2)
        self.ok("merge", "adapted", "--out", "merged.gguf", "--type", "q8_0")
        self.assertAlmostEqual(self.loss("merged.gguf"), self.loss("merged"), delta=1e-3)
        self.assertIn("q8_0", self.types("merged.gguf").values())
        self.assertFalse(os.path.exists(self.path("merged.gguf.whole")))
        self.refused("merge", "adapted", "--out", "m", "--type", "q8_0", says=["--type", ".gguf"])
        # The adapter as a GGUF file, and back beside either form of its model.
        self.ok("convert", "adapted", "--out", "adapter.gguf")
        for base in ("q8.gguf", "run"):
            self.ok("convert", "adapter.gguf", "--base", base, "--out", f"beside-{base[:2]}")
            self.assertEqual(self.bytes_of(f"beside-{base[:2]}", "adapter_model.safetensors"),
                             self.bytes_of("adapted", "best", "adapter_model.safetensors"))
        self.assertEqual(self.loss("beside-q8"), self.loss("adapted"))
        self.refused("convert", "adapter.gguf", "--out", "n", says=["--base names the model"])
        self.refused("convert", "adapter.gguf", "--base", "run", "--out", "n", "--part", "decoder", says=["--part"])
        self.refused("convert", "adapted", "--base", "run", "--out", "n.gguf", says=["adapter_config.json"])
        self.refused("convert", "run", "--base", "run", "--out", "n.gguf", says=["--base"])
        self.refused("convert", "adapted", "--out", "adapter.gguf", says=["adapter.gguf: exists already"])
        self.refused("generate", "adapter.gguf", "--prompt", "a", says=["it holds an adapter", "--base MODEL"])
        # Resuming continues bit for bit.
        whole = self.bytes_of("adapted", "last", "adapter_model.safetensors")
        older = [n for n in os.listdir(self.path("adapted")) if n.startswith("step-") and n.endswith("4")]
        self.assertEqual(len(older), 1, os.listdir(self.path("adapted")))
        os.rename(self.path("adapted", "last"), self.path("adapted", "newest"))
        os.rename(self.path("adapted", older[0]), self.path("adapted", "last"))
        self.ok("train", "a.toml", "--resume")
        self.assertEqual(self.bytes_of("adapted", "last", "adapter_model.safetensors"), whole)

    def test_a_file_without_a_pre_tokenizer_is_noted(self):
        self.write("b.toml", CONFIG.replace("vocab_size = 300", 'vocab_size = 300, type = "bpe"'))
        self.ok("train", "b.toml", "--overwrite")
        self.ok("convert", "run", "--out", "m.gguf")
        contents = self.bytes_of("m.gguf")
        self.assertEqual(contents.count(b"tokenizer.ggml.pre"), 1)
        self.assertNotIn("note:", self.ok("generate", "m.gguf", "--prompt", "the", "--tokens", "2").err)
        with open(self.path("n.gguf"), "wb") as file:
            file.write(contents.replace(b"tokenizer.ggml.pre", b"tokenizer.other.pr"))
        self.assertRegex(self.ok("generate", "n.gguf", "--prompt", "the", "--tokens", "2").err,
                         r"note: n.gguf.*tokenizer.ggml.pre")

    def test_what_cannot_be_written_or_read(self):
        self.refused("quantize", "run", "--type", "q9", "--out", "m.gguf", says=["--type", "q4_k_m", "'q9'"])
        self.ok("quantize", "run", "--type", "q8_0", "--out", "m.gguf")
        self.refused("quantize", "run", "--type", "q8_0", "--out", "m.gguf", says=["m.gguf: exists already"])
        self.refused("quantize", "m.gguf", "--type", "q4_0", "--out", "n.gguf", says=["q8_0 already", "--requantize"],
                     allow_progress=True)
        self.assertFalse(os.path.exists(self.path("n.gguf")) or os.path.exists(self.path("n.gguf.tmp")))
        self.refused("convert", "run", "--out", "dir", "--type", "q8_0", says=["--type", "GGUF"])
        contents = self.bytes_of("m.gguf")
        with open(self.path("cut.gguf"), "wb") as file:
            file.write(contents[:len(contents) // 2])
        self.refused("generate", "cut.gguf", "--prompt", "a", says=["cut.gguf"])
        other = contents.replace(b"general.architecture" + struct.pack("<IQ", 8, 5) + b"llama",
                                 b"general.architecture" + struct.pack("<IQ", 8, 5) + b"lamma", 1)
        with open(self.path("other.gguf"), "wb") as file:
            file.write(other)
        self.refused("inspect", "other.gguf", says=["architecture 'lamma' is not supported", "qwen3"])


if __name__ == "__main__":
    main()
