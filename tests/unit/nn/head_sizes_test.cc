// Heads of different sizes equal a model in which all are as wide as the widest, with zeros in the extra
// columns.
#include "qkv/nn/head_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "qkv/models/transformer.h"

namespace qkv::head_sizes_test {
namespace {

const std::vector<int64_t> kSizes = {2, 5, 3};
constexpr int64_t kWidest = 5;

ModelSpec translator(bool narrow) {
  ModelSpec s = bert_spec(11, 16, 12, 2, 3);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 1;
  s.segments = s.head_width = 0;
  s.init_std = 0.3F;
  s.attention.d_qk = s.attention.d_vo = kWidest;
  if (narrow) s.attention.head_sizes = kSizes;
  return s;
}

// Copies the rows of `from`, head by head, into `to`, which has room for the widest head.
void spread_rows(const Tensor& from, Tensor& to, int64_t parts) {
  std::fill(to.mutable_data<float>(), to.mutable_data<float>() + to.count(), 0.0F);
  const int64_t width = from.count() / from.dim(0);
  int64_t row = 0;
  for (int64_t block = 0; block < parts * 3; ++block)
    for (int64_t r = 0; r < kSizes[static_cast<size_t>(block % 3)]; ++r, ++row)
      std::copy_n(from.data<float>() + row * width, width,
                  to.mutable_data<float>() + (block * kWidest + r) * width);
  ASSERT_EQ(row, from.dim(0));
}

void spread_columns(const Tensor& from, Tensor& to) {
  std::fill(to.mutable_data<float>(), to.mutable_data<float>() + to.count(), 0.0F);
  for (int64_t r = 0; r < from.dim(0); ++r) {
    int64_t column = 0;
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t c = 0; c < kSizes[static_cast<size_t>(h)]; ++c, ++column)
        to.mutable_data<float>()[r * to.width() + h * kWidest + c] =
            from.data<float>()[r * from.width() + column];
  }
}

Tensor hidden(const Transformer& model) {
  const NoGrad guard;
  ModelInput input{Indices({1, 2, 3, 4, 1}), Layout::of({3, 2})};
  input.source = Indices({4, 5, 6, 7, 8, 9});
  input.source_layout = Layout::of({2, 4});
  return model.hidden(input, {});
}

TEST(HeadSizes, AreThoseOfTheWidestWithZeros) {
  for (const float scale : {0.0F, 0.3F}) {
    ModelSpec narrow = translator(true), wide = translator(false);
    narrow.attention.scale = wide.attention.scale = scale;
    Transformer model(narrow), other(wide);
    model.parameters().draw(3, DType::f32);
    other.parameters().draw(3, DType::f32);
    for (Parameter& p : other.parameters().all()) {
      const Parameter& from = *model.parameters().find(p.name);
      const auto ends = [&](const char* end) { return p.name.find(end) != std::string::npos; };
      if (ends("attention.qkv.")) {
        spread_rows(from.value, p.value, 3);
      } else if (ends("attention.kv.")) {
        spread_rows(from.value, p.value, 2);
      } else if (ends("attention.q.")) {
        spread_rows(from.value, p.value, 1);
      } else if (ends("attention.out.weight")) {
        spread_columns(from.value, p.value);
      } else {
        ASSERT_EQ(p.shape, from.shape) << p.name;
        p.value = from.value.clone();
      }
      // If scores are divided by the root of a head's size, the wide model's queries compensate for it.
      if (scale > 0 || !(ends("attention.qkv.") || ends("attention.q."))) continue;
      const int64_t width = p.value.count() / p.value.dim(0);
      for (int64_t h = 0; h < 3; ++h)
        for (int64_t i = h * kWidest * width; i < (h + 1) * kWidest * width; ++i)
          p.value.mutable_data<float>()[i] *=
              std::sqrt(static_cast<float>(kWidest) / static_cast<float>(kSizes[static_cast<size_t>(h)]));
    }
    const Tensor got = hidden(model), want = hidden(other);
    ASSERT_EQ(got.shape(), want.shape());
    for (int64_t i = 0; i < got.count(); ++i)
      EXPECT_NEAR(got.data<float>()[i], want.data<float>()[i], 2e-5) << scale << " " << i;
  }
}

}  // namespace
}  // namespace qkv::head_sizes_test
