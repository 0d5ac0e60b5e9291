#include "qkv/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "qkv/autograd/graph.h"
#include "qkv/ops/attention_arguments.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/weight_product.h"

namespace qkv {

KeyLayout KeyLayout::contiguous(std::span<const int32_t> offsets) {
  KeyLayout layout;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    layout.lengths.push_back(offsets[s + 1] - offsets[s]);
    layout.block_offsets.push_back(static_cast<int32_t>(s));
    layout.blocks.push_back(offsets[s]);
  }
  return layout;
}

namespace {

template <typename T>
void forward(const Attention<T>& a) {
  struct Tile {
    int64_t sequence, first_query;
  };
  std::vector<Tile> tiles;
  for (int64_t s = 0; s < a.sequences; ++s) {
    const int64_t queries = a.q_offsets[s + 1] - a.q_offsets[s];
    // Late tiles first: under a causal mask they are the longest.
    for (int64_t first = (queries - 1) / kQueryTile * kQueryTile; first >= 0 && queries > 0;
         first -= kQueryTile)
      tiles.push_back({s, first});
  }
  if (tiles.empty()) return;
  const int64_t floats = attention_scratch(a);
  Tensor scratch = Tensor::empty({num_threads(), floats}, DType::f32);
  float* memory = scratch.mutable_data<float>();
  const auto run = rows_stand_alone() ? kernels().typed<T>().lone_attention : kernels().typed<T>().attention;
  // Neighbouring heads share cache lines, so tasks have all of a tile's where there are tiles enough.
  const int64_t count = std::ssize(tiles), wanted = 4 * num_threads(),
                parts = std::min(a.kv_heads, (wanted + count - 1) / count);
  parallel_tasks(count * parts, [&](int64_t i, int worker) {
    const Tile& tile = tiles[i / parts];
    const int64_t part = i % parts;
    for (int64_t h = a.kv_heads * part / parts; h < a.kv_heads * (part + 1) / parts; ++h)
      run(a, tile.sequence, h, tile.first_query, memory + worker * floats);
  });
}

// One task per sequence and key/value head: it alone writes their gradients, so nothing depends on timing.
template <typename T>
void gradient(const AttentionGrad<T>& g) {
  const Attention<T>& a = g.forward;
  int64_t max_keys = 0;
  for (int64_t s = 0; s < a.sequences; ++s) max_keys = std::max<int64_t>(max_keys, a.key_lengths[s]);
  const int64_t floats = attention_grad_scratch(a, max_keys);
  Tensor scratch = Tensor::empty({num_threads(), floats}, DType::f32);
  float* memory = scratch.mutable_data<float>();
  parallel_tasks(a.sequences * a.kv_heads, [&](int64_t i, int worker) {
    kernels().typed<T>().attention_grad(g, i / a.kv_heads, i % a.kv_heads, memory + worker * floats);
  });
}

// q, k and v may be in one tensor: each distinct tensor gets one gradient, written in place at its columns.
class AttentionNode : public Node {
 public:
  AttentionNode(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                const KeyLayout& keys, const AttentionOptions& options, const Tensor& out, const Tensor& lse)
      : heads_{q, k, v},
        offsets_(offsets.begin(), offsets.end()),
        keys_(keys),
        options_(options),
        out_(out.detach()),
        lse_(lse) {
    for (int i = 0; i < 3; ++i) {
      tensor_[i] = i;
      for (int j = 0; j < i; ++j)
        if (heads_[j].x.edge() == heads_[i].x.edge() && heads_[j].x.same_storage(heads_[i].x))
          tensor_[i] = std::min(tensor_[i], tensor_[j]);
      add_input(heads_[i].x);
    }
    add_input(options.term);
    add_input(options.sinks);
    PairTables& pair = options_.pair;
    for (Tensor* x : {&pair.by_query, &pair.by_key, &pair.by_segment}) add_input(*x);
    for (Tensor* x : {&options_.term, &options_.sinks, &pair.by_query, &pair.by_key, &pair.by_segment})
      if (x->defined()) *x = x->detach();
    for (Heads& h : heads_) h.x = h.x.detach();
  }
  std::string_view name() const override { return "attention"; }

  void backward(std::span<Tensor> grads) override {
    std::array<Tensor, 3> dx;
    for (int i = 0; i < 3; ++i)
      if (tensor_[i] == i)
        dx[i] = covered(i) ? Tensor::empty(heads_[i].x.shape(), out_.dtype())
                           : Tensor::zeros(heads_[i].x.shape(), out_.dtype());
    // One row per sequence: no sum depends on timing.
    Tensor dterm;
    if (wants(3)) dterm = Tensor::zeros({std::ssize(keys_.lengths), options_.term.count()}, DType::f32);
    const std::array<const Tensor*, 3> tables = {&options_.pair.by_query, &options_.pair.by_key,
                                                 &options_.pair.by_segment};
    std::array<Tensor, 3> dtables;
    for (int i = 0; i < 3; ++i)
      if (wants(kTables + i)) dtables[i] = Tensor::zeros(tables[i]->shape(), DType::f32);
    with_float_type("attention", out_.dtype(), [&]<typename T>(T) {
      AttentionGrad<T> g{};
      g.forward = kernel_arguments<T>(heads_[0], heads_[1], heads_[2], offsets_, keys_, options_,
                                      out_.mutable_data<T>(), lse_.mutable_data<float>());
      g.dout = grads[0].data<T>();
      g.dout_stride = grads[0].width();
      const auto target = [&](int i) { return dx[tensor_[i]].template mutable_data<T>() + heads_[i].column; };
      g.dq = target(0);
      g.dq_stride = heads_[0].x.width();
      g.dk = target(1);
      g.dk_stride = heads_[1].x.width();
      g.dv = target(2);
      g.dv_stride = heads_[2].x.width();
      if (dterm.defined()) g.dterm = dterm.mutable_data<float>();
      const auto sums = [&](int i) {
        return dtables[i].defined() ? dtables[i].mutable_data<float>() : nullptr;
      };
      g.dpair = {sums(0), sums(1), sums(2)};
      gradient(g);
      if (wants(4)) give(4, sinks_gradient(g));
    });
    if (dterm.defined()) {
      Tensor sum = Tensor::zeros(options_.term.shape(), DType::f32);
      for (int64_t s = 0; s < dterm.rows(); ++s)
        kernels().axpy(sum.count(), 1, dterm.data<float>() + s * sum.count(), sum.mutable_data<float>());
      give(3, std::move(sum));
    }
    for (int i = 0; i < 3; ++i)
      if (tensor_[i] == i) give(i, std::move(dx[i]));
    for (int i = 0; i < 3; ++i)
      if (dtables[i].defined()) give(kTables + i, std::move(dtables[i]));
  }

 private:
  static constexpr int kTables = 5;  // index of the first input that is a table of the pair term

  // A sink has no value: dS = P (0 - delta) of each query, delta = dO . O.
  template <typename T>
  static Tensor sinks_gradient(const AttentionGrad<T>& g) {
    const Attention<T>& a = g.forward;
    Tensor out = Tensor::zeros({a.heads}, DType::f32);
    const int64_t rows = a.q_offsets[a.sequences];
    parallel_for(a.heads, 1, [&](int64_t h, int64_t end) {
      for (; h < end; ++h) {
        double sum = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const T *x = a.out + r * a.out_stride + h * a.d_vo, *dx = g.dout + r * g.dout_stride + h * a.d_vo;
          float delta = 0;
          for (int64_t c = 0; c < a.d_vo; ++c) delta += static_cast<float>(x[c]) * static_cast<float>(dx[c]);
          sum -= double{delta} * std::exp(double{a.sinks[h]} - double{a.lse[r * a.heads + h]});
        }
        out.mutable_data<float>()[h] = static_cast<float>(sum);
      }
    });
    return out;
  }

  // True if the kernels write every element of the tensor's gradient: all its columns, and all its rows,
  // which are then each some sequence's query and key.
  bool covered(int i) const {
    int64_t columns = 0;
    bool keys = false;
    for (int j = 0; j < 3; ++j)
      if (tensor_[j] == i) {
        columns += heads_[j].heads * heads_[j].width;
        keys |= j > 0;
      }
    int64_t key_rows = 0;
    for (const int32_t n : keys_.lengths) key_rows += n;
    return columns == heads_[i].x.width() && (!keys || key_rows == heads_[i].x.rows());
  }

  std::array<Heads, 3> heads_;
  std::array<int, 3> tensor_;  // the first of q, k, v that is in the same tensor
  std::vector<int32_t> offsets_;
  KeyLayout keys_;
  AttentionOptions options_;
  Tensor out_, lse_;
};

// Each sequence's backward task writes the gradients of its keys alone: sequences must not share rows.
void expect_disjoint_keys(const KeyLayout& keys) {
  std::vector<std::pair<int64_t, int64_t>> ranges;  // first row, end
  for (size_t s = 0; s < keys.lengths.size(); ++s)
    for (int64_t first = 0, block = keys.block_offsets[s]; first < keys.lengths[s];
         first += keys.block_rows, ++block)
      ranges.emplace_back(keys.blocks[block],
                          keys.blocks[block] + std::min<int64_t>(keys.block_rows, keys.lengths[s] - first));
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    check(ranges[i].first >= ranges[i - 1].second,
          "attention: keys that sequences share have no gradient: row {} is used twice", ranges[i].first);
}

// Each gradient is written at the columns of its heads, so heads in one tensor must not share columns.
void expect_disjoint_columns(const std::array<const Heads*, 3>& heads) {
  for (size_t i = 0; i < 3; ++i)
    for (size_t j = 0; j < i; ++j) {
      const Heads &a = *heads[i], &b = *heads[j];
      check(a.x.edge() != b.x.edge() || !a.x.same_storage(b.x) || a.column + a.heads * a.width <= b.column ||
                b.column + b.heads * b.width <= a.column,
            "attention: queries, keys and values in the same columns have no gradient");
    }
}

}  // namespace

Tensor attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                 const KeyLayout& keys, const AttentionOptions& options) {
  check_attention(q, k, v, offsets, keys, options);
  Tensor out = Tensor::empty({q.x.rows(), q.heads * v.width}, q.x.dtype());
  Tensor lse = Tensor::empty({q.x.rows(), q.heads}, DType::f32);
  with_float_type("attention", q.x.dtype(), [&]<typename T>(T) {
    forward(kernel_arguments<T>(q, k, v, offsets, keys, options, out.mutable_data<T>(),
                                lse.mutable_data<float>()));
  });
  if (wants_grad({&q.x, &k.x, &v.x, &options.term, &options.sinks, &options.pair.by_query,
                  &options.pair.by_key, &options.pair.by_segment})) {
    expect_disjoint_keys(keys);
    expect_disjoint_columns({&q, &k, &v});
    connect(out, std::make_shared<AttentionNode>(q, k, v, offsets, keys, options, out, lse));
  }
  return out;
}

}  // namespace qkv
