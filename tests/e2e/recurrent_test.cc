// Recurrent translators from a configuration to translations: they learn, decode, and resume bit for bit.
#include <gtest/gtest.h>

#include "qkv/base/file.h"
#include "qkv/infer/translate.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/corpora/corpus.h"
#include "qkv/train/run/plan.h"
#include "qkv/train/run/trainer.h"
#include "tests/e2e/reversed_words.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::recurrent_test {
namespace {

// Settings besides the task.
struct Variant {
  const char* name;
  std::vector<std::string> settings;
};

class RecurrentTranslation : public ::testing::TestWithParam<Variant> {
 protected:
  TrainConfig config(const std::string& out, const std::vector<std::string>& more = {}) const {
    const std::string train = dir_.write("train.tsv", reversed_words(1, 2000)),
                      valid = dir_.write("valid.tsv", reversed_words(2, 40));
    const std::string path = dir_.write("run.toml", R"([data]
train = ")" + train + R"("
valid = ")" + valid + R"("
cache = false
[tokenizer]
type = "byte"
[model]
architecture = "encoder_decoder"
context = 16
width = 48
layers = 1
heads = 4
hidden = 96
embedding_scaled = true
[train]
precision = "f32"
learning_rate = 5e-3
warmup_steps = 20
weight_decay = 0
batch_tokens = 1000
steps = 600
eval_every = 300
)");
    std::vector<std::string> settings = GetParam().settings;
    settings.insert(settings.end(), more.begin(), more.end());
    settings.push_back("train.out=" + dir_.path() + "/" + out);
    return read_train_config(path, settings);
  }
  testing::ScratchDir dir_;
};

TEST_P(RecurrentTranslation, LearnsToReverse) {
  const TrainConfig c = config("run");
  train(c, StartMode::fresh, nullptr);
  const auto model = load_model(c.out + "/best", DType::f32);
  const auto tokenizer = text::Tokenizer::load(c.out + "/best");
  const SpecialIds special = load_special_ids(c.out + "/best");
  const SequenceModel m{
      *model, tokenizer, {static_cast<int32_t>(special.bos), static_cast<int32_t>(special.eos[0])}};
  const PairTexts valid = read_pairs(c.data.valid, {}, c.data);
  const std::vector<std::string> sources(valid.source.begin(), valid.source.end());
  for (const int64_t beams : {1, 4}) {
    BeamOptions options;
    options.beams = beams;
    const Translations found = translate(m, sources, options);
    size_t right = 0;
    for (size_t i = 0; i < valid.source.size(); ++i) {
      right += found.best[i][0].text == valid.target[i];
      EXPECT_EQ(std::ssize(found.best[i]), beams);
    }
    EXPECT_GE(right, valid.source.size() * 9 / 10) << beams << " beams";
  }
}

TEST_P(RecurrentTranslation, ResumesBitForBit) {
  const std::vector<std::string> settings = {"train.steps=16", "train.eval_every=8", "model.layers=2",
                                             "model.encoder_layers=2", "model.dropout=0.2"};
  const TrainConfig whole = config("whole", settings), parts = config("parts", settings);
  train(whole, StartMode::fresh, nullptr);
  int calls = 0;
  train(parts, StartMode::fresh, [&] { return ++calls == 7; });
  train(parts, StartMode::resume, nullptr);
  EXPECT_EQ(read_file(parts.out + "/last/model.safetensors"),
            read_file(whole.out + "/last/model.safetensors"));
}

TEST_P(RecurrentTranslation, TheMemoryPlanIsWhatAStepTakes) {
  for (const char* precision : {"f32", "bf16"}) {
    TrainConfig c =
        config("plan", {"model.width=128", "model.hidden=512", "model.layers=2", "model.encoder_layers=2",
                        "model.context=32", std::string("train.precision=") + precision});
    c.model.vocab_size = 512;
    c.batch_tokens = 4096;
    trim_memory_pool();
    const auto before = static_cast<double>(memory_use().in_use);
    reset_peak_memory();
    TrainingState t(std::make_unique<Transformer>(c.model), c.step, {.compute = c.compute(), .seed = 1});
    const std::vector<int32_t> lengths(64, 32);
    Batch batch;
    batch.ids = batch.source = batch.targets = Indices::zeros(2048);
    batch.layout = batch.source_layout = Layout::of(lengths);
    batch.target_count = 2048;
    for (int64_t step = 1; step <= 2; ++step) t.step({batch}, step, 2);
    const MemoryPlan plan = memory_plan(c, 0);
    const auto want = static_cast<double>(plan.total() - plan.program);
    const double got = static_cast<double>(memory_use().peak) - before;
    EXPECT_NEAR(got / want, 1, 0.2) << precision << ": " << got << " of " << want;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Variants, RecurrentTranslation,
    ::testing::Values(
        Variant{"Sutskever",
                {"model.encoder=lstm", "model.decoder=lstm", "model.source_attention=none",
                 "model.reverse_source=true", "train.steps=1200"}},
        Variant{"Bahdanau", {"model.encoder=gru", "model.decoder=gru", "model.source_attention=additive"}},
        Variant{"LuongGlobal", {"model.encoder=lstm", "model.decoder=lstm", "model.bidirectional=false"}},
        Variant{"LuongLocal",
                {"model.encoder=lstm", "model.decoder=lstm", "model.source_attention=local",
                 "model.local_window=2"}},
        Variant{"Mixed", {"model.decoder=gru"}}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qkv::recurrent_test
