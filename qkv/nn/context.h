// The context of a forward pass: its inputs besides the activations.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/batch/layout.h"
#include "qkv/ops/attention_unfused.h"
#include "qkv/tensor/tensor.h"

namespace qkv {

// Observes, and may replace, named values inside a model: for tracing, hidden states, attention pictures
// and ablation. docs/notation.md relates the names to the paper's symbols. While gradients are recorded they
// pass through the values: assign others, but do not write into them.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual bool wants(std::string_view name) const = 0;
  // An activation [N, D].
  virtual void visit(std::string_view /*name*/, Tensor& /*value*/) {}
  // One head's scores or probabilities in one sequence: f32 [queries, keys].
  virtual void visit_head(std::string_view /*name*/, int64_t /*sequence*/, int64_t /*head*/,
                          Tensor& /*value*/) {}
};

class AdapterWeights;  // nn/adapter.h
class KeyValueState;
class LayerState;
class SegmentState;
template <typename State>
class LayerStates;  // nn/states.h
// The layers' memory of the tokens decoded so far.
using DecodingStates = LayerStates<LayerState>;
// The layers' memory of the text before a window, in training and evaluation.
using SegmentStates = LayerStates<SegmentState>;

// Keys and values that a layer leaves for later layers, which reuse them.
struct LayerKeys {
  Tensor keys, values;                    // [N, kv_heads d_qk], [N, kv_heads d_vo]
  const KeyValueState* memory = nullptr;  // instead of them: where they are, if the pass remembers
};

// Inputs that all layers of one forward pass share.
struct Context {
  Layout layout;
  DecodingStates* states = nullptr;         // appended to; null: nothing is remembered
  SegmentStates* segment_states = nullptr;  // null: there is no memory of segments
  // With segment states: the rows that self-attention sees, for each sequence the remembered rows and then
  // its own. own_rows [N] are the indices of its own rows.
  Layout seen = {};
  Indices own_rows = {};
  // The adapter of each sequence, beside those of the model; null: none. Empty: no sequence has one.
  std::span<const AdapterWeights* const> adapters = {};
  Indices segments;       // [N]; undefined: all 0
  Visibility visibility;  // which tokens self-attention sees; undefined: the mask of the stack decides
  Indices globals = {};   // [N + 1]: global tokens before each row of an encoder; undefined: patterns decide
  Tensor source;          // [M, D]: the rows that cross-attention reads
  Tensor source_values = {};  // [M, D]: those of its values, if they are others; undefined: the same
  Layout source_layout;       // as many sequences as `layout`
  Layout query_layout =
      {};  // the positions that latents give rows for (models/latents.h); no rows: those of `layout`
  Tensor distance_bias;  // f32 [heads, 2 reach + 1], added to self-attention's scores; undefined: none
  // For relative encodings (nn/relative.h): the vectors [rows, D] from which all layers compute their
  // tables, if layers share them. distance_columns [2 reach + 1] has the table's row for each distance.
  Tensor distance_vectors = {};
  Indices distance_columns = {};
  Tensor query_factors = {};  // f32 [N, 1]: self-attention's queries are multiplied by them; undefined: by 1
  Tensor rotation = {};       // f32 [N, width]: rotation of self-attention's queries and keys (ops/rotary.h)
  // The current block's: self-attention leaves its keys and values here, null: no other layer reuses them;
  // and the ones that it reuses.
  LayerKeys* left_keys = nullptr;
  const LayerKeys* reused_keys = nullptr;
  Tensor layer_inputs = {};  // [N, layers d]: inputs of all blocks (models/layer_inputs.h); undefined: none
  Tensor layer_input = {};   // [N, d]: that of the current block
  bool training = false;     // dropout is on
  // Layers update their training statistics (running averages, loads of experts) in this pass.
  bool observed = false;
  float balance_scale = 0;  // this pass's share of a step's targets, which weighs the load-balancing loss
  uint64_t seed = 0, step = 0;
  int64_t first_row = 0;  // global index of row 0 within the step, over its micro-batches
  Probe* probe = nullptr;

  // The dropout of one place in the model.
  Dropout dropout(float p, uint32_t site) const {
    if (!training || p == 0) return {};
    return {p, DropoutKey::from({seed, step, site}), first_row};
  }
  // Names are a layer's and that of one of its values, which are joined only where there is a probe.
  bool probed(std::string_view layer, std::string_view of) const {
    return probe != nullptr && probe->wants(std::string(layer).append(of));
  }
  void visit(std::string_view layer, std::string_view of, Tensor& value) const {
    if (probed(layer, of)) probe->visit(std::string(layer).append(of), value);
  }
  // Shows the probe the heads' scores or probabilities of a layer.
  HeadVisitor head_visitor(std::string_view layer, std::string_view of) const {
    return [this, name = std::string(layer).append(of)](int64_t sequence, int64_t head, Tensor& value) {
      probe->visit_head(name, sequence, head, value);
    };
  }
};

}  // namespace qkv
