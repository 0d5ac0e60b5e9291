// The engine against the specification: random small encoders, with masked and permuted tokens to predict
// (Algorithms 9 and 12).
// Covers: qkv/models/unembedding.cc

#include "formal/training.h"
#include "formal/transformer.h"
#include "qkv/data/masking.h"
#include "tests/formal/engine_batches.h"

namespace qkv::engine_encoder_test {
namespace {

using formal::ETheta;

class EncoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence() { return random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))); }
  // Algorithm 12's x and x~.
  std::pair<Tokens, Tokens> masked(const Tokens& x) {
    Tokens x_tilde = formal::mask_randomly(x, c_.spec.vocab_size, 0.4, u_);
    x_tilde[0] = mask();  // something to predict
    return {x, x_tilde};
  }
  int mask() const { return formal::mask_token(c_.spec.vocab_size); }
  Case<ETheta<double>> c_ = random_case<ETheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  Flat flat;
  std::vector<Tokens> data;
  for (int i = 0; i < 3; ++i) flat.append(data.emplace_back(sequence()));
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden({flat.ids, flat.layout()}, {}));
  int64_t row = 0;
  for (const Tokens& x : data) {
    expect_probabilities(logits, row, formal::ETransformer(x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EncoderAgainstFormal, LossAndEveryGradient) {
  const auto x = masked(sequence()), y = masked(sequence());
  expect_gradients(
      c_, masked_tokens({x, y}, mask()),
      [&](const auto& theta) {
        return formal::ELoss(x.first, x.second, theta) + formal::ELoss(y.first, y.second, theta);
      },
      GetParam());
}

TEST_P(EncoderAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  c_ = random_case<ETheta<double>>(GetParam(), false);
  std::vector<Tokens> data;
  for (int i = 0; i < 3; ++i) data.push_back(random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)));
  Uniform masks(GetParam()), again(GetParam());
  const auto theta = formal::ETraining(data, c_.theta, 2, kEta, 0.5, masks);
  std::unique_ptr<TrainingState> training;
  for (int step = 0; step < 6; ++step) {
    const Tokens& x = data[step % 3];
    const Batch batch =
        masked_tokens({{x, formal::mask_randomly(x, c_.spec.vocab_size, 0.5, again)}}, mask());
    if (batch.target_count == 0) continue;  // the loss is 0, which changes nothing
    // The paper's loss is a sum and ours a mean, so each step has its own learning rate.
    auto model = engine_model(c_);
    if (training)
      for (Parameter& p : model->parameters().all())
        p.value = training->model().parameters().find(p.name)->master.clone();
    training = std::make_unique<TrainingState>(std::move(model),
                                               plain_sgd(kEta * static_cast<double>(batch.target_count)));
    training->step({batch}, 1, 1);
  }
  ASSERT_NE(training, nullptr);
  expect_parameters(*training, c_, theta, GetParam());
}

// BERT's 80/10/10 as the engine draws it, and its loss.
TEST_P(EncoderAgainstFormal, LossAndEveryGradientByBertsRule) {
  const std::vector<Tokens> data = {random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)),
                                    random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context))};
  TokenStream stream;
  for (const Tokens& x : data) stream.append(engine_ids(x));
  Masking masking;
  masking.rate = 0.7;
  masking.random = masking.keep = 0.3;  // more than BERT's tenths, so that few tokens contain some of each
  masking.mask = mask() - 1;
  masking.vocab_size = static_cast<int32_t>(c_.spec.vocab_size);
  const Batch batch = masked_batch(stream, pieces_of(stream, c_.spec.context), {}, masking, GetParam(), 1);
  const std::vector<formal::Chosen> chosen = {chosen_in(batch, 0), chosen_in(batch, 1)};
  for (size_t s = 0; s < 2; ++s)  // other tokens stay unchanged
    for (formal::Index t = 1, i = 0; t <= formal::length(data[s]); ++t) {
      if (static_cast<size_t>(i) < chosen[s].T_tilde.size() && chosen[s].T_tilde[i] == t)
        ++i;
      else
        EXPECT_EQ(formal::at(chosen[s].x_tilde, t), formal::at(data[s], t));
    }
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::MaskedLoss(data[0], chosen[0].x_tilde, chosen[0].T_tilde, theta) +
               formal::MaskedLoss(data[1], chosen[1].x_tilde, chosen[1].T_tilde, theta);
      },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderAgainstFormal, ::testing::Range(0u, seeds()));

// The engine and the specification choose and mask tokens equally often.
TEST(BertsRule, HidesAsTheSpecificationDoes) {
  constexpr int kVocabulary = 50, kTokens = 20000;
  Uniform u(1);
  Tokens x;
  for (int i = 0; i < kTokens; ++i) x.push_back(between(u, 1, kVocabulary - 3));
  const formal::Chosen want = formal::choose_by_BERT(x, kVocabulary, 0.15, u);
  TokenStream stream;
  stream.append(engine_ids(x));
  Masking masking;
  masking.mask = formal::mask_token(kVocabulary) - 1;
  masking.vocab_size = kVocabulary;
  const formal::Chosen got =
      chosen_in(masked_batch(stream, pieces_of(stream, kTokens), {}, masking, 1, 1), 0);
  const auto shares = [&](const formal::Chosen& c) {
    double masked = 0, kept = 0;
    for (const formal::Index t : c.T_tilde) {
      masked += formal::at(c.x_tilde, t) == formal::mask_token(kVocabulary);
      kept += formal::at(c.x_tilde, t) == formal::at(x, t);
    }
    const auto n = static_cast<double>(c.T_tilde.size());
    return std::array{n / kTokens, masked / n, kept / n};
  };
  const auto [rate, masked, kept] = shares(got);
  const auto [want_rate, want_masked, want_kept] = shares(want);
  EXPECT_NEAR(rate, want_rate, 0.015);  // four deviations of a difference, or more
  EXPECT_NEAR(masked, want_masked, 0.04);
  EXPECT_NEAR(kept, want_kept, 0.035);
  EXPECT_NEAR(want_rate, 0.15, 0.011);
  EXPECT_NEAR(want_masked, 0.8 + 0.1 / kVocabulary, 0.03);
  EXPECT_NEAR(want_kept, 0.1 + 0.1 / kVocabulary, 0.025);
}

// Permutation language modelling: the batches of qkv/data/masking.h against XLNet's two streams.
TEST_P(EncoderAgainstFormal, PermutationLossAndEveryGradient) {
  c_.spec.order = Order::permuted;
  std::vector<Tokens> data;
  for (int i = 0; i < 2; ++i)
    data.push_back(random_tokens(c_.spec, u_, between(u_, 2, static_cast<int>(c_.spec.context))));
  // Tokens to predict; never the first one, which is always known.
  for (data[0][1] = 1; data[0][1] == data[0][0] || data[0][1] == data[1][0];) ++data[0][1];
  TokenStream stream;
  for (const Tokens& x : data) stream.append(engine_ids(x));
  Masking masking;
  masking.rate = 0.5;
  masking.permuted = true;
  masking.mask = mask() - 1;
  masking.special.assign(c_.spec.vocab_size, false);
  masking.special[engine_ids(data[0])[0]] = masking.special[engine_ids(data[1])[0]] =
      true;  // is always known
  std::vector<Piece> pieces = pieces_of(stream, c_.spec.context);
  const Batch batch = masked_batch(stream, pieces, {}, masking, GetParam(), 1);
  ASSERT_GT(batch.target_count, 0);
  std::vector<std::vector<formal::Index>> order(2);
  for (size_t s = 0; s < 2; ++s)
    for (int32_t r = batch.layout.offsets[s]; r < batch.layout.offsets[s + 1]; ++r)
      if (batch.targets[r] != kIgnored) order[s].push_back(batch.layout.positions[r] + 1);
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        auto loss = formal::PermutationLoss(data[0], order[0], theta);
        loss += formal::PermutationLoss(data[1], order[1], theta);
        return loss;
      },
      GetParam());
}

}  // namespace
}  // namespace qkv::engine_encoder_test
