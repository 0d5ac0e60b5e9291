// From a file of pairs to translations: a run that learns, and resumes bit for bit.
// Covers: qkv/train/tasks/denoising.cc, qkv/train/tasks/task_denoising.cc, qkv/train/tasks/task_pairs.cc
// Covers: qkv/infer/sequence_ends.cc
#include <gtest/gtest.h>

#include "qkv/base/file.h"
#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/run/plan.h"
#include "qkv/train/run/trainer.h"
#include "tests/e2e/reversed_words.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::translation_test {
namespace {

// Encoder-decoders, and decoders alone with and without bidirectional sources.
struct Reader {
  const char* name;
  Architecture architecture;
  Order order;
};
constexpr Reader kReaders[] = {{"EncoderDecoder", Architecture::encoder_decoder, Order::stack},
                               {"PrefixDecoder", Architecture::decoder, Order::prefix},
                               {"Decoder", Architecture::decoder, Order::stack}};

class Translation : public ::testing::TestWithParam<Reader> {
 protected:
  TrainConfig config(const std::string& out) const {
    TrainConfig c;
    c.data.train = {dir_.write("train.tsv", reversed_words(1, 1500))};
    c.data.valid = {dir_.write("valid.tsv", reversed_words(2, 40))};
    c.data.cache = false;
    c.tokenizer.type = "byte";
    c.model = gpt2_spec(0, 16, 48, 1, 4);
    c.model.init_std = 0.1F;
    c.model.architecture = GetParam().architecture;
    c.model.order = GetParam().order;
    c.model.encoder_layers = c.model.architecture == Architecture::encoder_decoder ? 1 : 0;
    c.model.layers = 2 - c.model.encoder_layers;
    c.objective = Objective::sequence_to_sequence;
    c.model.hidden = 96;
    c.precision = "f32";
    c.step.schedule.learning_rate = 3e-3;
    c.step.schedule.warmup_steps = 30;
    c.steps = 400;
    c.batch_tokens = 1000;
    c.eval_every = 200;
    c.out = dir_.path() + "/" + out;
    return c;
  }
  testing::ScratchDir dir_;
};

TEST_P(Translation, LearnsToReverse) {
  const TrainConfig c = config("run");
  train(c, StartMode::fresh, nullptr);
  const auto model = load_model(c.out + "/best", DType::f32);
  const auto tokenizer = text::Tokenizer::load(c.out + "/best");
  const SpecialIds special = load_special_ids(c.out + "/best");
  EXPECT_EQ(special.decoder_start, special.bos);
  const SequenceModel m{
      *model, tokenizer, {static_cast<int32_t>(special.bos), static_cast<int32_t>(special.eos[0])}};
  const PairTexts valid = read_pairs(c.data.valid, {}, c.data);
  const Translations found =
      translate(m, std::vector<std::string>(valid.source.begin(), valid.source.end()), {});
  size_t right = 0;
  for (size_t i = 0; i < valid.source.size(); ++i) right += found.best[i][0].text == valid.target[i];
  EXPECT_GE(right, valid.source.size() * 9 / 10);
  // Empty lines keep their places; lines that are too long are truncated and counted.
  const Translations odd = translate(m, {"", "abc", "", std::string(40, 'a')}, {});
  EXPECT_EQ(odd.best[0][0].text, "");
  EXPECT_EQ(odd.best[1][0].text, "cba");
  EXPECT_EQ(odd.best[2][0].text, "");
  EXPECT_EQ(odd.cut, 1);
  // Forced beginnings of the outputs.
  const Translations begun = translate(m, {"abc", "de"}, {}, {.begin = {"c", "f"}});
  EXPECT_EQ(begun.best[0][0].text, "cba");
  EXPECT_EQ(begun.best[1][0].text[0], 'f');
}

TEST_P(Translation, ResumesBitForBit) {
  TrainConfig c = config("whole");
  c.steps = 24;
  c.step.schedule.warmup_steps = 4;
  train(c, StartMode::fresh, nullptr);
  TrainConfig parts = c;
  parts.out = dir_.path() + "/parts";
  int calls = 0;
  train(parts, StartMode::fresh, [&] { return ++calls == 11; });
  train(parts, StartMode::resume, nullptr);
  EXPECT_EQ(read_file(parts.out + "/last/model.safetensors"), read_file(c.out + "/last/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Readers, Translation, ::testing::ValuesIn(kReaders),
                         [](const auto& info) { return info.param.name; });

// Sources and targets in different alphabets: each side has a tokenizer that does not know the other's.
TEST(WiderEncoder, TheMemoryPlanIsWhatAStepTakes) {
  for (const bool recompute : {false, true}) {
    TrainConfig c;
    c.model = gpt2_spec(512, 32, 64, 1, 4);
    c.model.architecture = Architecture::encoder_decoder;
    c.model.encoder_layers = 3;
    c.model.encoder = {.width = 256, .heads = 8, .hidden = 1024};
    c.objective = Objective::sequence_to_sequence;
    c.precision = "f32";
    c.batch_tokens = 4096;
    c.recompute = recompute;
    trim_memory_pool();
    const auto before = static_cast<double>(memory_use().in_use);
    reset_peak_memory();
    TrainingState t(std::make_unique<Transformer>(c.model), c.step,
                    {.compute = c.compute(), .seed = 1, .recompute = recompute});
    Batch batch;
    batch.ids = batch.source = batch.targets = Indices::zeros(2048);
    batch.layout = batch.source_layout = Layout::of(std::vector<int32_t>(64, 32));
    batch.target_count = 2048;
    for (int64_t step = 1; step <= 2; ++step) t.step({batch}, step, 2);
    const MemoryPlan plan = memory_plan(c, 0);
    const auto want = static_cast<double>(plan.total() - plan.program);
    const double got = static_cast<double>(memory_use().peak) - before;
    EXPECT_NEAR(got / want, 1, 0.2) << "recompute " << recompute << ": " << got << " of " << want;
  }
}

TEST(TwoVocabularies, LearnResumeAndTranslate) {
  testing::ScratchDir dir;
  const auto pairs = [](uint64_t seed, int count) {
    std::string out = "source\ttarget\n";
    const RandomStream random{seed, 0, 0};
    for (int i = 0; i < count; ++i) {
      std::string word, shifted;
      const uint64_t length = 1 + random.below(static_cast<uint64_t>(i) * 8, 5);
      for (uint64_t c = 1; c <= length; ++c) {
        word += static_cast<char>('a' + random.below(static_cast<uint64_t>(i) * 8 + c, 6));
        shifted += static_cast<char>(word.back() - 'a' + 'M');
      }
      out += word + "\t" + shifted + "\n";
    }
    return out;
  };
  TrainConfig c;
  c.data.train = {dir.write("train.tsv", pairs(1, 1000))};
  c.data.valid = {dir.write("valid.tsv", pairs(2, 40))};
  c.data.cache = false;
  c.tokenizer.type = "char";
  c.tokenizer.separate = true;
  c.model = gpt2_spec(0, 16, 32, 1, 2);
  c.model.init_std = 0.1F;
  c.model.architecture = Architecture::encoder_decoder;
  c.model.encoder_layers = 1;
  c.objective = Objective::sequence_to_sequence;
  c.precision = "f32";
  c.step.schedule.learning_rate = 5e-3;
  c.step.schedule.warmup_steps = 20;
  c.steps = 200;
  c.batch_tokens = 800;
  c.eval_every = 100;
  c.out = dir.path() + "/whole";
  train(c, StartMode::fresh, nullptr);
  TrainConfig parts = c;
  parts.out = dir.path() + "/parts";
  int calls = 0;
  train(parts, StartMode::fresh, [&] { return ++calls == 90; });
  train(parts, StartMode::resume, nullptr);
  EXPECT_EQ(read_file(parts.out + "/last/model.safetensors"), read_file(c.out + "/last/model.safetensors"));

  const auto model = load_model(c.out + "/last", DType::f32);
  const auto tokenizer = text::Tokenizer::load(c.out + "/last");
  ASSERT_TRUE(tokenizer.has_own_sources());
  EXPECT_TRUE(tokenizer.of_sources().token_to_id("a"));
  EXPECT_FALSE(tokenizer.of_sources().token_to_id("M"));
  EXPECT_TRUE(tokenizer.token_to_id("M"));
  EXPECT_FALSE(tokenizer.token_to_id("a"));
  EXPECT_EQ(model->spec().source_vocab_size, static_cast<int64_t>(tokenizer.of_sources().vocab_size()));
  const PairTexts valid = read_pairs(c.data.valid, {}, c.data);
  const Translations found =
      translate({*model, tokenizer, sequence_ends(tokenizer)},
                std::vector<std::string>(valid.source.begin(), valid.source.end()), {});
  size_t right = 0;
  for (size_t i = 0; i < valid.source.size(); ++i) right += found.best[i][0].text == valid.target[i];
  EXPECT_GE(right, valid.source.size() * 9 / 10);
  // Fine-tuning takes over both tokenizers.
  TrainConfig on = c;
  on.from = c.out;
  on.tokenizer = {};
  on.model = model->spec();
  on.steps = 2;
  on.out = dir.path() + "/on";
  train(on, StartMode::fresh, nullptr);
  EXPECT_EQ(text::Tokenizer::load(on.out + "/last").of_sources().to_json(), tokenizer.of_sources().to_json());
  testing::expect_error([&] { tokenizer.save(dir.path() + "/both.json"); },
                        {"both.json", "two vocabularies"});
}

// Restores the letters removed from counting texts: both kinds of corruption learn, and resume bit for bit.
class Restoration : public ::testing::TestWithParam<Objective> {
 protected:
  TrainConfig config(const std::string& out) const {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      for (int k = 0; k < 12; ++k) text += static_cast<char>('a' + (i * 7 + k) % 26);
      text += "\n";
    }
    TrainConfig c;
    c.data.train = {dir_.write("train.txt", text)};
    c.data.separator = "\n";
    c.data.cache = false;
    c.tokenizer.type = "byte";
    c.objective = GetParam();
    c.spans.mean_length = 2;
    c.model = gpt2_spec(0, 32, 48, 1, 4);
    c.model.init_std = 0.1F;
    c.model.architecture = Architecture::encoder_decoder;
    c.model.encoder_layers = 1;
    c.model.positions = Positions::relative;
    c.model.normalization = Normalization::rms;
    c.model.gated = true;
    c.model.hidden = 96;
    c.precision = "f32";
    c.step.schedule.learning_rate = 5e-3;
    c.step.schedule.warmup_steps = 20;
    c.steps = 200;
    c.batch_tokens = 1000;
    c.eval_every = 100;
    c.out = dir_.path() + "/" + out;
    return c;
  }
  testing::ScratchDir dir_;
};

TEST_P(Restoration, Learns) {
  const TrainConfig c = config("run");
  const Evaluation e = train(c, StartMode::fresh, nullptr);
  EXPECT_LT(e.loss(), 0.7);  // uniform over 26 letters: log 26 = 3.3; the length of a span is unpredictable
}

TEST_P(Restoration, ResumesBitForBit) {
  TrainConfig whole = config("whole"), parts = config("parts");
  whole.steps = parts.steps = 30;
  train(whole, StartMode::fresh, nullptr);
  int steps = 0;
  train(parts, StartMode::fresh, [&] { return ++steps == 13; });
  train(parts, StartMode::resume, nullptr);
  EXPECT_EQ(read_file(whole.out + "/last/model.safetensors"),
            read_file(parts.out + "/last/model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Both, Restoration,
                         ::testing::Values(Objective::span_corruption, Objective::denoise,
                                           Objective::prefix_lm),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace qkv::translation_test
