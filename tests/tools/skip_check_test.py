#!/usr/bin/env python3
"""Which skipped tests tools/skip_check.py allows.

usage: skip_check_test.py REPOSITORY [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""
ALLOWED = "# comment\n\n*Tile.*/amx | no AMX | the processor lacks it\ncli_test* | was over | too fast\n"


def ctest(*cases):
    return '<?xml version="1.0"?>\n<testsuite name="Linux">' + "".join(cases) + "</testsuite>"


def case(name, skipped="", out="", status="run"):
    return (f'<testcase name="{name}" classname="{name}" status="{status}">{skipped}'
            f"<system-out>{out}</system-out></testcase>")


SKIPPED = '<skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>'


class SkipCheck(unittest.TestCase):
    def check(self, *results, allowed=ALLOWED):
        with tempfile.TemporaryDirectory() as folder:
            names = ["allowed.txt", *(f"results{i}.xml" for i in range(len(results)))]
            paths = [os.path.join(folder, name) for name in names]
            for path, text in zip(paths, (allowed, *results)):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/skip_check.py", *paths], capture_output=True,
                                  text=True)
            return done.returncode, done.stdout + done.stderr

    def test_none_skipped(self):
        self.assertEqual(self.check(ctest(case("A.b"))), (0, "1 tests, 0 allowed skips, 0 violations\n"))

    def test_allowed_by_name_and_words(self):
        status, out = self.check(ctest(case("Tile.x/amx", SKIPPED, "tile.cc:3: Skipped\nno AMX here"),
                                       case("cli_test", "", "run was over\nOK (skipped=1)")))
        self.assertEqual(status, 0, out)
        self.assertIn("the processor lacks it", out)
        self.assertIn("2 tests, 2 allowed skips, 0 violations", out)

    def test_each_skip_of_a_verbose_program_counts(self):
        words = "test_a (m.C.test_a) ... ok\ntest_b (m.C.test_b) ... skipped 'run was over'\n"
        status, out = self.check(ctest(case("cli_test", "", words + "\nOK (skipped=1)")))
        self.assertEqual(status, 0, out)
        words += "test_c (m.C.test_c) ... skipped \"no time\"\n"
        status, out = self.check(ctest(case("cli_test", "", words + "\nOK (skipped=2)")))
        self.assertEqual(status, 1, out)
        self.assertIn("cli_test:test_c: skipped", out)
        self.assertIn("1 allowed skips, 1 violations", out)

    def test_others_are_named(self):
        for one in (case("Tile.x/amx", SKIPPED, "something else"), case("Tile.x/emulated", SKIPPED, "no AMX here"),
                    case("other_test", "", "Ran 3 tests\n\nOK (skipped=1)"), case("A.b", "", "", "disabled"),
                    case("reference", '<skipped message="SKIP_RETURN_CODE=77"/>', "")):
            with self.subTest(one):
                status, out = self.check(ctest(case("A.a"), one))
                self.assertEqual(status, 1, out)
                self.assertIn("2 tests, 0 allowed skips, 1 violations", out)

    def test_results_of_googletest(self):
        def results(message):
            return ('<testsuites><testsuite name="Tile"><testcase name="x/amx" result="skipped" classname="Tile">'
                    f'<skipped message="{message}"/></testcase></testsuite></testsuites>')
        self.assertEqual(self.check(results("no AMX here"))[0], 0)
        status, out = self.check(results("no time"))
        self.assertEqual(status, 1)
        self.assertIn("results0:Tile.x/amx: skipped", out)

    def test_a_run_without_tests_fails(self):
        self.assertEqual(self.check(ctest())[0], 1)
        self.assertEqual(self.check()[0], 1)

    def test_a_line_that_is_none_is_named(self):
        status, out = self.check(ctest(case("A.a")), allowed="Tile.*\n")
        self.assertEqual(status, 1)
        self.assertIn("allowed.txt:1: a line is", out)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
