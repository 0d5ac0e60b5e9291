// Covers: qkv/trace/trace.cc
#include "qkv/trace/trace.h"

#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::trace_test {
namespace {

using testing::random_model;
using testing::sequence;

TEST(Trace, NamesFitPatterns) {
  EXPECT_TRUE(fits_pattern("decoder.block.0.attention.scores", "*"));
  EXPECT_TRUE(fits_pattern("decoder.block.0.attention.scores", "*.attention.*"));
  EXPECT_TRUE(fits_pattern("decoder.block.10.attention.scores", "decoder.block.*.scores"));
  EXPECT_TRUE(fits_pattern("aXbXbc", "a*bc"));
  EXPECT_TRUE(fits_pattern("logits", "logits"));
  EXPECT_TRUE(fits_pattern("", "**"));
  EXPECT_FALSE(fits_pattern("logits", "logit"));
  EXPECT_FALSE(fits_pattern("logits", "*.logits"));
  EXPECT_FALSE(fits_pattern("abc", "a*b"));
  EXPECT_FALSE(fits_pattern("", "a"));
}

TEST(Trace, RecordsInTheOrderOfThePass) {
  const auto model = random_model(gpt2_spec(11, 8, 12, 2, 3), 1);
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  Trace all;
  const Tensor hidden = run_traced(*model, input, all);
  EXPECT_EQ(all.values().front().name, "decoder.embedding.token");
  EXPECT_EQ(all.values().back().name, "probabilities");
  EXPECT_EQ(all.at("decoder.norm").rows.values<float>()[7], hidden.values<float>()[7]);
  EXPECT_EQ(all.at("decoder.block.1.feed_forward.hidden").rows.shape(), (Shape{5, 48}));
  EXPECT_EQ(all.at("decoder.block.1.attention.scores").of_heads().shape(), (Shape{3, 5, 5}));
  EXPECT_EQ(all.find("decoder.block.2.attention.scores"), nullptr);
  testing::expect_error([&] { all.at("nothing"); }, {"nothing"});
  testing::expect_error([&] { all.at("logits").of_heads(); }, {"logits", "heads"});
  // A value that is not asked for is not computed another way.
  Trace some({"*.branch", "logits"});
  run_traced(*model, input, some);
  EXPECT_EQ(some.values().size(), 5U);
  const NoGrad guard;
  const Tensor plain = model->logits(model->hidden(input, {}));
  const auto a = some.at("logits").rows.values<float>(), b = plain.values<float>();
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

// Heads of several sequences are told apart.
TEST(Trace, SeveralSequences) {
  const auto model = random_model(gpt2_spec(11, 8, 12, 1, 2), 2);
  ModelInput input = sequence({3, 1, 4, 1, 5});
  input.layout = Layout::of({2, 3});
  Trace both({"*.probabilities"}), alone({"*.probabilities"});
  run_traced(*model, input, both);
  run_traced(*model, sequence({4, 1, 5}), alone);
  const TracedValue& value = both.values().front();
  ASSERT_EQ(value.heads.size(), 4U);
  EXPECT_EQ(value.heads[3].sequence, 1);
  EXPECT_EQ(value.heads[3].head, 1);
  const Tensor &a = value.heads[3].value, &b = alone.values().front().heads[1].value;
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.count(); ++i) EXPECT_NEAR(a.values<float>()[i], b.values<float>()[i], 1e-6);
  testing::expect_error([&] { value.of_heads(); }, {"several sequences"});
}

// Outputs other than tokens.
TEST(Trace, ClassesAndVectors) {
  ModelSpec spec = bert_spec(11, 8, 12, 1, 2);
  spec.head_width = 0;
  spec.unembedding_bias = false;
  spec.output = Output::sequence_classes;
  spec.labels = {"a", "b", "c"};
  spec.pooler = true;
  Trace trace({"pooled", "classes"});
  run_traced(*random_model(spec, 3), sequence({1, 2, 3}), trace);
  EXPECT_EQ(trace.at("pooled").rows.shape(), (Shape{1, 12}));
  EXPECT_EQ(trace.at("classes").rows.shape(), (Shape{1, 3}));
}

}  // namespace
}  // namespace qkv::trace_test
