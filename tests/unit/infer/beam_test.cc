// Beam search against exhaustive search.
// Covers: qkv/infer/ensemble.cc, qkv/infer/alternatives.cc, qkv/infer/attention_rows.cc
// Covers: qkv/infer/beam_step.cc
#include "qkv/infer/beam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "qkv/infer/attention_rows.h"
#include "tests/unit/expect_error.h"

namespace qkv::beam_test {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kBos = 0, kEos = 1;

class BeamTest : public ::testing::Test {
 protected:
  BeamTest() : model_(spec()), other_(spec()), models_(model_) {
    model_.parameters().draw(5, DType::f32);
    other_.parameters().draw(6, DType::f32);
    options_.eos = {kEos};
    options_.max_new_tokens = 4;
  }
  static ModelSpec spec() {
    ModelSpec s = gpt2_spec(5, 12, 8, 1, 2);
    s.architecture = Architecture::encoder_decoder;
    s.encoder_layers = 1;
    s.init_std = 0.6F;  // probabilities that differ
    return s;
  }

  // log P of the tokens after bos and `tokens`, computed from scratch: of the mean of the models'
  // probabilities.
  std::vector<double> next(const Tokens& source, const Tokens& tokens) const {
    std::vector<double> mean(5);
    for (const Transformer* model : models_.models()) {
      const std::vector<double> p = probabilities(*model, source, tokens);
      for (size_t v = 0; v < mean.size(); ++v) mean[v] += p[v] / static_cast<double>(models_.models().size());
    }
    for (double& p : mean) p = std::log(p);
    return mean;
  }
  // The same for logits with the repetition penalty. REQUIRES: one model.
  std::vector<double> next_penalised(const Tokens& source, const Tokens& tokens) const {
    std::vector<double> z = logits_of(*models_.models()[0], source, tokens);
    for (int32_t v = 0; v < 5; ++v)
      if (v == kBos || std::find(tokens.begin(), tokens.end(), v) != tokens.end())
        z[v] = z[v] > 0 ? z[v] / options_.repetition_penalty : z[v] * options_.repetition_penalty;
    double sum = 0;
    for (const double v : z) sum += std::exp(v);
    for (double& v : z) v -= std::log(sum);
    return z;
  }
  static std::vector<double> logits_of(const Transformer& model, const Tokens& source, Tokens tokens) {
    const NoGrad guard;
    tokens.insert(tokens.begin(), kBos);
    ModelInput in{tokens, Layout::of({static_cast<int32_t>(tokens.size())})};
    in.source = source;
    in.source_layout = Layout::of({static_cast<int32_t>(source.size())});
    const Tensor logits = model.logits(model.hidden(in, {}));
    const auto z = logits.values<float>().last(logits.width());
    return {z.begin(), z.end()};
  }
  static std::vector<double> probabilities(const Transformer& model, const Tokens& source,
                                           const Tokens& tokens) {
    const std::vector<double> z = logits_of(model, source, tokens);
    double sum = 0;
    for (const double v : z) sum += std::exp(v);
    std::vector<double> out;
    for (const double v : z) out.push_back(std::exp(v) / sum);
    return out;
  }

  // All outputs of at most options_.max_new_tokens tokens, best first.
  std::vector<Hypothesis> all(const Tokens& source) const {
    std::vector<Hypothesis> out;
    const auto grow = [&](const auto& self, const Tokens& tokens, double log_p) -> void {
      const bool ended = !tokens.empty() && tokens.back() == kEos;
      if (ended || std::ssize(tokens) == options_.max_new_tokens) {
        const double length = std::pow(static_cast<double>(tokens.size()), options_.length_penalty);
        out.push_back({tokens, log_p, log_p / length});
        return;
      }
      const std::vector<double> p =
          options_.repetition_penalty == 1 ? next(source, tokens) : next_penalised(source, tokens);
      for (int32_t v = 0; v < 5; ++v) {
        Tokens longer = tokens;
        longer.push_back(v);
        self(self, longer, log_p + p[v]);
      }
    };
    grow(grow, {}, 0);
    std::sort(out.begin(), out.end(),
              [](const Hypothesis& a, const Hypothesis& b) { return a.score > b.score; });
    return out;
  }

  std::vector<std::vector<Hypothesis>> search(const std::vector<Tokens>& sources) const {
    return beam_search(models_, std::vector<Tokens>(sources.size(), {kBos}), options_, sources);
  }
  // With enough beams the search finds everything.
  void expect_the_best() {
    options_.beams = 500;  // 4^4 prefixes at most
    for (const double penalty : {0.0, 0.6, 1.0, 2.0}) {
      options_.length_penalty = penalty;
      const auto found = search(sources_);
      for (size_t s = 0; s < sources_.size(); ++s) {
        const std::vector<Hypothesis> want = all(sources_[s]);
        ASSERT_EQ(found[s].size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(found[s][i].score, want[i].score, 1e-5);
        EXPECT_EQ(found[s][0].tokens, want[0].tokens);
        EXPECT_NEAR(found[s][0].log_probability, want[0].log_probability, 1e-5);
      }
    }
  }

  Transformer model_, other_;
  Ensemble models_;
  BeamOptions options_;
  const std::vector<Tokens> sources_ = {{2, 3, 4, 1}, {4, 1}, {3, 3, 2, 2, 4, 1}};
};

TEST_F(BeamTest, WithEnoughBeamsFindsTheBest) {
  expect_the_best();
}

TEST_F(BeamTest, OfAnEnsembleByTheMeanOfProbabilities) {
  models_ = Ensemble({&model_, &other_});
  expect_the_best();
  models_ = Ensemble({&model_, &model_});  // the same as one alone, up to rounding
  const auto twice = search(sources_);
  models_ = model_;
  const auto once = search(sources_);
  for (size_t s = 0; s < sources_.size(); ++s) EXPECT_NEAR(twice[s][0].score, once[s][0].score, 1e-5);
}

TEST_F(BeamTest, ModelsOfAnEnsembleShareTheirTokens) {
  ModelSpec wide = spec(), decoder = gpt2_spec(5, 12, 8, 1, 2), shorter = spec();
  wide.vocab_size = 6;
  shorter.context = 11;
  const std::pair<const ModelSpec*, const char*> others[] = {
      {&wide, "vocab_size"}, {&decoder, "decoder"}, {&shorter, "context"}};
  for (const auto& [other, says] : others) {
    const Transformer model(*other);
    testing::expect_error([&] { Ensemble({&model_, &model}); }, {"ensemble", says});
  }
}

TEST_F(BeamTest, RepetitionPenaltyIsOfEachBeamsOwnTokens) {
  for (const double penalty : {0.4, 3.0}) {  // below 1, earlier tokens become likelier
    options_.repetition_penalty = penalty;
    for (const int64_t beams : {500, 2}) {
      options_.beams = beams;
      const auto found = search(sources_);
      for (size_t s = 0; s < sources_.size(); ++s) {
        const std::vector<Hypothesis> want = all(sources_[s]);
        for (const Hypothesis& h : found[s]) {
          const auto same = std::find_if(want.begin(), want.end(),
                                         [&](const Hypothesis& w) { return w.tokens == h.tokens; });
          ASSERT_NE(same, want.end());
          EXPECT_NEAR(h.log_probability, same->log_probability, 1e-4);
        }
        EXPECT_LE(found[s][0].score, want[0].score + 1e-4);
        EXPECT_TRUE(beams == 2 || found[s][0].score > want[0].score - 1e-4);
      }
    }
  }
}

TEST_F(BeamTest, OneBeamIsGreedy) {
  options_.beams = 1;
  options_.stop = BeamOptions::Stop::early;
  GenerateOptions greedy;
  greedy.sampler.temperature = 0;
  greedy.eos = {kEos};
  greedy.max_new_tokens = options_.max_new_tokens;
  options_.max_new_tokens = greedy.max_new_tokens = 9;
  std::vector<std::vector<Tokens>> found_with;
  for (const int64_t n : {0, 1, 2}) {
    options_.rules.no_repeat_ngram = greedy.rules.no_repeat_ngram = n;
    const auto want = generate(model_, std::vector<Tokens>(3, {kBos}), greedy, nullptr, sources_);
    const auto found = search(sources_);
    for (size_t s = 0; s < sources_.size(); ++s) EXPECT_EQ(found[s][0].tokens, want[s]) << n;
    found_with.push_back(want);
  }
  EXPECT_NE(found_with[0], found_with[1]);  // some tokens repeat
}

TEST_F(BeamTest, SourcesDoNotSeeEachOther) {
  options_.beams = 3;
  const auto together = search(sources_);
  for (size_t s = 0; s < sources_.size(); ++s) {
    const auto alone = search({sources_[s]})[0];
    ASSERT_EQ(together[s].size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[s][i].tokens, alone[i].tokens);
  }
}

TEST_F(BeamTest, HypothesesAreWhatTheySay) {
  options_.beams = 4;
  options_.length_penalty = 0.6;
  const auto found = search({sources_[0]});
  for (const Hypothesis& h : found[0]) {
    double log_p = 0;
    for (size_t i = 0; i < h.tokens.size(); ++i)
      log_p += next(sources_[0],
                    Tokens(h.tokens.begin(), h.tokens.begin() + static_cast<int64_t>(i)))[h.tokens[i]];
    EXPECT_NEAR(h.log_probability, log_p, 1e-5);
    EXPECT_NEAR(h.score, log_p / std::pow(static_cast<double>(h.tokens.size()), 0.6), 1e-5);
  }
}

TEST_F(BeamTest, SuppressedSequencesDoNotAppear) {
  options_.beams = 500;
  options_.rules.suppressed = {{2, 3}, {4}};
  const auto found = search(sources_);
  for (size_t s = 0; s < sources_.size(); ++s) {
    std::vector<Hypothesis> want = all(sources_[s]);
    std::erase_if(want, [](const Hypothesis& h) {
      for (size_t i = 0; i < h.tokens.size(); ++i)
        if (h.tokens[i] == 4 || (i > 0 && h.tokens[i - 1] == 2 && h.tokens[i] == 3)) return true;
      return false;
    });
    ASSERT_EQ(found[s].size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(found[s][i].tokens, want[i].tokens);
  }
}

TEST_F(BeamTest, AnEndIsNoSuppressedSequence) {
  options_.beams = 500;
  const auto free = search({sources_[0]});
  options_.rules.suppressed = {{kEos}};
  const auto found = search({sources_[0]});
  ASSERT_EQ(found[0].size(), free[0].size());
  EXPECT_EQ(found[0][0].tokens, free[0][0].tokens);
}

TEST_F(BeamTest, PatienceKeepsMoreOutputs) {
  options_.beams = 3;
  options_.stop = BeamOptions::Stop::early;
  options_.max_new_tokens = 12;
  const size_t usual = search({sources_[0]})[0].size();
  options_.patience = 2;
  const size_t patient = search({sources_[0]})[0].size();
  options_.patience = 0.4;
  const size_t hasty = search({sources_[0]})[0].size();
  EXPECT_EQ(usual, 3U);
  EXPECT_GT(patient, 3U);
  EXPECT_LE(patient, 6U);
  EXPECT_EQ(hasty, 1U);
}

TEST_F(BeamTest, WishedBeginningsAreOfRaisedProbability) {
  options_.beams = 500;
  options_.prefix_bias = 0.35;
  options_.wished = {{3, 2}};
  const double beta = options_.prefix_bias;
  const auto found = search({sources_[0]});
  for (const Hypothesis& h : found[0]) {
    double log_p = 0;
    bool follows = true;
    for (size_t i = 0; i < h.tokens.size(); ++i) {
      const Tokens before(h.tokens.begin(), h.tokens.begin() + static_cast<int64_t>(i));
      double p = std::exp(next(sources_[0], before)[h.tokens[i]]);
      const bool wished = i < 2 && follows;
      if (wished) p = (1 - beta) * p + (h.tokens[i] == options_.wished[0][i] ? beta : 0);
      follows = wished && h.tokens[i] == options_.wished[0][i];
      log_p += std::log(p);
    }
    EXPECT_NEAR(h.log_probability, log_p, 1e-5);
  }
  options_.beams = 2;
  options_.prefix_bias = 1 - 1e-9;
  const Tokens best = search({sources_[0]})[0][0].tokens;
  EXPECT_EQ(Tokens(best.begin(), best.begin() + 2), options_.wished[0]);
}

TEST_F(BeamTest, AlternativesAreTheBestWithEachFirstToken) {
  options_.beams = 500;
  options_.alternatives = 3;
  const auto found = search(sources_);
  for (size_t s = 0; s < sources_.size(); ++s) {
    const std::vector<Hypothesis> want = all(sources_[s]);
    const std::vector<double> first = next(sources_[s], {});
    ASSERT_EQ(found[s].size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const int32_t token = found[s][i].tokens[0];
      EXPECT_NE(token, kEos);
      EXPECT_TRUE(i == 0 || first[found[s][i - 1].tokens[0]] >= first[token]);
      const auto best =
          std::find_if(want.begin(), want.end(), [&](const Hypothesis& h) { return h.tokens[0] == token; });
      EXPECT_EQ(found[s][i].tokens, best->tokens);
      EXPECT_NEAR(found[s][i].score, best->score, 1e-5);
    }
  }
  // Forced tokens come first, and a length limit that ends with them holds.
  options_.alternatives = 2;
  options_.rules.begin = {3, 2};
  for (const int64_t most : {4, 3}) {
    options_.max_new_tokens = most;
    const auto forced = search({sources_[0]});
    ASSERT_EQ(forced[0].size(), 2U);
    EXPECT_NE(forced[0][0].tokens[2], forced[0][1].tokens[2]);
    for (const Hypothesis& h : forced[0]) {
      EXPECT_EQ(Tokens(h.tokens.begin(), h.tokens.begin() + 2), options_.rules.begin);
      EXPECT_LE(std::ssize(h.tokens), most);
      double log_p = 0;
      for (size_t i = 2; i < h.tokens.size(); ++i)
        log_p += next(sources_[0],
                      Tokens(h.tokens.begin(), h.tokens.begin() + static_cast<int64_t>(i)))[h.tokens[i]];
      EXPECT_NEAR(h.log_probability, log_p, 1e-5);
    }
  }
  options_.rules.begin.clear();
  options_.max_new_tokens = 4;
  options_.least_alternative = 1;  // the likeliest remains
  EXPECT_EQ(search({sources_[0]})[0].size(), 1U);
  options_.alternatives = 3;
  options_.least_alternative = std::exp(next(sources_[0], {})[found[0][1].tokens[0]]) * 0.999;
  EXPECT_EQ(search({sources_[0]})[0].size(), 2U);
}

// Alternatives are the best of an exhaustive search for each first token, with any other options.
void expect_best_of_each_first_token(const Ensemble& model, const std::vector<Tokens>& prompts, BeamOptions o,
                                     const Sources& sources) {
  o.beams = 500;
  const auto every = beam_search(model, prompts, o, sources);
  o.alternatives = 3;
  const auto found = beam_search(model, prompts, o, sources);
  for (size_t p = 0; p < prompts.size(); ++p) {
    ASSERT_EQ(found[p].size(), 3U);
    for (const Hypothesis& h : found[p]) {
      const auto best = std::find_if(every[p].begin(), every[p].end(),
                                     [&](const Hypothesis& e) { return e.tokens[0] == h.tokens[0]; });
      EXPECT_EQ(h.tokens, best->tokens);
      EXPECT_NEAR(h.log_probability, best->log_probability, 1e-5);
    }
  }
}

TEST_F(BeamTest, AlternativesKeepWishes) {
  options_.prefix_bias = 0.6;
  options_.wished = {{3, 2, 4}, {}, {2, 2}};
  expect_best_of_each_first_token(model_, {{kBos}, {kBos}, {kBos}}, options_, Sources(sources_));
}

TEST_F(BeamTest, AlternativesInAPrefixLmSeeItsPromptAlone) {
  ModelSpec s = spec();
  s.architecture = Architecture::decoder;
  s.encoder_layers = 0;
  s.order = Order::prefix;
  s.layers = 2;  // with one layer the last token sees all anyway
  Transformer prefix(s);
  prefix.parameters().draw(7, DType::f32);
  expect_best_of_each_first_token(prefix, {{2, 3, 4}, {3, 2, 4}}, options_, {});
}

TEST_F(BeamTest, AttentionIsOfThePassThatWroteAToken) {
  options_.beams = 3;
  options_.attention = true;
  const auto found = search(sources_);
  for (size_t s = 0; s < sources_.size(); ++s)
    for (const Hypothesis& h : found[s]) {
      AttentionRows whole(model_.spec());
      Tokens read = h.tokens;
      read.insert(read.begin(), kBos);
      DecodeState state(model_, Sources({sources_[s]}));
      state.extend({read}, {.probe = &whole});
      ASSERT_EQ(h.attention.size(), h.tokens.size());
      for (size_t t = 0; t < h.tokens.size(); ++t)
        for (size_t j = 0; j < sources_[s].size(); ++j)
          EXPECT_NEAR(h.attention[t][j], whole.of(0)[t][j], 1e-6);
    }
  // The penalty favours outputs that cover more of their source (Wu et al. 2016, eq. 14).
  options_.coverage_penalty = 0.7;
  const auto covering = search({sources_[2]});
  for (const Hypothesis& h : covering[0]) {
    double score =
        h.log_probability / std::pow(static_cast<double>(h.tokens.size()), options_.length_penalty);
    for (size_t j = 0; j < sources_[2].size(); ++j) {
      double got = 0;
      for (const auto& row : h.attention) got += row[j];
      score += 0.7 * std::log(std::min(1.0, got));
    }
    EXPECT_NEAR(h.score, score, 1e-5);
  }
  ModelSpec decoder = model_.spec();
  decoder.architecture = Architecture::decoder;
  decoder.encoder_layers = 0;
  const Transformer alone(decoder);
  testing::expect_error([&] { beam_search(alone, {{kBos}}, options_); }, {"attention", "encoder-decoder"});
}

TEST_F(BeamTest, BegunTokensCountAsTheOutputs) {
  options_.max_new_tokens = 4;
  options_.begun = {0, 3};
  const auto found =
      beam_search(models_, {{kBos}, {kBos, 2, 3, 4}}, options_, Sources({sources_[0], sources_[0]}));
  for (const Hypothesis& h : found[1]) EXPECT_EQ(h.tokens.size(), 1U);
}

TEST_F(BeamTest, NgramsDoNotRepeatAndExcludedTokensDoNotAppear) {
  options_.beams = 4;
  options_.max_new_tokens = 10;
  options_.rules.no_repeat_ngram = 2;
  options_.excluded = {3};
  const auto found = search({sources_[2]});
  for (const Hypothesis& h : found[0]) {
    Tokens all = h.tokens;
    all.insert(all.begin(), kBos);
    std::vector<std::pair<int32_t, int32_t>> seen;
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      const std::pair pair(all[i], all[i + 1]);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), pair), 0);
      seen.push_back(pair);
      EXPECT_NE(all[i + 1], 3);
    }
  }
}

// The stop rules differ only in how long the search runs.
TEST_F(BeamTest, ACertainSearchFindsNothingWorse) {
  options_.beams = 2;
  options_.max_new_tokens = 11;
  options_.length_penalty = 3;  // favours long outputs
  int better = 0;
  for (int seed = 1; seed <= 20; ++seed) {
    Transformer model(spec());
    model.parameters().draw(static_cast<uint64_t>(seed), DType::f32);
    const std::vector<Tokens> prompts(sources_.size(), {kBos});
    options_.stop = BeamOptions::Stop::likely;
    const auto likely = beam_search(model, prompts, options_, sources_);
    options_.stop = BeamOptions::Stop::certain;
    const auto certain = beam_search(model, prompts, options_, sources_);
    for (size_t s = 0; s < sources_.size(); ++s) {
      for (size_t k = 0; k < 2; ++k)  // up to the rounding of other batches
        EXPECT_GE(certain[s][k].score, likely[s][k].score * (1 + 1e-5));
      better += certain[s][0].score > likely[s][0].score * (1 - 1e-5);
    }
  }
  EXPECT_GT(better, 0);
}

// An output of the greatest length gets the forced end at no cost.
TEST_F(BeamTest, WhatIsCutEndsAsForced) {
  int cut = 0;
  for (const auto& rules : {OutputRules{.end = kEos}, OutputRules{.max_length = 5, .end = kEos}}) {
    options_.rules = rules;
    for (const int64_t beams : {1, 4}) {
      options_.beams = beams;
      const auto found = search(sources_);
      for (size_t s = 0; s < sources_.size(); ++s)
        for (const Hypothesis& h : found[s]) {
          EXPECT_EQ(h.tokens.back(), kEos);
          if (h.tokens.size() < 4) continue;
          ++cut;
          double log_p = 0;
          for (size_t i = 0; i < 3; ++i)
            log_p += next(sources_[s],
                          Tokens(h.tokens.begin(), h.tokens.begin() + static_cast<int64_t>(i)))[h.tokens[i]];
          EXPECT_NEAR(h.log_probability, log_p, 1e-5);
          EXPECT_NEAR(h.score, log_p / 4, 1e-5);
        }
    }
  }
  EXPECT_GT(cut, 0);
}

// Forced tokens cost nothing and count towards the length. Outputs end within the allowed lengths.
TEST_F(BeamTest, OutputsKeepToTheRules) {
  for (const int64_t beams : {1, 4}) {
    options_.beams = beams;
    options_.max_new_tokens = 10;
    options_.rules = {};
    options_.rules.begin = {3, 2};
    options_.rules.not_first = {4};
    const auto forced = search({sources_[0]});
    for (const Hypothesis& h : forced[0]) {
      ASSERT_GT(h.tokens.size(), 2U);
      EXPECT_EQ(Tokens(h.tokens.begin(), h.tokens.begin() + 2), (Tokens{3, 2}));
      EXPECT_NE(h.tokens[2], 4);
      double log_p = 0;
      for (size_t i = 2; i < h.tokens.size(); ++i)
        log_p += next(sources_[0],
                      Tokens(h.tokens.begin(), h.tokens.begin() + static_cast<int64_t>(i)))[h.tokens[i]];
      EXPECT_NEAR(h.log_probability, log_p, 1e-5);
      EXPECT_NEAR(h.score, log_p / static_cast<double>(h.tokens.size()), 1e-5);
    }
    options_.rules = {.max_length = 7};  // bos and six more
    const auto cut = search({sources_[0]});
    for (const Hypothesis& h : cut[0]) EXPECT_LE(h.tokens.size(), 6U);
    for (const auto& rules :
         {OutputRules{.max_length = 9, .min_new_tokens = 5}, OutputRules{.max_length = 9, .min_length = 6}}) {
      options_.rules = rules;
      for (const auto& of_source : search(sources_))
        for (const Hypothesis& h : of_source) {
          EXPECT_GE(h.tokens.size(), h.tokens.back() == kEos ? 6U : 8U);
          EXPECT_LE(h.tokens.size(), 8U);
        }
    }
  }
}

}  // namespace
}  // namespace qkv::beam_test
