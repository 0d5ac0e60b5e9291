// Gradients of the ops with weights: linear, of low rank, embedding, unembedding with the loss.
// Covers: qkv/ops/cross_entropy.cc, qkv/ops/embedding.cc, qkv/ops/linear.cc, qkv/ops/low_rank.cc
#include "qkv/ops/cross_entropy.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/low_rank.h"
#include "tests/gradient/gradient_check.h"

namespace qkv::products_test {
namespace {

using testing::Check;
using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

struct Sizes {
  int64_t rows, in, out;
};
const Sizes kSizes[] = {{1, 1, 1},   {1, 3, 17},  {3, 17, 1},  {17, 1, 3},
                        {17, 65, 3}, {65, 3, 65}, {3, 65, 17}, {65, 17, 65}};

// Bilinear: no error of the formula. A sum of k terms below 1 rounds k times in the worst order, sqrt(k) as a
// rule.
Check bilinear(int64_t terms) {
  return {.h = 0.5, .roundings = 4 + 2 * std::sqrt(static_cast<double>(terms)), .bf16_roundings = 2};
}

TEST(LinearGradient, WithoutBiasIsTheDifference) {
  for (const auto& [rows, in, out] : kSizes)
    expect_gradients([](const Tensors& t) { return Tensors{linear(t[0], t[1], {})}; },
                     {uniform({rows, in}, 1), uniform({out, in}, 2)}, bilinear(std::max({rows, in, out})));
}

TEST(LinearGradient, WithBiasIsTheDifference) {
  for (const auto& [rows, in, out] : kSizes) {
    Check check = bilinear(std::max({rows, in, out}));
    check.keep_f32 = {2};
    expect_gradients([](const Tensors& t) { return Tensors{linear(t[0], t[1], t[2])}; },
                     {uniform({rows, in}, 1), uniform({out, in}, 2), uniform({out}, 3)}, check);
  }
}

// Sums of bf16 products with f32 outputs: the gradient is in f32, too.
TEST(LinearGradient, OfF32OutputsIsTheDifference) {
  for (const auto& [rows, in, out] : kSizes)
    expect_gradients([](const Tensors& t) { return Tensors{linear(t[0], t[1], {}, DType::f32)}; },
                     {uniform({rows, in}, 1), uniform({out, in}, 2)}, bilinear(std::max({rows, in, out})));
}

// Several uses of x: a product adds to the gradient of an earlier use, and to that of x itself when nothing
// else shares it.
TEST(LinearGradient, OfSeveralUsesIsTheirSum) {
  for (const auto& [rows, in, out] : kSizes) {
    Check check = bilinear(std::max({rows, in, out}));
    check.bf16_roundings = 4;
    check.bf16 = rows * in > 16;  // in a few elements most may cancel
    expect_gradients(
        [](const Tensors& t) {
          const Tensor y = linear(t[0], t[1], {}), z = linear(t[0], t[2], {});
          return Tensors{y, z, linear(t[0], t[1], {})};
        },
        {uniform({rows, in}, 1), uniform({out, in}, 2), uniform({out + 2, in}, 3)}, check);
    expect_gradients([](const Tensors& t) { return Tensors{add(linear(t[0], t[1], {}), t[0])}; },
                     {uniform({rows, in}, 1), uniform({in, in}, 2)}, check);
    expect_gradients([](const Tensors& t) { return Tensors{add(t[0], linear(t[0], t[1], {}))}; },
                     {uniform({rows, in}, 1), uniform({in, in}, 2)}, check);
  }
}

// Trilinear. Any rank; the columns may be part of a product that also reads x.
TEST(LowRankGradient, IsTheDifference) {
  for (const auto& [rows, in, out] : kSizes)
    for (const int64_t rank : {1, 8, 17}) {
      Check check{.fifth = 0,
                  .roundings = 8 + 4 * std::sqrt(static_cast<double>(std::max({rows, in, out, rank}))),
                  .bf16_roundings = 8};
      check.h = 0.5;
      expect_gradients(
          [](const Tensors& t) {
            return Tensors{add_low_rank(linear(t[0], t[1], {}), t[0], t[2], t[3], 0.5F, 2)};
          },
          {uniform({rows, in}, 1), uniform({out + 3, in}, 2), uniform({rank, in}, 3),
           uniform({out, rank}, 4)},
          check);
    }
}

// Ops that read y as a table give its gradient in f32.
TEST(LowRankGradient, OfF32IsThatOfItsOwnType) {
  const auto gradients = [](DType of_y) {
    std::vector<std::shared_ptr<Leaf>> leaves;
    const auto leaf = [&](Shape shape, uint64_t seed) {
      Tensor x = convert(uniform(shape, seed), DType::bf16);
      leaves.push_back(make_leaf(x, Tensor::zeros(shape, DType::f32)));
      return x;
    };
    const Tensor x = leaf({5, 7}, 1), w = leaf({9, 7}, 2), a = leaf({3, 7}, 3), b = leaf({4, 3}, 4);
    const Tensor y = add_low_rank(linear(x, w, {}), x, a, b, 2, 3);
    const Seed seed{y, convert(convert(uniform({5, 9}, 5), DType::bf16), of_y)};
    backward(std::span(&seed, 1));
    std::vector<std::vector<float>> out;
    for (const auto& l : leaves) out.push_back(testing::floats(l->grad));
    return out;
  };
  EXPECT_EQ(gradients(DType::f32), gradients(DType::bf16));
}

TEST(LowRank, IsTheProductOfItsMatrices) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const auto of = [&](Shape shape, uint64_t seed) { return convert(uniform(shape, seed), type); };
    const Tensor x = of({5, 7}, 1), a = of({3, 7}, 2), b = of({4, 3}, 3), before = of({5, 9}, 4);
    const Tensor y = convert(add_low_rank(of({5, 9}, 4), x, a, b, 2, 3), DType::f32);
    const auto at = [](const Tensor& t, int64_t r, int64_t c) {
      return static_cast<double>(convert(t, DType::f32).data<float>()[r * t.width() + c]);
    };
    for (int64_t r = 0; r < 5; ++r)
      for (int64_t c = 0; c < 9; ++c) {
        double want = at(before, r, c);
        for (int64_t j = 0; j < 3 && c >= 3 && c < 7; ++j)
          for (int64_t i = 0; i < 7; ++i) want += 2 * at(x, r, i) * at(a, j, i) * at(b, c - 3, j);
        EXPECT_NEAR(y.data<float>()[r * 9 + c], want, type == DType::f32 ? 1e-5 : 0.06) << r << " " << c;
      }
  }
}

// The loss includes the cap of the logits.
TEST(CrossEntropyGradient, OfCappedLogitsIsTheDifference) {
  const Indices targets({3, -100, 0, 16, 7});
  const Tensor x = uniform({5, 9}, 1, -2, 2), w = uniform({17, 9}, 2, -2, 2);
  const auto loss = [&](const Tensors& t, const LossTerms& terms) {
    return unembed_cross_entropy(t[0], t[1], {}, targets, 0.25F, terms, 1.5F);
  };
  for (const LossTerms& terms : {LossTerms{}, LossTerms{0.1F, 1e-2F}})
    expect_gradients([&](const Tensors& t) { return Tensors{loss(t, terms).loss}; }, {x, w},
                     {.fifth = 100, .roundings = 30, .bf16_roundings = 8, .root = true});
  // By the definition.
  const NoGrad guard;
  const Tensor z = linear(x, w, {});
  double want = 0;
  for (int64_t r = 0; r < 5; ++r) {
    const int32_t target = targets[r];
    if (target < 0) continue;
    double sum = 0;
    const auto capped = [&](int64_t i) { return 1.5 * std::tanh(z.data<float>()[r * 17 + i] / 1.5); };
    for (int64_t i = 0; i < 17; ++i) sum += std::exp(capped(i));
    want += std::log(sum) - capped(target);
  }
  EXPECT_NEAR(loss({x, w}, {}).total, want, 1e-5);
}

// Outputs declared idle keep a bias gradient of 0; the others are unchanged.
TEST(LinearGradient, IdleBiasHasNone) {
  const Tensor x = uniform({5, 3}, 1), w = uniform({17, 3}, 2), r = uniform({5, 17}, 4);
  Tensor bias = uniform({17}, 3), other = bias.clone();
  const auto idle = make_leaf(bias, Tensor::zeros({17}, DType::f32)),
             whole = make_leaf(other, Tensor::zeros({17}, DType::f32));
  const auto pass = [&](const Tensor& y) {
    const Seed seed{y, r};
    backward(std::span(&seed, 1));
  };
  pass(linear(x, w, bias, IdleBias{4, 11}));
  pass(linear(x, w, other));
  for (int64_t i = 0; i < 17; ++i)
    EXPECT_EQ(idle->grad.data<float>()[i], i >= 4 && i < 11 ? 0 : whole->grad.data<float>()[i]);
  EXPECT_THROW(linear(x, w, bias, IdleBias{4, 18}), Error);
}

// Two uses of the same weight, and two backward passes: the leaf adds up the gradients.
TEST(LinearGradient, AddsUpOverUsesAndPasses) {
  const Tensor x = uniform({5, 17}, 1);
  Tensor w = uniform({17, 17}, 2);
  const auto leaf = make_leaf(w, Tensor::zeros({17, 17}, DType::f32));
  const Tensor r = uniform({5, 17}, 3);
  const auto pass = [&](const Tensor& y) {
    const Seed seed{y, r};
    backward(std::span(&seed, 1));
  };
  pass(linear(x, w, {}));
  const auto once = testing::floats(leaf->grad);
  pass(linear(x, w, {}));
  for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(leaf->grad.data<float>()[i], 2 * once[i], 1e-5);
  leaf->fresh = true;  // the next write overwrites
  pass(linear(x, w, {}));
  EXPECT_EQ(testing::floats(leaf->grad), once);
  expect_gradients([](const Tensors& t) { return Tensors{linear(linear(t[0], t[1], {}), t[1], {})}; },
                   {x, uniform({17, 17}, 2)},
                   // quadratic in the weight, so that the formula is still exact; larger values inside
                   {.h = 0.25, .roundings = 60, .bf16_roundings = 6});
}

TEST(EmbeddingGradient, WithRepeatedIdsIsTheDifference) {
  for (const int64_t width : {1, 3, 17, 65}) {
    const std::vector<int32_t> ids = {2, 0, 2, 2, 4, 0, 2};  // 1 and 3 never occur
    const Indices id = ids;
    // bf16: gradients of four rows rounded each.
    expect_gradients([&](const Tensors& t) { return Tensors{embedding(id, t[0], "token id")}; },
                     {uniform({5, width}, 1)}, {.h = 0.5, .roundings = 8, .bf16_roundings = 4});
  }
}

TEST(EmbeddingGradient, OfOneIdInManyRows) {
  const std::vector<int32_t> ids(65, 1);
  const Indices id = ids;
  expect_gradients([&](const Tensors& t) { return Tensors{embedding(id, t[0], "token id")}; },
                   {uniform({3, 17}, 1)}, {.h = 0.5, .roundings = 30, .bf16 = false});
}

std::vector<int32_t> targets_for(int64_t rows, int64_t vocab, bool ignored) {
  std::vector<int32_t> t;
  for (int64_t i = 0; i < rows; ++i)
    t.push_back(ignored && i % 3 == 1 ? kIgnored : static_cast<int32_t>((i * 7 + 2) % vocab));
  return t;
}

TEST(CrossEntropyGradient, IsTheDifference) {
  for (const bool ignored : {false, true})
    for (const auto& [rows, width, vocab] : kSizes) {
      SCOPED_TRACE(::testing::Message() << rows << " " << width << " " << vocab << " " << ignored);
      const Indices targets = targets_for(rows, vocab, ignored);
      const float scale = 1 / static_cast<float>(rows);
      // Logits have slopes |x|, |w| <= 1, and the fifth derivative of log-sum-exp is a fifth cumulant of
      // numbers in [-1, 1]: at most 16.
      expect_gradients(
          [&](const Tensors& t) {
            return Tensors{unembed_cross_entropy(t[0], t[1], {}, targets, scale).loss};
          },
          {uniform({rows, width}, 1), uniform({vocab, width}, 2)},
          {.fifth = 16, .roundings = 6, .bf16_roundings = 4, .root = true});
    }
}

TEST(CrossEntropyGradient, WithBiasIsTheDifference) {
  for (const auto& [rows, width, vocab] : kSizes) {
    const Indices targets = targets_for(rows, vocab, true);
    const float scale = 1 / static_cast<float>(rows);
    expect_gradients(
        [&](const Tensors& t) {
          return Tensors{unembed_cross_entropy(t[0], t[1], t[2], targets, scale).loss};
        },
        {uniform({rows, width}, 1), uniform({vocab, width}, 2), uniform({vocab}, 3)},
        {.fifth = 16, .roundings = 6, .bf16_roundings = 4, .root = true, .keep_f32 = {2}});
  }
}

TEST(CrossEntropyGradient, WithLabelSmoothingAndZLossIsTheDifference) {
  for (const LossTerms terms : {LossTerms{0.2F, 0}, LossTerms{0, 0.05F}, LossTerms{0.1F, 0.02F}})
    for (const auto& [rows, width, vocab] : kSizes) {
      const Indices targets = targets_for(rows, vocab, true);
      const float scale = 1 / static_cast<float>(rows);
      // log(Z)^2 adds derivatives of at most a few tens times the coefficient for these logits.
      expect_gradients(
          [&](const Tensors& t) {
            return Tensors{unembed_cross_entropy(t[0], t[1], {}, targets, scale, terms).loss};
          },
          {uniform({rows, width}, 1), uniform({vocab, width}, 2)},
          {.fifth = 64, .roundings = 16, .bf16_roundings = 6, .root = true});
    }
}

// The definition, term by term: a cross-entropy with a smoothed target, and the square of log Z.
TEST(CrossEntropy, LabelSmoothingAndZLossAreTheirDefinition) {
  constexpr double kSmoothing = 0.15, kZ = 0.03;
  const Tensor x = uniform({7, 5}, 1), w = uniform({11, 5}, 2);
  const Indices targets = targets_for(7, 11, false);
  const CrossEntropyResult r = unembed_cross_entropy(x, w, {}, targets, 1, {kSmoothing, kZ});
  for (int i = 0; i < 7; ++i) {
    std::vector<double> z(11);
    double sum = 0;
    for (int v = 0; v < 11; ++v) {
      for (int c = 0; c < 5; ++c)
        z[v] += double{x.data<float>()[i * 5 + c]} * double{w.data<float>()[v * 5 + c]};
      sum += std::exp(z[v]);
    }
    double loss = kZ * std::log(sum) * std::log(sum);
    for (int v = 0; v < 11; ++v) {
      const double q = kSmoothing / 11 + (v == targets[i] ? 1 - kSmoothing : 0);
      loss -= q * (z[v] - std::log(sum));
    }
    EXPECT_NEAR(r.token_losses.data<float>()[i], loss, 64 * testing::kUnit);
  }
}

TEST(CrossEntropy, CountsAndSumsWhatIsNotIgnored) {
  const Tensor x = uniform({17, 5}, 1), w = uniform({11, 5}, 2);
  const Indices targets = targets_for(17, 11, true);
  const CrossEntropyResult r = unembed_cross_entropy(x, w, {}, targets, 0.5F);
  EXPECT_EQ(r.count, 11);
  double total = 0;
  for (int i = 0; i < 17; ++i) {
    double sum = 0, target = 0;
    for (int v = 0; v < 11; ++v) {
      double z = 0;
      for (int c = 0; c < 5; ++c)
        z += double{x.data<float>()[i * 5 + c]} * double{w.data<float>()[v * 5 + c]};
      sum += std::exp(z);
      if (v == targets[i]) target = z;
    }
    const double loss = i % 3 == 1 ? 0 : std::log(sum) - target;
    EXPECT_NEAR(r.token_losses.data<float>()[i], loss, 32 * testing::kUnit);
    total += loss;
  }
  EXPECT_NEAR(r.total, total, 17 * 32 * testing::kUnit);
  EXPECT_FLOAT_EQ(r.loss.item(), static_cast<float>(r.total * 0.5));
}

TEST(CrossEntropy, AllIgnoredGivesZeroLossAndGradient) {
  const Indices targets(std::vector<int32_t>(3, kIgnored));
  const auto e = testing::evaluate(
      [&](const Tensors& t) { return Tensors{unembed_cross_entropy(t[0], t[1], {}, targets, 1).loss}; },
      {uniform({3, 17}, 1), uniform({65, 17}, 2)}, DType::f32, {.root = true});
  EXPECT_EQ(e.outputs[0].item(), 0);
  for (const auto& g : e.gradients) EXPECT_EQ(testing::largest_of(g), 0);
}

// A vocabulary whose logits take several chunks: each row alone gives the same loss, and the gradients add
// up.
TEST(CrossEntropy, ChunksEqualTheWhole) {
  const int64_t rows = 150, vocab = 200'003, width = 3;  // 16777216 / 200003 -> 80 rows a chunk
  const Tensor x = uniform({rows, width}, 1), w = uniform({vocab, width}, 2);
  const auto target_values = targets_for(rows, vocab, true);
  const auto run = [&](int64_t begin, int64_t end) {
    const Indices targets =
        Indices(std::vector<int32_t>(target_values.begin() + begin, target_values.begin() + end));
    return testing::evaluate(
        [&](const Tensors& t) { return Tensors{unembed_cross_entropy(t[0], t[1], {}, targets, 1).loss}; },
        {x.slice_rows(begin, end), w}, DType::f32, {.root = true});
  };
  const auto whole = run(0, rows), first = run(0, 64), second = run(64, rows);
  std::vector<float> dx = first.gradients[0], dw = first.gradients[1];
  dx.insert(dx.end(), second.gradients[0].begin(), second.gradients[0].end());
  for (size_t i = 0; i < dw.size(); ++i) dw[i] += second.gradients[1][i];
  testing::expect_near(whole.gradients[0], dx, 64 * testing::kUnit, "dx");
  testing::expect_near(whole.gradients[1], dw, 64 * testing::kUnit, "dw");
  EXPECT_NEAR(whole.outputs[0].item(), double{first.outputs[0].item()} + second.outputs[0].item(),
              1200 * 4 * testing::kUnit);
}

}  // namespace
}  // namespace qkv::products_test
