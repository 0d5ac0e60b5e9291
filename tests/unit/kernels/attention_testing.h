// Attention problems for tests: random inputs in any layout, runs of one table, and a plain f64 version.
// The latter also gives the size of the terms of each result, for error bounds.
#pragma once

#include <algorithm>
#include <string>

#include "tests/unit/kernels/kernel_testing.h"

namespace qkv {

struct AttentionCase {
  std::string name{};
  int64_t heads = 1, kv_heads = 1, d_qk = 8, d_vo = 8;
  std::vector<int64_t> queries{}, keys{};  // numbers per sequence
  Mask mask = Mask::causal();
  float p = 0;
  int64_t block_rows = 0;  // 0: each sequence is one block; else blocks lie in shuffled order
  bool packed = false;     // q, k and v are columns of one row [q | k | v] and out has a margin
  double amplitude = 1;    // standard deviation of q and k
  bool term = false;       // adds a bias for each head and distance to the scores
  double cap = 0;          // cap of the scores
  bool sinks = false;      // each head has a score without a value
  bool pair = false;       // adds entries of rows of queries and of keys to the scores
  bool ranked = false;     // a random order in place of the mask; as many keys as queries
};

// How often a key counts for a query, pair by pair, as pattern.h defines it; 0: it is not seen.
inline int64_t times_seen(Mask m, int64_t query, int64_t key, int64_t length) {
  if (m.own_last && query == key) {
    m.own_last = false;
    for (int64_t other = 0; other < length; ++other)
      if (other != query && times_seen(m, query, other, length) > 0) return 0;
  }
  const bool causal = m.kind == Mask::Kind::causal;
  if (causal && key > query) return 0;
  const Pattern& p = m.pattern;
  if (!p.any() || length <= p.beyond) return 1;
  const int64_t d = query > key ? query - key : key - query;
  bool seen = key < p.global || query < p.global;
  for (int64_t i = 0; i < p.window; ++i) seen |= d == i * p.dilation;
  if (p.stride > 0)
    for (int64_t i = 0; i <= length; ++i) seen |= d == i * p.stride;
  if (p.block == 0) return seen;
  const int64_t blocks = (length + p.block - 1) / p.block, q = query / p.block, k = key / p.block;
  seen |= q - k <= p.neighbours && k - q <= p.neighbours;
  seen |= key - k * p.block + p.summary >= p.block;
  for (int64_t i = 0; i < p.random; ++i) seen |= p.drawn(q, i, length, causal) == k;
  const auto end = [&](int64_t b) { return b == 0 || (!causal && b == blocks - 1); };
  if (p.ends) seen |= end(q) || end(k);
  return !seen ? 0 : k == 0 && !end(q) ? p.first_block : 1;
}

template <typename T>
class AttentionProblem {
 public:
  explicit AttentionProblem(const AttentionCase& c) : c_(c) {
    q_offsets_.push_back(0);
    for (const int64_t n : c.queries) q_offsets_.push_back(q_offsets_.back() + static_cast<int32_t>(n));
    for (const int64_t n : c.keys) key_lengths_.push_back(static_cast<int32_t>(n));
    lay_out_keys();
    q_width_ = c.heads * c.d_qk, k_width_ = c.kv_heads * c.d_qk, v_width_ = c.kv_heads * c.d_vo;
    out_width_ = c.heads * c.d_vo + (c.packed ? 3 : 0);
    if (c.packed) q_width_ = k_width_ = v_width_ = q_width_ + k_width_ + v_width_ + 1;
    q = Buffer<T>::normal(rows() * q_width_, 1, c.amplitude, 1);
    k = Buffer<T>::normal(key_rows_ * k_width_, 2, c.amplitude, 3);
    v = Buffer<T>::normal(key_rows_ * v_width_, 3, 1, 1);
    dout = Buffer<T>::normal(rows() * out_width_, 4, 1, 3);
    const int64_t longest = c.keys.empty() ? 0 : *std::max_element(c.keys.begin(), c.keys.end());
    term = {nullptr, std::max<int64_t>(0, longest - 1)};
    // Some keys are seen by no query, and some queries see no key.
    const RandomStream draws{.seed = 6, .step = 0, .site = 0};
    for (int64_t r = 0; c.ranked && r < rows(); ++r) {
      query_rank.push_back(static_cast<int32_t>(draws.below(2 * r, 12)) - 1);
      key_rank.push_back(static_cast<int32_t>(draws.below(2 * r + 1, 12)));
    }
    bias = Buffer<float>::normal(c.term ? c.heads * term.row() : 0, 5, 1, 1);
    if (c.term) term.bias = bias.data();
    if (c.pair) make_pair_term(longest);
    sinks = Buffer<float>::normal(c.sinks ? c.heads : 0, 7, 1, 1);
  }

  int64_t rows() const { return q_offsets_.back(); }
  int64_t key_rows() const { return key_rows_; }
  int64_t q_width() const { return q_width_; }
  int64_t out_width() const { return out_width_; }
  int64_t row_of_key(int64_t s, int64_t j) const {
    return blocks_[block_offsets_[s] + j / block_rows_] + j % block_rows_;
  }
  // Index of a head's first element. In the packed layout heads of k follow those of q, then v.
  int64_t q_at(int64_t row, int64_t head) const { return row * q_width_ + head * c_.d_qk; }
  int64_t k_at(int64_t s, int64_t j, int64_t kv) const {
    return row_of_key(s, j) * k_width_ + k_start() + kv * c_.d_qk;
  }
  int64_t v_at(int64_t s, int64_t j, int64_t kv) const {
    return row_of_key(s, j) * v_width_ + v_start() + kv * c_.d_vo;
  }
  int64_t out_at(int64_t row, int64_t head) const { return row * out_width_ + head * c_.d_vo; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(c_.d_qk)); }
  Dropout dropout() const { return {.p = c_.p, .key = kTestKey, .first_row = 1000}; }

  struct Forward {
    Buffer<T> out;
    Buffer<float> lse;
  };
  struct Backward {
    Buffer<T> dq, dk, dv;
  };

  Forward forward(const KernelTable& table) const {
    Forward f{Buffer<T>(rows() * out_width_, 3), Buffer<float>(rows() * c_.heads, 1)};
    const Attention<T> a = arguments(&f);
    Buffer<float> scratch(attention_scratch(a), 1);
    for (int64_t s = 0; s < sequences(); ++s)
      for (int64_t kv = 0; kv < c_.kv_heads; ++kv)
        for (int64_t i = 0; i < c_.queries[s]; i += kQueryTile)
          table.typed<T>().attention(a, s, kv, i, scratch.data());
    EXPECT_TRUE(scratch.guards_intact()) << "forward scratch";
    return f;
  }

  Backward backward(const KernelTable& table, Forward f) const {
    Backward b{Buffer<T>(q.size(), 1), Buffer<T>(k.size(), 3), Buffer<T>(v.size(), 1)};
    const AttentionGrad<T> g{arguments(&f), dout.data(),
                             out_width_,    b.dq.data(),
                             q_width_,      b.dk.data() + k_start(),
                             k_width_,      b.dv.data() + v_start(),
                             v_width_};
    const int64_t longest = c_.keys.empty() ? 0 : *std::max_element(c_.keys.begin(), c_.keys.end());
    Buffer<float> scratch(attention_grad_scratch(g.forward, longest), 1);
    for (int64_t s = 0; s < sequences(); ++s)
      for (int64_t kv = 0; kv < c_.kv_heads; ++kv) table.typed<T>().attention_grad(g, s, kv, scratch.data());
    EXPECT_TRUE(scratch.guards_intact()) << "backward scratch";
    return b;
  }

  const AttentionCase& parameters() const { return c_; }
  int64_t sequences() const { return static_cast<int64_t>(c_.queries.size()); }
  int64_t first_row(int64_t s) const { return q_offsets_[s]; }

  Buffer<T> q{0}, k{0}, v{0}, dout{0};
  Buffer<float> bias{0}, sinks{0};
  std::vector<int32_t> query_rank, key_rank;  // for `ranked`
  ScoreTerm term;
  PairTerm pair;
  static constexpr int64_t kColumns = 5;
  // Term of a query and a key in their score.
  double pair_of(int64_t query, int64_t key, int64_t head, int64_t distance) const {
    const auto row = [&](int64_t r) { return r * c_.heads + head; };
    double sum = by_query_.at(row(query) * kColumns + column_of(distance)) +
                 by_key_.at(row(key) * kColumns + column_of(distance));
    if (!segments_.empty())
      sum += by_segment_.at(row(query) * 2 + (segments_[query] == segments_[key] ? 0 : 1));
    return sum;
  }
  // The column of a distance: several share one.
  static int32_t column_of(int64_t distance) { return static_cast<int32_t>((distance % 5 + 5) % 5); }

 private:
  void make_pair_term(int64_t longest) {
    by_query_ = Buffer<float>::normal(rows() * c_.heads * kColumns, 8, 1, 1);
    by_key_ = Buffer<float>::normal(key_rows_ * c_.heads * kColumns, 9, 1, 1);
    for (int64_t d = 1 - longest; d < longest; ++d) columns_.push_back(column_of(d));
    pair = {columns_.data(), longest - 1, kColumns, by_query_.data(), by_key_.data()};
    if (key_rows_ != rows()) return;
    by_segment_ = Buffer<float>::normal(rows() * c_.heads * 2, 10, 1, 1);
    for (int64_t r = 0; r < rows(); ++r) segments_.push_back(r / 3 % 2);
    pair.by_segment = by_segment_.data();
    pair.segments = segments_.data();
  }

  int64_t k_start() const { return c_.packed ? c_.heads * c_.d_qk : 0; }
  int64_t v_start() const { return c_.packed ? (c_.heads + c_.kv_heads) * c_.d_qk : 0; }

  void lay_out_keys() {
    const int64_t longest = c_.keys.empty() ? 0 : *std::max_element(c_.keys.begin(), c_.keys.end());
    block_rows_ = c_.block_rows > 0 ? c_.block_rows : std::max<int64_t>(1, longest);
    for (const int64_t n : c_.keys) {
      block_offsets_.push_back(static_cast<int32_t>(blocks_.size()));
      if (c_.block_rows == 0) {
        blocks_.push_back(key_rows_);
        key_rows_ += n;
        continue;
      }
      for (int64_t j = 0; j < n; j += block_rows_, key_rows_ += block_rows_) blocks_.push_back(key_rows_);
    }
    if (c_.block_rows == 0) return;
    const RandomStream stream{.seed = 5, .step = 0, .site = 0};
    for (size_t i = blocks_.size(); i > 1; --i) std::swap(blocks_[i - 1], blocks_[stream.below(i, i)]);
    blocks_.push_back(-1);  // a sequence without keys must not read a block
  }

  Attention<T> arguments(Forward* f) const {
    Attention<T> a{};
    a.sequences = sequences();
    a.heads = c_.heads, a.kv_heads = c_.kv_heads, a.d_qk = c_.d_qk, a.d_vo = c_.d_vo;
    a.q_offsets = q_offsets_.data();
    a.key_lengths = key_lengths_.data();
    a.block_offsets = block_offsets_.data();
    a.blocks = blocks_.data();
    a.block_rows = block_rows_;
    a.mask = c_.ranked ? Mask{Mask::Kind::ranked, query_rank.data(), key_rank.data()} : c_.mask;
    a.term = term;
    a.pair = pair;
    a.scale = scale();
    a.cap = static_cast<float>(c_.cap);
    if (c_.sinks) a.sinks = sinks.data();
    a.dropout = dropout();
    a.q = q.data(), a.q_stride = q_width_;
    a.k = k.data() + k_start(), a.k_stride = k_width_;
    a.v = v.data() + v_start(), a.v_stride = v_width_;
    a.out = f->out.data(), a.out_stride = out_width_;
    a.lse = f->lse.data();
    return a;
  }

  AttentionCase c_;
  Buffer<float> by_query_{0}, by_key_{0}, by_segment_{0};
  std::vector<int32_t> columns_, segments_;
  std::vector<int32_t> q_offsets_, key_lengths_, block_offsets_;
  std::vector<int64_t> blocks_;
  int64_t block_rows_ = 1, key_rows_ = 0, q_width_ = 0, k_width_ = 0, v_width_ = 0, out_width_ = 0;
};

// A result in f64 and a bound on the error of an f32 implementation; NaN for elements that must not be
// written.
struct Bounded {
  std::vector<double> value, bound;
  explicit Bounded(int64_t n) : value(n, std::nan("")), bound(n) {}
  void clear(int64_t at, int64_t n) { std::fill_n(value.begin() + at, n, 0.0); }
};

struct AttentionOracle {
  Bounded out, lse, dq, dk, dv;
};

inline constexpr double kTiny = 0x1p-120;

// One query and head at a time. Error bounds, with eps the f32 epsilon:
//  - a score errs by at most E = (d_qk + 3) eps scale sum|q||k|, the exponent of a probability by that of its
//    own score, of the denominator's (E again) and a rounding of its own size, so that p errs relatively by
//    r = 2 max E + (|lse| + max|S| + 8) eps;
//  - a sum of n terms errs by n eps times their magnitudes, a tile at a time included;
//  - out = sum p v:  (r + (keys + 8) eps) sum p |v|;
//  - dP = dO.V and delta = sum p dP (or dO.out, out rounded to T):  (r + (d_vo + keys + 8) eps + store eps)
//    of the magnitude |dO||V| (averaged with p for delta); dS = p (dP - delta) inherits both, and dQ, dK, dV
//    sum dS K, dS Q, p dO over keys or queries;
//  - P and dS rounded for a product (product_eps, where it runs on tiles) add as much of each term;
//  - storing as T adds the store eps of the result;
//  - a cap's tanh errs by a few eps of the cap, and its slope by as many;
//  - near the smallest f32 numbers a probability may be flushed to zero: kTiny, absolutely.
template <typename T>
AttentionOracle attention_oracle(const AttentionProblem<T>& x, bool with_gradient, double product_eps = 0) {
  const AttentionCase& c = x.parameters();
  AttentionOracle o{Bounded(x.rows() * x.out_width()), Bounded(x.rows() * c.heads), Bounded(x.q.size()),
                    Bounded(x.k.size()), Bounded(x.v.size())};
  const int64_t group = c.heads / c.kv_heads;
  const double scale = x.scale(), store = kStoreEps<T>;
  for (int64_t s = 0; s < x.sequences(); ++s) {
    const int64_t queries = c.queries[s], keys = c.keys[s];
    for (int64_t kv = 0; kv < c.kv_heads; ++kv)
      for (int64_t j = 0; j < keys; ++j) {
        o.dk.clear(x.k_at(s, j, kv), c.d_qk);
        o.dv.clear(x.v_at(s, j, kv), c.d_vo);
      }
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t row = x.first_row(s) + i, kv = h / group, position = keys - queries + i;
        const int64_t q0 = x.q_at(row, h), out0 = x.out_at(row, h);
        const DropoutKey key = x.dropout().key.row((x.dropout().first_row + row) * c.heads + h);
        o.out.clear(out0, c.d_vo);
        o.dq.clear(q0, c.d_qk);
        std::vector<int64_t> seen;
        std::vector<double> score, keep, slope;  // slope: derivative of the cap
        double score_error = 0, top = -HUGE_VAL, largest = 0, sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          const int64_t times = c.ranked ? x.key_rank[x.first_row(s) + j] <= x.query_rank[row]
                                         : times_seen(c.mask, position, j, keys);
          if (times == 0) continue;
          double dot = 0, size = 0;
          for (int64_t d = 0; d < c.d_qk; ++d) {
            const double term = x.q.at(q0 + d) * x.k.at(x.k_at(s, j, kv) + d);
            dot += term, size += std::abs(term);
          }
          seen.push_back(j);
          const double added = (c.term ? x.bias.at(x.term.at(h, position, j)) : 0) +
                               (c.pair ? x.pair_of(row, x.row_of_key(s, j), h, position - j) : 0) +
                               std::log(static_cast<double>(times));
          const double tanh = c.cap > 0 ? std::tanh(scale * dot / c.cap) : 0;
          slope.push_back(1 - tanh * tanh);
          score.push_back((c.cap > 0 ? c.cap * tanh : scale * dot) + added);
          const bool kept = c.p == 0 || dropout_bits(key, static_cast<uint32_t>(j)) >= dropout_threshold(c.p);
          keep.push_back(kept ? 1 / (1 - double{c.p}) : 0);
          score_error = std::max(
              score_error,
              (static_cast<double>(c.d_qk) + 3) * kEps * (scale * size + std::abs(added)) + 8 * kEps * c.cap);
          largest = std::max(largest, std::abs(score.back()));
          top = std::max(top, score.back());
        }
        const int64_t lse_at = row * c.heads + h;
        if (c.sinks) top = std::max(top, x.sinks.at(h));
        if (seen.empty() && !c.sinks) {
          o.lse.value[lse_at] = -HUGE_VAL;
          continue;
        }
        if (c.sinks) sum = std::exp(x.sinks.at(h) - top);
        for (const double e : score) sum += std::exp(e - top);
        const double lse = top + std::log(sum), n = static_cast<double>(keys);
        o.lse.value[lse_at] = lse;
        o.lse.bound[lse_at] = score_error + kEps * (std::abs(lse) + n + 8);
        const double r = 2 * score_error + (std::abs(lse) + largest + 8) * kEps;

        double delta = 0, delta_size = 0;
        std::vector<double> p(seen.size()), dp(seen.size()), dp_size(seen.size());
        for (size_t t = 0; t < seen.size(); ++t) {
          p[t] = std::exp(score[t] - lse);
          const int64_t v0 = x.v_at(s, seen[t], kv);
          for (int64_t d = 0; d < c.d_vo; ++d) {
            const double weighted = p[t] * keep[t] * x.v.at(v0 + d);
            o.out.value[out0 + d] += weighted;
            const double p_error = (r + (n + 8) * kEps + product_eps) * p[t] + kTiny;
            o.out.bound[out0 + d] += p_error * keep[t] * std::abs(x.v.at(v0 + d));
            const double term = keep[t] * x.dout.at(out0 + d) * x.v.at(v0 + d);
            dp[t] += term, dp_size[t] += std::abs(term);
          }
          delta += p[t] * dp[t], delta_size += p[t] * dp_size[t];
        }
        for (int64_t d = 0; d < c.d_vo; ++d) o.out.bound[out0 + d] += store * std::abs(o.out.value[out0 + d]);
        if (!with_gradient) continue;
        const double terms = static_cast<double>(c.d_vo + keys + queries * group) + 8;
        const double relative = r + terms * kEps + (store > kEps ? store : 0);
        for (size_t t = 0; t < seen.size(); ++t) {
          const int64_t k0 = x.k_at(s, seen[t], kv), v0 = x.v_at(s, seen[t], kv);
          const double ds = slope[t] * scale * p[t] * (dp[t] - delta);
          const double ds_error =
              scale * ((relative + product_eps + 16 * kEps) * p[t] + kTiny) * (dp_size[t] + delta_size);
          for (int64_t d = 0; d < c.d_qk; ++d) {
            o.dq.value[q0 + d] += ds * x.k.at(k0 + d);
            o.dq.bound[q0 + d] += ds_error * std::abs(x.k.at(k0 + d));
            o.dk.value[k0 + d] += ds * x.q.at(q0 + d);
            o.dk.bound[k0 + d] += ds_error * std::abs(x.q.at(q0 + d));
          }
          for (int64_t d = 0; d < c.d_vo; ++d) {
            const double weighted = p[t] * keep[t] * x.dout.at(out0 + d);
            o.dv.value[v0 + d] += weighted;
            o.dv.bound[v0 + d] +=
                ((r + terms * kEps + product_eps) * p[t] + kTiny) * keep[t] * std::abs(x.dout.at(out0 + d));
          }
        }
      }
  }
  for (Bounded* b : {&o.dq, &o.dk, &o.dv})
    for (size_t i = 0; i < b->value.size(); ++i)
      if (!std::isnan(b->value[i])) b->bound[i] += store * std::abs(b->value[i]);
  return o;
}

// Checks agreement with the f64 result. Elements that must not be written still hold the sentinel.
template <typename T>
void expect_bounded(const Buffer<T>& got, const Bounded& want, const char* what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(want.value.size())) << what;
  EXPECT_TRUE(got.guards_intact()) << what << ": written outside its bounds";
  const Buffer<T> untouched(got.size());
  int64_t wrong = 0;
  for (int64_t i = 0; i < got.size() && wrong < 3; ++i) {
    const bool ok = std::isnan(want.value[i])
                        ? std::memcmp(got.data() + i, untouched.data() + i, sizeof(T)) == 0
                        : got.at(i) == want.value[i] || std::abs(got.at(i) - want.value[i]) <= want.bound[i];
    if (ok) continue;
    ADD_FAILURE() << what << "[" << i << "] of " << got.size() << ": got " << got.at(i) << ", want "
                  << want.value[i] << " within " << want.bound[i];
    ++wrong;
  }
}

}  // namespace qkv
