// Covers: qkv/kernels/row_product.cc
// A sequence has the bits that it has alone: read at once, in parts or token by token, with others or
// without.
#include <gtest/gtest.h>

#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/infer/decode_state.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/model_dir.h"
#include "qkv/quant/quantize.h"
#include "qkv/tensor/storage.h"

namespace qkv::company_test {
namespace {

using Tokens = std::vector<int32_t>;

// Four queries share a key: a token alone fills as many lanes of attention as a kernel needs.
constexpr const char* kConfig = R"({"model_type": "mistral", "architectures": ["MistralForCausalLM"],
  "vocab_size": 61, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 24, "max_position_embeddings": 400,
  "rms_norm_eps": 1e-5, "sliding_window": 70, "hidden_act": "silu", "tie_word_embeddings": false})";

Tokens tokens_of(int64_t n, int32_t seed) {
  Tokens out(n);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>((i * i * 7 + i * seed + 3) % 61);
  return out;
}

// The hidden states of the tokens, read in parts of the given lengths.
std::vector<float> in_parts(const Transformer& model, const Tokens& tokens,
                            const std::vector<int64_t>& parts) {
  DecodeState state(model, 1);
  std::vector<float> out;
  int64_t at = 0;
  for (const int64_t n : parts) {
    const Tensor x = state.extend({Tokens(tokens.begin() + at, tokens.begin() + at + n)});
    const auto values = x.values<float>();
    out.insert(out.end(), values.begin(), values.end());
    at += n;
  }
  EXPECT_EQ(at, std::ssize(tokens));
  return out;
}

void expect_own_bits(const Transformer& model) {
  const Tokens tokens = tokens_of(190, 5), other = tokens_of(33, 11);
  const std::vector<float> whole = in_parts(model, tokens, {190});
  EXPECT_EQ(whole, in_parts(model, tokens, {1, 64, 3, 17, 105}));
  EXPECT_EQ(whole, in_parts(model, tokens, {128, 62}));
  EXPECT_EQ(whole, in_parts(model, tokens, std::vector<int64_t>(190, 1)));
  DecodeState both(model, 2);
  const Tensor x = both.extend({other, tokens});
  const auto values = x.values<float>().subspan(33 * 64, 190 * 64);
  EXPECT_EQ(whole, std::vector<float>(values.begin(), values.end()));
}

TEST(Company, DoesNotChangeTheBitsOfASequence) {
  const NoGrad guard;
  Transformer model(parse_spec(kConfig, "config"));
  model.parameters().draw(3, DType::f32);
  expect_own_bits(model);
  for (const WeightType type : {WeightType::q8_0, WeightType::q4_0}) {
    for (Parameter& p : model.parameters().all()) {
      if (!p.any_type || p.shape.rank() != 2) continue;
      const Tensor dense = p.value.defined() ? p.value : Tensor();
      if (!dense.defined()) continue;
      QuantizedTensor blocks = QuantizedTensor::empty(p.shape, type);
      for (int64_t r = 0; r < p.shape[0]; ++r)
        quantize_row(type, p.shape[1], dense.row<float>(r).data(), nullptr,
                     blocks.mutable_blocks().subspan(r * blocks.row_bytes(), blocks.row_bytes()).data());
      p.packed = blocks;
    }
    expect_own_bits(model);
  }
}

// One query alone has the order of sums that many have, whatever the heads' widths.
TEST(Company, DoesNotChangeTheBitsOfHeadsOfTheirOwnKeys) {
  const NoGrad guard;
  Json config = Json::parse(kConfig);
  for (const int64_t width : {3, 16, 20, 37, 64}) {
    config.update({{"num_key_value_heads", 2}, {"num_attention_heads", 2}, {"head_dim", width - width % 2}});
    Transformer model(parse_spec(config.dump(), "config"));
    model.parameters().draw(3, DType::f32);
    expect_own_bits(model);
  }
}

// Products with few columns: routers, and adapters of a low rank.
TEST(Company, DoesNotChangeTheBitsOfRoutersAndAdapters) {
  const NoGrad guard;
  Json config = Json::parse(kConfig);
  config.update({{"model_type", "mixtral"},
                 {"architectures", {"MixtralForCausalLM"}},
                 {"num_local_experts", 5},
                 {"num_experts_per_tok", 2}});
  Transformer experts(parse_spec(config.dump(), "config"));
  experts.parameters().draw(3, DType::f32);
  expect_own_bits(experts);
  ModelSpec spec = parse_spec(kConfig, "config");
  for (const int64_t rank : {1, 3, 16}) {
    spec.lora = {.rank = rank, .alpha = 5, .targets = {"all-linear"}, .base = "base"};
    spec.lora.adapters = adapters_of(spec);
    Transformer adapted(spec);
    for (Parameter& p : adapted.parameters().all())
      if (p.name.ends_with(".b")) p.initializer = {Initializer::Kind::normal, 0.3F};
    adapted.parameters().draw(3, DType::f32);
    expect_own_bits(adapted);
  }
}

TEST(Company, LongPromptsAreReadInParts) {
  const NoGrad guard;
  Json config = Json::parse(kConfig);
  config["intermediate_size"] = 512;
  Transformer model(parse_spec(config.dump(), "config"));
  model.parameters().draw(3, DType::f32);
  const Tokens tokens = tokens_of(1400, 5);
  const auto memory_of = [](const auto& f) {
    const size_t before = memory_use().in_use;
    reset_peak_memory();
    f();
    return memory_use().peak - before;
  };
  Tensor in_parts, at_once;
  const size_t little = memory_of([&] { in_parts = DecodeState(model, 1).advance({tokens}); });
  const size_t much = memory_of([&] {
    const Tensor x = DecodeState(model, 1).extend({tokens});
    Tensor last = Tensor::empty({1, 64}, DType::f32);
    copy_rows(x, 1399, 0, 1, last, 0);
    at_once = model.logits(last);
  });
  EXPECT_LT(little * 2, much);
  const auto want = at_once.values<float>(), got = in_parts.values<float>();
  EXPECT_EQ(std::vector<float>(want.begin(), want.end()), std::vector<float>(got.begin(), got.end()));
}

TEST(Company, APromptThatDoesNotFitIsNotReadInPart) {
  const NoGrad guard;
  Transformer model(parse_spec(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 61, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 300})",
                               "config"));
  model.parameters().draw(3, DType::f32);
  DecodeState state(model, 1);
  EXPECT_THROW(state.advance({tokens_of(301, 5)}), Error);
  EXPECT_EQ(state.length(0), 0);
  state.advance({tokens_of(300, 5)});
  EXPECT_EQ(state.length(0), 300);
}

}  // namespace
}  // namespace qkv::company_test
