// Decoding with remembered keys and values against computing everything anew.
// Covers: qkv/infer/decode_state.cc
#include "qkv/infer/generate.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/parallel.h"
#include "tests/unit/expect_error.h"

namespace qkv::generate_test {
namespace {

using testing::expect_error;
using Tokens = std::vector<int32_t>;

// A model this small costs less than waking a team of threads.
class GenerateTest : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};
class DecodeStateTest : public GenerateTest {};

// Grouped heads and d_qk != d_vo; weights large enough that the logits differ by far more than roundings do.
std::unique_ptr<Transformer> model_of(DType dtype = DType::f32, int64_t context = 12) {
  ModelSpec s = gpt2_spec(29, context, 16, 2, 4);
  s.attention.kv_heads = 2;
  s.attention.d_qk = 3;
  s.attention.d_vo = 5;
  s.init_std = 0.5F;
  s.embedding_dropout = s.residual_dropout = s.attention.dropout = 0.5F;  // must not matter here
  auto model = std::make_unique<Transformer>(s);
  model->parameters().draw(3, dtype);
  return model;
}

std::vector<float> row(const Tensor& x, int64_t r) {
  return {x.data<float>() + r * x.width(), x.data<float>() + (r + 1) * x.width()};
}

// The last logits of a sequence, without any state.
std::vector<float> logits_of(const Transformer& model, const Tokens& tokens) {
  Context context;
  const Tensor x =
      model.logits(model.hidden({tokens, Layout::of({static_cast<int32_t>(tokens.size())})}, context));
  return row(x, x.dim(0) - 1);
}

// Logits are of size 10 and pass two blocks: some 50 roundings of 2^-24 of that size, 3e-5.
void expect_near(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 3e-5) << i;
}

// Scalings that look at the length of a sequence look at its own, whatever else is in the batch.
TEST_F(GenerateTest, RotaryScalingsKnowTheLengthOfEachSequence) {
  for (const RotaryScaling scaling : {RotaryScaling::dynamic, RotaryScaling::longrope}) {
    ModelSpec s = gpt2_spec(29, 12, 16, 2, 4);
    s.positions = Positions::rotary;
    RotarySpec& r = s.attention.rotary;
    r.width = s.attention.d_qk = 4;
    r.scaling = scaling;
    r.original_context = 4;
    r.factor = 3;
    if (scaling == RotaryScaling::longrope) {
      r.short_factors = {1, 2};
      r.long_factors = {3, 5};
    }
    s.init_std = 0.5F;
    Transformer model(s);
    model.parameters().draw(3, DType::f32);
    const Tokens longer = {1, 2, 3, 4, 5, 6, 7, 8, 9}, shorter = {3, 1, 4};
    Tokens both = longer;
    both.insert(both.end(), shorter.begin(), shorter.end());
    const auto logits = [&](const Tokens& tokens, Layout layout) {
      Context context;
      return model.logits(model.hidden({tokens, std::move(layout)}, context));
    };
    const Tensor together = logits(both, Layout::of({9, 3}));
    expect_near(row(together, 8), row(logits(longer, Layout::of({9})), 8));
    expect_near(row(together, 11), row(logits(shorter, Layout::of({3})), 2));
    Layout padded = Layout::of({9, 3});  // as Hugging Face's models read a batch
    padded.padded_length = 9;
    const std::vector<float> together_as_one = row(logits(both, padded), 11), alone = row(together, 11);
    float most = 0;
    for (size_t i = 0; i < alone.size(); ++i) most = std::max(most, std::abs(alone[i] - together_as_one[i]));
    EXPECT_GT(most, 0.001F);  // far above roundings
  }
}

TEST_F(DecodeStateTest, EqualsRecomputationTokenByToken) {
  const auto model = model_of();
  std::vector<Tokens> sequences(3);
  DecodeState state(*model, 3);
  int32_t next = 5;
  for (const std::vector<int>& counts :
       {std::vector<int>{3, 1, 2}, {1, 1, 1}, {1, 4, 2}, {1, 1, 1}, {4, 1, 6}}) {
    std::vector<Tokens> tokens(3);
    for (int s = 0; s < 3; ++s)
      for (int i = 0; i < counts[s]; ++i)
        sequences[s].push_back(tokens[s].emplace_back(next = (next * 7 + 3) % 29));
    const Tensor logits = state.advance(tokens);
    for (int s = 0; s < 3; ++s) {
      EXPECT_EQ(state.length(s), static_cast<int64_t>(sequences[s].size()));
      expect_near(row(logits, s), logits_of(*model, sequences[s]));
    }
  }
}

TEST_F(DecodeStateTest, ForkReorderAndTruncateEqualRecomputation) {
  const auto model = model_of();
  DecodeState state(*model, 2);
  state.advance({{1, 2, 3}, {4, 5}});
  DecodeState other = state.fork();
  expect_near(row(other.advance({{7}, {8}}), 1), logits_of(*model, {4, 5, 8}));
  state.reorder(Tokens{1, 0, 1});
  EXPECT_EQ(state.sequences(), 3);
  Tensor logits = state.advance({{9}, {10}, {11, 12}});
  expect_near(row(logits, 0), logits_of(*model, {4, 5, 9}));
  expect_near(row(logits, 1), logits_of(*model, {1, 2, 3, 10}));
  expect_near(row(logits, 2), logits_of(*model, {4, 5, 11, 12}));
  state.truncate(2, 1);
  state.truncate(1, 0);
  logits = state.advance({{13}, {14}, {15}});
  expect_near(row(logits, 0), logits_of(*model, {4, 5, 9, 13}));
  expect_near(row(logits, 1), logits_of(*model, {14}));
  expect_near(row(logits, 2), logits_of(*model, {4, 15}));
  expect_near(row(other.advance({{16}, {17}}), 0), logits_of(*model, {1, 2, 3, 7, 16}));
}

TEST_F(DecodeStateTest, RefusesWhatDoesNotFitAndStaysAsItWas) {
  const auto model = model_of();
  DecodeState state(*model, 2);
  state.advance({{1, 2, 3}, {4, 5}});
  expect_error([&] { state.advance({{1}}); }, {"2 sequences", "1"});
  expect_error([&] { state.advance({{}, {}}); }, {"no sequence got a token"});
  expect_error([&] { state.advance({Tokens(10, 1), {1}}); }, {"sequence 0", "13 tokens", "context is 12"});
  expect_error([&] { state.advance({{1}, {29}}); }, {"token id 29", "29 rows"});
  expect_error([&] { state.reorder(Tokens{2}); }, {"reorder", "2"});
  expect_error([&] { state.reorder(Tokens{-1}); }, {"reorder", "-1"});
  expect_error([&] { state.truncate(0, 4); }, {"truncate", "sequence 0"});
  expect_error([&] { state.truncate(2, 0); }, {"truncate", "2"});
  expect_error([&] { state.truncate(-1, 0); }, {"truncate", "-1"});
  const Tensor logits = state.advance({{6}, {7}});
  expect_near(row(logits, 0), logits_of(*model, {1, 2, 3, 6}));
  expect_near(row(logits, 1), logits_of(*model, {4, 5, 7}));
  // A sequence that gets no token has no row, and stays as it is.
  const Tensor second = state.advance({{}, {8, 9}});
  ASSERT_EQ(second.dim(0), 1);
  expect_near(row(second, 0), logits_of(*model, {4, 5, 7, 8, 9}));
  expect_near(row(state.advance({{8}, {}}), 0), logits_of(*model, {1, 2, 3, 6, 8}));
}

GenerateOptions greedy(int64_t tokens, bool cached = true) {
  GenerateOptions o;
  o.sampler.temperature = 0;
  o.max_new_tokens = tokens;
  o.cached = cached;
  return o;
}

const std::vector<Tokens> kPrompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9, 10, 11, 12, 13}, {14, 15}};

TEST_F(GenerateTest, CachedEqualsUncachedAlsoBeyondTheContext) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto model = model_of(dtype);
    for (const double temperature : {0.0, 1.0}) {
      // In bf16 several queries' probabilities are rounded where they are multiplied on tiles, one query's
      // are not: the most likely token is the same here, what is drawn close to a border need not be.
      if (dtype == DType::bf16 && temperature > 0) continue;
      GenerateOptions cached = greedy(20), anew = greedy(20, false);  // the context is 12
      cached.sampler.temperature = anew.sampler.temperature = temperature;
      const auto out = generate(*model, kPrompts, cached);
      EXPECT_EQ(out, generate(*model, kPrompts, anew));
      for (const Tokens& t : out) EXPECT_EQ(t.size(), 20U);
    }
  }
}

// Algorithm 14 written down: the most likely token after the last l_max.
TEST_F(GenerateTest, EqualsTheDefinition) {
  const auto model = model_of();
  const auto out = generate(*model, kPrompts, greedy(20));
  for (size_t s = 0; s < kPrompts.size(); ++s) {
    Tokens all = kPrompts[s];
    for (int i = 0; i < 20; ++i) {
      const Tokens window(all.end() - std::min<int64_t>(12, static_cast<int64_t>(all.size())), all.end());
      all.push_back(argmax(logits_of(*model, window)));
      ASSERT_EQ(out[s][i], all.back()) << "prompt " << s << ", token " << i;
    }
  }
}

TEST_F(GenerateTest, SeveralPromptsEqualEachAlone) {
  const auto model = model_of();
  const auto together = generate(*model, kPrompts, greedy(15));
  for (size_t s = 0; s < kPrompts.size(); ++s)
    EXPECT_EQ(generate(*model, {kPrompts[s]}, greedy(15))[0], together[s]) << s;
}

TEST_F(GenerateTest, APromptLongerThanTheContextUsesItsEnd) {
  const auto model = model_of();
  Tokens prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(i * 5 % 29);
  const Tokens end(prompt.end() - 12, prompt.end());
  EXPECT_EQ(generate(*model, {prompt}, greedy(4)), generate(*model, {end}, greedy(4)));
}

TEST_F(GenerateTest, TheSeedDecides) {
  const auto model = model_of();
  GenerateOptions o = greedy(10);
  o.sampler.temperature = 2;
  o.seed = 1;
  const auto a = generate(*model, kPrompts, o);
  EXPECT_EQ(generate(*model, kPrompts, o), a);
  o.seed = 2;
  EXPECT_NE(generate(*model, kPrompts, o), a);
  // Two equal prompts are continued differently.
  const auto twice = generate(*model, {{1}, {1}}, o);
  EXPECT_NE(twice[0], twice[1]);
}

TEST_F(GenerateTest, EndsAtEosAndTheOthersGoOn) {
  const auto model = model_of();
  const auto all = generate(*model, kPrompts, greedy(15));
  GenerateOptions o = greedy(15);
  o.eos = {all[0][3], all[2][1]};
  const auto out = generate(*model, kPrompts, o);
  for (size_t s = 0; s < all.size(); ++s) {
    Tokens expected;
    for (const int32_t t : all[s]) {
      expected.push_back(t);
      if (t == o.eos[0] || t == o.eos[1]) break;
    }
    EXPECT_EQ(out[s], expected) << s;
  }
  EXPECT_LE(out[0].size(), 4U);
}

TEST_F(GenerateTest, OutputsKeepToTheRules) {
  const auto model = model_of();
  const auto free = generate(*model, kPrompts, greedy(15));
  GenerateOptions o = greedy(15);
  o.rules.begin = {free[0][5]};
  o.rules.not_first = {free[1][1]};
  o.rules.max_length = 9;
  const auto out = generate(*model, kPrompts, o);
  for (size_t s = 0; s < kPrompts.size(); ++s) {
    ASSERT_EQ(out[s][0], free[0][5]);
    if (out[s].size() > 1) {
      EXPECT_NE(out[s][1], free[1][1]);
    }
    EXPECT_EQ(out[s].size(), std::max<size_t>(1, 9 - std::min<size_t>(9, kPrompts[s].size())));
  }
  o = greedy(15);
  o.eos = {free[0][0]};
  ASSERT_EQ(generate(*model, {kPrompts[0]}, o)[0].size(), 1U);
  o.rules.min_new_tokens = 3;
  EXPECT_GT(generate(*model, {kPrompts[0]}, o)[0].size(), 3U);
  o.rules = {};
  o.rules.min_length = std::ssize(kPrompts[0]) + 2;
  EXPECT_GT(generate(*model, {kPrompts[0]}, o)[0].size(), 2U);
}

TEST_F(GenerateTest, TheCallbackSeesEveryTokenAndMayStop) {
  const auto model = model_of();
  const auto all = generate(*model, kPrompts, greedy(6));
  std::vector<Tokens> seen(kPrompts.size());
  const auto out =
      generate(*model, kPrompts, greedy(6), [&](int64_t s, int32_t token, std::span<const float>) {
        seen[s].push_back(token);
        return !(s == 1 && seen[s].size() == 2);
      });
  EXPECT_EQ(seen, out);
  for (size_t s = 0; s < all.size(); ++s)
    EXPECT_EQ(out[s], s == 1 ? Tokens(all[s].begin(), all[s].begin() + 2) : all[s]);
}

// Sample i of a prompt is what the prompt alone gives with the seed plus i.
TEST_F(GenerateTest, SamplesEqualRunsOfTheirOwn) {
  const auto model = model_of();
  GenerateOptions o = greedy(15);
  o.sampler.temperature = 1;
  o.seed = 11;
  const std::vector<Tokens> prompts = {{1, 2, 3}, {1, 2, 3}, {4}, {1, 2, 3}};
  const auto together = generate(*model, prompts, o);
  EXPECT_NE(together[0], together[1]);
  for (size_t s = 0; s < prompts.size(); ++s) {
    o.seed = 11 + s;
    EXPECT_EQ(generate(*model, {prompts[s]}, o)[0], together[s]) << s;
  }
}

TEST_F(GenerateTest, ThePenaltiesSeePromptAndContinuation) {
  const auto model = model_of();
  GenerateOptions o = greedy(15);
  o.sampler.repetition_penalty = 1.5;
  o.sampler.frequency_penalty = 0.7;
  o.sampler.excluded = {3, 28};
  const auto out = generate(*model, kPrompts, o);
  for (size_t s = 0; s < kPrompts.size(); ++s) {
    Tokens all = kPrompts[s];
    for (const int32_t token : out[s]) {
      std::vector<float> z = logits_of(
          *model, Tokens(all.end() - std::min<int64_t>(12, static_cast<int64_t>(all.size())), all.end()));
      for (int32_t i = 0; i < 29; ++i) {
        const auto count = std::count(all.begin() + kPrompts[s].size(), all.end(), i);
        if (std::count(all.begin(), all.end(), i) > 0) z[i] = z[i] < 0 ? z[i] * 1.5F : z[i] / 1.5F;
        z[i] -= 0.7F * static_cast<float>(count);
      }
      z[3] = z[28] = -INFINITY;
      ASSERT_EQ(token, argmax(z)) << "prompt " << s << ", after " << all.size() << " tokens";
      all.push_back(token);
    }
  }
}

TEST_F(GenerateTest, TheCallbackIsGivenTheModelsOwnLogits) {
  const auto model = model_of();
  std::vector<Tokens> all = kPrompts;
  GenerateOptions o = greedy(14);
  o.sampler.temperature = 0.5;
  o.sampler.repetition_penalty = 3;
  generate(*model, kPrompts, o, [&](int64_t s, int32_t token, std::span<const float> logits) {
    const Tokens window(all[s].end() - std::min<int64_t>(12, static_cast<int64_t>(all[s].size())),
                        all[s].end());
    expect_near({logits.begin(), logits.end()}, logits_of(*model, window));
    all[s].push_back(token);
    return true;
  });
}

TEST_F(GenerateTest, NothingToDo) {
  const auto model = model_of();
  EXPECT_EQ(generate(*model, {{1}}, greedy(0)), std::vector<Tokens>(1));
  EXPECT_TRUE(generate(*model, {}, greedy(5)).empty());
}

TEST_F(GenerateTest, RefusesBadInput) {
  const auto model = model_of();
  expect_error([&] { generate(*model, {{1}, {}}, greedy(3)); }, {"prompt 1", "empty"});
  expect_error([&] { generate(*model, {{29}}, greedy(3)); }, {"token id 29"});
  GenerateOptions o = greedy(3);
  o.sampler.top_p = 2;
  expect_error([&] { generate(*model, {{1}}, o); }, {"top-p"});
}

}  // namespace
}  // namespace qkv::generate_test
