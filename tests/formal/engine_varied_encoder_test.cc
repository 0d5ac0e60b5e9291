// The engine against formal/variations.h: random small encoders of random variations have the same
// probabilities, losses and gradients.
// Covers: qkv/nn/global_attention.cc

#include "tests/formal/varied_case.h"

namespace qkv::engine_varied_encoder_test {
namespace {

// A sequence, and which of the texts each token is of; both from 1.
struct Texts {
  Tokens x, s;
};

// Sequences side by side.
ModelInput input_of(const std::vector<Texts>& data) {
  std::vector<int32_t> ids, segments, lengths;
  for (const Texts& one : data) {
    for (const int32_t id : engine_ids(one.x)) ids.push_back(id);
    for (const int32_t s : engine_ids(one.s)) segments.push_back(s);
    lengths.push_back(static_cast<int32_t>(one.x.size()));
  }
  ModelInput input{ids, Layout::of(lengths)};
  input.segments = segments;
  return input;
}

class EncoderVariationsAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override { RecordProperty("seed", static_cast<int>(GetParam())); }
  // Also longer than what the model was trained for, where distances tell positions.
  Texts sequence() {
    const int most = static_cast<int>(c_.spec.context) * (c_.spec.longest() > c_.spec.context ? 2 : 1);
    Texts t{random_tokens(c_.spec, u_, between(u_, 1, most)), {}};
    // There are two texts also where embeddings do not tell them apart: scores may.
    const int texts = static_cast<int>(std::max<int64_t>(c_.spec.segments, 2));
    for (size_t i = 0; i < t.x.size(); ++i) t.s.push_back(between(u_, 1, texts));
    return t;
  }
  OneStackCase c_ = varied_case(GetParam(), Architecture::encoder);
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderVariationsAgainstFormal, Probabilities) {
  const auto model = model_of(c_);
  const std::vector<Texts> data = {sequence(), sequence(), sequence()};
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(input_of(data), {}));
  int64_t row = 0;
  for (const Texts& t : data) {
    expect_probabilities_near(
        logits, row, c_.theta,
        [&](const auto& theta) { return formal::VariedTransformer(t.x, theta, nullptr, t.s); }, GetParam());
    row += formal::length(t.x);
  }
}

// Some tokens are replaced, and those that stood there are to be told.
TEST_P(EncoderVariationsAgainstFormal, LossAndEveryGradient) {
  const std::vector<Texts> data = {sequence(), sequence()};
  std::vector<Texts> read = data;
  std::vector<std::vector<formal::Index>> chosen(2);
  std::vector<int32_t> targets;
  const double share = u_();
  for (size_t i = 0; i < 2; ++i)
    for (size_t t = 0; t < data[i].x.size(); ++t) {
      const bool told = u_() < share || (i == 0 && t == 0);  // something to predict
      targets.push_back(told ? data[i].x[t] - 1 : kIgnored);
      if (!told) continue;
      chosen[i].push_back(static_cast<formal::Index>(t) + 1);
      read[i].x[t] = random_tokens(c_.spec, u_, 1)[0];
    }
  expect_loss_and_gradients(
      c_, input_of(read), targets,
      [&](const auto& theta) {
        return formal::VariedMaskedLoss(data[0].x, read[0].x, chosen[0], theta, read[0].s) +
               formal::VariedMaskedLoss(data[1].x, read[1].x, chosen[1], theta, read[1].s);
      },
      GetParam());
}

TEST_P(EncoderVariationsAgainstFormal, ComesBackFromDisk) {
  expect_back_from_disk(*model_of(c_), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderVariationsAgainstFormal, ::testing::Range(0U, seeds()));

TEST(Variations, EveryOneOfEncodersIsDrawn) {
  expect_each_drawn(Architecture::encoder);
}

}  // namespace
}  // namespace qkv::engine_varied_encoder_test
