#include "qkv/trace/intervention.h"

#include "qkv/models/stack.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/trace/trace_testing.h"

namespace qkv::intervention_test {
namespace {

using testing::random_model;
using testing::sequence;

bool same_bits(const Tensor& a, const Tensor& b) {
  const auto x = a.values<float>(), y = b.values<float>();
  return std::equal(x.begin(), x.end(), y.begin(), y.end());
}

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.count(); ++i)
    EXPECT_NEAR(a.values<float>()[i], b.values<float>()[i], tolerance) << i;
}

// Architectures and norms of one stack.
std::vector<ModelSpec> specs() {
  ModelSpec pre = gpt2_spec(11, 8, 12, 2, 3), post = pre, rms = pre, encoder = bert_spec(11, 8, 12, 2, 3);
  post.norm_placement = NormPlacement::post;
  rms.normalization = Normalization::rms;
  rms.attention.kv_heads = 1;
  rms.gated = true;
  return {pre, post, rms, encoder};
}

TEST(Intervention, NoChangeChangesNothing) {
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 1);
    const NoGrad guard;
    EXPECT_TRUE(same_bits(logits_with(*model, input, {}), model->logits(model->hidden(input, {}))));
  }
}

// All rows of any value on the one way through the model make the pass that of the other text.
TEST(Intervention, PatchingEverythingIsTheOtherRun) {
  const ModelInput input = sequence({3, 1, 4, 1, 5}), other = sequence({2, 7, 1, 8, 10});
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 2);
    const std::string stack = spec.architecture == Architecture::encoder ? "encoder" : "decoder";
    for (const std::string& name :
         {stack + ".embedding", block_output(spec, stack, 0), block_output(spec, stack, spec.layers - 1)}) {
      Trace trace({name, "logits"});
      run_traced(*model, other, trace);
      const Change all{name, Change::Kind::set, {}, 0, 0, trace.at(name).rows};
      EXPECT_TRUE(same_bits(logits_with(*model, input, {all}), trace.at("logits").rows)) << name;
      Change one = all;
      one.rows = {2};
      EXPECT_FALSE(same_bits(logits_with(*model, input, {one}), trace.at("logits").rows)) << name;
    }
  }
}

// A head without its output is a model without that head's columns of W_o, and a neuron likewise.
TEST(Intervention, AblationIsAModelWithoutThePart) {
  const ModelInput input = sequence({3, 1, 4, 1, 5});
  const auto without = [&](const ModelSpec& spec, const std::string& weight, int64_t column,
                           int64_t columns) {
    const auto model = random_model(spec, 3);
    Tensor& w = model->parameters().find(weight)->value;
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t c = column; c < column + columns; ++c) w.mutable_row<float>(r)[c] = 0;
    return logits_with(*model, input, {});
  };
  for (const ModelSpec& spec : specs()) {
    const auto model = random_model(spec, 3);
    const std::string block =
        spec.architecture == Architecture::encoder ? "encoder.block.1." : "decoder.block.1.";
    expect_near(logits_with(*model, input, changes_of_part(spec, "head:1.2")),
                without(spec, block + "attention.out.weight", 8, 4), 1e-4);
    expect_near(logits_with(*model, input, changes_of_part(spec, "neuron:1.5")),
                without(spec, block + "feed_forward.down.weight", 5, 1), 1e-4);
    EXPECT_EQ(changes_of_part(spec, "block:0").size(), 2U);
    EXPECT_EQ(changes_of_part(spec, "attention:0")[0].name, block.substr(0, 14) + "0.attention.branch");
  }
}

TEST(Intervention, KindsOfChanges) {
  const auto model = random_model(gpt2_spec(11, 8, 4, 1, 1), 4);
  const ModelInput input = sequence({3, 1, 4});
  const std::string name = "decoder.embedding";
  Trace before({name});
  run_traced(*model, input, before);
  const Tensor x = before.at(name).rows;
  const auto after = [&](Change change) {
    change.name = name;
    Trace trace({name});
    Intervention intervention({std::move(change)}, &trace);
    const NoGrad guard;
    Context context;
    context.probe = &intervention;
    model->hidden(input, context);
    intervention.expect_made();
    return trace.at(name).rows;
  };
  const Tensor zero = after({"", Change::Kind::zero, {1}, 2, 1});
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 4; ++c)
      EXPECT_EQ(zero.row<float>(r)[c], r == 1 && c == 2 ? 0 : x.row<float>(r)[c]);
  const Tensor mean = after({"", Change::Kind::mean, {0}});
  EXPECT_NEAR(mean.row<float>(0)[3], (x.row<float>(0)[3] + x.row<float>(1)[3] + x.row<float>(2)[3]) / 3,
              1e-6);
  EXPECT_EQ(mean.row<float>(1)[3], x.row<float>(1)[3]);
  const Tensor more =
      after({"", Change::Kind::add, {}, 0, 0, Tensor::of({1, 4}, std::vector<float>{1, 2, 3, 4})});
  EXPECT_EQ(more.row<float>(2)[3], x.row<float>(2)[3] + 4);
  testing::expect_error([&] { after({"", Change::Kind::zero, {3}}); }, {name, "row 3 of 3"});
  testing::expect_error([&] { after({"", Change::Kind::zero, {}, 3, 2}); }, {name, "columns 3 to 5 of 4"});
  testing::expect_error(
      [&] {
        after({"", Change::Kind::set, {}, 0, 0, x.slice_rows(0, 2)});
      },
      {name, "[3, 4]"});
  testing::expect_error([&] { logits_with(*model, input, {{"decoder.block.7.attention.branch"}}); },
                        {"decoder.block.7.attention.branch"});
}

TEST(Intervention, PartsAreChecked) {
  const ModelSpec spec = gpt2_spec(11, 8, 12, 2, 3);
  const auto refuse = [&](const std::string& part, std::initializer_list<std::string> says) {
    testing::expect_error([&] { changes_of_part(spec, part); }, says);
  };
  refuse("head:2.0", {"head:2.0", "layer 2 of 2"});
  refuse("head:0.3", {"head 3 of 3"});
  refuse("neuron:0.48", {"neuron 48 of 48"});
  refuse("head:0", {"head:L.H"});
  refuse("head", {"head:L.H"});
  refuse("mind:0", {"mind:0", "head:L.H"});
  refuse("head:0.1x", {"head:2.5"});
  refuse("block:-1", {"numbers"});
}

}  // namespace
}  // namespace qkv::intervention_test
