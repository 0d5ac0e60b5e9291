#include "tests/fuzz/shape_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "qkv/base/file.h"
#include "qkv/data/dataset.h"
#include "qkv/infer/beam.h"
#include "qkv/infer/mtp_drafter.h"
#include "qkv/infer/translate.h"
#include "qkv/io/clip_dir.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/ops/elementwise.h"
#include "qkv/optim/training_state.h"
#include "tests/fuzz/shape_forward.h"
#include "tests/fuzz/shape_mutations.h"

namespace qkv::testing {
namespace {

// Two ways to compute the same numbers may differ by this share of the largest.
constexpr float kTolerance = 5e-3F;
constexpr int64_t kMutations = 4;  // mutations of each model's config.json

// Adds noise to vectors, so that no norm, bias or gate is neutral. Sets rows that the files lack to 0.
void shake(Transformer& model, Draw& d) {
  for (Parameter& p : model.parameters().all()) {
    if (!p.learned || p.kind == ParameterKind::matrix) continue;
    float* to = p.value.mutable_data<float>();
    for (int64_t i = 0; i < p.value.count(); ++i) to[i] += static_cast<float>(0.1 * d.normal());
  }
  const ModelSpec& spec = model.spec();
  for (const WeightName& w : weights_of(family_for(spec), spec)) {
    if (!w.file.empty()) continue;
    Tensor& value = model.parameters().find(w.engine)->value;
    const int64_t width = value.count() / value.dim(0), rows = w.rows > 0 ? w.rows : value.dim(0);
    std::fill_n(value.mutable_data<float>() + w.first_row * width, rows * width, 0.0F);
  }
}

std::unique_ptr<Transformer> drawn(const ModelSpec& spec, Draw& d) {
  auto model = std::make_unique<Transformer>(spec);
  model->parameters().draw(static_cast<uint64_t>(d.between(0, 1 << 30)), DType::f32);
  shake(*model, d);
  return model;
}

// `trained`: compares the masters of the first model.
void expect_same_weights(const Transformer& a, const Transformer& b, bool trained = false) {
  const auto &of_a = a.parameters().all(), &of_b = b.parameters().all();
  check(of_a.size() == of_b.size(), "save and load: {} parameters became {}", of_a.size(), of_b.size());
  for (size_t i = 0; i < of_a.size(); ++i) {
    const Tensor &x = trained && of_a[i].master.defined() ? of_a[i].master : of_a[i].value,
                 &y = of_b[i].value;
    check(of_a[i].name == of_b[i].name, "save and load: {} became {}", of_a[i].name, of_b[i].name);
    check(x.shape() == y.shape(), "save and load: {}: {} became {}", of_a[i].name, x.shape(), y.shape());
    check(x.bytes() == y.bytes() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0,
          "save and load: {}: other numbers", of_a[i].name);
  }
}

// The spec as its files express it, without fields that only new weights and training need.
ModelSpec as_saved(ModelSpec s) {
  s.init_std = 0;
  s.family.clear();
  s.head_dropout = 0;
  s.experts.choice_rate = 0;
  s.mtp.weight = 0;
  if (s.positions != Positions::rotary) s.attention.rotary = {};
  if (s.positions != Positions::relative) s.relative_buckets = 0;
  if (s.positions != Positions::relative && s.positions != Positions::toeplitz) s.relative_distance = 0;
  if (s.output == Output::tokens && s.labels.empty()) s.pooling = Pooling::first;
  if (!s.recurrence.any()) s.recurrence = {};
  return s;
}

// Saves, loads and saves again.
std::unique_ptr<Transformer> saved_and_loaded(const Transformer& model, const SpecialIds& ids,
                                              const std::string& dir, bool trained) {
  std::filesystem::create_directories(dir + "/again");
  save_model(dir, model, ids);
  auto loaded = load_model(dir, DType::f32);
  check(as_saved(loaded->spec()) == as_saved(model.spec()), "save and load: the spec became {}",
        description_of(loaded->spec()));
  expect_same_weights(model, *loaded, trained);
  save_model(dir + "/again", *loaded, ids);
  for (const char* name : {"/config.json", "/model.safetensors"})
    check(read_file(dir + name) == read_file(dir + "/again" + name),
          "save and load: {} differs the second time", name);
  return loaded;
}

// The outputs of a run. Each expect() removes one.
class Outputs {
 public:
  explicit Outputs(const std::string& path) : file_(read_safetensors(path)) {
    for (const auto& [name, x] : file_.tensors)
      if (x.dtype() == DType::f32)
        for (const float v : x.values<float>()) check(std::isfinite(v), "forward: {} is not finite", name);
  }
  bool has(const std::string& name) const { return file_.tensors.contains(name); }
  const Tensor& at(const std::string& name) const {
    check(has(name), "forward: there is no {}", name);
    return file_.tensors.at(name);
  }
  const Tensor& expect(const std::string& name, const Shape& shape) const {
    const Tensor& x = at(name);
    check(x.shape() == shape, "forward: {}: expected {}, got {}", name, shape, x.shape());
    return x;
  }

 private:
  TensorFile file_;
};

void expect_close(const std::string& what, std::span<const float> a, std::span<const float> b) {
  check(a.size() == b.size(), "{}: {} numbers against {}", what, a.size(), b.size());
  float most = 1;
  for (const float v : a) most = std::max(most, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i)
    check(std::abs(a[i] - b[i]) <= kTolerance * most, "{}: {} against {} at {}", what, a[i], b[i], i);
}

// Checks the shape of attention and, without chunks and bands (`special`), its probabilities. With `sums`
// those of each real query sum to 1.
void expect_attention(const Outputs& out, const std::string& name, const AttentionSpec& a,
                      const Padded& queries, const Padded& keys, bool special, bool sums) {
  const Tensor& x = out.at(name);
  check(x.shape().rank() >= 4 && x.dim(0) == queries.rows && x.dim(1) == a.heads,
        "forward: {}: expected [{}, {}, ...], got {}", name, queries.rows, a.heads, x.shape());
  if (special) return;
  out.expect(name, {queries.rows, a.heads, queries.columns, keys.columns});
  for (int64_t row = 0; row < x.rows(); ++row) {
    const int64_t place = row / (a.heads * queries.columns) * queries.columns + row % queries.columns;
    double sum = 0;
    for (int64_t k = 0; k < keys.columns; ++k) {
      const float p = x.data<float>()[row * keys.columns + k];
      check(p >= 0 && p < 1.001F, "forward: {}: a probability is {}", name, p);
      sum += p;
    }
    const bool real = queries.mask[static_cast<size_t>(place)] != 0;
    check(real ? !sums || std::abs(sum - 1) < 1e-3 : sum == 0, "forward: {}: a {} query's sum to {}", name,
          real ? "real" : "padded", sum);
  }
}

// A state before each block and after the last, each time that the blocks run.
void expect_latents(const Outputs& out, const ModelSpec& s, const Case& c, bool attentions) {
  const LatentSpec& l = s.latents;
  const int64_t rows = c.tokens.rows;
  for (int64_t i = 0; i < l.repeats * (s.layers + 1); ++i)
    out.expect(fmt::format("hidden_states.{}", i), {rows, l.count, l.width});
  for (int64_t i = 0; i < l.repeats * s.layers && attentions; ++i)
    out.expect(fmt::format("attentions.{}", i), {rows, s.attention.heads, l.count, l.count});
  if (attentions) out.expect("cross_attentions.0", {rows, l.in.heads, l.count, c.tokens.columns});
}

void expect_states(const Outputs& out, const ModelSpec& s, const Case& c, bool attentions) {
  if (s.latents.any()) return expect_latents(out, s, c, attentions);
  const bool both = has_both(s);
  const ModelSpec encoder = s.encoder_spec();
  const auto stack = [&](const std::string& prefix, const ModelSpec& of, int64_t layers, const Padded& p) {
    for (int64_t l = 0; l <= layers; ++l) {
      const bool last = l == layers && (!both || prefix == "decoder_");
      const int64_t width = last && s.embedding_width > 0 && s.head_width == 0 && s.output == Output::tokens
                                ? s.embedding_width
                                : of.width;
      out.expect(fmt::format("{}hidden_states.{}", prefix, l), {p.rows, p.columns, width});
    }
    for (int64_t l = 0, next = 0; attentions && l < layers; ++l) {
      if (!of.block(l).mixer.attends()) continue;
      const AttentionSpec& a = of.block(l).attention;
      const bool special = a.global_projections || of.branches == Branches::reversible;
      const bool sums = !a.sinks && a.patterns.empty() && s.order == Order::stack;
      expect_attention(out, fmt::format("{}attentions.{}", prefix, next++), a, p, p, special, sums);
    }
  };
  if (both) stack("encoder_", encoder, s.encoder_layers, c.source);
  stack(both ? "decoder_" : "", s, s.layers, c.tokens);
  for (int64_t l = 0; both && attentions && l < s.layers; ++l) {
    const AttentionSpec& a = s.block(l).attention;
    if (a.cross_linear) continue;
    expect_attention(out, fmt::format("cross_attentions.{}", l), a, c.tokens, c.source, false, !a.sinks);
  }
}

// The numbers of real tokens in a padded output [B, T, ...].
std::vector<float> real_part(const Tensor& x, const Padded& p) {
  const int64_t width = x.count() / (p.rows * p.columns);
  std::vector<float> out;
  for (const int64_t place : p.places)
    out.insert(out.end(), x.data<float>() + place * width, x.data<float>() + (place + 1) * width);
  return out;
}

// The tokens among all positions of the context, which latents have outputs of.
Padded in_context(const Padded& p, int64_t context) {
  Padded out = p;
  out.columns = context;
  out.places.clear();
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t i = 0; i < p.lengths[static_cast<size_t>(r)]; ++i) out.places.push_back(r * context + i);
  return out;
}

// The library's output: logits, scores of classes, or vectors.
Tensor output_of(const Transformer& model, const ModelInput& input) {
  const NoGrad guard;
  const Tensor hidden = model.hidden(input, {});
  switch (model.spec().output) {
    case Output::tokens:
      return model.logits(hidden);
    case Output::embedding:
      return convert(model.pooled(hidden, input), DType::f32);
    default:
      return model.classes(hidden, input, {});
  }
}

void expect_outputs(const Outputs& out, const Transformer& model, const Case& c) {
  const ModelSpec& s = model.spec();
  const Padded p = s.latents.any() && s.output == Output::tokens ? in_context(c.tokens, s.context) : c.tokens;
  const Tensor flat = output_of(model, c.input);
  const Shape whole = {p.rows, p.columns, flat.width()}, column = {p.rows, p.columns};
  const auto compare = [&](const std::string& name, const Shape& shape, std::span<const float> wanted) {
    expect_close("forward: " + name, real_part(out.expect(name, shape), p), wanted);
  };
  std::vector<float> columns[2];
  for (int64_t i = 0; i < flat.count(); ++i) columns[i % flat.width() % 2].push_back(flat.data<float>()[i]);
  switch (s.output) {
    case Output::tokens:
      compare(s.labels.empty() ? "logits" : "prediction_logits", whole, flat.values<float>());
      if (!s.labels.empty()) out.expect("seq_relationship_logits", {p.rows, s.classes()});
      break;
    case Output::sequence_classes: {
      const int64_t questions = std::ssize(c.input.choices) - 1;
      const Shape shape = questions > 0 ? Shape{questions, p.rows / questions} : Shape{p.rows, s.classes()};
      expect_close("forward: logits", out.expect("logits", shape).values<float>(), flat.values<float>());
    } break;
    case Output::token_classes:
      compare("logits", s.classes() == 1 ? column : whole, flat.values<float>());
      break;
    case Output::span:
      compare("start_logits", column, columns[0]);
      compare("end_logits", column, columns[1]);
      break;
    case Output::embedding:
      out.expect("last_hidden_state", {p.rows, p.columns, s.output_width()});
      expect_close("forward: pooler_output",
                   out.expect("pooler_output", {p.rows, s.pooled_width()}).values<float>(),
                   flat.values<float>());
  }
}

int64_t target_count(const ModelSpec& s, const Indices& targets) {
  if (s.output == Output::span) return targets.rows();
  return std::ranges::count_if(targets.values(), [](int32_t t) { return t != kIgnored; });
}

void check_forward(const Transformer& model, const Case& c, const std::string& dir, Draw& d) {
  const ModelSpec& s = model.spec();
  if (s.order != Order::stack) return;
  const bool attentions = !s.recurrence.any() && s.any_attends(), labelled = c.targets.defined();
  std::vector<std::string> words = {"--hidden-states"};
  if (attentions) words.emplace_back("--attentions");
  if (labelled) words.emplace_back("--gradients");
  run_forward(dir, c.file, words);
  const Outputs out(dir + "/out.safetensors");
  expect_outputs(out, model, c);
  expect_states(out, s, c, attentions);
  if (labelled) {
    const float loss = out.expect("loss", {1}).item();
    const CrossEntropyResult r =
        model.loss(c.input, c.targets, {}, 1 / static_cast<float>(target_count(s, c.targets)));
    const float other = r.loss.item();
    expect_close("forward: loss", {&loss, 1}, {&other, 1});
    for (const auto& [name, x] : named_tensors(model, [](const Parameter& p) { return p.value; }))
      if (!name.starts_with("rotations.")) out.expect("grad." + name, x.shape());
  }
  if (d.chance(0.3)) {
    words.insert(words.end(), {"--dtype", "bf16"});
    run_forward(dir, c.file, words);
    const Outputs rounded(dir + "/out.safetensors");
    expect_states(rounded, s, c, attentions);
  }
}

// A row of only padding gives an error that says so, or numbers.
void check_empty_row(const ModelSpec& s, const Case& c, const std::string& dir) {
  if (s.order != Order::stack || of_images(s)) return;
  Case empty = c;
  for (auto& [name, x] : empty.file)
    if (name.ends_with("attention_mask")) {
      std::vector<int64_t> mask(x.values<int64_t>().begin(), x.values<int64_t>().end());
      std::fill_n(mask.begin(), x.dim(x.shape().rank() - 1), 0);
      x = Tensor::of(x.shape(), mask);
    }
  std::erase_if(empty.file, [](const auto& named) {
    return named.first == "labels" || named.first.ends_with("_positions");
  });
  std::vector<std::string> words = {"--hidden-states"};
  if (!s.recurrence.any() && s.any_attends()) words.emplace_back("--attentions");
  try {
    run_forward(dir, empty.file, words);
  } catch (const Error&) {
    return;
  }
  const Outputs finite(dir + "/out.safetensors");
}

// True if a token's output depends on the length of its sequence, or of the longest in the batch.
bool is_by_length(const ModelSpec& s) {
  return std::ranges::any_of(s.blocks_in_use(), [](const BlockSpec* block) {
    const RotaryScaling scaling = block->attention.rotary.scaling;
    return scaling == RotaryScaling::dynamic || scaling == RotaryScaling::longrope;
  });
}

// True if changes in the last digits of the weights change the output, as in a norm of two numbers, which
// is a step. Results of another order of computation cannot be compared then.
bool is_ill_conditioned(const Transformer& model, const Case& c) {
  const Tensor before = output_of(model, c.input);
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (const auto& [name, x] : named_tensors(model, [](const Parameter& p) { return p.value; }))
    kept.emplace_back(x, x.clone());
  for (auto& [x, copy] : kept)
    for (size_t i = 0; float& v : x.mutable_values<float>()) v *= 1 + (i++ % 2 == 0 ? 1e-6F : -1e-6F);
  const Tensor after = output_of(model, c.input);
  for (auto& [x, copy] : kept) std::ranges::copy(copy.values<float>(), x.mutable_values<float>().begin());
  float change = 0, most = 1;
  for (size_t i = 0; const float v : after.values<float>()) {
    change = std::max(change, std::abs(v - before.values<float>()[i++]));
    most = std::max(most, std::abs(v));
  }
  return change > kTolerance * most / 4;
}

// Each sequence alone gives the same as in the batch.
void check_alone(const Transformer& model, const Case& c) {
  const ModelSpec& s = model.spec();
  const bool has_blocks = std::ranges::any_of(s.blocks_in_use(), [&](const BlockSpec* block) {
    const AttentionSpec& a = block->attention;
    return a.ring.chunk > 0 || (a.hashing.chunk > 0 && !s.causal()) ||
           std::ranges::any_of(a.patterns, [](const Pattern& p) { return p.block > 0; });
  });
  if (is_by_length(s) || has_blocks || s.features.any()) return;  // blocks come from padded sequences
  const Tensor all = output_of(model, c.input);
  const auto& offsets = c.input.layout.offsets;
  const auto part = [](const Indices& x, int64_t begin, int64_t end) {
    const auto values = x.values();
    return x.defined() ? Indices(std::vector<int32_t>(values.begin() + begin, values.begin() + end))
                       : Indices();
  };
  for (int64_t r = 0, first_pair = 0; r < c.tokens.rows; ++r) {
    const int64_t begin = offsets[static_cast<size_t>(r)], end = offsets[static_cast<size_t>(r) + 1];
    ModelInput one;
    one.ids = part(c.input.ids, begin, end);
    one.layout = Layout::of({static_cast<int32_t>(end - begin)});
    one.segments = part(c.input.segments, begin, end);
    one.globals = part(c.input.globals, begin, end);
    one.visibility = {part(c.input.visibility.query, begin, end), part(c.input.visibility.key, begin, end)};
    const int64_t pairs = (end - begin) * (end - begin);
    one.visibility.table = part(c.input.visibility.table, first_pair, first_pair + pairs);
    first_pair += pairs;
    if (has_both(s)) {
      const auto& of_source = c.input.source_layout.offsets;
      const int64_t first = of_source[static_cast<size_t>(r)], last = of_source[static_cast<size_t>(r) + 1];
      one.source = part(c.input.source, first, last);
      one.source_layout = Layout::of({static_cast<int32_t>(last - first)});
    }
    const Tensor alone = output_of(model, one);
    const bool of_sequence = s.output == Output::sequence_classes || s.output == Output::embedding;
    const Tensor wanted = of_sequence ? all.slice_rows(r, r + 1) : all.slice_rows(begin, end);
    expect_close(fmt::format("row {} alone", r), alone.values<float>(), wanted.values<float>());
  }
}

Batch batch_of(const ModelSpec& s, const Case& c, Draw& d) {
  Batch b;
  static_cast<ModelInput&>(b) = c.input;
  b.targets = c.targets;
  b.target_count = s.output == Output::embedding ? c.tokens.rows / 2 : target_count(s, c.targets);
  if (s.output == Output::tokens && !s.labels.empty() && d.chance(0.7)) {
    Tokens classes;
    for (int64_t r = 0; r < c.tokens.rows; ++r)
      classes.push_back(static_cast<int32_t>(d.between(0, s.classes() - 1)));
    b.sequence_targets = std::move(classes);
  }
  return b;
}

// Windows of a random text, read in turn by a model with memory.
std::vector<Batch> windows_of(const ModelSpec& s, Draw& d) {
  TokenStream stream;
  for (int64_t i = d.between(1, 3); i > 0; --i) {
    Tokens document;
    for (int64_t t = d.between(12, 40); t > 0; --t)
      document.push_back(static_cast<int32_t>(d.between(0, s.vocab_size - 1)));
    stream.append(document);
  }
  const int64_t streams = d.between(1, 2);
  const StreamWindows windows(stream, d.between(1, std::min<int64_t>(s.context, 5)), streams);
  std::vector<Batch> out;
  for (int64_t step = 0; step < std::min<int64_t>(3, windows.steps()); ++step)
    out.push_back(windows.batch(step, 0, streams));
  return out;
}

// Some steps: the gradient is the same with kept and with recomputed activations.
std::unique_ptr<Transformer> check_training(const std::string& dir, const Case& c, Draw& d) {
  const ModelSpec s = load_spec(dir);
  std::vector<Batch> batches;
  if (s.memory > 0)
    batches = windows_of(s, d);
  else if (c.targets.defined() || (s.output == Output::embedding && !s.features.any()))
    batches = {batch_of(s, c, d)};
  if (batches.empty()) return nullptr;
  std::erase_if(batches, [](const Batch& b) { return b.target_count == 0; });
  StepConfig config;
  config.optimizer.name = d.of(optimizer_names());
  config.schedule.learning_rate = 1e-3;
  const DType compute = d.chance(0.2) ? DType::bf16 : DType::f32;
  const auto seed = static_cast<uint64_t>(d.between(0, 1000));
  double norms[2] = {0, 0};
  std::unique_ptr<TrainingState> training;
  for (const bool again : {true, false}) {
    training = std::make_unique<TrainingState>(
        load_model(dir, DType::f32), config,
        TrainingOptions{.compute = compute, .seed = seed, .recompute = again});
    for (size_t i = 0; i < batches.size(); ++i) {
      const StepResult r = training->step({batches[i]}, static_cast<int64_t>(i) + 1, 4);
      check(std::isfinite(r.loss) && std::isfinite(r.gradient_norm), "training: loss {}, gradient {}", r.loss,
            r.gradient_norm);
      if (i == 0) norms[again] = r.gradient_norm;
    }
  }
  training->expect_finite(1);
  // Gradients are added in another order, and then rounded.
  const double allowed = compute == DType::bf16 ? 1e-2 : 1e-4;
  check(std::abs(norms[0] - norms[1]) <= allowed * (1 + norms[0]),
        "training in {}: the gradient is {} long, with recomputing {}", name_of(compute), norms[0], norms[1]);
  const std::string trained = dir + "/trained";
  std::filesystem::create_directories(trained);
  return saved_and_loaded(training->model(), {}, trained, true);
}

Sources sources_of(const ModelSpec& s, const Case& c) {
  Sources sources;
  if (!has_both(s)) return sources;
  size_t at = 0;
  for (const int32_t n : c.source.lengths) {
    sources.ids.emplace_back(c.source.flat.begin() + static_cast<int64_t>(at),
                             c.source.flat.begin() + static_cast<int64_t>(at) + n);
    at += static_cast<size_t>(n);
  }
  sources.features = c.input.features;
  return sources;
}

std::vector<Tokens> prompts_of(const Case& c) {
  std::vector<Tokens> out;
  size_t at = 0;
  for (const int32_t n : c.tokens.lengths) {
    out.emplace_back(c.tokens.flat.begin() + static_cast<int64_t>(at),
                     c.tokens.flat.begin() + static_cast<int64_t>(at) + n);
    at += static_cast<size_t>(n);
  }
  return out;
}

// A sequence fed in pieces through a memory gives the same logits as the whole.
void check_cache(const Transformer& model, const Case& c, Draw& d) {
  const ModelSpec& s = model.spec();
  if (is_by_length(s)) return;
  const NoGrad guard;
  const std::vector<Tokens> all = prompts_of(c);
  // Memory does not see a padded batch.
  ModelInput input = c.input;
  input.layout.padded_length = 0;
  if (has_both(s)) input.source_layout.padded_length = 0;
  Tokens prefixes;
  for (const Tokens& t : all) prefixes.push_back(static_cast<int32_t>(d.between(1, std::ssize(t))));
  const bool prefix = s.order == Order::prefix;
  input.visibility = prefix ? prefix_ranks(input.layout, prefixes) : Visibility();
  const Tensor whole = model.logits(model.hidden(input, {}));
  const Sources sources = sources_of(s, c);
  for (size_t r = 0; r < all.size(); ++r) {
    Sources one;
    if (has_both(s)) one.ids = {sources.ids[r]};
    if (of_frames(s)) {
      const int64_t rows = 2 * c.source.columns;
      one.features =
          sources.features.slice_rows(static_cast<int64_t>(r) * rows, static_cast<int64_t>(r + 1) * rows);
    }
    DecodeState state = has_both(s) ? DecodeState(model, one) : DecodeState(model, 1);
    for (size_t at = 0; at < all[r].size();) {
      const size_t least = prefix && at == 0 ? static_cast<size_t>(prefixes[r]) : 1,
                   n = std::min<size_t>(all[r].size() - at, least + static_cast<size_t>(d.between(0, 2)));
      const Tokens piece(all[r].begin() + static_cast<int64_t>(at),
                         all[r].begin() + static_cast<int64_t>(at + n));
      const std::span<const int32_t> first = std::span(prefixes).subspan(r, 1);
      const Tensor logits =
          state.advance({piece}, {.prefixes = prefix && at == 0 ? first : std::span<const int32_t>()});
      at += n;
      if (s.hashes()) {  // a token's rows depend on those after it
        const Tokens seen(all[r].begin(), all[r].begin() + static_cast<int64_t>(at));
        const Tensor alone = model.logits(model.hidden({seen, Layout::of({static_cast<int32_t>(at)})}, {}));
        expect_close(fmt::format("row {}, {} tokens read again", r, at), logits.values<float>(),
                     alone.row<float>(static_cast<int64_t>(at) - 1));
        continue;
      }
      const int64_t row = input.layout.offsets[r] + static_cast<int64_t>(at) - 1;
      expect_close(fmt::format("row {}, {} tokens remembered", r, at), logits.values<float>(),
                   whole.slice_rows(row, row + 1).values<float>());
    }
  }
}

void expect_tokens(const std::vector<Tokens>& outputs, int64_t most, int64_t vocab) {
  for (const Tokens& t : outputs) {
    check(std::ssize(t) <= most, "generate: {} tokens, at most {} were asked for", t.size(), most);
    for (const int32_t id : t) check(id >= 0 && id < vocab, "generate: token {} of {}", id, vocab);
  }
}

void check_generation(const Transformer& model, const Case& c, const SpecialIds& ids, const std::string& dir,
                      Draw& d) {
  const ModelSpec& s = model.spec();
  const Sources sources = sources_of(s, c);
  std::vector<Tokens> prompts = prompts_of(c);
  for (Tokens& t : prompts)  // room for the output if the context does not slide
    if (std::ssize(t) >= s.longest()) t.resize(static_cast<size_t>(std::max<int64_t>(1, s.longest() - 2)));
  if (s.order == Order::prefix && s.longest() < 2) return;
  GenerateOptions o;
  o.max_new_tokens = d.between(1, 5);
  o.eos.assign(ids.eos.begin(), ids.eos.end());
  o.sampler.temperature = 0;
  const auto greedy = generate(model, prompts, o, nullptr, sources);
  expect_tokens(greedy, o.max_new_tokens, s.vocab_size);
  if (model.mtp() != nullptr) {
    MtpDrafter modules(model);
    Engine engine(model, {.drafter = &modules});
    check(generate(engine, prompts, o, nullptr, sources) == greedy,
          "generate: drafts by its own modules changed the tokens");
  }
  o.sampler = {
      .temperature = 0.8, .top_k = d.between(0, s.vocab_size + 1), .top_p = 0.9, .repetition_penalty = 1.2};
  size_t longest = 0;
  for (const Tokens& t : prompts) longest = std::max(longest, t.size());
  if (s.vocab_size > static_cast<int64_t>(longest) + 8)  // at least one token is left
    o.rules.no_repeat_ngram = d.between(0, 2);
  expect_tokens(generate(model, prompts, o, nullptr, sources), o.max_new_tokens, s.vocab_size);
  BeamOptions beam;
  beam.beams = d.between(1, 4);
  beam.max_new_tokens = o.max_new_tokens;
  beam.eos = o.eos;
  if (has_both(s) || s.longest() > s.context || std::ranges::all_of(prompts, [&](const Tokens& t) {
        return std::ssize(t) + o.max_new_tokens <= s.longest();
      }))
    for (const auto& best : beam_search(model, prompts, beam, sources)) {
      check(!best.empty(), "beam search: there is no output");
      for (const Hypothesis& h : best) {
        expect_tokens({h.tokens}, beam.max_new_tokens, s.vocab_size);
        check(std::isfinite(h.score), "beam search: a score is {}", h.score);
      }
    }
  if (s.order != Order::stack) return;
  const Named in = inputs_of_generation(c);
  for (const char* rest : {"", ",num_beams=3", ",do_sample=true,top_k=3"}) {
    const std::string start = fmt::format(",decoder_start_token_id={}", d.between(0, s.vocab_size - 1));
    run_forward(dir, in, {"--generate", fmt::format("max_new_tokens=3{}{}", has_both(s) ? start : "", rest)});
    const Outputs out(dir + "/out.safetensors");
    check(out.at("sequences").dim(0) == c.tokens.rows, "forward: sequences: {}", out.at("sequences").shape());
  }
}

// A tokenizer whose words are the numbers of the vocabulary.
text::Tokenizer tokenizer_of(int64_t vocab) {
  std::string words;
  for (int64_t i = 0; i < vocab; ++i)
    words += fmt::format(R"({}"{}": {})", i == 0 ? "" : ", ", i == 0 ? "<unk>" : fmt::format("w{}", i), i);
  return text::Tokenizer::from_json(
      R"({"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "WordLevel", "vocab": {)" + words +
      R"(}, "unk_token": "<unk>"}})");
}

std::string text_of(int64_t words, int64_t vocab, Draw& d) {
  std::string out;
  for (int64_t i = 0; i < words; ++i) out += fmt::format("w{} ", d.between(1, vocab));
  return out;
}

// The path of qkv translate: texts of no words, of a few and of more than the model reads.
void check_translation(const Transformer& model, Draw& d) {
  const ModelSpec& s = model.spec();
  if (of_frames(s) || s.longest() < 2 || (!has_both(s) && s.order != Order::prefix)) return;
  const auto id = [&] { return static_cast<int32_t>(d.between(0, s.vocab_size - 1)); };
  const auto of_source = static_cast<int32_t>(d.between(0, s.input_vocab_size() - 1));
  SequenceEnds ends{.bos = id(), .eos = id(), .source_begin = {}, .source_end = {of_source}};
  text::Tokenizer tokenizer = tokenizer_of(s.vocab_size);
  if (s.source_vocab_size > 0) tokenizer = tokenizer.with_sources(tokenizer_of(s.source_vocab_size));
  if (!has_both(s) && s.context < 4) return;
  std::vector<std::string> texts;
  for (const int64_t words : {int64_t{0}, d.between(1, 4), d.between(1, 30)})
    texts.push_back(text_of(words, s.input_vocab_size(), d));
  BeamOptions beam;
  beam.beams = d.between(1, 3);
  beam.max_new_tokens = 4;
  beam.patience = d.of<double>({0.5, 1, 2});
  beam.rules.min_new_tokens = d.between(0, 2);
  if (d.chance(0.3)) beam.rules.suppressed = {{id()}, {id(), id()}};
  // An end that comes too early and suppressed tokens could leave so small a vocabulary nothing to write.
  constexpr int64_t kMostExcluded = 4;
  if (s.vocab_size <= kMostExcluded) beam.rules = {};
  const bool looks =
      has_both(s) && s.recurrence.decoder == Cell::none && !s.block(s.layers - 1).attention.cross_linear;
  beam.attention = looks && d.chance(0.5);
  if (looks && d.chance(0.3)) beam.coverage_penalty = 0.5;
  TranslateOptions options{.batch_tokens = d.of<int64_t>({1, 20, 2048})};
  options.longest_source = d.between(0, 3);
  options.replace_unknowns = looks && d.chance(0.3);
  if (s.context > 8 && (has_both(s) || s.context > 16)) {
    // A decoder reads its source and the beginning in one context.
    const bool room = has_both(s) || options.longest_source > 0;
    if (d.chance(0.3) && room) options.begin = {text_of(1, s.vocab_size, d), "", text_of(5, s.vocab_size, d)};
    if (d.chance(0.3)) beam.prefix_bias = 0.5;
    if (d.chance(0.3)) beam.alternatives = d.between(1, 4);
  }
  const Translations t = translate({model, tokenizer, ends}, texts, beam, options);
  for (size_t i = 0; i < t.best.size(); ++i)
    for (const Translation& found : t.best[i])
      for (const std::vector<float>& row : found.attention)
        check(row.size() == t.source_tokens[i].size() && found.attention.size() == found.tokens.size(),
              "translate: an attention of {} by {} for {} tokens of {}", found.attention.size(), row.size(),
              found.tokens.size(), t.source_tokens[i].size());
  beam.attention = false;
  beam.coverage_penalty = 0;
  check(t.best.size() == texts.size(), "translate: {} of {} sources", t.best.size(), texts.size());
  const Drawing drawing{.sampler = {.temperature = 1}, .seed = 3, .samples = d.between(1, 3)};
  translate({model, tokenizer, ends}, texts, beam, {.drawing = drawing});
}

// True if there is something to write: Marian's only token would be its padding, which it never writes.
bool writes(const ModelSpec& s) {
  return s.vocab_size > 1 && s.architecture != Architecture::encoder && s.output == Output::tokens;
}

}  // namespace

void check_shape(const ModelSpec& spec, const SpecialIds& ids, Draw& d, const std::string& dir) {
  const auto original = drawn(spec, d);
  const auto model = saved_and_loaded(*original, ids, dir, false);
  const Case c = draw_case(model->spec(), d);
  check_forward(*model, c, dir, d);
  if (d.chance(0.2)) check_empty_row(spec, c, dir);
  const bool comparable = !is_ill_conditioned(*original, c);
  if (comparable) check_alone(*model, c);
  const auto trained = check_training(dir, c, d);
  if (writes(spec)) {
    if (comparable) check_cache(trained ? *trained : *model, c, d);
    check_generation(*model, c, ids, dir, d);
    check_translation(*model, d);
  }
  check_mutations(dir, kMutations, d, [&] { run_model(dir, d); });
}

void check_clip(const ModelSpec& text, const ModelSpec& vision, Draw& d, const std::string& dir) {
  ClipModel clip;
  clip.text = drawn(text, d);
  clip.vision = drawn(vision, d);
  const int64_t projection = d.between(1, 9);
  clip.text_projection = random_tensor({projection, text.width}, d);
  clip.visual_projection = random_tensor({projection, vision.width}, d);
  clip.log_scale = 0.5F;
  clip.end = static_cast<int32_t>(d.between(0, text.vocab_size));
  save_clip(dir, clip);
  const ClipModel loaded = load_clip(dir, DType::f32);
  expect_same_weights(*clip.text, *loaded.text);
  expect_same_weights(*clip.vision, *loaded.vision);
  Case of_text, of_vision;
  of_text.tokens = draw_padded(d.between(1, 3), draw_columns(text.longest(), d), text.vocab_size, d);
  add_texts("input_ids", "attention_mask", of_text.tokens, of_text);
  add_images(vision, d.between(1, 3), d, of_vision);
  Named in = of_text.file;
  in.insert(in.end(), of_vision.file.begin(), of_vision.file.end());
  run_forward(dir, in, {"--hidden-states", "--attentions"});
  const Outputs out(dir + "/out.safetensors");
  const int64_t texts = of_text.tokens.rows, images = of_vision.tokens.rows;
  out.expect("logits_per_text", {texts, images});
  out.expect("logits_per_image", {images, texts});
  out.expect("text_embeds", {texts, projection});
  out.expect("image_embeds", {images, projection});
  const auto tower = [&](const std::string& prefix, const ModelSpec& s, const Padded& p) {
    for (int64_t l = 0; l <= s.layers; ++l)
      out.expect(fmt::format("{}hidden_states.{}", prefix, l), {p.rows, p.columns, s.width});
    for (int64_t l = 0; l < s.layers; ++l)
      expect_attention(out, fmt::format("{}attentions.{}", prefix, l), s.attention, p, p, false, true);
  };
  tower("text_model_output.", text, of_text.tokens);
  tower("vision_model_output.", vision, of_vision.tokens);
  check_mutations(dir, kMutations, d, [&] { run_forward(dir, in, {"--hidden-states", "--attentions"}); });
}

}  // namespace qkv::testing
