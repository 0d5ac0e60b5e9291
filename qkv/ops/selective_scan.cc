#include "qkv/ops/selective_scan.h"

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
constexpr int64_t kPieces = 8;  // parts of a group's channels whose gradients of B and C are summed apart

// The inputs in the order of their gradients.
enum Slot : int { kX, kSteps, kLogRates, kB, kC, kSkip, kFirst, kSlots };

using Lanes = std::array<float, kLanes>;

struct Problem {
  SelectiveScanInput in;
  Tensor first;
  std::vector<int32_t> offsets, marks;

  int64_t sequences() const { return std::ssize(offsets) - 1; }
  int64_t channels() const { return in.x.width(); }
  int64_t n() const { return in.log_rates.width(); }
  int64_t groups() const { return in.B.width() / n(); }
  int64_t of_group() const { return channels() / groups(); }
  int64_t tokens(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t runs(int64_t s) const { return (tokens(s) + kRun - 1) / kRun; }
};

// Channels [begin, end) of one group, at most kLanes.
struct Block {
  int64_t begin, end, group;

  int64_t size() const { return end - begin; }
  // Channels of `from`, a row; 0 behind them.
  template <typename T>
  Lanes load(const T* from) const {
    Lanes out = {};
    for (int64_t c = 0; c < size(); ++c) out[c] = static_cast<float>(from[begin + c]);
    return out;
  }
};

// The blocks of channels [begin, end) of a group.
std::vector<Block> blocks_of(int64_t group, int64_t begin, int64_t end) {
  std::vector<Block> out;
  for (; begin < end; begin += kLanes) out.push_back({begin, std::min(begin + kLanes, end), group});
  return out;
}

// One block of channels through time, in f32: its state has for each of the n numbers the channels in turn.
template <typename T>
class Scan {
 public:
  Scan(const Problem& p, Block block)
      : p_(p), block_(block), n_(p.n()), rates_(static_cast<size_t>(n_)), kept_(rates_.size()) {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t c = 0; c < block.size(); ++c)
        rates_[i][c] = -std::exp(p.in.log_rates.data<float>()[(block.begin + c) * n_ + i]);
    if (p.in.skip.defined()) skip_ = block.load(p.in.skip.data<float>());
  }

  // The inputs of a row.
  struct Token {
    Lanes x, step;
    const T *B, *C;
  };
  Token token(int64_t row) const {
    const SelectiveScanInput& in = p_.in;
    const int64_t at = row * in.B.width() + block_.group * n_;
    return {block_.load(in.x.data<T>() + row * p_.channels()),
            block_.load(in.steps.data<float>() + row * p_.channels()), in.B.data<T>() + at,
            in.C.data<T>() + at};
  }
  // exp(step A) for each number of the state, until the next call.
  const std::vector<Lanes>& kept(const Token& t) const {
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t c = 0; c < kLanes; ++c) kept_[i][c] = t.step[c] * rates_[i][c];
    kernels().exp(n_ * kLanes, kept_[0].data(), kept_[0].data());
    return kept_;
  }
  // Moves the state [n] on by a token; returns y.
  Lanes next(const Token& t, Lanes* state) const {
    Lanes y;
    for (int64_t c = 0; c < kLanes; ++c) y[c] = skip_[c] * t.x[c];
    const std::vector<Lanes>& all = kept(t);
    for (int64_t i = 0; i < n_; ++i) {
      const Lanes& keep = all[i];
      const auto in = static_cast<float>(t.B[i]), out = static_cast<float>(t.C[i]);
      for (int64_t c = 0; c < kLanes; ++c) {
        state[i][c] = keep[c] * state[i][c] + t.step[c] * t.x[c] * in;
        y[c] += state[i][c] * out;
      }
    }
    return y;
  }
  // Channels' states of row r of f32 [rows, D n]; zeros where it is undefined.
  void load(const Tensor& states, int64_t r, Lanes* to) const {
    std::fill_n(to, n_, Lanes{});
    if (!states.defined()) return;
    const float* from = states.data<float>() + (r * p_.channels() + block_.begin) * n_;
    for (int64_t c = 0; c < block_.size(); ++c)
      for (int64_t i = 0; i < n_; ++i) to[i][c] = from[c * n_ + i];
  }
  void store(const Lanes* from, int64_t r, Tensor& states) const {
    float* to = states.mutable_data<float>() + (r * p_.channels() + block_.begin) * n_;
    for (int64_t c = 0; c < block_.size(); ++c)
      for (int64_t i = 0; i < n_; ++i) to[c * n_ + i] = from[i][c];
  }

  const Lanes& rates(int64_t i) const { return rates_[i]; }
  const Lanes& skip() const { return skip_; }

 private:
  const Problem& p_;
  Block block_;
  int64_t n_;
  std::vector<Lanes> rates_;
  mutable std::vector<Lanes> kept_;
  Lanes skip_ = {};
};

std::vector<int64_t> first_runs(const Problem& p) {
  std::vector<int64_t> runs = {0};
  for (int64_t s = 0; s < p.sequences(); ++s) runs.push_back(runs.back() + p.runs(s));
  return runs;
}

// begins: if defined, gets the states that runs begin with, [runs, D n].
template <typename T>
void forward(const Problem& p, SelectiveScanResult& out, Tensor& begins) {
  std::vector<Block> blocks;
  for (int64_t g = 0; g < p.groups(); ++g)
    for (const Block& b : blocks_of(g, g * p.of_group(), (g + 1) * p.of_group())) blocks.push_back(b);
  const std::vector<int64_t> runs = first_runs(p);
  T* const y = out.y.mutable_data<T>();
  parallel_for(p.sequences() * std::ssize(blocks), 1, [&](int64_t task, int64_t end) {
    std::vector<Lanes> state(static_cast<size_t>(p.n()));
    for (; task < end; ++task) {
      const int64_t s = task / std::ssize(blocks);
      const Block& block = blocks[task % std::ssize(blocks)];
      const Scan<T> scan(p, block);
      scan.load(p.first, s, state.data());
      for (int64_t t = 0; t <= p.tokens(s); ++t) {
        if (!p.marks.empty() && p.marks[s] == t) scan.store(state.data(), s, out.marked);
        if (t == p.tokens(s)) break;
        if (begins.defined() && t % kRun == 0) scan.store(state.data(), runs[s] + t / kRun, begins);
        const int64_t row = p.offsets[s] + t;
        const Lanes now = scan.next(scan.token(row), state.data());
        for (int64_t c = 0; c < block.size(); ++c) y[row * p.channels() + block.begin + c] = T(now[c]);
      }
      scan.store(state.data(), s, out.state);
    }
  });
}

class SelectiveScanNode : public Node {
 public:
  SelectiveScanNode(Problem p, Tensor begins) : p_(std::move(p)), begins_(std::move(begins)) {
    SelectiveScanInput& in = p_.in;
    for (Tensor* x : {&in.x, &in.steps, &in.log_rates, &in.B, &in.C, &in.skip, &p_.first}) {
      add_input(*x);
      if (x->defined()) *x = x->detach();
    }
  }
  std::string_view name() const override { return "selective_scan"; }
  void backward(std::span<Tensor> grads) override {
    const Tensor dstate = grads.size() > 1 ? grads[1] : Tensor();
    with_float_type("selective_scan", p_.in.x.dtype(),
                    [&]<typename T>(T) { backward_of<T>(grads[0], dstate); });
  }

 private:
  using Grads = std::array<Tensor, kSlots>;

  template <typename T>
  void backward_of(const Tensor& dy, const Tensor& dstate) {
    const SelectiveScanInput& in = p_.in;
    const std::array<const Tensor*, kSlots> given = {&in.x, &in.steps, &in.log_rates, &in.B,
                                                     &in.C, &in.skip,  &p_.first};
    Grads grad;
    for (int i = 0; i < kSlots; ++i)
      if (i != kB && i != kC && given[i]->defined()) grad[i] = Tensor::zeros(given[i]->shape(), DType::f32);
    if (!grad[kSkip].defined()) grad[kSkip] = Tensor::zeros({p_.channels()}, DType::f32);
    if (!grad[kFirst].defined())
      grad[kFirst] = Tensor::zeros({p_.sequences(), p_.channels() * p_.n()}, DType::f32);
    // Blocks in pieces: each sums the gradients of its group's B and C.
    std::vector<std::vector<Block>> pieces;
    for (int64_t g = 0; g < p_.groups(); ++g) {
      const std::vector<Block> all = blocks_of(g, g * p_.of_group(), (g + 1) * p_.of_group());
      const int64_t count = std::min<int64_t>(kPieces, std::ssize(all));
      for (int64_t i = 0; i < count; ++i)
        pieces.emplace_back(all.begin() + i * std::ssize(all) / count,
                            all.begin() + (i + 1) * std::ssize(all) / count);
    }
    const int64_t rows = in.x.dim(0), n = p_.n();
    std::vector<std::vector<float>> of_B(pieces.size()), of_C(pieces.size());
    parallel_for(std::ssize(pieces), 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        of_B[i].resize(static_cast<size_t>(rows * n));
        of_C[i].resize(static_cast<size_t>(rows * n));
        for (const Block& block : pieces[i])
          backward_of_block<T>(block, dy, dstate, grad, of_B[i].data(), of_C[i].data());
      }
    });
    const auto take = [&](Slot slot, const std::vector<std::vector<float>>& parts) {
      if (!wants(slot)) return;
      grad[slot] = Tensor::zeros(in.B.shape(), DType::f32);
      float* const to = grad[slot].template mutable_data<float>();
      for (size_t i = 0; i < pieces.size(); ++i)
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t j = 0; j < n; ++j)
            to[r * in.B.width() + pieces[i].front().group * n + j] += parts[i][r * n + j];
    };
    take(kB, of_B);
    take(kC, of_C);
    for (int i = 0; i < kSlots; ++i)
      if (given[i]->defined() && wants(i)) give(i, convert(grad[i], given[i]->dtype()));
  }

  template <typename T>
  void backward_of_block(const Block& block, const Tensor& dy, const Tensor& dstate, Grads& grad, float* dB,
                         float* dC) const {
    const int64_t n = p_.n();
    const Scan<T> scan(p_, block);
    const std::vector<int64_t> runs = first_runs(p_);
    std::vector<Lanes> states(static_cast<size_t>((kRun + 1) * n)), d(n), of_rates(n);
    for (int64_t s = 0; s < p_.sequences(); ++s) {
      scan.load(dstate, s, d.data());
      for (int64_t r = p_.runs(s) - 1; r >= 0; --r) {
        const int64_t begin = p_.offsets[s] + r * kRun, count = std::min(kRun, p_.tokens(s) - r * kRun);
        scan.load(begins_, runs[s] + r, states.data());
        for (int64_t t = 0; t < count; ++t) {
          std::copy_n(states.data() + t * n, n, states.data() + (t + 1) * n);
          scan.next(scan.token(begin + t), states.data() + (t + 1) * n);
        }
        for (int64_t t = count - 1; t >= 0; --t)
          backward_of_token<T>(scan, block, begin + t, dy, states.data() + t * n, d.data(), of_rates.data(),
                               grad, dB + (begin + t) * n, dC + (begin + t) * n);
      }
      scan.store(d.data(), s, grad[kFirst]);
    }
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < block.size(); ++c)
        grad[kLogRates].mutable_data<float>()[(block.begin + c) * n + i] = of_rates[i][c];
  }

  // states: the one before the token, then the one after it. d: the gradient of the latter, becomes that of
  // the former.
  template <typename T>
  void backward_of_token(const Scan<T>& scan, const Block& block, int64_t row, const Tensor& dy,
                         const Lanes* states, Lanes* d, Lanes* of_rates, Grads& grad, float* dB,
                         float* dC) const {
    const int64_t n = p_.n(), width = p_.channels();
    const auto token = scan.token(row);
    const Lanes out = dy.defined() ? block.load(dy.data<T>() + row * width) : Lanes{};
    Lanes dx, dstep = {};
    for (int64_t c = 0; c < kLanes; ++c) dx[c] = scan.skip()[c] * out[c];
    const std::vector<Lanes>& kept = scan.kept(token);
    for (int64_t i = 0; i < n; ++i) {
      const Lanes &keep = kept[i], &rate = scan.rates(i), &before = states[i];
      const auto in = static_cast<float>(token.B[i]), read = static_cast<float>(token.C[i]);
      float of_in = 0, of_read = 0;
      for (int64_t c = 0; c < kLanes; ++c) {
        of_read += out[c] * states[n + i][c];
        const float now = d[i][c] + out[c] * read;
        const float of_exponent = now * keep[c] * before[c];
        dstep[c] += of_exponent * rate[c] + now * token.x[c] * in;
        of_rates[i][c] += of_exponent * token.step[c] * rate[c];
        dx[c] += now * token.step[c] * in;
        of_in += now * token.step[c] * token.x[c];
        d[i][c] = now * keep[c];
      }
      dB[i] += of_in;
      dC[i] += of_read;
    }
    for (int64_t c = 0; c < block.size(); ++c) {
      const int64_t at = row * width + block.begin + c;
      grad[kX].mutable_data<float>()[at] = dx[c];
      grad[kSteps].mutable_data<float>()[at] = dstep[c];
      grad[kSkip].mutable_data<float>()[block.begin + c] += out[c] * token.x[c];
    }
  }

  Problem p_;
  Tensor begins_;
};

void check_input(const Problem& p) {
  const SelectiveScanInput& in = p.in;
  check(in.x.defined() && in.x.shape().rank() == 2 && in.x.width() > 0, "selective_scan: expected x [N, D]");
  const int64_t rows = in.x.dim(0), width = in.x.width();
  check(in.log_rates.defined() && in.log_rates.dtype() == DType::f32 && in.log_rates.shape().rank() == 2 &&
            in.log_rates.dim(0) == width && in.log_rates.width() > 0,
        "selective_scan: expected log_rates f32 [{}, n], got {}", width, in.log_rates);
  const int64_t n = in.log_rates.width();
  for (const Tensor* x : {&in.B, &in.C})
    check(x->defined() && x->dtype() == in.x.dtype() && x->shape().rank() == 2 && x->dim(0) == rows &&
              x->shape() == in.B.shape() && x->width() > 0 && x->width() % n == 0 &&
              width % (x->width() / n) == 0,
          "selective_scan: B and C must be of x's type, [{}, groups {}], got {}", rows, n, *x);
  check(in.steps.defined() && in.steps.dtype() == DType::f32 && in.steps.shape() == in.x.shape(),
        "selective_scan: expected steps f32 of the shape of x {}, got {}", in.x, in.steps);
  check(!in.skip.defined() || (in.skip.dtype() == DType::f32 && in.skip.shape() == Shape({width})),
        "selective_scan: expected skip f32 [{}], got {}", width, in.skip);
  check(!p.offsets.empty() && p.offsets.back() == rows, "selective_scan: the offsets do not fit x {}", in.x);
  check(p.marks.empty() || std::ssize(p.marks) == p.sequences(), "selective_scan: {} marks in {} sequences",
        p.marks.size(), p.sequences());
  for (int64_t s = 0; s < std::ssize(p.marks); ++s)
    check(p.marks[s] >= 0 && p.marks[s] <= p.tokens(s),
          "selective_scan: sequence {} of {} tokens has a mark at {}", s, p.tokens(s), p.marks[s]);
  check(!p.first.defined() ||
            (p.first.dtype() == DType::f32 && p.first.shape() == Shape({p.sequences(), width * n})),
        "selective_scan: expected first f32 [{}, {}], got {}", p.sequences(), width * n, p.first);
}

}  // namespace

SelectiveScanResult selective_scan(const SelectiveScanInput& in, const Tensor& first,
                                   std::span<const int32_t> offsets, std::span<const int32_t> marks) {
  Problem p{in, first, {offsets.begin(), offsets.end()}, {marks.begin(), marks.end()}};
  check_input(p);
  SelectiveScanResult out{Tensor::empty(in.x.shape(), in.x.dtype()),
                          Tensor::empty({p.sequences(), p.channels() * p.n()}, DType::f32),
                          {}};
  if (!marks.empty()) out.marked = Tensor::empty(out.state.shape(), DType::f32);
  const bool recorded = wants_grad({&in.x, &in.steps, &in.log_rates, &in.B, &in.C, &in.skip, &first});
  Tensor begins;
  if (recorded) {
    check(marks.empty(), "selective_scan: marks are for passes without gradients");
    begins = Tensor::empty({first_runs(p).back(), p.channels() * p.n()}, DType::f32);
  }
  with_float_type("selective_scan", in.x.dtype(), [&]<typename T>(T) { forward<T>(p, out, begins); });
  if (recorded) {
    const auto node = std::make_shared<SelectiveScanNode>(std::move(p), std::move(begins));
    connect(out.y, node, 0);
    connect(out.state, node, 1);
  }
  return out;
}

}  // namespace qkv
