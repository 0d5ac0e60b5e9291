#!/usr/bin/env python3
"""Questions with choices: train, choose, eval, forward.

usage: test_choices.py QKV [unittest arguments]
"""
# Covers: qkv/train/corpora/choices.cc, qkv/cli/choose_command.cc
import json
import math
import random

from qkv_cli import CliTest, configuration, load_safetensors, main, read_text, safetensors_bytes, write

SOUNDS = {"cow": "moo", "dog": "bark", "fox": "yip", "cat": "purr", "hen": "cluck", "owl": "hoot"}


def questions(count, seed, least=2, most=4):
    """Question, choices, number of the right one."""
    draw, out = random.Random(seed), []
    for _ in range(count):
        animal = draw.choice(sorted(SOUNDS))
        choices = draw.sample([s for s in SOUNDS.values() if s != SOUNDS[animal]], draw.randint(least, most) - 1)
        right = draw.randint(0, len(choices))
        choices.insert(right, SOUNDS[animal])
        out.append((f"the {animal} says", choices, right))
    return out


def json_rows(rows):
    return "".join(json.dumps({"question": q, "choices": c, "label": r}) + "\n" for q, c, r in rows)


class Choices(CliTest):
    def config(self, **more):
        return configuration(**{"data__train": "train.jsonl", "data__valid": "valid.jsonl", "tokenizer__type": "wordpiece",
                                "tokenizer__vocab_size": 120, "model__architecture": "encoder", "model__context": 16,
                                "model__dropout": 0.0, "objective": "multiple_choice", "steps": 150, "eval_every": 50,
                                "checkpoint_every": 50, "batch_tokens": 512, "learning_rate": 0.005, "out": "run",
                                **more}).replace("batch = 4\n", "")

    def run_of(self, **more):
        self.write("train.jsonl", json_rows(questions(300, 1)))
        self.write("valid.jsonl", json_rows(questions(60, 2)))
        self.write("c.toml", self.config(**more))
        return self.ok("train", "c.toml")

    def test_it_learns_and_chooses(self):
        trained = self.run_of()
        self.assertRegex(trained.err, r"300 training, 60 validation and 0 test questions")
        self.assertRegex(trained.err, r"most frequent position [0-9.]+%, a guess [0-9.]+%")
        self.assertIn("next: qkv choose run --file questions.jsonl", trained.err)
        config = json.loads(read_text(self.path("run/best/config.json")))
        self.assertEqual((config["architectures"], "id2label" in config), (["BertForMultipleChoice"], False))
        # Lines, with unlike numbers of choices and an empty one.
        plain = self.ok("choose", "run", stdin="the cow says\tyip\tmoo\n\nthe owl says\tpurr\tbark\thoot\tmoo\n").out.split("\n")
        self.assertRegex(plain[0], r"^moo\t0\.[0-9]{4}$")
        self.assertRegex(plain[2], r"^hoot\t0\.[0-9]{4}$")
        self.assertEqual((plain[1], plain[3:]), ("", [""]))
        # Rows; what the probabilities say is what eval counts.
        found = [json.loads(x) for x in self.ok("choose", "run", "--file", "valid.jsonl", "--json").out.splitlines()]
        rows, right, loss = questions(60, 2), 0, 0
        self.assertEqual(len(found), 60)
        for f, (question, choices, answer) in zip(found, rows):
            self.assertEqual((f["question"], f["choices"]), (question, choices))
            self.assertAlmostEqual(sum(f["probabilities"]), 1, 5)
            self.assertEqual(f["number"], max(range(len(choices)), key=lambda c: f["probabilities"][c]))
            self.assertEqual((f["choice"], f["probability"]), (choices[f["number"]], f["probabilities"][f["number"]]))
            right += f["number"] == answer
            loss -= math.log(f["probabilities"][answer]) / 60
        self.assertGreater(right, 55)
        judged = json.loads(self.ok("eval", "run", "--data", "valid.jsonl", "--json", "--errors", "3").out)
        self.assertAlmostEqual(judged["accuracy"], right / 60)
        self.assertAlmostEqual(judged["loss"], loss, 4)
        self.assertEqual((judged["examples"], len(judged["errors"])), (60, min(3, 60 - right)))
        self.write("wrong.jsonl", json_rows([("the cow says", ["moo", "yip"], 1)]))
        self.assertRegex(self.ok("eval", "run", "--data", "wrong.jsonl", "--errors").out,
                         r"wrong.jsonl:1: true yip, predicted moo \(probability 0\.[0-9]+\): the cow says")
        # Chunks of any size, and each question alone, give the same.
        one = [json.loads(self.ok("choose", "run", "--json", stdin="\t".join([q, *c]) + "\n").out) for q, c, _ in rows[:3]]
        for a, b in zip(one, found):
            for x, y in zip(a["probabilities"], b["probabilities"]):
                self.assertAlmostEqual(x, y, 5)
        # Files without labels, with other values that are no texts, and with spaces around.
        self.write("new.jsonl", json.dumps({"question": "the cow says", "choices": ["yip", "moo "], "label": None, "more": [1]}) + "\n")
        self.assertRegex(self.ok("choose", "run", "--file", "new.jsonl").out, r"^moo \t0\.[0-9]+$")
        self.write("new.jsonl", json.dumps({"question": "the cow says", "choices": ["yip", "moo "], "label": "moo "}) + "\n")
        self.assertEqual(json.loads(self.ok("eval", "run", "--data", "new.jsonl", "--json").out)["accuracy"], 1)
        # Several models decide together; a file of lines whose name says rows.
        self.write("c.toml", self.config(out="other", seed=2))
        self.ok("train", "c.toml")
        two = [json.loads(self.ok("choose", *dirs, "--json", stdin="the cow says\tyip\tmoo\t\n").out)["probabilities"]
               for dirs in (("run",), ("other",), ("run", "--ensemble", "other"))]
        for a, b, both in zip(*two):
            self.assertAlmostEqual((a + b) / 2, both, 6)
        # Columns that a file lacks are named, and never left out.
        self.write("c.toml", self.config(out="article", data__train="article.jsonl", data__valid="article.jsonl", data__text_column="article",
                                         data__second_column="question", data__label_column="answer", steps=2, eval_every=2, checkpoint_every=2))
        article = [{"article": "a farm", "question": q, "choices": c, "answer": "ABCD"[r]} for q, c, r in rows]
        self.write("article.jsonl", "".join(json.dumps(x) + "\n" for x in article))
        self.ok("train", "c.toml")
        for missing in ("article", "question", "choices"):
            self.write("less.jsonl", "".join(json.dumps({k: v for k, v in x.items() if k != missing}) + "\n" for x in article))
            for command in (["choose", "article", "--file"], ["eval", "article", "--data"]):
                self.refused(*command, "less.jsonl", says=["less.jsonl", f"'{missing}'"])
        # A format that the run's files do not have by their names; missing files have one message.
        self.write("quiz.txt", "question\ta\tb\tlabel\nthe cow says\tmoo\tyip\t0\nthe fox says\tmoo\tyip\t1\n")
        self.write("c.toml", self.config(out="quiz", data__train="quiz.txt", data__valid="quiz.txt", data__format="tsv",
                                         data__choice_columns=["a", "b"], steps=2, eval_every=2, checkpoint_every=2))
        self.ok("train", "c.toml")
        found = [json.loads(x) for x in self.ok("choose", "quiz", "--file", "quiz.txt", "--json").out.splitlines()]
        self.assertEqual([f["choices"] for f in found], [["moo", "yip"]] * 2)
        self.assertEqual(len(self.refused("choose", "run", "--file", "none.csv", says=["none.csv"]).err.splitlines()), 1)
        for option in (["--delimiter", ";"], ["--format", "jsonl"]):
            self.refused("choose", "run", *option, stdin="a\tb\tc\n", says=[option[0]])
        # Other commands point here.
        self.refused("classify", "run", stdin="a\n", says=["qkv choose run"])
        self.refused("choose", "run", "--text-column", "q", stdin="a\tb\tc\n", says=["--text-column", "rows"])
        self.refused("choose", "run", stdin="the cow says\tmoo\n", says=[":1: ", "1 choice", "two"])

    def test_resume_and_noise(self):
        """A run that is lengthened equals one that was never stopped; noise changes texts, not which choice is right."""
        noisy = {"token_drop": 0.1, "token_swap": 0.1, "token_mask": 0.1, "schedule": "constant", "warmup_steps": 1}
        self.run_of(steps=20, eval_every=10, checkpoint_every=10, **noisy)
        config = self.config(steps=10, eval_every=10, checkpoint_every=10, out="again", **noisy)
        self.write("c.toml", config)
        self.ok("train", "c.toml")
        self.write("c.toml", config.replace("steps = 10\n", "steps = 20\n"))
        self.ok("train", "c.toml", "--resume")
        self.assertEqual(load_safetensors(self.path("run/last/model.safetensors")),
                         load_safetensors(self.path("again/last/model.safetensors")))

    def test_forms_of_data(self):
        """All ways to write the same questions give the same model."""
        rows = [(q, c, r) for q, c, r in questions(80, 3, 3, 3)]
        letters = "ABC"
        forms = {
            "number.jsonl": ("".join(json.dumps({"question": q, "choices": c, "label": r}) + "\n" for q, c, r in rows), {}),
            "text.jsonl": ("".join(json.dumps({"question": q, "choices": c, "label": c[r]}) + "\n" for q, c, r in rows), {}),
            "letter.jsonl": ("".join(json.dumps({"question": q, "choices": c, "label": letters[r]}) + "\n" for q, c, r in rows), {}),
            "named.jsonl": ("".join(json.dumps({"question": q, "choices": {"text": c, "label": ["x", "y", "1"]},
                                                "answerKey": ["x", "y", "1"][r]}) + "\n" for q, c, r in rows),
                            {"data__label_column": "answerKey"}),
            "columns.tsv": ("sent\tlabel\ta\tb\tc\n" + "".join(f"{q}\t{r}\t{c[0]}\t{c[1]}\t{c[2]}\n" for q, c, r in rows),
                            {"data__text_column": "sent", "data__choice_columns": ["a", "b", "c"]}),
        }
        losses = set()
        for name, (text, keys) in forms.items():
            self.write(name, text)
            self.write("c.toml", self.config(data__train=name, data__valid=name, steps=2, eval_every=2, checkpoint_every=2,
                                             out=name + ".run", **keys))
            self.ok("train", "c.toml")
            judged = json.loads(self.ok("eval", name + ".run", "--data", name, "--json").out)
            losses.add((judged["loss"], judged["accuracy"]))
            found = self.ok("choose", name + ".run", "--file", name).out
            self.assertEqual(len(found.splitlines()), 80, name)
        self.assertEqual(len(losses), 1, losses)
        # The text before each choice, and fewer choices at the end of a row.
        self.write("parts.csv", "first,before,right,a,b,c\nthe cow,says,0,moo,yip,\nthe fox,says,2,moo,purr,yip\n")
        self.write("c.toml", self.config(data__train="parts.csv", data__valid="parts.csv", steps=2, eval_every=2, out="parts",
                                         checkpoint_every=2, data__text_column="first", data__second_column="before",
                                         data__label_column="right", data__choice_columns=["a", "b", "c"]))
        self.ok("train", "c.toml")
        found = [json.loads(x) for x in self.ok("choose", "parts", "--file", "parts.csv", "--json").out.splitlines()]
        self.assertEqual([(f["question"], f["second"], f["choices"]) for f in found],
                         [("the cow", "says", ["moo", "yip"]), ("the fox", "says", ["moo", "purr", "yip"])])
        ids = json.loads(self.ok("tokenizer", "encode", "parts", "--jsonl", stdin=json.dumps("the cow") + "\n").out)
        second = json.loads(self.ok("tokenizer", "encode", "parts", "--jsonl", stdin=json.dumps("says yip") + "\n").out)
        joined = ids + second[1:]  # [CLS] the cow [SEP] says yip [SEP]
        write(self.path("in.safetensors"), safetensors_bytes({
            "input_ids": ("I64", [1, 1, len(joined)], joined),
            "token_type_ids": ("I64", [1, 1, len(joined)], [0] * len(ids) + [1] * (len(second) - 1))}))
        self.ok("forward", "parts", "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        yip = load_safetensors(self.path("out.safetensors"))["logits"][1][0]
        first = [math.log(p) for p in found[0]["probabilities"]]
        joined = ids + json.loads(self.ok("tokenizer", "encode", "parts", "--jsonl", stdin=json.dumps("says moo") + "\n").out)[1:]
        write(self.path("in.safetensors"), safetensors_bytes({
            "input_ids": ("I64", [1, 1, len(joined)], joined),
            "token_type_ids": ("I64", [1, 1, len(joined)], [0] * len(ids) + [1] * (len(joined) - len(ids)))}))
        self.ok("forward", "parts", "--inputs", "in.safetensors", "--outputs", "out.safetensors")
        moo = load_safetensors(self.path("out.safetensors"))["logits"][1][0]
        self.assertAlmostEqual(first[0] - first[1], moo - yip, 5)

    def test_data_that_cannot_be_read(self):
        good = {"question": "the cow says", "choices": ["moo", "yip"], "label": 0}
        for change, says in (({"choices": ["moo"]}, ["bad.jsonl:2", "1 choice", "two"]),
                             ({"choices": "moo"}, ["bad.jsonl:2", "'choices'"]),
                             ({"choices": ["moo", " "]}, ["bad.jsonl:2", "choice 2 is empty"]),
                             ({"choices": ["moo", {}]}, ["bad.jsonl:2", "'choices'"]),
                             ({"choices": {"text": ["moo", "yip"], "label": ["A"]}}, ["bad.jsonl:2", "2 choices, but 1"]),
                             ({"label": 2}, ["bad.jsonl:2", "'label'", "from 0 to 1", "letter", "'2'"]),
                             ({"label": ""}, ["bad.jsonl:2", "'label'", "empty"]),
                             ({"question": ["a"]}, ["bad.jsonl:2", "question"])):
            self.write("bad.jsonl", "".join(json.dumps(x) + "\n" for x in (good, {**good, **change}, good)))
            self.write("c.toml", self.config(data__train="bad.jsonl", data__valid="bad.jsonl"))
            self.refused("train", "c.toml", says=says)
        # Labels that can be read in two ways, or mean several choices.
        for choices, labels, says in ((["1", "0", "2"], (0, 1), ["bad.jsonl:1", "the number", "the text", "letters"]),
                                      (["B", "A"], "AB", ["bad.jsonl:1", "the letter", "the text", "numbers"]),
                                      (["moo", "moo", "yip"], ("moo", "yip"), ["bad.jsonl:1", "'moo'"])):
            self.write("bad.jsonl", "".join(json.dumps({"question": "how many", "choices": choices, "label": n}) + "\n" for n in labels))
            self.refused("train", "c.toml", says=says)
        named = {"question": "a", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "label": "A"}
        self.write("bad.jsonl", json.dumps(named) + "\n" + json.dumps(good) + "\n")
        self.refused("train", "c.toml", says=["bad.jsonl:2", "no labels", "bad.jsonl:1"])
        named["choices"]["label"] = ["A", "A"]
        self.write("bad.jsonl", json.dumps(named) + "\n" + json.dumps(named) + "\n")
        self.refused("train", "c.toml", says=["bad.jsonl:1", "'A' is not the label of one choice"])
        self.write("bad.csv", "question,choices,label\na,x|y,0\n")
        self.write("c.toml", self.config(data__train="bad.csv", data__valid="bad.csv"))
        self.refused("train", "c.toml", says=["bad.csv:2", "'choices'", "JSON list", "choice_columns"])
        for columns, says in ((["nope"], ["'nope'", "question, choices, label", "data.choice_columns"]),
                              (["choices", "choices"], ["'choices'", "twice"]), (["label", "choices"], ["'label'", "twice"])):
            self.write("c.toml", self.config(data__train="bad.csv", data__valid="bad.csv", data__choice_columns=columns))
            self.refused("train", "c.toml", says=says)
        self.write("c.toml", self.config(objective="classify", data__choice_columns=["a"]))
        self.refused("train", "c.toml", says=["choice_columns"])

    def test_inputs_of_forward(self):
        self.run_of(steps=1, eval_every=1, checkpoint_every=1)
        draw = random.Random(4)
        for shape, says in (([2, 6], ["input_ids", "[questions, choices, length]"]), ([1, 0, 6], ["input_ids"])):
            ids = [draw.randrange(9) for _ in range(math.prod(shape))]
            write(self.path("in.safetensors"), safetensors_bytes({"input_ids": ("I64", shape, ids)}))
            self.refused("forward", "run", "--inputs", "in.safetensors", "--outputs", "o", says=says)
        ids = [draw.randrange(9) for _ in range(2 * 3 * 4)]
        for name, of, says in (("labels", ("I64", [2, 3], [0] * 6), ["labels", "[2]"]), ("labels", ("I64", [2], [0, 3]), ["labels", "3"]),
                               ("attention_mask", ("I64", [6, 4], [1] * 24), ["attention_mask"])):
            write(self.path("in.safetensors"), safetensors_bytes({"input_ids": ("I64", [2, 3, 4], ids), name: of}))
            self.refused("forward", "run", "--inputs", "in.safetensors", "--outputs", "o", says=says)


if __name__ == "__main__":
    main()
