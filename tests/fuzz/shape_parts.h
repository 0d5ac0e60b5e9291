// Parts of random models: sizes, heads, positions, and changes that apply to any model.
#pragma once

#include <vector>

#include "qkv/models/spec.h"
#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

// A decoder with sizes that a kernel's vectors, tiles and blocks do not divide. Heads are at least
// `least_head` wide.
ModelSpec sized(Draw& d, int64_t least_head = 1);

// A divisor of n, at most `most`.
int64_t divisor_of(int64_t n, Draw& d, int64_t most = 64);

// Starting points, named after families; images() reads an image and `tokens` tokens.
ModelSpec gpt2(Draw& d);
ModelSpec llama(Draw& d);  // heads of an even width, which RoPE rotates as a whole
ModelSpec bert(Draw& d);
ModelSpec bart(Draw& d);
ModelSpec t5(Draw& d);
ModelSpec images(Draw& d, int64_t tokens);

// Gives an encoder a head of one of these kinds, or keeps its unembedding; sometimes gives a decoder
// classes in place of its unembedding.
extern const std::vector<Output> kOfBert;
void end_encoder(ModelSpec& s, Draw& d, const std::vector<Output>& outputs);
void end_decoder(ModelSpec& s, Draw& d);

// Adds an encoder before the decoder, and gives it another number of heads and other feed-forward networks.
void add_encoder(ModelSpec& s, Draw& d);
void set_encoder_apart(ModelSpec& s, Draw& d);

// Attention: shared keys, rotary positions (of the whole head or a part of it) and their scaling, latents,
// patterns.
void share_keys(ModelSpec& s, Draw& d);
void turn(ModelSpec& s, Draw& d, bool whole);
void scale_angles(ModelSpec& s, Draw& d);
void compress(ModelSpec& s, Draw& d);
std::vector<Pattern> patterns(Draw& d, bool encoder);

// Changes the positions, to any kind, and adds relative attention.
void place(ModelSpec& s, Draw& d);
void relate(ModelSpec& s, Draw& d);

ExpertsSpec experts(Draw& d);

// Hashes whose chunks have up to `longest` tokens.
HashedAttention hashes(Draw& d, int64_t longest);

// Makes up to `most` changes that apply to any model. The family's config.json need not be able to express
// them.
void vary(ModelSpec& s, Draw& d, int64_t most);

}  // namespace qkv::testing
