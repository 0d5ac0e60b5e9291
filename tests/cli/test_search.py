#!/usr/bin/env python3
"""Beam search and its settings, on each path: translate, generate, forward.

With $QKV_REFERENCE set, the facts that CTranslate2's own tests expect of a published model are asked of qkv, too.

usage: test_search.py QKV [unittest arguments]
"""
# Covers: qkv/cli/generation_options.cc
import json
import os
import re
import unittest

from qkv_cli import CliTest, load_safetensors, main, read_text, read, safetensors_bytes, WORDS

REFERENCE = os.environ.get("QKV_REFERENCE", "")
PUBLISHED = os.path.join(os.path.dirname(os.path.normpath(REFERENCE)), "weights", "aren_transliteration") if REFERENCE else ""


class Search(CliTest):
    def setUp(self):
        super().setUp()
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{w}\t{w[::-1]}\n" for w in WORDS * 5))
        self.write("config.toml", """
data.train = "pairs.tsv"
tokenizer.type = "byte"
model.architecture = "encoder_decoder"
model.context = 14
model.width = 16
model.layers = 2
model.heads = 2
train.out = "pairs"
train.steps = 60
train.batch_tokens = 300
train.learning_rate = 1e-2
train.precision = "f32"
""")
        self.ok("train", "config.toml")

    def translations(self, *arguments, lines="quick\n\nfox\n"):
        return [json.loads(line) for line in self.ok("translate", "pairs", "--json", *arguments, stdin=lines).out.splitlines()]

    def ids(self, text):
        return [int(word) for word in self.ok("tokenizer", "encode", "pairs", stdin=text).out.split()]

    def test_attention_of_each_token(self):
        plain, looked = self.translations("--beams", "3"), self.translations("--beams", "3", "--attention")
        for a, b in zip(plain, looked):
            self.assertEqual(a["text"], b["text"])
            self.assertAlmostEqual(a["score"], b["score"], delta=1e-5)
            self.assertEqual("".join(b["source_tokens"]), b["source"])
            self.assertEqual("".join(b["tokens"]), b["text"])
            self.assertEqual([len(row) for row in b["attention"]], [len(b["source"])] * len(b["tokens"]))
            for row in b["attention"]:  # the end of the source has the rest
                self.assertTrue(0 < sum(row) <= 1.0001, row)
        cut = self.translations("--attention", "--source-tokens", "2", lines="quick\n")[0]
        self.assertTrue(all(row[2:] == [0, 0, 0] and min(row[:2]) > 0 for row in cut["attention"]))
        self.refused("translate", "pairs", "--attention", stdin="a\n", status=2, says=["--attention", "--json"])
        self.refused("translate", "pairs", "--attention", "--json", "--seed", "1", stdin="a\n", status=2, says=["--seed", "--attention"])

    def test_beginnings_of_lines_and_of_rows(self):
        alone = [self.ok("translate", "pairs", "--begin", begin, stdin="fox\n").out.strip() for begin in ("xo", "dr")]
        self.write("in.jsonl", '{"source": "fox", "begin": "xo"}\n{"source": "fox", "begin": "dr"}\n')
        together = self.ok("translate", "pairs", "--json-lines", "--file", "in.jsonl").out.split()
        self.assertEqual(together, alone)
        self.assertEqual([text[:2] for text in together], ["xo", "dr"])
        self.write("in.csv", "source,start\nfox,xo\nfox,dr\n")
        rows = self.ok("translate", "pairs", "--file", "in.csv", "--begin-column", "start").out.splitlines()
        self.assertEqual([row.split(",")[-1] for row in rows], ["translation", *alone])
        # A wish of little weight is none, of a great one it holds.
        free = self.ok("translate", "pairs", stdin="fox\n").out.strip()
        self.assertEqual(self.ok("translate", "pairs", "--begin", "dr", "--prefix-bias", "1e-9", stdin="fox\n").out.strip(), free)
        self.assertTrue(self.ok("translate", "pairs", "--begin", "dr", "--prefix-bias", "0.999999", stdin="fox\n").out.startswith("dr"))
        self.refused("translate", "pairs", "--prefix-bias", "0.5", stdin="fox\n", status=2, says=["--prefix-bias", "--begin"])
        self.assertEqual(self.ok("translate", "pairs", "--begin", "drawn", "--tokens", "3", stdin="fox\n").out, "dra\n")
        for how in (["--beams", "2"], ["--temperature", "0"], ["--seed", "3"]):
            said = self.ok("translate", "pairs", "--begin", "dr", "--tokens", "3", *how, stdin="fox\n").out
            self.assertTrue(said.startswith("dr") and len(said) <= 4, said)
        self.refused("translate", "pairs", "--json-lines", "--begin-column", "x", stdin="{}\n", status=2, says=["--begin-column"])

    def test_what_outputs_do_not_have(self):
        free = self.ok("translate", "pairs", stdin="fox\n").out.strip()
        barred = self.ok("translate", "pairs", "--suppress", free[0], stdin="fox\n").out
        self.assertNotIn(free[0], barred)
        pair = self.ok("translate", "pairs", "--suppress", free[:2], stdin="fox\n").out
        self.assertNotIn(free[:2], pair)
        self.refused("translate", "pairs", "--suppress", "", stdin="fox\n", status=2, says="--suppress")
        config = json.loads(read(self.path("pairs/best/generation_config.json")))
        self.write("pairs/best/generation_config.json", json.dumps({**config, "bad_words_ids": [self.ids(free[0])]}))
        self.assertNotIn(free[0], self.ok("translate", "pairs", stdin="fox\n").out)

    def test_alternatives_and_patience(self):
        found = self.translations("--alternatives", "--best", "4", lines="fox\n")[0]["best"]
        self.assertEqual(len({h["text"][0] for h in found}), 4)
        self.assertEqual(found[0]["text"], self.translations("--beams", "4", lines="fox\n")[0]["text"])
        likely = self.translations("--alternatives", "--best", "9", "--min-alternative", "0.02", lines="fox\n")[0]["best"]
        self.assertLess(len(likely), 9)
        self.assertEqual(len(self.translations("--alternatives", "--best", "9", "--min-alternative", "1", lines="fox\n")), 1)
        config = json.loads(read(self.path("pairs/best/generation_config.json")))
        self.write("pairs/best/generation_config.json", json.dumps({**config, "forced_bos_token_id": self.ids("d")[0],
                                                                    "output_attentions": True, "seed": -1}))
        forced = self.translations("--alternatives", "--best", "3", lines="fox\n")[0]["best"]
        self.assertEqual(len({h["text"][:1] for h in forced}), 3)
        self.assertEqual(self.translations("--beams", "4", lines="fox\n")[0]["text"], forced[0]["text"])
        self.write("pairs/best/generation_config.json", json.dumps(config))
        patient = self.translations("--beams", "2", "--patience", "3", "--best", "6", lines="fox\n")[0]["best"]
        self.assertGreater(len(patient), 2)
        self.refused("translate", "pairs", "--beams", "2", "--best", "3", stdin="a\n", status=2, says=["--best", "--beams 2"])
        self.refused("translate", "pairs", "--min-alternative", "0.1", stdin="a\n", status=2, says=["--min-alternative"])
        self.assertNotEqual(self.translations("--coverage-penalty", "3", lines="fox\n")[0]["score"],
                            self.translations(lines="fox\n")[0]["score"])

    def test_forward_writes_all_outputs_of_a_search(self):
        ids = [self.ids("fox"), self.ids("and")]
        self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [2, 3], sum(ids, []))}))
        def generate(settings):
            self.ok("forward", "pairs", "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--generate", settings)
            return load_safetensors(self.path("out.safetensors"))
        one = generate("num_beams=3,max_new_tokens=6")
        three = generate("num_beams=3,num_return_sequences=3,output_attentions=true,max_new_tokens=6")
        width, wide = one["sequences"][0][1], three["sequences"][0][1]
        self.assertEqual(three["sequences"][0], [6, wide])
        self.assertEqual(three["sequences_scores"][0], [6])
        self.assertEqual(three["cross_attentions"][0], [6, wide - 1, 3])
        for row in range(2):
            best = list(three["sequences"][1][3 * row * wide:][:width])
            self.assertEqual(best[:width], list(one["sequences"][1][row * width:][:width]))
            scores = list(three["sequences_scores"][1][3 * row:][:3])
            self.assertEqual(scores, sorted(scores, reverse=True))
        drawn = generate("do_sample=true,num_return_sequences=2,seed=3,max_new_tokens=6")
        self.assertEqual(drawn["sequences"][0][0], 4)
        self.assertNotIn("sequences_scores", drawn)
        x, y, z = list(one["sequences"][1][1:width])[:3]
        barred = list(generate(f"num_beams=3,bad_words_ids={x}|{y} {z},max_new_tokens=6")["sequences"][1])
        self.assertNotIn(x, barred)
        self.assertNotIn((y, z), list(zip(barred, barred[1:])))
        for settings, says in (("eos_token_id=99999", "99999"), ("num_return_sequences=3,num_beams=2", "num_return_sequences=3"),
                               ("patience=2,do_sample=true", "patience=2"), ("bad_words_ids=3 x", "bad_words_ids")):
            self.refused("forward", "pairs", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--generate", settings,
                         status=2, says=says)

    def test_options_of_each_command_are_those_of_the_table(self):
        for command in "translate", "generate", "chat":
            text = self.ok(command, "--help").out
            for option in ("--tokens", "--min-tokens", "--temperature", "--top-k", "--min-p", "--typical-p", "--frequency-penalty",
                           "--no-repeat-ngram"):
                self.assertIn(option + " ", text, command)
            self.assertEqual("--patience" in text, command != "chat")
            self.assertEqual("--coverage-penalty" in text, command == "translate")
        # The table of the documents is the program's.
        ids = ("I64", [1, 2], [1, 2])
        self.write("in.safetensors", safetensors_bytes({"input_ids": ids}))
        said = self.refused("forward", "pairs", "--inputs", "in.safetensors", "--outputs", "o.safetensors", "--generate", "no=1",
                            status=2).err
        keys = re.search(r"\(do_sample, use_cache, pad_token_id, decoder_start_token_id, (.*) are\)", said)[1].split(", ")
        page = read_text(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "formats.md"))
        section = page.split("## Settings of generation")[1].split("\n## ")[0]
        self.assertEqual(re.findall(r"(?m)^\| `(\w+)` \|", section), keys)


@unittest.skipUnless(os.path.isdir(PUBLISHED), "QKV_REFERENCE is not set, or has no weights/ beside it")
class PublishedReferenceCases(CliTest):
    """Compares the hypotheses, scores and attentions of each case and beam size with the facts."""

    def setUp(self):
        super().setUp()
        with open(os.path.join(PUBLISHED, "cases.json"), encoding="utf8") as file:
            facts = json.load(file)
        self.cases, self.defaults = facts["cases"], facts["option_defaults"]
        self.model = os.path.join(PUBLISHED, "qkv")

    def arguments(self, case, beams):
        o = {**self.defaults, **case.get("options", {})}
        out = ["--beams", beams, "--best", beams if o["num_hypotheses"] == "beam_size" else o["num_hypotheses"],
               "--tokens", o["max_decoding_length"], "--min-tokens", o["min_decoding_length"]]
        for key, option in (("patience", "--patience"), ("length_penalty", "--length-penalty"),
                            ("repetition_penalty", "--repetition-penalty"), ("no_repeat_ngram_size", "--no-repeat-ngram"),
                            ("prefix_bias_beta", "--prefix-bias"),
                            ("min_alternative_expansion_prob", "--min-alternative")):
            if o[key] != self.defaults[key]:
                out += [option, o[key]]
        for key, flag in (("return_alternatives", "--alternatives"), ("replace_unknowns", "--replace-unknowns"),
                          ("return_attention", "--attention")):
            out += [flag] if o[key] else []
        if o["max_input_length"] != self.defaults["max_input_length"]:
            out += ["--source-tokens", o["max_input_length"]]
        for sequence in o["suppress_sequences"]:
            out += ["--suppress", "".join(token if len(token) == 1 else "?" for token in sequence)]
        return [str(x) for x in out] + (["--stop-early"] if beams > 1 else [])

    def hypotheses(self, case, beams, *more):
        begins = case.get("prefixes") or [[]] * len(case["sources"])
        lines = [json.dumps({"source": "".join(source), "begin": "".join(begin).replace("<unk>", "?")})
                 for source, begin in zip(case["sources"], begins)]
        command = ["translate", self.model, "--json", "--json-lines", *self.arguments(case, beams), *more]
        result = self.qkv(*command, stdin="".join(line + "\n" for line in lines))
        if "error" in case["expect"]:
            self.assertIn(result.status, (1, 2), result)
            return None
        self.assertEqual(result.status, 0, result)
        return [line.get("best", [line]) for line in map(json.loads, result.out.splitlines())]

    def compare(self, case, beams, found):
        """Asks of what was found what the case expects."""
        expect = dict(case["expect"])
        tokens = [[re.findall("<unk>|.", h["text"]) for h in hypotheses] for hypotheses in found]
        best = [t[0] for t in tokens]
        number = lambda n: beams if n == "beam_size" else n
        for key, value in expect.items():
            each = list(zip(found, value)) if isinstance(value, list) else []
            if key == "best":
                for got, want in zip(best, value, strict=True):
                    self.assertTrue(want is None or got == want, (got, want))
            elif key == "best_length":
                self.assertEqual([len(b) for b in best], value)
            elif key == "best_length_at_least":
                self.assertGreaterEqual([len(b) for b in best], value)
            elif key == "best_begins_with":
                self.assertTrue(all(b[:len(w)] == w for b, w in zip(best, value)))
            elif key == "hypotheses_count":
                self.assertTrue(all(want is None or len(got) == number(want) for got, want in each), [len(f) for f in found])
            elif key == "hypotheses":
                for got, want in zip(tokens, value):
                    self.assertEqual({k: got[int(k)] for k in want}, want)
            elif key == "attention_shape_of_best":
                self.assertEqual([[len(h[0]["attention"]), len(h[0]["attention"][0])] for h in found], value)
            elif key == "attention_rows_have_source_length":
                self.assertTrue(all(len(row) == want for got, want in each for row in got[0]["attention"]))
            elif key == "attention_zero_from_source_position":
                self.assertTrue(all(set(row[want:]) <= {0} for got, want in each for row in got[0]["attention"]))
            elif key == "attention_rows_of_best":
                self.assertEqual([len(h[0]["attention"]) for h in found], value)
            elif key in ("distinct_tokens", "distinct_ngrams"):
                n = 1 if key == "distinct_tokens" else value
                for b in best:
                    grams = [tuple(b[i:i + n]) for i in range(len(b) - n + 1)]
                    self.assertEqual(len(set(grams)), len(grams), b)
            elif key == "distinct_tokens_at_position":
                for got, want in zip(tokens, value):
                    self.assertEqual(len({t[want] for t in got}), len(got))
            elif key == "every_hypothesis_length":
                self.assertEqual({len(t) for got in tokens for t in got}, {value})
            elif key == "every_attention_rows":
                self.assertEqual({len(h["attention"]) for got in found for h in got}, {value})
            elif key == "every_hypothesis_begins_with":
                self.assertTrue(all(t[:len(value)] == value for got in tokens for t in got))
            elif key == "every_score":
                self.assertEqual({h["score"] == 0 for got in found for h in got}, {value == "0"})
            elif key == "best_score_below":
                self.assertTrue(all(h[0]["score"] < value for h in found))
            elif key == "score_with_length_penalty_1_is_score_with_0_over":
                sums = self.hypotheses({**case, "options": {**case["options"], "length_penalty": 0}}, beams)[0][0]
                n = len(best[0]) + ("</s>" in value)
                self.assertAlmostEqual(found[0][0]["score"], sums["score"] / n, delta=expect["score_tolerance"])
            elif key == "same_best_as_without_prefix":
                free = self.hypotheses({k: v for k, v in case.items() if k != "prefixes"}
                                       | {"options": {}}, beams)
                for got, want in zip(found, free):
                    self.assertEqual(got[0]["text"], want[0]["text"])
                    self.assertAlmostEqual(got[0]["score"], want[0]["score"], delta=expect["score_tolerance"])

    def test_reference_facts(self):
        asked = 0
        for case in self.cases:
            o = {**self.defaults, **case.get("options", {})}
            # Text has no end tokens to return or to choose, no masks: see test_reference_ends.
            if case["kind"] != "translate" or o["return_end_token"] or o["end_token"] != "</s>" or "source_ids" in case:
                continue
            scores = []
            for beams in case["beam_sizes"]:
                with self.subTest(case["name"], beams=beams):
                    found = self.hypotheses(case, beams)
                    asked += 1
                    if found is None:
                        continue
                    self.compare(case, beams, found)
                    scores += [found[0][0]["score"]] if found else []
            if case["expect"].get("same_score_for_all_beam_sizes"):
                self.assertLess(max(scores) - min(scores), case["expect"]["score_tolerance"])
        self.assertGreaterEqual(asked, 65)

    def test_reference_ends(self):
        with open(os.path.join(self.model, "tokenizer.json"), encoding="utf8") as file:
            target = json.load(file)["model"]["vocab"]
        with open(os.path.join(self.model, "source", "tokenizer.json"), encoding="utf8") as file:
            source = json.load(file)["model"]["vocab"]
        letters = {i: t for t, i in target.items()}
        for case in self.cases:
            o = {**self.defaults, **case.get("options", {})}
            if case["kind"] != "translate" or not (o["return_end_token"] or o["end_token"] != "</s>"):
                continue
            ids = [source[t] for t in case["sources"][0]]
            self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids),
                                                            "decoder_input_ids": ("I64", [1, 1], [target["<s>"]])}))
            for beams in case["beam_sizes"]:
                settings = f"num_beams={beams},max_new_tokens=60,eos_token_id={target.get(o['end_token'], 999)}"
                command = ["forward", self.model, "--inputs", "in.safetensors", "--outputs", "out.safetensors", "--generate", settings]
                if "error" in case["expect"]:
                    self.refused(*command, says="999")
                    continue
                self.ok(*command)
                words = [letters[i] for i in load_safetensors(self.path("out.safetensors"))["sequences"][1][1:]]
                want = case["expect"]["best"][0]
                self.assertEqual(words, want if o["return_end_token"] else want + [o["end_token"]], case["name"])


if __name__ == "__main__":
    main()
