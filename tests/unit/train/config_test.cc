// Covers: qkv/base/suggest.cc
// Covers: qkv/train/config/presets.cc
#include "qkv/train/config/config.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>

#include "qkv/base/file.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/config/key_help.h"
#include "qkv/train/config/presets.h"
#include "tests/source_dir.h"
#include "tests/unit/train/train_config_testing.h"

namespace qkv::config_test {
namespace {

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
  EXPECT_EQ(c.step.schedule.min_learning_rate, 0.2);  // a tenth by default
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
  EXPECT_EQ(c.steps, 11);  // the last one wins
  EXPECT_EQ(c.step.schedule.learning_rate, 1e-2);
  EXPECT_FALSE(c.model.tied);
  EXPECT_EQ(c.out, "runs/a b");
  EXPECT_EQ(c.data.valid, (std::vector<std::string>{"x.txt", "y.txt"}));
  EXPECT_EQ(c.tokenizer.type, "char");
  EXPECT_EQ(c.data.separator, "");
  EXPECT_EQ(read("", {"data.train=a=b.txt"}).data.train, std::vector<std::string>{"a=b.txt"});
}

TEST_F(TrainConfigTest, OverridesNeedNoQuotes) {
  const std::vector<std::string> encoder = {"model.architecture=encoder", "train.objective=classify"};
  const auto of = [&](std::vector<std::string> more) {
    more.insert(more.end(), encoder.begin(), encoder.end());
    return read(kLeast, more).data;
  };
  EXPECT_EQ(of({"data.columns=text,label"}).columns, (std::vector<std::string>{"text", "label"}));
  EXPECT_EQ(of({"data.columns=text, label"}).columns, (std::vector<std::string>{"text", "label"}));
  EXPECT_EQ(of({"data.columns=1,2"}).columns, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(of({"data.columns=['a,b', 'c']"}).columns, (std::vector<std::string>{"a,b", "c"}));
  EXPECT_EQ(of({"data.columns=\"a,b\""}).columns, (std::vector<std::string>{"a,b"}));
  EXPECT_EQ(of({"data.label_column=1"}).label_column, "1");
  EXPECT_EQ(of({"data.label_column=true"}).label_column, "true");
  EXPECT_EQ(of({"data.train=a.tsv,b.tsv"}).train, (std::vector<std::string>{"a.tsv", "b.tsv"}));
  const std::string odd = dir_.write("a,b.tsv", "");  // one file
  EXPECT_EQ(of({"data.train=" + odd}).train, std::vector<std::string>{odd});
  EXPECT_EQ(read(kLeast, {"model.patterns=window 4 global 1"}).model.attention.patterns.size(), 1U);
  refuse("[data]\ntrain = 'a'\nseparator = 1\n", 3, {"data.separator", "a string, got 1"});
}

TEST_F(TrainConfigTest, WholeNumbersMayHaveExponents) {
  EXPECT_EQ(read(kLeast, {"train.steps=1e3"}).steps, 1000);
  EXPECT_EQ(read(kLeast + "[train]\nsteps = 2e4\n").steps, 20000);
  refuse_override("train.steps=abc", {"--set", "train.steps: expected an integer, got 'abc'"});
  refuse_override("train.steps=1.5", {"train.steps: expected an integer, got 1.5"});
  refuse_override("train.steps=1e30", {"train.steps: expected an integer, got 1e"});
  refuse_override("train.steps=[1]", {"train.steps: expected an integer, got a list"});
  refuse_override("train.learning_rate=fast", {"expected a number, got 'fast'"});
  refuse_override("train.batch=all", {"expected an integer or \"fit\", got 'all'"});
}

TEST_F(TrainConfigTest, FormatsOfData) {
  const TrainConfig c =
      read(kLeast, {"data.format=csv", "data.delimiter=;", "data.keep_carriage_returns=true"});
  EXPECT_EQ(c.data.format, "csv");
  EXPECT_EQ(c.data.delimiter, ";");
  EXPECT_TRUE(c.data.keep_carriage_returns);
  EXPECT_EQ(to_toml(read(to_toml(c))), to_toml(c));
  refuse_override("data.format=xml", {"data.format", "csv", "'xml'"});
  refuse_override("data.format=conllu", {"data.format", "conllu", "next_token"});
  refuse_override("data.delimiter=ab", {"data.delimiter", "one character", "'ab'"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"data.delimiter=;", "data.format=jsonl"});
      },
      {"data.delimiter", "jsonl"});
  testing::expect_error<UsageError>(
      [&] {
        read(kLeast, {"model.architecture=encoder", "train.objective=tag", "data.format=csv"});
      },
      {"data.format", "csv", "tag"});
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

// The error names --set, not a line of the file.
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

TEST_F(TrainConfigTest, LineEndsAreReadBack) {
  for (const std::string separator : {"\n", "\n\n", "\na", "a\n", "\n'''\n", "\r\n"}) {
    TrainConfig c = read(kLeast);
    c.data.separator = separator;
    EXPECT_EQ(read(to_toml(c)).data.separator, separator);
  }
}

// Reads a run's data and objective without the model that it started from.
TEST_F(TrainConfigTest, ARunsSettingsAreRead) {
  std::filesystem::create_directories(dir_.path() + "/run/best");
  EXPECT_FALSE(read_run_config(dir_.path() + "/run"));
  const std::string path =
      dir_.write("run/config.toml",
                 "[data]\ntrain = 'gone.csv'\nlabel_column = 'kind'\n[tokenizer]\nnewer = 1\n[model]\nfrom = "
                 "'gone'\n[train]\nobjective = 'classify'\nmask_rate = 0.3\n");
  for (const char* dir : {"/run", "/run/", "/run/best", "/run/best/", "/run/step-20"}) {
    const auto run = read_run_config(dir_.path() + dir);
    ASSERT_TRUE(run) << dir;
    EXPECT_EQ(run->config.data.label_column, "kind");
    EXPECT_EQ(run->config.objective, Objective::classify);
    EXPECT_EQ(run->config.masking.rate, 0.3);
  }
  EXPECT_FALSE(read_run_config(dir_.path() + "/run/other"));
  dir_.write("run/config.toml", "[mix.a]\ntrain = 'x'\nobjective = 'tag'\ntag_column = 3\n");
  const auto mixed = read_run_config(dir_.path() + "/run");
  ASSERT_EQ(mixed->config.mix.size(), 1u);
  EXPECT_EQ(mixed->config.mix[0].objective, Objective::tag);
  EXPECT_EQ(mixed->config.mix[0].data.tag_column, 3);
  dir_.write("run/config.toml", "[data]\nlabels = 'kind'\n");
  testing::expect_error<UsageError>([&] { read_run_config(dir_.path() + "/run"); },
                                    {path + ":2", "data.labels"});
}

TEST_F(TrainConfigTest, DataSetsAreMixed) {
  const std::string text = R"(
[mix.pairs]
train = "a.tsv"
prefix = "say: "
weight = 2
[mix.holes]
train = ["b.txt", "c.txt"]
objective = "span_corruption"
separator = "|"
[model]
architecture = "encoder_decoder"
)";
  const TrainConfig c = read(text, {"mix.holes.weight=0.5", "train.span_length=4"});
  ASSERT_EQ(c.mix.size(), 2u);
  EXPECT_EQ(c.mix[0].name, "holes");
  EXPECT_EQ(c.mix[0].objective, Objective::span_corruption);
  EXPECT_EQ(c.mix[0].weight, 0.5);
  EXPECT_EQ(c.mix[0].data.train, (std::vector<std::string>{"b.txt", "c.txt"}));
  EXPECT_EQ(c.mix[1].objective, Objective::sequence_to_sequence);  // the run's
  EXPECT_EQ(c.mix[1].data.prefix, "say: ");
  EXPECT_EQ(c.mix[1].data.valid_fraction, 0.1);
  EXPECT_EQ(to_toml(read(to_toml(c), {})), to_toml(c));
  EXPECT_NE(fingerprint(read(text, {})), fingerprint(c));
  const auto refuse = [&](const std::vector<std::string>& overrides,
                          std::initializer_list<std::string> says) {
    testing::expect_error<UsageError>([&] { read(text, overrides); }, says);
  };
  refuse({"mix.pairs.weight=0"}, {"mix.pairs.weight", "between"});
  refuse({"mix.pairs.wieght=1"}, {"mix.pairs.wieght", "weight"});
  refuse({"mix.more.weight=1"}, {"mix.more.train", "missing"});
  refuse({"mix.more=1"}, {"--set", "section.key=value"});
  testing::expect_error<UsageError>([&] { read("[mix]\nmore = 1\n"); },
                                    {"run.toml:2", "mix.more", "[mix.NAME]"});
  refuse({"train.objective=classify", "model.architecture=encoder"}, {"classify", "mixed"});
  refuse({"mix.a b.train=x"}, {"'a b'"});
  refuse({"data.train=x"}, {"data", "[mix.NAME]"});
  refuse({"mix.pairs.separator=x"}, {"mix.pairs.separator", "sequence_to_sequence"});
  refuse({"mix.holes.prefix=x"}, {"mix.holes.prefix", "span_corruption"});
  refuse({"mix.pairs.objective=classify"}, {"mix.pairs.objective", "classify", "mixed"});
  refuse({"mix.pairs.objective=masked"}, {"mix.pairs.objective", "encoder"});
  refuse({"train.mask_rate=0.3"}, {"train.mask_rate", "span_corruption and sequence_to_sequence"});
  refuse({"tokenizer.separate=true"}, {"tokenizer.separate", "share one vocabulary"});
  refuse({"train.best_by=bleu", "train.eval_bleu=3"}, {"train.best_by"});
  EXPECT_FALSE(find_keys("mix").empty());
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
  // Keys that do not affect the result may change between sessions.
  for (const char* text : {"train.log_every=1", "train.out=elsewhere", "train.checkpoint_every=7"})
    EXPECT_EQ(of({text}), base) << text;
}

// Every preset is a valid model. Keys in the file take precedence over it, and the configuration that a run
// writes reads back the same.
TEST_F(TrainConfigTest, Presets) {
  const std::map<std::string, std::string> families = {{"bert", "bert"},
                                                       {"gpt2", "gpt2"},
                                                       {"gpt-j", "gptj"},
                                                       {"gpt-neox", "gpt_neox"},
                                                       {"bloom", "bloom"},
                                                       {"mpt", "mpt"},
                                                       {"falcon", "falcon"},
                                                       {"llama", "llama"},
                                                       {"mistral", "mistral"},
                                                       {"gemma", "gemma"},
                                                       {"olmo2", "olmo2"},
                                                       {"vaswani", "qkv"},
                                                       {"gpt3-sparse", "qkv"},
                                                       {"t5", "t5"},
                                                       {"t5-v1.1", "t5"},
                                                       {"bart", "bart"},
                                                       {"palm", "cohere"},
                                                       {"gemma2", "gemma2"},
                                                       {"gemma3", "qkv"},
                                                       {"mixtral", "mixtral"},
                                                       {"mamba", "mamba"},
                                                       {"mamba2", "mamba2"},
                                                       {"rwkv4", "rwkv"},
                                                       {"rwkv7", "qkv"},
                                                       {"aft", "qkv"},
                                                       {"reformer", "reformer"},
                                                       {"perceiver", "qkv"},
                                                       {"qwen3-next", "qwen3_next"},
                                                       {"lfm2", "lfm2"},
                                                       {"jamba", "jamba"},
                                                       {"deepseek-mla", "deepseek_v2"},
                                                       {"albert", "albert"},
                                                       {"bigbird", "qkv"},
                                                       {"gopher", "qkv"},
                                                       {"xlnet", "qkv"},
                                                       {"deberta-v3", "deberta-v2"},
                                                       {"longformer", "qkv"},
                                                       {"riedel-g", "qkv"}};
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    TrainConfig c = read(kLeast, {"model.preset=" + std::string(preset.name), "model.size=tiny"});
    EXPECT_EQ(c.model.width, 128);
    EXPECT_EQ(c.model.layers, 4);
    EXPECT_EQ(read(to_toml(c)).model, c.model);
    c.model.vocab_size = 10;
    EXPECT_EQ(family_for(c.model).model_type, families.at(preset.name));
  }
  EXPECT_EQ(families.size(), presets().size());
  const ModelSpec llama = read(kLeast, {"model.preset=llama", "model.size=tiny"}).model;
  EXPECT_EQ(llama.hidden, 352);  // 8/3 of 128, rounded up to a multiple of 32
  EXPECT_EQ(llama.attention.rotary.width, 32);
  EXPECT_FALSE(llama.attention.out_bias);
  EXPECT_EQ(read(kLeast, {"model.preset=llama", "model.positions=alibi"}).model.positions, Positions::alibi);
  EXPECT_EQ(read(kLeast, {"model.preset=xlnet"}).model.order, Order::permuted);
  EXPECT_EQ(read(kLeast, {"model.preset=xlnet", "train.objective=masked"}).model.order, Order::stack);
  EXPECT_EQ(read(kLeast, {"model.preset=mistral", "model.heads=4"}).model.attention.kv_heads, 2);
  EXPECT_TRUE(read(kLeast, {"model.preset=mixtral"}).model.experts.renormalized);
  EXPECT_FALSE(read(kLeast, {"model.preset=mixtral", "model.experts_chosen=1"}).model.experts.renormalized);
  refuse_override("model.preset=lama", {"run.toml", "preset", "llama", "'lama'"});
  refuse_override("model.size=huge", {"run.toml", "size", "tiny", "'huge'"});
}

// Reads the configurations in examples/, except those that start from a model, which need one.
TEST(Examples, ConfigurationsAreRead) {
  int read = 0;
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(testing::source_dir() + "/examples")) {
    const std::string path = file.path().string();
    if (!path.ends_with(".toml") || path.ends_with("capitals.toml")) continue;
    if (read_file(path).find("\nfrom = ") != std::string::npos) continue;
    EXPECT_NO_THROW(read_train_config(path, {})) << path;
    ++read;
  }
  EXPECT_GE(read, 9);
}

}  // namespace
}  // namespace qkv::config_test
