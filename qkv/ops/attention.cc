#include "qkv/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

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

void check_heads(const char* what, const Heads& h, DType dtype) {
  check(h.x.defined() && h.x.shape().rank() == 2 && h.heads > 0 && h.width > 0 && h.column >= 0 &&
            h.column + h.heads * h.width <= h.x.width(),
        "attention: {} needs {} heads of {} columns from column {}, got {}", what, h.heads, h.width, h.column,
        h.x);
  expect_dtype("attention", what, h.x, dtype);
}

void check_layout(const Heads& q, const Heads& k, std::span<const int32_t> offsets, const KeyLayout& keys) {
  check(offsets.size() == keys.lengths.size() + 1 && offsets.front() == 0 && offsets.back() == q.x.rows(),
        "attention: offsets of {} sequences do not divide {} queries", keys.lengths.size(), q.x.rows());
  check(keys.block_offsets.size() == keys.lengths.size() && keys.block_rows > 0,
        "attention: {} sequences need as many block offsets, got {}", keys.lengths.size(),
        keys.block_offsets.size());
  for (size_t s = 0; s < keys.lengths.size(); ++s) {
    check(offsets[s] <= offsets[s + 1], "attention: offsets must not decrease (sequence {})", s);
    for (int64_t first = 0, block = keys.block_offsets[s]; first < keys.lengths[s];
         first += keys.block_rows, ++block) {
      const int64_t rows = std::min<int64_t>(keys.block_rows, keys.lengths[s] - first);
      check(block < static_cast<int64_t>(keys.blocks.size()) && keys.blocks[block] >= 0 &&
                keys.blocks[block] + rows <= k.x.rows(),
            "attention: keys of sequence {} lie outside the {} rows of k", s, k.x.rows());
    }
  }
}

// Arguments of the kernels, pointing into tensors that the caller keeps alive.
template <typename T>
Attention<T> kernel_arguments(const Heads& q, const Heads& k, const Heads& v,
                              std::span<const int32_t> offsets, const KeyLayout& keys,
                              const AttentionOptions& o, T* out, float* lse) {
  Attention<T> a{};
  a.sequences = static_cast<int64_t>(keys.lengths.size());
  a.heads = q.heads;
  a.kv_heads = k.heads;
  a.d_qk = q.width;
  a.d_vo = v.width;
  a.q_offsets = offsets.data();
  a.key_lengths = keys.lengths.data();
  a.block_offsets = keys.block_offsets.data();
  a.blocks = keys.blocks.data();
  a.block_rows = keys.block_rows;
  a.mask = o.mask;
  if (o.visibility.table.defined()) {
    a.mask = {.kind = Mask::Kind::table, .table = o.visibility.table.values().data()};
  } else if (o.visibility.defined()) {
    a.mask = {Mask::Kind::ranked, o.visibility.query.values().data(), o.visibility.key.values().data()};
    a.mask.own_last = o.mask.own_last;
    a.mask.pattern = o.mask.pattern;
  }
  if (o.globals.defined()) {
    a.mask.globals = o.globals.values().data();
    a.mask.pattern.global = 0;
  }
  if (o.term.defined()) a.term = {o.term.data<float>(), o.term.dim(1) / 2};
  if (o.pair.defined()) {
    const auto table = [](const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; };
    const PairTables& p = o.pair;
    a.pair.by_query = table(p.by_query);
    a.pair.by_key = table(p.by_key);
    a.pair.by_segment = table(p.by_segment);
    if (p.columns.defined()) {
      a.pair.columns = p.columns.values().data();
      a.pair.reach = p.columns.count() / 2;
      a.pair.width = (p.by_query.defined() ? p.by_query : p.by_key).width() / q.heads;
    }
    if (p.segments.defined()) a.pair.segments = p.segments.values().data();
    if (p.positions.defined()) a.pair.positions = p.positions.values().data();
  }
  a.padded_length = o.padded_length;
  a.scale = o.scale;
  a.cap = o.cap;
  a.sinks = o.sinks.defined() ? o.sinks.data<float>() : nullptr;
  a.dropout = o.dropout;
  a.q = q.x.data<T>() + q.column;
  a.q_stride = q.x.width();
  a.k = k.x.data<T>() + k.column;
  a.k_stride = k.x.width();
  a.v = v.x.data<T>() + v.column;
  a.v_stride = v.x.width();
  a.out = out;
  a.out_stride = q.heads * v.width;
  a.lse = lse;
  return a;
}

template <typename T>
void forward(const Attention<T>& a) {
  struct Task {
    int64_t sequence, kv_head, first_query;
  };
  std::vector<Task> tasks;
  for (int64_t s = 0; s < a.sequences; ++s) {
    const int64_t queries = a.q_offsets[s + 1] - a.q_offsets[s];
    // Late tiles first: under a causal mask they are the longest.
    for (int64_t first = (queries - 1) / kQueryTile * kQueryTile; first >= 0 && queries > 0;
         first -= kQueryTile)
      for (int64_t h = 0; h < a.kv_heads; ++h) tasks.push_back({s, h, first});
  }
  const int64_t floats = attention_scratch(a);
  Tensor scratch = Tensor::empty({num_threads(), floats}, DType::f32);
  float* memory = scratch.mutable_data<float>();
  parallel_tasks(static_cast<int64_t>(tasks.size()), [&](int64_t i, int worker) {
    kernels().typed<T>().attention(a, tasks[i].sequence, tasks[i].kv_head, tasks[i].first_query,
                                   memory + worker * floats);
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

void check_pair(const Heads& q, const Heads& k, const PairTables& pair, int64_t longest) {
  if (pair.columns.defined()) {
    check(pair.columns.count() % 2 == 1 &&
              (pair.positions.defined() || pair.columns.count() / 2 >= longest - 1),
          "attention: columns of {} distances do not fit {} keys", pair.columns.count(), longest);
  }
  int64_t width = 0;
  const auto by_distance = [&](const char* name, const Tensor& table, int64_t rows) {
    if (!table.defined()) return;
    check(pair.columns.defined() && table.shape().rank() == 2 && table.rows() == rows &&
              table.width() % q.heads == 0 && (width == 0 || table.width() == width),
          "attention: {} {} does not fit {} rows and {} heads", name, table.shape(), rows, q.heads);
    expect_dtype("attention", name, table, DType::f32);
    width = table.width();
  };
  by_distance("by_query", pair.by_query, q.x.rows());
  by_distance("by_key", pair.by_key, k.x.rows());
  for (const int32_t c : width > 0 ? pair.columns.values() : Span<const int32_t>())
    check(c >= 0 && c < width / q.heads, "attention: a distance of column {} of {}", c, width / q.heads);
  const auto of_rows = [&](const char* name, const Indices& x) {
    check(x.count() == q.x.rows() && k.x.rows() == q.x.rows(),
          "attention: {} queries and {} keys need as many {}", q.x.rows(), k.x.rows(), name);
  };
  if (pair.positions.defined()) {
    check(pair.columns.defined(), "attention: positions need columns of distances");
    of_rows("positions", pair.positions);
    for (const int32_t p : pair.positions.values())
      check(p >= 0 && p <= pair.columns.count() / 2, "attention: position {} beyond distances of {}", p,
            pair.columns.count() / 2);
  }
  if (!pair.by_segment.defined()) return;
  check(pair.segments.defined(), "attention: by_segment needs segments");
  of_rows("segments", pair.segments);
  expect_shape("attention", "by_segment", pair.by_segment, {q.x.rows(), 2 * q.heads});
  expect_dtype("attention", "by_segment", pair.by_segment, DType::f32);
}

void check_arguments(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                     const KeyLayout& keys, const AttentionOptions& options) {
  check_heads("q", q, q.x.dtype());
  check_heads("k", k, q.x.dtype());
  check_heads("v", v, q.x.dtype());
  check(k.width == q.width && k.heads == v.heads && q.heads % k.heads == 0 && k.x.rows() == v.x.rows(),
        "attention: {} query heads of {} do not fit {} key heads of {} and {} value heads, {} and {} rows",
        q.heads, q.width, k.heads, k.width, v.heads, k.x.rows(), v.x.rows());
  check_layout(q, k, offsets, keys);
  check(!options.mask.is_given(), "attention: the visibility of tokens is an option of its own");
  const Visibility& visibility = options.visibility;
  if (visibility.defined()) {
    int64_t pairs = 0;
    for (size_t s = 0; s < keys.lengths.size(); ++s) {
      check(keys.lengths[s] == offsets[s + 1] - offsets[s],
            "attention: sequence {} has a visibility of {} queries, and {} keys", s,
            offsets[s + 1] - offsets[s], keys.lengths[s]);
      pairs += int64_t{keys.lengths[s]} * keys.lengths[s];
    }
    check(!visibility.table.defined() || (!visibility.ranked() && visibility.table.count() == pairs),
          "attention: {} pairs of tokens need a table of as many flags, and no ranks, got {}", pairs,
          visibility.table.count());
    check(!visibility.table.defined() || !options.mask.own_last,
          "attention: a table of visible keys does not go with shared queries and keys");
    for (const Indices* ranks : {&visibility.query, &visibility.key})
      check(visibility.table.defined() || (ranks->defined() && ranks->count() == q.x.rows()),
            "attention: {} queries need as many ranks of queries and of keys", q.x.rows());
  }
  if (options.globals.defined()) {
    const auto counts = options.globals.values();
    check(options.mask.kind == Mask::Kind::full && !options.visibility.defined() &&
              std::ssize(counts) == q.x.rows() + 1,
          "attention: {} queries under a full mask need {} counts of global tokens, got {}", q.x.rows(),
          q.x.rows() + 1, counts.size());
    Pattern others = options.mask.pattern;
    others.global = 0;
    check(others.any(), "attention: global tokens are given beside a pattern that has others");
    for (size_t i = 1; i < counts.size(); ++i)
      check(counts[i] == counts[i - 1] || counts[i] == counts[i - 1] + 1,
            "attention: from row {} on {} global tokens, before {}", i, counts[i], counts[i - 1]);
    for (size_t s = 0; s < keys.lengths.size(); ++s)
      check(keys.lengths[s] == offsets[s + 1] - offsets[s],
            "attention: sequence {} has global tokens of {} queries, and {} keys", s,
            offsets[s + 1] - offsets[s], keys.lengths[s]);
  }
  check(options.cap >= 0 && std::isfinite(options.cap), "attention: a cap must not be negative, got {}",
        options.cap);
  if (options.sinks.defined()) {
    expect_shape("attention", "sinks", options.sinks, {q.heads});
    expect_dtype("attention", "sinks", options.sinks, DType::f32);
  }
  int64_t longest = 0;
  for (const int32_t n : keys.lengths) longest = std::max<int64_t>(longest, n);
  check_pair(q, k, options.pair, longest);
  const Tensor& term = options.term;
  if (!term.defined()) return;
  check(term.dtype() == DType::f32 && term.shape().rank() == 2 && term.dim(0) == q.heads &&
            term.dim(1) % 2 == 1 && term.dim(1) / 2 >= longest - 1,
        "attention: a term {} does not fit {} heads and {} keys", term.shape(), q.heads, longest);
}

}  // namespace

Tensor attention(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                 const KeyLayout& keys, const AttentionOptions& options) {
  check_arguments(q, k, v, offsets, keys, options);
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

Tensor attention_unfused(const Heads& q, const Heads& k, const Heads& v, std::span<const int32_t> offsets,
                         const KeyLayout& keys, const AttentionOptions& options,
                         const AttentionVisitor& visit) {
  check_arguments(q, k, v, offsets, keys, options);
  check(!wants_grad({&q.x, &k.x, &v.x, &options.term, &options.sinks}),
        "attention: its scores can be probed only without gradients");
  Tensor out = Tensor::zeros({q.x.rows(), q.heads * v.width}, q.x.dtype());
  with_float_type("attention", q.x.dtype(), [&]<typename T>(T) {
    const auto a = kernel_arguments<T>(q, k, v, offsets, keys, options, out.mutable_data<T>(), nullptr);
    for (int64_t s = 0; s < a.sequences; ++s) {
      const int64_t queries = offsets[s + 1] - offsets[s], count = keys.lengths[s];
      const Mask mask = a.mask_of(s);
      const auto row_of = [&](int64_t j) {
        return a.blocks[a.block_offsets[s] + j / a.block_rows] + j % a.block_rows;
      };
      const auto added = [&](int64_t h, int64_t query, int64_t key) {
        const float bias = a.term.on() ? a.term.bias[a.term.at(h, query, key)] : 0.0F;
        if (!a.pair.on()) return bias;
        return bias + value_at(a.pair, {offsets[s] + query - (count - queries), row_of(key), query - key, h,
                                        a.heads});
      };
      for (int64_t h = 0; h < a.heads; ++h) {
        const int64_t kv = h / (a.heads / a.kv_heads);
        Tensor scores = Tensor::empty({queries, count}, DType::f32);
        for (int64_t i = 0; i < queries; ++i)
          for (int64_t j = 0; j < count; ++j) {
            float dot = 0;
            for (int64_t c = 0; c < a.d_qk; ++c)
              dot += static_cast<float>(a.q[(offsets[s] + i) * a.q_stride + h * a.d_qk + c]) *
                     static_cast<float>(a.k[row_of(j) * a.k_stride + kv * a.d_qk + c]);
            const float score = a.cap > 0 ? a.cap * std::tanh(a.scale * dot / a.cap) : a.scale * dot;
            scores.mutable_data<float>()[i * count + j] =
                mask.allows(count - queries + i, j)
                    ? score + mask.raise(count - queries + i, j) + added(h, count - queries + i, j)
                    : -std::numeric_limits<float>::infinity();
          }
        Tensor probabilities = scores.clone();
        for (int64_t i = 0; i < queries; ++i) {
          float* p = probabilities.mutable_data<float>() + i * count;
          float top = a.sinks ? a.sinks[h] : -std::numeric_limits<float>::infinity();
          for (int64_t j = 0; j < count; ++j) top = std::max(top, p[j]);
          float sum = a.sinks ? std::exp(a.sinks[h] - top) : 0;
          for (int64_t j = 0; j < count; ++j) sum += p[j] = std::isinf(top) ? 0 : std::exp(p[j] - top);
          for (int64_t j = 0; j < count; ++j) p[j] = sum > 0 ? p[j] / sum : 0;
        }
        visit(s, h, scores, probabilities);
        for (int64_t i = 0; i < queries; ++i)
          for (int64_t c = 0; c < a.d_vo; ++c) {
            float sum = 0;
            for (int64_t j = 0; j < count; ++j)
              sum += probabilities.data<float>()[i * count + j] *
                     static_cast<float>(a.v[row_of(j) * a.v_stride + kv * a.d_vo + c]);
            a.out[(offsets[s] + i) * a.out_stride + h * a.d_vo + c] = T(sum);
          }
      }
    }
  });
  return out;
}

}  // namespace qkv
