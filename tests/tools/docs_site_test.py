#!/usr/bin/env python3
"""The page that comes first for what people search for (tools/docs_site.py).

usage: docs_site_test.py REPOSITORY [unittest arguments]
"""
import sys
import unittest

REPOSITORY = ""
FIRST = {
    "confusion matrix": ("docs/commands", "docs/guides/classify"),
    "learning rate schedule": ("docs/guides/language-model", "docs/reference-settings"),
    "resume training": ("docs/guides/language-model",),
    "early stopping": ("docs/guides/language-model", "docs/reference-settings"),
    "KV cache memory": ("docs/faq",),
    "loss is nan": ("docs/faq",),
    "fine-tune with LoRA": ("docs/guides/fine-tune",),
    "add a model family": ("CONTRIBUTING",),
    "run one test": ("CONTRIBUTING",),
    "install the library": ("docs/library",),
    "tokenizer formats": ("docs/formats",),
    "few-shot prompt": ("docs/guides/generate",),
    "beam search": ("docs/guides/generate",),
    "repetition penalty": ("docs/guides/generate", "docs/formats"),
    "semantic search": ("docs/guides/embed",),
    "translate pairs": ("docs/guides/translate",),
    "cross-validation": ("docs/guides/classify",),
    "mixture of experts": ("docs/variations",),
    "rotary positions": ("docs/variations",),
    "symbols of the paper": ("docs/notation",),
    "report a vulnerability": ("SECURITY",),
    "BLEU of translations": ("docs/results", "docs/commands", "docs/guides/translate"),
}


class Search(unittest.TestCase):
    def setUp(self):
        import importlib.util
        spec = importlib.util.spec_from_file_location("qkv_site", f"{REPOSITORY}/tools/docs_site.py")
        self.site = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.site)

    def test_the_first_page(self):
        index = self.site.index_of(REPOSITORY)
        for query, pages in FIRST.items():
            with self.subTest(query):
                self.assertIn(self.site.found(index, query)[:1], [[f"{page}.html"] for page in pages])

    def test_words(self):
        self.assertEqual(self.site.words_of("Training a `learning_rate` of models"), ["train", "learning_rate", "model"])
        self.assertEqual(self.site.counts_of("# Read it\n## Reads\nreading learning_rate")["read"], 17)

    def test_every_page_is_in_the_menu(self):
        import subprocess
        names = subprocess.run(["git", "-C", REPOSITORY, "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout
        missing = [n for n in names.split() if n not in [path for _, path in self.site.pages_of(REPOSITORY)]]
        self.assertEqual([n for n in missing if not n.startswith(("tests/", "bench/", "formal/"))], [])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    REPOSITORY = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
