#!/usr/bin/python3
"""The peer of bench/sequence_step: the same models with PyTorch's own modules (nn.TransformerEncoder, nn.Transformer).

Debian 12: apt-get install python3-torch libopenblas0-openmp; run as
  OMP_NUM_THREADS=2 LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp /usr/bin/python3 torch_sequence_step.py pairs --dtype bf16
Sequences that differ in length are padded to the longest and masked. Prints "name value" lines as sequence_step does.
"""
import argparse
import copy
import math
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    """BERT: embeddings with a norm, post-LN blocks, pooler, classifier."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(o.vocab, o.width), nn.Embedding(512, o.width)
        self.segment, self.norm, self.dropout = nn.Embedding(2, o.width), nn.LayerNorm(o.width, 1e-12), nn.Dropout(o.dropout)
        block = nn.TransformerEncoderLayer(o.width, o.heads, o.hidden, o.dropout, F.gelu, 1e-12, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, o.layers)
        self.pooler, self.classifier = nn.Linear(o.width, o.width), nn.Linear(o.width, 2)

    def forward(self, ids, padding):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1])) + self.segment(torch.zeros_like(ids))
        x = self.blocks(self.dropout(self.norm(x)), src_key_padding_mask=padding)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


class Pairs(nn.Module):
    """The Transformer of 2017 with one embedding for source, target and unembedding."""

    def __init__(self):
        super().__init__()
        self.token, self.dropout = nn.Embedding(o.vocab, o.width), nn.Dropout(o.dropout)
        nn.init.normal_(self.token.weight, std=0.02)
        self.t = nn.Transformer(o.width, o.heads, o.layers, o.layers, o.hidden, dropout=o.dropout, batch_first=True)
        angle = torch.arange(2 * o.length)[:, None] / 10000 ** (torch.arange(0, o.width, 2) / o.width)
        self.register_buffer('position', torch.stack([angle.sin(), angle.cos()], -1).reshape(2 * o.length, o.width))

    def embed(self, ids):
        return self.dropout(self.token(ids) * math.sqrt(o.width) + self.position[:ids.shape[1]])

    def forward(self, source, target, padding):
        n = target.shape[1]
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        h = self.t(self.embed(source), self.embed(target), tgt_mask=mask, src_key_padding_mask=padding,
                   tgt_key_padding_mask=padding, memory_key_padding_mask=padding)
        return F.linear(h, self.token.weight)


parser = argparse.ArgumentParser()
parser.add_argument('kind', choices=['encoder', 'pairs'])
parser.add_argument('--dtype', choices=['f32', 'bf16'], default='bf16')
for name, value in dict(batch=8, length=128, steps=5, layers=12, width=768, heads=12, hidden=3072, vocab=30522).items():
    parser.add_argument('--' + name, type=int, default=value)
parser.add_argument('--dropout', type=float, default=0.0)
parser.add_argument('--vary', action='store_true')
o = parser.parse_args()

torch.manual_seed(1)
lengths = [o.length // 4 + i * 7919 % (3 * o.length // 2 + 1) if o.vary else o.length for i in range(o.batch)]
longest = max(lengths)
padding = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None] if o.vary else None
bf16 = o.dtype == 'bf16'


def milliseconds(f):
    taken = []
    for i in range(o.steps + 1):
        start = time.perf_counter()
        f()
        taken.append((time.perf_counter() - start) * 1e3)
    return statistics.median(taken[1:])


def draw():
    return torch.randint(o.vocab, (o.batch, longest))


if o.kind == 'encoder':
    model = Encoder()
    ids, classes = draw(), torch.arange(o.batch) % 2
    model.eval()
    with torch.inference_mode():
        if bf16:  # parameters in bfloat16 with its fused encoder layer, or autocast, which that layer does not know
            fused, composed = copy.deepcopy(model).bfloat16(), copy.deepcopy(model).train()
            for module in composed.modules():
                if isinstance(module, nn.Dropout):
                    module.p = 0
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0
            forward = milliseconds(lambda: fused(ids, padding))
            with torch.autocast('cpu', dtype=torch.bfloat16):
                forward = min(forward, milliseconds(lambda: composed(ids, padding)))
        else:
            forward = milliseconds(lambda: model(ids, padding))
    print(f'forward {forward:.1f}')
    model.train()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)

    def loss():
        return F.cross_entropy(model(ids, padding).float(), classes)
else:
    model = Pairs()
    source, target, following = draw(), draw(), draw()
    if padding is not None:
        following[padding] = -100
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0.1)

    def loss():
        logits = model(source, target, padding)
        return F.cross_entropy(logits.float().view(-1, o.vocab), following.view(-1), label_smoothing=0.1)


def step():
    with torch.autocast('cpu', dtype=torch.bfloat16, enabled=bf16):
        value = loss()
    optimizer.zero_grad(set_to_none=True)
    value.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


ms = milliseconds(step)
print(f'step {ms:.1f}\ntokens_per_second {sum(lengths) / ms * 1e3:.0f}')
print(f'peak_memory_mb {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f}')
