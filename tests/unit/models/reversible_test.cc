// Two streams whose blocks keep nothing that they read: the same losses and gradients.
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"

namespace qkv::reversible_test {
namespace {

ModelSpec reformer() {
  ModelSpec spec = gpt2_spec(11, 64, 12, 5, 2);
  spec.branches = Branches::reversible;
  spec.tied = false;
  spec.init_std = 0.3F;
  spec.residual_dropout = spec.attention.dropout = 0.2F;
  spec.attention.shared_query_key = {0, 1};
  spec.attention.hashing = {.chunk = 4, .rounds = 2, .buckets = {4}};
  return spec;
}

struct Gradients {
  float loss = 0;
  std::vector<float> all;
};
Gradients gradients(const ModelSpec& spec, DType compute, bool recompute) {
  Transformer model(spec);
  model.parameters().prepare_training(compute, 3);
  model.set_recompute(recompute);
  model.set_layer_drop(0.2F);
  model.parameters().reset_gradients();
  Context context;
  context.training = true;
  context.seed = 5, context.step = 2;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 25; ++i) ids.push_back(i * i % 11);
  const CrossEntropyResult loss = model.loss({ids, Layout::of({18, 7})}, ids, context, 1);
  backward(loss.loss);
  model.parameters().complete_gradients();
  Gradients out{loss.loss.item(), {}};
  for (const Parameter& p : model.parameters().all()) {
    const auto g = p.leaf->grad.values<float>();
    out.all.insert(out.all.end(), g.begin(), g.end());
  }
  return out;
}

TEST(Reversible, BlocksGiveTheSameGradientsFromTheirEndsAlone) {
  for (const NormPlacement placement : {NormPlacement::pre, NormPlacement::sandwich, NormPlacement::branch}) {
    ModelSpec spec = reformer();
    spec.norm_placement = placement;
    const Gradients kept = gradients(spec, DType::f32, false), again = gradients(spec, DType::f32, true);
    EXPECT_NEAR(kept.loss, again.loss, 1e-4F);
    float largest = 0, difference = 0;
    ASSERT_EQ(kept.all.size(), again.all.size());
    for (size_t i = 0; i < kept.all.size(); ++i) {
      largest = std::max(largest, std::abs(kept.all[i]));
      difference = std::max(difference, std::abs(kept.all[i] - again.all[i]));
    }
    EXPECT_LT(difference, 2e-5F * largest);
    EXPECT_GT(difference, 0);  // rounding shows that blocks compute their inputs back
  }
}

// In bf16 their inputs could not be had back: they are kept.
TEST(Reversible, BlocksKeepWhatTheyReadInBf16) {
  const Gradients kept = gradients(reformer(), DType::bf16, false),
                  again = gradients(reformer(), DType::bf16, true);
  EXPECT_EQ(kept.loss, again.loss);
  EXPECT_EQ(kept.all, again.all);
}

}  // namespace
}  // namespace qkv::reversible_test
