#include "qkv/trace/tuned_lens.h"

#include "qkv/trace/lens.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::tuned_lens_test {
namespace {

using testing::random_model;
using testing::sequence;

// The mean over rows of KL(p | q) by layers.
std::vector<double> divergences(const Tensor& target, const std::vector<Tensor>& layers) {
  std::vector<double> out;
  for (const Tensor& logits : layers) {
    out.push_back(0);
    for (int64_t r = 0; r < logits.rows(); ++r) {
      const auto a = target.row<float>(r), b = logits.row<float>(r);
      double sum_a = 0, sum_b = 0;
      for (size_t v = 0; v < a.size(); ++v) {
        sum_a += std::exp(double{a[v]});
        sum_b += std::exp(double{b[v]});
      }
      for (size_t v = 0; v < a.size(); ++v)
        out.back() += std::exp(a[v]) / sum_a * (a[v] - std::log(sum_a) - b[v] + std::log(sum_b)) /
                      static_cast<double>(logits.rows());
    }
  }
  return out;
}

TEST(TunedLens, FitsTheModelsAnswers) {
  const ModelSpec spec = gpt2_spec(11, 8, 12, 2, 3);
  const auto model = random_model(spec, 1);
  const ModelInput input = sequence({3, 1, 4, 1, 5}), other = sequence({2, 7, 1, 8});
  TunedLens lens(spec);
  const auto before = lens.logits(*model, input), plain = logit_lens(*model, input);
  ASSERT_EQ(before.size(), 3U);
  for (size_t l = 0; l < before.size(); ++l)
    for (int64_t i = 0; i < before[l].count(); ++i)
      ASSERT_NEAR(before[l].values<float>()[i], plain[l].values<float>()[i], 1e-5);
  const std::vector<double> first = divergences(plain.back(), plain);
  EXPECT_NEAR(lens.fit(*model, input, 5, 0.02), (first[0] + first[1]) / 2, 1e-4);
  for (int i = 0; i < 200; ++i) {
    lens.fit(*model, input, 5, 0.02);
    lens.fit(*model, other, 2, 0.02);
  }
  const auto after = lens.logits(*model, input);
  const std::vector<double> left = divergences(plain.back(), after);
  EXPECT_LT(left[0], 0.1 * first[0]);
  EXPECT_LT(left[1], 0.1 * first[1]);
  EXPECT_NEAR(left[2], 0, 1e-6);  // the last layer is the model itself

  const testing::ScratchDir dir;
  const std::string path = dir.path() + "/lens.safetensors";
  lens.save(path);
  TunedLens again(spec);
  again.load(path);
  const auto loaded = again.logits(*model, input);
  for (size_t l = 0; l < after.size(); ++l)
    EXPECT_TRUE(std::equal(after[l].values<float>().begin(), after[l].values<float>().end(),
                           loaded[l].values<float>().begin()));
  const ModelSpec wider = gpt2_spec(11, 8, 15, 2, 3), deeper = gpt2_spec(11, 8, 12, 3, 3),
                  flatter = gpt2_spec(11, 8, 12, 1, 3);
  testing::expect_error([&] { TunedLens(wider).load(path); }, {"lens.0", "15]", "12]"});
  testing::expect_error([&] { TunedLens(deeper).load(path); }, {"lens.2"});
  testing::expect_error([&] { TunedLens(flatter).load(path); }, {"no map"});
}

}  // namespace
}  // namespace qkv::tuned_lens_test
