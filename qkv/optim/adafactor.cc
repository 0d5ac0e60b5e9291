#include "qkv/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

constexpr double kEpsilon1 = 1e-30, kEpsilon2 = 1e-3, kThreshold = 1, kDecayPower = 0.8;
constexpr int64_t kRowGrain = 16, kColumnGrain = 64;

// Adds up f(i) for i in [0, n), each on its own, in order: the same for every number of threads.
template <typename F>
double sum_in_order(int64_t n, int64_t grain, const F& f) {
  std::vector<double> parts(n);
  parallel_for(n, grain, [&](int64_t i, int64_t end) {
    for (; i < end; ++i) parts[i] = f(i);
  });
  double total = 0;
  for (const double p : parts) total += p;
  return total;
}

double sum_squares_of(const Tensor& x) {
  constexpr int64_t kBlock = 1 << 16;
  return sum_in_order((x.count() + kBlock - 1) / kBlock, 1, [&](int64_t b) {
    const int64_t count = std::min(kBlock, x.count() - b * kBlock);
    return kernels().sum_squares(count, x.values<float>().subspan(b * kBlock, count).data());
  });
}

// A matrix, or a vector, which is one row whose second moments are remembered whole.
bool is_factored(const Parameter& p) {
  return p.shape.rank() == 2;
}
int64_t rows_of(const Parameter& p) {
  return is_factored(p) ? p.shape[0] : 0;
}
int64_t columns_of(const Parameter& p) {
  return p.shape.count() / std::max<int64_t>(1, rows_of(p));
}

class Adafactor : public Optimizer {
 public:
  Adafactor(const OptimizerConfig& config, Parameters& parameters) : decay_(config.weight_decay) {
    int64_t rows = 0, columns = 0;
    for (const Parameter& p : parameters.all()) rows += rows_of(p), columns += columns_of(p);
    r_ = Tensor::zeros({rows}, DType::f32);
    c_ = Tensor::zeros({columns}, DType::f32);
  }

  void update(Parameters& parameters, int64_t step, double learning_rate, double gradient_scale) override {
    const double beta2 = 1 - std::pow(static_cast<double>(step), -kDecayPower);
    const auto r = r_.mutable_values<float>(), c = c_.mutable_values<float>();
    int64_t row = 0, column = 0;
    for (Parameter& p : parameters.all()) {
      const int64_t rows = rows_of(p), columns = columns_of(p);
      if (p.rate != 0)
        move(p, beta2, learning_rate * double{p.rate}, static_cast<float>(gradient_scale),
             r.subspan(row, rows), c.subspan(column, columns));
      row += rows;
      column += columns;
    }
    parameters.refresh_shadows();
  }

  std::vector<std::pair<std::string, Tensor>> state() override { return {{"rows", r_}, {"columns", c_}}; }

 private:
  // X <- X - alpha (U / max(1, RMS(U) / d) + lambda X), U = G / sqrt(V); V = R C / (1^T R) of a matrix, C of
  // a vector.
  void move(Parameter& p, double beta2, double learning_rate, float scale, Span<float> r,
            Span<float> c) const {
    const int64_t n = std::max<int64_t>(1, rows_of(p)), m = columns_of(p);
    const auto gradient = p.leaf->grad.values<float>();
    const auto weights = p.master.mutable_values<float>();
    const auto square = [scale](float v) { return double{scale * v} * double{scale * v} + kEpsilon1; };
    const auto remember = [beta2](float& mean, double now) {
      mean = static_cast<float>(beta2 * mean + (1 - beta2) * now);
    };
    double total = 1;
    if (is_factored(p))
      total = sum_in_order(n, kRowGrain, [&](int64_t i) {
        double sum = 0;
        for (const float g : gradient.row(i, m)) sum += square(g);
        remember(r[i], sum);
        return double{r[i]};
      });
    parallel_for(m, kColumnGrain, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(end - begin);
      for (int64_t i = 0; i < n; ++i) {
        const auto g = gradient.row(i, m).subspan(begin, end - begin);
        for (int64_t j = 0; j < end - begin; ++j) sums[j] += square(g[j]);
      }
      for (int64_t j = begin; j < end; ++j) remember(c[j], sums[j - begin]);
    });
    std::vector<float> column(m);  // 1 / sqrt(C)
    for (int64_t j = 0; j < m; ++j) column[j] = static_cast<float>(1 / std::sqrt(double{c[j]}));
    const auto row = [&](int64_t i) {  // U_ij = row_i column_j G_ij
      return is_factored(p) ? scale * static_cast<float>(std::sqrt(total / double{r[i]})) : scale;
    };
    const double squares = sum_in_order(n, kRowGrain, [&](int64_t i) {
      const float factor = row(i);
      const auto g = gradient.row(i, m);
      double sum = 0;
      for (int64_t j = 0; j < m; ++j) {
        const float u = factor * column[j] * g[j];
        sum += double{u} * double{u};
      }
      return sum;
    });
    const double count = static_cast<double>(n * m);
    const double alpha = std::max(kEpsilon2, std::sqrt(sum_squares_of(p.master) / count)) * learning_rate;
    const auto rate = static_cast<float>(alpha / std::max(1.0, std::sqrt(squares / count) / kThreshold));
    const auto keep = static_cast<float>(p.kind == ParameterKind::matrix ? 1 - learning_rate * decay_ : 1);
    parallel_for(n, kRowGrain, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const float factor = rate * row(i);
        const auto g = gradient.row(i, m);
        const auto x = weights.row(i, m);
        for (int64_t j = 0; j < m; ++j) x[j] = keep * x[j] - factor * column[j] * g[j];
      }
    });
  }

  double decay_;
  Tensor r_, c_;  // R and C of all parameters, one after another
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config, Parameters& parameters) {
  return std::make_unique<Adafactor>(config, parameters);
}

int64_t adafactor_state_size(const Parameters& parameters) {
  int64_t n = 0;
  for (const Parameter& p : parameters.all())
    if (!p.frozen) n += rows_of(p) + columns_of(p);
  return n;
}

}  // namespace qkv
