#!/usr/bin/env python3
"""Tests of tools/words_lint.py.

usage: words_lint_test.py REPOSITORY [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""
TOOL = r"""#!/usr/bin/env bash
case "$*" in
--help) printf 'Qkv\nUsage: qkv\n\nOptions:\n  --seed UINT:(at least 0)    Of what is drawn\n\nSubcommands:\n  train  Train\n' ;;
'train --help') printf 'Train\n%0210d\n' 1 ;;
'config --json') echo '[{"section": "train", "key": "seed", "help": "where it begins", "default": "1"}]' ;;
esac
"""


class Words(unittest.TestCase):
    def lint(self, *options, exceptions="", **files):
        with tempfile.TemporaryDirectory() as root:
            files = {name.replace("_", ".", 1): text for name, text in files.items()}
            for name, text in {"tools/words_exceptions.txt": exceptions, "tool": TOOL, **files}.items():
                path = os.path.join(root, name)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            os.chmod(os.path.join(root, "tool"), 0o755)
            subprocess.run(["git", "init", "-q", root], check=True)
            options = [o.replace("TOOL", os.path.join(root, "tool")) for o in options]
            done = subprocess.run([sys.executable, os.path.join(REPOSITORY, "tools/words_lint.py"), root, *options],
                                  capture_output=True, text=True)
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.returncode, int("0 violations" not in done.stdout), done.stdout)
            return done.stdout.splitlines()[:-1]

    def test_comments(self):
        self.assertEqual(self.lint(a_cc="int a;  // where it stands\n// Says this. What\n// it says.\n// Of x.\nint b;\n"
                                        "// Why? What for?\n// Width of x.\nint c;  // of x\nconst char* d = \"//  of x\";\n"),
                         ["a.cc:1: headless: a sentence begins with 'Where': Where it stands",
                          "a.cc:2: headless: a sentence begins with 'What': What it says.",
                          "a.cc:2: headless: a sentence begins with 'Of': Of x.",
                          "a.cc:8: headless: a sentence begins with 'Of': Of x"])

    def test_c_comments(self):
        text = "/** Of logits. */\nint a;  /**< of this struct */\n/** Writes ids. */\n/** Reads.\n * Where not, of all. */\n"
        self.assertEqual(self.lint(a_h=text),
                         ["a.h:1: headless: a sentence begins with 'Of': Of logits.",
                          "a.h:2: headless: a sentence begins with 'Of': Of this struct",
                          "a.h:5: headless: a sentence begins with 'Where': Where not, of all."])

    def test_scripts(self):
        text = '"""What it is."""\nx = 1  % of y\n% Says it. Whether\n% or not.\ny = "%  of z"  % why\n'
        self.assertEqual(self.lint(a_py=text.replace("%", "#")),
                         ["a.py:1: headless: a sentence begins with 'What': What it is.",
                          "a.py:2: headless: a sentence begins with 'Of': Of y",
                          "a.py:3: headless: a sentence begins with 'Whether': Whether or not."])

    def test_documents(self):
        long = " ".join(["word"] * 26)
        found = self.lint(a_md=f"# What it is\n\nIt is. Where it is\n`not` known, it is `not`.\n\n- {long}.\n\n    Of code {long}\n\n"
                               f"```text\nOf code {long}\n```\n| Of tables {long} | |\n\nWhat is it? It is.\n")
        self.assertEqual([line.split(": ")[:2] for line in found], [["a.md:3", "headless"], ["a.md:6", "long"]])

    def test_help(self):
        found = self.lint("--tool", "TOOL")
        self.assertEqual([line.split(": ")[:2] for line in found],
                         [["qkv", "headless"], ["train.seed", "headless"], ["qkv train", "wide"]])

    def test_exceptions(self):
        text = "// Of x.\n\n// Of y.\n"
        self.assertEqual(len(self.lint(a_cc=text)), 2)
        self.assertEqual(self.lint(a_cc=text, exceptions="# why\na.cc headless 2\n"), [])
        self.assertEqual(self.lint(a_cc=text, exceptions="a.cc headless Of x\na.cc headless 1\n"), [])
        self.assertIn("3 are excused, it has 2", self.lint(a_cc=text, exceptions="a.cc headless 3\n")[0])
        self.assertIn("it has none", self.lint(exceptions="a.cc headless 3\n")[0])


if __name__ == "__main__":
    REPOSITORY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
