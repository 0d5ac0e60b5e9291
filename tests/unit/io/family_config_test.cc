// config.json files by other programs: other forms, missing keys, and values that are rejected by name.
#include <cmath>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::family_config_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

// Newer files, with settings in one object, and lists that are too short.
TEST(ModelDir, OtherFormsOfConfigsAreRead) {
  ModelSpec spec = llama();
  spec.attention.rotary.base = 500000;
  spec.attention.rotary.scaling = RotaryScaling::linear;
  spec.attention.rotary.factor = 4;
  const ScratchDir dir;
  save_model(dir.path(), *drawn(spec));
  Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
  config["rope_parameters"] = {{"rope_type", "linear"}, {"factor", 4}, {"rope_theta", 500000}};
  config.erase("rope_theta");
  config.erase("rope_scaling");
  dir.write("config.json", config.dump());
  spec.family = load_spec(dir.path()).family;
  EXPECT_EQ(load_spec(dir.path()), spec);
  config["rope_parameters"] = {{"rope_theta", 500000}};
  dir.write("config.json", config.dump());
  spec.attention.rotary.scaling = RotaryScaling::none;
  spec.attention.rotary.factor = 1;
  EXPECT_EQ(load_spec(dir.path()), spec);

  ModelSpec encoder = bert_spec(13, 8, 12, 2, 3);
  encoder.embedding_width = encoder.head_width = 5;
  encoder.embedding_projected_last = true;
  const ScratchDir electra;
  save_model(electra.path(), *drawn(encoder));
  config = parse_json(read_file(electra.path() + "/config.json"), "config.json");
  ASSERT_EQ(config["model_type"], "electra");
  config["architectures"] = Json::array();
  electra.write("config.json", config.dump());
  encoder.family = load_spec(electra.path()).family;
  EXPECT_EQ(load_spec(electra.path()), encoder);
}

// Missing keys have the defaults of the family.
TEST(ModelDir, DefaultsAreTheFamilys) {
  const auto spec_of = [](const char* type, Json config) {
    config["model_type"] = type;
    for (const char* key :
         {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "d_model", "encoder_layers",
          "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings"})
      if (!config.contains(key)) config[key] = 64;
    for (const char* key : {"num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"})
      config[key] = 32;
    return parse_spec(config.dump(), "config.json");
  };
  EXPECT_EQ(spec_of("ernie4_5", {}).attention.rotary.base, 500000);
  EXPECT_EQ(spec_of("smollm3", {}).attention.rotary.base, 2000000);
  EXPECT_EQ(spec_of("seed_oss", {{"head_dim", nullptr}}).attention.d_qk, 2);
  EXPECT_EQ(spec_of("seed_oss", {}).attention.d_qk, 128);
  // All of its layers have the window.
  const Json moe = {{"use_sliding_window", true},
                    {"sliding_window", 4},
                    {"max_window_layers", 28},
                    {"num_hidden_layers", 3}};
  EXPECT_EQ(spec_of("qwen3_moe", moe).attention.patterns, (std::vector<Pattern>{{.window = 4}}));
  // The last layer sees all under a pattern of letters alone.
  const auto sees_all = [&](const Json& pattern) {
    const ModelSpec s = spec_of("exaone4", {{"sliding_window_pattern", pattern}, {"num_hidden_layers", 6}});
    return s.block(5).attention.patterns.empty();
  };
  EXPECT_FALSE(sees_all(4));
  EXPECT_TRUE(sees_all("LLLG"));
  const Json nested = {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}};
  expect_error([&] { spec_of("qwen3", nested); }, {"rope_parameters", "full_attention"});
  const Json whole = {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}, {"truncate", false}}}};
  EXPECT_FALSE(spec_of("qwen3", whole).attention.rotary.truncated);
  expect_error([&] { spec_of("glm", {{"partial_rotary_factor", 1e300}}); }, {"partial_rotary_factor"});
  expect_error([&] { spec_of("ernie4_5_moe", {{"use_bias", true}}); }, {"use_bias"});
  const ModelSpec mistral = spec_of("mistral", {}), mixtral = spec_of("mixtral", {});
  EXPECT_EQ(mistral.attention.kv_heads, 8);
  EXPECT_EQ(mistral.attention.patterns, (std::vector<Pattern>{{.window = 4096}}));
  EXPECT_EQ(mixtral.attention.kv_heads, 8);
  EXPECT_EQ(mixtral.attention.rotary.base, 1e6);
  EXPECT_EQ(mixtral.norm_epsilon, 1e-5F);
  EXPECT_TRUE(mixtral.attention.patterns.empty());
  const Json newer = {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 12345.0}}}};
  EXPECT_EQ(spec_of("mixtral", newer).attention.rotary.base, 12345);
  const Json inside = {{"rope_scaling",
                        {{"rope_type", "longrope"},
                         {"original_max_position_embeddings", 16},
                         {"short_factor", {1.5}},
                         {"long_factor", {2.5}}}}};
  EXPECT_EQ(spec_of("llama", inside).attention.rotary.original_context, 16);
  EXPECT_EQ(spec_of("llama", inside).attention.rotary.factor, 4);
  expect_error(
      [&] {
        spec_of("switch_transformers", {{"num_layers", 2}, {"num_heads", 2}, {"d_kv", 4}, {"d_ff", 8}});
      },
      {"config.json", "num_sparse_decoder_layers", "3 of 2 layers"});
  const Json none = {{"num_key_value_heads", nullptr}, {"sliding_window", nullptr}};
  EXPECT_EQ(spec_of("mistral", none).attention.kv_heads, 32);
  EXPECT_TRUE(spec_of("mistral", none).attention.patterns.empty());
  EXPECT_EQ(spec_of("gemma2", {}).attention.kv_heads, 4);
  const Json windows = {{"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window", 9}};
  EXPECT_EQ(spec_of("qwen2", windows).attention.patterns, (std::vector<Pattern>{{.window = 9}}));
  EXPECT_TRUE(spec_of("qwen2", {{"sliding_window", 9}}).attention.patterns.empty());
  const auto windows_of = [&](const char* type, Json more, int64_t layers) {
    more["num_hidden_layers"] = layers;
    return spec_of(type, more).attention.patterns;
  };
  const Pattern all, four = {.window = 4};
  const Json upper = {{"use_sliding_window", true}, {"max_window_layers", 2}, {"sliding_window", 4}};
  EXPECT_EQ(windows_of("qwen2", upper, 4), (std::vector<Pattern>{all, all, four, four}));
  EXPECT_EQ(windows_of("qwen2", upper, 3), (std::vector<Pattern>{all, all, four}));
  EXPECT_TRUE(windows_of("qwen2", upper, 2).empty());
  EXPECT_TRUE(windows_of("qwen2", {{"use_sliding_window", true}}, 28).empty());
  EXPECT_EQ(windows_of("qwen2", {{"use_sliding_window", true}}, 29)[28], (Pattern{.window = 4096}));
  const Json none_given = {
      {"use_sliding_window", true}, {"max_window_layers", 0}, {"sliding_window", nullptr}};
  EXPECT_TRUE(windows_of("qwen2", none_given, 2).empty());
  Json typed = upper;  // takes precedence over max_window_layers
  typed["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
  for (const char* type : {"qwen2", "qwen2_moe"}) {
    EXPECT_EQ(windows_of(type, typed, 3), (std::vector<Pattern>{four, all})) << type;
    expect_error([&] { windows_of(type, typed, 2); }, {"config.json: layer_types", "3 types for 2 layers"});
    Json other = typed;
    other["use_sliding_window"] = false;
    expect_error([&] { windows_of(type, other, 3); }, {"layer_types[0]", "use_sliding_window"});
    other["layer_types"] = {"full_attention", "full_attention"};
    EXPECT_TRUE(windows_of(type, other, 2).empty());
    other["layer_types"] = {"full_attention", "chunked_attention"};
    expect_error([&] { windows_of(type, other, 2); },
                 {"layer_types[1]", "'chunked_attention'", "sliding_attention"});
  }
  const Json t5 = {{"d_kv", 4}, {"d_ff", 8}, {"num_layers", 1}, {"num_heads", 2}};
  const auto t5_with = [&](const Json& more) {
    Json config = t5;
    config.update(more);
    return spec_of("t5", config);
  };
  EXPECT_EQ(t5_with({{"feed_forward_proj", "gated-gelu"}}).activation, Activation::gelu_tanh);
  EXPECT_EQ(
      t5_with({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu_new"}, {"is_gated_act", true}}),
      t5_with({{"feed_forward_proj", "gated-gelu"}}));
  EXPECT_EQ(t5_with({{"feed_forward_proj", "gated-gelu"}, {"dense_act_fn", "gelu"}}).activation,
            Activation::gelu);
  EXPECT_EQ(t5_with({{"dense_act_fn", "silu"}}).activation, Activation::silu);
  EXPECT_TRUE(t5_with({{"is_gated_act", true}}).gated);
  expect_error(
      [&] {
        t5_with({{"architectures", {"T5EncoderModel"}}});
      },
      {"config.json", "architectures", "T5EncoderModel"});
  expect_error(
      [&] {
        spec_of("llama", {{"quantization_config", {{"bits", 4}}}});
      },
      {"config.json", "quantization_config"});
  expect_error([&] { spec_of("llama", {{"pruned_heads", {{"0", {1}}}}}); }, {"config.json", "pruned_heads"});
  expect_error(
      [&] {
        spec_of("qwen2_moe", {{"use_sliding_window", true}});
      },
      {"config.json", "max_window_layers"});
  EXPECT_EQ(spec_of("starcoder2", {}).attention.kv_heads, 2);
  const ModelSpec m2m = spec_of("m2m_100", {});
  EXPECT_EQ(m2m.activation, Activation::relu);
  EXPECT_TRUE(m2m.embedding_scaled);
  EXPECT_EQ(m2m.first_position, 0);
  for (const char* type : {"longrope", "su", "yarn"}) {
    const Json factor = {1.5};
    const ModelSpec phi3 = spec_of(
        "phi3", {{"max_position_embeddings", 131072},
                 {"rope_scaling", {{"type", type}, {"short_factor", factor}, {"long_factor", factor}}}});
    EXPECT_EQ(phi3.attention.rotary.scaling, RotaryScaling::longrope);
    EXPECT_EQ(phi3.attention.rotary.original_context, 4096);
    EXPECT_EQ(phi3.attention.rotary.factor, 32);
    EXPECT_EQ(phi3.attention.rotary.magnitude, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
  }
  expect_error(
      [&] {
        spec_of("ctrl", {{"n_embd", 64},
                         {"n_layer", 1},
                         {"n_head", 2},
                         {"n_positions", 8},
                         {"dff", 8},
                         {"layer_norm_epsilon", 1e-5}});
      },
      {"config.json", "layer_norm_epsilon", "1e-06"});
  EXPECT_EQ(spec_of("llama", {{"architectures", {"LLaMAForCausalLM"}}}), spec_of("llama", {}));
  for (const char* name : {"LlamaForQuestionAnswering", "MistralForCausalLM"})
    expect_error(
        [&] {
          spec_of("llama", {{"architectures", {name}}});
        },
        {"config.json", "architectures", name, "LlamaForCausalLM and LlamaForSequenceClassification"});
  expect_error(
      [&] {
        spec_of("granite", {{"architectures", {"GraniteForSequenceClassification"}}});
      },
      {"architectures", "GraniteForCausalLM is"});
  // A class of its own for the language model alone.
  const Json gemma = {{"head_dim", 4}, {"architectures", {"Gemma3TextForSequenceClassification"}}};
  const ModelSpec classes = spec_of("gemma3_text", gemma);
  EXPECT_EQ(classes.output, Output::sequence_classes);
  const std::vector<WeightName> names = weights_of(gemma3_text_family(), classes);
  EXPECT_TRUE(std::ranges::any_of(names, [](const WeightName& w) { return w.file == "score.weight"; }));
  EXPECT_EQ(config_of(gemma3_text_family(), classes)["architectures"].dump(), gemma["architectures"].dump());
}

// Gemma 4: every sixth layer sees all, and the last one always does.
TEST(ModelDir, LayersOfGemma4) {
  const auto spec_of = [](Json config) {
    config["model_type"] = "gemma4_text";
    for (const char* key : {"vocab_size", "hidden_size", "intermediate_size"}) config[key] = 64;
    config["num_hidden_layers"] = 4;
    config["num_attention_heads"] = 8;
    if (!config.contains("hidden_size_per_layer_input")) config["hidden_size_per_layer_input"] = 0;
    return parse_spec(config.dump(), "config.json");
  };
  const ModelSpec plain = spec_of({{"head_dim", 8}});
  EXPECT_EQ(plain.attention.d_qk, 512);
  EXPECT_EQ(plain.attention.rotary.turned, 128);
  EXPECT_EQ(plain.attention.rotary.base, 1e6);
  EXPECT_EQ(plain.block(0).attention.d_qk, 8);
  EXPECT_EQ(plain.block(0).attention.patterns[0].window, 512);
  EXPECT_EQ(spec_of({{"layer_types", Json(4, "sliding_attention")}}).kind_of(3), kDefaultKind);
  const auto refused = [&](const Json& config, std::initializer_list<std::string> parts) {
    expect_error([&] { spec_of(config); }, parts);
  };
  refused({{"num_kv_shared_layers", 1}},
          {"reused_keys", "layer 4"});  // none of the last layer's like is before
  refused({{"num_kv_shared_layers", 4}}, {"num_kv_shared_layers", "4 of 4"});
  refused({{"enable_moe_block", true}}, {"enable_moe_block"});
  refused({{"use_bidirectional_attention", "all"}}, {"use_bidirectional_attention"});
  refused({{"rope_parameters", {{"rope_theta", 5}}}}, {"rope_parameters", "full_attention"});
  refused({{"hidden_size_per_layer_input", 3}}, {"vocab_size_per_layer_input", "64", "262144"});
}

// Absent scalings, bases and lists of the newest families, and null.
TEST(ModelDir, DefaultsOfTheNewestFamilies) {
  const auto spec_of = [](const char* type, Json config) {
    config["model_type"] = type;
    for (const char* key : {"vocab_size", "hidden_size", "intermediate_size"}) config[key] = 64;
    if (!config.contains("num_hidden_layers")) config["num_hidden_layers"] = 4;
    config["num_attention_heads"] = 8;
    return parse_spec(config.dump(), "config.json");
  };
  const ModelSpec oss = spec_of("gpt_oss", {});
  EXPECT_EQ(oss.attention.rotary.scaling, RotaryScaling::yarn);
  EXPECT_FALSE(oss.attention.rotary.truncated);
  EXPECT_EQ(oss.experts.count, 128);
  EXPECT_EQ(spec_of("gpt_oss", {{"rope_scaling", nullptr}}).attention.rotary.scaling, RotaryScaling::none);
  EXPECT_EQ(spec_of("gpt_oss", {{"swiglu_limit", 3}}).gate_limit, 7);
  EXPECT_EQ(spec_of("apertus", {}).attention.rotary.scaling, RotaryScaling::llama3);
  EXPECT_EQ(spec_of("apertus", {{"rope_scaling", nullptr}}).attention.rotary.scaling, RotaryScaling::none);
  const ModelSpec ministral = spec_of("ministral3", {});
  EXPECT_EQ(ministral.attention.query_growth_every, 16384);
  EXPECT_EQ(ministral.norm_epsilon, 1e-5F);
  // Older files have a number for a switch, Llama 4 itself a ramp without a length.
  const Json ramp = {{"rope_type", "llama3"},
                     {"factor", 16},
                     {"low_freq_factor", 1},
                     {"high_freq_factor", 1},
                     {"original_max_position_embeddings", 8192}};
  const ModelSpec scout = spec_of("llama4_text", {{"attn_temperature_tuning", 4}, {"rope_scaling", ramp}});
  EXPECT_EQ(scout.block(3).attention.query_growth, 0.1F);
  EXPECT_EQ(scout.attention.rotary.low, scout.attention.rotary.high);
  EXPECT_EQ(spec_of("llama4_text", {{"attn_temperature_tuning", 0}}).block(3).attention.query_growth, 0);
  const ModelSpec some = spec_of("llama4_text", {{"moe_layers", {1, 3}}});
  EXPECT_EQ(some.experts.first, 1);
  EXPECT_EQ(some.experts.every, 2);
  EXPECT_EQ(spec_of("llama4_text", {{"moe_layers", Json::array()}}).experts.count, 0);
  EXPECT_EQ(spec_of("llama4_text", {{"interleave_moe_layer_step", 7}}).experts.count, 0);
  expect_error([&] { spec_of("llama4_text", {{"moe_layers", {1, 2}}}); }, {"moe_layers"});
  const auto local = [&](const Json& config) { return spec_of("modernbert", config).attention.rotary.base; };
  EXPECT_EQ(local({}), 10000);
  EXPECT_EQ(local({{"local_rope_theta", nullptr}}), 160000);
  EXPECT_EQ(spec_of("mpnet", {{"max_position_embeddings", 20}, {"pad_token_id", 0}}).context, 18);
  const Json types = {"full_attention", "sliding_attention", "full_attention", "full_attention"};
  const ModelSpec gemma = spec_of("gemma2", {{"layer_types", types}});
  EXPECT_TRUE(gemma.attention.patterns[0] == Pattern());
  EXPECT_EQ(gemma.attention.patterns[1].window, 4096);
  const Json terms = {
      {"relative_attention", true}, {"pos_att_type", "C2P | p2c"}, {"max_position_embeddings", 20}};
  EXPECT_TRUE(spec_of("deberta", terms).attention.relative.by_position);
}

// The whole's vocabulary is that of both parts, and the decoder's start token that of its part.
TEST(ModelDir, PartsOfT5Gemma) {
  Json part = {{"hidden_size", 16},    {"intermediate_size", 8},   {"num_hidden_layers", 2},
               {"vocab_size", 256000}, {"num_attention_heads", 2}, {"head_dim", 8},
               {"bos_token_id", 5},    {"num_key_value_heads", 1}};
  Json config = {{"model_type", "t5gemma"},
                 {"is_encoder_decoder", true},
                 {"vocab_size", 9},
                 {"encoder", part},
                 {"decoder", part}};
  const ScratchDir dir;
  dir.write("config.json", config.dump());
  EXPECT_EQ(load_spec(dir.path()).vocab_size, 9);
  EXPECT_EQ(load_spec(dir.path()).source_vocab_size, 9);
  EXPECT_EQ(load_special_ids(dir.path()).decoder_start, 5);
  config["encoder"]["rope_parameters"] = {{"full_attention", {{"rope_theta", 5}}}};
  expect_error([&] { parse_spec(config.dump(), "config.json"); }, {"rope_parameters", "full_attention"});
}

// Families that name each layer in the file would write billions of lines to check whether they can express
// it.
// Only qkv's own format has blocks of attention alone.
TEST(ModelDir, NetworksWithoutWidthAreRefused) {
  const Json config = {{"model_type", "gpt2"}, {"n_layer", 1}, {"vocab_size", 64}, {"n_embd", 64},
                       {"n_head", 4},          {"n_inner", 0}, {"n_positions", 64}};
  expect_error([&] { parse_spec(config.dump(), "config.json"); }, {"config.json", "width 0"});
}

TEST(ModelDir, MoreLayersThanAnyModelHasAreRefusedAtOnce) {
  for (const char* type : {"gemma2", "gpt_oss", "llama4_text", "modernbert", "qwen2", "qwen3", "qwen3_moe",
                           "gemma3_text", "gemma4_text", "olmo3", "cohere2", "exaone4", "smollm3",
                           "ministral", "ernie4_5_moe", "longformer", "reformer"}) {
    const Json config = {{"model_type", type},
                         {"num_hidden_layers", int64_t{1} << 40},
                         {"vocab_size", 64},
                         {"hidden_size", 64},
                         {"intermediate_size", 64},
                         {"num_attention_heads", 4},
                         {"num_key_value_heads", 4},
                         {"head_dim", 16},
                         {"max_position_embeddings", 64},
                         {"attention_window", 8},
                         {"attn_layers", {"local"}},
                         {"attention_head_size", 16},
                         {"feed_forward_size", 64},
                         {"axial_pos_embds", false},
                         {"hidden_size_per_layer_input", 0},
                         {"is_decoder", true}};
    expect_error([&] { parse_spec(config.dump(), "config.json"); }, {"config.json", "layers"});
  }
}

}  // namespace
}  // namespace qkv::family_config_test
