// Named architectures, which supply [model] keys for a configuration.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qkv {

// A published architecture.
struct Preset {
  const char* name;
  const char* source;               // the paper
  const char* model;                // keys of [model], as TOML
  double hidden = 4;                // width of the feed-forward network as a multiple of the model's
  int64_t kv_share = 1;             // number of query heads that share keys and values; 0: all
  const char* objective = nullptr;  // null: the architecture's default
};
std::span<const Preset> presets();
const Preset& preset_from_name(const std::string& name);  // Throws Error naming the presets.

// The size of a preset's blocks.
struct PresetSize {
  const char* name;
  int64_t width, layers, heads;
};
const PresetSize& preset_size_from_name(const std::string& name);

}  // namespace qkv
