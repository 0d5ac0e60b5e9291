// The pieces that the tables of families are made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/io/family/family.h"

namespace qkv {

inline constexpr int64_t kMost = int64_t{1}
                                 << 40;  // of a config.json's numbers; check_spec() knows the real bounds

// The activation that a config.json names at `key`. Throws Error naming the field for another.
Activation read_activation(const JsonField& config, const char* key, const char* otherwise);
// Its name there.
const char* config_name_of(Activation activation);
// A number; null for 0, which says that there is no such limit or part.
OrderedJson number_or_null(int64_t number);
OrderedJson number_or_null(float number);

// The field that says how angles are scaled: the key rope_scaling, in newer files rope_parameters, with the
// base in it.
std::optional<JsonField> rotary_scaling_of(const JsonField& config);
// Reads that, if it is there. `context`: what the model was trained with. Throws Error naming
// the field for a kind that is not supported.
void read_rotary_scaling(const JsonField& config, int64_t context, RotarySpec& rotary);
// Likewise LongRoPE's lists, whatever type is named. `otherwise`: the original context, where the config does
// not say it; 0: `context`, lengthened by the scaling's factor.
void read_longrope(const JsonField& config, const JsonField& scaling, int64_t context, int64_t otherwise,
                   RotarySpec& rotary);
// Writes rope_scaling, if there is any.
void write_rotary_scaling(const RotarySpec& rotary, OrderedJson& config);
// The columns of a head that a fraction of them means, and that fraction.
int64_t read_rotated(const JsonField& config, const char* key, double otherwise, int64_t head_width);
double rotated_part(const AttentionSpec& attention);

// Reads the head that a config.json's "architectures" names, of classes named BASEForMaskedLM and so on.
void read_head(const JsonField& config, const std::string& base, ModelSpec& spec);
// That name, without the base.
std::string head_name(const ModelSpec& spec);
// The names of its classes, as a config.json has them.
std::vector<std::string> read_labels(const JsonField& config);
// The classes of such a head.
void write_labels(const ModelSpec& spec, OrderedJson& config);

// RoBERTa and M2M-100 count positions from pad_token_id + 1: that number as a ModelSpec says it, and the rows
// before it.
int64_t read_first_position(const JsonField& config);
int64_t rows_before_first(const ModelSpec& spec);

// True for a decoder with a head that "architectures" can name: an unembedding, or classes of the last token.
bool has_decoder_head(const ModelSpec& spec);

// The shortest list that, repeated, gives this one.
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

// The tensors of a masked language model's head; `unembedding` is not written where it is tied.
struct MaskedHeadNames {
  const char *dense, *norm, *bias, *unembedding;
};

// Collects the names of one model's weights.
struct WeightNames {
  std::vector<WeightName> all;
  bool bias = true;  // products and norms have one

  void tensor(const std::string& engine, const std::string& file) { all.push_back({engine, file}); }
  // The unembedding, unless it is the embedding once more.
  void untied(const ModelSpec& spec, const std::string& file) {
    if (!spec.tied) tensor("unembedding.weight", file);
  }
  void linear(const std::string& engine, const std::string& file) { parts(engine, {file}, {0}); }
  // Old files say gamma and beta.
  void norm(const std::string& engine, const std::string& file);
  // The parts of one fused projection, of so many rows each; 0: all there are.
  void parts(const std::string& engine, const std::vector<std::string>& files,
             const std::vector<int64_t>& rows);
  void masked_head(const ModelSpec& spec, const MaskedHeadNames& names);
};

}  // namespace qkv
