#!/usr/bin/env python3
"""The published classes for multiple choice: scores, loss and the classifier's gradient under their names, in plain Python.

usage: multiple_choice_test.py QKV [unittest arguments]
The states come from the same model's class for masked tokens, which is compared with the published code elsewhere.
"""
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import unittest
from array import array

import hf_cases
from family_options_test import Weights

QKV = None
BOUND = 2e-5
# A case; its class; the names of the pooler, of a norm behind it, and of the classifier; the pooler's function.
TANH, GELU, RELU = math.tanh, (lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2)))), (lambda x: max(x, 0.0))
CLASSES = [("bert_mlm", "Bert", "bert.pooler.dense", None, "classifier", TANH),
           ("roberta_mlm", "Roberta", "roberta.pooler.dense", None, "classifier", TANH),
           ("albert_mlm", "Albert", "albert.pooler", None, "classifier", TANH),
           ("distilbert_mlm", "DistilBert", "pre_classifier", None, "classifier", RELU),
           ("electra_mlm", "Electra", "sequence_summary.summary", None, "classifier", GELU),
           ("mpnet_mlm", "MPNet", "mpnet.pooler.dense", None, "classifier", TANH),
           ("deberta_v2_mlm", "DebertaV2", "pooler.dense", None, "classifier", GELU),
           ("modernbert_mlm", "ModernBert", "head.dense", "head.norm", "classifier", GELU),
           ("xlnet", "XLNet", "sequence_summary.summary", None, "logits_proj", TANH)]


def forward(folder, inputs, *options):
    with tempfile.TemporaryDirectory() as at:
        into, out = os.path.join(at, "in.safetensors"), os.path.join(at, "out.safetensors")
        hf_cases.save(into, inputs)
        done = subprocess.run([QKV, "forward", folder, "--inputs", into, "--outputs", out, "--threads", "1", *options],
                              capture_output=True, text=True)
        if done.returncode:
            raise AssertionError(f"{folder}: {done.stderr}")
        return hf_cases.load(out)[0]


class MultipleChoice(unittest.TestCase):
    def head_of(self, case, name, pooler, norm, classifier, into):
        """Writes the case's blocks with a head of random numbers; the whole tensors."""
        draw = random.Random(name)
        config, tensors = dict(case.config), dict(hf_cases.load(os.path.join(case.dir, "model.safetensors"))[0])
        width = config.get("hidden_size", config.get("dim", config.get("d_model")))
        config["architectures"] = [name + "ForMultipleChoice"]
        drop = ("cls.", "lm_head.", "predictions.", "vocab_", "generator_", "lm_loss", "decoder.", "head.")
        tensors = {n: t for n, t in tensors.items() if not n.startswith(drop)}

        def add(tensor, *shape):
            tensors[tensor] = ("F32", list(shape), array("f", [draw.gauss(0, 0.5) for _ in range(math.prod(shape))]))
        add(pooler + ".weight", width, width)
        if name != "ModernBert":  # its layer has no bias
            add(pooler + ".bias", width)
        if norm:
            add(norm + ".weight", width)
        add(classifier + ".weight", 1, width)
        add(classifier + ".bias", 1)
        os.makedirs(into)
        with open(os.path.join(into, "config.json"), "w", encoding="utf8") as file:
            json.dump(config, file)
        with open(os.path.join(into, "tokenizer.json"), "w", encoding="utf8") as file:
            json.dump({"model": {"type": "WordLevel", "vocab": {"word": 0}, "unk_token": "word"}}, file)
        hf_cases.save(os.path.join(into, "model.safetensors"), tensors)
        return tensors, width

    def expect_near(self, got, wanted, message):
        scale = max(map(abs, wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(got, wanted)), BOUND * max(scale, 1), message)

    def normed(self, rows, gamma, epsilon):
        out = []
        for row in rows:
            mean = sum(row) / len(row)
            deviation = math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + epsilon)
            out.append([(x - mean) / deviation * g for x, g in zip(row, gamma)])
        return out

    def test_published_classes(self):
        for case_name, name, pooler, norm, classifier, f in CLASSES:
            with self.subTest(name), tempfile.TemporaryDirectory() as at:
                case = hf_cases.Case(hf_cases.GOLDEN, case_name)
                folder = os.path.join(at, "model")
                tensors, width = self.head_of(case, name, pooler, norm, classifier, folder)
                weights = Weights({n: (s, list(v)) for n, (_, s, v) in tensors.items()})
                draw = random.Random(7)
                questions, choices, length = 2, 3, 6
                vocab = case.config["vocab_size"]
                ids = array("q", [draw.randrange(5, vocab) for _ in range(questions * choices * length)])
                lengths = [draw.randint(2, length) for _ in range(questions * choices)]
                left = name == "XLNet"  # padding precedes its texts
                mask = array("q", [int(t >= length - n if left else t < n) for n in lengths for t in range(length)])
                flat = {"input_ids": ("I64", [questions * choices, length], ids),
                        "attention_mask": ("I64", [questions * choices, length], mask)}
                states = forward(case.dir, flat, "--hidden-states")
                last = max((n for n in states if n.startswith("hidden_states.")), key=lambda n: int(n.split(".")[1]))
                hidden = states[last][2]
                mean = case.config.get("classifier_pooling") == "mean"
                rows = []
                for r in range(questions * choices):
                    its = [list(hidden[(r * length + t) * width:(r * length + t + 1) * width])
                           for t in range(length) if mask[r * length + t]]
                    rows.append([sum(x) / len(its) for x in zip(*its)] if mean else its[-1 if left else 0])
                pooled = [[f(x) for x in row] for row in weights.linear(pooler, rows)]
                if norm:
                    pooled = self.normed(pooled, weights.vector(norm + ".weight"), case.config["norm_eps"])
                scores = [z[0] for z in weights.linear(classifier, pooled)]
                inputs = {n: (d, [questions, choices, length], v) for n, (d, _, v) in flat.items()}
                labels = [2, 0]
                inputs["labels"] = ("I64", [questions], array("q", labels))
                got = forward(folder, inputs, "--gradients")
                self.assertEqual(got["logits"][1], [questions, choices])
                self.expect_near(got["logits"][2], scores, f"{name}: logits")
                loss, slopes = 0, []
                for q, right in enumerate(labels):
                    z = scores[q * choices:(q + 1) * choices]
                    total = sum(map(math.exp, z))
                    loss += (math.log(total) - z[right]) / questions
                    slopes += [(math.exp(x) / total - (c == right)) / questions for c, x in enumerate(z)]
                self.expect_near(got["loss"][2], [loss], f"{name}: loss")
                wanted = [sum(s * row[i] for s, row in zip(slopes, pooled)) for i in range(width)]
                self.expect_near(got[f"grad.{classifier}.weight"][2], wanted, f"{name}: gradient")
                self.expect_near(got[f"grad.{classifier}.bias"][2], [0.0], f"{name}: gradient of the bias")
                # An ignored question.
                inputs["labels"] = ("I64", [questions], array("q", [2, -100]))
                z = scores[:choices]
                self.expect_near(forward(folder, inputs)["loss"][2], [math.log(sum(map(math.exp, z))) - z[2]], name)
                # Averaged with itself and saved, it is the same class with the same bits.
                again = os.path.join(at, "again")
                done = subprocess.run([QKV, "average", folder, folder, "--out", again], capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                with open(os.path.join(again, "config.json"), encoding="utf8") as file:
                    self.assertEqual(json.load(file)["architectures"], [name + "ForMultipleChoice"])
                self.assertEqual(forward(again, inputs)["logits"], got["logits"], name)

    def test_classes_that_are_not_supported(self):
        with tempfile.TemporaryDirectory() as at:
            for case_name, name, says in (("roformer_mlm", "RoFormer", "RoFormerForMultipleChoice"),
                                          ("deberta_mlm", "Deberta", "DebertaForMultipleChoice"),
                                          ("longformer_mlm", "Longformer", "Longformer"), ("gpt2", "GPT2", "GPT2ForMultipleChoice")):
                folder = shutil.copytree(os.path.join(hf_cases.GOLDEN, case_name), os.path.join(at, name))
                with open(os.path.join(folder, "config.json"), encoding="utf8") as file:
                    config = json.load(file)
                config["architectures"] = [name + "ForMultipleChoice"]
                with open(os.path.join(folder, "config.json"), "w", encoding="utf8") as file:
                    json.dump(config, file)
                done = subprocess.run([QKV, "inspect", folder], capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0, name)
                self.assertIn(says, done.stderr)
                self.assertIn("architectures", done.stderr)


if __name__ == "__main__":
    QKV = sys.argv.pop(1)
    unittest.main()
