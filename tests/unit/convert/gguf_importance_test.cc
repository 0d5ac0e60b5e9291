// Covers: qkv/convert/gguf_file.cc
// The importance of columns under the names that GGUF files have.
#include <gtest/gtest.h>

#include "qkv/convert/gguf_file.h"
#include "qkv/io/model_dir.h"
#include "tests/unit/io/gguf_model_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::testing::gguf_importance_test {
namespace {

using Importance = std::vector<std::vector<ColumnImportance>>;

std::vector<float> columns_from(float first, int64_t width) {
  std::vector<float> columns(width);
  std::iota(columns.begin(), columns.end(), first);
  return columns;
}

// Expert 1 of 3 met no token.
TEST(GgufImportance, OfExpertsAndFusedProjections) {
  const ScratchDir dir;
  const Json config =
      with(small_llama(), {{"model_type", "mixtral"}, {"num_local_experts", 3}, {"num_experts_per_tok", 2}});
  dir.write("config.json", config.dump());
  const Transformer model(load_spec(dir.path()));
  Importance importance;
  for (const Parameter& p : model.parameters().all()) {
    importance.emplace_back();
    if (p.shape.rank() != 2 || p.name.find("norm") != std::string::npos) continue;
    const int64_t parts = p.name.find("expert") != std::string::npos ? 3 : 1, rows = p.shape[0] / parts;
    for (int64_t i = 0; i < parts; ++i)
      if (i != 1)
        importance.back().push_back(
            {i * rows, rows, columns_from(100.0F * static_cast<float>(i), p.shape[1])});
  }
  const auto got = importance_by_name(dir.path(), importance);
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                           "blk.0.attn_output.weight", "output.weight", "blk.0.ffn_gate_inp.weight"})
    EXPECT_EQ(got.at(name), columns_from(0, 8)) << name;
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"}) {
    std::vector<float> want = columns_from(0, 8);
    want.insert(want.end(), 8, 1.0F);
    for (const float x : columns_from(200, 8)) want.push_back(x);
    EXPECT_EQ(got.at(name), want) << name;
  }
  EXPECT_EQ(got.at("blk.0.ffn_down_exps.weight").size(), 18u);
  EXPECT_FALSE(got.contains("blk.0.attn_norm.weight"));
}

// One tensor [E, in, out] of gates and values in turn is two in GGUF files, and transposed.
TEST(GgufImportance, OfColumnsThatAreApart) {
  const ScratchDir dir;
  const Json config = {{"model_type", "gpt_oss"},
                       {"vocab_size", 5},
                       {"hidden_size", 8},
                       {"intermediate_size", 6},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", 2},
                       {"num_key_value_heads", 1},
                       {"head_dim", 4},
                       {"rms_norm_eps", 1e-5},
                       {"sliding_window", 4},
                       {"layer_types", {"sliding_attention"}},
                       {"num_local_experts", 3},
                       {"num_experts_per_tok", 2},
                       {"max_position_embeddings", 64}};
  dir.write("config.json", config.dump());
  const Transformer model(load_spec(dir.path()));
  Importance importance;
  for (const Parameter& p : model.parameters().all()) {
    importance.emplace_back();
    if (p.name.find("expert") == std::string::npos || p.shape.rank() != 2 || p.shape[1] != 8) continue;
    const int64_t rows = p.shape[0] / 3;
    for (int64_t i = 0; i < 3; ++i)
      importance.back().push_back({i * rows, rows, columns_from(100.0F * static_cast<float>(i), 8)});
  }
  const auto got = importance_by_name(dir.path(), importance);
  for (const char* name : {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight"}) {
    ASSERT_EQ(got.at(name).size(), 24u) << name;
    EXPECT_EQ(got.at(name)[9], 101) << name;
  }
  EXPECT_FALSE(got.contains("blk.0.ffn_down_exps.weight"));
}

}  // namespace
}  // namespace qkv::testing::gguf_importance_test
