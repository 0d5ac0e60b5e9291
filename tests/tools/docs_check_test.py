#!/usr/bin/env python3
"""Tests of tools/docs_check.py on documents, with a tool that only prints its help.

usage: docs_check_test.py REPOSITORY [unittest arguments]
"""
import os
import subprocess
import sys
import tempfile
import unittest

REPOSITORY = ""
TOOL = r"""#!/usr/bin/env bash
case "$*" in
--help) printf 'Title\nUsage: qkv\n\nOptions:\n  -h,--help  Help\n  --threads INT:INT in [1 - 9]\n\nSubcommands:\n'
  printf '  train  Train\n  tokenizer  Tokens\n\nExample: x\n' ;;
'train --help') printf 'Train\nUsage: qkv train\n\nPositionals:\n  CONFIG TEXT REQUIRED   File\n\n'
  printf 'Options:\n  -h,--help  Help\n  --set TEXT ...  Override\n  --resume Excludes: --x\n              Continue\n\n'
  printf 'Example: x\n' ;;
'config --json') echo '[{"section": "data", "key": "train"}, {"section": "mix.NAME", "key": "weight"},
  {"section": "train", "key": "steps"}]' ;;
'tokenizer --help') printf 'Tok\nUsage: x\n\nSubcommands:\n  encode  Encode\n\nExample: x\n' ;;
'tokenizer encode --help') printf 'Encode\nUsage: x\n\nPositionals:\n  DIR TEXT REQUIRED  d\n  FILE TEXT  f\n\n'
  printf 'Options:\n  --ensemble TEXT ...  More\n\nExample: x\n' ;;
train*) echo "trained with $*" > trained ;;
*) exit 3 ;;
esac
"""
README = """# A title
See [it](docs/page.md#a-second-heading) and [here](#a-title), `docs/page.md`, `base/a.h`, `train.steps = 3`,
`docs/NAME.md`, `<!-- run: x -->`.
`qkv train CONFIG [--set key=value] [--resume]` and `qkv tokenizer encode`.

    make build                 # everything
    cat > my.toml <<'END'
    data.train = "x"
    [mix.one]
    weight = 2
    END
    build/qkv train my.toml --set train.steps=2 \\
      --threads 1 < /dev/null | build/qkv tokenizer encode dir --ensemble a b
"""
PAGE = "## A `second`, heading\n\n```toml\n[train]\nsteps = 4\n```\n"


class DocsCheck(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="qkv_docs_test_")
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        self.write("Makefile", "build:\n\ttrue\ntest check: build\n")
        self.write("qkv/base/a.h", "")
        self.write("docs/page.md", PAGE)
        self.write("README.md", README)
        self.tool = os.path.join(self.root, "tool")
        self.write("tool", TOOL)
        os.chmod(self.tool, 0o755)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self, *options):
        done = subprocess.run([sys.executable, f"{REPOSITORY}/tools/docs_check.py", self.root, self.tool, *options],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def test_a_good_document(self):
        status, out = self.check()
        self.assertEqual(status, 0, out)
        self.assertIn("2 documents, 13 links", out)

    def test_each_violation_is_named_with_its_line(self):
        for text, why in [
                ("[x](gone.md)", "3: the link leads nowhere: gone.md"),
                ("![x](gone.svg)", "the link leads nowhere: gone.svg"),
                ("[x](page.md#nothing)", "page.md has no heading #nothing"),
                ("[x](#nothing)", "this page has no heading #nothing"),
                ("`docs/gone.md`", "no such file: docs/gone.md"),
                ("`base/gone.h`", "no such file: qkv/base/gone.h"),
                ("`train.stepz`", "no key 'train.stepz'"),
                ("`mix.one.wait = 2`", "no key 'mix.one.wait'"),
                ("`qkv trains x`", "no subcommand 'trains'"),
                ("`qkv train --resumed`", "'qkv train' has no option --resumed"),
                ("    qkv tokenizer decode x", "'qkv tokenizer' has no subcommand 'decode'"),
                ("    true && build/qkv train", "3: 'qkv train' takes 1 positional arguments, not 0"),
                ("    qkv train one.toml two.toml", "not 2"),
                ("    qkv train x.toml --set train.stepz=2", "no key 'train.stepz'"),
                ("    echo 'x | qkv train", "cannot be read"),
                ("    make everything", "no target everything"),
                ("    cat > x.toml <<END\n    train.stepz = 1\n    END", "no key 'train.stepz'"),
                ("    cat > x.toml <<END\n    train.steps =\n    END", "3: the TOML cannot be read"),
                ("    cat > x.toml <<END\n    train.steps = 1", "has no end END"),
                ("```toml\n[data]\ntrains = 1\n```", "4: the configuration has no key 'data.trains'"),
                ("    python3 docs/gone.py", "no such file: docs/gone.py"),
                ("<!-- run: x -->\n\ntext", "5: no code block follows <!-- run: x -->"),
                ("<!-- run: x -->\n", "no code block follows <!-- run: x -->"),
        ]:
            with self.subTest(text):
                self.write("docs/other.md", "# T\n\n" + text + "\n")
                status, out = self.check()
                self.assertEqual(status, 1, out)
                self.assertIn("docs/other.md:", out)
                self.assertIn(why, out)
                self.assertIn(" 1 violations", out)

    def test_a_marked_block_is_run_with_its_overrides(self):
        self.write("docs/other.md", "# T\n<!-- run: one -->\n\n    make build\n    qkv train a.toml\n"
                                    "    cp trained out\n"
                                    "    test -e given\n"
                                    "    test \"$(cat out)\" = 'trained with train a.toml --set train.steps=1'\n")
        self.write("tools/docs_check.toml",
                   '[one]\nlimit_s = 20\nbefore = "touch given"\nset = ["train.steps=1"]\n')
        status, out = self.check("--run")
        self.assertEqual(status, 0, out)
        self.assertIn("one ran for", out)
        self.assertFalse(os.path.exists(os.path.join(self.root, "given")))

    def test_what_a_marked_block_does_wrong(self):
        for text, settings, why in [
                ("false", "[one]\nlimit_s = 20\n", "exit status 1"),
                ("sleep 60", "[one]\nlimit_s = 1\n", "took longer than 1 seconds"),
                ("true", "", "has no [one]"),
                ("true", "[one]\nlimit_s = 9\n[two]\nlimit_s = 9\n", "no code block is marked two"),
        ]:
            with self.subTest(why):
                self.write("docs/other.md", f"# T\n<!-- run: one -->\n\n    {text}\n")
                self.write("tools/docs_check.toml", settings)
                status, out = self.check("--run")
                self.assertEqual(status, 1, out)
                self.assertIn(why, out)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
