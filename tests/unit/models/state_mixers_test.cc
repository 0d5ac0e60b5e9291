// Mixers with states behind short convolutions: settings, sizes that follow from others, what they refuse,
// and that decoding gives what reading the whole gives.
// Covers: qkv/models/mixers/gated_delta_layer.cc, qkv/models/mixers/state_space_layer.cc
// Covers: qkv/models/mixers/convolution_layer.cc, qkv/nn/gated_delta.cc, qkv/nn/state_space.cc
// Covers: qkv/nn/convolution.cc, qkv/nn/replayed_mixer.cc
// Covers: qkv/models/mixers/rwkv_layer.cc, qkv/nn/rwkv.cc, qkv/nn/token_shift.cc
// Covers: qkv/models/mixers/random_features_layer.cc
// Covers: qkv/models/mixers/attention_free_layer.cc, qkv/nn/attention_free.cc
#include <gtest/gtest.h>

#include "qkv/models/transformer.h"
#include "qkv/ops/elementwise.h"
#include "qkv/train/config/config.h"
#include "tests/unit/expect_error.h"

namespace qkv::state_mixers_test {
namespace {

using testing::expect_error;

ModelSpec read(const std::string& model) {
  return parse_train_config("data.train = 'a.txt'\n[model]\nwidth = 32\n" + model, "run.toml", {}).model;
}

TEST(StateMixers, HaveSizesThatFollowFromTheWidth) {
  const ModelSpec gated = read("mixer = 'gated_delta'\n"), mamba = read("mixer = 'mamba'\n"),
                  mamba2 = read("mixer = 'mamba2'\nmamba2_head_width = 16\n");
  EXPECT_EQ(gated.positions, Positions::none);
  const auto* g = gated.mixer.get_if<GatedDeltaMixer>();
  EXPECT_EQ(std::vector({g->heads, g->key_heads, g->d_k, g->d_v}), (std::vector<int64_t>{4, 4, 8, 8}));
  const auto* m = mamba.mixer.get_if<MambaMixer>();
  EXPECT_EQ(std::vector({m->inner, m->state, m->rank}), (std::vector<int64_t>{64, 16, 2}));
  EXPECT_EQ(mamba2.mixer.get_if<Mamba2Mixer>()->heads, 4);
  EXPECT_EQ(read("mixer = 'convolution'\nconvolution_kernel = 5\n").mixer.get_if<ConvolutionMixer>()->kernel,
            5);
  EXPECT_EQ(read("mixer = 'rwkv4'\n").mixer.get_if<Rwkv4Mixer>()->inner, 32);
  const ModelSpec rwkv = read("mixer = 'rwkv7'\nrwkv7_rate_rank = 5\n");
  const auto* r = rwkv.mixer.get_if<Rwkv7Mixer>();
  EXPECT_EQ(std::vector({r->heads, r->decay_rank, r->rate_rank, r->value_rank, r->gate_rank}),
            (std::vector<int64_t>{1, 32, 5, 32, 32}));
  Rwkv7Mixer large;
  large.derive(2048);
  EXPECT_EQ(std::vector({large.heads, large.decay_rank, large.rate_rank, large.value_rank, large.gate_rank}),
            (std::vector<int64_t>{32, 96, 96, 64, 256}));
  EXPECT_EQ(read("mixer = 'random_features'\nrandom_heads = 2\n").mixer.get_if<RandomFeaturesMixer>()->count,
            32);
  // A kind's follow from it, too.
  const ModelSpec kinds =
      read("heads = 4\nlayers = 2\nlayer_kinds = ['a', 'default']\n[model.kind.a]\nmixer = 'mamba'\n");
  EXPECT_EQ(kinds.block(0).mixer.get_if<MambaMixer>()->inner, 64);
}

TEST(StateMixers, AreRefusedWhereTheyMeanNothing) {
  for (const char* mixer : {"gated_delta", "mamba", "mamba2", "convolution", "rwkv4", "rwkv7"})
    expect_error([&] { read(fmt::format("architecture = 'encoder'\nmixer = '{}'\n", mixer)); },
                 {mixer, "decoder"});
  expect_error([] { read("mixer = 'gated_delta'\ngated_delta_key_heads = 3\n"); }, {"gated_delta_key_heads"});
  expect_error([] { read("mixer = 'mamba2'\n mamba2_head_width = 128\n"); }, {"mamba2_heads", "128"});
  expect_error([] { read("mixer = 'mamba2'\nmamba2_head_width = 16\nmamba2_groups = 3\n"); },
               {"mamba2_groups", "3"});
  expect_error(
      [] { read("mixer = 'mamba2'\nmamba2_head_width = 16\nmamba2_step_low = 2\nmamba2_step_high = 1\n"); },
      {"mamba2_step_low"});
  expect_error([] { read("mixer = 'random_features'\nrandom_heads = 5\n"); }, {"random_heads", "5 heads"});
  expect_error([] { read("mixer = 'random_features'\nrandom_unit = true\n"); }, {"random_unit", "fourier"});
  expect_error([] { read("mixer = 'random_features'\nrandom_epsilon = 1e-4\n"); },
               {"random_epsilon", "encoders"});
  expect_error([] { read("heads = 4\ncross_linear = true\n"); }, {"cross_linear", "encoder-decoder"});
  expect_error(
      [] { read("heads = 4\narchitecture = 'encoder_decoder'\ncross_linear = true\nkv_heads = 1\n"); },
      {"cross_linear", "kv_heads"});
  expect_error([] { read("heads = 4\nring_beyond = 8\n"); }, {"ring_beyond", "block 8"});
  expect_error([] { read("heads = 4\narchitecture = 'encoder'\nring_after = 1\n"); },
               {"ring_after", "ring_beyond"});
  expect_error([] { read("heads = 4\narchitecture = 'encoder'\nring_beyond = 8\npatterns = ['block 4']\n"); },
               {"ring_beyond", "patterns"});
  expect_error([] { read("heads = 4\narchitecture = 'encoder'\nring_beyond = 8\nshared_query_key = [1]\n"); },
               {"ring_beyond", "shared_query_key"});
  expect_error([] { read("heads = 4\narchitecture = 'encoder'\nlatents = 4\nring_beyond = 2\n"); },
               {"latents", "ring_beyond"});
  expect_error(
      [] {
        read(
            "heads = 4\narchitecture = 'encoder_decoder'\nencoder_layers = 2\nencoder_layer_kinds = ['a']\n"
            "[model.kind.a]\nshared_query_key = [1]\nhashed_beyond = 4\n");
      },
      {"hashed_beyond", "encoder-decoder"});
  expect_error([] { read("mixer = 'random_features'\nrandom_gated = true\narchitecture = 'encoder'\n"); },
               {"random_features", "decoder"});
  expect_error([] { read("mixer = 'attention_free'\naft_form = 'simple'\naft_rank = 3\n"); },
               {"aft_rank", "full"});
  expect_error([] { read("mixer = 'attention_free'\naft_form = 'conv'\naft_heads = 5\n"); },
               {"aft_heads", "5 heads"});
  expect_error([] { read("mixer = 'rwkv7'\nrwkv7_heads = 5\n"); }, {"rwkv7_heads", "5 heads"});
  expect_error(
      [] {
        read("heads = 4\nlayers = 2\nlayer_kinds = ['default', 'a']\n[model.kind.a]\nmixer = 'rwkv7'\n");
      },
      {"rwkv7", "layer 1", "attention"});
  expect_error([] { read("mixer = 'rwkv7'\nlayers = 4\nlayer_groups = 2\n"); }, {"rwkv7", "layer_groups"});
  expect_error([] { read("heads = 4\narchitecture = 'encoder'\nchannel_mix = 'rwkv4'\n"); },
               {"channel_mix rwkv4"});
  expect_error([] { read("heads = 4\nchannel_mix = 'rwkv7'\ngated = true\n"); },
               {"channel_mix rwkv7", "gated"});
  expect_error([] { read("mixer = 'mamba'\nconvolution_kernel = 3\n"); },
               {"convolution_kernel", "no effect"});
}

std::vector<MixerSpec> mixers() {
  GatedDeltaMixer gated;
  gated.heads = 4, gated.key_heads = 2, gated.d_k = 3, gated.d_v = 5;
  MambaMixer mamba;
  mamba.inner = 10, mamba.state = 3, mamba.rank = 2, mamba.norms = true, mamba.bias = true;
  Mamba2Mixer mamba2;
  mamba2.heads = 4, mamba2.head_width = 3, mamba2.state = 5, mamba2.groups = 2;
  ConvolutionMixer convolution;
  convolution.kernel = 4, convolution.bias = true;
  Rwkv4Mixer rwkv4;
  rwkv4.inner = 5;
  Rwkv7Mixer rwkv7;
  rwkv7.heads = 2, rwkv7.decay_rank = rwkv7.rate_rank = 3, rwkv7.value_rank = 2, rwkv7.gate_rank = 5;
  RandomFeaturesMixer performer, rfa;
  performer.heads = 2, performer.count = 5;
  rfa.heads = 4, rfa.count = 3, rfa.map = RandomMap::fourier, rfa.gated = true;
  std::vector<MixerSpec> all = {gated, mamba, mamba2, convolution, rwkv4, rwkv7, performer, rfa};
  for (const AftForm form : {AftForm::full, AftForm::local, AftForm::simple, AftForm::conv}) {
    AttentionFreeMixer aft;
    aft.form = form, aft.window = 5, aft.heads = 2, aft.rank = form == AftForm::local ? 3 : 0;
    all.emplace_back(aft);
  }
  return all;
}

// The hidden rows of `tokens` behind those that the states hold.
std::vector<float> rows(Transformer& model, std::vector<int32_t> tokens, DecodingStates* states) {
  const NoGrad guard;
  const auto n = static_cast<int32_t>(tokens.size());
  Context context;
  context.states = states;
  const Tensor hidden = convert(model.hidden({std::move(tokens), Layout::of({n})}, context), DType::f32);
  const auto v = hidden.values<float>();
  return {v.begin(), v.end()};
}

TEST(StateMixers, DecodeWithTheBitsOfTheWhole) {
  for (const MixerSpec& mixer : mixers())
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(mixer.kind()), name_of(type)));
      ModelSpec spec = gpt2_spec(9, 64, 8, 2, 1);
      spec.mixer = mixer;
      if (mixer.get_if<Rwkv4Mixer>() != nullptr) spec.channel_mix = ChannelMix::rwkv4;
      if (mixer.get_if<Rwkv7Mixer>() != nullptr) spec.channel_mix = ChannelMix::rwkv7;
      spec.positions = Positions::none;
      spec.init_std = 0.4F;
      Transformer model(spec);
      model.parameters().draw(3, type);
      std::vector<int32_t> text;
      for (int32_t i = 0; i < 40; ++i) text.push_back(i * i % 9);
      const std::vector<float> whole = rows(model, text, nullptr);
      DecodingStates states = model.make_states(1);
      std::vector<float> parts;
      for (const auto& [begin, end] : {std::pair{0, 1}, {1, 3}, {3, 24}, {24, 25}, {25, 40}})
        for (const float x : rows(model, {text.begin() + begin, text.begin() + end}, &states))
          parts.push_back(x);
      EXPECT_EQ(parts, whole);
      // Back by some tokens, saved and loaded, and on.
      states.truncate(0, 28);
      DecodingStates again = model.make_states(1);
      for (size_t i = 0; i < states.all().size(); ++i) again.all()[i]->load(states.all()[i]->save());
      again.truncate(0, 27);
      const std::vector<float> rest = rows(model, {text.begin() + 27, text.end()}, &again);
      EXPECT_EQ(rest, std::vector<float>(whole.begin() + 27 * 8, whole.end()));
    }
}

}  // namespace
}  // namespace qkv::state_mixers_test
