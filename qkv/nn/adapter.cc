#include "qkv/nn/adapter.h"

#include <algorithm>
#include <cmath>

#include "qkv/ops/elementwise.h"
#include "qkv/ops/low_rank.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

constexpr uint32_t kSite = 1U << 28;  // random site of the first adapter's dropout

std::string prefix(const AdapterSpec& spec) {
  const std::string_view weight = spec.parameter;
  constexpr std::string_view kEnd = ".weight";
  return fmt::format("{}.lora.{}",
                     weight.ends_with(kEnd) ? weight.substr(0, weight.size() - kEnd.size()) : weight,
                     spec.first_row);
}

}  // namespace

std::string Adapters::name_of_a(const AdapterSpec& spec) {
  return prefix(spec) + ".a";
}
std::string Adapters::name_of_b(const AdapterSpec& spec) {
  return prefix(spec) + ".b";
}

Adapters::Adapters(Parameters& parameters, const std::string& weight, int64_t in, int64_t out) {
  for (size_t i = 0; i < parameters.adapters().size(); ++i) {
    const AdapterSpec& spec = parameters.adapters()[i];
    if (spec.parameter != weight) continue;
    check(spec.rank > 0 && spec.rank <= in, "adapter of {}: the rank must be between 1 and {}, got {}",
          weight, in, spec.rank);
    check(spec.first_row >= 0 && spec.rows > 0 && spec.first_row + spec.rows <= out,
          "adapter of {}: rows [{}, {}) of {}", weight, spec.first_row, spec.first_row + spec.rows, out);
    // PyTorch draws uniformly from +-1 / sqrt(in): this standard deviation.
    const float std = 1 / std::sqrt(3 * static_cast<float>(in));
    // Layers that share a weight share its adapter.
    const auto shared_or = [&](const std::string& name, Shape shape, Initializer initializer) {
      Parameter* there = parameters.find(name);
      return there != nullptr ? there : &parameters.add(name, shape, ParameterKind::matrix, initializer);
    };
    all_.push_back({spec, shared_or(name_of_a(spec), {spec.rank, in}, {Initializer::Kind::normal, std}),
                    shared_or(name_of_b(spec), {spec.rows, spec.rank}, {Initializer::Kind::zeros}),
                    kSite + static_cast<uint32_t>(i)});
  }
}

Tensor add_adapters_of_sequences(Tensor y, const Tensor& x, std::string_view weight,
                                 std::span<const AdapterWeights* const> adapters, const Layout& layout) {
  std::vector<const AdapterWeights*> seen;
  for (const AdapterWeights* adapter : adapters) {
    if (adapter == nullptr || std::ranges::find(seen, adapter) != seen.end()) continue;
    seen.push_back(adapter);
    const auto parts = adapter->of(weight);
    if (parts.empty()) continue;
    check(std::ssize(adapters) == layout.sequences() && x.rows() == layout.rows(),
          "adapters: {} of them and {} rows of {} for {} sequences with {} rows", adapters.size(), x.rows(),
          weight, layout.sequences(), layout.rows());
    std::vector<int32_t> rows;
    for (int64_t s = 0; s < layout.sequences(); ++s)
      if (adapters[static_cast<size_t>(s)] == adapter)
        for (int32_t row = layout.offsets[s]; row < layout.offsets[s + 1]; ++row) rows.push_back(row);
    if (rows.empty()) continue;
    const auto added = [&](Tensor to, const Tensor& read) {
      for (const AdapterWeights::Part& p : parts)
        to = add_low_rank(std::move(to), read, p.a, p.b, p.scale, p.first_row);
      return to;
    };
    if (std::ssize(rows) == layout.rows()) {
      y = added(std::move(y), x);
      continue;
    }
    const Indices which = rows;
    y = replace_rows(y, which, added(select_rows(y, which), select_rows(x, which)));
  }
  return y;
}

Tensor Adapters::add(Tensor y, const Tensor& x, const Context& context) const {
  for (const One& one : all_) {
    const Tensor read = dropout(x, context.dropout(one.spec.dropout, one.site));
    y = add_low_rank(std::move(y), read, one.a->value, one.b->value, one.spec.scale, one.spec.first_row);
  }
  return y;
}

}  // namespace qkv
