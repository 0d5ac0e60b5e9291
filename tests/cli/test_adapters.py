#!/usr/bin/env python3
"""Questions that adapters of one model answer, each its own, together.

usage: test_adapters.py QKV [unittest arguments]
"""
import json

from qkv_cli import CliTest, main, make_text

BASE = """
data.train = "text.txt"
data.cache = false
tokenizer.type = "char"
model = {preset = "llama", layers = 2, width = 24, heads = 2, context = 48}
train = {out = "base", steps = 30, batch = 4, learning_rate = 5e-3, eval_every = 30, precision = "f32"}
"""
ADAPTER = """
data.train = "{text}"
data.cache = false
model = {{from = "base", lora_rank = 2, lora_targets = ["q_proj", "down_proj"]}}
train = {{out = "{out}", steps = 20, batch = 2, learning_rate = 5e-2, eval_every = 20, precision = "f32"}}
"""


class AdaptersOfQuestions(CliTest):
    def test_each_line_has_its_adapter(self):
        text = make_text()
        self.write("text.txt", text)
        self.write("config.toml", BASE)
        self.ok("train", "config.toml")
        letters = "".join(sorted(set(text)))
        self.write("a.txt", text.replace("the", "het"))
        self.write("b.txt", (letters + "\n") * 60)
        for name in "a", "b":
            self.write("adapter.toml", ADAPTER.format(text=f"{name}.txt", out=name))
            self.ok("train", "adapter.toml")
        asked = [("the f", None), ("the f", "a"), ("the f", "b"), ("a dog", "a"), ("the f", None), ("a dog", "b")]
        self.write("q.jsonl", "\n".join(json.dumps({"input": prompt, **({"adapter": name} if name else {})})
                                        for prompt, name in asked))
        options = ["--tokens", "12", "--temperature", "0"]
        answers = [json.loads(line)["texts"][0]
                   for line in self.ok("generate", "base", "--file", "q.jsonl", "--json", *options).out.splitlines()]
        for (prompt, name), answer in zip(asked, answers):
            alone = self.ok("generate", name or "base", "--prompt", prompt, "--no-echo", *options).out
            self.assertEqual(answer, alone[:-1], name)
        self.assertEqual(len({answers[0], answers[1], answers[2]}), 3, answers)

        self.write("q.jsonl", '{"input": "the", "adapter": "nowhere"}')
        self.refused("generate", "base", "--file", "q.jsonl", says=["q.jsonl:1", "nowhere"], status=1)
        self.write("q.jsonl", '{"input": "the", "adapter": "base"}')
        self.refused("generate", "base", "--file", "q.jsonl", says=["q.jsonl", "no directory of an adapter"], status=1)
        self.write("q.jsonl", '{"input": "the", "adapter": "a"}')
        self.refused("generate", "b", "--file", "q.jsonl", says=["has an adapter already"], status=1)


if __name__ == "__main__":
    main()
