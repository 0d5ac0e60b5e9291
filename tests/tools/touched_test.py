#!/usr/bin/env python3
"""Which suites tools/touched.py adds for which files, and that each is a target of the Makefile and its folders exist.

usage: touched_test.py REPOSITORY [unittest arguments]
"""
import glob
import os
import re
import subprocess
import sys
import unittest

REPOSITORY = ""


class Touched(unittest.TestCase):
    def targets(self, *names):
        done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/touched.py", *names], capture_output=True, text=True,
                              check=True)
        return [line.split()[0] for line in done.stdout.splitlines()]

    def test_a_kernel(self):
        self.assertEqual(self.targets("qkv/kernels/cpu/rows-inl.h"), ["seeds", "isa", "benches", "shape-fuzz", "tidy"])

    def test_a_layer(self):
        self.assertEqual(self.targets("qkv/nn/attention.cc"), ["seeds", "shape-fuzz", "tidy"])

    def test_a_command(self):
        self.assertEqual(self.targets("qkv/cli/plan_command.cc"), ["tidy"])

    def test_the_specification(self):
        self.assertEqual(self.targets("formal/attention.h"), ["seeds", "tidy"])

    def test_nothing_that_a_suite_reads(self):
        self.assertEqual(self.targets("LICENSE", "README.md", "data/tinyshakespeare/input.txt"), [])

    def test_several_files_name_a_suite_once(self):
        self.assertEqual(self.targets("bench/measure.cc", "tools/a.cc", "formal/softmax.h"), ["seeds", "benches", "tidy"])

    def test_each_row(self):
        sys.path.insert(0, f"{REPOSITORY}/tools")
        from touched import SUITES
        with open(f"{REPOSITORY}/Makefile", encoding="utf-8") as file:
            makefile = file.read()
        for target, minutes, words, patterns in SUITES:
            self.assertTrue(re.search(rf"^([\w-]+ )*{target}( [\w-]+)*:", makefile, flags=re.M), target)
            self.assertGreater(minutes, 0)
            self.assertTrue(words)
            for pattern in patterns:
                folder = pattern.split("*")[0]
                self.assertTrue(glob.glob(os.path.join(REPOSITORY, folder) + "*"), pattern)


if __name__ == "__main__":
    REPOSITORY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
