#include "qkv/io/gguf/rotary.h"

#include <cmath>
#include <numbers>
#include <optional>

#include "qkv/base/json_value.h"

namespace qkv {
namespace {

constexpr int64_t kMostLayers = 4096;
constexpr const char *kFreqs = "rope_freqs.weight", *kLong = "rope_factors_long.weight",
                     *kShort = "rope_factors_short.weight";
constexpr const char* kOriginal = "original_max_position_embeddings";

bool nearly(double a, double b) {
  return std::abs(a - b) <= 1e-6 * std::max(std::abs(a), std::abs(b));
}

bool all_nearly(const std::vector<double>& a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    if (!nearly(a[i], b[i])) return false;
  return a.size() == b.size();
}

// The fraction that, times the whole and cut off, is the part.
double fraction_of(int64_t part, int64_t whole) {
  double f = static_cast<double>(part) / static_cast<double>(whole);
  if (static_cast<int64_t>(f * static_cast<double>(whole)) < part) f = std::nextafter(f, 1.0);
  return f;
}

// Rotated columns of a head, of a config as families write it.
int64_t rotated_width(const Json& c, const GgufRotary& rotary) {
  const int64_t head = c.at("head_dim").get<int64_t>();
  if (rotary.part == nullptr) return head;
  return std::llround(c.at(rotary.part).get<double>() * static_cast<double>(head));
}

// The factor on cosines and sines that YaRN has by itself, and that of LongRoPE.
double yarn_factor(double factor) {
  return factor > 1 ? 0.1 * std::log(factor) + 1 : 1;
}
double longrope_factor(double context, double original) {
  return context <= original ? 1 : std::sqrt(1 + std::log(context / original) / std::log(original));
}

// The original context with which Llama 3's usual settings give these factors.
std::optional<Llama3Scaling> llama3_of(const std::vector<double>& factors, double base, int64_t context) {
  if (factors.empty()) return std::nullopt;
  for (int64_t original = 1; original <= context; original *= 2) {
    const Llama3Scaling scaling = {
        .factor = factors.back(), .low = 1, .high = 4, .original_context = original};
    if (all_nearly(llama3_factors(base, 2 * std::ssize(factors), scaling), factors)) return scaling;
  }
  return std::nullopt;
}

// rope_scaling for rope_freqs.
Json read_freqs(const GgufKeys& keys, double base, int64_t context) {
  const std::vector<double> factors = keys.numbers_of_tensor(kFreqs);
  if (const auto s = llama3_of(factors, base, context))
    return {{"rope_type", "llama3"},
            {"factor", s->factor},
            {"low_freq_factor", s->low},
            {"high_freq_factor", s->high},
            {kOriginal, s->original_context}};
  return {{"rope_type", "longrope"},
          {"short_factor", factors},
          {"long_factor", factors},
          {"attention_factor", 1.0}};
}

// rope_scaling for lists of factors; the original context stands beside it.
Json read_longrope(const GgufKeys& keys, int64_t context, Json& c) {
  const int64_t original = keys.integer("rope.scaling.original_context_length");
  c[kOriginal] = original;
  Json scaling = {{"type", "longrope"},
                  {"short_factor", keys.numbers_of_tensor(kShort)},
                  {"long_factor", keys.numbers_of_tensor(kLong)}};
  const double usual = longrope_factor(static_cast<double>(context), static_cast<double>(original)),
               given = keys.number_or("rope.scaling.attn_factor", usual);
  if (!nearly(given, usual)) scaling["attention_factor"] = given;
  return scaling;
}

Json read_yarn(const GgufKeys& keys, double factor, int64_t context) {
  check(keys.number_or("rope.scaling.yarn_ext_factor", 1) == 1, "{}: key '{}': only 1 is supported",
        keys.file().path, keys.full("rope.scaling.yarn_ext_factor"));
  Json scaling = {{"rope_type", "yarn"},
                  {"factor", factor},
                  {"beta_fast", keys.number_or("rope.scaling.yarn_beta_fast", 32)},
                  {"beta_slow", keys.number_or("rope.scaling.yarn_beta_slow", 1)},
                  {kOriginal, keys.integer_or("rope.scaling.original_context_length", context)}};
  const double usual = yarn_factor(factor);
  double given = usual * keys.number_or("rope.scaling.attn_factor", 1);
  if (keys.has("rope.scaling.yarn_attn_factor")) given = keys.number("rope.scaling.yarn_attn_factor");
  if (!nearly(given, usual)) scaling["attention_factor"] = given;
  return scaling;
}

Json read_scaling(const GgufKeys& keys, double base, int64_t context, Json& c) {
  const std::string type = keys.text_or("rope.scaling.type", "none");
  const double factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 1));
  if (keys.has_tensor(kLong)) return read_longrope(keys, context, c);
  if (keys.has_tensor(kFreqs)) return read_freqs(keys, base, context);
  if (type == "yarn") return read_yarn(keys, factor, context);
  // Phi-3 without lists, and files without a scaling, may name the context.
  keys.integer_or("rope.scaling.original_context_length", context);
  check(type == "none" || type == "linear",
        "{}: key '{}': '{}' is not supported here (none, linear, yarn are)", keys.file().path,
        keys.full("rope.scaling.type"), type);
  check(nearly(keys.number_or("rope.scaling.attn_factor", 1), 1),
        "{}: key '{}': only 1 is supported for '{}'", keys.file().path, keys.full("rope.scaling.attn_factor"),
        type);
  // A factor without a type is linear.
  const bool none = type == "none" && keys.has("rope.scaling.type");
  return none || factor == 1 ? Json(nullptr) : Json{{"rope_type", "linear"}, {"factor", factor}};
}

}  // namespace

std::vector<double> llama3_factors(double base, int64_t width, const Llama3Scaling& s) {
  const auto original = static_cast<double>(s.original_context);
  std::vector<double> factors;
  for (int64_t i = 0; i < width; i += 2) {
    const double turns = std::pow(base, -static_cast<double>(i) / static_cast<double>(width)) * original /
                         (2 * std::numbers::pi);
    const double smooth = (turns - s.low) / (s.high - s.low);
    factors.push_back(turns > s.high ? 1 : turns < s.low ? s.factor : 1 / ((1 - smooth) / s.factor + smooth));
  }
  return factors;
}

void read_gguf_rotary(const GgufKeys& keys, const GgufArchitecture& a, Json& c) {
  const GgufRotary& rotary = a.rotary;
  if (rotary.base == nullptr) return;
  const int64_t head = c.at("head_dim").get<int64_t>(),
                context = c.at("max_position_embeddings").get<int64_t>();
  if (!rotary.own_width) {
    const int64_t width = keys.integer_or("rope.dimension_count", head);
    check(width > 0 && width <= head && (rotary.part != nullptr || width == head),
          "{}: key '{}': {} rotated columns of {} are not supported for {}", keys.file().path,
          keys.full("rope.dimension_count"), width, head, a.name);
    if (rotary.part != nullptr) c[rotary.part] = fraction_of(width, head);
  }
  const double base = keys.number_or("rope.freq_base", 10000);
  c[rotary.base] = base;
  if (Json scaling = read_scaling(keys, base, context, c); !scaling.is_null())
    c["rope_scaling"] = std::move(scaling);
}

void write_gguf_rotary(const Json& c, const GgufArchitecture& a, GgufKeyWriter& keys) {
  const GgufRotary& rotary = a.rotary;
  if (rotary.base == nullptr) return;
  const int64_t width = rotated_width(c, rotary);
  if (!rotary.own_width) keys.integer("rope.dimension_count", width);
  const double base = c.at(rotary.base).get<double>();
  keys.number("rope.freq_base", base);
  const auto found = c.find("rope_scaling");
  if (found == c.end() || found->is_null()) return;
  const Json& s = *found;
  const auto type = s.value("rope_type", s.value("type", std::string()));
  if (type == "llama3") {
    keys.tensor(kFreqs, llama3_factors(base, width,
                                       {.factor = s.at("factor").get<double>(),
                                        .low = s.at("low_freq_factor").get<double>(),
                                        .high = s.at("high_freq_factor").get<double>(),
                                        .original_context = s.at(kOriginal).get<int64_t>()}));
  } else if (type == "longrope") {
    const auto context = c.at("max_position_embeddings").get<int64_t>(),
               original = c.at(kOriginal).get<int64_t>();
    keys.text("rope.scaling.type", "longrope");
    keys.integer("rope.scaling.original_context_length", original);
    keys.number("rope.scaling.attn_factor",
                s.value("attention_factor",
                        longrope_factor(static_cast<double>(context), static_cast<double>(original))));
    keys.tensor(kLong, s.at("long_factor").get<std::vector<double>>());
    keys.tensor(kShort, s.at("short_factor").get<std::vector<double>>());
  } else if (type == "linear" || type == "yarn") {
    const double factor = s.at("factor").get<double>();
    keys.text("rope.scaling.type", type);
    keys.number("rope.scaling.factor", factor);
    if (type == "linear") return;
    keys.integer("rope.scaling.original_context_length", s.at(kOriginal).get<int64_t>());
    keys.number("rope.scaling.yarn_beta_fast", s.at("beta_fast").get<double>());
    keys.number("rope.scaling.yarn_beta_slow", s.at("beta_slow").get<double>());
    const double usual = yarn_factor(factor), given = s.value("attention_factor", usual);
    if (!nearly(given, usual)) keys.number("rope.scaling.attn_factor", given / usual);
  } else {
    fail("gguf: rope_scaling: '{}' is not supported in GGUF files (linear, yarn, llama3 and longrope are)",
         type);
  }
}

namespace {

bool is_windowed(int64_t layer, int64_t period) {
  return period == 0 || layer % period < period - 1;
}

}  // namespace

void read_gguf_windows(const GgufKeys& keys, const GgufArchitecture& a, Json& c) {
  if (a.windows.period == 0) return;
  const int64_t layers = c.at("num_hidden_layers").get<int64_t>();
  check(layers <= kMostLayers, "{}: key '{}': {} layers are more than {}", keys.file().path,
        keys.full("block_count"), layers, kMostLayers);
  const char* key = "attention.sliding_window_pattern";
  std::vector<int64_t> pattern = {a.windows.period};
  bool of_layers = false;
  if (keys.has(key)) {
    of_layers = keys.file().find(keys.full(key))->is_array;
    pattern = keys.integers(key);
    check(of_layers ? std::ssize(pattern) >= layers : pattern[0] >= 0,
          "{}: key '{}': expected a period or one value for each of {} layers", keys.file().path,
          keys.full(key), layers);
  }
  c["layer_types"] = Json::array();
  for (int64_t l = 0; l < layers; ++l) {
    const bool windowed = of_layers ? pattern[static_cast<size_t>(l)] != 0 : is_windowed(l, pattern.front());
    c["layer_types"].push_back(windowed ? "sliding_attention" : "full_attention");
  }
}

void write_gguf_windows(const Json& c, const GgufArchitecture& a, GgufKeyWriter& keys) {
  if (a.windows.period == 0 || !c.contains("layer_types")) return;
  const Json& types = c.at("layer_types");
  const auto layers = static_cast<int64_t>(types.size());
  const auto holds = [&](int64_t period) {
    for (int64_t l = 0; l < layers; ++l)
      if (is_windowed(l, period) != (types[static_cast<size_t>(l)] == "sliding_attention")) return false;
    return true;
  };
  if (holds(a.windows.period)) return;
  for (int64_t period = 0; period <= layers; ++period) {
    if (!holds(period)) continue;
    keys.integer("attention.sliding_window_pattern", period);
    return;
  }
  fail("gguf: layer_types: layers with a window must repeat with a period in GGUF files");
}

}  // namespace qkv
