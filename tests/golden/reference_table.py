#!/usr/bin/env python3
"""Writes the table of docs/reference_cases.md: each case's family, and qkv's largest deviations from it.

usage: reference_table.py QKV CASES DOCUMENT

CASES is the hf folder of $QKV_REFERENCE. The rows between the table's head and the next empty line are replaced.
"""
import sys

import hf_cases

HEAD = ("| case | family | outputs | inside | gradients | generated runs with the same ids |", "|---|---|---|---|---|---|")


def largest(deviations):
    return f"{max(deviations):.1e}" if deviations else "-"


def row(qkv, case):
    inside, outside = [], []
    for name, deviation in hf_cases.outputs(qkv, case):
        (inside if "hidden_states" in name or "attentions" in name or "router" in name else outside).append(deviation)
    gradients = [d for _, d in hf_cases.training(qkv, case)] if "train.loss" in case.expected else []
    runs = [d == 0 for _, d in hf_cases.generation(qkv, case)]
    return (f"| {case.name} | {case.family} | {largest(outside)} | {largest(inside)} | {largest(gradients)} | "
            + (f"{sum(runs)} of {len(runs)} |" if runs else "- |"))


def main():
    qkv, root, document = sys.argv[1:]
    with open(document, encoding="utf-8") as file:
        lines = file.read().split("\n")
    begin = next(i for i, line in enumerate(lines) if line.startswith("| case |"))
    end = lines.index("", begin)
    families = set()
    rows = []
    for case in hf_cases.cases_of(root):
        if not hf_cases.is_read(qkv, case):
            continue
        families.add(case.family)
        rows.append(row(qkv, case))
        print(rows[-1], flush=True)
    lines[begin:end] = [*HEAD, *rows]
    with open(document, "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    print(f"{len(rows)} cases of {len(families)} families")


if __name__ == "__main__":
    main()
