#!/usr/bin/env python3
"""qkv plan: what it says of a run's memory, arithmetic and time.

usage: test_plan.py QKV [unittest arguments]
"""
import json

from qkv_cli import CliTest, main

SETTINGS = {"model.layers": 2, "model.width": 32, "model.heads": 2, "model.context": 16, "train.batch": 4,
            "train.steps": 50, "train.accumulate": 3, "train.memory_gb": 0.5, "train.precision": "f32"}


class Plan(CliTest):
    def setUp(self):
        super().setUp()
        self.write("text.txt", "the quick brown fox jumps over the lazy dog\n" * 100)
        self.write("config.toml",
                   'data.train = "text.txt"\ndata.cache = false\ntokenizer.type = "char"\ntrain.out = "run"\n')

    def run_plan(self, *options, **settings):
        values = {**SETTINGS, **{key.replace("__", "."): value for key, value in settings.items()}}
        words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return self.ok("plan", "config.toml", *words, *options).out

    def plan(self, *options, **settings):
        return json.loads(self.run_plan("--json", *options, **settings))

    def test_numbers_follow_from_the_configuration(self):
        plan = self.plan("--no-timing")
        self.assertEqual(plan["batch"], 4)
        self.assertEqual(plan["tokens_per_step"], 4 * 3 * 16)
        self.assertEqual(plan["memory_total"], sum(plan["memory"].values()))
        self.assertEqual(plan["memory_limit"], 5 * 10**8)
        self.assertNotIn("seconds", plan)
        twice = self.plan("--no-timing", train__batch=8)
        self.assertEqual(twice["flops_per_step"], 2 * plan["flops_per_step"])
        self.assertEqual(twice["parameters"], plan["parameters"])
        self.assertGreater(twice["memory_total"], plan["memory_total"])

    def test_the_largest_batch_is_the_last_that_fits(self):
        most = self.plan("--no-timing")["largest_batch"]
        fits = self.plan("--no-timing", train__batch=most)
        self.assertLessEqual(fits["memory_total"], fits["memory_limit"])
        self.assertEqual(self.plan("--no-timing", train__batch="fit")["batch"], most)
        # One more does not: the status says so, and the plan is printed all the same.
        values = {**SETTINGS, "train.batch": most + 1}
        result = self.qkv("plan", "config.toml", "--no-timing", "--json",
                          *[word for key, value in values.items() for word in ("--set", f"{key}={value}")])
        self.assertEqual(result.status, 1, result)
        self.assertIn("does not fit", result.err)
        does_not = json.loads(result.out)
        self.assertGreater(does_not["memory_total"], does_not["memory_limit"])

    def test_every_objective_mixture_and_adapter_has_a_plan(self):
        def rows(name, head, line):
            self.write(name, head + "".join(line(i) for i in range(60)))
        rows("pairs.tsv", "source\ttarget\n", lambda i: f"the fox {i}\ta dog {i}\n")
        rows("rows.tsv", "text\tlabel\n", lambda i: f"the fox {i}\t{'one' if i % 2 else 'two'}\n")
        rows("numbers.tsv", "text\tlabel\n", lambda i: f"the fox {i}\t{i / 7}\n")
        rows("choices.jsonl", "", lambda i: json.dumps({"question": f"which {i}", "choices": ["fox", f"dog {i}"], "label": i % 2}) + "\n")
        rows("twins.tsv", "text\ttext_pair\n", lambda i: f"the fox {i}\ta dog {i}\n")
        rows("tags.conll", "", lambda i: f"the A\nfox{i} B\n\n")
        rows("answers.tsv", "question\tcontext\tanswer\n", lambda i: f"which {i}\tthe quick fox {i}\tfox\n")
        rows("chat.jsonl", "", lambda i: json.dumps({"messages": [{"role": "user", "content": f"fox {i}"},
                                                                 {"role": "assistant", "content": "dog"}]}) + "\n")
        self.ok("train", "config.toml", *[word for key, value in SETTINGS.items() if key != "train.memory_gb"
                                          for word in ("--set", f"{key}={value}")], "--set", "train.out=base")
        plans = {"masked": ("encoder", "text.txt"), "permutation": ("encoder", "text.txt"), "chat": ("decoder", "chat.jsonl"),
                 "sequence_to_sequence": ("encoder_decoder", "pairs.tsv"), "span_corruption": ("encoder_decoder", "text.txt"),
                 "denoise": ("encoder_decoder", "text.txt"), "prefix_lm": ("encoder_decoder", "text.txt"), "classify": ("encoder", "rows.tsv"), "tag": ("encoder", "tags.conll"),
                 "multi_label": ("encoder", "rows.tsv"), "regression": ("encoder", "numbers.tsv"), "multiple_choice": ("encoder", "choices.jsonl"),
                 "embed": ("encoder", "twins.tsv"), "answer": ("encoder", "answers.tsv")}
        keys = ["tokenizer.type=\"byte\"", "data.cache=false", "train.out=\"run\"", "train.memory_gb=0.5", "train.precision=\"f32\"",
                "train.steps=50", "model.context=32", "model.width=32", "model.layers=2", "model.heads=2"]
        configs = {o: [*keys, f"train.objective=\"{o}\"", f"model.architecture=\"{a}\"", f"data.train=\"{f}\"",
                       *(["data.second_column=\"text_pair\""] if o == "embed" else []), "train.batch_tokens=256"]
                   for o, (a, f) in plans.items()}
        configs["mixture"] = [*keys, "train.batch=4", "train.batch_tokens=256", "mix.a.train=\"text.txt\"", "mix.b.train=\"pairs.tsv\"",
                              "mix.b.objective=\"sequence_to_sequence\""]
        configs["reused keys"] = [*keys, "train.objective=\"masked\"", "model.architecture=\"encoder\"", "data.train=\"text.txt\"",
                                  "model.layer_kinds=[\"default\", \"reused\"]", "model.kind.reused.reused_keys=true",
                                  "train.batch_tokens=256"]
        configs["adapter"] = [*keys[1:-4], "data.train=\"rows.tsv\"", "train.objective=\"classify\"", "model.from=\"base\"",
                              "model.lora_rank=2", "train.batch_tokens=256"]
        for name, lines in configs.items():
            with self.subTest(name):
                self.write("any.toml", "\n".join(lines) + "\n")
                plan = json.loads(self.ok("plan", "any.toml", "--json").out)
                self.assertGreater(plan["seconds"], 0)
                self.assertGreater(plan["flops_per_step"], 0)
                self.assertEqual(plan["largest_batch"] > 0, name == "mixture")
                most = plan["largest_batch_tokens"]
                self.assertGreater(most, 256)
                beyond = min(most + 2, 1 << 24)
                totals = [json.loads(self.qkv("plan", "any.toml", "--json", "--no-timing", "--set", f"train.batch_tokens={n}").out)
                          ["memory_total"] for n in (most, beyond)]
                self.assertLessEqual(totals[0], plan["memory_limit"])
                self.assertTrue(totals[1] > plan["memory_limit"] or most == 1 << 24)
                self.assertIn(f"largest batch_tokens  {most}\n", self.ok("plan", "any.toml", "--no-timing").out)

    def test_time_is_of_all_steps(self):
        plan = self.plan()
        self.assertGreater(plan["seconds_per_step"], 0)
        self.assertAlmostEqual(plan["seconds"], 50 * plan["seconds_per_step"])

    def test_text_has_the_same_numbers(self):
        plan, text = self.plan("--no-timing"), self.run_plan("--no-timing")
        self.assertRegex(text, rf"parameters +{plan['parameters']}\n")
        self.assertRegex(text, rf"largest batch +{plan['largest_batch']}\n")

    def test_a_run_that_cannot_be_is_refused(self):
        self.refused("plan", "config.toml", "--set", "data.train=none.txt", status=1, says="none.txt")


if __name__ == "__main__":
    main()
