#!/usr/bin/env python3
"""qkv tag.

usage: test_tag.py QKV [unittest arguments]
"""
import json

from qkv_cli import EncoderTest, main


class Tag(EncoderTest):
    def test_tag(self):
        lines = "the  apple \n\n\tsaw\tover\r\nfox"
        plain = self.ask("tag", "tag", stdin=lines)
        self.assertEqual(plain.out, "the/O apple/IT\n\nsaw/IT over/O\nfox/O\n")
        self.assertEqual(self.ask("tag", "tag", "--conll", stdin=lines).out,
                         "the\tO\napple\tIT\n\n\nsaw\tIT\nover\tO\n\nfox\tO\n\n")
        found = self.jsons("tag", "tag", stdin=lines)
        self.assertEqual([f["words"] for f in found], [["the", "apple"], [], ["saw", "over"], ["fox"]])
        self.assertEqual(found[0]["tags"], ["O", "IT"])
        for f in found:
            self.assertEqual(len(f["probabilities"]), len(f["words"]))
            self.assertTrue(all(0.5 < p <= 1 for p in f["probabilities"]), f)
        # Words that the model cannot read have no tag. Two tokens stand around 14 words.
        long = self.ask("tag", "tag", stdin="fox " * 20)
        tagged = long.out.split()
        self.assertEqual((len(tagged), tagged[14:]), (20, ["fox/_"] * 6))
        self.assertNotIn("fox/_", tagged[:14])
        self.assertEqual(long.err, "note: 1 text is longer than the model's 16 tokens and was cut\n")
        (found,) = self.jsons("tag", "tag", "--json-lines", stdin=json.dumps({"text": "saw\nover"}))
        self.assertEqual(found["words"], ["saw", "over"])


if __name__ == "__main__":
    main()
