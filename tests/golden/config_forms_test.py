#!/usr/bin/env python3
"""Other published forms of a config.json: the same model, and so the same logits to the bit.

usage: config_forms_test.py QKV [unittest arguments]
"""
# Covers: qkv/io/family/window_parts.cc
import json
import os
import shutil
import sys
import tempfile
import unittest

import hf_cases

QKV = None
WINDOWED, FULL = "sliding_attention", "full_attention"


def fifth(config):
    """The form of transformers 5: rope_parameters has the base, the scaling and the rotated part."""
    rope = dict(config.pop("rope_scaling", None) or {"rope_type": "default"})
    rope["rope_theta"] = config.pop("rope_theta")
    if "partial_rotary_factor" in config:
        rope["partial_rotary_factor"] = config.pop("partial_rotary_factor")
    config["rope_parameters"] = rope
    config["dtype"] = config.pop("torch_dtype")


def gemma_fifth(config):
    every = config.pop("sliding_window_pattern")
    config["layer_types"] = [FULL if (l + 1) % every == 0 else WINDOWED for l in range(config["num_hidden_layers"])]
    config["rope_parameters"] = {FULL: {"rope_type": "default", "rope_theta": config.pop("rope_theta")},
                                 WINDOWED: {"rope_type": "default", "rope_theta": config.pop("rope_local_base_freq")}}


def typed(config):
    every = config.pop("sliding_window_pattern")
    config["layer_types"] = [FULL if (l + 1) % every == 0 else WINDOWED for l in range(config["num_hidden_layers"])]


def untyped(config):
    del config["layer_types"]


def interval(config):
    """SmolLM3's older form: a number instead of a list, and the base at the top."""
    del config["no_rope_layers"]
    config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]


def named_dense(config):
    """Dense layers by a step instead of by name."""
    config["mlp_only_layers"] = []
    config["decoder_sparse_step"] = 2


def lfm2_typed(config):
    """LFM2's newer form: a type for each layer, and the network's width as it is."""
    attend = config.pop("full_attn_idxs")
    config["layer_types"] = [FULL if l in attend else "conv" for l in range(config["num_hidden_layers"])]
    config["intermediate_size"] = 2 * config.pop("block_ff_dim") // 3
    config["block_auto_adjust_ff_dim"] = False
    config["tie_word_embeddings"] = config.pop("tie_embedding")


def unlimited(config):
    """Python's json writes Infinity, which is no JSON."""
    config["time_step_limit"] = [0.0, float("inf")]


def block_types(config):
    config["layers_block_type"] = config.pop("layer_types")


def linear_typed(config):
    every = config.pop("full_attention_interval")
    config["layer_types"] = [FULL if (l + 1) % every == 0 else "linear_attention" for l in range(config["num_hidden_layers"])]


FORMS = [("llama_mha", fifth), ("mistral_sliding", fifth), ("qwen3", fifth), ("glm", fifth), ("hunyuan_v1_dense", fifth),
         ("gemma3_text", gemma_fifth), ("gemma3_text", typed), ("cohere2", typed), ("exaone4", untyped), ("olmo3", untyped),
         ("smollm3", interval), ("lfm2", lfm2_typed), ("mamba2", unlimited), ("granitemoehybrid", block_types), ("qwen3_next", linear_typed),
         ("qwen3_5_text", untyped)]
# The form means another model.
OTHERS = [("qwen3_moe", named_dense)]


class Forms(unittest.TestCase):
    def logits(self, name, change=None):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(os.path.join(hf_cases.GOLDEN, name), os.path.join(folder, name))
            case = hf_cases.Case(folder, name)
            if change:
                change(case.config)
                with open(os.path.join(case.dir, "config.json"), "w", encoding="utf8") as file:
                    json.dump(case.config, file)
            got, why = hf_cases.forward(QKV, case, case.inputs())
            self.assertTrue(bool(got) or change in dict(OTHERS).values(), why)
            return got.get("logits"), why

    def test_the_same_model(self):
        for name, change in FORMS:
            with self.subTest(f"{name} {change.__name__}"):
                self.assertEqual(self.logits(name, change), self.logits(name))

    def test_another_model(self):
        for name, change in OTHERS:
            with self.subTest(f"{name} {change.__name__}"):
                self.assertIn("model.layers", self.logits(name, change)[1])  # a tensor that the file lacks


if __name__ == "__main__":
    QKV = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
