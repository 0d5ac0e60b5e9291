// Encoders from files to predictions: runs that must learn small tasks, and resume bit for bit.
// Covers: qkv/train/tasks/masked_text.cc, qkv/train/tasks/task_embedding.cc
// Covers: qkv/train/tasks/task_labelled.cc, qkv/train/tasks/task_masked.cc, qkv/train/tasks/text_pairs.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/rng.h"
#include "qkv/infer/predict.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/run/trainer.h"
#include "qkv/train/tasks/task.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"
#include "tests/unit/text/tokenizer_testing.h"

namespace qkv::encoder_test {
namespace {

// Numbers below n, each a function of (seed, its place).
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_{seed, 0, 0} {}
  uint64_t operator()(uint64_t n) { return random_.below(next_++, n); }

 private:
  RandomStream random_;
  uint64_t next_ = 0;
};

const char* const kWords[] = {"ant", "bee", "cow", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"};

// Labels texts by which of "left" and "right" comes first among other words.
std::string class_rows(uint64_t seed, int count) {
  std::string out = "text\tlabel\n";
  Draws draw(seed);
  for (int i = 0; i < count; ++i) {
    std::vector<std::string> words;
    for (uint64_t n = 2 + draw(5); n > 0; --n) words.emplace_back(kWords[draw(10)]);
    const uint64_t first = draw(words.size()), second = first + 1 + draw(words.size() - first);
    const bool left = draw(2) == 0;
    words.insert(words.begin() + static_cast<int64_t>(first), left ? "left" : "right");
    words.insert(words.begin() + static_cast<int64_t>(second), left ? "right" : "left");
    out += fmt::format("{}\t{}\n", fmt::join(words, " "), left ? "l" : "r");
  }
  return out;
}

// A tag says whether a word, and the one before it, are among the first five.
std::string tagged_words(uint64_t seed, int count) {
  std::string out;
  Draws draw(seed);
  for (int i = 0; i < count; ++i) {
    bool before = false;
    for (uint64_t n = 2 + draw(6); n > 0; --n) {
      const uint64_t word = draw(10);
      out += fmt::format("{}\t{}{}\n", kWords[word], before ? "A" : "B", word < 5 ? "A" : "B");
      before = word < 5;
    }
    out += "\n";
  }
  return out;
}

// The answer is the word after "here" in the context.
std::string answer_rows(uint64_t seed, int count) {
  std::string out = "question\tcontext\tanswer\n";
  Draws draw(seed);
  for (int i = 0; i < count; ++i) {
    std::vector<std::string> words;
    uint64_t left[10];
    for (uint64_t w = 0; w < 10; ++w) left[w] = w;
    for (uint64_t n = 3 + draw(4), k = 0; k < n; ++k) {  // words are unique, so the answer is, too
      std::swap(left[k], left[k + draw(10 - k)]);
      words.emplace_back(kWords[left[k]]);
    }
    const uint64_t at = draw(words.size());
    const std::string answer = words[at];
    words.insert(words.begin() + static_cast<int64_t>(at), "here");
    out += fmt::format("who is it\t{}\t{}\n", fmt::join(words, " "), answer);
  }
  return out;
}

// Ten words that follow each other in a circle.
std::string circle(uint64_t seed, int count) {
  std::string out;
  Draws draw(seed);
  for (int i = 0; i < count; ++i) {
    const uint64_t first = draw(10);
    for (uint64_t w = 0; w < 8; ++w) out += std::string(w > 0 ? " " : "") + kWords[(first + w) % 10];
    out += "\n";
  }
  return out;
}

class Encoders : public ::testing::Test {
 protected:
  TrainConfig config(const std::string& objective, const std::string& out,
                     const std::vector<std::string>& more = {}) const {
    std::string train = dir_.path(), valid = dir_.path();
    std::vector<std::string> keys;
    if (objective == "masked" || objective == "permutation") {
      train = dir_.write("train.txt", circle(1, 400)), valid = dir_.write("valid.txt", circle(2, 100));
      keys.emplace_back("data.separator=\"\\n\"");
    } else if (objective == "classify") {
      train = dir_.write("train.tsv", class_rows(1, 1000)),
      valid = dir_.write("valid.tsv", class_rows(2, 100));
    } else if (objective == "tag") {
      train = dir_.write("train.conll", tagged_words(1, 400));
      valid = dir_.write("valid.conll", tagged_words(2, 50));
    } else {
      train = dir_.write("answers.tsv", answer_rows(1, 600));
      valid = dir_.write("valid_answers.tsv", answer_rows(2, 60));
    }
    for (const std::string& key : {"data.train=" + train, "data.valid=" + valid,
                                   "train.objective=" + objective, "train.out=" + dir_.path() + "/" + out})
      keys.push_back(key);
    keys.insert(keys.end(), more.begin(), more.end());
    return read_train_config(dir_.write("config.toml", kConfig), keys);
  }
  // The first steps of a run, stopped in the middle and resumed, equal those of one that never stopped.
  void expect_resumable(const std::string& objective) const {
    const TrainConfig whole =
        config(objective, "whole",
               {"train.steps=12", "model.dropout=0.1", "train.eval_every=5", "train.accumulate=2"});
    TrainConfig parts = whole;
    parts.out = dir_.path() + "/parts";
    train(whole, StartMode::fresh, nullptr);
    int calls = 0;
    train(parts, StartMode::fresh, [&] { return ++calls == 7; });
    train(parts, StartMode::resume, nullptr);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json", "tokenizer.json"})
      EXPECT_EQ(read_file(parts.out + "/last/" + file), read_file(whole.out + "/last/" + file)) << file;
    // The scores during training agree, too: the same model was the best.
    EXPECT_EQ(read_file(parts.out + "/best/model.safetensors"),
              read_file(whole.out + "/best/model.safetensors"));
  }
  // Predictions for a text do not depend on the other texts of the batch.
  static void expect_alone_as_together(const std::string& run, const std::vector<TextPair>& texts) {
    const auto model = load_model(run + "/best", DType::f32);
    const auto tokenizer = text::Tokenizer::load(run + "/best");
    std::vector<EncodedText> encoded;
    for (const TextPair& t : texts) encoded.push_back(encode_text(t, tokenizer, model->spec()));
    const std::vector<Tensor> together = class_scores(*model, encoded);
    for (size_t i = 0; i < texts.size(); ++i) {
      const Tensor alone = class_scores(*model, {encoded[i]})[0];
      ASSERT_EQ(together[i].shape(), alone.shape());
      for (int64_t k = 0; k < alone.count(); ++k)
        EXPECT_NEAR(together[i].data<float>()[k], alone.data<float>()[k], 1e-4);
    }
  }

  static constexpr const char* kConfig = R"(
[data]
cache = false
[model]
architecture = "encoder"
context = 16
width = 32
layers = 1
heads = 4
hidden = 64
[train]
steps = 200
batch_tokens = 400
eval_every = 100
learning_rate = 5e-3
warmup_steps = 20
precision = "f32"
sample_tokens = 0
)";
  testing::ScratchDir dir_;
};

TEST_F(Encoders, LearnWhichWordComesFirst) {
  const TrainConfig c = config("classify", "run", {"train.steps=300"});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_EQ(e.tokens, 100);
  EXPECT_GE(e.score("accuracy"), 0.95);
  EXPECT_GE(e.score("matthews"), 0.9);
  const ModelSpec spec = load_spec(c.out + "/best");
  EXPECT_EQ(spec.labels, (std::vector<std::string>{"l", "r"}));
  expect_alone_as_together(
      c.out,
      {{"left ant right", ""}, {"cow right bee fox dog left", ""}, {"ant", "bee cow"}, {"right left", ""}});
  EXPECT_NE(read_file(c.out + "/evaluation.json").find("\"confusion\""), std::string::npos);
}

TEST_F(Encoders, LearnTagsOfAWordAndItsNeighbour) {
  const TrainConfig c = config("tag", "run");
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_GE(e.score("accuracy"), 0.97);
  EXPECT_EQ(load_spec(c.out + "/best").labels, (std::vector<std::string>{"AA", "AB", "BA", "BB"}));
  expect_alone_as_together(c.out, {{"ant fox", ""}, {"fox ant ant gnu cow", ""}, {"hen", ""}});
}

TEST_F(Encoders, LearnWhereAnAnswerStands) {
  const TrainConfig c = config("answer", "run", {"train.steps=300"});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_EQ(e.tokens, 60);
  EXPECT_GE(e.score("exact_match"), 0.95);
  EXPECT_GE(e.score("f1"), e.score("exact_match"));
  expect_alone_as_together(c.out, {{"who is it", "ant here bee"}, {"who", "here cow"}});
}

class HiddenTokens : public Encoders, public ::testing::WithParamInterface<const char*> {};

TEST_P(HiddenTokens, AreFound) {
  const TrainConfig c = config(GetParam(), "run", {"train.steps=300"});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_LT(e.loss(), 0.25 * std::log(10.0));  // words alone
  // Fills masks. A permutation model does not see the mask tokens.
  const auto model = load_model(c.out + "/best", DType::f32);
  const auto tokenizer = text::Tokenizer::load(c.out + "/best");
  const auto mask = static_cast<int32_t>(*tokenizer.token_to_id("[MASK]"));
  const EncodedText text =
      encode_text({"cow dog [MASK] fox gnu hen [MASK] jay", ""}, tokenizer, model->spec());
  const auto found = fill_masks(*model, {text}, mask, 1)[0];
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(tokenizer.id_to_token(found[0][0].id), "eel");
  EXPECT_EQ(tokenizer.id_to_token(found[1][0].id), "ibis");
}

// BERT's pre-training: also predicts which second half belongs to a first one.
TEST_F(Encoders, LearnWhichTextFollows) {
  const TrainConfig c = config("masked", "run", {"train.next_sentence=true", "train.steps=400"});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_LT(e.loss(), 0.5 * std::log(10.0));
  EXPECT_GE(e.score("next_sentence"), 0.9);
  const auto model = load_model(c.out + "/best", DType::f32);
  EXPECT_EQ(model->spec().labels, (std::vector<std::string>{"next", "random"}));
  EXPECT_TRUE(model->spec().pooler);
}

INSTANTIATE_TEST_SUITE_P(All, HiddenTokens, ::testing::Values("masked", "permutation"));

// The last token of a decoder has seen all others.
TEST_F(Encoders, DecodersLearnWhichWordComesFirst) {
  const TrainConfig c =
      config("classify", "run",
             {"model.architecture=decoder", "model.norm=pre", "model.segments=0", "train.steps=300"});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_GE(e.score("accuracy"), 0.95);
  expect_alone_as_together(c.out, {{"left ant right", ""}, {"bee right left", ""}});
}

TEST_F(Encoders, ResumeBitForBit) {
  for (const char* objective : {"masked", "classify", "tag", "answer"}) {
    SCOPED_TRACE(objective);
    expect_resumable(objective);
    for (const char* run : {"/whole", "/parts"}) std::filesystem::remove_all(dir_.path() + run);
  }
}

// Keeps the model of the evaluation with the best score; the first one if there are several.
TEST_F(Encoders, KeepTheBestByItsScore) {
  std::map<std::string, int64_t> kept;
  for (const std::string by : {"auto", "loss", "macro_f1"}) {
    const std::vector<std::string> keys = {"train.best_by=" + by, "train.steps=60", "train.eval_every=3",
                                           "data.train=" + dir_.write("few.tsv", class_rows(3, 40))};
    const TrainConfig c = config("classify", by, keys);
    train(c, StartMode::fresh, nullptr);
    const std::string score = by == "auto" ? "valid_accuracy" : "valid_" + by;
    double best = 0;
    int64_t step = 0;
    std::istringstream lines(read_file(c.out + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (!record.contains(score)) continue;
      const double value = record[score].get<double>() * (by == "loss" ? -1 : 1);
      if (step == 0 || value > best) best = value, step = record["step"].get<int64_t>();
    }
    const Json kept_scores = Json::parse(read_file(c.out + "/evaluation.json"));
    EXPECT_EQ(kept_scores["step"], step) << by;
    EXPECT_GT(step, 0) << by;
    kept[by] = step;
  }
  EXPECT_NE(kept["auto"], kept["loss"]);  // otherwise the test shows little
}

TEST_F(Encoders, HideOtherTokensInEachEpoch) {
  const TrainConfig c = config("masked", "run", {"train.batch_tokens=100000", "train.accumulate=2"});
  const auto task = make_task(c, nullptr), again = make_task(c, nullptr);
  const auto targets = [](const Batch& b) {  // sorted, because each epoch has its own order
    const auto v = b.targets.values();
    std::vector<int32_t> out(v.begin(), v.end());
    std::sort(out.begin(), out.end());
    return out;
  };
  const std::vector<Batch> first = task->batches(1, 1), second = task->batches(2, 1);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(targets(first[0]), targets(first[1]));  // a batch is an epoch here
  EXPECT_NE(targets(first[0]), targets(second[0]));
  EXPECT_EQ(targets(again->batches(2, 1)[1]), targets(second[1]));
}

// The test examples do not depend on how many are held out for validation.
TEST_F(Encoders, TheTestPartStaysWhatItIs) {
  const auto parts = [&](const std::vector<std::string>& more) {
    std::vector<std::string> keys = {"data.valid=[]", "data.test_fraction=0.2"};
    keys.insert(keys.end(), more.begin(), more.end());
    const Origin origin{"", testing::word_pieces({"left right ant bee cow dog"}), {}};
    std::vector<std::string> lines;
    std::istringstream in(make_task(config("classify", "run", keys), &origin)->fingerprint());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  };
  const auto some = parts({"data.valid_fraction=0.1"}), more = parts({"data.valid_fraction=0.3"}),
             other = parts({"data.split_seed=2"});
  ASSERT_EQ(some.size(), 3u);
  EXPECT_NE(some[1], more[1]);
  EXPECT_EQ(some[2], more[2]);
  EXPECT_NE(some[2], other[2]);
  EXPECT_TRUE(some[0].starts_with("examples = 720 ")) << some[0];
  EXPECT_TRUE(some[2].starts_with("examples = 200 ")) << some[2];
}

// A batch without targets would end a run, so examples without targets are dropped.
TEST_F(Encoders, WhatCannotBeLearntIsLeftOut) {
  std::string rows = "question\tcontext\tanswer\n", lines;
  for (int i = 0; i < 30; ++i) {
    rows += std::string("who\tant bee cow\tbee\n") + "who\tant bee cow ant bee cow ant bee dog\tdog\n";
    lines += "ant bee cow\n[MASK] [UNK]\n";
  }
  const std::vector<std::string> small = {"train.batch_tokens=2", "train.steps=60", "model.context=8",
                                          "train.eval_every=60", "data.valid=[]"};
  std::vector<std::string> answer = small, masked = small, hopeless = small;
  const std::string cut = dir_.write("cut.tsv", rows);
  answer.push_back("data.train=" + cut);
  answer.push_back("data.valid=" + cut);  // a split would keep equal texts together
  masked.push_back("data.train=" + dir_.write("special.txt", lines));
  EXPECT_GT(train(config("answer", "answer", answer), StartMode::fresh, nullptr).tokens, 0);
  EXPECT_GT(train(config("masked", "masked", masked), StartMode::fresh, nullptr).tokens, 0);
  hopeless.push_back("data.train=" +
                     dir_.write("far.tsv", "question\tcontext\tanswer\nwho\ta b c d e f g h\th\n"));
  testing::expect_error([&] { train(config("answer", "hopeless", hopeless), StartMode::fresh, nullptr); },
                        {"far.tsv", "beyond the model's 8 tokens"});
}

// A step with learning rate 0 changes nothing: the run saves its initial weights.
class FromAnother : public Encoders {
 protected:
  void SetUp() override {
    train(config("masked", "masked", {"train.steps=5", "model.norm=pre"}), StartMode::fresh, nullptr);
  }
  std::string begun(const std::string& objective, const std::string& out,
                    const std::vector<std::string>& more = {}) const {
    std::vector<std::string> keys = {"train.steps=1", "train.learning_rate=0", "train.warmup_steps=0",
                                     "train.seed=5", "model.norm=pre"};
    keys.insert(keys.end(), more.begin(), more.end());
    const TrainConfig c = config(objective, out, keys);
    train(c, StartMode::fresh, nullptr);
    return c.out + "/last/model.safetensors";
  }
  std::string from(const std::string& run) const { return "model.from=" + dir_.path() + "/" + run; }
  static bool same(const Tensor& a, const Tensor& b) {
    return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  }
};

TEST_F(FromAnother, TheBodyIsTakenTheHeadIsItsOwn) {
  const TensorFile other = read_safetensors(dir_.path() + "/masked/best/model.safetensors");
  for (const char* objective : {"classify", "tag", "answer"}) {
    const TensorFile fine = read_safetensors(begun(objective, objective, {from("masked")})),
                     fresh = read_safetensors(begun(objective, std::string("fresh_") + objective));
    int taken = 0, own = 0;
    for (const auto& [name, x] : fine.tensors) {
      const bool head = name.starts_with("classifier") || name.starts_with("pooler");
      EXPECT_EQ(other.tensors.contains(name), !head) << name;
      if (head) {
        ++own;
        EXPECT_TRUE(same(x, fresh.tensors.at(name))) << objective << " " << name;
      } else {
        ++taken;
        EXPECT_TRUE(same(x, other.tensors.at(name))) << objective << " " << name;
      }
    }
    EXPECT_GE(taken, 15);
    EXPECT_EQ(own, std::string(objective) == "classify" ? 4 : 2);
  }
}

TEST_F(FromAnother, TheSameObjectiveGoesOn) {
  const std::string masked = begun("masked", "again", {from("masked")});
  EXPECT_EQ(read_file(masked), read_file(dir_.path() + "/masked/best/model.safetensors"));
  begun("classify", "classes");
  EXPECT_EQ(read_file(begun("classify", "same", {from("classes"), "train.seed=6"})),
            read_file(dir_.path() + "/classes/best/model.safetensors"));
  // Other classes get a new head, even one of the same size.
  std::string rows = class_rows(1, 50);
  for (size_t at = 0; (at = rows.find("\tl\n", at)) != std::string::npos;) rows.replace(at, 3, "\tx\n");
  const TensorFile other =
      read_safetensors(begun("classify", "other",
                             {from("classes"), "train.seed=6", "data.train=" + dir_.write("x.tsv", rows),
                              "data.valid=[]", "data.valid_fraction=0.1"}));
  const TensorFile before = read_safetensors(dir_.path() + "/classes/best/model.safetensors");
  EXPECT_FALSE(same(other.tensors.at("classifier.weight"), before.tensors.at("classifier.weight")));
  EXPECT_TRUE(same(other.tensors.at("pooler.weight"), before.tensors.at("pooler.weight")));
  EXPECT_EQ(load_spec(dir_.path() + "/other/last").labels, (std::vector<std::string>{"r", "x"}));
}

// The run takes over the other model's tokenizer, and resumes without drawing or copying weights again.
TEST_F(FromAnother, Resumes) {
  const auto fine = [&](const std::string& out) {
    return config("tag", out, {from("masked"), "train.steps=8", "model.dropout=0.1", "train.eval_every=3"});
  };
  const TrainConfig whole = fine("whole"), parts = fine("parts");
  EXPECT_EQ(read_train_config(dir_.write("again.toml", to_toml(whole)), {}).model, whole.model);
  train(whole, StartMode::fresh, nullptr);
  int calls = 0;
  train(parts, StartMode::fresh, [&] { return ++calls == 4; });
  train(parts, StartMode::resume, nullptr);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    EXPECT_EQ(read_file(parts.out + "/last/" + file), read_file(whole.out + "/last/" + file)) << file;
  EXPECT_EQ(read_file(whole.out + "/last/tokenizer.json"),
            read_file(dir_.path() + "/masked/last/tokenizer.json"));
}

// Texts of a pair share two of ten words, in another order and among others. Their vectors find each other.
TEST(SentenceEmbeddings, AreLearntFromPairs) {
  const testing::ScratchDir dir;
  const auto rows = [](uint64_t seed, int count) {
    std::string out = "text\tother\n";
    Draws draw(seed);
    for (int i = 0; i < count; ++i) {
      const uint64_t a = draw(10), b = draw(10);
      out += fmt::format("{} {} {}\t{} {} {}\n", kWords[a], kWords[b], draw(2) == 0 ? "red" : "blue",
                         kWords[b], draw(2) == 0 ? "big" : "small", kWords[a]);
    }
    return out;
  };
  const std::string path =
      dir.write("run.toml", fmt::format(R"(
[data]
train = "{}"
valid = "{}"
second_column = "other"
[tokenizer]
vocab_size = 200
[model]
architecture = "encoder"
context = 16
width = 32
layers = 1
heads = 2
norm = "pre"
pooling = "mean"
[train]
objective = "embed"
out = "{}/run"
steps = 200
eval_every = 100
batch_tokens = 500
warmup_steps = 20
learning_rate = 0.005
precision = "f32"
)",
                                        dir.write("train.tsv", rows(1, 1500)),
                                        dir.write("valid.tsv", rows(2, 64)), dir.path()));
  const TrainConfig c = read_train_config(path, {});
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  // Some of the 64 pairs have the same two words, so higher accuracy is impossible.
  EXPECT_GT(e.score("accuracy"), 0.6);
  const auto model = load_model(c.out + "/best", DType::f32);
  EXPECT_EQ(model->spec().output, Output::embedding);
  const auto tokenizer = text::Tokenizer::load(c.out + "/best");
  std::vector<EncodedText> texts;
  for (const char* text : {"ant bee red", "bee big ant", "gnu small hen"})
    texts.push_back(encode_text({text, ""}, tokenizer, model->spec()));
  const Tensor v = embed_texts(*model, texts);
  const auto cosine = [&](int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < v.width(); ++i)
      sum += double{v.data<float>()[a * 32 + i]} * v.data<float>()[b * 32 + i];
    return sum;
  };
  EXPECT_NEAR(cosine(0, 0), 1, 1e-5);
  EXPECT_GT(cosine(0, 1), cosine(0, 2) + 0.3);
}

}  // namespace
}  // namespace qkv::encoder_test
