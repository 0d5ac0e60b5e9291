#!/usr/bin/env python3
"""Several models at once: --ensemble of every command that has it.

usage: test_ensemble.py QKV [unittest arguments]
"""
from qkv_cli import EncoderTest, main


class Ensembles(EncoderTest):
    def test_ensemble(self):
        lines = "the apple\n\nsaw the\n"
        probabilities = []
        for name in ("classify", "second"):
            found = self.jsons("classify", name, "--best", "2", stdin=lines)
            probabilities.append([{b["label"]: b["probability"] for b in f.get("best", [])} for f in found])
        both = self.jsons("classify", "classify", "--best", "2", "--ensemble", self.run_dir("second"), stdin=lines)
        self.assertEqual(both[1], {"label": None})
        for i in (0, 2):
            for b in both[i]["best"]:
                self.assertAlmostEqual(b["probability"], sum(p[i][b["label"]] for p in probabilities) / 2, places=9)
        self.refused("classify", self.run_dir("classify"), "--ensemble", self.run_dir("numbers"), stdin="a\n",
                     status=1, says=[self.run_dir("numbers"), "classes are not those of", self.run_dir("classify")])
        self.refused("classify", self.run_dir("classify"), "--ensemble", self.run_dir("tag"), stdin="a\n",
                     status=1, says=[self.run_dir("tag"), "a tagger of words"])

    def test_ensembles_of_tags_and_answers(self):
        lines = "the apple saw\n\nfox over pear\n"
        one, two = (self.jsons("tag", name, stdin=lines) for name in ("tag", "tag2"))
        both = self.jsons("tag", "tag", "--ensemble", self.run_dir("tag2"), stdin=lines)
        self.assertEqual(both[1], {"words": [], "tags": [], "probabilities": []})
        differ = 0
        for i in (0, 2):
            for w, (tag, p) in enumerate(zip(both[i]["tags"], both[i]["probabilities"])):
                of = [f[i]["probabilities"][w] if f[i]["tags"][w] == tag else 1 - f[i]["probabilities"][w] for f in (one, two)]
                self.assertAlmostEqual(p, sum(of) / 2, places=9)  # the sum over two tags
                differ += one[i]["tags"][w] != two[i]["tags"][w]
        self.assertGreater(differ, 0)
        lines = "which fruit\tthe quick pear\n"
        (alone,), (both,), (same,) = (self.jsons("answer", "answer", *more, stdin=lines) for more in (
            (), ("--ensemble", self.run_dir("answer2")), ("--ensemble", self.run_dir("answer"))))
        self.assertLess(both["score"], 0)  # the sum of two logarithms
        self.assertEqual((same["answer"], same["begin"]), (alone["answer"], alone["begin"]))
        self.assertNotAlmostEqual(both["score"], same["score"], places=4)
        self.refused("answer", self.run_dir("answer"), "--ensemble", self.run_dir("answer_of_bytes"), stdin=lines,
                     status=1, says=[self.run_dir("answer_of_bytes"), "share a tokenizer"])
        self.refused("tag", self.run_dir("tag"), "--ensemble", self.run_dir("answer"), stdin="a\n",
                     status=1, says=[self.run_dir("answer"), "a model that finds answers"])

    def test_ensembles_that_write(self):
        # A model beside itself writes what it writes alone; another changes what is said of it.
        def p_of(*more):
            (found,) = self.jsons("translate", "pairs", "--tokens", "5", *more, stdin="aba\n")
            return found["logprob"]
        self.assertAlmostEqual(p_of("--ensemble", self.run_dir("pairs")), p_of(), places=4)
        self.assertNotAlmostEqual(p_of("--ensemble", self.run_dir("pairs2")), p_of(), places=4)
        self.assertNotAlmostEqual(p_of("--ensemble", self.run_dir("pairs2"), "--seed", "3"), p_of("--seed", "3"), places=4)
        self.refused("translate", self.run_dir("pairs"), "--ensemble", self.run_dir("decoder"), stdin="a\n", status=1,
                     says=[self.run_dir("decoder"), "encoder-decoder"])

        def token_of(*more):
            (found,) = self.jsons("generate", "decoder", "--prompt", "the", "--tokens", "1", "--temperature", "0", "--logprobs", "0", *more)
            return found["tokens"][0]["logprob"]
        self.assertAlmostEqual(token_of("--ensemble", self.run_dir("decoder")), token_of(), places=4)
        self.assertNotAlmostEqual(token_of("--ensemble", self.run_dir("decoder2")), token_of(), places=4)
        (found,) = self.jsons("generate", "decoder", "--prompt", "the", "--beams", "2", "--tokens", "3", "--ensemble", self.run_dir("decoder2"))
        (alone,) = self.jsons("generate", "decoder", "--prompt", "the", "--beams", "2", "--tokens", "3")
        self.assertNotAlmostEqual(found["logprob"], alone["logprob"], places=4)
        self.refused("generate", self.run_dir("decoder"), "--ensemble", self.run_dir("decoder_of_bytes"), "--prompt", "a", status=1,
                     says=[self.run_dir("decoder_of_bytes"), "its tokenizer is not that", "share one"])


if __name__ == "__main__":
    main()
