// Scores of continuations against log-softmax of the whole sequence, computed without any state.
#include "qkv/infer/score.h"

#include <cmath>
#include <random>

#include "qkv/base/parallel.h"
#include "qkv/infer/generate.h"
#include "qkv/text/trainer.h"
#include "tests/unit/expect_error.h"

namespace qkv::score_test {
namespace {

using testing::expect_error;
using Tokens = std::vector<int32_t>;

class ScoreTest : public ::testing::Test {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(before_); }

 private:
  int before_ = num_threads();
};

std::unique_ptr<Transformer> model_of(int64_t vocab, int64_t context) {
  ModelSpec s = gpt2_spec(vocab, context, 16, 2, 4);
  s.init_std = 0.5F;
  auto model = std::make_unique<Transformer>(s);
  model->parameters().draw(3, DType::f32);
  return model;
}

// log P of the tokens from `begin` on.
std::vector<double> definition(const Transformer& model, const Tokens& tokens, size_t begin) {
  Context context;
  const Tokens inputs(tokens.begin(), tokens.end() - 1);
  const Tensor x =
      model.logits(model.hidden({inputs, Layout::of({static_cast<int32_t>(inputs.size())})}, context));
  std::vector<double> out;
  for (size_t i = begin; i < tokens.size(); ++i) {
    const float* row = x.data<float>() + static_cast<int64_t>(i - 1) * x.width();
    double sum = 0;
    for (int64_t v = 0; v < x.width(); ++v) sum += std::exp(static_cast<double>(row[v]));
    out.push_back(row[tokens[i]] - std::log(sum));
  }
  return out;
}

// Roundings as in generate_test.
constexpr double kTolerance = 3e-5;

TEST_F(ScoreTest, EqualsTheSumOverTheWholeSequence) {
  const auto model = model_of(29, 200);
  std::mt19937 rng(1);
  for (int n = 0; n < 40; ++n) {
    Tokens prompt(rng() % 20);
    for (int32_t& t : prompt) t = static_cast<int32_t>(rng() % 29);
    std::vector<Alternative> alternatives;
    for (size_t i = 1 + rng() % 5; i > 0; --i) {
      Alternative a{prompt, 0};
      const size_t length = 2 + rng() % (n % 10 == 0 ? 150 : 5);  // also more than a chunk of rows
      for (size_t t = 0; t < length; ++t) a.tokens.push_back(static_cast<int32_t>(rng() % 3));
      a.begin = static_cast<int64_t>(
          std::max<size_t>(1, prompt.size() - std::min<size_t>(rng() % 2, prompt.size())));
      alternatives.push_back(a);
    }
    const auto scores = score_tokens(*model, alternatives);
    ASSERT_EQ(scores.size(), alternatives.size());
    for (size_t i = 0; i < scores.size(); ++i) {
      const auto want = definition(*model, alternatives[i].tokens, alternatives[i].begin);
      ASSERT_EQ(scores[i].size(), want.size());
      for (size_t t = 0; t < want.size(); ++t) EXPECT_NEAR(scores[i][t].log_p, want[t], kTolerance);
    }
  }
}

TEST_F(ScoreTest, TheContextIsTheLimit) {
  const auto model = model_of(29, 12);
  const Alternative most{Tokens(13, 1), 5}, more{Tokens(14, 1), 5};  // the last token is only predicted
  const auto want = definition(*model, most.tokens, 5);
  const auto got = score_tokens(*model, {most});
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[0][i].log_p, want[i], kTolerance);
  expect_error([&] { score_tokens(*model, {most, more}); }, {"14 tokens", "context is 12"});
  expect_error([&] { score_tokens(*model, {{{1, 29}, 1}}); }, {"token 29"});
  EXPECT_TRUE(score_tokens(*model, {}).empty());
}

// Greedy decoding's own output is accepted to its end, and anything else up to where it differs.
TEST_F(ScoreTest, LikeliestTokensAreThoseOfGreedyDecoding) {
  const auto model = model_of(29, 60);
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.sampler.excluded = {3, 4, 5};
  options.max_new_tokens = 20;
  const Tokens prompt = {1, 2, 7};
  const Tokens written = generate(*model, {prompt}, options)[0];
  Alternative a{prompt, 3};
  a.tokens.insert(a.tokens.end(), written.begin(), written.end());
  Alternative changed = a;
  changed.tokens[12] = (changed.tokens[12] + 1) % 29;
  const Tokens excluded = {3, 4, 5, 400};  // some are beyond the model's vocabulary
  const auto scores = score_tokens(*model, {a, changed}, excluded);
  for (size_t i = 0; i < written.size(); ++i) EXPECT_EQ(scores[0][i].likeliest, written[i]);
  for (size_t i = 0; i <= 9; ++i) EXPECT_EQ(scores[1][i].likeliest, written[i]);
  EXPECT_NE(changed.tokens[12], scores[1][9].likeliest);
}

text::Tokenizer bpe() {
  text::TrainerOptions options;
  options.vocab_size = 290;
  const std::string_view texts[] = {"the cat sat on the mat and the other cat sat there, then that thing\n"};
  return text::train_byte_level_bpe(texts, options);
}

// The choices' tokens are those after the common prefix with the prompt alone.
TEST_F(ScoreTest, ChoicesWhoseTokensJoinThePrompt) {
  const text::Tokenizer tokenizer = bpe();
  const auto model = model_of(static_cast<int64_t>(tokenizer.vocab_size()), 64);
  for (const std::string& prompt : {std::string("the cat"), std::string("the "), std::string("th")}) {
    const std::vector<std::string> choices = {" sat", "at", "e other", "cat", "e"};
    const auto scores = score_choices(*model, tokenizer, prompt, choices, 7);
    ASSERT_EQ(scores.size(), choices.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      const Tokens alone = tokenizer.encode(prompt).ids;
      Tokens both = tokenizer.encode(prompt + choices[i]).ids;
      size_t begin = 0;
      while (begin < alone.size() && alone[begin] == both[begin]) ++begin;
      if (begin == 0) {  // after the token that begins a text
        both.insert(both.begin(), 7);
        begin = 1;
      }
      double sum = 0;
      for (const double x : definition(*model, both, begin)) sum += x;
      EXPECT_NEAR(scores[i].log_p, sum, kTolerance * 10) << prompt << "|" << choices[i];
      EXPECT_EQ(scores[i].tokens, static_cast<int64_t>(both.size() - begin));
      EXPECT_EQ(scores[i].bytes, static_cast<int64_t>(choices[i].size()));
      EXPECT_NEAR(scores[i].per_byte() * static_cast<double>(choices[i].size()), scores[i].log_p, 1e-9);
      EXPECT_NEAR(scores[i].per_token() * static_cast<double>(scores[i].tokens), scores[i].log_p, 1e-9);
    }
  }
}

TEST_F(ScoreTest, NothingBeforeAChoice) {
  const text::Tokenizer tokenizer = bpe();
  const auto model = model_of(static_cast<int64_t>(tokenizer.vocab_size()), 64);
  Tokens tokens = tokenizer.encode("the cat").ids;
  tokens.insert(tokens.begin(), 7);
  double sum = 0;
  for (const double x : definition(*model, tokens, 1)) sum += x;
  EXPECT_NEAR(score_choices(*model, tokenizer, "", {"the cat"}, 7)[0].log_p, sum, kTolerance * 10);
  expect_error([&] { score_choices(*model, tokenizer, "", {"the cat"}); }, {"the cat", "begins a text"});
  expect_error([&] { score_choices(*model, tokenizer, "the", {" cat", ""}); }, {"\"\"", "no token"});
}

}  // namespace
}  // namespace qkv::score_test
