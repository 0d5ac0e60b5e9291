// Valid and invalid specs of encoders with heads.
// Covers: qkv/batch/layout.cc, qkv/models/spec_check.cc
#include "qkv/models/spec.h"

#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "tests/unit/expect_error.h"

namespace qkv::spec_test {
namespace {

using testing::expect_error;

ModelSpec encoder(Output output) {
  ModelSpec s = bert_spec(11, 8, 8, 1, 2);
  s.output = output;
  if (output != Output::tokens) s.head_width = 0, s.unembedding_bias = false;
  if (output == Output::sequence_classes || output == Output::token_classes) s.labels = {"a", "b", "c"};
  return s;
}

constexpr Output kOutputs[] = {Output::tokens, Output::sequence_classes, Output::token_classes, Output::span,
                               Output::embedding};

TEST(Spec, NamesAndClassesOfOutputs) {
  for (const Output o : kOutputs) {
    EXPECT_EQ(from_name<Output>(name_of(o)), o);
    EXPECT_NO_THROW(check_spec(encoder(o))) << name_of(o);
  }
  EXPECT_EQ(encoder(Output::tokens).classes(), 0);
  EXPECT_EQ(encoder(Output::sequence_classes).classes(), 3);
  EXPECT_EQ(encoder(Output::token_classes).classes(), 3);
  EXPECT_EQ(encoder(Output::span).classes(), 2);
  EXPECT_EQ(encoder(Output::embedding).classes(), 0);
  for (const Pooling p : {Pooling::first, Pooling::mean}) EXPECT_EQ(from_name<Pooling>(name_of(p)), p);
  expect_error([] { from_name<Output>("class"); }, {"output", "sequence_classes", "'class'"});
  expect_error([] { from_name<Pooling>("max"); }, {"pooling", "first, last, mean", "'max'"});
}

// An encoder of another shape is checked by its own width and layers.
TEST(Spec, EncodersOfAnotherShape) {
  ModelSpec s = gpt2_spec(11, 8, 8, 1, 2);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 3;
  s.attention.heads = s.attention.kv_heads = 3;  // heads of 4 columns each, though 3 does not divide 8
  s.experts.count = 2;
  s.experts.chosen = 1;
  s.experts.hidden = 5;
  s.encoder.hidden = 7;
  EXPECT_NO_THROW(const Transformer t(s));
  s.encoder.expert_first = 2;
  s.encoder.expert_every = 2;
  EXPECT_NO_THROW(const Transformer t(s));
  s.encoder.expert_first = 3;
  expect_error([&] { check_spec(s); }, {"expert_first", "between 0 and 2", "3"});
  s.encoder.expert_first = 2;
  s.encoder.heads = 3;
  expect_error([&] { check_spec(s); }, {"encoder_width 8", "3 heads"});
  s.encoder.width = 9;
  s.head_width = 8;  // before the decoder's unembedding
  EXPECT_NO_THROW(const Transformer t(s));
}

TEST(Spec, LabelsFitTheOutput) {
  for (const Output o : kOutputs) {
    if (o == Output::tokens) continue;  // BERT's pre-training has both
    ModelSpec s = encoder(o);
    const bool labelled = !s.labels.empty();
    s.labels = labelled ? std::vector<std::string>{} : std::vector<std::string>{"a"};
    expect_error([&] { check_spec(s); }, {"labels", name_of(o)});
    expect_error([&] { const Transformer t(s); }, {"labels"});
  }
}

TEST(Spec, HeadsNeedOneStack) {
  for (const Output o : kOutputs) {
    if (o == Output::tokens) continue;
    ModelSpec s = encoder(o);
    s.architecture = Architecture::decoder;
    if (o == Output::span) {
      expect_error([&] { check_spec(s); }, {"span", "encoder", "decoder"});
    } else {  // the last token of a decoder has seen all
      expect_error([&] { check_spec(s); }, {"pooling first"});
      s.pooling = Pooling::last;
      EXPECT_NO_THROW(check_spec(s));
    }
    s.architecture = Architecture::encoder_decoder;
    s.encoder_layers = 1;
    expect_error([&] { check_spec(s); }, {name_of(o), "encoder_decoder"});
  }
}

TEST(Spec, OrdersNeedTheirStack) {
  ModelSpec s = encoder(Output::tokens);
  s.order = Order::permuted;
  EXPECT_NO_THROW(check_spec(s));
  s.positions = Positions::relative;
  expect_error([&] { check_spec(s); }, {"permuted", "relative"});
  s = encoder(Output::tokens);
  s.order = Order::prefix;
  expect_error([&] { check_spec(s); }, {"prefix", "decoder", "encoder"});
  s = gpt2_spec(10, 8, 8, 1, 1);
  s.order = Order::prefix;
  EXPECT_NO_THROW(check_spec(s));
  s.order = Order::permuted;
  expect_error([&] { check_spec(s); }, {"permuted", "encoder", "decoder"});
}

TEST(Spec, OtherOutputsHaveNoUnembedding) {
  for (const Output o : kOutputs) {
    if (o == Output::tokens) continue;
    ModelSpec s = encoder(o);
    s.head_width = 8;
    expect_error([&] { check_spec(s); }, {name_of(o), "unembedding"});
    s = encoder(o);
    s.unembedding_bias = true;
    expect_error([&] { check_spec(s); }, {name_of(o), "unembedding"});
    s = encoder(o);
    s.tied = false;
    expect_error([&] { check_spec(s); }, {name_of(o), "unembedding"});
  }
}

TEST(Spec, APoolerNeedsAVectorOrClasses) {
  for (const Output o : kOutputs) {
    ModelSpec s = encoder(o);
    s.pooler = true;
    if (o != Output::tokens)
      EXPECT_NO_THROW(check_spec(s));
    else
      expect_error([&] { check_spec(s); }, {"pooler", name_of(o)});
    s.pooler = false;
    s.pooler_activation = Activation::gelu;
    expect_error([&] { check_spec(s); }, {"pooler_activation"});
  }
  ModelSpec s = encoder(Output::span);
  s.head_dropout = 1;
  expect_error([&] { check_spec(s); }, {"head_dropout"});
}

// Each head has its own parameters and no others.
TEST(Spec, ParametersOfHeads) {
  const auto has = [](const ModelSpec& s, const std::string& name) {
    return Transformer(s).parameters().find(name) != nullptr;
  };
  ModelSpec pooled = encoder(Output::sequence_classes);
  pooled.pooler = true;
  for (const Output o : kOutputs) {
    const bool classifies = encoder(o).classes() > 0;
    EXPECT_EQ(has(encoder(o), "classifier.weight"), classifies) << name_of(o);
    EXPECT_EQ(has(encoder(o), "head.weight"), o == Output::tokens);
    EXPECT_FALSE(has(encoder(o), "pooler.weight"));
  }
  EXPECT_TRUE(has(pooled, "pooler.weight"));
}

}  // namespace
}  // namespace qkv::spec_test
