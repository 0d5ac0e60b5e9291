// Milliseconds in which BERT-base (random weights) reads 8 texts of 128 tokens, by turns with its weights in
// f32, bf16 and q8_0, whose products are of 8-bit integers.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/io/model_dir.h"
#include "qkv/models/transformer.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

constexpr const char* kBertBase =
    R"({"model_type": "bert", "architectures": ["BertModel"], "vocab_size": 30522,
  "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
  "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu"})";
constexpr int64_t kTexts = 8, kTokens = 128;

void quantize_matrices(Transformer& model) {
  for (Parameter& p : model.parameters().all()) {
    if (!p.any_type || p.shape.rank() != 2) continue;
    QuantizedTensor blocks = QuantizedTensor::empty(p.shape, WeightType::q8_0);
    const auto to = blocks.mutable_blocks();
    for (int64_t r = 0; r < p.shape[0]; ++r)
      quantize_row(WeightType::q8_0, p.shape[1], p.value.row<float>(r).data(), nullptr,
                   to.subspan(r * blocks.row_bytes(), blocks.row_bytes()).data());
    p.packed = blocks;
  }
}

double milliseconds(const Transformer& model) {
  std::vector<int32_t> ids(kTexts * kTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7919 % 30000);
  const ModelInput input{ids, Layout::of(std::vector<int32_t>(kTexts, kTokens))};
  const auto start = std::chrono::steady_clock::now();
  model.hidden(input, {});
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void run() {
  const NoGrad guard;
  struct Candidate {
    const char* name;
    std::unique_ptr<Transformer> model;
    std::vector<double> times;
  };
  std::vector<Candidate> all;
  for (const char* name : {"f32", "bf16", "q8_0"}) {
    all.push_back({name, std::make_unique<Transformer>(parse_spec(kBertBase, "BERT-base")), {}});
    Transformer& model = *all.back().model;
    model.parameters().draw(1, std::string_view(name) == "bf16" ? DType::bf16 : DType::f32);
    if (std::string_view(name) == "q8_0") quantize_matrices(model);
  }
  for (int run = 0; run < 12; ++run)
    for (Candidate& c : all) {
      const double t = milliseconds(*c.model);
      if (run > 0) c.times.push_back(t);
    }
  const double f32 = median(all.front().times);
  for (const Candidate& c : all)
    fmt::print("{:<5} {:7.1f} ms, {:.2f}x the speed of f32\n", c.name, median(c.times),
               f32 / median(c.times));
}

}  // namespace
}  // namespace qkv

int main(int, char** argv) {
  qkv::limit_spinning(argv);
  qkv::run();
}
