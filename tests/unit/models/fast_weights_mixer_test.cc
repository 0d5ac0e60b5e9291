// Linear attention and the delta rule as mixers: what they refuse, and the settings that follow from others.
// Covers: qkv/models/mixers/fast_weights_layer.cc, qkv/nn/fast_weights.cc
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "qkv/train/config/config.h"
#include "tests/unit/expect_error.h"

namespace qkv::fast_weights_mixer_test {
namespace {

using testing::expect_error;

ModelSpec read(const std::string& model) {
  return parse_train_config("data.train = 'a.txt'\n[model]\nwidth = 16\n" + model, "run.toml", {}).model;
}

TEST(FastWeightsMixers, AreInConfigurations) {
  const ModelSpec linear = read("mixer = 'linear_attention'\nlinear_heads = 2\nlinear_features = 'shares'\n");
  LinearAttentionMixer want;
  want.heads = 2;
  want.features = FeatureMap::shares;
  EXPECT_EQ(linear.mixer, MixerSpec(want));
  EXPECT_EQ(linear.positions, Positions::learned);
  const ModelSpec delta = read("mixer = 'delta_rule'\ndelta_heads = 8\ndelta_features = 'unit'\n");
  EXPECT_EQ(delta.mixer.get_if<DeltaRuleMixer>()->features, FeatureMap::unit);
  EXPECT_EQ(delta.positions, Positions::none);
}

TEST(FastWeightsMixers, WhatMayBeNegativeIsNotNormalised) {
  const auto normalised = [](const std::string& more) {
    return read("mixer = 'linear_attention'\n" + more).mixer.get_if<LinearAttentionMixer>()->normalised;
  };
  EXPECT_TRUE(normalised(""));
  EXPECT_TRUE(normalised("linear_features = 'relu'\n"));
  EXPECT_FALSE(normalised("linear_features = 'identity'\n"));
  EXPECT_FALSE(normalised("linear_features = 'unit'\n"));
  EXPECT_FALSE(normalised("linear_normalised = false\n"));
  expect_error([&] { normalised("linear_features = 'unit'\nlinear_normalised = true\n"); },
               {"linear_normalised", "negative"});
}

TEST(FastWeightsMixers, AreRefusedWhereTheyMeanNothing) {
  expect_error([] { read("mixer = 'linear_attention'\nlinear_heads = 3\n"); }, {"linear_heads", "16", "3"});
  expect_error([] { read("mixer = 'delta_rule'\narchitecture = 'encoder'\n"); }, {"delta_rule", "decoder"});
  expect_error([] { read("mixer = 'linear_attention'\npositions = 'rotary'\n"); }, {"positions"});
  expect_error([] { read("mixer = 'delta_rule'\nlinear_heads = 2\n"); }, {"linear_heads", "no effect"});
}

// With one token a head's output is its value: similarities cancel.
TEST(FastWeightsMixers, OneTokenSeesItself) {
  ModelSpec spec = gpt2_spec(9, 12, 8, 2, 1);
  LinearAttentionMixer mixer;
  mixer.heads = 2;
  spec.mixer = mixer;
  spec.init_std = 0.4F;
  Transformer model(spec);
  model.parameters().draw(3, DType::f32);
  const auto logits = [&] {
    const NoGrad guard;
    const Tensor z = model.logits(model.hidden({std::vector<int32_t>{4}, Layout::of({1})}, {}));
    return std::vector<float>(z.data<float>(), z.data<float>() + z.count());
  };
  const std::vector<float> before = logits();
  for (const char* name : {"q", "k"}) {
    Parameter& p = *model.parameters().find(fmt::format("decoder.block.0.fast_weights.{}.weight", name));
    for (float& x : p.value.mutable_values<float>()) x *= 0.5F;
  }
  const std::vector<float> after = logits();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-4);
}

}  // namespace
}  // namespace qkv::fast_weights_mixer_test
