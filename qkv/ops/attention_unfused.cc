#include "qkv/ops/attention_unfused.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/attention_arguments.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The arguments of a pass without their edges, which the nodes of its heads share.
struct Pass {
  Heads q, k, v;
  std::vector<int32_t> offsets;
  KeyLayout keys;
  AttentionOptions options;

  Pass(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
       const KeyLayout& keys, const AttentionOptions& options)
      : q(q), k(k), v(v), offsets(offsets.begin(), offsets.end()), keys(keys), options(options) {
    PairTables& pair = this->options.pair;
    for (Tensor* x : {&this->q.x, &this->k.x, &this->v.x, &this->options.term, &this->options.sinks,
                      &pair.by_query, &pair.by_key, &pair.by_segment})
      if (x->defined()) *x = x->detach();
  }
  int64_t sequences() const { return std::ssize(keys.lengths); }
  int64_t queries(int64_t s) const { return offsets[s + 1] - offsets[s]; }
  int64_t kv_head(int64_t h) const { return h / (q.heads / k.heads); }
  // The row of k and v that has key j.
  int64_t key_row(int64_t s, int64_t j) const {
    return keys.blocks[keys.block_offsets[s] + j / keys.block_rows] + j % keys.block_rows;
  }
  template <typename T>
  Attention<T> arguments() const {
    return kernel_arguments<T>(q, k, v, offsets, keys, options, nullptr, nullptr);
  }
};
using SharedPass = std::shared_ptr<const Pass>;

// A query and a key that it sees.
struct Seen {
  int64_t i, j;        // within the sequence's queries and keys
  int64_t query;       // the query's position among the keys
  Pair pair;           // rows, and the head
  float raise;         // the mask adds it to the score
  int64_t q_at, k_at;  // index of the first number of the vectors of both
};

template <typename T, typename F>
void for_seen(const Pass& pass, const Attention<T>& a, int64_t s, int64_t h, const F& f) {
  const int64_t queries = pass.queries(s), count = pass.keys.lengths[s];
  const Mask mask = a.mask_of(s);
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t j = 0; j < count; ++j) {
      const int64_t query = count - queries + i, query_row = pass.offsets[s] + i;
      if (!mask.allows(query, j)) continue;
      const int64_t key_row = pass.key_row(s, j);
      f(Seen{i,
             j,
             query,
             {query_row, key_row, query - j, h, a.heads},
             mask.raise(query, j),
             query_row * a.q_stride + h * a.d_qk,
             key_row * a.k_stride + pass.kv_head(h) * a.d_qk});
    }
}

// The scaled product of a query and a key, capped.
template <typename T>
float product(const Attention<T>& a, const Seen& at) {
  float dot = 0;
  for (int64_t c = 0; c < a.d_qk; ++c)
    dot += static_cast<float>(a.q[at.q_at + c]) * static_cast<float>(a.k[at.k_at + c]);
  return a.cap > 0 ? a.cap * std::tanh(a.scale * dot / a.cap) : a.scale * dot;
}

void write_scores(const Pass& pass, int64_t s, int64_t h, Tensor& scores) {
  const int64_t count = pass.keys.lengths[s];
  std::ranges::fill(scores.mutable_values<float>(), -kInfinity);
  with_float_type("attention", pass.q.x.dtype(), [&]<typename T>(T) {
    const auto a = pass.arguments<T>();
    for_seen(pass, a, s, h, [&](const Seen& at) {
      float score = product(a, at) + at.raise;
      if (a.term.on()) score += a.term.bias[a.term.at(h, at.query, at.j)];
      if (a.pair.on()) score += value_at(a.pair, at.pair);
      scores.mutable_data<float>()[at.i * count + at.j] = score;
    });
  });
}

// From the gradients of all heads' scores to those of queries, keys and what else is added.
class ScoresNode : public Node {
 public:
  ScoresNode(const Heads& q, const Heads& k, const AttentionOptions& options, SharedPass pass)
      : pass_(std::move(pass)) {
    add_input(q.x);
    add_input(k.x);
    add_input(options.term);
    for (const Tensor* x : {&options.pair.by_query, &options.pair.by_key, &options.pair.by_segment})
      add_input(*x);
  }
  std::string_view name() const override { return "attention_scores"; }

  void backward(std::span<Tensor> grads) override {
    const Pass& pass = *pass_;
    const PairTables& pair = pass.options.pair;
    const std::array<const Tensor*, 6> inputs = {&pass.q.x,      &pass.k.x,    &pass.options.term,
                                                 &pair.by_query, &pair.by_key, &pair.by_segment};
    std::array<Tensor, 6> out;
    std::array<float*, 6> to{};
    for (int i = 0; i < 6; ++i) {
      if (!wants(i)) continue;
      out[i] = Tensor::zeros(inputs[i]->shape(), DType::f32);
      to[i] = out[i].mutable_data<float>();
    }
    const PairTermGrad tables = {to[3], to[4], to[5]};
    with_float_type("attention", pass.q.x.dtype(), [&]<typename T>(T) {
      const auto a = pass.arguments<T>();
      for (size_t n = 0; n < grads.size(); ++n) {
        if (!grads[n].defined()) continue;
        const auto s = static_cast<int64_t>(n) / a.heads, h = static_cast<int64_t>(n) % a.heads;
        for_seen(pass, a, s, h, [&](const Seen& at) {
          float ds = grads[n].data<float>()[at.i * pass.keys.lengths[s] + at.j];
          if (to[2]) to[2][a.term.at(h, at.query, at.j)] += ds;
          if (tables.on()) add_at(tables, a.pair, at.pair, ds);
          if (a.cap > 0) {
            const float share = product(a, at) / a.cap;
            ds *= 1 - share * share;
          }
          for (int64_t c = 0; c < a.d_qk; ++c) {
            const float x = static_cast<float>(a.q[at.q_at + c]), y = static_cast<float>(a.k[at.k_at + c]);
            if (to[0]) to[0][pass.q.column + at.q_at + c] += ds * a.scale * y;
            if (to[1]) to[1][pass.k.column + at.k_at + c] += ds * a.scale * x;
          }
        });
      }
    });
    for (int i = 0; i < 6; ++i)
      if (out[i].defined()) give(i, convert(out[i], inputs[i]->dtype()));
  }

 private:
  SharedPass pass_;
};

// The softmax of a head's rows, in which a sink takes a share that goes to no key.
class SoftmaxNode : public Node {
 public:
  SoftmaxNode(const Tensor& scores, const Tensor& sinks, int64_t head, const Tensor& probabilities)
      : sinks_(sinks.defined() ? sinks.count() : 0), head_(head), probabilities_(probabilities.detach()) {
    add_input(scores);
    add_input(sinks);
  }
  std::string_view name() const override { return "attention_softmax"; }

  void backward(std::span<Tensor> grads) override {
    const Tensor& p = probabilities_;
    Tensor out = Tensor::empty(p.shape(), DType::f32);
    double of_sink = 0;
    for (int64_t i = 0; i < p.rows(); ++i) {
      const auto row = p.row<float>(i), g = grads[0].row<float>(i);
      double mean = 0, sum = 0;
      for (int64_t j = 0; j < p.dim(1); ++j) {
        mean += double{row[j]} * g[j];
        sum += row[j];
      }
      for (int64_t j = 0; j < p.dim(1); ++j)
        out.mutable_row<float>(i)[j] = row[j] == 0 ? 0 : static_cast<float>(row[j] * (g[j] - mean));
      of_sink -= (1 - sum) * mean;
    }
    give(0, std::move(out));
    if (!wants(1)) return;
    Tensor dsinks = Tensor::zeros({sinks_}, DType::f32);
    dsinks.mutable_data<float>()[head_] = static_cast<float>(of_sink);
    give(1, std::move(dsinks));
  }

 private:
  int64_t sinks_, head_;
  Tensor probabilities_;
};

void write_softmax(const Tensor& scores, const Tensor& sinks, int64_t head, Tensor& out) {
  out.copy(scores);
  for (int64_t i = 0; i < out.rows(); ++i) {
    const auto p = out.mutable_row<float>(i);
    float top = sinks.defined() ? sinks.data<float>()[head] : -kInfinity;
    for (const float x : p) top = std::max(top, x);
    float sum = sinks.defined() ? std::exp(sinks.data<float>()[head] - top) : 0;
    for (float& x : p) sum += x = std::isinf(top) ? 0 : std::exp(x - top);
    for (float& x : p) x = sum > 0 ? x / sum : 0;
  }
}

// The values that each head mixes by its probabilities.
class MixNode : public Node {
 public:
  MixNode(const Heads& v, const std::vector<Tensor>& probabilities, SharedPass pass)
      : pass_(std::move(pass)) {
    add_input(v.x);
    for (const Tensor& p : probabilities) {
      add_input(p);
      probabilities_.push_back(p.detach());
    }
  }
  std::string_view name() const override { return "attention_mix"; }

  void backward(std::span<Tensor> grads) override {
    const Pass& pass = *pass_;
    Tensor dv = Tensor::zeros(pass.v.x.shape(), DType::f32);
    with_float_type("attention", pass.q.x.dtype(), [&]<typename T>(T) {
      for (size_t n = 0; n < probabilities_.size(); ++n) {
        const Tensor& p = probabilities_[n];
        const auto s = static_cast<int64_t>(n) / pass.q.heads, h = static_cast<int64_t>(n) % pass.q.heads;
        Tensor dp = Tensor::empty(p.shape(), DType::f32);
        const int64_t width = pass.v.width, stride = pass.v.x.width(),
                      column = pass.v.column + pass.kv_head(h) * width;
        for (int64_t j = 0; j < p.dim(1); ++j) {
          const T* v = pass.v.x.data<T>() + pass.key_row(s, j) * stride + column;
          float* to = dv.mutable_data<float>() + pass.key_row(s, j) * stride + column;
          for (int64_t i = 0; i < p.rows(); ++i) {
            const T* dout = grads[0].data<T>() + (pass.offsets[s] + i) * grads[0].width() + h * width;
            const float share = p.data<float>()[i * p.dim(1) + j];
            float sum = 0;
            for (int64_t c = 0; c < width; ++c) {
              sum += static_cast<float>(dout[c]) * static_cast<float>(v[c]);
              to[c] += share * static_cast<float>(dout[c]);
            }
            dp.mutable_data<float>()[i * p.dim(1) + j] = sum;
          }
        }
        give(static_cast<int>(n) + 1, std::move(dp));
      }
    });
    if (wants(0)) give(0, convert(dv, pass.v.x.dtype()));
  }

 private:
  SharedPass pass_;
  std::vector<Tensor> probabilities_;  // by sequence, then by head
};

Tensor mixed(const Pass& pass, const std::vector<Tensor>& probabilities) {
  Tensor out = Tensor::zeros({pass.q.x.rows(), pass.q.heads * pass.v.width}, pass.q.x.dtype());
  with_float_type("attention", pass.q.x.dtype(), [&]<typename T>(T) {
    const auto a = pass.arguments<T>();
    T* to = out.mutable_data<T>();
    parallel_tasks(std::ssize(probabilities), [&](int64_t n, int /*worker*/) {
      const Tensor& p = probabilities[n];
      const int64_t s = n / a.heads, h = n % a.heads;
      std::vector<const T*> values;
      for (int64_t j = 0; j < p.dim(1); ++j)
        values.push_back(a.v + pass.key_row(s, j) * a.v_stride + pass.kv_head(h) * a.d_vo);
      std::vector<float> sums(static_cast<size_t>(a.d_vo));
      for (int64_t i = 0; i < p.rows(); ++i) {
        const float* row = p.data<float>() + i * p.dim(1);
        std::ranges::fill(sums, 0.0F);
        for (int64_t j = 0; j < p.dim(1); ++j)
          for (int64_t c = 0; c < a.d_vo; ++c) sums[c] += row[j] * static_cast<float>(values[j][c]);
        T* out_row = to + (pass.offsets[s] + i) * a.out_stride + h * a.d_vo;
        for (int64_t c = 0; c < a.d_vo; ++c) out_row[c] = T(sums[c]);
      }
    });
  });
  return out;
}

void visit(const HeadVisitor& visitor, const char* what, int64_t sequence, int64_t head, Tensor& value) {
  if (!visitor) return;
  const Shape shape = value.shape();
  visitor(sequence, head, value);
  expect_shape("attention", what, value, shape);
  expect_dtype("attention", what, value, DType::f32);
}

}  // namespace

Tensor attention_unfused(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                         const KeyLayout& keys, const AttentionOptions& options,
                         const AttentionVisitors& visitors) {
  check_attention(q, k, v, offsets, keys, options);
  check(options.dropout.p == 0, "attention: its scores and probabilities can be probed only without dropout");
  const auto pass = std::make_shared<const Pass>(q, k, v, offsets, keys, options);
  std::shared_ptr<ScoresNode> node;
  if (wants_grad({&q.x, &k.x, &options.term, &options.pair.by_query, &options.pair.by_key,
                  &options.pair.by_segment}))
    node = std::make_shared<ScoresNode>(q, k, options, pass);
  const int64_t heads = pass->sequences() * q.heads;  // all sequences' heads
  std::vector<Tensor> scores, probabilities;
  for (int64_t n = 0; n < heads; ++n)
    for (std::vector<Tensor>* values : {&scores, &probabilities})
      values->push_back(
          Tensor::empty({pass->queries(n / q.heads), pass->keys.lengths[n / q.heads]}, DType::f32));
  parallel_tasks(
      heads, [&](int64_t n, int /*worker*/) { write_scores(*pass, n / q.heads, n % q.heads, scores[n]); });
  for (int64_t n = 0; n < heads; ++n) {
    if (node) connect(scores[n], node, static_cast<int>(n));
    visit(visitors.scores, "scores", n / q.heads, n % q.heads, scores[n]);
  }
  parallel_tasks(heads, [&](int64_t n, int /*worker*/) {
    write_softmax(scores[n], pass->options.sinks, n % q.heads, probabilities[n]);
  });
  bool has_gradient = wants_grad({&v.x});
  for (int64_t n = 0; n < heads; ++n) {
    Tensor& p = probabilities[n];
    const int64_t head = n % q.heads;
    if (wants_grad({&scores[n], &options.sinks}))
      connect(p, std::make_shared<SoftmaxNode>(scores[n], options.sinks, head, p));
    visit(visitors.probabilities, "probabilities", n / q.heads, head, p);
    has_gradient |= wants_grad({&p});
  }
  Tensor out = mixed(*pass, probabilities);
  if (has_gradient) connect(out, std::make_shared<MixNode>(v, probabilities, pass));
  return out;
}

}  // namespace qkv
