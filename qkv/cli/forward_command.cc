// qkv forward: exact, machine-readable scoring. Tensors in, tensors out, under the Hugging Face names.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "qkv/cli/command.h"
#include "qkv/cli/padded_batch.h"
#include "qkv/infer/beam.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/parts.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, inputs, outputs, generate, dtype = "f32";
  bool hidden_states = false, attentions = false, gradients = false;
};

// What one call is given: the tokens of the model's stack, and of its encoder where there are two.
struct Inputs {
  PaddedBatch tokens, source;
  ModelInput input;
};

void expect_known(const Safetensors& in, const ModelSpec& spec, const std::string& path) {
  const bool image = spec.features.kind == FeatureSpec::Kind::patches;
  const bool frames = spec.features.kind == FeatureSpec::Kind::frames;
  const std::string what = image ? "pixel_values" : frames ? "input_features" : "input_ids";
  std::set<std::string> known = {what, "labels"};
  if (!image && !frames) known.insert("attention_mask");
  if (spec.architecture == Architecture::encoder && !image) known.insert("token_type_ids");
  if (!spec.attention.patterns.empty() && spec.architecture == Architecture::encoder)
    known.insert("global_attention_mask");
  if (spec.output == Output::span) known.insert({"start_positions", "end_positions"});
  if (spec.architecture == Architecture::encoder_decoder)
    known.insert({"decoder_input_ids", "decoder_attention_mask"});
  check(in.tensors.contains(what), "{}: {}: missing", path, what);
  for (const auto& [name, tensor] : in.tensors)
    check(known.contains(name), "{}: {}: a model whose architecture is {} has no such input (it has {})",
          path, name, name_of(spec.architecture), fmt::join(known, ", "));
}

// Labels moved one to the right behind the token that decoding starts with; -100 becomes the padding.
PaddedBatch shifted_right(const Safetensors& in, const std::string& path, const ModelSpec& spec,
                          const SpecialIds& ids) {
  const std::vector<int64_t> labels = integers(in, "labels", path);
  const Shape shape = in.tensors.at("labels").shape();
  check(shape.rank() == 2, "{}: labels: expected [batch, length], got {}", path, shape.text());
  const int64_t start = ids.decoder_start >= 0 ? ids.decoder_start : ids.bos;
  check(start >= 0 && start < spec.vocab_size,
        "{}: decoder_input_ids: missing, and config.json names no token "
        "that decoding starts with",
        path);
  const int64_t pad = std::max<int64_t>(ids.pad, 0);
  std::vector<int64_t> inputs(labels.size(), start);
  for (int64_t i = 0; i < std::ssize(labels); ++i)
    if (i % shape[1] > 0) inputs[i] = labels[i - 1] == kIgnored ? pad : labels[i - 1];
  Safetensors made;
  made.tensors.emplace("decoder_input_ids", Tensor::of(shape, inputs));
  return read_padded(made, path, "decoder_input_ids", "", spec.vocab_size, spec.longest());
}

// Images [B, channels, size, size], each the model's tokens and then its patches.
Inputs read_images(const Safetensors& in, const std::string& path, const ModelSpec& spec) {
  const FeatureSpec& f = spec.features;
  const Tensor& pixels = in.tensors.at("pixel_values");
  check(pixels.shape().rank() == 4 && pixels.dim(1) == f.channels && pixels.dim(2) == f.image &&
            pixels.dim(3) == f.image && pixels.dtype() == DType::f32,
        "{}: pixel_values: expected F32 [batch, {}, {}, {}], got {} {}", path, f.channels, f.image, f.image,
        name_of(pixels.dtype()), pixels.shape().text());
  Inputs out;
  PaddedBatch& b = out.tokens;
  b.rows = pixels.dim(0);
  b.columns = spec.context;
  std::vector<Tensor> patches;
  for (int64_t r = 0; r < b.rows; ++r) {
    patches.push_back(cut_patches(pixels.data<float>() + r * f.channels * f.image * f.image, f));
    for (int64_t t = 0; t < b.columns; ++t) {
      b.ids.push_back(t < spec.vocab_size ? static_cast<int32_t>(t) : kFeature);
      b.places.push_back(r * b.columns + t);
    }
    b.lengths.push_back(static_cast<int32_t>(b.columns));
  }
  check(b.rows > 0, "{}: pixel_values: there is no image", path);
  out.input.features = join_rows(patches);
  out.input.ids = b.tensor();
  out.input.layout = b.layout();
  return out;
}

// Spectrograms [B, channels, frames]: places of the source, two frames each, and their rows.
PaddedBatch read_frames(const Safetensors& in, const std::string& path, const ModelSpec& spec,
                        Tensor& features) {
  const Tensor& x = in.tensors.at("input_features");
  const int64_t channels = spec.features.channels, longest = spec.encoder_spec().longest();
  check(x.shape().rank() == 3 && x.dim(0) > 0 && x.dim(1) == channels && x.dim(2) > 0 && x.dim(2) % 2 == 0 &&
            x.dim(2) <= 2 * longest && x.dtype() == DType::f32,
        "{}: input_features: expected F32 [batch, {}, an even number up to {}], got {} {}", path, channels,
        2 * longest, name_of(x.dtype()), x.shape().text());
  PaddedBatch b;
  b.rows = x.dim(0);
  b.columns = x.dim(2) / 2;
  b.lengths.assign(static_cast<size_t>(b.rows), static_cast<int32_t>(b.columns));
  b.ids.assign(static_cast<size_t>(b.rows * b.columns), kFeature);
  for (int64_t i = 0; i < b.rows * b.columns; ++i) b.places.push_back(i);
  features = Tensor::empty({b.rows * x.dim(2), channels}, DType::f32);
  float* to = features.mutable_data<float>();
  for (int64_t r = 0; r < b.rows; ++r)
    for (int64_t t = 0; t < x.dim(2); ++t)
      for (int64_t c = 0; c < channels; ++c) *to++ = x.data<float>()[(r * channels + c) * x.dim(2) + t];
  return b;
}

Inputs read_inputs(const Safetensors& in, const std::string& path, const ModelSpec& spec,
                   const SpecialIds& ids) {
  expect_known(in, spec, path);
  check(spec.order == Order::stack, "{}: a model whose order of tokens is {} cannot be told it here", path,
        name_of(spec.order));
  if (spec.features.kind == FeatureSpec::Kind::patches) return read_images(in, path, spec);
  Inputs out;
  const PaddedBatch read = spec.features.any() ? read_frames(in, path, spec, out.input.features)
                                               : read_padded(in, path, "input_ids", "attention_mask",
                                                             spec.input_vocab_size(), spec.longest());
  if (spec.architecture == Architecture::encoder_decoder) {
    out.source = read;
    out.tokens = in.tensors.contains("decoder_input_ids")
                     ? read_padded(in, path, "decoder_input_ids", "decoder_attention_mask", spec.vocab_size,
                                   spec.longest())
                     : shifted_right(in, path, spec, ids);
    check(out.tokens.rows == read.rows, "{}: decoder_input_ids: expected {} rows, got {}", path, read.rows,
          out.tokens.rows);
    out.input.source = read.tensor();
    out.input.source_layout = read.layout();
  } else {
    out.tokens = read;
  }
  out.input.ids = out.tokens.tensor();
  out.input.layout = out.tokens.layout();
  const auto of_tokens = [&](const char* name, Tensor& to) {
    if (!in.tensors.contains(name)) return;
    check(in.tensors.at(name).shape() == Shape{read.rows, read.columns}, "{}: {}: expected [{}, {}]", path,
          name, read.rows, read.columns);
    const std::vector<int64_t> values = read.gather(integers(in, name, path));
    to = Tensor::of({std::ssize(values)}, std::vector<int32_t>(values.begin(), values.end()));
  };
  of_tokens("token_type_ids", out.input.segments);
  of_tokens("global_attention_mask", out.input.globals);
  return out;
}

// Collects the hidden states and attention probabilities, under the names that Hugging Face gives them.
class Collector : public Probe {
 public:
  Collector(const Options& options, const ModelSpec& spec, const Inputs& inputs) : spec_(spec) {
    check(!options.attentions || !spec.recurrence.any(),
          "--attentions: a model with a recurrence has no heads to show");
    const bool both = spec.architecture == Architecture::encoder_decoder;
    const auto add = [&](const std::string& stack, const std::string& prefix, int64_t layers,
                         const PaddedBatch& batch) {
      if (options.hidden_states) add_hidden(stack, prefix, layers, batch);
      if (options.attentions)
        for (int64_t l = 0; l < layers; ++l)
          places_[fmt::format("{}.block.{}.attention.probabilities", stack, l)] = {
              {fmt::format("{}attentions.{}", prefix, l)}, &batch, &batch};
    };
    if (both) add("encoder", "encoder_", spec.encoder_layers, inputs.source);
    add(spec.architecture == Architecture::encoder ? "encoder" : "decoder", both ? "decoder_" : "",
        spec.layers, inputs.tokens);
    if (both && options.attentions)
      for (int64_t l = 0; l < spec.layers; ++l)
        places_[fmt::format("decoder.block.{}.cross_attention.probabilities", l)] = {
            {fmt::format("cross_attentions.{}", l)}, &inputs.tokens, &inputs.source};
    if (!options.attentions || !is_longformer(spec)) return;
    banded_ = true;
    globals_ = global_places(spec, inputs);
    for (int64_t l = 0; l < spec.layers; ++l)
      places_[fmt::format("encoder.block.{}.attention.global.probabilities", l)] = {
          {fmt::format("global_attentions.{}", l)}, &inputs.tokens, &inputs.tokens};
  }
  bool wants(std::string_view name) const override { return places_.contains(std::string(name)); }
  void visit(std::string_view name, Tensor& value) override {
    const Place& place = places_.at(std::string(name));
    for (const std::string& to : place.names) found[to] = place.rows->spread(convert(value, DType::f32));
  }
  void visit_head(std::string_view name, int64_t s, int64_t h, Tensor& p) override {
    const Place& place = places_.at(std::string(name));
    if (banded_) return visit_banded(place, s, h, p);
    const int64_t queries = place.rows->columns, keys = place.keys->columns, heads = spec_.attention.heads;
    Tensor& all = found[place.names[0]];
    if (!all.defined()) all = Tensor::zeros({place.rows->rows, heads, queries, keys}, DType::f32);
    const auto first = [](const PaddedBatch& b, int64_t sequence) {
      int64_t sum = 0;
      for (int64_t i = 0; i < sequence; ++i) sum += b.lengths[i];
      return sum;
    };
    const int64_t first_query = first(*place.rows, s), first_key = first(*place.keys, s);
    for (int64_t i = 0; i < p.dim(0); ++i)
      for (int64_t j = 0; j < p.dim(1); ++j) {
        const int64_t query = place.rows->places[first_query + i] % queries,
                      key = place.keys->places[first_key + j] % keys;
        all.mutable_data<float>()[((s * heads + h) * queries + query) * keys + key] =
            p.data<float>()[i * p.dim(1) + j];
      }
  }
  std::map<std::string, Tensor> found;

 private:
  // Under which names a value goes out, and whose rows and columns it has.
  struct Place {
    std::vector<std::string> names;
    const PaddedBatch* rows;
    const PaddedBatch* keys;
  };

  // Whether all layers have a window and the same global tokens beside it, with projections of their own.
  static bool is_longformer(const ModelSpec& spec) {
    const std::vector<Pattern>& patterns = spec.attention.patterns;
    return spec.attention.global_projections && std::ranges::all_of(patterns, [&](const Pattern& p) {
             return p.window > 0 && p == Pattern{.window = p.window, .global = patterns[0].global};
           });
  }

  // The columns of each sequence's global tokens.
  static std::vector<std::vector<int64_t>> global_places(const ModelSpec& spec, const Inputs& inputs) {
    std::vector<std::vector<int64_t>> out;
    int64_t row = 0;
    for (const int32_t length : inputs.tokens.lengths) {
      out.emplace_back();
      for (int32_t i = 0; i < length; ++i, ++row) {
        const bool global = inputs.input.globals.defined() ? inputs.input.globals.data<int32_t>()[row] != 0
                                                           : i < spec.attention.patterns[0].global;
        if (global)
          out.back().push_back(inputs.tokens.places[static_cast<size_t>(row)] % inputs.tokens.columns);
      }
    }
    return out;
  }

  // As Hugging Face stores Longformer's: of each query the probabilities of the global tokens, then of the
  // window around it without them; rows of global queries are 0, theirs are global_attentions [B, heads,
  // keys, globals].
  void visit_banded(const Place& place, int64_t s, int64_t h, const Tensor& p) {
    const PaddedBatch& batch = *place.rows;
    const bool of_globals = place.names[0].starts_with("global");
    const int64_t heads = spec_.attention.heads, columns = batch.columns;
    int64_t most = 0, first = 0;
    for (const auto& g : globals_) most = std::max(most, std::ssize(g));
    for (int64_t i = 0; i < s; ++i) first += batch.lengths[i];
    const std::vector<Pattern>& patterns = spec_.attention.patterns;
    const size_t layer = std::stoul(place.names[0].substr(place.names[0].find('.') + 1));
    const int64_t window = patterns[layer % patterns.size()].window, band = most + 2 * window - 1;
    Tensor& all = found[place.names[0]];
    if (!all.defined())
      all = Tensor::zeros({batch.rows, heads, columns, of_globals ? most : band}, DType::f32);
    float* to = all.mutable_data<float>() + (s * heads + h) * columns * all.dim(3);
    const std::vector<int64_t>& globals = globals_[static_cast<size_t>(s)];
    const auto is_global = [&](int64_t column) {
      return std::ranges::find(globals, column) != globals.end();
    };
    for (int64_t i = 0; i < p.dim(0); ++i)
      for (int64_t j = 0; j < p.dim(1); ++j) {
        const int64_t key = batch.places[first + j] % columns;
        const float value = p.data<float>()[i * p.dim(1) + j];
        if (of_globals) {
          to[key * most + i] = value;
          continue;
        }
        const int64_t query = batch.places[first + i] % columns;
        const auto among = std::ranges::find(globals, key) - globals.begin();
        if (is_global(query)) continue;
        if (is_global(key))
          to[query * band + among] = value;
        else if (std::abs(key - query) < window)
          to[query * band + most + key - query + window - 1] = value;
      }
  }

  // State 0 is what enters the first block, state l what leaves block l; where sums are not normalised the
  // last is, of a recurrence it is h.
  void add_hidden(const std::string& stack, const std::string& prefix, int64_t layers,
                  const PaddedBatch& batch) {
    const bool post = spec_.norm_placement == NormPlacement::post,
               last_norm = !post && spec_.norm_placement != NormPlacement::none &&
                           spec_.features.kind != FeatureSpec::Kind::patches;
    const Cell cell = stack == "encoder" ? spec_.recurrence.encoder : spec_.recurrence.decoder;
    for (int64_t l = 0; l <= layers; ++l) {
      const std::string name = l == 0                     ? stack + ".embedding"
                               : cell != Cell::none       ? fmt::format("{}.block.{}", stack, l - 1)
                               : last_norm && l == layers ? stack + ".norm"
                                                          : fmt::format("{}.block.{}.feed_forward.{}", stack,
                                                                        l - 1, post ? "norm" : "sum");
      Place place{{fmt::format("{}hidden_states.{}", prefix, l)}, &batch, &batch};
      if (l == layers && prefix == "encoder_") place.names.emplace_back("encoder_last_hidden_state");
      places_[name] = place;
    }
  }

  const ModelSpec& spec_;
  std::map<std::string, Place> places_;
  bool banded_ = false;                        // attentions are stored as Longformer's are
  std::vector<std::vector<int64_t>> globals_;  // columns of each sequence's global tokens
};

// [N, C] of one column as [B, T].
Tensor column(const PaddedBatch& b, const Tensor& x, int64_t c) {
  Tensor out = Tensor::zeros({b.rows, b.columns}, DType::f32);
  for (size_t i = 0; i < b.places.size(); ++i)
    out.mutable_data<float>()[b.places[i]] = x.data<float>()[static_cast<int64_t>(i) * x.width() + c];
  return out;
}

using Named = std::vector<std::pair<std::string, Tensor>>;

// What the model's head says of the hidden states that are returned.
Tensor add_outputs(const Transformer& model, const Inputs& in, const Context& context, Named& out) {
  const ModelSpec& spec = model.spec();
  const Tensor hidden = model.hidden(in.input, context);
  const auto classes = [&] { return model.classes(hidden, in.input, context); };
  switch (spec.output) {
    case Output::tokens:
      out.emplace_back(spec.labels.empty() ? "logits" : "prediction_logits",
                       in.tokens.spread(model.logits(hidden)));
      if (!spec.labels.empty()) out.emplace_back("seq_relationship_logits", classes());
      break;
    case Output::sequence_classes:
      out.emplace_back("logits", classes());
      if (!spec.features.distilled) break;
      {
        auto [first, second] = model.distilled_classes(hidden, in.input);
        out.emplace_back("cls_logits", std::move(first));
        out.emplace_back("distillation_logits", std::move(second));
      }
      break;
    case Output::token_classes:
      out.emplace_back("logits",
                       spec.classes() == 1 ? column(in.tokens, classes(), 0) : in.tokens.spread(classes()));
      break;
    case Output::span:
      out.emplace_back("start_logits", column(in.tokens, classes(), 0));
      out.emplace_back("end_logits", column(in.tokens, classes(), 1));
      break;
    case Output::embedding:
      out.emplace_back("last_hidden_state", in.tokens.spread(convert(hidden, DType::f32)));
      out.emplace_back("pooler_output", convert(model.pooled(hidden, in.input), DType::f32));
      break;
  }
  return hidden;
}

// Targets of the model's output from "labels", or "start_positions" and "end_positions".
Tensor read_targets(const Safetensors& in, const Inputs& inputs, const ModelSpec& spec,
                    const std::string& path) {
  const PaddedBatch& b = inputs.tokens;
  std::vector<int32_t> targets;
  const int64_t classes = spec.output == Output::tokens ? spec.vocab_size
                          : spec.output == Output::span ? b.columns
                                                        : spec.classes();
  const auto add = [&](int64_t label) {
    check(label == kIgnored || (label >= 0 && label < classes),
          "{}: labels: {} is neither -100 nor one of {}", path, label, classes);
    targets.push_back(static_cast<int32_t>(label));
  };
  if (spec.output == Output::span) {
    const auto starts = integers(in, "start_positions", path), ends = integers(in, "end_positions", path);
    check(std::ssize(starts) == b.rows && std::ssize(ends) == b.rows, "{}: start_positions: expected [{}]",
          path, b.rows);
    for (int64_t r = 0; r < b.rows; ++r) add(starts[r]), add(ends[r]);
    return Tensor::of({b.rows, 2}, targets);
  }
  const auto labels = integers(in, "labels", path);
  const bool of_sequences = spec.output == Output::sequence_classes;
  const Shape wanted = of_sequences ? Shape{b.rows} : Shape{b.rows, b.columns};
  check(in.tensors.at("labels").shape() == wanted, "{}: labels: expected {}, got {}", path, wanted.text(),
        in.tensors.at("labels").shape().text());
  if (of_sequences) {
    for (const int64_t label : labels) add(label);
  } else {
    // Causal models shift labels inside: position t predicts labels[t + 1].
    const bool shifted = spec.architecture == Architecture::decoder && spec.output == Output::tokens;
    for (const int64_t place : b.places) {
      const bool last = (place + 1) % b.columns == 0;
      add(!shifted ? labels[place] : last ? kIgnored : labels[place + 1]);
    }
  }
  return Tensor::of({std::ssize(targets)}, targets);
}

// Either greedy and sampled generation, or beam search.
struct GenerationSettings {
  GenerateOptions options;
  BeamOptions beam;
  int64_t pad = 0, start = -1;
};

// The whole of `value` as a number of at least `least`.
template <typename T>
T number(const std::string& key, const std::string& value, T least) {
  T n{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size() || !(n >= least))
    throw UsageError(
        fmt::format("--generate: {}: expected a number of at least {}, got '{}'", key, least, value));
  return n;
}

bool truth(const std::string& key, const std::string& value) {
  if (value != "true" && value != "false")
    throw UsageError(fmt::format("--generate: {}: expected true or false, got '{}'", key, value));
  return value == "true";
}

GenerationSettings parse_generation(const std::string& text, const SpecialIds& defaults) {
  GenerationSettings g;
  g.options.sampler.temperature = 0;
  g.pad = defaults.pad >= 0 ? defaults.pad : defaults.eos.empty() ? 0 : defaults.eos[0];
  g.options.eos.assign(defaults.eos.begin(), defaults.eos.end());
  g.beam.beams = 1;
  g.start = defaults.decoder_start >= 0 ? defaults.decoder_start : defaults.bos;
  double temperature = 1;
  bool sampling = false;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string item = text.substr(at, end - at);
    at = end + 1;
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw UsageError(fmt::format("--generate: expected key=value, got '{}'", item));
    const std::string key = item.substr(0, equals), value = item.substr(equals + 1);
    if (key == "max_new_tokens")
      g.options.max_new_tokens = number<int64_t>(key, value, 1);
    else if (key == "eos_token_id")
      g.options.eos = value == "null" ? std::vector<int32_t>{} : std::vector{number<int32_t>(key, value, 0)};
    else if (key == "pad_token_id")
      g.pad = value == "null" ? 0 : number<int64_t>(key, value, 0);
    else if (key == "do_sample")
      sampling = truth(key, value);
    else if (key == "temperature")
      temperature = number<double>(key, value, 0);
    else if (key == "top_k")
      g.options.sampler.top_k = number<int64_t>(key, value, 0);
    else if (key == "top_p")
      g.options.sampler.top_p = number<double>(key, value, 0);
    else if (key == "min_p")
      g.options.sampler.min_p = number<double>(key, value, 0);
    else if (key == "typical_p")
      g.options.sampler.typical_p = number<double>(key, value, 0);
    else if (key == "repetition_penalty")
      g.options.sampler.repetition_penalty = number<double>(key, value, 0);
    else if (key == "seed")
      g.options.seed = number<uint64_t>(key, value, 0);
    else if (key == "num_beams")
      g.beam.beams = number<int64_t>(key, value, 1);
    else if (key == "length_penalty")
      g.beam.length_penalty = number<double>(key, value, -1e6);
    else if (key == "no_repeat_ngram_size")
      g.beam.no_repeat_ngram = number<int64_t>(key, value, 0);
    else if (key == "early_stopping")
      g.beam.stop = truth(key, value) ? BeamOptions::Stop::early : BeamOptions::Stop::exhaustive;
    else if (key == "decoder_start_token_id")
      g.start = number<int64_t>(key, value, 0);
    else
      throw UsageError(fmt::format(
          "--generate: '{}={}' is not supported (max_new_tokens, eos_token_id, pad_token_id, do_sample, "
          "temperature, top_k, top_p, min_p, typical_p, repetition_penalty, seed, num_beams, length_penalty, "
          "early_stopping, no_repeat_ngram_size, decoder_start_token_id are)",
          key, value));
  }
  if (sampling) g.options.sampler.temperature = temperature;
  if (sampling && g.beam.beams > 1)
    throw UsageError("--generate: do_sample and num_beams exclude each other");
  g.beam.eos = g.options.eos;
  g.beam.max_new_tokens = g.options.max_new_tokens;
  return g;
}

void run_generation(const Options& o, const Transformer& model, const Safetensors& in,
                    const SpecialIds& ids) {
  const ModelSpec& spec = model.spec();
  check(spec.architecture != Architecture::encoder, "{}: an encoder does not generate", o.dir);
  expect_known(in, spec, o.inputs);
  const bool both = spec.architecture == Architecture::encoder_decoder;
  const GenerationSettings g = parse_generation(o.generate, ids);
  // A language model goes on with the last tokens where a sequence outgrows the context.
  Tensor features;
  const PaddedBatch batch = spec.features.any()
                                ? read_frames(in, o.inputs, spec, features)
                                : read_padded(in, o.inputs, "input_ids", "attention_mask",
                                              spec.input_vocab_size(), both ? spec.longest() : 0);
  for (int64_t r = 0; r < batch.rows; ++r)
    check(batch.lengths[r] > 0, "{}: input_ids: row {} has no token to continue", o.inputs, r);
  const bool begun = both && in.tensors.contains("decoder_input_ids");
  check(!both || begun || (g.start >= 0 && g.start < spec.vocab_size),
        "{}: config.json names no token that decoding starts with (--generate decoder_start_token_id=N)",
        o.dir);
  const std::vector<std::vector<int32_t>> given = batch.sequences();
  std::vector<std::vector<int32_t>> start(given.size(), {static_cast<int32_t>(g.start)});
  if (begun) {
    const PaddedBatch first = read_padded(in, o.inputs, "decoder_input_ids", "decoder_attention_mask",
                                          spec.vocab_size, spec.longest());
    check(
        first.rows == batch.rows && std::ssize(first.ids) == first.rows * first.columns && first.columns > 0,
        "{}: decoder_input_ids: expected {} rows without padding", o.inputs, batch.rows);
    start = first.sequences();
  }
  const auto& prompts = both ? start : given;
  Sources sources(both ? given : std::vector<std::vector<int32_t>>{});
  sources.features = features;
  std::vector<std::vector<int32_t>> continuations;
  if (g.beam.beams > 1)
    for (const auto& best : beam_search(model, prompts, g.beam, sources))
      continuations.push_back(best.front().tokens);
  else
    continuations = generate(model, prompts, g.options, nullptr, sources);
  size_t longest = 0;
  for (const auto& c : continuations) longest = std::max(longest, c.size());
  const auto ids_in = both ? std::vector<int64_t>{} : integers(in, "input_ids", o.inputs);
  const int64_t before = both ? std::ssize(start[0]) : batch.columns;
  std::vector<int64_t> sequences;
  for (int64_t r = 0; r < batch.rows; ++r) {
    if (both)
      sequences.insert(sequences.end(), start[r].begin(), start[r].end());
    else
      sequences.insert(sequences.end(), ids_in.begin() + r * batch.columns,
                       ids_in.begin() + (r + 1) * batch.columns);
    sequences.insert(sequences.end(), continuations[r].begin(), continuations[r].end());
    sequences.insert(sequences.end(), longest - continuations[r].size(), g.pad);
  }
  const Shape shape{batch.rows, before + static_cast<int64_t>(longest)};
  write_safetensors(o.outputs, {{"sequences", Tensor::of(shape, sequences)}});
}

void add_training(const Options& o, Transformer& model, const Safetensors& in, const Inputs& inputs,
                  DType compute, Named& out) {
  const Tensor targets = read_targets(in, inputs, model.spec(), o.inputs);
  int64_t count = 0;
  for (const int32_t t : targets.values<int32_t>()) count += t != kIgnored;
  if (model.spec().output == Output::span) count /= 2;
  check(count > 0, "{}: labels: every label is -100: there is no loss", o.inputs);
  if (o.gradients) {
    model.parameters().prepare_training(compute, 0);
    model.parameters().reset_gradients();
  }
  const CrossEntropyResult r = model.loss(inputs.input, targets, {}, 1 / static_cast<float>(count));
  out.emplace_back("loss", r.loss);
  if (!o.gradients) return;
  backward(r.loss);
  model.parameters().complete_gradients();
  for (auto& [name, grad] : named_tensors(model, [](const Parameter& p) { return p.leaf->grad; }))
    out.emplace_back("grad." + name, grad);
}

void run(const Options& o) {
  const DType compute = compute_type(o.dtype);
  const std::string dir = resolve_model_dir(o.dir);
  const auto model = load_model(dir, compute);
  const SpecialIds ids = load_special_ids(dir);
  const Safetensors in = read_safetensors(o.inputs);
  if (!o.generate.empty()) return run_generation(o, *model, in, ids);

  const Inputs inputs = read_inputs(in, o.inputs, model->spec(), ids);
  Context context;
  Collector collector(o, model->spec(), inputs);
  context.probe = &collector;
  Named out;
  {
    const NoGrad guard;
    const Tensor hidden = add_outputs(*model, inputs, context, out);
    const ModelSpec& spec = model->spec();
    if (o.hidden_states && spec.embedding_width > 0 &&
        spec.head_width == 0)  // the last state is what the unembedding reads
      collector.found[fmt::format("hidden_states.{}", spec.layers)] =
          inputs.tokens.spread(convert(model->projected(hidden), DType::f32));
  }
  for (const auto& [name, tensor] : collector.found) out.emplace_back(name, tensor);
  if (in.tensors.contains("labels") || in.tensors.contains("start_positions"))
    add_training(o, *model, in, inputs, compute, out);
  else
    check(!o.gradients, "{}: labels: missing (--gradients needs them)", o.inputs);
  write_safetensors(o.outputs, out);
}

}  // namespace

void add_forward_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("forward", "Score tensors: safetensors in, safetensors out");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option(
       "--inputs", o->inputs,
       "input_ids [B, T], attention_mask (1 = real), labels (-100 = ignored); token_type_ids of an encoder, "
       "global_attention_mask (1 = sees all) of one with patterns, decoder_input_ids of an encoder-decoder, "
       "pixel_values [B, C, H, W] of one that reads images, input_features [B, C, T] of one that reads "
       "spectrograms")
      ->required();
  c->add_option(
       "--outputs", o->outputs,
       "Where logits, loss, hidden_states.N, attentions.N, grad.NAME or sequences go; of an encoder-decoder "
       "encoder_hidden_states.N and so on")
      ->required();
  c->add_flag("--hidden-states", o->hidden_states, "Also write hidden_states.N");
  c->add_flag("--attentions", o->attentions, "Also write attentions.N, the probabilities");
  c->add_flag("--gradients", o->gradients,
              "Also write grad.NAME, the gradient of the loss for every parameter");
  c->add_option("--generate", o->generate,
                "Generate instead: max_new_tokens=N,eos_token_id=N,do_sample=false,num_beams=N,...");
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->footer(
      "Example: qkv forward models/gpt2 --inputs in.safetensors --outputs out.safetensors --hidden-states");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
