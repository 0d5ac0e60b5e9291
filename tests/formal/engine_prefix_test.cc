// The engine against the specification: random small decoders whose prefixes are seen whole, or whose masks
// are given.

#include <numeric>

#include "formal/inference.h"
#include "formal/transformer.h"
#include "qkv/data/pairs.h"
#include "qkv/infer/generate.h"
#include "qkv/train/tasks/evaluate.h"
#include "tests/formal/engine_batches.h"

namespace qkv::engine_prefix_test {
namespace {

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

}  // namespace
}  // namespace qkv::engine_prefix_test
