// The plain loops: the meaning of every kernel, and the oracle of the fast ones.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

template <typename T>
float at(const T* x, int64_t i) {
  return static_cast<float>(x[i]);
}
float at(const Float16* x, int64_t i) {
  return float_from_f16(x[i].bits);
}

template <typename T>
void to_f32(int64_t n, const T* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = at(x, i);
}

template <typename T>
void from_f32(int64_t n, const float* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(x[i]);
}

template <typename T>
void add(int64_t n, const T* x, const T* y, T* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = T(at(x, i) + at(y, i));
}

// The factor of element (row, column): 0 or 1 / (1 - p).
float dropout_factor(const Dropout& d, DropoutKey row_key, int64_t column) {
  if (!d.on()) return 1;
  return dropout_bits(row_key, static_cast<uint32_t>(column)) >= dropout_threshold(d.p) ? 1 / (1 - d.p) : 0;
}

template <typename T>
void dropout(int64_t rows, int64_t width, const T* x, Dropout d, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const DropoutKey key = d.key.row(d.first_row + r);
    for (int64_t c = 0; c < width; ++c) {
      const float factor = dropout_factor(d, key, c);
      out[r * width + c] = T(factor == 0 ? 0 : at(x, r * width + c) * factor);  // not -0, nor 0 inf = NaN
    }
  }
}

constexpr float kSqrt2OverPi = 0.7978845608028654f;
constexpr float kQuick = 1.702f;

float activate(Activation kind, float x) {
  switch (kind) {
    case Activation::relu:
      return std::max(x, 0.0f);
    case Activation::gelu:
      return 0.5f * x * (1 + std::erf(x * 0.70710678118654752f));
    case Activation::gelu_tanh:
      return 0.5f * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x)));
    case Activation::gelu_quick:
      return x / (1 + std::exp(-kQuick * x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu_squared:
      return std::max(x, 0.0f) * std::max(x, 0.0f);
    case Activation::tanh:
      return std::tanh(x);
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::identity:
    case Activation::xielu:
      break;
  }
  return x;
}

float activate_grad(Activation kind, float x) {
  switch (kind) {
    case Activation::relu:
      return x > 0 ? 1.0f : 0.0f;
    case Activation::gelu:
      return 0.5f * (1 + std::erf(x * 0.70710678118654752f)) +
             x * 0.3989422804014327f * std::exp(-0.5f * x * x);
    case Activation::gelu_tanh: {
      const float t = std::tanh(kSqrt2OverPi * (x + 0.044715f * x * x * x));
      return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * 0.044715f * x * x);
    }
    case Activation::gelu_quick: {
      const float s = 1 / (1 + std::exp(-kQuick * x));
      return s + kQuick * x * s * (1 - s);
    }
    case Activation::relu_squared:
      return 2 * std::max(x, 0.0f);
    case Activation::silu: {
      const float s = 1 / (1 + std::exp(-x));
      return s + x * s * (1 - s);
    }
    case Activation::tanh: {
      const float t = std::tanh(x);
      return 1 - t * t;
    }
    case Activation::sigmoid: {
      const float s = 1 / (1 + std::exp(-x));
      return s * (1 - s);
    }
    case Activation::identity:
    case Activation::xielu:
      break;
  }
  return 1;
}

template <typename T>
void activation(Activation kind, int64_t n, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = T(activate(kind, at(x, i)));
}

template <typename T>
void activation_grad(Activation kind, int64_t n, const T* x, const T* dy, T* dx) {
  for (int64_t i = 0; i < n; ++i) dx[i] = T(at(dy, i) * activate_grad(kind, at(x, i)));
}

template <typename T>
void residual_norm(const ResidualNorm<T>& a) {
  std::vector<float> sum(a.width);
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* x = a.x + r * a.width;
    const DropoutKey key = a.dropout.on() ? a.dropout.key.row(a.dropout.first_row + r) : DropoutKey{};
    for (int64_t c = 0; c < a.width; ++c) {
      T s = x[c];
      if (a.branch) s = T(at(x, c) + at(a.branch, r * a.width + c) * dropout_factor(a.dropout, key, c));
      if (a.sum) a.sum[r * a.width + c] = s;
      sum[c] = static_cast<float>(s);
    }
    float m = 0, v = 0;
    if (a.beta)
      for (const float e : sum) m += e / static_cast<float>(a.width);
    for (const float e : sum) v += (e - m) * (e - m) / static_cast<float>(a.width);
    const float rstd = 1 / std::sqrt(v + a.epsilon);
    a.mean[r] = m;
    a.rstd[r] = rstd;
    for (int64_t c = 0; c < a.width; ++c)
      a.y[r * a.width + c] = T((sum[c] - m) * rstd * a.gamma[c] + (a.beta ? a.beta[c] : 0));
  }
}

// With n = (sum - mean) rstd and g = dy gamma:  d_sum = rstd (g - mean(g) - n mean(g n)), of RMSnorm without
// mean(g).
template <typename T>
void residual_norm_grad(const ResidualNormGrad<T>& a) {
  const auto width = static_cast<float>(a.width);
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* dy = a.dy + r * a.width;
    const T* s = a.sum + r * a.width;
    float mean_g = 0, mean_gn = 0;
    for (int64_t c = 0; c < a.width; ++c) {
      const float n = (at(s, c) - a.mean[r]) * a.rstd[r], g = at(dy, c) * a.gamma[c];
      if (a.dbeta) mean_g += g / width;
      mean_gn += g * n / width;
      a.dgamma[c] += at(dy, c) * n;
      if (a.dbeta) a.dbeta[c] += at(dy, c);
    }
    for (int64_t c = 0; c < a.width; ++c) {
      const float n = (at(s, c) - a.mean[r]) * a.rstd[r], g = at(dy, c) * a.gamma[c];
      const float in = a.dsum_in ? at(a.dsum_in, r * a.width + c) : 0;
      a.dsum[r * a.width + c] = T(in + a.rstd[r] * (g - mean_g - n * mean_gn));
    }
  }
}

template <typename T>
void cross_entropy(const CrossEntropy<T>& a) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* z = a.logits + r * a.stride;
    const bool ignored = a.target[r] == kIgnored;
    const float top = *std::max_element(z, z + a.vocab);
    float sum = 0;
    for (int64_t j = 0; j < a.vocab; ++j) sum += std::exp(z[j] - top);
    const float log_z = top + std::log(sum);
    a.losses[r] = 0;
    if (!ignored) a.losses[r] = (1 - a.smoothing) * (log_z - z[a.target[r]]) + a.z_loss * log_z * log_z;
    if (!ignored && a.smoothing > 0) {
      float mean = 0;
      for (int64_t j = 0; j < a.vocab; ++j) mean += (z[j] - top) / static_cast<float>(a.vocab);
      a.losses[r] += a.smoothing * (std::log(sum) - mean);
    }
    if (a.dlogits == nullptr) continue;
    const float p_scale = 1 + 2 * a.z_loss * log_z, q_rest = a.smoothing / static_cast<float>(a.vocab);
    T* d = a.dlogits + r * a.stride;
    for (int64_t j = 0; j < a.vocab; ++j) {
      const float p = std::exp(z[j] - top) / sum;
      const float q = q_rest + (j == a.target[r] ? 1 - a.smoothing : 0.0f);
      d[j] = T(ignored ? 0 : a.scale * (p * p_scale - q));
    }
    for (int64_t j = a.vocab; j < a.stride; ++j) d[j] = T(0.0f);
  }
}

template <typename T>
void column_sums(int64_t rows, int64_t width, const T* x, int64_t begin, int64_t end, float* sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = begin; c < end; ++c) sums[c] += at(x, r * width + c);
}

template <typename T>
void scatter_add(int64_t rows, int64_t width, const T* x, const int32_t* ids, int64_t begin, int64_t end,
                 float* table) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = begin; c < end; ++c) table[ids[r] * width + c] += at(x, r * width + c);
}

template <typename T>
void row_product(const RowProduct<T>& p, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t j = begin; j < end; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < p.k; ++l) sum += p.a[r * p.a_stride + l] * at(p.b, j * p.b_stride + l);
      p.c[r * p.c_stride + j] = sum;
    }
}

template <typename T>
int64_t key_row(const Attention<T>& a, int64_t s, int64_t j) {
  return a.blocks[a.block_offsets[s] + j / a.block_rows] + j % a.block_rows;
}

// Scores of one query: scale q.k where the mask allows, -inf elsewhere.
template <typename T>
void query_scores(const Attention<T>& a, int64_t s, int64_t i, int64_t h, std::vector<float>& scores) {
  const int64_t queries = a.q_offsets[s + 1] - a.q_offsets[s], keys = a.key_lengths[s];
  const int64_t kv = h / (a.heads / a.kv_heads), position = keys - queries + i;
  const Mask mask = a.mask_of(s);
  const T* q = a.q + (a.q_offsets[s] + i) * a.q_stride + h * a.d_qk;
  scores.assign(keys, -std::numeric_limits<float>::infinity());
  for (int64_t j = 0; j < keys; ++j) {
    if (!mask.allows(position, j)) continue;
    const T* k = a.k + key_row(a, s, j) * a.k_stride + kv * a.d_qk;
    float dot = 0;
    for (int64_t c = 0; c < a.d_qk; ++c) dot += at(q, c) * at(k, c);
    const float score = a.cap > 0 ? a.cap * std::tanh(a.scale * dot / a.cap) : a.scale * dot;
    scores[j] = score + mask.raise(position, j) + (a.term.on() ? a.term.bias[a.term.at(h, position, j)] : 0);
    if (a.pair.on())
      scores[j] += value_at(a.pair, {a.q_offsets[s] + i, key_row(a, s, j), position - j, h, a.heads});
  }
}

template <typename T>
DropoutKey query_key(const Attention<T>& a, int64_t row, int64_t h) {
  return a.dropout.on() ? a.dropout.key.row((a.dropout.first_row + row) * a.heads + h) : DropoutKey{};
}

template <typename T>
void attention(const Attention<T>& a, int64_t s, int64_t kv, int64_t first_query, float*) {
  const int64_t queries = a.q_offsets[s + 1] - a.q_offsets[s], keys = a.key_lengths[s];
  const int64_t group = a.heads / a.kv_heads;
  std::vector<float> p, out(a.d_vo);
  for (int64_t i = first_query; i < std::min(queries, first_query + kQueryTile); ++i)
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const int64_t row = a.q_offsets[s] + i;
      query_scores(a, s, i, h, p);
      float top = a.sinks ? a.sinks[h] : -std::numeric_limits<float>::infinity();
      for (const float e : p) top = std::max(top, e);
      float sum = a.sinks ? std::exp(a.sinks[h] - top) : 0;
      for (float& e : p) sum += e = std::isinf(top) ? 0 : std::exp(e - top);
      a.lse[row * a.heads + h] = sum > 0 ? top + std::log(sum) : -std::numeric_limits<float>::infinity();
      const DropoutKey key = query_key(a, row, h);
      std::fill(out.begin(), out.end(), 0.0f);
      for (int64_t j = 0; j < keys; ++j) {
        if (p[j] == 0) continue;
        const T* v = a.v + key_row(a, s, j) * a.v_stride + kv * a.d_vo;
        const float w = p[j] / sum * dropout_factor(a.dropout, key, j);
        for (int64_t c = 0; c < a.d_vo; ++c) out[c] += w * at(v, c);
      }
      for (int64_t c = 0; c < a.d_vo; ++c) a.out[row * a.out_stride + h * a.d_vo + c] = T(out[c]);
    }
}

// With P = softmax(S) and its dropout mask M:  dV = (P M)^T dO;  dP = M (dO V^T);
// dS = P (dP - sum_j dP P);  dQ = scale dS K;  dK = scale dS^T Q. Capped scores pass dS times 1 - tanh^2.
template <typename T>
void attention_grad(const AttentionGrad<T>& g, int64_t s, int64_t kv, float*) {
  const Attention<T>& a = g.forward;
  const int64_t queries = a.q_offsets[s + 1] - a.q_offsets[s], keys = a.key_lengths[s];
  const int64_t group = a.heads / a.kv_heads;
  std::vector<float> dk(keys * a.d_qk), dv(keys * a.d_vo), dq(a.d_qk), p, dp(keys);
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t row = a.q_offsets[s] + i;
      query_scores(a, s, i, h, p);
      const float lse = a.lse[row * a.heads + h];
      const DropoutKey key = query_key(a, row, h);
      const T* dout = g.dout + row * g.dout_stride + h * a.d_vo;
      const T* q = a.q + row * a.q_stride + h * a.d_qk;
      float delta = 0;
      for (int64_t j = 0; j < keys; ++j) {
        p[j] = std::isinf(lse) ? 0 : std::exp(p[j] - lse);
        const float m = dropout_factor(a.dropout, key, j);
        const T* v = a.v + key_row(a, s, j) * a.v_stride + kv * a.d_vo;
        dp[j] = 0;
        for (int64_t c = 0; c < a.d_vo; ++c) {
          dv[j * a.d_vo + c] += p[j] * m * at(dout, c);
          dp[j] += m * at(dout, c) * at(v, c);
        }
        delta += dp[j] * p[j];
      }
      std::fill(dq.begin(), dq.end(), 0.0f);
      for (int64_t j = 0; j < keys; ++j) {
        if (g.dterm && p[j] != 0)
          g.dterm[s * a.heads * a.term.row() + a.term.at(h, keys - queries + i, j)] += p[j] * (dp[j] - delta);
        if (g.dpair.on() && p[j] != 0)
          add_at(g.dpair, a.pair, {row, key_row(a, s, j), keys - queries + i - j, h, a.heads},
                 p[j] * (dp[j] - delta));
        float ds = a.scale * p[j] * (dp[j] - delta);
        const T* k = a.k + key_row(a, s, j) * a.k_stride + kv * a.d_qk;
        if (a.cap > 0) {
          float dot = 0;
          for (int64_t c = 0; c < a.d_qk; ++c) dot += at(q, c) * at(k, c);
          const float tanh = std::tanh(a.scale * dot / a.cap);
          ds *= 1 - tanh * tanh;
        }
        for (int64_t c = 0; c < a.d_qk; ++c) {
          dq[c] += ds * at(k, c);
          dk[j * a.d_qk + c] += ds * at(q, c);
        }
      }
      for (int64_t c = 0; c < a.d_qk; ++c) g.dq[row * g.dq_stride + h * a.d_qk + c] = T(dq[c]);
    }
  for (int64_t j = 0; j < keys; ++j) {
    const int64_t row = key_row(a, s, j);
    for (int64_t c = 0; c < a.d_qk; ++c) g.dk[row * g.dk_stride + kv * a.d_qk + c] = T(dk[j * a.d_qk + c]);
    for (int64_t c = 0; c < a.d_vo; ++c) g.dv[row * g.dv_stride + kv * a.d_vo + c] = T(dv[j * a.d_vo + c]);
  }
}

double sum_squares(int64_t n, const float* x) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * x[i];
  return sum;
}

double log_sum_exp(int64_t n, const float* x) {
  const double highest = *std::max_element(x, x + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - highest);
  return highest + std::log(sum);
}

void exp(int64_t n, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i]);
}

void scale(int64_t n, float factor, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

void axpy(int64_t n, float factor, const float* x, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

void update(const Update& u, int64_t n, float* w, const float* g, float* m, float* v, BFloat16* shadow) {
  for (int64_t i = 0; i < n; ++i) {
    const float grad = u.grad_scale * g[i] + u.l2 * w[i];
    float step = grad;
    switch (u.rule) {
      case Rule::sgd:
        break;
      case Rule::momentum:
        step = m[i] = u.momentum * m[i] + grad;
        break;
      case Rule::nesterov:
        m[i] = u.momentum * m[i] + grad;
        step = grad + u.momentum * m[i];
        break;
      case Rule::adagrad:
        v[i] += grad * grad;
        step = grad / (std::sqrt(v[i]) + u.epsilon);
        break;
      case Rule::rmsprop:
        v[i] = u.beta2 * v[i] + (1 - u.beta2) * grad * grad;
        step = grad / (std::sqrt(v[i]) + u.epsilon);
        break;
      case Rule::adam:
        m[i] = u.beta1 * m[i] + (1 - u.beta1) * grad;
        v[i] = u.beta2 * v[i] + (1 - u.beta2) * grad * grad;
        step = m[i] / u.bias1 / (std::sqrt(v[i] / u.bias2) + u.epsilon) + u.decay * w[i];
        break;
      case Rule::lion: {
        const float c = u.beta1 * m[i] + (1 - u.beta1) * grad;
        step = static_cast<float>((c > 0) - (c < 0)) + u.decay * w[i];
        m[i] = u.beta2 * m[i] + (1 - u.beta2) * grad;
        break;
      }
    }
    w[i] -= u.lr * step;
    if (shadow) shadow[i] = BFloat16(w[i]);
  }
}

void fast_weights(const FastWeights& f, float* state, float* y, float* states, float* c) {
  const int64_t size = f.d_k * f.d_v;
  for (int64_t t = 0; t < f.tokens; ++t) {
    const float *q = f.q + t * f.d_k, *k = f.k + t * f.d_k, *v = f.v + t * f.d_v;
    float* out = y + t * f.d_v;
    if (states) std::copy_n(state, size, states + t * size);
    std::fill_n(c, f.d_v, 0.0F);
    for (int64_t i = 0; i < f.d_k && f.a; ++i)
      for (int64_t j = 0; j < f.d_v; ++j) c[j] += f.a[t * f.d_k + i] * state[i * f.d_v + j];
    std::fill_n(out, f.d_v, 0.0F);
    for (int64_t i = 0; i < f.d_k; ++i) {
      const float w = f.w ? f.w[t * f.d_k + i] : 1, b = f.a ? f.b[t * f.d_k + i] : 0;
      for (int64_t j = 0; j < f.d_v; ++j) {
        float& s = state[i * f.d_v + j];
        s = w * s + b * c[j] + k[i] * v[j];
        out[j] += q[i] * s;
      }
    }
  }
  if (states) std::copy_n(state, size, states + f.tokens * size);
}

// With G the gradient of S_t and c = S_{t-1}^T a:
//   G += q dy^T;  dq = S_t dy;  dk = G v;  dv = G^T k;  dw = rows of G . S_{t-1};  db = G c;
//   dc = G^T b;  da = S_{t-1} dc;  the gradient of S_{t-1} is diag(w) G + a dc^T.
void fast_weights_grad(const FastWeightsGrad& g) {
  const FastWeights& f = g.forward;
  const int64_t n = f.d_v;
  float *c = g.memory, *dc = c + n;
  for (int64_t t = f.tokens - 1; t >= 0; --t) {
    const float *before = g.states + t * f.d_k * n, *after = before + f.d_k * n, *dy = g.dy + t * n,
                *v = f.v + t * n;
    float* dv = g.dv + t * n;
    std::fill_n(c, 2 * n, 0.0F);
    std::fill_n(dv, n, 0.0F);
    for (int64_t i = 0; i < f.d_k && f.a; ++i)
      for (int64_t j = 0; j < n; ++j) c[j] += f.a[t * f.d_k + i] * before[i * n + j];
    for (int64_t i = 0; i < f.d_k; ++i) {
      const int64_t at = t * f.d_k + i;
      float dq = 0, dk = 0, dw = 0, db = 0;
      for (int64_t j = 0; j < n; ++j) {
        float& s = g.state[i * n + j];
        s += f.q[at] * dy[j];
        dq += after[i * n + j] * dy[j];
        dk += s * v[j];
        dv[j] += s * f.k[at];
        dw += s * before[i * n + j];
        db += s * c[j];
        if (f.a) dc[j] += s * f.b[at];
        if (f.w) s *= f.w[at];
      }
      g.dq[at] = dq;
      g.dk[at] = dk;
      if (g.dw) g.dw[at] = dw;
      if (f.a) g.db[at] = db;
    }
    for (int64_t i = 0; i < f.d_k && f.a; ++i) {
      const int64_t at = t * f.d_k + i;
      g.da[at] = 0;
      for (int64_t j = 0; j < n; ++j) {
        g.da[at] += before[i * n + j] * dc[j];
        g.state[i * n + j] += f.a[at] * dc[j];
      }
    }
  }
}

template <typename T>
TypedKernels<T> typed_kernels() {
  return {to_f32<T>,        from_f32<T>,        add<T>,           dropout<T>,
          activation<T>,    activation_grad<T>, residual_norm<T>, residual_norm_grad<T>,
          cross_entropy<T>, column_sums<T>,     scatter_add<T>,   row_product<T>,
          attention<T>,     attention<T>,       attention_grad<T>};
}

}  // namespace

const KernelTable& generic_kernels() {
  static const KernelTable table = {"generic",
                                    typed_kernels<float>(),
                                    typed_kernels<BFloat16>(),
                                    row_product<Float16>,
                                    sum_squares,
                                    log_sum_exp,
                                    exp,
                                    scale,
                                    axpy,
                                    update,
                                    fast_weights,
                                    fast_weights_grad,
                                    nullptr,
                                    nullptr};
  return table;
}

}  // namespace qkv
