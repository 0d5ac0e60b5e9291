// Mixers of blocks: what each of them promises, and how configurations and files say which it is.
// Covers: qkv/models/mixers/attention_layer.cc, qkv/models/mixers/latent_attention_layer.cc
// Covers: qkv/models/mixers/recurrence_layer.cc, qkv/models/mixers/mixer_place.cc
// Covers: qkv/nn/recurrent_sublayer.cc, qkv/models/mixer_spec.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "qkv/base/json_value.h"
#include "qkv/infer/decode_state.h"
#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/models/transformer.h"
#include "qkv/train/config/config.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::mixer_test {
namespace {

using testing::expect_error;
using Tokens = std::vector<int32_t>;

std::vector<MixerKind> all_mixers() {
  std::vector<MixerKind> kinds;
  MixerSpec().for_each([&]<typename M>(const M&) { kinds.push_back(MixerSpec(M()).kind()); });
  return kinds;
}

// A decoder of two layers with this mixer, whatever it needs.
ModelSpec spec_of(MixerKind kind) {
  ModelSpec s = gpt2_spec(9, 12, 8, 2, 2);
  s.mixer = MixerSpec::of(kind);
  s.positions = s.mixer.attends() ? Positions::rotary : Positions::none;
  if (s.mixer.attends()) s.attention.rotary.width = 2;
  if (s.mixer.get_if<LatentMixer>() != nullptr) s.mixer = LatentMixer{3, 4};
  if (s.mixer.get_if<Mamba2Mixer>() != nullptr) {
    Mamba2Mixer m;
    m.head_width = 4;
    s.mixer = m;
  }
  if (s.mixer.get_if<ConvolutionMixer>() != nullptr) {
    ConvolutionMixer m;
    m.kernel = 9;  // sees the longest text
    s.mixer = m;
  }
  s.mixer.derive(s.width);
  s.init_std = 0.4F;
  return s;
}

class Mixers : public ::testing::TestWithParam<MixerKind> {
 protected:
  Mixers() : model_(spec_of(GetParam())) { model_.parameters().draw(3, DType::f32); }

  Tensor logits(const std::vector<Tokens>& sequences) const {
    const NoGrad guard;
    Tokens flat, lengths;
    for (const Tokens& s : sequences) {
      flat.insert(flat.end(), s.begin(), s.end());
      lengths.push_back(static_cast<int32_t>(s.size()));
    }
    return model_.logits(model_.hidden({flat, Layout::of(lengths)}, {}));
  }
  // The logits behind a text.
  std::vector<float> behind(const Tokens& text) const {
    const Tensor all = logits({text});
    const auto last = all.row<float>(all.rows() - 1);
    return {last.begin(), last.end()};
  }
  void expect_behind(const Tensor& got, int64_t row, const Tokens& text) const {
    const std::vector<float> want = behind(text);
    for (size_t v = 0; v < want.size(); ++v)
      EXPECT_NEAR(got.row<float>(row)[static_cast<int64_t>(v)], want[v], 1e-5) << "text of " << text.size();
  }

  Transformer model_;
};

TEST_P(Mixers, EachTokenSeesThoseBefore) {
  const Tokens text = {1, 5, 2, 8, 3, 3, 7};
  const Tensor before = logits({text});
  for (size_t changed = 0; changed < text.size(); ++changed) {
    Tokens other = text;
    other[changed] = (other[changed] + 1) % 9;
    const Tensor after = logits({other});
    for (size_t t = 0; t < text.size(); ++t) {
      const auto row = static_cast<int64_t>(t);
      const bool same = std::ranges::equal(before.row<float>(row), after.row<float>(row));
      EXPECT_EQ(same, t < changed) << changed << " " << t;
    }
  }
}

TEST_P(Mixers, NeighboursDoNotMatter) {
  const std::vector<Tokens> texts = {{1, 2}, {3, 4, 5, 6, 7}, {8}, {0, 2, 4}};
  const Tensor together = logits(texts);
  int64_t row = 0;
  for (const Tokens& text : texts) {
    row += std::ssize(text);
    expect_behind(together, row - 1, text);
  }
}

// Token by token and in pieces; what was forked, reordered or cut back goes on from where it is.
TEST_P(Mixers, DecodingIsReadingAtOnce) {
  const NoGrad guard;
  DecodeState state(model_, 2);
  std::vector<Tokens> texts = {{4, 1, 6}, {2}};
  const auto expect_both = [&](DecodeState& of, const std::vector<Tokens>& fed) {
    const Tensor got = of.advance(fed);
    for (size_t s = 0; s < fed.size(); ++s) {
      texts[s].insert(texts[s].end(), fed[s].begin(), fed[s].end());
      expect_behind(got, static_cast<int64_t>(s), texts[s]);
    }
  };
  static_cast<void>(state.advance(texts));
  expect_both(state, {{5}, {3, 7}});
  expect_both(state, {{0}, {0}});
  DecodeState fork = state.fork();
  state.truncate(0, 4);
  state.truncate(1, 0);
  const std::vector<Tokens> before = texts;
  texts[0].resize(4);
  texts[1].clear();
  expect_both(state, {{8}, {1, 1}});
  texts = {before[1], before[1], before[0]};
  fork.reorder(Tokens{1, 1, 0});
  expect_both(fork, {{6}, {7}, {8, 2}});
}

TEST_P(Mixers, RecomputingChangesNoBit) {
  const Tokens ids = {1, 5, 2, 8, 3, 3, 7};
  std::vector<std::vector<float>> gradients;
  for (const bool recompute : {false, true}) {
    Transformer model(spec_of(GetParam()));
    model.parameters().prepare_training(DType::f32, 3);
    model.set_recompute(recompute);
    model.parameters().reset_gradients();
    Context context;
    context.training = true;
    const ModelInput input{ids, Layout::of({4, 3})};
    backward(model.loss(input, ids, context, 1).loss);
    model.parameters().complete_gradients();
    std::vector<float>& all = gradients.emplace_back();
    for (const Parameter& p : model.parameters().all()) {
      const auto g = p.leaf->grad.values<float>();
      all.insert(all.end(), g.begin(), g.end());
    }
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST_P(Mixers, AreSavedAndLoaded) {
  const testing::ScratchDir dir;
  save_model(dir.path(), model_);
  const auto loaded = load_model(dir.path(), DType::f32);
  ModelSpec spec = loaded->spec();
  spec.family = model_.spec().family;
  EXPECT_EQ(spec, model_.spec());
  const NoGrad guard;
  const Tokens ids = {1, 5, 2};
  const Tensor a = logits({ids}), b = loaded->logits(loaded->hidden({ids, Layout::of({3})}, {}));
  EXPECT_TRUE(std::ranges::equal(a.values<float>(), b.values<float>()));
}

INSTANTIATE_TEST_SUITE_P(All, Mixers, ::testing::ValuesIn(all_mixers()),
                         [](const auto& info) { return name_of(info.param); });

TEST(MixerSpec, KnowsItsKindAndFields) {
  EXPECT_EQ(name_of(MixerSpec().kind()), "attention");
  EXPECT_EQ(MixerSpec(LatentMixer{3}).get_if<LatentMixer>()->latent, 3);
  EXPECT_EQ(MixerSpec(LatentMixer{3}).get_if<LstmMixer>(), nullptr);
  EXPECT_NE(MixerSpec(LatentMixer{3}), MixerSpec(LatentMixer{4}));
  EXPECT_EQ(MixerSpec::of(from_name<MixerKind>("gru")), MixerSpec(GruMixer()));
  expect_error([] { static_cast<void>(from_name<MixerKind>("rnn")); },
               {"attention", "latent_attention", "lstm"});
}

TEST(MixerSpec, RefusesWhatMeansNothingToIt) {
  const auto refused = [](void (*change)(ModelSpec&), std::initializer_list<std::string> parts) {
    ModelSpec s = spec_of(MixerSpec(LstmMixer()).kind());
    EXPECT_NO_THROW(check_spec(s));
    change(s);
    expect_error([&] { check_spec(s); }, parts);
  };
  refused([](ModelSpec& s) { s.positions = Positions::alibi; }, {"positions alibi", "mixer is lstm"});
  refused(
      [](ModelSpec& s) {
        s.attention.relative = {RelativeAttention::shaw, 4};
      },
      {"relative_attention shaw"});
  refused([](ModelSpec& s) { s.memory = 4; }, {"memory", "lstm"});
  refused([](ModelSpec& s) { s.order = Order::prefix; }, {"order prefix", "lstm"});
  refused(
      [](ModelSpec& s) {
        s.mixer = LatentMixer{0, 4};
      },
      {"kv_latent must be at least 1", "query_latent"});
  refused(
      [](ModelSpec& s) {
        s.architecture = Architecture::encoder;
        s.width = 7;
      },
      {"lstm", "even", "7"});
}

// An encoder's recurrence tells the order of tokens, in both directions.
TEST(MixerSpec, AnEncodersRecurrenceReadsBothWays) {
  ModelSpec s = bert_spec(9, 12, 8, 1, 2);
  s.positions = Positions::none;
  s.mixer = GruMixer();
  s.init_std = 0.4F;
  Transformer model(s);
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  const auto hidden = [&](const Tokens& ids) {
    return model.hidden({ids, Layout::of({static_cast<int32_t>(ids.size())})}, {});
  };
  const Tensor a = hidden({1, 2, 3}), first = hidden({4, 2, 3}), last = hidden({1, 2, 4}),
               turned = hidden({3, 2, 1});
  const auto middle = [](const Tensor& x) { return x.row<float>(1); };
  EXPECT_FALSE(std::ranges::equal(middle(a), middle(first)));
  EXPECT_FALSE(std::ranges::equal(middle(a), middle(last)));
  EXPECT_FALSE(std::ranges::equal(middle(a), middle(turned)));
}

// Dropout of low-rank changes reaches the gates of a recurrence.
TEST(MixerSpec, AdaptersOfRecurrencesHaveDropout) {
  ModelSpec s = spec_of(MixerSpec(GruMixer()).kind());
  s.lora.adapters = {
      {.parameter = "decoder.block.0.recurrence.input.weight", .rows = 24, .rank = 2, .dropout = 0.5F}};
  Transformer model(s);
  model.parameters().draw(3, DType::f32);
  const NoGrad guard;
  for (Parameter& p : model.parameters().all())
    if (p.name.ends_with(".b") && Adapters::is_adapter(p.name))
      std::ranges::fill(p.value.mutable_values<float>(), 0.5F);
  const auto hidden = [&](uint64_t seed) {
    Context context;
    context.training = true;
    context.seed = seed;
    return model.hidden({Indices({1, 2, 3}), Layout::of({3})}, context);
  };
  const Tensor a = hidden(1), again = hidden(1), b = hidden(2);
  EXPECT_TRUE(std::ranges::equal(a.values<float>(), again.values<float>()));
  EXPECT_FALSE(std::ranges::equal(a.values<float>(), b.values<float>()));
}

TrainConfig read(const std::string& model, const std::vector<std::string>& overrides = {}) {
  return parse_train_config("data.train = 'a.txt'\n[model]\nwidth = 16\n" + model, "run.toml", overrides);
}

TEST(MixerKeys, SayWhichMixer) {
  EXPECT_EQ(read("mixer = 'lstm'").model.mixer, MixerSpec(LstmMixer()));
  EXPECT_EQ(read("mixer = 'lstm'").model.positions, Positions::none);
  EXPECT_EQ(read("mixer = 'gru'\npositions = 'learned'").model.positions, Positions::learned);
  // A configuration of before mixers had names.
  const std::string latent = "heads = 4\npositions = 'rotary'\nrotary_width = 2\nkv_latent = 5\n";
  EXPECT_EQ(read(latent).model.mixer, MixerSpec(LatentMixer{5}));
  EXPECT_EQ(read(latent + "mixer = 'latent_attention'").model.mixer, MixerSpec(LatentMixer{5}));
  const auto refused = [](const std::string& model, std::initializer_list<std::string> parts) {
    expect_error<UsageError>([&] { read(model); }, parts);
  };
  refused("mixer = 'rnn'", {"run.toml", "model.mixer", "one of attention", "'rnn'"});
  refused("heads = 4\nmixer = 'latent_attention'", {"kv_latent must be at least 1"});
  refused(latent + "mixer = 'attention'", {"model.kv_latent", "no effect", "mixer = \"latent_attention\""});
  refused("mixer = 'lstm'\nheads = 2", {"model.heads", "no effect", "attention"});
  refused("mixer = 'lstm'\npositions = 'rotary'", {"positions rotary", "lstm"});
  // --set over a file that has the other mixer's keys.
  EXPECT_EQ(read(latent, {"model.mixer=attention"}).model.mixer, MixerSpec(AttentionMixer()));
}

TEST(MixerKeys, OfKindsOfLayers) {
  const TrainConfig hybrid = read(
      "layers = 3\nmixer = 'gru'\nlayer_kinds = ['default', 'default', 'seeing']\n"
      "[model.kind.seeing]\nmixer = 'attention'\nheads = 2\npositions = 'rotary'\n");
  const BlockSpec& seeing = hybrid.model.block(2);
  EXPECT_EQ(hybrid.model.block(0).mixer, MixerSpec(GruMixer()));
  EXPECT_EQ(seeing.mixer, MixerSpec(AttentionMixer()));
  EXPECT_EQ(seeing.attention.d_qk, 8);
  EXPECT_EQ(seeing.attention.rotary.width, 8);
  const TrainConfig other = read(
      "layers = 2\nheads = 2\npositions = 'rotary'\nlayer_kinds = ['default', 'reading']\n"
      "[model.kind.reading]\nmixer = 'lstm'\n");
  EXPECT_EQ(other.model.block(1).positions, Positions::none);
  EXPECT_EQ(other.model.block(0).positions, Positions::rotary);
  // A kind loses the fields of the mixer that it replaces.
  const TrainConfig latent = read(
      "layers = 2\nheads = 4\npositions = 'rotary'\nrotary_width = 2\nkv_latent = 5\n"
      "layer_kinds = ['default', 'usual']\n[model.kind.usual]\nmixer = 'attention'\n");
  EXPECT_EQ(latent.model.block(1).mixer, MixerSpec(AttentionMixer()));
  expect_error<UsageError>(
      [] {
        read(
            "layers = 2\nheads = 2\nlayer_kinds = ['default', 'reading']\n"
            "[model.kind.reading]\nmixer = 'lstm'\nheads = 4\n");
      },
      {"model.kind.reading.heads", "no effect"});
}

// Keys of self-attention mean nothing where a source alone is attended to.
TEST(MixerKeys, OfSelfAttentionAreNotOfCrossAttention) {
  const std::string two =
      "architecture = 'encoder_decoder'\nheads = 2\nmixer = 'lstm'\npositions = 'learned'\n";
  EXPECT_NO_THROW(read(two + "attention_dropout = 0.1\nattention_sinks = true"));
  for (const auto& [key, value] : {std::pair("patterns", "['window 4']"),
                                   {"attention_clip", "3.0"},
                                   {"query_key_norm", "'heads'"},
                                   {"shared_query_key", "[1]"},
                                   {"global_projections", "true"}})
    expect_error<UsageError>(
        [&, key = key, value = value] { read(fmt::format("{}{} = {}\n", two, key, value)); },
        {fmt::format("model.{}", key), "no effect", "attention"});
}

// Latents are of a block's own mixer: kinds have none of a model with another.
TEST(MixerKeys, LatentsAreOfTheirOwnBlock) {
  for (const char* key : {"kv_latent", "query_latent"})
    expect_error<UsageError>(
        [&] {
          read(
              fmt::format("layers = 2\nmixer = 'lstm'\n{} = 8\nlayer_kinds = ['default', 'lat']\n"
                          "[model.kind.lat]\nmixer = 'latent_attention'\nkv_latent = 5\nheads = 2\n"
                          "positions = 'rotary'\nrotary_width = 2\n",
                          key));
        },
        {std::string("model.") + key, "no effect", "latent_attention"});
}

// Kinds and runs of before mixers had names: latents of 0 beside latents mean attention.
TEST(MixerKeys, NoLatentsMeanAttention) {
  const TrainConfig c = read(
      "layers = 2\nheads = 4\npositions = 'rotary'\nrotary_width = 2\nkv_latent = 5\n"
      "layer_kinds = ['default', 'plain']\n[model.kind.plain]\nkv_latent = 0\nquery_latent = 0\n");
  EXPECT_EQ(c.model.block(0).mixer, MixerSpec(LatentMixer{5}));
  EXPECT_EQ(c.model.block(1).mixer, MixerSpec(AttentionMixer()));
}

// Positions of attention give way with it, unless somebody chose them.
TEST(MixerKeys, PositionsGiveWay) {
  EXPECT_EQ(read("preset = 'llama'", {"model.mixer=lstm"}).model.positions, Positions::none);
  EXPECT_EQ(read("preset = 'llama'", {"model.mixer=average"}).model.positions, Positions::learned);
  const TrainConfig two = read(
      "architecture = 'encoder_decoder'\nheads = 2\nlayers = 2\npositions = 'rotary'\n"
      "layer_kinds = ['default', 'rec']\n[model.kind.rec]\nmixer = 'lstm'\n");
  EXPECT_EQ(two.model.block(1).positions, Positions::none);
}

// An encoder whose LSTM layers tell the order has attention without positions beside them.
TEST(MixerKeys, OneKindTellsAnEncoderTheOrder) {
  const std::string encoder = "architecture = 'encoder'\nheads = 2\nlayers = 2\npositions = 'none'\n";
  EXPECT_NO_THROW(read(encoder + "layer_kinds = ['rec', 'default']\n[model.kind.rec]\nmixer = 'lstm'\n"));
  expect_error<UsageError>([&] { read(encoder); }, {"positions none", "order of tokens"});
}

// Mixers that read in turn learn pairs in their own order.
TEST(MixerKeys, PairsAreReadInTurn) {
  const auto order = [](const std::string& mixer) {
    return read("heads = 2\n", {"train.objective=sequence_to_sequence", "model.mixer=" + mixer}).model.order;
  };
  EXPECT_EQ(order("attention"), Order::prefix);
  TrainConfig c = parse_train_config(
      "data.train = 'a.tsv'\n[model]\nwidth = 16\nmixer = 'gru'\n[train]\nobjective = "
      "'sequence_to_sequence'\n",
      "run.toml", {});
  EXPECT_EQ(c.model.order, Order::stack);
  c = parse_train_config(
      "data.train = 'a.tsv'\n[model]\nwidth = 16\nmixer = 'average'\n[train]\nobjective = "
      "'sequence_to_sequence'\n",
      "run.toml", {});
  EXPECT_EQ(c.model.order, Order::stack);
}

// A mixer that follows from the latents is no line of a fingerprint: older ones have none.
TEST(MixerKeys, AreInFingerprintsWhereNothingElseTells) {
  const auto has_mixer = [](const TrainConfig& c) {
    return fingerprint(c).find("model.mixer = ") != std::string::npos;
  };
  EXPECT_FALSE(has_mixer(read("heads = 2")));
  EXPECT_FALSE(has_mixer(read("heads = 4\npositions = 'rotary'\nrotary_width = 2\nkv_latent = 5\n")));
  EXPECT_TRUE(has_mixer(read("mixer = 'lstm'")));
}

// Both directions are as wide as one, and cost their own.
TEST(MixerCost, KnowsBothDirections) {
  const ModelSpec s = spec_of(MixerSpec(LstmMixer()).kind());
  const MixerCost ahead = s.mixer.cost(s, true), both = s.mixer.cost(s, false);
  EXPECT_EQ(both.out, 2 * ahead.out);
  EXPECT_EQ(ahead.multiplications, 4 * 2 * 8 * 8);
  EXPECT_EQ(both.multiplications, 2 * 4 * 4 * (8 + 4));
}

TEST(MixerFiles, NameOneMixer) {
  Json config = Json::parse(native_family().write_config(spec_of(MixerSpec(LstmMixer()).kind())).dump());
  EXPECT_EQ(config["qkv"]["mixer"], "lstm");
  const auto read_file = [&] { return native_family().read_config(JsonField(config, "config.json")); };
  EXPECT_EQ(read_file().mixer, MixerSpec(LstmMixer()));
  config["qkv"]["kv_latent"] = 4;
  expect_error([&] { read_file(); }, {"config.json", "kv_latent", "lstm"});
  config["qkv"]["mixer"] = "latent_attention";
  EXPECT_EQ(read_file().mixer, MixerSpec(LatentMixer{4}));
}

}  // namespace
}  // namespace qkv::mixer_test
