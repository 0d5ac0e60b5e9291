#!/usr/bin/env python3
"""qkv init, and qkv train from data alone.

usage: test_init.py QKV [unittest arguments]
"""
# Covers: qkv/train/run/suggest_config.cc
import json
import os
import random

from qkv_cli import CliTest, main, make_text, read, read_text, snapshot, WORDS


def made(seed, words):
    chooser = random.Random(seed)
    return " ".join(chooser.choice(WORDS) for _ in range(words))


class Init(CliTest):
    def setUp(self):
        super().setUp()
        mood = lambda i: "good" if i % 2 else "bad"
        self.write("reviews.csv", "id,review,mood\n" + "".join(f'{i},"{made(i, 8)}, {mood(i)}",{mood(i)}\n' for i in range(200)))
        self.write("bare.tsv", "".join(f"{mood(i)} {made(i, 6)}\t{mood(i)}\n" for i in range(200)))
        self.write("words.conllu", "".join(
            "".join(f"{k + 1}\t{w}\t_\t{'X' if len(w) > 3 else 'Y'}\t_\t_\t_\t_\t_\t_\n" for k, w in
                    enumerate(made(i, 5).split())) + "\n" for i in range(120)))
        self.write("pairs.tsv", "source\ttarget\n" + "".join(f"{made(i, 5)}\t{made(i, 5).upper()}\n" for i in range(200)))
        self.write("train.en", "".join(f"{made(i, 5)}\n" for i in range(150)))
        self.write("train.de", "".join(f"{made(i, 5).upper()}\n" for i in range(150)))
        self.write("talk.jsonl", "".join(json.dumps({"messages": [{"role": "user", "content": made(i, 3)},
                                                                  {"role": "assistant", "content": made(i, 3)}]}) + "\n"
                                         for i in range(80)))
        self.write("names.txt", "".join(sorted({made(i, 1) + made(i + 7, 1) + "\n" for i in range(900)})))

    def init(self, *arguments):
        result = self.ok("init", *arguments, "--minutes", "0.002", "--out", "made.toml", "--overwrite")
        checked = self.ok("train", "made.toml", "--dry-run")
        self.assertIn("Configuration is valid", checked.err)
        return read_text(self.path("made.toml")), checked.err, result

    def trains(self, run):
        self.ok("train", "made.toml", "--set", "train.steps=12", "--overwrite")
        self.assertTrue(os.path.exists(self.path(run, "last/model.safetensors")))
        return self.path(run)

    def test_text(self):
        text, _, result = self.init("text", "text.txt")
        self.assertIn('train = "text.txt"', text)
        self.assertIn('out = "runs/text"', text)
        self.assertNotIn("separator", text)
        self.assertIn("qkv train made.toml", result.err)
        self.assertLess(max(map(len, text.splitlines())), 120)
        self.ok("generate", self.trains("runs/text"), "--prompt", "the", "--tokens", "3")

    def test_a_list_of_names(self):
        text, checked, _ = self.init("text", "names.txt", "--run", "r")
        self.assertIn('separator = "\\n"', text)
        self.assertIn('out = "r"', text)

    def test_classes(self):
        text, checked, _ = self.init("classify", "reviews.csv")
        self.assertIn('text_column = "review"', text)
        self.assertIn('label_column = "mood"', text)
        self.assertIn("of 2 classes", checked)
        said = self.ok("classify", self.trains("runs/reviews"), stdin="the lazy dog is good\n").out
        self.assertIn(said.split()[0], ("good", "bad"))

    def test_rows_without_a_header(self):
        text, checked, _ = self.init("classify", "bare.tsv")
        self.assertIn('columns = ["column1", "column2"]', text)
        self.assertIn('label_column = "column2"', text)
        self.assertRegex(checked, "160 training|162 training|161 training|163 training|[0-9]+ training")
        self.assertIn("of 2 classes", checked)

    def test_tags(self):
        text, checked, _ = self.init("tag", "words.conllu")
        self.assertIn('objective = "tag"', text)
        self.assertIn("of 2 classes", checked)
        self.ok("tag", self.trains("runs/words"), stdin="the lazy dog\n")

    def test_translations(self):
        text, _, _ = self.init("translate", "pairs.tsv")
        self.assertIn('architecture = "encoder_decoder"', text)
        self.ok("translate", self.trains("runs/pairs"), stdin="the lazy dog\n")
        text, _, _ = self.init("translate", "train.en", "--target", "train.de")
        self.assertIn('train_target = "train.de"', text)

    def test_conversations(self):
        text, _, _ = self.init("chat", "talk.jsonl")
        self.assertIn('objective = "chat"', text)
        self.trains("runs/talk")

    def test_scripts_without_spaces(self):
        chooser = random.Random(1)
        kana = "あいうえおかきくけこさしすせそたちつてと"
        text = lambda i: "".join(chooser.choice(kana) for _ in range(12)) + ("良い" if i % 2 else "悪い")
        self.write("ja.tsv", "text\tlabel\n" + "".join(f"{text(i)}\t{i % 2}\n" for i in range(200)))
        made_of, _, _ = self.init("classify", "ja.tsv")
        self.assertIn('type = "unigram"', made_of)
        self.trains("runs/ja")

    def test_time_and_size(self):
        """More time and more text give more steps and larger models."""
        self.write("large.txt", make_text(words=120000))

        def keys(name, minutes):
            text = self.ok("init", "text", name, "--minutes", str(minutes), "--out", "-").out
            values = dict(line.split("#")[0].strip().split(" = ") for line in text.splitlines() if " = " in line.split("#")[0])
            return int(values["steps"]), int(values["width"]) * int(values["layers"])

        short, long = keys("large.txt", 0.01), keys("large.txt", 20)
        self.assertLess(short[0], long[0])
        small = keys("text.txt", 20)
        self.assertLess(small[1], long[1])

    def test_refusals(self):
        self.refused("init", "text", "none.txt", status=1, says="none.txt: no such file")
        self.refused("init", "classify", "text.txt", status=1, says=["text.txt", "rows"])
        self.refused("init", "translate", "text.txt", status=1, says="--target")
        self.refused("init", "poem", "text.txt", status=2, says="TASK")
        self.refused("init", "tag", "words.conllu", "--minutes", "-1", status=2, says="--minutes")
        self.write("text.toml", "mine")
        self.refused("init", "text", "text.txt", status=1, says=["text.toml", "--out"])
        self.assertEqual(read(self.path("text.toml")), b"mine")
        self.write("empty.txt", "")
        self.refused("init", "text", "empty.txt", status=1, says="empty.txt: the file is empty")
        self.write("one.csv", "text,label\na,b\n")
        self.refused("init", "classify", "one.csv", status=1, says="too few rows")
        self.write("zero.txt", b"PK\0\0\1")
        self.refused("init", "text", "zero.txt", status=1, says="bytes of value 0")
        self.refused("init", "chat", "text.txt", "--out", "new.toml", status=1, says=["text.txt", "messages"])
        self.write("alpaca.jsonl", '{"instruction": "a", "output": "b"}\n' * 30)
        self.refused("init", "chat", "alpaca.jsonl", status=1, says=["alpaca.jsonl", "messages"])
        self.write("same.csv", "text,label\n" + "".join(f"{made(i, 4)},x\n" for i in range(40)))
        self.refused("init", "classify", "same.csv", status=1, says=["same.csv", "class"])

    def test_lists_of_words_and_tags(self):
        self.write("words.jsonl", "".join(json.dumps({"tokens": made(i, 5).split(), "ner_tags": ["A", "B", "A", "C", "B"]}) + "\n"
                                          for i in range(120)))
        text, checked, _ = self.init("tag", "words.jsonl")
        self.assertIn("120 sentences, 600 words with 3 tags", text)
        self.assertIn("of 3 classes", checked)

    def test_labels_with_spaces(self):
        self.write("trail.csv", "text,label\n" + "".join(f"{made(i, 6)},{'ab'[i % 2]}{' ' * (i % 3)}\n" for i in range(200)))
        text, _, _ = self.init("classify", "trail.csv")
        self.assertIn("of 2 classes", text)

    def test_a_short_text(self):
        self.write("short.txt", made(1, 120))
        self.init("text", "short.txt")


class TrainFromData(CliTest):
    def test_a_text(self):
        result = self.ok("train", "text.txt", "--set", "train.steps=6")
        self.assertIn("text.txt: ", result.err.splitlines()[0])
        self.assertIn("qkv init", result.err.splitlines()[0])
        self.assertTrue(os.path.exists(self.path("runs/text/config.toml")))
        self.ok("generate", "runs/text", "--prompt", "the", "--tokens", "3")
        before = snapshot(self.path("runs"))
        self.refused("train", "text.txt", status=1, says=["runs/text", "--resume", "--overwrite"])
        self.assertEqual(snapshot(self.path("runs")), before)
        self.ok("train", "text.txt", "--resume", "--set", "train.steps=8")
        self.assertEqual(json.loads(read(self.path("runs/text/last/trainer_state.json")))["step"], 8)
        self.ok("train", "text.txt", "--overwrite", "--set", "train.steps=2", "--set", "train.out=other")
        self.assertTrue(os.path.exists(self.path("other/last")))

    def test_a_text_with_holes(self):
        """Another objective, or an encoder's preset, counts its steps in tokens."""
        result = self.ok("train", "text.txt", "--preset", "bert", "--set", "train.steps=4", "--set", "train.out=r")
        self.assertIn("an encoder of width", result.err)
        self.assertIn("batch_tokens = ", read_text(self.path("r/config.toml")))
        self.ok("fill", "r", stdin="the [MASK] dog\n")
        self.ok("train", "text.txt", "--preset", "reformer", "--set", "train.objective=masked", "--set",
                "model.architecture=encoder", "--set", "train.out=m", "--dry-run")
        # Settings that only some of the sizes fit: 256 has no 3 heads.
        self.ok("train", "text.txt", "--set", "model.width=256", "--set", "train.out=w", "--dry-run")
        self.refused("train", "text.txt", "--set", "model.width=7", "--set", "train.out=w", status=2, says="7 is not divisible")
        self.refused("train", "text.txt", "--set", "train.objective=masked", "--set", "train.out=n", status=2,
                     says=["text.txt", "train.objective", "encoder"])

    def test_rows_with_classes(self):
        self.write("moods.csv", "text,label\n" + "".join(f"{made(i, 5)} {'good' if i % 2 else 'bad'},{i % 2}\n" for i in range(120)))
        result = self.ok("train", "moods.csv", "--set", "train.steps=6")
        self.assertIn("of 2 classes", result.err)
        self.assertIn(self.ok("classify", "runs/moods", stdin="a good dog\n").out.split()[0], ("0", "1"))

    def test_a_text_without_an_extension(self):
        self.write("poem", "Shall I compare thee to a summer's day?\n" * 80)
        self.ok("train", "poem", "--set", "train.steps=2")
        self.write("configuration", '[data]\ntrain = "text.txt"\n[model]\nwidth = 16\nheads = 2\nlayers = 1\n'
                                    '[train]\nsteps = 2\nout = "c"\n')
        self.ok("train", "configuration", "--dry-run")
        self.refused("train", "none.txt", status=1, says="none.txt")

    def test_a_dry_run(self):
        self.assertIn("Configuration is valid", self.ok("train", "text.txt", "--dry-run").err)
        self.assertFalse(os.path.exists(self.path("runs")))


if __name__ == "__main__":
    main()
