#!/usr/bin/env python3
"""Special tokens that are added to a pretrained model, and the parameters that training moves.

usage: test_new_tokens.py QKV [unittest arguments]
"""
# Covers: qkv/train/run/initial_weights.cc
import json

from qkv_cli import CliTest, load_safetensors, main, read, read_text, toml

CHATML = ["<|im_start|>", "<|im_end|>"]


class NewTokens(CliTest):
    def setUp(self):
        super().setUp()
        self.write("talk.jsonl", "".join(json.dumps({"messages": [{"role": "user", "content": f"say {i % 5}"},
                                                                  {"role": "assistant", "content": f"it is {i % 5}"}]}) + "\n"
                                         for i in range(40)))

    def pretrained(self, **model):
        """A Llama-style model: a tokenizer of SentencePiece, whose files stay as they are."""
        self.write("base.toml", toml({
            "data": {"train": "text.txt"}, "tokenizer": {"type": "sentencepiece_bpe", "vocab_size": 300},
            "model": {"preset": "llama", "context": 64, "width": 16, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 32}
            | model, "train": {"out": "base", "steps": 2, "batch": 2, "precision": "f32"}}))
        self.ok("train", "base.toml", "--overwrite")

    def chat(self, **keys):
        sections = {"data": {"train": "talk.jsonl"}, "tokenizer": {"add_special": CHATML}, "model": {"from": "base"},
                    "train": {"objective": "chat", "out": "chat", "steps": 4, "batch_tokens": 300, "precision": "f32",
                              "checkpoint_every": 2}}
        for key, value in keys.items():
            section, name = key.split("__")
            sections[section][name] = value
        return self.write("chat.toml", toml(sections))

    def rows(self, run, name):
        (count, width), values = load_safetensors(self.path(run, "best/model.safetensors"))[name]
        return [values[i * width:(i + 1) * width] for i in range(count)]

    def test_chatml_needs_its_tokens(self):
        self.pretrained()
        self.chat(tokenizer__add_special=[])
        self.refused("train", "chat.toml", status=1,
                     says=["data.chat_template: the default (ChatML) needs the token <|im_end|>, which this model's tokenizer "
                           "lacks", "tokenizer.add_special"])

    def test_the_embeddings_of_a_narrow_base_grow(self):
        self.pretrained()
        self.ok("quantize", "base", "--type", "bf16", "--out", "narrow.gguf")
        self.chat(model__from="narrow.gguf", train__learning_rate=0.0, train__min_learning_rate=0.0)
        self.ok("train", "chat.toml", "--overwrite")
        name = "model.embed_tokens.weight"
        before, after = self.rows("base", name), self.rows("chat", name)
        self.assertEqual(len(after), len(before) + 2)
        for old, new in zip(before[5], after[5]):
            self.assertLessEqual(abs(old - new), 2 ** -8 * abs(old))

    def test_the_embeddings_grow(self):
        for tied in (True, False):
            with self.subTest(tied=tied):
                self.pretrained(tied=tied)
                self.chat(train__learning_rate=0.0, train__min_learning_rate=0.0)
                self.ok("train", "chat.toml", "--overwrite")
                tables = ["model.embed_tokens.weight"] + ([] if tied else ["lm_head.weight"])
                for name in tables:
                    before, after = self.rows("base", name), self.rows("chat", name)
                    self.assertEqual(len(after), len(before) + 2, name)
                    self.assertEqual(after[:len(before)], before)
                    for c in range(len(before[0])):
                        mean = sum(row[c] for row in before) / len(before)
                        deviation = (sum((row[c] - mean) ** 2 for row in before) / len(before)) ** 0.5
                        for row in after[len(before):]:
                            self.assertLess(abs(row[c] - mean), 0.6 * deviation)
                    self.assertNotEqual(after[-1], after[-2])
                config = json.loads(read_text(self.path("chat/best/config.json")))
                self.assertEqual(config["vocab_size"], len(self.rows("chat", tables[0])))

    def test_it_is_used_and_resumed(self):
        self.pretrained()
        self.chat()
        self.ok("train", "chat.toml")
        for run in ("chat", "chat/last"):
            ids = self.ok("tokenizer", "encode", self.path(run) if "/" in run else self.path(run, "best"),
                          stdin="<|im_start|>user").out
            self.assertIn(str(len(self.rows("chat", "model.embed_tokens.weight")) - 2), ids)
        self.assertIn("<|im_start|>", read_text(self.path("chat/best/chat_template.jinja")))
        self.ok("generate", "chat", "--prompt", "<|im_start|>user\nsay 1<|im_end|>\n<|im_start|>assistant\n", "--tokens", "4")
        self.ok("train", "chat", "--resume", "--set", "train.steps=6")
        self.assertEqual(json.loads(read(self.path("chat/last/trainer_state.json")))["step"], 6)
        # From what was made, a run goes on without adding anything.
        self.chat(train__out="again", model__from="chat", tokenizer__add_special=[])
        self.ok("train", "chat.toml")
        self.assertEqual(len(self.rows("again", "model.embed_tokens.weight")),
                         len(self.rows("chat", "model.embed_tokens.weight")))

    def test_to_a_tokenizer_that_is_trained(self):
        self.write("c.toml", toml({"data": {"train": "text.txt"}, "tokenizer": {"vocab_size": 280, "add_special": ["<|x|>"]},
                                   "model": {"context": 16, "width": 16, "layers": 1, "heads": 2},
                                   "train": {"out": "run", "steps": 2, "batch": 2}}))
        self.ok("train", "c.toml")
        self.assertIn("<|x|>", read_text(self.path("run/best/tokenizer.json")))
        self.assertIn('add_special = ["<|x|>"]', read_text(self.path("run/config.toml")).replace("'", '"'))
        self.ok("train", "run", "--resume")

    def test_refusals(self):
        self.pretrained()
        self.chat(model__lora_rank=2)
        self.refused("train", "chat.toml", status=2, says=["tokenizer.add_special", "LoRA"])
        self.chat(tokenizer__add_special=[""])
        self.refused("train", "chat.toml", status=1, says="special tokens: one is empty")


class Trainable(CliTest):
    def summary(self, *sets):
        return self.ok("train", "tune.toml", "--dry-run", *[a for s in sets for a in ("--set", s)]).err.splitlines()[0]

    def test_shown_as_peft_does(self):
        self.train(out="base", steps=2)
        self.write("tune.toml", toml({"data": {"train": "text.txt"}, "model": {"from": "base"},
                                      "train": {"out": "tuned", "steps": 2, "batch": 2}}))
        self.assertNotIn("trainable", self.summary())
        lora = self.summary("model.lora_rank=2")
        # Linear layers of one block of width 16: rank x (inputs + outputs).
        trainable = 2 * ((16 + 48) + (16 + 16) + (16 + 64) + (64 + 16))
        count = load_safetensors(self.path("base/best/model.safetensors"))
        total = sum(len(values) for _, values in count.values()) + trainable
        self.assertIn(f"{total:,} parameters, {trainable:,} of them trainable ({100 * trainable / total:.1f}%)", lora)
        frozen = self.summary('train.freeze=["embedding.*"]')
        self.assertRegex(frozen, r"[0-9,]+ parameters, [0-9,]+ of them trainable \([0-9.]+%\)")
        self.assertIn("trainable", self.ok("plan", "tune.toml", "--no-timing", "--set", "model.lora_rank=2").out)


if __name__ == "__main__":
    main()
