// The encoder or the decoder of an encoder-decoder as a model of its own.
#include "qkv/models/part.h"

#include <gtest/gtest.h>

#include "tests/unit/expect_error.h"

namespace qkv::part_test {
namespace {

ModelSpec whole_spec() {
  ModelSpec s = gpt2_spec(11, 9, 12, 3, 3);
  s.architecture = Architecture::encoder_decoder;
  s.encoder_layers = 2;
  s.init_std = 0.4F;
  return s;
}

std::vector<ModelSpec> wholes() {
  ModelSpec relative = whole_spec(), two_vocabularies = whole_spec(), apart = whole_spec(),
            wide = whole_spec();
  relative.positions = Positions::relative;
  relative.tied = false;
  two_vocabularies.source_vocab_size = 7;
  apart.stacks_apart = true;
  apart.embedding_norm = true;
  wide.positions = Positions::sinusoidal;
  wide.encoder = {.width = 8, .heads = 2, .hidden = 5};
  return {whole_spec(), relative, two_vocabularies, apart, wide};
}

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < a.count(); ++i) ASSERT_EQ(a.data<float>()[i], b.data<float>()[i]) << i;
}

TEST(Part, AnEncoderMakesTheStatesThatItsDecoderReads) {
  for (const ModelSpec& spec : wholes()) {
    Transformer whole(spec);
    whole.parameters().draw(3, DType::f32);
    const auto encoder = part_of(whole, Architecture::encoder);
    EXPECT_EQ(encoder->spec().layers, 2);
    EXPECT_EQ(encoder->spec().vocab_size, spec.input_vocab_size());
    ModelInput of_whole, alone;
    of_whole.source = alone.ids = std::vector<int32_t>{1, 4, 2, 6, 3};
    of_whole.source_layout = alone.layout = Layout::of({3, 2});
    of_whole.ids = std::vector<int32_t>{1, 2};
    of_whole.layout = Layout::of({1, 1});
    const NoGrad guard;
    expect_equal(encoder->hidden(alone, {}), whole.encode(of_whole, {}));
  }
}

// Without what cross-attention adds, the decoder is that of the whole.
TEST(Part, ADecoderIsWithoutCrossAttention) {
  for (const ModelSpec& spec : wholes()) {
    Transformer whole(spec);
    whole.parameters().draw(3, DType::f32);
    int64_t silenced = 0;
    for (Parameter& p : whole.parameters().all())
      if (p.name.find("cross_attention.out") != std::string::npos) {
        p.value = Tensor::zeros(p.shape, DType::f32);
        ++silenced;
      }
    ASSERT_GE(silenced, spec.layers);
    const auto decoder = part_of(whole, Architecture::decoder);
    EXPECT_EQ(decoder->spec().vocab_size, spec.vocab_size);
    ModelInput in;
    in.ids = std::vector<int32_t>{1, 4, 10, 6, 3};
    in.layout = Layout::of({3, 2});
    ModelInput with_source = in;
    with_source.source = std::vector<int32_t>{5, 2, 1};
    with_source.source_layout = Layout::of({1, 2});
    const NoGrad guard;
    const Tensor alone = decoder->hidden(in, {}), beside = whole.hidden(with_source, {});
    expect_equal(decoder->logits(alone), whole.logits(beside));
  }
}

TEST(Part, IsOfTwoStacksOfBlocks) {
  ModelSpec s = whole_spec();
  testing::expect_error([&] { static_cast<void>(gpt2_spec(11, 9, 12, 2, 3).part(Architecture::encoder)); },
                        {"decoder has no part"});
  testing::expect_error([&] { static_cast<void>(s.part(Architecture::encoder_decoder)); },
                        {"an encoder or a decoder"});
  s.recurrence.encoder = s.recurrence.decoder = Cell::lstm;
  s.positions = Positions::none;
  testing::expect_error([&] { static_cast<void>(s.part(Architecture::encoder)); }, {"recurrent"});
}

}  // namespace
}  // namespace qkv::part_test
