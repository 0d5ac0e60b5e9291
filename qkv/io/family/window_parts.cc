#include "qkv/io/family/window_parts.h"

#include <algorithm>
#include <utility>

#include "qkv/base/json_value.h"

namespace qkv {

void read_window(const JsonField& c, ModelSpec& s, int64_t otherwise) {
  if (c.object().contains("sliding_window")) otherwise = 0;
  if (const int64_t w = c.integer_or("sliding_window", otherwise, 1, kMost); w > 0)
    s.attention.patterns = {{.window = w}};
}

OrderedJson window_json(const ModelSpec& s) {
  return s.attention.patterns.empty() ? OrderedJson(nullptr) : OrderedJson(s.attention.patterns[0].window);
}

namespace {

const Pattern& pattern_of(const ModelSpec& s, int64_t layer) {
  return s.attention.patterns[static_cast<size_t>(layer) % s.attention.patterns.size()];
}

// Patterns of all layers in the form of a spec.
std::vector<Pattern> in_turn(std::vector<Pattern> of_layers) {
  std::vector<Pattern> run = shortest_run(std::move(of_layers));
  if (run == std::vector<Pattern>{{}}) run.clear();
  return run;
}

}  // namespace

void read_layer_windows(const JsonField& c, ModelSpec& s) {
  if (c.boolean_or("use_sliding_window", false)) read_window(c, s, 4096);
  const std::vector<Pattern> of_all = std::exchange(s.attention.patterns, {});
  const Pattern window = of_all.empty() ? Pattern() : of_all[0];
  std::vector<Pattern> of_layers;
  constexpr int64_t kMostLayers = 4096;  // check_spec() rejects more
  if (const auto types = c.find("layer_types")) {
    check(static_cast<int64_t>(types->size()) == s.layers, "{}: {} types for {} layers", types->place(),
          types->size(), s.layers);
    for (int64_t l = 0; l < std::min(s.layers, kMostLayers); ++l) {
      const JsonField type = types->at(static_cast<size_t>(l));
      const bool windowed = type.string() == kWindowed;
      check(windowed || type.string() == kFull, "{}: '{}' is not supported ({} and {} are)", type.place(),
            type.string(), kWindowed, kFull);
      check(!windowed || window != Pattern(), "{}: {} needs use_sliding_window and a sliding_window",
            type.place(), kWindowed);
      of_layers.push_back(windowed ? window : Pattern());
    }
  } else {
    const int64_t first = c.integer_or("max_window_layers", 28, 0, kMost);
    for (int64_t l = 0; l < std::min(s.layers, kMostLayers); ++l)
      of_layers.push_back(l >= first ? window : Pattern());
  }
  s.attention.patterns = in_turn(std::move(of_layers));
}

OrderedJson layer_types(const ModelSpec& s) {
  OrderedJson types = OrderedJson::array();
  for (int64_t l = 0; l < s.layers; ++l) types.push_back(pattern_of(s, l) == Pattern() ? kFull : kWindowed);
  return types;
}

void write_layer_windows(const ModelSpec& s, OrderedJson& c) {
  int64_t first = 0;  // first layer with a window
  while (!s.attention.patterns.empty() && first < s.layers && pattern_of(s, first) == Pattern()) ++first;
  const bool windows = !s.attention.patterns.empty() && first < s.layers;
  c["use_sliding_window"] = windows;
  if (!windows) return;
  c["sliding_window"] = pattern_of(s, first).window;
  c["max_window_layers"] = first;
  bool all_above = true;
  for (int64_t l = first; l < s.layers; ++l) all_above = all_above && pattern_of(s, l) != Pattern();
  if (!all_above) c["layer_types"] = layer_types(s);
}

}  // namespace qkv
