// Training on several ranks: the same files, byte for byte, on any number of them.
#include <gtest/gtest.h>

#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/run/checkpoint.h"
#include "qkv/train/run/cross_validation.h"
#include "qkv/train/run/trainer.h"
#include "tests/e2e/reversed_words.h"
#include "tests/rank_threads.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::ranks_test {
namespace {

class Ranks : public ::testing::Test {
 protected:
  Ranks() : threads_(num_threads()) {
    set_num_threads(1);
    std::string text, classes = "text\tlabel\n", words;
    const RandomStream random{7, 0, 0};
    for (uint64_t i = 0; i < 300; ++i) {
      std::string line;
      for (uint64_t w = 0; w < 3 + random.below(8 * i, 5); ++w)
        line += std::string(1, static_cast<char>('a' + random.below(8 * i + w + 1, 9))) + " ";
      text += line + "\n";
      classes += line + "\t" + (line.find('c') < line.size() ? "with c" : "without") + "\n";
      for (const char c : line)
        if (c != ' ') words += std::string(1, c) + (c < 'e' ? "\tlow\n" : "\thigh\n");
      words += "\n";
    }
    dir_.write("text.txt", text);
    dir_.write("classes.tsv", classes);
    dir_.write("words.conll", words);
    dir_.write("pairs.tsv", reversed_words(1, 300));
  }
  ~Ranks() override { set_num_threads(threads_); }

  TrainConfig config(const std::string& out, const std::string& toml) const {
    const std::string text = fmt::format(fmt::runtime(toml), fmt::arg("dir", dir_.path()));
    std::vector<std::string> settings = {"train.out=" + dir_.path() + "/" + out, "data.cache=false"};
    const auto unless_given = [&](const std::string& key, const std::string& value) {
      if (text.find(key + " =") == std::string::npos) settings.push_back("train." + key + "=" + value);
    };
    unless_given("shards", "8");
    unless_given("steps", "6");
    unless_given("eval_every", "3");
    unless_given("checkpoint_every", "4");
    return parse_train_config(text, out + ".toml", settings);
  }

  // Trains on so many ranks, and returns the run's folder.
  std::string train_on(int ranks, const std::string& out, const std::string& toml,
                       StartMode mode = StartMode::overwrite, int stop_after = 0) const {
    const TrainConfig c = config(out, toml);
    testing::on_ranks(ranks, [&](Communicator& me) {
      int steps = 0;
      train(
          c, mode, [&] { return ++steps == stop_after && me.rank() == ranks - 1; }, me);
    });
    return c.out;
  }

  // The records of evaluations, which have no times.
  static std::string judged(const std::string& run) {
    std::istringstream lines(read_file(run + "/metrics.jsonl"));
    std::string out;
    for (std::string line; std::getline(lines, line);)
      if (line.find("\"valid_") < line.size() || line.find("\"test_") < line.size()) out += line + "\n";
    return out;
  }

  static void expect_same_files(const std::string& a, const std::string& b, const std::string& of) {
    for (const char* file : {"last/model.safetensors", "last/optimizer.safetensors", "last/config.json",
                             "last/tokenizer.json", "last/trainer_state.json", "best/model.safetensors"}) {
      if (!file_exists(a + "/" + file)) {
        EXPECT_FALSE(file_exists(b + "/" + file)) << of << ": " << file;
        continue;
      }
      EXPECT_TRUE(read_file(a + "/" + file) == read_file(b + "/" + file)) << of << ": " << file;
    }
    EXPECT_EQ(judged(a), judged(b)) << of;
  }

  void expect_same_on_ranks(const std::string& toml, std::initializer_list<int> all = {2, 3, 4}) const {
    const std::string one = train_on(1, "one", toml);
    for (const int ranks : all)
      expect_same_files(one, train_on(ranks, "several", toml), fmt::format("{} ranks", ranks));
  }

  testing::ScratchDir dir_;
  int threads_;
};

constexpr const char* kGpt = R"(
data = {{ train = "{dir}/text.txt" }}
tokenizer = {{ type = "char" }}
model = {{ context = 16, width = 32, layers = 2, heads = 2, dropout = 0.1 }}
train = {{ batch = 16 }}
)";

TEST_F(Ranks, ADecoder) {
  expect_same_on_ranks(kGpt, {2, 3, 4, 5, 8});
}

TEST_F(Ranks, SixtyFourOfThem) {
  expect_same_on_ranks(R"(
data = {{ train = "{dir}/text.txt" }}
tokenizer = {{ type = "char" }}
model = {{ context = 8, width = 16, layers = 1, heads = 2, dropout = 0.1 }}
train = {{ batch = 64, shards = 64, steps = 3 }}
)",
                       {64});
}

// Everything in a step that looks at gradients or weights as a whole, or draws random numbers.
TEST_F(Ranks, TheWholeKit) {
  for (const char* precision : {"f32", "bf16"})
    expect_same_on_ranks(fmt::format(R"(
data = {{{{ train = "{{dir}}/text.txt" }}}}
tokenizer = {{{{ type = "char" }}}}
model = {{{{ context = 16, width = 32, layers = 2, heads = 2, dropout = 0.1 }}}}
train = {{{{ batch = 16, precision = "{}", clip = 0.1, gradient_noise = 0.01, weight_noise = 0.01, adversarial = 0.1, layer_drop = 0.3, ema = 0.9, label_smoothing = 0.1, z_loss = 1e-4, recompute = true, layer_decay = 0.9 }}}}
)",
                                     precision),
                         {3, 4});
}

TEST_F(Ranks, EveryUpdateRule) {
  for (const std::string& name : optimizer_names())
    expect_same_on_ranks(fmt::format("{}\n[train]\nbatch = 16\noptimizer = \"{}\"\n",
                                     std::string(kGpt).substr(0, std::string(kGpt).find("train = {{")), name),
                         {3});
}

TEST_F(Ranks, AnEncoderDecoder) {
  expect_same_on_ranks(R"(
data = {{ train = "{dir}/pairs.tsv" }}
tokenizer = {{ type = "char", separate = true }}
model = {{ architecture = "encoder_decoder", context = 12, width = 32, layers = 1, heads = 2, dropout = 0.1 }}
train = {{ batch_tokens = 400, eval_bleu = 10 }}
)");
}

TEST_F(Ranks, AClassifierThatIsTested) {
  expect_same_on_ranks(R"(
data = {{ train = "{dir}/classes.tsv", test_fraction = 0.1 }}
tokenizer = {{ type = "word" }}
model = {{ architecture = "encoder", context = 12, width = 32, layers = 1, heads = 2, dropout = 0.1 }}
train = {{ objective = "classify", batch_tokens = 256, token_drop = 0.1 }}
)");
}

TEST_F(Ranks, EveryOtherObjective) {
  std::string numbers = "text\tlabel\n", labels = "text\tlabel\n", twins = "text\tsecond\n", chats, quiz,
              answers = "question\tcontext\tanswer\n";
  const RandomStream random{8, 0, 0};
  for (uint64_t i = 0; i < 240; ++i) {
    const std::string a(1, static_cast<char>('a' + random.below(4 * i, 9))),
        b(1, static_cast<char>('a' + random.below(4 * i + 1, 9)));
    numbers += fmt::format("{} {}\t{}\n", a, b, a < b ? 1.5 : -0.5);
    labels += fmt::format("{} {}\t{}\n", a, b, a == b ? a : a + "," + b);
    twins += fmt::format("{} {}\t{} {} {}\n", a, b, b, a, i % 7);
    chats += fmt::format(R"({{"messages": [{{"role": "user", "content": "{0}"}}, )"
                         R"({{"role": "assistant", "content": "{1} {0}"}}]}})"
                         "\n",
                         a, b);
    quiz += fmt::format(R"({{"question": "{0}", "choices": ["{0}", "{1} {1}"], "label": {2}}})"
                        "\n",
                        a, b, i % 2);
    answers += fmt::format("which {0}\tx {0} {1}\t{0}\n", a, b);
  }
  dir_.write("numbers.tsv", numbers);
  dir_.write("labels.tsv", labels);
  dir_.write("twins.tsv", twins);
  dir_.write("chats.jsonl", chats);
  dir_.write("quiz.jsonl", quiz);
  dir_.write("answers.tsv", answers);
  constexpr const char* kEncoder =
      "architecture = \"encoder\", context = 24, width = 32, layers = 1, heads = 2, dropout = 0.1";
  constexpr const char* kDecoder = "context = 24, width = 32, layers = 1, heads = 2, dropout = 0.1";
  constexpr const char* kBoth =
      "architecture = \"encoder_decoder\", context = 24, width = 32, layers = 1, heads = 2, dropout = 0.1";
  struct Case {
    const char *objective, *data, *model, *type;
  };
  for (const Case& c : {
           Case{"regression", "train = \"{dir}/numbers.tsv\"", kEncoder, "word"},
           {"multi_label", "train = \"{dir}/labels.tsv\", label_separator = \",\"", kEncoder, "word"},
           {"multiple_choice", "train = \"{dir}/quiz.jsonl\"", kEncoder, "word"},
           {"answer", "train = \"{dir}/answers.tsv\"", kEncoder, "word"},
           {"embed", "train = \"{dir}/twins.tsv\", second_column = \"second\"", kEncoder, "word"},
           {"permutation", "train = \"{dir}/text.txt\"", kEncoder, "word"},
           {"masked", "train = \"{dir}/text.txt\"", kEncoder, "word"},
           {"tag", "train = \"{dir}/words.conll\"", kEncoder, "word"},
           {"chat", "train = \"{dir}/chats.jsonl\"", kDecoder, "byte"},
           {"prefix_lm", "train = \"{dir}/text.txt\"", kBoth, "byte"},
           {"span_corruption", "train = \"{dir}/text.txt\"", kBoth, "byte"},
           {"denoise", "train = \"{dir}/text.txt\"", kBoth, "byte"},
       }) {
    SCOPED_TRACE(c.objective);
    expect_same_on_ranks(
        fmt::format("data = {{{{ {} }}}}\ntokenizer = {{{{ type = \"{}\" }}}}\n"
                    "model = {{{{ {} }}}}\ntrain = {{{{ objective = \"{}\", batch_tokens = 300 }}}}\n",
                    c.data, c.type, c.model, c.objective),
        {3});
  }
}

TEST_F(Ranks, CrossValidation) {
  constexpr const char* kFolds = R"(
data = {{ train = "{dir}/classes.tsv", folds = 3 }}
tokenizer = {{ type = "word" }}
model = {{ architecture = "encoder", context = 12, width = 32, layers = 1, heads = 2 }}
train = {{ objective = "classify", batch_tokens = 256 }}
)";
  const TrainConfig one = config("one", kFolds), several = config("several", kFolds);
  ASSERT_TRUE(cross_validate(one, StartMode::overwrite, nullptr).has_value());
  for (const StartMode mode : {StartMode::overwrite, StartMode::resume})
    testing::on_ranks(3, [&](Communicator& me) {
      int steps = 0;  // stopped in the second fold by a rank that does not lead
      const auto stop = [&] { return mode == StartMode::overwrite && me.rank() == 2 && ++steps == 8; };
      const auto scores = cross_validate(several, mode, stop, me);
      EXPECT_EQ(scores.has_value(), me.leads() && mode == StartMode::resume);
    });
  EXPECT_EQ(read_file(one.out + "/cross_validation.json"), read_file(several.out + "/cross_validation.json"));
  for (int fold = 1; fold <= 3; ++fold)
    expect_same_files(fmt::format("{}/fold-{}", one.out, fold), fmt::format("{}/fold-{}", several.out, fold),
                      fmt::format("fold {}", fold));
}

// The loads of a step's experts are those of all shards.
TEST_F(Ranks, AMixtureOfExperts) {
  const std::string toml = R"(
data = {{ train = "{dir}/text.txt" }}
tokenizer = {{ type = "char" }}
model = {{ context = 16, width = 32, layers = 2, heads = 2, experts = 4, expert_choice_bias = true, expert_balance = 0.01 }}
train = {{ batch = 16 }}
)";
  expect_same_on_ranks(toml);
  const auto model = load_model(dir_.path() + "/one/last", DType::f32);
  const auto bias =
      model->parameters().find("decoder.block.0.feed_forward.router.choice_bias")->value.values<float>();
  EXPECT_TRUE(std::ranges::any_of(bias, [](float b) { return b != 0; }));
}

// The running averages are means of those of all shards.
TEST_F(Ranks, BatchNorms) {
  const std::string toml = R"(
data = {{ train = "{dir}/classes.tsv" }}
tokenizer = {{ type = "word" }}
model = {{ architecture = "encoder", context = 12, width = 32, layers = 1, heads = 2, normalization = "batch" }}
train = {{ objective = "classify", batch_tokens = 256 }}
)";
  expect_same_on_ranks(toml);
  const auto model = load_model(dir_.path() + "/one/last", DType::f32);
  bool moved = false;
  for (const Parameter& p : model->parameters().all())
    if (p.averaged)
      for (const float v : p.value.values<float>()) moved |= v != 0 && v != 1;
  EXPECT_TRUE(moved);
}

TEST_F(Ranks, Adapters) {
  train_on(1, "base", kGpt);
  expect_same_on_ranks(R"(
data = {{ train = "{dir}/text.txt" }}
model = {{ from = "{dir}/base", lora_rank = 2, lora_dropout = 0.1 }}
train = {{ batch = 16 }}
)");
}

TEST_F(Ranks, SeveralDatasets) {
  expect_same_on_ranks(R"(
tokenizer = {{ type = "byte" }}
mix.text = {{ objective = "next_token", train = "{dir}/text.txt" }}
mix.pairs = {{ objective = "sequence_to_sequence", train = "{dir}/pairs.tsv" }}
model = {{ context = 16, width = 32, layers = 1, heads = 2 }}
train = {{ batch = 16, batch_tokens = 256 }}
)");
}

constexpr const char* kRemembers = R"(
data = {{ train = "{dir}/text.txt" }}
tokenizer = {{ type = "char" }}
model = {{ context = 8, width = 32, layers = 2, heads = 2, positions = "none", relative_attention = "transformer_xl", memory = 20, dropout = 0.1 }}
train = {{ batch = 8, shards = 4 }}
)";

TEST_F(Ranks, MemoriesOfSegments) {
  expect_same_on_ranks(kRemembers);
}

// A rank that resumes reads nothing from the checkpoint's files afterwards, as the first rank replaces them.
TEST_F(Ranks, LeaveTheCheckpointThatTheyResume) {
  std::string frozen = kGpt;
  frozen.replace(frozen.find("batch = 16"), 10, "batch = 16, freeze = [\"embedding.*\"]");
  expect_same_on_ranks(frozen, {2});
  train_on(2, "run", frozen, StartMode::overwrite, 2);
  const TrainConfig c = config("run", frozen);
  testing::on_ranks(2, [&](Communicator& me) {
    const auto look = [&] {
      EXPECT_EQ(read_file("/proc/self/maps").find("/run/last/model.safetensors"), std::string::npos);
      return false;
    };
    train(c, StartMode::resume, look, me);
  });
}

// Ranks may come and go between two parts of a run.
TEST_F(Ranks, ARunGoesOnWithAnotherNumber) {
  for (const char* toml : {kGpt, kRemembers}) {
    const std::string whole = train_on(1, "whole", toml);
    train_on(4, "parts", toml, StartMode::overwrite, 2);
    EXPECT_EQ(load_trainer_state(dir_.path() + "/parts/last").step, 2);
    train_on(2, "parts", toml, StartMode::resume, 3);
    EXPECT_EQ(load_trainer_state(dir_.path() + "/parts/last").step, 5);
    expect_same_files(whole, train_on(3, "parts", toml, StartMode::resume), toml);
  }
}

// ZeRO-1 changes where numbers lie, not what they are.
TEST_F(Ranks, DividedOptimizersHaveTheSameBits) {
  std::string plain = kGpt;  // 100,000 weights, so that there are parts to divide
  plain.replace(plain.find("width = 32"), 10, "width = 96");
  for (const std::string more :
       {"precision = \"f32\"", "precision = \"bf16\"",
        "precision = \"bf16\", ema = 0.9, gradient_noise = 0.01", "precision = \"f32\", ema = 0.9",
        "optimizer = \"lion\"", "optimizer = \"sgd\", momentum = 0.9", "shards = 4, clip = 0.1"}) {
    std::string whole = plain, divided = plain;
    whole.replace(whole.find("batch = 16"), 10, "batch = 16, " + more);
    divided.replace(divided.find("batch = 16"), 10, "batch = 16, zero = true, " + more);
    const std::string one = train_on(1, "one", whole);
    for (const int ranks : {1, 2, 3, 4}) expect_same_files(one, train_on(ranks, "several", divided), more);
    train_on(4, "parts", divided, StartMode::overwrite, 2);
    train_on(2, "parts", divided, StartMode::resume, 3);
    expect_same_files(one, train_on(3, "parts", whole, StartMode::resume), more);
  }
}

TEST_F(Ranks, DividedOptimizersHoldParts) {
  std::vector<int64_t> counts(3);
  int64_t whole = 0;
  testing::on_ranks(3, [&](Communicator& me) {
    TrainingState t(std::make_unique<Transformer>(gpt2_spec(50, 16, 128, 2, 2)), {},
                    {.compute = DType::bf16, .shards = 4, .zero = true}, me);
    const NamedTensors state = t.state();
    counts[static_cast<size_t>(me.rank())] = state.front().second.count();
    if (me.leads()) whole = t.model().parameters().arena(ParameterKind::matrix).master.count();
    EXPECT_EQ(t.whole_shape(state.front().first, state.front().second),
              Shape{t.model().parameters().arena(ParameterKind::matrix).master.count()});
  });
  EXPECT_EQ(counts[0] + counts[1] + counts[2], whole);
  for (const int64_t count : counts) EXPECT_LT(count, whole / 2);
}

// As fast as micro-batches: a rank alone has their bits, and several ranks almost.
TEST_F(Ranks, AnyOrderIsThatOfMicroBatches) {
  std::string any = kGpt, plain = kGpt;
  any.replace(any.find("batch = 16"), 10, "batch = 16, shard_order = \"any\"");
  plain.replace(plain.find("batch = 16"), 10, "batch = 2, accumulate = 8, shards = 1");
  const auto weights = [](const std::string& run) { return load_model(run + "/last", DType::f32); };
  const auto expected = weights(train_on(1, "plain", plain));
  for (const int ranks : {1, 3}) {
    const auto found = weights(train_on(ranks, "any", any));
    for (const Parameter& p : found->parameters().all()) {
      const auto x = p.value.values<float>(), y = expected->parameters().find(p.name)->value.values<float>();
      for (int64_t i = 0; i < std::ssize(x); ++i) ASSERT_NEAR(x[i], y[i], ranks == 1 ? 0 : 2e-3) << p.name;
    }
  }
}

// A step with shards is the step without: gradients add up in another order.
TEST_F(Ranks, ShardsAreMicroBatches) {
  const std::string with = train_on(2, "with", kGpt);
  std::string toml = kGpt;
  toml.replace(toml.find("batch = 16"), 10, "batch = 2, accumulate = 8, shards = 1");
  const std::string without = train_on(1, "without", toml);
  const auto a = load_model(with + "/last", DType::f32), b = load_model(without + "/last", DType::f32);
  for (const Parameter& p : a->parameters().all()) {
    const auto x = p.value.values<float>(), y = b->parameters().find(p.name)->value.values<float>();
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(x[static_cast<int64_t>(i)], y[static_cast<int64_t>(i)], 2e-3) << p.name;
  }
}

TEST_F(Ranks, RejectUnequalSettings) {
  const TrainConfig a = config("unequal", kGpt);
  const auto rejected = [&](const TrainConfig& b, StartMode mode, std::initializer_list<std::string> says) {
    testing::on_ranks(3, [&](Communicator& me) {
      const bool other = me.rank() == 1;
      testing::expect_error([&] { train(other ? b : a, other ? mode : StartMode::fresh, nullptr, me); },
                            says);
    });
    EXPECT_FALSE(file_exists(a.out));
  };
  TrainConfig b = a;
  b.step.clip = 2;
  rejected(b, StartMode::fresh, {"rank 1 of 3", "'train.clip = 2.0'", "rank 0 has 'train.clip = 1.0'"});
  b = a;
  b.zero = true;
  rejected(b, StartMode::fresh, {"rank 1 of 3", "'train.zero = true'"});
  b = a;
  b.checkpoint_every = 1;
  rejected(b, StartMode::fresh, {"rank 1 of 3", "'train.checkpoint_every = 1'"});
  train_on(1, "begun", kGpt, StartMode::overwrite, 2);
  b = a;
  b.out = dir_.path() + "/begun";
  rejected(b, StartMode::resume, {"rank 1 of 3", "'--resume = true'"});
}

// A rank that has another checkpoint, or another model to start from, as on a disk of its own.
TEST_F(Ranks, RejectUnequalWeights) {
  train_on(1, "base", kGpt);
  std::string other = kGpt;
  other.replace(other.find("batch = 16"), 10, "batch = 16, seed = 2");
  train_on(1, "other", other);
  const auto tuned = [&](const std::string& base) {
    return config("tuned", "data = {{ train = \"{dir}/text.txt\" }}\nmodel = {{ from = \"{dir}/" + base +
                               "\" }}\ntrain = {{ batch = 16 }}\n");
  };
  testing::on_ranks(2, [&](Communicator& me) {
    TrainConfig c = tuned("base");
    if (!me.leads()) c.from = tuned("other").from;
    testing::expect_error([&] { train(c, StartMode::fresh, nullptr, me); }, {"rank 1 of 2"});
  });
  EXPECT_FALSE(file_exists(dir_.path() + "/tuned/last"));
}

TEST_F(Ranks, RejectTooFewShards) {
  const TrainConfig a = config("few", kGpt);
  testing::on_ranks(9, [&](Communicator& me) {
    testing::expect_error([&] { train(a, StartMode::fresh, nullptr, me); },
                          {"train.shards = 8", "9 ranks", "power of two of at least 9"});
  });
}

TEST_F(Ranks, RejectShardsThatDoNotFit) {
  const auto rejects = [&](const std::string& settings, std::initializer_list<std::string> parts) {
    std::string toml = kGpt;
    toml.replace(toml.find("batch = 16"), 10, settings);
    testing::expect_error<UsageError>([&] { config("rejected", toml); }, parts);
  };
  rejects("batch = 12, shards = 6", {"train.shards", "power of two", "6"});
  rejects("batch = 12, shards = 8", {"train.shards", "12 windows", "divided by 8"});
  testing::expect_error<UsageError>(
      [&] {
        config("rejected", R"(
data = {{ train = "{dir}/classes.tsv" }}
model = {{ architecture = "encoder" }}
train = {{ objective = "classify", batch_tokens = 100, shards = 64 }}
)");
      },
      {"train.shards", "100 tokens", "64 shards"});
  rejects("batch = 16, shards = 8, accumulate = 2", {"train.accumulate", "train.shards"});
  rejects("batch = 16, zero = true, weight_noise = 0.1", {"train.zero", "train.weight_noise"});
  rejects("batch = 16, zero = true, adversarial = 0.1", {"train.zero", "train.adversarial"});
  rejects("batch = 16, zero = true, optimizer = \"adafactor\"", {"train.zero", "adafactor"});
  rejects("batch = 16, shards = 1, shard_order = \"any\"", {"train.shard_order"});
}

}  // namespace
}  // namespace qkv::ranks_test
