// Covers: qkv/convert/gguf_adapter.cc, qkv/io/gguf/adapter.cc
// Adapters as GGUF files. A GGUF file of the merged model is the judge of names and orders: each of its
// tensors is the base's and scale B A. bench/peers/libllama_logits.cc has libllama read them.
#include "qkv/convert/gguf_adapter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/convert/gguf_file.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/gguf/adapter.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/io/gguf_model_testing.h"
#include "tests/unit/io/model_dir_testing.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::testing::gguf_adapter_test {
namespace {

namespace fs = std::filesystem;

struct Folders {
  std::string base, own, back, base_file, merged_file, file;
  // `dir` is no other test's: a GGUF file stays mounted under its name.
  explicit Folders(const std::string& dir)
      : base(dir + "/base"),
        own(dir + "/own"),
        back(dir + "/back"),
        base_file(dir + "/base.gguf"),
        merged_file(dir + "/merged.gguf"),
        file(dir + "/adapter.gguf") {}
};

void write_model(const Folders& f, const ModelSpec& spec) {
  fs::create_directories(f.base);
  save_model(f.base, *drawn(spec));
}

// Writes an adapter of random numbers for the model in a directory.
void write_adapter(const Folders& f, const LoraSpec& lora, const std::string& base_dir) {
  ModelSpec spec = load_spec(base_dir);
  spec.lora = lora;
  spec.lora.base = base_dir;
  spec.lora.adapters = adapters_of(spec);
  const auto base = load_model(base_dir, DType::f32);
  Transformer model(spec);
  for (Parameter& p : model.parameters().all()) {
    const Parameter* from = base->parameters().find(p.name);
    p.frozen = from != nullptr;
    if (p.frozen)
      p.value = from->value;
    else
      p.initializer = {Initializer::Kind::normal, 0.3F};
  }
  model.parameters().draw(5, DType::f32);
  fs::create_directories(f.own);
  save_adapters(f.own, model);
}

// The largest difference of W + alpha / rank B A from the merged W, relative to the largest W.
double difference(const Weight& base, const Weight& merged, const Weight* a, const Weight* b, double alpha) {
  const std::vector<float> x = numbers_of(base), y = numbers_of(merged);
  EXPECT_EQ(base.shape(), merged.shape());
  double largest = 0, scale = 1e-6;
  const int64_t width = base.dim(-1), rank = a == nullptr ? 0 : a->dim(0);
  const std::vector<float> of_a = a == nullptr ? std::vector<float>() : numbers_of(*a),
                           of_b = b == nullptr ? std::vector<float>() : numbers_of(*b);
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    double sum = 0;
    for (int64_t k = 0; k < rank; ++k)
      sum += double{of_b[i / width * rank + k]} * double{of_a[k * width + i % width]};
    if (rank > 0) sum *= alpha / static_cast<double>(rank);
    largest = std::max(largest, std::abs(double{x[i]} + sum - double{y[i]}));
    scale = std::max(scale, std::abs(double{y[i]}));
  }
  return largest / scale;
}

void expect_adapter_in_gguf(const Folders& f) {
  save_gguf(f.base, f.base_file, {});
  const std::string whole = f.base + "-merged";
  fs::create_directories(whole);
  save_model(whole, *merged(*load_model(f.own, DType::f32)));
  save_gguf(whole, f.merged_file, {});
  save_gguf_adapter(f.own, f.file);
  EXPECT_TRUE(is_gguf_adapter_file(f.file));
  EXPECT_FALSE(is_gguf_adapter_file(f.base_file));
  const Gguf base = read_gguf(f.base_file), both = read_gguf(f.merged_file), adapter = read_gguf(f.file);
  EXPECT_EQ(adapter.string("general.architecture"), base.string("general.architecture"));
  size_t changed = 0;
  for (const auto& [name, w] : base.tensors) {
    const Weight *a = adapter.tensor(name + ".lora_a"), *b = adapter.tensor(name + ".lora_b"),
                 *sum = both.tensor(name);
    ASSERT_EQ(a == nullptr, b == nullptr) << name;
    ASSERT_NE(sum, nullptr) << name;
    changed += a == nullptr ? 0 : 2;
    EXPECT_LT(difference(w, *sum, a, b, adapter.number("adapter.lora.alpha")), 1e-6) << name;
  }
  EXPECT_EQ(changed, adapter.tensors.size());
  // Back beside the directory, and beside the GGUF file.
  for (const std::string& of : {f.base, f.base_file}) {
    fs::remove_all(f.back);
    save_adapter_of_gguf(f.file, of, f.back);
    const auto ours = read_safetensors(f.own + "/adapter_model.safetensors").tensors,
               theirs = read_safetensors(f.back + "/adapter_model.safetensors").tensors;
    const LoraSpec lora = read_adapter_config(f.own), again = read_adapter_config(f.back);
    EXPECT_EQ(again.alpha, lora.alpha);
    EXPECT_EQ(theirs.size(), ours.size());
    for (const auto& [name, x] : ours) {
      ASSERT_TRUE(theirs.contains(name)) << name;
      if (lora.rank_stabilized || !lora.alphas.empty()) continue;
      EXPECT_EQ(numbers_of(x), numbers_of(theirs.at(name))) << name;
    }
    const auto before = merged(*load_model(f.own, DType::f32)),
               after = merged(*load_model(f.back, DType::f32));
    for (const Parameter& p : before->parameters().all())
      EXPECT_LT(difference(p.value, after->parameters().find(p.name)->value, nullptr, nullptr, 1), 1e-5)
          << p.name;
  }
}

LoraSpec all_linear() {
  return {.rank = 2, .alpha = 3, .targets = {"all-linear"}};
}

TEST(GgufAdapter, ComesBackForSmallModels) {
  ModelSpec neox = gpt2_spec(13, 16, 12, 2, 3);
  neox.family = "gpt_neox";
  neox.tied = false;
  neox.branches = Branches::parallel;
  neox.activation = Activation::gelu;
  neox.positions = Positions::rotary;
  neox.attention.rotary.width = 2;
  for (const ModelSpec& spec : {llama(16), neox, gpt2()}) {
    const ScratchDir dir;
    const Folders f(dir.path() + "/" + family_for(spec).model_type);
    write_model(f, spec);
    write_adapter(f, all_linear(), f.base);
    expect_adapter_in_gguf(f);
  }
}

TEST(GgufAdapter, RanksAndScalesOfTheirOwn) {
  const ScratchDir dir;
  const Folders f(dir.path());
  write_model(f, llama(16));
  LoraSpec lora{.rank = 2, .alpha = 3, .targets = {"q_proj", "v_proj"}};
  lora.ranks = {{"layers.1.self_attn.q_proj", 4}};
  lora.alphas = {{"layers.1.self_attn.v_proj", 7}};
  for (const bool stabilized : {false, true}) {
    lora.rank_stabilized = stabilized;
    write_adapter(f, lora, f.base);
    expect_adapter_in_gguf(f);
  }
  // Modules of one layer only have their whole names as targets.
  lora = {.rank = 2, .alpha = 3, .targets = {"layers.1.self_attn.q_proj", "v_proj"}};
  write_adapter(f, lora, f.base);
  expect_adapter_in_gguf(f);
  EXPECT_EQ(read_adapter_config(f.back).targets.size(), 3u);
}

// An alpha of 0 stands for the scale 1.
TEST(GgufAdapter, WithoutAlpha) {
  const ScratchDir dir;
  const Folders f(dir.path());
  write_model(f, llama(16));
  LoraSpec lora{.rank = 2, .alpha = 3, .targets = {"q_proj", "v_proj"}};
  lora.ranks = {{"layers.1.self_attn.q_proj", 4}};
  write_adapter(f, lora, f.base);
  save_gguf_adapter(f.own, f.file);
  Gguf file = read_gguf(f.file);
  set_key(file, "adapter.lora.alpha", GgufValue::of_f32(0));
  const std::string other = dir.path() + "/other.gguf";
  write_gguf(other, file.metadata, file.tensors);
  save_adapter_of_gguf(other, f.base, f.back);
  for (const AdapterSpec& a : load_spec(f.back).lora.adapters) EXPECT_EQ(a.scale, 1) << a.parameter;
}

TEST(GgufAdapter, ReferenceCases) {
  const char* reference = std::getenv("QKV_REFERENCE");
  if (reference == nullptr) GTEST_SKIP() << "QKV_REFERENCE does not name a folder with hf/";
  const std::pair<const char*, std::vector<std::string>> cases[] = {{"llama_mha", {"all-linear"}},
                                                                    {"mistral_sliding", {"all-linear"}},
                                                                    {"qwen2", {"all-linear"}},
                                                                    {"qwen3", {"all-linear"}},
                                                                    {"gemma", {"all-linear"}},

                                                                    {"gemma2", {"all-linear"}},
                                                                    {"phi", {"all-linear"}},
                                                                    {"phi4_mini_long", {"all-linear"}},
                                                                    {"gpt2", {"all-linear"}},
                                                                    {"gpt_neox", {"all-linear"}},
                                                                    {"falcon_mqa", {"all-linear"}},
                                                                    {"falcon_newarch", {"all-linear"}},
                                                                    {"bloom_alibi", {"all-linear"}},
                                                                    {"mpt_alibi", {"all-linear"}},
                                                                    {"gpt_bigcode_mqa", {"all-linear"}},
                                                                    {"starcoder2", {"all-linear"}},
                                                                    {"stablelm", {"all-linear"}},
                                                                    {"olmo", {"all-linear"}},
                                                                    {"olmo2", {"all-linear"}},
                                                                    {"cohere", {"all-linear"}},

                                                                    {"mixtral_moe", {"q_proj", "o_proj"}}};
  for (const auto& [name, targets] : cases) {
    SCOPED_TRACE(name);
    const ScratchDir dir;
    const Folders f(dir.path() + "/" + name);
    fs::create_directories(dir.path() + "/" + name);
    fs::copy(std::string(reference) + "/hf/" + name, f.base);
    write_adapter(f, {.rank = 2, .alpha = 3, .targets = targets}, f.base);
    expect_adapter_in_gguf(f);
  }
}

TEST(GgufAdapter, WhatDoesNotFitIsRefused) {
  const ScratchDir dir;
  const Folders f(dir.path());
  write_model(f, llama(16));
  write_adapter(f, all_linear(), f.base);
  save_gguf_adapter(f.own, f.file);
  const Gguf file = read_gguf(f.file);
  const Json config = parse_json(read_file(f.base + "/config.json"), "config.json");
  const auto refuse = [&](const auto& change, std::initializer_list<std::string> says) {
    Gguf other = file;
    other.key_index = other.tensor_index = {};
    change(other);
    expect_error([&] { adapter_of_gguf(other, config); }, says);
  };
  refuse([](Gguf& g) { set_key(g, "general.architecture", GgufValue::of(std::string_view("qwen2"))); },
         {"qwen2", "llama"});
  refuse([](Gguf& g) { set_key(g, "adapter.type", GgufValue::of(std::string_view("alora"))); },
         {"adapter.type", "'alora'"});
  refuse([](Gguf& g) { erase_key(g, "general.type"); }, {"general.type"});
  refuse([](Gguf& g) { erase_key(g, "adapter.lora.alpha"); }, {"adapter.lora.alpha"});
  refuse([](Gguf& g) { set_key(g, "adapter.lora.alpha", GgufValue::of_f32(-1)); }, {"adapter.lora.alpha"});
  refuse([](Gguf& g) { g.tensors.clear(); }, {"no tensors"});
  refuse([](Gguf& g) { erase_tensor(g, "blk.0.attn_q.weight.lora_b"); },
         {"layers.0.self_attn.q_proj", "only one"});
  refuse(
      [](Gguf& g) {
        set_tensor(g, "blk.0.attn_q.weight.lora_b", Tensor::zeros({12, 3}, DType::f32));
      },
      {"q_proj", "rank"});
  refuse(
      [](Gguf& g) {
        set_tensor(g, "blk.0.attn_q.weight.lora_b", Tensor::zeros({5, 2}, DType::f32));
      },
      {"blk.0.attn_q.weight.lora_b", "12 rows"});
  refuse(
      [](Gguf& g) {
        set_tensor(g, "blk.9.attn_q.weight.lora_b", Tensor::zeros({12, 2}, DType::f32));
      },
      {"blk.9.attn_q.weight"});
  refuse(
      [](Gguf& g) {
        set_tensor(g, "blk.0.attn_q.weight", Tensor::zeros({12, 2}, DType::f32));
      },
      {"lora_a", "lora_b"});
  // A matrix of another model's width.
  Gguf wide = file;
  wide.key_index = wide.tensor_index = {};
  set_tensor(wide, "blk.0.attn_v.weight.lora_a", Tensor::zeros({2, 9}, DType::f32));
  const std::string other = dir.path() + "/other.gguf";
  write_gguf(other, wide.metadata, wide.tensors);
  expect_error([&] { save_adapter_of_gguf(other, f.base, f.back); }, {"v_proj", "[2, 9]"});
  EXPECT_FALSE(fs::exists(f.back));
  // An adapter is no model, and a model is no adapter.
  expect_error([&] { load_spec(resolve_model_dir(f.file)); }, {"adapter.gguf", "--base"});
  save_gguf(f.base, f.base_file, {});
  expect_error([&] { save_adapter_of_gguf(f.base_file, f.base, f.back); }, {"general.type"});
}

}  // namespace
}  // namespace qkv::testing::gguf_adapter_test
