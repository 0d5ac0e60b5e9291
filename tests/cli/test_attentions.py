#!/usr/bin/env python3
"""Tests `qkv forward --attentions` on encoder-decoders whose two stacks have different numbers of heads.

usage: test_attentions.py QKV [unittest arguments]
"""
import json
import os
import random

from qkv_cli import CliTest, load_safetensors, main, safetensors_bytes

WIDTH, HIDDEN, VOCABULARY, CONTEXT = 20, 12, 11, 16
ENCODER_LAYERS, DECODER_LAYERS = 2, 3
# Each family's model: positions are learnt, embeddings are normed, stacks end with a norm.
FAMILIES = {"bart": ("learnt", "normed"), "mbart": ("learnt", "normed", "last"), "marian": (), "pegasus": ("last",),
            "m2m_100": ("last",)}


def weights(has, seed):
    chooser = random.Random(seed)
    out = {}

    def add(name, *shape):
        count = 1
        for extent in shape:
            count *= extent
        out[name] = ("F32", list(shape), [chooser.gauss(0, 0.4) for _ in range(count)])

    def linear(name, wide, narrow):
        add(name + ".weight", wide, narrow)
        add(name + ".bias", wide)

    def norm(name):
        add(name + ".weight", WIDTH)
        add(name + ".bias", WIDTH)

    add("model.shared.weight", VOCABULARY, WIDTH)
    for stack, layers in (("encoder", ENCODER_LAYERS), ("decoder", DECODER_LAYERS)):
        if "learnt" in has:
            add(f"model.{stack}.embed_positions.weight", CONTEXT + 2, WIDTH)
        if "normed" in has:
            norm(f"model.{stack}.layernorm_embedding")
        if "last" in has:
            norm(f"model.{stack}.layer_norm")
        for layer in range(layers):
            place = f"model.{stack}.layers.{layer}."
            for attention in ("self_attn",) + (("encoder_attn",) if stack == "decoder" else ()):
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{place}{attention}.{part}", WIDTH, WIDTH)
                norm(f"{place}{attention}_layer_norm")
            linear(place + "fc1", HIDDEN, WIDTH)
            linear(place + "fc2", WIDTH, HIDDEN)
            norm(place + "final_layer_norm")
    return safetensors_bytes(out)


class Attentions(CliTest):
    # 1: a real token.
    SOURCE_MASK, TARGET_MASK = [[1] * 6, [1, 1, 1, 1, 0, 0]], [[1] * 4, [1, 1, 1, 0]]

    def model(self, family, encoder_heads, decoder_heads):
        config = {"model_type": family, "vocab_size": VOCABULARY, "max_position_embeddings": CONTEXT,
                  "d_model": WIDTH, "encoder_layers": ENCODER_LAYERS, "decoder_layers": DECODER_LAYERS,
                  "encoder_attention_heads": encoder_heads, "decoder_attention_heads": decoder_heads,
                  "encoder_ffn_dim": HIDDEN, "decoder_ffn_dim": HIDDEN, "pad_token_id": 1,
                  "decoder_start_token_id": 2}
        name = f"{family}-{encoder_heads}-{decoder_heads}"
        os.mkdir(self.path(name))
        self.write(f"{name}/config.json", json.dumps(config))
        self.write(f"{name}/model.safetensors", weights(FAMILIES[family], seed=7))
        return name

    def check(self, found, heads, query_mask, key_mask, causal):
        """A distribution over the real keys for each head's real queries; 0 all else."""
        shape, values = found
        queries, keys = len(query_mask[0]), len(key_mask[0])
        self.assertEqual(shape, [2, heads, queries, keys])
        at = 0
        for sequence in range(2):
            for _ in range(heads):
                for query in range(queries):
                    row = values[at:at + keys]
                    at += keys
                    self.assertAlmostEqual(sum(row), query_mask[sequence][query], places=5)
                    for key in range(keys):
                        seen = query_mask[sequence][query] and key_mask[sequence][key] and (not causal or key <= query)
                        self.assertEqual(row[key] > 0, bool(seen), (sequence, query, key))

    def forward(self, model):
        chooser = random.Random(3)
        tensors = {}
        for name, mask_name, mask in (("input_ids", "attention_mask", self.SOURCE_MASK),
                                      ("decoder_input_ids", "decoder_attention_mask", self.TARGET_MASK)):
            shape, flat = [2, len(mask[0])], sum(mask, [])
            tensors[name] = ("I64", shape, [chooser.randrange(3, VOCABULARY) for _ in flat])
            tensors[mask_name] = ("I64", shape, flat)
        self.write("in.safetensors", safetensors_bytes(tensors))
        self.ok("forward", model, "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--attentions")
        return load_safetensors(self.path("out.safetensors"))

    def test_each_stack_has_its_own_heads(self):
        for family in FAMILIES:
            for encoder_heads, decoder_heads in ((5, 2), (2, 5)):
                with self.subTest(family=family, encoder_heads=encoder_heads, decoder_heads=decoder_heads):
                    out = self.forward(self.model(family, encoder_heads, decoder_heads))
                    for layer in range(ENCODER_LAYERS):
                        self.check(out[f"encoder_attentions.{layer}"], encoder_heads, self.SOURCE_MASK,
                                   self.SOURCE_MASK, causal=False)
                    for layer in range(DECODER_LAYERS):
                        self.check(out[f"decoder_attentions.{layer}"], decoder_heads, self.TARGET_MASK,
                                   self.TARGET_MASK, causal=True)
                        self.check(out[f"cross_attentions.{layer}"], decoder_heads, self.TARGET_MASK,
                                   self.SOURCE_MASK, causal=False)


if __name__ == "__main__":
    main()
