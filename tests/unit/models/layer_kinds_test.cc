// Layers of different kinds of blocks: rules of the spec, and sections of a configuration.
#include <gtest/gtest.h>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/models/transformer.h"
#include "qkv/train/config/config.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::layer_kinds_test {
namespace {

const std::string kLeast = "[data]\ntrain = 'a.txt'\n";

TrainConfig read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_train_config(text, "run.toml", overrides);
}

TEST(LayerKinds, FitTheModel) {
  const auto refused = [](const ModelSpec& spec, std::initializer_list<std::string> parts) {
    testing::expect_error([&] { check_spec(spec); }, parts);
  };
  ModelSpec spec = gpt2_spec(5, 8, 16, 2, 4);
  BlockSpec other = spec;
  other.attention.heads = other.attention.kv_heads = 2;
  spec.kinds = {{"other", other}};
  refused(spec, {"kind.other", "layer_kinds is empty"});
  spec.layer_kinds = {"other", "another"};
  refused(spec, {"layer_kinds", "no kind 'another'"});
  spec.layer_kinds = {kDefaultKind};
  refused(spec, {"kind.other", "names it not"});
  spec.layer_kinds = {"other", kDefaultKind};
  EXPECT_NO_THROW(check_spec(spec));
  EXPECT_EQ(spec.block(0).attention.heads, 2);
  EXPECT_EQ(spec.block(1).attention.heads, 4);
  EXPECT_EQ(spec.block(2), other);  // in turn
  ModelSpec s = spec;
  s.kinds[0].block.norm_placement = NormPlacement::post;
  refused(s, {"kind.other", "norm"});
  s = spec;
  s.kinds[0].block.branches = Branches::parallel;
  refused(s, {"kind.other", "branches"});
  s = spec;
  s.kinds[0].block.positions = Positions::none;
  refused(s, {"kind.other", "positions"});
  s = spec;
  s.kinds[0].block.attention.kv_heads = 3;
  refused(s, {"kind.other", "2 heads are not divisible by 3"});
  s = spec;
  s.layer_groups = 1;
  refused(s, {"layer_groups", "different kinds"});
  s = spec;
  s.kinds.push_back({"an-earlier-one", other});
  s.layer_kinds.emplace_back("an-earlier-one");
  refused(s, {"sorted"});
  for (const char* name : {"a b", "a]\n[train", "", "a.b"}) {
    s = spec;
    s.kinds[0].name = s.layer_kinds[0] = name;
    refused(s, {"no name of a kind"});
  }
  s = spec;
  s.layer_kinds.assign(4097, "other");
  refused(s, {"layer_kinds", "4097"});
  s = spec;
  s.experts = {.count = 2, .chosen = 1, .hidden = 3};
  s.kinds[0].block.experts = {.count = 3, .chosen = 1, .hidden = 3};
  refused(s, {"kind.other", "experts"});
}

// Layers that know no positions go with those that do.
TEST(LayerKinds, TellTheLongestText) {
  ModelSpec spec = gpt2_spec(5, 8, 16, 2, 4);
  spec.positions = Positions::rotary;
  spec.attention.rotary.width = 4;
  BlockSpec without = spec;
  without.positions = Positions::none;
  without.attention.rotary = {};
  spec.kinds = {{"without", without}};
  spec.layer_kinds = {kDefaultKind, "without"};
  check_spec(spec);
  EXPECT_GT(spec.longest(), spec.context);
  spec.layer_kinds = {"without"};
  EXPECT_EQ(spec.longest(), spec.context);
}

// Layers that reuse keys: the last before them with the same attention, and the same place among the
// patterns.
TEST(LayerKinds, ReuseKeysOfTheirLike) {
  ModelSpec spec = gpt2_spec(5, 8, 16, 5, 4);
  spec.attention.patterns = {{.window = 3}, {}};
  BlockSpec reused = spec;
  reused.attention.reused_keys = true;
  reused.hidden = 7;
  spec.kinds = {{"reused", reused}};
  spec.layer_kinds = {kDefaultKind, kDefaultKind, "reused", "reused", "reused"};
  check_spec(spec);
  for (const auto& [layer, owner] : {std::pair{0, 0}, {1, 1}, {2, 0}, {3, 1}, {4, 0}})
    EXPECT_EQ(spec.keys_of(layer), owner);
  const Transformer model(spec);
  EXPECT_EQ(model.parameters().all().size(),
            Transformer(gpt2_spec(5, 8, 16, 5, 4)).parameters().all().size());  // but narrower products
  spec.layer_kinds = {kDefaultKind, "reused"};
  testing::expect_error([&] { check_spec(spec); },
                        {"reused_keys", "layer 2"});  // its like has the other pattern
  spec.layer_kinds = {"reused"};
  testing::expect_error([&] { check_spec(spec); }, {"reused_keys", "layer 1"});
}

// A training step never skips a layer whose keys others need.
TEST(LayerKinds, WhoseKeysAreReusedStay) {
  ModelSpec spec = gpt2_spec(5, 8, 16, 3, 4);
  BlockSpec reused = spec;
  reused.attention.reused_keys = true;
  spec.kinds = {{"reused", reused}};
  spec.layer_kinds = {kDefaultKind, "reused", "reused"};
  Transformer model(spec);
  model.parameters().prepare_training(DType::f32, 1);
  model.set_layer_drop(0.9F);
  const std::vector<int32_t> ids = {1, 2, 3}, next = {2, 3, 4};
  for (const bool recompute : {false, true}) {
    model.set_recompute(recompute);
    for (uint64_t step = 0; step < 20; ++step) {
      Context context;
      context.training = true;
      context.step = step;
      backward(model.loss({ids, Layout::of({3})}, next, context, 1).loss);
    }
  }
}

TEST(LayerKinds, AreSectionsOfAConfiguration) {
  const std::string two =
      kLeast +
      "[model]\npositions = 'rotary'\nrotary_base = 1e6\nheads = 4\nlayers = 3\nwidth = 32\n"
      "layer_kinds = ['local', 'default']\n"
      "[model.kind.local]\npatterns = ['window 4']\nrotary_base = 1e4\n";
  TrainConfig c = read(two, {"model.kind.local.heads=2", "model.rotary_width=6"});
  const ModelSpec& m = c.model;
  ASSERT_EQ(m.kinds.size(), 1U);
  EXPECT_EQ(m.block(0).attention.heads, 2);
  EXPECT_EQ(m.block(0).attention.kv_heads, 2);
  EXPECT_EQ(m.block(0).attention.d_qk, 8);
  EXPECT_EQ(m.block(0).attention.rotary.base, 1e4);
  EXPECT_EQ(m.block(0).attention.rotary.width, 6);  // as the model's own
  EXPECT_EQ(m.block(1).attention.rotary.base, 1e6);
  EXPECT_TRUE(m.block(1).attention.patterns.empty());
  EXPECT_EQ(read(to_toml(c)).model, m);
  EXPECT_EQ(fingerprint(read(to_toml(c))), fingerprint(c));
  EXPECT_NE(fingerprint(read(two, {"model.kind.local.rotary_base=2e4"})), fingerprint(read(two)));
  // Positions that begin and end with a kind.
  EXPECT_EQ(read(two, {"model.positions=none", "model.kind.local.positions=rotary"})
                .model.block(0)
                .attention.rotary.width,
            8);
  const ModelSpec without =
      read(two, {"model.kind.more.positions=none", "model.layer_kinds=local,more"}).model;
  EXPECT_EQ(without.block(1).attention.rotary.width, 0);
  struct Refusal {
    std::string override, first, second;
  };
  for (const Refusal& r :
       std::vector<Refusal>{{"model.kind.local.window=4", "model.kind.local.window", "unknown key"},
                            {"model.kind.local.layers=4", "model.kind.local.layers", "unknown key"},
                            {"model.kind.local.heads=0", "model.kind.local.heads", "between 1 and 4096"},
                            {"model.kind.local.positions=alibi", "model.kind.local.rotary_base", "no effect"},
                            {"model.kind.other.heads=2", "kind.other", "names it not"},
                            {"model.kind.default.heads=2", "model.kind", "[model] itself"},
                            {"model.kind=3", "model.kind", "[model.kind.NAME]"},
                            {"model.layer_kinds=local,globl", "layer_kinds", "no kind 'globl'"},
                            {"model.layer_kinds=[]", "kind.local", "layer_kinds is empty"}})
    testing::expect_error<UsageError>([&] { read(two, {r.override}); }, {r.first, r.second});
  const ModelSpec gemma3 =
      read(kLeast, {"model.preset=gemma3", "model.size=small", "model.kind.local.rotary_base=5e3"}).model;
  EXPECT_EQ(gemma3.block(4).attention.rotary.base, 5e3);
  EXPECT_EQ(gemma3.block(4).attention.patterns.size(), 1U);  // the preset's, beside what is given
  EXPECT_EQ(gemma3.block(5).attention.rotary.base, 1e6);
}

// Keys that follow from those of a kind's section, as they do in [model].
TEST(LayerKinds, DeriveWhatTheirKeysAskFor) {
  const std::string of_two =
      kLeast +
      "[model]\npositions = 'rotary'\nheads = 4\nlayers = 2\nwidth = 32\ncontext = 64\n"
      "layer_kinds = ['a', 'default']\n[model.kind.a]\n";
  const auto block = [&](const std::vector<std::string>& overrides) {
    return read(of_two, overrides).model.block(0);
  };
  const BlockSpec one = block({"model.kind.a.experts=2", "model.kind.a.experts_chosen=1"});
  EXPECT_EQ(one.experts.hidden, one.hidden);
  EXPECT_FALSE(one.experts.renormalized);
  EXPECT_TRUE(block({"model.kind.a.experts=3"}).experts.renormalized);
  EXPECT_EQ(block({"model.experts=2", "model.kind.a.experts=0"}).experts, ExpertsSpec());
  EXPECT_EQ(block({"model.kind.a.head_sizes=[6, 6, 12, 8]"}).attention.d_qk, 12);
  EXPECT_FALSE(block({"model.kind.a.attention_bias=false"}).attention.out_bias);
  const BlockSpec relative = block({"model.kind.a.relative_attention=shaw"});
  EXPECT_EQ(relative.positions, Positions::none);
  EXPECT_EQ(relative.attention.relative.distance, 16);
  EXPECT_EQ(relative.attention.rotary.width, 0);
  const std::vector<std::string> yarn = {"model.rotary_scaling=yarn", "model.rotary_factor=4"};
  const auto with_yarn = [&](std::vector<std::string> more) {
    more.insert(more.end(), yarn.begin(), yarn.end());
    return block(more).attention.rotary;
  };
  EXPECT_EQ(with_yarn({}), read(of_two, yarn).model.attention.rotary);
  const RotarySpec plain = with_yarn({"model.kind.a.rotary_scaling=none"});
  EXPECT_EQ(plain.magnitude, 1);
  EXPECT_EQ(plain.factor, 1);
  EXPECT_FLOAT_EQ(with_yarn({"model.kind.a.rotary_factor=8"}).magnitude, 0.1 * std::log(8) + 1);
}

TEST(LayerKinds, ManyAreReadAgain) {
  std::string text = kLeast + "[model]\nlayers = 8\nlayer_kinds = [";
  for (int k = 0; k < 8; ++k) text += fmt::format("'k{}', ", k);
  text += "]\n";
  for (int k = 0; k < 8; ++k) text += fmt::format("[model.kind.k{}]\nhidden = {}\n", k, 100 + k);
  const TrainConfig c = read(text);
  const TrainConfig again = read(to_toml(c));
  EXPECT_EQ(again.model, c.model);
  EXPECT_EQ(fingerprint(again), fingerprint(c));
}

TEST(LayerKinds, APresetsAreLeftOutWhereOthersAreNamed) {
  for (const char* override : {"model.layer_kinds=[]", "model.layer_kinds=default"})
    EXPECT_TRUE(read(kLeast, {"model.preset=gemma3", override}).model.kinds.empty()) << override;
  const ModelSpec own = read(kLeast, {"model.preset=gemma3", "model.layer_kinds=mine,default",
                                      "model.kind.mine.patterns=window 9"})
                            .model;
  ASSERT_EQ(own.kinds.size(), 1U);
  EXPECT_EQ(own.kinds[0].name, "mine");
}

// A run that begins with a model has its kinds, and changes of them are read again.
TEST(LayerKinds, GoOnFromAModel) {
  const testing::ScratchDir dir;
  const std::string keys =
      "[model]\npositions = 'rotary'\nheads = 4\nlayers = 2\nwidth = 16\nhidden = 8\ncontext = 16\n"
      "layer_kinds = ['a', 'default']\n[model.kind.a]\npatterns = ['window 4']\n";
  ModelSpec spec = read(kLeast + keys).model;
  spec.vocab_size = 5;
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(dir.path(), model);
  const std::string from = kLeast + fmt::format("[model]\nfrom = '{}'\n", dir.path());
  EXPECT_EQ(read(from).model.kinds, spec.kinds);
  const auto expect_same_again = [](const TrainConfig& c) {
    EXPECT_EQ(read(to_toml(c)).model, c.model);
    EXPECT_EQ(fingerprint(read(to_toml(c))), fingerprint(c));
  };
  // The value that the model's own block has.
  const TrainConfig without = read(from, {"model.kind.a.patterns=[]"});
  EXPECT_TRUE(without.model.block(0).attention.patterns.empty());
  expect_same_again(without);
  const TrainConfig longer =
      read(from, {"model.context=64", "model.rotary_scaling=yarn", "model.rotary_factor=4",
                  "model.kind.a.rotary_scaling=yarn", "model.kind.a.rotary_factor=4"});
  EXPECT_EQ(longer.model.block(0).attention.rotary, longer.model.block(1).attention.rotary);
  EXPECT_EQ(longer.model.block(0).attention.rotary.original_context, 16);
  expect_same_again(longer);
  for (const char* key : {"model.dropout=0.25", "model.attention_dropout=0.25"}) {
    const ModelSpec m = read(from, {key}).model;
    EXPECT_EQ(m.block(0).attention.dropout, 0.25F) << key;
    EXPECT_EQ(m.block(1).attention.dropout, 0.25F) << key;
  }
  const ModelSpec apart = read(from, {"model.dropout=0.25", "model.kind.a.attention_dropout=0.5"}).model;
  EXPECT_EQ(apart.block(0).attention.dropout, 0.5F);
}

// The token that a new classifier reads sees all, in layers of every kind.
TEST(LayerKinds, ClassifiersReadAGlobalToken) {
  const testing::ScratchDir dir;
  ModelSpec spec = bert_spec(9, 16, 16, 2, 2);
  spec.attention.global_projections = true;
  spec.attention.patterns = {{.window = 4}};
  BlockSpec wider = spec;
  wider.attention.patterns = {{.window = 6}};
  spec.kinds = {{"wider", wider}};
  spec.layer_kinds = {kDefaultKind, "wider"};
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(dir.path(), model);
  const std::string from = fmt::format(
      "[data]\ntrain = 'a.tsv'\n[train]\nobjective = 'classify'\n[model]\nfrom = '{}'\n", dir.path());
  const ModelSpec m = read(from).model;
  EXPECT_EQ(m.block(0).attention.patterns[0].global, 1);
  EXPECT_EQ(m.block(1).attention.patterns[0].global, 1);
  const ModelSpec given = read(from, {"model.kind.wider.patterns=window 6"}).model;
  EXPECT_EQ(given.block(1).attention.patterns[0].global, 0);
}

TEST(LayerKinds, FilesSayNothingThatIsNotRead) {
  ModelSpec spec = gpt2_spec(5, 8, 16, 2, 4);
  spec.kinds = {{"a", spec}};
  spec.layer_kinds = {"a"};
  Json config = Json::parse(native_family().write_config(spec).dump());
  const auto refused = [&](const Json& kinds, std::initializer_list<std::string> parts) {
    config["qkv"]["kinds"] = kinds;
    testing::expect_error([&] { native_family().read_config(JsonField(config, "config.json")); }, parts);
  };
  refused({{"a", {{"hedas", 3}}}}, {"qkv.kinds.a", "hedas", "heads"});
  refused({{"a", {{"heads", nullptr}}}}, {"qkv.kinds.a.heads"});
  refused({{"a", 3}}, {"qkv.kinds.a"});
  refused(Json::array(), {"qkv.kinds"});
}

}  // namespace
}  // namespace qkv::layer_kinds_test
