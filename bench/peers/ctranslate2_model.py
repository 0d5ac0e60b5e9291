#!/usr/bin/python3
"""A model that torch_translate.py reads as a directory of CTranslate2 4.8, for ctranslate2_translate.cc:

    ctranslate2_model.py RUN/best OUT

Weights are float32; tokens are named "0", "1", ... by their ids. The binary format is that of CTranslate2's ModelSpec, the
names those of its TransformerSpec (revision 7).
"""
import array
import json
import math
import os
import struct
import sys

source, out = sys.argv[1:]
config = json.load(open(source + '/config.json'))
spec = config['qkv']
assert spec['positions'] == 'sinusoidal' and spec['norm_placement'] == 'pre' and spec['activation'] == 'relu'
assert spec['embedding_scaled'] and spec['tied'] and not spec['unembedding_bias'] and not spec['gated']
assert spec['kv_heads'] == spec['heads']
D, H, V = spec['width'], spec['heads'], spec['vocab_size']
FLOAT32, INT8, INT16 = 0, 1, 2

with open(source + '/model.safetensors', 'rb') as f:
    header = json.loads(f.read(struct.unpack('<Q', f.read(8))[0]))
    data = f.read()
header.pop('__metadata__', None)
used = set()


def tensor(name):
    t = header[name]
    assert t['dtype'] == 'F32', name
    used.add(name)
    return t['shape'], FLOAT32, data[slice(*t['data_offsets'])]


variables, aliases = {}, {}


def linear(to, name):
    variables[to + '/weight'] = tensor(name + '.weight')
    if name + '.bias' in header:
        variables[to + '/bias'] = tensor(name + '.bias')


def norm(to, name):
    variables[to + '/gamma'] = tensor(name + '.gamma')
    variables[to + '/beta'] = tensor(name + '.beta')


def flag(value):
    return [], INT8, struct.pack('b', value)


def block(to, name, attentions):
    for attention, (theirs, matrices) in attentions.items():
        norm(f'{to}/{theirs}/layer_norm', f'{name}.{attention}.norm')
        for i, m in enumerate(matrices):
            linear(f'{to}/{theirs}/linear_{i}', f'{name}.{attention}.{m}')
    norm(to + '/ffn/layer_norm', name + '.feed_forward.norm')
    linear(to + '/ffn/linear_0', name + '.feed_forward.up')
    linear(to + '/ffn/linear_1', name + '.feed_forward.down')


positions = array.array('f')
for p in range(spec['context']):
    for i in range(0, D, 2):
        angle = p / 10000 ** (i / D)
        positions.extend((math.sin(angle), math.cos(angle)))

for side, layers in (('encoder', spec['encoder_layers']), ('decoder', spec['layers'])):
    variables[side + '/num_heads'] = [], INT16, struct.pack('<h', H)
    variables[side + '/pre_norm'] = flag(1)
    variables[side + '/activation'] = flag(0)  # ReLU
    variables[side + '/scale_embeddings'] = flag(1)  # by sqrt(width)
    norm(side + '/layer_norm', side + '.norm')
    for i in range(layers):
        attentions = {'attention': ('self_attention', ('qkv', 'out'))}
        if side == 'decoder':
            attentions['cross_attention'] = 'attention', ('q', 'kv', 'out')
        block(f'{side}/layer_{i}', f'{side}.block.{i}', attentions)
variables['encoder/multi_query_attention'] = flag(0)
variables['encoder/embeddings_merge'] = flag(0)
variables['decoder/alignment_layer'] = [], INT16, struct.pack('<h', -1)
variables['decoder/alignment_heads'] = [], INT16, struct.pack('<h', 1)
for name in ('alibi', 'alibi_use_positive_positions', 'scale_alibi', 'start_from_zero_embedding'):
    variables['decoder/' + name] = flag(0)
variables['decoder/embeddings/weight'] = tensor('embedding.token')
variables['decoder/position_encodings/encodings'] = [spec['context'], D], FLOAT32, positions.tobytes()
aliases['decoder/projection/weight'] = 'decoder/embeddings/weight'
aliases['encoder/embeddings_0/weight'] = 'decoder/embeddings/weight'
aliases['encoder/position_encodings/encodings'] = 'decoder/position_encodings/encodings'
assert variables['decoder/embeddings/weight'][0] == [V, D]
assert used == set(header), sorted(set(header) - used)

os.makedirs(out, exist_ok=True)
with open(out + '/model.bin', 'wb') as f:
    def string(s):
        f.write(struct.pack('<H', len(s) + 1) + s.encode() + b'\0')
    f.write(struct.pack('<I', 6))
    string('TransformerSpec')
    f.write(struct.pack('<II', 7, len(variables)))
    for name, (shape, dtype, content) in sorted(variables.items()):
        string(name)
        f.write(struct.pack(f'<B{len(shape)}IBI', len(shape), *shape, dtype, len(content)) + content)
    f.write(struct.pack('<I', len(aliases)))
    for alias, name in sorted(aliases.items()):
        string(alias)
        string(name)
eos, start = str(config['eos_token_id']), str(config['decoder_start_token_id'])
unknown = next(str(i) for i in range(V) if str(i) not in (eos, start))  # named, never needed: every id is a token
with open(out + '/config.json', 'w') as f:
    json.dump({'add_source_bos': False, 'add_source_eos': False, 'bos_token': start, 'decoder_start_token': start,
               'eos_token': eos, 'layer_norm_epsilon': spec['norm_epsilon'], 'multi_query_attention': False,
               'unk_token': unknown, 'context': spec['context']}, f, indent=2)
with open(out + '/shared_vocabulary.json', 'w') as f:
    json.dump([str(i) for i in range(V)], f)
