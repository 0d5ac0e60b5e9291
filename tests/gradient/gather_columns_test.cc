// Columns put into another order, with room between them.
#include "qkv/ops/gather_columns.h"

#include "tests/gradient/gradient_check.h"

namespace qkv::gather_columns_test {
namespace {

using testing::expect_gradients;
using testing::uniform;
using Tensors = std::vector<Tensor>;

std::shared_ptr<const ColumnMap> some_map() {
  return std::make_shared<ColumnMap>(ColumnMap{4, {3, -1, 0, -1, 2}, {1, 9, 2, 9, 0.5F}});
}

TEST(GatherColumns, TakesColumnsTimesTheirFactors) {
  const Tensor x = Tensor::of({2, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor y = gather_columns(x, some_map());
  const std::vector<float> want = {4, 0, 2, 0, 1.5F, 8, 0, 10, 0, 3.5F};
  ASSERT_EQ(y.shape(), (Shape{2, 5}));
  EXPECT_TRUE(std::equal(want.begin(), want.end(), y.data<float>()));
}

TEST(GatherColumnsGradient, IsTheDifference) {
  for (const int64_t rows : {0, 1, 3, 17})
    expect_gradients([](const Tensors& in) { return Tensors{gather_columns(in[0], some_map())}; },
                     {uniform({rows, 4}, 1)}, {.h = 1, .roundings = 4});
}

TEST(GatherColumns, RefusesWhatDoesNotFit) {
  EXPECT_THROW(gather_columns(uniform({3, 5}, 1), some_map()), Error);
  EXPECT_THROW(gather_columns(uniform({4}, 1), some_map()), Error);
  const auto beyond = std::make_shared<ColumnMap>(ColumnMap{4, {4}, {1}});
  EXPECT_THROW(gather_columns(uniform({3, 4}, 1), beyond), Error);
}

}  // namespace
}  // namespace qkv::gather_columns_test
