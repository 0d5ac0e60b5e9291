// Promises that span the engine. A sequence's result does not depend on the others in the batch.
// Micro-batches add up to the large batch. Equal seeds give equal bits. A resumed run equals an
// uninterrupted one.
// Covers: qkv/base/hash.cc, qkv/base/machine.cc, qkv/train/run/checkpoint.cc, qkv/train/corpora/corpus.cc
// Covers: qkv/train/corpora/corpus_cache.cc, qkv/train/run/plan.cc, qkv/train/tasks/task.cc
// Covers: qkv/train/tasks/task_language.cc
// Covers: qkv/train/run/batch_size.cc, qkv/train/run/run_setup.cc

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/convert/gguf_file.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/run/plan.h"
#include "qkv/train/run/trainer.h"
#include "tests/unit/expect_error.h"

namespace qkv::training_test {
namespace {

ModelSpec small_spec(float dropout) {
  ModelSpec spec = gpt2_spec(17, 24, 32, 2, 4);
  spec.attention.dropout = spec.embedding_dropout = spec.residual_dropout = dropout;
  spec.init_std = 0.2F;  // far from uniform predictions
  return spec;
}

std::vector<int32_t> random_ids(uint64_t seed, int64_t n, int64_t vocab = 17) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(static_cast<int32_t>(RandomStream{seed, 0, 0}.below(i, vocab)));
  return ids;
}

Batch batch_of(const std::vector<std::vector<int32_t>>& documents) {
  TokenStream stream;
  for (const auto& d : documents) stream.append(d);
  return cut_windows(stream, {0}, stream.size());
}

Tensor logits_of(const Transformer& model, const Batch& batch) {
  const NoGrad guard;
  Context context;
  return model.logits(model.hidden(batch, context));
}

// Products of other sizes may round differently: some epsilons of the largest logit.
void expect_close(std::span<const float> a, std::span<const float> b, float epsilon) {
  ASSERT_EQ(a.size(), b.size());
  float scale = 0;
  for (const float x : a) scale = std::max(scale, std::abs(x));
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], epsilon * scale) << "at " << i;
}

TEST(Batches, NeighboursDoNotMatter) {
  for (const DType compute : {DType::f32, DType::bf16}) {
    Transformer model(small_spec(0));
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
  StepConfig config;
  config.optimizer.name = "sgd";
  config.optimizer.weight_decay = 0;
  config.schedule.learning_rate = 0.1;
  config.schedule.warmup_steps = 0;
  config.clip = 0;
  const auto trained = [&](int parts) {
    TrainingState t(std::make_unique<Transformer>(small_spec(0.3F)), config, {.seed = 5});
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
    TrainingState t(std::make_unique<Transformer>(small_spec(0.2F)), StepConfig{},
                    {.seed = 5, .recompute = recompute});
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
    config_.step.schedule.warmup_steps = 3;
    config_.data.cache = false;
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

// Streams continue with the memory of their layers, wherever documents and windows end.
TEST_F(RunTest, ResumingWithMemoryEqualsNeverHavingStopped) {
  config_.model.positions = Positions::none;
  config_.model.attention.relative = {RelativeAttention::transformer_xl};
  config_.model.memory = 40;
  for (const char* separator : {"", "number 7"}) {
    config_.data.separator = separator;
    config_.recompute = *separator != 0;
    config_.precision = config_.recompute ? "bf16" : "f32";
    train(config("whole"), StartMode::overwrite, nullptr);
    int steps = 0;
    train(config("parts"), StartMode::overwrite, [&] { return ++steps == 5; });
    train(config("parts"), StartMode::resume, nullptr);
    expect_same_files(config("whole").out, config("parts").out);
    EXPECT_EQ(load_model(config("whole").out + "/last", DType::f32)->spec().memory, 40);
  }
  config_.batch = 400;
  testing::expect_error([&] { train(config("short"), StartMode::fresh, nullptr); },
                        {"text.txt", "too short", "800"});
  EXPECT_FALSE(file_exists(config("short").out));
}

// On shorter windows, a model with a longer context learns the same as one with that context.
TEST_F(RunTest, WindowsMayBeShorterThanTheContext) {
  config_.model.positions = Positions::rotary;
  config_.model.attention.rotary.width = config_.model.attention.d_qk;
  train(config("short"), StartMode::overwrite, nullptr);
  const int64_t length = config_.model.context;
  config_.model.context = 64 * length;
  config_.window = length;
  train(config("long"), StartMode::overwrite, nullptr);
  for (const char* file : {"/last/model.safetensors", "/best/model.safetensors"})
    EXPECT_EQ(read_file(config("short").out + file), read_file(config("long").out + file)) << file;
  EXPECT_EQ(load_spec(config("long").out + "/best").context, 64 * length);
  config_.model.vocab_size = 26;
  const int64_t activations = memory_plan(config_, 2).activations;
  config_.window = 0;
  EXPECT_GT(memory_plan(config_, 2).activations, 32 * activations);
}

TEST_F(RunTest, LearnsARepetitiveText) {
  TrainConfig c = config("learn");
  c.steps = 150;
  c.step.schedule.learning_rate = 1e-2;
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_LT(e.loss(), 0.8);                                  // uniform over the 24 characters: 3.2
  EXPECT_THROW(train(c, StartMode::fresh, nullptr), Error);  // the run exists
}

// The learning rate is so high that an update destroys the model: in the middle, or in the last step, where
// no later loss shows it.
TEST_F(RunTest, ADivergingRunStopsAndKeepsTheLastGoodCheckpoint) {
  for (const double valid_fraction : {0.1, 0.0}) {
    TrainConfig c = config("diverge" + std::to_string(valid_fraction));
    c.data.valid_fraction = valid_fraction;  // 0: no validation loss would show it
    c.step.optimizer.name = "sgd";
    c.step.schedule.name = "constant";
    c.step.clip = 0;
    c.step.schedule.warmup_steps = 0;
    c.step.schedule.learning_rate = 1e-3;
    c.steps = 2;
    train(c, StartMode::fresh, [] { return true; });  // one good step
    const std::string good = read_file(c.out + "/last/model.safetensors");
    // Breaks the same run from here on; the checkpoint's configuration is changed to match.
    std::string state = read_file(c.out + "/last/trainer_state.json");
    const std::string was = "train.learning_rate = 0.001", is = "train.learning_rate = 1e+40";
    state.replace(state.find(was), was.size(), is);
    write_file_atomically(c.out + "/last/trainer_state.json", state);
    c.step.schedule.learning_rate = 1e40;
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

// All options of a step, and their state, survive a stop.
TEST_F(RunTest, ResumingWithTheWholeKitEqualsNeverHavingStopped) {
  StepConfig& s = config_.step;
  s.terms = {0.1F, 1e-4F};
  s.layer_drop = 0.3;
  s.gradient_noise = 0.01;
  s.weight_noise = 0.01;
  s.ema = 0.9;
  config_.patience = 5;
  for (const std::string& name : optimizer_names()) {
    s.optimizer.name = name;
    s.optimizer.momentum = name == "sgd" ? 0.9 : 0;
    config_.precision = name == "adamw" ? "bf16" : "f32";
    train(config("whole"), StartMode::overwrite, nullptr);
    int steps = 0;
    train(config("parts"), StartMode::overwrite, [&] { return ++steps == 6; });
    train(config("parts"), StartMode::resume, nullptr);
    expect_same_files(config("whole").out, config("parts").out);
    EXPECT_EQ(read_file(config("whole").out + "/best/model.safetensors"),
              read_file(config("parts").out + "/best/model.safetensors"))
        << name;
  }
}

TEST(TrainingStateTest, EveryPartOfTheKitChangesTheStep) {
  const auto trained = [&](const auto& change) {
    StepConfig config;
    config.schedule.warmup_steps = 0;
    change(config);
    TrainingState t(std::make_unique<Transformer>(small_spec(0)), config, {.seed = 5});
    for (int64_t step = 1; step <= 3; ++step)
      t.step({batch_of({random_ids(1, 24), random_ids(2, 11)})}, step, 3);
    return masters(t);
  };
  const auto plain = trained([](StepConfig&) {});
  EXPECT_EQ(plain, trained([](StepConfig& c) { c.ema = 0.9; }));  // an average does not change the training
  EXPECT_NE(plain, trained([](StepConfig& c) { c.terms.label_smoothing = 0.1F; }));
  EXPECT_NE(plain, trained([](StepConfig& c) { c.terms.z_loss = 0.1F; }));
  EXPECT_NE(plain, trained([](StepConfig& c) { c.layer_drop = 0.5; }));
  EXPECT_NE(plain, trained([](StepConfig& c) { c.gradient_noise = 0.1; }));
  EXPECT_NE(plain, trained([](StepConfig& c) { c.weight_noise = 0.01; }));
  EXPECT_NE(plain, trained([](StepConfig& c) { c.clip = 0.1; }));
}

// A skipped block gets no gradient, as if it did not exist. All micro-batches of a step skip the same
// blocks.
TEST(TrainingStateTest, LayerDropSkipsWholeBlocks) {
  StepConfig config;
  config.layer_drop = 0.5;
  config.optimizer = {.name = "sgd", .weight_decay = 0};
  TrainingState t(std::make_unique<Transformer>(small_spec(0)), config, {.seed = 3});
  int skipped = 0, all = 0;
  for (int64_t step = 1; step <= 20; ++step) {
    const Batch batch = batch_of({random_ids(1, 24)});
    t.step({batch, batch}, step, 20);
    for (int64_t l = 0; l < t.model().spec().layers; ++l) {
      const auto norm = [&](const std::string& name) {
        double sum = 0;
        for (const float g : t.model()
                                 .parameters()
                                 .find(fmt::format("decoder.block.{}.{}", l, name))
                                 ->leaf->grad.values<float>())
          sum += double{g} * double{g};
        return sum;
      };
      const bool attention = norm("attention.qkv.weight") > 0,
                 feed_forward = norm("feed_forward.up.weight") > 0;
      EXPECT_EQ(attention, feed_forward);
      skipped += !attention;
      ++all;
    }
  }
  EXPECT_GT(skipped, all / 4);
  EXPECT_LT(skipped, all * 3 / 4);
}

// The average of Polyak & Juditsky, with a decay that grows towards ema, in double.
TEST(TrainingStateTest, TheAverageIsItsDefinitionAndIsExchangedWhole) {
  StepConfig config;
  config.ema = 0.5;
  config.schedule.warmup_steps = 0;
  TrainingState t(std::make_unique<Transformer>(small_spec(0)), config, {.seed = 5});
  std::vector<double> want;
  for (const float w : masters(t)) want.push_back(w);
  for (int64_t step = 1; step <= 6; ++step) {
    t.step({batch_of({random_ids(1, 24)})}, step, 6);
    const double d = std::min(0.5, (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step)));
    const auto w = masters(t);
    for (size_t i = 0; i < w.size(); ++i) want[i] = d * want[i] + (1 - d) * double{w[i]};
  }
  const auto raw = masters(t);
  {
    const TrainingState::Averaged averaged(t);
    const auto got = masters(t);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6);
    EXPECT_NE(got, raw);
  }
  EXPECT_EQ(masters(t), raw);
}

TEST_F(RunTest, StopsWhenEvaluationsBringNothingBetter) {
  TrainConfig c = config("patience");
  c.steps = 1000;
  c.eval_every = 2;
  c.patience = 3;
  c.step.schedule.learning_rate = c.step.schedule.min_learning_rate = 0;  // the model learns nothing
  train(c, StartMode::fresh, nullptr);
  const auto state = load_trainer_state(c.out + "/last");
  EXPECT_EQ(state.step, 8);  // the first evaluation is the best; three more are not better
  const std::string before = read_file(c.out + "/last/trainer_state.json");
  train(c, StartMode::resume, nullptr);  // finished
  EXPECT_EQ(read_file(c.out + "/last/trainer_state.json"), before);
}

TEST_F(RunTest, KeepsAsManyCheckpointsAsAsked) {
  TrainConfig c = config("keep");
  c.steps = 20;
  c.checkpoint_every = 4;
  c.keep = 3;
  train(c, StartMode::fresh, nullptr);
  EXPECT_EQ(load_trainer_state(c.out + "/last").step, 20);
  EXPECT_EQ(load_trainer_state(c.out + "/step-16").step, 16);
  EXPECT_EQ(load_trainer_state(c.out + "/step-12").step, 12);
  EXPECT_FALSE(file_exists(c.out + "/step-8"));
  EXPECT_NE(read_file(c.out + "/last/model.safetensors"), read_file(c.out + "/step-16/model.safetensors"));
  // An older checkpoint is a model, and a run resumes from it in a folder of its own.
  TrainConfig again = config("again");
  again.steps = 20;
  std::filesystem::create_directories(again.out);
  std::filesystem::copy(c.out + "/step-12", again.out + "/last");
  train(again, StartMode::resume, nullptr);
  expect_same_files(c.out, again.out);
}

TEST_F(RunTest, TwoRunsInOneFolderAreRefused) {
  TrainConfig c = config("two");
  bool refused = false;
  train(c, StartMode::fresh, [&] {
    for (const StartMode mode : {StartMode::fresh, StartMode::resume, StartMode::overwrite}) {
      try {
        train(c, mode, nullptr);
        ADD_FAILURE();
      } catch (const Error& e) {
        refused = std::string(e.what()).find(c.out) != std::string::npos;
      }
    }
    return true;
  });
  EXPECT_TRUE(refused);
  train(c, StartMode::resume, nullptr);
  EXPECT_EQ(load_trainer_state(c.out + "/last").step, 12);
}

TEST_F(RunTest, WhatAnInterruptedWriteLeftIsPutRight) {
  TrainConfig c = config("interrupted");
  train(c, StartMode::fresh, [] { return true; });
  std::filesystem::create_directories(c.out + "/last.tmp");  // half written
  std::ofstream(c.out + "/last.tmp/model.safetensors") << "half";
  std::filesystem::rename(c.out + "/last", c.out + "/last.old");  // between two renames
  train(c, StartMode::resume, nullptr);
  EXPECT_EQ(load_trainer_state(c.out + "/last").step, 12);
  EXPECT_FALSE(file_exists(c.out + "/last.tmp"));
  EXPECT_FALSE(file_exists(c.out + "/last.old"));
}

TEST_F(RunTest, ARunThatDoesNotFitIsRefusedWithTheNumber) {
  TrainConfig c = config("large");
  c.batch = 1 << 20;
  c.memory_gb = 1;
  try {
    train(c, StartMode::fresh, nullptr);
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("GB"), std::string::npos) << text;
    EXPECT_NE(text.find("train.batch = "), std::string::npos) << text;
  }
  EXPECT_FALSE(file_exists(c.out));
  c.memory_gb = 0.05;  // less than the program itself
  EXPECT_THROW(train(c, StartMode::fresh, nullptr), Error);
}

TEST_F(RunTest, TheLargestBatchIsTrainedAndKeptWhenResuming) {
  TrainConfig c = config("fit");
  c.batch = 0;
  c.memory_gb = 0.12;
  c.steps = 4;
  train(c, StartMode::fresh, [] { return true; });
  const int64_t batch = load_trainer_state(c.out + "/last").batch;
  EXPECT_GT(batch, 4);
  EXPECT_LT(batch, 500);
  c.memory_gb = 0.2;  // more would fit now, but the run keeps its batch
  train(c, StartMode::resume, nullptr);
  EXPECT_EQ(load_trainer_state(c.out + "/last").batch, batch);
}

TEST_F(RunTest, ARehearsalChangesNothing) {
  TrainConfig c = config("rehearsal");
  rehearse(c, StartMode::fresh);
  EXPECT_FALSE(file_exists(c.out));
  EXPECT_THROW(rehearse(c, StartMode::resume), Error);
  c.model.context = 1 << 20;  // longer than the text
  EXPECT_THROW(rehearse(c, StartMode::fresh), Error);
  c = config("text.txt/below_a_file");
  EXPECT_THROW(rehearse(c, StartMode::fresh), Error);
}

// A text is tokenized once, and again after a change.
TEST_F(RunTest, CachedTokensEqualFreshOnesAndFollowTheText) {
  ::setenv("QKV_CACHE_DIR", (dir_ / "cache").c_str(), 1);
  TrainConfig c = config("cached");
  c.data.cache = true;
  const auto load = [&] { return load_corpus(c); };
  const auto tokens = [](const TokenStream& s) {
    return std::vector<int32_t>(s.tokens().begin(), s.tokens().end());
  };
  const Corpus fresh = load(), again = load();
  EXPECT_FALSE(fresh.cached);
  EXPECT_TRUE(again.cached);
  EXPECT_EQ(tokens(fresh.text.train), tokens(again.text.train));
  EXPECT_EQ(tokens(fresh.text.valid), tokens(again.text.valid));
  EXPECT_EQ(fresh.text.valid.characters, again.text.valid.characters);
  EXPECT_EQ(fresh.text.valid.bytes, again.text.valid.bytes);
  EXPECT_EQ(fresh.tokenizer.to_json(), again.tokenizer.to_json());
  std::ofstream(dir_ / "text.txt", std::ios::app) << "one more line\n";
  EXPECT_FALSE(load().cached);
  for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache"))  // damaged: not used
    std::filesystem::resize_file(entry.path(), 9);
  EXPECT_FALSE(load().cached);
  c.tokenizer.type = "byte";
  EXPECT_FALSE(load().cached);
  ::unsetenv("QKV_CACHE_DIR");
}

// Peak bytes in tensors during two steps of a run, on `batch` windows of `context` random tokens each.
// `prepare` changes the model before training is prepared.
double peak_of_two_steps(
    const TrainConfig& c, int64_t batch, int64_t context, int64_t vocab,
    void (*prepare)(Transformer&) = [](Transformer&) {}) {
  trim_memory_pool();
  const auto before = static_cast<double>(memory_use().in_use);
  reset_peak_memory();
  auto model = std::make_unique<Transformer>(c.model);
  prepare(*model);
  TrainingState t(std::move(model), c.step, {.compute = c.compute(), .seed = 1, .recompute = c.recompute});
  TokenStream stream;
  stream.append(random_ids(1, context + 1, vocab));
  const Batch one = cut_windows(stream, std::vector<int64_t>(batch, 0), context);
  for (int64_t step = 1; step <= 2; ++step) t.step({one}, step, 2);
  return static_cast<double>(memory_use().peak) - before;
}

// The estimated memory of a step against the measured peak in tensors.
TEST_F(RunTest, TheMemoryPlanIsWhatAStepTakes) {
  std::vector<const char*> precisions = {"f32"};
  if (kernels().product != nullptr) precisions.push_back("bf16");  // the plain loops would take minutes
  for (const char* precision : precisions)
    for (const bool recompute : {false, true})
      for (const auto& [vocab, context, width, layers, batch] :
           {std::array<int64_t, 5>{512, 128, 256, 6, 16}, {16384, 64, 128, 2, 32}}) {
        TrainConfig c = config("plan");
        c.precision = precision;
        c.recompute = recompute;
        c.model = gpt2_spec(vocab, context, width, layers, 4);
        const double got = peak_of_two_steps(c, batch, context, vocab);
        const MemoryPlan plan = memory_plan(c, batch);
        const auto want = static_cast<double>(plan.total() - plan.program);
        EXPECT_NEAR(got / want, 1, 0.15)
            << precision << " " << recompute << " " << vocab << ": " << got << " of " << want;
      }
}

// Models that keep more: tables of distances, unembeddings scaled to length 1.
TEST_F(RunTest, TheMemoryPlanKnowsTables) {
  using Change = void (*)(ModelSpec&);
  const Change changes[] = {
      [](ModelSpec& s) { s.attention.relative = {RelativeAttention::transformer_xl}; },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw_both, 64};
      },
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::disentangled, 128};
      },
      [](ModelSpec& s) { s.vocab_size = 16384, s.embedding_unit = true; },
      [](ModelSpec& s) { s.mixer = LstmMixer(), s.positions = Positions::none; },
      [](ModelSpec& s) { s.mixer = GruMixer(), s.positions = Positions::none; },
  };
  for (const Change change : changes)
    for (const bool recompute : {false, true}) {
      TrainConfig c = config("plan");
      c.precision = "f32";
      c.recompute = recompute;
      c.model = gpt2_spec(512, 128, 128, 4, 8);
      change(c.model);
      const double got = peak_of_two_steps(c, 8, 128, 512);
      const MemoryPlan plan = memory_plan(c, 8);
      const auto want = static_cast<double>(plan.total() - plan.program);
      EXPECT_NEAR(got / want, 1, 0.2)
          << name_of(c.model.attention.relative.kind) << " " << name_of(c.model.mixer.kind()) << " "
          << recompute << ": " << got << " of " << want;
    }
}

// Frozen parameters have no gradient, no optimizer state and no average.
TEST_F(RunTest, TheMemoryPlanKnowsWhatIsLearned) {
  const std::string base = dir_ / "base";
  std::filesystem::create_directories(base);
  const ModelSpec spec = gpt2_spec(2048, 64, 256, 4, 4);
  {
    Transformer model(spec);
    model.parameters().draw(1, DType::f32);
    save_model(base, model);
  }
  int64_t all = 0;
  for (const bool lora : {false, true}) {
    TrainConfig c = config("plan");
    c.precision = "f32";
    c.model = spec;
    c.step.ema = 0.99;
    if (!lora) all = memory_plan(c, 2).total();
    if (lora)
      c.model.lora = {.rank = 4, .alpha = 8, .targets = {"c_attn"}, .base = base};
    else
      c.step.freeze = {"embedding.*", "decoder.block.0.*", "decoder.block.1.*", "decoder.block.2.*"};
    if (lora) c.model.lora.adapters = adapters_of(c.model);
    const double got = peak_of_two_steps(c, 2, 64, 512, [](Transformer& model) {
      for (Parameter& p : model.parameters().all())
        p.frozen = model.spec().lora.any() && !Adapters::is_adapter(p.name);
    });
    const MemoryPlan plan = memory_plan(c, 2);
    const auto want = static_cast<double>(plan.total() - plan.program);
    EXPECT_NEAR(got / want, 1, 0.2) << lora << ": " << got << " of " << want;
    EXPECT_LT(plan.total() - plan.program, (all - plan.program) / 2);
    EXPECT_GT(measure_step_seconds(c, 2), 0);
  }
}

// A frozen base stays as it is in its file: quantised, or in 16 bits.
TEST_F(RunTest, TheMemoryPlanKnowsTypesOfFrozenWeights) {
  const std::string base = dir_ / "typed";
  std::filesystem::create_directories(base);
  ModelSpec spec = gpt2_spec(512, 64, 128, 2, 4);  // as a Llama
  spec.attention.bias = spec.attention.out_bias = spec.feed_forward_bias = spec.tied = false;
  spec.gated = true;
  spec.activation = Activation::silu;
  spec.normalization = Normalization::rms;
  spec.positions = Positions::rotary;
  spec.attention.rotary.width = 32;
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(base, model);
  const auto weights = [&](const std::string& from) {
    TrainConfig c = config("plan");
    c.precision = "f32";
    c.model = spec;
    c.model.lora = {.rank = 1, .alpha = 8, .targets = {"q_proj"}, .base = resolve_model_dir(from)};
    return static_cast<double>(memory_plan(c, 1).weights);
  };
  const double whole = weights(base);
  EXPECT_NEAR(whole, 4.0 * static_cast<double>(model.parameters().count()), 0.02 * whole);
  for (const auto& [type, share] :
       {std::pair{FileType::f16, 0.5}, {FileType::q8_0, 8.5 / 32}, {FileType::q4_0, 4.5 / 32}}) {
    const std::string file = (dir_ / std::string(name_of(type))).string() + ".gguf";
    save_gguf(base, file, {.type = type});
    // Within 15%: q4_0's mixture has its output in a wider type, and norms are f32.
    EXPECT_NEAR(weights(file) / whole, share, 0.15 * share + 0.01) << file;
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
}  // namespace qkv::training_test
