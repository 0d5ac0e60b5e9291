#!/usr/bin/env python3
"""Options of published families that few models use, against implementations in plain Python, in float64.

usage: family_options_test.py QKV [unittest arguments]
With $QKV_REFERENCE set, the implementations themselves are compared with the reference cases, whose options are off.
"""
import array
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

QKV = None
BOUND = 2e-5  # relative to the largest magnitude; f32 comes within 1e-6


def load(path):
    """name -> (shape, flat list) of a safetensors file."""
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    out = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        code = {"F32": "f", "I64": "q"}[entry["dtype"]]
        out[name] = (entry["shape"], list(array.array(code, raw[8 + size + begin:8 + size + end])))
    return out


def save(path, tensors):
    """tensors: name -> (shape, flat list): floats, or integers."""
    head, body = {}, b""
    for name, (shape, values) in tensors.items():
        dtype, code = ("I64", "q") if isinstance(values[0], int) else ("F32", "f")
        data = array.array(code, values).tobytes()
        head[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)


class Weights:
    """Tensors by their names, as vectors and as products."""

    def __init__(self, tensors):
        self.tensors = tensors

    def vector(self, name):
        return self.tensors[name][1]

    def rows(self, name):
        (count, width), values = self.tensors[name]
        return [values[i * width:(i + 1) * width] for i in range(count)]

    def linear(self, name, x):
        bias = self.tensors.get(name + ".bias", (None, None))[1]
        out = [[sum(a * b for a, b in zip(row, w)) for w in self.rows(name + ".weight")] for row in x]
        return out if bias is None else [[a + b for a, b in zip(row, bias)] for row in out]

    def layer_norm(self, name, x, epsilon):
        gamma, beta = self.vector(name + ".weight"), self.vector(name + ".bias")
        out = []
        for row in x:
            mean = sum(row) / len(row)
            deviation = math.sqrt(sum((a - mean) ** 2 for a in row) / len(row) + epsilon)
            out.append([(a - mean) / deviation * g + b for a, g, b in zip(row, gamma, beta)])
        return out

    def rms_norm(self, name, x, epsilon):
        """name: None: without weights."""
        gamma = self.vector(name + ".weight") if name else [1] * len(x[0])
        return [[a / math.sqrt(sum(b * b for b in row) / len(row) + epsilon) * g for a, g in zip(row, gamma)] for row in x]


def plus(x, y):
    return [[a + b for a, b in zip(p, q)] for p, q in zip(x, y)]


def apply(f, x):
    return [[f(a) for a in row] for row in x]


def gelu_tanh(a):
    return 0.5 * a * (1 + math.tanh(math.sqrt(2 / math.pi) * (a + 0.044715 * a ** 3)))


def relu(a):
    return max(a, 0.0)


def silu(a):
    return a / (1 + math.exp(-a))


def heads_of(x, heads):
    """The rows of each head."""
    width = len(x[0]) // heads
    return [[row[h * width:(h + 1) * width] for row in x] for h in range(heads)]


def attention(q, k, v, sees, bias=lambda head, query, key: 0.0, scale=None):
    """q, k, v: of each head its rows; heads of q share those of k and v in turn. Returns the heads side by side."""
    out = [[] for _ in q[0]]
    for h, queries in enumerate(q):
        keys, values = k[h * len(k) // len(q)], v[h * len(k) // len(q)]
        for i, query in enumerate(queries):
            seen = [j for j in range(len(keys)) if sees(i, j)]
            factor = scale or 1 / math.sqrt(len(query))
            scores = [sum(a * b for a, b in zip(query, keys[j])) * factor + bias(h, i, j) for j in seen]
            largest = max(scores)
            weights = [math.exp(s - largest) for s in scores]
            out[i] += [sum(w * values[j][c] for w, j in zip(weights, seen)) / sum(weights) for c in range(len(values[0]))]
    return out


def causal(i, j):
    return j <= i


def bloom(c, w, ids, _segments):
    """ALiBi; the fused projection holds query, key and value of each head."""
    heads, epsilon, name = c["n_head"], c["layer_norm_epsilon"], "transformer."
    table = w.rows(name + "word_embeddings.weight")
    x = w.layer_norm(name + "word_embeddings_layernorm", [table[i] for i in ids], epsilon)
    after = c.get("apply_residual_connection_post_layernorm", False)
    assert heads & (heads - 1) == 0  # the slopes below are of powers of two
    for l in range(c["n_layer"]):
        block = f"{name}h.{l}."
        n = w.layer_norm(block + "input_layernorm", x, epsilon)
        fused = heads_of(w.linear(block + "self_attention.query_key_value", n), 3 * heads)
        y = attention(fused[0::3], fused[1::3], fused[2::3], causal,
                      lambda h, i, j: -2.0 ** (-8 * (h + 1) / heads) * (i - j))
        x = plus(n if after else x, w.linear(block + "self_attention.dense", y))
        n = w.layer_norm(block + "post_attention_layernorm", x, epsilon)
        y = w.linear(block + "mlp.dense_4h_to_h", apply(gelu_tanh, w.linear(block + "mlp.dense_h_to_4h", n)))
        x = plus(n if after else x, y)
    x = w.layer_norm(name + "ln_f", x, epsilon)
    return x, w.linear(name + "word_embeddings", x)


def opt(c, w, ids, _segments):
    """Pre-norms; positions count from row 2."""
    name, heads = "model.decoder.", c["num_attention_heads"]
    tokens, places = w.rows(name + "embed_tokens.weight"), w.rows(name + "embed_positions.weight")
    x = plus([tokens[i] for i in ids], places[2:2 + len(ids)])
    for l in range(c["num_hidden_layers"]):
        block = f"{name}layers.{l}."
        n = w.layer_norm(block + "self_attn_layer_norm", x, 1e-5)
        q, k, v = (heads_of(w.linear(f"{block}self_attn.{part}_proj", n), heads) for part in "qkv")
        x = plus(x, w.linear(block + "self_attn.out_proj", attention(q, k, v, causal)))
        n = w.layer_norm(block + "final_layer_norm", x, 1e-5)
        x = plus(x, w.linear(block + "fc2", apply(relu, w.linear(block + "fc1", n))))
    if not c.get("_remove_final_layer_norm", False):
        x = w.layer_norm(name + "final_layer_norm", x, 1e-5)
    return x, w.linear(name + "embed_tokens", x)


def big_bird(c, w, ids, segments):
    """An encoder whose tokens all see each other."""
    name, heads, epsilon = "bert.embeddings.", c["num_attention_heads"], c["layer_norm_eps"]
    factor = math.sqrt(c["hidden_size"]) if c.get("rescale_embeddings", False) else 1
    tokens, kinds = w.rows(name + "word_embeddings.weight"), w.rows(name + "token_type_embeddings.weight")
    x = plus([[a * factor for a in tokens[i]] for i in ids], [kinds[s] for s in segments])
    x = w.layer_norm(name + "LayerNorm", plus(x, w.rows(name + "position_embeddings.weight")), epsilon)
    for l in range(c["num_hidden_layers"]):
        block = f"bert.encoder.layer.{l}."
        q, k, v = (heads_of(w.linear(f"{block}attention.self.{part}", x), heads) for part in ("query", "key", "value"))
        y = w.linear(block + "attention.output.dense", attention(q, k, v, lambda i, j: True))
        x = w.layer_norm(block + "attention.output.LayerNorm", plus(x, y), epsilon)
        y = w.linear(block + "output.dense", apply(gelu_tanh, w.linear(block + "intermediate.dense", x)))
        x = w.layer_norm(block + "output.LayerNorm", plus(x, y), epsilon)
    y = apply(gelu_tanh, w.linear("cls.predictions.transform.dense", x))
    y = w.layer_norm("cls.predictions.transform.LayerNorm", y, epsilon)
    bias = w.vector("cls.predictions.bias")
    return x, [[a + b for a, b in zip(row, bias)] for row in w.linear(name + "word_embeddings", y)]


def window_of_layer(c, l):
    """None: the layer sees all."""
    if not c.get("use_sliding_window", False):
        return None
    types = c.get("layer_types")
    sliding = types[l] == "sliding_attention" if types else l >= c["max_window_layers"]
    return c["sliding_window"] if sliding else None


def rotated(rows, base, pairs):
    """Rows of a head, whose first pairs turn."""
    half = len(rows[0]) // 2
    out = []
    for t, row in enumerate(rows):
        angles = [t * base ** (-i / half) * (i < pairs) for i in range(half)]
        first = [row[i] * math.cos(a) - row[half + i] * math.sin(a) for i, a in enumerate(angles)]
        out.append(first + [row[half + i] * math.cos(a) + row[i] * math.sin(a) for i, a in enumerate(angles)])
    return out


def qwen2(c, w, ids, _segments):
    """Rotary positions, grouped queries, a gated feed-forward network, RMSnorms."""
    heads, kv_heads, epsilon = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    tokens = w.rows("model.embed_tokens.weight")
    x = [tokens[i] for i in ids]

    def turned(rows):
        return rotated(rows, c["rope_theta"], len(rows[0]) // 2)

    for l in range(c["num_hidden_layers"]):
        block, window = f"model.layers.{l}.", window_of_layer(c, l)
        n = w.rms_norm(block + "input_layernorm", x, epsilon)
        q, k, v = (heads_of(w.linear(f"{block}self_attn.{part}_proj", n), heads if part == "q" else kv_heads) for part in "qkv")
        y = attention([turned(r) for r in q], [turned(r) for r in k], v,
                      lambda i, j: j <= i and (window is None or i - j < window))
        x = plus(x, w.linear(block + "self_attn.o_proj", y))
        n = w.rms_norm(block + "post_attention_layernorm", x, epsilon)
        gate, up = apply(silu, w.linear(block + "mlp.gate_proj", n)), w.linear(block + "mlp.up_proj", n)
        x = plus(x, w.linear(block + "mlp.down_proj", [[a * b for a, b in zip(p, r)] for p, r in zip(gate, up)]))
    x = w.rms_norm("model.norm", x, epsilon)
    return x, w.linear("model.embed_tokens", x)


def gemma4(c, w, ids, _segments):
    """Values have norms; the last layers may reuse keys; each layer may have an input of its own."""
    epsilon, types, size = c["rms_norm_eps"], c["layer_types"], c["hidden_size_per_layer_input"]
    tokens, layers, width = w.rows("model.embed_tokens.weight"), len(c["layer_types"]), c["hidden_size"]
    x = [[a * math.sqrt(width) for a in tokens[i]] for i in ids]
    inputs = []
    if size > 0:
        table = w.rows("model.embed_tokens_per_layer.weight")
        projected = w.linear("model.per_layer_model_projection", [[a / math.sqrt(width) for a in row] for row in x])
        for l in range(layers):
            own = w.rms_norm("model.per_layer_projection_norm", [row[l * size:(l + 1) * size] for row in projected], epsilon)
            inputs.append([[(a + b * math.sqrt(size)) / math.sqrt(2) for a, b in zip(row, table[i][l * size:])]
                           for i, row in zip(ids, own)])
    left = {}
    for l, kind in enumerate(types):
        block, full = f"model.layers.{l}.", kind == "full_attention"
        reuses = l >= layers - c["num_kv_shared_layers"]
        head = c["global_head_dim"] if full else c["head_dim"]
        turns = c["rope_parameters"][kind]
        pairs = int(turns.get("partial_rotary_factor", 1) * head // 2)

        def turned(name, rows):
            rows = rows if name is None else w.rms_norm(name, rows, epsilon)
            return rotated(rows, turns["rope_theta"], pairs)

        n = w.rms_norm(block + "input_layernorm", x, epsilon)
        q = [turned(block + "self_attn.q_norm", r)
             for r in heads_of(w.linear(block + "self_attn.q_proj", n), c["num_attention_heads"])]
        if not reuses:
            alike = full and c["attention_k_eq_v"]
            kv_heads = c["num_global_key_value_heads"] if alike else c["num_key_value_heads"]
            k = heads_of(w.linear(block + "self_attn.k_proj", n), kv_heads)
            v = k if alike else heads_of(w.linear(block + "self_attn.v_proj", n), kv_heads)
            left[kind] = [turned(block + "self_attn.k_norm", r) for r in k], [w.rms_norm(None, r, epsilon) for r in v]
        y = attention(q, *left[kind], lambda i, j: j <= i and (full or i - j < c["sliding_window"]), scale=1)
        y = w.rms_norm(block + "post_attention_layernorm", w.linear(block + "self_attn.o_proj", y), epsilon)
        x = plus(x, y)
        n = w.rms_norm(block + "pre_feedforward_layernorm", x, epsilon)
        gate, up = apply(gelu_tanh, w.linear(block + "mlp.gate_proj", n)), w.linear(block + "mlp.up_proj", n)
        y = w.linear(block + "mlp.down_proj", [[a * b for a, b in zip(p, r)] for p, r in zip(gate, up)])
        x = plus(x, w.rms_norm(block + "post_feedforward_layernorm", y, epsilon))
        if size > 0:
            gate = apply(gelu_tanh, w.linear(block + "per_layer_input_gate", x))
            y = w.linear(block + "per_layer_projection", [[a * b for a, b in zip(p, r)] for p, r in zip(gate, inputs[l])])
            x = plus(x, w.rms_norm(block + "post_per_layer_input_norm", y, epsilon))
        x = [[a * w.vector(block + "layer_scalar")[0] for a in row] for row in x]
    x = w.rms_norm("model.norm", x, epsilon)
    cap = c["final_logit_softcapping"]
    return x, [[cap * math.tanh(a / cap) for a in row] for row in w.linear("model.embed_tokens", x)]


MODELS = {"bloom": bloom, "opt": opt, "big_bird": big_bird, "qwen2": qwen2, "gemma4_text": gemma4}
VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN = 20, 9, 8, 2, 12
NORM = [[WIDTH], [WIDTH]]


def shapes(c):
    """The tensors of a model of this configuration; those without a bias have one shape."""
    d, layers = WIDTH, c.get("n_layer", c.get("num_hidden_layers"))

    def linear(rows, columns):
        return [[rows, columns], [rows]]

    type_ = c["model_type"]
    if type_ == "bloom":
        out = {"transformer.word_embeddings": [[VOCABULARY, d]], "transformer.word_embeddings_layernorm": NORM,
               "transformer.ln_f": NORM}
        for l in range(layers):
            b = f"transformer.h.{l}."
            out.update({b + "input_layernorm": NORM, b + "post_attention_layernorm": NORM,
                        b + "self_attention.query_key_value": linear(3 * d, d), b + "self_attention.dense": linear(d, d),
                        b + "mlp.dense_h_to_4h": linear(4 * d, d), b + "mlp.dense_4h_to_h": linear(d, 4 * d)})
    elif type_ == "opt":
        n = "model.decoder."
        out = {n + "embed_tokens": [[VOCABULARY, d]], n + "embed_positions": [[LENGTH + 2, d]]}
        if not c.get("_remove_final_layer_norm"):
            out[n + "final_layer_norm"] = NORM
        for l in range(layers):
            b = f"{n}layers.{l}."
            out.update({b + f"self_attn.{part}": linear(d, d) for part in ("q_proj", "k_proj", "v_proj", "out_proj")})
            out.update({b + "self_attn_layer_norm": NORM, b + "final_layer_norm": NORM, b + "fc1": linear(HIDDEN, d),
                        b + "fc2": linear(d, HIDDEN)})
    elif type_ == "big_bird":
        n, head = "bert.embeddings.", "cls.predictions.transform."
        out = {n + "word_embeddings": [[VOCABULARY, d]], n + "position_embeddings": [[LENGTH, d]],
               n + "token_type_embeddings": [[2, d]], n + "LayerNorm": NORM, head + "dense": linear(d, d), head + "LayerNorm": NORM}
        for l in range(layers):
            b = f"bert.encoder.layer.{l}."
            out.update({b + f"attention.self.{part}": linear(d, d) for part in ("query", "key", "value")})
            out.update({b + "attention.output.dense": linear(d, d), b + "attention.output.LayerNorm": NORM,
                        b + "intermediate.dense": linear(HIDDEN, d), b + "output.dense": linear(d, HIDDEN),
                        b + "output.LayerNorm": NORM})
    elif type_ == "gemma4_text":
        out = {"model.embed_tokens": [[VOCABULARY, d]], "model.norm": [[d]]}
        size = c["hidden_size_per_layer_input"]
        if size > 0:
            out.update({"model.embed_tokens_per_layer": [[VOCABULARY, layers * size]],
                        "model.per_layer_model_projection": [[layers * size, d]], "model.per_layer_projection_norm": [[size]]})
        for l, kind in enumerate(c["layer_types"]):
            b, full = f"model.layers.{l}.", kind == "full_attention"
            reuses = l >= layers - c["num_kv_shared_layers"]
            alike, head = full and c["attention_k_eq_v"], c["global_head_dim"] if full else c["head_dim"]
            kv = head * (c["num_global_key_value_heads"] if alike else c["num_key_value_heads"])
            hidden = HIDDEN * (2 if reuses and c["use_double_wide_mlp"] else 1)
            out.update({b + "self_attn.q_proj": [[HEADS * head, d]], b + "self_attn.o_proj": [[d, HEADS * head]],
                        b + "self_attn.q_norm": [[head]], b + "mlp.gate_proj": [[hidden, d]], b + "mlp.up_proj": [[hidden, d]],
                        b + "mlp.down_proj": [[d, hidden]]})
            for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
                out[f"{b}{norm}_layernorm"] = [[d]]
            if not reuses:
                out.update({b + "self_attn.k_proj": [[kv, d]], b + "self_attn.k_norm": [[head]]})
            if not reuses and not alike:
                out[b + "self_attn.v_proj"] = [[kv, d]]
            if size > 0:
                out.update({b + "per_layer_input_gate": [[size, d]], b + "per_layer_projection": [[d, size]],
                            b + "post_per_layer_input_norm": [[d]]})
    else:
        out = {"model.embed_tokens": [[VOCABULARY, d]], "model.norm": [[d]]}
        for l in range(layers):
            b, kv = f"model.layers.{l}.", c["num_key_value_heads"] * d // HEADS
            out.update({b + "self_attn.q_proj": linear(d, d), b + "self_attn.k_proj": linear(kv, d),
                        b + "self_attn.v_proj": linear(kv, d), b + "self_attn.o_proj": [[d, d]],
                        b + "input_layernorm": [[d]], b + "post_attention_layernorm": [[d]],
                        b + "mlp.gate_proj": [[HIDDEN, d]], b + "mlp.up_proj": [[HIDDEN, d]], b + "mlp.down_proj": [[d, HIDDEN]]})
    named = {f"{name}.{part}": shape for name, all_ in out.items() for part, shape in zip(("weight", "bias"), all_)}
    if type_ == "big_bird":
        named["cls.predictions.bias"] = [VOCABULARY]
    if type_ == "gemma4_text":
        named.update({f"model.layers.{l}.layer_scalar": [1] for l in range(layers)})
    return named


def drawn(c):
    """Weights that f32 holds; gammas around 1."""
    draw = random.Random(json.dumps(c, sort_keys=True))
    out = {}
    for name, shape in shapes(c).items():
        gamma = len(shape) == 1 and not name.endswith("bias")
        values = array.array("f", [draw.uniform(-0.6, 0.6) + gamma for _ in range(math.prod(shape))])
        out[name] = (shape, list(values))
    return out


def deviation(got, want):
    return max(abs(a - b) for a, b in zip(got, want)) / max(abs(b) for b in want)


BASES = {
    "bloom": {"architectures": ["BloomForCausalLM"], "hidden_size": WIDTH, "n_layer": 2, "n_head": HEADS, "seq_length": LENGTH,
              "layer_norm_epsilon": 1e-5},
    "opt": {"architectures": ["OPTForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": HEADS,
            "ffn_dim": HIDDEN, "max_position_embeddings": LENGTH, "word_embed_proj_dim": WIDTH, "do_layer_norm_before": True},
    "big_bird": {"architectures": ["BigBirdForMaskedLM"], "hidden_size": WIDTH, "num_hidden_layers": 2,
                 "num_attention_heads": HEADS, "intermediate_size": HIDDEN, "max_position_embeddings": LENGTH,
                 "attention_type": "original_full", "layer_norm_eps": 1e-12},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 4, "num_attention_heads": HEADS,
              "num_key_value_heads": 1, "intermediate_size": HIDDEN, "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-6,
              "rope_theta": 10000.0, "tie_word_embeddings": True},
    "gemma4_text": {"architectures": ["Gemma4ForCausalLM"], "hidden_size": WIDTH, "num_hidden_layers": 5,
                    "num_attention_heads": HEADS, "num_key_value_heads": 1, "head_dim": 4, "global_head_dim": 6,
                    "intermediate_size": HIDDEN, "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-6, "sliding_window": 3,
                    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                    "full_attention"],
                    "rope_parameters": {
                        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.7},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}},
                    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCABULARY, "num_kv_shared_layers": 0,
                    "attention_k_eq_v": False, "num_global_key_value_heads": None, "use_double_wide_mlp": False,
                    "final_logit_softcapping": 10.0, "tie_word_embeddings": True}}
WINDOWS = {"use_sliding_window": True, "sliding_window": 3}
IN_TURN = ["sliding_attention", "full_attention", "full_attention", "sliding_attention"]
OPTIONS = [("bloom", {"apply_residual_connection_post_layernorm": True}), ("opt", {"_remove_final_layer_norm": True}),
           ("big_bird", {"rescale_embeddings": True}), ("qwen2", {**WINDOWS, "max_window_layers": 2}),
           ("qwen2", {**WINDOWS, "max_window_layers": 3}), ("qwen2", {**WINDOWS, "max_window_layers": 0}),
           ("qwen2", {**WINDOWS, "max_window_layers": 4, "layer_types": IN_TURN}),
           ("gemma4_text", {"attention_k_eq_v": True, "num_global_key_value_heads": 2}),
           ("gemma4_text", {"hidden_size_per_layer_input": 3}),
           ("gemma4_text", {"num_kv_shared_layers": 3, "use_double_wide_mlp": True}),
           ("gemma4_text", {"attention_k_eq_v": True, "num_global_key_value_heads": 1, "num_kv_shared_layers": 2,
                            "hidden_size_per_layer_input": 2})]


class FamilyOptions(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_qkv(self, *arguments):
        done = subprocess.run([QKV, *arguments], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def forward(self, model, ids, segments):
        inputs, outputs = (os.path.join(self.folder, name) for name in ("in.safetensors", "out.safetensors"))
        tensors = {"input_ids": ([1, len(ids)], ids)}
        if segments:
            tensors["token_type_ids"] = ([1, len(ids)], segments)
        save(inputs, tensors)
        self.run_qkv("forward", model, "--inputs", inputs, "--outputs", outputs, "--hidden-states")
        return load(outputs)

    def make(self, name, config, tensors):
        model = os.path.join(self.folder, name)
        os.mkdir(model)
        with open(os.path.join(model, "config.json"), "w", encoding="utf8") as file:
            json.dump(config, file)
        save(os.path.join(model, "model.safetensors"), tensors)
        return model

    def test_outputs_are_those_of_the_definition_and_survive_a_save(self):
        text, tokens = os.path.join(self.folder, "text.txt"), os.path.join(self.folder, "tokens")
        with open(text, "w", encoding="utf8") as file:
            file.write("a b c\n")
        self.run_qkv("tokenizer", "train", text, "--type", "wordpiece", "--vocab-size", str(VOCABULARY), "--out", tokens)
        for i, (type_, options) in enumerate(OPTIONS):
            base = {"model_type": type_, "vocab_size": VOCABULARY, **BASES[type_]}
            config = {**base, **options}
            tensors = drawn(config)
            model = self.make(f"model-{i}", config, tensors)
            draw = random.Random(i)
            ids = [draw.randrange(VOCABULARY) for _ in range(LENGTH)]
            segments = [int(t > 4) for t in range(LENGTH)] if type_ == "big_bird" else []
            hidden, logits = ([a for row in x for a in row] for x in MODELS[type_](config, Weights(tensors), ids, segments))
            with self.subTest(type_, **options):
                # The option matters: the definition without it gives other numbers.
                plain = {name: tensors[name] if tensors.get(name, (None,))[0] == one[0] else one
                         for name, one in drawn(base).items()}
                other = [a for row in MODELS[type_](base, Weights(plain), ids, segments)[1] for a in row]
                self.assertGreater(deviation(other, logits), 1e-3)
                again = os.path.join(self.folder, f"again-{i}")
                shutil.copy(os.path.join(tokens, "tokenizer.json"), model)
                self.run_qkv("average", model, model, "--out", again)
                for place in (model, again):
                    got = self.forward(place, ids, segments)
                    self.assertLess(deviation(got["logits"][1], logits), BOUND)
                    last = max((n for n in got if n.startswith("hidden_states.")), key=lambda n: int(n.split(".")[1]))
                    self.assertLess(deviation(got[last][1], hidden), BOUND)
                with open(os.path.join(again, "config.json"), encoding="utf8") as file:
                    saved = json.load(file)
                self.assertEqual(saved["model_type"], type_)
                if "layer_types" in options:  # beside which the number says nothing
                    saved["max_window_layers"] = options["max_window_layers"]
                self.assertEqual({k: saved.get(k) for k in options}, options)
                self.assertEqual(load(os.path.join(again, "model.safetensors")), tensors)

    def test_the_definitions_are_those_of_the_reference(self):
        reference = os.environ.get("QKV_REFERENCE")
        if not reference:
            self.skipTest("QKV_REFERENCE is not set")
        for case, type_ in (("bloom_alibi", "bloom"), ("opt_preln", "opt"), ("bigbird_full", "big_bird"), ("qwen2", "qwen2"),
                            ("gemma4_text", "gemma4_text")):
            folder = os.path.join(reference, "hf", case)
            with open(os.path.join(folder, "config.json"), encoding="utf8") as file:
                config = json.load(file)
            expected = load(os.path.join(folder, "expected.safetensors"))
            ids = expected["input_ids"][1][:expected["input_ids"][0][1]]  # the first row, which has no padding
            segments = expected.get("token_type_ids", (None, []))[1][:len(ids)]
            tensors = load(os.path.join(folder, "model.safetensors"))
            name = "bert.embeddings.position_embeddings.weight"
            if name in tensors:
                tensors[name] = ([len(ids), tensors[name][0][1]], tensors[name][1][:len(ids) * tensors[name][0][1]])
            logits = [a for row in MODELS[type_](config, Weights(tensors), ids, segments)[1] for a in row]
            with self.subTest(case):
                self.assertLess(deviation(logits, expected["f64.logits"][1][:len(logits)]), 1e-6)


if __name__ == "__main__":
    QKV = sys.argv.pop(1)
    unittest.main()
