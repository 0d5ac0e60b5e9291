#!/usr/bin/python3
"""The peer of bench/attention_cost --rule normalised: causal linear attention in PyTorch, in chunks, and exact attention.

Debian 12: apt-get install python3-torch libopenblas0-openmp; run as
  OMP_NUM_THREADS=2 LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp /usr/bin/python3 torch_linear_attention.py
Prints "name forward_ms step_ms": phi = elu + 1, y_t = sum_s (phi(q_t) . phi(k_s)) v_s / sum_s phi(q_t) . phi(k_s), s <= t, in chunks whose
length is the best of several; then softmax attention.
"""
import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F


def chunked(q, k, v, size):
    """q, k, v [heads, tokens, d]: products within chunks, and a sum of k v^T over the chunks before."""
    heads, tokens, d = q.shape
    q, k = F.elu(q) + 1, F.elu(k) + 1
    v = torch.cat([v, torch.ones(heads, tokens, 1)], 2)
    q, k, v = (x.view(heads, tokens // size, size, -1) for x in (q, k, v))
    sums = (k.transpose(2, 3) @ v).cumsum(1)
    before = torch.cat([torch.zeros_like(sums[:, :1]), sums[:, :-1]], 1)
    y = torch.tril(q @ k.transpose(2, 3)) @ v + q @ before
    y = y.view(heads, tokens, d + 1)
    return y[..., :d] / (y[..., d:] + 1e-6)


def exact(q, k, v, mask):
    scores = (q @ k.transpose(1, 2)) / math.sqrt(q.shape[2])
    return F.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v


def milliseconds(f):
    f()
    times = []
    while not times or (sum(times) < 3 and len(times) < 31):
        begin = time.perf_counter()
        f()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--no-exact", action="store_true")
    o = parser.parse_args()
    torch.manual_seed(1)
    inputs = [torch.randn(o.heads, o.length, 64, requires_grad=True) for _ in range(3)]
    dy = torch.randn(o.heads, o.length, 64)
    mask = torch.triu(torch.ones(o.length, o.length, dtype=torch.bool), 1)

    def measure(name, f):
        def step():
            for x in inputs:
                x.grad = None
            f(*inputs).backward(dy)
        with torch.no_grad():
            forward = milliseconds(lambda: f(*inputs))
        print(f"{name} {forward:.2f} {milliseconds(step):.2f}", flush=True)

    for size in (32, 64, 128, 256):
        measure(f"chunks_of_{size}", lambda q, k, v, size=size: chunked(q, k, v, size))
    if not o.no_exact:
        measure("exact", lambda q, k, v: exact(q, k, v, mask))


if __name__ == "__main__":
    main()
