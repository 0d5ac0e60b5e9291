#!/usr/bin/env python3
"""Time and memory of each mixer against length, beside exact attention: a table, slopes, and curves as pictures.

    bench/mixer_cost.py [--build build] [--dtype f32] [--longest 131072] [--mixers attention linear_attention ...] [--out docs]

Slopes are those of a line through the logarithms of times from 4,096 to 65,536 tokens: 1 is linear, 2 quadratic.
"""
import argparse
import math
import pathlib
import subprocess

from curves import drawing

# The longest text that each is measured at: work that grows with the square of the length ends earlier.
MIXERS = {
    "attention": 32768, "window": 131072, "hashed": 131072, "linear_attention": 131072, "random_features": 131072, "delta_rule": 131072,
    "gated_delta": 131072, "mamba": 131072, "mamba2": 131072, "rwkv4": 131072, "rwkv7": 131072, "convolution": 131072, "aft_full": 4096,
    "aft_local": 4096, "aft_simple": 131072, "aft_conv": 131072,
}
KEYS = ["forward_ms", "step_ms", "decode_ms", "state_bytes", "peak_mb"]


def measure(options, mixer, length):
    command = [f"{options.build}/bench/mixer_cost", "--mixer", mixer, "--length", str(length), "--dtype", options.dtype]
    if mixer == "hashed":
        command.append("--no-decode")
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(zip(KEYS, map(float, out.split())))


def slope(points):
    """The exponent of the line through the logarithms, by least squares; None for fewer than three points."""
    points = [(math.log(x), math.log(y)) for x, y in points if 4096 <= x <= 65536]
    if len(points) < 3:
        return None
    mx, my = (sum(p[i] for p in points) / len(points) for i in (0, 1))
    return sum((x - mx) * (y - my) for x, y in points) / sum((x - mx) ** 2 for x, _ in points)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--longest", type=int, default=131072)
    parser.add_argument("--mixers", nargs="+", default=list(MIXERS), choices=list(MIXERS))
    parser.add_argument("--out", default="docs")
    options = parser.parse_args()
    lengths = [n for n in (512 << i for i in range(9)) if n <= options.longest]
    results = {}
    print("| mixer | length | forward us a token | with gradients | decoding one, us | state MB | peak MB |")
    print("|---|---|---|---|---|---|---|")
    for mixer in options.mixers:
        for length in lengths:
            if length > MIXERS[mixer]:
                continue
            r = results[mixer, length] = measure(options, mixer, length)
            print(f"| {mixer} | {length} | {r['forward_ms'] / length * 1e3:.2f} | {r['step_ms'] / length * 1e3:.2f} | "
                  f"{r['decode_ms'] * 1e3:.0f} | {r['state_bytes'] / 2**20:.3f} | {r['peak_mb']:.0f} |", flush=True)
    print("\n| mixer | slope forward | slope with gradients |")
    print("|---|---|---|")
    shown = lambda x: "-" if x is None else f"{x:.2f}"
    for mixer in options.mixers:
        curve = lambda key: [(n, results[mixer, n][key]) for n in lengths if (mixer, n) in results]
        print(f"| {mixer} | {shown(slope(curve('forward_ms')))} | {shown(slope(curve('step_ms')))} |")
    out = pathlib.Path(options.out)
    for key, name in (("step_ms", "forward and gradients"), ("decode_ms", "decoding a token")):
        curves = [(m, [(n, results[m, n][key] / (n if key == "step_ms" else 1) * 1e3) for n in lengths
                       if (m, n) in results and results[m, n][key] > 0]) for m in options.mixers]
        curves = [(m, points) for m, points in curves if points]
        picture = drawing(f"Mixers, {options.dtype}: {name}, microseconds a token", "us", lengths, curves, decades=True)
        (out / f"mixers_{key.split('_')[0]}_{options.dtype}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
