#!/usr/bin/env python3
"""Trains each mixer on English prose with as many parameters as attention. Gives the validation loss in nats a token after equal steps
and after equal time: a table, and curves as pictures.

    bench/mixer_quality.py --data FOLDER [--qkv build/qkv] [--out runs/mixer_quality] [--steps 1000] [--seeds 1] [--only REGEX] [--threads 2]
    bench/mixer_quality.py --times [the same]         measures ms a step (leave the machine alone meanwhile), prints the table, draws

FOLDER has books as .md.gz or .txt files, in itself or in train/. The last tenth of each is held out; the first 3,000 characters of what
is held out of each are the validation text, which every evaluation reads as a whole. A feed-forward network's width
(of a mixer without one: the state's or the number of channels) makes all models as large as attention's, within 2%. The learning rate is
constant after warm-up, so that losses on the way compare. If times are known, a mixer that is faster than attention is trained for
as many more steps as that needs, at most twice as many. Runs and results.json stay in OUT: another call goes on from there.
"""
import argparse
import gzip
import json
import pathlib
import re
import statistics
import subprocess
import sys

from curves import drawing

HIDDEN = ("model.hidden", 512)
# Name, settings, what is fitted to the number of parameters and its usual value.
MIXERS = [
    ("attention", "positions=rotary", HIDDEN),
    ("hashed attention", "positions=rotary shared_query_key=[1] hashed_beyond=64 hash_rounds=2", HIDDEN),
    ("linear attention", "mixer=linear_attention linear_features=elu linear_normalised=true", HIDDEN),
    ("random features", "mixer=random_features random_map=positive", HIDDEN),
    ("delta rule", "mixer=delta_rule", HIDDEN),
    ("Gated DeltaNet", "mixer=gated_delta", HIDDEN),
    ("3 Gated DeltaNet, 1 attention",
     'positions=rotary layer_kinds=["linear","linear","linear","default"] kind.linear.mixer=gated_delta', HIDDEN),
    ("Mamba", "mixer=mamba hidden=0 layers=7", ("model.mamba_inner", 256)),
    ("Mamba-2", "mixer=mamba2 hidden=0 layers=6", ("model.mamba2_state", 128)),
    ("RWKV-4", "mixer=rwkv4 channel_mix=rwkv4 activation=relu_squared", HIDDEN),
    ("RWKV-7", "mixer=rwkv7 channel_mix=rwkv7 activation=relu_squared", HIDDEN),
    ("gated convolutions", "mixer=convolution", HIDDEN),
    ("AFT, full", "mixer=attention_free", HIDDEN),
    ("AFT, conv", "mixer=attention_free aft_form=conv", HIDDEN),
    ("AFT, simple", "mixer=attention_free aft_form=simple", HIDDEN),
]
EVERY = 100
CONFIG = f"""
data = {{ train = "train.txt", valid = "valid.txt" }}
tokenizer = {{ path = "tokenizer" }}
model = {{ context = 256, width = 128, layers = 4, heads = 4 }}

[train]
batch = 8
learning_rate = 2e-3
schedule = "constant"
warmup_steps = 100
eval_every = {EVERY}
eval_windows = 0
sample_tokens = 0
"""


def run(options, *command):
    """The command's output, or None and the reason on stderr."""
    command = [str(c) for c in (options.qkv, *command)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=options.out)
    if done.returncode != 0:
        print(f"{' '.join(command)}\n{done.stderr.strip()}", file=sys.stderr, flush=True)
        return None
    return done.stdout + done.stderr


def texts(options):
    """One text of the books, one of what is held out of them, and a tokenizer of the former."""
    if (options.out / "tokenizer").exists():
        return
    folder = options.data / "train" if (options.data / "train").is_dir() else options.data
    parts = ([], [])
    for path in sorted(p for p in folder.iterdir() if p.name.endswith((".md.gz", ".txt"))):
        book = (gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()).decode()
        cut = book.index("\n", len(book) * 9 // 10)
        parts[0].append(book[:cut].strip())
        parts[1].append(book[cut:].strip()[:3000])
    for name, books in zip(("train", "valid"), parts):
        (options.out / f"{name}.txt").write_text("\n\n".join(books) + "\n")
    (options.out / "run.toml").write_text(CONFIG)
    if run(options, "tokenizer", "train", "train.txt", "--vocab-size", 2048, "--out", "tokenizer") is None:
        sys.exit(1)


def settings(keys):
    return [s for key in keys.split() for s in ("--set", "model." + key)]


def parameters(options, keys, knob=None, value=None):
    more = ["--set", f"{knob}={value}"] if knob else []
    out = run(options, "plan", "run.toml", "--no-timing", "--json", *settings(keys), *more)
    return json.loads(out[out.index("{"):])["parameters"]


def fitted(options, keys, knob, usual, wanted):
    """The multiple of 8 for `knob` that comes closest to so many parameters, of which they are a linear function, and their number."""
    slope = (parameters(options, keys, knob, usual) - parameters(options, keys, knob, usual // 2)) / (usual - usual // 2)
    value = usual + round((wanted - parameters(options, keys, knob, usual)) / slope / 8) * 8
    count = parameters(options, keys, knob, value)
    if abs(count / wanted - 1) > 0.02:
        sys.exit(f"{keys}: {count} parameters with {knob}={value}, but attention has {wanted}")
    return value, count


def metrics(folder, field):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {m["step"]: m[field] for m in lines if m.get(field) is not None}


def train(options, name, result, seed, steps):
    """Trains a mixer until `steps`, from where its run ended; the losses by step stand in `result`."""
    folder = options.out / f"{re.sub('[^a-z0-9]+', '_', name.lower())}_{seed}"
    losses = result["losses"].get(str(seed), {})
    if losses and max(map(int, losses)) >= steps:
        return
    how = "--resume" if (folder / "metrics.jsonl").exists() else "--overwrite"
    log = run(options, "train", "run.toml", how, "--threads", options.threads, *result["settings"], "--set", f"train.out={folder.name}",
              "--set", f"train.seed={seed}", "--set", f"train.steps={steps}")
    if log is None:
        result["failed"] = f"seed {seed}"
        return
    with open(options.out / "train.log", "a") as f:
        f.write(f"# {name}, seed {seed}\n{log}\n")
    result["losses"][str(seed)] = {str(step): loss for step, loss in metrics(folder, "valid_loss").items()}


def milliseconds(options, result):
    """The time of each of a run's steps from 11 to 40."""
    if run(options, "train", "run.toml", "--overwrite", "--threads", options.threads, *result["settings"], "--set", "train.out=timed",
           "--set", "train.steps=40", "--set", "train.log_every=1") is None:
        return []
    seconds = metrics(options.out / "timed", "seconds")
    return [1e3 * (seconds[step] - seconds[step - 1]) for step in range(11, 40)]


def loss_at(losses, step):
    """One seed's loss, between validations by a line; "<": the run ended before and lies below, None: before the first validation."""
    points = sorted((int(s), loss) for s, loss in losses.items())
    if step < points[0][0]:
        return None, ""
    for (s0, y0), (s1, y1) in zip(points, points[1:]):
        if step <= s1:
            return y0 + (y1 - y0) * (step - s0) / (s1 - s0), ""
    return points[-1][1], "" if step == points[-1][0] else "< "


def equal_time(options, results, name):
    """The mean loss of the seeds when attention's steps are done, behind "<" if that lies below; None if it is not known."""
    r, base = results[name], results["attention"]
    if not (r.get("ms") and base.get("ms") and r["losses"]):
        return None
    found = [loss_at(losses, options.steps * base["ms"] / r["ms"]) for losses in r["losses"].values()]
    if any(loss is None for loss, _ in found):
        return None
    return max(sign for _, sign in found), statistics.mean(loss for loss, _ in found)


def table(options, results):
    seeds = sorted({seed for r in results.values() for seed in r["losses"]}, key=int)
    rows = [f"| mixer | parameters | fitted | loss after {options.steps} steps | "
            + "".join(f"seed {seed} | " for seed in seeds) + "ms a step | loss in attention's time |",
            "|---" * (6 + len(seeds)) + "|"]
    for name, r in results.items():
        at_end = {seed: losses[str(options.steps)] for seed, losses in r["losses"].items() if str(options.steps) in losses}
        mean = f"{statistics.mean(at_end.values()):.4f}" if at_end else "failed" if "failed" in r else "-"
        timed = equal_time(options, results, name)
        cells = [f"{at_end[seed]:.4f}" if seed in at_end else "-" for seed in seeds]
        rows.append(f"| {name} | {r['parameters']:,} | `{r['fitted']}` | {mean} | " + "".join(c + " | " for c in cells)
                    + (f"{r['ms']:.1f}" if r.get("ms") else "-") + f" | {f'{timed[0]}{timed[1]:.4f}' if timed else '-'} |")
    return "\n".join(rows)


def draw(options, results):
    """Mean losses of the seeds by steps, and by time until attention is done if times are known."""
    by_steps, by_time = [], []
    end = options.steps * results["attention"].get("ms", 0) / 1e3
    for name, r in results.items():
        if not r["losses"]:
            continue
        shared = set.intersection(*(set(map(int, losses)) for losses in r["losses"].values()))
        points = [(s, statistics.mean(losses[str(s)] for losses in r["losses"].values())) for s in sorted(shared)]
        by_steps.append((name, [(s, y) for s, y in points if 2 * EVERY <= s <= options.steps]))
        if r.get("ms") and end:
            timed = [(s * r["ms"] / 1e3, y) for s, y in points]
            last = equal_time(options, results, name)
            timed = [(x, y) for x, y in timed if 0.2 * end <= x < end] + ([(end, last[1])] if last and not last[0] else [])
            by_time.append((name, timed))
    ticks = {"steps": [s for s in (200, 300, 400, 500, 700, 1000, 1400, 2000, options.steps) if s <= options.steps],
             "seconds": [round(end * share, 1) for share in (0.2, 0.3, 0.4, 0.5, 0.7, 1)]}
    for unit, curves in (("steps", by_steps), ("seconds", by_time)):
        curves = [(name, points) for name, points in curves if points]
        if curves:
            picture = drawing(f"Validation loss, nats a token, after so many {unit}", "", sorted(set(ticks[unit])), curves)
            (options.out / f"mixer_quality_{unit}.svg").write_text(picture, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--qkv", default="build/qkv", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--out", default="runs/mixer_quality", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--steps", default=1000, type=int, help=f"a multiple of {EVERY}")
    parser.add_argument("--seeds", default=[1], nargs="+", type=int)
    parser.add_argument("--threads", default=2, type=int)
    parser.add_argument("--only", default=".")
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    texts(options)
    file = options.out / "results.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    keep = lambda: file.write_text(json.dumps(results, indent=1) + "\n")
    chosen = [name for name, _, _ in MIXERS if re.search(options.only, name)]
    for name, keys, (knob, usual) in MIXERS:
        if name in chosen and name not in results:
            base = results.get("attention", {}).get("parameters") or parameters(options, MIXERS[0][1])
            value, count = fitted(options, keys, knob, usual, base)
            results[name] = {"parameters": count, "fitted": f"{knob}={value}", "losses": {},
                             "settings": [*settings(keys), "--set", f"{knob}={value}"]}
            print(f"{name}: {count} parameters, {knob}={value}, {100 * count / base - 100:+.2f}%", flush=True)
    results = {name: results[name] for name, _, _ in MIXERS if name in results}
    keep()
    if options.times:
        found = {name: [] for name in chosen}
        for _ in range(2):  # in turn, so that what disturbs one round does not disturb one mixer alone
            for name in chosen:
                if times := milliseconds(options, results[name]):
                    found[name] += times
                    results[name]["ms"] = statistics.median(found[name])
        keep()
    else:
        for seed in options.seeds:
            for name in chosen:
                r, steps = results[name], options.steps
                if r.get("ms") and results["attention"].get("ms"):
                    needed = EVERY * -int(-1.05 * steps * results["attention"]["ms"] / r["ms"] // EVERY)
                    steps = min(max(steps, needed), 2 * steps)
                train(options, name, r, seed, steps)
                keep()
                print(f"{name}, seed {seed}: {r['losses'].get(str(seed), {}).get(str(options.steps), 'failed')}", flush=True)
    print(table(options, results))
    draw(options, results)


main()
