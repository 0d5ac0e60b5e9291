#include "qkv/ops/recurrence.h"

#include <algorithm>
#include <numeric>

#include "qkv/autograd/graph.h"
#include "qkv/kernels/gemm.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/weight_product.h"

namespace qkv {

TimeOrder TimeOrder::of(std::span<const int32_t> offsets, bool backwards) {
  TimeOrder time;
  const auto length = [&](int32_t s) { return offsets[s + 1] - offsets[s]; };
  time.sequences.resize(offsets.size() - 1);
  std::iota(time.sequences.begin(), time.sequences.end(), 0);
  std::stable_sort(time.sequences.begin(), time.sequences.end(),
                   [&](int32_t a, int32_t b) { return length(a) > length(b); });
  const int32_t steps = time.sequences.empty() ? 0 : length(time.sequences[0]);
  for (int32_t t = 0; t < steps; ++t) {
    for (const int32_t s : time.sequences) {
      if (length(s) <= t) break;
      time.rows.push_back(backwards ? offsets[s + 1] - 1 - t : offsets[s] + t);
    }
    time.starts.push_back(std::ssize(time.rows));
  }
  return time;
}

namespace {

// One recurrence over a batch whose rows are sorted by time, so that each step is a run of rows. D = width.
template <typename T>
struct Run {
  Cell cell;
  const TimeOrder& time;
  int64_t width;
  const T* weight;     // U [gates D, D]
  const T* first_h;    // [sequences by length, D]
  const float* first;  // [sequences by length, parts D]
  float* gates;        // [N, gates D]: inputs of the gates, then their values
  T* hidden;           // [N, D]
  float* states;       // [N, parts D]
  T* reset = nullptr;  // [N, D] for a GRU: s(r) h

  int64_t gate_columns() const { return gates_of(cell) * width; }
  int64_t state_columns() const { return state_parts(cell) * width; }
  // h and state before a step, for the sequences that run in it.
  const T* h_before(int64_t t) const { return t == 0 ? first_h : hidden + time.starts[t - 1] * width; }
  const float* state_before(int64_t t) const {
    return t == 0 ? first : states + time.starts[t - 1] * state_columns();
  }
};

void sigmoid(int64_t n, float* x) {  // by tanh(x / 2)
  for (int64_t i = 0; i < n; ++i) x[i] *= 0.5F;
  kernels().f32.activation(Activation::tanh, n, x, x);
  for (int64_t i = 0; i < n; ++i) x[i] = 0.5F * x[i] + 0.5F;
}
void tanh_of(int64_t n, const float* x, float* y) {
  kernels().f32.activation(Activation::tanh, n, x, y);
}

// c [m, n] += a [m, k] b, where b is stored as [n, k] (`transposed`) or [k, n].
template <typename T>
Product product(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_stride, const T* b, bool transposed,
                float* c, int64_t c_stride) {
  return {.m = m,
          .n = n,
          .k = k,
          .out = DType::f32,
          .a = dense(a, dtype_of<T>, a_stride),
          .b = dense(b, dtype_of<T>, transposed ? k : n, transposed),
          .c = c,
          .c_stride = c_stride,
          .accumulate = true};
}

// Rounds the state to what the next step reads, so that continuing from it gives the same bits.
template <typename T>
void keep_hidden(int64_t n, float* h, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = T(h[i]);
    h[i] = static_cast<float>(to[i]);
  }
}

template <typename T>
void lstm_row(int64_t n, const float* before, float* gates, float* state, T* hidden) {
  const float *i = gates, *f = gates + n, *o = gates + 2 * n, *c_before = before + n;
  float *g = gates + 3 * n, *h = state, *c = state + n;
  sigmoid(3 * n, gates);
  tanh_of(n, g, g);
  for (int64_t j = 0; j < n; ++j) c[j] = f[j] * c_before[j] + i[j] * g[j];
  tanh_of(n, c, h);
  for (int64_t j = 0; j < n; ++j) h[j] *= o[j];
  keep_hidden(n, h, hidden);
}

template <typename T>
void gru_row(int64_t n, const float* before, float* gates, float* state, T* hidden) {
  const float* z = gates;
  float* candidate = gates + 2 * n;
  tanh_of(n, candidate, candidate);
  for (int64_t j = 0; j < n; ++j) state[j] = (1 - z[j]) * before[j] + z[j] * candidate[j];
  keep_hidden(n, state, hidden);
}

template <typename T>
void forward(const Run<T>& run) {
  const int64_t n = run.width, columns = run.gate_columns(), state = run.state_columns();
  const bool gru = run.cell == Cell::gru;
  for (int64_t t = 0; t < run.time.steps(); ++t) {
    const int64_t start = run.time.starts[t], count = run.time.running(t);
    const T* h = run.h_before(t);
    const float* before = run.state_before(t);
    float* gates = run.gates + start * columns;
    // A GRU computes z and r first: the candidate needs r.
    multiply_rows(product(count, gru ? 2 * n : columns, n, h, n, run.weight, true, gates, columns));
    if (gru) {
      T* reset = run.reset + start * n;
      parallel_for(count, row_grain(4 * n), [&](int64_t r, int64_t end) {
        for (; r < end; ++r) {
          float* row = gates + r * columns;
          sigmoid(2 * n, row);
          for (int64_t j = 0; j < n; ++j) reset[r * n + j] = T(row[n + j] * before[r * n + j]);
        }
      });
      multiply_rows(product(count, n, n, reset, n, run.weight + 2 * n * n, true, gates + 2 * n, columns));
    }
    parallel_for(count, row_grain(4 * n), [&](int64_t r, int64_t end) {
      for (; r < end; ++r)
        (gru ? gru_row<T> : lstm_row<T>)(n, before + r * state, gates + r * columns,
                                         run.states + (start + r) * state, run.hidden + (start + r) * n);
    });
  }
}

// The gradient of one row. d is the gradient of its state, and becomes that of the state before, without
// the part through the gates. da becomes the gradient of the gates' inputs.
template <typename T>
void lstm_row_grad(int64_t n, const float* before, const float* gates, const float* state, float* d, T* da) {
  const float *i = gates, *f = gates + n, *o = gates + 2 * n, *g = gates + 3 * n, *c_before = before + n;
  float *dh = d, *dc = d + n;
  std::vector<float> tanh_c(n);
  tanh_of(n, state + n, tanh_c.data());
  for (int64_t j = 0; j < n; ++j) {
    const float by_c = dc[j] + dh[j] * o[j] * (1 - tanh_c[j] * tanh_c[j]);
    da[j] = T(by_c * g[j] * i[j] * (1 - i[j]));
    da[n + j] = T(by_c * c_before[j] * f[j] * (1 - f[j]));
    da[2 * n + j] = T(dh[j] * tanh_c[j] * o[j] * (1 - o[j]));
    da[3 * n + j] = T(by_c * i[j] * (1 - g[j] * g[j]));
    dh[j] = 0;
    dc[j] = by_c * f[j];
  }
}
template <typename T>
void gru_row_grad(int64_t n, const float* before, const float* gates, float* d, T* da) {
  const float *z = gates, *candidate = gates + 2 * n;
  for (int64_t j = 0; j < n; ++j) {
    da[j] = T(d[j] * (candidate[j] - before[j]) * z[j] * (1 - z[j]));
    da[2 * n + j] = T(d[j] * z[j] * (1 - candidate[j] * candidate[j]));
    d[j] *= 1 - z[j];
  }
}
// The rest of a GRU's row, from the gradient of s(r) h.
template <typename T>
void reset_row_grad(int64_t n, const float* before, const float* gates, const float* dreset, float* d,
                    T* da) {
  const float* r = gates + n;
  for (int64_t j = 0; j < n; ++j) {
    da[n + j] = T(dreset[j] * before[j] * r[j] * (1 - r[j]));
    d[j] += dreset[j] * r[j];
  }
}

// Backpropagation through time. d [sequences by length, parts D] begins as zeros and ends as the gradient
// of the first state; da [N, gates D]. dhidden and dstates have the caller's order of rows; null: zeros.
template <typename T>
void back_through_time(const Run<T>& run, const T* dhidden, const float* dstates, float* d, T* da) {
  const int64_t n = run.width, columns = run.gate_columns(), state = run.state_columns();
  const bool gru = run.cell == Cell::gru;
  Tensor dreset = Tensor::empty({gru ? std::ssize(run.time.sequences) : 0, n}, DType::f32);
  for (int64_t t = run.time.steps(); t-- > 0;) {
    const int64_t start = run.time.starts[t], count = run.time.running(t);
    const float *before = run.state_before(t), *gates = run.gates + start * columns;
    T* da_here = da + start * columns;
    parallel_for(count, row_grain(4 * n), [&](int64_t r, int64_t end) {
      for (; r < end; ++r) {
        float* to = d + r * state;
        const int64_t row = run.time.rows[start + r];
        for (int64_t j = 0; j < n && dhidden != nullptr; ++j)
          to[j] += static_cast<float>(dhidden[row * n + j]);
        for (int64_t j = 0; j < state && dstates != nullptr; ++j) to[j] += dstates[row * state + j];
        if (gru)
          gru_row_grad(n, before + r * state, gates + r * columns, to, da_here + r * columns);
        else
          lstm_row_grad(n, before + r * state, gates + r * columns, run.states + (start + r) * state, to,
                        da_here + r * columns);
      }
    });
    if (gru) {
      std::fill_n(dreset.mutable_data<float>(), count * n, 0.0F);
      matrix_product(product(count, n, n, da_here + 2 * n, columns, run.weight + 2 * n * n, false,
                             dreset.mutable_data<float>(), n));
      parallel_for(count, row_grain(4 * n), [&](int64_t r, int64_t end) {
        for (; r < end; ++r)
          reset_row_grad(n, before + r * state, gates + r * columns, dreset.data<float>() + r * n,
                         d + r * state, da_here + r * columns);
      });
    }
    matrix_product(product(count, n, gru ? 2 * n : columns, da_here, columns, run.weight, false, d, state));
  }
}

// to[i] = from[rows[i]], or to[rows[i]] = from[i]: between the caller's rows and rows by time.
template <typename From, typename To>
void gather(std::span<const int32_t> rows, int64_t width, const From* from, To* to) {
  parallel_for(std::ssize(rows), row_grain(width), [&](int64_t i, int64_t end) {
    for (; i < end; ++i)
      for (int64_t c = 0; c < width; ++c)
        to[i * width + c] = To(static_cast<float>(from[rows[i] * width + c]));
  });
}
template <typename T>
void scatter(std::span<const int32_t> rows, int64_t width, const T* from, T* to) {
  parallel_for(std::ssize(rows), row_grain(width), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) std::copy_n(from + i * width, width, to + rows[i] * width);
  });
}

// Tensors that the forward pass saves, with rows by time.
struct Saved {
  Cell cell;
  TimeOrder time;
  Tensor weight, first_h, first, gates, hidden, states, reset;

  template <typename T>
  Run<T> run() {
    return {cell,
            time,
            weight.dim(1),
            weight.data<T>(),
            first_h.data<T>(),
            first.data<float>(),
            gates.mutable_data<float>(),
            hidden.mutable_data<T>(),
            states.mutable_data<float>(),
            reset.defined() ? reset.mutable_data<T>() : nullptr};
  }
};

class RecurrenceNode : public Node {
 public:
  RecurrenceNode(const Tensor& x, const Tensor& weight, const Tensor& first, Saved saved)
      : saved_(std::move(saved)) {
    add_input(x);
    add_input(weight);
    add_input(first);
  }
  std::string_view name() const override { return "recurrence"; }
  void backward(std::span<Tensor> grads) override {
    const DType type = saved_.hidden.dtype();
    const int64_t rows = saved_.hidden.dim(0), columns = saved_.gates.dim(1);
    const Tensor dhidden = grads[0], dstates = grads.size() > 1 ? grads[1] : Tensor();
    Tensor d = Tensor::zeros(saved_.first.shape(), DType::f32), da = Tensor::empty({rows, columns}, type);
    Tensor dx = Tensor::empty(da.shape(), type);
    with_float_type("recurrence", type, [&]<typename T>(T) {
      const Run<T> run = saved_.run<T>();
      back_through_time(run, dhidden.defined() ? dhidden.data<T>() : nullptr,
                        dstates.defined() ? dstates.data<float>() : nullptr, d.mutable_data<float>(),
                        da.mutable_data<T>());
      scatter(saved_.time.rows, columns, da.data<T>(), dx.mutable_data<T>());
      weight_grad(1, saved_.weight.shape(),
                  [&](Tensor& dw, bool accumulate) { sum_weight(run, da.data<T>(), accumulate, dw); });
    });
    give(0, std::move(dx));
    if (!wants(2)) return;
    Tensor dfirst = Tensor::empty(d.shape(), DType::f32);
    scatter(saved_.time.sequences, d.width(), d.data<float>(), dfirst.mutable_data<float>());
    give(2, std::move(dfirst));
  }

 private:
  // dU = da^T h with the h before each row, or s(r) h for a GRU's candidate.
  template <typename T>
  static void sum_weight(const Run<T>& run, const T* da, bool accumulate, Tensor& dw) {
    const int64_t n = run.width, columns = run.gate_columns(), rows = run.time.starts.back();
    Tensor h = Tensor::empty({rows, n}, dtype_of<T>);
    for (int64_t t = 0; t < run.time.steps(); ++t)
      std::copy_n(run.h_before(t), run.time.running(t) * n, h.mutable_data<T>() + run.time.starts[t] * n);
    const auto sum = [&](int64_t begin, int64_t end, const T* b) {
      matrix_product({.m = end - begin,
                      .n = n,
                      .k = rows,
                      .out = DType::f32,
                      .a = dense(da + begin, dtype_of<T>, columns, true),
                      .b = dense(b, dtype_of<T>, n),
                      .c = dw.mutable_data<float>() + begin * n,
                      .c_stride = n,
                      .accumulate = accumulate});
    };
    sum(0, run.cell == Cell::gru ? 2 * n : columns, h.data<T>());
    if (run.cell == Cell::gru) sum(2 * n, columns, run.reset);
  }

  Saved saved_;
};

}  // namespace

RecurrenceResult recurrence(Cell cell, const Tensor& x, const Tensor& weight, const Tensor& first,
                            std::span<const int32_t> offsets, bool backwards) {
  check(cell != Cell::none, "recurrence: there is no cell");
  check(weight.defined() && weight.shape().rank() == 2 && weight.dim(0) == gates_of(cell) * weight.dim(1),
        "recurrence: weight must be [{} D, D], got {}", gates_of(cell), weight);
  const int64_t n = weight.dim(1), columns = weight.dim(0), sequences = std::ssize(offsets) - 1;
  check(sequences >= 0 && offsets.front() == 0 && std::is_sorted(offsets.begin(), offsets.end()),
        "recurrence: bad offsets of {} sequences", sequences);
  expect_shape("recurrence", "x", x, {offsets.back(), columns});
  expect_dtype("recurrence", "weight", weight, x.dtype());
  const Shape first_shape = {sequences, state_parts(cell) * n};
  if (first.defined()) {
    expect_shape("recurrence", "the first state", first, first_shape);
    expect_dtype("recurrence", "the first state", first, DType::f32);
  }
  const DType type = x.dtype();
  Saved s{cell, TimeOrder::of(offsets, backwards), weight.detach(), {}, {}, {}, {}, {}, {}};
  s.first_h = Tensor::zeros({sequences, n}, type);
  s.first = Tensor::zeros(first_shape, DType::f32);
  s.gates = Tensor::empty(x.shape(), DType::f32);
  s.hidden = Tensor::empty({x.rows(), n}, type);
  s.states = Tensor::empty({x.rows(), first_shape[1]}, DType::f32);
  if (cell == Cell::gru) s.reset = Tensor::empty({x.rows(), n}, type);
  RecurrenceResult out{Tensor::empty(s.hidden.shape(), type), Tensor::empty(s.states.shape(), DType::f32)};
  with_float_type("recurrence", type, [&]<typename T>(T) {
    if (first.defined()) {
      gather(s.time.sequences, first.width(), first.data<float>(), s.first.mutable_data<float>());
      for (int64_t i = 0; i < sequences; ++i)
        for (int64_t c = 0; c < n; ++c)
          s.first_h.mutable_data<T>()[i * n + c] = T(s.first.data<float>()[i * first.width() + c]);
    }
    gather(s.time.rows, columns, x.data<T>(), s.gates.mutable_data<float>());
    forward(s.run<T>());
    scatter(s.time.rows, n, s.hidden.data<T>(), out.hidden.mutable_data<T>());
    scatter(s.time.rows, s.states.width(), s.states.data<float>(), out.states.mutable_data<float>());
  });
  if (wants_grad({&x, &weight, &first})) {
    const auto node = std::make_shared<RecurrenceNode>(x, weight, first, std::move(s));
    connect(out.hidden, node, 0);
    connect(out.states, node, 1);
  }
  return out;
}

}  // namespace qkv
