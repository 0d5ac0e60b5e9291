// Whole models against Hugging Face's: outputs, inner values, loss, gradients and continuations that were
// computed in float64 (hf/PROVENANCE.md). The cases are the folders next to this file and, if that variable
// is set, those of $QKV_REFERENCE/hf whose family has a folder here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/bridge/forward_inputs.h"
#include "qkv/cli/command.h"
#include "qkv/infer/generate.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/model_dir.h"
#include "qkv/ops/elementwise.h"
#include "tests/source_dir.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::hf_test {
namespace {

// Deviations are relative to the largest magnitude of the expected tensor.
constexpr double kOuterBound = 3e-4;   // bound for every case
constexpr double kF32Bound = 5e-6;     // for GPT-2 in f32, which is within 1e-6, forward and backward
constexpr double kFamilyBound = 1e-5;  // for any family in f32

// Rounding adds up over layers. Most cases have two or three, Gemma 3's seven with four norms each.
double in_layers(double bound, int64_t layers) {
  return bound * std::max(1.0, static_cast<double>(layers) / 2);
}

// The layers that a gradient passes. A decoder's block beside an encoder has three branches, not two.
int64_t layers_of(const ModelSpec& s) {
  return s.architecture == Architecture::encoder_decoder ? s.encoder_layers + s.layers * 3 / 2 : s.layers;
}

// bf16 rounds to within u = 2^-9. A value passes about eight roundings in a block (two norms, qkv, the
// probabilities, the heads' sum, out, up, down) and four outside, each of which moves it by u of the largest
// magnitude at most; a gradient passes them on the way back once more. Norms of branches, and of queries and
// keys, are two more each.
double bf16_bound(const ModelSpec& s) {
  const int64_t more = (s.norm_placement == NormPlacement::sandwich ? 2 : 0) +
                       (s.attention.query_key_norm != QueryKeyNorm::none ? 2 : 0);
  return static_cast<double>((8 + more) * s.layers + 4) * std::ldexp(1.0, -9);
}

struct Case {
  std::string root;  // "golden" or "reference"
  std::string name, dir;
  std::string family;         // model_type
  std::string kind;           // kind in meta.json: "causal", "encdec", ...
  bool trains = false;        // has a loss and gradients
  bool writes = false;        // has generation runs
  bool padded = false;        // rows of different lengths
  bool left_out = false;      // does not store some of the computed values
  bool block_sparse = false;  // stores each probability once, though several copies count
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.root << " " << c.name;
}

Json read_json(const std::string& path) {
  return parse_json(read_file(path), path);
}

Case read_case(const std::string& root, const std::filesystem::path& dir) {
  const Json config = read_json(dir / "config.json"), meta = read_json(dir / "meta.json");
  Case c{root, dir.filename(), dir, config.at("model_type"), meta.at("kind")};
  const TensorFile expected = read_safetensors(dir / "expected.safetensors");
  c.trains = expected.tensors.contains("train.loss");
  c.writes = std::ranges::any_of(expected.tensors, [](const auto& t) { return t.first.starts_with("gen."); });
  c.padded = expected.tensors.contains("attention_mask");
  c.left_out = expected.metadata.contains("left_out");
  c.block_sparse = config.value("attention_type", "") == "block_sparse";
  return c;
}

std::vector<Case> read_cases(const std::string& root, const std::string& folder) {
  std::vector<Case> cases;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory()) cases.push_back(read_case(root, entry.path()));
  std::ranges::sort(cases, {}, &Case::name);
  return cases;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> found = read_cases("golden", testing::source_dir() + "/tests/golden/hf");
    std::set<std::string> families;
    for (const Case& c : found) families.insert(c.family);
    const char* reference = std::getenv("QKV_REFERENCE");
    if (reference == nullptr || *reference == '\0') return found;
    for (const Case& c : read_cases("reference", std::string(reference) + "/hf"))
      if (families.contains(c.family)) found.push_back(c);
    return found;
  }();
  return cases;
}

template <typename Predicate>
std::vector<Case> cases_where(Predicate predicate) {
  std::vector<Case> found;
  std::ranges::copy_if(all_cases(), std::back_inserter(found), predicate);
  return found;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  return info.param.root + "_" + info.param.name;
}

class HfCase : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { expected_ = read_safetensors(dir_ + "/expected.safetensors"); }

  bool has(const std::string& name) const { return expected_.tensors.contains(name); }
  const Tensor& expected(const std::string& name) const {
    const auto it = expected_.tensors.find(name);
    check(it != expected_.tensors.end(), "{}: no tensor '{}'", dir_, name);
    return it->second;
  }
  // Returns the output of `qkv forward`.
  TensorFile forward(const std::map<std::string, Tensor>& inputs,
                     const std::vector<std::string>& options) const {
    const qkv::testing::ScratchDir scratch;
    const std::string in = scratch.path() + "/in.safetensors", out = scratch.path() + "/out.safetensors";
    write_safetensors(in, {inputs.begin(), inputs.end()});
    std::vector<std::string> words = {"qkv", "forward", dir_, "--inputs", in, "--outputs", out};
    words.insert(words.end(), options.begin(), options.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    Program program("qkv", "", "");
    add_forward_command(program);
    program.run(static_cast<int>(argv.size()), argv.data());
    return read_safetensors(out);
  }
  std::map<std::string, Tensor> inputs() const {
    std::map<std::string, Tensor> found;
    for (const char* name : {"input_ids", "attention_mask", "token_type_ids", "decoder_input_ids",
                             "pixel_values", "input_features", "global_attention_mask"})
      if (has(name)) found.emplace(name, expected(name));
    for (const auto& [name, tensor] : expected_.tensors)
      if (name.starts_with("rotations.")) found.emplace(name, tensor);
    return found;
  }

  const std::string dir_ = GetParam().dir;
  TensorFile expected_;
};

// The real tokens of `ids` [B, T] under `mask` [B, T].
struct Rows {
  int64_t columns = 0;
  std::vector<std::vector<int32_t>> tokens;  // by row
  std::vector<std::vector<int64_t>> places;  // the columns of these

  // mask: undefined where there is no padding.
  static Rows of(const Tensor& ids, const Tensor& mask) {
    Rows rows;
    rows.columns = ids.dim(1);
    for (int64_t r = 0; r < ids.dim(0); ++r) {
      rows.tokens.emplace_back();
      rows.places.emplace_back();
      for (int64_t c = 0; c < rows.columns; ++c) {
        if (mask.defined() && mask.data<int64_t>()[r * rows.columns + c] == 0) continue;
        rows.tokens.back().push_back(static_cast<int32_t>(ids.data<int64_t>()[r * rows.columns + c]));
        rows.places.back().push_back(c);
      }
    }
    return rows;
  }
  // The tokens of all rows, concatenated.
  Indices flat() const {
    std::vector<int32_t> all;
    for (const auto& row : tokens) all.insert(all.end(), row.begin(), row.end());
    return all;
  }
  Layout layout() const {
    std::vector<int32_t> lengths;
    for (const auto& row : tokens) lengths.push_back(static_cast<int32_t>(row.size()));
    return Layout::of(lengths);
  }
  // The rows of a padded [B, T, D] for the tokens of flat(), as [N, D].
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
  check(got.count() == want.count(), "expected {}, got {}", want.shape(), got.shape());
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

double number_at(const Tensor& x, int64_t i) {
  if (x.dtype() == DType::i64) return static_cast<double>(x.data<int64_t>()[i]);
  return x.data<float>()[i];
}

// For each element of `shape`, true if it counts. Rows of padding differ between implementations.
std::vector<bool> real_places(const Shape& shape, const Tensor* mask) {
  const auto is = [&](int rank, int tokens) {
    return mask != nullptr && shape.rank() >= rank && shape[0] == mask->dim(0) &&
           shape[tokens] == mask->dim(1);
  };
  const bool of_heads = shape.rank() == 4 && is(4, 2), of_tokens = !of_heads && is(2, 1);
  std::vector<bool> real(static_cast<size_t>(shape.count()), true);
  if (!of_heads && !of_tokens) return real;
  int64_t width = 1;
  for (int d = of_heads ? 3 : 2; d < shape.rank(); ++d) width *= shape[d];
  const int64_t rows = mask->dim(1), heads = of_heads ? shape[1] : 1;
  for (int64_t i = 0; i < shape.count(); ++i) {
    const int64_t row = i / width;
    real[static_cast<size_t>(i)] = mask->data<int64_t>()[row / rows / heads * rows + row % rows] != 0;
  }
  return real;
}

// The same for probabilities by chunks [B, heads, chunks, queries, keys], where queries of padding are 0 in
// `got`. There are as many of them as the mask says, in each round of hashing.
std::vector<bool> queries_of_chunks(const Tensor& got, const Tensor& mask) {
  const int64_t batch = got.dim(0), heads = got.dim(1), queries = got.dim(2) * got.dim(3), keys = got.dim(4);
  const int64_t tokens = mask.dim(1), rounds = queries / tokens;
  std::vector<bool> real;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t padded = 0;
      for (int64_t q = 0; q < queries; ++q) {
        const float* row = got.data<float>() + ((b * heads + h) * queries + q) * keys;
        const bool counts = std::any_of(row, row + keys, [](float p) { return p != 0; });
        padded += !counts;
        real.insert(real.end(), static_cast<size_t>(keys), counts);
      }
      const int64_t* row = mask.data<int64_t>() + b * tokens;
      EXPECT_EQ(padded, rounds * std::count(row, row + tokens, 0));
    }
  return real;
}

// The same for real tokens only.
double deviation(const Tensor& got, const Tensor& want, const Tensor* mask) {
  check(got.count() == want.count(), "expected {}, got {}", want.shape(), got.shape());
  const std::vector<bool> real = mask != nullptr && want.shape().rank() == 5
                                     ? queries_of_chunks(got, *mask)
                                     : real_places(want.shape(), mask);
  double scale = 1e-6, difference = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    if (!real[static_cast<size_t>(i)]) continue;
    const double g = number_at(got, i), w = number_at(want, i);
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
void compare_forward(const Transformer& model, const Rows& rows, const TensorFile& expected, double bound) {
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

// Every expected value of a forward pass: outputs, hidden states, attentions, routers.
TEST_P(HfCase, Outputs) {
  const TensorFile got = forward(inputs(), {"--hidden-states", "--attentions"});
  // Rounding is what the published code's own f32 has at most four times of (LED's softmaxes enlarge it).
  const Json meta = read_json(dir_ + "/meta.json");
  double bound = kFamilyBound;
  if (has("f64.logits") && meta.contains("f32_vs_f64_logits")) {
    double largest = 0;
    for (const float z : expected("f64.logits").values<float>())
      largest = std::max(largest, std::abs(double{z}));
    bound = std::max(bound, 4 * meta.at("f32_vs_f64_logits").get<double>() / largest);
  }
  int compared = 0;
  for (const auto& [stored, want] : expected_.tensors) {
    if (!stored.starts_with("f64.")) continue;
    const std::string name = stored.substr(4);
    if (GetParam().block_sparse && name.starts_with("attentions")) continue;
    SCOPED_TRACE(name);
    const bool of_decoder = has("decoder_input_ids") && !name.starts_with("encoder_");
    const Tensor* mask = of_decoder || !has("attention_mask") ? nullptr : &expected("attention_mask");
    ASSERT_TRUE(got.tensors.contains(name)) << "qkv forward wrote no such tensor";
    EXPECT_LE(deviation(got.tensors.at(name), want, mask), bound);
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

// GPT-2 by the library's own probes.
class HfGpt2 : public HfCase {};

TEST_P(HfGpt2, ForwardInF32) {
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const auto model = load_model(dir_, DType::f32);
  compare_forward(*model, rows, expected_, std::min(kOuterBound, kF32Bound));
}

TEST_P(HfGpt2, ForwardInBf16) {
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const auto model = load_model(dir_, DType::bf16);
  compare_forward(*model, rows, expected_, bf16_bound(model->spec()));
}

class HfDecoder : public HfCase {};

// In a batch of different lengths, each sequence gets the same result as alone: no sequence sees another,
// and no padding leaks in.
TEST_P(HfDecoder, FlatBatchEqualsEachAlone) {
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
      const Tensor logits =
          model->logits(model->hidden({rows.tokens[r], Layout::of({static_cast<int32_t>(n)})}, {}));
      // Products may add in another order for another number of rows.
      const double f32 = GetParam().family == "gpt2" ? 1e-6 : kF32Bound;
      const double bound = compute == DType::f32 ? f32 : bf16_bound(model->spec());
      EXPECT_CLOSE(logits, together.slice_rows(first, first + n), bound);
      first += n;
    }
  }
}

// Names of tensors that a case does not store.
std::set<std::string> names_left_out(const TensorFile& expected) {
  std::set<std::string> names;
  if (const auto it = expected.metadata.find("left_out"); it != expected.metadata.end()) {
    std::istringstream words(it->second);
    for (std::string word; words >> word;) names.insert(word);
  }
  return names;
}

// A case's model, with the rotations by which its layers hash.
std::unique_ptr<Transformer> model_of(const std::string& dir, const TensorFile& expected, DType compute) {
  std::unique_ptr<Transformer> model = load_model(dir, compute);
  TensorFile rotations;
  for (const auto& [name, tensor] : expected.tensors)
    if (name.starts_with("rotations.")) rotations.tensors.emplace(name, tensor);
  take_rotations(rotations, *model, dir);
  return model;
}

// Loss and the gradient of every parameter. Labels are the inputs shifted by one, or -100 if there is none.
void compare_training(const std::string& dir, const TensorFile& expected, const Rows& rows, DType compute,
                      bool recompute, double loss_bound, double gradient_bound) {
  const auto model = model_of(dir, expected, compute);
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
  ModelInput input{rows.flat(), rows.layout()};
  input.layout.padded_length = rows.columns;
  const CrossEntropyResult result = model->loss(input, targets, context, 1 / static_cast<float>(count));
  EXPECT_CLOSE(result.loss, expected.tensors.at("train.loss"), loss_bound);
  backward(result.loss);
  model->parameters().complete_gradients();

  std::set<std::string> compared;
  const std::set<std::string> left_out = names_left_out(expected);
  for (const auto& [name, grad] : named_tensors(*model, [](const Parameter& p) { return p.leaf->grad; })) {
    SCOPED_TRACE("gradient of " + name);
    if (left_out.contains("train.grad." + name) || name.starts_with("rotations.")) continue;
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
  std::map<std::string, Tensor> given = inputs();
  given.erase("decoder_input_ids");  // derived from the labels
  given.emplace("labels", expected("train.labels"));
  const TensorFile got = forward(given, {"--gradients"});
  EXPECT_LE(deviation(got.tensors.at("loss"), expected("train.loss"), nullptr), kFamilyBound);
  const double bound = in_layers(kFamilyBound, layers_of(load_spec(dir_)));
  int compared = 0;
  for (const auto& [name, want] : expected_.tensors) {
    if (!name.starts_with("train.grad.")) continue;
    SCOPED_TRACE(name);
    const auto it = got.tensors.find(name.substr(6));
    ASSERT_NE(it, got.tensors.end()) << "qkv forward wrote no such gradient";
    EXPECT_EQ(it->second.shape(), want.shape());
    EXPECT_LE(deviation(it->second, want, nullptr), bound);
    ++compared;
  }
  EXPECT_GE(compared, 4);
}

// The same for language models, in both types, with activations kept and recomputed.
class HfDecoderTraining : public HfCase {};

TEST_P(HfDecoderTraining, LossAndGradients) {
  ASSERT_TRUE(has("train.loss")) << dir_;
  const Rows rows = Rows::of(expected("input_ids"), expected("attention_mask"));
  const ModelSpec spec = load_spec(dir_);
  const double f32 = std::min(kOuterBound, in_layers(kF32Bound, spec.layers)), bf16 = bf16_bound(spec);
  for (const bool recompute : {false, true}) {
    SCOPED_TRACE(recompute ? "recomputing activations" : "keeping activations");
    compare_training(dir_, expected_, rows, DType::f32, recompute, f32, f32);
    if (spec.hashes()) continue;  // rounded queries are in other buckets
    compare_training(dir_, expected_, rows, DType::bf16, recompute, bf16, 2 * bf16);
  }
}

class HfContinuations : public HfCase {};

// Greedy continuations, token for token: one prompt, left-padded prompts of different lengths, an early end.
TEST_P(HfContinuations, WithAndWithoutCache) {
  const auto model = model_of(dir_, expected_, DType::f32);
  const Json runs = read_json(dir_ + "/meta.json").at("generation");
  ASSERT_GE(runs.size(), GetParam().family == "gpt2" ? 3U : 2U);
  for (const auto& [run, settings] : runs.items()) {
    SCOPED_TRACE(run);
    const std::string prompts = has("gen." + run + ".input_ids") ? "gen." + run : "gen.greedy";
    const Tensor& ids = expected(prompts + ".input_ids");
    const std::string mask = prompts + ".attention_mask";
    const Rows rows = Rows::of(ids, has(mask) ? expected(mask) : Tensor());
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

class HfGeneration : public HfCase {};

// All runs through the tool, with beams and encoder-decoders, give the same ids.
TEST_P(HfGeneration, Ids) {
  const Json runs = read_json(dir_ + "/meta.json").at("generation");
  ASSERT_GE(runs.size(), 2U);
  for (const auto& [run, settings] : runs.items()) {
    SCOPED_TRACE(run);
    // In that release beams that have not ended compete in the last step in spite of early_stopping.
    if (GetParam().name == "led" && run == "beam4_eos_lp2") continue;
    std::map<std::string, Tensor> given = inputs();
    given.erase("decoder_input_ids");
    if (has("gen.greedy.input_ids") || has("gen." + run + ".input_ids")) given.erase("attention_mask");
    // A run without its own inputs has those of the first.
    for (const std::string& from : {std::string("greedy"), run})
      for (const char* name : {"input_ids", "attention_mask", "decoder_input_ids"})
        if (has(fmt::format("gen.{}.{}", from, name)))
          given.insert_or_assign(name, expected(fmt::format("gen.{}.{}", from, name)));
    std::string said;
    for (const auto& [key, value] : settings.items())
      if (key != "inputs" && !value.is_structured())
        said += fmt::format("{}{}={}", said.empty() ? "" : ",", key, value.dump());
    const TensorFile got = forward(given, {"--generate", said});
    const Tensor &ids = got.tensors.at("sequences"), &want = expected("gen." + run + ".sequences");
    EXPECT_EQ(ids.shape(), want.shape());
    EXPECT_TRUE(std::ranges::equal(ids.values<int64_t>(), want.values<int64_t>()));
  }
}

// The families that qkv reads, as its error message lists them. CLIP, a directory of two models, is not
// among them.
std::set<std::string> families() {
  std::string message;
  try {
    parse_spec(R"({"model_type": "none"})", "config.json");
  } catch (const Error& e) {
    message = e.what();
  }
  const std::string before = "qkv reads ";
  std::istringstream words(message.substr(message.find(before) + before.size()));
  std::set<std::string> found = {"clip"};
  for (std::string word; words >> word;) found.insert(word.substr(0, word.find(',')));
  found.erase("qkv");  // the format for models that no other family describes
  return found;
}

TEST(HfCases, OneAtLeastOfEachFamily) {
  std::set<std::string> covered;
  for (const Case& c : all_cases())
    if (c.root == "golden") covered.insert(c.family);
  const std::set<std::string> known = families();
  EXPECT_GE(known.size(), 40U);
  for (const std::string& family : known)
    EXPECT_TRUE(covered.contains(family))
        << family << ": tests/golden/hf has no case: copy one with tools/thin_reference.py";
}

// Checks that the comparison can fail.
TEST(HfCases, ADeviationIsSeen) {
  const Tensor want = Tensor::of({1, 2, 2}, std::vector<float>{1, 2, 3, 4}),
               got = Tensor::of({1, 2, 2}, std::vector<float>{1, 2, 3, 5}),
               mask = Tensor::of({1, 2}, std::vector<int64_t>{1, 0});
  EXPECT_EQ(deviation(got, want, nullptr), 0.25);
  EXPECT_EQ(deviation(got, want, &mask), 0);  // the second token is padding
  const Tensor lost = Tensor::of({1, 2, 2}, std::vector<float>{1, 2, 3, NAN});
  EXPECT_EQ(deviation(lost, want, nullptr), std::numeric_limits<double>::infinity());
}

bool is_decoder(const Case& c) {
  return c.kind == "causal";
}

INSTANTIATE_TEST_SUITE_P(All, HfCase, ::testing::ValuesIn(all_cases()), name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfGpt2, ::testing::ValuesIn(cases_where([](const Case& c) {
                           return c.family == "gpt2" && !c.left_out;
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfDecoder, ::testing::ValuesIn(cases_where([](const Case& c) {
                           return c.padded && is_decoder(c);
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfTraining,
                         ::testing::ValuesIn(cases_where([](const Case& c) { return c.trains; })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfDecoderTraining, ::testing::ValuesIn(cases_where([](const Case& c) {
                           return c.trains && is_decoder(c);
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfContinuations, ::testing::ValuesIn(cases_where([](const Case& c) {
                           return c.writes && is_decoder(c);
                         })),
                         name_of_case);
INSTANTIATE_TEST_SUITE_P(All, HfGeneration,
                         ::testing::ValuesIn(cases_where([](const Case& c) { return c.writes; })),
                         name_of_case);

}  // namespace
}  // namespace qkv::hf_test
