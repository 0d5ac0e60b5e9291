// Small models with weights to save and load.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "qkv/io/model_dir.h"
#include "qkv/ops/dequantize.h"

namespace qkv {

inline ModelSpec gpt2() {
  return gpt2_spec(13, 8, 12, 2, 3);
}
// A decoder with what Llama has.
inline ModelSpec llama(int64_t context = 8) {
  ModelSpec s = gpt2_spec(13, context, 12, 2, 3);
  s.attention.kv_heads = 1;
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.tied = false;
  s.gated = true;
  s.activation = Activation::silu;
  s.normalization = Normalization::rms;
  s.norm_epsilon = 1e-6F;
  s.positions = Positions::rotary;
  s.attention.rotary.width = 4;
  return s;
}
inline ModelSpec native() {
  ModelSpec s = gpt2();
  s.attention.heads = 4;
  s.attention.kv_heads = 2;
  s.attention.d_qk = 5;
  s.attention.d_vo = 7;
  s.attention.bias = s.attention.out_bias = false;
  s.hidden = 9;
  s.tied = false;
  s.activation = Activation::relu;
  return s;
}

inline std::unique_ptr<Transformer> drawn(const ModelSpec& spec, uint64_t seed = 4) {
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(seed, DType::f32);
  return model;
}

inline void expect_same_weights(const Transformer& a, const Transformer& b) {
  ASSERT_EQ(a.parameters().all().size(), b.parameters().all().size());
  for (size_t i = 0; i < a.parameters().all().size(); ++i) {
    const Parameter &p = a.parameters().all()[i], &q = b.parameters().all()[i];
    ASSERT_EQ(p.name, q.name);
    const Tensor x = dequantized(p.weight(), DType::f32), y = dequantized(q.weight(), DType::f32);
    ASSERT_EQ(x.shape(), y.shape()) << p.name;
    EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0) << p.name;
  }
}

}  // namespace qkv
