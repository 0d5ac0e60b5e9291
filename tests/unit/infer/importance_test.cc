// Means of squared activations against the activations themselves.
#include "qkv/infer/importance.h"

#include <gtest/gtest.h>

#include "qkv/autograd/graph.h"
#include "qkv/ops/weight_product.h"
#include "tests/unit/expect_error.h"

namespace qkv::importance_test {
namespace {

using Tokens = std::vector<int32_t>;

size_t place_of(const Transformer& model, const std::string& end) {
  size_t i = 0;
  for (const Parameter& p : model.parameters().all()) {
    if (p.name.ends_with(end)) return i;
    ++i;
  }
  ADD_FAILURE() << "no parameter " << end;
  return 0;
}

// The unembedding meets the hidden states: theirs are the only activations that are known from outside.
TEST(Importance, OfTheUnembeddingIsTheMeanSquareOfTheHiddenStates) {
  const NoGrad guard;
  ModelSpec spec = gpt2_spec(29, 40, 16, 2, 4);
  spec.init_std = 0.5F;
  Transformer model(spec);
  model.parameters().draw(3, DType::f32);
  const std::vector<Tokens> windows = {{1, 5, 28, 3, 3, 0, 7}, {2, 9}, {4, 4, 4, 11}};
  size_t calls = 0;
  const Calibration got = calibrate(model, windows, [&](size_t i) { EXPECT_EQ(i, calls++); });
  EXPECT_EQ(calls, windows.size());
  std::vector<double> want(16);
  double rows = 0;
  for (const Tokens& window : windows) {
    const Tokens inputs(window.begin(), window.end() - 1);
    const Tensor x = model.hidden({inputs, Layout::of({static_cast<int32_t>(inputs.size())})}, {});
    for (int64_t r = 0; r < x.dim(0); ++r, ++rows)
      for (int64_t c = 0; c < 16; ++c)
        want[c] += static_cast<double>(x.row<float>(r)[c]) * x.row<float>(r)[c];
  }
  const std::vector<ColumnImportance>& tied = got.importance.at(place_of(model, "embedding.token"));
  ASSERT_EQ(tied.size(), 1U);
  EXPECT_EQ(tied[0].first_row, 0);
  EXPECT_EQ(tied[0].rows, 29);
  ASSERT_EQ(tied[0].columns.size(), 16U);
  for (int64_t c = 0; c < 16; ++c) EXPECT_NEAR(tied[0].columns[c], want[c] / rows, 1e-4 * want[c]);
  size_t seen = 0, i = 0;
  for (const Parameter& p : model.parameters().all()) {
    EXPECT_EQ(!got.importance[i].empty(), p.any_type && p.name.find("position") == std::string::npos)
        << p.name;
    seen += got.importance[i++].empty() ? 0 : 1;
  }
  EXPECT_EQ(seen, 9);  // 4 of each layer, and the embedding
  EXPECT_NEAR(got.loss, std::log(29), 3);
}

TEST(ActivationWatch, IsOneAtATime) {
  const auto ignore = [](const Weight&, const MatrixView&, int64_t, int64_t) {};
  const ActivationWatch watch(ignore);
  testing::expect_error([&] { const ActivationWatch second(ignore); }, {"activations", "already"});
}

}  // namespace
}  // namespace qkv::importance_test
