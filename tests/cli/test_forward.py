#!/usr/bin/env python3
"""qkv forward.

usage: test_forward.py QKV [unittest arguments]
"""
# Covers: qkv/bridge/collector.cc, qkv/bridge/forward_router.cc, qkv/bridge/padded_batch.cc
import json
import math
import os
import shutil
import struct

from qkv_cli import configuration, FinishedRun, load_safetensors, main, make_text, pytorch_bytes, read, safetensors_bytes, with_header


class Forward(FinishedRun):
    IDS = ("I64", [2, 3], [1, 2, 3, 4, 5, 6])

    def forward(self, tensors, *arguments, directory=None):
        self.write("in.safetensors", tensors if isinstance(tensors, bytes) else safetensors_bytes(tensors))
        return ["forward", directory or self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors",
                *arguments]

    def outputs(self, tensors, *arguments, directory=None):
        self.ok(*self.forward(tensors, *arguments, directory=directory))
        return load_safetensors(self.path("out.safetensors"))

    def refuse(self, tensors, says, *arguments, status=1, directory=None):
        with self.subTest(says=says):
            self.refused(*self.forward(tensors, *arguments, directory=directory), status=status, says=says)
            self.assertFalse(os.path.exists(self.path("out.safetensors")), "outputs of a failed command")
            self.assert_no_leftovers()

    def test_attentions_of_mixers(self):
        """Layers of recurrences have none: those that attend are counted."""
        self.write("rec.txt", "the quick brown fox jumps over the lazy dog. " * 60)
        settings = ["data.train=rec.txt", "tokenizer.type=char", "model.context=16", "model.width=16", "model.layers=2",
                    "model.mixer=lstm", "train.steps=2", "train.warmup_steps=1"]
        self.write("rec.toml", "")
        train = ["train", "rec.toml", *[part for s in settings for part in ("--set", s)]]
        self.ok(*train, "--set", "train.out=rec")
        self.ok(*self.forward({"input_ids": self.IDS}, "--attentions", directory="rec/best"))
        self.assertEqual(list(load_safetensors(self.path("out.safetensors"))), ["logits"])
        self.ok(*train, "--set", "train.out=hybrid", "--set", 'model.layer_kinds=["default", "att"]',
                "--set", "model.kind.att.mixer=attention", "--set", "model.kind.att.heads=2")
        self.ok(*self.forward({"input_ids": self.IDS}, "--attentions", directory="hybrid/best"))
        out = load_safetensors(self.path("out.safetensors"))
        self.assertEqual([name for name in out if name.startswith("attentions.")], ["attentions.0"])
        self.assertEqual(out["attentions.0"][0], [2, 2, 3, 3])

    def test_encoded_sources(self):
        """The encoder's states in its place, and other rows for the values of cross-attention."""
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in ("fox", "dog", "hen", "cat", "owl") * 20))
        settings = ["data.train=pairs.tsv", "tokenizer.type=char", "model.architecture=encoder_decoder", "model.context=16",
                    "model.width=16", "model.heads=2", "model.layers=2", "train.objective=sequence_to_sequence", "train.batch_tokens=64",
                    "train.steps=2", "train.warmup_steps=1", "train.out=both"]
        self.write("both.toml", "")
        self.ok("train", "both.toml", *[part for s in settings for part in ("--set", s)])
        mask = ("I64", [2, 3], [1, 1, 1, 1, 1, 0])
        target = {"decoder_input_ids": self.IDS, "labels": self.IDS, "attention_mask": mask}
        usual = self.outputs({"input_ids": self.IDS, **target}, "--hidden-states", "--gradients", directory="both")
        states = ("F32", *usual["encoder_last_hidden_state"])
        given = self.outputs({"encoder_hidden_states": states, **target}, "--hidden-states", "--gradients", directory="both")
        self.assertEqual((given["logits"], given["loss"]), (usual["logits"], usual["loss"]))
        self.assertFalse([name for name in given if name.startswith("encoder_hidden_states")])
        name = next(n for n in usual if n.startswith("grad.") and "cross" in n or n.startswith("grad.") and "encoder_attn" in n)
        self.assertEqual(given[name], usual[name])
        given = self.outputs({"encoder_hidden_states": states, **target}, "--attentions", directory="both")
        same = self.outputs({"encoder_hidden_states": states, "encoder_value_states": states, **target}, "--attentions", directory="both")
        self.assertEqual(same["logits"], given["logits"])
        double = ("F32", states[1], [2 * x for x in states[2]])
        other = self.outputs({"encoder_hidden_states": states, "encoder_value_states": double, **target}, "--attentions", directory="both")
        self.assertNotEqual(other["logits"], given["logits"])
        self.assertEqual(given["cross_attentions.0"][0], [2, 2, 3, 3])
        self.assertEqual(other["cross_attentions.0"], given["cross_attentions.0"])  # the keys decide
        narrow = ("F32", [2, 3, 15], [0.0] * 90)
        for tensors, says in (({"encoder_hidden_states": narrow}, "encoder_hidden_states: expected F32 [batch, length, 16]"),
                              ({"encoder_hidden_states": states, "encoder_value_states": narrow}, "encoder_value_states: expected"),
                              ({"encoder_hidden_states": states, "input_ids": self.IDS}, "give one of them"),
                              ({"encoder_value_states": states, "input_ids": self.IDS}, "encoder_value_states: needs encoder_hidden_states"),
                              ({}, "input_ids: missing")):
            os.remove(self.path("out.safetensors")) if os.path.exists(self.path("out.safetensors")) else None
            self.refuse({**tensors, "decoder_input_ids": self.IDS}, says, directory="both")
        self.refuse({"input_ids": self.IDS, "encoder_hidden_states": states}, "no such input")

    def test_outputs(self):
        out = self.outputs({"input_ids": self.IDS, "labels": self.IDS}, "--hidden-states", "--attentions",
                           "--gradients")
        vocabulary = out["logits"][0][2]
        self.assertEqual(out["logits"][0], [2, 3, vocabulary])
        self.assertEqual(out["hidden_states.0"][0], [2, 3, 16])
        self.assertEqual(out["hidden_states.1"][0], [2, 3, 16])
        self.assertEqual(out["attentions.0"][0], [2, 2, 3, 3])
        self.assertEqual(out["grad.transformer.wte.weight"][0], [vocabulary, 16])
        self.assertAlmostEqual(out["attentions.0"][1][0], 1.0)  # the first position sees itself only
        self.assertEqual(out["attentions.0"][1][1:3], [0, 0])

    def test_masks_of_pairs(self):
        """attention_mask [B, T, T] says which tokens see each other, in place of the causal mask."""
        causal = [1, 0, 0, 1, 1, 0, 1, 1, 1]
        plain = self.outputs({"input_ids": self.IDS})["logits"][1]
        same = self.outputs({"input_ids": self.IDS, "attention_mask": ("I64", [2, 3, 3], 2 * causal)})["logits"][1]
        for a, b in zip(plain, same):
            self.assertAlmostEqual(a, b, delta=1e-6)
        # The second row's last token is padding: it sees none, and none sees it.
        given = [1, 1, 1, 0, 1, 0, 1, 0, 1] + [0, 1, 0, 1, 0, 0, 0, 0, 0]
        out = self.outputs({"input_ids": self.IDS, "attention_mask": ("I64", [2, 3, 3], given)}, "--attentions")
        width = out["logits"][0][2]
        self.assertNotEqual(plain[:width], out["logits"][1][:width])  # the first token now sees those after it
        self.assertEqual(out["logits"][1][5 * width:], [0] * width)
        for head in range(2):
            for row in range(2):
                for at in range(9):
                    p = out["attentions.0"][1][(row * 2 + head) * 9 + at]
                    self.assertEqual(p > 0, given[9 * row + at] == 1, (row, head, at))
        os.remove(self.path("out.safetensors"))
        self.refuse({"input_ids": self.IDS, "attention_mask": ("I64", [2, 2, 3], [1] * 12)}, "attention_mask: expected a mask")
        self.refuse({"input_ids": self.IDS, "attention_mask": ("I64", [2, 3, 3], [2] * 18)}, "expected 0 or 1, got 2")
        self.refuse({"input_ids": self.IDS, "attention_mask": ("I64", [2, 3, 3], [1] * 18)}, "attention_mask: expected [2, 3]",
                    "--generate", "max_new_tokens=2")
        self.write("pairs.tsv", "source\ttarget\n" + "the fox\ta dog\n" * 20)
        config = configuration(out="pairs", steps=1, model__architecture="encoder_decoder")
        self.write("pairs.toml", config.replace('train = "text.txt"', 'train = "pairs.tsv"').replace("batch = 4", "batch_tokens = 64"))
        self.ok("train", "pairs.toml")
        self.refuse({"input_ids": self.IDS, "decoder_input_ids": self.IDS, "attention_mask": ("I64", [2, 3, 3], [1] * 18)},
                    "a model of one stack", directory="pairs")

    def test_last_states_of_a_classifier_of_two_streams(self):
        self.write("rows.tsv", "text\tlabel\n" + "".join(f"the fox {i}\tone\na dog {i}\ttwo\n" for i in range(20)))
        config = configuration(out="streams", steps=1, objective="classify", model__branches="reversible",
                               model__embedding_width=4, model__embedding_projected_last=True, model__layers=2)
        self.write("streams.toml", config.replace('train = "text.txt"', 'train = "rows.tsv"').replace(
            "batch = 4", "batch_tokens = 64"))
        self.ok("train", "streams.toml", "--overwrite")
        self.ok(*self.forward({"input_ids": self.IDS}, "--hidden-states", directory="streams"))
        out = load_safetensors(self.path("out.safetensors"))
        self.assertEqual([out[f"hidden_states.{i}"][0] for i in range(3)], [[2, 3, 16]] * 3)

    def test_last_states_of_a_narrow_embedding(self):
        self.write("pairs.tsv", "source\ttarget\n" + "the fox\ta dog\n" * 20)
        for architecture, prefix in (("decoder", ""), ("encoder_decoder", "decoder_")):
            config = configuration(out="narrow", steps=1, model__architecture=architecture, model__embedding_width=4,
                                   model__embedding_projected_last=True, model__layers=2)
            if prefix:
                config = config.replace('train = "text.txt"', 'train = "pairs.tsv"').replace("batch = 4", "batch_tokens = 64")
            self.write("narrow.toml", config)
            self.ok("train", "narrow.toml", "--overwrite")
            tensors = {"input_ids": self.IDS} | ({"decoder_input_ids": self.IDS} if prefix else {})
            self.ok(*self.forward(tensors, "--hidden-states", directory="narrow"))
            out = load_safetensors(self.path("out.safetensors"))
            # The last state is what the unembedding reads.
            self.assertEqual({n: s for n, (s, _) in out.items() if n.startswith(prefix + "hidden_states")},
                             {f"{prefix}hidden_states.{i}": [2, 3, 16 if i < 2 else 4] for i in range(3)})
            if prefix:
                self.assertNotIn("hidden_states.2", out)

    def test_i32_ids_and_padding(self):
        plain = self.outputs({"input_ids": self.IDS})["logits"][1]
        self.assertEqual(self.outputs({"input_ids": ("I32", *self.IDS[1:])})["logits"][1], plain)
        padded = self.outputs({"input_ids": ("I64", [1, 5], [0, 4, 5, 6, 0]),
                               "attention_mask": ("I64", [1, 5], [0, 1, 1, 1, 0])})["logits"]
        width = padded[0][2]
        for a, b in zip(padded[1][width:4 * width], plain[3 * width:]):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_routers(self):
        self.write("text.txt", make_text())
        self.write("mixture.toml", configuration(out="mixture", model__experts=4, model__expert_hidden=8, model__layers=2))
        self.ok("train", "mixture.toml")

        def of(*ids, mask):
            self.ok(*self.forward({"input_ids": ("I64", [1, len(ids)], ids), "attention_mask": ("I64", [1, len(ids)], mask)},
                                  "--hidden-states", directory="mixture"))
            return load_safetensors(self.path("out.safetensors"))
        alone, padded, other = of(3, 4, 5, mask=[1, 1, 1]), of(3, 4, 5, 0, 0, mask=[1, 1, 1, 0, 0]), of(
            3, 4, 5, 1, 0, mask=[1, 1, 1, 0, 0])
        self.assertEqual(padded["router_logits.1"][0], [5, 4])
        loads, mean = [[0.0] * 4, [0.0] * 4], [0.0] * 4
        for layer in ("router_logits.0", "router_logits.1"):
            rows = [padded[layer][1][4 * i:4 * i + 4] for i in range(5)]
            for a, b in zip(alone[layer][1], sum(rows[:3], [])):
                self.assertAlmostEqual(a, b, delta=1e-5)
            # Padding is computed, and seen by none: not even by the padding behind it.
            changed = other[layer][1]
            self.assertTrue(any(abs(a - b) > 1e-4 for a, b in zip(rows[3], changed[12:16])))
            for a, b in zip(sum(rows[:3], []) + rows[4], changed[:12] + changed[16:]):
                self.assertAlmostEqual(a, b, delta=1e-5)
            for row in rows[:3]:
                total = sum(map(math.exp, row))
                for rank, expert in enumerate(sorted(range(4), key=lambda j: -row[j])[:2]):
                    loads[rank][expert] += 1 / 6
                for j in range(4):
                    mean[j] += math.exp(row[j]) / total / 6
        self.assertAlmostEqual(padded["aux_loss"][1][0], 4 * sum(f[j] * mean[j] for f in loads for j in range(4)), places=5)

    def test_routers_of_a_padded_encoder(self):
        self.write("encoder.toml", configuration(out="encoder", objective="masked", steps=1, model__architecture="encoder", model__experts=4,
                                                 model__expert_hidden=8, model__segments=2).replace("batch = 4", "batch_tokens = 64"))
        self.ok("train", "encoder.toml")

        def of(ids, types, mask):
            shape = [1, len(ids)]
            self.ok(*self.forward({"input_ids": ("I64", shape, ids), "token_type_ids": ("I64", shape, types),
                                   "attention_mask": ("I64", shape, mask)}, "--hidden-states", directory="encoder"))
            return load_safetensors(self.path("out.safetensors"))["router_logits.0"]
        alone, padded = of([3, 4, 5], [0, 1, 1], [1, 1, 1]), of([3, 4, 5, 0], [0, 1, 1, 0], [1, 1, 1, 0])
        self.assertEqual(padded[0], [4, 4])
        for a, b in zip(alone[1], padded[1]):
            self.assertAlmostEqual(a, b, delta=1e-5)
        self.assertTrue(any(abs(a - b) > 1e-4 for a, b in zip(of([3, 4, 5, 0], [0, 0, 1, 0], [1, 1, 1, 0])[1], padded[1])))

    def test_generate(self):
        (shape, values) = self.outputs({"input_ids": self.IDS}, "--generate", "max_new_tokens=4,eos_token_id=null"
                                       )["sequences"]
        self.assertEqual(shape, [2, 7])
        self.assertEqual(values[:3], [1, 2, 3])

    def test_ids(self):
        for extra in ([], ["--generate", "max_new_tokens=2"]):
            self.refuse({"input_ids": ("I64", [1, 2], [1, 500])}, ["in.safetensors", "input_ids", "500"], *extra)
            self.refuse({"input_ids": ("I64", [1, 2], [1, -1])}, ["in.safetensors", "input_ids", "-1"], *extra)
            self.refuse({"input_ids": ("I64", [1, 2], [1, 1 << 40])}, ["in.safetensors", "input_ids"], *extra)
        self.refuse({"input_ids": ("I64", [1, 17], [1] * 17)}, ["in.safetensors", "input_ids", "17", "context"])
        self.refuse({"ids": self.IDS}, ["in.safetensors", "input_ids", "missing"])
        self.refuse({"input_ids": ("F32", [1, 2], [1, 2])}, ["in.safetensors", "input_ids", "I64", "f32"])
        self.refuse({"input_ids": ("I64", [3], [1, 2, 3])}, ["in.safetensors", "input_ids", "[batch, length]"])

    def test_masks_and_labels(self):
        def with_(**others):
            return {"input_ids": self.IDS, **others}
        mask, labels = ["in.safetensors", "attention_mask"], ["in.safetensors", "labels"]
        self.refuse(with_(attention_mask=("I64", [1, 3], [1] * 3)), mask)
        self.refuse(with_(attention_mask=("I64", [2, 3], [1, 1, 7, 1, 1, 1])), [*mask, "7"])
        self.refuse(with_(attention_mask=("F32", [2, 3], [1] * 6)), [*mask, "f32"])
        self.refuse(with_(attention_mask=("I64", [2, 3], [0] * 3 + [1] * 3)), ["in.safetensors", "row 0"],
                    "--generate", "max_new_tokens=2")
        self.refuse(with_(labels=("I64", [2, 3], [500] * 6)), [*labels, "500"])
        self.refuse(with_(labels=("I64", [2, 2], [1] * 4)), labels)
        self.refuse(with_(labels=("F32", [2, 3], [1] * 6)), [*labels, "f32"])
        self.refuse(with_(labels=("I64", [2, 3], [-100] * 6)), [*labels, "-100"])
        self.refuse(with_(), [*labels, "missing"], "--gradients")

    def test_generation_settings(self):
        for settings in ("max_new_tokens", "max_new_tokens=x", "max_new_tokens=3x", "max_new_tokens=0",
                         "temperature=nan", "top_k=-1", "pad_token_id=-5", "eos_token_id=-2", "do_sample=maybe",
                         "num_beams=0", "no_such_setting=1"):
            self.refuse({"input_ids": self.IDS}, ["--generate", settings.split("=")[0]], "--generate", settings,
                        status=2)

    def test_settings_without_effect_are_rejected(self):
        for settings in ("top_k=5", "temperature=0.5", "do_sample=false,top_p=0.5", "min_p=0.1", "length_penalty=2",
                         "early_stopping=true", "num_beams=1,early_stopping=never"):
            self.refuse({"input_ids": self.IDS}, ["has no effect", settings.split(",")[-1].split("=")[0]],
                        "--generate", settings, status=2)
        for settings, says in (("seed=3", "seed=3 has no effect"), ("do_sample=true,temperature=0,top_k=3", "top_k=3 has no effect"),
                               ("max_new_tokens=2,min_new_tokens=3", "min_new_tokens=3 is more"),
                               ("max_new_tokens=2,max_new_tokens=3", "max_new_tokens: given twice"),
                               ("decoder_start_token_id=1", "decoder_start_token_id has no effect")):
            self.refuse({"input_ids": self.IDS}, [says], "--generate", settings, status=2)
        for option in ("--attentions", "--hidden-states", "--gradients"):
            self.refuse({"input_ids": self.IDS}, [option, "--generate"], "--generate", "max_new_tokens=2", option, status=2)
        self.outputs({"input_ids": self.IDS}, "--generate", "max_new_tokens=2,top_k=0,length_penalty=1,early_stopping=false")
        self.outputs({"input_ids": self.IDS}, "--generate", "max_length=6,min_new_tokens=130")
        longer = self.outputs({"input_ids": self.IDS}, "--generate", "max_new_tokens=3,max_length=2,eos_token_id=null")["sequences"]
        self.assertEqual(longer[0][1], self.IDS[1][1] + 3)

    def test_a_repetition_penalty_acts_in_a_search(self):
        plain, punished = (self.outputs({"input_ids": self.IDS}, "--generate", "max_new_tokens=8,eos_token_id=null,num_beams=3" + more)
                           ["sequences"][1] for more in ("", ",repetition_penalty=50"))
        self.assertNotEqual(plain, punished)

    def test_damaged_safetensors(self):
        intact = safetensors_bytes({"input_ids": self.IDS})

        def entry(shape="[2]", offsets="[0, 16]", dtype='"I64"', name="input_ids"):
            return f'"{name}": {{"dtype": {dtype}, "shape": {shape}, "data_offsets": {offsets}}}'

        def header(*entries):
            return with_header(("{" + ", ".join(entries) + "}").encode(), bytes(16))

        cases = {
            "empty file": b"",
            "no header": b"abcd",
            "truncated header": intact[:20],
            "truncated data": intact[:-5],
            "surplus data": intact + b"xx",
            "header longer than the file": struct.pack("<Q", 1 << 20) + b"{}",
            "header longer than anything": struct.pack("<Q", (1 << 64) - 1) + b"{}",
            "header is not JSON": with_header(b'{"a'),
            "header is a list": with_header(b"[]"),
            "header nested deeply": with_header(b'{"a":' * 5000),
            "header is not UTF-8": with_header(b'{"\xff\xfe": 3}'),
            "shape larger than the data": header(entry("[200]")),
            "shape that overflows": header(entry("[4611686018427387904, 4]")),
            "shape that wraps to nothing": header(entry("[65536, 65536, 65536, 65536]", "[0, 0]")),
            "negative shape": header(entry("[-2]")),
            "shape of strings": header(entry('["2"]')),
            "six axes": header(entry("[1, 1, 1, 1, 1, 2]")),
            "offsets beyond the end": header(entry(offsets="[8, 24]")),
            "offsets backwards": header(entry(offsets="[16, 0]")),
            "negative offsets": header(entry(offsets="[-16, 0]")),
            "one offset": header(entry(offsets="[0]")),
            "unknown dtype": header(entry(dtype='"F4"')),
            "dtype is a number": header(entry(dtype="3")),
            "entry is a number": header('"input_ids": 3'),
            "overlap": header(entry(), entry(name="other")),
            "a gap": header(entry("[1]", "[8, 16]")),
            "same name twice": header(entry("[1]", "[0, 8]"), entry("[1]", "[8, 16]")),
        }
        for name, contents in cases.items():
            with self.subTest(case=name):
                self.refuse(contents, ["in.safetensors"])
        self.refused("forward", self.run_dir, "--inputs", "missing", "--outputs", "out.safetensors", status=1,
                     says="missing")

    def test_unwritable_outputs(self):
        self.write("in.safetensors", safetensors_bytes({"input_ids": self.IDS}))
        self.refused("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "text.txt/out", status=1,
                     says="text.txt/out")

    def test_model_directories(self):
        last = os.path.join(self.run_dir, "last")
        config = json.loads(read(os.path.join(last, "config.json")))
        weights = read(os.path.join(last, "model.safetensors"))

        def refuse(says, file, contents):
            shutil.rmtree(self.path("m"), ignore_errors=True)
            shutil.copytree(last, self.path("m"))
            if contents is None:
                os.remove(self.path("m", file))
            else:
                self.write("m/" + file, json.dumps(contents) if isinstance(contents, (dict, list)) else contents)
            self.refuse({"input_ids": self.IDS}, says, directory="m")
            if file == "config.json":
                self.refused("inspect", "m", status=1, says=says)

        refuse(["m", "config.json"], "config.json", None)
        name = "m/config.json"
        refuse([name, "JSON"], "config.json", '{"a":')
        refuse([name, "JSON"], "config.json", "")
        refuse([name, "JSON"], "config.json", b'{"model_type": "\xff"}')
        refuse([name, "object"], "config.json", [1])
        refuse([name, "model_type"], "config.json", {})
        refuse([name, "model_type", "gpt2"], "config.json", dict(config, model_type="gpt9"))
        refuse([name, "model_type"], "config.json", dict(config, model_type=3))
        refuse([name, "n_embd", "integer"], "config.json", dict(config, n_embd="16"))
        refuse([name, "n_embd", "integer"], "config.json", dict(config, n_embd=16.5))
        refuse([name, "layer_norm_epsilon"], "config.json", dict(config, layer_norm_epsilon="small"))
        refuse([name, "activation_function"], "config.json", dict(config, activation_function="mish"))
        refuse([name, "heads"], "config.json", dict(config, n_head=3))
        refuse([name, "heads"], "config.json", dict(config, n_head=0))
        refuse([name, "n_embd"], "config.json", dict(config, n_embd=-16))
        refuse([name, "vocab_size"], "config.json", dict(config, vocab_size=1 << 61))
        name = "m/model.safetensors"
        refuse([name, "missing"], "model.safetensors", None)
        refuse([name], "model.safetensors", weights[:-10])
        refuse([name, "missing"], "model.safetensors", safetensors_bytes({}))
        for field, value in (("n_layer", 2), ("vocab_size", 500), ("n_embd", 32), ("n_positions", 8)):
            shutil.rmtree(self.path("m"), ignore_errors=True)
            shutil.copytree(last, self.path("m"))
            self.write("m/config.json", json.dumps(dict(config, **{field: value})))
            self.refuse({"input_ids": self.IDS}, [name, "transformer."], directory="m")

    def test_weights_of_pytorch(self):
        """The same outputs as from safetensors, in one file and in two; nothing is executed."""
        want = self.outputs({"input_ids": self.IDS})
        shutil.copytree(os.path.join(self.run_dir, "last"), self.path("m"))
        tensors = load_safetensors(self.path("m/model.safetensors"))
        os.remove(self.path("m/model.safetensors"))
        self.write("m/pytorch_model.bin", pytorch_bytes(tensors))
        self.ok(*self.forward({"input_ids": self.IDS}, directory="m"))
        self.assertEqual(load_safetensors(self.path("out.safetensors")), want)
        os.remove(self.path("m/pytorch_model.bin"))
        halves = [dict(list(tensors.items())[i::2]) for i in range(2)]
        for i, half in enumerate(halves):
            self.write(f"m/part{i}.bin", pytorch_bytes(half))
        self.write("m/pytorch_model.bin.index.json",
                   json.dumps({"weight_map": {name: f"part{i}.bin" for i, half in enumerate(halves) for name in half}}))
        self.ok(*self.forward({"input_ids": self.IDS}, directory="m"))
        self.assertEqual(load_safetensors(self.path("out.safetensors")), want)
        os.remove(self.path("m/pytorch_model.bin.index.json"))
        os.remove(self.path("out.safetensors"))
        self.write("m/pytorch_model.bin", b"cos\nsystem\n(S'touch harmed'\ntR.")
        self.refuse({"input_ids": self.IDS}, ["pytorch_model.bin"], directory="m")
        self.assertFalse(os.path.exists(self.path("harmed")))


if __name__ == "__main__":
    main()
