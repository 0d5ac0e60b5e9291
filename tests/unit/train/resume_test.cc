#include "qkv/train/run/resume.h"

#include "tests/unit/expect_error.h"

namespace qkv::resume_test {
namespace {

using testing::expect_error;

// A fingerprint of the default configuration, with the first `from` replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = fingerprint({}) + "compute = f32\ntraining tokens = 100 (0ba9)\n";
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Resume, OnlyTheSameRunIsResumed) {
  const std::string saved = changed("", "");
  expect_same_run("run/last", saved, saved);
  for (const auto& [from, to] : {std::pair("train.steps = 1000", "train.steps = 2000"),
                                 {"train.eval_every = 250", "train.eval_every = 10"},
                                 {"train.patience = 0", "train.patience = 3"}})
    expect_same_run("run/last", saved, changed(from, to));
  expect_error([&] { expect_same_run("run/last", saved, changed("compute = f32", "compute = bf16")); },
               {"run/last", "compute = f32", "compute = bf16", "model.from"});
  expect_error([&] { expect_same_run("run/last", saved, saved + "more = 1\n"); },
               {"run/last", "without 'more = 1'"});
  expect_error([&] { expect_same_run("run/last", saved + "more = 1\n", saved); },
               {"run/last", "with 'more = 1'"});
}

TEST(Resume, AKeyThatTheCheckpointDidNotKnowHasItsDefault) {
  const std::string saved = changed("train.patience = 0\n", "");
  expect_same_run("run/last", saved, changed("", ""));
  expect_error(
      [&] { expect_same_run("run/last", saved, changed("train.patience = 0", "train.patience = 3")); },
      {"run/last", "without 'train.patience = 3'"});
}

// A kind's key that came later has the default of the model's, as the model's own would.
TEST(Resume, AKeyOfAKindThatTheCheckpointDidNotKnowHasItsDefault) {
  const std::string kind = "model.kind.wide.heads = 6\n", saved = changed("", "") + kind;
  expect_same_run("run/last", saved, saved + "model.kind.wide.attention_cap = 0.0\n");
  expect_error([&] { expect_same_run("run/last", saved, saved + "model.kind.wide.attention_cap = 3.0\n"); },
               {"without 'model.kind.wide.attention_cap = 3.0'"});
}

TEST(Resume, ChangedDataIsNamed) {
  const std::string saved = changed("", "");
  const auto refused = [&](const char* now, std::initializer_list<std::string> says) {
    expect_error([&] { expect_same_run("run/last", saved, changed("100 (0ba9)", now)); }, says);
  };
  refused("90 (1f00)", {"run/last: the training text has changed", "100 tokens then, 90 now"});
  refused("100 (1f00)", {"the training text has changed", "100 training tokens as before, but others"});
}

}  // namespace
}  // namespace qkv::resume_test
