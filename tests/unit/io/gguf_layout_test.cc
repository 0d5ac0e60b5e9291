// Covers: qkv/io/gguf/forms.cc, qkv/io/gguf/tensors.cc
// Layouts of tensors in GGUF files against orders written down by hand.
#include <gtest/gtest.h>

#include "qkv/io/gguf/forms.h"
#include "qkv/io/gguf/names.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_model_testing.h"

namespace qkv::testing::gguf_layout_test {
namespace {

using Rows = std::vector<int64_t>;

// Reading gives the tensors that were written.
void expect_round_trip(const SmallModel& model) {
  const GgufModel back = model_of_gguf(as_file(gguf_of_model(model.config, model.tensors)));
  EXPECT_EQ(back.tensors.size(), model.tensors.size());
  for (const auto& [name, tensor] : model.tensors) {
    ASSERT_TRUE(back.tensors.contains(name)) << name;
    EXPECT_EQ(back.tensors.at(name).shape(), tensor.shape()) << name;
    EXPECT_EQ(numbers_of(back.tensors.at(name)), numbers_of(tensor)) << name;
  }
  EXPECT_TRUE(back.as_in_engine.empty());
}

TEST(GgufLayout, LlamasQueriesAndKeysHaveTheRowsOfBothHalvesInTurn) {
  const SmallModel model = small_model(with(small_llama(), {{"attention_bias", true}}));
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_q.weight")), (Rows{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_q.bias")), (Rows{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_k.weight")), (Rows{0, 2, 1, 3}));
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_v.weight")), (Rows{0, 1, 2, 3}));
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_output.weight")), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  expect_round_trip(model);
}

TEST(GgufLayout, RowsOfBlocksAreReorderedWhole) {
  Gguf file = small_file(with(small_llama(), {{"hidden_size", 32}, {"head_dim", 6}}));
  const QuantizedTensor blocks = blocks_of({12, 32}, WeightType::q8_0);
  set_tensor(file, "blk.0.attn_q.weight", blocks);
  const GgufModel model = model_of_gguf(file);
  const QuantizedTensor q = model.tensors.at("model.layers.0.self_attn.q_proj.weight").quantized();
  ASSERT_EQ(q.shape(), (Shape{12, 32}));
  const Rows places = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};  // places of the rows in the file
  for (int64_t r = 0; r < 12; ++r)
    EXPECT_EQ(row_of(q, r), row_of(blocks, places[static_cast<size_t>(r)])) << r;
  EXPECT_TRUE(model.as_in_engine.empty());
}

TEST(GgufLayout, FusedProjectionsHaveQueriesKeysAndValuesInTurn) {
  const SmallModel neox = small_model({{"model_type", "gpt_neox"},
                                       {"vocab_size", 5},
                                       {"hidden_size", 4},
                                       {"intermediate_size", 6},
                                       {"num_hidden_layers", 1},
                                       {"num_attention_heads", 2},
                                       {"max_position_embeddings", 16},
                                       {"rotary_pct", 1.0}});
  const GgufParts parts = gguf_of_model(neox.config, neox.tensors);
  const Rows order = {0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11};
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_qkv.weight")), order);
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_qkv.bias")), order);
  expect_round_trip(neox);

  const SmallModel falcon = small_model({{"model_type", "falcon"},
                                         {"vocab_size", 5},
                                         {"hidden_size", 8},
                                         {"num_hidden_layers", 1},
                                         {"num_attention_heads", 4},
                                         {"num_kv_heads", 2},
                                         {"new_decoder_architecture", true}});
  const GgufParts grouped = gguf_of_model(falcon.config, falcon.tensors);
  EXPECT_EQ(rows_of(named(grouped.tensors, "blk.0.attn_qkv.weight")),
            (Rows{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}));
  // The norm of the feed-forward network comes first in files.
  EXPECT_EQ(numbers_of(named(grouped.tensors, "blk.0.attn_norm.weight")),
            numbers_of(named(falcon.tensors, "transformer.h.0.ln_mlp.weight")));
  EXPECT_EQ(named(grouped.tensors, "blk.0.attn_norm_2.weight").shape(), (Shape{8}));
  expect_round_trip(falcon);
}

Json small_gpt2(int64_t width) {
  return {{"model_type", "gpt2"}, {"vocab_size", 5}, {"n_positions", 7},
          {"n_embd", width},      {"n_layer", 1},    {"n_head", 2}};
}

TEST(GgufLayout, Gpt2sMatricesAreTransposed) {
  const SmallModel model = small_model(small_gpt2(4));
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  const Weight fused = named(parts.tensors, "blk.0.attn_qkv.weight");
  ASSERT_EQ(fused.shape(), (Shape{12, 4}));
  const std::vector<float> numbers = numbers_of(fused);
  for (int64_t i = 0; i < 48; ++i)
    EXPECT_EQ(numbers[static_cast<size_t>(i)], static_cast<float>(i % 4 * 12 + i / 4)) << i;
  expect_round_trip(model);
}

TEST(GgufLayout, TransposedBlocksStayAsInTheEngine) {
  Gguf file = small_file(small_gpt2(32));
  const QuantizedTensor blocks = blocks_of({96, 32}, WeightType::q4_0);
  set_tensor(file, "blk.0.attn_qkv.weight", blocks);
  const GgufModel model = model_of_gguf(file);
  const std::string name = "transformer.h.0.attn.c_attn.weight";
  EXPECT_EQ(model.as_in_engine, std::set<std::string>{name});
  EXPECT_EQ(model.tensors.at(name).shape(), (Shape{96, 32}));
  EXPECT_TRUE(model.tensors.at(name).quantized().same_storage(blocks));
}

TEST(GgufLayout, GemmasNormsHaveOneMore) {
  const SmallModel model = small_model(with(small_llama(), {{"model_type", "gemma"}, {"head_dim", 4}}));
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  EXPECT_EQ(numbers_of(named(parts.tensors, "blk.0.attn_norm.weight")),
            (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(numbers_of(named(parts.tensors, "output_norm.weight")),
            (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
  // Queries stay as they are.
  EXPECT_EQ(rows_of(named(parts.tensors, "blk.0.attn_q.weight")), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  expect_round_trip(model);
}

Json small_mixtral(int64_t width) {
  return with(small_llama(), {{"model_type", "mixtral"},
                              {"hidden_size", width},
                              {"num_local_experts", 3},
                              {"num_experts_per_tok", 2}});
}

TEST(GgufLayout, ExpertsAreStackedAndReadAsViews) {
  const SmallModel model = small_model(small_mixtral(8));
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  const Weight gate = named(parts.tensors, "blk.0.ffn_gate_exps.weight");
  ASSERT_EQ(gate.shape(), (Shape{3, 6, 8}));
  EXPECT_EQ(named(parts.tensors, "blk.0.ffn_down_exps.weight").shape(), (Shape{3, 8, 6}));
  // Each expert counts from 0.
  for (const int64_t expert : {0, 1, 2}) EXPECT_EQ(gate.dense().part<float>(expert, 2)[3], 19);
  expect_round_trip(model);
  const GgufModel back = model_of_gguf(as_file(parts));
  EXPECT_TRUE(back.tensors.at("model.layers.0.block_sparse_moe.experts.1.w1.weight")
                  .dense()
                  .same_storage(gate.dense()));
}

TEST(GgufLayout, ExpertsOfBlocksAreViews) {
  Gguf file = small_file(small_mixtral(32));
  const QuantizedTensor blocks = blocks_of({3, 6, 32}, WeightType::q5_1);
  set_tensor(file, "blk.0.ffn_up_exps.weight", blocks);
  const Weight second = model_of_gguf(file).tensors.at("model.layers.0.block_sparse_moe.experts.1.w3.weight");
  EXPECT_EQ(second.shape(), (Shape{6, 32}));
  EXPECT_TRUE(second.quantized().same_storage(blocks));
  EXPECT_EQ(row_of(second.quantized(), 0), row_of(blocks, 6));
}

TEST(GgufLayout, ExpertsInTensorsOfTheirOwnAreReadToo) {
  Gguf file = small_file(small_mixtral(8));
  const Tensor gate = file.tensor("blk.0.ffn_gate_exps.weight")->dense();
  erase_tensor(file, "blk.0.ffn_gate_exps.weight");
  for (const int64_t e : {0, 1, 2})
    set_tensor(file, fmt::format("blk.0.ffn_gate.{}.weight", e), gate.slice_rows(e, e + 1).reshape({6, 8}));
  const GgufModel model = model_of_gguf(file);
  EXPECT_EQ(rows_of(model.tensors.at("model.layers.0.block_sparse_moe.experts.2.w1.weight")),
            (Rows{0, 1, 2, 3, 4, 5}));
}

TEST(GgufLayout, TheGateOfASharedExpertIsAVector) {
  const SmallModel model = small_model(with(small_llama(), {{"model_type", "qwen2_moe"},
                                                            {"num_experts", 3},
                                                            {"num_experts_per_tok", 2},
                                                            {"moe_intermediate_size", 4},
                                                            {"shared_expert_intermediate_size", 5}}));
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  EXPECT_EQ(named(parts.tensors, "blk.0.ffn_gate_inp_shexp.weight").shape(), (Shape{8}));
  expect_round_trip(model);
}

Json small_gpt_oss() {
  return with(small_llama(), {{"model_type", "gpt_oss"},
                              {"hidden_size", 32},
                              {"head_dim", 4},
                              {"intermediate_size", 64},
                              {"num_local_experts", 2},
                              {"num_experts_per_tok", 1},
                              {"rope_scaling", nullptr},
                              {"sliding_window", 4}});
}

TEST(GgufLayout, GptOssHasItsGatesAndValuesApart) {
  const SmallModel model = small_model(small_gpt_oss());
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  const Tensor gate = named(parts.tensors, "blk.0.ffn_gate_exps.weight").dense(),
               up = named(parts.tensors, "blk.0.ffn_up_exps.weight").dense(),
               down = named(parts.tensors, "blk.0.ffn_down_exps.weight").dense();
  ASSERT_EQ(gate.shape(), (Shape{2, 64, 32}));
  ASSERT_EQ(down.shape(), (Shape{2, 32, 64}));
  // Hugging Face's are [2, 32, 128], with gates in even columns, and [2, 64, 32].
  for (const int64_t e : {0, 1})
    for (const int64_t row : {0, 5, 63})
      for (const int64_t column : {0, 7, 31}) {
        const auto place = static_cast<float>((e * 32 + column) * 128 + 2 * row);
        EXPECT_EQ(gate.part<float>(e, row)[column], place);
        EXPECT_EQ(up.part<float>(e, row)[column], place + 1);
        EXPECT_EQ(down.part<float>(e, column)[row], static_cast<float>((e * 64 + row) * 32 + column));
      }
  const Tensor bias = named(parts.tensors, "blk.0.ffn_up_exps.bias").dense();
  ASSERT_EQ(bias.shape(), (Shape{2, 64}));
  EXPECT_EQ(bias.part<float>(1)[2], 128 + 5);
  expect_round_trip(model);
}

TEST(GgufLayout, GptOssExpertsOfBlocksStayAsInTheEngine) {
  Gguf file = small_file(small_gpt_oss());
  const QuantizedTensor gate = blocks_of({2, 64, 32}, WeightType::mxfp4),
                        up = blocks_of({2, 64, 32}, WeightType::mxfp4),
                        down = blocks_of({2, 32, 64}, WeightType::mxfp4);
  set_tensor(file, "blk.0.ffn_gate_exps.weight", gate);
  set_tensor(file, "blk.0.ffn_up_exps.weight", up);
  set_tensor(file, "blk.0.ffn_down_exps.weight", down);
  const GgufModel model = model_of_gguf(file);
  const std::string both = "model.layers.0.mlp.experts.gate_up_proj",
                    last = "model.layers.0.mlp.experts.down_proj";
  EXPECT_EQ(model.as_in_engine, (std::set<std::string>{both, last}));
  EXPECT_EQ(model.tensors.at(last).shape(), (Shape{64, 64}));
  EXPECT_TRUE(model.tensors.at(last).quantized().same_storage(down));
  // Each expert has its gates, then its values, without copies.
  const auto runs = model.tensors.at(both).runs();
  ASSERT_EQ(runs.size(), 4u);
  const auto at = [](const QuantizedTensor& blocks, int64_t row) {
    return static_cast<const void*>(blocks.blocks().subspan(row * blocks.row_bytes()).data());
  };
  const void* const begins[] = {at(gate, 0), at(up, 0), at(gate, 64), at(up, 64)};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(runs[i].first, static_cast<int64_t>(64 * i));
    EXPECT_EQ(runs[i].view.data, begins[i]);
  }
}

Json small_deepseek() {
  return with(small_llama(), {{"model_type", "deepseek_v2"},
                              {"num_key_value_heads", 2},
                              {"hidden_size", 32},
                              {"kv_lora_rank", 32},
                              {"q_lora_rank", 16},
                              {"qk_nope_head_dim", 32},
                              {"qk_rope_head_dim", 4},
                              {"v_head_dim", 8}});
}

TEST(GgufLayout, DeepSeeksKeysAndValuesAreApart) {
  const SmallModel model = small_model(small_deepseek());
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  const Tensor keys = named(parts.tensors, "blk.0.attn_k_b.weight").dense(),
               values = named(parts.tensors, "blk.0.attn_v_b.weight").dense();
  ASSERT_EQ(keys.shape(), (Shape{2, 32, 32}));
  ASSERT_EQ(values.shape(), (Shape{2, 8, 32}));
  // Hugging Face's is [2 (32 + 8), 32].
  EXPECT_EQ(keys.part<float>(1, 5)[3], (40 + 3) * 32 + 5);
  EXPECT_EQ(values.part<float>(1, 5)[3], (40 + 32 + 5) * 32 + 3);
  expect_round_trip(model);
}

TEST(GgufLayout, DeepSeeksKeysOfBlocksBecomeNumbers) {
  Gguf file = small_file(small_deepseek());
  QuantizedTensor keys = QuantizedTensor::empty({2, 32, 32}, WeightType::q8_0);
  const auto bytes = keys.mutable_blocks();
  for (int64_t row = 0; row < 64; ++row) {
    bytes[row * 34] = std::byte{0};  // the scale is 1
    bytes[row * 34 + 1] = std::byte{0x3C};
    for (int64_t i = 0; i < 32; ++i) bytes[row * 34 + 2 + i] = static_cast<std::byte>(row + i);
  }
  set_tensor(file, "blk.0.attn_k_b.weight", keys);
  const Weight whole = model_of_gguf(file).tensors.at("model.layers.0.self_attn.kv_b_proj.weight");
  ASSERT_EQ(whole.shape(), (Shape{80, 32}));
  EXPECT_EQ(whole.dense().row<float>(40 + 3)[5], 32 + 5 + 3);               // the second head's third key
  EXPECT_EQ(whole.dense().row<float>(40 + 32 + 1)[2], (40 + 33) * 32 + 2);  // a value, as it was

  // Files before the split have it whole, and the widths of whole heads.
  Gguf old = small_file(small_deepseek());
  const QuantizedTensor blocks = blocks_of({80, 32}, WeightType::q4_1);
  for (const char* part : {"blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"}) erase_tensor(old, part);
  for (const char* key : {"deepseek2.attention.key_length_mla", "deepseek2.attention.value_length_mla"})
    erase_key(old, key);
  set_key(old, "deepseek2.attention.key_length", GgufValue::of_u32(36));
  set_key(old, "deepseek2.attention.value_length", GgufValue::of_u32(8));
  set_tensor(old, "blk.0.attn_kv_b.weight", blocks);
  EXPECT_TRUE(model_of_gguf(old)
                  .tensors.at("model.layers.0.self_attn.kv_b_proj.weight")
                  .quantized()
                  .same_storage(blocks));
}

TEST(GgufLayout, PhisFusedProjectionIsSplit) {
  Gguf file = small_file(with(small_llama(), {{"model_type", "phi"}, {"num_key_value_heads", 2}}));
  for (const char* part : {"q", "k", "v"})
    for (const char* end : {"weight", "bias"}) erase_tensor(file, fmt::format("blk.0.attn_{}.{}", part, end));
  std::vector<float> numbers(24 * 8);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  set_tensor(file, "blk.0.attn_qkv.weight", Tensor::of({24, 8}, numbers));
  numbers.resize(24);
  set_tensor(file, "blk.0.attn_qkv.bias", Tensor::of({24}, numbers));
  const GgufModel model = model_of_gguf(file);
  const std::string self = "model.layers.0.self_attn.";
  EXPECT_EQ(rows_of(model.tensors.at(self + "q_proj.weight")), (Rows{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(model.tensors.at(self + "k_proj.weight").dense().row<float>(0)[0], 64);
  EXPECT_EQ(model.tensors.at(self + "v_proj.bias").dense().values<float>()[0], 16);
}

TEST(GgufLayout, VectorsAndRoutersAreF32) {
  SmallModel model = small_model(small_mixtral(8));

  for (auto& [name, tensor] : model.tensors) {
    std::vector<BFloat16> narrow(static_cast<size_t>(tensor.dense().count()), BFloat16(1.0F));
    tensor = Tensor::of(tensor.shape(), narrow);
  }
  const GgufParts parts = gguf_of_model(model.config, model.tensors);
  const std::map<std::string, WeightType> types = {{"token_embd.weight", WeightType::bf16},
                                                   {"output_norm.weight", WeightType::f32},
                                                   {"blk.0.attn_q.weight", WeightType::bf16},
                                                   {"blk.0.ffn_gate_inp.weight", WeightType::f32},
                                                   {"blk.0.ffn_up_exps.weight", WeightType::bf16}};
  for (const auto& [name, type] : types) EXPECT_EQ(named(parts.tensors, name).type(), type) << name;
  EXPECT_EQ(numbers_of(named(parts.tensors, "output_norm.weight")), std::vector<float>(8, 1.0F));
}

TEST(GgufLayout, ShapesThatAreNotTheModelsAreRejected) {
  const auto refuse = [](const Json& config, const char* tensor, const Weight& w, const char* message) {
    Gguf file = small_file(config);
    set_tensor(file, tensor, w);
    expect_error([&] { model_of_gguf(file); }, {"model.gguf: tensor '", message});
  };
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  refuse(small_llama(), "blk.0.attn_q.weight", zeros({6, 8}), "expected 8 rows, got [6, 8]");
  refuse(small_llama(), "blk.0.attn_k.weight", zeros({1, 4, 8}), "expected 4 rows");
  refuse(small_mixtral(8), "blk.0.ffn_gate_exps.weight", zeros({4, 6, 8}), "one too many");
  refuse(small_mixtral(8), "blk.0.ffn_gate_exps.weight", zeros({48}), "expected one more axis");
  refuse(small_deepseek(), "blk.0.attn_k_b.weight", zeros({2, 32, 31}), "which are not the model's");
  refuse(small_deepseek(), "blk.0.attn_v_b.weight", zeros({2, 8}), "expected 3 axes");
  refuse(small_gpt_oss(), "blk.0.ffn_up_exps.weight", zeros({2, 63, 32}), "its two halves are");
  refuse(small_gpt_oss(), "blk.0.ffn_up_exps.bias", zeros({2}), "its two halves are");
}

TEST(GgufNames, NumbersStandWherePatternsHavePlaces) {
  using Numbers = std::vector<int64_t>;
  EXPECT_EQ(numbers_in("blk.{}.ffn_up.{}", "blk.12.ffn_up.0"), (Numbers{12, 0}));
  EXPECT_EQ(numbers_in("output", "output"), Numbers{});
  for (const char* other : {"blk.x.ffn_up.0", "blk.1.ffn_up.", "blk.1.ffn_up.0x", "blk.01.ffn_up.0",
                            "blk.1234567.ffn_up.0", "blk..ffn_up.0", "blk.1", ""})
    EXPECT_FALSE(numbers_in("blk.{}.ffn_up.{}", other)) << other;
  EXPECT_EQ(with_numbers("blk.{}.ffn_up.{}", {12, 0}), "blk.12.ffn_up.0");
}

}  // namespace
}  // namespace qkv::testing::gguf_layout_test
