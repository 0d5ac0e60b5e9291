#!/usr/bin/env python3
"""Tests of tools/completion.py: the replies of bash to words before the cursor.

usage: completion_test.py REPOSITORY QKV [unittest arguments]
"""
import os
import shlex
import subprocess
import sys
import unittest

REPOSITORY = QKV = ""


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.script = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tools/completion.py"), QKV], check=True,
                                    capture_output=True, text=True).stdout

    def replies(self, *words):
        """Completions of the last word."""
        line = (f'COMP_WORDS=(qkv {" ".join(shlex.quote(word) for word in words)}); COMP_CWORD={len(words)}; _qkv\n'
                'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", self.script + "\n" + line], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands(self):
        self.assertIn("generate", self.replies(""))
        self.assertEqual(self.replies("tra"), ["train", "translate", "trace"])
        self.assertEqual(self.replies("tokenizer", ""), ["train", "encode", "decode"])
        self.assertEqual(self.replies("--threads", "2", "gen"), ["generate"])
        self.assertEqual(self.replies("init", "cl"), ["classify"])

    def test_options(self):
        self.assertEqual(self.replies("generate", "runs/x", "--temp"), ["--temperature"])
        self.assertEqual(self.replies("tokenizer", "train", "--vocab"), ["--vocab-size"])
        self.assertEqual(self.replies("--ver"), ["--version"])

    def test_values(self):
        self.assertEqual(self.replies("eval", "runs/x", "--dtype", ""), ["f32", "bf16"])
        self.assertEqual(self.replies("train", "my.txt", "--preset", "lla"), ["llama"])
        self.assertEqual(self.replies("generate", "runs/x", "--file", ""), [])  # file names, which bash adds

    def test_settings(self):
        self.assertEqual(self.replies("train", "my.toml", "--set", "train.sch"), ["train.schedule="])
        self.assertEqual(self.replies("train", "my.toml", "--set", "train.schedule", "=", "lin"), ["linear"])
        self.assertEqual(len(self.replies("train", "my.toml", "--set", "train.schedule", "=")), 5)
        self.assertIn("model.width", self.replies("config", "model.w"))


if __name__ == "__main__":
    REPOSITORY, QKV = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
