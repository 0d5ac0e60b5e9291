#include "qkv/ops/wkv.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

constexpr int64_t kRun = 32;    // tokens between two states that the backward pass begins from
constexpr int64_t kLanes = 16;  // neighbouring channels at once
constexpr float kNothing = -1e30F;

using Lanes = std::array<float, kLanes>;

struct Problem {
  WkvInput in;
  Tensor first;
  std::vector<int32_t> offsets, marks;

  int64_t sequences() const { return std::ssize(offsets) - 1; }
  int64_t channels() const { return in.k.width(); }
  int64_t blocks() const { return (channels() + kLanes - 1) / kLanes; }
  int64_t tokens(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t runs(int64_t s) const { return (tokens(s) + kRun - 1) / kRun; }
  std::vector<int64_t> first_runs() const {
    std::vector<int64_t> out = {0};
    for (int64_t s = 0; s < sequences(); ++s) out.push_back(out.back() + runs(s));
    return out;
  }
};

// A = a exp(p), B = b exp(p).
struct State {
  Lanes a = {}, b = {}, p;
};

// The parts of a step: those of what was and of the token, in y and in the next state. No part is above 1.
struct Step {
  Lanes was_read, now_read, kept, added;  // y = (was_read a + now_read v) / divisor, a' = kept a + added v
  Lanes divisor, p;
};

Step step_of(const State& s, const Lanes& k, const Lanes& w, const Lanes& u) {
  Step out;
  std::array<Lanes, 4> exponents;
  for (int64_t c = 0; c < kLanes; ++c) {
    const float q = std::max(s.p[c], u[c] + k[c]);
    out.p[c] = std::max(s.p[c] + w[c], k[c]);
    exponents[0][c] = s.p[c] - q;
    exponents[1][c] = u[c] + k[c] - q;
    exponents[2][c] = s.p[c] + w[c] - out.p[c];
    exponents[3][c] = k[c] - out.p[c];
  }
  kernels().exp(4 * kLanes, exponents[0].data(), exponents[0].data());
  out.was_read = exponents[0], out.now_read = exponents[1];
  out.kept = exponents[2], out.added = exponents[3];
  for (int64_t c = 0; c < kLanes; ++c) out.divisor[c] = out.was_read[c] * s.b[c] + out.now_read[c];
  return out;
}

// Up to kLanes channels, beginning with `begin`, through time.
template <typename T>
class Channels {
 public:
  Channels(const Problem& p, int64_t block)
      : p_(p), begin_(block * kLanes), size_(std::min(kLanes, p.channels() - begin_)) {
    for (int64_t c = 0; c < size_; ++c) {
      w_[c] = -std::exp(p.in.log_rates.data<float>()[begin_ + c]);
      u_[c] = p.in.bonus.data<float>()[begin_ + c];
    }
  }
  int64_t size() const { return size_; }
  int64_t at(int64_t row) const { return row * p_.channels() + begin_; }
  Lanes k(int64_t row) const {
    Lanes out = {};
    for (int64_t c = 0; c < size_; ++c) out[c] = static_cast<float>(p_.in.k.data<T>()[at(row) + c]);
    return out;
  }
  float v(int64_t row, int64_t c) const { return static_cast<float>(p_.in.v.data<T>()[at(row) + c]); }
  float w(int64_t c) const { return w_[c]; }
  Step step(const State& s, int64_t row) const { return step_of(s, k(row), w_, u_); }
  // Moves the state on by a token; writes y unless it is null.
  void next(State& s, int64_t row, T* y) const {
    const Step t = step(s, row);
    for (int64_t c = 0; c < size_; ++c) {
      const float value = v(row, c);
      if (y != nullptr) y[at(row) + c] = T((t.was_read[c] * s.a[c] + t.now_read[c] * value) / t.divisor[c]);
      s.a[c] = t.kept[c] * s.a[c] + t.added[c] * value;
      s.b[c] = t.kept[c] * s.b[c] + t.added[c];
      s.p[c] = t.p[c];
    }
  }
  // Row r of f32 [rows, 3 D]; nothing where it is undefined or its b is 0.
  State load(const Tensor& states, int64_t r) const {
    State s;
    s.p.fill(kNothing);
    if (!states.defined()) return s;
    const float* from = states.data<float>() + r * 3 * p_.channels() + begin_;
    for (int64_t c = 0; c < size_; ++c) {
      s.a[c] = from[c];
      s.b[c] = from[p_.channels() + c];
      if (s.b[c] != 0) s.p[c] = from[2 * p_.channels() + c];
    }
    return s;
  }
  void store(const State& s, int64_t r, Tensor& states) const {
    float* to = states.mutable_data<float>() + r * 3 * p_.channels() + begin_;
    for (int64_t c = 0; c < size_; ++c) {
      to[c] = s.a[c];
      to[p_.channels() + c] = s.b[c];
      to[2 * p_.channels() + c] = s.p[c];
    }
  }

 private:
  const Problem& p_;
  int64_t begin_, size_;
  Lanes w_ = {}, u_ = {};
};

// begins: if defined, gets the states that runs begin with, [runs, 3 D].
template <typename T>
void forward(const Problem& p, WkvResult& out, Tensor& begins) {
  const std::vector<int64_t> runs = p.first_runs();
  T* const y = out.y.mutable_data<T>();
  parallel_for(p.sequences() * p.blocks(), 1, [&](int64_t task, int64_t end) {
    for (; task < end; ++task) {
      const int64_t s = task / p.blocks();
      const Channels<T> channels(p, task % p.blocks());
      State state = channels.load(p.first, s);
      for (int64_t t = 0; t <= p.tokens(s); ++t) {
        if (!p.marks.empty() && p.marks[s] == t) channels.store(state, s, out.marked);
        if (t == p.tokens(s)) break;
        if (begins.defined() && t % kRun == 0) channels.store(state, runs[s] + t / kRun, begins);
        channels.next(state, p.offsets[s] + t, y);
      }
      channels.store(state, s, out.state);
    }
  });
}

enum Slot : int { kK, kV, kLogRates, kBonus, kFirst, kSlots };

class WkvNode : public Node {
 public:
  WkvNode(Problem p, Tensor begins) : p_(std::move(p)), begins_(std::move(begins)) {
    for (Tensor* x : {&p_.in.k, &p_.in.v, &p_.in.log_rates, &p_.in.bonus, &p_.first}) {
      add_input(*x);
      if (x->defined()) *x = x->detach();
    }
  }
  std::string_view name() const override { return "wkv"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor dstate = grads.size() > 1 ? grads[1] : Tensor();
    with_float_type("wkv", p_.in.k.dtype(), [&]<typename T>(T) { backward_of<T>(grads[0], dstate); });
  }

 private:
  using Grads = std::array<Tensor, kSlots>;

  template <typename T>
  void backward_of(const Tensor& dy, const Tensor& dstate) {
    const std::array<const Tensor*, kSlots> given = {&p_.in.k, &p_.in.v, &p_.in.log_rates, &p_.in.bonus,
                                                     &p_.first};
    Grads grad;
    for (int i = 0; i < kFirst; ++i) grad[i] = Tensor::zeros(given[i]->shape(), DType::f32);
    grad[kFirst] = Tensor::zeros({p_.sequences(), 3 * p_.channels()}, DType::f32);
    parallel_for(p_.blocks(), 1, [&](int64_t block, int64_t end) {
      for (; block < end; ++block) backward_of_block<T>(block, dy, dstate, grad);
    });
    for (int i = 0; i < kSlots; ++i)
      if (given[i]->defined() && wants(i)) give(i, convert(grad[i], given[i]->dtype()));
  }

  // With GA and GB the gradients of A and B times exp(p), which stay within what floats hold.
  template <typename T>
  void backward_of_block(int64_t block, const Tensor& dy, const Tensor& dstate, Grads& grad) const {
    const Channels<T> channels(p_, block);
    const std::vector<int64_t> runs = p_.first_runs();
    std::array<State, kRun> before;
    Lanes of_rate = {}, of_bonus = {};
    float *dk = grad[kK].mutable_data<float>(), *dv = grad[kV].mutable_data<float>();
    for (int64_t s = 0; s < p_.sequences(); ++s) {
      State d = channels.load({}, 0);  // GA and GB
      if (dstate.defined()) {
        const float* from = dstate.data<float>() + s * 3 * p_.channels() + channels.at(0);
        for (int64_t c = 0; c < channels.size(); ++c) d.a[c] = from[c], d.b[c] = from[p_.channels() + c];
      }
      for (int64_t r = p_.runs(s) - 1; r >= 0; --r) {
        const int64_t begin = p_.offsets[s] + r * kRun, count = std::min(kRun, p_.tokens(s) - r * kRun);
        State state = channels.load(begins_, runs[s] + r);
        for (int64_t t = 0; t < count; ++t) {
          before[t] = state;
          channels.next(state, begin + t, nullptr);
        }
        for (int64_t t = count - 1; t >= 0; --t) {
          const int64_t row = begin + t;
          const Step step = channels.step(before[t], row);
          for (int64_t c = 0; c < channels.size(); ++c) {
            const int64_t i = channels.at(row) + c;
            const float out = dy.defined() ? static_cast<float>(dy.data<T>()[i]) : 0;
            const float a = before[t].a[c], b = before[t].b[c], v = channels.v(row, c);
            const float y = (step.was_read[c] * a + step.now_read[c] * v) / step.divisor[c],
                        each = out / step.divisor[c];
            const float of_read = each * step.now_read[c] * (v - y);
            of_bonus[c] += of_read;
            dk[i] = of_read + step.added[c] * (v * d.a[c] + d.b[c]);
            dv[i] = each * step.now_read[c] + step.added[c] * d.a[c];
            of_rate[c] += channels.w(c) * step.kept[c] * (a * d.a[c] + b * d.b[c]);
            d.a[c] = each * step.was_read[c] + step.kept[c] * d.a[c];
            d.b[c] = -each * y * step.was_read[c] + step.kept[c] * d.b[c];
          }
        }
      }
      for (int64_t c = 0; c < channels.size(); ++c) {
        const State first = channels.load(p_.first, s);
        d.p[c] = first.a[c] * d.a[c] + first.b[c] * d.b[c];
      }
      channels.store(d, s, grad[kFirst]);
    }
    for (int64_t c = 0; c < channels.size(); ++c) {
      grad[kLogRates].mutable_data<float>()[channels.at(0) + c] = of_rate[c];
      grad[kBonus].mutable_data<float>()[channels.at(0) + c] = of_bonus[c];
    }
  }

  Problem p_;
  Tensor begins_;
};

void check_input(const Problem& p) {
  const WkvInput& in = p.in;
  check(in.k.defined() && in.k.shape().rank() == 2 && in.k.width() > 0, "wkv: expected k [N, D]");
  const int64_t rows = in.k.dim(0), width = in.k.width();
  check(in.v.defined() && in.v.shape() == in.k.shape() && in.v.dtype() == in.k.dtype(),
        "wkv: expected v like k {}, got {}", in.k, in.v);
  for (const Tensor* x : {&in.log_rates, &in.bonus})
    check(x->defined() && x->dtype() == DType::f32 && x->shape() == Shape({width}),
          "wkv: expected rates and bonuses f32 [{}], got {}", width, *x);
  check(!p.offsets.empty() && p.offsets.front() == 0 && p.offsets.back() == rows &&
            std::ranges::is_sorted(p.offsets),
        "wkv: the offsets do not fit k {}", in.k);
  check(p.marks.empty() || std::ssize(p.marks) == p.sequences(), "wkv: {} marks in {} sequences",
        p.marks.size(), p.sequences());
  for (int64_t s = 0; s < std::ssize(p.marks); ++s)
    check(p.marks[s] >= 0 && p.marks[s] <= p.tokens(s), "wkv: sequence {} of {} tokens has a mark at {}", s,
          p.tokens(s), p.marks[s]);
  check(!p.first.defined() ||
            (p.first.dtype() == DType::f32 && p.first.shape() == Shape({p.sequences(), 3 * width})),
        "wkv: expected first f32 [{}, {}], got {}", p.sequences(), 3 * width, p.first);
}

}  // namespace

WkvResult wkv(const WkvInput& in, const Tensor& first, std::span<const int32_t> offsets,
              std::span<const int32_t> marks) {
  Problem p{in, first, {offsets.begin(), offsets.end()}, {marks.begin(), marks.end()}};
  check_input(p);
  const int64_t numbers = 3 * p.channels();
  WkvResult out{
      Tensor::empty(in.k.shape(), in.k.dtype()), Tensor::empty({p.sequences(), numbers}, DType::f32), {}};
  if (!marks.empty()) out.marked = Tensor::empty(out.state.shape(), DType::f32);
  const bool recorded = wants_grad({&in.k, &in.v, &in.log_rates, &in.bonus, &first});
  Tensor begins;
  if (recorded) {
    check(marks.empty(), "wkv: marks are for passes without gradients");
    begins = Tensor::empty({p.first_runs().back(), numbers}, DType::f32);
  }
  with_float_type("wkv", in.k.dtype(), [&]<typename T>(T) { forward<T>(p, out, begins); });
  if (recorded) {
    const auto node = std::make_shared<WkvNode>(std::move(p), std::move(begins));
    connect(out.y, node, 0);
    connect(out.state, node, 1);
  }
  return out;
}

}  // namespace qkv
