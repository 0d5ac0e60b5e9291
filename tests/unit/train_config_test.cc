#include "qkv/train/config.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv {
namespace {

class TrainConfigTest : public ::testing::Test {
 protected:
  TrainConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
    return read_train_config(dir_.write("run.toml", text), overrides);
  }
  // Expects a UsageError about `text` that names file and line.
  void refuse(const std::string& text, int line, std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { read(text); }, {"run.toml:" + std::to_string(line) + ":"});
    testing::expect_error<UsageError>([&] { read(text); }, parts);
  }
  void refuse_override(const std::string& text, std::initializer_list<std::string> parts) {
    testing::expect_error<UsageError>([&] { read(kLeast, {text}); }, parts);
  }

  testing::ScratchDir dir_;
  const std::string kLeast = "[data]\ntrain = 'a.txt'\n";
};

TEST_F(TrainConfigTest, ReadsEverySection) {
  const TrainConfig c = read(R"(
[data]
train = ["a.txt", "b.txt"]
valid = "c.txt"
separator = "\n---\n"
[tokenizer]
type = "byte"
vocab_size = 300
[model]
context = 32
width = 24
layers = 3
heads = 4
kv_heads = 2
d_qk = 5
d_vo = 7
hidden = 50
activation = "relu"
dropout = 0.25
tied = false
attention_bias = false
norm_epsilon = 1e-6
[train]
out = "runs/x"
steps = 7
seed = 0
precision = "bf16"
recompute = true
optimizer = "sgd"
learning_rate = 2      # an integer where a number is expected
schedule = "constant"
)");
  EXPECT_EQ(c.data.train, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(c.data.valid, std::vector<std::string>{"c.txt"});
  EXPECT_EQ(c.data.separator, "\n---\n");
  EXPECT_EQ(c.tokenizer.type, "byte");
  EXPECT_EQ(c.tokenizer.vocab_size, 300);
  EXPECT_EQ(c.model.context, 32);
  EXPECT_EQ(c.model.width, 24);
  EXPECT_EQ(c.model.layers, 3);
  EXPECT_EQ(c.model.attention.heads, 4);
  EXPECT_EQ(c.model.attention.kv_heads, 2);
  EXPECT_EQ(c.model.attention.d_qk, 5);
  EXPECT_EQ(c.model.attention.d_vo, 7);
  EXPECT_FALSE(c.model.attention.bias);
  EXPECT_EQ(c.model.attention.dropout, 0.25F);
  EXPECT_EQ(c.model.residual_dropout, 0.25F);
  EXPECT_EQ(c.model.embedding_dropout, 0.25F);
  EXPECT_EQ(c.model.hidden, 50);
  EXPECT_EQ(c.model.activation, Activation::relu);
  EXPECT_EQ(c.model.norm_epsilon, 1e-6F);
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.out, "runs/x");
  EXPECT_EQ(c.steps, 7);
  EXPECT_EQ(c.seed, 0U);
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_TRUE(c.recompute);
  EXPECT_EQ(c.step.optimizer.name, "sgd");
  EXPECT_EQ(c.step.schedule.learning_rate, 2);
  EXPECT_EQ(c.step.schedule.min_learning_rate, 0.2);  // a tenth where not given
  EXPECT_EQ(c.step.schedule.name, "constant");
}

TEST_F(TrainConfigTest, DefaultsAreThoseOfTheHeader) {
  const TrainConfig c = read(kLeast), d;
  EXPECT_EQ(c.steps, d.steps);
  EXPECT_EQ(c.batch, d.batch);
  EXPECT_EQ(c.step.schedule.learning_rate, d.step.schedule.learning_rate);
  EXPECT_EQ(c.step.optimizer.beta2, d.step.optimizer.beta2);
  EXPECT_EQ(c.model.vocab_size, 0);  // until the tokenizer is known
}

TEST_F(TrainConfigTest, UnknownKeysAreRefusedWithASuggestion) {
  refuse(kLeast + "[train]\nsteps = 3\nlearning_rat = 1\n", 5,
         {"train.learning_rat", "unknown key", "learning_rate?"});
  refuse(kLeast + "[model]\nhead = 4\n", 4, {"model.head", "did you mean heads?"});
  refuse("[data]\ntrain = 'a'\nvald = 'b'\n", 3, {"data.vald", "valid?"});
  refuse(kLeast + "[modle]\nheads = 4\n", 3, {"modle", "unknown", "[model]"});
  refuse("steps = 3\n" + kLeast, 1, {"steps", "unknown"});
}

TEST_F(TrainConfigTest, MistypedValuesAreRefused) {
  refuse(kLeast + "[train]\nsteps = '10'\n", 4, {"train.steps", "an integer"});
  refuse(kLeast + "[train]\nsteps = 10.5\n", 4, {"train.steps", "an integer"});
  refuse(kLeast + "[train]\nsteps = 0\n", 4, {"train.steps", "between 1 and", "0"});
  refuse(kLeast + "[train]\nseed = -1\n", 4, {"train.seed", "between 0 and"});
  refuse(kLeast + "[train]\nlearning_rate = 'fast'\n", 4, {"train.learning_rate", "a number"});
  refuse(kLeast + "[train]\nlearning_rate = true\n", 4, {"train.learning_rate", "a number"});
  refuse(kLeast + "[train]\nlearning_rate = nan\n", 4, {"train.learning_rate", "between"});
  refuse(kLeast + "[train]\nbeta1 = 1.0\n", 4, {"train.beta1", "between"});
  refuse(kLeast + "[train]\nrecompute = 1\n", 4, {"train.recompute", "true or false"});
  refuse(kLeast + "[train]\nout = 3\n", 4, {"train.out", "a string"});
  refuse(kLeast + "[train]\noptimizer = 'adamax'\n", 4, {"train.optimizer", "adamw, adam, sgd", "'adamax'"});
  refuse(kLeast + "[train]\nprecision = 'f16'\n", 4, {"train.precision", "auto, f32, bf16"});
  refuse(kLeast + "[model]\ndropout = 1\n", 4, {"model.dropout", "between"});
  refuse("[data]\ntrain = [1]\n", 2, {"data.train", "list of strings"});
  refuse("[data]\ntrain = 3\n", 2, {"data.train", "string"});
  refuse("data = 3\n", 1, {"data", "table"});
}

TEST_F(TrainConfigTest, SyntaxErrorsNameTheLine) {
  refuse("[data]\ntrain = 'a.txt\n", 2, {"run.toml"});
  refuse("[data]\ntrain = 'a'\n\n[train\n", 4, {"run.toml"});
  refuse("[data]\ntrain = 'a'\ntrain = 'b'\n", 3, {"train"});
}

TEST_F(TrainConfigTest, WhatIsMissingOrDoesNotFitIsRefused) {
  testing::expect_error<UsageError>([&] { read(""); }, {"run.toml", "data.train", "missing"});
  testing::expect_error<UsageError>([&] { read(kLeast + "[model]\nwidth = 10\nheads = 3\n"); },
                                    {"run.toml", "10", "3"});
  testing::expect_error([&] { read_train_config(dir_.path() + "/none.toml", {}); }, {"none.toml"});
}

TEST_F(TrainConfigTest, OverridesAreTomlOrBareStrings) {
  const TrainConfig c =
      read(kLeast + "[train]\nsteps = 3\n",
           {"train.steps=10", "train.learning_rate=1e-2", "model.tied=false", "train.out=runs/a b",
            "data.valid=['x.txt', 'y.txt']", "tokenizer.type=\"char\"", "data.separator=", "train.steps=11"});
  EXPECT_EQ(c.steps, 11);  // the last counts
  EXPECT_EQ(c.step.schedule.learning_rate, 1e-2);
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.out, "runs/a b");
  EXPECT_EQ(c.data.valid, (std::vector<std::string>{"x.txt", "y.txt"}));
  EXPECT_EQ(c.tokenizer.type, "char");
  EXPECT_EQ(c.data.separator, "");
  EXPECT_EQ(read("", {"data.train=a=b.txt"}).data.train, std::vector<std::string>{"a=b.txt"});
}

TEST_F(TrainConfigTest, BadOverridesAreRefused) {
  refuse_override("steps=10", {"--set", "section.key=value", "'steps=10'"});
  refuse_override("train.steps", {"--set", "section.key=value"});
  refuse_override("", {"--set"});
  refuse_override("trian.steps=10", {"--set: trian", "unknown"});
  refuse_override("train.stepz=10", {"train.stepz", "steps?"});
  refuse_override("train.steps=ten", {"train.steps", "an integer"});
  refuse_override("train.steps=1\nx = 2", {"--set"});
  testing::expect_error<UsageError>([&] { read("data = 3\n", {"data.train=x"}); },
                                    {"--set", "'data.train=x'"});
}

// The file is not to blame, nor a line of it.
TEST_F(TrainConfigTest, ABadOverrideIsNotBlamedOnALine) {
  for (const char* text : {"train.steps=ten", "train.steps=0", "train.stepz=1"}) try {
      read(kLeast, {text});
      ADD_FAILURE();
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find("run.toml:1:"), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("--set"), std::string::npos) << e.what();
    }
}

// The config.toml of a run starts another.
TEST_F(TrainConfigTest, WhatIsWrittenIsReadBack) {
  for (const char* architecture : {"decoder", "encoder_decoder"}) {
    const std::string written = to_toml(
        read(kLeast, {std::string("model.architecture=") + architecture, "train.schedule=one_cycle"}));
    EXPECT_EQ(to_toml(read(written, {})), written);
  }
}

TEST_F(TrainConfigTest, KeysOfTheOtherArchitectureAreRefused) {
  for (const char* text : {"data.train_target=b.txt", "data.source_column=x", "train.batch_tokens=100"})
    EXPECT_THROW(read(kLeast, {text}), UsageError) << text;
  for (const char* text : {"train.batch=3", "train.batch=fit", "data.separator=x"})
    EXPECT_THROW(read(kLeast, {"model.architecture=encoder_decoder", text}), UsageError) << text;
}

TEST_F(TrainConfigTest, TheFingerprintTellsRunsApart) {
  const auto of = [&](const std::vector<std::string>& overrides) {
    return fingerprint(read(kLeast, overrides));
  };
  const std::string base = of({});
  EXPECT_EQ(of({}), base);
  for (const char* text :
       {"train.seed=2", "train.steps=5", "train.batch=3", "model.width=12", "model.dropout=0.5",
        "train.clip=0", "data.train=b.txt", "model.activation=relu", "train.beta2=0.5"})
    EXPECT_NE(of({text}), base) << text;
  // What changes no number may change on the way.
  for (const char* text : {"train.log_every=1", "train.out=elsewhere", "train.checkpoint_every=7"})
    EXPECT_EQ(of({text}), base) << text;
}

}  // namespace
}  // namespace qkv
