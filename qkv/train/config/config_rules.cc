#include "qkv/train/config/config_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>

#include "qkv/io/family/family.h"
#include "qkv/io/model_dir.h"
#include "qkv/models/spec_schema.h"
#include "qkv/train/config/config_keys.h"

namespace qkv {
namespace {

using Given = std::function<bool(const std::string&)>;

void expect_carried(Architecture a, Objective o, const std::string& key, const std::string& path) {
  if (carries(a, o)) return;
  std::vector<std::string> able;
  for (const Architecture other :
       {Architecture::decoder, Architecture::encoder, Architecture::encoder_decoder})
    if (carries(other, o)) able.push_back(fmt::format("\"{}\"", name_of(other)));
  usage("{}: {}: {} needs model.architecture = {}, not {}", path, key, name_of(o), fmt::join(able, " or "),
        name_of(a));
}

void resolve_objective(TrainConfig& c, const Given& given, const std::string& path) {
  const Architecture a = c.model.architecture;
  if (!given("train.objective"))
    c.objective = a == Architecture::decoder   ? Objective::next_token
                  : a == Architecture::encoder ? Objective::masked
                                               : Objective::sequence_to_sequence;
  expect_carried(a, c.objective, "train.objective", path);
  for (MixedSet& set : c.mix)
    if (!given("mix." + set.name + ".objective")) set.objective = c.objective;
  const auto resolve_columns = [&](DataConfig& d, const std::string& section) {
    if (!given(section + ".text_column")) d.text_column = "question";
    if (!given(section + ".second_column")) d.second_column = "context";
    if (!given(section + ".label_column")) d.label_column = "answer";
  };
  const auto resolve_questions = [&](DataConfig& d, const std::string& section) {
    if (!given(section + ".text_column")) d.text_column = "question";
  };
  const auto resolve_data = [&](Objective o, DataConfig& d, const std::string& section) {
    if (o == Objective::answer) resolve_columns(d, section);
    if (o == Objective::multiple_choice) resolve_questions(d, section);
  };
  if (c.mix.empty()) resolve_data(c.objective, c.data, "data");
  for (MixedSet& set : c.mix) resolve_data(set.objective, set.data, "mix." + set.name);
}

// Sets the order in which tokens see each other, as the objective requires.
void resolve_order(TrainConfig& c, const Given& given, const std::string& path) {
  ModelSpec& m = c.model;
  const bool permuted = c.objective == Objective::permutation,
             tokens = spec_of(c.objective).output == Output::tokens;
  if (!tokens) {
    if (given("model.order") && m.order != Order::stack)
      usage("{}: model.order: {} is for models of tokens, not for train.objective = {}", path,
            name_of(m.order), name_of(c.objective));
    m.order = Order::stack;
  } else if (given("model.order")) {
    if ((m.order == Order::permuted) != permuted)
      usage("{}: model.order: permuted goes with train.objective = permutation, here {} with {}", path,
            name_of(m.order), name_of(c.objective));
  } else if (permuted) {
    m.order = Order::permuted;
  } else if (m.architecture == Architecture::decoder && m.all_attend() &&
             (writes_targets(c.objective) || std::any_of(c.mix.begin(), c.mix.end(), [](const MixedSet& set) {
                return writes_targets(set.objective);
              }))) {
    m.order = Order::prefix;
  } else if (m.order == Order::permuted) {  // comes from the model that the run starts from
    m.order = Order::stack;
  }
}

// Sets the model's head as the objective requires. `from`: spec of the model that the run starts from.
void resolve_head(TrainConfig& c, const ModelSpec& from, const Given& given) {
  ModelSpec& m = c.model;
  if (m.architecture == Architecture::decoder && !given("model.pooling")) m.pooling = Pooling::last;
  const bool begun = !c.from.empty();
  const Pooling of_family = begun ? family_for(from).pooling : Pooling::first;
  m.output = spec_of(c.objective).output;
  m.problem = spec_of(c.objective).problem;
  if (m.output != Output::tokens) {
    m.head_width = 0;
    m.head_bias = true;
    m.unembedding_bias = false;
    m.tied = true;
    if (!given("model.head_dropout")) m.head_dropout = m.residual_dropout;
  } else if (m.architecture == Architecture::encoder && c.from.empty()) {
    if (!given("model.head_width") && !m.latents.any())
      m.head_width = m.embedding_width > 0 ? m.embedding_width : m.width;
    if (!given("model.unembedding_bias")) m.unembedding_bias = true;
  }
  const bool new_head = !begun || from.output != m.output || from.problem != m.problem,
             new_classifier = begun && new_head && m.output == Output::sequence_classes;
  if (new_classifier && m.architecture == Architecture::encoder && !given("model.pooling"))
    m.pooling = of_family;
  // The token that the classifier reads sees all tokens, as in Longformer's own classifier.
  const auto see_first_token = [&](AttentionSpec& a, const std::string& section) {
    if (new_classifier && a.global_projections && m.pooling == Pooling::first &&
        !given(section + ".patterns"))
      for (Pattern& p : a.patterns) p.global = std::max<int64_t>(p.global, 1);
  };
  see_first_token(m.attention, "model");
  for (BlockKind& kind : m.kinds) see_first_token(kind.block.attention, "model.kind." + kind.name);
  if (m.output != Output::sequence_classes)
    m.pooler = c.masking.next_sentence;
  else if (!given("model.pooler") && new_head)
    m.pooler = m.architecture == Architecture::encoder && m.pooling == of_family;
  if (!given("model.pooler_activation") && (!m.pooler || new_head))
    m.pooler_activation = m.pooler && begun ? family_for(from).pooler : Activation::tanh;
  // As in the classifiers of other libraries.
  if (!given("model.classifier_bias") && new_head)
    m.classifier_bias = m.architecture != Architecture::decoder || m.output != Output::sequence_classes;
  if (m.head_activation == m.activation || (m.head_width == 0 && !given("model.head_activation")))
    m.head_activation.reset();
}

// Settings of rotary positions, once the heads are known. `before`: the context of the model that the run
// starts from.
void resolve_rotary(ModelSpec& m, const Given& given, int64_t before, RotaryScaling scaled_before) {
  RotarySpec& r = m.attention.rotary;
  if (m.positions != Positions::rotary) return;
  const std::vector<int64_t>& sizes = m.attention.head_sizes;
  const int64_t narrowest = sizes.empty() ? m.attention.d_qk : *std::min_element(sizes.begin(), sizes.end());
  if (!given("model.rotary_width") && r.width == 0) r.width = narrowest / 2 * 2;
  if (scaled_before == RotaryScaling::longrope && r.scaling != scaled_before)
    r.short_factors = r.long_factors = {};
  if (r.scaling == RotaryScaling::none || r.scaling == RotaryScaling::linear) return;
  if (!given("model.rotary_original_context") && r.original_context == 0) r.original_context = before;
  if (r.scaling != RotaryScaling::yarn || scaled_before == RotaryScaling::yarn) return;
  if (!given("model.rotary_high") && r.high == RotarySpec().high) r.high = 32;
  if (!given("model.rotary_magnitude") && r.magnitude == 1) r.magnitude = 0.1 * std::log(r.factor) + 1;
}

// Settings of relative attention, once the context is known.
void resolve_relative(ModelSpec& m, const Given& given) {
  RelativeSpec& r = m.attention.relative;
  if (!r.on()) return;
  if (!given("model.positions")) m.positions = Positions::none;
  if (given("model.relative_attention_distance")) return;
  r.distance = r.kind == RelativeAttention::transformer_xl ? 0
               : r.kind == RelativeAttention::disentangled ? m.context
                                                           : 16;
}

// Widths of heads of different sizes.
void resolve_head_sizes(AttentionSpec& a, const Given& given) {
  if (a.head_sizes.empty()) return;
  const int64_t widest = *std::max_element(a.head_sizes.begin(), a.head_sizes.end());
  if (!given("model.d_qk")) a.d_qk = widest;
  if (!given("model.d_vo")) a.d_vo = widest;
}

// A Perceiver: what its blocks and reads have in common with the rest, and what BERT has and it has not.
void resolve_latents(ModelSpec& m, const Given& given) {
  LatentSpec& l = m.latents;
  if (!l.any()) return;
  if (!given("model.latent_width")) l.width = m.width;
  if (!given("model.norm")) m.norm_placement = NormPlacement::pre;
  if (!given("model.norm_epsilon")) m.norm_epsilon = 1e-5F;
  if (!given("model.embedding_norm")) m.embedding_norm = false;
  if (!given("model.segments")) m.segments = 0;
  m.final_norm = false;
  if (!given("model.hidden")) m.hidden = 4 * l.width;
  const auto read = [&](LatentCross& c, const std::string& name) {
    if (!given(name + "_heads")) c.heads = m.attention.heads;
    for (auto [key, width] : {std::pair("_qk", &c.d_qk), {"_vo", &c.d_vo}})
      if (!given(name + key)) *width = l.width / std::max<int64_t>(1, c.heads);
  };
  read(l.in, "model.latent_in");
  read(l.out, "model.latent_out");
  if (!given("model.latent_in_hidden")) l.in.hidden = m.hidden;
}

// The output decides the queries' width, and whether they are added to what they read.
void resolve_queries(ModelSpec& m, const Given& given) {
  if (!m.latents.any()) return;
  const bool classes = m.output == Output::sequence_classes;
  if (!given("model.latent_out_hidden")) m.latents.out.hidden = 4 * (classes ? m.latents.width : m.width);
  if (!given("model.latent_out_residual")) m.latents.out.residual = classes;
}

// Heads, if any layer has attention.
void resolve_heads(ModelSpec& m, const Given& given, const std::string& path) {
  constexpr int64_t kWidestHead = 576;
  AttentionSpec& a = m.attention;
  resolve_head_sizes(a, given);
  if (!given("model.kv_heads")) a.kv_heads = a.heads;
  if (!m.has_blocks() || !a.head_sizes.empty()) return;
  const int64_t width = m.latents.any() ? m.latents.width : m.width;
  const char* of = m.latents.any() ? "latent_width" : "width";
  const bool derived = !(given("model.d_qk") && given("model.d_vo"));
  if (!m.attends()) {  // kinds with attention derive their own
    if (!given("model.d_qk")) a.d_qk = 1;
    if (!given("model.d_vo")) a.d_vo = 1;
    return;
  }
  if (!given("model.d_qk") && width / a.heads > kWidestHead)
    usage("{}: model.{} / model.heads = {} / {} = {}, but a head is at most {} wide: use more heads", path,
          of, width, a.heads, width / a.heads, kWidestHead);
  if (derived && width % a.heads != 0)
    usage("{}: model.{}: {} is not divisible by {} heads (or give d_qk and d_vo)", path, of, width, a.heads);
  if (!given("model.d_qk")) a.d_qk = width / a.heads;
  if (!given("model.d_vo")) a.d_vo = width / a.heads;
}

// The number of buckets, once the context is known.
void resolve_buckets(AttentionSpec& a, int64_t context, const Given& given) {
  if (a.hashing.chunk > 0 && !given("model.hash_buckets"))
    a.hashing.buckets = usual_buckets(context, a.hashing.chunk);
}

// Experts, once the feed-forward network is known.
void resolve_experts(BlockSpec& b, const Given& given) {
  ExpertsSpec& x = b.experts;
  if (x.count == 0) return;
  if (!given("model.expert_hidden") && x.hidden == 0) x.hidden = b.hidden;
  // A constant weight of 1 would give the router no gradient.
  if (x.chosen == 1 && !given("model.experts_renormalized")) x.renormalized = false;
}

// If a kind has another scaling of rotary positions than the model, it inherits none of its settings.
void resolve_scaling(RotarySpec& r, const RotarySpec& inherited, const Given& given) {
  if (!given("model.rotary_scaling") || r.scaling == inherited.scaling) return;
  const RotarySpec usual;
  if (!given("model.rotary_factor")) r.factor = usual.factor;
  if (!given("model.rotary_original_context")) r.original_context = usual.original_context;
  if (!given("model.rotary_low")) r.low = usual.low;
  if (!given("model.rotary_high")) r.high = usual.high;
  if (!given("model.rotary_magnitude")) r.magnitude = usual.magnitude;
  if (!given("model.rotary_short_factors")) r.short_factors.clear();
  if (!given("model.rotary_long_factors")) r.long_factors.clear();
}

// Sizes that follow from the width. Similarities that may be negative have no sum to divide by.
void resolve_mixer(BlockSpec& s, int64_t width, const Given& given) {
  s.mixer.derive(width);
  const auto* linear = s.mixer.get_if<LinearAttentionMixer>();
  if (linear == nullptr || given("model.linear_normalised")) return;
  LinearAttentionMixer m = *linear;
  m.normalised = !may_be_negative(m.features);
  s.mixer = m;
}

// Derives keys of a kind from those that its section gives. `inherited`: the block that supplies the
// others.
void resolve_kind(ModelSpec& s, const BlockSpec& inherited, const Given& given) {
  if (given("model.mixer") || given("model.linear_features")) resolve_mixer(s, s.width, given);
  AttentionSpec& a = s.attention;
  if (given("model.heads") && !given("model.kv_heads") &&
      inherited.attention.kv_heads == inherited.attention.heads)
    a.kv_heads = a.heads;
  if (given("model.head_sizes")) resolve_head_sizes(a, given);
  if (given("model.hashed_beyond")) resolve_buckets(a, s.context, given);
  if (given("model.attention_bias") && !given("model.attention_out_bias")) a.out_bias = a.bias;
  if (given("model.experts") || given("model.experts_chosen")) resolve_experts(s, given);
  if (given("model.relative_attention")) resolve_relative(s, given);
  // Clear inherited keys for experts, distances and rotations that this kind does not have.
  ExpertsSpec without_experts = inherited.experts;
  without_experts.count = 0;
  if (s.experts == without_experts) s.experts = {};
  RelativeSpec without_vectors = inherited.attention.relative;
  without_vectors.kind = RelativeAttention::none;
  if (a.relative == without_vectors) a.relative = {};
  if (!s.mixer.attends()) {
    if (inherited.mixer.attends() && !given("model.attention_gate")) a.gated = false;
    if (is_of_blocks(s.positions) && !given("model.positions")) s.positions = Positions::none;
    if (!given("model.relative_attention")) a.relative = {};
  }
  if (s.positions != Positions::rotary && !given("model.rotary_width")) a.rotary = {};
  // If RoPE rotates whole heads, it does so for another width, too.
  if ((given("model.d_qk") || given("model.head_sizes")) && !given("model.rotary_width") &&
      inherited.attention.rotary.width == inherited.attention.d_qk / 2 * 2)
    a.rotary.width = 0;
}

// Kinds of blocks, once the model's own is known.
void resolve_kinds(TrainConfig& c, const ReadConfig& read) {
  ModelSpec& m = c.model;
  const bool fresh = c.from.empty();
  read.read_kinds(m);
  for (BlockKind& kind : m.kinds) {
    const Given given = [&](const std::string& key) {
      return read.given(fmt::format("model.kind.{}.{}", kind.name, key.substr(key.find('.') + 1)));
    };
    const BlockSpec& inherited = fresh ? m : read.from.block_of(kind.name);
    const RotarySpec& rotary = inherited.attention.rotary;
    ModelSpec s = m.with_kind(kind.name);
    resolve_kind(s, inherited, given);
    if (fresh && s.attends() && !m.attends())
      resolve_heads(
          s, [&](const std::string& key) { return given(key) || read.given(key); }, read.path);
    if (fresh) {
      resolve_scaling(s.attention.rotary, rotary, given);
      if (given("model.rotary_factor") && !given("model.rotary_magnitude") &&
          rotary.scaling == RotaryScaling::yarn)
        s.attention.rotary.magnitude = 1;  // derived again below
    }
    resolve_rotary(s, given, fresh ? m.context : read.from.context,
                   fresh ? RotaryScaling::none : rotary.scaling);
    // The model's dropout also applies to kinds of the model that the run starts from.
    if ((read.given("model.dropout") || read.given("model.attention_dropout")) &&
        !given("model.attention_dropout"))
      s.attention.dropout = m.attention.dropout;
    kind.block = s;
  }
}

// Settings that a recurrence implies.
void resolve_recurrence(ModelSpec& m, const Given& given, const Given& chosen) {
  RecurrenceSpec& r = m.recurrence;
  if (r.decoder != Cell::none && !given("model.source_attention")) r.attention = SourceAttention::dot;
  if (r.encoder != Cell::none && !given("model.bidirectional"))
    r.bidirectional = r.decoder == Cell::none || r.attention != SourceAttention::none;
  const bool recurrent = !m.has_blocks() || m.mixer.knows_order();
  if (recurrent && !given("model.positions")) m.positions = Positions::none;
  // Positions in a preset are for its attention, which another mixer has replaced.
  if (m.mixer.attends() || chosen("model.positions") || !is_of_blocks(m.positions)) return;
  m.positions = m.mixer.knows_order() ? Positions::none : Positions::learned;
  m.attention.rotary = {};
}

// Settings of LoRA adapters.
void resolve_lora(TrainConfig& c, const Given& given, const std::string& path) {
  LoraSpec& lora = c.model.lora;
  if (lora.rank == 0) {
    const char* said = lora.alpha != 0 ? "lora_alpha" : lora.dropout != 0 ? "lora_dropout" : "lora_targets";
    if (lora.alpha != 0 || lora.dropout != 0 || !lora.targets.empty())
      usage("{}: model.{}: there are no changes without lora_rank", path, said);
    lora = {};
    return;
  }
  if (c.from.empty()) usage("{}: model.lora_rank: changes are of a model: name it with model.from", path);
  if (!c.part.empty())
    usage("{}: model.part: changes are of a whole model: write the part with qkv convert --part first", path);
  if (!given("model.lora_alpha")) lora.alpha = 2 * static_cast<float>(lora.rank);
  if (!given("model.lora_targets")) lora.targets = {"all-linear"};
  if (lora.targets.empty()) usage("{}: model.lora_targets: nothing would change", path);
  if (lora.targets.size() > 1 &&
      std::find(lora.targets.begin(), lora.targets.end(), "all-linear") != lora.targets.end())
    usage("{}: model.lora_targets: \"all-linear\" stands alone", path);
  std::sort(lora.targets.begin(), lora.targets.end());
  if (!c.step.freeze.empty())
    usage("{}: train.freeze: with lora_rank all but the changes and a new head stays as it is", path);
  namespace fs = std::filesystem;
  const fs::path base = fs::absolute(resolve_model_dir(c.from)).lexically_normal(),
                 out = fs::absolute(c.out).lexically_normal();
  if (std::mismatch(out.begin(), out.end(), base.begin(), base.end()).first == out.end())
    usage("{}: train.out: {} holds the model that the changes are of, which must stay", path, c.out);
  lora.base = base.string();
}

// Rejects keys that would change the body of the model that the run starts from.
void expect_same_body(const ModelSpec& from, const ModelSpec& m, const std::string& path) {
  // A model without a table of positions may continue training on longer texts.
  const bool fixed_context = from.longest() == from.context;
  const auto expect_same = [&](const std::string& section, const std::vector<FieldText>& before,
                               const std::vector<FieldText>& now) {
    for (size_t i = 0; i < now.size(); ++i) {
      const SpecField& f = now[i].field;
      if (f.weights == WithWeights::free ||
          (f.weights == WithWeights::kept_output && from.output != m.output) ||
          (std::string_view(f.name) == "context" && !fixed_context))
        continue;
      if (before[i].text != now[i].text)
        usage("{}: {}.{}: {} does not fit the model that the run begins with, which has {}", path, section,
              f.name, now[i].text, before[i].text);
    }
  };
  expect_same("model", field_texts(from), field_texts(m));
  for (const BlockKind& kind : m.kinds) {  // layer_kinds are equal, so the names are, too
    const auto other = std::ranges::find(from.kinds, kind.name, &BlockKind::name);
    if (other == from.kinds.end())
      usage("{}: model.kind.{}: the model that the run begins with has no such layers", path, kind.name);
    expect_same("model.kind." + kind.name, field_texts(other->block), field_texts(kind.block));
  }
}

// The file's name for errors, and the keys that the user chose.
struct Rules {
  const std::string& path;
  const Given &chosen, &overridden;

  // True if the user wants a key although `cause` makes it ineffective. A cause given by --set excuses keys
  // in the file, because --set cannot remove them.
  bool wants(const std::string& key, const std::string& cause) const {
    return chosen(key) && (overridden(key) || !(overridden(cause) || overridden("model.preset")));
  }
};

// True if a field changes the model, or one of its kinds of blocks, which inherit it.
bool acts_somewhere(const SpecField& field, const ModelSpec& m) {
  if (field.needs->own_block_alone) return field.needs->holds(m);
  return field.needs->holds(m) || std::ranges::any_of(m.kinds, [&](const BlockKind& kind) {
           return field.needs->holds(m.with_kind(kind.name));
         });
}

// Rejects fields that the user chose but that have no effect in this model.
void expect_acting_fields(const ModelSpec& m, const Rules& rules) {
  const auto refuse = [&](const SpecField& field, const std::string& section) {
    const std::string key = fmt::format("{}.{}", section, field.name);
    // If no mixer is named, its fields imply the mixer, or that there is none.
    const bool names_mixer = field.needs->own_block_alone && !rules.chosen(section + ".mixer");
    if (!names_mixer && rules.wants(key, field.needs->key))
      usage("{}: {}: has no effect without {}", rules.path, key, field.needs->text);
  };
  for (const auto& [field, text] : field_texts(m))
    if (field.needs != nullptr && field.in_configuration() && !acts_somewhere(field, m))
      refuse(field, "model");
  for (const BlockKind& kind : m.kinds)
    for (const auto& [field, text] : field_texts(kind.block))
      if (field.needs != nullptr && !field.needs->holds(m.with_kind(kind.name)))
        refuse(field, "model.kind." + kind.name);
}

// Throws UsageError: the key is for objectives other than `ours`.
[[noreturn]] void refuse_for(const std::vector<Objective>& ours, const std::string& key,
                             const std::vector<Objective>& right, const Rules& rules) {
  std::vector<std::string> names, our_names;
  for (const Objective o : right) names.push_back(name_of(o));
  for (const Objective o : ours) our_names.push_back(name_of(o));
  const std::string instead = key == "train.batch"          ? ": give train.batch_tokens"
                              : key == "train.batch_tokens" ? ": give train.batch"
                                                            : "";
  usage("{}: {}: only for train.objective = {}, not {}{}", rules.path, key, fmt::join(names, " or "),
        fmt::join(our_names, " and "), instead);
}

// Rejects keys that the user chose, or that differ from their defaults, if no objective of the run reads
// them.
void expect_read_keys(const TrainConfig& c, const std::vector<Objective>& objectives, const Rules& rules) {
  TrainConfig usual;
  for (const MixedSet& set : c.mix) usual.mix.push_back({set.name});
  std::map<std::string, std::string> defaults;
  for (const Setting& s : settings(usual)) defaults[s.section + "." + s.key] = s.value;
  for (const Setting& s : settings(c)) {
    const std::string key = s.section + "." + s.key;
    const auto set =
        std::ranges::find_if(c.mix, [&](const MixedSet& m) { return s.section == "mix." + m.name; });
    const std::vector<Objective> ours = set == c.mix.end() ? objectives : std::vector{set->objective};
    if (s.read_by.any_of(ours)) continue;
    const bool wanted = s.read_by.loosely ? rules.wants(key, "train.objective") && s.value != "0"
                                          : rules.chosen(key) || s.value != defaults.at(key);
    if (wanted) refuse_for(ours, key, s.read_by.objectives, rules);
  }
}

// Rejects formats that hold no data for any of the objectives, and delimiters for files that have none.
void expect_fitting_format(const DataConfig& d, const std::vector<Objective>& objectives,
                           const std::string& section, const std::string& path) {
  const auto is_readable = [&](Objective o) {
    const std::vector<std::string>& formats = spec_of(o).formats;
    return d.format == "auto" || std::ranges::find(formats, d.format) != formats.end();
  };
  if (std::ranges::none_of(objectives, is_readable))
    usage("{}: {}.format: \"{}\" holds no data for train.objective = {}", path, section, d.format,
          name_of(objectives[0]));
  const std::string& c = d.delimiter;
  if (c.empty()) return;
  if ((c.size() != 1 && c != "\\t") || c == "\"" || c == "\n" || c == "\r")
    usage("{}: {}.delimiter: expected one character, got '{}'", path, section, c);
  if (d.format != "auto" && d.format != "csv" && d.format != "tsv")
    usage("{}: {}.delimiter: files of the format \"{}\" have none", path, section, d.format);
}

void expect_fitting_files(const DataConfig& d, const std::vector<Objective>& objectives,
                          const std::string& section, const Rules& rules) {
  const std::string& path = rules.path;
  expect_fitting_format(d, objectives, section, path);
  if (d.max_characters > 0 && d.max_characters < d.min_characters)
    usage("{}: {}.max_characters: {} are fewer than min_characters = {}", path, section, d.max_characters,
          d.min_characters);
  FileOptions options;
  options.format = d.format;
  const bool beside = !d.train_target.empty(),
             texts_alone = !d.train.empty() && std::ranges::all_of(objectives, [&](Objective o) {
               return std::ranges::find(Objectives::kTexts, o) != Objectives::kTexts.end();
             }) && std::ranges::none_of(d.train, [&](const std::string&file) {
               return is_of_rows(file, options);
             });
  for (const char* key : {".columns", ".text_column"})
    if (texts_alone && rules.wants(section + key, section + ".train"))
      usage("{}: {}{}: has no effect: {} is a text without columns", path, section, key, d.train[0]);
  for (const char* key : {".columns", ".source_column", ".target_column", ".delimiter"})
    if (beside && rules.wants(section + key, section + ".train_target"))
      usage("{}: {}{}: has no effect: texts beside each other (train_target) have no columns", path, section,
            key);
}

// Checks a mixture: its datasets share the kind of model and output, and name their files in their own
// sections.
void expect_fitting_mix(const TrainConfig& c, const Rules& rules) {
  using enum Objective;
  const std::string& path = rules.path;
  const DataConfig& d = c.data;
  if (c.mix.empty()) return;
  if (!d.test.empty() || d.test_fraction > 0 || d.folds > 0)
    usage("{}: data.{}: only for one data set: a mixture is judged by what it validates", path,
          d.folds > 0      ? "folds"
          : d.test.empty() ? "test_fraction"
                           : "test");
  DataConfig of_all;
  of_all.cache = d.cache;
  of_all.split_seed = d.split_seed;
  if (d != of_all)
    usage(
        "{}: data: where data sets are mixed, only cache and split_seed stand there; files and how they are "
        "read in [mix.NAME]",
        path);
  if (c.best_by != "auto" && c.best_by != "loss")
    usage("{}: train.best_by: \"{}\" is of one data set: a mixture's best model is told by its loss", path,
          c.best_by);
  if (c.tokenizer.separate || !c.tokenizer.source_path.empty())
    usage("{}: tokenizer.{}: data sets that are mixed share one vocabulary", path,
          c.tokenizer.separate ? "separate" : "source_path");
  const auto first_chat =
      std::ranges::find_if(c.mix, [](const MixedSet& set) { return set.objective == chat; });
  const std::string template_of_first = first_chat == c.mix.end() ? "" : first_chat->data.chat_template;
  for (const MixedSet& set : c.mix) {
    const std::string section = "mix." + set.name;
    if (spec_of(set.objective).output != spec_of(c.objective).output ||
        spec_of(set.objective).problem != spec_of(c.objective).problem)  // one model has one head
      usage("{}: {}.objective: {} has another head than train.objective = {}: it cannot be mixed with it",
            path, section, name_of(set.objective), name_of(c.objective));
    if (set.objective == regression)
      usage("{}: {}.objective: data sets with numbers are not mixed", path, section);
    if (set.objective == chat && c.model.order != Order::stack)
      usage("{}: {}.objective: conversations are mixed with next_token alone", path, section);
    if (set.objective == chat && set.data.chat_template != template_of_first)
      usage("{}: {}.chat_template: '{}' is not that of the other conversations, '{}': a model has one", path,
            section, set.data.chat_template, template_of_first);
    expect_carried(c.model.architecture, set.objective, section + ".objective", path);
    if ((set.objective == permutation) != (c.model.order == Order::permuted))
      usage("{}: {}.objective: {} has another order of tokens than {}", path, section, name_of(set.objective),
            name_of(c.objective));
    if (set.data.train.empty()) usage("{}: {}.train: missing: name the files to train on", path, section);
    expect_fitting_files(set.data, {set.objective}, section, rules);
  }
}

// Rejects keys of other objectives.
void expect_fitting_keys(const TrainConfig& c, const Rules& rules) {
  using enum Objective;
  const auto& [path, chosen, overridden] = rules;
  const DataConfig& d = c.data;
  std::vector<Objective> objectives = {c.objective};
  if (!c.mix.empty()) objectives.clear();
  for (const MixedSet& set : c.mix) objectives.push_back(set.objective);
  // Rejects a value that only the objectives in `right` have.
  const auto only_for = [&](const std::vector<Objective>& right, const std::string& key) {
    if (!ReadBy{right}.any_of(objectives)) refuse_for(objectives, key, right, rules);
  };
  expect_fitting_mix(c, rules);
  expect_read_keys(c, objectives, rules);
  expect_fitting_files(d, objectives, "data", rules);
  if (d.folds == 1) usage("{}: data.folds: one part leaves none to learn from: expected 2 or more", path);
  if (d.fold > d.folds) usage("{}: data.fold: {} of {} folds", path, d.fold, d.folds);
  if (d.folds > 0 && (!d.test.empty() || d.test_fraction > 0))
    usage("{}: data.folds: each part is a test: without data.test and data.test_fraction", path);
  if (c.window > c.model.context)
    usage("{}: train.window: {} tokens are more than model.context = {}", path, c.window, c.model.context);
  const auto scored_by = [&](const char* score, const std::vector<Objective>& right) {
    if (c.best_by == score) only_for(right, fmt::format("train.best_by = \"{}\"", score));
  };
  scored_by("accuracy", {classify, multiple_choice, tag});
  scored_by("macro_f1", {classify, multi_label, tag});
  scored_by("micro_f1", {multi_label});
  scored_by("pearson", {regression});
  scored_by("spearman", {regression});
  scored_by("matthews", {classify});
  scored_by("f1", {tag, answer});
  scored_by("exact_match", {answer, multi_label, sequence_to_sequence});
  scored_by("bleu", {sequence_to_sequence});
  if (!c.size.empty() && rules.chosen("model.size") && rules.chosen("model.width") &&
      rules.chosen("model.layers") && rules.chosen("model.heads"))
    usage("{}: model.size: has no effect where model.width, model.layers and model.heads are given", path);
  const bool written =
      c.best_by == "bleu" || (c.best_by == "exact_match" && c.objective == sequence_to_sequence);
  if (written && c.eval_bleu == 0) usage("{}: train.best_by: \"{}\" needs train.eval_bleu", path, c.best_by);
  if (!c.model.has_blocks() && (c.recompute || c.step.layer_drop > 0))
    usage("{}: train.{}: is for blocks of attention, this model has none", path,
          c.recompute ? "recompute" : "layer_drop");
  if (c.model.memory > 0) {
    only_for({next_token}, "model.memory");
    if (!c.mix.empty())
      usage("{}: model.memory: of one text that is read on, not of several data sets", path);
    if (c.step.layer_drop > 0)
      usage("{}: train.layer_drop: model.memory holds what each layer has read, which a dropped one has not",
            path);
    if (c.step.adversarial > 0)
      usage("{}: train.adversarial: reads each batch twice, but model.memory goes on after the first", path);
  }
  if (c.masking.random + c.masking.keep > 1)
    usage("{}: train.mask_keep: mask_random and mask_keep are more than 1 together", path);
  if (!c.from.empty() && !c.tokenizer.path.empty())
    usage("{}: tokenizer.path: model.from brings its own tokenizer", path);
  const bool from_model = !c.from.empty();
  const char* brings = from_model ? "model.from" : "tokenizer.path";
  if (from_model || !c.tokenizer.path.empty())
    for (const char* key :
         {"tokenizer.type", "tokenizer.vocab_size", "tokenizer.min_frequency", "tokenizer.lowercase"})
      if (rules.wants(key, brings))
        usage("{}: {}: has no effect: {} brings its tokenizer", path, key, brings);
  if (from_model)
    for (const char* key : {"model.preset", "model.size"})
      if (rules.wants(key, brings))
        usage("{}: {}: has no effect: model.from brings its architecture", path, key);
  if (!c.tokenizer.add_special.empty() && c.model.lora.any())
    usage("{}: tokenizer.add_special: LoRA leaves the embeddings as they are: new tokens need lora_rank = 0",
          path);
  if (!c.tokenizer.add_special.empty() && (c.tokenizer.separate || !c.tokenizer.source_path.empty()))
    usage("{}: tokenizer.add_special: two vocabularies take no more tokens", path);
  if (c.tokenizer.separate && !c.tokenizer.path.empty())
    usage("{}: tokenizer.separate: trains tokenizers, but tokenizer.path names one (see source_path)", path);
  if (!c.tokenizer.source_path.empty() && c.tokenizer.path.empty())
    usage("{}: tokenizer.source_path: the targets' tokenizer.path is missing", path);
  if ((c.tokenizer.separate || !c.tokenizer.source_path.empty()) &&
      c.model.architecture != Architecture::encoder_decoder)
    usage("{}: tokenizer.{}: two vocabularies need an encoder_decoder", path,
          c.tokenizer.separate ? "separate" : "source_path");
}

// Rejects keys of other optimizers and schedules.
void expect_fitting_updates(const StepConfig& step, const Rules& rules) {
  using Names = std::vector<std::string>;
  const auto only_with = [&](const char* key, const char* of, const std::string& ours, const Names& right) {
    if (rules.wants(key, fmt::format("train.{}", of)) && std::ranges::find(right, ours) == right.end())
      usage("{}: {}: has no effect with train.{} = \"{}\" (only with {})", rules.path, key, of, ours,
            fmt::join(right, ", "));
  };
  const std::string &optimizer = step.optimizer.name, &schedule = step.schedule.name;
  only_with("train.beta1", "optimizer", optimizer, {"adam", "adamw", "lion"});
  only_with("train.beta2", "optimizer", optimizer, {"adam", "adamw", "lion", "rmsprop"});
  only_with("train.epsilon", "optimizer", optimizer, {"adam", "adamw", "rmsprop", "adagrad"});
  only_with("train.min_learning_rate", "schedule", schedule, {"linear", "cosine", "one_cycle"});
}

void resolve_steps(TrainConfig& c, const Given& given, const std::string& path) {
  if (c.epochs > 0 && given("train.steps"))
    usage("{}: train.epochs: give this or train.steps, not both", path);
  if (c.epochs > 0 && !c.mix.empty())
    usage("{}: train.epochs: the data sets of a mixture have passes of their own: give train.steps", path);
  set_steps(c, c.steps);
}

// A step's batch as equal shards.
void expect_equal_shards(const TrainConfig& c, const std::string& path) {
  if (c.zero && (c.step.weight_noise > 0 || c.step.adversarial > 0))
    usage("{}: train.zero: {} needs all f32 weights on each rank", path,
          c.step.weight_noise > 0 ? "train.weight_noise" : "train.adversarial");
  if (c.zero && c.step.optimizer.name == "adafactor")
    usage("{}: train.zero: adafactor's rule looks at whole matrices: choose another optimizer", path);
  if (c.shards == 1 && c.shard_order == "any") usage("{}: train.shard_order: there is one shard", path);
  if (c.shards == 1) return;
  if (!std::has_single_bit(static_cast<uint64_t>(c.shards)))
    usage("{}: train.shards: expected a power of two, got {}", path, c.shards);
  if (c.accumulate > 1)
    usage("{}: train.accumulate: every shard is a pass of its own: give train.shards or this, not both",
          path);
  const auto has_windows = [](Objective o) { return o == Objective::next_token; };
  const bool windows = c.mix.empty() ? has_windows(c.objective)
                                     : std::ranges::any_of(c.mix, has_windows, &MixedSet::objective),
             sequences =
                 c.mix.empty() ? !windows : !std::ranges::all_of(c.mix, has_windows, &MixedSet::objective);
  if (windows && c.batch % c.shards != 0)
    usage("{}: train.shards: {} windows (train.batch) cannot be divided by {}", path, c.batch, c.shards);
  if (sequences && c.batch_tokens < 2 * c.shards)
    usage("{}: train.shards: {} tokens (train.batch_tokens) are too few for {} shards", path, c.batch_tokens,
          c.shards);
}

}  // namespace

void set_steps(TrainConfig& c, int64_t steps) {
  c.steps = steps;
  if (!c.warmup_derived) return;
  constexpr int64_t kWarmup = 100;
  c.step.schedule.warmup_steps = c.warmup_fraction
                                     ? std::llround(*c.warmup_fraction * static_cast<double>(steps))
                                     : std::min(kWarmup, steps / 10);
}

void resolve(TrainConfig& c, const ReadConfig& read) {
  const auto& [path, from, given, chosen, overridden, warmup_fraction, read_kinds] = read;
  ModelSpec& m = c.model;
  resolve_lora(c, given, path);
  if (c.from.empty()) {
    resolve_mixer(m, m.width, given);
    resolve_recurrence(m, given, chosen);
    resolve_relative(m, given);
    resolve_latents(m, given);
    resolve_heads(m, given, path);
    resolve_buckets(m.attention, m.context, given);
    if (!given("model.attention_out_bias")) m.attention.out_bias = m.attention.bias;
    if (!given("model.hidden")) m.hidden = 4 * m.width;
    resolve_experts(m, given);
    if (!given("model.encoder_layers"))
      m.encoder_layers = m.architecture == Architecture::encoder_decoder ? m.layers : 0;
    if (!given("model.init_std") && m.architecture != Architecture::decoder)
      m.init_std = 1 / std::sqrt(static_cast<float>(m.width));
  }
  const bool fresh = c.from.empty();
  resolve_rotary(m, given, fresh ? m.context : from.context,
                 fresh ? RotaryScaling::none : from.attention.rotary.scaling);
  if (fresh || given("model.dropout")) {
    if (!given("model.attention_dropout")) m.attention.dropout = m.residual_dropout;
    if (!given("model.embedding_dropout")) m.embedding_dropout = m.residual_dropout;
  }
  resolve_kinds(c, read);
  resolve_objective(c, given, path);
  resolve_order(c, given, path);
  resolve_head(c, from, given);
  if (fresh) resolve_queries(m, given);
  if (!c.from.empty()) expect_same_body(from, m, path);
  if (!given("tokenizer.type") && m.architecture == Architecture::encoder) c.tokenizer.type = "wordpiece";
  const Rules rules{path, chosen, overridden};
  expect_acting_fields(m, rules);
  expect_fitting_keys(c, rules);
  expect_fitting_updates(c.step, rules);
  ModelSpec complete = m;
  complete.vocab_size = 1;
  if (c.masking.next_sentence) complete.labels = {"?"};
  if ((m.output == Output::sequence_classes && m.problem != Problem::multiple_choice) ||
      m.output == Output::token_classes)
    complete.labels = {"?"};
  try {
    check_spec(complete);
  } catch (const Error& e) {
    usage("{}: {}", path, e.what());
  }

  ScheduleConfig& s = c.step.schedule;
  if (!given("train.min_learning_rate")) s.min_learning_rate = s.learning_rate / 10;
  if (given("train.warmup_steps") && given("train.warmup_fraction"))
    usage("{}: train.warmup_fraction: give this or warmup_steps, not both", path);
  c.warmup_derived = !given("train.warmup_steps");
  if (given("train.warmup_fraction"))
    c.warmup_fraction = warmup_fraction;
  else if (s.name == "one_cycle")
    c.warmup_fraction = 0.3;
  resolve_steps(c, given, path);
  OptimizerConfig& o = c.step.optimizer;
  const bool decoupled = o.name == "adamw" || o.name == "lion" || o.name == "adafactor";
  if (!given("train.weight_decay") && !decoupled) o.weight_decay = 0;
  if (o.nesterov && o.momentum == 0) usage("{}: train.nesterov: needs a momentum", path);
  if (o.name != "sgd" && o.momentum != 0) usage("{}: train.momentum: only sgd has one", path);
  expect_equal_shards(c, path);
  if (c.batch > std::numeric_limits<int32_t>::max() / m.context)
    usage("{}: train.batch: {} windows of {} tokens are more than a batch can hold", path, c.batch,
          m.context);
}

}  // namespace qkv
