#include "qkv/trace/lens.h"

#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::lens_test {
namespace {

using testing::random_model;
using testing::sequence;

std::vector<ModelSpec> specs() {
  ModelSpec pre = gpt2_spec(11, 8, 12, 3, 3), rms = pre, plus_one = pre, side = pre, bare = pre, scaled = pre;
  rms.normalization = Normalization::rms;
  rms.tied = false;
  plus_one.normalization = Normalization::rms_plus_one;
  plus_one.logit_multiplier = 0.5F;
  side.branches = Branches::one_norm;
  bare.norm_placement = NormPlacement::none;
  bare.unembedding_bias = true;
  scaled.residual_multiplier = 0.25F;
  scaled.unembedding_scaled = true;
  return {pre, rms, plus_one, side, bare, scaled};
}

TEST(Lens, TheLastLayerIsTheModel) {
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 1);
    const NoGrad guard;
    const Tensor logits = model->logits(model->hidden(input, {}));
    const std::vector<Tensor> lens = logit_lens(*model, input);
    ASSERT_EQ(std::ssize(lens), spec.layers + 1);
    for (int64_t i = 0; i < logits.count(); ++i)
      EXPECT_NEAR(lens.back().values<float>()[i], logits.values<float>()[i], 1e-4);
    EXPECT_GT(std::abs(lens.front().values<float>()[0] - logits.values<float>()[0]), 1e-4);
  }
}

TEST(Contributions, SumToTheLogit) {
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 2);
    // Biases and norms with something to say.
    for (Parameter& p : model->parameters().all())
      if (p.shape.rank() == 1)
        for (float i = 1; float& x : p.value.mutable_values<float>()) x += 0.3F * std::sin(i++);
    const NoGrad guard;
    const Tensor logits = model->logits(model->hidden(input, {}));
    for (const int64_t row : {0, 4})
      for (const int64_t token : {0, 7, 10}) {
        const std::vector<Contribution> parts = contributions_to(*model, input, row, token);
        double sum = 0;
        for (const Contribution& part : parts) sum += part.value;
        EXPECT_NEAR(sum, logits.row<float>(row)[token], 2e-4);
        EXPECT_EQ(parts.front().name, "decoder.embedding");
        EXPECT_EQ(parts.back().name, "bias");
        EXPECT_EQ(std::ssize(parts), 8);
      }
  }
}

TEST(Contributions, OtherModelsAreRefused) {
  const ModelInput input = sequence({3, 1});
  ModelSpec post = gpt2_spec(11, 8, 12, 1, 3), capped = post, recurrent = post;
  post.norm_placement = NormPlacement::post;
  capped.logit_cap = 30;
  testing::expect_error([&] { contributions_to(*random_model(post, 1), input, 0, 0); }, {"post"});
  testing::expect_error([&] { contributions_to(*random_model(capped, 1), input, 0, 0); }, {"products"});
  const auto model = random_model(gpt2_spec(11, 8, 12, 1, 3), 1);
  testing::expect_error([&] { contributions_to(*model, input, 2, 0); }, {"row 2 of 2"});
  testing::expect_error([&] { contributions_to(*model, input, 0, 11); }, {"token 11 of 11"});
}

}  // namespace
}  // namespace qkv::lens_test
