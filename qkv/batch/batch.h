// A flat batch of sequences: what a model reads, and what it learns from.
#pragma once

#include <vector>

#include "qkv/batch/layout.h"
#include "qkv/batch/output.h"
#include "qkv/kernels/ignored.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// A model's input: the tokens of a flat batch.
struct ModelInput {
  Indices ids;                // [N]
  Layout layout;              // of ids
  Indices segments = {};      // [N]; undefined: all 0
  Indices source = {};        // [M]: what an encoder-decoder conditions on (the paper's z); else undefined
  Layout source_layout = {};  // of source; as many sequences as `layout`
  // f32 [M, features.width()]: what stands where an id is kFeature, of an encoder-decoder's source; frames
  // two for each.
  Tensor features = {};
  Indices globals = {};  // [N]: 1 where a token is seen by all and sees all; undefined: patterns say so
  Ranks ranks = {};      // of ids: an order that is not the stack's own
  // [S]: the class of each sequence, to be told beside its tokens by a model with labels; undefined:
  // none.
  Indices sequence_targets = {};
};

// One micro-batch: a flat list of tokens; a sequence is a run within one document.
struct Batch : ModelInput {
  Indices targets;  // [N], the token that follows, kIgnored at a document's end
  int64_t target_count = 0;
  // The window of each sequence that was cut from windows of streams that are read on, and which go on
  // where their stream stood. Empty: nothing came before.
  std::vector<int32_t> windows = {};
  std::vector<bool> continues = {};
};

// How a model reads a pair.
struct PairLayout {
  int64_t context;  // of each of its stacks
  bool two_stacks;  // source and target are read by a stack each, not in a row
  bool prefix;      // in a row, the tokens of the source see each other
};

}  // namespace qkv
