#include "qkv/ops/fast_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"
#include "qkv/kernels/scratch.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/fast_weights_chunks.h"

namespace qkv {
namespace {

using namespace fast_weights_parts;

// A run of steps of one head in f32, with widths that the kernels take.
class Run {
 public:
  explicit Run(const Problem& p)
      : p_(p), k_(padded(p.d_k())), v_(padded(p.columns())), memory_(kRun * (5 * k_ + 2 * v_) + 2 * v_) {}

  template <typename T>
  void pack(int64_t s, int64_t head, int64_t begin, int64_t steps) {
    const FastWeightsInput& in = p_.in;
    const int64_t d_k = p_.d_k(), d_v = p_.d_v(), at_k = p_.key_head(head) * d_k;
    const auto to_f32 = kernels().typed<T>().to_f32;
    const auto clear = [&](int64_t i) { std::fill_n(part(i), kRun * k_, 0.0F); };
    for (const int64_t i : {0, 1}) clear(i);
    for (const int64_t i : {3, 4})
      if (p_.delta()) clear(i);
    if (in.decay.defined()) std::fill_n(part(2), kRun * k_, 1.0F);
    std::fill_n(v(0), kRun * v_, 0.0F);
    const T *q_of = in.q.data<T>() + at_k, *k_of = in.k.data<T>() + at_k, *v_of = in.v.data<T>() + head * d_v;
    const float *decay = in.decay.defined() ? in.decay.data<float>() : nullptr,
                *beta_of = in.beta.defined() ? in.beta.data<float>() : nullptr;
    const T *a_of = in.a.defined() ? in.a.data<T>() + head * d_k : nullptr,
            *b_of = in.a.defined() ? in.b.data<T>() + head * d_k : nullptr;
    const int64_t width = in.q.width(), width_v = in.v.width(), width_a = in.heads * d_k;
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t key = p_.key_of(s, begin + t), query = p_.query_of(s, begin + t);
      if (query >= 0) {
        to_f32(d_k, q_of + query * width, q(t));
        for (int64_t i = 0; i < d_k; ++i) q(t)[i] *= in.scale;
      }
      if (key < 0) continue;
      to_f32(d_k, k_of + key * width, k(t));
      to_f32(d_v, v_of + key * width_v, v(t));
      for (int64_t i = 0; i < d_k && decay != nullptr; ++i) w(t)[i] = std::exp(decay[decay_at(key, head, i)]);
      if (in.epsilon) v(t)[d_v] = 1;
      if (beta_of != nullptr) {
        const float beta = beta_of[key * in.heads + head];
        for (int64_t i = 0; i < d_k; ++i) {
          a(t)[i] = -(decay != nullptr ? w(t)[i] : 1) * k(t)[i];
          b(t)[i] = beta * k(t)[i];
        }
        for (int64_t j = 0; j < d_v; ++j) v(t)[j] *= beta;
      }
      if (a_of == nullptr) continue;
      to_f32(d_k, a_of + key * width_a, a(t));
      to_f32(d_k, b_of + key * width_a, b(t));
    }
    steps_ = steps;
  }

  FastWeights kernel_input() const {
    const bool decays = p_.in.decay.defined(), delta = p_.delta();
    return {steps_,
            k_,
            v_,
            q(0),
            k(0),
            v(0),
            decays ? w(0) : nullptr,
            delta ? a(0) : nullptr,
            delta ? b(0) : nullptr};
  }
  int64_t decay_at(int64_t key, int64_t head, int64_t i) const {
    return p_.decays_rows() ? (key * p_.in.heads + head) * p_.d_k() + i : key * p_.in.heads + head;
  }

  int64_t width_k() const { return k_; }
  int64_t width_v() const { return v_; }
  float* q(int64_t t) const { return part(0) + t * k_; }
  float* k(int64_t t) const { return part(1) + t * k_; }
  float* w(int64_t t) const { return part(2) + t * k_; }
  float* a(int64_t t) const { return part(3) + t * k_; }
  float* b(int64_t t) const { return part(4) + t * k_; }
  float* v(int64_t t) const { return part(5) + t * v_; }
  float* y(int64_t t) const { return part(5) + (kRun + t) * v_; }
  float* memory() const { return part(5) + 2 * kRun * v_; }

 private:
  float* part(int64_t i) const { return memory_.data() + i * kRun * k_; }

  const Problem& p_;
  int64_t k_, v_, steps_ = 0;
  Scratch memory_;
};

// A head's state [d_k, columns] to or from a padded one.
void load_state(const Problem& p, const Tensor& states, int64_t s, int64_t head, float* to) {
  const int64_t rows = p.d_k(), columns = p.columns(), wide = padded(columns);
  std::fill_n(to, p.padded_state(), 0.0F);
  if (!states.defined()) return;
  const float* from = states.data<float>() + s * p.state_width() + head * rows * columns;
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * columns, columns, to + i * wide);
}
void store_state(const Problem& p, const float* from, int64_t s, int64_t head, Tensor& states) {
  const int64_t rows = p.d_k(), columns = p.columns(), wide = padded(columns);
  float* to = states.mutable_data<float>() + s * p.state_width() + head * rows * columns;
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * wide, columns, to + i * columns);
}

// begins: if defined, gets the padded states that runs begin with, [runs heads, padded state]. REQUIRES,
// then: there are no marks, at which runs end, too.
template <typename T>
void forward(const Problem& p, Tensor& y, Tensor& state, Tensor& marked, Tensor& begins) {
  const int64_t d_v = p.d_v(), size = p.padded_state();
  for_heads(p, [&](int64_t s, int64_t head, int64_t first_run) {
    Run run(p);
    const Scratch matrix(size);
    load_state(p, p.first, s, head, matrix.data());
    const int64_t mark = p.marks.empty() ? -1 : p.marks[s];
    if (mark == 0) store_state(p, matrix.data(), s, head, marked);
    for (int64_t begin = 0, steps = 0; begin < p.steps(s); begin += steps) {
      steps = std::min(kRun, p.steps(s) - begin);
      if (begin < mark) steps = std::min(steps, mark - begin);
      if (begins.defined())
        std::copy_n(matrix.data(), size,
                    begins.mutable_data<float>() + ((first_run + begin / kRun) * p.in.heads + head) * size);
      run.pack<T>(s, head, begin, steps);
      kernels().fast_weights(run.kernel_input(), matrix.data(), run.y(0), nullptr, run.memory());
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t query = p.query_of(s, begin + t);
        if (query < 0) continue;
        T* out = y.mutable_data<T>() + query * y.width() + head * d_v;
        const float divisor = p.in.epsilon ? p.divisor(run.y(t)[d_v]) : 1;
        for (int64_t j = 0; j < d_v; ++j) out[j] = T(run.y(t)[j] / divisor);
      }
      if (begin + steps == mark) store_state(p, matrix.data(), s, head, marked);
    }
    store_state(p, matrix.data(), s, head, state);
  });
}

class FastWeightsNode : public Node {
 public:
  FastWeightsNode(Problem p, Tensor begins) : p_(std::move(p)), begins_(std::move(begins)) {
    FastWeightsInput& in = p_.in;
    for (Tensor* x : {&in.q, &in.k, &in.v, &in.decay, &in.beta, &in.a, &in.b, &p_.first}) {
      add_input(*x);
      if (x->defined()) *x = x->detach();
    }
  }
  std::string_view name() const override { return "fast_weights"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor dstate = grads.size() > 1 ? grads[1] : Tensor();
    with_float_type("fast_weights", p_.in.v.dtype(),
                    [&]<typename T>(T) { backward_of<T>(grads[0], dstate); });
  }

 private:
  // Gradients of q and k are sums over the heads that share them: f32, converted at the end.
  template <typename T>
  void backward_of(const Tensor& dy, const Tensor& dstate) {
    const FastWeightsInput& in = p_.in;
    const std::array<const Tensor*, kSlots> given = {&in.q,    &in.k, &in.v, &in.decay,
                                                     &in.beta, &in.a, &in.b, &p_.first};
    std::array<Tensor, kSlots> grad;
    for (int i = 0; i < kSlots; ++i)
      if (given[i]->defined()) grad[i] = Tensor::zeros(given[i]->shape(), DType::f32);
    if (!grad[kFirst].defined()) grad[kFirst] = Tensor::zeros({p_.sequences(), p_.state_width()}, DType::f32);
    if (goes_in_chunks(p_))
      backward_in_chunks<T>(p_, begins_, dy, dstate, grad);
    else
      for_heads(p_, [&](int64_t s, int64_t head, int64_t first_run) {
        backward_of_head<T>(s, head, first_run, dy, dstate, grad);
      });
    for (int i = 0; i < kSlots; ++i)
      if (given[i]->defined() && wants(i)) give(i, convert(grad[i], given[i]->dtype()));
  }

  template <typename T>
  void backward_of_head(int64_t s, int64_t head, int64_t first_run, const Tensor& dy, const Tensor& dstate,
                        std::array<Tensor, kSlots>& grad) {
    const FastWeightsInput& in = p_.in;
    const int64_t d_k = p_.d_k(), d_v = p_.d_v(), size = p_.padded_state();
    Run run(p_);
    const int64_t wide_k = run.width_k(), wide_v = run.width_v();
    const Scratch matrix(size), states((kRun + 1) * size), rows(kRun * (5 * wide_k + 2 * wide_v));
    float *const dq = rows.data(), *const dk = dq + kRun * wide_k, *const dw = dk + kRun * wide_k,
                 *const da = dw + kRun * wide_k, *const db = da + kRun * wide_k,
                 *const dv = db + kRun * wide_k, *const dy_rows = dv + kRun * wide_v;
    load_state(p_, dstate, s, head, matrix.data());
    for (int64_t r = p_.runs(s) - 1; r >= 0; --r) {
      const int64_t begin = r * kRun, steps = std::min(kRun, p_.steps(s) - begin);
      run.pack<T>(s, head, begin, steps);
      const Scratch state(size);
      std::copy_n(begins_.data<float>() + ((first_run + r) * in.heads + head) * size, size, state.data());
      kernels().fast_weights(run.kernel_input(), state.data(), run.y(0), states.data(), run.memory());
      std::fill_n(dy_rows, kRun * wide_v, 0.0F);
      for (int64_t t = 0; t < steps && dy.defined(); ++t) {
        const int64_t query = p_.query_of(s, begin + t);
        if (query < 0) continue;
        const T* from = dy.data<T>() + query * dy.width() + head * d_v;
        const float divisor = in.epsilon ? p_.divisor(run.y(t)[d_v]) : 1;
        const float slope = in.epsilon ? p_.divisor_slope(run.y(t)[d_v]) : 0;
        float* to = dy_rows + t * wide_v;
        for (int64_t j = 0; j < d_v; ++j) {
          to[j] = static_cast<float>(from[j]) / divisor;
          if (slope != 0) to[d_v] -= slope * to[j] * run.y(t)[j] / divisor;
        }
      }
      const bool decays = in.decay.defined(), delta = p_.delta();
      kernels().fast_weights_grad({run.kernel_input(), states.data(), dy_rows, matrix.data(), dq, dk, dv,
                                   decays ? dw : nullptr, delta ? da : nullptr, delta ? db : nullptr,
                                   run.memory()});
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t key = p_.key_of(s, begin + t), query = p_.query_of(s, begin + t);
        const int64_t at_k = p_.key_head(head) * d_k;
        for (int64_t i = 0; i < d_k && query >= 0; ++i)
          grad[kQ].mutable_data<float>()[query * in.q.width() + at_k + i] += in.scale * dq[t * wide_k + i];
        if (key >= 0) take<T>(run, head, key, t, dk, dw, da, db, dv, grad);
      }
    }
    store_state(p_, matrix.data(), s, head, grad[kFirst]);
  }

  // Takes the gradients of what step t was made of.
  template <typename T>
  void take(const Run& run, int64_t head, int64_t key, int64_t t, const float* dk, const float* dw,
            const float* da, const float* db, const float* dv, std::array<Tensor, kSlots>& grad) const {
    const FastWeightsInput& in = p_.in;
    const int64_t d_k = p_.d_k(), d_v = p_.d_v(), of_head = key * in.heads + head, at = t * run.width_k();
    const auto place = [&](Slot slot, int64_t first) {
      return grad[slot].defined() ? grad[slot].mutable_data<float>() + first : nullptr;
    };
    float *const to_k = place(kK, key * in.k.width() + p_.key_head(head) * d_k),
                 *const to_v = place(kV, of_head * d_v), *const to_decay = place(kDecay, 0),
                 *const to_beta = place(kBeta, of_head), *const to_a = place(kA, of_head * d_k),
                 *const to_b = place(kB, of_head * d_k);
    const float beta = to_beta ? in.beta.data<float>()[of_head] : 1;
    const T* const v = in.v.data<T>() + of_head * d_v;
    float of_beta = 0;
    for (int64_t i = 0; i < d_k; ++i) {
      const float w = to_decay ? run.w(t)[i] : 1;
      float of_k = dk[at + i], of_w = to_decay ? dw[at + i] : 0;
      if (to_beta) {  // a = -w k, b = beta k
        of_k += beta * db[at + i] - w * da[at + i];
        of_w -= run.k(t)[i] * da[at + i];
        of_beta += db[at + i] * run.k(t)[i];
      }
      to_k[i] += of_k;
      if (to_decay) to_decay[run.decay_at(key, head, i)] += w * of_w;
      if (to_a) to_a[i] = da[at + i], to_b[i] = db[at + i];
    }
    for (int64_t j = 0; j < d_v; ++j) {
      const float of_v = dv[t * run.width_v() + j];
      to_v[j] = beta * of_v;
      of_beta += of_v * static_cast<float>(v[j]);
    }
    if (to_beta) *to_beta = of_beta;
  }

  Problem p_;
  Tensor begins_;
};

void check_input(const Problem& p) {
  const FastWeightsInput& in = p.in;
  check(in.heads > 0 && in.key_heads > 0 && in.heads % in.key_heads == 0,
        "fast_weights: {} heads cannot share the keys of {}", in.heads, in.key_heads);
  for (const Tensor* x : {&in.q, &in.k, &in.v})
    check(x->defined() && x->shape().rank() == 2 && x->dtype() == in.v.dtype(),
          "fast_weights: q, k and v must be matrices of one type, got {}", *x);
  check(in.q.width() == in.k.width() && in.q.width() % in.key_heads == 0 && in.v.width() % in.heads == 0 &&
            in.q.width() > 0 && in.v.width() > 0,
        "fast_weights: {} heads with keys of {}: q {}, k {}, v {} do not fit", in.heads, in.key_heads, in.q,
        in.k, in.v);
  check(p.offsets.size() == p.key_offsets.size() && !p.offsets.empty() && p.offsets.back() == in.q.rows() &&
            p.key_offsets.back() == in.k.rows() && in.v.rows() == in.k.rows(),
        "fast_weights: the offsets do not fit q {}, k {}, v {}", in.q, in.k, in.v);
  check(!p.causal || p.offsets == p.key_offsets,
        "fast_weights: causal: queries and keys are of other tokens");
  const int64_t m = in.k.rows();
  if (in.decay.defined()) {
    const int64_t width = in.decay.width();
    check(in.decay.dtype() == DType::f32 && in.decay.rows() == m &&
              (width == in.heads || width == in.heads * p.d_k()),
          "fast_weights: expected decay f32 [{}, {} or {}], got {}", m, in.heads, in.heads * p.d_k(),
          in.decay);
  }
  if (in.beta.defined())
    check(in.beta.dtype() == DType::f32 && in.beta.shape() == Shape({m, in.heads}),
          "fast_weights: expected beta f32 [{}, {}], got {}", m, in.heads, in.beta);
  check(in.a.defined() == in.b.defined() && !(in.a.defined() && in.beta.defined()),
        "fast_weights: a and b belong together, and without beta");
  for (const Tensor* x : {&in.a, &in.b})
    check(!x->defined() || (x->dtype() == in.v.dtype() && x->shape() == Shape({m, in.heads * p.d_k()})),
          "fast_weights: expected a and b [{}, {}], got {}", m, in.heads * p.d_k(), *x);
  check(!(in.epsilon && p.delta()), "fast_weights: only sums are normalised");
  check(in.least_divisor >= 0 && (in.least_divisor == 0 || in.epsilon),
        "fast_weights: a least divisor, {}, is of sums that are normalised", in.least_divisor);
  check(in.divisors == LeastDivisor::of_magnitude || in.least_divisor > 0,
        "fast_weights: expected a least divisor above 0, got {}", in.least_divisor);
  check(p.marks.empty() || (std::ssize(p.marks) == p.sequences() && p.causal),
        "fast_weights: {} marks in {} sequences", p.marks.size(), p.sequences());
  for (int64_t s = 0; s < std::ssize(p.marks); ++s)
    check(p.marks[s] >= 0 && p.marks[s] <= p.queries(s),
          "fast_weights: sequence {} of {} tokens has a mark at {}", s, p.queries(s), p.marks[s]);
  check(!p.first.defined() ||
            (p.first.dtype() == DType::f32 && p.first.shape() == Shape({p.sequences(), p.state_width()})),
        "fast_weights: expected first f32 [{}, {}], got {}", p.sequences(), p.state_width(), p.first);
}

}  // namespace

FastWeightsResult fast_weights(const FastWeightsInput& in, const Tensor& first,
                               std::span<const int32_t> offsets, std::span<const int32_t> key_offsets,
                               bool causal, std::span<const int32_t> marks) {
  Problem p{in,
            first,
            {offsets.begin(), offsets.end()},
            {key_offsets.begin(), key_offsets.end()},
            causal,
            {marks.begin(), marks.end()}};
  check_input(p);
  FastWeightsResult out{Tensor::empty({in.q.rows(), in.v.width()}, in.v.dtype()),
                        Tensor::empty({p.sequences(), p.state_width()}, DType::f32),
                        {}};
  if (!marks.empty()) out.marked = Tensor::empty(out.state.shape(), DType::f32);
  const bool recorded = wants_grad({&in.q, &in.k, &in.v, &in.decay, &in.beta, &in.a, &in.b, &first});
  Tensor begins;
  if (recorded) {
    check(marks.empty(), "fast_weights: marks are for passes without gradients");
    int64_t runs = 0;
    for (int64_t s = 0; s < p.sequences(); ++s) runs += p.runs(s);
    begins = goes_in_chunks(p) ? Tensor::empty({chunk_states(p), p.d_k() * p.columns()}, DType::f32)
                               : Tensor::empty({runs * in.heads, p.padded_state()}, DType::f32);
  }
  // In inference a token's bits must not depend on how many are read at once.
  const bool in_chunks = !inferring() && goes_in_chunks(p);
  with_float_type("fast_weights", in.v.dtype(), [&]<typename T>(T) {
    in_chunks ? forward_in_chunks<T>(p, out.y, out.state, begins)
              : forward<T>(p, out.y, out.state, out.marked, begins);
  });
  if (recorded) {
    const auto node = std::make_shared<FastWeightsNode>(std::move(p), std::move(begins));
    connect(out.y, node, 0);
    connect(out.state, node, 1);
  }
  return out;
}

}  // namespace qkv
