// The average mixer is attention whose scores are all the same.
// Covers: qkv/nn/average.cc, qkv/models/mixers/average_layer.cc
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "tests/unit/expect_error.h"

namespace qkv::average_mixer_test {
namespace {

TEST(Average, IsAttentionWithoutScores) {
  ModelSpec spec = gpt2_spec(9, 12, 6, 2, 1);
  spec.init_std = 0.4F;
  Transformer attending(spec);
  spec.mixer = AverageMixer();
  Transformer averaging(spec);
  averaging.parameters().draw(3, DType::f32);
  attending.parameters().draw(4, DType::f32);
  for (Parameter& p : attending.parameters().all()) {
    const auto of_layer = p.name.find(".attention.");
    if (of_layer == std::string::npos || p.name.find("norm") != std::string::npos) {
      std::string name = p.name;
      if (of_layer != std::string::npos) name.replace(of_layer, 11, ".average.");
      p.value.copy(averaging.parameters().find(name)->value);
      continue;
    }
    const std::string block = p.name.substr(0, of_layer) + ".average.";
    const std::string kind = p.name.substr(p.name.rfind('.') + 1);  // weight or bias
    if (p.name.find(".qkv.") == std::string::npos) {
      p.value.copy(averaging.parameters().find(block + "out." + kind)->value);
      continue;
    }
    const auto to = p.value.mutable_values<float>(),
               values = averaging.parameters().find(block + "value." + kind)->value.mutable_values<float>();
    std::ranges::fill(to, 0.0F);
    const int64_t third = std::ssize(values);  // behind the queries and the keys
    for (int64_t i = 0; i < third; ++i) to[2 * third + i] = values[i];
  }
  const NoGrad guard;
  const std::vector<int32_t> ids = {1, 5, 2, 8, 3, 3, 7};
  const ModelInput input{ids, Layout::of({4, 3})};
  const Tensor a = attending.logits(attending.hidden(input, {})),
               b = averaging.logits(averaging.hidden(input, {}));
  for (int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.values<float>()[i], b.values<float>()[i], 1e-5);
}

TEST(Average, IsOfDecoders) {
  ModelSpec spec = bert_spec(9, 12, 6, 2, 1);
  spec.mixer = AverageMixer();
  testing::expect_error([&] { check_spec(spec); }, {"mixer average", "encoder"});
}

}  // namespace
}  // namespace qkv::average_mixer_test
