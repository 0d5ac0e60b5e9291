#!/usr/bin/env python3
"""qkv fill.

usage: test_fill.py QKV [unittest arguments]
"""
from qkv_cli import EncoderTest, main


class Fill(EncoderTest):
    def test_fill(self):
        lines = "the [MASK] fox\n\n[MASK] [MASK]\n"
        plain = self.ask("fill", "masked", stdin=lines)
        filled = plain.out.split("\n")
        self.assertEqual(len(filled), 4)
        self.assertEqual(filled[1], "")
        self.assertNotIn("[", plain.out)
        found = self.jsons("fill", "masked", "--best", "3", stdin=lines)
        self.assertEqual([f.get("filled", "") for f in found], filled[:-1])
        self.assertEqual([len(f.get("masks", [])) for f in found], [1, 0, 2])
        for f in found:
            for candidates in f.get("masks", []):
                p = [c["probability"] for c in candidates]
                self.assertEqual(len(p), 3)
                self.assertEqual(p, sorted(p, reverse=True))
        best = self.ask("fill", "masked", "--best", "2", stdin=lines).out.split("\n")
        self.assertEqual([len(line.split("\t")) for line in best], [2, 1, 3, 1])
        self.assertTrue(best[0].startswith(filled[0] + "\t"))
        self.assertIn(f"{found[0]['masks'][0][1]['token']} {found[0]['masks'][0][1]['probability']:.4f}", best[0])
        self.refused("fill", self.run_dir("masked"), stdin="[MASK]\nthe fox\n", status=1,
                     says=[":2: ", "[MASK] in this line"])
        # Text beyond the model's length stays unchanged.
        beyond = self.ok("fill", self.run_dir("masked"), stdin="fox " * 20 + "[MASK]\nthe [MASK]\n")
        self.assertEqual(beyond.out.splitlines()[0], "fox " * 20 + "[MASK]")
        self.assertNotIn("[", beyond.out.splitlines()[1])
        self.assertIn("1 text is longer", beyond.err)
        # So do words that it does not know, capitals and spaces.
        kept = self.ok("fill", self.run_dir("masked"), stdin='"Zebra\u2603,  [MASK]." said\n').out
        self.assertRegex(kept, '^"Zebra\u2603, \\S+." said\n$')


if __name__ == "__main__":
    main()
