#!/usr/bin/env python3
"""Time and memory of attention against length, under several patterns: a table, and curves as pictures.

    bench/attention_cost.py [--build build] [--dtype f32] [--out docs]
"""
import argparse
import math
import pathlib
import subprocess

from curves import drawing

PATTERNS = [  # name, pattern, encoder
    ("full", "all", True),
    ("causal", "all", False),
    ("sliding window of 512", "window 512", False),
    ("strided, 128", "window 128 stride 128", False),
    ("BigBird, blocks of 64, 3 random", "block 64 neighbours 1 ends random 3", True),
]
LENGTHS = [512 << i for i in range(7)]


def measure(build, dtype, pattern, encoder, length):
    command = [f"{build}/bench/attention_cost", "--pattern", pattern, "--length", str(length), "--dtype", dtype]
    out = subprocess.run(command + (["--encoder"] if encoder else []), capture_output=True, text=True, check=True).stdout
    keys = ["forward_ms", "step_ms", "forward_gflops", "step_gflops", "visited", "tiles", "peak_mb"]
    return dict(zip(keys, map(float, out.split())))


def slope(points):
    """The exponent of the last doubling but one to the last: 1 is linear, 2 quadratic."""
    (xa, ya), (xb, yb) = points[-3], points[-1]
    return math.log(yb / ya) / math.log(xb / xa)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--out", default="docs")
    options = parser.parse_args()
    results = {}
    print("| pattern | length | forward ms | step ms | forward GFLOP/s | step GFLOP/s | tiles visited | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for name, pattern, encoder in PATTERNS:
        for length in LENGTHS:
            r = results[name, length] = measure(options.build, options.dtype, pattern, encoder, length)
            print(f"| {name} | {length} | {r['forward_ms']:.2f} | {r['step_ms']:.2f} | {r['forward_gflops']:.0f} | "
                  f"{r['step_gflops']:.0f} | {r['visited'] / r['tiles']:.1%} | {r['peak_mb']:.0f} |", flush=True)
    dense = {True: "full", False: "causal"}
    print("\n| pattern | slope forward | slope step | rate of dense, forward | rate of dense, step | faster than dense from |")
    print("|---|---|---|---|---|---|")
    for name, _, encoder in PATTERNS:
        curve = lambda key: [(x, results[name, x][key]) for x in LENGTHS]
        other = dense[encoder]
        rate = lambda key: min(results[name, x][key] / results[other, x][key] for x in LENGTHS[2:])
        faster = [x for x in LENGTHS if results[name, x]["step_ms"] < 0.95 * results[other, x]["step_ms"]]
        print(f"| {name} | {slope(curve('forward_ms')):.2f} | {slope(curve('step_ms')):.2f} | {rate('forward_gflops'):.0%} | "
              f"{rate('step_gflops'):.0%} | {faster[0] if faster else '-'} |")
    out = pathlib.Path(options.out)
    for key, unit, title in [("forward_ms", "ms", "attention, forward"), ("step_ms", "ms", "attention, forward and gradients"),
                             ("peak_mb", "MB", "attention, peak memory of the process")]:
        curves = [(name, [(x, results[name, x][key]) for x in LENGTHS]) for name, _, _ in PATTERNS]
        path = out / f"attention_{key.split('_')[0]}_{options.dtype}.svg"
        path.write_text(drawing(f"{title}, {options.dtype}, 2 heads of 64", unit, LENGTHS, curves, decades=True))
        print(f"drawn: {path}")


main()
