#!/usr/bin/env python3
"""Tests which bare pointers to a tensor's elements the lint finds, and what it leaves alone.

usage: data_lint_test.py REPOSITORY [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""


class DataLint(unittest.TestCase):
    def run_on(self, files):
        """The lint's exit status and lines for a repository of these files: path -> contents."""
        with tempfile.TemporaryDirectory(prefix="qkv_data_lint_") as root:
            for path, contents in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(contents)
            done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/data_lint.py", root], capture_output=True,
                                  text=True, timeout=60)
            self.assertEqual(done.stderr, "")
            return done.returncode, done.stdout.splitlines()

    def expect_found(self, code, line=1, path="qkv/cli/x.cc"):
        status, lines = self.run_on({path: code})
        self.assertEqual(status, 1, code)
        self.assertTrue(lines[0].startswith(f"{path}:{line}: "), lines)
        self.assertEqual(lines[-1], "1 files, 1 violations")

    def test_pointers_are_found(self):
        for call in ("x.data<float>()", "x.mutable_data<T>()", "x->data< int32_t >( )", "x.template data<BFloat16>()",
                     "x.raw()", "x->raw()", "x.mutable_raw()", "model.parameters().all()[0].value.raw()"):
            self.expect_found(f"auto* p = {call};\n")
        self.expect_found("int a;\n// data<float>()\nfloat* p = x\n    .data<float>();\n", line=4)
        self.expect_found("const char* a = \"/*\";\nauto* p = x.data<float>();\nconst char* b = \"*/\";\n", line=2)
        for folder in ("autograd", "nn", "models", "io", "data", "infer", "train", "api", "cli", "chat/jinja", "bridge"):
            self.expect_found("auto* p = x.raw();\n", path=f"qkv/{folder}/x.h")
        self.expect_found("bool b = c == '\"' || x.raw() == nullptr || c == '\"';\n")

    def test_all_else_is_left_alone(self):
        pointer = "auto* p = x.data<float>(); auto* q = x.raw();\n"
        allowed = {path: pointer for path in ("qkv/tensor/x.h", "qkv/ops/x.cc", "qkv/kernels/cpu/x.cc",
                                              "tests/unit/x.cc", "bench/x.cc")}
        fine = ("auto v = x.values<float>(); v.data(); if (is_raw() && data < size) add_raw();\n"
                "// x.data<float>() and x.raw()\n/* x.raw()\n */ const char* t = \"x.raw()\";\n"
                "std::vector<float> metadata; load_data<float>(x); raw();\n")
        status, lines = self.run_on(allowed | {"qkv/nn/x.cc": fine})
        self.assertEqual((status, lines), (0, ["1 files, 0 violations"]))

    def test_nothing_to_look_at_is_an_error(self):
        status, lines = self.run_on({"qkv/ops/x.cc": "\n"})
        self.assertEqual(status, 1, lines)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
