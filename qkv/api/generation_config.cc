#include "qkv/api/generation_config.h"

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/io/adapter_dir.h"

namespace qkv {

void read_generation_config(const std::string& dir, GenerateOptions& options, BeamOptions& beam) {
  const std::string path = beside_or_base(dir, "generation_config.json");
  if (!file_exists(path)) return;
  const Json json = parse_json(read_file(path), path);
  const JsonField c(json, path);
  constexpr int64_t kMost = int64_t{1} << 31;
  SamplerOptions& s = options.sampler;
  const auto number = [&](const char* key, double& to) {
    if (const auto field = c.find(key)) to = field->number();
  };
  const auto integer = [&](const char* key, int64_t& to, int64_t least) {
    if (const auto field = c.find(key)) to = field->integer(least, kMost);
  };
  integer("max_new_tokens", options.max_new_tokens, 1);
  beam.max_new_tokens = options.max_new_tokens;
  if (c.boolean_or("do_sample", true)) {
    if (c.find("do_sample")) s.top_k = 50;  // Hugging Face's, where nothing else is said
    number("temperature", s.temperature);
    integer("top_k", s.top_k, 0);
    number("top_p", s.top_p);
    number("min_p", s.min_p);
    number("typical_p", s.typical_p);
  } else {
    s.temperature = 0;
  }
  number("repetition_penalty", s.repetition_penalty);
  if (const auto list = c.find("suppress_tokens"))
    for (const int64_t id : list->integers()) {
      check(id >= 0 && id < kMost, "{}: suppress_tokens: {} is no token's id", path, id);
      s.excluded.push_back(static_cast<int32_t>(id));
    }
  beam.excluded = s.excluded;
  integer("num_beams", beam.beams, 1);
  check(beam.beams <= 1024, "{}: num_beams: at most 1024, got {}", path, beam.beams);
  number("length_penalty", beam.length_penalty);
  if (const auto early = c.find("early_stopping"); early && early->json().is_boolean())
    beam.stop = early->boolean() ? BeamOptions::Stop::early : BeamOptions::Stop::exhaustive;
  integer("no_repeat_ngram_size", beam.no_repeat_ngram, 0);
  try {
    check_options(s);
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
}

}  // namespace qkv
