// Promises that span the engine: what a sequence gives does not depend on its neighbours, micro-batches add
// up to the big batch, equal seeds give equal bits, resuming is the same as never having stopped.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/train/trainer.h"

namespace qkv {
namespace {

ModelSpec small_spec(float dropout) {
  ModelSpec spec = gpt2_spec(17, 24, 32, 2, 4);
  spec.attention.dropout = spec.embedding_dropout = spec.residual_dropout = dropout;
  spec.init_std = 0.2F;  // far from uniform predictions
  return spec;
}

std::vector<int32_t> random_ids(uint64_t seed, int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(RandomStream{seed, 0, 0}.below(i, 17)));
  return ids;
}

Batch batch_of(const std::vector<std::vector<int32_t>>& documents) {
  TokenStream stream;
  for (const auto& d : documents) stream.append(d);
  return cut_windows(stream, {0}, stream.size());
}

Tensor logits_of(const Decoder& model, const Batch& batch) {
  const NoGrad guard;
  Context context;
  context.layout = batch.layout;
  return model.logits(model.hidden(batch.ids, context));
}

// Products of other sizes may round otherwise: some epsilons of the largest logit.
void expect_close(std::span<const float> a, std::span<const float> b, float epsilon) {
  ASSERT_EQ(a.size(), b.size());
  float scale = 0;
  for (const float x : a) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], epsilon * scale) << "at " << i;
}

TEST(Batches, NeighboursDoNotMatter) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    Decoder model(small_spec(0));
    model.parameters().draw(3, compute);
    const std::vector<std::vector<int32_t>> documents = {random_ids(1, 5), random_ids(2, 24),
                                                         random_ids(3, 1), random_ids(4, 17)};
    const Batch together = batch_of(documents);
    ASSERT_EQ(together.layout.sequences(), 4);
    const Tensor all = logits_of(model, together);
    for (int64_t s = 0; s < 4; ++s) {
      const Tensor alone = logits_of(model, batch_of({documents[s]}));
      const int64_t first = together.layout.offsets[s] * all.width();
      expect_close(alone.values<float>(), all.values<float>().subspan(first, alone.count()),
                   compute == DType::f32 ? 2e-6F : 2e-2F);
    }
  }
}

std::vector<float> masters(TrainingState& t) {
  std::vector<float> out;
  for (const Parameter& p : t.model().parameters().all())
    out.insert(out.end(), p.master.values<float>().begin(), p.master.values<float>().end());
  return out;
}

TEST(Batches, MicroBatchesAddUpToTheBigBatchWithDropout) {
  OptimizerConfig config;
  config.name = "sgd";
  config.learning_rate = 0.1;
  config.warmup_steps = 0;
  config.clip = 0;
  const auto trained = [&](int parts) {
    TrainingState t(std::make_unique<Decoder>(small_spec(0.3F)), config, DType::f32, 5, false);
    std::vector<Batch> micro_batches;
    for (int p = 0; p < parts; ++p) {
      std::vector<std::vector<int32_t>> documents;
      for (int d = 0; d < 4 / parts; ++d)
        documents.push_back(random_ids(10 + p * (4 / parts) + d, 9 + (p * (4 / parts) + d) % 3));
      micro_batches.push_back(batch_of(documents));
    }
    for (int64_t step = 1; step <= 3; ++step) t.step(micro_batches, step, 3);
    return masters(t);
  };
  expect_close(trained(1), trained(2), 2e-6F);
  expect_close(trained(1), trained(4), 2e-6F);
}

TEST(Batches, RecomputingChangesNoBit) {
  const auto trained = [&](bool recompute) {
    TrainingState t(std::make_unique<Decoder>(small_spec(0.2F)), OptimizerConfig{}, DType::f32, 5, recompute);
    for (int64_t step = 1; step <= 3; ++step)
      t.step({batch_of({random_ids(1, 24), random_ids(2, 11)})}, step, 3);
    return masters(t);
  };
  EXPECT_EQ(trained(false), trained(true));
}

class RunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("qkv_e2e_" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
    std::ofstream text(dir_ / "text.txt");
    for (int i = 0; i < 200; ++i) text << "the cat sat on mat number " << i << ".\n";
    config_.data.train = {dir_ / "text.txt"};
    config_.tokenizer.type = "char";
    config_.model = gpt2_spec(0, 16, 32, 2, 2);
    config_.model.residual_dropout = config_.model.attention.dropout = 0.1F;
    config_.optimizer.warmup_steps = 3;
    config_.steps = 12;
    config_.batch = 4;
    config_.accumulate = 2;
    config_.eval_every = 5;
    config_.checkpoint_every = 4;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  TrainConfig config(const std::string& name) const {
    TrainConfig c = config_;
    c.out = dir_ / name;
    return c;
  }
  static void expect_same_files(const std::string& a, const std::string& b) {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json",
                             "trainer_state.json"})
      EXPECT_EQ(read_file(a + "/last/" + file), read_file(b + "/last/" + file)) << file;
  }

  std::filesystem::path dir_;
  TrainConfig config_;
};

TEST_F(RunTest, EqualSeedsGiveEqualBits) {
  for (const char* precision : {"f32", "bf16"}) {
    config_.precision = precision;
    train(config("a"), StartMode::overwrite, nullptr);
    train(config("b"), StartMode::overwrite, nullptr);
    expect_same_files(config("a").out, config("b").out);
    TrainConfig other = config("c");
    other.seed = 2;
    train(other, StartMode::overwrite, nullptr);
    EXPECT_NE(read_file(config("a").out + "/last/model.safetensors"),
              read_file(other.out + "/last/model.safetensors"));
  }
}

TEST_F(RunTest, ResumingEqualsNeverHavingStopped) {
  for (const char* precision : {"f32", "bf16"}) {
    config_.precision = precision;
    train(config("whole"), StartMode::overwrite, nullptr);
    int steps = 0;
    train(config("parts"), StartMode::overwrite, [&] { return ++steps == 5; });
    steps = 0;
    train(config("parts"), StartMode::resume, [&] { return ++steps == 2; });
    train(config("parts"), StartMode::resume, nullptr);
    expect_same_files(config("whole").out, config("parts").out);
  }
}

TEST_F(RunTest, LearnsARepetitiveText) {
  TrainConfig c = config("learn");
  c.steps = 150;
  c.optimizer.learning_rate = 1e-2;
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_LT(e.loss(), 0.8);                                  // uniform over the 24 characters: 3.2
  EXPECT_THROW(train(c, StartMode::fresh, nullptr), Error);  // the run exists
}

// The rate is so high that some update destroys the model, wherever that is: in the middle, or in the last
// step, after which no loss would notice.
TEST_F(RunTest, ADivergingRunStopsAndKeepsTheLastGoodCheckpoint) {
  for (const double valid_fraction : {0.1, 0.0}) {
    TrainConfig c = config("diverge" + std::to_string(valid_fraction));
    c.data.valid_fraction = valid_fraction;  // 0: no validation loss that would notice
    c.optimizer.name = "sgd";
    c.optimizer.schedule = "constant";
    c.optimizer.clip = 0;
    c.optimizer.warmup_steps = 0;
    c.optimizer.learning_rate = 1e-3;
    c.steps = 2;
    train(c, StartMode::fresh, [] { return true; });  // one good step
    const std::string good = read_file(c.out + "/last/model.safetensors");
    // The same run, broken from here on: its checkpoint's configuration is made to agree.
    std::string state = read_file(c.out + "/last/trainer_state.json");
    const std::string was = "train.learning_rate = 0.001", is = "train.learning_rate = 1e+40";
    state.replace(state.find(was), was.size(), is);
    write_file_atomically(c.out + "/last/trainer_state.json", state);
    c.optimizer.learning_rate = 1e40;
    try {
      train(c, StartMode::resume, nullptr);
      FAIL() << "expected an error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("step 2"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("not finite"), std::string::npos) << e.what();
    }
    EXPECT_EQ(read_file(c.out + "/last/model.safetensors"), good);
    EXPECT_FALSE(file_exists(c.out + "/best"));
  }
}

TEST_F(RunTest, AChangedTextOrTokenizerIsNotResumed) {
  TrainConfig c = config("changed");
  train(c, StartMode::fresh, [] { return true; });
  TrainConfig other = c;
  other.tokenizer.type = "byte";
  EXPECT_THROW(train(other, StartMode::resume, nullptr), Error);
  std::ofstream(dir_ / "text.txt", std::ios::app) << "the cat\n";
  EXPECT_THROW(train(c, StartMode::resume, nullptr), Error);
}

}  // namespace
}  // namespace qkv
