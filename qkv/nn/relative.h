// Relative position vectors in attention: the terms that they add to the scores, and their weights.
#pragma once

#include <memory>
#include <string>

#include "qkv/nn/context.h"
#include "qkv/nn/parameter.h"
#include "qkv/nn/relative_spec.h"
#include "qkv/ops/relative_products.h"

namespace qkv {

class Linear;

// One layer's weights of relative attention.
class RelativeEncoding {
 public:
  // The heads, and the options of their projections.
  struct Shape {
    int64_t width, heads, kv_heads, d_qk;
    bool bias, key_bias, causal;
    float scale;  // factor on the scores
  };
  RelativeEncoding(Parameters& parameters, const std::string& name, const RelativeSpec& spec,
                   const Shape& shape, float std);

  // The tables for queries and the keys that they see. Changes q to the vectors that are multiplied with
  // the keys. `query_key`: the linear layer of queries, then keys, and more.
  PairTables tables(Heads& q, const Heads& k, const Linear& query_key, const Context& context) const;

 private:
  RelativeSpec spec_;
  Shape shape_;
  Parameter* vectors_ = nullptr;               // a_d of Shaw: [rows, d_qk]
  std::unique_ptr<Linear> to_key_, to_query_;  // projections of distances: W_r or W_k, and W_q
  Parameter *content_bias_ = nullptr, *position_bias_ = nullptr, *segment_bias_ = nullptr;  // [heads d_qk]
  Parameter* segment_ = nullptr;                                                            // [2, heads d_qk]
};

}  // namespace qkv
