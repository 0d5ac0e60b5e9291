// What random models are put together from: sizes, heads, positions, and changes that any model may have.
#pragma once

#include <vector>

#include "qkv/models/spec.h"
#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

// A decoder of sizes that a kernel's vectors, tiles and blocks do not divide. Heads are `least_head` wide at
// least.
ModelSpec sized(Draw& d, int64_t least_head = 1);

// Beginnings, after the families that they are named for; images() reads a picture and so many tokens.
ModelSpec gpt2(Draw& d);
ModelSpec llama(Draw& d);  // heads of an even width, all of which is turned
ModelSpec bert(Draw& d);
ModelSpec bart(Draw& d);
ModelSpec t5(Draw& d);
ModelSpec images(Draw& d, int64_t tokens);

// A head of one of these kinds in the place of an encoder's unembedding, or that itself; sometimes classes in
// the place of a decoder's.
extern const std::vector<Output> kOfBert;
void end_encoder(ModelSpec& s, Draw& d, const std::vector<Output>& outputs);
void end_decoder(ModelSpec& s, Draw& d);

// An encoder before the decoder, and another number of heads and other feed-forward networks in it.
void add_encoder(ModelSpec& s, Draw& d);
void set_encoder_apart(ModelSpec& s, Draw& d);

// Attention: shared keys, rotary positions (of the whole head or a part of it) and their scaling, latents,
// patterns.
void share_keys(ModelSpec& s, Draw& d);
void turn(ModelSpec& s, Draw& d, bool whole);
void scale_angles(ModelSpec& s, Draw& d);
void compress(ModelSpec& s, Draw& d);
std::vector<Pattern> patterns(Draw& d, bool encoder);

// Other positions than those that there are, of all kinds; attention to relative ones.
void place(ModelSpec& s, Draw& d);
void relate(ModelSpec& s, Draw& d);

ExpertsSpec experts(Draw& d);

// Up to `most` changes that any model may have, which its family need not be able to say.
void vary(ModelSpec& s, Draw& d, int64_t most);

}  // namespace qkv::testing
