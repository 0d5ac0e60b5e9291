// The engine against the specification: multi-token prediction behind random small decoders.
// Covers: qkv/models/mtp.cc

#include "formal/multi_token.h"
#include "tests/formal/engine_batches.h"

namespace qkv::engine_mtp_test {
namespace {

constexpr std::pair<MtpForm, formal::MTPForm> kForms[] = {{MtpForm::chained, formal::MTPForm::chained},
                                                          {MtpForm::joined, formal::MTPForm::joined},
                                                          {MtpForm::parallel, formal::MTPForm::parallel}};

class MtpAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  // A random decoder with 1 to 4 modules.
  Case<formal::MTPTheta<double>> random(std::pair<MtpForm, formal::MTPForm> form) {
    auto c = random_case<formal::DTheta<double>>(GetParam());
    ModelSpec s = c.spec;
    s.attention.kv_heads = s.attention.heads;
    s.mtp = {between(u_, 1, 4), form.first, 0.25F * static_cast<float>(between(u_, 1, 8))};
    formal::Hyperparameters h = c.hyper;
    h.K = s.mtp.layers;
    h.form = form.second;
    return {h, s, formal::testing::random_theta<formal::MTPTheta<double>>(h, GetParam())};
  }
  Uniform u_{GetParam() + 1000};
};

TEST_P(MtpAgainstFormal, LossAndEveryGradient) {
  for (const auto& form : kForms) {
    const auto c = random(form);
    std::vector<std::pair<Tokens, Tokens>> data;
    for (int i = 0; i < 3; ++i)
      data.emplace_back(Tokens(),
                        random_tokens(c.spec, u_, between(u_, 1, static_cast<int>(c.spec.context))));
    expect_gradients(
        c, next_tokens(data),
        [&](const auto& theta) {
          auto loss = formal::MTPLoss(data[0].second, double{c.spec.mtp.weight}, theta);
          for (size_t i = 1; i < data.size(); ++i)
            loss += formal::MTPLoss(data[i].second, double{c.spec.mtp.weight}, theta);
          return loss;
        },
        GetParam());
  }
}

// A pass without gradients, over one sequence.
TEST_P(MtpAgainstFormal, Probabilities) {
  for (const auto& form : kForms) {
    const auto c = random(form);
    const auto model = engine_model(c);
    const Tokens x = random_tokens(c.spec, u_, static_cast<int>(c.spec.context));
    const std::vector<formal::Matrix<double>> P = formal::MTPTransformer(x, c.theta);
    const std::vector<int32_t> ids = engine_ids(x);
    const NoGrad guard;
    const ModelInput input{ids, Layout::of({static_cast<int32_t>(ids.size())})};
    const Tensor h_0 = model->hidden(input, {});
    Tensor h = h_0;
    for (size_t k = 1; k <= P.size(); ++k) {
      const auto rows = static_cast<int64_t>(ids.size() - k);
      Context context;
      context.layout = Layout::of({static_cast<int32_t>(rows)});
      h = model->mtp()->forward(
          static_cast<int64_t>(k), (form.first == MtpForm::parallel ? h_0 : h).slice_rows(0, rows),
          std::vector<int32_t>(ids.begin() + static_cast<int64_t>(k), ids.end()), context);
      expect_probabilities(model->logits(model->mtp()->normalized(static_cast<int64_t>(k), h)), 0, P[k - 1],
                           GetParam());
    }
  }
}

// A model that is only evaluated has the next token's loss.
TEST_P(MtpAgainstFormal, EvaluationIsOfTheNextToken) {
  const auto c = random(kForms[GetParam() % 3]);
  const auto model = engine_model(c);
  const Tokens x = random_tokens(c.spec, u_, static_cast<int>(c.spec.context));
  const Batch batch = next_tokens({{{}, x}});
  const NoGrad guard;
  const CrossEntropyResult r = model->loss(batch, batch.targets, {}, 1);
  EXPECT_NEAR(r.loss.values<float>()[0], formal::DLoss(x, c.theta), kTolerance * std::max(1.0, r.total));
  // The others stand beside it.
  const std::vector<formal::Matrix<double>> P = formal::MTPTransformer(x, c.theta);
  ASSERT_EQ(std::ssize(r.further), c.spec.mtp.layers);
  for (formal::Index k = 1; k <= std::ssize(r.further); ++k) {
    double want = 0;
    for (formal::Index t = 1; t <= formal::length(x) - 1 - k; ++t)
      want -= std::log(formal::entry(P[static_cast<size_t>(k - 1)], formal::at(x, t + 1 + k), t));
    const auto [total, count] = r.further[static_cast<size_t>(k - 1)];
    EXPECT_NEAR(total, want, kTolerance * std::max(1.0, want));
    EXPECT_EQ(count, std::max<formal::Index>(0, formal::length(x) - 1 - k));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, MtpAgainstFormal, ::testing::Range(0U, seeds()));

}  // namespace
}  // namespace qkv::engine_mtp_test
