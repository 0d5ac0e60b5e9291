#!/usr/bin/env python3
"""Tests of tools/thin_reference.py on a case of tests/golden/hf that has all of its values.

usage: thin_reference_test.py REPOSITORY
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = sys.argv.pop(1)
TOOL = os.path.join(REPOSITORY, "tools", "thin_reference.py")
HF = os.path.join(REPOSITORY, "tests", "golden", "hf")
sys.path.insert(0, os.path.join(REPOSITORY, "tests", "golden"))
import hf_cases  # noqa: E402


def read(path):
    with open(path, "rb") as file:
        return file.read()


class ThinReference(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.out = os.path.join(self.scratch.name, "out")

    def thin(self, *arguments):
        return subprocess.run([sys.executable, TOOL, HF, self.out, *arguments], capture_output=True, text=True)

    def expected(self, case="gpt2"):
        return hf_cases.load(os.path.join(self.out, case, "expected.safetensors"))

    def test_keeps_what_a_comparison_needs(self):
        self.assertEqual(self.thin("gpt2", "--budget", "40000").returncode, 0)
        whole, _ = hf_cases.load(os.path.join(HF, "gpt2", "expected.safetensors"))
        kept, metadata = self.expected()
        left_out = set(metadata["left_out"].split())
        self.assertEqual(metadata["budget"], "40000")
        self.assertLessEqual(os.path.getsize(os.path.join(self.out, "gpt2", "expected.safetensors")), 40000)
        for name in ("input_ids", "f64.logits", "f64.hidden_states.2", "train.loss", "gen.greedy.sequences"):
            self.assertIn(name, kept)
        for name, tensor in kept.items():
            self.assertEqual(tensor, whole[name], name)
        self.assertEqual(set(whole), set(kept) | left_out | {"f32.logits"})
        self.assertTrue(any(name.startswith("train.grad.") for name in kept))
        self.assertTrue(any(name.startswith("train.grad.") for name in left_out))
        for name in ("config.json", "model.safetensors", "meta.json"):
            self.assertEqual(read(os.path.join(self.out, "gpt2", name)), read(os.path.join(HF, "gpt2", name)))

    def test_a_small_budget_leaves_the_outputs(self):
        self.assertEqual(self.thin("gpt2", "--budget", "1").returncode, 0)
        kept, _ = self.expected()
        self.assertIn("f64.logits", kept)
        self.assertFalse([name for name in kept if name.startswith(("train.grad.", "f64.attentions."))])

    def test_the_budget_of_a_file_holds_again(self):
        self.thin("gpt2", "--budget", "40000")
        first = read(os.path.join(self.out, "gpt2", "expected.safetensors"))
        self.assertEqual(self.thin("gpt2_variant").returncode, 0)
        self.assertEqual(self.thin().returncode, 0)
        self.assertEqual(read(os.path.join(self.out, "gpt2", "expected.safetensors")), first)
        self.assertEqual(self.expected("gpt2_variant")[1]["budget"], "20480")

    def test_a_whole_file_stays_whole(self):
        os.makedirs(os.path.join(self.out, "gpt2"))
        whole = read(os.path.join(HF, "gpt2", "expected.safetensors"))
        with open(os.path.join(self.out, "gpt2", "expected.safetensors"), "wb") as file:
            file.write(whole)
        self.assertEqual(self.thin().returncode, 0)
        self.assertEqual(read(os.path.join(self.out, "gpt2", "expected.safetensors")), whole)

    def test_an_unknown_case(self):
        done = self.thin("gpt5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no expected.safetensors", done.stderr)


if __name__ == "__main__":
    unittest.main()
