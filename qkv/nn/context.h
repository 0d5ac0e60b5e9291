// What a forward pass carries besides its activations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/batch/layout.h"
#include "qkv/ops/attention.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Sees, and may replace, named values inside a model: tracing, hidden states, attention pictures, ablation.
// The names are tied to the paper's symbols in docs/notation.md.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual bool wants(std::string_view name) const = 0;
  // An activation [N, D].
  virtual void visit(std::string_view /*name*/, Tensor& /*value*/) {}
  // One head's scores or probabilities in one sequence: [queries, keys]. Scores can only be read.
  virtual void visit_head(std::string_view /*name*/, int64_t /*sequence*/, int64_t /*head*/,
                          Tensor& /*value*/) {}
};

class LayerState;
class SegmentState;
template <typename State>
class LayerStates;  // nn/states.h
// The layers' memory of the tokens that were decoded.
using DecodingStates = LayerStates<LayerState>;
// Their memory of the text before a window that is learnt from or measured.
using SegmentStates = LayerStates<SegmentState>;

// What all layers of one forward pass are told.
struct Context {
  Layout layout;
  DecodingStates* states = nullptr;         // appended to; null: nothing is remembered
  SegmentStates* segment_states = nullptr;  // null: there is no memory of segments
  // With segment states: the rows that self-attention sees, the remembered ones of each sequence and then its
  // own, and which of them are its own, [N].
  Layout seen = {};
  Indices own_rows = {};
  Indices segments;      // [N]; undefined: all 0
  Ranks ranks;           // whom a token sees in self-attention; undefined: the mask of the stack
  Indices globals = {};  // [N + 1]: of an encoder's rows, how many global tokens are before each;
                         // undefined: the patterns say which are
  Tensor source;         // [M, D]: what cross-attention looks at
  Layout source_layout;  // as many sequences as `layout`
  Tensor
      distance_bias;  // f32 [heads, 2 reach + 1]: added to the scores of self-attention; undefined: nothing
  // Of relative encodings (nn/relative.h): what their tables are made of, [rows, D], where that is one for
  // all layers, and the table's row of each distance, [2 reach + 1].
  Tensor distance_vectors = {};
  Indices distance_columns = {};
  Tensor rotation = {};   // f32 [N, width]: of the queries and keys of self-attention (ops/rotary.h)
  bool training = false;  // dropout is on
  // What layers remember of training (running averages, loads of experts) takes note of this pass.
  bool observed = false;
  float balance_scale =
      0;  // the part of a step's targets that this pass has: what a mixture's balancing counts
  uint64_t seed = 0, step = 0;
  int64_t first_row = 0;  // global index of row 0 within the step, over its micro-batches
  Probe* probe = nullptr;

  // The dropout of one place in the model.
  Dropout dropout(float p, uint32_t site) const {
    if (!training || p == 0) return {};
    return {p, DropoutKey::from({seed, step, site}), first_row};
  }
  bool probed(std::string_view name) const { return probe != nullptr && probe->wants(name); }
  void visit(std::string_view name, Tensor& value) const {
    if (probed(name)) probe->visit(name, value);
  }
};

}  // namespace qkv
