// qkv forward: exact, machine-readable scoring. Tensors in, tensors out, under the Hugging Face names.
#include <charconv>
#include <map>

#include "qkv/cli/command.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/safetensors.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

struct Options {
  std::string dir, inputs, outputs, generate, dtype = "f32";
  bool hidden_states = false, attentions = false, gradients = false;
};

// The real tokens of a padded batch as a flat one. Positions count real tokens.
struct PaddedBatch {
  int64_t rows, columns;
  std::vector<int32_t> ids;     // of the real tokens
  std::vector<int64_t> places;  // row * columns + column of each
  std::vector<int32_t> lengths;

  std::vector<std::vector<int32_t>> sequences() const {
    std::vector<std::vector<int32_t>> out;
    auto at = ids.begin();
    for (const int32_t n : lengths) {
      out.emplace_back(at, at + n);
      at += n;
    }
    return out;
  }
  // [N, D] back to [rows, columns, D]; padding is zero.
  Tensor spread(const Tensor& x) const {
    Tensor out = Tensor::zeros({rows, columns, x.width()}, DType::f32);
    for (size_t i = 0; i < places.size(); ++i)
      std::memcpy(out.mutable_data<float>() + places[i] * x.width(), x.data<float>() + i * x.width(),
                  x.width() * sizeof(float));
    return out;
  }
};

std::vector<int64_t> integers(const Tensor& x, const std::string& name) {
  check(x.dtype() == DType::i64 || x.dtype() == DType::i32, "{}: expected I64 or I32, got {}", name,
        name_of(x.dtype()));
  std::vector<int64_t> out;
  for (int64_t i = 0; i < x.count(); ++i)
    out.push_back(x.dtype() == DType::i64 ? x.data<int64_t>()[i] : x.data<int32_t>()[i]);
  return out;
}

PaddedBatch read_batch(const Safetensors& in, const std::string& path, const ModelSpec& spec,
                       bool generating) {
  const auto ids = in.tensors.find("input_ids");
  check(ids != in.tensors.end(), "{}: input_ids: missing", path);
  for (const auto& [name, tensor] : in.tensors)
    check(name == "input_ids" || name == "attention_mask" || name == "labels",
          "{}: {}: a decoder-only model has no such input (it has input_ids, attention_mask and labels)",
          path, name);
  check(ids->second.shape().rank() == 2, "{}: input_ids: expected [batch, length], got {}", path,
        ids->second.shape().text());
  PaddedBatch b{ids->second.dim(0), ids->second.dim(1), {}, {}, {}};
  const auto values = integers(ids->second, path + ": input_ids");
  std::vector<int64_t> mask(values.size(), 1);
  if (const auto m = in.tensors.find("attention_mask"); m != in.tensors.end()) {
    check(m->second.shape() == ids->second.shape(), "{}: attention_mask: expected {}, got {}", path,
          ids->second.shape().text(), m->second.shape().text());
    mask = integers(m->second, path + ": attention_mask");
  }
  for (int64_t r = 0; r < b.rows; ++r) {
    int32_t length = 0;
    for (int64_t c = 0; c < b.columns; ++c) {
      const int64_t at = r * b.columns + c;
      check(mask[at] == 0 || mask[at] == 1, "{}: attention_mask: expected 0 or 1, got {}", path, mask[at]);
      if (mask[at] == 0) continue;
      check(values[at] >= 0 && values[at] < spec.vocab_size,
            "{}: input_ids: {} in row {} is not one of the model's {} tokens", path, values[at], r,
            spec.vocab_size);
      b.ids.push_back(static_cast<int32_t>(values[at]));
      b.places.push_back(at);
      ++length;
    }
    // Generation goes on with the last tokens where a sequence outgrows the context, but it needs a first
    // one.
    check(generating || length <= spec.context,
          "{}: input_ids: row {} has {} tokens, the model's context is {}", path, r, length, spec.context);
    check(!generating || length > 0, "{}: input_ids: row {} has no token to continue", path, r);
    b.lengths.push_back(length);
  }
  return b;
}

// Collects the hidden states and attention probabilities.
class Collector : public Probe {
 public:
  Collector(const Options& options, const ModelSpec& spec, const PaddedBatch& batch)
      : batch_(batch), spec_(spec) {
    if (options.hidden_states) {
      names_["decoder.embedding"] = "hidden_states.0";
      for (int64_t l = 0; l + 1 < spec.layers; ++l)
        names_[fmt::format("decoder.block.{}.feed_forward.sum", l)] = fmt::format("hidden_states.{}", l + 1);
      names_["decoder.norm"] = fmt::format("hidden_states.{}", spec.layers);
    }
    if (options.attentions)
      for (int64_t l = 0; l < spec.layers; ++l)
        names_[fmt::format("decoder.block.{}.attention.probabilities", l)] = fmt::format("attentions.{}", l);
    int32_t first = 0;
    for (const int32_t n : batch.lengths) {
      firsts_.push_back(first);
      first += n;
    }
  }
  bool wants(std::string_view name) const override { return names_.contains(std::string(name)); }
  void visit(std::string_view name, Tensor& value) override {
    found[names_.at(std::string(name))] = batch_.spread(convert(value));
  }
  void visit_head(std::string_view name, int64_t s, int64_t h, Tensor& p) override {
    Tensor& all = found[names_.at(std::string(name))];
    const int64_t t = batch_.columns;
    if (!all.defined()) all = Tensor::zeros({batch_.rows, spec_.attention.heads, t, t}, DType::f32);
    for (int64_t i = 0; i < p.dim(0); ++i)
      for (int64_t j = 0; j < p.dim(1); ++j) {
        const int64_t query = batch_.places[firsts_[s] + i] % t, key = batch_.places[firsts_[s] + j] % t;
        all.mutable_data<float>()[((s * spec_.attention.heads + h) * t + query) * t + key] =
            p.data<float>()[i * p.dim(1) + j];
      }
  }
  std::map<std::string, Tensor> found;

 private:
  static Tensor convert(const Tensor& x) {
    if (x.dtype() == DType::f32) return x;
    Tensor out = Tensor::empty(x.shape(), DType::f32);
    kernels().bf16.to_f32(x.count(), x.data<BFloat16>(), out.mutable_data<float>());
    return out;
  }
  const PaddedBatch& batch_;
  const ModelSpec& spec_;
  std::map<std::string, std::string> names_;
  std::vector<int32_t> firsts_;
};

// Position t predicts labels[t + 1], as Hugging Face's causal models shift them.
Tensor shifted_targets(const Safetensors& in, const PaddedBatch& b, int64_t vocab, const std::string& path) {
  const auto it = in.tensors.find("labels");
  check(it != in.tensors.end(), "{}: labels: missing (--gradients needs them)", path);
  check(it->second.shape() == Shape{b.rows, b.columns}, "{}: labels: expected [{}, {}], got {}", path, b.rows,
        b.columns, it->second.shape().text());
  const auto labels = integers(it->second, path + ": labels");
  std::vector<int32_t> targets;
  for (const int64_t place : b.places) {
    const bool last = (place + 1) % b.columns == 0;
    const int64_t label = last ? kIgnored : labels[place + 1];
    check(label == kIgnored || (label >= 0 && label < vocab),
          "{}: labels: {} is neither -100 nor one of {} tokens", path, label, vocab);
    targets.push_back(static_cast<int32_t>(label));
  }
  return Tensor::of({static_cast<int64_t>(targets.size())}, targets);
}

struct GenerationSettings {
  GenerateOptions options;
  int64_t pad = 0;
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
    else if (key == "num_beams" && value == "1")
      continue;
    else
      throw UsageError(fmt::format(
          "--generate: '{}={}' is not supported (max_new_tokens, eos_token_id, pad_token_id, do_sample, "
          "temperature, top_k, top_p, min_p, typical_p, repetition_penalty, seed are)",
          key, value));
  }
  if (sampling) g.options.sampler.temperature = temperature;
  return g;
}

void run_generation(const Options& o, const std::string& dir, const Transformer& model, const Safetensors& in,
                    const PaddedBatch& batch) {
  const GenerationSettings g = parse_generation(o.generate, load_special_ids(dir));
  const auto continuations = generate(model, batch.sequences(), g.options);
  size_t longest = 0;
  for (const auto& c : continuations) longest = std::max(longest, c.size());
  const auto prompt = integers(in.tensors.at("input_ids"), "input_ids");
  std::vector<int64_t> sequences;
  for (int64_t r = 0; r < batch.rows; ++r) {
    sequences.insert(sequences.end(), prompt.begin() + r * batch.columns,
                     prompt.begin() + (r + 1) * batch.columns);
    sequences.insert(sequences.end(), continuations[r].begin(), continuations[r].end());
    sequences.insert(sequences.end(), longest - continuations[r].size(), g.pad);
  }
  const Shape shape{batch.rows, batch.columns + static_cast<int64_t>(longest)};
  write_safetensors(o.outputs, {{"sequences", Tensor::of(shape, sequences)}});
}

void run(const Options& o) {
  const DType compute = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  const std::string dir = resolve_model_dir(o.dir);
  const auto model = load_model(dir, compute);
  const Safetensors in = read_safetensors(o.inputs);
  const PaddedBatch batch = read_batch(in, o.inputs, model->spec(), !o.generate.empty());
  if (!o.generate.empty()) return run_generation(o, dir, *model, in, batch);

  const ModelInput input{Tensor::of({static_cast<int64_t>(batch.ids.size())}, batch.ids),
                         Layout::of(batch.lengths)};
  Context context;
  Collector collector(o, model->spec(), batch);
  context.probe = &collector;
  std::vector<std::pair<std::string, Tensor>> out;
  {
    const NoGrad guard;
    out.emplace_back("logits", batch.spread(model->logits(model->hidden(input, context))));
  }
  for (const auto& [name, tensor] : collector.found) out.emplace_back(name, tensor);
  if (in.tensors.contains("labels")) {
    context.probe = nullptr;
    const Tensor targets = shifted_targets(in, batch, model->spec().vocab_size, o.inputs);
    int64_t count = 0;
    for (const int32_t t : targets.values<int32_t>()) count += t != kIgnored;
    check(count > 0, "{}: labels: every label is -100: there is no loss", o.inputs);
    if (o.gradients) {
      model->parameters().prepare_training(compute, 0);
      model->parameters().reset_gradients();
    }
    const CrossEntropyResult r = model->loss(input, targets, context, 1 / static_cast<float>(count));
    out.emplace_back("loss", r.loss);
    if (o.gradients) {
      backward(r.loss);
      model->parameters().complete_gradients();
      for (auto& [name, grad] : named_tensors(*model, [](const Parameter& p) { return p.leaf->grad; }))
        out.emplace_back("grad." + name, grad);
    }
  } else {
    check(!o.gradients, "{}: labels: missing (--gradients needs them)", o.inputs);
  }
  write_safetensors(o.outputs, out);
}

}  // namespace

void add_forward_command(CLI::App& app) {
  auto o = std::make_shared<Options>();
  CLI::App* c = app.add_subcommand("forward", "Score tensors: safetensors in, safetensors out");
  c->add_option("DIR", o->dir, "Model directory or run")->required();
  c->add_option("--inputs", o->inputs, "input_ids [B, T], attention_mask (1 = real), labels (-100 = ignored)")
      ->required();
  c->add_option("--outputs", o->outputs,
                "Where logits, loss, hidden_states.N, attentions.N, grad.NAME or sequences go")
      ->required();
  c->add_flag("--hidden-states", o->hidden_states, "Also write hidden_states.N");
  c->add_flag("--attentions", o->attentions, "Also write attentions.N, the probabilities");
  c->add_flag("--gradients", o->gradients,
              "Also write grad.NAME, the gradient of the loss for every parameter");
  c->add_option("--generate", o->generate,
                "Generate instead: max_new_tokens=N,eos_token_id=N,pad_token_id=N,do_sample=false,...");
  c->add_option("--dtype", o->dtype, "Type of the matrix products: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  c->footer(
      "Example: qkv forward models/gpt2 --inputs in.safetensors --outputs out.safetensors --hidden-states");
  c->callback([o] { run(*o); });
}

}  // namespace qkv
