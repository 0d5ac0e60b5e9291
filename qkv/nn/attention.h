// Attention layers. Each holds only weights; what it remembers comes in as an argument.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "qkv/nn/attention_spec.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/relative.h"
#include "qkv/nn/sublayer.h"
#include "qkv/ops/gather_columns.h"

namespace qkv {

class GlobalAttention;

// Algorithm 5 of Phuong & Hutter, MHAttention(X, Z | W, Mask), for projected queries, keys and values.
class MultiHeadAttention {
 public:
  // `layer` counts from 0; `site` is this layer's place among the uses of randomness. `self`: takes the
  // context's bias by distance and its visibility, where there are any.
  MultiHeadAttention(Parameters& parameters, const std::string& name, int64_t width,
                     const AttentionSpec& spec, Mask mask, bool self, int64_t layer, uint32_t site,
                     InitStd std);
  // Lines 4-9: the heads' outputs, projected.
  Tensor forward(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys,
                 const Context& context, const PairTables& pair = {}, const Tensor& gate = {}) const;
  // The two halves of that: [N, heads v.width], and its projection, less what heads are narrower than that.
  Tensor heads(const Heads& q, const Heads& k, const Heads& v, const KeyLayout& keys, const Context& context,
               const PairTables& pair = {}) const;
  // `gate`: what a sigmoid makes the factors of the heads' outputs of; undefined: none.
  Tensor project(Tensor heads, const Context& context, const Tensor& gate = {}) const;
  // Lets a probe see, and replace, the heads of queries, keys or values ("." and which) as [N, heads width].
  void visit(const char* of, Heads& heads, const Context& context) const;
  const std::string& name() const { return name_; }
  const AttentionSpec& spec() const { return spec_; }
  float scale() const { return scale_; }
  const Mask& mask() const { return mask_; }
  uint32_t site() const { return site_; }

 private:
  std::string name_;
  AttentionSpec spec_;
  Mask mask_;
  bool self_;
  float scale_;
  uint32_t site_;
  Parameter* sinks_ = nullptr;  // f32 [heads]
  std::shared_ptr<const ColumnMap> narrow_;
  Linear out_;  // W_o
};

// Z = X; one fused projection gives the queries, keys and values of all heads.
class SelfAttention : public Sublayer, private Remembering<KeyValueState> {
 public:
  // `norm_epsilon`: of the norms of queries and keys.
  SelfAttention(Parameters& parameters, const std::string& name, int64_t width, const AttentionSpec& spec,
                float norm_epsilon, Mask mask, int64_t layer, uint32_t site, InitStd std);
  ~SelfAttention() override;
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override {
    if (!attention_.spec().reused_keys) add_state(states, sequences);
  }
  void add_segment_states(SegmentStates& states, int64_t sequences, int64_t longest) const override {
    states.add(this, std::make_unique<SegmentState>(sequences, longest));
  }

 private:
  std::unique_ptr<KeyValueState> make_state(int64_t sequences) const override;
  // Keys of unit mean square made of the queries in qkv [N, ..].
  Heads keys_of_queries(const Tensor& qkv) const;
  // The heads' outputs of LSH attention.
  Tensor hashed(const Heads& q, const Heads& k, const Heads& v, const Context& context) const;
  // The heads' outputs for queries and the keys and values that an earlier layer left, projected.
  Tensor of_reused_keys(const Heads& q, const Tensor& gate, const Context& context) const;

  bool shared_;                  // keys are made of queries
  int64_t keys_at_, values_at_;  // first columns of keys and of values in qkv, behind the gate
  Linear
      qkv_;  // rows: the gate's weights where there is one, all queries', keys' where they have any, values'
  std::shared_ptr<const ColumnMap> spread_;
  // gamma and, of layer_norm with one, beta of queries and keys; null: there is no norm.
  struct HeadNorm {
    Parameter *gamma = nullptr, *beta = nullptr;
  };
  Tensor normed(const Tensor& qkv, int64_t column, int64_t heads, const HeadNorm& norm) const;

  Tensor ones_;         // f32 [d_qk]: gamma of norms without one
  Tensor unit_values_;  // f32 [d_vo]: the same, of values; undefined: they have no norm
  HeadNorm query_norm_, key_norm_;
  float norm_epsilon_;
  MultiHeadAttention attention_;
  HashedAttention hashing_;         // chunk 0: it does not hash
  Parameter* rotations_ = nullptr;  // f32 [heads, d_qk, rounds, columns], which no gradient moves
  std::unique_ptr<RelativeEncoding> relative_;
  std::unique_ptr<GlobalAttention> global_;
};

// Z = context.source, all of which each query sees. With a state the keys and values are computed once.
class CrossAttention : public Sublayer, private Remembering<SourceState> {
 public:
  // `source`: the width of the source's rows.
  CrossAttention(Parameters& parameters, const std::string& name, int64_t width, int64_t source,
                 const AttentionSpec& spec, int64_t layer, uint32_t site, InitStd std);
  Tensor forward(const Tensor& x, const Context& context) const override;
  void add_states(DecodingStates& states, int64_t sequences) const override { add_state(states, sequences); }

 private:
  std::unique_ptr<SourceState> make_state(int64_t sequences) const override;
  // Keys and values of the context's source.
  std::pair<Heads, Heads> of_source(const Context& context) const;
  // Linear attention. It remembers a row for each source, the matrices of its heads: half of it as a key,
  // half as a value.
  Tensor linearly(const Heads& q, const Context& context) const;

  Linear q_;
  Linear kv_;  // rows: all keys' weights, then values'
  std::shared_ptr<const ColumnMap> spread_q_, spread_kv_;
  MultiHeadAttention attention_;
};

}  // namespace qkv
