// The engine against the specification: the heads of random small encoders, by the objectives of
// formal/objectives.h.
// Covers: qkv/models/head.cc, qkv/models/classifier.cc

#include <numeric>

#include "formal/transformer.h"
#include "qkv/data/masking.h"
#include "tests/formal/engine_batches.h"

namespace qkv::engine_heads_test {
namespace {

class HeadsAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence() { return random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))); }
  // Two sequences, without targets.
  Batch batch_of_two() {
    Flat flat;
    for (const Tokens& x : {x_, y_}) flat.append(x);
    return batch_of(flat, {});
  }
  // Sets 2 or 3 classes again, for a head without pooling.
  void without_pooler(Output output) {
    c_.spec.pooler = false;
    c_.spec.output = output;
    if (output != Output::span) return;
    c_.spec.labels.clear();
    c_.hyper.N_C = c_.theta.hyper.N_C = 2;
    c_.theta.W_c = c_.theta.W_c.topRows(2).eval();
    c_.theta.b_c = c_.theta.b_c.topRows(2).eval();
  }
  Case<formal::ClassTheta<double>> c_ = random_case<formal::ClassTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
  Tokens x_ = sequence(), y_ = sequence();
};

TEST_P(HeadsAgainstFormal, ClassesOfSequences) {
  Batch batch = batch_of_two();
  batch.targets = Indices({2, 0});
  expect_gradients(
      c_, batch,
      [&](const auto& theta) { return formal::ClassLoss(x_, 3, theta) + formal::ClassLoss(y_, 1, theta); },
      GetParam());
}

// Labels of which several may apply, and numbers.
TEST_P(HeadsAgainstFormal, LabelsAndNumbersOfSequences) {
  for (const Problem problem : {Problem::multi_label, Problem::regression}) {
    c_.spec.problem = problem;
    Batch batch = batch_of_two();
    batch.targets = Indices({0, 0});
    std::vector<formal::Vector<double>> wanted(2, formal::Vector<double>(c_.hyper.N_C));
    std::vector<float> numbers;
    for (auto& y : wanted)
      for (double& n : y) {
        n = problem == Problem::regression ? double{static_cast<float>(2 * u_() - 1)} : u_() < 0.5;
        numbers.push_back(static_cast<float>(n));
      }
    batch.sequence_numbers = Tensor::of({2, c_.hyper.N_C}, numbers);
    const auto loss = [&](const Tokens& x, const formal::Vector<double>& y, const auto& theta) {
      return problem == Problem::regression ? formal::NumbersLoss(x, y, theta)
                                            : formal::LabelsLoss(x, y, theta);
    };
    expect_gradients(
        c_, batch, [&](const auto& theta) { return loss(x_, wanted[0], theta) + loss(y_, wanted[1], theta); },
        GetParam());
  }
}

// Two questions: with two choices, and with one to three more.
TEST_P(HeadsAgainstFormal, ChoicesOfQuestions) {
  c_.spec.problem = Problem::multiple_choice;
  c_.spec.labels.clear();
  c_.hyper.N_C = c_.theta.hyper.N_C = 1;
  c_.theta.W_c = c_.theta.W_c.topRows(1).eval();
  c_.theta.b_c = c_.theta.b_c.topRows(1).eval();
  std::vector<Tokens> first = {x_, y_}, second;
  for (int n = between(u_, 3, 5); n > 0; --n) second.push_back(sequence());
  Flat flat;
  for (const auto* question : {&first, &second})
    for (const Tokens& x : *question) flat.append(x);
  Batch batch = batch_of(flat, {});
  const int i = between(u_, 1, 2), j = between(u_, 1, static_cast<int>(second.size()));
  batch.choices = {0, 2, 2 + static_cast<int32_t>(second.size())};
  batch.targets = Indices({i - 1, j - 1});
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::ChoiceLoss(first, i, theta) + formal::ChoiceLoss(second, j, theta);
      },
      GetParam());
}

TEST_P(HeadsAgainstFormal, ClassesOfTokens) {
  without_pooler(Output::token_classes);
  Batch batch = batch_of_two();
  std::vector<Tokens> classes(2);
  std::vector<int32_t> targets;
  for (size_t s = 0; s < 2; ++s)
    for (size_t t = 0; t < (s == 0 ? x_ : y_).size(); ++t) {
      classes[s].push_back(between(u_, 1, 3));
      targets.push_back(classes[s].back() - 1);
    }
  batch.targets = targets;
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::TagLoss(x_, classes[0], theta) + formal::TagLoss(y_, classes[1], theta);
      },
      GetParam());
}

TEST_P(HeadsAgainstFormal, Spans) {
  without_pooler(Output::span);
  Batch batch = batch_of_two();
  const auto lx = static_cast<int>(x_.size()), ly = static_cast<int>(y_.size());
  const int bx = between(u_, 1, lx), ex = between(u_, bx, lx), by = between(u_, 1, ly),
            ey = between(u_, by, ly);
  batch.targets = Indices({bx - 1, ex - 1, by - 1, ey - 1}, 2);
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::SpanLoss(x_, bx, ex, theta) + formal::SpanLoss(y_, by, ey, theta);
      },
      GetParam());
}

// BERT's pre-training: two texts with masked tokens, where the second follows the first or not.
TEST_P(HeadsAgainstFormal, MaskedTokensAndNextSentences) {
  c_.spec.output = Output::tokens;
  c_.spec.head_width = c_.spec.width;
  TokenStream stream;
  for (int i = 0; i < 3; ++i) stream.append(engine_ids(random_tokens(c_.spec, u_, c_.spec.context)));
  Masking masking;
  masking.rate = 0.5;
  masking.next_sentence = true;
  masking.mask = formal::mask_token(c_.spec.vocab_size) - 1;
  masking.vocab_size = static_cast<int32_t>(c_.spec.vocab_size);
  const Batch batch = masked_batch(stream, pieces_of(stream, c_.spec.context), {}, masking, GetParam(), 1);
  std::vector<formal::BERTExample> examples;
  for (size_t s = 0; s < 3; ++s) {
    formal::BERTExample e{{}, chosen_in(batch, s), batch.sequence_targets[s] + 1};
    for (int32_t r = batch.layout.offsets[s]; r < batch.layout.offsets[s + 1]; ++r) {
      const int32_t target = batch.targets[r];
      e.x.push_back((target == kIgnored ? batch.ids[r] : target) + 1);
    }
    examples.push_back(e);
  }
  const auto loss = [&](const auto& theta) { return formal::BERTLoss(examples, theta); };
  const auto want = formal::loss_and_gradient(loss, c_.theta);
  const Values gradients = engine_values(c_, want.gradient, true);
  const auto model = engine_model(c_);
  model->parameters().prepare_training(DType::f32, 0);
  model->parameters().reset_gradients();
  Context context;
  context.training = true;
  const CrossEntropyResult r =
      model->loss(batch, batch.targets, context, 1 / static_cast<float>(batch.target_count));
  EXPECT_NEAR(r.loss.data<float>()[0], want.loss, kTolerance * std::max(1.0, want.loss));
  backward(r.loss);
  model->parameters().complete_gradients();
  expect_gradients_near(
      *model, gradients, c_.theta, loss, [&](const auto& theta) { return engine_values(c_, theta, true); },
      GetParam(), "");
}

// Contrastive loss of text vectors.
TEST_P(HeadsAgainstFormal, PairsOfVectors) {
  constexpr double kTau = 0.05;
  c_.spec.output = Output::embedding;
  c_.spec.pooling = Pooling::mean;
  c_.spec.pooler = false;
  c_.spec.labels.clear();
  Flat flat;
  std::vector<Tokens> x, y;
  for (int i = 0; i < 3; ++i) flat.append(x.emplace_back(sequence()));
  for (int i = 0; i < 3; ++i) flat.append(y.emplace_back(sequence()));
  expect_gradients(
      c_, batch_of(flat, {}), [&](const auto& theta) { return formal::ContrastiveLoss(x, y, kTau, theta); },
      GetParam());
}

INSTANTIATE_TEST_SUITE_P(Random, HeadsAgainstFormal, ::testing::Range(0u, seeds()));

}  // namespace
}  // namespace qkv::engine_heads_test
