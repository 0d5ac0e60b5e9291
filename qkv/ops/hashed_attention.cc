#include "qkv/ops/hashed_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/thread_product.h"

namespace qkv {
namespace {

constexpr float kUnseen = -std::numeric_limits<float>::infinity();

using Numbers = std::vector<float>;

// The columns of a head in rows [begin, end) of x, times a factor.
template <typename T>
Numbers head_of(const Tensor& x, int64_t head, int64_t heads, int64_t begin, int64_t end, float factor) {
  const int64_t width = x.width(), d = width / heads;
  Numbers out((end - begin) * d);
  for (int64_t r = begin; r < end; ++r) {
    float* to = out.data() + (r - begin) * d;
    kernels().typed<T>().to_f32(d, x.data<T>() + r * width + head * d, to);
    if (factor != 1) kernels().scale(d, factor, to);
  }
  return out;
}

// The buckets of queries [n, d], one behind another. The last bucket of a round is that of tokens that fill
// up.
std::vector<int32_t> buckets_of(const Numbers& queries, int64_t n, const Tensor& rotations, int64_t head,
                                const HashedAttention& order) {
  const int64_t d = rotations.dim(1), columns = order.columns(), all = order.rounds * columns;
  Numbers u(n * all);
  if (n > 0)
    multiply({.m = n,
              .n = all,
              .k = d,
              .a = queries.data(),
              .b = rotations.data<float>() + head * d * all,
              .c = u.data()});
  std::vector<int32_t> out(order.rounds * n);
  for (int64_t r = 0; r < order.rounds; ++r)
    for (int64_t i = 0; i < n; ++i) {
      const float* x = u.data() + i * all + r * columns;
      int64_t bucket = 0, place = 1;
      for (const int64_t factor : order.buckets) {
        const int64_t half = factor / 2;
        const auto highest = std::max_element(x, x + half), lowest = std::min_element(x, x + half);
        bucket += place * (*highest >= -*lowest ? highest - x : half + (lowest - x));
        place *= factor;
        x += half;
      }
      out[r * n + i] = static_cast<int32_t>(bucket);
    }
  return out;
}

// A sequence's tokens in the order of their chunks, for one head.
class Order {
 public:
  Order(const HashedAttentionOptions& o, int64_t tokens) : given_(o.order), tokens_(tokens) {
    const int64_t least = std::max(tokens, o.padded_length);
    length_ =
        least <= given_.whole ? least : (least + given_.multiple - 1) / given_.multiple * given_.multiple;
    in_full_ = length_ <= given_.chunk;
    chunk_ = in_full_ ? length_ : given_.chunk;
    rounds_ = in_full_ || given_.buckets.empty() ? 1 : given_.rounds;
    length_ = (length_ + chunk_ - 1) / std::max<int64_t>(1, chunk_) * chunk_;
  }
  // buckets [rounds, tokens]; empty: by position.
  void sort(const std::vector<int32_t>& buckets) {
    const int32_t fill = buckets_per_round() - 1;
    places_.resize(rounds_ * length_);
    buckets_.assign(rounds_ * length_, 0);
    for (int64_t r = 0; r < rounds_; ++r) {
      const auto bucket = [&](int64_t i) {
        return buckets.empty() ? 0 : i < tokens_ ? buckets[r * tokens_ + i] : fill;
      };
      std::vector<int32_t> begins(fill + 2, 0);
      for (int64_t i = 0; i < length_; ++i) ++begins[bucket(i) + 1];
      std::partial_sum(begins.begin(), begins.end(), begins.begin());
      for (int64_t i = 0; i < length_; ++i) {
        const int64_t at = r * length_ + begins[bucket(i)]++;
        places_[at] = static_cast<int32_t>(i);
        buckets_[at] = static_cast<int32_t>(r) * (fill + 1) + bucket(i);
      }
    }
  }
  int64_t tokens() const { return tokens_; }
  bool in_full() const { return in_full_; }
  bool hashed() const { return !in_full_ && !given_.buckets.empty(); }
  int64_t chunk() const { return chunk_; }
  int64_t chunks() const { return std::ssize(places_) / std::max<int64_t>(1, chunk_); }
  int64_t window() const { return in_full_ ? chunk_ : (given_.before + 1 + given_.after) * chunk_; }
  // The token at place i of the chunk, and its bucket in its round.
  int64_t query(int64_t chunk, int64_t i) const { return places_[chunk * chunk_ + i]; }
  int32_t bucket(int64_t place) const { return buckets_[place]; }
  // The place of key j of a chunk's window.
  int64_t key_place(int64_t chunk, int64_t j) const {
    if (in_full_) return j;
    return neighbour(chunk, j / chunk_ - given_.before) * chunk_ + j % chunk_;
  }
  // The chunk that is `step` chunks away in the ring.
  int64_t neighbour(int64_t chunk, int64_t step) const {
    const int64_t all = chunks();
    return std::abs(step) > all ? chunk : (chunk + step + all) % all;
  }
  int64_t token(int64_t place) const { return places_[place]; }
  // f32 [rounds, length], counted from 0 in each round.
  Tensor bucket_of_tokens() const {
    Tensor out = Tensor::empty({rounds_, length_}, DType::f32);
    const int32_t all = buckets_per_round();
    for (int64_t place = 0; place < rounds_ * length_; ++place)
      out.mutable_row<float>(place / length_)[places_[place]] = static_cast<float>(buckets_[place] % all);
    return out;
  }

 private:
  // With that of tokens that fill up.
  int32_t buckets_per_round() const {
    return 1 + static_cast<int32_t>(std::accumulate(given_.buckets.begin(), given_.buckets.end(), int64_t{1},
                                                    std::multiplies<>()));
  }

  const HashedAttention& given_;
  int64_t tokens_, length_ = 0, chunk_ = 0, rounds_ = 1;
  bool in_full_ = false;
  std::vector<int32_t> places_, buckets_;  // [rounds, length]
};

struct Problem {
  Tensor q, k, v, rotations;
  std::vector<int32_t> offsets;
  HashedAttentionOptions o;

  int64_t sequences() const { return std::ssize(offsets) - 1; }
  int64_t d() const { return q.width() / o.heads; }
  int64_t d_v() const { return v.width() / o.heads; }
  int64_t tokens(int64_t s) const { return offsets[s + 1] - offsets[s]; }
};

// One head of one sequence in f32.
template <typename T>
class Head {
 public:
  Head(const Problem& p, int64_t s, int64_t head)
      : p_(p),
        s_(s),
        head_(head),
        q_(head_of<T>(p.q, head, p.o.heads, p.offsets[s], p.offsets[s + 1], 1)),
        k_(head_of<T>(p.k, head, p.o.heads, p.offsets[s], p.offsets[s + 1], 1)),
        order_(p.o, p.tokens(s)) {
    std::vector<int32_t> buckets;
    if (order_.hashed()) buckets = buckets_of(q_, order_.tokens(), p.rotations, head, p.o.order);
    order_.sort(buckets);
    if (order_.hashed() && p.o.order.same_bucket) count_rounds();
    for (float& x : q_) x *= p.o.scale;
    if (p.v.defined()) v_ = head_of<T>(p.v, head, p.o.heads, p.offsets[s], p.offsets[s + 1], 1);
  }
  const Order& order() const { return order_; }
  const Numbers& values() const { return v_; }

  // Reads a chunk: its queries and keys without those that fill up, and the scores of what they see.
  void load(int64_t chunk) {
    const int64_t d = p_.d(), d_v = p_.v.defined() ? p_.d_v() : 0;
    queries_.clear(), query_places_.clear(), keys_.clear(), key_slots_.clear();
    for (int64_t i = 0; i < order_.chunk(); ++i)
      if (order_.query(chunk, i) < order_.tokens()) {
        queries_.push_back(static_cast<int32_t>(order_.query(chunk, i)));
        query_places_.push_back(static_cast<int32_t>(i));
      }
    for (int64_t j = 0; j < order_.window() && !queries_.empty(); ++j) {
      const int64_t place = order_.key_place(chunk, j);
      if (order_.token(place) >= order_.tokens()) continue;
      keys_.push_back(static_cast<int32_t>(order_.token(place)));
      key_slots_.push_back(static_cast<int32_t>(j));
    }
    gather(q_, queries_, d, some_q_);
    gather(k_, keys_, d, some_k_);
    gather(v_, keys_, d_v, some_v_);
    scores_.resize(queries_.size() * keys_.size());
    if (scores_.empty()) return;
    multiply({.m = rows(),
              .n = columns(),
              .k = d,
              .a = some_q_.data(),
              .b = some_k_.data(),
              .c = scores_.data(),
              .b_transposed = true});
    for (int64_t i = 0; i < rows(); ++i)
      for (int64_t j = 0; j < columns(); ++j) {
        float& score = scores_[i * columns() + j];
        if (!sees(chunk, i, j) || (p_.o.own_last && keys_[j] == queries_[i]))
          score = kUnseen;
        else if (!times_.empty())
          score -= std::log(times_of(queries_[i], keys_[j]));
      }
  }
  int64_t rows() const { return std::ssize(queries_); }
  int64_t columns() const { return std::ssize(keys_); }
  int64_t query(int64_t i) const { return queries_[i]; }
  int64_t query_place(int64_t i) const { return query_places_[i]; }
  int64_t key(int64_t j) const { return keys_[j]; }
  int64_t key_slot(int64_t j) const { return key_slots_[j]; }
  Numbers& scores() { return scores_; }
  const Numbers& some_queries() const { return some_q_; }
  const Numbers& some_keys() const { return some_k_; }
  const Numbers& some_values() const { return some_v_; }
  // The factor that dropout gives the probability of a query and key of a chunk.
  float kept(int64_t chunk, int64_t i, int64_t j) const {
    const Dropout& dropout = p_.o.dropout;
    const auto row = static_cast<uint64_t>(dropout.first_row + p_.offsets[s_] + queries_[i]);
    const DropoutKey key = dropout.key.row(row * static_cast<uint64_t>(p_.o.heads) + head_);
    const auto index = static_cast<uint32_t>(chunk * order_.window() + key_slots_[j]);
    return dropout_bits(key, index) < dropout_threshold(dropout.p) ? 0 : 1 / (1 - dropout.p);
  }

 private:
  static void gather(const Numbers& from, const std::vector<int32_t>& rows, int64_t width, Numbers& to) {
    to.resize(rows.size() * width);
    for (size_t r = 0; r < rows.size(); ++r)
      std::copy_n(from.begin() + rows[r] * width, width, to.begin() + static_cast<int64_t>(r) * width);
  }
  bool sees(int64_t chunk, int64_t i, int64_t j) const {
    if (p_.o.causal && keys_[j] > queries_[i]) return false;
    if (!order_.hashed() || !p_.o.order.same_bucket) return true;
    const int64_t query = chunk * order_.chunk() + query_places_[i];
    return order_.bucket(query) == order_.bucket(order_.key_place(chunk, key_slots_[j]));
  }
  // For the rule that a key counts once: the place of each token in each round.
  void count_rounds() {
    times_.resize(p_.o.order.rounds * order_.tokens());
    const int64_t length = order_.chunks() * order_.chunk() / p_.o.order.rounds;
    for (int64_t place = 0; place < order_.chunks() * order_.chunk(); ++place)
      if (order_.token(place) < order_.tokens())
        times_[place / length * order_.tokens() + order_.token(place)] = static_cast<int32_t>(place);
  }
  // How often a query sees a key in all rounds together.
  float times_of(int64_t query, int64_t key) const {
    int64_t count = 0;
    for (int64_t r = 0; r < p_.o.order.rounds; ++r) {
      const int64_t at = times_[r * order_.tokens() + query], of_key = times_[r * order_.tokens() + key];
      if (order_.bucket(at) != order_.bucket(of_key)) continue;
      for (int64_t step = -p_.o.order.before; step <= p_.o.order.after; ++step)
        if (order_.neighbour(at / order_.chunk(), step) == of_key / order_.chunk()) ++count;
    }
    return static_cast<float>(std::max<int64_t>(1, count));
  }

  const Problem& p_;
  int64_t s_, head_;
  Numbers q_, k_, v_;
  Order order_;
  std::vector<int32_t> times_;
  std::vector<int32_t> queries_, query_places_, keys_, key_slots_;
  Numbers some_q_, some_k_, some_v_, scores_;
};

// log_sums [heads, N]: the logarithm of each query's divisor; -infinity where it sees its own key alone.
template <typename T>
void forward_of_head(const Problem& p, int64_t s, int64_t h, Tensor& y, float* log_sums) {
  Head<T> head(p, s, h);
  const int64_t n = p.tokens(s), d_v = p.d_v();
  Numbers out(n * d_v, 0), most(n, kUnseen), sums(n, 0), part;
  for (int64_t c = 0; c < head.order().chunks(); ++c) {
    head.load(c);
    const int64_t rows = head.rows(), columns = head.columns();
    if (rows == 0) continue;
    Numbers factors(rows, 0);
    for (int64_t i = 0; i < rows; ++i) {
      float* row = head.scores().data() + i * columns;
      const int64_t query = head.query(i);
      const float highest = std::max(most[query], *std::max_element(row, row + columns));
      if (highest == kUnseen) {
        std::fill_n(row, columns, 0.0F);
        continue;
      }
      for (int64_t j = 0; j < columns; ++j) row[j] -= highest;
      kernels().exp(columns, row, row);
      float sum = 0;
      for (int64_t j = 0; j < columns; ++j) sum += row[j];
      factors[i] = most[query] == kUnseen ? 0 : std::exp(most[query] - highest);
      sums[query] = sums[query] * factors[i] + sum;
      most[query] = highest;
      if (p.o.dropout.on())
        for (int64_t j = 0; j < columns; ++j) row[j] *= head.kept(c, i, j);
    }
    part.resize(rows * d_v);
    multiply({.m = rows,
              .n = d_v,
              .k = columns,
              .a = head.scores().data(),
              .b = head.some_values().data(),
              .c = part.data()});
    for (int64_t i = 0; i < rows; ++i) {
      float* to = out.data() + head.query(i) * d_v;
      if (most[head.query(i)] == kUnseen) continue;
      for (int64_t e = 0; e < d_v; ++e) to[e] = to[e] * factors[i] + part[i * d_v + e];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    float* from = out.data() + i * d_v;
    if (sums[i] > 0)
      kernels().scale(d_v, 1 / sums[i], from);
    else
      std::copy_n(head.values().data() + i * d_v, d_v, from);
    const int64_t row = p.offsets[s] + i;
    kernels().typed<T>().from_f32(d_v, from, y.mutable_data<T>() + row * y.width() + h * d_v);
    if (log_sums != nullptr)
      log_sums[h * p.offsets.back() + row] = sums[i] > 0 ? most[i] + std::log(sums[i]) : kUnseen;
  }
}

class HashedAttentionNode : public Node {
 public:
  HashedAttentionNode(Problem p, const Tensor& y, Tensor log_sums)
      : p_(std::move(p)), y_(y.detach()), log_sums_(std::move(log_sums)) {
    for (Tensor* x : {&p_.q, &p_.k, &p_.v}) {
      add_input(*x);
      *x = x->detach();
    }
  }
  std::string_view name() const override { return "hashed_attention"; }
  void backward(std::span<Tensor> grads) override {
    const std::array<const Tensor*, 3> inputs = {&p_.q, &p_.k, &p_.v};
    std::array<Tensor, 3> grad;
    for (int i = 0; i < 3; ++i) grad[i] = Tensor::empty(inputs[i]->shape(), DType::f32);
    with_float_type("hashed attention", p_.q.dtype(), [&]<typename T>(T) {
      parallel_tasks(p_.sequences() * p_.o.heads, [&](int64_t task, int) {
        backward_of_head<T>(task / p_.o.heads, task % p_.o.heads, grads[0], grad);
      });
    });
    for (int i = 0; i < 3; ++i)
      if (wants(i)) give(i, convert(grad[i], inputs[i]->dtype()));
  }

 private:
  template <typename T>
  void backward_of_head(int64_t s, int64_t h, const Tensor& dy, std::array<Tensor, 3>& grad) const {
    Head<T> head(p_, s, h);
    const int64_t n = p_.tokens(s), d = p_.d(), d_v = p_.d_v(), begin = p_.offsets[s], end = begin + n;
    const float* log_sums = log_sums_.data<float>() + h * p_.offsets.back() + begin;
    const Numbers of_y = head_of<T>(dy, h, p_.o.heads, begin, end, 1),
                  y = head_of<T>(y_, h, p_.o.heads, begin, end, 1);
    Numbers dots(n, 0), dq(n * d, 0), dk(n * d, 0), dv(n * d_v, 0), some_y, of_p, of_q, of_k, of_v;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t e = 0; e < d_v; ++e) dots[i] += of_y[i * d_v + e] * y[i * d_v + e];
      if (log_sums[i] == kUnseen) std::copy_n(of_y.data() + i * d_v, d_v, dv.data() + i * d_v);
    }
    const auto add_rows = [](const Numbers& from, int64_t rows, int64_t width, auto token, Numbers& to) {
      for (int64_t r = 0; r < rows; ++r)
        kernels().axpy(width, 1, from.data() + r * width, to.data() + token(r) * width);
    };
    for (int64_t c = 0; c < head.order().chunks(); ++c) {
      head.load(c);
      const int64_t rows = head.rows(), columns = head.columns();
      if (rows == 0) continue;
      some_y.resize(rows * d_v), of_p.resize(rows * columns);
      for (int64_t i = 0; i < rows; ++i)
        std::copy_n(of_y.data() + head.query(i) * d_v, d_v, some_y.data() + i * d_v);
      multiply({.m = rows,
                .n = columns,
                .k = d_v,
                .a = some_y.data(),
                .b = head.some_values().data(),
                .c = of_p.data(),
                .b_transposed = true});
      Numbers& p = head.scores();
      for (int64_t i = 0; i < rows; ++i) {
        const float log_sum = log_sums[head.query(i)];
        float *row = p.data() + i * columns, *of_row = of_p.data() + i * columns;
        for (int64_t j = 0; j < columns; ++j) row[j] = log_sum == kUnseen ? kUnseen : row[j] - log_sum;
        kernels().exp(columns, row, row);
        for (int64_t j = 0; j < columns; ++j) {
          const float kept = p_.o.dropout.on() ? head.kept(c, i, j) : 1;
          of_row[j] = row[j] * (kept * of_row[j] - dots[head.query(i)]);
          row[j] *= kept;
        }
      }
      of_v.resize(columns * d_v), of_q.resize(rows * d), of_k.resize(columns * d);
      multiply({.m = columns,
                .n = d_v,
                .k = rows,
                .a = p.data(),
                .b = some_y.data(),
                .c = of_v.data(),
                .a_transposed = true});
      multiply({.m = rows,
                .n = d,
                .k = columns,
                .a = of_p.data(),
                .b = head.some_keys().data(),
                .c = of_q.data()});
      multiply({.m = columns,
                .n = d,
                .k = rows,
                .a = of_p.data(),
                .b = head.some_queries().data(),
                .c = of_k.data(),
                .a_transposed = true});
      add_rows(
          of_v, columns, d_v, [&](int64_t j) { return head.key(j); }, dv);
      add_rows(
          of_q, rows, d, [&](int64_t i) { return head.query(i); }, dq);
      add_rows(
          of_k, columns, d, [&](int64_t j) { return head.key(j); }, dk);
    }
    for (float& x : dq) x *= p_.o.scale;
    const auto store = [&](const Numbers& from, int64_t width, Tensor& to) {
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(from.data() + i * width, width,
                    to.mutable_data<float>() + (begin + i) * to.width() + h * width);
    };
    store(dq, d, grad[0]);
    store(dk, d, grad[1]);
    store(dv, d_v, grad[2]);
  }

  Problem p_;
  Tensor y_, log_sums_;
};

void check_order(const HashedAttention& o, const Tensor& rotations, int64_t heads, int64_t d) {
  check(o.chunk > 0 && o.before >= 0 && o.after >= 0 && o.rounds > 0 && o.multiple > 0,
        "hashed attention: expected chunks, rounds and a multiple above 0");
  check(std::ranges::all_of(o.buckets, [](int64_t n) { return n > 0 && n % 2 == 0; }),
        "hashed attention: expected even factors of the number of buckets");
  if (o.buckets.empty()) return check(o.rounds == 1, "hashed attention: rounds without buckets are alike");
  check(rotations.defined() && rotations.dtype() == DType::f32 &&
            rotations.shape() == Shape({heads, d, o.rounds, o.columns()}),
        "hashed attention: expected rotations f32 [{}, {}, {}, {}], got {}", heads, d, o.rounds, o.columns(),
        rotations);
}

void check_input(const Problem& p) {
  const int64_t heads = p.o.heads;
  check(p.q.defined() && p.q.shape().rank() == 2 && heads > 0 && p.q.width() > 0 && p.q.width() % heads == 0,
        "hashed attention: expected queries [N, {} d], got {}", heads, p.q);
  check(p.k.defined() && p.k.shape() == p.q.shape() && p.k.dtype() == p.q.dtype(),
        "hashed attention: expected keys like queries {}, got {}", p.q, p.k);
  check(!p.v.defined() || (p.v.shape().rank() == 2 && p.v.dim(0) == p.q.dim(0) && p.v.width() > 0 &&
                           p.v.width() % heads == 0 && p.v.dtype() == p.q.dtype()),
        "hashed attention: expected values [{}, {} d_v] {}, got {}", p.q.dim(0), heads, name_of(p.q.dtype()),
        p.v);
  check(!p.offsets.empty() && p.offsets.front() == 0 && p.offsets.back() == p.q.dim(0) &&
            std::ranges::is_sorted(p.offsets),
        "hashed attention: the offsets do not fit queries {}", p.q);
  check_order(p.o.order, p.rotations, heads, p.d());
}

template <typename T>
Tensor probabilities_by_chunk(Head<T>& head) {
  const Order& order = head.order();
  Tensor all = Tensor::zeros({order.chunks(), order.chunk(), order.window()}, DType::f32);
  for (int64_t c = 0; c < order.chunks(); ++c) {
    head.load(c);
    for (int64_t i = 0; i < head.rows(); ++i) {
      const float* row = head.scores().data() + i * head.columns();
      const float highest = *std::max_element(row, row + head.columns());
      const auto weight = [&](int64_t j) {
        if (highest == kUnseen) return head.key(j) == head.query(i) ? 1.0F : 0.0F;
        return std::exp(row[j] - highest);
      };
      float sum = 0;
      for (int64_t j = 0; j < head.columns(); ++j) sum += weight(j);
      const auto to = all.template mutable_part<float>(c, head.query_place(i));
      for (int64_t j = 0; j < head.columns(); ++j) to[head.key_slot(j)] = weight(j) / sum;
    }
  }
  return all;
}

template <typename T>
Tensor probabilities_together(Head<T>& head, int64_t tokens) {
  Tensor all = Tensor::zeros({tokens, tokens}, DType::f32);
  Numbers most(tokens, kUnseen);
  const auto for_rows = [&](auto f) {
    for (int64_t c = 0; c < head.order().chunks(); ++c) {
      head.load(c);
      for (int64_t i = 0; i < head.rows(); ++i) f(i, head.scores().data() + i * head.columns());
    }
  };
  for_rows([&](int64_t i, const float* row) {
    float& highest = most[head.query(i)];
    highest = std::max(highest, *std::max_element(row, row + head.columns()));
  });
  for_rows([&](int64_t i, const float* row) {
    const float highest = most[head.query(i)];
    const auto to = all.template mutable_row<float>(head.query(i));
    for (int64_t j = 0; j < head.columns() && highest != kUnseen; ++j)
      to[head.key(j)] += std::exp(row[j] - highest);
  });
  for (int64_t i = 0; i < tokens; ++i) {
    const auto to = all.template mutable_row<float>(i);
    const float sum = std::accumulate(to.begin(), to.end(), 0.0F);
    if (sum == 0) to[i] = 1;
    for (float& x : to) x /= sum == 0 ? 1 : sum;
  }
  return all;
}

}  // namespace

std::vector<int64_t> usual_buckets(int64_t context, int64_t chunk) {
  check(context > 0 && chunk > 0, "usual buckets: expected a context and a chunk above 0");
  const int64_t chunks = std::max<int64_t>(1, context / chunk);
  int power = 0;
  while ((int64_t{2} << power) <= 2 * chunks) ++power;
  const auto root = static_cast<int64_t>(std::sqrt(static_cast<double>(chunks)));
  if (int64_t{1} << power <= 2 * std::max(root, chunk)) return {int64_t{1} << power};
  return {int64_t{1} << (power / 2), int64_t{1} << (power - power / 2)};
}

std::vector<int32_t> hash_buckets(const Tensor& queries, const Tensor& rotations,
                                  const HashedAttention& order, int64_t head, int64_t begin, int64_t end) {
  check(rotations.defined() && rotations.shape().rank() == 4 && head >= 0 && head < rotations.dim(0) &&
            queries.defined() && queries.shape().rank() == 2 &&
            queries.width() == rotations.dim(0) * rotations.dim(1) && begin >= 0 && begin <= end &&
            end <= queries.dim(0),
        "hash buckets: queries {} and rotations {} do not fit", queries, rotations);
  check_order(order, rotations, rotations.dim(0), rotations.dim(1));
  std::vector<int32_t> out;
  with_float_type("hash buckets", queries.dtype(), [&]<typename T>(T) {
    out = buckets_of(head_of<T>(queries, head, rotations.dim(0), begin, end, 1), end - begin, rotations, head,
                     order);
  });
  return out;
}

Tensor hashed_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& rotations,
                        std::span<const int32_t> offsets, const HashedAttentionOptions& options) {
  check(v.defined(), "hashed attention: expected values");
  Problem p{q, k, v, rotations, {offsets.begin(), offsets.end()}, options};
  check_input(p);
  Tensor y = Tensor::empty(v.shape(), v.dtype());
  const bool recorded = wants_grad({&q, &k, &v});
  Tensor log_sums = recorded ? Tensor::empty({options.heads, q.dim(0)}, DType::f32) : Tensor();
  float* const sums = recorded ? log_sums.mutable_data<float>() : nullptr;
  with_float_type("hashed attention", q.dtype(), [&]<typename T>(T) {
    parallel_tasks(p.sequences() * options.heads, [&](int64_t task, int) {
      forward_of_head<T>(p, task / options.heads, task % options.heads, y, sums);
    });
  });
  if (recorded) connect(y, std::make_shared<HashedAttentionNode>(std::move(p), y, std::move(log_sums)), 0);
  return y;
}

void visit_hashed_probabilities(const Tensor& q, const Tensor& k, const Tensor& rotations,
                                std::span<const int32_t> offsets, const HashedAttentionOptions& options,
                                HashedView view,
                                const std::function<void(int64_t sequence, int64_t head, Tensor&)>& visit) {
  const Problem p{q, k, {}, rotations, {offsets.begin(), offsets.end()}, options};
  check_input(p);
  with_float_type("hashed attention", q.dtype(), [&]<typename T>(T) {
    for (int64_t task = 0; task < p.sequences() * options.heads; ++task) {
      const int64_t s = task / options.heads, h = task % options.heads;
      Head<T> head(p, s, h);
      const bool in_full = head.order().in_full();
      Tensor all = view == HashedView::buckets                ? head.order().bucket_of_tokens()
                   : view == HashedView::by_chunk && !in_full ? probabilities_by_chunk(head)
                                                              : probabilities_together(head, p.tokens(s));
      visit(s, h, all);
    }
  });
}

}  // namespace qkv
