// Covers: qkv/io/auxiliary_files.cc
#include "qkv/train/run/average.h"

#include "qkv/base/file.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/model_dir.h"
#include "qkv/ops/elementwise.h"
#include "qkv/text/trainer.h"
#include "qkv/train/run/checkpoint.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::average_test {
namespace {

using testing::expect_error;

class AverageTest : public ::testing::Test {
 protected:
  // A model directory with its own weights.
  std::string model(const std::string& name, uint64_t seed, const ModelSpec& spec,
                    const std::string& special = "<|endoftext|>") const {
    Transformer model(spec);
    model.parameters().draw(seed, DType::f32);
    for (Parameter& p : model.parameters().all())  // biases and norms, too
      for (float& v : std::span(p.value.mutable_data<float>(), p.value.count()))
        v += static_cast<float>(seed) * 0.37F;
    text::TrainerOptions options;
    options.special_tokens = {special};
    const std::string dir = dir_.path() + "/" + name;
    save_model_dir(dir, model, text::train_bytes(options));
    return dir;
  }
  static ModelSpec spec() { return gpt2_spec(257, 8, 12, 2, 3); }
  testing::ScratchDir dir_;
};

TEST_F(AverageTest, OfWeightsIn16Bits) {
  ModelSpec s = spec();
  s.attention.bias = s.attention.out_bias = s.feed_forward_bias = s.tied = false;
  s.normalization = Normalization::rms;
  s.positions = Positions::rotary;
  s.attention.rotary.width = s.width / s.attention.heads;
  const std::string a = model("a", 1, s), b = model("b", 2, s), out = dir_.path() + "/mean";
  for (const std::string& dir : {a, b}) {
    const std::string path = dir + "/model.safetensors";
    const TensorFile file = read_safetensors(path);
    std::vector<std::pair<std::string, Tensor>> narrow;
    for (const auto& [name, x] : file.tensors) narrow.emplace_back(name, convert(x.clone(), DType::bf16));
    write_safetensors(path, narrow, file.metadata);
  }
  average_models({a, b}, out);
  const auto of_a = load_model(a, DType::f32), of_b = load_model(b, DType::f32),
             mean = load_model(out, DType::f32);
  int packed = 0;
  for (size_t p = 0; p < mean->parameters().all().size(); ++p) {
    packed += of_a->parameters().all()[p].packed.defined() ? 1 : 0;
    const auto value = [p](const Transformer& m) { return trained_value(m.parameters().all()[p]); };
    const Tensor got = value(*mean), x = value(*of_a), y = value(*of_b);
    for (int64_t i = 0; i < got.count(); ++i)
      ASSERT_EQ(got.values<float>()[i],
                static_cast<float>((double{x.values<float>()[i]} + y.values<float>()[i]) / 2));
  }
  EXPECT_GT(packed, 3);
}

TEST_F(AverageTest, IsTheMeanOfEveryParameter) {
  ModelSpec other_family = spec();
  other_family.activation = Activation::relu;
  other_family.tied = false;
  for (const ModelSpec& s : {spec(), other_family}) {
    const std::string a = model("a", 1, s), b = model("b", 2, s), c = model("c", 5, s),
                      out = dir_.path() + "/mean";
    average_models({a, b, c}, out);
    const auto mean = load_model(out, DType::f32);
    std::vector<std::unique_ptr<Transformer>> of;
    for (const std::string& dir : {a, b, c}) of.push_back(load_model(dir, DType::f32));
    EXPECT_EQ(mean->spec(), of[0]->spec());
    for (size_t p = 0; p < mean->parameters().all().size(); ++p) {
      const auto got = mean->parameters().all()[p].value.values<float>();
      for (size_t i = 0; i < got.size(); ++i) {
        double sum = 0;
        for (const auto& m : of) sum += double{m->parameters().all()[p].value.values<float>()[i]};
        ASSERT_EQ(got[i], static_cast<float>(sum / 3)) << mean->parameters().all()[p].name;
      }
    }
    EXPECT_EQ(read_file(out + "/tokenizer.json"), read_file(a + "/tokenizer.json"));
    EXPECT_EQ(read_file(out + "/generation_config.json"), read_file(a + "/generation_config.json"));
    for (const char* dir : {"a", "b", "c", "mean"}) std::filesystem::remove_all(dir_.path() + "/" + dir);
  }
}

TEST_F(AverageTest, RefusesWhatDoesNotFitAndWritesNothing) {
  ModelSpec wide = spec(), other = spec();
  wide.hidden = 16;
  other.norm_epsilon = 1e-3F;
  const std::string a = model("a", 1, spec()), b = model("b", 2, wide), c = model("c", 3, other),
                    d = model("d", 4, spec(), "<end>"), out = dir_.path() + "/mean";
  expect_error([&] { average_models({a}, out); }, {"two models"});
  expect_error([&] { average_models({a, b}, out); }, {b, a, "feed_forward", "[16, 12]", "[48, 12]"});
  expect_error([&] { average_models({a, c}, out); }, {c, a, "config.json"});
  expect_error([&] { average_models({a, d}, out); }, {d, a, "tokenizer"});
  EXPECT_FALSE(file_exists(out));
  const std::string before = read_file(a + "/model.safetensors");
  expect_error([&] { average_models({a, a}, a); }, {a, "exists"});
  EXPECT_EQ(read_file(a + "/model.safetensors"), before);
}

TEST_F(AverageTest, TheNewestCheckpointsOfARun) {
  const std::string run = dir_.path() + "/run";
  for (const char* name : {"step-8", "step-12", "step-100", "step-x", "step-9.tmp", "last", "best"})
    std::filesystem::create_directories(run + "/" + name);
  const auto last_is = [&](int step) {
    dir_.write("run/last/trainer_state.json",
               fmt::format(R"({{"version": 2, "step": {}, "batch": 1, "evaluations_since_best": 0, )"
                           R"("best_loss": null, "smoothed_loss": 1, "threads": 1, "fingerprint": ""}})",
                           step));
  };
  last_is(120);
  EXPECT_EQ(newest_checkpoints(run, 3),
            (std::vector<std::string>{run + "/step-12", run + "/step-100", run + "/last"}));
  EXPECT_EQ(newest_checkpoints(run, 1), std::vector<std::string>{run + "/last"});
  expect_error([&] { newest_checkpoints(run, 5); }, {run, "4 checkpoints", "train.keep = 5"});
  last_is(100);  // as after a run was killed while saving
  EXPECT_EQ(newest_checkpoints(run, 2), (std::vector<std::string>{run + "/step-12", run + "/last"}));
  last_is(50);  // step-100 is no part of a run that was taken back to step 50
  EXPECT_EQ(newest_checkpoints(run, 3),
            (std::vector<std::string>{run + "/step-8", run + "/step-12", run + "/last"}));
  expect_error([&] { newest_checkpoints(dir_.path(), 1); }, {dir_.path(), "last/"});
}

}  // namespace
}  // namespace qkv::average_test
