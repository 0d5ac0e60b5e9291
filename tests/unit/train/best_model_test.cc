#include "qkv/train/run/best_model.h"

#include "tests/unit/expect_error.h"

namespace qkv::best_model_test {
namespace {

Evaluation with_loss(double loss) {
  Evaluation e;
  e.total = loss;
  e.tokens = 1;
  return e;
}

Evaluation with_score(const std::string& name, double value) {
  Evaluation e = with_loss(1);
  e.scores = {{"other", 0.5}, {name, value}};
  return e;
}

TEST(BestModel, HasTheLowestLoss) {
  BestSoFar so_far;
  BestModel best({}, "loss", so_far);
  EXPECT_TRUE(best.improves(with_loss(2)));
  EXPECT_FALSE(best.improves(with_loss(3)));
  EXPECT_FALSE(best.improves(with_loss(2)));  // only as good
  EXPECT_EQ(so_far.evaluations_since, 2);
  EXPECT_TRUE(best.improves(with_loss(1.5)));
  EXPECT_EQ(so_far.evaluations_since, 0);
  EXPECT_EQ(so_far.error, 1.5);
}

TEST(BestModel, HasTheHighestScore) {
  TrainConfig config;
  for (const char* by : {"auto", "f1"}) {
    config.best_by = by;
    BestSoFar so_far;
    BestModel best(config, "f1", so_far);
    EXPECT_TRUE(best.improves(with_score("f1", 0.25)));
    EXPECT_FALSE(best.improves(with_score("f1", 0.125)));
    EXPECT_TRUE(best.improves(with_score("f1", 0.75)));
    EXPECT_EQ(so_far.error, 0.25);
  }
  config.best_by = "loss";  // the configuration decides, where it says anything
  BestSoFar so_far;
  BestModel best(config, "f1", so_far);
  EXPECT_TRUE(best.improves(with_loss(3)));
  config.best_by = "bleu";
  BestModel unknown(config, "loss", so_far);
  testing::expect_error([&] { unknown.improves(with_score("f1", 1)); },
                        {"train.best_by", "bleu", "next_token"});
}

TEST(BestModel, PatienceEndsAfterSoManyEvaluationsThatAreNoBetter) {
  TrainConfig config;
  config.patience = 2;
  BestSoFar so_far;
  BestModel best(config, "loss", so_far);
  EXPECT_FALSE(best.out_of_patience());
  for (const double loss : {3.0, 4.0, 2.0, 2.5}) {
    best.improves(with_loss(loss));
    EXPECT_FALSE(best.out_of_patience()) << loss;
  }
  best.improves(with_loss(2.25));
  EXPECT_TRUE(best.out_of_patience());

  // A resumed run counts on from its checkpoint, with the patience that it is given now.
  config.patience = 3;
  EXPECT_FALSE(BestModel(config, "loss", so_far).out_of_patience());
  config.patience = 0;
  so_far.evaluations_since = 1000;
  EXPECT_FALSE(BestModel(config, "loss", so_far).out_of_patience());
}

}  // namespace
}  // namespace qkv::best_model_test
