// Gradients of the row-wise ops and of the residual addition with its norm.
// Covers: qkv/ops/xielu.cc
#include "qkv/ops/elementwise.h"

#include "qkv/ops/norm.h"
#include "qkv/ops/xielu.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::elementwise_test {
namespace {

using testing::Check;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

const Shape kShapes[] = {{1, 1}, {3, 1}, {1, 3}, {17, 3}, {3, 17}, {5, 65}, {65, 17}};

Dropout dropping(float p) {
  return {p, DropoutKey::from({3, 1, 4}), 11};
}

// Moves x away from 0, where relu has its kink: the difference reaches 2h = 1/16 to both sides.
Tensor away_from_zero(Tensor x) {
  x = x.clone();
  float* v = x.mutable_data<float>();
  for (int64_t i = 0; i < x.count(); ++i) v[i] += v[i] < 0 ? -0.125F : 0.125F;
  return x;
}

TEST(ActivationGradient, IsTheDifference) {
  for (const Activation kind :
       {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::gelu_quick, Activation::silu,
        Activation::relu_squared, Activation::tanh})
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(shape.text());
      // |gelu^(5)| < 6 (|phi| < 0.4 times a polynomial of degree 5 in x), and so for the approximations.
      expect_gradients([&](const Tensors& in) { return Tensors{activation(kind, in[0])}; },
                       {away_from_zero(uniform(shape, 1, -3, 3))}, {.fifth = 20});
    }
}

// f(a) b: as f, times b in [-1, 1].
TEST(GatedGradient, IsTheDifference) {
  for (const Activation kind : {Activation::relu, Activation::gelu_tanh, Activation::silu})
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(shape.text());
      expect_gradients([&](const Tensors& in) { return Tensors{gated(kind, in[0])}; },
                       {away_from_zero(uniform({shape[0], 2 * shape[1]}, 1, -1, 1))},
                       {.fifth = 20, .bf16_roundings = 4});
    }
  EXPECT_THROW(gated(Activation::relu, uniform({2, 3}, 1)), Error);
}

TEST(AddGradient, IsTheDifference) {
  for (const Shape& shape : kShapes)
    expect_gradients([](const Tensors& in) { return Tensors{add(in[0], in[1])}; },
                     {uniform(shape, 1), uniform(shape, 2)}, {.h = 0.5, .roundings = 4});
}

TEST(ScaledGradient, IsTheDifference) {
  for (const Shape& shape : kShapes)
    expect_gradients([](const Tensors& in) { return Tensors{scaled(in[0], -2.5F)}; }, {uniform(shape, 1)},
                     {.h = 0.5, .roundings = 4});
}

// Beyond the limit the gradient is 0; on both sides of it differences would be neither.
TEST(ClippedGradient, IsTheDifference) {
  for (const Shape& shape : kShapes) {
    Tensor x = uniform(shape, 1, -1, 1);
    for (int64_t i = 0; i < x.count(); ++i)
      if (float& v = x.mutable_data<float>()[i]; std::abs(std::abs(v) - 0.5F) < 0.05F) v *= 0.8F;
    expect_gradients([](const Tensors& in) { return Tensors{clipped(in[0], 0.5F)}; }, {x},
                     {.h = 0.01, .roundings = 4});
    const Tensor y = clipped(x, 0.5F);
    for (int64_t i = 0; i < x.count(); ++i)
      EXPECT_EQ(y.data<float>()[i], std::min(0.5F, std::max(-0.5F, x.data<float>()[i])));
  }
  EXPECT_THROW(clipped(uniform({2, 3}, 1), 0), Error);
}

// The gate is cut off above alone, the values at both ends, and they gain 1.
TEST(LimitedGateGradient, IsTheDifference) {
  for (const Shape& shape : {Shape{1, 2}, Shape{3, 10}, Shape{5, 34}}) {
    Tensor x = uniform(shape, 1, -1, 1);
    for (int64_t i = 0; i < x.count(); ++i)
      if (float& v = x.mutable_data<float>()[i]; std::abs(std::abs(v) - 0.5F) < 0.05F) v *= 0.8F;
    expect_gradients([](const Tensors& in) { return Tensors{limited_gate(in[0], 0.5F)}; }, {x},
                     {.h = 0.01, .roundings = 4});
    const Tensor y = limited_gate(x, 0.5F);
    for (int64_t i = 0; i < x.count(); ++i) {
      const float v = x.data<float>()[i], below = std::min(0.5F, v);
      EXPECT_EQ(y.data<float>()[i], i % x.width() < x.width() / 2 ? below : std::max(-0.5F, below) + 1);
    }
  }
  EXPECT_THROW(limited_gate(uniform({2, 4}, 1), 0), Error);
  EXPECT_THROW(limited_gate(uniform({2, 3}, 1), 1), Error);
}

TEST(XieluGradient, IsTheDifference) {
  for (const Shape& shape : kShapes) {
    Tensor x = uniform(shape, 1, -2, 2);
    for (int64_t i = 0; i < x.count(); ++i)  // the second derivative jumps at 0
      if (float& v = x.mutable_data<float>()[i]; std::abs(v) < 0.05F) v += 0.2F;
    testing::Check check{.h = 0.01, .fifth = 10, .roundings = 16, .bf16_roundings = 4};
    check.keep_f32 = {1, 2};
    expect_gradients([](const Tensors& in) { return Tensors{xielu(in[0], in[1], in[2])}; },
                     {x, uniform({1}, 2, -1, 1), uniform({1}, 3, -1, 1)}, check);
  }
  const Tensor alpha = Tensor::of({1}, std::vector<float>{0});
  EXPECT_THROW(xielu(uniform({2, 3}, 1), alpha, uniform({2}, 1)), Error);
  EXPECT_THROW(xielu(uniform({2, 3}, 1), {}, alpha), Error);
}

TEST(Xielu, IsItsFormula) {
  const Tensor x = Tensor::of({1, 4}, std::vector<float>{-3, -0.5F, 0, 2}),
               y = xielu(x, Tensor::of({1}, std::vector<float>{kXieluAbove}),
                         Tensor::of({1}, std::vector<float>{kXieluBelow}));
  const auto expected = [](double v) {
    return v > 0 ? 0.8 * v * v + 0.5 * v : 0.8 * (std::expm1(v) - v) + 0.5 * v;
  };
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y.data<float>()[i], expected(x.data<float>()[i]), 1e-5);
}

// x + x: both gradients arrive at the same leaf.
TEST(AddGradient, OfATensorToItselfIsTwo) {
  expect_gradients([](const Tensors& in) { return Tensors{add(in[0], in[0])}; }, {uniform({3, 17}, 1)},
                   {.h = 0.5, .roundings = 4});
}

TEST(ConvertGradient, IsConvertedBack) {
  for (const Shape& shape : kShapes) {
    Tensor x = uniform(shape, 1);
    const auto leaf = make_leaf(x, Tensor::zeros(shape, DType::f32));
    const Tensor y = convert(x, DType::bf16), z = convert(y, DType::f32);
    const Tensor r = uniform(shape, 2);
    const Seed seed{z, r};
    backward(std::span(&seed, 1));
    for (int64_t i = 0; i < x.count(); ++i) {
      EXPECT_EQ(z.data<float>()[i], static_cast<float>(BFloat16(x.data<float>()[i])));
      EXPECT_EQ(leaf->grad.data<float>()[i], static_cast<float>(BFloat16(r.data<float>()[i])));
    }
  }
}

TEST(DropoutGradient, IsTheDifference) {
  for (const float p : {0.0F, 0.1F, 0.5F, 0.9F})
    for (const Shape& shape : kShapes)
      expect_gradients([&](const Tensors& in) { return Tensors{dropout(in[0], dropping(p))}; },
                       {uniform(shape, 1)}, {.h = 0.5, .roundings = 4});
}

TEST(Dropout, DropsItsShareAndDependsOnTheGlobalRowOnly) {
  const Tensor x = uniform({300, 65}, 1, 1, 1);
  const Tensor y = dropout(x, dropping(0.3F));
  int64_t dropped = 0;
  for (const float v : y.values<float>()) {
    if (v == 0)
      ++dropped;
    else
      EXPECT_FLOAT_EQ(v, 1 / 0.7F);
  }
  // A binomial number: 5 standard deviations.
  EXPECT_NEAR(static_cast<double>(dropped), 0.3 * 19500, 5 * std::sqrt(0.3 * 0.7 * 19500));
  Dropout later = dropping(0.3F);
  later.first_row += 100;
  const Tensor part = dropout(x.slice_rows(100, 300), later);
  EXPECT_EQ(std::memcmp(part.raw(), y.slice_rows(100, 300).raw(), part.bytes()), 0);
}

// x of width D, so that rows are not nearly constant: the derivatives grow with powers of 1 / deviation.
Check norm_check() {
  // Rows spread over [-1, 1] have a deviation of at least 0.3 with epsilon below; the fifth derivative of
  // (x - mean) / deviation is then at most about 5! 0.3^-5 / 5 = 1e4, at h = 2^-7: 1.2e-6.
  return {.h = 0x1p-7, .fifth = 1e4, .roundings = 12, .bf16_roundings = 4, .keep_f32 = {1, 2}};
}
constexpr float kEpsilon = 0.1F;

TEST(ResidualNormGradient, WithoutBranchIsTheDifference) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.text());
    const Tensors in = {uniform(shape, 1), uniform({shape[1]}, 2, 0.5, 1.5), uniform({shape[1]}, 3)};
    const auto op = [](const Tensors& in) {
      const ResidualNormResult r = residual_norm(in[0], {}, {}, in[1], in[2], kEpsilon);
      return Tensors{r.sum, r.normalized};
    };
    expect_gradients(op, in, norm_check());
    // Each output on its own.
    expect_gradients([&](const Tensors& in) { return Tensors{op(in)[1]}; }, in, norm_check());
  }
}

TEST(ResidualNormGradient, WithBranchAndDropoutIsTheDifference) {
  for (const float p : {0.0F, 0.25F})
    for (const Shape& shape : kShapes) {
      SCOPED_TRACE(shape.text());
      const Tensors in = {uniform(shape, 1), uniform({shape[1]}, 2, 0.5, 1.5), uniform({shape[1]}, 3),
                          uniform(shape, 4)};
      const auto op = [&](const Tensors& in) {
        const ResidualNormResult r = residual_norm(in[0], in[3], dropping(p), in[1], in[2], kEpsilon);
        return Tensors{r.sum, r.normalized};
      };
      expect_gradients(op, in, norm_check());
      expect_gradients([&](const Tensors& in) { return Tensors{op(in)[1]}; }, in, norm_check());
    }
}

// Without beta: x / sqrt(mean(x^2) + epsilon) gamma. Rows that are all 0 but for epsilon have the largest
// derivatives, as above.
TEST(ResidualNormGradient, OfRmsNormIsTheDifference) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(shape.text());
    const Tensors in = {uniform(shape, 1), uniform({shape[1]}, 2, 0.5, 1.5), uniform(shape, 4)};
    const auto op = [](const Tensors& in) {
      const ResidualNormResult r = residual_norm(in[0], in[2], dropping(0.25F), in[1], {}, kEpsilon);
      return Tensors{r.sum, r.normalized};
    };
    Check check = norm_check();
    check.keep_f32 = {1};
    expect_gradients(op, in, check);
    const Tensor y = residual_norm(in[0], {}, {}, in[1], {}, kEpsilon).normalized;
    for (int64_t r = 0; r < shape[0]; ++r) {
      const float* x = in[0].data<float>() + r * shape[1];
      double squares = 0;
      for (int64_t c = 0; c < shape[1]; ++c) squares += double{x[c]} * x[c] / static_cast<double>(shape[1]);
      for (int64_t c = 0; c < shape[1]; ++c)
        EXPECT_NEAR(y.data<float>()[r * shape[1] + c],
                    x[c] / std::sqrt(squares + double{kEpsilon}) * in[1].data<float>()[c], 2e-6);
    }
  }
}

// The sum alone is used: the norm's weights get nothing, x and the branch what an addition gives them.
TEST(ResidualNormGradient, OfTheSumAloneIsThatOfAnAddition) {
  const Tensors in = {uniform({5, 17}, 1), uniform({17}, 2), uniform({17}, 3), uniform({5, 17}, 4)};
  const auto e = testing::evaluate(
      [](const Tensors& in) { return Tensors{residual_norm(in[0], in[3], {}, in[1], in[2], 1e-5F).sum}; }, in,
      DType::f32, {});
  const auto r = testing::floats(testing::functional(e.outputs, false)[0]);
  EXPECT_EQ(e.gradients[0], r);
  EXPECT_EQ(e.gradients[3], r);
  EXPECT_EQ(e.gradients[1], std::vector<float>(17));
  EXPECT_EQ(e.gradients[2], std::vector<float>(17));
}

}  // namespace
}  // namespace qkv::elementwise_test
