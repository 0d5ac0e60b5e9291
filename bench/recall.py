#!/usr/bin/env python3
"""Tasks that tell positions, kinds of attention and mixers apart: copying a sequence; recalling the values of keys (after Arora et
al. 2023: here of all keys, in the alphabet's order, as a single question is learnt by none in so few steps); and remembering one pair
of a key and a value from before many words that say nothing ("far"). Each at lengths that training had and at longer ones. A table of
exact matches of whole answers, in percent; one seed.

    bench/recall.py [--qkv build/qkv] [--steps 3000] [--threads 2] [--only REGEX] [--tasks copy recall far]
"""
import argparse
import json
import pathlib
import random
import re
import string
import subprocess
import sys
import tempfile

VARIATIONS = [
    ("learned positions", ""),
    ("sinusoidal, scaled embeddings", "positions=sinusoidal embedding_scaled=true"),
    ("relative (T5)", "positions=relative"),
    ("rotary", "positions=rotary"),
    ("rotary, a quarter of each head", "positions=rotary rotary_width=4"),
    ("ALiBi", "positions=alibi"),
    ("rotary, window of 8", 'positions=rotary patterns=["window~8"]'),
    ("rotary, windows of 8 and all in turn", 'positions=rotary patterns=["window~8","all"]'),
    ("rotary, strided by 8", 'positions=rotary patterns=["window~8~stride~8"]'),
    ("rotary, blocks of 8 and their last", 'positions=rotary patterns=["block~8~summary~1"]'),
    ("none", "positions=none"),
    ("distance vectors (Shaw)", "relative_attention=shaw"),
    ("distance vectors (Transformer-XL)", "relative_attention=transformer_xl"),
    ("rotary, heads of 8, 8, 16 and 32", "positions=rotary head_sizes=[8,8,16,32]"),
    ("rotary, multi-query", "positions=rotary kv_heads=1"),
    ("rotary, latent attention (16)", "positions=rotary rotary_width=8 kv_latent=16"),
    ("rotary, 4 experts, 2 of a token", "positions=rotary experts=4 expert_hidden=128"),
    ("linear attention", "mixer=linear_attention"),
    ("random features", "mixer=random_features"),
    ("delta rule", "mixer=delta_rule"),
    ("Gated DeltaNet", "mixer=gated_delta"),
    ("Mamba", "mixer=mamba"),
    ("Mamba-2", "mixer=mamba2 mamba2_head_width=16 mamba2_state=32"),
    ("RWKV-4", "mixer=rwkv4 channel_mix=rwkv4 activation=relu_squared"),
    ("RWKV-7", "mixer=rwkv7 channel_mix=rwkv7 activation=relu_squared"),
    ("gated convolutions", "mixer=convolution"),
    ("AFT, full", "mixer=attention_free"),
    ("learned, hashed in chunks of 16", "shared_query_key=[1] hashed_beyond=16 hash_rounds=2"),
]
TASKS = {  # lengths in training, at the test, and the model's context
    "copy": (range(4, 17), [8, 16, 20, 32], 96),
    "recall": (range(2, 9), [4, 8, 10, 16], 96),
    "far": (range(40, 201), [50, 200, 400], 512),
}
CONFIG = """
data = { train = "train.tsv", valid_fraction = 0.02, cache = false }
tokenizer = { type = "word", vocab_size = 64 }
model = { architecture = "decoder", order = "stack", context = CONTEXT, width = 64, layers = 2, heads = 4 }
train = { objective = "sequence_to_sequence", batch_tokens = 2048, learning_rate = 2e-3, eval_every = 1000 }
"""


def example(task, length, rng):
    if task == "copy":
        letters = " ".join(rng.choice(string.ascii_lowercase) for _ in range(length))
        return letters, letters
    if task == "far":
        key, value = rng.choice(string.ascii_lowercase), rng.choice(string.digits)
        return " ".join([key, value, *(rng.choice("ABCDEFGH") for _ in range(length)), key]), value
    keys = rng.sample(string.ascii_lowercase, length)
    values = [rng.choice(string.digits) for _ in keys]
    pairs = [f"{k} {v}" for k, v in zip(keys, values)]
    return " ".join(pairs), " ".join(sorted(pairs))


def write(path, task, lengths, count, seed):
    rng = random.Random(seed)
    rows = ["\t".join(example(task, rng.choice(list(lengths)), rng)) for _ in range(count)]
    path.write_text("source\ttarget\n" + "\n".join(rows) + "\n")


def run(folder, *command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qkv", default="build/qkv", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--steps", default=3000, type=int)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--only", default=".")
    parser.add_argument("--tasks", default=list(TASKS), nargs="+", choices=list(TASKS))
    options = parser.parse_args()
    tasks = {task: TASKS[task] for task in options.tasks}
    print("| variation | " + " | ".join(f"{task} {n}" for task, (_, tests, _) in tasks.items() for n in tests) + " |")
    print("|---" * (1 + sum(len(tests) for _, tests, _ in tasks.values())) + "|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for task, (lengths, tests, context) in tasks.items():
            folder = pathlib.Path(scratch) / task
            folder.mkdir()
            write(folder / "train.tsv", task, lengths, 30000, 1)
            for n in tests:
                write(folder / f"test{n}.tsv", task, [n], 300, 1000 + n)
            (folder / "run.toml").write_text(CONFIG.replace("CONTEXT", str(context)))
        for name, keys in VARIATIONS:
            if not re.search(options.only, name):
                continue
            cells = []
            for task, (_, tests, _) in tasks.items():
                folder = pathlib.Path(scratch) / task
                settings = [s for key in keys.split() for s in ("--set", "model." + key.replace("~", " "))]
                run(folder, options.qkv, "train", "run.toml", "--overwrite", "--threads", options.threads, "--set",
                    "train.out=out", "--set", f"train.steps={options.steps}", *settings)
                for n in tests:
                    scores = json.loads(run(folder, options.qkv, "eval", "out", "--data", f"test{n}.tsv", "--beams", 1, "--json"))
                    cells.append(f"{100 * scores['exact_match']:.1f}" if scores["exact_match"] <= 1 else f"{scores['exact_match']:.1f}")
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


main()
