// Architectures by name: what [model] says of them, to begin a configuration with.
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
  double hidden = 4;                // of the feed-forward network, in widths
  int64_t kv_share = 1;             // query heads that share keys and values; 0: all
  const char* objective = nullptr;  // where another than the architecture's own
};
std::span<const Preset> presets();
const Preset& preset_from_name(const std::string& name);  // Throws Error naming those there are.

// The size of a preset's blocks.
struct PresetSize {
  const char* name;
  int64_t width, layers, heads;
};
const PresetSize& preset_size_from_name(const std::string& name);

}  // namespace qkv
