#include "qkv/infer/generation_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"

namespace qkv {
namespace {

using Acts = GenerationField::Acts;
using Member = GenerationField::Member;
using Settings = GenerationSettings;
using Ids = std::vector<int32_t>;

constexpr double kLarge = 1e300;
constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();
constexpr double kMostTokens = 1LL << 40;

// A member of a part of the settings.
#define MEMBER(PATH) [](Settings& s) -> Member { return &s.PATH; }

constexpr GenerationField kFields[] = {
    {"max_new_tokens", "--tokens", "Maximum length of an output in tokens", Acts::always,
     MEMBER(drawing.max_new_tokens), 1, kMostTokens},
    {"min_new_tokens", "--min-tokens", "Minimum length of an output in tokens", Acts::always,
     MEMBER(drawing.rules.min_new_tokens), 0, kMostTokens},
    {"max_length", "", "Length of prompt and output at most", Acts::always, MEMBER(drawing.rules.max_length),
     1, kMostTokens},
    {"min_length", "", "Length of prompt and output at least", Acts::always, MEMBER(drawing.rules.min_length),
     0, kMostTokens},
    {"eos_token_id", "", "Tokens that end an output", Acts::always, MEMBER(drawing.eos)},
    {"forced_bos_token_id", "", "Token that an output begins with", Acts::always,
     MEMBER(drawing.rules.begin)},
    {"forced_eos_token_id", "", "Last token of an output of the greatest length", Acts::always,
     MEMBER(drawing.rules.end)},
    {"temperature", "--temperature",
     "Sampling temperature: 0 takes the most likely token, 1 samples from the model's distribution, more is "
     "more random",
     Acts::drawing, MEMBER(drawing.sampler.temperature), 0, kLarge, 1},
    {"top_k", "--top-k", "Sample from the k most likely tokens (0: from all)", Acts::drawing,
     MEMBER(drawing.sampler.top_k), 0, kMostTokens, 0},
    {"top_p", "--top-p",
     "Nucleus sampling: sample from the most likely tokens that together have this probability",
     Acts::drawing, MEMBER(drawing.sampler.top_p), 0, kLarge, 1},
    {"min_p", "--min-p", "Keep tokens with at least this fraction of the most likely token's probability",
     Acts::drawing, MEMBER(drawing.sampler.min_p), 0, kLarge, 0},
    {"typical_p", "--typical-p",
     "Locally typical sampling: keep the most typical tokens that together have this probability",
     Acts::drawing, MEMBER(drawing.sampler.typical_p), 0, kLarge, 1},
    {"repetition_penalty", "--repetition-penalty",
     "Above 1, tokens of the prompt and the output become less likely (divides or multiplies their logits)",
     Acts::always, MEMBER(drawing.sampler.repetition_penalty), 0, kLarge, 1},
    {"frequency_penalty", "--frequency-penalty",
     "Subtracted from a token's logit for each time it occurs in the output", Acts::drawing,
     MEMBER(drawing.sampler.frequency_penalty), -kLarge, kLarge, 0},
    {"presence_penalty", "--presence-penalty", "Subtracted from a token's logit if it occurs in the output",
     Acts::drawing, MEMBER(drawing.sampler.presence_penalty), -kLarge, kLarge, 0},
    {"seed", "--seed", "Random seed", Acts::drawing, MEMBER(drawing.seed)},
    {"no_repeat_ngram_size", "--no-repeat-ngram", "Never repeat an n-gram of this length (0: no limit)",
     Acts::always, MEMBER(drawing.rules.no_repeat_ngram), 0, 1000},
    {"suppress_tokens", "", "Tokens that an output never has", Acts::always,
     MEMBER(drawing.sampler.excluded)},
    {"begin_suppress_tokens", "", "Tokens that do not come first", Acts::always,
     MEMBER(drawing.rules.not_first)},
    {"bad_words_ids", "", "Sequences of tokens that an output does not have", Acts::always,
     MEMBER(drawing.rules.suppressed)},
    {"num_beams", "--beams", "Beam width of beam search (1: greedy search)", Acts::always,
     MEMBER(search.beams), 1, 1024, 1},
    {"num_return_sequences", "", "Number of outputs per prompt, best first", Acts::always, MEMBER(returned),
     1, 10000, 1},
    {"length_penalty", "--length-penalty",
     "Beam search: rank outputs by log P / length^this; larger values favour long outputs", Acts::searching,
     MEMBER(search.length_penalty), -1e6, 1e6, 1},
    {"early_stopping", "--stop-early", "Beam search: stop when enough outputs have ended", Acts::searching,
     MEMBER(search.stop)},
    {"patience", "--patience", "Beam search: wait for beams x patience finished outputs", Acts::searching,
     MEMBER(search.patience), 1e-3, 1024, 1},
    {"coverage_penalty", "--coverage-penalty",
     "Search: prefer outputs that look at all of their source (Wu et al. 2016)", Acts::searching,
     MEMBER(search.coverage_penalty), 0, 1e6, 0},
    {"prefix_bias_beta", "--prefix-bias",
     "Search: make the beginning a wish of this weight, from 0 (outputs must have it) to below 1",
     Acts::searching, MEMBER(search.prefix_bias), 0, 1 - 1e-12, 0},
    {"return_alternatives", "--alternatives",
     "Write outputs that begin with the most likely different first tokens, each continued by beam search",
     Acts::searching, MEMBER(alternatives)},
    {"min_alternative_expansion_prob", "--min-alternative",
     "Alternatives: minimum probability of the first token", Acts::searching,
     MEMBER(search.least_alternative), 0, 1, 0},
    {"output_attentions", "--attention", "Search: say how much each token looked at each source token",
     Acts::searching, MEMBER(search.attention)},
};
#undef MEMBER

// Parses the whole `text` as a number; nullopt if it is not one.
template <typename T>
std::optional<T> number_of(std::string_view text) {
  T n{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return n;
}

// Describes the values of a field, for errors.
std::string expected(const GenerationField& field, const Member& member) {
  const auto number = [&](const char* kind) {
    return field.most < kMostTokens ? fmt::format("{} from {:g} to {:g}", kind, field.least, field.most)
           : field.least > -kLarge  ? fmt::format("{} of at least {:g}", kind, field.least)
                                    : std::string(kind);
  };
  switch (member.index()) {
    case 0:
      return number("a whole number");
    case 1:
      return "a whole number of at least 0";
    case 2:
      return number("a number");
    case 3:
      return "true or false";
    case 4:
      return "true, false or never";
    case 5:
      return "a token's id, or null";
    case 6:
      return "ids of tokens, or null";
    default:
      return "sequences of ids";
  }
}

[[noreturn]] void refuse(const GenerationField& field, const Member& member, const std::string& text) {
  fail("{}: expected {}, got '{}'", field.key, expected(field, member), text);
}

std::optional<BeamOptions::Stop> stop_of(std::string_view text) {
  if (text == "true") return BeamOptions::Stop::early;
  if (text == "false") return BeamOptions::Stop::likely;
  if (text == "never") return BeamOptions::Stop::certain;
  return {};
}

std::vector<std::string_view> words(std::string_view text, char between) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::optional<Ids> ids_of(std::string_view text) {
  Ids out;
  for (const std::string_view word : words(text, ' ')) {
    const auto id = number_of<int32_t>(word);
    if (!id || *id < 0) return {};
    out.push_back(*id);
  }
  return out;
}

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

bool in_range(const GenerationField& field, double value) {
  return value >= field.least && value <= field.most;
}

Ids narrow(const std::vector<int64_t>& ids) {
  return {ids.begin(), ids.end()};
}

}  // namespace

BeamOptions GenerationSettings::search_options() const {
  BeamOptions o = search;
  o.max_new_tokens = drawing.max_new_tokens;
  o.eos = drawing.eos;
  o.rules = drawing.rules;
  o.excluded = drawing.sampler.excluded;
  o.repetition_penalty = drawing.sampler.repetition_penalty;
  o.alternatives = alternatives ? returned : 0;
  return o;
}

std::span<const GenerationField> generation_fields() {
  return kFields;
}

const GenerationField* find_generation_field(std::string_view key) {
  const auto* found = std::ranges::find(kFields, key, &GenerationField::key);
  return found == std::end(kFields) ? nullptr : found;
}

void set_from_text(const GenerationField& field, const std::string& text, GenerationSettings& settings) {
  const Member member = field.member(settings);
  const auto taken = [&](auto value, auto* to) {
    if (!value) return false;
    *to = *value;
    return true;
  };
  const bool understood =
      std::visit(Overloaded{
                     [&](int64_t* to) {
                       const auto n = number_of<int64_t>(text);
                       return n && in_range(field, static_cast<double>(*n)) && taken(n, to);
                     },
                     [&](uint64_t* to) { return taken(number_of<uint64_t>(text), to); },
                     [&](double* to) {
                       const auto n = number_of<double>(text);
                       return n && in_range(field, *n) && taken(n, to);
                     },
                     [&](bool* to) {
                       *to = text == "true";
                       return text == "true" || text == "false";
                     },
                     [&](BeamOptions::Stop* to) { return taken(stop_of(text), to); },
                     [&](std::optional<int32_t>* to) {
                       to->reset();
                       if (text == "null") return true;
                       *to = number_of<int32_t>(text);
                       return to->has_value() && **to >= 0;
                     },
                     [&](Ids* to) {
                       to->clear();
                       return text == "null" || (!words(text, ' ').empty() && taken(ids_of(text), to));
                     },
                     [&](std::vector<Ids>* to) {
                       to->clear();
                       for (const std::string_view part : words(text, '|')) {
                         const auto ids = ids_of(part);
                         if (!ids || ids->empty()) return false;
                         to->push_back(*ids);
                       }
                       return text == "null" || !to->empty();
                     },
                 },
                 member);
  if (!understood) refuse(field, member, text);
}

std::string text_of(const GenerationField& field, const GenerationSettings& settings) {
  GenerationSettings copy = settings;
  const auto id_text = [](const Ids& ids) { return fmt::format("{}", fmt::join(ids, " ")); };
  return std::visit(
      Overloaded{
          [](const bool* value) -> std::string { return *value ? "true" : "false"; },
          [](const BeamOptions::Stop* value) -> std::string {
            return *value == BeamOptions::Stop::early    ? "true"
                   : *value == BeamOptions::Stop::likely ? "false"
                                                         : "never";
          },
          [](const std::optional<int32_t>* id) { return *id ? fmt::format("{}", **id) : "null"; },
          [&](const Ids* ids) { return ids->empty() ? "null" : id_text(*ids); },
          [&](const std::vector<Ids>* lists) {
            std::string out;
            for (const Ids& ids : *lists) out += (out.empty() ? "" : "|") + id_text(ids);
            return out.empty() ? "null" : out;
          },
          [](const auto* number) { return fmt::format("{}", *number); },
      },
      field.member(copy));
}

void set_from_json(const GenerationField& field, const JsonField& value, GenerationSettings& settings) {
  std::visit(Overloaded{
                 [&](int64_t* to) {
                   *to = value.integer(static_cast<int64_t>(field.least), static_cast<int64_t>(field.most));
                 },
                 [&](uint64_t* to) {
                   *to = static_cast<uint64_t>(value.integer(0, std::numeric_limits<int64_t>::max()));
                 },
                 [&](double* to) {
                   *to = value.number();
                   // Ranges of SamplerOptions are checked by check_options().
                   if (field.acts == Acts::searching && !in_range(field, *to))
                     value.refuse(expected(field, to));
                 },
                 [&](bool* to) { *to = value.boolean(); },
                 [&](BeamOptions::Stop* to) {
                   const auto stop = value.json().is_boolean() ? stop_of(value.boolean() ? "true" : "false")
                                     : value.json() == "never" ? stop_of("never")
                                                               : std::nullopt;
                   if (!stop) value.refuse("true, false or \"never\"");
                   *to = *stop;
                 },
                 [&](std::optional<int32_t>* to) {
                   const std::vector<int64_t> ids = value.json().is_array()
                                                        ? value.integers(0, kMostId)
                                                        : std::vector{value.integer(0, kMostId)};
                   if (ids.size() != 1) value.refuse("the id of one token");
                   *to = static_cast<int32_t>(ids[0]);
                 },
                 [&](Ids* to) {
                   *to = narrow(value.json().is_array() ? value.integers(0, kMostId)
                                                        : std::vector{value.integer(0, kMostId)});
                 },
                 [&](std::vector<Ids>* to) {
                   to->clear();
                   for (size_t i = 0; i < value.size(); ++i) {
                     to->push_back(narrow(value.at(i).integers(0, kMostId)));
                     if (to->back().empty()) value.at(i).refuse("the id of a token");
                   }
                 },
             },
             field.member(settings));
}

std::set<std::string> set_from_list(
    const std::string& list, GenerationSettings& settings,
    const std::function<bool(const std::string& key, const std::string& value)>& other,
    const std::string& others) {
  std::set<std::string> given;
  for (const std::string_view item : words(list, ',')) {
    const size_t equals = item.find('=');
    check(equals != std::string_view::npos, "expected key=value, got '{}'", item);
    const std::string key(item.substr(0, equals)), value(item.substr(equals + 1));
    check(given.insert(key).second, "{}: given twice", key);
    if (other && other(key, value)) continue;
    if (const GenerationField* field = find_generation_field(key)) {
      set_from_text(*field, value, settings);
      continue;
    }
    std::string known = others;
    for (const GenerationField& f : kFields) known += (known.empty() ? "" : ", ") + std::string(f.key);
    fail("'{}' is not supported ({} are)", item, known);
  }
  return given;
}

bool asks_for_search(const GenerationSettings& settings, const std::set<std::string>& given) {
  // Settings that only compare outputs do not ask for a search.
  const std::set<std::string> comparing = {"length_penalty", "early_stopping"};
  return settings.search.beams > 1 || std::ranges::any_of(kFields, [&](const GenerationField& field) {
           return field.acts == Acts::searching && given.contains(field.key) &&
                  !comparing.contains(field.key) && !is_neutral(field, settings);
         });
}

bool is_neutral(const GenerationField& field, const GenerationSettings& settings) {
  GenerationSettings copy = settings;
  return std::visit(Overloaded{
                        [&](const int64_t* value) { return static_cast<double>(*value) == field.neutral; },
                        [](const uint64_t* /*seed*/) { return false; },
                        [&](const double* value) { return *value == field.neutral; },
                        [](const bool* value) { return !*value; },
                        [](const BeamOptions::Stop* value) { return *value == BeamOptions::Stop::likely; },
                        [](const auto* list) { return *list == std::decay_t<decltype(*list)>(); },
                    },
                    field.member(copy));
}

void copy_setting(const GenerationField& field, const GenerationSettings& from, GenerationSettings& to) {
  GenerationSettings source = from;
  const Member given = field.member(source);
  std::visit([&](auto* value) { *value = *std::get<std::decay_t<decltype(value)>>(given); },
             field.member(to));
}

void check_acting(const GenerationSettings& settings, const std::set<std::string>& given, bool drawing,
                  bool searching, const SettingName& name) {
  const auto object = [&](const char* key) { return name(*find_generation_field(key), false); };
  const bool greedy = !drawing || settings.drawing.sampler.temperature == 0;
  for (const GenerationField& field : kFields) {
    const std::string key = field.key, subject = name(field, true);
    if (!given.contains(key) || is_neutral(field, settings)) continue;
    if (field.acts == Acts::searching && !searching)
      fail("{} has no effect {}", subject,
           drawing ? "where outputs are drawn" : "without a search (num_beams above 1)");
    if (field.acts != Acts::drawing) continue;
    if (searching) fail("{} has no effect on a search", subject);
    // Penalties also affect greedy decoding.
    if (!greedy || key == "frequency_penalty" || key == "presence_penalty") continue;
    if (!drawing)
      fail("{} has no effect where the likeliest token is taken, without do_sample=true", subject);
    if (key != "temperature")
      fail("{} has no effect with {}, which always takes the likeliest", subject, object("temperature"));
  }
  const auto subject_of = [&](const char* key) { return name(*find_generation_field(key), true); };
  if (given.contains("min_new_tokens") && given.contains("max_new_tokens"))
    check(settings.drawing.rules.min_new_tokens <= settings.drawing.max_new_tokens, "{} is more than {}",
          subject_of("min_new_tokens"), object("max_new_tokens"));
  if (given.contains("min_alternative_expansion_prob"))
    check(settings.alternatives, "{} has no effect without {}", subject_of("min_alternative_expansion_prob"),
          object("return_alternatives"));
  if (searching && !settings.alternatives)
    check(settings.returned <= settings.search.kept(),
          "{} asks for more than the {} outputs of {} beams ({})", subject_of("num_return_sequences"),
          settings.search.kept(), settings.search.beams, object("num_beams"));
}

void check_ids(const GenerationSettings& settings, const std::set<std::string>& keys, int64_t vocab_size) {
  GenerationSettings copy = settings;
  for (const GenerationField& field : kFields) {
    if (!keys.contains(field.key)) continue;
    const auto one = [&](int32_t id) {
      check(id >= 0 && id < vocab_size, "{}: {} is not one of {} tokens", field.key, id, vocab_size);
    };
    std::visit(Overloaded{
                   [&](const std::optional<int32_t>* id) {
                     if (*id) one(**id);
                   },
                   [&](const Ids* ids) { std::ranges::for_each(*ids, one); },
                   [&](const std::vector<Ids>* lists) {
                     for (const Ids& ids : *lists) std::ranges::for_each(ids, one);
                   },
                   [](const auto* /*number*/) {},
               },
               field.member(copy));
  }
}

}  // namespace qkv
