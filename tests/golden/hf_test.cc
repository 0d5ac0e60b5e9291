// Whole models against Hugging Face's: outputs, inner values, loss, gradients and greedy continuations that
// were computed in float64 (hf/PROVENANCE.md). The cases beside this file always run; the same two from
// $QKV_REFERENCE/hf when that variable is set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "qkv/base/json_value.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/safetensors.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// Deviations are measured against the largest magnitude of the tensor that is expected.
constexpr double kOuterBound = 3e-4;  // what every case has to meet
constexpr double kF32Bound = 5e-6;    // f32 comes within 1e-6 here, forward and backward

// bf16 rounds to within u = 2^-9. A value passes about eight roundings in a block (two norms, qkv, the
// probabilities, the heads' sum, out, up, down) and four outside, each of which moves it by u of the largest
// magnitude at most; a gradient passes them on the way back once more.
double bf16_bound(int64_t layers) {
  return static_cast<double>(8 * layers + 4) * std::ldexp(1.0, -9);
}

struct Source {
  std::string root;  // "golden" or "reference"
  std::string name;
};

void PrintTo(const Source& s, std::ostream* out) {
  *out << s.root << " " << s.name;
}

class HfCase : public testing::TestWithParam<Source> {
 protected:
  void SetUp() override {
    std::string root = std::string(QKV_SOURCE_DIR) + "/tests/golden/hf";
    if (GetParam().root == "reference") {
      const char* reference = std::getenv("QKV_REFERENCE");
      if (reference == nullptr || *reference == '\0') GTEST_SKIP() << "skipped: QKV_REFERENCE is not set";
      root = std::string(reference) + "/hf";
    }
    dir_ = root + "/" + GetParam().name;
    expected_ = read_safetensors(dir_ + "/expected.safetensors");
  }

  bool has(const std::string& name) const { return expected_.tensors.contains(name); }
  const Tensor& expected(const std::string& name) const {
    const auto it = expected_.tensors.find(name);
    check(it != expected_.tensors.end(), "{}: no tensor '{}'", dir_, name);
    return it->second;
  }

  std::string dir_;
  Safetensors expected_;
};

// The real tokens of `ids` [B, T] under `mask` [B, T].
struct Rows {
  int64_t columns = 0;
  std::vector<std::vector<int32_t>> tokens;  // of each row
  std::vector<std::vector<int64_t>> places;  // their columns

  static Rows of(const Tensor& ids, const Tensor& mask) {
    Rows rows;
    rows.columns = ids.dim(1);
    for (int64_t r = 0; r < ids.dim(0); ++r) {
      rows.tokens.emplace_back();
      rows.places.emplace_back();
      for (int64_t c = 0; c < rows.columns; ++c) {
        if (mask.data<int64_t>()[r * rows.columns + c] == 0) continue;
        rows.tokens.back().push_back(static_cast<int32_t>(ids.data<int64_t>()[r * rows.columns + c]));
        rows.places.back().push_back(c);
      }
    }
    return rows;
  }
  // All rows one after the other.
  Tensor flat() const {
    std::vector<int32_t> all;
    for (const auto& row : tokens) all.insert(all.end(), row.begin(), row.end());
    return Tensor::of({static_cast<int64_t>(all.size())}, all);
  }
  Layout layout() const {
    std::vector<int32_t> lengths;
    for (const auto& row : tokens) lengths.push_back(static_cast<int32_t>(row.size()));
    return Layout::of(lengths);
  }
  // The rows of a padded [B, T, D] that `flat` has, as [N, D].
  Tensor gather(const Tensor& padded) const {
    std::vector<float> out;
    const int64_t width = padded.width();
    for (size_t r = 0; r < tokens.size(); ++r)
      for (const int64_t c : places[r]) {
        const float* row = padded.data<float>() + (static_cast<int64_t>(r) * columns + c) * width;
        out.insert(out.end(), row, row + width);
      }
    return Tensor::of({static_cast<int64_t>(out.size()) / width, width}, out);
  }
};

// The largest difference over the largest magnitude of `want`.
double deviation(const Tensor& got, const Tensor& want) {
  check(got.count() == want.count(), "expected {}, got {}", want.shape().text(), got.shape().text());
  const Tensor f32 = convert(got, DType::f32);
  double scale = 1e-6, difference = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double g = f32.data<float>()[i], w = want.data<float>()[i];
    if (!std::isfinite(g)) return std::numeric_limits<double>::infinity();
    scale = std::max(scale, std::abs(w));
    difference = std::max(difference, std::abs(g - w));
  }
  return difference / scale;
}

#define EXPECT_CLOSE(got, want, bound) EXPECT_LE(deviation(got, want), bound)

// Keeps the residual stream after each block and the attention probabilities.
class Recorder : public Probe {
 public:
  explicit Recorder(int64_t layers) {
    hidden_["decoder.embedding"] = 0;
    for (int64_t l = 0; l + 1 < layers; ++l)
      hidden_[fmt::format("decoder.block.{}.feed_forward.sum", l)] = l + 1;
    hidden_["decoder.norm"] = layers;
    for (int64_t l = 0; l < layers; ++l)
      attention_[fmt::format("decoder.block.{}.attention.probabilities", l)] = l;
  }
  bool wants(std::string_view name) const override {
    return hidden_.contains(std::string(name)) || attention_.contains(std::string(name));
  }
  void visit(std::string_view name, Tensor& value) override {
    hidden[hidden_.at(std::string(name))] = convert(value, DType::f32).clone();
  }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override {
    probabilities[{attention_.at(std::string(name)), sequence, head}] = value.clone();
  }

  std::map<int64_t, Tensor> hidden;                                       // by layer
  std::map<std::tuple<int64_t, int64_t, int64_t>, Tensor> probabilities;  // by layer, sequence, head

 private:
  std::map<std::string, int64_t> hidden_, attention_;
};

// Compares logits, hidden states and attention probabilities.
void compare_forward(const Transformer& model, const Rows& rows, const Safetensors& expected, double bound) {
  const NoGrad guard;
  const ModelSpec& spec = model.spec();
  Recorder recorder(spec.layers);
  Context context;
  context.probe = &recorder;
  const Tensor logits = model.logits(model.hidden({rows.flat(), rows.layout()}, context));
  EXPECT_CLOSE(logits, rows.gather(expected.tensors.at("f64.logits")), bound);

  ASSERT_EQ(static_cast<int64_t>(recorder.hidden.size()), spec.layers + 1);
  for (const auto& [layer, value] : recorder.hidden) {
    SCOPED_TRACE(fmt::format("hidden state {}", layer));
    EXPECT_CLOSE(value, rows.gather(expected.tensors.at(fmt::format("f64.hidden_states.{}", layer))), bound);
  }
  const int64_t heads = spec.attention.heads, t = rows.columns;
  ASSERT_EQ(recorder.probabilities.size(), static_cast<size_t>(spec.layers * heads) * rows.tokens.size());
  for (const auto& [key, p] : recorder.probabilities) {
    const auto [layer, sequence, head] = key;
    SCOPED_TRACE(fmt::format("attention of layer {}, sequence {}, head {}", layer, sequence, head));
    const Tensor& all = expected.tensors.at(fmt::format("f64.attentions.{}", layer));
    std::vector<float> want;
    for (const int64_t query : rows.places[sequence])
      for (const int64_t column : rows.places[sequence])
        want.push_back(all.data<float>()[((sequence * heads + head) * t + query) * t + column]);
    EXPECT_CLOSE(p, Tensor::of(p.shape(), want), bound);
  }
}

TEST_P(HfCase, ForwardInF32) {
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const auto model = load_model(dir_, DType::f32);
  compare_forward(*model, rows, expected_, std::min(kOuterBound, kF32Bound));
}

TEST_P(HfCase, ForwardInBf16) {
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const auto model = load_model(dir_, DType::bf16);
  compare_forward(*model, rows, expected_, bf16_bound(model->spec().layers));
}

// A batch of sequences of different lengths gives each what it gets alone: no sequence sees another, and
// there is no padding that could leak in.
TEST_P(HfCase, FlatBatchEqualsEachAlone) {
  const NoGrad guard;
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  ASSERT_GE(rows.tokens.size(), 2U);
  ASSERT_NE(rows.tokens[0].size(), rows.tokens[1].size());
  for (const DType compute : {DType::f32, DType::bf16}) {
    const auto model = load_model(dir_, compute);
    Context context;
    const Tensor together = model->logits(model->hidden({rows.flat(), rows.layout()}, context));
    int64_t first = 0;
    for (size_t r = 0; r < rows.tokens.size(); ++r) {
      SCOPED_TRACE(fmt::format("row {}", r));
      const auto n = static_cast<int64_t>(rows.tokens[r].size());
      const Tensor logits = model->logits(
          model->hidden({Tensor::of({n}, rows.tokens[r]), Layout::of({static_cast<int32_t>(n)})}, {}));
      // Products may add in another order for another number of rows.
      const double bound = compute == DType::f32 ? 1e-6 : bf16_bound(model->spec().layers);
      EXPECT_CLOSE(logits, together.slice_rows(first, first + n), bound);
      first += n;
    }
  }
}

// Loss and the gradient of every parameter. Labels are the inputs shifted by one, -100 where there is none.
void compare_training(const std::string& dir, const Safetensors& expected, const Rows& rows, DType compute,
                      bool recompute, double loss_bound, double gradient_bound) {
  const auto model = load_model(dir, compute);
  model->set_recompute(recompute);
  const Tensor& labels = expected.tensors.at("train.labels");
  std::vector<int32_t> targets;
  int64_t count = 0;
  for (size_t r = 0; r < rows.tokens.size(); ++r)
    for (const int64_t c : rows.places[r]) {
      const bool last = c + 1 == rows.columns;
      const int64_t label =
          last ? kIgnored : labels.data<int64_t>()[static_cast<int64_t>(r) * rows.columns + c + 1];
      targets.push_back(static_cast<int32_t>(label));
      count += label != kIgnored;
    }
  model->parameters().prepare_training(compute, 0);
  model->parameters().reset_gradients();
  Context context;
  const CrossEntropyResult result =
      model->loss({rows.flat(), rows.layout()}, Tensor::of({static_cast<int64_t>(targets.size())}, targets),
                  context, 1 / static_cast<float>(count));
  EXPECT_CLOSE(result.loss, expected.tensors.at("train.loss"), loss_bound);
  backward(result.loss);
  model->parameters().complete_gradients();

  std::set<std::string> compared;
  for (const auto& [name, grad] : named_tensors(*model, [](const Parameter& p) { return p.leaf->grad; })) {
    SCOPED_TRACE("gradient of " + name);
    const auto want = expected.tensors.find("train.grad." + name);
    ASSERT_NE(want, expected.tensors.end());
    EXPECT_EQ(grad.shape(), want->second.shape());
    EXPECT_CLOSE(grad, want->second, gradient_bound);
    compared.insert(want->first);
  }
  for (const auto& [name, tensor] : expected.tensors)
    if (name.starts_with("train.grad.")) {
      EXPECT_TRUE(compared.contains(name)) << name << " was not computed";
    }
}

// The cases with a stored loss and gradients.
class HfTraining : public HfCase {};

TEST_P(HfTraining, LossAndGradients) {
  ASSERT_TRUE(has("train.loss")) << dir_;
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const double f32 = std::min(kOuterBound, kF32Bound), bf16 = bf16_bound(load_spec(dir_).layers);
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute ? "recomputing activations" : "keeping activations");
    compare_training(dir_, expected_, rows, DType::f32, recompute, f32, f32);
    compare_training(dir_, expected_, rows, DType::bf16, recompute, bf16, 2 * bf16);
  }
}

// Greedy continuations, token for token: one prompt, left-padded prompts of different lengths, an early end.
TEST_P(HfCase, Generation) {
  const auto model = load_model(dir_, DType::f32);
  const std::string path = dir_ + "/meta.json";
  const Json runs = parse_json(read_file(path), path).at("generation");
  ASSERT_GE(runs.size(), 3U);
  for (const auto& [run, settings] : runs.items()) {
    SCOPED_TRACE(run);
    const std::string prompts = has("gen." + run + ".input_ids") ? "gen." + run : "gen.greedy";
    const Tensor& ids = expected(prompts + ".input_ids");
    const Rows rows = Rows::of(ids, expected(prompts + ".attention_mask"));
    GenerateOptions options;
    options.sampler.temperature = 0;
    options.max_new_tokens = settings.at("max_new_tokens").get<int64_t>();
    if (!settings.at("eos_token_id").is_null()) options.eos = {settings.at("eos_token_id").get<int32_t>()};
    const auto pad = settings.at("pad_token_id").get<int32_t>();
    const Tensor& sequences = expected("gen." + run + ".sequences");
    for (const bool cached : {true, false}) {
      options.cached = cached;
      const auto continuations = generate(*model, rows.tokens, options);
      ASSERT_EQ(static_cast<int64_t>(continuations.size()), sequences.dim(0));
      for (int64_t r = 0; r < sequences.dim(0); ++r) {
        const int64_t* row = sequences.data<int64_t>() + r * sequences.dim(1);
        const std::vector<int32_t> want(row + ids.dim(1), row + sequences.dim(1));
        std::vector<int32_t> got = continuations[r];
        ASSERT_LE(got.size(), want.size());
        got.resize(want.size(), pad);
        EXPECT_EQ(got, want) << (cached ? "with" : "without") << " a cache, row " << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, HfTraining,
                         testing::Values(Source{"golden", "gpt2"}, Source{"reference", "gpt2"}),
                         [](const auto& info) { return info.param.root + "_" + info.param.name; });
INSTANTIATE_TEST_SUITE_P(All, HfCase,
                         testing::Values(Source{"golden", "gpt2"}, Source{"golden", "gpt2_variant"},
                                         Source{"reference", "gpt2"}, Source{"reference", "gpt2_variant"}),
                         [](const auto& info) { return info.param.root + "_" + info.param.name; });

}  // namespace
}  // namespace qkv
