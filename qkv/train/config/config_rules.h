// What the keys of a configuration ask of each other.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "qkv/base/error.h"
#include "qkv/train/config/config.h"

namespace qkv {

// Throws UsageError.
template <typename... Args>
[[noreturn]] void usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

// What is known of a configuration besides its values.
struct ReadConfig {
  const std::string& path;                        // of its file, for errors
  const ModelSpec& from;                          // of the model that the run begins with, where there is one
  std::function<bool(const std::string&)> given;  // whether a key was: "model.width"
  // True for a key that a person or a program wanted, and not qkv, which writes every key into a run's
  // config.toml.
  std::function<bool(const std::string&)> chosen;
  std::function<bool(const std::string&)> overridden;  // by --set
  double warmup_fraction;                              // where that was given
  // Reads [model.kind.NAME], for which the model's own block must be known.
  std::function<void(ModelSpec&)> read_kinds;
};

// Derives what was not given from what was. Throws UsageError where keys do not fit each other.
void resolve(TrainConfig& config, const ReadConfig& read);

}  // namespace qkv
