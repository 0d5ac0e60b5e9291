// Identities that the literature states of the pieces, each over random inputs.
// Covers: qkv/models/embedding.cc
#include <gtest/gtest.h>

#include <cmath>

#include "qkv/models/embedding.h"
#include "qkv/models/transformer.h"
#include "qkv/ops/embedding.h"
#include "qkv/ops/linear.h"

namespace qkv::properties_test {
namespace {

Tensor random(Shape shape, uint64_t seed) {
  Tensor x = Tensor::empty(shape, DType::f32);
  const RandomStream stream{seed, 0, 0};
  for (int64_t i = 0; i < x.count(); ++i)
    x.mutable_data<float>()[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return x;
}

// The table W_p of a formula, from tokens whose embeddings are 0: f32 [context, width].
Tensor positions_of(Positions positions, int64_t context, int64_t width, int64_t grid = 0) {
  ModelSpec s = gpt2_spec(1, context, width, 1, 1);
  s.positions = positions;
  s.grid = grid;
  Parameters parameters;
  Parameter& token = parameters.add("token", {1, width}, ParameterKind::matrix, {Initializer::Kind::zeros});
  const InputEmbedding embedding(parameters, "embedding", s, token);
  parameters.draw(1, DType::f32);
  Context all;
  all.layout = Layout::of({static_cast<int32_t>(context)});
  const NoGrad guard;
  return embedding.forward(Indices::zeros(context), {}, all, "decoder", 1);
}

constexpr Positions kSinusoids[] = {Positions::sinusoidal, Positions::sinusoidal_paper,
                                    Positions::sinusoidal_halves, Positions::sinusoidal_closed};

// In a grid the first columns tell the row as in one dimension, the others the column.
TEST(Sinusoids, AGridHasTwo) {
  const Tensor grid = positions_of(Positions::sinusoidal, 10, 12, 4),
               line = positions_of(Positions::sinusoidal, 10, 6);
  for (int64_t t = 0; t < 10; ++t)
    for (int64_t c = 0; c < 6; ++c) {
      EXPECT_EQ(grid.data<float>()[t * 12 + c], line.data<float>()[t / 4 * 6 + c]);
      EXPECT_EQ(grid.data<float>()[t * 12 + 6 + c], line.data<float>()[t % 4 * 6 + c]);
    }
}

// Vaswani et al. 2017, section 3.5: the encoding of t + k is a linear function of that of t, the same for all
// t. Here each pair of columns is turned by one angle.
TEST(Sinusoids, AShiftTurnsEachPair) {
  constexpr int64_t kContext = 40, kWidth = 12;
  for (const Positions positions : kSinusoids) {
    const Tensor table = positions_of(positions, kContext, kWidth);
    const bool halves =
        positions == Positions::sinusoidal_halves || positions == Positions::sinusoidal_closed;
    const auto at = [&](int64_t t, int64_t pair, bool cosine) {
      const int64_t column = halves ? pair + (cosine ? kWidth / 2 : 0) : 2 * pair + cosine;
      return double{table.data<float>()[t * kWidth + column]};
    };
    for (int64_t pair = 0; pair < kWidth / 2; ++pair)
      for (const int64_t k : {1, 5, 13}) {
        // From t = 0 the turn is known: sin(a + b), cos(a + b) by sin and cos of the difference.
        const double s = at(k, pair, false) * at(0, pair, true) - at(k, pair, true) * at(0, pair, false),
                     c = at(k, pair, true) * at(0, pair, true) + at(k, pair, false) * at(0, pair, false);
        for (int64_t t = 0; t + k < kContext; ++t) {
          EXPECT_NEAR(at(t + k, pair, false), at(t, pair, false) * c + at(t, pair, true) * s, 2e-5);
          EXPECT_NEAR(at(t + k, pair, true), at(t, pair, true) * c - at(t, pair, false) * s, 2e-5);
        }
      }
  }
}

// The inner product of two encodings is a function of their distance alone, so that weights which read it are
// a convolution over positions; it is largest at distance 0, where it is half the width.
TEST(Sinusoids, InnerProductsAreAConvolution) {
  constexpr int64_t kContext = 40, kWidth = 16;
  for (const Positions positions : kSinusoids) {
    const Tensor table = positions_of(positions, kContext, kWidth);
    const auto product = [&](int64_t a, int64_t b) {
      double sum = 0;
      for (int64_t c = 0; c < kWidth; ++c)
        sum += double{table.data<float>()[a * kWidth + c]} * table.data<float>()[b * kWidth + c];
      return sum;
    };
    for (int64_t d = 0; d < kContext; ++d)
      for (int64_t t = 0; t + d < kContext; ++t) {
        EXPECT_NEAR(product(t, t + d), product(0, d), 2e-5);
        EXPECT_LE(product(t, t + d), kWidth / 2 + 1e-5);
      }
    EXPECT_NEAR(product(7, 7), kWidth / 2, 1e-5);
  }
}

// Phuong & Hutter, Algorithm 1: the embedding is the product with a one-hot vector.
TEST(Embedding, IsTheProductWithOneHotRows) {
  const Tensor table = random({11, 7}, 5);
  Tensor transposed = Tensor::empty({7, 11}, DType::f32), rows = Tensor::zeros({4, 11}, DType::f32);
  for (int64_t i = 0; i < 11; ++i)
    for (int64_t c = 0; c < 7; ++c)
      transposed.mutable_data<float>()[c * 11 + i] = table.data<float>()[i * 7 + c];
  const std::vector<int32_t> ids = {3, 10, 0, 3};
  for (int64_t r = 0; r < 4; ++r) rows.mutable_data<float>()[r * 11 + ids[r]] = 1;
  const Tensor product = linear(rows, transposed, {}), looked = embedding(ids, table, "id");
  for (int64_t i = 0; i < looked.count(); ++i) EXPECT_EQ(product.data<float>()[i], looked.data<float>()[i]);
}

// Each query's probabilities sum to 1 under every mask and pattern: of values that are all 1 the output is 1;
// with a sink it is less.
TEST(Softmax, ColumnsSumToOne) {
  const std::vector<int32_t> offsets = {0, 70, 71};
  const Tensor x = random({71, 32}, 7);
  const Tensor ones = Tensor::of({71, 16}, std::vector<float>(71 * 16, 1.0F));
  for (const Mask& stack : {Mask::full(), Mask::causal()})
    for (const char* pattern : {"all", "window 3", "window 2 dilated 4", "stride 5",
                                "global 1 block 8 summary 1", "block 8 neighbours 1 ends random 1"})
      for (const float cap : {0.0F, 2.0F})
        for (const bool sink : {false, true}) {
          AttentionOptions options;
          options.mask = stack.with(pattern_from_text(pattern));
          options.scale = 0.5F;
          options.cap = cap;
          if (sink) options.sinks = Tensor::of({2}, std::vector<float>{0.5F, -1});
          const Tensor out = attention({x, 0, 2, 8}, {x, 16, 2, 8}, {ones, 0, 2, 8}, offsets,
                                       KeyLayout::contiguous(offsets), options);
          for (int64_t i = 0; i < out.count(); ++i) {
            const float sum = out.data<float>()[i];
            ASSERT_TRUE(sink ? sum < 1 : std::abs(sum - 1) < 1e-5F) << pattern << ": " << sum;
          }
        }
}

// A prefix LM's order is the causal one where the prefix is empty, or one token, and the full one where it is
// all.
TEST(PrefixOrder, LiesBetweenCausalAndFull) {
  ModelSpec decoder = gpt2_spec(11, 16, 12, 2, 3), prefix = decoder, encoder = decoder;
  prefix.order = Order::prefix;
  encoder.architecture = Architecture::encoder;
  const NoGrad guard;
  const std::vector<int32_t> lengths = {9, 1, 5};
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 15; ++i) ids.push_back((7 * i + 2) % 11);
  const auto hidden = [&](const ModelSpec& spec, const std::vector<int32_t>& prefixes) {
    Transformer model(spec);
    const RandomStream stream{4, 0, 0};
    uint64_t next = 0;  // the same weights in the order in which both stacks add them
    for (Parameter& p : model.parameters().all()) {
      std::vector<float> v(p.shape.count());
      for (float& e : v) e = 0.3F * static_cast<float>(stream.normal(next++));
      p.value = Tensor::of(p.shape, v);
    }
    ModelInput input{ids, Layout::of(lengths)};
    if (!prefixes.empty()) input.visibility = prefix_ranks(input.layout, prefixes);
    const Tensor x = model.hidden(input, {});
    return std::vector<float>(x.data<float>(), x.data<float>() + x.count());
  };
  const auto near = [](const std::vector<float>& a, const std::vector<float>& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); ++i) most = std::max(most, double{std::abs(a[i] - b[i])});
    return most < 1e-5;
  };
  const auto causal = hidden(decoder, {}), full = hidden(encoder, {});
  EXPECT_TRUE(near(hidden(prefix, {0, 0, 0}), causal));
  EXPECT_TRUE(near(hidden(prefix, {1, 1, 1}), causal));
  EXPECT_TRUE(near(hidden(prefix, {9, 1, 5}), full));
  EXPECT_FALSE(near(causal, full));
  const auto some = hidden(prefix, {4, 1, 3});
  EXPECT_FALSE(near(some, causal));
  EXPECT_FALSE(near(some, full));
}

}  // namespace
}  // namespace qkv::properties_test
