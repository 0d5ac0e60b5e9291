#include "qkv/trace/gradients.h"

#include "qkv/models/stack.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::gradients_test {
namespace {

using testing::random_model;
using testing::sequence;

// Models of all architectures, small, with parts that differ.
std::vector<ModelSpec> specs() {
  ModelSpec pre = gpt2_spec(11, 8, 12, 2, 3), post = pre, gemma = pre, encoder = bert_spec(11, 8, 12, 2, 3),
            both = pre, gau = pre;
  post.norm_placement = NormPlacement::post;
  gemma.normalization = Normalization::rms;
  gemma.attention.kv_heads = 1;
  gemma.attention.cap = 2;
  gemma.attention.sinks = true;
  gemma.gated = true;
  gemma.positions = Positions::rotary;
  gemma.attention.rotary.width = 4;
  both.architecture = Architecture::encoder_decoder;
  both.encoder_layers = 1;
  gau.branches = Branches::one_norm;
  return {pre, post, gemma, encoder, both, gau};
}

ModelInput input_of(const ModelSpec& spec) {
  ModelInput input = sequence({3, 1, 4, 1, 5});
  if (spec.architecture == Architecture::encoder_decoder) {
    input.source = std::vector<int32_t>{2, 7, 1, 8};
    input.source_layout = Layout::of({4});
  }
  return input;
}

// The answer if a value is another.
double answer_with(const Transformer& model, const ModelInput& input, const Question& question,
                   const std::string& name, const Tensor& value, int64_t head = -1) {
  const NoGrad guard;
  Change change{name, Change::Kind::set, {}, 0, 0, value};
  change.head = head;
  return answer_in(logits_with(model, input, {change}), question);
}

// The gradient of every patched value, by finite differences: numbers of each that lie apart.
TEST(Gradients, OfPatchedValuesAreTheDifferences) {
  const Question question{3, 7, 2};
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 1);
    const ModelInput input = input_of(spec);
    const Gradients g = gradients_of(*model, input, question, {"*"});
    EXPECT_NEAR(g.answer, answer_in(logits_with(*model, input, {}), question), 1e-4);
    EXPECT_GT(g.values.size(), 20U);
    const auto compare = [&](const std::string& name, const Tensor& value, const Tensor& gradient,
                             int64_t head) {
      const int64_t count = value.count();
      for (int64_t i = 0; i < count; i += std::max<int64_t>(1, count / 5)) {
        if (std::isinf(value.values<float>()[i])) {
          EXPECT_EQ(gradient.values<float>()[i], 0) << name;  // a score of a key that is not seen
          continue;
        }
        constexpr double kStep = 0x1p-7;
        double at[2];
        for (const int side : {0, 1}) {
          Tensor moved = value.clone();
          moved.mutable_values<float>()[i] += static_cast<float>(side == 0 ? -kStep : kStep);
          at[side] = answer_with(*model, input, question, name, moved, head);
        }
        const double difference = (at[1] - at[0]) / (2 * kStep);
        EXPECT_NEAR(gradient.values<float>()[i], difference, 0.02 * std::max(1.0, std::abs(difference)))
            << name << ", head " << head << ", number " << i;
      }
    };
    for (const auto& [value, gradient] : g.values) {
      if (value.heads.empty()) {
        compare(value.name, value.rows, gradient.rows, -1);
        continue;
      }
      for (size_t h = 0; h < value.heads.size(); ++h)
        compare(value.name, value.heads[h].value, gradient.heads[h].value, value.heads[h].head);
    }
    if (HasFailure()) return;
  }
}

// Attribution patching is exact where the rest of the model is linear in the value: behind the last norm.
TEST(Gradients, TimesADifferenceIsThePatchWhereTheRestIsLinear) {
  const ModelSpec spec = gpt2_spec(11, 8, 12, 2, 3);
  const auto model = random_model(spec, 3);
  const Question question{4, 7, 2};
  const ModelInput here = sequence({3, 1, 4, 1, 5}), there = sequence({2, 7, 1, 8, 10});
  const Gradients g = gradients_of(*model, here, question, {"decoder.norm"});
  Trace other({"decoder.norm"});
  run_traced(*model, there, other);
  const Tensor &x = g.at("decoder.norm").value.rows, &y = other.at("decoder.norm").rows,
               &slope = g.at("decoder.norm").gradient.rows;
  double estimate = 0;
  for (int64_t i = 0; i < x.count(); ++i)
    estimate += (double{y.values<float>()[i]} - x.values<float>()[i]) * slope.values<float>()[i];
  const double patched = answer_with(*model, here, question, "decoder.norm", y);
  EXPECT_NEAR(g.answer + estimate, patched, 1e-4);
}

// A replacement is a constant: nothing before it has a gradient.
TEST(Gradients, DoNotPassThroughWhatIsReplaced) {
  const ModelSpec spec = gpt2_spec(11, 8, 12, 2, 3);
  const auto model = random_model(spec, 4);
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  const std::string block = block_output(spec, "decoder", 0);
  const auto largest = [](const Tensor& x) {
    float most = 0;
    for (const float v : x.values<float>()) most = std::max(most, std::abs(v));
    return most;
  };
  const Question question{4, 7};
  const auto with = [&](std::vector<int64_t> rows, int64_t columns) {
    return gradients_of(*model, input, question, {"decoder.embedding", block},
                        {{block, Change::Kind::mean, std::move(rows), 0, columns}});
  };
  const Gradients all = with({}, 0), some = with({1, 4}, 0), part = with({}, 3);
  EXPECT_EQ(largest(all.at("decoder.embedding").gradient.rows), 0);
  EXPECT_GT(largest(all.at(block).gradient.rows), 0);
  EXPECT_EQ(largest(some.at("decoder.embedding").gradient.rows.slice_rows(4, 5)), 0);
  EXPECT_GT(largest(some.at("decoder.embedding").gradient.rows.slice_rows(2, 3)), 0);
  EXPECT_GT(largest(part.at("decoder.embedding").gradient.rows), 0);
}

// Completeness (Sundararajan et al. 2017, proposition 1).
TEST(Saliency, IntegratedGradientsSumToTheChange) {
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 5);
    const ModelInput input = input_of(spec);
    ModelInput baseline = input;
    baseline.ids = std::vector<int32_t>(5, 9);
    const std::string stack = spec.architecture == Architecture::encoder ? "encoder" : "decoder";
    const Question question{4, 7};
    const Saliency s = integrated_gradients(*model, input, baseline, question, stack, 200);
    ASSERT_EQ(s.tokens.size(), 5U);
    double sum = 0, sizes = 0;
    for (const double x : s.tokens) {
      sum += x;
      sizes += std::abs(x);
    }
    EXPECT_GT(sizes, 0.1);
    EXPECT_NEAR(sum, s.answer - s.without, 0.02 * sizes);
    EXPECT_NEAR(s.answer, answer_in(logits_with(*model, input, {}), question), 1e-4);
  }
}

TEST(Saliency, OfClassesAndWhatHasNone) {
  ModelSpec spec = bert_spec(11, 8, 12, 2, 3);
  spec.output = Output::sequence_classes;
  spec.labels = {"a", "b", "c"};
  spec.head_width = 0;
  spec.unembedding_bias = false;
  const auto model = random_model(spec, 6);
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  const Saliency s = gradient_times_input(*model, input, {0, 1}, "encoder");
  const NoGrad guard;
  EXPECT_NEAR(s.answer, model->classes(model->hidden(input, {}), input, {}).row<float>(0)[1], 1e-5);
  EXPECT_EQ(s.tokens.size(), 5U);
  testing::expect_error([&] { gradient_times_input(*model, input, {0, 3}, "encoder"); }, {"column 3 of 3"});
}

}  // namespace
}  // namespace qkv::gradients_test
