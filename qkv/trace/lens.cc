#include "qkv/trace/lens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/models/stack.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// The model's end for a fixed scale of its last norm is affine: it multiplies the normalised stream by the
// rows of A, [V, D] or fewer, and adds what it makes of the norm's beta.
class End {
 public:
  explicit End(const Transformer& model) : model_(model), width_(model.spec().width) {
    const ModelSpec& spec = model.spec();
    const std::string norm = last_stack_of(spec) + ".norm";
    const auto weights = [&](const char* of) {
      const auto& all = model.parameters().all();
      const auto at = std::ranges::find(all, norm + of, &Parameter::name);
      return at == all.end() ? Tensor() : dequantized(at->weight(), DType::f32);
    };
    const Tensor gamma = weights(".gamma"), beta = weights(".beta");
    gamma_.assign(static_cast<size_t>(width_), 1);
    for (int64_t i = 0; i < width_ && gamma.defined(); ++i)
      gamma_[i] = gamma.values<float>()[i] + (spec.normalization == Normalization::rms_plus_one ? 1.0 : 0.0);
    Tensor rows = Tensor::zeros({2, width_}, DType::f32);
    if (beta.defined()) std::ranges::copy(beta.values<float>(), rows.mutable_row<float>(1).begin());
    of_zero_and_beta_ = logits(rows);
  }
  double bias(int64_t token) const { return of_zero_and_beta_.row<float>(1)[token]; }
  // The change of the token's logit by each column of the normalised stream.
  std::vector<double> direction(int64_t token) const {
    std::vector<double> out(static_cast<size_t>(width_));
    const double nothing = of_zero_and_beta_.row<float>(0)[token];
    if (model_.spec().embedding_width == 0) {  // a row of W_u, times a factor
      const Tensor row = dequantized(model_.unembedding().slice_rows(token, token + 1), DType::f32);
      double squares = 0;
      for (const float w : row.values<float>()) squares += double{w} * w;
      const double factor = squares > 0 ? (logits(row).row<float>(0)[token] - nothing) / squares : 0;
      for (int64_t i = 0; i < width_; ++i) out[i] = gamma_[i] * factor * row.values<float>()[i];
      return out;
    }
    Tensor unit = Tensor::zeros({width_, width_}, DType::f32);
    for (int64_t i = 0; i < width_; ++i) unit.mutable_row<float>(i)[i] = 1;
    const Tensor of_each = logits(unit);
    for (int64_t i = 0; i < width_; ++i) out[i] = gamma_[i] * (of_each.row<float>(i)[token] - nothing);
    return out;
  }

 private:
  Tensor logits(const Tensor& x) const {
    return convert(model_.logits(convert(x, model_.parameters().compute)), DType::f32);
  }

  const Transformer& model_;
  int64_t width_;
  std::vector<double> gamma_;
  Tensor of_zero_and_beta_;
};

// The terms of the residual stream, and their sum.
class Stream {
 public:
  Stream(const Transformer& model, const ModelInput& input)
      : spec_(model.spec()),
        trace_({last_stack_of(spec_) + ".embedding", last_stack_of(spec_) + ".block.*.branch", "logits"}) {
    run_traced(model, input, trace_);
    // Parallel blocks name both terms and their sum; a factor is on the sum alone.
    const bool factors = std::ranges::any_of(spec_.blocks_in_use(),
                                             [](const BlockSpec* b) { return b->residual_multiplier != 1; });
    for (const TracedValue& value : trace_.values()) {
      const bool sum = value.name.ends_with(".parallel.branch");
      const size_t part = value.name.rfind('.');
      const std::string whole = value.name.substr(0, value.name.rfind('.', part - 1)) + ".parallel.branch";
      const bool twice = !sum && trace_.find(whole) != nullptr;
      if (value.name != "logits" && !(sum && !factors) && !(twice && factors)) terms_.push_back(&value);
    }
  }
  const Tensor& logits() const { return trace_.at("logits").rows; }

  std::vector<Contribution> parts(int64_t row, const std::vector<double>& direction, double bias) const {
    const int64_t width = spec_.width;
    std::vector<double> whole(static_cast<size_t>(width), 0);
    for (const TracedValue* part : terms_)
      for (int64_t i = 0; i < width; ++i) whole[i] += part->rows.row<float>(row)[i];
    double squares = 0;
    const double centre = mean_of(whole);
    for (const double x : whole) squares += (x - centre) * (x - centre);
    const double scale =
        spec_.ends_with_norm()
            ? 1 / std::sqrt(squares / static_cast<double>(width) + double{spec_.norm_epsilon})
            : 1;
    std::vector<Contribution> out;
    for (const TracedValue* part : terms_) {
      const auto x = part->rows.row<float>(row);
      const double mean = mean_of(x);
      double value = 0;
      for (int64_t i = 0; i < width; ++i) value += direction[i] * (x[i] - mean) * scale;
      out.push_back({part->name, value});
    }
    out.push_back({"bias", bias});
    return out;
  }

 private:
  // 0 where the last norm does not subtract it.
  template <typename Range>
  double mean_of(const Range& x) const {
    const bool centred = spec_.ends_with_norm() && (spec_.normalization == Normalization::layer ||
                                                    spec_.normalization == Normalization::layer_scale);
    return centred ? std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(spec_.width) : 0.0;
  }

  const ModelSpec& spec_;
  Trace trace_;
  std::vector<const TracedValue*> terms_;
};

}  // namespace

std::string last_stack_of(const ModelSpec& spec) {
  return spec.architecture == Architecture::encoder ? "encoder" : "decoder";
}

LayerRows rows_by_layer(const Transformer& model, const ModelInput& input) {
  const ModelSpec& spec = model.spec();
  const std::string stack = last_stack_of(spec);
  std::vector<std::string> names = {stack + ".embedding"};
  for (int64_t l = 0; l < spec.layers; ++l) names.push_back(block_output(spec, stack, l));
  Trace trace(names);
  LayerRows out{{}, run_traced(model, input, trace).dtype()};
  for (const std::string& name : names) out.rows.push_back(trace.at(name).rows);
  return out;
}

std::vector<Tensor> logit_lens(const Transformer& model, const ModelInput& input) {
  check(has_lens(model.spec()), "the logit lens needs a model of tokens whose blocks add to one stream");
  const NoGrad guard;
  const LayerRows layers = rows_by_layer(model, input);
  std::vector<Tensor> out;
  for (const Tensor& rows : layers.rows)
    out.push_back(model.logits(model.last_norm(convert(rows, layers.type))));
  return out;
}

bool has_lens(const ModelSpec& spec) {
  return spec.output == Output::tokens && spec.has_blocks() && spec.branches != Branches::reversible;
}

std::string why_no_contributions(const ModelSpec& spec) {
  using enum NormPlacement;
  if (!has_lens(spec)) return "attribution needs a model of tokens whose blocks add to one stream";
  if (spec.norm_placement == post || spec.norm_placement == stream)
    return fmt::format("attribution needs blocks whose sums no norm changes, not norm = \"{}\"",
                       name_of(spec.norm_placement));
  const bool scaled =
                 std::ranges::any_of(spec.blocks_in_use(), [](const BlockSpec*b) { return b->block_scaled; }),
             known_norm = spec.normalization == Normalization::layer ||
                          spec.normalization == Normalization::layer_scale ||
                          spec.normalization == Normalization::rms ||
                          spec.normalization == Normalization::rms_plus_one;
  if (spec.ends_with_norm() && !known_norm)
    return fmt::format("attribution does not know the last norm, {}", name_of(spec.normalization));
  if (scaled || spec.head_width > 0 || spec.logit_cap > 0)
    return "attribution needs a stream that is only added to, and logits that are its products";
  return "";
}

std::vector<Contribution> contributions_to(const Transformer& model, const ModelInput& input, int64_t row,
                                           int64_t token) {
  const std::string why = why_no_contributions(model.spec());
  check(why.empty(), "{}", why);
  check(row >= 0 && row < input.ids.count(), "attribution: row {} of {}", row, input.ids.count());
  check(token >= 0 && token < model.spec().vocab_size, "attribution: token {} of {}", token,
        model.spec().vocab_size);
  const NoGrad guard;
  const End end(model);
  return Stream(model, input).parts(row, end.direction(token), end.bias(token));
}

std::vector<LogitParts> contributions_to_likeliest(const Transformer& model, const ModelInput& input) {
  const std::string why = why_no_contributions(model.spec());
  check(why.empty(), "{}", why);
  const NoGrad guard;
  const End end(model);
  const Stream stream(model, input);
  std::vector<LogitParts> out;
  for (int64_t row = 0; row < input.ids.count(); ++row) {
    const auto logits = stream.logits().row<float>(row);
    const int64_t token = std::ranges::max_element(logits) - logits.begin();
    out.push_back({row, token, logits[token], stream.parts(row, end.direction(token), end.bias(token))});
  }
  return out;
}

}  // namespace qkv
