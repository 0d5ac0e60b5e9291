// Covers: qkv/base/json.cc, qkv/io/binding.cc, qkv/io/family/gpt_bigcode.cc, qkv/io/family/native.cc
// Covers: qkv/io/weights.cc, qkv/io/container/tensor_file.cc
#include "qkv/io/model_dir.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "qkv/autograd/graph.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/family/family.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::model_dir_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

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
  // During training in bf16, the file gets the f32 masters.
  const std::string before = read_file(dir.path() + "/model.safetensors");
  model->parameters().prepare_training(DType::bf16, 1);
  save_model(dir.path(), *model);
  EXPECT_EQ(read_file(dir.path() + "/model.safetensors"), before);
}

// A file whose numbers are rounded to a type of 16 bits.
void narrow_file(const std::string& path, DType type) {
  const TensorFile file = read_safetensors(path);
  std::vector<std::pair<std::string, Tensor>> out;
  for (const auto& [name, x] : file.tensors) {
    if (type == DType::bf16 || x.shape().rank() < 2) {
      out.emplace_back(name, x.shape().rank() < 2 ? x.clone() : convert(x, type));
      continue;
    }
    Tensor half = Tensor::empty(x.shape(), DType::f16);
    const auto from = x.values<float>();
    const auto to = half.mutable_values<Float16>();
    for (int64_t i = 0; i < x.count(); ++i)  // a multiple of a power of two is exact
      to[i].bits = f16_from_float(std::round(from[i] * 1024) / 1024).value();
    out.emplace_back(name, half);
  }
  write_safetensors(path, out, file.metadata);
}

TEST(ModelDir, WeightsIn16BitsStayAsTheyAre) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const ScratchDir dir;
    save_model(dir.path(), *drawn(llama()));
    narrow_file(dir.path() + "/model.safetensors", type);
    auto model = load_model(dir.path(), DType::f32), wide = load_model(dir.path(), DType::f32);
    int narrow = 0;
    for (Parameter& p : wide->parameters().all()) {
      if (!p.packed.defined()) continue;
      EXPECT_EQ(p.packed.type(), weight_type(type)) << p.name;
      p.value = dequantized(p.packed, DType::f32);
      p.packed = {};
      ++narrow;
    }
    EXPECT_GE(narrow, 5);
    // The same sums in the same order.
    const NoGrad guard;
    const std::vector<int32_t> ids = {1, 5, 9, 2, 11, 3};
    const ModelInput input{ids, Layout::of({6})};
    const Tensor want = wide->logits(wide->hidden(input, {})), got = model->logits(model->hidden(input, {}));
    for (int64_t i = 0; i < want.count(); ++i)
      ASSERT_EQ(want.values<float>()[i], got.values<float>()[i]) << i;
    // Saved as it was, and trained in f32.
    std::filesystem::create_directories(dir.path() + "/again");
    save_model(dir.path() + "/again", *model);
    for (const auto& [name, x] : read_safetensors(dir.path() + "/again/model.safetensors").tensors)
      EXPECT_EQ(x.dtype(), x.shape().rank() < 2 ? DType::f32 : type) << name;
    model->parameters().prepare_training(DType::f32, 1);
    for (const Parameter& p : model->parameters().all()) EXPECT_EQ(p.value.dtype(), DType::f32) << p.name;
  }
}

// Memory of this process in mappings of a file.
int64_t resident_bytes_of(const std::string& file) {
  std::istringstream lines(read_file("/proc/self/smaps"));
  int64_t kilobytes = 0;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find('-') < line.find(' '))
      inside = line.ends_with(file);  // the head of a mapping: begin-end ...
    if (inside && line.starts_with("Rss:")) kilobytes += std::stoll(line.substr(4));
  }
  return kilobytes * 1024;
}

// Weights copied for conversion or joining do not stay in the mapped file, too.
TEST(ModelDir, WhatIsCopiedOfAFileTakesNoMemoryOfIt) {
  const ScratchDir dir;
  ModelSpec spec = gpt2_spec(4000, 16, 256, 4, 4);
  save_model(dir.path(), *drawn(spec));
  const std::string file = dir.path() + "/model.safetensors";
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(file));
  const auto model = load_model(dir.path(), DType::bf16);
  EXPECT_LT(resident_bytes_of(file), bytes / 5);
  EXPECT_GT(model->parameters().count(), 4'000'000);
  const auto as_it_lies = load_model(dir.path(), DType::f32);
  double sum = 0;
  for (const Parameter& p : as_it_lies->parameters().all()) sum += p.value.values<float>().back();
  EXPECT_NE(sum, 0);
  expect_same_weights(*as_it_lies, *load_model(dir.path(), DType::f32));
}

// The pages of copied tensors are released. A tensor that is not aligned in the file does not use the
// file's pages.
TEST(ModelDir, UnalignedTensorsStayAsTheyAre) {
  ModelSpec spec = gpt2();
  spec.vocab_size = 2000;  // more than a page
  const std::vector<WeightName> names = weights_of(family_for(spec), spec);
  const auto model = drawn(spec);
  std::vector<std::pair<std::string, Tensor>> tensors = weights_to_write(*model, names);
  for (auto& [name, tensor] : tensors) tensor = convert(tensor, DType::bf16);
  const ScratchDir dir;
  const std::string path = dir.path() + "/model.safetensors", config = "config.json";
  write_safetensors(path, tensors);
  std::string contents = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, contents.data(), 8);
  contents.insert(8 + length, " ");  // one more byte of header
  ++length;
  std::memcpy(contents.data(), &length, 8);
  const TensorFile file = read_safetensors(dir.write("unaligned.safetensors", contents));
  Transformer first(spec), second(spec);
  bind_weights(first, names, {path, file, config, ""}, DType::f32);
  bind_weights(second, names, {path, file, config, ""}, DType::f32);
  expect_same_weights(first, second);
}

TEST(ModelDir, TypesOfAFileAreKept) {
  for (const DType type : {DType::bf16, DType::f16}) {
    const ScratchDir dir;
    for (const char* name : {"/again", "/changed"}) std::filesystem::create_directories(dir.path() + name);
    save_model(dir.path(), *drawn(gpt2()));
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& [name, x] : read_safetensors(dir.path() + "/model.safetensors").tensors) {
      Tensor small = Tensor::empty(x.shape(), DType::f32);
      for (int64_t i = 0; i < x.count(); ++i)
        small.mutable_data<float>()[i] = std::round(x.data<float>()[i] * 64) / 64;
      tensors.emplace_back(name, name.ends_with("bias") ? small : as_stored(small, type));
    }
    write_safetensors(dir.path() + "/model.safetensors", tensors, {{"format", "pt"}});
    for (const DType compute : {DType::f32, DType::bf16}) {
      const auto model = load_model(dir.path(), compute);
      save_model(dir.path() + "/again", *model);
      const TensorFile before = read_safetensors(dir.path() + "/model.safetensors"),
                       after = read_safetensors(dir.path() + "/again/model.safetensors");
      for (const auto& [name, x] : before.tensors) {
        const Tensor& y = after.tensors.at(name);
        EXPECT_EQ(y.dtype(), x.dtype()) << name;
        EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0) << name;
      }
      model->parameters().find("decoder.norm.gamma")->value.mutable_data<float>()[1] = 0.1F;
      save_model(dir.path() + "/changed", *model);
      EXPECT_EQ(read_safetensors(dir.path() + "/changed/model.safetensors")
                    .tensors.at("transformer.ln_f.weight")
                    .dtype(),
                DType::f32);
    }
  }
}

TEST(ModelDir, SpecialIdsAreKept) {
  const ScratchDir dir;
  save_model(dir.path(), *drawn(gpt2()), {5, -1, {6, 7}});
  const SpecialIds ids = load_special_ids(dir.path());
  EXPECT_EQ(ids.bos, 5);
  EXPECT_EQ(ids.eos, (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(ids.pad, -1);
}

// In RoBERTa's config.json the padding id decides where positions begin. Another padding id of the
// tokenizer does not move them.
TEST(ModelDir, PaddingIdsDoNotMovePositions) {
  ModelSpec roberta = bert_spec(13, 8, 12, 2, 3), xglm = gpt2();
  roberta.family = "roberta";
  xglm.embedding_scaled = true;
  xglm.positions = Positions::sinusoidal_closed;
  ASSERT_EQ(family_for(xglm).model_type, "xglm");
  for (const ModelSpec& spec : {roberta, xglm})
    for (const int64_t pad : {0, 5}) {
      const ScratchDir dir;
      save_model(dir.path(), *drawn(spec), {.pad = pad});
      EXPECT_EQ(load_spec(dir.path()), spec) << pad;
      EXPECT_EQ(load_special_ids(dir.path()).pad, pad);
    }
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
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {"pytorch_model.bin", "not one of plain data"});
  dir_.write("config.json", "{\"model_type\": \"gpt2\",");
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {config_path(), "JSON"});
  std::filesystem::remove(config_path());
  expect_error([&] { load_model(dir_.path(), DType::f32); }, {"config.json", "missing"});
  expect_error([&] { load_model(dir_.path() + "/none", DType::f32); },
               {dir_.path() + "/none", "no such directory"});
}

TEST_P(BadModelDir, ModelType) {
  Json c = config_;
  c["model_type"] = "hyena";
  refuse_config(c, {"model_type", "\"hyena\"", "gpt2", "qkv"});
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
  refuse_field(activation, "mish", {activation, "mish"});
  refuse_field(activation, 3, {activation, "a string"});
  refuse_field(epsilon, "small", {epsilon, "a number"});
  refuse_field(epsilon, -1, {"norm_epsilon"});
  refuse_field(tied, 1, {tied, "true or false"});
  refuse_field(n ? "residual_dropout" : "resid_pdrop", 1.5, {"dropout must be"});
  if (n) {
    refuse_field("version", 1000, {"version", "1000"});
    refuse_field("architecture", "diffusion", {"architecture", "diffusion", "encoder_decoder"});
    refuse_field("encoder_layers", 2, {"encoder_layers", "one stack"});
    refuse_field("positions", "spiral", {"positions", "spiral"});
    refuse_field("norm_placement", "both", {"norm_placement", "both"});
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

// model.safetensors split into two files, with their index.
class ShardedDir : public ::testing::Test {
 protected:
  ShardedDir() {
    save_model(dir_.path(), *drawn(gpt2()));
    const auto file = read_safetensors(dir_.path() + "/model.safetensors");
    std::vector<std::pair<std::string, Tensor>> parts[2];
    for (const auto& [name, x] : file.tensors) {
      const size_t part = index_["weight_map"].size() % 2;
      parts[part].emplace_back(name, x.clone());
      index_["weight_map"][name] = kNames[part];
    }
    index_["metadata"]["total_size"] = 1;
    for (size_t i = 0; i < 2; ++i) write_safetensors(dir_.path() + "/" + kNames[i], parts[i]);
    std::filesystem::remove(dir_.path() + "/model.safetensors");
    write_index();
  }
  void write_index() { dir_.write("model.safetensors.index.json", index_.dump()); }
  void refuse(std::initializer_list<std::string> parts) {
    write_index();
    expect_error([&] { load_model(dir_.path(), DType::f32); }, {"model.safetensors.index.json"});
    expect_error([&] { load_model(dir_.path(), DType::f32); }, parts);
  }

  static constexpr const char* kNames[] = {"model-00001-of-00002.safetensors",
                                           "model-00002-of-00002.safetensors"};
  ScratchDir dir_;
  Json index_;
};

TEST_F(ShardedDir, IsTheSameModel) {
  expect_same_weights(*drawn(gpt2()), *load_model(dir_.path(), DType::f32));
  // A single file next to them takes precedence.
  save_model(dir_.path(), *drawn(gpt2(), 9));
  expect_same_weights(*drawn(gpt2(), 9), *load_model(dir_.path(), DType::f32));
}

TEST_F(ShardedDir, WhatDoesNotFitIsRefused) {
  const Json good = index_;
  const std::string first = index_["weight_map"].begin().key();
  index_["weight_map"].erase(first);
  refuse({"'" + first + "'", "does not know"});
  index_ = good;
  index_["weight_map"][first] = kNames[1];
  refuse({"'" + first + "'", "lacks it"});
  index_["weight_map"][first] = "model-00003-of-00002.safetensors";
  refuse({"'" + first + "'", "is missing"});
  for (const char* name : {"../model.safetensors", "/etc/passwd", "model.txt", ""}) {
    index_["weight_map"][first] = name;
    refuse({"weight_map", "beside the index"});
  }
  index_["weight_map"][first] = 3;
  refuse({"weight_map", "a string"});
  index_ = {{"weight_map", Json::object()}};
  refuse({"no tensor"});
  index_ = Json::object();
  refuse({"weight_map"});
}

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

// Unused tensors of a file are kept unchanged; a second copy of a tied weight is not.
TEST(ModelDir, WhatIsNotUsedIsKept) {
  const ScratchDir dir;
  ModelSpec spec = bert_spec(13, 8, 12, 2, 3);
  spec.family = "roberta";
  const auto model = drawn(spec);
  save_model(dir.path(), *model);
  const std::string path = dir.path() + "/model.safetensors";
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (auto& [name, x] : read_safetensors(path).tensors) {
    Tensor copy = x.clone();
    if (name.ends_with("position_embeddings.weight"))  // rows that no token uses
      for (int64_t i = 0; i < 2 * copy.width(); ++i) copy.mutable_data<float>()[i] = static_cast<float>(i);
    tensors.emplace_back(name, copy);
  }
  const auto count = static_cast<int64_t>(tensors.size());
  tensors.emplace_back("roberta.pooler.dense.weight", Tensor::of({2}, std::vector<float>{1, 2}));
  tensors.emplace_back("lm_head.decoder.weight", Tensor::of({2}, std::vector<float>{1, 2}));
  write_safetensors(path, tensors);
  const auto before = read_safetensors(path);
  const auto loaded = load_model(dir.path(), DType::f32);
  const std::string out = dir.path() + "/out";
  std::filesystem::create_directories(out);
  save_model(out, *loaded);
  const auto after = read_safetensors(out + "/model.safetensors");
  EXPECT_EQ(std::ssize(after.tensors), count + 1);
  for (const auto& [name, x] : after.tensors) {
    const Tensor& y = before.tensors.at(name);
    ASSERT_EQ(x.shape(), y.shape()) << name;
    EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0) << name;
  }
}

// Published files name the tensors of multi-token prediction so; some configurations tell of them although
// the files do not have them.
TEST(ModelDir, ModulesAsInPublishedFiles) {
  ModelSpec spec = llama();
  spec.experts = {.count = 4,
                  .chosen = 2,
                  .hidden = 5,
                  .first = 1,
                  .score = RouterScore::sigmoid,
                  .choice_bias = true,
                  .choice_rate = 0,
                  .shared_hidden = 5,
                  .balance = 0};
  spec.attention.rotary.width = 2;
  spec.family = "glm4_moe";
  spec.mtp = {1, MtpForm::joined};
  const ScratchDir dir;
  const auto model = drawn(spec);
  save_model(dir.path(), *model);
  const std::string path = dir.path() + "/model.safetensors";
  const TensorFile file = read_safetensors(path);
  const auto tensor = [&](const std::string& name) { return file.tensors.at("model.layers.2." + name); };
  EXPECT_EQ(tensor("eh_proj.weight").shape(), (Shape{12, 24}));
  for (const char* name :
       {"enorm.weight", "hnorm.weight", "shared_head.norm.weight", "input_layernorm.weight"})
    EXPECT_EQ(tensor(name).shape(), Shape{12}) << name;
  EXPECT_EQ(tensor("mlp.experts.3.down_proj.weight").shape(), (Shape{12, 5}));
  for (const auto& [copy, of] : {std::pair("embed_tokens.weight", "model.embed_tokens.weight"),
                                 {"shared_head.head.weight", "lm_head.weight"}})
    EXPECT_EQ(std::memcmp(tensor(copy).raw(), file.tensors.at(of).raw(), tensor(copy).bytes()), 0) << copy;
  const Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
  EXPECT_EQ(config["num_nextn_predict_layers"], 1);

  std::vector<std::pair<std::string, Tensor>> without;
  for (const auto& [name, x] : file.tensors)
    if (!name.starts_with("model.layers.2.")) without.emplace_back(name, x.clone());
  write_safetensors(path, without);
  const auto loaded = load_model(dir.path(), DType::f32);
  EXPECT_FALSE(loaded->spec().mtp.any());
  EXPECT_EQ(loaded->parameters().find("decoder.block.2.attention.qkv.weight"), nullptr);
  const std::string out = dir.path() + "/out";
  std::filesystem::create_directories(out);
  save_model(out, *loaded);
  EXPECT_EQ(parse_json(read_file(out + "/config.json"), "config.json")["num_nextn_predict_layers"], 0);
}

// A family that cannot name an activation must not be chosen, or it would save another one.
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
  s.norm_placement = NormPlacement::pre;  // no other family has this
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

// Versions 1, 2, 4, 5 and 12 of the format lack what came after them.
TEST(ModelDir, OlderVersionsAreRead) {
  const auto older = [](const ScratchDir& dir, int version, std::initializer_list<const char*> lacks) {
    Json config = parse_json(read_file(dir.path() + "/config.json"), "config.json");
    config["qkv"]["version"] = version;
    for (const char* key : lacks) EXPECT_EQ(config["qkv"].erase(key), 1u) << key;
    dir.write("config.json", config.dump());
  };
  ModelSpec encoder = bert_spec(13, 8, 12, 2, 3);
  encoder.norm_placement = NormPlacement::pre;  // no other family has this
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
  const ScratchDir twelve;
  save_model(twelve.path(), *drawn(native()));
  older(twelve, 12, {"final_norm"});
  EXPECT_EQ(load_spec(twelve.path()), native());
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
  refuse("output", "classes", {"output", "classes", "sequence_classes"});
  refuse("labels", Json::array(), {"labels"});
  refuse("labels", {"a", 3, "c"}, {"labels", "a string"});
  refuse("labels", "abc", {"labels"});
  refuse("labels", nullptr, {"labels", "missing"});
  refuse("pooling", "max", {"pooling", "max"});
  refuse("pooler", 1, {"pooler", "true or false"});
  refuse("head_dropout", 1.5, {"head_dropout"});
  // The classifier needs one row per label.
  Json changed = config;
  changed["qkv"]["labels"] = {"a", "b"};
  dir.write("config.json", changed.dump());
  expect_error([&] { load_model(dir.path(), DType::f32); }, {"model.safetensors", "classifier"});
}

// Real GPT-2 files also hold masks and a second copy of the tied unembedding; names lack the prefix.
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
}  // namespace qkv::model_dir_test
