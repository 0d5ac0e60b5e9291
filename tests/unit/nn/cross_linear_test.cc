// Linear attention to sources: what is remembered of them, and models that have it in parts.
// Covers: qkv/nn/attention.cc, qkv/models/spec.cc
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "qkv/nn/attention.h"
#include "qkv/nn/states.h"
#include "qkv/train/config/config.h"
#include "tests/gradient/gradient_check.h"
#include "tests/unit/expect_error.h"

namespace qkv::cross_linear_test {
namespace {

using testing::uniform;

struct Layer {
  Parameters parameters;
  std::unique_ptr<CrossAttention> attention;

  explicit Layer(bool linear) {
    AttentionSpec a;
    a.heads = a.kv_heads = 3;
    a.d_qk = 3;
    a.d_vo = 5;
    a.cross_linear = linear;
    attention = std::make_unique<CrossAttention>(parameters, "x", 6, 4, a, 0, 1, InitStd{0.5F, 0.5F});
    parameters.draw(7, DType::f32);
  }
  Tensor read(const Tensor& x, const std::vector<int32_t>& lengths, DecodingStates* states,
              const Tensor& source = {}) const {
    const NoGrad guard;
    Context context;
    context.layout = Layout::of(lengths);
    context.states = states;
    if (source.defined()) {
      context.source = source;
      context.source_layout = Layout::of({2, 0, 70});
    }
    return attention->forward(x, context);
  }
};

// The state comes back from disk, changes its order and is joined; every token has the bits that it has
// without a state.
TEST(CrossLinear, RemembersSourcesAsOneRowEach) {
  const Layer layer(true);
  const Tensor source = uniform({72, 4}, 1), x = uniform({6, 6}, 2);
  const Tensor all = layer.read(x, {2, 2, 2}, nullptr, source);
  const auto rows = [&](std::vector<int64_t> of) {
    Tensor out = Tensor::empty({std::ssize(of), 6}, DType::f32);
    for (size_t i = 0; i < of.size(); ++i)
      std::ranges::copy(x.row<float>(of[i]), out.mutable_row<float>(static_cast<int64_t>(i)).begin());
    return out;
  };
  const auto expect_rows = [&](const Tensor& got, std::vector<int64_t> of) {
    for (size_t i = 0; i < of.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(got.row<float>(static_cast<int64_t>(i)), all.row<float>(of[i])))
          << of[i];
  };
  DecodingStates states;
  layer.attention->add_states(states, 3);
  expect_rows(layer.read(rows({0, 2, 4}), {1, 1, 1}, &states, source), {0, 2, 4});
  LayerState& state = *states.all()[0];
  EXPECT_EQ(state.bytes(), 3 * 3 * 3 * (5 + 1) * 4);  // whatever the sources' lengths
  DecodingStates loaded;
  layer.attention->add_states(loaded, 3);
  loaded.all()[0]->load(state.save());
  expect_rows(layer.read(rows({1, 3, 5}), {1, 1, 1}, &loaded), {1, 3, 5});
  state.reorder(std::vector<int32_t>{2, 2, 0});
  expect_rows(layer.read(rows({5, 4, 1}), {1, 1, 1}, &states), {5, 4, 1});
  DecodingStates joined;
  layer.attention->add_states(joined, 0);
  joined.all()[0]->join(*loaded.all()[0], std::vector<int32_t>{1, 2});
  joined.all()[0]->join(state, std::vector<int32_t>{2});
  expect_rows(layer.read(rows({3, 5, 1}), {1, 1, 1}, &joined), {3, 5, 1});
}

ModelSpec read(const std::string& model) {
  return parse_train_config(
             "data.train = 'a.tsv'\n[model]\narchitecture = 'encoder_decoder'\nwidth = 32\nheads = 4\n" +
                 model,
             "run.toml", {})
      .model;
}

TEST(CrossLinear, IsTheDecodersBesideItsEncoderAlone) {
  const ModelSpec s = read(
      "layers = 2\nencoder_layers = 2\ncross_linear = true\nencoder_layer_kinds = ['a']\n"
      "[model.kind.a]\npatterns = ['window 3']\n");
  for (const Architecture stack : {Architecture::encoder, Architecture::decoder}) {
    ModelSpec part = s.part(stack);
    part.vocab_size = 11;
    EXPECT_FALSE(part.attention.cross_linear);
    EXPECT_NO_THROW(Transformer{part});
  }
}

}  // namespace
}  // namespace qkv::cross_linear_test
