#include "qkv/trace/lens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/models/stack.h"
#include "qkv/ops/elementwise.h"
#include "qkv/trace/intervention.h"

namespace qkv {
namespace {

std::string stack_of(const ModelSpec& spec) {
  return spec.architecture == Architecture::encoder ? "encoder" : "decoder";
}

void expect_serial(const ModelSpec& spec, const char* what) {
  check(spec.output == Output::tokens && spec.has_blocks() && spec.branches != Branches::reversible,
        "{} needs a model of tokens whose blocks add to one stream", what);
}

// The model's end for a fixed scale of its last norm, which is affine then: the change of a token's logit by
// each column of the normalised stream, and the logit of a stream of zeros.
struct End {
  std::vector<double> direction;
  double bias = 0;
};

End end_of(const Transformer& model, int64_t token) {
  const ModelSpec& spec = model.spec();
  const std::string norm = stack_of(spec) + ".norm";
  const int64_t width = spec.width;
  const auto weights = [&](const char* of) {
    const auto& all = model.parameters().all();
    const auto at = std::ranges::find(all, norm + of, &Parameter::name);
    return at == all.end() ? Tensor() : convert(at->value, DType::f32);
  };
  const Tensor gamma = weights(".gamma"), beta = weights(".beta");
  Tensor rows = Tensor::zeros({width + 1, width}, DType::f32);
  for (int64_t i = 0; i < width; ++i) rows.mutable_row<float>(i)[i] = 1;
  if (beta.defined()) std::ranges::copy(beta.values<float>(), rows.mutable_row<float>(width).begin());
  const Tensor zero = Tensor::zeros({1, width}, DType::f32);
  const auto logits = [&](const Tensor& x) {
    return convert(model.logits(convert(x, model.unembedding().dtype())), DType::f32);
  };
  const Tensor of_rows = logits(rows);
  const double nothing = logits(zero).row<float>(0)[token];
  End end;
  for (int64_t i = 0; i < width; ++i) {
    double g = gamma.defined() ? gamma.values<float>()[i] : 1;
    if (spec.normalization == Normalization::rms_plus_one) g += 1;
    end.direction.push_back(g * (of_rows.row<float>(i)[token] - nothing));
  }
  end.bias = of_rows.row<float>(width)[token];
  return end;
}

}  // namespace

std::vector<Tensor> logit_lens(const Transformer& model, const ModelInput& input) {
  const ModelSpec& spec = model.spec();
  expect_serial(spec, "the logit lens");
  const std::string stack = stack_of(spec), last = block_output(spec, stack, spec.layers - 1);
  std::vector<std::string> names = {stack + ".embedding"};
  for (int64_t l = 0; l < spec.layers; ++l) names.push_back(block_output(spec, stack, l));
  Trace trace(names);
  run_traced(model, input, trace);
  std::vector<Tensor> out;
  // The model's own end reads what is put in the place of its last block's output.
  for (const std::string& name : names)
    out.push_back(logits_with(model, input, {{last, Change::Kind::set, {}, 0, 0, trace.at(name).rows}}));
  return out;
}

std::vector<Contribution> contributions_to(const Transformer& model, const ModelInput& input, int64_t row,
                                           int64_t token) {
  const ModelSpec& spec = model.spec();
  expect_serial(spec, "attribution");
  using enum NormPlacement;
  check(spec.norm_placement == pre || spec.norm_placement == sandwich || spec.norm_placement == branch ||
            spec.norm_placement == none,
        "attribution needs blocks whose sums no norm changes, not norm = \"{}\"",
        name_of(spec.norm_placement));
  const bool scaled =
      std::ranges::any_of(spec.blocks_in_use(), [](const BlockSpec* b) { return b->block_scaled; });
  check(!scaled && spec.head_width == 0 && spec.logit_cap == 0,
        "attribution needs a stream that is only added to, and logits that are its products");
  const std::string stack = stack_of(spec);
  Trace trace({stack + ".embedding", stack + ".block.*.branch"});
  run_traced(model, input, trace);
  check(row >= 0 && row < input.ids.count(), "attribution: row {} of {}", row, input.ids.count());
  check(token >= 0 && token < spec.vocab_size, "attribution: token {} of {}", token, spec.vocab_size);
  std::vector<const TracedValue*> parts;
  for (const TracedValue& value : trace.values()) parts.push_back(&value);
  const int64_t width = spec.width;
  std::vector<double> whole(static_cast<size_t>(width), 0);
  for (const TracedValue* part : parts)
    for (int64_t i = 0; i < width; ++i) whole[i] += part->rows.row<float>(row)[i];
  const bool centred =
      spec.normalization == Normalization::layer || spec.normalization == Normalization::layer_scale;
  const auto mean_of = [&](const auto& x) {
    return centred ? std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(width) : 0.0;
  };
  double squares = 0;
  const double centre = mean_of(whole);
  for (const double x : whole) squares += (x - centre) * (x - centre);
  const double scale = spec.ends_with_norm()
                           ? 1 / std::sqrt(squares / static_cast<double>(width) + double{spec.norm_epsilon})
                           : 1;
  const End end = end_of(model, token);
  std::vector<Contribution> out;
  for (const TracedValue* part : parts) {
    const auto x = part->rows.row<float>(row);
    const double mean = spec.ends_with_norm() ? mean_of(x) : 0;
    double value = 0;
    for (int64_t i = 0; i < width; ++i) value += end.direction[i] * (x[i] - mean) * scale;
    out.push_back({part->name, value});
  }
  out.push_back({"bias", end.bias});
  return out;
}

}  // namespace qkv
