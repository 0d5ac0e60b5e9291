#!/usr/bin/env python3
"""tools/families.py.

usage: families_test.py ROOT [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = None
FAMILY = """#include "qkv/io/family/own_parts.h"
const Family& owl_family() {
  static const Family family = {"owl", [](const JsonField& c) {
        read_own(c);
        for (const char* key : {"left", "right"})
          check(!c.boolean_or(key, false), "{}: {}: only false is supported", c.place(), key);
        check(kind == "a", "{}: kind: '{}' is not supported (a, b are)", c.place(), kind);
      }};
}
"""
PARTS = """void read_own(const JsonField& c) {
  check(c.integer_or("n", 1) == 1,
        "{}: n: only 1 "
        "is supported", c.place());
}
void read_other(const JsonField& c) {
  check(!c.find("never"), "{}: never: not supported", c.place());
}
"""
DOCUMENT = """| case | family | outputs | inside | gradients | generated runs with the same ids |
|---|---|---|---|---|---|
| owl_a | owl | 1.0e-07 | 3.0e-06 | - | 2 of 3 |
| owl_b | owl | 2.0e-06 | - | - | 1 of 1 |

| `model_type` | cases | largest deviation | generated runs | what it does not read |
|---|---|---|---|---|

End
"""


class Families(unittest.TestCase):
    def test_a_row_tells_cases_and_limits(self):
        with tempfile.TemporaryDirectory() as root:
            for path, text in (("qkv/io/family/owl.cc", FAMILY), ("qkv/io/family/own_parts.cc", PARTS), ("docs/reference_cases.md", DOCUMENT)):
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf8") as file:
                    file.write(text)

            def run(*arguments):
                return subprocess.run([sys.executable, os.path.join(ROOT, "tools", "families.py"), root, *arguments],
                                      capture_output=True, text=True)
            self.assertIn("run it", run("--check").stderr)
            self.assertEqual(run().returncode, 0)
            self.assertEqual(run("--check").returncode, 0)
            with open(os.path.join(root, "docs/reference_cases.md"), encoding="utf8") as file:
                written = file.read()
            # Parts count with the functions that the family calls.
            row = "| `owl` | 2 | 3.0e-06 | 3 of 4 | `kind` other than a, b; `left`; `n` other than 1; `right` |\n"
            self.assertEqual(written, DOCUMENT.replace("|---|---|---|---|---|\n\nEnd", "|---|---|---|---|---|\n" + row + "\nEnd"))


if __name__ == "__main__":
    ROOT = sys.argv.pop(1)
    unittest.main()
