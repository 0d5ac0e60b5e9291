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

constexpr int64_t kMostLayers = 4096;  // check_spec() rejects more

Pattern pattern_of(const ModelSpec& s, int64_t layer) {
  const std::vector<Pattern>& all = s.block(layer).attention.patterns;
  return all.empty() ? Pattern() : all[static_cast<size_t>(layer) % all.size()];
}

// Patterns of all layers in the form of a spec.
std::vector<Pattern> in_turn(std::vector<Pattern> of_layers) {
  std::vector<Pattern> run = shortest_run(std::move(of_layers));
  if (run == std::vector<Pattern>{{}}) run.clear();
  return run;
}

}  // namespace

std::vector<Pattern> read_two_sided_windows(const JsonField& c, int64_t layers, int64_t global) {
  const JsonField field = c["attention_window"];
  std::vector<int64_t> windows = {512};
  if (field.json().is_array())
    windows = field.integers(2, kMost);
  else
    windows = {field.integer(2, kMost)};
  check(windows.size() == 1 || std::ssize(windows) == layers,
        "{}: expected one number, or one of each of {} layers", field.place(), layers);
  std::vector<Pattern> patterns;
  for (const int64_t w : windows) {
    check(w % 2 == 0, "{}: expected even numbers, got {}", field.place(), w);
    patterns.push_back({.window = w / 2 + 1, .global = global});
  }
  return shortest_run(std::move(patterns));
}

OrderedJson two_sided_windows_json(const std::vector<Pattern>& patterns, int64_t layers) {
  OrderedJson windows = OrderedJson::array();
  for (int64_t l = 0; l < layers; ++l)
    windows.push_back(2 * (patterns[static_cast<size_t>(l) % patterns.size()].window - 1));
  return windows;
}

void add_global_projections(WeightNames& n, int64_t width, const std::string& engine,
                            const std::string& self) {
  n.linear(engine + "attention.global.q", self + "query_global");
  n.parts(engine + "attention.global.kv", {self + "key_global", self + "value_global"}, {width, width});
}

std::vector<bool> read_windowed(const JsonField& c, int64_t layers,
                                const std::function<bool(int64_t)>& otherwise) {
  std::vector<bool> out;
  const auto types = c.find("layer_types");
  check(!types || static_cast<int64_t>(types->size()) == layers, "{}: layer_types: {} types for {} layers",
        c.place(), types ? types->size() : 0, layers);
  for (int64_t l = 0; l < std::min(layers, kMostLayers); ++l) {
    if (!types) {
      out.push_back(otherwise(l));
      continue;
    }
    const JsonField type = types->at(static_cast<size_t>(l));
    const bool windowed = type.string() == kWindowed;
    check(windowed || type.string() == kFull, "{}: '{}' is not supported ({} and {} are)", type.place(),
          type.string(), kWindowed, kFull);
    out.push_back(windowed);
  }
  return out;
}

void give_block(ModelSpec& s, const std::vector<bool>& which, const std::string& name,
                const BlockSpec& block) {
  if (std::ranges::find(which, true) == which.end()) return;
  BlockSpec alike = block;
  alike.attention.patterns = s.attention.patterns;
  if (std::ranges::find(which, false) == which.end()) {
    static_cast<BlockSpec&>(s) = block;
  } else if (alike == static_cast<const BlockSpec&>(s)) {
    std::vector<Pattern> of_layers;
    for (const bool other : which) {
      const std::vector<Pattern>& p = other ? block.attention.patterns : s.attention.patterns;
      of_layers.push_back(p.empty() ? Pattern() : p[0]);
    }
    s.attention.patterns = in_turn(std::move(of_layers));
  } else {
    s.kinds.push_back({name, block});
    std::vector<std::string> names;
    for (const bool other : which) names.push_back(other ? name : kDefaultKind);
    s.layer_kinds = shortest_run(std::move(names));
  }
}

std::vector<bool> read_unrotated(const JsonField& c, int64_t layers) {
  const auto interval = c.integer_or("no_rope_layer_interval", 4, 1, kMost);
  std::vector<int64_t> rotates;
  if (const auto field = c.find("no_rope_layers")) {
    rotates = field->integers(0, 1);
    check(rotates.empty() || std::ssize(rotates) == layers, "{}: {} numbers for {} layers", field->place(),
          rotates.size(), layers);
  }
  std::vector<bool> out;
  for (int64_t l = 0; l < std::min(layers, kMostLayers); ++l)
    out.push_back(rotates.empty() ? (l + 1) % interval == 0 : rotates[static_cast<size_t>(l)] == 0);
  return out;
}

BlockSpec without_positions(const BlockSpec& block) {
  BlockSpec plain = block;
  plain.positions = Positions::none;
  plain.attention.rotary = {};
  return plain;
}

int64_t window_of(const ModelSpec& s, int64_t layer) {
  return pattern_of(s, layer).window;
}
int64_t first_window(const ModelSpec& s) {
  for (int64_t l = 0; l < s.layers; ++l)
    if (const int64_t w = window_of(s, l); w > 0) return w;
  return 0;
}

void read_layer_windows(const JsonField& c, ModelSpec& s) {
  if (c.boolean_or("use_sliding_window", false)) read_window(c, s, 4096);
  BlockSpec windowed = s;
  s.attention.patterns.clear();
  const int64_t first = c.find("layer_types") ? 0 : c.integer_or("max_window_layers", 28, 0, kMost);
  const std::vector<bool> which = read_windowed(c, s.layers, [&](int64_t l) { return l >= first; });
  const auto one = std::ranges::find(which, true);
  check(!c.find("layer_types") || one == which.end() || !windowed.attention.patterns.empty(),
        "{}: layer_types[{}]: {} needs use_sliding_window and a sliding_window", c.place(),
        one - which.begin(), kWindowed);
  give_block(s, which, "", windowed);
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
