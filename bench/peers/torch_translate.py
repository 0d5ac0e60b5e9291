#!/usr/bin/python3
"""The peer of `qkv translate`: a pre-LN encoder-decoder trained by qkv (learned weights, sinusoidal positions, ReLU),
with beam search and cached keys and values, in PyTorch. Reads a JSON list of source ids a line, writes lists of
target ids, and prints "name value" lines.

Debian 12: apt-get install python3-torch libopenblas0-openmp; run as
  OMP_NUM_THREADS=2 LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/openblas-openmp /usr/bin/python3 torch_translate.py RUN/best IDS OUT
"""
import argparse
import json
import math
import resource
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument('model')
parser.add_argument('ids')
parser.add_argument('out')
parser.add_argument('--beams', type=int, default=4)
parser.add_argument('--tokens', type=int, default=128)
parser.add_argument('--batch-tokens', type=int, default=2048)
parser.add_argument('--dtype', choices=['f32', 'bf16'], default='f32')
o = parser.parse_args()

config = json.load(open(o.model + '/config.json'))
bos, eos, spec = config['decoder_start_token_id'], config['eos_token_id'], config['qkv']
assert spec['positions'] == 'sinusoidal' and spec['norm_placement'] == 'pre' and spec['activation'] == 'relu'
D, H = spec['width'], spec['heads']
with open(o.model + '/model.safetensors', 'rb') as f:
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    data = f.read()
w = {name: torch.from_numpy(np.frombuffer(data[a:b], np.float32).reshape(t['shape']).copy())
     for name, t in header.items() if name != '__metadata__' for a, b in [t['data_offsets']]}
if o.dtype == 'bf16':
    w = {name: t.bfloat16() for name, t in w.items()}
angle = torch.arange(spec['context'])[:, None] / 10000 ** (torch.arange(0, D, 2) / D)
position = torch.stack([angle.sin(), angle.cos()], -1).reshape(spec['context'], D)


def linear(x, name):
    return F.linear(x, w[name + '.weight'], w.get(name + '.bias'))


def norm(x, name):
    return F.layer_norm(x, (D,), w[name + '.gamma'], w[name + '.beta'], spec['norm_epsilon'])


def heads(x):
    return x.view(*x.shape[:2], H, D // H).transpose(1, 2)


def attend(q, k, v, hidden=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(D // H)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def embed(ids, start=0):
    x = F.embedding(ids, w['embedding.token']) * math.sqrt(D)
    return (x + position[start:start + ids.shape[1]]).to(x.dtype)


def feed_forward(x, name):
    return x + linear(F.relu(linear(norm(x, name + '.norm'), name + '.up')), name + '.down')


def encode(ids, hidden):
    x = embed(ids)
    for layer in range(spec['encoder_layers']):
        name = f'encoder.block.{layer}.'
        q, k, v = (heads(y) for y in linear(norm(x, name + 'attention.norm'), name + 'attention.qkv').split(D, -1))
        x = x + linear(attend(q, k, v, hidden), name + 'attention.out')
        x = feed_forward(x, name + 'feed_forward')
    return norm(x, 'encoder.norm')


def translate(sources):
    """Beam search over a batch of sources (lists of ids), as qkv/infer/beam.cc has it."""
    n, beams, longest = len(sources), o.beams, max(map(len, sources))
    ids = torch.tensor([s + [eos] * (longest - len(s)) for s in sources])
    hidden = (torch.arange(longest)[None] >= torch.tensor([len(s) for s in sources])[:, None])[:, None, None]
    z = encode(ids, hidden)
    cross = [[heads(y) for y in linear(z, f'decoder.block.{layer}.cross_attention.kv').split(D, -1)]
             for layer in range(spec['layers'])]
    cache = [None] * spec['layers']
    live, rows = list(range(n)), torch.arange(n)  # sources that go on; the source of each row
    grown, score = [[[]] for _ in range(n)], [[0.0] for _ in range(n)]
    done = [[] for _ in range(n)]
    last = torch.full((n, 1), bos)
    for step in range(1, o.tokens + 1):
        x = embed(last, step - 1)
        for layer in range(spec['layers']):
            name = f'decoder.block.{layer}.'
            q, k, v = (heads(y) for y in linear(norm(x, name + 'attention.norm'), name + 'attention.qkv').split(D, -1))
            if cache[layer] is not None:
                k, v = torch.cat([cache[layer][0], k], 2), torch.cat([cache[layer][1], v], 2)
            cache[layer] = [k, v]
            x = x + linear(attend(q, k, v), name + 'attention.out')
            q = heads(linear(norm(x, name + 'cross_attention.norm'), name + 'cross_attention.q'))
            k, v = cross[layer]
            x = x + linear(attend(q, k[rows], v[rows], hidden[rows]), name + 'cross_attention.out')
            x = feed_forward(x, name + 'feed_forward')
        logits = F.linear(norm(x, 'decoder.norm')[:, 0], w['embedding.token']).float().log_softmax(-1)
        top, token = logits.topk(2 * beams)  # the best of each row; below, the best of all rows of a source
        kept, next_rows, next_last, next_live, first = [], [], [], [], 0
        for s in live:
            width = len(grown[s])
            total = (top[first:first + width] + torch.tensor(score[s])[:, None]).flatten()
            best = total.topk(2 * beams)
            new, new_score, origin = [], [], []
            for rank, (value, at) in enumerate(zip(best.values.tolist(), best.indices.tolist())):
                row, id = at // (2 * beams), token[first + at // (2 * beams), at % (2 * beams)].item()
                if len(new) == beams:
                    break
                if id != eos:
                    new.append(grown[s][row] + [id])
                    new_score.append(value)
                    origin.append(first + row)
                elif rank < beams:
                    done[s].append((value / step, grown[s][row]))
            done[s] = sorted(done[s], key=lambda d: -d[0])[:beams]
            first += width
            if len(done[s]) == beams and done[s][-1][0] >= best.values[0].item() / step:
                continue
            grown[s], score[s] = new, new_score
            next_live.append(s)
            kept += origin
            next_rows += [s] * len(new)
            next_last += [[b[-1]] for b in new]
        if not next_live:
            break
        live, rows, last = next_live, torch.tensor(next_rows), torch.tensor(next_last)
        index = torch.tensor(kept)
        cache = [[t[index] for t in layer] for layer in cache]
    for s in live:
        done[s] += [(v / o.tokens, g) for v, g in zip(score[s], grown[s])]
    return [max(d, key=lambda d: d[0])[1] for d in done]


sources = [json.loads(line) + [eos] for line in open(o.ids)]
order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
outputs = [None] * len(sources)
with torch.inference_mode():
    start, first = time.perf_counter(), 0
    while first < len(order):
        end, tokens = first, 0
        while end < len(order) and (end == first or tokens + len(sources[order[end]]) <= o.batch_tokens):
            tokens += len(sources[order[end]])
            end += 1
        for i, ids in zip(order[first:end], translate([sources[i] for i in order[first:end]])):
            outputs[i] = ids
        first = end
    seconds = time.perf_counter() - start
with open(o.out, 'w') as f:
    f.writelines(json.dumps(ids) + '\n' for ids in outputs)
print(f'sentences_per_second {len(sources) / seconds:.1f}')
print(f'peak_memory_mb {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f}')
