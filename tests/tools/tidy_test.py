#!/usr/bin/env python3
"""Which sources tools/tidy.py looks at, with a clang-tidy that finds the word "bad".

usage: tidy_test.py REPOSITORY [unittest arguments]
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""
CLANG_TIDY = '#!/usr/bin/env bash\nfor file; do :; done\necho "$file" >> looked\n! grep -n bad "$file"\n'


class Tidy(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="qkv_tidy_test_")
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        self.environment = {**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                            "GIT_CONFIG_GLOBAL": "/dev/null"}
        self.environment.pop("QKV_BASE", None)
        self.write("bin/clang-tidy", CLANG_TIDY)
        os.chmod(os.path.join(self.root, "bin/clang-tidy"), 0o755)
        names = ["qkv/a.cc", "qkv/b.cc", "qkv/kernels/cpu/c.cc"]
        self.write("build/compile_commands.json",
                   json.dumps([{"directory": self.root, "file": f"{self.root}/{name}"} for name in names]))
        self.git("init", "-q", "-b", "main")
        for name in names:
            self.write(name, "int x;\n")
        self.write("qkv/h.h", "int h;\n")
        self.write("qkv/b.cc", '#include "qkv/h.h"\n')
        self.commit()

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=b@c", *words], cwd=self.root, check=True,
                       env=self.environment, capture_output=True)

    def commit(self):
        self.git("add", "qkv")
        self.git("commit", "-q", "-m", "change")

    def tidy(self, *options, **environment):
        looked = os.path.join(self.root, "looked")
        if os.path.exists(looked):
            os.remove(looked)
        done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/tidy.py", "build", "--jobs", "1", *options],
                              cwd=self.root, env={**self.environment, **environment}, capture_output=True, text=True)
        sources = []
        if os.path.exists(looked):
            with open(looked, encoding="utf-8") as file:
                sources = file.read().split()
        return done.returncode, sources, done.stdout + done.stderr

    def test_without_a_base_the_files_of_the_only_commit(self):
        status, sources, out = self.tidy()
        self.assertEqual((status, sorted(sources)), (0, ["qkv/a.cc", "qkv/b.cc"]), out)
        self.assertIn("files of HEAD", out)

    def test_changes_since_the_base(self):
        self.write("qkv/a.cc", "int y;\n")
        self.commit()
        self.assertEqual(self.tidy()[1], ["qkv/a.cc"])
        self.git("tag", "v1")
        self.write("qkv/h.h", "int i;\n")
        self.commit()
        self.assertEqual(self.tidy()[1], ["qkv/b.cc"])  # which includes the header
        self.assertEqual(self.tidy(QKV_BASE="HEAD~2")[1], ["qkv/b.cc", "qkv/a.cc"])
        self.git("update-ref", "refs/remotes/origin/main", "HEAD")
        self.write("qkv/a.cc", "int z;\n")  # not committed
        self.assertEqual(self.tidy()[1], ["qkv/a.cc", "qkv/b.cc"])
        self.commit()
        self.assertEqual(self.tidy()[1], ["qkv/a.cc"])

    def test_a_finding_is_an_error(self):
        self.write("qkv/a.cc", "bad\n")
        status, _, out = self.tidy()
        self.assertEqual(status, 1)
        self.assertIn("== qkv/a.cc\n2:bad", out)
        self.assertEqual(self.tidy("--all")[0], 1)

    def test_all_and_the_limit(self):
        self.assertEqual(self.tidy("--all")[:2], (0, ["qkv/a.cc", "qkv/b.cc"]))
        status, sources, out = self.tidy("--limit-s", "-1")
        self.assertEqual((status, sources), (0, []))
        self.assertIn("2 not looked at", out)
        self.assertEqual(self.tidy("--all", "--limit-s", "-1")[0], 1)

    def test_a_base_that_is_none(self):
        status, _, out = self.tidy(QKV_BASE="nothing")
        self.assertEqual(status, 1)
        self.assertIn("there is no commit nothing", out)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
