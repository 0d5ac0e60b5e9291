#!/usr/bin/env python3
"""Tests of tools/test_index.py: which tests it assigns to a file.

usage: test_index_test.py REPOSITORY [unittest arguments]
"""
import os
import sys
import tempfile
import unittest

REPOSITORY = ""


class TestIndex(unittest.TestCase):
    def index(self, **files):
        sys.path.insert(0, f"{REPOSITORY}/tools")
        import test_index
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                path = os.path.join(root, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            return test_index.index(root)

    def test_names(self):
        found, problems = self.index(**{"qkv/ops/norm.cc": "", "tests/unit/ops/norm_test.cc": "",
                                        "qkv/cli/plan_command.cc": "", "tests/cli/test_plan.py": ""})
        self.assertEqual(problems, [])
        self.assertEqual(found, {"qkv/ops/norm.cc": ["tests/unit/ops/norm_test.cc"],
                                 "qkv/cli/plan_command.cc": ["tests/cli/test_plan.py"]})

    def test_covers(self):
        found, problems = self.index(**{"qkv/io/a_b.cc": "", "qkv/io/a_c.cc": "", "qkv/io/d.cc": "",
                                        "tests/x_test.cc": "// Covers: qkv/io/a_*.cc, qkv/io/d.cc\n"})
        self.assertEqual(problems, [])
        self.assertEqual(set(map(tuple, found.values())), {("tests/x_test.cc",)})

    def test_a_file_without_a_test_is_named(self):
        _, problems = self.index(**{"qkv/io/a.cc": "", "tests/b_test.cc": "int a;  // Covers nothing\n"})
        self.assertEqual(len(problems), 1)
        self.assertIn("qkv/io/a.cc: no test", problems[0])

    def test_a_line_that_means_no_file_is_named(self):
        for line in "// Covers: qkv/io/gone.cc", "# Covers: a", "// Covers: qkv/io/a.cc qkv/io/b.cc", "// Covers:":
            _, problems = self.index(**{"qkv/io/a.cc": "", "tests/a_test.cc": f"//\n{line}\n"})
            self.assertEqual(len(problems), 1, line)
            self.assertIn("tests/a_test.cc:2: no file matches", problems[0])

    def test_unit_tests_mirror_the_folders(self):
        _, problems = self.index(**{"qkv/ops/norm.cc": "", "tests/unit/nn/norm_test.cc": "",
                                    "qkv/nn/a.cc": "// Covers nothing", "tests/unit/nn/a_test.cc": "",
                                    "tests/unit/b_test.cc": ""})
        self.assertEqual(problems, ["tests/unit/b_test.cc: a unit test is in tests/unit/FOLDER of qkv/FOLDER",
                                    "tests/unit/nn/norm_test.cc: norm.cc is in qkv/ops"])

    def test_nothing_is_found_in_an_empty_folder(self):
        self.assertIn("no sources", self.index()[1][0])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
