// The starting point of a run.
#pragma once

#include <optional>
#include <string>

#include "qkv/base/error.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"
#include "qkv/train/config/config.h"

namespace qkv {

// The model that a run starts from, or its own last checkpoint.
struct Origin {
  std::string dir;  // its directory
  text::Tokenizer tokenizer;
  SpecialIds ids;

  static Origin at(const std::string& dir) {
    return {dir, text::Tokenizer::load(dir), load_special_ids(dir)};
  }
  // The origin of a run that begins with one stack of this encoder-decoder.
  Origin part(Architecture stack) const {
    return {dir, stack == Architecture::encoder ? tokenizer.of_sources() : tokenizer.without_sources(),
            ids_of_part(ids, stack)};
  }
};

// The model that config.from names, or the stack of it that config.part names.
inline Origin unchanged_origin(const TrainConfig& config) {
  const Origin whole = Origin::at(resolve_model_dir(config.from));
  return config.part.empty() ? whole : whole.part(from_name<Architecture>(config.part));
}

// Origin of a configuration; nothing if the model is new. Throws Error naming what the directory lacks.
inline std::optional<Origin> origin_of(const TrainConfig& config) {
  if (config.from.empty()) return std::nullopt;
  Origin origin = unchanged_origin(config);
  check(config.tokenizer.add_special.empty() || !origin.tokenizer.has_own_sources(),
        "tokenizer.add_special: the model in {} has two vocabularies, which take no more tokens", origin.dir);
  origin.tokenizer = origin.tokenizer.with_special_tokens(config.tokenizer.add_special);
  return origin;
}

}  // namespace qkv
