#include "qkv/api/generation_config.h"

#include <set>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {
namespace {

// Throws Error for unsupported settings that would change outputs, unless they have these neutral values.
void refuse_others(const JsonField& c) {
  const std::pair<const char*, double> neutral[] = {
      {"num_beam_groups", 1}, {"diversity_penalty", 0},
      {"penalty_alpha", 0},   {"epsilon_cutoff", 0},
      {"eta_cutoff", 0},      {"encoder_repetition_penalty", 1},
      {"guidance_scale", 1},  {"encoder_no_repeat_ngram_size", 0}};
  for (const auto& [key, value] : neutral)
    if (const auto field = c.find(key))
      check(field->number() == value, "{}: only {} is supported, got {}", field->place(), value,
            field->number());
  for (const char* key :
       {"force_words_ids", "constraints", "sequence_bias", "exponential_decay_length_penalty",
        "watermarking_config", "stop_strings", "dola_layers", "forced_decoder_ids"})
    if (const auto field = c.find(key)) fail("{}: not supported (null is)", field->place());
}

}  // namespace

bool read_generation_config(const std::string& dir, GenerationSettings& settings, std::string& refused) {
  std::string path = beside_or_base(dir, "generation_config.json");
  // Older directories have these settings in config.json.
  if (!file_exists(path)) path = beside_or_base(dir, "config.json");
  if (!file_exists(path)) return false;
  const Json json = parse_json(read_file(path), path);
  const JsonField c(json, path);
  GenerateOptions& o = settings.drawing;
  const bool draws = c.boolean_or("do_sample", o.sampler.temperature > 0);
  if (c.find("do_sample") && draws) {  // Hugging Face's defaults
    o.sampler.temperature = 1;
    o.sampler.top_k = 50;
  }
  if (!draws) o.sampler.temperature = 0;
  for (const GenerationField& field : generation_fields()) {
    const std::string key = field.key;
    // End tokens belong to SpecialIds, and the caller decides which outputs are returned.
    static const std::set<std::string> others = {
        "eos_token_id",         "forced_bos_token_id", "seed",
        "num_return_sequences", "return_alternatives", "min_alternative_expansion_prob",
        "output_attentions"};
    if (others.contains(key)) continue;
    // max_length counts the prompt, too; max_new_tokens takes precedence.
    if (key == "max_length" && c.find("max_new_tokens")) continue;
    // Some files without sampling still have settings for it.
    if (field.acts == GenerationField::Acts::drawing && !draws) continue;
    if (const auto value = c.find(key)) set_from_json(field, *value, settings);
  }
  if (o.rules.max_length > 0) o.max_new_tokens = o.rules.max_length;
  const bool searches = c.find("num_beams") && settings.search.beams > 1;
  try {
    check_options(o.sampler);
  } catch (const Error& e) {
    refused = fmt::format("{}: {}", path, e.what());
    return searches;
  }
  try {
    check(!searches || !c.boolean_or("do_sample", false),
          "{}: num_beams: {} with do_sample: beams that are drawn are not supported", path,
          settings.search.beams);
    refuse_others(c);
  } catch (const Error& e) {
    refused = e.what();
  }
  return searches;
}

}  // namespace qkv
