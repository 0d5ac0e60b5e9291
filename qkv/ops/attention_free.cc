#include "qkv/ops/attention_free.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

constexpr int64_t kColumns = 64;  // neighbouring columns of a task

using Columns = std::array<float, kColumns>;

struct Problem {
  Tensor k, v;
  PositionWeights w;
  std::vector<int32_t> offsets;
  KeyLayout keys;
  bool causal;

  int64_t sequences() const { return std::ssize(keys.lengths); }
  int64_t heads() const { return w.by_distance.defined() ? w.by_distance.dim(0) : 1; }
  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t length(int64_t s) const { return keys.lengths[s]; }
  // The position of a sequence's first query.
  int64_t first(int64_t s) const { return length(s) - queries(s); }
  int64_t row(int64_t s, int64_t key) const {
    return keys.blocks[keys.block_offsets[s] + key / keys.block_rows] + key % keys.block_rows;
  }
  // The keys [begin, end) that have weights of their own for position t; others that it sees have 0.
  bool weighs() const { return w.table.defined() || w.by_distance.defined(); }
  int64_t near_begin(int64_t t) const {
    if (!weighs()) return t;
    return w.window > 0 ? std::max<int64_t>(0, t - w.window + 1) : 0;
  }
  int64_t near_end(int64_t t, int64_t length) const {
    if (causal || !weighs()) return t + 1;
    return w.window > 0 ? std::min(length, t + w.window) : length;
  }
  float weight(int64_t head, int64_t t, int64_t s) const {
    if (w.table.defined()) return w.table.data<float>()[t * w.table.dim(1) + s];
    if (w.by_distance.defined())
      return w.by_distance.data<float>()[head * w.by_distance.dim(1) + distance(t, s)];
    return 0;
  }
  int64_t distance(int64_t t, int64_t s) const { return t - s + (causal ? 0 : w.window - 1); }
};

// e^p (a, b), for each column.
struct Sums {
  Columns a = {}, b = {}, p;

  Sums() { p.fill(-std::numeric_limits<float>::infinity()); }
  // Adds e^x (a, b).
  void add(int64_t n, const float* x, const float* more_a, const float* more_b) {
    Columns kept, added;
    for (int64_t c = 0; c < n; ++c) {
      const float most = std::max(p[c], x[c]);
      kept[c] = p[c] - most;
      added[c] = x[c] - most;
      p[c] = most;
    }
    kernels().exp(n, kept.data(), kept.data());
    kernels().exp(n, added.data(), added.data());
    for (int64_t c = 0; c < n; ++c) {
      a[c] = a[c] * kept[c] + added[c] * more_a[c];
      b[c] = b[c] * kept[c] + added[c] * more_b[c];
    }
  }
};

// Columns [begin, begin + size) of one head, in one sequence.
template <typename T>
class Part {
 public:
  Part(const Problem& p, int64_t s, int64_t head, int64_t begin, int64_t size)
      : p_(p),
        s_(s),
        head_(head),
        begin_(begin),
        size_(size),
        k_(p.length(s) * size),
        v_(p.length(s) * size) {
    const auto to_f32 = kernels().typed<T>().to_f32;
    for (int64_t j = 0; j < p.length(s); ++j) {
      const int64_t at = p.row(s, j) * p.k.width() + begin;
      to_f32(size, p.k.data<T>() + at, k_.data() + j * size);
      to_f32(size, p.v.data<T>() + at, v_.data() + j * size);
    }
    ones_.fill(1);
  }
  int64_t size() const { return size_; }
  int64_t column() const { return begin_; }
  const float* k(int64_t key) const { return k_.data() + key * size_; }
  const float* v(int64_t key) const { return v_.data() + key * size_; }

  // Calls f(t, sums) with the sums of position t over all keys that it sees: a of values, b of ones.
  template <typename F>
  void for_positions(const F& f) const {
    const int64_t length = p_.length(s_), first = p_.first(s_);
    // The keys after a window, from the last on; then those before it, as the window leaves them.
    std::vector<Sums> after(p_.causal || (p_.weighs() && p_.w.window == 0) ? 0 : p_.queries(s_));
    Sums behind;
    for (int64_t t = length - 1, done = length; t >= first && !after.empty(); --t) {
      while (done > p_.near_end(t, length)) --done, behind.add(size_, k(done), v(done), ones_.data());
      after[t - first] = behind;
    }
    Sums before;
    for (int64_t t = first, done = 0; t < length; ++t) {
      while (done < p_.near_begin(t)) before.add(size_, k(done), v(done), ones_.data()), ++done;
      Sums sums = before;
      add_near(t, length, sums);
      if (!after.empty()) {
        const Sums& rest = after[t - first];
        Columns of_ones;
        Columns of_values;
        for (int64_t c = 0; c < size_; ++c) of_values[c] = rest.a[c], of_ones[c] = rest.b[c];
        sums.add(size_, rest.p.data(), of_values.data(), of_ones.data());
      }
      f(t, sums);
    }
  }
  // e^(k + w - log_sums) of a key for a position: its share of the sums.
  void share(int64_t t, int64_t key, const float* log_sums, Columns& out) const {
    const float w = p_.weight(head_, t, key);
    for (int64_t c = 0; c < size_; ++c) out[c] = k(key)[c] + w - log_sums[c];
    kernels().exp(size_, out.data(), out.data());
  }

 private:
  // Adds the keys that have weights of their own. Their largest term is found first.
  void add_near(int64_t t, int64_t length, Sums& sums) const {
    const int64_t begin = p_.near_begin(t), end = p_.near_end(t, length);
    Columns most = sums.p, x;
    for (int64_t j = begin; j < end; ++j) {
      const float w = p_.weight(head_, t, j);
      for (int64_t c = 0; c < size_; ++c) most[c] = std::max(most[c], k(j)[c] + w);
    }
    for (int64_t c = 0; c < size_; ++c) x[c] = sums.p[c] - most[c];
    kernels().exp(size_, x.data(), x.data());
    for (int64_t c = 0; c < size_; ++c) sums.a[c] *= x[c], sums.b[c] *= x[c];
    sums.p = most;
    for (int64_t j = begin; j < end; ++j) {
      share(t, j, most.data(), x);
      for (int64_t c = 0; c < size_; ++c) {
        sums.a[c] += x[c] * v(j)[c];
        sums.b[c] += x[c];
      }
    }
  }

  const Problem& p_;
  int64_t s_, head_, begin_, size_;
  std::vector<float> k_, v_;
  Columns ones_ = {};
};

// Calls f(part) for each sequence and part of the columns, by all threads.
template <typename T, typename F>
void for_parts(const Problem& p, const F& f) {
  const int64_t heads = p.heads(), width = p.k.width() / heads, blocks = (width + kColumns - 1) / kColumns;
  parallel_tasks(p.sequences() * heads * blocks, [&](int64_t task, int) {
    const int64_t s = task / (heads * blocks), head = task / blocks % heads, block = task % blocks;
    f(s, Part<T>(p, s, head, head * width + block * kColumns, std::min(kColumns, width - block * kColumns)));
  });
}

class AttentionFreeNode : public Node {
 public:
  AttentionFreeNode(Problem p, const Tensor& y, Tensor log_sums)
      : p_(std::move(p)), y_(y.detach()), log_sums_(std::move(log_sums)) {
    for (Tensor* x : {&p_.k, &p_.v, &p_.w.table, &p_.w.by_distance}) {
      add_input(*x);
      if (x->defined()) *x = x->detach();
    }
  }
  std::string_view name() const override { return "attention_free"; }
  void backward(std::span<Tensor> grads) override {
    with_float_type("attention_free", p_.k.dtype(), [&]<typename T>(T) {
      const Tensor dy = convert(grads[0], DType::f32), y = convert(y_, DType::f32);
      Tensor dk = Tensor::zeros(p_.k.shape(), DType::f32), dv = Tensor::zeros(p_.v.shape(), DType::f32);
      if (wants(0) || wants(1)) {
        for_parts<T>(p_,
                     [&](int64_t s, const Part<T>& part) { backward_of_part<T>(s, part, dy, y, dk, dv); });
        if (wants(0)) give(0, convert(dk, p_.k.dtype()));
        if (wants(1)) give(1, convert(dv, p_.v.dtype()));
      }
      if (wants(2)) give(2, of_table<T>(dy, y));
      if (wants(3)) give(3, of_distances<T>(dy, y));
    });
  }

 private:
  // With P = e^(k_s + w - log_sums_t), dv_s = sum_t P dy_t and dk_s = v_s dv_s - sum_t P dy_t y_t.
  template <typename T>
  void backward_of_part(int64_t s, const Part<T>& part, const Tensor& dy, const Tensor& y, Tensor& dk,
                        Tensor& dv) const {
    const int64_t length = p_.length(s), size = part.size(), width = p_.k.width(), begin = p_.offsets[s],
                  first = p_.first(s), column = part.column();
    std::vector<float> a(length * size, 0), b(length * size, 0);
    const auto at = [&](int64_t t) { return (begin + t - first) * width + column; };
    const auto of_y = [&](int64_t t) { return dy.data<float>() + at(t); };
    const auto sums_of = [&](int64_t t) { return log_sums_.data<float>() + at(t); };
    const auto weighted = [&](int64_t t) {
      Columns x;
      for (int64_t c = 0; c < size; ++c) x[c] = of_y(t)[c] * y.data<float>()[at(t) + c];
      return x;
    };
    Columns share;
    for (int64_t t = first; t < length; ++t) {
      const Columns by = weighted(t);
      for (int64_t j = p_.near_begin(t); j < p_.near_end(t, length); ++j) {
        part.share(t, j, sums_of(t), share);
        for (int64_t c = 0; c < size; ++c) {
          a[j * size + c] += share[c] * of_y(t)[c];
          b[j * size + c] += share[c] * by[c];
        }
      }
    }
    const auto add_far = [&](int64_t j, const Sums& far) {
      for (int64_t c = 0; c < size; ++c) share[c] = part.k(j)[c] + far.p[c];
      kernels().exp(size, share.data(), share.data());
      for (int64_t c = 0; c < size; ++c) {
        a[j * size + c] += share[c] * far.a[c];
        b[j * size + c] += share[c] * far.b[c];
      }
    };
    const auto take = [&](int64_t t, Sums& far) {
      Columns x;
      for (int64_t c = 0; c < size; ++c) x[c] = -sums_of(t)[c];
      far.add(size, x.data(), of_y(t), weighted(t).data());
    };
    // Keys before the windows of later positions, from the last on.
    Sums later;
    for (int64_t t = length - 1, j = length - 1; t >= first || j >= 0; --j) {
      while (t >= first && p_.near_begin(t) > j) take(t, later), --t;
      if (j < 0) break;
      add_far(j, later);
    }
    if (!p_.causal && !(p_.weighs() && p_.w.window == 0)) {
      Sums earlier;
      for (int64_t t = first, j = 0; j < length; ++j) {
        while (t < length && p_.near_end(t, length) <= j) take(t, earlier), ++t;
        add_far(j, earlier);
      }
    }
    for (int64_t j = 0; j < length; ++j)
      for (int64_t c = 0; c < size; ++c) {
        const int64_t to = p_.row(s, j) * width + column + c;
        dv.mutable_data<float>()[to] = a[j * size + c];
        dk.mutable_data<float>()[to] = part.v(j)[c] * a[j * size + c] - b[j * size + c];
      }
  }

  // The gradient of the weight of a key for a position: sum over columns of P dy (v - y).
  template <typename T>
  float of_weight(int64_t s, int64_t t, int64_t key, int64_t head, const Tensor& dy, const Tensor& y) const {
    const int64_t width = p_.k.width(), columns = width / p_.heads(),
                  at = (p_.offsets[s] + t - p_.first(s)) * width + head * columns,
                  from = p_.row(s, key) * width + head * columns;
    const float w = p_.weight(head, t, key);
    float sum = 0;
    Columns share;
    for (int64_t begin = 0; begin < columns; begin += kColumns) {
      const int64_t size = std::min(kColumns, columns - begin);
      for (int64_t c = 0; c < size; ++c)
        share[c] = static_cast<float>(p_.k.data<T>()[from + begin + c]) + w -
                   log_sums_.data<float>()[at + begin + c];
      kernels().exp(size, share.data(), share.data());
      for (int64_t c = 0; c < size; ++c) {
        const int64_t i = begin + c;
        sum += share[c] * dy.data<float>()[at + i] *
               (static_cast<float>(p_.v.data<T>()[from + i]) - y.data<float>()[at + i]);
      }
    }
    return sum;
  }

  template <typename T>
  Tensor of_table(const Tensor& dy, const Tensor& y) const {
    Tensor out = Tensor::zeros(p_.w.table.shape(), DType::f32);
    parallel_tasks(out.dim(0), [&](int64_t t, int) {
      float* to = out.mutable_data<float>() + t * out.dim(1);
      for (int64_t s = 0; s < p_.sequences(); ++s) {
        if (t < p_.first(s) || t >= p_.length(s)) continue;
        for (int64_t j = p_.near_begin(t); j < p_.near_end(t, p_.length(s)); ++j)
          to[j] += of_weight<T>(s, t, j, 0, dy, y);
      }
    });
    return out;
  }

  template <typename T>
  Tensor of_distances(const Tensor& dy, const Tensor& y) const {
    Tensor out = Tensor::zeros(p_.w.by_distance.shape(), DType::f32);
    const int64_t reach = out.dim(1);
    parallel_tasks(out.count(), [&](int64_t task, int) {
      const int64_t head = task / reach, distance = task % reach - (p_.causal ? 0 : p_.w.window - 1);
      float sum = 0;
      for (int64_t s = 0; s < p_.sequences(); ++s)
        for (int64_t t = p_.first(s); t < p_.length(s); ++t)
          if (const int64_t j = t - distance; j >= 0 && j < p_.length(s))
            sum += of_weight<T>(s, t, j, head, dy, y);
      out.mutable_data<float>()[task] = sum;
    });
    return out;
  }

  Problem p_;
  Tensor y_, log_sums_;  // log_sums [N, D]
};

void check_input(const Problem& p) {
  const Tensor &k = p.k, &table = p.w.table, &by_distance = p.w.by_distance;
  check(k.defined() && k.shape().rank() == 2 && k.width() > 0, "attention_free: expected keys [M, D], got {}",
        k);
  check(p.v.defined() && p.v.shape() == k.shape() && p.v.dtype() == k.dtype(),
        "attention_free: expected values like keys {}, got {}", k, p.v);
  check(p.w.window >= 0 && !(table.defined() && by_distance.defined()),
        "attention_free: expected one kind of weights, and a window of at least 0");
  check(!table.defined() ||
            (table.dtype() == DType::f32 && table.shape().rank() == 2 && table.dim(0) == table.dim(1)),
        "attention_free: expected a table f32 [positions, positions], got {}", table);
  const int64_t reach = p.causal ? p.w.window : 2 * p.w.window - 1;
  check(!by_distance.defined() ||
            (by_distance.dtype() == DType::f32 && by_distance.shape().rank() == 2 && by_distance.dim(0) > 0 &&
             k.width() % by_distance.dim(0) == 0 && p.w.window > 0 && by_distance.dim(1) == reach),
        "attention_free: expected weights by distance f32 [heads, {}] for keys {}, got {}", reach, k,
        by_distance);
  check(std::ssize(p.offsets) == p.sequences() + 1 && p.offsets.front() == 0 &&
            std::ranges::is_sorted(p.offsets),
        "attention_free: expected offsets of {} sequences", p.sequences());
  for (int64_t s = 0; s < p.sequences(); ++s) {
    check(p.queries(s) <= p.length(s), "attention_free: sequence {} has {} queries, but {} keys", s,
          p.queries(s), p.length(s));
    check(!table.defined() || p.length(s) <= table.dim(0),
          "attention_free: sequence {} has {} tokens, the table has {} positions", s, p.length(s),
          table.dim(0));
  }
}

}  // namespace

Tensor attention_free(const Tensor& k, const Tensor& v, const PositionWeights& weights,
                      std::span<const int32_t> offsets, const KeyLayout& keys, bool causal) {
  Problem p{k, v, weights, {offsets.begin(), offsets.end()}, keys, causal};
  check_input(p);
  Tensor y = Tensor::empty({p.offsets.back(), k.width()}, k.dtype());
  const bool recorded = wants_grad({&k, &v, &weights.table, &weights.by_distance});
  Tensor log_sums = recorded ? Tensor::empty(y.shape(), DType::f32) : Tensor();
  with_float_type("attention_free", k.dtype(), [&]<typename T>(T) {
    for_parts<T>(p, [&](int64_t s, const Part<T>& part) {
      part.for_positions([&](int64_t t, const Sums& sums) {
        const int64_t at = (p.offsets[s] + t - p.first(s)) * k.width() + part.column();
        Columns out;
        for (int64_t c = 0; c < part.size(); ++c) out[c] = sums.a[c] / sums.b[c];
        kernels().typed<T>().from_f32(part.size(), out.data(), y.mutable_data<T>() + at);
        for (int64_t c = 0; c < part.size() && recorded; ++c)
          log_sums.mutable_data<float>()[at + c] = sums.p[c] + std::log(sums.b[c]);
      });
    });
  });
  if (recorded) connect(y, std::make_shared<AttentionFreeNode>(std::move(p), y, std::move(log_sums)), 0);
  return y;
}

}  // namespace qkv
