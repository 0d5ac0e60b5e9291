#!/usr/bin/python3
"""The peer of bench/gpt_step: the same training step in PyTorch (GPT-2 as nanoGPT writes it, AdamW).

Debian 12: apt-get install python3-torch libopenblas0-openmp; run as
  OMP_NUM_THREADS=2 LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp /usr/bin/python3 torch_gpt_step.py --dtype bf16
(the default pthread OpenBLAS oversubscribes the cores). Prints "name milliseconds" lines as gpt_step does.
"""
import argparse
import math
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        self.attention_dropout, self.residual_dropout = nn.Dropout(o.dropout), nn.Dropout(o.dropout)

    def attention(self, x, mask):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(x).split(d, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(d // self.heads)
        p = self.attention_dropout(F.softmax(scores.masked_fill(mask, float('-inf')), dim=-1))
        return self.out((p @ v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x, mask):
        x = x + self.residual_dropout(self.attention(self.ln_1(x), mask))
        h = self.up(self.ln_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * h ** 3))) if SLOW_GELU else F.gelu(h, approximate='tanh')
        return x + self.residual_dropout(self.down(h))


class GPT(nn.Module):
    def __init__(self, vocab, length, width, layers, heads):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.dropout = nn.Dropout(o.dropout)
        self.register_buffer('mask', torch.triu(torch.ones(length, length, dtype=torch.bool), 1))
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        t = ids.shape[1]
        x = self.dropout(self.wte(ids) + self.wpe(torch.arange(t)))
        for block in self.blocks:
            x = block(x, self.mask[:t, :t])
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


parser = argparse.ArgumentParser()
parser.add_argument('--dtype', choices=['f32', 'bf16'], default='bf16')
for name, value in dict(batch=4, length=256, steps=5, layers=12, width=768, heads=12, vocab=50257).items():
    parser.add_argument('--' + name, type=int, default=value)
parser.add_argument('--dropout', type=float, default=0.0)
parser.add_argument('--gelu', choices=['fused', 'composed'], default='fused')
o = parser.parse_args()
SLOW_GELU = o.gelu == 'composed'

torch.manual_seed(1)
model = GPT(o.vocab, max(o.length, 1024), o.width, o.layers, o.heads)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)
data = torch.randint(o.vocab, (o.batch, o.length + 1))
ids, targets = data[:, :-1].contiguous(), data[:, 1:].contiguous()
times = {'forward': [], 'backward': [], 'optimizer': [], 'step': []}
for i in range(o.steps + 1):
    t0 = time.perf_counter()
    with torch.autocast('cpu', dtype=torch.bfloat16, enabled=o.dtype == 'bf16'):
        loss = model(ids, targets)
    t1 = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    t2 = time.perf_counter()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    t3 = time.perf_counter()
    if i:
        for k, v in zip(times, (t1 - t0, t2 - t1, t3 - t2, t3 - t0)):
            times[k].append(1000 * v)
print('torch %s, %d threads, %s, %s gelu' % (torch.__version__, torch.get_num_threads(), o.dtype, o.gelu))
for k, v in times.items():
    print('%s %.1f' % (k, statistics.median(v)))
print('peak_memory_mb %.0f' % (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3))
