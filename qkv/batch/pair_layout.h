// The layout of pairs of texts.
#pragma once

#include <cstdint>

namespace qkv {

// How a model reads a pair of source and target.
struct PairLayout {
  int64_t context;             // maximum tokens in each stack
  bool two_stacks;             // each has its own stack; else one stack reads both in a row
  bool prefix;                 // in a row, source tokens see each other
  int64_t source_context = 0;  // maximum tokens of a source in a stack of its own; 0: context
};

}  // namespace qkv
