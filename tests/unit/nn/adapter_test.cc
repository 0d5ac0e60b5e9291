// Low-rank changes beside weights that stay: what they compute, learn, and are saved as.
// Covers: qkv/io/adapter_dir.cc
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/optim/training_state.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::adapter_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

// Queries, keys and values of a head lie together in its files.
ModelSpec neox() {
  ModelSpec s = gpt2_spec(13, 16, 12, 2, 3);
  s.family = "gpt_neox";
  s.tied = false;
  s.branches = Branches::parallel;
  s.activation = Activation::gelu;
  s.positions = Positions::rotary;
  s.attention.rotary.width = 2;
  return s;
}
// Layers share their weights.
ModelSpec albert() {
  ModelSpec s = bert_spec(13, 16, 12, 2, 3);
  s.embedding_width = s.head_width = 5;
  s.embedding_projected_last = true;
  s.layer_groups = 1;
  return s;
}

ModelSpec with_lora(ModelSpec spec, const std::string& base, std::vector<std::string> targets,
                    int64_t rank = 2) {
  spec.lora = {.rank = rank, .alpha = 3, .targets = std::move(targets), .base = base};
  spec.lora.adapters = adapters_of(spec);
  return spec;
}

// The base's values, and adapters that change something.
std::unique_ptr<Transformer> adapted(const ModelSpec& spec, const Transformer& base, uint64_t seed = 11) {
  auto model = std::make_unique<Transformer>(spec);
  for (Parameter& p : model->parameters().all()) {
    const auto& all = base.parameters().all();
    const auto from = std::ranges::find(all, p.name, [](const Parameter& q) { return q.name; });
    if (from != all.end()) {
      p.value = from->value;
      p.frozen = true;
    } else {
      p.initializer = {Initializer::Kind::normal, 0.3F};
    }
  }
  model->parameters().draw(seed, DType::f32);
  return model;
}

Batch batch() {
  TokenStream stream;
  stream.append({1, 5, 3, 7, 2, 9, 4, 4, 11, 0, 6, 8});
  return cut_windows(stream, {0}, stream.size());
}

Tensor hidden(const Transformer& model) {
  const NoGrad guard;
  const Batch b = batch();
  return model.hidden(b, {});
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], tolerance) << i;
}

TEST(Adapter, WhatTargetsMean) {
  const auto names = [](const ModelSpec& spec, std::vector<std::string> targets) {
    std::set<std::string> out;
    for (const AdapterSpec& a : with_lora(spec, "base", std::move(targets)).lora.adapters)
      out.insert(fmt::format("{} {}+{}", a.parameter, a.first_row, a.rows));
    return out;
  };
  // Rows of one fused product: 12 of queries, 4 of keys, 4 of values.
  EXPECT_EQ(names(llama(16), {"q_proj", "model.layers.1.self_attn.v_proj"}),
            (std::set<std::string>{"decoder.block.0.attention.qkv.weight 0+12",
                                   "decoder.block.1.attention.qkv.weight 0+12",
                                   "decoder.block.1.attention.qkv.weight 16+4"}));
  EXPECT_EQ(names(llama(16), {"all-linear"}).size(), 14U);  // 7 of each layer
  EXPECT_EQ(names(gpt2_spec(13, 16, 12, 1, 3), {"c_attn"}),
            (std::set<std::string>{"decoder.block.0.attention.qkv.weight 0+36"}));
  expect_error([&] { names(llama(16), {"c_attn"}); }, {"'c_attn'", "no product", "q_proj"});
  expect_error([&] { names(llama(16), {"embed_tokens"}); }, {"'embed_tokens'"});
}

TEST(Adapter, AtFirstNothingChanges) {
  for (const ModelSpec& spec : {llama(16), neox(), gpt2_spec(13, 16, 12, 2, 3), albert()}) {
    const auto base = drawn(spec);
    const auto model = adapted(with_lora(spec, "base", {"all-linear"}), *base);
    for (Parameter& p : model->parameters().all())
      if (p.name.ends_with(".b")) std::fill_n(p.value.mutable_data<float>(), p.value.count(), 0.0F);
    expect_near(hidden(*model), hidden(*base), 0);
  }
}

TEST(Adapter, MergedItIsTheSame) {
  for (const ModelSpec& spec : {llama(16), neox(), gpt2_spec(13, 16, 12, 2, 3), albert()}) {
    const auto base = drawn(spec);
    const auto model = adapted(with_lora(spec, "base", {"all-linear"}), *base);
    const auto plain = merged(*model);
    EXPECT_FALSE(plain->spec().lora.any());
    const Tensor want = hidden(*model), before = hidden(*base);
    expect_near(hidden(*plain), want, 2e-4);
    double most = 0;
    for (int64_t i = 0; i < want.count(); ++i)
      most = std::max(most, std::abs(double{want.data<float>()[i]} - double{before.data<float>()[i]}));
    EXPECT_GT(most, 0.01);
  }
}

// (L(w + h) - L(w - h)) / 2h of entries of A and B.
TEST(Adapter, GradientsAreTheDifference) {
  for (const ModelSpec& spec : {llama(16), albert()}) {
    const auto base = drawn(spec);
    const auto model = adapted(with_lora(spec, "base", {"all-linear"}), *base);
    model->parameters().prepare_training(DType::f32, 1);
    const Batch b = batch();
    const auto loss = [&] { return model->loss(b, b.targets, {}, 0.1F); };
    model->parameters().reset_gradients();
    backward(loss().loss);
    model->parameters().complete_gradients();
    int64_t learnt = 0;
    for (Parameter& p : model->parameters().all()) {
      if (!p.leaf) continue;
      ++learnt;
      ASSERT_TRUE(Adapters::is_adapter(p.name)) << p.name;
      for (const int64_t i : {int64_t{0}, p.shape.count() / 2, p.shape.count() - 1}) {
        float& w = p.master.mutable_data<float>()[i];
        const float was = w;
        const NoGrad guard;
        w = was + 0.01F;
        const double up = loss().total;
        w = was - 0.01F;
        const double down = loss().total;
        w = was;
        EXPECT_NEAR(p.leaf->grad.data<float>()[i], 0.1 * (up - down) / 0.02, 2e-3) << p.name << " " << i;
      }
    }
    EXPECT_EQ(learnt, 2 * std::ssize(model->spec().lora.adapters));
  }
}

TEST(Adapter, OnlyTheNamedWeightsMove) {
  const auto base = drawn(llama(16));
  for (const DType compute : {DType::f32, DType::bf16}) {
    auto model = adapted(with_lora(llama(16), "base", {"all-linear"}), *base);
    StepConfig config;
    config.schedule = {"constant", 0.005, 0.005, 0};
    TrainingState training(std::move(model), config, {.compute = compute, .seed = 1});
    const Parameters& parameters = training.model().parameters();
    std::vector<Tensor> before;
    int64_t count = 0;
    for (const Parameter& p : parameters.all()) {
      before.push_back(p.master.clone());
      if (Adapters::is_adapter(p.name)) count += (p.shape.count() + 15) / 16 * 16;
    }
    EXPECT_EQ(training.model().parameters().arena(ParameterKind::matrix).master.count(), count);
    double first = 0, last = 0;
    for (int64_t step = 1; step <= 60; ++step) {
      last = training.step({batch()}, step, 60).loss;
      if (step == 1) first = last;
    }
    EXPECT_LT(last, first - 0.1);  // small weights that stay leave no more
    for (size_t i = 0; i < before.size(); ++i) {
      const Parameter& p = parameters.all()[i];
      const bool same = std::memcmp(before[i].raw(), p.master.raw(), before[i].bytes()) == 0;
      EXPECT_EQ(same, !Adapters::is_adapter(p.name)) << p.name;
    }
  }
}

TEST(Adapter, DropoutIsOfTheChangeAlone) {
  const auto base = drawn(llama(16));
  ModelSpec spec = with_lora(llama(16), "base", {"all-linear"});
  for (AdapterSpec& a : spec.lora.adapters) a.dropout = 0.5F;
  const auto model = adapted(spec, *base);
  const NoGrad guard;
  const Batch b = batch();
  Context context;
  const Tensor in_use = model->hidden(b, context);
  context.training = true;
  context.seed = 3;
  const Tensor learning = model->hidden(b, context);
  EXPECT_NE(std::memcmp(in_use.raw(), learning.raw(), in_use.bytes()), 0);
  for (Parameter& p : model->parameters().all())
    if (p.name.ends_with(".b")) std::fill_n(p.value.mutable_data<float>(), p.value.count(), 0.0F);
  expect_near(model->hidden(b, context), hidden(*base), 0);
}

TEST(AdapterDir, ComesBackAsPeftWritesIt) {
  for (const ModelSpec& spec : {llama(16), neox(), gpt2_spec(13, 16, 12, 2, 3), albert()}) {
    const ScratchDir dir;
    const std::string base_dir = std::filesystem::path(dir.path() + "/base").lexically_normal().string(),
                      own = dir.path() + "/adapter";
    std::filesystem::create_directories(base_dir);
    std::filesystem::create_directories(own);
    save_model(base_dir, *drawn(spec));
    const auto base = load_model(base_dir, DType::f32);
    const auto model = adapted(with_lora(spec, base_dir, {"all-linear"}), *base);
    save_model(own, *model);
    EXPECT_FALSE(file_exists(own + "/model.safetensors"));
    const auto loaded = load_model(own, DType::f32);
    EXPECT_EQ(loaded->spec().lora, model->spec().lora);
    expect_near(hidden(*loaded), hidden(*model), 0);
    // As PEFT leaves it: without config.json, the model beside it.
    std::filesystem::remove(own + "/config.json");
    Json config = parse_json(read_file(own + "/adapter_config.json"), "config");
    config["base_model_name_or_path"] = "../base";
    dir.write("adapter/adapter_config.json", config.dump());
    EXPECT_EQ(resolve_model_dir(own), own);
    expect_near(hidden(*load_model(own, DType::f32)), hidden(*model), 0);
    EXPECT_EQ(load_model(own, DType::bf16)->parameters().all().front().value.dtype(), DType::bf16);
  }
}

TEST(AdapterDir, NamesAndOrdersAreThoseOfTheFiles) {
  const ScratchDir dir;
  const auto tensors = [&](const ModelSpec& spec, const std::vector<std::string>& targets) {
    const auto base = drawn(spec);
    const auto model = adapted(with_lora(spec, "base", targets), *base);
    save_adapters(dir.path(), *model);
    return read_safetensors(dir.path() + "/adapter_model.safetensors").tensors;
  };
  const auto of_llama = tensors(llama(16), {"v_proj"});
  ASSERT_EQ(of_llama.size(), 4U);
  EXPECT_EQ(of_llama.at("base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight").shape(),
            (Shape{2, 12}));
  EXPECT_EQ(of_llama.at("base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight").shape(),
            (Shape{4, 2}));
  // Rows of B stand as the file's rows do: head by head its query, key and value.
  const auto base = drawn(neox());
  const auto model = adapted(with_lora(neox(), "base", {"query_key_value"}), *base);
  save_adapters(dir.path(), *model);
  const auto file = read_safetensors(dir.path() + "/adapter_model.safetensors").tensors;
  const Tensor& b = file.at("base_model.model.gpt_neox.layers.0.attention.query_key_value.lora_B.weight");
  const Tensor& ours = model->parameters().find("decoder.block.0.attention.qkv.lora.0.b")->value;
  ASSERT_EQ(b.shape(), (Shape{36, 2}));
  for (int64_t head = 0; head < 3; ++head)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(b.data<float>()[((head * 3 + part) * 4 + i) * 2],
                  ours.data<float>()[(part * 12 + head * 4 + i) * 2]);
}

// Ranks and alphas of some modules, and alpha over the root of the rank.
TEST(AdapterDir, PatternsOfRanks) {
  const ScratchDir dir;
  const std::string base_dir = std::filesystem::path(dir.path() + "/base").lexically_normal().string(),
                    own = dir.path() + "/adapter";
  std::filesystem::create_directories(base_dir);
  std::filesystem::create_directories(own);
  save_model(base_dir, *drawn(llama(16)));
  const auto base = load_model(base_dir, DType::f32);
  ModelSpec spec = llama(16);
  spec.lora = {.rank = 2, .alpha = 3, .targets = {"q_proj", "v_proj"}, .base = base_dir};
  spec.lora.ranks = {{"layers.1.self_attn.q_proj", 4}};
  spec.lora.alphas = {{"v_proj", 5}, {"layers.1.self_attn.v_proj", 7}};  // the first that fits
  spec.lora.rank_stabilized = true;
  spec.lora.adapters = adapters_of(spec);
  ASSERT_EQ(spec.lora.adapters.size(), 4U);
  const auto expect = [&](size_t i, int64_t rank, float scale) {
    EXPECT_EQ(spec.lora.adapters[i].rank, rank) << i;
    EXPECT_FLOAT_EQ(spec.lora.adapters[i].scale, scale) << i;
  };
  expect(0, 2, 3 / std::sqrt(2.0F));
  expect(1, 2, 5 / std::sqrt(2.0F));
  expect(2, 4, 3 / std::sqrt(4.0F));
  expect(3, 2, 5 / std::sqrt(2.0F));
  const auto model = adapted(spec, *base);
  save_model(own, *model);
  const auto loaded = load_model(own, DType::f32);
  EXPECT_EQ(loaded->spec().lora, spec.lora);
  expect_near(hidden(*loaded), hidden(*model), 0);
}

// As PEFT saves a classifier: the base is as it was before, and the head is in the adapter's file.
TEST(AdapterDir, HeadsOfAdaptersOnPlainModels) {
  const ScratchDir dir;
  const std::string base_dir = dir.path() + "/base", classifier_dir = dir.path() + "/classifier",
                    own = dir.path() + "/adapter";
  for (const std::string& folder : {base_dir, classifier_dir, own})
    std::filesystem::create_directories(folder);
  ModelSpec plain = bert_spec(13, 16, 12, 2, 3), classes = plain;
  classes.output = Output::sequence_classes;
  classes.labels = {"LABEL_0", "LABEL_1", "LABEL_2"};
  classes.pooler = true;
  classes.head_width = 0;
  classes.unembedding_bias = false;
  const auto whole = drawn(classes);
  save_model(classifier_dir, *whole);
  // The plain model has the classifier's body, and a pooler that it has no use for.
  const auto masked = drawn(plain);
  for (Parameter& p : masked->parameters().all())
    for (const Parameter& q : whole->parameters().all())
      if (p.name == q.name) p.value = q.value;
  save_model(base_dir, *masked);
  auto tensors = read_safetensors(base_dir + "/model.safetensors").tensors;
  const auto of_classifier = read_safetensors(classifier_dir + "/model.safetensors").tensors;
  std::vector<std::pair<std::string, Tensor>> more;
  for (auto& [name, x] : tensors) more.emplace_back(name, x.clone());
  for (const char* name : {"bert.pooler.dense.weight", "bert.pooler.dense.bias"})
    more.emplace_back(name, of_classifier.at(name).clone());
  write_safetensors(base_dir + "/model.safetensors", more);
  // Changes, and the head.
  std::vector<std::pair<std::string, Tensor>> adapter;
  for (const int layer : {0, 1}) {
    const std::string module =
        fmt::format("base_model.model.bert.encoder.layer.{}.attention.self.query", layer);
    adapter.emplace_back(module + ".lora_A.weight", Tensor::zeros({2, 12}, DType::f32));
    adapter.emplace_back(module + ".lora_B.weight", Tensor::zeros({12, 2}, DType::f32));
  }
  for (const char* name : {"classifier.weight", "classifier.bias"})
    adapter.emplace_back(std::string("base_model.model.") + name, of_classifier.at(name).clone());
  write_safetensors(own + "/adapter_model.safetensors", adapter);
  Json config = {{"peft_type", "LORA"},
                 {"task_type", "SEQ_CLS"},
                 {"r", 2},
                 {"lora_alpha", 4},
                 {"target_modules", {"query"}},
                 {"base_model_name_or_path", base_dir},
                 {"modules_to_save", {"classifier", "score"}}};
  dir.write("adapter/adapter_config.json", config.dump());
  const auto loaded = load_model(own, DType::f32);
  EXPECT_EQ(loaded->spec().labels, classes.labels);
  const auto scores = [](const Transformer& m) {
    const NoGrad guard;
    const ModelInput in{Indices({1, 5, 2}), Layout::of({3})};
    return m.classes(m.hidden(in, {}), in, {});
  };
  expect_near(scores(*loaded), scores(*whole), 0);
  config["task_type"] = "TOKEN_CLS";  // whose model has no pooler
  dir.write("adapter/adapter_config.json", config.dump());
  EXPECT_EQ(load_model(own, DType::f32)->spec().output, Output::token_classes);
}

TEST(AdapterDir, WhatDoesNotFitIsRefused) {
  const ScratchDir dir;
  const std::string base_dir = dir.path() + "/base", own = dir.path() + "/adapter";
  std::filesystem::create_directories(base_dir);
  std::filesystem::create_directories(own);
  save_model(base_dir, *drawn(llama(16)));
  const auto base = load_model(base_dir, DType::f32);
  save_model(own, *adapted(with_lora(llama(16), base_dir, {"q_proj"}), *base));
  const Json good = parse_json(read_file(own + "/adapter_config.json"), "config");
  const auto refuse = [&](const char* key, const Json& value, const std::string& says) {
    Json config = good;
    config[key] = value;
    dir.write("adapter/adapter_config.json", config.dump());
    expect_error([&] { load_model(own, DType::f32); }, {says});
  };
  refuse("peft_type", "IA3", "'IA3'");
  refuse("r", 0, "adapter_config.json: r");
  refuse("r", 3, "expected [3, 12], got [2, 12]");
  refuse("bias", "all", "bias");
  refuse("use_dora", true, "use_dora");
  refuse("rank_pattern", {{"q_proj", 4}}, "expected [4, 12], got [2, 12]");
  refuse("rank_pattern", {{"^model.*q_proj", 4}}, "'^model.*q_proj'");
  refuse("layers_to_transform", 1, "layers_to_transform");
  refuse("exclude_modules", {"v_proj"}, "exclude_modules");
  refuse("init_lora_weights", "pissa_niter_4", "pissa");
  refuse("init_lora_weights", "lora_ga", "lora_ga");
  refuse("some_new_thing", true, "some_new_thing");
  refuse("layers_to_transform", {0}, "layers_to_transform");
  refuse("target_modules", ".*q_proj", "target_modules");
  refuse("target_modules", {"x_proj"}, "'x_proj'");
  refuse("target_modules", {"q_proj", "v_proj"}, "v_proj.lora_A.weight' is missing");
  refuse("base_model_name_or_path", "/nowhere", "'/nowhere' is neither a directory nor a .gguf file");
  refuse("base_model_name_or_path", own, "an adapter itself");
  dir.write("adapter/adapter_config.json", good.dump());
  auto tensors = read_safetensors(own + "/adapter_model.safetensors").tensors;
  std::vector<std::pair<std::string, Tensor>> more;
  for (auto& [name, x] : tensors) more.emplace_back(name, x.clone());
  more.emplace_back("extra", Tensor::zeros({1}, DType::f32));
  write_safetensors(own + "/adapter_model.safetensors", more);
  expect_error([&] { load_model(own, DType::f32); }, {"'extra'", "no parameter"});
}

}  // namespace
}  // namespace qkv::adapter_test
