#include "qkv/cli/generation_options.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/cli/console.h"

namespace qkv {
namespace {

using Acts = GenerationField::Acts;

constexpr double kReached = 1e9;  // bounds beyond are none to people

bool has_option(const GenerationField& field, GenerationKind kind) {
  const std::string_view key = field.key;
  if (*field.option == '\0') return false;
  if (kind == GenerationKind::of_sources) return true;
  if (key == "coverage_penalty" || key == "output_attentions" || key == "prefix_bias_beta") return false;
  return kind == GenerationKind::of_prompts || (field.acts != Acts::searching && key != "num_beams");
}

bool of_search(const GenerationField& field) {
  return field.acts == Acts::searching || std::string_view(field.key) == "num_beams";
}

// The first option given for which `f` holds; null: none.
template <typename F>
const GenerationField* find_given(const GenerationOptions& o, const F& f) {
  const auto fields = generation_fields();
  const auto found = std::ranges::find_if(fields, [&](const GenerationField& field) {
    return *field.option != '\0' && o.has(field.key) && f(field);
  });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

void GenerationOptions::take(const Command& command) {
  for (const Option* option : command.given()) {
    for (const GenerationField& field : generation_fields())
      if (option->name() == field.option) given.insert(field.key);
    if (option->name() == returned) given.insert("num_return_sequences");
  }
  if (stop_early) settings.search.stop = BeamOptions::Stop::early;
  naming_option("--", [&] { check_options(settings.drawing.sampler); });  // "--top-p must be ..."
}

void add_generation_options(Command& c, GenerationOptions& o, GenerationKind kind,
                            const std::string& returned) {
  o.returned = returned;
  for (const GenerationField& field : generation_fields()) {
    if (!returned.empty() && std::string_view(field.key) == "num_return_sequences") {
      c.add_option(returned, o.settings.returned, field.help)->show_default()->range(1, 10000);
      continue;
    }
    if (!has_option(field, kind)) continue;
    const auto member = field.member(o.settings);
    if (auto* const* whole = std::get_if<int64_t*>(&member)) {
      c.add_option(field.option, **whole, field.help)
          ->show_default()
          ->range(static_cast<int64_t>(field.least), static_cast<int64_t>(field.most));
    } else if (auto* const* number = std::get_if<double*>(&member)) {
      auto* option = c.add_option(field.option, **number, field.help)->show_default();
      // Those of drawing have ranges that check_options() knows.
      if (field.acts == Acts::searching && field.most < kReached) option->range(field.least, field.most);
    } else if (auto* const* seed = std::get_if<uint64_t*>(&member)) {
      c.add_option(field.option, **seed, field.help);
    } else if (auto* const* flag = std::get_if<bool*>(&member)) {
      c.add_flag(field.option, **flag, field.help);
    } else {
      c.add_flag(field.option, o.stop_early, field.help);
    }
  }
}

Generation resolve_generation(const GenerationOptions& o, const TextModel& m, const std::string& draws,
                              bool search_otherwise) {
  const GenerationField* searching = find_given(o, of_search);
  const GenerationField* drawing =
      find_given(o, [](const GenerationField& field) { return field.acts == Acts::drawing; });
  const std::string draws_by = drawing != nullptr ? drawing->option : draws;
  if (searching != nullptr && !draws_by.empty())
    throw UsageError(
        fmt::format("{}: outputs are searched for ({}), not drawn", draws_by, searching->option));
  Generation out;
  out.searches = searching != nullptr || (draws_by.empty() && (m.searches || search_otherwise));
  GenerationSettings& s = out.settings = m.generation;
  s.returned = o.settings.returned;
  if (!m.searches && !search_otherwise) s.search.beams = BeamOptions().beams;
  for (const GenerationField& field : generation_fields())
    if (o.has(field.key)) copy_setting(field, o.settings, s);
  if (o.has("max_new_tokens")) s.drawing.rules.max_length = 0;  // which counts the prompt, too
  // Who says how to draw wants to.
  SamplerOptions& sampler = s.drawing.sampler;
  if (!draws_by.empty() && !o.has("temperature") && sampler.temperature == 0 &&
      find_given(o, [&](const GenerationField& field) {
        const std::string_view key = field.key;
        return key == "top_k" || key == "top_p" || key == "min_p" || key == "typical_p" ||
               (key == "seed" && search_otherwise);
      }) != nullptr)
    sampler.temperature = 1;
  // A seed does no harm to a model that takes the likeliest token by itself.
  std::set<std::string> given = o.given;
  if (!search_otherwise && !o.has("temperature")) given.erase("seed");
  naming_option("", [&] {
    check_acting(s, given, !out.searches, out.searches, [&](const GenerationField& field, bool subject) {
      const std::string option =
          std::string_view(field.key) == "num_return_sequences" ? o.returned : field.option;
      const bool flag = std::holds_alternative<bool*>(field.member(s));
      return subject ? option + ":" : flag ? option : fmt::format("{} {}", option, text_of(field, s));
    });
  });
  for (const char* key : {"length_penalty", "early_stopping"})
    if (out.searches && o.has(key) && s.search.beams == 1 && s.search.kept() == 1 &&
        (!o.shows_scores || std::string_view(key) != "length_penalty"))
      throw UsageError(
          fmt::format("{}: has no effect with one beam (see --beams)", find_generation_field(key)->option));
  return out;
}

std::vector<std::vector<int32_t>> spellings_of(const std::string& text, const text::Tokenizer& tokenizer) {
  std::vector<std::vector<int32_t>> out;
  // Alone, and behind other text, where no space is put before it.
  for (const std::string before : {"", "\n", "(", "."}) {
    const std::vector<int32_t> base = tokenizer.encode(before, false).ids,
                               all = tokenizer.encode(before + text, false).ids;
    if (base.size() >= all.size() || !std::equal(base.begin(), base.end(), all.begin())) continue;
    std::vector<int32_t> ids(all.begin() + std::ssize(base), all.end());
    const bool spelt = std::ranges::find(ids, tokenizer.unknown()) == ids.end();
    if (spelt && std::ranges::find(out, ids) == out.end()) out.push_back(std::move(ids));
  }
  if (text.empty() || out.empty())
    throw UsageError(fmt::format("--suppress: '{}': the model's vocabulary does not spell it", text));
  return out;
}

}  // namespace qkv
