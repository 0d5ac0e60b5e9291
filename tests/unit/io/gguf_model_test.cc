// Covers: qkv/io/gguf/architecture*.cc, qkv/io/gguf/model.cc, qkv/io/gguf/metadata.cc, qkv/io/gguf/rotary.cc
// The metadata of GGUF files as a config.json, and back. bench/peers/libllama_logits.cc has the proof that
// libllama computes the same from these files.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "qkv/io/gguf/architecture.h"
#include "qkv/io/gguf/rotary.h"
#include "qkv/io/weights.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_model_testing.h"

namespace qkv::testing::gguf_model_test {
namespace {

TEST(GgufMetadata, OfALlama) {
  const Gguf file = small_file(with(small_llama(), {{"head_dim", 6}}));
  const std::map<std::string, int64_t> integers = {
      {"context_length", 64},      {"embedding_length", 8},       {"block_count", 1},
      {"feed_forward_length", 6},  {"attention.head_count", 2},   {"attention.head_count_kv", 1},
      {"attention.key_length", 6}, {"attention.value_length", 6}, {"rope.dimension_count", 6}};
  for (const auto& [key, value] : integers) EXPECT_EQ(file.integer("llama." + key), value) << key;
  EXPECT_EQ(file.number("llama.rope.freq_base"), 500);
  EXPECT_NEAR(file.number("llama.attention.layer_norm_rms_epsilon"), 1e-5, 1e-12);
  EXPECT_EQ(file.string("general.architecture"), "llama");
  EXPECT_EQ(file.metadata.size(), integers.size() + 3);
  EXPECT_NE(file.tensor("output.weight"), nullptr);
}

TEST(GgufMetadata, BecomesAConfig) {
  Gguf file{.path = "model.gguf"};
  set_key(file, "general.architecture", GgufValue::of(std::string_view("qwen2")));
  const std::pair<const char*, int64_t> keys[] = {{"context_length", 32768},   {"embedding_length", 8},
                                                  {"block_count", 3},          {"feed_forward_length", 24},
                                                  {"attention.head_count", 4}, {"vocab_size", 9}};
  for (const auto& [key, value] : keys) set_key(file, std::string("qwen2.") + key, GgufValue::of_u32(value));
  set_key(file, "qwen2.attention.layer_norm_rms_epsilon", GgufValue::of_f32(1e-6));
  set_key(file, "qwen2.rope.scaling.type", GgufValue::of(std::string_view("yarn")));
  set_key(file, "qwen2.rope.scaling.factor", GgufValue::of_f32(4));
  set_key(file, "general.name", GgufValue::of(std::string_view("any")));
  set_tensor(file, "token_embd.weight", Tensor::zeros({9, 8}, DType::f32));
  const Json c = config_of_gguf(file);
  const Json expected = {{"model_type", "qwen2"},
                         {"vocab_size", 9},
                         {"hidden_size", 8},
                         {"head_dim", 2},
                         {"intermediate_size", 24},
                         {"max_position_embeddings", 32768},
                         {"num_hidden_layers", 3},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 4},
                         {"rms_norm_eps", 1e-6},
                         {"rope_theta", 10000.0},
                         {"tie_word_embeddings", true},
                         {"rope_scaling",
                          {{"rope_type", "yarn"},
                           {"factor", 4.0},
                           {"beta_fast", 32.0},
                           {"beta_slow", 1.0},
                           {"original_max_position_embeddings", 32768}}}};
  EXPECT_EQ(c, expected);
  // One number for each layer is one for all if they are equal.
  set_key(file, "qwen2.attention.head_count", GgufValue::of_integers(GgufValue::Type::u32, {4, 4, 4}));
  EXPECT_EQ(config_of_gguf(file), expected);
}

TEST(GgufMetadata, ScalingsComeBack) {
  const Json scalings[] = {{{"rope_type", "linear"}, {"factor", 3.5}},
                           {{"rope_type", "yarn"},
                            {"factor", 4.0},
                            {"beta_fast", 24.0},
                            {"beta_slow", 2.0},
                            {"attention_factor", 1.5},
                            {"original_max_position_embeddings", 16}},
                           {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 16}}};
  for (const Json& scaling : scalings) {
    const Json back = model_of_gguf(small_file(with(small_llama(), {{"rope_scaling", scaling}}))).config;
    ASSERT_EQ(back["rope_scaling"].size(), scaling.size()) << back.dump();
    for (const auto& [key, value] : scaling.items())
      if (value.is_number())
        EXPECT_NEAR(back["rope_scaling"][key].get<double>(), value.get<double>(), 1e-6) << key;
      else
        EXPECT_EQ(back["rope_scaling"][key], value);
  }
}

TEST(GgufMetadata, Llama3sFactors) {
  // Llama 3.1: the 29th pair of 64 turns 8192 * 500000^(-28/64) / (2 pi) = 4.19 times within the old context,
  // which is above 4; the next three turn 3.41, 2.78 and 2.26 times.
  const std::vector<double> f =
      llama3_factors(500000, 128, {.factor = 8, .low = 1, .high = 4, .original_context = 8192});
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[28], 1);
  const double turns = 8192 * std::pow(500000.0, -29.0 / 64) / (2 * M_PI), smooth = (turns - 1) / 3;
  EXPECT_NEAR(turns, 3.41, 0.01);
  EXPECT_NEAR(f[29], 8 / (8 * smooth + 1 - smooth), 1e-12);
  EXPECT_EQ(f[36], 8);
  EXPECT_EQ(f[63], 8);
}

TEST(GgufMetadata, FactorsOfOtherOriginStay) {
  Gguf file = small_file(small_llama());
  set_tensor(file, "rope_freqs.weight", Tensor::of({2}, std::vector<float>{2.5, 1}));
  const Json scaling = config_of_gguf(file)["rope_scaling"];
  EXPECT_EQ(scaling["rope_type"], "longrope");
  EXPECT_EQ(scaling["short_factor"], (Json{2.5, 1.0}));
  EXPECT_EQ(scaling["long_factor"], scaling["short_factor"]);
  EXPECT_EQ(scaling["attention_factor"], 1.0);
}

TEST(GgufMetadata, LayersWithAWindow) {
  const Json gemma2 = with(small_llama(), {{"model_type", "gemma2"},
                                           {"num_hidden_layers", 4},
                                           {"head_dim", 4},
                                           {"query_pre_attn_scalar", 4},
                                           {"sliding_window", 3}});
  Gguf file = small_file(gemma2);
  EXPECT_FALSE(file.has("gemma2.attention.sliding_window_pattern"));
  const char *w = "sliding_attention", *f = "full_attention";
  EXPECT_EQ(config_of_gguf(file)["layer_types"], (Json{w, f, w, f}));
  const std::string key = "gemma2.attention.sliding_window_pattern";
  set_key(file, key, GgufValue::of_u32(3));
  EXPECT_EQ(config_of_gguf(file)["layer_types"], (Json{w, w, f, w}));
  set_key(file, key, GgufValue::of_integers(GgufValue::Type::boolean, {0, 1, 1, 0}));
  EXPECT_EQ(config_of_gguf(file)["layer_types"], (Json{f, w, w, f}));
  set_key(file, key, GgufValue::of_integers(GgufValue::Type::boolean, {0, 1}));
  expect_error([&] { config_of_gguf(file); }, {"model.gguf: key '" + key + "'", "4 layers"});

  const Gguf thirds = small_file(with(gemma2, {{"layer_types", {w, w, f, w}}}));
  EXPECT_EQ(thirds.integer(key), 3);
  expect_error([&] { small_file(with(gemma2, {{"layer_types", {f, w, w, f}}})); }, {"layer_types", "period"});
}

TEST(GgufRefusals, NameFileAndKeyOrTensor) {
  const auto refuse = [](const char* message, void (*spoil)(Gguf&)) {
    Gguf file = small_file(small_llama());
    spoil(file);
    expect_error([&] { model_of_gguf(file); }, {"model.gguf", message});
  };

  refuse("the architecture 'rwkv' is not supported; qkv reads llama, ",
         [](Gguf& f) { set_key(f, "general.architecture", GgufValue::of(std::string_view("rwkv"))); });
  refuse("key 'general.architecture' is missing", [](Gguf& f) { erase_key(f, "general.architecture"); });
  refuse("'llama.attention.scale', 'llama.novelty'", [](Gguf& f) {
    set_key(f, "llama.attention.scale", GgufValue::of_f32(1));
    set_key(f, "llama.novelty", GgufValue::of_u32(1));
  });
  refuse("key 'llama.embedding_length' is missing", [](Gguf& f) { erase_key(f, "llama.embedding_length"); });
  refuse("key 'llama.attention.value_length': another key says",
         [](Gguf& f) { set_key(f, "llama.attention.key_length", GgufValue::of_u32(6)); });
  refuse("key 'llama.attention.head_count': layers with values of their own", [](Gguf& f) {
    set_key(f, "llama.attention.head_count", GgufValue::of_integers(GgufValue::Type::i32, {2, 4}));
  });
  refuse("key 'llama.attention.head_count': layers with values of their own", [](Gguf& f) {
    set_key(f, "llama.attention.head_count", GgufValue::of_integers(GgufValue::Type::i32, {}));
  });
  refuse("key 'llama.block_count': -1 is negative",
         [](Gguf& f) { set_key(f, "llama.block_count", {.type = GgufValue::Type::i32, .integers = {-1}}); });
  refuse("key 'llama.rope.dimension_count': 2 rotated columns of 4",
         [](Gguf& f) { set_key(f, "llama.rope.dimension_count", GgufValue::of_u32(2)); });
  refuse("key 'llama.rope.scaling.type': 'odd' is not supported",
         [](Gguf& f) { set_key(f, "llama.rope.scaling.type", GgufValue::of(std::string_view("odd"))); });
  refuse("key 'llama.rope.freq_base': expected a finite number",
         [](Gguf& f) { set_key(f, "llama.rope.freq_base", GgufValue::of_f32(NAN)); });
  refuse("key 'llama.attention.causal': only true is supported",
         [](Gguf& f) { set_key(f, "llama.attention.causal", GgufValue::of(false)); });
  refuse("tensor 'token_embd.weight': expected a matrix",
         [](Gguf& f) { erase_tensor(f, "token_embd.weight"); });
  refuse("tensor 'blk.1.attn_q.weight' has no place",
         [](Gguf& f) { set_tensor(f, "blk.1.attn_q.weight", Tensor::zeros({1}, DType::f32)); });
  refuse("tensor 'blk.0.ssm_a' has no place",
         [](Gguf& f) { set_tensor(f, "blk.0.ssm_a", Tensor::zeros({1}, DType::f32)); });
  refuse("Hugging Face's tensor 'model.layers.0.mlp.up_proj.weight' has no counterpart",
         [](Gguf& f) { erase_tensor(f, "blk.0.ffn_up.weight"); });
  refuse("layers must be between",
         [](Gguf& f) { set_key(f, "llama.block_count", GgufValue::of_u32(1 << 30)); });
  refuse("key 'llama.attention.head_count'", [](Gguf& f) {
    for (const char* width : {"llama.attention.key_length", "llama.attention.value_length"})
      erase_key(f, width);
    set_key(f, "llama.attention.head_count", GgufValue::of_u32(0));
  });
}

TEST(GgufRefusals, NameFieldsThatFilesCannotExpress) {
  const auto refuse = [](const Json& config, const char* message) {
    expect_error([&] { small_file(config); }, {"gguf: ", message});
  };
  refuse(with(small_llama(), {{"hidden_act", "relu"}}), "hidden_act: \"relu\" cannot be expressed");
  refuse(with(small_llama(), {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}),
         "rope_scaling: 'dynamic' is not supported");
  refuse(with(small_llama(), {{"model_type", "glm4"}, {"head_dim", 4}}),
         "the model_type glm4 is not supported");
  refuse(with(small_llama(), {{"model_type", "gemma2"}, {"head_dim", 4}, {"query_pre_attn_scalar", 5}}),
         "query_pre_attn_scalar");
  refuse(with(small_llama(), {{"model_type", "qwen2"},
                              {"use_sliding_window", true},
                              {"sliding_window", 3},
                              {"max_window_layers", 0}}),
         "max_window_layers");
  refuse(with(small_llama(), {{"architectures", {"LlamaForSequenceClassification"}}}),
         "no tensor for 'score.weight'");

  SmallModel model = small_model(small_llama());
  const auto write = [&] { gguf_of_model(model.config, model.tensors); };
  model.tensors.emplace_back("model.layers.0.novelty.weight", Tensor::zeros({1}, DType::f32));
  expect_error(write, {"tensor 'model.layers.0.novelty.weight' has no place in this llama model"});
  model.tensors.erase(model.tensors.end() - 2, model.tensors.end());
  const std::string last = small_model(small_llama()).tensors.back().first;
  expect_error(write, {"tensor '" + last + "' is missing"});
}

TEST(GgufModel, OfVectorsHasNoHead) {
  const Json bert = {{"model_type", "bert"},   {"architectures", {"BertModel"}}, {"vocab_size", 5},
                     {"hidden_size", 4},       {"num_hidden_layers", 1},         {"num_attention_heads", 2},
                     {"intermediate_size", 6}, {"max_position_embeddings", 7},   {"type_vocab_size", 2}};
  const Gguf file = small_file(bert);
  EXPECT_FALSE(file.boolean("bert.attention.causal"));
  const GgufModel model = model_of_gguf(file);
  EXPECT_EQ(model.config["type_vocab_size"], 2);
  // The pooler, which no file has, is zero.
  EXPECT_EQ(numbers_of(model.tensors.at("bert.pooler.dense.weight")), std::vector<float>(16, 0.0F));
  EXPECT_EQ(model.tensors.at("bert.pooler.dense.bias").shape(), (Shape{4}));
  expect_error(
      [&] {
        small_file(with(bert, {{"architectures", {"BertForMaskedLM"}}}));
      },
      {"no tensor for 'cls."});
}

// The cases of the reference whose config GGUF files can express, with the architecture that they become.
const std::pair<const char*, const char*> kCases[] = {{"llama_gqa", "llama"},
                                                      {"llama_mha", "llama"},
                                                      {"llama_bias_headdim", "llama"},
                                                      {"llama_rope_linear", "llama"},
                                                      {"llama_rope_llama3", "llama"},
                                                      {"llama_rope_yarn", "llama"},
                                                      {"mistral_headdim", "llama"},
                                                      {"mistral_sliding", "llama"},
                                                      {"mixtral_moe", "llama"},
                                                      {"qwen2", "qwen2"},
                                                      {"qwen2_moe", "qwen2moe"},
                                                      {"qwen3", "qwen3"},
                                                      {"gemma", "gemma"},
                                                      {"gemma2", "gemma2"},
                                                      {"phi", "phi2"},
                                                      {"phi3", "phi3"},
                                                      {"phi4_mini", "phi3"},
                                                      {"phi4_mini_long", "phi3"},
                                                      {"gpt2", "gpt2"},
                                                      {"gpt_neox", "gptneox"},
                                                      {"gpt_neox_serial", "gptneox"},
                                                      {"falcon_mqa", "falcon"},
                                                      {"falcon_newarch", "falcon"},
                                                      {"bloom_alibi", "bloom"},
                                                      {"mpt_alibi", "mpt"},
                                                      {"gpt_bigcode_mqa", "starcoder"},
                                                      {"starcoder2", "starcoder2"},
                                                      {"stablelm", "stablelm"},
                                                      {"olmo", "olmo"},
                                                      {"olmo2", "olmo2"},
                                                      {"olmo3", "olmo2"},
                                                      {"cohere", "command-r"},
                                                      {"deepseek_v2", "deepseek2"},
                                                      {"deepseek_v2_yarn", "deepseek2"},
                                                      {"deepseek_v3", "deepseek2"},
                                                      {"deepseek_v3_yarn_qlora", "deepseek2"},
                                                      {"gpt_oss", "gpt-oss"}};

// Without what only training reads, without modules, which files lack, and with what files have as f32.
ModelSpec essence(ModelSpec s) {
  const auto simplify = [](BlockSpec& b) {
    b.attention.dropout = 0;
    b.experts.balance = 0;
    b.experts.choice_rate = 0;
    RotarySpec& r = b.attention.rotary;
    for (double* x : {&r.base, &r.factor, &r.low, &r.high, &r.magnitude}) *x = static_cast<float>(*x);
    for (std::vector<double>* list : {&r.short_factors, &r.long_factors})
      for (double& x : *list) x = static_cast<float>(x);
  };
  s.family.clear();
  s.mtp = {};
  simplify(s);
  for (BlockKind& kind : s.kinds) simplify(kind.block);
  s.embedding_dropout = s.residual_dropout = s.head_dropout = s.init_std = 0;
  return s;
}

TEST(GgufModel, ReferenceCasesComeBack) {
  const char* reference = std::getenv("QKV_REFERENCE");
  if (reference == nullptr) GTEST_SKIP() << "QKV_REFERENCE does not name a folder with hf/";
  for (const auto& [name, architecture] : kCases) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(reference) + "/hf/" + name;
    std::ifstream in(dir + "/config.json");
    const std::string document{std::istreambuf_iterator<char>(in), {}};
    const Json config = parse_json(document, dir);
    const auto weights = read_weights(dir);
    std::vector<std::pair<std::string, Weight>> tensors(weights.file.tensors.begin(),
                                                        weights.file.tensors.end());
    const Gguf file = as_file(gguf_of_model(config, tensors));
    EXPECT_EQ(file.string("general.architecture"), architecture);
    const GgufModel back = model_of_gguf(file);
    EXPECT_EQ(back.config["model_type"],
              name == std::string("mistral_headdim") ? "llama" : config["model_type"]);
    EXPECT_TRUE(essence(parse_spec(back.config.dump(), "back")) ==
                essence(parse_spec(document, "config.json")));
    const bool shifted = std::string(architecture).starts_with("gemma");
    for (const auto& [tensor, w] : tensors) {
      if (!back.tensors.contains(tensor)) {
        // Parts of further predictions, or masks.
        EXPECT_FALSE(find_family(config["model_type"].get<std::string>())->ignores == nullptr) << tensor;
        continue;
      }
      const std::vector<float> a = numbers_of(w), b = numbers_of(back.tensors.at(tensor));
      ASSERT_EQ(back.tensors.at(tensor).shape(), w.shape()) << tensor;
      if (!shifted || !tensor.ends_with("norm.weight")) {
        EXPECT_EQ(a, b) << tensor;
        continue;
      }
      // 1 was added and taken away again.
      for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1.2e-7) << tensor;
    }
  }
}

}  // namespace
}  // namespace qkv::testing::gguf_model_test
