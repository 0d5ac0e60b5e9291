#include "qkv/api/generation_config.h"

#include <limits>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {
namespace {

// What would change outputs, but for these values, and is not supported.
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

// true, false or "never".
BeamOptions::Stop stop_of(const JsonField& early) {
  if (early.json().is_boolean())
    return early.boolean() ? BeamOptions::Stop::early : BeamOptions::Stop::likely;
  check(early.json() == "never", "{}: expected true, false or \"never\"", early.place());
  return BeamOptions::Stop::certain;
}

}  // namespace

bool read_generation_config(const std::string& dir, GenerateOptions& options, BeamOptions& beam,
                            std::string& refused) {
  std::string path = beside_or_base(dir, "generation_config.json");
  // Older directories say it beside all else.
  if (!file_exists(path)) path = beside_or_base(dir, "config.json");
  if (!file_exists(path)) return false;
  const Json json = parse_json(read_file(path), path);
  const JsonField c(json, path);
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  SamplerOptions& s = options.sampler;
  const auto number = [&](const char* key, double& to) {
    if (const auto field = c.find(key)) to = field->number();
  };
  const auto integer = [&](const char* key, int64_t& to, int64_t least) {
    if (const auto field = c.find(key)) to = field->integer(least, kMost);
  };
  integer("max_new_tokens", options.max_new_tokens, 1);
  beam.max_new_tokens = options.max_new_tokens;
  if (c.boolean_or("do_sample", s.temperature > 0)) {
    if (c.find("do_sample")) {  // Hugging Face's, where nothing else is said
      s.temperature = 1;
      s.top_k = 50;
    }
    number("temperature", s.temperature);
    integer("top_k", s.top_k, 0);
    number("top_p", s.top_p);
    number("min_p", s.min_p);
    number("typical_p", s.typical_p);
  } else {
    s.temperature = 0;
  }
  number("repetition_penalty", s.repetition_penalty);
  const auto tokens = [&](const char* key, std::vector<int32_t>& to) {
    if (const auto list = c.find(key))
      for (const int64_t id : list->integers(0, kMost)) to.push_back(static_cast<int32_t>(id));
  };
  tokens("suppress_tokens", s.excluded);
  if (const auto words = c.find("bad_words_ids"))
    for (size_t i = 0; i < words->size(); ++i) {
      const std::vector<int64_t> ids = words->at(i).integers(0, kMost);
      if (ids.size() > 1) {
        refused = fmt::format("{}: expected the id of one token (words of several are not supported)",
                              words->at(i).place());
        continue;
      }
      check(!ids.empty(), "{}: expected the id of a token", words->at(i).place());
      s.excluded.push_back(static_cast<int32_t>(ids[0]));
    }
  OutputRules& rules = options.rules;
  tokens("begin_suppress_tokens", rules.not_first);
  // Of tokens with the prompt's; new ones alone come first.
  if (!c.find("max_new_tokens")) {
    integer("max_length", rules.max_length, 1);
    if (rules.max_length > 0) beam.max_new_tokens = options.max_new_tokens = rules.max_length;
  }
  if (const auto end = c.find("forced_eos_token_id")) {
    const std::vector<int64_t> ids =
        end->json().is_array() ? end->integers(0, kMost) : std::vector<int64_t>{end->integer(0, kMost)};
    check(ids.size() == 1, "{}: expected the id of one token", end->place());
    rules.end = static_cast<int32_t>(ids[0]);
  }
  integer("min_new_tokens", rules.min_new_tokens, 0);
  integer("min_length", rules.min_length, 0);
  integer("no_repeat_ngram_size", rules.no_repeat_ngram, 0);
  beam.rules = rules;
  beam.repetition_penalty = s.repetition_penalty;
  beam.excluded = s.excluded;
  integer("num_beams", beam.beams, 1);
  check(beam.beams <= 1024, "{}: num_beams: at most 1024, got {}", path, beam.beams);
  const bool searches = c.integer_or("num_beams", 1, 1, kMost) > 1;
  number("length_penalty", beam.length_penalty);
  if (const auto early = c.find("early_stopping")) beam.stop = stop_of(*early);
  try {
    check_options(s);
  } catch (const Error& e) {
    refused = fmt::format("{}: {}", path, e.what());
    return searches;
  }
  try {
    check(!searches || !c.boolean_or("do_sample", false),
          "{}: num_beams: {} with do_sample: beams that are drawn are not supported", path, beam.beams);
    refuse_others(c);
  } catch (const Error& e) {
    refused = e.what();
  }
  return searches;
}

}  // namespace qkv
