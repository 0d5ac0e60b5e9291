#!/usr/bin/env python3
"""The error of random features against softmax attention, by their number: a table, slopes, and a picture.

    bench/random_features_error.py [--build build] [--out docs]
"""
import argparse
import math
import pathlib
import subprocess

from curves import drawing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--out", default="docs")
    options = parser.parse_args()
    out = subprocess.run([f"{options.build}/bench/random_features_error"], capture_output=True, text=True, check=True).stdout
    curves = {}
    for line in out.splitlines():
        kind, vectors, deviation, count, error = line.split()
        curves.setdefault(f"{kind}, {vectors}, scores of {deviation}", []).append((int(count), float(error)))
    counts = [x for x, _ in next(iter(curves.values()))]
    print("| features | " + " | ".join(map(str, counts)) + " | slope from 256 |")
    print("|---|" + "---|" * (len(counts) + 1))
    for name, points in curves.items():
        (xa, ya), (xb, yb) = next(p for p in points if p[0] == 256), points[-1]
        slope = math.log(yb / ya) / math.log(xb / xa)
        print(f"| {name} | " + " | ".join(f"{y:.3f}" for _, y in points) + f" | {slope:.2f} |")
    curves = {name.removesuffix(", scores of 0.25"): points for name, points in curves.items() if name.endswith("0.25")}
    curves["the root of their number"] = [(x, curves["positive, orthogonal"][4][1] * math.sqrt(256 / x)) for x in counts]
    picture = drawing("Random features: relative error, scores of deviation 1/4", "", counts, list(curves.items()), decades=True)
    (pathlib.Path(options.out) / "random_features_error.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
