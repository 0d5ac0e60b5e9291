// The engine against the specification: random small encoders, with masked tokens to predict, and
// encoder-decoders against Algorithms 8, 9, 11, 12 and 15; the objectives of formal/objectives.h.
// Covers: qkv/models/head.cc, qkv/models/classifier.cc, qkv/models/unembedding.cc

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "formal/gradient.h"
#include "formal/inference.h"
#include "formal/training.h"
#include "formal/transformer.h"
#include "qkv/data/corruption.h"
#include "qkv/data/masking.h"
#include "qkv/data/pairs.h"
#include "qkv/infer/generate.h"
#include "qkv/train/optim/training_state.h"
#include "qkv/train/tasks/evaluate.h"
#include "tests/formal/engine_case.h"

namespace qkv {
namespace {

using formal::EDTheta;
using formal::ETheta;

// Sequences side by side.
struct Flat {
  std::vector<int32_t> ids, lengths;
  void append(const Tokens& x) {
    for (const int32_t id : engine_ids(x)) ids.push_back(id);
    lengths.push_back(static_cast<int32_t>(x.size()));
  }
  Layout layout() const { return Layout::of(lengths); }
};

Batch batch_of(const Flat& x, const std::vector<int32_t>& targets) {
  Batch b;
  b.ids = x.ids;
  b.layout = x.layout();
  b.targets = targets;
  for (const int32_t t : targets) b.target_count += t != kIgnored;
  return b;
}

// Every token is followed by the next.
Batch next_tokens(const std::vector<std::pair<Tokens, Tokens>>& data) {
  Flat source, x;
  std::vector<int32_t> targets;
  for (const auto& [z, to] : data) {
    source.append(z);
    x.append(to);
    const std::vector<int32_t> ids = engine_ids(to);
    targets.insert(targets.end(), ids.begin() + 1, ids.end());
    targets.push_back(kIgnored);
  }
  Batch b = batch_of(x, targets);
  b.source = source.ids;
  b.source_layout = source.layout();
  return b;
}

// The original's tokens at the positions where x~ has mask_token.
Batch masked_tokens(const std::vector<std::pair<Tokens, Tokens>>& data, int mask) {
  Flat x;
  std::vector<int32_t> targets;
  for (const auto& [original, masked] : data) {
    x.append(masked);
    for (size_t t = 0; t < original.size(); ++t)
      targets.push_back(masked[t] == mask ? original[t] - 1 : kIgnored);
  }
  return batch_of(x, targets);
}

StepConfig plain_sgd(double rate) {
  StepConfig config;
  config.optimizer.name = "sgd";
  config.optimizer.weight_decay = 0;
  config.schedule.name = "constant";
  config.schedule.warmup_steps = 0;
  config.schedule.learning_rate = rate;
  config.clip = 0;
  return config;
}

// Losses and gradients of a batch, with activations kept and recomputed.
template <typename Theta, typename Loss>
void expect_gradients(const Case<Theta>& c, const Batch& batch, const Loss& loss, unsigned seed) {
  const auto want = formal::loss_and_gradient(loss, c.theta);
  const Values gradients = engine_values(c, want.gradient, true);
  for (const bool recompute : {false, true}) {
    const auto model = engine_model(c);
    model->set_recompute(recompute);
    model->parameters().prepare_training(DType::f32, 0);
    model->parameters().reset_gradients();
    Context context;
    context.training = true;  // equal, because there is no dropout
    const CrossEntropyResult r = model->loss(batch, batch.targets, context, 1);
    EXPECT_NEAR(r.total, want.loss, kTolerance * std::max(1.0, want.loss));
    backward(r.loss);
    model->parameters().complete_gradients();
    expect_gradients_near(
        *model, gradients, c.theta, loss, [&](const Theta& theta) { return engine_values(c, theta, true); },
        seed, recompute ? ", recomputed" : "");
  }
}

template <typename Theta>
void expect_parameters(TrainingState& training, const Case<Theta>& c, const Theta& theta, unsigned seed) {
  const Values want = engine_values(c, theta, false);
  for (const Parameter& p : training.model().parameters().all())
    EXPECT_LT(deviation(p.master.values<float>(), want.at(p.name), largest(want)), 10 * kTolerance)
        << p.name << ", seed " << seed;
}

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

// Recovers, from the targets, the tokens that masked_batch() chose in a sequence and those that it shows
// instead.
formal::Chosen chosen_in(const Batch& batch, size_t sequence) {
  formal::Chosen c;
  for (int32_t r = batch.layout.offsets[sequence]; r < batch.layout.offsets[sequence + 1]; ++r) {
    c.x_tilde.push_back(batch.ids[r] + 1);
    if (batch.targets[r] != kIgnored) c.T_tilde.push_back(r - batch.layout.offsets[sequence] + 1);
  }
  return c;
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

class DecoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Case<formal::DTheta<double>> c_ = random_case<formal::DTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

// Sequence to sequence, and prefix language modelling, by a decoder alone.
TEST_P(DecoderAgainstFormal, PrefixLossAndEveryGradient) {
  c_.spec.order = Order::prefix;
  const SequenceEnds ends{0, 1};
  const auto room = static_cast<int>(c_.spec.context) - 2;
  PairStream pairs;
  std::vector<Tokens> rows;  // z eos bos x eos
  std::vector<formal::Index> prefixes;
  for (int i = 0; i < 2; ++i) {
    const Tokens z = random_tokens(c_.spec, u_, between(u_, 1, std::max(1, room - 1)));
    const Tokens x = random_tokens(c_.spec, u_, std::max(1, room - static_cast<int>(z.size())));
    pairs.source.append(engine_ids(z));
    pairs.target.append(engine_ids(x));
    Tokens row = z;
    row.insert(row.end(), {ends.eos + 1, ends.bos + 1});
    row.insert(row.end(), x.begin(), x.end());
    row.push_back(ends.eos + 1);
    row.resize(std::min<size_t>(row.size(), static_cast<size_t>(c_.spec.context) + 1));
    rows.push_back(row);
    prefixes.push_back(static_cast<formal::Index>(std::min<size_t>(z.size() + 2, c_.spec.context)));
  }
  const std::vector<int64_t> both = {0, 1};
  // The last token is only predicted, so it does not count towards l_max.
  expect_gradients(
      c_, pair_batch(pairs, both, ends, c_.spec.pair_layout()),
      [&](const auto& theta) {
        using std::log;
        auto loss = decltype(formal::DLoss(rows[0], theta))(0);
        for (size_t i = 0; i < 2; ++i) {
          const Tokens read(rows[i].begin(), rows[i].end() - 1);
          const auto P =
              formal::DTransformer(read, formal::prefix_mask(prefixes[i], formal::length(read)), theta);
          for (formal::Index t = prefixes[i]; t <= formal::length(read); ++t)
            loss -= log(formal::entry(P, formal::at(rows[i], t + 1), t));
        }
        return loss;
      },
      GetParam());
}

// Masks as data: two at random, and a permuted one (the survey's P M_causal P^-1).
TEST_P(DecoderAgainstFormal, GivenMasksLossAndEveryGradient) {
  Flat flat;
  std::vector<Tokens> data;
  std::vector<formal::MaskMatrix> masks;
  std::vector<int32_t> table, targets;
  for (int s = 0; s < 3; ++s) {
    data.push_back(random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context))));
    flat.append(data.back());
    const formal::Index l = formal::length(data.back());
    if (s == 1) {
      std::vector<formal::Index> order(static_cast<size_t>(l));
      std::iota(order.begin(), order.end(), 1);
      for (int i = static_cast<int>(l) - 1; i > 0; --i) std::swap(order[i], order[between(u_, 0, i)]);
      masks.push_back(formal::permuted_mask(order));
      for (formal::Index i = 0; i < l; ++i)
        for (formal::Index j = 0; j < l; ++j)
          ASSERT_EQ(formal::entry(masks.back(), order[j], order[i]), j <= i) << "in the order it is causal";
    } else {
      formal::MaskMatrix mask(l, l);
      for (formal::Index t_x = 0; t_x < l; ++t_x)
        for (formal::Index t_z = 0; t_z < l; ++t_z)
          mask(t_z, t_x) = t_z == (t_x * 3 + s) % l || between(u_, 0, 3) > s;  // none sees nothing
      masks.push_back(mask);
    }
    for (formal::Index t_x = 0; t_x < l; ++t_x)
      for (formal::Index t_z = 0; t_z < l; ++t_z) table.push_back(masks.back()(t_z, t_x));
    const std::vector<int32_t> ids = engine_ids(data.back());
    targets.insert(targets.end(), ids.begin(), ids.end());  // each token itself
  }
  Batch batch = batch_of(flat, targets);
  batch.visibility.table = table;
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        using std::log;
        auto loss = decltype(formal::DLoss(data[0], theta))(0);
        for (size_t s = 0; s < data.size(); ++s) {
          const auto P = formal::DTransformer(data[s], masks[s], theta);
          for (formal::Index t = 1; t <= formal::length(data[s]); ++t)
            loss -= log(formal::entry(P, formal::at(data[s], t), t));
        }
        return loss;
      },
      GetParam());
}

TEST_P(DecoderAgainstFormal, DrawnPrefixes) {
  c_.spec.order = Order::prefix;
  TokenStream stream;
  std::vector<Tokens> data;
  for (int i = 0; i < 2; ++i) {
    data.push_back(random_tokens(c_.spec, u_, static_cast<int>(c_.spec.context)));
    stream.append(engine_ids(data.back()));
  }
  Batch batch = cut_windows(stream, {0, c_.spec.context}, c_.spec.context);
  draw_prefixes(batch, GetParam(), 1);
  std::vector<formal::Index> prefixes;
  for (int64_t s = 0; s < 2; ++s) {
    int32_t r = batch.layout.offsets[s];
    while (batch.targets[r] == kIgnored) ++r;
    prefixes.push_back(r - batch.layout.offsets[s] + 1);
  }
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::PrefixLoss(data[0], prefixes[0], theta) +
               formal::PrefixLoss(data[1], prefixes[1], theta);
      },
      GetParam());
}

// The loss of a text does not depend on the number of windows per batch.
TEST_P(DecoderAgainstFormal, EvaluationOfPrefixesKnowsNoBatches) {
  c_.spec.order = Order::prefix;
  const auto model = engine_model(c_);
  TokenStream stream;
  for (int i = 0; i < 7; ++i) stream.append(engine_ids(random_tokens(c_.spec, u_, between(u_, 1, 20))));
  const Evaluation one = evaluate(*model, stream, 1, 0), all = evaluate(*model, stream, 100, 0);
  EXPECT_EQ(one.tokens, all.tokens);
  EXPECT_NEAR(one.total, all.total, 1e-3 * std::max(1.0, all.total));
}

// Greedy continuations of a bidirectional prompt.
TEST_P(DecoderAgainstFormal, GeneratedFromAPrefix) {
  c_.spec.order = Order::prefix;
  const auto model = engine_model(c_);
  std::vector<Tokens> prompts;
  std::vector<std::vector<int32_t>> ids;
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(random_tokens(c_.spec, u_, between(u_, 1, static_cast<int>(c_.spec.context) - 1)));
    ids.push_back(engine_ids(prompts.back()));
  }
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_new_tokens = c_.spec.context;
  const auto got = generate(*model, ids, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Tokens x = prompts[i];
    while (formal::length(x) < c_.spec.context) {
      const auto l_p = static_cast<formal::Index>(prompts[i].size());
      const auto P = formal::DTransformer(x, formal::prefix_mask(l_p, formal::length(x)), c_.theta);
      formal::Index best = 1;
      for (formal::Index v = 2; v <= c_.hyper.N_V; ++v)
        if (formal::entry(P, v, P.cols()) > formal::entry(P, best, P.cols())) best = v;
      x.push_back(static_cast<int>(best));
    }
    EXPECT_EQ(got[i], engine_ids(Tokens(x.begin() + std::ssize(prompts[i]), x.end())))
        << "seed " << GetParam();
  }
}

INSTANTIATE_TEST_SUITE_P(Random, DecoderAgainstFormal, ::testing::Range(0u, seeds()));

class EncoderDecoderAgainstFormal : public ::testing::TestWithParam<unsigned> {
 protected:
  Tokens sequence(int least = 1) {
    return random_tokens(c_.spec, u_, between(u_, least, static_cast<int>(c_.spec.context)));
  }
  Case<EDTheta<double>> c_ = random_case<EDTheta<double>>(GetParam());
  Uniform u_{GetParam() + 1000};
};

TEST_P(EncoderDecoderAgainstFormal, Probabilities) {
  const auto model = engine_model(c_);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), sequence());
  }
  const NoGrad guard;
  const Tensor logits = model->logits(model->hidden(next_tokens(data), {}));
  int64_t row = 0;
  for (const auto& [z, x] : data) {
    expect_probabilities(logits, row, formal::EDTransformer(z, x, c_.theta), GetParam());
    row += formal::length(x);
  }
}

TEST_P(EncoderDecoderAgainstFormal, LossAndEveryGradient) {
  const std::pair<Tokens, Tokens> a{sequence(), sequence(2)}, b{sequence(), sequence(2)};
  expect_gradients(
      c_, next_tokens({a, b}),
      [&](const auto& theta) {
        return formal::EDLoss(a.first, a.second, theta) + formal::EDLoss(b.first, b.second, theta);
      },
      GetParam());
}

// Cross-attention with three sequences: the target's queries, and keys and values of rows of their own.
TEST_P(EncoderDecoderAgainstFormal, ThreeSequences) {
  const std::vector<Tokens> x = {sequence(2), sequence(2)};
  std::vector<formal::Matrix<double>> keys, values;
  std::vector<float> key_rows, value_rows;
  std::vector<int32_t> lengths;
  const auto random_states = [&](std::vector<float>& rows) {
    formal::Matrix<double> Z(c_.hyper.d_e, lengths.back());
    for (formal::Index t = 1; t <= Z.cols(); ++t)
      for (formal::Index i = 1; i <= Z.rows(); ++i) {
        rows.push_back(static_cast<float>(2 * u_() - 1));
        formal::entry(Z, i, t) = double{rows.back()};
      }
    return Z;
  };
  for (size_t s = 0; s < x.size(); ++s) {
    lengths.push_back(between(u_, 1, 7));
    keys.push_back(random_states(key_rows));
    values.push_back(random_states(value_rows));
  }
  Batch batch = next_tokens({{Tokens{1}, x[0]}, {Tokens{1}, x[1]}});
  batch.source = {};
  batch.source_layout = Layout::of(lengths);
  const Shape shape = {batch.source_layout.rows(), c_.hyper.d_e};
  batch.source_keys = Tensor::of(shape, key_rows);
  batch.source_values = Tensor::of(shape, value_rows);
  const auto P = [&](size_t s, const auto& theta) {
    using T = typename std::decay_t<decltype(theta.embedding.W_e)>::Scalar;
    const formal::Matrix<T> Z_k = keys[s].template cast<T>(), Z_v = values[s].template cast<T>();
    return formal::unembedding(formal::EDTransformer_decode(Z_k, Z_v, x[s], theta),
                               formal::unembedding_matrix(theta.embedding, theta.hyper));
  };
  {
    const auto model = engine_model(c_);
    const NoGrad guard;
    const Tensor logits = model->logits(model->hidden(batch, {}));
    expect_probabilities(logits, 0, P(0, c_.theta), GetParam());
    expect_probabilities(logits, formal::length(x[0]), P(1, c_.theta), GetParam());
    batch.source_values = Tensor::zeros({shape[0], shape[1] + 1}, DType::f32);
    EXPECT_THROW(model->hidden(batch, {}), Error);
    batch.source_values = Tensor::of(shape, value_rows);
  }
  expect_gradients(
      c_, batch,
      [&](const auto& theta) {
        return formal::next_token_loss(P(0, theta), x[0]) + formal::next_token_loss(P(1, theta), x[1]);
      },
      GetParam());
}

TEST_P(EncoderDecoderAgainstFormal, ParametersAfterSgd) {
  constexpr double kEta = 0.02;
  constexpr int kEpochs = 2;
  c_ = random_case<EDTheta<double>>(GetParam(), false);
  const int length = static_cast<int>(c_.spec.context);
  std::vector<std::pair<Tokens, Tokens>> data;
  for (int i = 0; i < 3; ++i) {
    Tokens z = sequence();
    data.emplace_back(std::move(z), random_tokens(c_.spec, u_, length));
  }
  const auto theta = formal::EDTraining(data, c_.theta, kEpochs, kEta);
  TrainingState training(engine_model(c_), plain_sgd(kEta * (length - 1)));
  for (int64_t step = 1; step <= kEpochs * 3; ++step)
    training.step({next_tokens({data[(step - 1) % 3]})}, step, kEpochs * 3);
  expect_parameters(training, c_, theta, GetParam());
}

// Algorithm 15, greedy and sampled with the same random numbers; several sources at once.
TEST_P(EncoderDecoderAgainstFormal, GeneratedTokens) {
  const auto model = engine_model(c_);
  const formal::Index N_V = c_.spec.vocab_size;
  const std::vector<Tokens> data = {sequence(), sequence(), sequence()};
  std::vector<std::vector<int32_t>> sources;
  for (const Tokens& z : data) sources.push_back(engine_ids(z));
  for (const double tau : {0.0, 0.7, 1.0, 3.0, std::numeric_limits<double>::infinity()}) {
    GenerateOptions options;
    options.sampler.temperature = tau;
    options.max_new_tokens = c_.spec.context - 1;
    options.seed = GetParam();
    options.eos = {formal::eos_token(N_V) - 1};
    const std::vector<std::vector<int32_t>> prompts(3, {formal::bos_token(N_V) - 1});
    const auto got = generate(*model, prompts, options, nullptr, sources);
    for (size_t s = 0; s < data.size(); ++s) {
      uint64_t i = 0;
      const auto uniform = [&] { return RandomStream{options.seed + s, i++, 0}.uniform(0); };
      std::vector<int32_t> want = engine_ids(formal::EDInference(data[s], c_.theta, tau, uniform));
      want.erase(want.begin());  // bos
      EXPECT_EQ(got[s], want) << "tau " << tau << ", source " << s << ", seed " << GetParam();
    }
  }
}

// Text restoration: the encoder-decoder's batch for a text that the engine has corrupted.
class RestorationAgainstFormal : public EncoderDecoderAgainstFormal {
 protected:
  // Draws until there are enough positions and tokens to remove some.
  void SetUp() override {
    for (unsigned s = GetParam(); c_.spec.context < 5 || c_.spec.vocab_size < 8; s += 10007)
      c_ = random_case<EDTheta<double>>(s + 10007);
  }
  int last() const { return static_cast<int>(c_.spec.vocab_size); }
  // Ordinary tokens: the last five are the special ones and two sentinels.
  Tokens text(int length) {
    Tokens x;
    for (int i = 0; i < length; ++i) x.push_back(between(u_, 1, last() - 5));
    return x;
  }
  static Tokens tokens(const std::vector<int32_t>& ids) {
    Tokens x;
    for (const int32_t id : ids) x.push_back(id + 1);
    return x;
  }
  void expect_restored(const Tokens& z, const Tokens& x, const Corrupted& pair) {
    const SequenceEnds ends{formal::bos_token(c_.spec.vocab_size) - 1,
                            formal::eos_token(c_.spec.vocab_size) - 1};
    const std::vector<Corrupted> pairs = {pair};
    expect_gradients(
        c_, pair_batch(pairs, ends, c_.spec.pair_layout()),
        [&](const auto& theta) { return formal::RestorationLoss(z, x, theta); }, GetParam());
  }
};

TEST_P(RestorationAgainstFormal, Spans) {
  const Tokens x = text(between(u_, 2, static_cast<int>(c_.spec.context) - 2)),
               sentinels = {last() - 3, last() - 4};
  SpanCorruption options;
  options.density = 0.4;
  options.mean_length = 1.5;
  options.sentinels = engine_ids(sentinels);
  const Corrupted pair = corrupt_spans(engine_ids(x), options, {GetParam(), 1, 1});
  // Finds the spans from the lengths of the pieces between sentinels.
  std::vector<formal::Span> spans;
  formal::Index t = 1;
  size_t taken = 0;
  for (const int32_t id : pair.source) {
    if (spans.size() == sentinels.size() || id != options.sentinels[spans.size()]) {
      ++t;
      continue;
    }
    const formal::Index begin = t;
    for (++taken; taken < pair.target.size() && pair.target[taken] < options.sentinels.back(); ++taken) ++t;
    spans.push_back({begin, t});
  }
  ASSERT_FALSE(spans.empty());
  const Tokens z = formal::without_spans(x, spans, sentinels), y = formal::spans_alone(x, spans, sentinels);
  EXPECT_EQ(tokens(pair.source), z);
  EXPECT_EQ(tokens(pair.target), y);
  expect_restored(z, y, pair);
}

// Searches for spans and deletions that turn the ordered text y into z, from position t on. They are read
// from the ends of the text.
bool explain(const Tokens& y, const Tokens& z, formal::Index t, size_t at, int mask,
             std::vector<formal::Span>& spans, std::vector<formal::Index>& deleted) {
  if (at == z.size() && t > formal::length(y)) return true;
  if (at < z.size() && z[at] == mask)
    for (formal::Index end = t; end <= formal::length(y) + 1; ++end) {
      spans.push_back({t, end});
      if (explain(y, z, end, at + 1, mask, spans, deleted)) return true;
      spans.pop_back();
    }
  if (t > formal::length(y)) return false;
  if (at < z.size() && z[at] == formal::at(y, t) && explain(y, z, t + 1, at + 1, mask, spans, deleted))
    return true;
  deleted.push_back(t);
  if (explain(y, z, t + 1, at, mask, spans, deleted)) return true;
  deleted.pop_back();
  return false;
}

TEST_P(RestorationAgainstFormal, NoisedTexts) {
  const Tokens x = text(static_cast<int>(c_.spec.context) - 1);
  const int mask = formal::mask_token(c_.spec.vocab_size);
  Denoising options;
  options.infill = 0.3;
  options.mean_length = 1.5;
  options.deletion = 0.2;
  options.mask = mask - 1;
  options.ends.assign(c_.spec.vocab_size, false);
  options.ends[0] = true;
  Corrupted pair = add_noise(engine_ids(x), options, {GetParam(), 1, 1});
  ASSERT_EQ(tokens(pair.target), x);
  std::vector<formal::Span> sentences;
  for (formal::Index begin = 1, t = 1; t <= formal::length(x); ++t)
    if (formal::at(x, t) == 1 || t == formal::length(x)) {
      sentences.push_back({begin, t + 1});
      begin = t + 1;
    }
  std::vector<size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), 0);
  const Tokens z = tokens(pair.source);
  bool explained = false;
  do {
    std::vector<formal::Span> ordered, spans;
    for (const size_t i : order) ordered.push_back(sentences[i]);
    std::vector<formal::Index> deleted;
    explained = explain(formal::noised(x, ordered, {}, {}, mask), z, 1, 0, mask, spans, deleted);
    if (explained) {
      EXPECT_EQ(formal::noised(x, ordered, spans, deleted, mask), z);
    }
  } while (!explained && std::next_permutation(order.begin(), order.end()));
  EXPECT_TRUE(explained);
  pair.source.resize(std::min(pair.source.size(), static_cast<size_t>(c_.spec.context) - 1));
  expect_restored(tokens(pair.source), x, pair);
}

INSTANTIATE_TEST_SUITE_P(Random, EncoderDecoderAgainstFormal, ::testing::Range(0u, seeds()));
INSTANTIATE_TEST_SUITE_P(Random, RestorationAgainstFormal, ::testing::Range(0u, seeds()));

}  // namespace
}  // namespace qkv
