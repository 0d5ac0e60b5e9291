// The schema of ModelSpec: each field is found everywhere, and no member is forgotten.
// Covers: qkv/models/spec_names.cc, qkv/io/family/native.cc
#include "qkv/models/spec_schema.h"

#include <gtest/gtest.h>

#include <set>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/train/config/config.h"
#include "qkv/train/config/key_help.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::spec_schema_test {
namespace {

// Gives the field number `target` another value.
class Change {
 public:
  explicit Change(int target) : target_(target) {}

  template <typename T, typename... R>
  void operator()(const SpecField& f, T&& member, R... range) {
    if (at_++ != target_) return;
    field = f;
    found = true;
    change(member, range...);
  }

  SpecField field = {};
  bool found = false;

 private:
  static void change(bool& x) { x = !x; }
  static void change(int64_t& x, Integers range) { x = x < range.most ? x + 1 : x - 1; }
  static void change(float& x, Numbers range) { x = static_cast<float>(other(x, range)); }
  static void change(double& x, Numbers range) { x = other(x, range); }
  static double other(double x, Numbers range) { return range.holds(x + 0.0625) ? x + 0.0625 : x - 0.0625; }
  static void change(std::vector<int64_t>& x, Integers range) { x.push_back(range.most); }
  static void change(std::vector<double>& x, Numbers range) { x.push_back(range.most); }
  static void change(std::vector<std::string>& x) { x.emplace_back("another, of \"two\" words"); }
  static void change(std::vector<Pattern>& x) { x.push_back({.window = 3}); }
  template <typename E>
  requires std::is_enum_v<E>
  static void change(E& x) {
    const std::vector<std::string> names = names_of<E>();
    const auto at = std::ranges::find(names, name_of(x)) - names.begin();
    x = from_name<E>(names[(at + 1) % std::ssize(names)]);
  }
  template <typename Optional, typename T>
  static void change(const OrElse<Optional, T>& x) {
    T value = x.value();
    change(value);
    x.set(value);
  }

  int target_, at_ = 0;
};

// Calls f(field, spec) with `spec` changed in each field in turn.
template <typename F>
void with_each_change(const ModelSpec& spec, const F& f) {
  for (int i = 0;; ++i) {
    ModelSpec changed = spec;
    Change change(i);
    for_each_field(changed, change);
    if (!change.found) break;
    SCOPED_TRACE(change.field.name);
    EXPECT_NE(changed, spec);
    f(change.field, changed);
  }
}

ModelSpec small() {
  return gpt2_spec(5, 8, 16, 2, 4);
}

Json native(const ModelSpec& spec) {
  return Json::parse(native_family().write_config(spec).dump());
}

ModelSpec read(const Json& config) {
  return native_family().read_config(JsonField(config, "config.json"));
}

TEST(SpecSchema, NamesAreUniqueAndHaveHelp) {
  std::set<std::string> names, in_files;
  with_each_change({}, [&](const SpecField& f, const ModelSpec&) {
    EXPECT_TRUE(names.insert(f.name).second);
    EXPECT_TRUE(!f.in_model_file() || in_files.insert(f.name_in_file()).second);
    EXPECT_GT(std::string(f.help).size(), 6U);
  });
  EXPECT_GT(names.size(), 100U);
}

TEST(SpecSchema, EachFieldIsSavedAndReadAgain) {
  const Json before = native(small());
  with_each_change(small(), [&](const SpecField& f, const ModelSpec& changed) {
    const Json now = native(changed);
    if (!f.in_model_file()) {
      EXPECT_EQ(now, before);
      return;
    }
    EXPECT_NE(now["qkv"][f.name_in_file()], before["qkv"][f.name_in_file()]);
    EXPECT_EQ(read(now), changed);
  });
}

TEST(SpecSchema, OlderFilesHaveTheDefaultsOfWhatTheyLack) {
  with_each_change(small(), [&](const SpecField& f, const ModelSpec& changed) {
    if (!f.in_model_file() || f.since < 6) return;            // 5 had windows
    if (f.name == std::string_view("hashed_beyond")) return;  // another thing before 23
    Json config = native(changed);
    config["qkv"]["version"] = f.since;
    EXPECT_EQ(read(config), changed);
    config["qkv"]["version"] = f.since - 1;
    config["qkv"].erase(f.name_in_file());
    if (f.since > 15 && changed.mixer != small().mixer) config["qkv"]["mixer"] = "attention";
    if (f.since == 6) config["qkv"]["windows"] = Json::array();
    EXPECT_EQ(read(config), small());
  });
}

TEST(SpecSchema, EachFieldIsAKeyOfConfigurations) {
  const auto of_model = [](const std::string& text) {
    const size_t begin = text.find("[model]");
    return text.substr(begin, text.find("[train]") - begin);
  };
  const std::string before = of_model(to_toml(TrainConfig())), help = of_model(lines_of(key_helps()));
  TrainConfig config;
  with_each_change(ModelSpec(config.model), [&](const SpecField& f, const ModelSpec& changed) {
    config.model = changed;
    const std::string key = fmt::format("\n{} = ", f.name), now = of_model(to_toml(config));
    ASSERT_EQ(before.find(key) != std::string::npos, f.in_configuration());
    EXPECT_EQ(help.find(fmt::format("  {} = ", f.name)) != std::string::npos, f.in_configuration());
    if (!f.in_configuration()) return;
    const auto line = [&](const std::string& text) {
      const size_t begin = text.find(key) + 1;
      return text.substr(begin, text.find('\n', begin) - begin);
    };
    EXPECT_NE(line(now), line(before));
  });
}

// Fields of some layers alone are saved, too, and config.json has no others of them.
TEST(SpecSchema, KindsOfBlocksHaveEachFieldOfABlock) {
  ModelSpec spec = small();
  spec.layer_kinds = {kDefaultKind, "other"};
  int fields = 0;
  for (int i = 0;; ++i, ++fields) {
    BlockSpec block = spec;
    Change change(i);
    for_each_field(block, change);
    if (!change.found) break;
    SCOPED_TRACE(change.field.name);
    spec.kinds = {{"other", block}};
    const Json config = native(spec), &kind = config["qkv"]["kinds"]["other"];
    // A field of a mixer that the model has not comes with the mixer's name.
    EXPECT_EQ(kind.size(), block.mixer == spec.mixer || change.field.name == std::string("mixer") ? 1U : 2U);
    EXPECT_TRUE(kind.contains(change.field.name_in_file()));
    EXPECT_EQ(read(config), spec);
    TrainConfig run;
    run.model = spec;
    const std::string toml = to_toml(run), key = fmt::format("\n{} = ", change.field.name);
    const size_t begin = toml.find("\n[model.kind.other]\n");
    ASSERT_NE(begin, std::string::npos);
    if (!change.field.in_configuration()) continue;
    const auto line_behind = [&](size_t from) {
      const size_t at = toml.find(key, from);
      return toml.substr(at, toml.find('\n', at + 1) - at);
    };
    EXPECT_NE(line_behind(begin), line_behind(0));
  }
  EXPECT_GT(fields, 60);
}

TEST(SpecSchema, WeightsKeepTheFieldsThatTheyNeed) {
  const testing::ScratchDir dir;
  ModelSpec spec = small();
  spec.positions = Positions::sinusoidal_paper;
  Transformer model(spec);
  model.parameters().draw(1, DType::f32);
  save_model(dir.path(), model);
  int kept = 0;
  TrainConfig config;
  with_each_change(spec, [&](const SpecField& f, const ModelSpec& changed) {
    if (f.weights == WithWeights::free || !f.in_configuration()) return;
    config.model = changed;
    const std::string toml = to_toml(config), key = fmt::format("\n{} = ", f.name);
    const size_t begin = toml.find(key, toml.find("[model]")) + 1;
    const std::string line = toml.substr(begin, toml.find('\n', begin) - begin);
    testing::expect_error<UsageError>(
        [&] {
          parse_train_config(
              fmt::format("data.train = 'x.txt'\n[model]\nfrom = '{}'\n{}\n", dir.path(), line), "c.toml",
              {});
        },
        {f.name});
    ++kept;
  });
  EXPECT_GT(kept, 80);
}

TEST(SpecSchema, ValuesOutOfRangeNameTheirField) {
  ModelSpec spec = small();
  EXPECT_NO_THROW(check_spec(spec));
  spec.attention.rotary.base = std::nan("");
  testing::expect_error([&] { check_spec(spec); }, {"rotary_base", "between 1 and", "nan"});
  spec = small();
  spec.attention.dropout = 1;
  testing::expect_error([&] { check_spec(spec); }, {"attention_dropout", "between 0 and 0.95", "1"});
  Json config = native(small());
  config["qkv"]["layers"] = 4097;
  testing::expect_error([&] { read(config); }, {"qkv.layers", "1", "4096"});
  config["qkv"]["layers"] = 1;
  config["qkv"]["norm_placement"] = "after";
  testing::expect_error([&] { read(config); }, {"qkv.norm_placement", "one of pre, post", "after"});
}

// Members of an aggregate: as many as braces can initialise. `Any` becomes whatever a member asks for.
struct Any {
  template <typename T>
  operator T() const {  // NOLINT(google-explicit-constructor): that is its purpose
    throw Error("only asked for, never made");
  }
};
template <typename T, typename... Anys>
constexpr size_t members_of() {
  if constexpr (requires { T{Anys{}..., Any{}}; })
    return members_of<T, Anys..., Any>();
  else
    return sizeof...(Anys);
}

struct Count {
  size_t fields = 0;
  template <typename T, typename... R>
  void operator()(const SpecField&, T&&, R...) {
    ++fields;
  }
};
template <typename Spec>
size_t fields_of() {
  Spec spec;
  Count count;
  for_each_field(spec, count);
  return count.fields;
}

// The struct with a mixer's members: itself, or what a layer is made from.
template <typename M>
struct MembersOf {
  using Type = M;
};
template <>
struct MembersOf<GatedDeltaMixer> {
  using Type = GatedDeltaSpec;
};
template <>
struct MembersOf<MambaMixer> {
  using Type = MambaSpec;
};
template <>
struct MembersOf<Mamba2Mixer> {
  using Type = Mamba2Spec;
};
template <>
struct MembersOf<Rwkv4Mixer> {
  using Type = Rwkv4Spec;
};
template <>
struct MembersOf<Rwkv7Mixer> {
  using Type = Rwkv7Spec;
};
template <>
struct MembersOf<AttentionFreeMixer> {
  using Type = AftSpec;
};
template <>
struct MembersOf<RandomFeaturesMixer> {
  using Type = RandomFeatureSpec;
};
template <>
struct MembersOf<ConvolutionMixer> {
  using Type = GatedConvolutionSpec;
};

// As many fields as members.
struct KnowsMixer {
  template <typename M>
  void operator()(M mixer) const {
    Count count;
    M::for_each_field(mixer, count);
    EXPECT_EQ(count.fields, members_of<typename MembersOf<M>::Type>()) << M::kName;
  }
};

// A member that the schema forgets would not be saved: these fail when a struct gains one.
TEST(SpecSchema, KnowsEveryMember) {
  EXPECT_EQ(fields_of<RecurrenceSpec>(), members_of<RecurrenceSpec>());
  EXPECT_EQ(fields_of<EncoderShape>(), members_of<EncoderShape>());
  EXPECT_EQ(fields_of<FeatureSpec>(), members_of<FeatureSpec>());
  EXPECT_EQ(fields_of<MtpSpec>(), members_of<MtpSpec>());
  EXPECT_EQ(fields_of<RotarySpec>(), members_of<RotarySpec>());
  EXPECT_EQ(fields_of<RelativeSpec>(), members_of<RelativeSpec>());
  EXPECT_EQ(fields_of<ExpertsSpec>(), members_of<ExpertsSpec>());
  MixerSpec().for_each(KnowsMixer());
  // PEFT's adapter_config.json has the others: ranks, alphas, rank_stabilized, base, adapters.
  EXPECT_EQ(fields_of<LoraSpec>() + 5, members_of<LoraSpec>());
  // Rotary, relative, and six fields of hashing and three of the ring, whose others follow from the layers.
  EXPECT_EQ(fields_of<AttentionSpec>() + 4 - 6 - 3, members_of<AttentionSpec>());
  EXPECT_EQ(members_of<HashedAttention>(), 8U);
  EXPECT_EQ(fields_of<LatentSpec>() + 2 - 2 * members_of<LatentCross>(), members_of<LatentSpec>());
  const size_t of_block = fields_of<AttentionSpec>() + fields_of<RotarySpec>() + fields_of<RelativeSpec>() +
                          fields_of<ExpertsSpec>() + fields_of<MixerSpec>();
  EXPECT_EQ(fields_of<BlockSpec>() - of_block + 3, members_of<BlockSpec>());  // mixer, attention and experts
  const size_t of_parts = fields_of<RecurrenceSpec>() + fields_of<EncoderShape>() + fields_of<FeatureSpec>() +
                          fields_of<BlockSpec>() + fields_of<LoraSpec>() + fields_of<MtpSpec>() +
                          fields_of<LatentSpec>();
  // Seven parts, kinds of blocks, and the name of the family.
  EXPECT_EQ(fields_of<ModelSpec>() - of_parts + 9, members_of<ModelSpec>());
}

}  // namespace
}  // namespace qkv::spec_schema_test
