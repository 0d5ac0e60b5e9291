#include "qkv/nn/parameter.h"

#include <algorithm>

#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/kernels/kernels.h"
#include "qkv/nn/random_vectors.h"
#include "qkv/ops/dequantize.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

constexpr int64_t kAlignment = 16;  // floats

// The random stream depends on a parameter's name, not on its index: adding a layer does not change how
// others start.
uint32_t site_of(std::string_view name) {
  uint32_t h = 2166136261u;  // FNV-1a
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 16777619u;
  return h;
}

void draw_into(const Parameter& p, uint64_t seed, Tensor& out) {
  const auto to = out.mutable_values<float>();
  const RandomStream stream{seed, 0, site_of(p.name)};
  if (p.initializer.kind == Initializer::Kind::orthogonal) {  // nn/random_vectors.h
    const std::vector<float> vectors = random_vectors(p.shape[0], p.shape[1], true, stream);
    for (int64_t i = 0; i < out.count(); ++i) to[i] = p.initializer.std * vectors[static_cast<size_t>(i)];
    return;
  }
  parallel_for(out.count(), 1 << 12, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) switch (p.initializer.kind) {
        case Initializer::Kind::zeros:
          to[i] = 0;
          break;
        case Initializer::Kind::ones:
          to[i] = 1;
          break;
        case Initializer::Kind::constant:
          to[i] = p.initializer.value;
          break;
        case Initializer::Kind::listed:
          to[i] = p.initializer.values.at(static_cast<size_t>(i));
          break;
        case Initializer::Kind::orthogonal:
          break;
        case Initializer::Kind::normal:
          to[i] = p.initializer.std * static_cast<float>(stream.normal(i));
          break;
      }
  });
}

// Prepares a frozen parameter: its f32 value, to be saved, and the value that a pass reads.
void hold(Parameter& p, uint64_t seed, DType compute) {
  if (p.packed.defined()) return;
  if (p.value.defined()) {
    p.master = convert(p.value.detach(), DType::f32);
  } else {
    p.master = Tensor::empty(p.shape, DType::f32);
    draw_into(p, seed, p.master);
  }
  p.value = convert(p.master, p.kind == ParameterKind::matrix ? compute : DType::f32);
}

}  // namespace

Tensor drawn_numbers(const Parameter& p, uint64_t seed) {
  Tensor out = Tensor::empty(p.shape, DType::f32);
  draw_into(p, seed, out);
  return out;
}

void Parameters::share(std::string prefix, std::string with) {
  shared_.emplace_back(std::move(prefix), std::move(with));
}

Parameter& Parameters::add(std::string name, Shape shape, ParameterKind kind, Initializer initializer) {
  for (const auto& [prefix, with] : shared_)
    if (name.starts_with(prefix)) {
      Parameter* p = find(with + name.substr(prefix.size()));
      check(p != nullptr && p->shape == shape, "parameter '{}': there is none to share", name);
      return *p;
    }
  check(find(name) == nullptr, "parameter '{}' exists already", name);
  check(!training_, "parameter '{}': added after training was prepared", name);
  return parameters_.emplace_back(Parameter{
      .name = std::move(name), .shape = shape, .kind = kind, .initializer = std::move(initializer)});
}

Parameter* Parameters::find(std::string_view name) {
  for (Parameter& p : parameters_)
    if (p.name == name) return &p;
  return nullptr;
}

int64_t Parameters::count() const {
  int64_t n = 0;
  for (const Parameter& p : parameters_) n += p.shape.count();
  return n;
}

void Parameters::prepare_training(DType compute, uint64_t seed) {
  check(compute == DType::f32 || compute == DType::bf16, "training: compute type must be f32 or bf16, got {}",
        name_of(compute));
  for (Parameter& p : parameters_)
    if (p.frozen) hold(p, seed, compute);
  for (const ParameterKind kind : {ParameterKind::matrix, ParameterKind::vector}) {
    int64_t size = 0;
    for (const Parameter& p : parameters_)
      if (p.kind == kind && !p.frozen) size += (p.shape.count() + kAlignment - 1) / kAlignment * kAlignment;
    Arena& a = arena(kind);
    a.master = Tensor::zeros({size}, DType::f32);
    a.gradient = Tensor::zeros({size}, DType::f32);
    a.shadow =
        compute != DType::f32 && kind == ParameterKind::matrix ? Tensor::zeros({size}, compute) : Tensor();
    int64_t at = 0;
    for (Parameter& p : parameters_) {
      if (p.kind != kind || p.frozen) continue;
      p.master = a.master.view(at, p.shape);
      if (p.defined()) {
        p.master.copy(dequantized(p.weight(), DType::f32));
        p.packed = {};
      } else {
        draw_into(p, seed, p.master);
      }
      p.value = a.shadow.defined() ? a.shadow.view(at, p.shape) : p.master;
      p.leaf = make_leaf(p.value, a.gradient.view(at, p.shape));
      at += (p.shape.count() + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  training_ = true;
  this->compute = compute;
  refresh_shadows();
}

void Parameters::draw(uint64_t seed, DType compute) {
  this->compute = compute;
  for (Parameter& p : parameters_) {
    if (p.defined()) continue;
    p.value = convert(drawn_numbers(p, seed), p.kind == ParameterKind::matrix ? compute : DType::f32);
  }
}

void Parameters::reset_gradients() {
  for (Parameter& p : parameters_)
    if (p.leaf) p.leaf->fresh = true;
}

void Parameters::complete_gradients() {
  for (Parameter& p : parameters_) {
    if (!p.leaf || (!p.leaf->fresh && p.rate != 0))
      continue;  // with rate 0 it is zeroed, so that it does not count in the norm
    p.leaf->grad.set_zero();
    p.leaf->fresh = false;
  }
}

void Parameters::refresh_shadows() {
  for (Arena& a : arenas_) {
    if (!a.shadow.defined()) continue;
    const auto from = a.master.values<float>();
    const auto to = a.shadow.mutable_values<BFloat16>();
    parallel_for(a.master.count(), 1 << 14, [&](int64_t i, int64_t end) {
      const int64_t n = end - i;
      kernels().bf16.from_f32(n, from.subspan(i, n).data(), to.subspan(i, n).data());
    });
  }
}

}  // namespace qkv
