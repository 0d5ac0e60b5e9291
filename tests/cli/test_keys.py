#!/usr/bin/env python3
"""Every key of a configuration with every objective: another value changes the run, or is an error.

The keys and their ranges are those that `qkv config --json` prints, so that a new one is walked, too.

Keys of [model] are walked with a quarter of the objectives, in turn; with QKV_CHECK_ALL set, with all of them.

usage: test_keys.py QKV [unittest arguments]
"""
import hashlib
import json
import os
import random
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

from qkv_cli import CliTest, main, SLOWNESS, WORDS

DECODER, ENCODER, BOTH = "decoder", "encoder", "encoder_decoder"
OBJECTIVES = {"next_token": (DECODER, "text.txt"), "masked": (ENCODER, "text.txt"), "permutation": (ENCODER, "text.txt"),
              "sequence_to_sequence": (BOTH, "pairs.tsv"), "span_corruption": (BOTH, "text.txt"), "denoise": (BOTH, "text.txt"),
              "prefix_lm": (BOTH, "text.txt"),
              "chat": (DECODER, "chat.jsonl"), "classify": (ENCODER, "rows.tsv"), "tag": (ENCODER, "tags.conll"),
              "multi_label": (ENCODER, "rows.tsv"), "regression": (ENCODER, "numbers.tsv"),
              "multiple_choice": (ENCODER, "choices.tsv"),
              "embed": (ENCODER, "embed.tsv"), "answer": (ENCODER, "answers.tsv")}
# Keys that decide how a run is computed or kept, not what it learns, and those that the walk itself sets.
NO_CHANGE = {"train.out", "train.recompute", "train.memory_gb", "train.zero", "train.checkpoint_every", "data.cache",
             "train.objective", "data.train"}
# Values where a key's default and range say none that differs here.
VALUES = {
    "data.valid": ["['FILE']"], "data.separator": ["'fox'"], "data.train_target": ["'FILE'"], "data.valid_target": ["'FILE'"],
    "data.source_column": ["'target'"], "data.target_column": ["'source'"], "data.prefix": ["'do '"],
    "data.text_column": ["'label'", "'context'"], "data.choice_columns": ["['two', 'one', 'three']"], "data.second_column": ["'label'", "'text'", "'question'"],
    "data.label_column": ["'text'", "'question'"], "data.label_separator": ["'n'"], "data.columns": ["['source', 'target']"], "data.delimiter": ["','"],
    "data.chat_template": ["'chat.jinja'"], "data.test": ["['FILE']"], "data.folds": ["3"], "data.fold": ["2"],
    "data.word_column": ["2"], "data.tag_column": ["1"], "data.min_characters": ["12", "40"], "data.max_characters": ["30"],
    "data.max_ratio": ["1.1"], "tokenizer.path": ["'tok'"], "tokenizer.source_path": ["'tok'"],
    "tokenizer.add_special": ["['<|x|>']"], "tokenizer.min_frequency": ["40"], "model.preset": ["'llama'", "'bert'", "'t5'"],
    "model.size": ["'tiny'"], "model.from": ["'other'"], "model.architecture": ["'decoder'", "'encoder'"],
    "model.order": ["'prefix'"], "model.head_sizes": ["[4, 12]"], "model.patterns": ["['window 2']"],
    "model.layer_kinds": ["['a', 'default']"], "model.lora_targets": ["['q']"],
    "model.attention_dropout": ["0.3"], "model.embedding_dropout": ["0.3"], "model.head_dropout": ["0.3"],
    "train.freeze": ["['*norm*']"], "train.sample_prompt": ["'fox'"], "train.sample_tokens": ["1"], "train.warmup_fraction": ["0.5"],
    "train.warmup_steps": ["2"], "train.batch": ["3"], "train.batch_tokens": ["60"], "train.window": ["8"],
    "train.min_learning_rate": ["0.005"], "train.steps": ["5"], "train.epochs": ["0.5"], "train.precision": ["'bf16'"],
    "train.eval_windows": ["1"], "train.eval_bleu": ["3"], "train.patience": ["1"], "train.keep": ["2"], "train.clip": ["0.01"],
    "train.gradient_noise": ["0.1"], "train.adversarial": ["0.5"], "train.layer_decay": ["0.5"], "train.layer_drop": ["0.5"],
    "train.ema": ["0.5"], "train.weight_noise": ["0.1"],
    "train.best_by": ["'accuracy'", "'bleu'", "'exact_match'", "'f1'", "'loss'"]}

# Values for one objective: a model of a few steps writes nothing, so that shorter samples are the same.
VALUES_OF = {("sequence_to_sequence", "train.sample_tokens"): ["0"]}


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def values(key, default, range_text):
    """Some that are not the default."""
    if key in VALUES:
        return VALUES[key]
    if default in ("true", "false"):
        return ["false" if default == "true" else "true"]
    choices = re.fullmatch(r"one of ((?:\w+, )+\w+)", range_text)
    if choices:
        return [f"'{choice}'" for choice in choices[1].split(", ") if choice not in default]
    usual, bounds = number(default), re.fullmatch(r"(?:at least )?([-\d.e+]+)(?: to ([-\d.e+]+)| or more)?", range_text)
    least, most = (float(bounds[1]), float(bounds[2] or 1e9)) if bounds else (0, 1e9)
    whole = usual is None or re.fullmatch(r"-?\d+", default)
    around = [] if usual is None else [usual * 2, usual + 1, usual / 2]
    fitting = [v for v in around + [1, 2, 0.5, 3, 4, 8, 0.1]
               if least <= v <= most and v != usual and (not whole or v == int(v))]
    return list(dict.fromkeys(str(int(v)) if whole else repr(float(v)) for v in fitting))[:4]


class Keys(CliTest):
    def setUp(self):
        super().setUp()
        chooser = random.Random(1)
        some = lambda n: " ".join(chooser.choice(WORDS) for _ in range(n))
        def rows(name, head, line, count=60):
            self.write(name, head + "".join(line() for _ in range(count)))
        def answer():
            context = some(6)
            return f"{some(2)}\t{context}\t{context.split()[2]}\n"
        rows("text.txt", "", lambda: f"{some(8)}. {some(4)}.\n", 120)
        rows("pairs.tsv", "source\ttarget\n", lambda: (lambda s: f"{s}\t{s[::-1]}\n")(some(chooser.randint(1, 3))), 80)
        rows("chat.jsonl", "", lambda: json.dumps({"messages": [{"role": "user", "content": some(2)},
                                                                {"role": "assistant", "content": some(2)}]}) + "\n")
        rows("rows.tsv", "text\tlabel\n", lambda: f"{some(4)}\t{chooser.choice(['one', 'two'])}\n", 80)
        rows("numbers.tsv", "text\tlabel\n", lambda: f"{some(4)}\t{chooser.random():.3f}\n", 80)
        rows("tags.conll", "", lambda: "".join(f"{chooser.choice(WORDS)} {chooser.choice('AB')}\n" for _ in range(5)) + "\n")
        rows("embed.tsv", "text\ttext_pair\n", lambda: f"{some(3)}\t{some(3)}\n")
        rows("choices.tsv", "question\tlabel\tone\ttwo\tthree\n",
             lambda: f"{some(2)}\t{chooser.randrange(3)}\t{some(1)}\t{some(2)}\t{some(3)}\n")
        rows("answers.tsv", "question\tcontext\tanswer\n", answer)
        self.write("chat.jinja", "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}")
        self.train_once("next_token", {}, "other", keep=True)
        self.ok("tokenizer", "train", "text.txt", "--vocab-size", "270", "--out", "tok")

    @staticmethod
    def base(objective):
        architecture, file = OBJECTIVES[objective]
        keys = {"data.train": f"'{file}'", "data.cache": "false", "tokenizer.type": "'bpe'", "tokenizer.vocab_size": "360",
                "model.architecture": f"'{architecture}'", "model.context": "32", "model.width": "16", "model.layers": "2",
                "model.heads": "2", "train.objective": f"'{objective}'", "train.steps": "4", "train.eval_every": "2",
                "train.log_every": "1", "train.checkpoint_every": "2", "train.precision": "'f32'", "train.learning_rate": "0.01"}
        keys |= {"train.batch": "2"} if objective == "next_token" else {"train.batch_tokens": "128"}
        return keys | ({"data.second_column": "'text_pair'"} if objective == "embed" else {}) | (
            {"data.choice_columns": "['one', 'two', 'three']"} if objective == "multiple_choice" else {})

    def train_once(self, objective, keys, name, keep=False):
        """The last line of stderr of a failure, or None, and what the run left, but for times and its own configuration."""
        config = {**self.base(objective), "train.out": f"'{name}'", **keys}
        self.write(name + ".toml", "".join(f"{key} = {value}\n" for key, value in config.items()))
        result = self.qkv("train", name + ".toml")
        if result.status != 0:
            return result.err.strip().splitlines()[-1], None
        left = {}
        for folder, _, files in os.walk(self.path(name)):
            for file in files:
                path = os.path.join(folder, file)
                if file in ("config.toml", "report.html") or "tfevents" in file:
                    continue
                with open(path, "rb") as opened:
                    data = opened.read()
                if file == "metrics.jsonl":
                    records = [json.loads(line) for line in data.decode().splitlines()]
                    data = json.dumps([{k: v for k, v in r.items() if not re.search("second|time|per_|memory", k)}
                                       for r in records]).encode()
                left[os.path.relpath(path, self.path(name))] = hashlib.sha256(data).hexdigest()
        if not keep:
            shutil.rmtree(self.path(name))
        return None, left

    def test_every_key_with_every_objective(self):
        keys = {f"{key['section']}.{key['key']}": (key["default"], key["range"])
                for key in json.loads(self.ok("config", "--json").out) if "NAME" not in key["section"]}
        self.assertGreater(len(keys), 180)
        self.assertEqual(set(VALUES) - set(keys), set())
        silent, wordless = [], []
        for objective, (_, file) in OBJECTIVES.items():
            error, usual = self.train_once(objective, {}, "usual")
            self.assertIsNone(error, objective)
            self.assertEqual(self.train_once(objective, {}, "again")[1], usual, objective)

            def walk(key):
                tried = [v.replace("FILE", file) for v in VALUES_OF.get((objective, key)) or values(key, *keys[key])]
                outcomes = []
                for i, value in enumerate(v for v in tried if v != self.base(objective).get(key)):
                    error, left = self.train_once(objective, {key: value}, f"{key}-{i}")
                    if error is None and left != usual:
                        return None
                    outcomes.append((objective, key, value, error))
                return next((o for o in outcomes if o[3] is None), outcomes[0] if outcomes else (objective, key, None, None))

            with ThreadPoolExecutor(2) as pool:
                turn = list(OBJECTIVES).index(objective)
                walked = [key for i, key in enumerate(keys) if key not in NO_CHANGE and
                          (not key.startswith("model.") or i % 4 == turn % 4 or "QKV_CHECK_ALL" in os.environ)]
                for outcome in pool.map(walk, walked if SLOWNESS == 1 else walked[::7]):
                    if outcome is not None and outcome[3] is None:
                        silent.append(outcome[:3])
                    elif outcome is not None and not re.search(r"\w+\.\w+|line|column", outcome[3]):
                        wordless.append(outcome)
        self.assertEqual(silent, [], "values that change nothing, and keys without a value to try (None)")
        self.assertEqual(wordless, [], "errors that name no place")


if __name__ == "__main__":
    main()
