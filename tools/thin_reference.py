#!/usr/bin/env python3
"""Copies reference cases of Hugging Face models into a folder, with fewer expected values.

usage: thin_reference.py INPUT OUTPUT [--budget BYTES] [CASE ...]

INPUT and OUTPUT hold a folder for each case; the cases default to those that OUTPUT has. The model's files and
meta.json are copied as they are. Of expected.safetensors the script keeps what a comparison needs first (inputs,
outputs, losses, generated ids, the last hidden state), whatever it takes. Then it adds values while the file stays
within --budget bytes: hidden states and attentions of the first layers, gradients from the smallest to the largest,
then what else is inside. It drops outputs in float32, because only those in float64 are compared, and copies of other
tensors. The budget defaults to that of the file in OUTPUT, where a file without one is whole and stays so, or to 20480.
The file's metadata has "budget", and in "left_out" the names of the tensors that are compared in INPUT, but missing in
OUTPUT. The same input and budget give the same bytes, whatever other cases there are.
"""
import argparse
import json
import os
import re
import shutil
import struct
import sys

COPIED = ("config.json", "generation_config.json", "model.safetensors", "meta.json")
DEFAULT_BUDGET = 20480
EXPECTED = "expected.safetensors"
NEVER = re.compile(r"f32\.")
INSIDE = re.compile(r"f64\.(\w+\.)?(\w*hidden_states|\w*attentions|buckets)\.(\d+)$")
GRADIENT = re.compile(r"train\.grad\.")


def read(path):
    """name -> (dtype, shape, bytes), and the metadata"""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    metadata = header.pop("__metadata__", {})
    return {n: (entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])]) for n, entry in header.items()}, metadata


def pack(tensors, budget, left_out):
    """The bytes of a safetensors file, tensors in order of their names."""
    header, offset = {"__metadata__": {"budget": str(budget), "left_out": " ".join(sorted(left_out))}}, 0
    for name, (dtype, shape, data) in sorted(tensors.items()):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, (_, _, data) in sorted(tensors.items()))


def last_states(names):
    """The hidden state with the highest number, for each kind."""
    last = {}
    for match in filter(None, map(INSIDE.match, names)):
        if match[2].endswith("hidden_states"):
            kind = (match[1], match[2])
            last[kind] = max(last.get(kind, 0), int(match[3]))
    return {f"f64.{model or ''}{kind}.{number}" for (model, kind), number in last.items()}


def last_copies(tensors):
    """The last states that have another name, too."""
    states = {tensors[n][2] for n in tensors if INSIDE.match(n)}
    return [n for n in tensors if n.endswith("last_hidden_state") and tensors[n][2] in states]


def order(name, size):
    """Rank of a tensor that may be left out: first come first served."""
    inside = INSIDE.match(name)
    if inside and int(inside[3]) == 0:
        return 0, 0, name
    return (1, size, name) if GRADIENT.match(name) else (2, 0, name)


def thinned(tensors, budget):
    """The bytes of the file that keeps as much of `tensors` as the budget lets it."""
    tensors = {name: t for name, t in tensors.items() if not NEVER.match(name)}
    last = last_states(tensors)
    optional = [n for n in tensors if (INSIDE.match(n) or GRADIENT.match(n)) and n not in last]
    kept, left_out = {n: t for n, t in tensors.items() if n not in optional}, set(optional)
    for name in last_copies(kept):
        left_out.add(name)
        del kept[name]
    for name in sorted(optional, key=lambda n: order(n, len(tensors[n][2]))):
        with_it = {**kept, name: tensors[name]}
        if len(pack(with_it, budget, left_out - {name})) <= budget:
            kept = with_it
            left_out.remove(name)
    return pack(kept, budget, left_out)


def budget_of(path):
    """The budget that a file was made with, None of one that is whole; the default where there is none."""
    if not os.path.exists(path):
        return DEFAULT_BUDGET
    budget = read(path)[1].get("budget")
    return budget and int(budget)


def expected_bytes(path, budget):
    """The file at `path` with a budget; without one as it is."""
    if budget is None:
        with open(path, "rb") as file:
            return file.read()
    return thinned(read(path)[0], budget)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--budget", type=int, help="bytes of a case's expected.safetensors")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_intermixed_args()
    held = os.listdir(options.output) if os.path.isdir(options.output) else []
    total = 0
    for case in options.cases or sorted(c for c in held if os.path.isdir(os.path.join(options.output, c))):
        source, target = os.path.join(options.input, case), os.path.join(options.output, case)
        if not os.path.exists(os.path.join(source, EXPECTED)):
            print(f"{source}: there is no {EXPECTED}: name cases of {options.input}", file=sys.stderr)
            return 1
        os.makedirs(target, exist_ok=True)
        for name in COPIED:
            if os.path.exists(os.path.join(source, name)):
                shutil.copyfile(os.path.join(source, name), os.path.join(target, name))
        expected = os.path.join(target, EXPECTED)
        made = expected_bytes(os.path.join(source, EXPECTED), options.budget or budget_of(expected))
        with open(expected, "wb") as file:
            file.write(made)
        size = sum(os.path.getsize(os.path.join(target, f)) for f in os.listdir(target))
        total += size
        print(f"{case}: {size:,} bytes, of which expected values {len(made):,}")
    print(f"{total:,} bytes in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
