#include "qkv/io/model_dir.h"

#include <cmath>

#include "qkv/base/file.h"
#include "qkv/io/safetensors.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

using testing::expect_error;
using testing::ScratchDir;

ModelSpec gpt2() {
  return gpt2_spec(13, 8, 12, 2, 3);
}
ModelSpec native() {
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

std::unique_ptr<Transformer> drawn(const ModelSpec& spec) {
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(4, DType::f32);
  return model;
}

void expect_same_weights(const Transformer& a, const Transformer& b) {
  ASSERT_EQ(a.parameters().all().size(), b.parameters().all().size());
  for (size_t i = 0; i < a.parameters().all().size(); ++i) {
    const Parameter &p = a.parameters().all()[i], &q = b.parameters().all()[i];
    ASSERT_EQ(p.name, q.name);
    ASSERT_EQ(p.value.shape(), q.value.shape()) << p.name;
    EXPECT_EQ(std::memcmp(p.value.raw(), q.value.raw(), p.value.bytes()), 0) << p.name;
  }
}

TEST(ModelDir, RoundTripIsByteIdentical) {
  ModelSpec untied = gpt2(), odd = gpt2(), dropout = native();
  untied.tied = false;
  untied.activation = Activation::gelu;
  odd.hidden = 7;
  odd.norm_epsilon = 1e-6F;
  odd.init_std = 0.1F;
  odd.attention.scaled = false;
  odd.attention.scaled_by_layer = true;
  odd.embedding_dropout = 0.3F;
  dropout.attention.dropout = 0.1F;
  dropout.residual_dropout = 0.7F;
  dropout.attention.bias = true;
  for (const ModelSpec& spec : {gpt2(), untied, odd, native(), dropout}) {
    const ScratchDir first;
    const std::string second = first.path() + "/again";
    std::filesystem::create_directories(second);
    const auto model = drawn(spec);
    save_model(first.path(), *model, {1, 3, {2}});
    const auto loaded = load_model(first.path(), DType::f32);
    EXPECT_EQ(loaded->spec(), spec);
    EXPECT_EQ(load_spec(first.path()), spec);
    expect_same_weights(*model, *loaded);
    save_model(second, *loaded, load_special_ids(first.path()));
    for (const char* name : {"/config.json", "/generation_config.json", "/model.safetensors"})
      EXPECT_EQ(read_file(first.path() + name), read_file(second + name)) << name;
  }
}

TEST(ModelDir, TheFamilyIsTheFirstThatExpressesTheSpec) {
  EXPECT_EQ(family_for(gpt2()).model_type, "gpt2");
  EXPECT_EQ(family_for(native()).model_type, "qkv");
  ModelSpec grouped = gpt2();
  grouped.attention.kv_heads = 1;
  EXPECT_EQ(family_for(grouped).model_type, "gpt_bigcode");
  grouped.gated = true;
  EXPECT_EQ(family_for(grouped).model_type, "qkv");
  grouped = gpt2();
  grouped.attention.bias = false;
  EXPECT_EQ(family_for(grouped).model_type, "qkv");
}

TEST(ModelDir, LoadsInBf16AndSavesMasters) {
  const ScratchDir dir;
  auto model = drawn(gpt2());
  save_model(dir.path(), *model);
  const auto narrow = load_model(dir.path(), DType::bf16);
  for (const Parameter& p : narrow->parameters().all())
    EXPECT_EQ(p.value.dtype(), p.kind == ParameterKind::matrix ? DType::bf16 : DType::f32) << p.name;
  // While training in bf16, the file gets the f32 masters.
  const std::string before = read_file(dir.path() + "/model.safetensors");
  model->parameters().prepare_training(DType::bf16, 1);
  save_model(dir.path(), *model);
  EXPECT_EQ(read_file(dir.path() + "/model.safetensors"), before);
}

TEST(ModelDir, SpecialIdsAreKept) {
  const ScratchDir dir;
  save_model(dir.path(), *drawn(gpt2()), {5, -1, {6, 7}});
  const SpecialIds ids = load_special_ids(dir.path());
  EXPECT_EQ(ids.bos, 5);
  EXPECT_EQ(ids.eos, (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(ids.pad, -1);
}

// A saved model whose files can be changed.
class BadModelDir : public ::testing::TestWithParam<bool> {
 protected:
  BadModelDir() {
    save_model(dir_.path(), *drawn(GetParam() ? native() : gpt2()));
    config_ = parse_json(read_file(config_path()), config_path());
    const auto file = read_safetensors(weights_path());
    for (const auto& [name, x] : file.tensors) tensors_.emplace_back(name, x.clone());
  }
  std::string config_path() const { return dir_.path() + "/config.json"; }
  std::string weights_path() const { return dir_.path() + "/model.safetensors"; }
  Json& fields() { return GetParam() ? config_["qkv"] : config_; }
  void refuse_config(const Json& config, std::initializer_list<std::string> parts) {
    dir_.write("config.json", config.dump());
    expect_error([&] { load_spec(dir_.path()); }, {config_path()});
    expect_error([&] { load_spec(dir_.path()); }, parts);
    expect_error([&] { load_model(dir_.path(), DType::f32); }, parts);
  }
  void refuse_field(const char* key, const Json& value, std::initializer_list<std::string> parts) {
    const Json before = config_;
    if (value.is_discarded())
      fields().erase(key);
    else
      fields()[key] = value;
    refuse_config(config_, parts);
    config_ = before;
  }
  void refuse_weights(std::initializer_list<std::string> parts) {
    write_safetensors(weights_path(), tensors_);
    expect_error([&] { load_model(dir_.path(), DType::f32); }, {weights_path()});
    expect_error([&] { load_model(dir_.path(), DType::f32); }, parts);
  }

  ScratchDir dir_;
  Json config_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

TEST_P(BadModelDir, MissingTensor) {
  const std::string name = tensors_[3].first;
  tensors_.erase(tensors_.begin() + 3);
  refuse_weights({"'" + name + "'", "missing"});
}

TEST_P(BadModelDir, WrongShape) {
  tensors_[2].second = Tensor::zeros({1, 2, 3}, DType::f32);
  refuse_weights({"'" + tensors_[2].first + "'", "[1, 2, 3]", "config.json"});
}

TEST_P(BadModelDir, WrongType) {
  tensors_[2].second = Tensor::zeros(tensors_[2].second.shape(), DType::i32);
  refuse_weights({"'" + tensors_[2].first + "'", "i32"});
}

TEST_P(BadModelDir, ExtraTensor) {
  tensors_.emplace_back("h.7.extra", Tensor::zeros({1}, DType::f32));
  refuse_weights({"'h.7.extra'", "no parameter"});
}

TEST_P(BadModelDir, BrokenOrMissingFiles) {
  dir_.write("model.safetensors", "broken");
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {weights_path()});
  std::filesystem::remove(weights_path());
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {weights_path(), "missing"});
  dir_.write("pytorch_model.bin", "x");
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {"pytorch_model.bin", "model.safetensors"});
  dir_.write("config.json", "{\"model_type\": \"gpt2\",");
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {config_path(), "JSON"});
  std::filesystem::remove(config_path());
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {"config.json", "missing"});
  expect_error([&] { load_model(dir_.path() + "/none", DType::f32); },
               {dir_.path() + "/none", "no such directory"});
}

TEST_P(BadModelDir, ModelType) {
  Json c = config_;
  c["model_type"] = "mamba";
  refuse_config(c, {"model_type", "\"mamba\"", "gpt2", "qkv"});
  c["model_type"] = 3;
  refuse_config(c, {"model_type", "string"});
  c.erase("model_type");
  refuse_config(c, {"model_type", "missing"});
  refuse_config(Json::array(), {"object"});
}

TEST_P(BadModelDir, ConfigFields) {
  const bool n = GetParam();
  const char* width = n ? "width" : "n_embd";
  const char* heads = n ? "heads" : "n_head";
  const char* layers = n ? "layers" : "n_layer";
  const char* activation = n ? "activation" : "activation_function";
  const char* epsilon = n ? "norm_epsilon" : "layer_norm_epsilon";
  const char* tied = n ? "tied" : "tie_word_embeddings";
  refuse_field(width, "12", {width, "an integer"});
  refuse_field(width, 12.5, {width, "an integer"});
  refuse_field(width, Json(Json::value_t::discarded), {width, "missing"});
  refuse_field(width, -12, {width});
  refuse_field("vocab_size", 0, {"vocab_size"});
  refuse_field(layers, 1 << 20, {"layers"});
  refuse_field(heads, 0, {"heads"});
  refuse_field(heads, 5, {"heads"});
  refuse_field(activation, "mish", {activation, "'mish'"});
  refuse_field(activation, 3, {activation, "a string"});
  refuse_field(epsilon, "small", {epsilon, "a number"});
  refuse_field(epsilon, -1, {"norm_epsilon"});
  refuse_field(tied, 1, {tied, "true or false"});
  refuse_field(n ? "residual_dropout" : "resid_pdrop", 1.5, {"residual dropout"});
  if (n) {
    refuse_field("version", 1000, {"version", "1000"});
    refuse_field("architecture", "diffusion", {"architecture", "'diffusion'", "encoder_decoder"});
    refuse_field("encoder_layers", 2, {"encoder_layers", "one stack"});
    refuse_field("positions", "spiral", {"positions", "'spiral'"});
    refuse_field("norm_placement", "both", {"norm placement", "'both'"});
    refuse_field("kv_heads", 3, {"kv_heads"});
    refuse_field("d_qk", 1000, {"d_qk"});
    Json c = config_;
    c["qkv"] = 3;
    refuse_config(c, {"qkv", "object"});
  } else {
    refuse_field("add_cross_attention", true, {"add_cross_attention"});
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BadModelDir, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "native" : "gpt2"; });

// Every field of a spec that is not a decoder of GPT-2's kind survives.
TEST(ModelDir, OtherArchitecturesComeBack) {
  for (const Architecture architecture :
       {Architecture::encoder, Architecture::encoder_decoder, Architecture::decoder}) {
    const ScratchDir dir;
    ModelSpec spec = gpt2();
    spec.architecture = architecture;
    spec.encoder_layers = architecture == Architecture::encoder_decoder ? 1 : 0;
    spec.norm_placement = NormPlacement::post;
    spec.positions = Positions::sinusoidal;
    spec.embedding_scaled = spec.embedding_norm = spec.unembedding_bias = true;
    spec.segments = 2;
    spec.head_width = spec.width;
    const auto model = drawn(spec);
    save_model(dir.path(), *model);
    EXPECT_EQ(load_spec(dir.path()), spec);
    const auto loaded = load_model(dir.path(), DType::f32);
    for (const Parameter& p : model->parameters().all()) {
      const Tensor& q = loaded->parameters().find(p.name)->value;
      EXPECT_EQ(std::memcmp(p.value.raw(), q.raw(), p.value.bytes()), 0) << p.name;
    }
  }
}

// A family that could not name an activation would save another.
TEST(ModelDir, ActivationsComeBack) {
  for (const Activation a :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu, Activation::tanh})
    for (ModelSpec spec : {gpt2(), bert_spec(13, 8, 12, 2, 3)}) {
      const ScratchDir dir;
      spec.activation = a;
      save_model(dir.path(), *drawn(spec));
      EXPECT_EQ(load_spec(dir.path()).activation, a);
    }
}

ModelSpec classifier() {
  ModelSpec s = bert_spec(13, 8, 12, 2, 3);
  s.norm_placement = NormPlacement::pre;  // which no other family has
  s.output = Output::sequence_classes;
  s.head_width = 0;
  s.unembedding_bias = false;
  s.labels = {"no", "y\u00e9s \"\\", ""};
  s.pooling = Pooling::mean;
  s.pooler = true;
  s.head_dropout = 0.25F;
  return s;
}

// An encoder's head comes back: its parameters and the names of its classes.
TEST(ModelDir, HeadsComeBack) {
  ModelSpec tags = classifier(), span = classifier(), embedding = classifier();
  tags.output = Output::token_classes;
  tags.pooler = false;
  span.output = Output::span;
  span.labels.clear();
  span.pooler = false;
  embedding.output = Output::embedding;
  embedding.labels.clear();
  for (const ModelSpec& spec : {classifier(), tags, span, embedding}) {
    const ScratchDir dir;
    const auto model = drawn(spec);
    EXPECT_EQ(model->parameters().find("pooler.weight") != nullptr, spec.pooler);
    EXPECT_EQ(model->parameters().find("classifier.weight") != nullptr, spec.classes() > 0);
    save_model(dir.path(), *model);
    const auto loaded = load_model(dir.path(), DType::f32);
    EXPECT_EQ(loaded->spec(), spec);
    EXPECT_EQ(loaded->spec().labels, spec.labels);
    expect_same_weights(*model, *loaded);
  }
}

// A decoder with what Llama has.
ModelSpec llama() {
  ModelSpec s = gpt2_spec(13, 8, 12, 2, 3);
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

// An encoder-decoder with what BART has, but for norms before branches.
ModelSpec bart() {
  ModelSpec s = gpt2_spec(13, 8, 12, 2, 3);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 2;
  s.activation = Activation::gelu;
  s.stacks_apart = s.embedding_norm = s.embedding_scaled = s.unembedding_bias = true;
  return s;
}

struct FamilyCase {
  const char* model_type;
  void (*change)(ModelSpec& s);  // what the family has beside llama()
};

const FamilyCase kFamilies[] = {
    {"llama", [](ModelSpec&) {}},
    {"llama",
     [](ModelSpec& s) {
       s.attention.bias = s.attention.out_bias = true;
       s.attention.rotary.base = 500000;
       s.attention.rotary.scaling = RotaryScaling::llama3;
       s.attention.rotary.factor = 8;
       s.attention.rotary.original_context = 4;
     }},
    {"llama",
     [](ModelSpec& s) {
       RotarySpec& r = s.attention.rotary;
       r.scaling = RotaryScaling::yarn;
       r.factor = 2;
       r.original_context = s.context;
       r.high = 32;
       r.magnitude = 1.25;
     }},
    {"mistral", [](ModelSpec& s) { s.attention.patterns = {{.window = 5}}; }},
    {"qwen2", [](ModelSpec& s) { s.attention.bias = true; }},
    {"gemma",
     [](ModelSpec& s) {
       s.normalization = Normalization::rms_plus_one;
       s.embedding_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.tied = true;
     }},
    {"phi",
     [](ModelSpec& s) {
       s.gated = false;
       s.normalization = Normalization::layer;
       s.branches = Branches::one_norm;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.unembedding_bias = true;
       s.attention.rotary.width = 2;
     }},
    {"phi3",
     [](ModelSpec& s) {
       s.residual_dropout = 0.25F;
       s.attention.rotary.width = 2;
     }},
    {"olmo",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer_plain;
       s.norm_epsilon = 1e-5F;
     }},
    {"olmo2",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::branch;
       s.attention.query_key_norm = QueryKeyNorm::whole;
     }},
    {"stablelm",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer;
       s.branches = Branches::one_norm;
       s.attention.bias = true;
     }},
    {"starcoder2",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer;
       s.gated = false;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.tied = true;
     }},
    {"granite",
     [](ModelSpec& s) {
       s.attention.scale = 0.25F;
       s.embedding_multiplier = 3;
       s.residual_multiplier = 0.5F;
       s.logit_multiplier = 0.5F;
     }},
    {"cohere",
     [](ModelSpec& s) {
       s.normalization = Normalization::layer_scale;
       s.branches = Branches::one_norm;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.logit_multiplier = 0.25F;
       s.tied = true;
     }},
    {"gpt_neox",
     [](ModelSpec& s) {
       s = gpt2();
       s.branches = Branches::parallel;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 2;
       s.tied = false;
     }},
    {"gptj",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.bias = s.attention.out_bias = s.tied = false;
       s.branches = Branches::one_norm;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 2;
       s.attention.rotary.layout = RotaryLayout::interleaved;
       s.unembedding_bias = true;
     }},
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.kv_heads = 1;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
       s.branches = Branches::one_norm;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
     }},
    {"falcon",
     [](ModelSpec& s) {
       s = gpt2_spec(13, 8, 16, 2, 4);
       s.attention.kv_heads = 2;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
       s.branches = Branches::parallel;
       s.positions = Positions::rotary;
       s.attention.rotary.width = 4;
     }},
    {"bloom",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::alibi;
       s.embedding_norm = true;
     }},
    {"mpt",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::alibi_evens_first;
       s.normalization = Normalization::layer_scale;
       s.activation = Activation::gelu;
       s.attention.bias = s.attention.out_bias = s.feed_forward_bias = false;
     }},
    {"gpt_neo",
     [](ModelSpec& s) {
       s = gpt2();
       s.attention.bias = s.attention.scaled = false;
       s.attention.patterns = {{}, {.window = 3}};
     }},
    {"opt",
     [](ModelSpec& s) {
       s = gpt2();
       s.activation = Activation::relu;
       s.norm_placement = NormPlacement::post;
       s.embedding_width = 5;
     }},
    {"mbart", [](ModelSpec& s) { s = bart(); }},
    {"pegasus",
     [](ModelSpec& s) {
       s = bart();
       s.positions = Positions::sinusoidal_halves;
       s.stacks_apart = s.embedding_norm = false;
     }},
    {"albert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 4, 3);
       s.embedding_width = s.head_width = 5;
       s.embedding_projected_last = true;
       s.layer_groups = 2;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.embedding_width = s.head_width = 5;
       s.embedding_projected_last = true;
     }},
    {"electra",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.output = Output::token_classes;
       s.labels = {"replaced"};
       s.head_width = 0;
       s.unembedding_bias = false;
       s.pooler = true;
       s.pooler_activation = Activation::gelu;
     }},
    {"bert",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.architecture = Architecture::decoder;
     }},
    {"gemma2",
     [](ModelSpec& s) {
       s.normalization = Normalization::rms_plus_one;
       s.norm_placement = NormPlacement::sandwich;
       s.embedding_scaled = true;
       s.activation = Activation::gelu_tanh;
       s.tied = true;
       s.attention.scale = static_cast<float>(1 / std::sqrt(12.0));
       s.attention.cap = 50;
       s.logit_cap = 30;
       s.attention.patterns = {{.window = 5}, {}};
     }},
    {"mixtral",
     [](ModelSpec& s) {
       s.experts.count = 4;
       s.experts.hidden = s.hidden;
       s.experts.balance = 0.25F;
     }},
    {"qwen2_moe",
     [](ModelSpec& s) {
       s.attention.bias = true;
       s.experts = {.count = 5, .chosen = 3, .hidden = 7, .first = 1, .every = 2, .renormalized = false};
       s.experts.shared_hidden = 6;
       s.experts.shared_gated = true;
     }},
    {"deepseek_v2",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       a.latent = 6;
       a.d_qk = 5;
       a.d_vo = 3;
       a.rotary.width = 2;
       a.rotary.layout = RotaryLayout::interleaved;
     }},
    {"deepseek_v2",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       a.latent = 6;
       a.d_qk = 5;
       a.d_vo = 3;
       const double m = 0.1 * 0.5 * std::log(4.0) + 1;
       a.rotary = {.width = 4,
                   .layout = RotaryLayout::interleaved,
                   .scaling = RotaryScaling::yarn,
                   .factor = 4,
                   .original_context = 4,
                   .high = 32,
                   .magnitude = (0.1 * std::log(4.0) + 1) / m};
       a.scale = static_cast<float>(m * m / std::sqrt(5.0));
       s.experts = {.count = 6, .chosen = 2, .hidden = 4, .first = 1, .renormalized = false, .scale = 2.5F};
       s.experts.groups = 3;
       s.experts.chosen_groups = 2;
     }},
    {"deepseek_v3",
     [](ModelSpec& s) {
       AttentionSpec& a = s.attention;
       a.kv_heads = a.heads;
       a.bias = a.out_bias = true;
       a.latent = 6;
       a.query_latent = 7;
       a.rotary.width = 2;
       a.rotary.layout = RotaryLayout::interleaved;
       s.experts = {.count = 6, .chosen = 2, .hidden = 4, .score = RouterScore::sigmoid, .scale = 2.5F};
       s.experts.choice_bias = true;
       s.experts.shared_hidden = 8;
     }},
    {"ctrl",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::sinusoidal_halves;
       s.activation = Activation::relu;
       s.embedding_scaled = s.unembedding_bias = true;
     }},
    {"xglm",
     [](ModelSpec& s) {
       s = gpt2();
       s.positions = Positions::sinusoidal_closed;
       s.embedding_scaled = true;
     }},
    {"m2m_100",
     [](ModelSpec& s) {
       s = bart();
       s.positions = Positions::sinusoidal_closed;
       s.stacks_apart = s.embedding_norm = s.unembedding_bias = false;
     }},
    {"switch_transformers",
     [](ModelSpec& s) {
       s = bart();
       s.attention.bias = s.attention.out_bias = s.attention.scaled = s.feed_forward_bias = false;
       s.stacks_apart = s.embedding_norm = s.embedding_scaled = s.unembedding_bias = false;
       s.unembedding_scaled = true;
       s.normalization = Normalization::rms;
       s.norm_epsilon = 1e-6F;
       s.positions = Positions::relative;
       s.activation = Activation::relu;
       s.experts = {
           .count = 3, .chosen = 1, .hidden = s.hidden, .first = 1, .every = 2, .renormalized = false};
       s.experts.capacity = 64;
     }},
    {"big_bird",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "big_bird";
     }},
    {"big_bird",
     [](ModelSpec& s) {
       s = bert_spec(13, 8, 12, 2, 3);
       s.family = "big_bird";
       s.attention.patterns = {{.block = 4, .neighbours = 1, .ends = true, .beyond = 28, .first_block = 2}};
     }},
    {"qkv",
     [](ModelSpec& s) {
       s.norm_placement = NormPlacement::sandwich;
       s.attention.patterns = {{.window = 3}, {}};
       s.attention.query_key_norm = QueryKeyNorm::heads;
       s.residual_multiplier = 0.5F;
       s.attention.rotary.scaling = RotaryScaling::dynamic;
       s.attention.rotary.original_context = 6;
     }},
};

// Each family's directory says all about its models, and holds the weights bit for bit.
TEST(ModelDir, DecodersOfEveryFamilyComeBack) {
  for (const FamilyCase& c : kFamilies) {
    ModelSpec spec = llama();
    c.change(spec);
    SCOPED_TRACE(c.model_type);
    EXPECT_EQ(family_for(spec).model_type, c.model_type);
    const ScratchDir dir;
    const auto model = drawn(spec);
    save_model(dir.path(), *model);
    const auto loaded = load_model(dir.path(), DType::f32);
    EXPECT_EQ(loaded->spec(), spec);
    expect_same_weights(*model, *loaded);
    const std::string second = dir.path() + "/again";
    std::filesystem::create_directories(second);
    save_model(second, *loaded);
    for (const char* name : {"/config.json", "/model.safetensors"})
      EXPECT_EQ(read_file(dir.path() + name), read_file(second + name)) << name;
  }
}

// What newer files say in one object, and lists that are shorter than they should be.
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

// Next to each family lie models that it cannot say: whichever is chosen for them says all.
TEST(ModelDir, NeighboursOfEveryFamilyComeBack) {
  using Change = void (*)(ModelSpec&);
  const Change changes[] = {
      [](ModelSpec& s) { s.normalization = Normalization::layer; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_scale; },
      [](ModelSpec& s) { s.normalization = Normalization::layer_plain; },
      [](ModelSpec& s) { s.normalization = Normalization::rms; },
      [](ModelSpec& s) { s.normalization = Normalization::rms_plus_one; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::pre; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::post; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::sandwich; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::branch; },
      [](ModelSpec& s) { s.norm_placement = NormPlacement::none; },
      [](ModelSpec& s) { s.branches = Branches::serial; },
      [](ModelSpec& s) { s.branches = Branches::parallel; },
      [](ModelSpec& s) { s.branches = Branches::one_norm; },
      [](ModelSpec& s) { s.attention.bias = !s.attention.bias; },
      [](ModelSpec& s) { s.attention.out_bias = !s.attention.out_bias; },
      [](ModelSpec& s) { s.feed_forward_bias = !s.feed_forward_bias; },
      [](ModelSpec& s) { s.unembedding_bias = !s.unembedding_bias; },
      [](ModelSpec& s) { s.tied = !s.tied; },
      [](ModelSpec& s) { s.gated = !s.gated; },
      [](ModelSpec& s) { s.hidden = 7; },
      [](ModelSpec& s) { s.activation = Activation::relu; },
      [](ModelSpec& s) { s.activation = Activation::tanh; },
      [](ModelSpec& s) { s.norm_epsilon = 1e-3F; },
      [](ModelSpec& s) { s.attention.kv_heads = 1; },
      [](ModelSpec& s) { s.attention.d_qk = 6; },
      [](ModelSpec& s) { s.attention.d_vo = 6; },
      [](ModelSpec& s) { s.attention.scale = 0.5F; },
      [](ModelSpec& s) { s.attention.scaled = !s.attention.scaled; },
      [](ModelSpec& s) { s.attention.scaled_by_layer = true; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::heads; },
      [](ModelSpec& s) { s.attention.query_key_norm = QueryKeyNorm::whole; },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3}}; },
      [](ModelSpec& s) { s.attention.patterns = {{.window = 3, .dilation = 2}}; },
      [](ModelSpec& s) {
        s.attention.patterns = {{.stride = 3}, {.block = 4, .neighbours = 1, .ends = true, .random = 2}};
      },
      [](ModelSpec& s) {
        s.attention.patterns = {{.window = 3}, {}};
      },
      [](ModelSpec& s) { s.attention.patterns = {}; },
      [](ModelSpec& s) { s.attention.dropout = 0.125F; },
      [](ModelSpec& s) { s.residual_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_dropout = 0.125F; },
      [](ModelSpec& s) { s.embedding_scaled = !s.embedding_scaled; },
      [](ModelSpec& s) { s.embedding_norm = !s.embedding_norm; },
      [](ModelSpec& s) { s.embedding_multiplier = 2; },
      [](ModelSpec& s) { s.residual_multiplier = 0.5F; },
      [](ModelSpec& s) { s.logit_multiplier = 2; },
      [](ModelSpec& s) { s.embedding_width = 6; },
      [](ModelSpec& s) { s.layer_groups = 1; },
      [](ModelSpec& s) { s.segments = 2; },
      [](ModelSpec& s) {
        s.positions = Positions::alibi;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::learned;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::toeplitz;
        s.relative_distance = 3;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) {
        s.positions = Positions::rotary;
        s.attention.rotary.width = 2;
      },
      [](ModelSpec& s) { s.attention.rotary.base = 5000; },
      [](ModelSpec& s) { s.attention.rotary.layout = RotaryLayout::interleaved; },
      [](ModelSpec& s) {
        s.attention.rotary.scaling = RotaryScaling::linear;
        s.attention.rotary.factor = 3;
      },
      [](ModelSpec& s) { s.attention.cap = 5; },
      [](ModelSpec& s) { s.attention.sinks = true; },
      [](ModelSpec& s) { s.logit_cap = 5; },
      [](ModelSpec& s) { s.hidden_layers = 2; },
      [](ModelSpec& s) { s.activation = Activation::gelu_quick; },
      [](ModelSpec& s) { s.activation = Activation::relu_squared; },
      [](ModelSpec& s) { s.experts = {.count = 4, .chosen = 3, .hidden = 6}; },
      [](ModelSpec& s) { s.experts.chosen = 1; },
      [](ModelSpec& s) { s.experts.first = 1; },
      [](ModelSpec& s) { s.experts.every = 2; },
      [](ModelSpec& s) { s.experts.renormalized = !s.experts.renormalized; },
      [](ModelSpec& s) { s.experts.scale = 3; },
      [](ModelSpec& s) { s.experts.score = RouterScore::sigmoid; },
      [](ModelSpec& s) { s.experts.choice_bias = !s.experts.choice_bias; },
      [](ModelSpec& s) { s.experts.groups = s.experts.count; },
      [](ModelSpec& s) { s.experts.shared_hidden = 5; },
      [](ModelSpec& s) { s.experts.capacity = 7; },
      [](ModelSpec& s) { s.attention.query_latent = 5; },
      [](ModelSpec& s) {
        s.positions = Positions::sinusoidal_closed;
        s.attention.rotary = {};
      },
      [](ModelSpec& s) { s.order = Order::prefix; },
      [](ModelSpec& s) {
        s.output = Output::token_classes;
        s.labels = {"a", "b"};
        s.tied = true;
      },
  };
  int tried = 0;
  for (const FamilyCase& c : kFamilies)
    for (const Change& change : changes) {
      ModelSpec spec = llama();
      c.change(spec);
      change(spec);
      try {
        check_spec(spec);
      } catch (const Error&) {
        continue;
      }
      ++tried;
      SCOPED_TRACE(fmt::format("{}, change {}, saved as {}", c.model_type, &change - changes,
                               family_for(spec).model_type));
      const ScratchDir dir;
      const auto model = drawn(spec);
      save_model(dir.path(), *model);
      const auto loaded = load_model(dir.path(), DType::f32);
      ModelSpec read = loaded->spec();
      read.family = spec.family;
      if (spec.positions != Positions::rotary) spec.attention.rotary = read.attention.rotary;
      EXPECT_EQ(read, spec);
      expect_same_weights(*model, *loaded);
    }
  EXPECT_GT(tried, 800);
}

// Versions 1, 2 and 4 of the format lack what came after them.
TEST(ModelDir, OlderVersionsAreRead) {
  const auto older = [](const ScratchDir& dir, int version, std::initializer_list<const char*> lacks) {
    Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
    config["qkv"]["version"] = version;
    for (const char* key : lacks) EXPECT_EQ(config["qkv"].erase(key), 1u) << key;
    dir.write("config.json", config.dump());
  };
  ModelSpec encoder = bert_spec(13, 8, 12, 2, 3);
  encoder.norm_placement = NormPlacement::pre;  // which no other family has
  const ScratchDir five, four, two, one;
  save_model(four.path(), *drawn(encoder));
  older(four, 4, {"source_vocab_size",   "embedding_width",  "embedding_projected_last",
                  "layer_groups",        "branches",         "embedding_multiplier",
                  "residual_multiplier", "logit_multiplier", "attention_out_bias",
                  "attention_scale",     "query_key_norm",   "patterns",
                  "rotary_width",        "rotary_layout",    "rotary_base",
                  "rotary_scaling",      "rotary_factor",    "rotary_original_context",
                  "rotary_low",          "rotary_high",      "rotary_magnitude"});
  EXPECT_EQ(load_spec(four.path()), encoder);
  ModelSpec windows = native();
  windows.attention.patterns = {{.window = 3}, {}};
  save_model(five.path(), *drawn(windows));
  older(five, 5, {"patterns", "experts", "expert_hidden", "kv_latent", "attention_cap", "logit_cap"});
  Json config = parse_json(read_file(five.path() + "/config.json"), "config.json");
  config["qkv"]["windows"] = {3, 0};
  five.write("config.json", config.dump());
  EXPECT_EQ(load_spec(five.path()), windows);
  save_model(two.path(), *drawn(encoder));
  older(two, 2, {"output", "labels", "pooling", "pooler", "head_dropout"});
  EXPECT_EQ(load_spec(two.path()), encoder);
  expect_same_weights(*drawn(encoder), *load_model(two.path(), DType::f32));
  save_model(one.path(), *drawn(native()));
  older(one, 1,
        {"output", "labels", "pooling", "pooler", "head_dropout", "architecture", "encoder_layers",
         "norm_placement", "positions", "embedding_scaled", "embedding_norm", "segments", "head_width",
         "unembedding_bias"});
  EXPECT_EQ(load_spec(one.path()), native());
  expect_same_weights(*drawn(native()), *load_model(one.path(), DType::f32));
}

TEST(ModelDir, DamagedHeadsAreRefused) {
  const ScratchDir dir;
  save_model(dir.path(), *drawn(classifier()));
  const Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
  const auto refuse = [&](const char* key, const Json& value, std::initializer_list<std::string> parts) {
    Json changed = config;
    if (value.is_null())
      changed["qkv"].erase(key);
    else
      changed["qkv"][key] = value;
    dir.write("config.json", changed.dump());
    expect_error([&] { load_model(dir.path(), DType::f32); }, {"config.json"});
    expect_error([&] { load_model(dir.path(), DType::f32); }, parts);
  };
  refuse("output", "classes", {"output", "'classes'", "sequence_classes"});
  refuse("labels", Json::array(), {"labels"});
  refuse("labels", {"a", 3, "c"}, {"labels", "a string"});
  refuse("labels", "abc", {"labels"});
  refuse("labels", nullptr, {"labels", "missing"});
  refuse("pooling", "max", {"pooling", "'max'"});
  refuse("pooler", 1, {"pooler", "true or false"});
  refuse("head_dropout", 1.5, {"head dropout"});
  // As many labels as rows of the classifier.
  Json changed = config;
  changed["qkv"]["labels"] = {"a", "b"};
  dir.write("config.json", changed.dump());
  expect_error([&] { load_model(dir.path(), DType::f32); }, {"model.safetensors", "classifier"});
}

// What real GPT-2 files hold besides: masks, a tied unembedding stored twice; names without the prefix.
TEST(ModelDir, Gpt2FilesAsTheyAreFound) {
  const ScratchDir dir;
  const auto model = drawn(gpt2());
  save_model(dir.path(), *model);
  std::vector<std::pair<std::string, Tensor>> tensors;
  const auto file = read_safetensors(dir.path() + "/model.safetensors");
  for (const auto& [name, x] : file.tensors)
    tensors.emplace_back(name.substr(std::string("transformer.").size()), x.clone());
  tensors.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, 8, 8}, DType::f32));
  tensors.emplace_back("h.1.attn.masked_bias", Tensor::zeros({}, DType::f32));
  tensors.emplace_back("lm_head.weight", model->parameters().find("embedding.token")->value);
  write_safetensors(dir.path() + "/model.safetensors", tensors);
  expect_same_weights(*model, *load_model(dir.path(), DType::f32));
}

}  // namespace
}  // namespace qkv
