// Several datasets in one run: the data of each, that the model learns all, and that resuming changes
// nothing.
// Covers: qkv/train/run/model_files.cc
// Covers: qkv/train/tasks/task_chat.cc, qkv/train/tasks/task_mixture.cc
#include <gtest/gtest.h>

#include <map>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/rng.h"
#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/run/trainer.h"
#include "qkv/train/tasks/task.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::mixture_test {
namespace {

std::string word(uint64_t seed, uint64_t i) {
  const RandomStream random{seed, 0, 0};
  std::string out;
  for (uint64_t c = 0; c <= 1 + random.below(8 * i, 3); ++c)
    out += static_cast<char>('a' + random.below(8 * i + 1 + c, 4));
  return out;
}

// Three tasks in one model: words spelt backwards, words repeated, and texts with gaps.
class Mixtures : public ::testing::Test {
 protected:
  TrainConfig config(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::string backwards = "source\ttarget\n", twice = "text\tlabel\n", text;
    for (uint64_t i = 0; i < 900; ++i) {
      const std::string w = word(1, i), v = word(2, i);
      backwards += w + "\t" + std::string(w.rbegin(), w.rend()) + "\n";
      twice += v + "\t" + v + v + "\n";
      text += word(3, i) + word(4, i) + word(5, i) + "\n";
    }
    dir_.write("backwards.tsv", backwards);
    dir_.write("twice.tsv", twice);
    dir_.write("text.txt", text);
    const std::string path = dir_.write("run.toml", fmt::format(R"(
[data]
cache = false
[mix.backwards]
train = "{0}/backwards.tsv"
prefix = "<: "
weight = 3
[mix.holes]
objective = "span_corruption"
train = "{0}/text.txt"
separator = "\n"
[mix.twice]
train = "{0}/twice.tsv"
source_column = "text"
target_column = "label"
prefix = "2: "
weight = 4
[tokenizer]
type = "byte"
[model]
architecture = "encoder_decoder"
context = 20
width = 48
layers = 1
heads = 4
hidden = 96
init_std = 0.1
positions = "relative"
[train]
out = "{0}/{1}"
steps = 500
batch_tokens = 800
accumulate = 2
learning_rate = 5e-3
warmup_steps = 30
eval_every = 250
precision = "f32"
)",
                                                                dir_.path(), out));
    return read_train_config(path, more);
  }
  testing::ScratchDir dir_;
};

TEST_F(Mixtures, LearnEveryTask) {
  const TrainConfig c = config("run");
  train(c, StartMode::fresh, nullptr);
  const auto model = load_model(c.out + "/best", DType::f32);
  const auto tokenizer = text::Tokenizer::load(c.out + "/best");
  const SpecialIds special = load_special_ids(c.out + "/best");
  const SequenceModel m{
      *model, tokenizer, {static_cast<int32_t>(special.bos), static_cast<int32_t>(special.eos[0])}};
  // The same words for both tasks: only the prefix differs.
  std::vector<std::string> sources;
  for (uint64_t i = 0; i < 20; ++i)
    sources.push_back("<: " + word(9, i)), sources.push_back("2: " + word(9, i));
  const Translations found = translate(m, sources, {});
  int right = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    const std::string w = word(9, i);
    right += found.best[2 * i][0].text == std::string(w.rbegin(), w.rend());
    right += found.best[2 * i + 1][0].text == w + w;
  }
  EXPECT_GE(right, 32) << "of 40";
  // The loss of each set is recorded under its name; the total loss is their weighted mean.
  std::istringstream lines(read_file(c.out + "/metrics.jsonl"));
  int validations = 0, samples = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json r = parse_json(line, "line");
    samples += r.contains("sample");
    if (!r.contains("valid_loss")) continue;
    ++validations;
    EXPECT_NEAR(r["valid_loss"].get<double>(),
                (3 * r["valid_loss_backwards"].get<double>() + r["valid_loss_holes"].get<double>() +
                 4 * r["valid_loss_twice"].get<double>()) /
                    8,
                1e-9);
  }
  EXPECT_EQ(validations, 2);
  EXPECT_EQ(samples, 6);
}

// The first source of a micro-batch tells its dataset.
TEST_F(Mixtures, DrawBatchesByTheirWeights) {
  const auto task = make_task(config("run"), nullptr);
  const auto kind = [&](const Batch& b) {
    const auto source = b.source.values();
    const std::string text =
        task->tokenizer().decode(std::vector<text::TokenId>(source.begin(), source.begin() + 3));
    return text.starts_with("<: ") ? 'b' : text.starts_with("2: ") ? 't' : 'h';
  };
  std::map<char, int> counts;
  for (int64_t step = 1; step <= 1000; ++step)
    for (const Batch& b : task->batches(step, 1)) ++counts[kind(b)];
  EXPECT_NEAR(counts['b'], 750, 75);
  EXPECT_NEAR(counts['h'], 250, 45);
  EXPECT_NEAR(counts['t'], 1000, 80);
  // The batches of a step do not depend on earlier requests.
  const auto again = make_task(config("run"), nullptr);
  for (const int64_t step : {700, 3, 701}) {
    const std::vector<Batch> a = task->batches(step, 1), b = again->batches(step, 1);
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(std::ranges::equal(a[i].source.values(), b[i].source.values()));
  }
  const auto other = make_task(config("run", {"train.seed=2"}), nullptr);
  std::string ours, theirs;
  for (int64_t step = 1; step <= 40; ++step) {
    for (const Batch& b : task->batches(step, 1)) ours += kind(b);
    for (const Batch& b : other->batches(step, 1)) theirs += kind(b);
  }
  EXPECT_NE(ours, theirs);
}

TEST_F(Mixtures, ResumeBitForBit) {
  const TrainConfig whole = config("whole", {"train.steps=20", "model.dropout=0.1"}),
                    parts = config("parts", {"train.steps=20", "model.dropout=0.1"});
  train(whole, StartMode::fresh, nullptr);
  int calls = 0;
  train(parts, StartMode::fresh, [&] { return ++calls == 9; });
  train(parts, StartMode::resume, nullptr);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"})
    EXPECT_EQ(read_file(parts.out + "/last/" + file).size(), read_file(whole.out + "/last/" + file).size());
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(parts.out + "/last/" + file), read_file(whole.out + "/last/" + file)) << file;
  // With other weights a run does not resume.
  const TrainConfig other = config("parts", {"train.steps=20", "model.dropout=0.1", "mix.twice.weight=1"});
  testing::expect_error([&] { train(other, StartMode::resume, nullptr); },
                        {"mix.twice.weight", "4.0", "1.0"});
}

// Two files with different columns and classes share one head with all classes.
TEST_F(Mixtures, OfClassesHaveTheLabelsOfAll) {
  std::string letters = "text\tlabel\n", sizes;
  for (uint64_t i = 0; i < 300; ++i) {
    const std::string w = word(1, i);
    letters += fmt::format("first {}\t{}\n", w, w[0]);
    sizes += fmt::format("{}\tlong {}\n", w.find('a') < w.size() ? "with" : "without", w);
  }
  dir_.write("letters.tsv", letters);
  dir_.write("sizes.tsv", sizes);
  const std::string path = dir_.write("classes.toml", fmt::format(R"(
[data]
cache = false
[mix.letters]
train = "{0}/letters.tsv"
[mix.sizes]
train = "{0}/sizes.tsv"
columns = ["kind", "said"]
text_column = "said"
label_column = "kind"
weight = 2
[tokenizer]
type = "char"
[model]
architecture = "encoder"
context = 16
width = 32
layers = 1
heads = 2
[train]
objective = "classify"
out = "{0}/classes"
steps = 400
batch_tokens = 300
learning_rate = 2e-3
eval_every = 100
warmup_steps = 10
)",
                                                                  dir_.path()));
  const TrainConfig c = read_train_config(path, {});
  const auto task = make_task(c, nullptr);
  EXPECT_EQ(task->labels(), (std::vector<std::string>{"a", "b", "c", "d", "with", "without"}));
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_EQ(e.losses.size(), 2U);
  EXPECT_GT(e.score("accuracy_letters"), 0.9);
  EXPECT_GT(e.score("accuracy_sizes"), 0.9);
  EXPECT_EQ(load_spec(c.out + "/best").labels, task->labels());
  const TrainConfig again = read_train_config(c.out + "/config.toml", {});  // has all columns of the sets
  EXPECT_EQ(fingerprint(again), fingerprint(c));
  const auto refused = [&](const std::vector<std::string>& sets, std::initializer_list<std::string> says) {
    testing::expect_error([&] { read_train_config(path, sets); }, says);
  };
  refused({"mix.sizes.objective=tag"}, {"mix.sizes.objective", "another head", "classify"});
  refused({"data.test_fraction=0.1"}, {"data.test", "one data set"});
  refused({"data.label_column=kind"}, {"data", "[mix.NAME]"});
  refused({"mix.sizes.word_column=2"}, {"mix.sizes.word_column", "tag", "classify"});
  dir_.write("letters.tsv", "text\tlabel\nfirst a\twith\nfirst b\twith\nfirst c\twith\n");
  dir_.write("sizes.tsv", "with\tlong aa\nwith\tlong ab\nwith\tlong ac\n");
  testing::expect_error([&] { make_task(c, nullptr); }, {"mix", "'with'", "nothing to tell apart"});
  testing::expect_error([&] { make_task(read_train_config(path, {"mix.sizes.label_column=size"}), nullptr); },
                        {"mix.sizes", "sizes.tsv", "size"});
}

// Other kinds of tasks, with their own heads or formats: every set yields batches, and a step works.
TEST_F(Mixtures, OfTagsAnswersVectorsAndConversations) {
  std::string tags, answers, pairs, talk;
  for (uint64_t i = 0; i < 60; ++i) {
    const std::string w = word(1, i), v = word(2, i);
    tags += fmt::format("{}\tA\n{}\tB\n\n", w, v);
    answers += fmt::format("after {0}\t{0} {1}\t{1}\n", w, v);
    pairs += fmt::format("{}\t{}\n", w + " " + v, v + " " + w);
    talk +=
        Json({{"messages", {{{"role", "user"}, {"content", w}}, {{"role", "assistant"}, {"content", v}}}}})
            .dump() +
        "\n";
  }
  const auto losses = [&](const std::string& objective, const std::string& file, const std::string& more) {
    const std::string path =
        dir_.write("kind.toml", fmt::format(R"(
data.cache = false
tokenizer.type = "byte"
[mix.one]
train = "{0}/{1}"
{2}
[mix.two]
train = "{0}/{1}"
{2}
[model]
architecture = "{4}"
context = 64
width = 16
layers = 1
heads = 2
[train]
objective = "{3}"
out = "{0}/{3}"
steps = 4
batch_tokens = 200
eval_every = 2
)",
                                            dir_.path(), file, more, objective,
                                            objective == "chat" ? "decoder" : "encoder"));
    const TrainConfig c = read_train_config(path, {});
    const Evaluation e = train(c, StartMode::fresh, nullptr);
    EXPECT_EQ(e.losses.size(), 2U) << objective;
    for (const auto& [name, loss] : e.losses) EXPECT_GT(loss, 0) << objective << " " << name;
    return c.out + "/best";
  };
  dir_.write("tags.conll", tags);
  EXPECT_EQ(load_spec(losses("tag", "tags.conll", "")).labels, (std::vector<std::string>{"A", "B"}));
  dir_.write("answers.tsv", "question\tcontext\tanswer\n" + answers);
  losses("answer", "answers.tsv", "");
  dir_.write("pairs.tsv", pairs);
  losses("embed", "pairs.tsv", R"(columns = ["text", "other"]
second_column = "other")");
  dir_.write("talk.jsonl", talk);
  const std::string chat = losses("chat", "talk.jsonl", "");
  EXPECT_NE(read_file(chat + "/chat_template.jinja").find("im_start"), std::string::npos);
  const auto end = text::Tokenizer::load(chat).token_to_id("<|im_end|>");
  EXPECT_TRUE(end && std::ranges::count(load_special_ids(chat).eos, *end) == 1);
  testing::expect_error(
      [&] { read_train_config(dir_.path() + "/kind.toml", {"mix.two.chat_template=x.jinja"}); },
      {"mix.two.chat_template", "'x.jinja'", "a model has one"});
  testing::expect_error(
      [&] { read_train_config(dir_.path() + "/kind.toml", {"mix.two.objective=sequence_to_sequence"}); },
      {"mix.one.objective", "next_token alone"});
}

// Language modelling mixes, too, and errors name the set that cannot be read.
TEST_F(Mixtures, OfTextsAndOfWhatIsMissing) {
  const std::string a = dir_.write("a.txt", std::string(400, 'a')),
                    b = dir_.write("b.txt", std::string(400, 'b'));
  const std::string path = dir_.write("texts.toml", fmt::format(R"(
[mix.a]
train = "{}"
[mix.b]
train = "{}"
weight = 3
[data]
cache = false
[tokenizer]
type = "char"
[model]
context = 8
width = 16
layers = 1
heads = 2
[train]
out = "{}/texts"
steps = 60
learning_rate = 0.02
eval_every = 30
warmup_steps = 5
)",
                                                                a, b, dir_.path()));
  EXPECT_LT(train(read_train_config(path, {}), StartMode::fresh, nullptr).loss(), 0.3);
  testing::expect_error(
      [&] {
        train(read_train_config(path, {"mix.b.train=/nowhere.txt", "train.out=" + dir_.path() + "/none"}),
              StartMode::fresh, nullptr);
      },
      {"/nowhere.txt"});
  testing::expect_error(
      [&] {
        train(read_train_config(path, {"model.context=380", "train.out=" + dir_.path() + "/none"}),
              StartMode::fresh, nullptr);
      },
      {"mix.a", "a.txt", "too short"});
}

}  // namespace
}  // namespace qkv::mixture_test
