// Shared parts of model families.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/io/family/family.h"

namespace qkv {

inline constexpr int64_t kMost = int64_t{1} << 40;  // bound for a config.json; check_spec() is stricter

// The activation at `key` of a config.json. Throws Error naming the field if it is unsupported.
Activation read_activation(const JsonField& config, const char* key, const char* otherwise);
// The name of an activation in config.json.
const char* config_name_of(Activation activation);
// A number; null for 0, which means no such limit or part.
OrderedJson number_or_null(int64_t number);
OrderedJson number_or_null(float number);

// The field with the scaling of angles: rope_scaling, or rope_parameters in newer files, which also has the
// base. `layer_type`, if given: newer files may have such a field for each type of layers.
std::optional<JsonField> rotary_scaling_of(const JsonField& config, const char* layer_type = nullptr);
// Reads that field, if present. `context`: the context the model was trained with. Throws Error naming the
// field for an unsupported kind.
void read_rotary_scaling(const JsonField& config, int64_t context, RotarySpec& rotary,
                         const char* layer_type = nullptr);
// The same of layers whose angles are never scaled; nothing if there is no field for this type of layers.
std::optional<JsonField> plain_rotary_of(const JsonField& config, const char* layer_type);
// Throws Error if rope_parameters has fields for types of layers.
void expect_one_rotation(const JsonField& config);
// True if the config has neither rope_scaling nor rope_parameters, so that a family's default holds; null
// means none.
bool says_no_scaling(const JsonField& config);
// Sets the base if the config has none: a family's default other than 10000.
void default_rotary_base(const JsonField& config, double base, RotarySpec& rotary);
// YaRN's factor on cosines and sines (its mscale).
double yarn_magnitude(double factor, double weight);
// Reads LongRoPE's lists, whatever type is named. `otherwise`: the original context if the config lacks it;
// 0: `context`, lengthened by the scaling's factor.
void read_longrope(const JsonField& config, const JsonField& scaling, int64_t context, int64_t otherwise,
                   RotarySpec& rotary);
// The value of rope_parameters, as transformers 5 writes it.
OrderedJson rotary_parameters(const RotarySpec& rotary);
// Writes rope_scaling, if the angles are scaled.
void write_rotary_scaling(const RotarySpec& rotary, OrderedJson& config);
// The number of rotated columns of a head, given as a fraction (in newer files in rope_parameters), and that
// fraction.
int64_t read_rotated(const JsonField& config, const char* key, double otherwise, int64_t head_width);
double rotated_part(const AttentionSpec& attention);

// Reads the head from a config.json's "architectures", with classes named BASEForMaskedLM and so on.
void read_head(const JsonField& config, const std::string& base, ModelSpec& spec);
// That class name without the base.
std::string head_name(const ModelSpec& spec);
// The labels in a config.json.
std::vector<std::string> read_labels(const JsonField& config);
// Writes the labels of such a head.
void write_labels(const ModelSpec& spec, OrderedJson& config);

// RoBERTa and M2M-100 count positions from pad_token_id + 1: that number as in a ModelSpec, and the number
// of rows before it.
int64_t read_first_position(const JsonField& config);
int64_t rows_before_first(const ModelSpec& spec);

// True for a decoder with a head that "architectures" can express: an unembedding, or classes of the last
// token.
bool has_decoder_head(const ModelSpec& spec);

// The shortest list whose repetition gives this one.
template <typename T>
std::vector<T> shortest_run(std::vector<T> all) {
  const auto repeats = [&](size_t n) {
    for (size_t i = n; i < all.size(); ++i)
      if (all[i] != all[i - n]) return false;
    return true;
  };
  size_t n = 1;
  while (n < all.size() && !repeats(n)) ++n;
  if (n < all.size()) all.resize(n);
  return all;
}

// The tensors of a masked language model's head; `unembedding` is not written if it is tied.
struct MaskedHeadNames {
  const char *dense, *norm, *bias, *unembedding;
};

// Collects the names of one model's weights.
struct WeightNames {
  std::vector<WeightName> all;
  bool bias = true;  // products and norms have a bias

  void tensor(const std::string& engine, const std::string& file) { all.push_back({engine, file}); }
  // Adds the unembedding unless it is tied to the embedding.
  void untied(const ModelSpec& spec, const std::string& file) {
    if (!spec.tied) tensor("unembedding.weight", file);
  }
  void linear(const std::string& engine, const std::string& file) { parts(engine, {file}, {0}); }
  // Old files have gamma and beta.
  void norm(const std::string& engine, const std::string& file);
  // Adds the parts of one fused projection with these numbers of rows; 0: all.
  void parts(const std::string& engine, const std::vector<std::string>& files,
             const std::vector<int64_t>& rows);
  void masked_head(const ModelSpec& spec, const MaskedHeadNames& names);
};

}  // namespace qkv
