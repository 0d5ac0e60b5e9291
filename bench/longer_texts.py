#!/usr/bin/env python3
"""Texts longer than those of training: loss against the length of windows, after short training and after a little at a greater
length (Press et al. 2022, ALiBi). The characters of Shakespeare; a table, and a picture.

    bench/longer_texts.py [--qkv build/qkv] [--steps 1000] [--further 150] [--out docs]
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import tempfile

SHORT, LONG, LENGTHS = 64, 256, [32, 64, 128, 256, 512]
POSITIONS = ["rotary", "alibi", "relative"]
DATA = "data/tinyshakespeare/input.txt"


def run(*command):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True).stdout


def settings(**keys):
    return [word for key, value in keys.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


def set_context(config, length):
    """The longest text that a configuration names, in whichever family's words."""
    part = config.get("qkv", config)
    known = [key for key in ("context", "n_positions", "max_position_embeddings", "max_seq_len") if key in part]
    if not known:
        raise SystemExit(f"no context in {config}")
    for key in known:
        part[key] = length


def losses(qkv, model, text, scratch):
    """Mean loss of a token in windows of each length."""
    found = {}
    for length in LENGTHS:
        copy = scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(model / "best", copy)
        config = json.loads((copy / "config.json").read_text())
        set_context(config, length)
        (copy / "config.json").write_text(json.dumps(config))
        found[length] = json.loads(run(qkv, "eval", copy, "--data", text, "--json"))["loss"]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qkv", default="build/qkv")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--further", type=int, default=150)
    parser.add_argument("--out", default="docs")
    options = parser.parse_args()
    from curves import drawing
    curves = []
    print(f"| positions | trained | {' | '.join(map(str, LENGTHS))} |\n|---|---|{'---|' * len(LENGTHS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        text = pathlib.Path(DATA).read_text()
        cut = len(text) * 9 // 10
        (scratch / "train.txt").write_text(text[:cut])
        (scratch / "held_out.txt").write_text(text[cut:])
        (scratch / "run.toml").write_text("")
        common = settings(data__train=scratch / "train.txt", train__learning_rate=2e-3)
        for positions in POSITIONS:
            short, long = scratch / f"{positions}_short", scratch / f"{positions}_long"
            run(options.qkv, "train", scratch / "run.toml", *common,
                *settings(tokenizer__type="char", train__batch=32, model__context=SHORT, model__width=64, model__layers=3, model__heads=4, model__positions=positions,
                          train__steps=options.steps, train__out=short))
            run(options.qkv, "train", scratch / "run.toml", *common,
                *settings(model__from=short, model__context=LONG, train__batch=8, train__steps=options.further, train__out=long))
            for model, trained, dashed in ((short, f"{options.steps} steps of {SHORT}", False),
                                           (long, f"then {options.further} of {LONG}", True)):
                found = losses(options.qkv, model, scratch / "held_out.txt", scratch)
                print(f"| {positions} | {trained} | {' | '.join(f'{found[n]:.4f}' for n in LENGTHS)} |", flush=True)
                curves.append((positions, list(found.items()), dashed))
    path = pathlib.Path(options.out) / "longer_texts.svg"
    path.write_text(drawing(f"loss by length of windows; trained on {SHORT}, dashed: then a little on {LONG}", "", LENGTHS, curves))
    print(f"drawn: {path}")


main()
