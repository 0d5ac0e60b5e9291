#include "qkv/ops/fast_weights_chunks.h"

#include <algorithm>

#include "qkv/ops/thread_product.h"

namespace qkv::fast_weights_parts {
namespace {

constexpr int64_t kChunk = 64;
constexpr double kNothing = -1e4;  // the logarithm of a factor that leaves nothing

using Numbers = std::vector<float>;

int64_t chunks_of(int64_t tokens) {
  return (tokens + kChunk - 1) / kChunk;
}

constexpr int64_t kBlock = 16;  // rows of a triangular system that are solved one by one

// Rows [begin, end) of a square matrix [m, m], its first `begin` columns.
Numbers left_of_block(const Numbers& matrix, int64_t m, int64_t begin, int64_t end) {
  Numbers out((end - begin) * begin);
  for (int64_t t = begin; t < end; ++t)
    std::copy_n(matrix.begin() + t * m, begin, out.begin() + (t - begin) * begin);
  return out;
}
// x becomes the u of u_t = x_t + sum_(s < t) system_ts u_s. system [m, m], x [m, width].
void substitute(const Numbers& system, int64_t m, int64_t width, float* x) {
  for (int64_t begin = 0; begin < m; begin += kBlock) {
    const int64_t end = std::min(m, begin + kBlock);
    if (begin > 0)
      multiply({.m = end - begin,
                .n = width,
                .k = begin,
                .a = left_of_block(system, m, begin, end).data(),
                .b = x,
                .c = x + begin * width,
                .accumulate = true});
    for (int64_t t = begin; t < end; ++t)
      for (int64_t s = begin; s < t; ++s)
        kernels().axpy(width, system[t * m + s], x + s * width, x + t * width);
  }
}
// x, the gradient of u, becomes that of what substitute() had.
void substitute_back(const Numbers& system, int64_t m, int64_t width, float* x) {
  for (int64_t begin = (m - 1) / kBlock * kBlock; begin >= 0; begin -= kBlock) {
    const int64_t end = std::min(m, begin + kBlock);
    for (int64_t t = end - 1; t > begin; --t)
      for (int64_t s = begin; s < t; ++s)
        kernels().axpy(width, system[t * m + s], x + t * width, x + s * width);
    if (begin > 0)
      multiply({.m = begin,
                .n = width,
                .k = end - begin,
                .a = left_of_block(system, m, begin, end).data(),
                .b = x + begin * width,
                .c = x,
                .a_transposed = true,
                .accumulate = true});
  }
}

// A chunk of one head in f32: q, k [m, d_k], v [m, columns].
class Chunk {
 public:
  explicit Chunk(const Problem& p)
      : p_(p),
        q(kChunk * p.d_k()),
        k(q.size()),
        v(kChunk * p.columns()),
        read_(q.size()),
        written_(q.size()) {}

  template <typename T>
  void load(int64_t s, int64_t head, int64_t begin) {
    const FastWeightsInput& in = p_.in;
    m_ = std::min(kChunk, p_.queries(s) - begin);
    first_ = p_.offsets[s] + begin;
    head_ = head;
    const int64_t d_k = p_.d_k(), d_v = p_.d_v(), columns = p_.columns(), at = p_.key_head(head) * d_k;
    const auto to_f32 = kernels().typed<T>().to_f32;
    for (int64_t t = 0; t < m_; ++t) {
      const int64_t row = first_ + t;
      to_f32(d_k, in.q.data<T>() + row * in.q.width() + at, q.data() + t * d_k);
      to_f32(d_k, in.k.data<T>() + row * in.k.width() + at, k.data() + t * d_k);
      to_f32(d_v, in.v.data<T>() + row * in.v.width() + head * d_v, v.data() + t * columns);
      if (in.epsilon) v[t * columns + d_v] = 1;
    }
    kernels().scale(m_ * d_k, in.scale, q.data());
    sums_.assign(m_, 0);
    for (int64_t t = 0; t < m_ && decays(); ++t) {
      const double kept = in.decay.data<float>()[(first_ + t) * in.heads + head];
      sums_[t] = (t > 0 ? sums_[t - 1] : 0) + std::max(kept, kNothing);
    }
    since_begin_.resize(m_);
    to_end_.resize(m_);
    for (int64_t t = 0; t < m_; ++t) {
      since_begin_[t] = static_cast<float>(sums_[t]);
      to_end_[t] = static_cast<float>(sums_.back() - sums_[t]);
    }
    kernels().exp(m_, since_begin_.data(), since_begin_.data());
    kernels().exp(m_, to_end_.data(), to_end_.data());
    scale_rows(q, since_begin_, d_k, read_);
    scale_rows(k, to_end_, d_k, written_);
  }
  bool decays() const { return p_.in.decay.defined(); }
  int64_t m() const { return m_; }
  int64_t row(int64_t t) const { return first_ + t; }
  int64_t head() const { return head_; }
  float kept() const { return since_begin_.back(); }  // the part that stays of the state before the chunk
  float since_begin(int64_t t) const { return since_begin_[t]; }
  float to_end(int64_t t) const { return to_end_[t]; }

  // Parts of queries that read the state before the chunk, and of keys that are written to the one after it.
  const Numbers& reading() const { return read_; }
  const Numbers& writing() const { return written_; }

  // products [m, m]: q_t . k_s; factors: e^(G_t - G_s), 0 for s > t; shares: both multiplied.
  void pair() {
    products.resize(m_ * m_), factors.resize(m_ * m_), shares.resize(m_ * m_);
    multiply({.m = m_,
              .n = m_,
              .k = p_.d_k(),
              .a = q.data(),
              .b = k.data(),
              .c = products.data(),
              .b_transposed = true});
    for (int64_t t = 0; t < m_; ++t) {
      float* row = factors.data() + t * m_;
      for (int64_t s = 0; s <= t; ++s) row[s] = static_cast<float>(sums_[t] - sums_[s]);
      if (decays())
        kernels().exp(t + 1, row, row);
      else
        std::fill_n(row, t + 1, 1.0F);
      std::fill(row + t + 1, row + m_, 0.0F);
      for (int64_t s = 0; s < m_; ++s) shares[t * m_ + s] = products[t * m_ + s] * row[s];
    }
  }
  // The delta rule: v becomes u, what the chunk's tokens add to the state before it.
  void learn(const float* state) {
    const int64_t d_k = p_.d_k(), d_v = p_.d_v();
    similarities.resize(m_ * m_), system.resize(m_ * m_), recalled.resize(m_ * d_v), missing.resize(m_ * d_v);
    multiply({.m = m_,
              .n = m_,
              .k = d_k,
              .a = k.data(),
              .b = k.data(),
              .c = similarities.data(),
              .b_transposed = true});
    multiply({.m = m_, .n = d_v, .k = d_k, .a = k.data(), .b = state, .c = recalled.data()});
    for (int64_t t = 0; t < m_; ++t) {
      float *u = v.data() + t * d_v, *row = system.data() + t * m_;
      for (int64_t s = 0; s < t; ++s) row[s] = -beta(t) * factors[t * m_ + s] * similarities[t * m_ + s];
      for (int64_t j = 0; j < d_v; ++j) {
        missing[t * d_v + j] = u[j] - since_begin_[t] * recalled[t * d_v + j];
        u[j] = beta(t) * missing[t * d_v + j];
      }
    }
    substitute(system, m_, d_v, v.data());
  }
  bool delta() const { return p_.in.beta.defined(); }
  float beta(int64_t t) const { return p_.in.beta.data<float>()[(first_ + t) * p_.in.heads + head_]; }

  // y [m, columns], before it is divided, from the state before the chunk.
  void read(const float* state, Numbers& y) const {
    y.resize(m_ * p_.columns());
    multiply({.m = m_, .n = p_.columns(), .k = m_, .a = shares.data(), .b = v.data(), .c = y.data()});
    multiply({.m = m_,
              .n = p_.columns(),
              .k = p_.d_k(),
              .a = read_.data(),
              .b = state,
              .c = y.data(),
              .accumulate = true});
  }

 private:
  const Problem& p_;

 public:
  Numbers q, k, v, products, factors, shares;
  // The delta rule's. similarities [m, m]: k_t . k_s; system: -beta_t e^(G_t - G_s) k_t . k_s for s < t. [m,
  // d_v]: recalled: S^T k_t of the state before the chunk; missing: v_t less what of that is left.
  Numbers similarities, system, recalled, missing;

 private:
  void scale_rows(const Numbers& from, const Numbers& by, int64_t width, Numbers& to) const {
    for (int64_t t = 0; t < m_; ++t)
      for (int64_t i = 0; i < width; ++i) to[t * width + i] = by[t] * from[t * width + i];
  }

  int64_t m_ = 0, first_ = 0, head_ = 0;
  std::vector<double> sums_;  // G, whose differences are small beside it
  Numbers since_begin_, to_end_, read_, written_;
};

Numbers state_of(const Problem& p, const Tensor& states, int64_t s, int64_t head) {
  const int64_t size = p.d_k() * p.columns();
  if (!states.defined()) return Numbers(size, 0);
  const float* from = states.data<float>() + s * p.state_width() + head * size;
  return {from, from + size};
}

// Calls f(sequence, head, first chunk of the sequence among all).
template <typename F>
void for_chunked_heads(const Problem& p, const F& f) {
  std::vector<int64_t> first = {0};
  for (int64_t s = 0; s < p.sequences(); ++s) first.push_back(first.back() + chunks_of(p.queries(s)));
  for_heads(p, [&](int64_t s, int64_t head, int64_t) { f(s, head, first[s]); });
}

}  // namespace

bool goes_in_chunks(const Problem& p) {
  return p.causal && !p.in.a.defined() && !p.decays_rows() && p.marks.empty();
}

int64_t chunk_states(const Problem& p) {
  int64_t chunks = 0;
  for (int64_t s = 0; s < p.sequences(); ++s) chunks += chunks_of(p.queries(s));
  return chunks * p.in.heads;
}

template <typename T>
void forward_in_chunks(const Problem& p, Tensor& y, Tensor& state, Tensor& begins) {
  const int64_t d_v = p.d_v(), columns = p.columns(), size = p.d_k() * columns;
  for_chunked_heads(p, [&](int64_t s, int64_t head, int64_t first) {
    Chunk chunk(p);
    Numbers matrix = state_of(p, p.first, s, head), rows;
    for (int64_t c = 0; c < chunks_of(p.queries(s)); ++c) {
      if (begins.defined())
        std::ranges::copy(matrix, begins.mutable_data<float>() + ((first + c) * p.in.heads + head) * size);
      chunk.template load<T>(s, head, c * kChunk);
      chunk.pair();
      if (chunk.delta()) chunk.learn(matrix.data());
      chunk.read(matrix.data(), rows);
      for (int64_t t = 0; t < chunk.m(); ++t) {
        float* from = rows.data() + t * columns;
        if (p.in.epsilon) kernels().scale(d_v, 1 / p.divisor(from[d_v]), from);
        kernels().typed<T>().from_f32(d_v, from, y.mutable_data<T>() + chunk.row(t) * y.width() + head * d_v);
      }
      if (chunk.decays()) kernels().scale(size, chunk.kept(), matrix.data());
      multiply({.m = p.d_k(),
                .n = columns,
                .k = chunk.m(),
                .a = chunk.writing().data(),
                .b = chunk.v.data(),
                .c = matrix.data(),
                .a_transposed = true,
                .accumulate = true});
    }
    std::ranges::copy(matrix, state.mutable_data<float>() + s * p.state_width() + head * size);
  });
}

namespace {

// The gradients of one head, from its last chunk on.
template <typename T>
class BackwardOfHead {
 public:
  BackwardOfHead(const Problem& p, int64_t s, int64_t head, const Tensor& dy, const Tensor& dstate,
                 std::array<Tensor, kSlots>& grad)
      : p_(p), s_(s), head_(head), dy_(dy), grad_(grad), chunk_(p), dstate_(state_of(p, dstate, s, head)) {}

  // state: the one that the chunk begins with.
  void chunk(int64_t c, const float* state) {
    const int64_t d_k = p_.d_k(), columns = p_.columns(), size = d_k * columns;
    chunk_.template load<T>(s_, head_, c * kChunk);
    chunk_.pair();
    if (chunk_.delta()) chunk_.learn(state);
    const int64_t m = chunk_.m();
    chunk_.read(state, y_);
    of_rows();
    dshares_.resize(m * m), dq_.resize(m * d_k), dk_.resize(m * d_k), dv_.resize(m * columns);
    multiply({.m = m,
              .n = m,
              .k = columns,
              .a = dy_rows_.data(),
              .b = chunk_.v.data(),
              .c = dshares_.data(),
              .b_transposed = true});
    if (chunk_.decays()) of_sums(state);
    // By what the chunk's tokens are for each other, and by the states before and after them.
    multiply({.m = m,
              .n = columns,
              .k = m,
              .a = chunk_.shares.data(),
              .b = dy_rows_.data(),
              .c = dv_.data(),
              .a_transposed = true});
    multiply({.m = m,
              .n = columns,
              .k = d_k,
              .a = chunk_.writing().data(),
              .b = dstate_.data(),
              .c = dv_.data(),
              .accumulate = true});
    multiply({.m = m,
              .n = d_k,
              .k = columns,
              .a = dy_rows_.data(),
              .b = state,
              .c = dq_.data(),
              .b_transposed = true});
    multiply({.m = m,
              .n = d_k,
              .k = columns,
              .a = chunk_.v.data(),
              .b = dstate_.data(),
              .c = dk_.data(),
              .b_transposed = true});
    for (int64_t t = 0; t < m && chunk_.decays(); ++t) {
      kernels().scale(d_k, chunk_.since_begin(t), dq_.data() + t * d_k);
      kernels().scale(d_k, chunk_.to_end(t), dk_.data() + t * d_k);
    }
    for (int64_t i = 0; i < m * m; ++i) dshares_[i] *= chunk_.factors[i];
    multiply({.m = m,
              .n = d_k,
              .k = m,
              .a = dshares_.data(),
              .b = chunk_.k.data(),
              .c = dq_.data(),
              .accumulate = true});
    multiply({.m = m,
              .n = d_k,
              .k = m,
              .a = dshares_.data(),
              .b = chunk_.q.data(),
              .c = dk_.data(),
              .a_transposed = true,
              .accumulate = true});
    if (chunk_.decays()) kernels().scale(size, chunk_.kept(), dstate_.data());
    multiply({.m = d_k,
              .n = columns,
              .k = m,
              .a = chunk_.reading().data(),
              .b = dy_rows_.data(),
              .c = dstate_.data(),
              .a_transposed = true,
              .accumulate = true});
    if (chunk_.delta()) of_delta(state);
    if (chunk_.decays()) take_decays();
    take();
  }
  const Numbers& of_first() const { return dstate_; }

 private:
  // The gradient of the rows of y before they are divided.
  void of_rows() {
    const int64_t d_v = p_.d_v(), columns = p_.columns();
    dy_rows_.assign(chunk_.m() * columns, 0);
    for (int64_t t = 0; t < chunk_.m() && dy_.defined(); ++t) {
      float* to = dy_rows_.data() + t * columns;
      kernels().typed<T>().to_f32(d_v, dy_.data<T>() + chunk_.row(t) * dy_.width() + head_ * d_v, to);
      if (!p_.in.epsilon) continue;
      const float sum = y_[t * columns + d_v], divisor = p_.divisor(sum);
      kernels().scale(d_v, 1 / divisor, to);
      const float by = p_.divisor_slope(sum) / divisor;
      for (int64_t j = 0; j < d_v; ++j) to[d_v] -= to[j] * y_[t * columns + j] * by;
    }
  }
  // From the gradient of u, in dv_, those of v, beta, keys, sums G and the state before the chunk.
  void of_delta(const float* state) {
    const int64_t m = chunk_.m(), d_k = p_.d_k(), d_v = p_.d_v();
    const Numbers& system = chunk_.system;
    substitute_back(system, m, d_v, dv_.data());
    Numbers pairs(m * m), of_recalled(m * d_v);
    multiply({.m = m,
              .n = m,
              .k = d_v,
              .a = dv_.data(),
              .b = chunk_.v.data(),
              .c = pairs.data(),
              .b_transposed = true});
    for (int64_t t = 0; t < m; ++t) {
      const float beta = chunk_.beta(t), kept = chunk_.since_begin(t);
      float of_beta = 0, of_sum = 0;
      for (int64_t s = 0; s < m; ++s) {
        float& pair = pairs[t * m + s];
        if (s >= t) {
          pair = 0;
          continue;
        }
        const float factor = chunk_.factors[t * m + s], both = pair * system[t * m + s];
        of_beta -= pair * factor * chunk_.similarities[t * m + s];
        of_sum += both;
        if (chunk_.decays()) of_g_[s] -= both;
        pair *= -beta * factor;
      }
      for (int64_t j = t * d_v; j < (t + 1) * d_v; ++j) {
        of_beta += dv_[j] * chunk_.missing[j];
        dv_[j] *= beta;
        of_recalled[j] = -kept * dv_[j];
        of_sum += of_recalled[j] * chunk_.recalled[j];
      }
      if (chunk_.decays()) of_g_[t] += of_sum;
      grad_[kBeta].mutable_data<float>()[chunk_.row(t) * p_.in.heads + head_] = of_beta;
    }
    multiply({.m = m,
              .n = d_k,
              .k = m,
              .a = pairs.data(),
              .b = chunk_.k.data(),
              .c = dk_.data(),
              .accumulate = true});
    multiply({.m = m,
              .n = d_k,
              .k = m,
              .a = pairs.data(),
              .b = chunk_.k.data(),
              .c = dk_.data(),
              .a_transposed = true,
              .accumulate = true});
    multiply({.m = m,
              .n = d_k,
              .k = d_v,
              .a = of_recalled.data(),
              .b = state,
              .c = dk_.data(),
              .b_transposed = true,
              .accumulate = true});
    multiply({.m = d_k,
              .n = d_v,
              .k = m,
              .a = chunk_.k.data(),
              .b = of_recalled.data(),
              .c = dstate_.data(),
              .a_transposed = true,
              .accumulate = true});
  }
  // The gradients of the sums G.
  void of_sums(const float* state) {
    const int64_t m = chunk_.m(), d_k = p_.d_k(), columns = p_.columns();
    Numbers parts(m * columns);
    Numbers& of_g = of_g_;
    of_g.assign(m, 0);
    for (int64_t t = 0; t < m; ++t)
      for (int64_t s = 0; s < t; ++s) {
        const float both = chunk_.shares[t * m + s] * dshares_[t * m + s];
        of_g[t] += both;
        of_g[s] -= both;
      }
    const auto dot = [&](int64_t t, const Numbers& other) {
      float sum = 0;
      for (int64_t j = 0; j < columns; ++j) sum += parts[t * columns + j] * other[t * columns + j];
      return sum;
    };
    multiply({.m = m, .n = columns, .k = d_k, .a = chunk_.reading().data(), .b = state, .c = parts.data()});
    for (int64_t t = 0; t < m; ++t) of_g[t] += dot(t, dy_rows_);
    multiply({.m = m,
              .n = columns,
              .k = d_k,
              .a = chunk_.writing().data(),
              .b = dstate_.data(),
              .c = parts.data()});
    for (int64_t t = 0; t < m; ++t) {
      const float of_written = dot(t, chunk_.v);
      of_g[t] -= of_written;
      of_g[m - 1] += of_written;
    }
    float of_kept = 0;
    for (int64_t i = 0; i < d_k * columns; ++i) of_kept += state[i] * dstate_[i];
    of_g[m - 1] += chunk_.kept() * of_kept;
  }
  // The gradients of the logarithms of the factors, of which G are the sums.
  void take_decays() {
    float sum = 0;
    float* to = grad_[kDecay].mutable_data<float>();
    for (int64_t t = chunk_.m() - 1; t >= 0; --t) {
      sum += of_g_[t];
      to[chunk_.row(t) * p_.in.heads + head_] += sum;
    }
  }
  // Heads that share keys add to the same rows.
  void take() {
    const FastWeightsInput& in = p_.in;
    const int64_t d_k = p_.d_k(), d_v = p_.d_v(), at = p_.key_head(head_) * d_k;
    for (int64_t t = 0; t < chunk_.m(); ++t) {
      const int64_t row = chunk_.row(t);
      kernels().axpy(d_k, in.scale, dq_.data() + t * d_k,
                     grad_[kQ].mutable_data<float>() + row * in.q.width() + at);
      kernels().axpy(d_k, 1, dk_.data() + t * d_k, grad_[kK].mutable_data<float>() + row * in.k.width() + at);
      std::copy_n(dv_.data() + t * p_.columns(), d_v,
                  grad_[kV].mutable_data<float>() + row * in.v.width() + head_ * d_v);
    }
  }

  const Problem& p_;
  int64_t s_, head_;
  const Tensor& dy_;
  std::array<Tensor, kSlots>& grad_;
  Chunk chunk_;
  Numbers dstate_, y_, dy_rows_, dshares_, dq_, dk_, dv_, of_g_;
};

}  // namespace

template <typename T>
void backward_in_chunks(const Problem& p, const Tensor& begins, const Tensor& dy, const Tensor& dstate,
                        std::array<Tensor, kSlots>& grad) {
  const int64_t size = p.d_k() * p.columns();
  for_chunked_heads(p, [&](int64_t s, int64_t head, int64_t first) {
    BackwardOfHead<T> of(p, s, head, dy, dstate, grad);
    for (int64_t c = chunks_of(p.queries(s)) - 1; c >= 0; --c)
      of.chunk(c, begins.data<float>() + ((first + c) * p.in.heads + head) * size);
    std::ranges::copy(of.of_first(), grad[kFirst].mutable_data<float>() + s * p.state_width() + head * size);
  });
}

template void forward_in_chunks<float>(const Problem&, Tensor&, Tensor&, Tensor&);
template void forward_in_chunks<BFloat16>(const Problem&, Tensor&, Tensor&, Tensor&);
template void backward_in_chunks<float>(const Problem&, const Tensor&, const Tensor&, const Tensor&,
                                        std::array<Tensor, kSlots>&);
template void backward_in_chunks<BFloat16>(const Problem&, const Tensor&, const Tensor&, const Tensor&,
                                           std::array<Tensor, kSlots>&);

}  // namespace qkv::fast_weights_parts
