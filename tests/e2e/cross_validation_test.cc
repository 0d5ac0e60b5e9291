// Cross-validation from a file of examples to a table of scores, and what becomes of it when it is stopped.
// Covers: qkv/report/fold_scores.cc
#include "qkv/train/run/cross_validation.h"

#include <gtest/gtest.h>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/rng.h"
#include "qkv/io/model_dir.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::cross_validation_test {
namespace {

class CrossValidation : public ::testing::Test {
 protected:
  TrainConfig config(const std::string& out, const std::vector<std::string>& more = {}) const {
    // "hot" words and "cold" words among others.
    std::string rows = "text\tlabel\n";
    const RandomStream random{1, 0, 0};
    for (uint64_t i = 0; i < 60; ++i) {
      const bool hot = i % 3 == 0;
      rows += fmt::format("{} {} {}\t{}\n", random.below(2 * i, 50), hot ? "fire" : "ice",
                          random.below(2 * i + 1, 50), hot ? "hot" : "cold");
    }
    std::vector<std::string> keys = {"data.train=" + dir_.write("rows.tsv", rows),
                                     "train.out=" + dir_.path() + "/" + out};
    keys.insert(keys.end(), more.begin(), more.end());
    return read_train_config(dir_.write("run.toml", R"(
[data]
folds = 3
valid_fraction = 0.2
cache = false
[model]
architecture = "encoder"
context = 12
width = 16
layers = 1
heads = 2
[train]
objective = "classify"
steps = 60
batch_tokens = 200
eval_every = 15
checkpoint_every = 5
learning_rate = 0.01
warmup_steps = 3
precision = "f32"
sample_tokens = 0
)"),
                             keys);
  }
  static std::string weights(const TrainConfig& c, int fold) {
    return read_file(fmt::format("{}/fold-{}/last/model.safetensors", c.out, fold));
  }
  testing::ScratchDir dir_;
};

TEST_F(CrossValidation, JudgesAModelByEachPart) {
  const TrainConfig c = config("run");
  const auto scores = cross_validate(c, StartMode::fresh, nullptr);
  ASSERT_TRUE(scores.has_value());
  const auto named = [&](const std::string& name) {
    for (const FoldScores& s : *scores)
      if (s.name == name) return s;
    ADD_FAILURE() << name;
    return FoldScores{};
  };
  const FoldScores accuracy = named("accuracy"), frequent = named("baseline_most_frequent_class");
  ASSERT_EQ(accuracy.values.size(), 3u);
  EXPECT_GT(accuracy.mean(), 0.9);
  for (const double v : frequent.values) EXPECT_NEAR(v, 2.0 / 3, 0.04);  // labels are spread evenly
  named("baseline_naive_bayes");
  // The table says so to people.
  const auto rows = fold_rows(*scores);
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& [name, label] : {std::pair("baseline_naive_bayes", "baseline: naive Bayes"),
                                    {"baseline_most_frequent_class", "baseline: most frequent class"},
                                    {"matthews", "matthews"}}) {
    const auto column = std::find(rows[0].begin(), rows[0].end(), label) - rows[0].begin();
    ASSERT_LT(column, std::ssize(rows[0])) << label;
    EXPECT_EQ(rows[4][column], score_text(name, named(name).mean()));
    EXPECT_EQ(rows[4][column].ends_with("%"), std::string(name) != "matthews");
  }
  // The file says the same.
  const Json json = parse_json(read_file(c.out + "/cross_validation.json"), "file");
  EXPECT_EQ(json["folds"], 3);
  EXPECT_EQ(json["scores"]["accuracy"]["folds"].get<std::vector<double>>(), accuracy.values);
  EXPECT_DOUBLE_EQ(json["scores"]["accuracy"]["mean"].get<double>(), accuracy.mean());
  EXPECT_DOUBLE_EQ(json["scores"]["accuracy"]["deviation"].get<double>(), accuracy.deviation());
  // The models can decide together: they tell the same classes apart.
  for (int fold = 1; fold <= 3; ++fold)
    EXPECT_EQ(load_spec(fmt::format("{}/fold-{}/best", c.out, fold)).labels,
              (std::vector<std::string>{"cold", "hot"}));
  testing::expect_error([&] { cross_validate(c, StartMode::fresh, nullptr); }, {c.out, "--resume"});
  // One fold alone is the same run.
  TrainConfig second = config("alone", {"data.fold=2"});
  train(second, StartMode::fresh, nullptr);
  EXPECT_EQ(read_file(second.out + "/last/model.safetensors"), weights(c, 2));
}

TEST_F(CrossValidation, GoesOnWhereItWasStopped) {
  const TrainConfig whole = config("whole"), parts = config("parts");
  cross_validate(whole, StartMode::fresh, nullptr);
  int calls = 0;
  EXPECT_FALSE(cross_validate(parts, StartMode::fresh, [&] { return ++calls == 72; }).has_value());
  EXPECT_FALSE(file_exists(parts.out + "/cross_validation.json"));
  EXPECT_FALSE(file_exists(parts.out + "/fold-3"));
  const auto finished = std::filesystem::last_write_time(parts.out + "/fold-1/last/model.safetensors");
  calls = 0;
  ASSERT_TRUE(cross_validate(parts, StartMode::resume, [&] { return ++calls == 0; }).has_value());
  EXPECT_EQ(calls, 48 + 60);  // steps of the second and the third fold
  EXPECT_EQ(std::filesystem::last_write_time(parts.out + "/fold-1/last/model.safetensors"), finished);
  for (int fold = 1; fold <= 3; ++fold) EXPECT_EQ(weights(parts, fold), weights(whole, fold)) << fold;
  EXPECT_EQ(read_file(parts.out + "/cross_validation.json"), read_file(whole.out + "/cross_validation.json"));
  // Another division is another cross-validation; a fold that was never begun is no reason to begin anew.
  testing::expect_error(
      [&] { cross_validate(config("parts", {"data.folds=4"}), StartMode::resume, nullptr); },
      {"data.folds = 3", "data.folds = 4"});
  testing::expect_error([&] { cross_validate(config("none"), StartMode::resume, nullptr); },
                        {"none", "no cross-validation"});
  // Fewer folds leave none of the former ones behind.
  ASSERT_TRUE(cross_validate(config("parts", {"data.folds=2"}), StartMode::overwrite, nullptr).has_value());
  EXPECT_FALSE(file_exists(parts.out + "/fold-3"));
}

TEST_F(CrossValidation, RefusesWhatCannotBeDivided) {
  testing::expect_error([&] { train(config("parts", {"data.folds=4"}), StartMode::fresh, nullptr); },
                        {"data.folds", "cross_validate()"});
  testing::expect_error(
      [&] { cross_validate(config("many", {"data.folds=100"}), StartMode::fresh, nullptr); },
      {"rows.tsv", "data.folds", "100"});
  for (const auto& [keys, says] :
       {std::pair(std::vector<std::string>{"data.folds=1"}, "one part"),
        std::pair(std::vector<std::string>{"data.fold=4"}, "4 of 3"),
        std::pair(std::vector<std::string>{"data.test_fraction=0.1"}, "data.test_fraction"),
        std::pair(std::vector<std::string>{"train.objective=masked"}, "data.folds: only for")})
    testing::expect_error<UsageError>([&, keys = keys] { config("bad", keys); }, {says});
}

}  // namespace
}  // namespace qkv::cross_validation_test
