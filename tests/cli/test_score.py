#!/usr/bin/env python3
"""qkv score.

usage: test_score.py QKV [unittest arguments]
"""
import json
import math

from qkv_cli import FinishedRun, load_safetensors, main, safetensors_bytes


class Score(FinishedRun):
    CHOICES = ["fox jumps", "lazy", "xx", " "]

    def score(self, *arguments, **options):
        return [json.loads(line) for line in self.ok("score", self.run_dir, *arguments, **options).out.splitlines()]

    def arguments(self, choices):
        return [a for c in choices for a in ("--choice", c)]

    def expected(self, prompt, choices):
        """log P of each choice by `qkv forward`, one at a time."""
        out = []
        for choice in choices:
            ids = [int(i) for i in self.ok("tokenizer", "encode", self.run_dir, stdin=prompt + choice).out.split()]
            self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids)}))
            self.ok("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
            (_, _, vocab), logits = load_safetensors(self.path("out.safetensors"))["logits"]
            total = 0
            for i in range(len(prompt), len(ids)):
                row = logits[(i - 1) * vocab:i * vocab]
                total += row[ids[i]] - math.log(sum(math.exp(z) for z in row))
            out.append(total)
        return out

    def test_equals_forward(self):
        expected = self.expected("the ", self.CHOICES)
        (answer,) = self.score("--prompt", "the ", *self.arguments(self.CHOICES), "--json")
        self.assertEqual([c["choice"] for c in answer["choices"]], self.CHOICES)
        for choice, log_p in zip(answer["choices"], expected):
            length = len(choice["choice"])
            self.assertAlmostEqual(choice["logprob"], log_p, delta=1e-4)
            self.assertAlmostEqual(choice["per_token"], log_p / length, delta=1e-4)
            self.assertAlmostEqual(choice["per_byte"], log_p / length, delta=1e-4)
            self.assertEqual(choice["tokens"], length)
        self.assertEqual(answer["best"], expected.index(max(expected)))
        self.assertEqual(answer["best_choice"], self.CHOICES[answer["best"]])

    def test_table(self):
        for by, key in (("sum", "logprob"), ("token", "per_token"), ("byte", "per_byte")):
            arguments = ["--prompt", "the ", *self.arguments(self.CHOICES[:2]), "--by", by]
            (answer,) = self.score(*arguments, "--json")
            values = [c[key] for c in answer["choices"]]
            self.assertEqual(answer["best"], values.index(max(values)))
            lines = self.ok("score", self.run_dir, *arguments).out.splitlines()[1:]
            self.assertEqual([line.startswith("*") for line in lines], [v == max(values) for v in values])
            self.assertIn(f"{values[0]:.4f}", lines[0])
            self.assertIn('"lazy"', lines[1])

    def test_verify(self):
        greedy = self.ok("generate", self.run_dir, "--prompt", "the ", "--tokens", "12", "--temperature", "0",
                         "--no-echo").out.removesuffix("\n")
        self.assertGreater(len(greedy), 5)
        other = "q" if greedy[4] != "q" else "z"
        choices = [greedy, greedy[:4] + other + greedy[5:], other]
        arguments = ["--prompt", "the ", *self.arguments(choices), "--verify"]
        (answer,) = self.score(*arguments, "--json")
        whole, part, none = answer["choices"]
        self.assertEqual((whole["accepted"], whole["accepted_text"], whole["instead"]), (len(greedy), greedy, None))
        self.assertEqual((part["accepted"], part["accepted_text"], part["instead"]), (4, greedy[:4], greedy[4]))
        self.assertEqual((none["accepted"], none["accepted_text"]), (0, ""))
        lines = self.ok("score", self.run_dir, *arguments).out.splitlines()
        self.assertEqual(lines[4], f"all {len(greedy)} tokens accepted")
        self.assertEqual(lines[5], f"4 of {len(greedy)} tokens accepted: {json.dumps(greedy[:4])}, "
                                   f"then {json.dumps(greedy[4])} instead")

    def test_json_lines(self):
        questions = [("the ", self.CHOICES), ("a", [" dog"]), ("fox\n", ["and", "then"])]
        lines = "\n".join(json.dumps({"prompt": p, "choices": c}) for p, c in questions)
        self.write("questions.jsonl", lines)
        answers = self.score("--file", "questions.jsonl")
        self.assertEqual(answers, self.score(stdin=lines + "\n\n"))
        self.assertEqual(len(answers), 3)
        for answer, (prompt, choices) in zip(answers, questions):
            self.assertEqual(answer["prompt"], prompt)
            (alone,) = self.score("--prompt", prompt, *self.arguments(choices), "--json")
            self.assertEqual(answer, alone)

    def test_examples(self):
        self.write("e.jsonl", '{"template": "{input} {output}", "separator": " "}\n{"input": "a", "output": "fox"}\n')
        (answer,) = self.score("--prompt", "the", "--choice", "dog", "--examples", "e.jsonl", "--json")
        (expected,) = self.expected("a fox the ", ["dog"])
        self.assertAlmostEqual(answer["choices"][0]["logprob"], expected, delta=1e-4)
        self.assertEqual(answer["prompt"], "the")

    def test_bad_input(self):
        score = ("score", self.run_dir)
        self.refused(*score, "--prompt", "a", "--choice", "", status=1, says="choice")
        self.refused(*score, "--prompt", "", "--choice", "a", status=1, says=["precedes", '"a"'])
        self.refused(*score, "--prompt", "a" * 17, "--choice", "a", status=1, says=["18", "context is 16"])
        self.refused(*score, "--file", "missing.jsonl", status=1, says="missing.jsonl")
        self.refused(*score, "--file", ".", status=1, says=".: is a directory")
        for line, says in (("x", "JSON"), ("[1]", "object"), ("{}", "prompt"), ('{"prompt": 3}', "string"),
                           ('{"prompt": "a"}', "choices"), ('{"prompt": "a", "choices": []}', "choices"),
                           ('{"prompt": "a", "choices": "b"}', "list"),
                           ('{"prompt": "a", "choices": [3]}', "choices[0]"),
                           ('{"prompt": "a", "choices": ["b"], "gold": 0}', "gold"),
                           ('{"prompt": "a", "choices": [""]}', "no token")):
            with self.subTest(line=line):
                self.refused(*score, stdin="\n" + line, status=1, says=["standard input:2", says])


if __name__ == "__main__":
    main()
