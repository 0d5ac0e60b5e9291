#include "qkv/trace/trace.h"

#include <algorithm>

#include "qkv/autograd/graph.h"
#include "qkv/infer/predict.h"
#include "qkv/ops/elementwise.h"

namespace qkv {

Tensor TracedValue::of_heads() const {
  check(!heads.empty(), "trace: {} is no value of heads", name);
  const int64_t queries = heads[0].value.dim(0), keys = heads[0].value.dim(1);
  Tensor all = Tensor::empty({std::ssize(heads), queries, keys}, DType::f32);
  for (size_t h = 0; h < heads.size(); ++h) {
    check(heads[h].sequence == 0, "trace: {} has several sequences", name);
    for (int64_t q = 0; q < queries; ++q)
      all.mutable_part<float>(static_cast<int64_t>(h), q).copy(heads[h].value.row<float>(q));
  }
  return all;
}

Tensor f32_copy(const Tensor& value) {
  const NoGrad guard;
  return value.dtype() == DType::f32 ? value.detach().clone() : convert(value.detach(), DType::f32);
}

bool fits_pattern(std::string_view name, std::string_view pattern) {
  // The last * seen, and how much of the name it takes: a wrong guess takes one character more.
  size_t n = 0, p = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool fits_any(std::string_view name, const std::vector<std::string>& patterns) {
  // Hashed attention shows these to those who name them: they are no heads of queries by keys.
  if (name.ends_with(".chunks") || name.ends_with(".buckets")) return false;
  return std::ranges::any_of(patterns, [&](const std::string& p) { return fits_pattern(name, p); });
}

bool Trace::wants(std::string_view name) const {
  return fits_any(name, patterns_);
}

void Trace::visit(std::string_view name, Tensor& value) {
  add(name, value);
}

void Trace::visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) {
  auto at = std::ranges::find(values_, name, &TracedValue::name);
  if (at == values_.end()) at = values_.insert(at, TracedValue{std::string(name)});
  at->heads.push_back({sequence, head, f32_copy(value)});
}

void Trace::add(std::string_view name, const Tensor& value) {
  if (!wants(name)) return;
  values_.push_back({std::string(name), f32_copy(value)});
}

const TracedValue* Trace::find(std::string_view name) const {
  const auto at = std::ranges::find(values_, name, &TracedValue::name);
  return at == values_.end() ? nullptr : &*at;
}

const TracedValue& Trace::at(std::string_view name) const {
  const TracedValue* found = find(name);
  check(found != nullptr, "trace: there is no value '{}'", name);
  return *found;
}

ValueStream::ValueStream(std::string_view patterns, Function f) : f_(std::move(f)) {
  while (!patterns.empty()) {
    const size_t comma = std::min(patterns.find(','), patterns.size());
    patterns_.emplace_back(patterns.substr(0, comma));
    patterns.remove_prefix(std::min(comma + 1, patterns.size()));
  }
}

bool ValueStream::wants(std::string_view name) const {
  return fits_any(name, patterns_);
}

void ValueStream::visit(std::string_view name, Tensor& value) {
  Tensor copy = f32_copy(value);
  f_(std::string(name), 0, -1, copy);
  value = convert(copy, value.dtype());
}

void ValueStream::visit_head(std::string_view name, int64_t sequence, int64_t head, Tensor& value) {
  Tensor copy = f32_copy(value);
  f_(std::string(name), sequence, head, copy);
  value = copy;
}

namespace {

// The softmax of each row.
Tensor probabilities(const Tensor& logits) {
  Tensor out = Tensor::empty(logits.shape(), DType::f32);
  for (int64_t r = 0; r < out.rows(); ++r)
    std::ranges::copy(probabilities_of(logits, r), out.mutable_row<float>(r).begin());
  return out;
}

}  // namespace

Tensor run_traced(const Transformer& model, const ModelInput& input, Trace& trace) {
  const NoGrad guard;
  Context context;
  context.probe = &trace;
  const Tensor hidden = model.hidden(input, context);
  const ModelSpec& spec = model.spec();
  const bool tokens = spec.output == Output::tokens;
  if (tokens && spec.head_width > 0) trace.add("head", model.projected(hidden));
  if (tokens && (trace.wants("logits") || trace.wants("probabilities"))) {
    const Tensor logits = convert(model.logits(hidden), DType::f32);
    trace.add("logits", logits);
    trace.add("probabilities", probabilities(logits));
  }
  if (spec.output == Output::sequence_classes || spec.output == Output::embedding)
    trace.add("pooled", model.pooled(hidden, input));
  if (spec.classes() > 0) trace.add("classes", model.classes(hidden, input, {}));
  return hidden;
}

}  // namespace qkv
