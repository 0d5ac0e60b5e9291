#!/usr/bin/env python3
"""qkv generate.

usage: test_generate.py QKV [unittest arguments]
"""
# Covers: qkv/cli/questions.cc, qkv/cli/draft_options.cc
import json
import math
import os
import re
import shutil

from qkv_cli import configuration, FinishedRun, load_safetensors, main, make_text, read, safetensors_bytes


class Generate(FinishedRun):
    def generate(self, *arguments, tokens=40, **options):
        return self.ok("generate", self.run_dir, "--tokens", str(tokens), *arguments, **options).out

    def test_same_seed_same_text(self):
        first = self.generate("--prompt", "the ", "--seed", "5")
        self.assertEqual(first, self.generate("--prompt", "the ", "--seed", "5"))
        self.assertNotEqual(first, self.generate("--prompt", "the ", "--seed", "6"))
        self.assertTrue(first.startswith("the "))
        self.assertEqual(len(first), len("the ") + 40 + 1)

    def test_prompt_from_option_file_and_stdin(self):
        self.write("prompt.txt", "the fox ")
        wanted = self.generate("--prompt", "the fox ", "--seed", "5")
        self.assertEqual(self.generate("--file", "prompt.txt", "--seed", "5"), wanted)
        self.assertEqual(self.generate("--seed", "5", stdin="the fox "), wanted)

    def test_echo(self):
        whole = self.generate("--prompt", "the ", "--seed", "5")
        self.assertEqual("the " + self.generate("--prompt", "the ", "--seed", "5", "--no-echo"), whole)

    def test_temperature_zero_needs_no_seed(self):
        first = self.generate("--prompt", "the ", "--temperature", "0")
        self.assertEqual(first, self.generate("--prompt", "the ", "--temperature", "0"))
        self.assertEqual(first, self.generate("--prompt", "the ", "--top-k", "1"))

    def test_longer_than_the_context(self):
        text = self.generate("--prompt", "the " * 30, "--seed", "1")
        self.assertTrue(text.startswith("the " * 30))
        self.assertEqual(len(text), 120 + 40 + 1)

    def test_bad_prompts(self):
        self.write("latin1.txt", b"caf\xe9")
        self.refused("generate", self.run_dir, "--prompt", "", status=1, says="prompt")
        self.refused("generate", self.run_dir, status=1, says="prompt", stdin="")
        self.refused("generate", self.run_dir, "--file", "missing.txt", status=1, says="missing.txt")
        self.refused("generate", "missing", "--prompt", "a", status=1, says="missing")

    def samples(self, *arguments, **options):
        """The JSON lines of --json."""
        return [json.loads(line) for line in self.generate("--json", *arguments, **options).splitlines()]

    def test_prompts_of_ids(self):
        text = self.ok("generate", self.run_dir, "--prompt", "the", "--tokens", "5", "--temperature", "0").out
        ids = self.ok("tokenizer", "encode", self.run_dir, stdin="the").out.split()
        self.assertEqual(self.ok("generate", self.run_dir, "--ids", ",".join(ids), "--tokens", "5", "--temperature", "0").out, text)
        for wrong in ("-1", "999", "1,x", "1.5"):
            self.refused("generate", self.run_dir, "--ids", wrong, status=2, says=["--ids", wrong.split(",")[-1]])
        self.refused("generate", self.run_dir, "--ids", "1", "--prompt", "a", status=2, says=["--ids", "--prompt"])
        # A model without a tokenizer has ids for a text.
        bare = self.path("bare")
        os.mkdir(bare)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(self.run_dir, "best", name), bare)
        self.refused("generate", bare, "--prompt", "a", says=["no tokenizer", "--ids"])
        said = self.ok("generate", bare, "--ids", ",".join(ids), "--tokens", "5", "--temperature", "0").out.split()
        self.assertEqual(said[:len(ids)], ids)
        line = json.loads(self.ok("generate", bare, "--ids", ",".join(ids), "--tokens", "5", "--temperature", "0", "--json").out)
        self.assertEqual(line["ids"], [int(i) for i in said[len(ids):]])
        self.assertEqual(line["text"].split(), said[len(ids):])
        self.assertEqual(len(self.ok("generate", bare, "--ids", ids[0], "--tokens", "3", "--beams", "2", "--no-echo").out.split()), 3)
        # Each id may come, 0 too.
        drawn = self.ok("generate", bare, "--ids", ids[0], "--tokens", "400", "--temperature", "100", "--seed", "1", "--no-echo").out.split()
        self.assertIn("0", drawn)

    def test_settings_without_effect_are_rejected(self):
        for option, value in (("--top-k", "3"), ("--top-p", "0.5"), ("--min-p", "0.1"), ("--typical-p", "0.5")):
            self.refused("generate", self.run_dir, "--prompt", "a", "--temperature", "0", option, value, status=2,
                         says=f"{option}: has no effect")
        self.refused("generate", self.run_dir, "--prompt", "a", "--temperature", "0", "--seed", "3", status=2, says="--seed: has no effect")
        for more in (["--length-penalty", "2"], ["--stop-early"]):
            self.refused("generate", self.run_dir, "--prompt", "a", "--beams", "1", *more, status=2, says=[more[0], "one beam"])

    def test_prompts_of_files(self):
        self.write("p.txt", b"the fox\r\nthe\r\n")
        self.write("q.txt", b"the fox\nthe\n")
        both = [self.ok("generate", self.run_dir, "--file", name, "--tokens", "3", "--temperature", "0").out for name in ("p.txt", "q.txt")]
        self.assertEqual(both[0], both[1])
        self.write("l.txt", b"caf\xe9")
        self.refused("generate", self.run_dir, "--file", "l.txt", says=["l.txt", "0xE9", "UTF-8"])
        # Bytes are a text to a model that learnt bytes.
        self.write("text.txt", make_text())
        self.write("bytes.toml", configuration(out="bytes", tokenizer__type="byte"))
        self.ok("train", "bytes.toml")
        self.write("b.bin", b"\xff\r\n")
        said = self.ok("generate", "bytes", "--file", "b.bin", "--tokens", "1", "--temperature", "0", "--json").out
        self.assertEqual(len(json.loads(said)["ids"]), 1)

    def test_json(self):
        text = self.generate("--prompt", "the ", "--seed", "5", "--no-echo")
        (sample,) = self.samples("--prompt", "the ", "--seed", "5")
        self.assertEqual(sample["text"] + "\n", text)
        self.assertEqual((sample["sample"], sample["seed"], sample["finish_reason"]), (0, 5, "length"))
        decoded = self.ok("tokenizer", "decode", self.run_dir, stdin=" ".join(map(str, sample["ids"]))).out
        self.assertEqual(decoded, sample["text"])

    def test_samples_equal_runs_of_their_own(self):
        samples = self.samples("--prompt", "the ", "--seed", "5", "--samples", "3")
        self.assertEqual([s["seed"] for s in samples], [5, 6, 7])
        for sample in samples:
            alone = self.generate("--prompt", "the ", "--seed", str(sample["seed"]), "--no-echo")
            self.assertEqual(sample["text"] + "\n", alone)
        text = self.generate("--prompt", "the ", "--seed", "5", "--samples", "3")
        self.assertEqual(text, "".join(f"--- sample {i + 1} of 3 (seed {5 + i})\nthe {s['text']}\n"
                                       for i, s in enumerate(samples)))

    def test_stop(self):
        whole = self.generate("--prompt", "the ", "--seed", "5", "--no-echo")[:-1]
        for stop in (whole[10:13], whole[0], whole[-1], whole[5:9]):
            with self.subTest(stop=stop):
                cut = self.generate("--prompt", "the ", "--seed", "5", "--no-echo", "--stop", "NEVER", "--stop", stop)
                self.assertEqual(cut, whole[:whole.index(stop)] + "\n")
                (sample,) = self.samples("--prompt", "the ", "--seed", "5", "--stop", stop)
                self.assertEqual((sample["text"], sample["finish_reason"]), (whole[:whole.index(stop)], "stop"))
                self.assertEqual(len(sample["ids"]), whole.index(stop) + len(stop))
        # Text that looked like a stop string to the end is printed after all.
        self.assertEqual(self.generate("--prompt", "the ", "--seed", "5", "--no-echo", "--stop", whole[-3:] + "NEVER"),
                         whole + "\n")

    def test_beams(self):
        searched = ["--prompt", "the ", "--beams", "3"]
        text = self.generate(*searched, "--no-echo", tokens=6)[:-1]
        best = self.samples(*searched, "--samples", "3", tokens=6)
        self.assertEqual([text, len(text), len(best)], [best[0]["text"], 6, 3])
        self.assertEqual(sorted((b["score"] for b in best), reverse=True), [b["score"] for b in best])
        # One beam goes where the likeliest tokens do; what each is worth, forward says.
        self.assertEqual(self.generate("--prompt", "the ", "--beams", "1", tokens=6), self.generate("--prompt", "the ", "--temperature", "0", tokens=6))
        (drawn,) = self.samples("--prompt", "the ", "--temperature", "0", "--logprobs", "0", tokens=6)
        self.assertGreaterEqual(best[0]["logprob"], sum(t["logprob"] for t in drawn["tokens"]) - 1e-4)
        # As its makers generate, unless an option draws.
        shutil.copytree(os.path.join(self.run_dir, "best"), self.path("copy"))
        fields = json.loads(read(self.path("copy/generation_config.json")))
        self.write("copy/generation_config.json", json.dumps({**fields, "num_beams": 3}))
        made = ["generate", "copy", "--prompt", "the ", "--no-echo"]
        self.assertEqual(self.ok(*made, "--tokens", "6").out[:-1], text)
        self.assertEqual(len(self.ok(*made, "--tokens", "40", "--seed", "5").out), 41)
        self.write("copy/generation_config.json", json.dumps({**fields, "num_beams": 3, "do_sample": True}))
        self.refused(*made, status=1, says=["num_beams", "do_sample"])
        self.refused("generate", self.run_dir, "--prompt", "a", "--beams", "2", "--top-k", "3", status=2, says=["--top-k", "--beams"])
        self.refused("generate", self.run_dir, "--prompt", "a", "--beams", "2", "--samples", "3", status=2, says=["--samples", "2 beams"])

    def test_stop_of_several_samples(self):
        plain = self.samples("--prompt", "the ", "--seed", "5", "--samples", "4")
        stopped = self.samples("--prompt", "the ", "--seed", "5", "--samples", "4", "--stop", "e")
        for sample, whole in zip(stopped, plain):
            self.assertEqual(sample["text"], whole["text"].split("e")[0])

    def test_log_probabilities_equal_forward(self):
        arguments = ["--prompt", "the ", "--seed", "5", "--temperature", "2", "--repetition-penalty", "2",
                     "--logprobs", "3"]
        (sample,) = self.samples(*arguments, tokens=8)
        prompt = [int(i) for i in self.ok("tokenizer", "encode", self.run_dir, stdin="the ").out.split()]
        ids = prompt + sample["ids"]
        self.write("in.safetensors", safetensors_bytes({"input_ids": ("I64", [1, len(ids)], ids)}))
        self.ok("forward", self.run_dir, "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        (_, _, vocab), logits = load_safetensors(self.path("out.safetensors"))["logits"]
        self.assertEqual(len(sample["tokens"]), 8)
        for i, token in enumerate(sample["tokens"], len(prompt)):
            row = logits[(i - 1) * vocab:i * vocab]
            normalizer = math.log(sum(math.exp(z) for z in row))
            self.assertEqual(token["id"], ids[i])
            self.assertAlmostEqual(token["logprob"], row[ids[i]] - normalizer, delta=1e-5)
            best = sorted(range(vocab), key=lambda v: -row[v])[:3]
            self.assertEqual([t["id"] for t in token["likeliest"]], best)
            for other in token["likeliest"]:
                self.assertAlmostEqual(other["logprob"], row[other["id"]] - normalizer, delta=1e-5)
        table = self.generate(*arguments, "--no-echo", tokens=8).splitlines()[-8:]
        for line, token in zip(table, sample["tokens"]):
            self.assertTrue(line.lstrip().startswith(f"{token['logprob']:.4f}"), (line, token))
            self.assertIn(json.dumps(token["token"]), line)
        self.assertEqual(self.samples(*arguments[:-1], "0")[0]["tokens"][0]["likeliest"], [])

    def test_vote(self):
        arguments = ["--prompt", "the ", "--seed", "5", "--samples", "9"]
        pattern, answers = r"([a-z])[a-z]*\s", {}
        *samples, vote = self.samples(*arguments, "--vote", pattern)
        for sample in samples:
            found = re.findall(pattern, sample["text"])
            self.assertEqual(sample["answer"], found[-1] if found else None)
            if found:
                answers[found[-1]] = answers.get(found[-1], 0) + 1
        ranked = sorted(answers.items(), key=lambda item: -item[1])
        self.assertEqual([(v["answer"], v["count"]) for v in vote["votes"]], ranked)
        self.assertEqual(vote["winner"], ranked[0][0])
        lines = self.generate(*arguments, "--vote", pattern).splitlines()
        self.assertEqual(lines[-1], f"winner: {ranked[0][0]}")
        self.assertEqual(lines[-1 - len(ranked):-1], [f"{count:6}  {answer}" for answer, count in ranked])
        result = self.qkv("generate", self.run_dir, *arguments, "--vote", "NEVER")
        self.assertEqual(result.status, 1, result)
        self.assertIn("--vote", result.err)

    def test_questions(self):
        """Each line of a .jsonl file is a prompt of its own; its answer is compared with the known one."""
        questions = ["the fox ", "a dog ", "the "]
        options = ["--temperature", "0", "--tokens", "12", "--stop", "e"]
        answers = [self.ok("generate", self.run_dir, "--no-echo", "--prompt", q, *options).out.strip() for q in questions]
        lines = [{"input": questions[0], "output": f" {answers[0]}\n"},
                 {"input": questions[1], "output": answers[1] + "?", "rationale": "is not read"},
                 {"input": questions[2]}]
        self.write("q.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n")
        *found, last = self.ok("generate", self.run_dir, "--file", "q.jsonl", "--json", *options).out.splitlines()
        found = [json.loads(line) for line in found]
        self.assertEqual([f["answer"] for f in found], answers)
        self.assertEqual([f.get("right") for f in found], [True, False, None])
        self.assertEqual(json.loads(last), {"questions": 3, "known": 2, "right": 1, "unanswered": 0, "accuracy": 0.5})
        shown = self.ok("generate", self.run_dir, "--file", "q.jsonl", *options)
        self.assertIn(f"right  {questions[0]}  ->  {answers[0]}\n", shown.out)
        self.assertIn(f"wrong  {questions[1]}  ->  {answers[1]} (is {answers[1]}?)\n", shown.out)
        self.assertTrue(shown.out.endswith("accuracy 0.5000: 1 of 2 answers are right\n"), shown.out)
        self.write("none.jsonl", '{"input": "the "}\n')
        self.assertNotIn("accuracy", self.ok("generate", self.run_dir, "--file", "none.jsonl", *options).out)

    def test_drafts_change_no_token(self):
        """By n-grams, by the model itself, and by another one; greedy and sampled; with stops and probabilities."""
        shutil.copytree(os.path.join(self.run_dir, "best"), self.path("small"))
        for options in (["--temperature", "0"], ["--seed", "3"], ["--seed", "4", "--stop", "e", "--top-k", "4"],
                        ["--temperature", "0", "--logprobs", "2"], ["--seed", "2", "--samples", "3", "--json"]):
            arguments = ["generate", self.run_dir, "--prompt", "the f", "--tokens", "11", *options]
            plain = self.ok(*arguments)
            self.assertEqual(plain.err, "")
            for draft in (["ngrams"], ["small"], ["small", "--draft-tokens", "2"]):
                drafted = self.ok(*arguments, "--draft", *draft)
                self.assertEqual(drafted.out, plain.out)
                self.assertRegex(drafted.err, r"^drafts: \d+ of \d+ tokens taken, \d\.\d\d tokens a pass\n$")
                if draft[0] == "small" and "--stop" not in options:  # it drafts what it would write
                    taken, of = re.findall(r"\d+", drafted.err)[:2]
                    self.assertEqual(taken, of)
        self.write("q.jsonl", '{"input": "the fox "}\n{"input": "a dog "}\n')
        questions = ["generate", self.run_dir, "--file", "q.jsonl", "--temperature", "0", "--tokens", "6"]
        self.assertEqual(self.ok(*questions, "--draft", "ngrams").out, self.ok(*questions).out)
        prompt = ["generate", self.run_dir, "--prompt", "the"]
        self.refused(*prompt, "--beams", "2", "--draft", "ngrams", says=["--draft: has no effect in a search"])
        self.refused(*prompt, "--draft", "nowhere", says=["nowhere", "no such directory"])

    def test_prompt_cache(self):
        arguments = ["generate", self.run_dir, "--prompt", "the fox and", "--tokens", "4", "--seed", "1"]
        plain = self.ok(*arguments).out
        for _ in range(2):
            self.assertEqual(self.ok(*arguments, "--prompt-cache", "prompts").out, plain)
            (name,) = os.listdir(self.path("prompts"))
            self.assertRegex(name, r"^prompt-[0-9a-f]{16}-[0-9a-f]{16}\.safetensors$")
            self.assertEqual(os.stat(self.path("prompts", name)).st_mode & 0o777, 0o600)
        with open(self.path("prompts", name), "r+b") as file:
            file.truncate(100)
        self.assertEqual(self.ok(*arguments, "--prompt-cache", "prompts").out, plain)
        self.refused("generate", self.run_dir, "--prompt", "the", "--beams", "2", "--prompt-cache", "prompts",
                     says=["--prompt-cache: has no effect in a search"])

    def test_questions_by_vote(self):
        """The samples of a question are those of a run of its own, and the majority decides."""
        options = ["--samples", "5", "--seed", "3", "--tokens", "8", "--vote", "[a-z]"]
        alone = self.ok("generate", self.run_dir, "--prompt", "the ", "--json", *options).out.splitlines()
        winner = json.loads(alone[-1])["winner"]
        self.write("q.jsonl", json.dumps({"input": "a ", "output": 7}) + "\n" + json.dumps({"input": "the ", "output": winner}))
        first, second, last = map(json.loads, self.ok("generate", self.run_dir, "--file", "q.jsonl", "--json", *options).out.splitlines())
        self.assertEqual(second["answer"], winner)
        self.assertEqual(second["votes"], json.loads(alone[-1])["votes"])
        self.assertEqual(second["texts"], [json.loads(line)["text"] for line in alone[:-1]])
        self.assertEqual((first["output"], first["right"], second["right"], last["accuracy"]), ("7", False, True, 0.5))
        nothing = [json.loads(line) for line in self.ok("generate", self.run_dir, "--file", "q.jsonl", "--json",
                                                        *options[:-1], "[0-9]{9}").out.splitlines()]
        self.assertEqual((nothing[0]["answer"], nothing[-1]["unanswered"], nothing[-1]["accuracy"]), (None, 2, 0))

    def test_questions_are_checked(self):
        for text, says in (("", "no question"), ('{"output": "a"}', 'q.jsonl:1: "input" is missing'),
                           ('{"input": "a"}\n{"input": "a", "outptu": "b"}', "q.jsonl:2"), ("x", "q.jsonl:1"),
                           ('{"input": "a", "output": ["b"]}', "output")):
            self.write("q.jsonl", text)
            self.refused("generate", self.run_dir, "--file", "q.jsonl", status=1, says=says)
        self.write("q.jsonl", '{"input": "the "}')
        self.refused("generate", self.run_dir, "--file", "q.jsonl", "--beams", "2", says="questions")
        self.refused("generate", self.run_dir, "--file", "q.jsonl", "--logprobs", "2", says="questions")

    def test_penalties_and_filters_change_the_text(self):
        plain = self.generate("--prompt", "the ", "--seed", "5")
        for option in (["--min-p", "0.9"], ["--typical-p", "0.3"], ["--repetition-penalty", "5"],
                       ["--frequency-penalty", "5"], ["--presence-penalty", "-9"]):
            with self.subTest(option=option):
                self.assertNotEqual(self.generate("--prompt", "the ", "--seed", "5", *option), plain)
        self.assertEqual(self.generate("--prompt", "the ", "--seed", "5", "--min-p", "1"),
                         self.generate("--prompt", "the ", "--temperature", "0"))
        # No token twice: the vocabulary has more than 15 characters.
        text = self.generate("--prompt", "the ", "--presence-penalty", "100", "--no-echo", tokens=15)[:-1]
        self.assertEqual(len(set(text)), 15, text)

    def test_tokens_without_text_are_never_drawn(self):
        """<unk>, and ids beyond the tokenizer's: at an infinite temperature each would come up soon."""
        (sample,) = self.samples("--prompt", "the ", "--seed", "1", "--temperature", "inf", tokens=500)
        self.assertEqual(len(sample["text"]), 500)
        shutil.copytree(os.path.join(self.run_dir, "last"), self.path("padded"))
        padding, vocab = 300, 0
        tensors = {}
        for name, (shape, values) in load_safetensors(self.path("padded/model.safetensors")).items():
            if name == "transformer.wte.weight":
                vocab = shape[0]
                shape, values = [vocab + padding, shape[1]], values + [0.0] * (padding * shape[1])
            tensors[name] = ("F32", shape, values)
        self.write("padded/model.safetensors", safetensors_bytes(tensors))
        config = json.loads(read(self.path("padded/config.json")))
        self.write("padded/config.json", json.dumps(dict(config, vocab_size=vocab + padding)))
        out = self.ok("generate", "padded", "--json", "--prompt", "the ", "--temperature", "inf", "--tokens", "200").out
        sample = json.loads(out)
        self.assertEqual(len(sample["text"]), 200)
        self.assertLess(max(sample["ids"]), vocab)

    def test_examples(self):
        self.write("e.toml", 'separator = "\\n"\ntemplate = "{input} jumps {output}"\n'
                             '[[example]]\ninput = "fox"\noutput = "over"\n')
        prompt = "fox jumps over\ndog jumps"
        wanted = self.generate("--prompt", prompt, "--seed", "5")
        self.assertEqual(self.generate("--prompt", "dog", "--examples", "e.toml", "--seed", "5"), wanted)
        self.assertEqual(self.generate("--examples", "e.toml", "--seed", "5", stdin="dog\n"), wanted)
        self.write("e.jsonl", '{"input": "fox"}')
        self.refused("generate", self.run_dir, "--prompt", "a", "--examples", "e.jsonl", status=1,
                     says=["e.jsonl:1", "output"])


if __name__ == "__main__":
    main()
