// The oracle of the gradients: central differences of the ops themselves, run in f32.
//
// An op with outputs y becomes a scalar by a random linear functional, L(x) = sum_i r_i y_i(x), |r_i| <= 1,
// summed in double. Its derivative by x_j is compared with the fourth-order difference
//   D_j = (8 (L(+h) - L(-h)) - (L(+2h) - L(-2h))) / 12 h.
// Two things keep D_j from the derivative:
// - the formula: h^4 / 30 times L's fifth derivative, which each test bounds (`fifth`; 0 for functions
//   that are linear in each input, which may therefore take a large step);
// - rounding: an output carries a relative error of `roundings` u, u = 2^-24, so L carries roundings u S with
//   S^2 = sum r_i^2 m^2 over the outputs that x_j moves (the others cancel exactly; a root, into which every
//   input goes, may move by less than it rounds), m = max(1, max |y|), as roundings of different outputs are
//   independent. The coefficients of D_j turn this into at most (2 8 + 2 1) / 12 h = 1.5 / h times as much.
// The gradient's own rounding, roundings u S, is covered by taking (1.5 / h + 1).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/base/parallel.h"
#include "qkv/ops/elementwise.h"

namespace qkv::testing {

using Op = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

inline constexpr double kUnit = 0x1p-24;     // unit roundoff of f32
inline constexpr double kUnitBf16 = 0x1p-8;  // unit roundoff of bf16

// Runs the many small evaluations of a difference on one thread. Waking a team costs more than they do,
// above all if other programs use the other processors. The gradient itself is computed with all threads.
class OneThread {
 public:
  OneThread() : before_(num_threads()) { set_num_threads(1); }
  ~OneThread() { set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Uniform in [low, high).
inline Tensor uniform(Shape shape, uint64_t seed, double low = -1, double high = 1) {
  std::mt19937_64 rng(seed);
  std::vector<float> x(shape.count());
  for (float& v : x) v = static_cast<float>(low + (high - low) * static_cast<double>(rng() >> 11) * 0x1p-53);
  return Tensor::of(shape, x);
}

inline std::vector<float> floats(const Tensor& x) {
  const NoGrad guard;
  const Tensor f = convert(x.detach(), DType::f32);
  return {f.data<float>(), f.data<float>() + f.count()};
}

struct Check {
  double h = 0x1p-5;
  double fifth = 0;                // bounds the fifth derivative of L
  double roundings = 16;           // error of an output, in units of u
  double bf16_roundings = 2;       // error of an output or gradient, in bf16's u times the largest element
  bool root = false;               // the op itself is the root: r = 1
  std::vector<int> keep_f32 = {};  // inputs that stay f32 next to bf16 ones (biases, norms)
  bool bf16 = true;                // also check the bf16 op
  int coordinates = 120;           // number of entries to check per input, drawn at random if it has more
};

struct Evaluation {
  std::vector<Tensor> outputs;
  std::vector<std::vector<float>> gradients;  // one per input
};

inline std::vector<Tensor> functional(const std::vector<Tensor>& outputs, bool root) {
  std::vector<Tensor> r;
  for (size_t o = 0; o < outputs.size(); ++o)
    r.push_back(root ? uniform(outputs[o].shape(), 0, 1, 1) : uniform(outputs[o].shape(), 1000 + o));
  return r;
}

// The op on f32 leaves, converted to `dtype` on the way in, and the gradient of L.
inline Evaluation evaluate(const Op& op, const std::vector<Tensor>& inputs, DType dtype, const Check& check) {
  std::vector<Tensor> leaves, given;
  std::vector<std::shared_ptr<Leaf>> nodes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensor x = inputs[i].clone();
    nodes.push_back(make_leaf(x, Tensor::zeros(x.shape(), DType::f32)));
    const bool keep = std::find(check.keep_f32.begin(), check.keep_f32.end(), i) != check.keep_f32.end();
    given.push_back(keep ? x : convert(x, dtype));
    leaves.push_back(x);
  }
  Evaluation e;
  e.outputs = op(given);
  const std::vector<Tensor> r = functional(e.outputs, check.root);
  std::vector<Seed> seeds;
  for (size_t o = 0; o < r.size(); ++o) seeds.emplace_back(e.outputs[o], convert(r[o], e.outputs[o].dtype()));
  backward(seeds);
  for (const auto& n : nodes) e.gradients.push_back(floats(n->grad));
  return e;
}

inline void expect_finite_differences(const Op& op, std::vector<Tensor> inputs, const Check& check) {
  const Evaluation e = evaluate(op, inputs, DType::f32, check);
  const std::vector<Tensor> r = functional(e.outputs, check.root);
  double largest = 1;
  for (const Tensor& y : e.outputs)
    for (const float v : y.values<float>()) largest = std::max(largest, std::abs(double{v}));
  const NoGrad guard;
  const OneThread thread;
  std::mt19937_64 rng(7);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int64_t count = inputs[i].count();
    inputs[i] = inputs[i].clone();
    float* x = inputs[i].mutable_data<float>();
    for (int64_t n = 0; n < std::min<int64_t>(count, check.coordinates); ++n) {
      const int64_t j =
          count <= check.coordinates ? n : static_cast<int64_t>(rng() % static_cast<uint64_t>(count));
      const float centre = x[j];
      const double offsets[] = {check.h, -check.h, 2 * check.h, -2 * check.h};
      std::vector<Tensor> y[4];
      float at[4];
      for (int k = 0; k < 4; ++k) {
        at[k] = x[j] = centre + static_cast<float>(offsets[k]);
        y[k] = op(inputs);
        for (Tensor& t : y[k]) t = t.clone();  // an output may be the input itself, which changes next
      }
      x[j] = centre;
      double near = 0, far = 0, moved = 0;
      for (size_t o = 0; o < r.size(); ++o)
        for (int64_t c = 0; c < r[o].count(); ++c) {
          const double w = r[o].data<float>()[c];
          const auto v = [&](int k) { return double{y[k][o].data<float>()[c]}; };
          near += w * (v(0) - v(1));
          far += w * (v(2) - v(3));
          if (check.root || v(0) != v(1) || v(2) != v(3)) moved += w * w;
        }
      // The actual steps, because x + h is rounded.
      near /= double{at[0]} - double{at[1]};
      far /= double{at[2]} - double{at[3]};
      const double difference = (4 * near - far) / 3;
      const double tolerance = check.roundings * kUnit * largest * std::sqrt(moved) * (1.5 / check.h + 1) +
                               std::pow(check.h, 4) / 30 * check.fifth + 1e-30;
      EXPECT_NEAR(e.gradients[i][j], difference, tolerance) << "input " << i << ", element " << j;
      if (::testing::Test::HasFailure()) return;
    }
  }
}

inline double largest_of(const std::vector<float>& x) {
  double most = 0;
  for (const float v : x) most = std::max(most, std::abs(double{v}));
  return most;
}

inline void expect_near(const std::vector<float>& got, const std::vector<float>& want, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << what << ", element " << i;
}

// On inputs that bf16 holds exactly, the bf16 op differs from the f32 one by roundings of its result, its
// gradients, and the seeds r: `bf16_roundings` roundings of numbers as large as the largest. If a gradient
// is a sum that cancels, as in a norm over one column, only f32's rounding of terms of size 1 is left.
inline void expect_bf16_like_f32(const Op& op, std::vector<Tensor> inputs, const Check& check) {
  for (Tensor& x : inputs) x = convert(convert(x, DType::bf16), DType::f32);
  const Evaluation wide = evaluate(op, inputs, DType::f32, check),
                   narrow = evaluate(op, inputs, DType::bf16, check);
  const auto compare = [&](const std::vector<float>& got, const std::vector<float>& want,
                           const std::string& what) {
    expect_near(got, want, check.bf16_roundings * kUnitBf16 * largest_of(want) + check.roundings * kUnit,
                what);
  };
  for (size_t o = 0; o < wide.outputs.size(); ++o)
    compare(floats(narrow.outputs[o]), floats(wide.outputs[o]), "bf16 output " + std::to_string(o));
  for (size_t i = 0; i < inputs.size(); ++i)
    compare(narrow.gradients[i], wide.gradients[i], "bf16 gradient of input " + std::to_string(i));
}

inline void expect_gradients(const Op& op, const std::vector<Tensor>& inputs, const Check& check) {
  expect_finite_differences(op, inputs, check);
  if (check.bf16 && !::testing::Test::HasFailure()) expect_bf16_like_f32(op, inputs, check);
}

}  // namespace qkv::testing
