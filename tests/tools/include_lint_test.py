#!/usr/bin/env python3
"""Which includes tools/include_lint.py refuses.

usage: include_lint_test.py REPOSITORY [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""


class IncludeLint(unittest.TestCase):
    def problems(self, **files):
        """Lines about files, given by their paths below qkv/ with __ for / and without .h."""
        with tempfile.TemporaryDirectory(prefix="qkv_include_lint_") as root:
            for name, includes in files.items():
                path = os.path.join(root, "qkv", name.replace("__", "/") + ".h")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write("".join(f'#include "qkv/{include}.h"\n' for include in includes))
            done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/include_lint.py", root], capture_output=True,
                                  text=True)
            return done.stdout.splitlines()[:-1]

    def test_folders_below(self):
        self.assertEqual(self.problems(nn__linear=["ops/linear"], ops__linear=["base/error"], base__error=[]), [])

    def test_a_folder_above(self):
        problems = self.problems(ops__linear=["nn/linear"], nn__linear=[])
        self.assertEqual(len(problems), 1)
        self.assertIn("ops must not include nn", problems[0])

    def test_a_circle(self):
        self.assertIn("a circle of includes", self.problems(base__a=["base/b"], base__b=["base/a"])[0])

    def test_a_spec_of_specs(self):
        self.assertEqual(self.problems(models__spec=["nn/norm_spec", "models/mixer_spec", "batch/output"],
                                       models__mixer_spec=["models/mixers/average"], models__mixers__average=[],
                                       nn__norm_spec=["kernels/activation"], kernels__activation=[], batch__output=[]),
                         [])

    def test_a_spec_of_layers(self):
        for path in "nn__norm_spec", "models__spec", "models__mixers__average":
            with self.subTest(path):
                problems = self.problems(**{path: ["nn/linear"], "nn__linear": []})
                self.assertEqual(len(problems), 1)
                self.assertIn("a spec is data: it must not include qkv/nn/linear.h", problems[0])

    def test_the_place_of_a_mixer_may_know_layers(self):
        self.assertEqual(self.problems(models__mixers__mixer_place=["nn/sublayer"], nn__sublayer=[]), [])


if __name__ == "__main__":
    REPOSITORY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
