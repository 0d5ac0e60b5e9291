#!/usr/bin/env python3
"""Time and memory of attention against length, under several patterns: a table, and curves as pictures.

    bench/attention_cost.py [--build build] [--dtype f32] [--out docs]
"""
import argparse
import math
import pathlib
import subprocess

PATTERNS = [  # name, pattern, encoder
    ("full", "all", True),
    ("causal", "all", False),
    ("sliding window of 512", "window 512", False),
    ("strided, 128", "window 128 stride 128", False),
    ("BigBird, blocks of 64, 3 random", "block 64 neighbours 1 ends random 3", True),
]
LENGTHS = [512 << i for i in range(7)]
COLOURS = ["#1b6ca8", "#c8553d", "#2e8b57", "#8e5ea2", "#b8860b"]


def measure(build, dtype, pattern, encoder, length):
    command = [f"{build}/bench/attention_cost", "--pattern", pattern, "--length", str(length), "--dtype", dtype]
    out = subprocess.run(command + (["--encoder"] if encoder else []), capture_output=True, text=True, check=True).stdout
    keys = ["forward_ms", "step_ms", "forward_gflops", "step_gflops", "visited", "tiles", "peak_mb"]
    return dict(zip(keys, map(float, out.split())))


def drawing(title, unit, curves):
    """Curves [(name, [(x, y)])] on logarithmic axes as an SVG."""
    width, height, left, right, top, bottom = 640, 400, 70, 20, 44, 40
    values = [y for _, points in curves for _, y in points]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x0, x1 = math.log2(LENGTHS[0]), math.log2(LENGTHS[-1])
    px = lambda x: left + (math.log2(x) - x0) / (x1 - x0) * (width - left - right)
    py = lambda y: height - bottom - (math.log10(y) - low) / (high - low) * (height - top - bottom)
    s = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
         f'<rect width="{width}" height="{height}" fill="white"/>',
         f'<text x="{left}" y="20" font-size="15">{title}</text>']
    for power in range(low, high + 1):
        y = py(10 ** power)
        s.append(f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        s.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** power:g} {unit}</text>')
    for x in LENGTHS:
        s.append(f'<line x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{top}" y2="{height - bottom}" stroke="#eee"/>')
        s.append(f'<text x="{px(x):.1f}" y="{height - bottom + 18}" text-anchor="middle">{x}</text>')
    for i, (name, points) in enumerate(curves):
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in points)
        s.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        s += [f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{COLOURS[i]}"/>' for x, y in points]
        s.append(f'<text x="{left + 12}" y="{top + 16 + 16 * i}" fill="{COLOURS[i]}">{name}</text>')
    return "\n".join(s + ["</svg>"]) + "\n"


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
        path.write_text(drawing(f"{title}, {options.dtype}, 2 heads of 64", unit, curves))
        print(f"drawn: {path}")


main()
