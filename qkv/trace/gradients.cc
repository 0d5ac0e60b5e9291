#include "qkv/trace/gradients.h"

#include <algorithm>

#include "qkv/autograd/graph.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

const std::string& name_of_gradient(const TracedGradient& x) {
  return x.value.name;
}

// Records values, and gradients as a backward pass comes to them.
class GradientTrace : public Probe {
 public:
  explicit GradientTrace(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
  bool wants(std::string_view name) const override { return fits_any(name, patterns_); }
  void visit(std::string_view name, Tensor& value) override {
    const size_t at = values_.size();
    values_.push_back({{std::string(name), f32_copy(value)},
                       {std::string(name), Tensor::zeros(value.shape(), DType::f32)}});
    value = watch(value, [this, at](const Tensor& g) { values_[at].gradient.rows = f32_copy(g); });
  }
  void visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) override {
    auto found = std::ranges::find(values_, name, name_of_gradient);
    if (found == values_.end())
      found = values_.insert(found, {TracedValue{std::string(name)}, TracedValue{std::string(name)}});
    const size_t at = found - values_.begin(), h = found->value.heads.size();
    found->value.heads.push_back({sequence, head, f32_copy(value)});
    found->gradient.heads.push_back({sequence, head, Tensor::zeros(value.shape(), DType::f32)});
    value =
        watch(value, [this, at, h](const Tensor& g) { values_[at].gradient.heads[h].value = f32_copy(g); });
  }
  std::vector<TracedGradient> take() { return std::move(values_); }

 private:
  std::vector<std::string> patterns_;
  std::vector<TracedGradient> values_;
};

std::string embedding_of(const std::string& stack) {
  return stack + ".embedding";
}

double product(const Tensor& a, const Tensor& b, int64_t row) {
  double sum = 0;
  for (int64_t c = 0; c < a.width(); ++c) sum += double{a.row<float>(row)[c]} * b.row<float>(row)[c];
  return sum;
}

}  // namespace

const TracedGradient& Gradients::at(std::string_view name) const {
  const auto found = std::ranges::find(values, name, name_of_gradient);
  check(found != values.end(), "gradients: there is no value '{}'", name);
  return *found;
}

Gradients gradients_of(const Transformer& model, const ModelInput& input, const Question& question,
                       std::vector<std::string> patterns, std::vector<Change> changes) {
  GradientTrace trace(std::move(patterns));
  Intervention intervention(std::move(changes), &trace);
  Context context;
  context.probe = &intervention;
  const Tensor logits = logits_of(model, model.hidden(input, context), input);
  intervention.expect_made();
  Gradients out;
  out.answer = answer_in(logits, question);
  Tensor seed = Tensor::zeros(logits.shape(), DType::f32);
  seed.mutable_row<float>(question.row)[question.column] += 1;
  if (question.instead >= 0) seed.mutable_row<float>(question.row)[question.instead] -= 1;
  const Seed root{logits, seed};
  backward(std::span(&root, 1));
  out.values = trace.take();
  return out;
}

Saliency gradient_times_input(const Transformer& model, const ModelInput& input, const Question& question,
                              const std::string& stack) {
  const std::string name = embedding_of(stack);
  const Gradients g = gradients_of(model, input, question, {name});
  const auto& [value, gradient] = g.at(name);
  Saliency out{{}, g.answer};
  for (int64_t r = 0; r < value.rows.rows(); ++r) out.tokens.push_back(product(value.rows, gradient.rows, r));
  return out;
}

Saliency integrated_gradients(const Transformer& model, const ModelInput& input, const ModelInput& baseline,
                              const Question& question, const std::string& stack, int64_t steps) {
  check(steps > 0, "integrated gradients: expected at least one step, got {}", steps);
  const std::string name = embedding_of(stack);
  const auto embedded = [&](const ModelInput& of) {
    Trace trace({name});
    run_traced(model, of, trace);
    return trace.at(name).rows;
  };
  const Tensor to = embedded(input), from = embedded(baseline);
  check(to.shape() == from.shape(), "integrated gradients: a baseline of {} for an input of {}", from.shape(),
        to.shape());
  // The pass at a share of the way.
  const auto place = [&](double share) {
    Tensor x = from.clone();
    for (int64_t i = 0; i < x.count(); ++i) {
      const float a = from.values<float>()[i], b = to.values<float>()[i];
      x.mutable_values<float>()[i] = static_cast<float>(a + share * (double{b} - a));
    }
    return Change{name, Change::Kind::set, {}, 0, 0, std::move(x)};
  };
  Saliency out;
  out.tokens.assign(static_cast<size_t>(to.rows()), 0);
  for (int64_t k = 0; k < steps; ++k) {  // the midpoints of equal parts
    const Gradients g = gradients_of(model, input, question, {name},
                                     {place((static_cast<double>(k) + 0.5) / static_cast<double>(steps))});
    const Tensor& gradient = g.at(name).gradient.rows;
    for (int64_t r = 0; r < to.rows(); ++r)
      out.tokens[r] += (product(to, gradient, r) - product(from, gradient, r)) / static_cast<double>(steps);
  }
  const auto at = [&](double share) {
    return answer_in(logits_with(model, input, {place(share)}), question);
  };
  out.answer = at(1);
  out.without = at(0);
  return out;
}

}  // namespace qkv
