#!/usr/bin/env python3
"""sentence-transformers' directories in qkv embed, and qkv rerank.

usage: test_sentences.py QKV [unittest arguments]
"""
# Covers: qkv/io/sentence_dir.cc, qkv/cli/rerank_command.cc
import array
import json
import math
import os
import random
import shutil
import struct

from qkv_cli import EncoderTest, main, read_text

LINES = ["the quick fox", "a lazy dog sleeps", "brown fox jumps over"]
LIBRARY = "sentence_transformers.models."


def tensors(named):
    """A safetensors file: name -> (shape, values)."""
    header, data = {}, b""
    for name, (shape, values) in named.items():
        raw = array.array("f", values).tobytes()
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def unit(v):
    length = math.sqrt(sum(x * x for x in v))
    return [x / length for x in v]


class Sentences(EncoderTest):
    def sentence_dir(self, name, *modules, folder="", prompts=None, longest=None, pooling="mean_tokens", source="masked", default=None):
        """The run's model with these modules behind it; a Dense layer has random weights."""
        here = self.path(name)
        shutil.copytree(os.path.join(self.run_dir(source), "best"), os.path.join(here, folder) if folder else here)
        listed = [("Transformer", folder), ("Pooling", "1_Pooling"), *((m, f"{i + 2}_{m}") for i, m in enumerate(modules))]
        self.write(f"{name}/modules.json", json.dumps([{"idx": i, "name": str(i), "path": path, "type": LIBRARY + kind}
                                                       for i, (kind, path) in enumerate(listed)]))
        os.makedirs(self.path(name, "1_Pooling"))
        modes = {f"pooling_mode_{mode}": mode == pooling for mode in ("cls_token", "mean_tokens", "max_tokens")}
        self.write(f"{name}/1_Pooling/config.json", json.dumps({"word_embedding_dimension": 16, **modes}))
        chooser = random.Random(3)
        layer = [[chooser.uniform(-1, 1) for _ in range(16)] for _ in range(3)], [0.1, -0.2, 0.3]
        for kind, path in listed[2:]:
            os.makedirs(self.path(name, path))
            if kind == "Dense":
                self.write(f"{name}/{path}/config.json", json.dumps({"in_features": 16, "out_features": 3, "bias": True,
                                                                     "activation_function": "torch.nn.modules.activation.Tanh"}))
                self.write(f"{name}/{path}/model.safetensors", tensors({"linear.weight": ([3, 16], sum(layer[0], [])),
                                                                        "linear.bias": ([3], layer[1])}))
        if prompts:
            self.write(f"{name}/config_sentence_transformers.json", json.dumps({"prompts": prompts, "default_prompt_name": default}))
        if longest:
            self.write(f"{name}/{folder or '.'}/sentence_bert_config.json", json.dumps({"max_seq_length": longest}))
        return layer

    def vectors(self, name, *options, lines=LINES):
        out = self.ok("embed", name, "--json", *options, stdin="".join(line + "\n" for line in lines)).out
        return [json.loads(line)["embedding"] for line in out.splitlines()]

    def expect_near(self, got, want):
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertEqual(len(g), len(w))
            for a, b in zip(g, w):
                self.assertAlmostEqual(a, b, delta=2e-6)

    def test_a_query_is_compared_by_cosines(self):
        self.sentence_dir("raw")  # its vectors have any length
        vectors = [unit(v) for v in self.vectors("raw")]
        found = self.ok("embed", "raw", "--query", LINES[0], "--json", stdin="\n".join(LINES)).out.splitlines()
        cosines = {f["text"]: f["cosine"] for f in map(json.loads, found)}
        for line, v in zip(LINES, vectors):
            self.assertAlmostEqual(cosines[line], sum(a * b for a, b in zip(v, vectors[0])), 5)

    def test_modules(self):
        self.sentence_dir("raw")
        raw = self.vectors("raw")
        self.expect_near(list(map(unit, raw)), self.vectors(self.run_dir("masked"), "--pooling", "mean"))
        self.sentence_dir("first", "Normalize", pooling="cls_token")
        self.expect_near(self.vectors("first"), self.vectors(self.run_dir("masked"), "--pooling", "first"))
        weight, bias = self.sentence_dir("dense", "Dense", "Normalize", folder="0_Transformer")
        dense = [unit([math.tanh(sum(w * x for w, x in zip(row, v)) + b) for row, b in zip(weight, bias)]) for v in raw]
        self.expect_near(self.vectors("dense"), dense)

    def test_prompts_and_lengths(self):
        prompts = {"query": "the ", "document": "a ", "other": "fox "}
        self.sentence_dir("prompted", "Normalize", prompts=prompts)
        self.sentence_dir("plain", "Normalize")
        with_words = self.vectors("plain", lines=["fox " + line for line in LINES])
        self.expect_near(self.vectors("prompted", "--prompt", "other"), with_words)
        self.expect_near(self.vectors("prompted"), self.vectors("plain"))
        text = "".join(line + "\n" for line in LINES)
        told = self.ok("embed", "prompted", "--query", "fox", "--best", "9", stdin=text).out
        want = self.ok("embed", "plain", "--query", "the fox", "--best", "9", stdin="".join("a " + line + "\n" for line in LINES)).out
        self.assertEqual([line.split("\t") for line in told.splitlines()], [[c, t[2:]] for c, t in (line.split("\t") for line in want.splitlines())])
        self.refused("embed", "prompted", "--prompt", "none", stdin=text, status=1, says="'none'")
        self.sentence_dir("usually", "Normalize", prompts=prompts, default="other")
        self.expect_near(self.vectors("usually"), with_words)
        self.sentence_dir("wrongly", "Normalize", prompts=prompts, default="none")
        self.refused("embed", "wrongly", stdin=text, status=1, says="default_prompt_name")
        self.sentence_dir("short", "Normalize", longest=4)
        self.assertIn("4 tokens", self.ok("embed", "short", stdin="the quick brown fox jumps over\n").err)

    def test_modules_that_are_not_supported(self):
        self.sentence_dir("max", pooling="max_tokens")
        self.refused("embed", "max", stdin="a\n", status=1, says=["1_Pooling/config.json", "pooling_mode_max_tokens"])
        self.sentence_dir("other", "LSTM")
        self.refused("embed", "other", stdin="a\n", status=1, says=["modules.json", "LSTM"])
        self.sentence_dir("behind", "Normalize", "Dense")
        self.refused("embed", "behind", stdin="a\n", status=1, says=["modules.json", "Normalize"])
        self.write("behind/modules.json", json.dumps([{"type": LIBRARY + "Transformer", "path": "../masked"}]))
        self.refused("embed", "behind", stdin="a\n", status=1, says=["modules.json", "../masked"])

    def test_rerank(self):
        two = self.run_dir("classify")
        labels = json.loads(read_text(os.path.join(two, "best/config.json")))["id2label"]
        self.assertEqual(len(labels), 2)
        text = "".join(line + "\n" for line in LINES) + "\n"
        ranked = [line.split("\t") for line in self.ok("rerank", two, "--query", "fox", stdin=text).out.splitlines()]
        self.assertEqual(sorted(t for _, t in ranked), sorted(LINES))
        self.assertEqual([s for s, _ in ranked], sorted((s for s, _ in ranked), reverse=True))
        pairs = "".join("fox\t" + line + "\n" for line in LINES)
        for line, said in zip(LINES, self.ok("classify", two, "--best", "2", stdin=pairs).out.splitlines()):
            by_label = dict(zip(said.split("\t")[::2], said.split("\t")[1::2]))
            self.assertIn([by_label[labels["1"]], line], ranked)
        best = json.loads(self.ok("rerank", two, "--query", "fox", "--best", "1", "--json", stdin=text).out)
        self.assertEqual(best["text"], ranked[0][1])
        self.refused("rerank", two, "--query", " ", stdin=text, status=1, says="--query")
        self.refused("rerank", self.run_dir("masked"), "--query", "fox", stdin=text, status=1, says="rerank needs")


if __name__ == "__main__":
    main()
