// What the tables of several families are made of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "qkv/io/family/family.h"

namespace qkv {

inline constexpr int64_t kMostOfConfig = int64_t{1} << 40;  // check_spec() knows the real bounds

// The activation that a config.json names at `key`. Throws Error naming the field for another.
Activation read_activation(const JsonField& config, const char* key, const char* otherwise);
// Its name there.
const char* config_name_of(Activation activation);

// What says how angles are scaled: the key rope_scaling, in newer files rope_parameters, with the base in it.
std::optional<JsonField> rotary_scaling_of(const JsonField& config);
// Reads that, where it is there. `context`: what the model was trained with. Throws Error naming
// the field for a kind that is not supported.
void read_rotary_scaling(const JsonField& config, int64_t context, RotarySpec& rotary);
// Likewise LongRoPE's lists, whatever type is named. `otherwise`: the original context, where the config does
// not say it; 0: `context`, lengthened by the scaling's factor.
void read_longrope(const JsonField& config, const JsonField& scaling, int64_t context, int64_t otherwise,
                   RotarySpec& rotary);
// Its value; null where there is no scaling.
OrderedJson rotary_scaling_json(const RotarySpec& rotary);
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

// What BERT and its kin share; `base`: of the classes' names. `unused`: positions that no token takes.
ModelSpec read_bert_like(const JsonField& config, const std::string& base, int64_t unused);
OrderedJson write_bert_like(const ModelSpec& spec, const char* type, const std::string& base, int64_t unused);
// Whether that says all, but for the positions, patterns and segments.
bool is_bert(const ModelSpec& spec);
// RoBERTa counts positions from pad_token_id + 1, and its head's activation is GELU whatever its blocks have.
ModelSpec read_roberta_like(const JsonField& config, const std::string& base);
OrderedJson write_roberta_like(const ModelSpec& spec, const char* type, const std::string& base);
// The number of the first position, of a config.json, as a ModelSpec says it; and its rows before that.
int64_t read_first_position(const JsonField& config);
int64_t rows_before_first(const ModelSpec& spec);
// A head before an unembedding whose activation is this, whatever the blocks have.
void set_head_activation(ModelSpec& spec, Activation activation);

// Whether a decoder has a head that "architectures" can name: an unembedding, or classes of the last token.
bool has_decoder_head(const ModelSpec& spec);

// Collects the names of one model's weights.
struct WeightNames {
  std::vector<WeightName> all;
  bool bias = true;  // products and norms have one

  void tensor(const std::string& engine, const std::string& file) { all.push_back({engine, file}); }
  // The unembedding, where it is not the embedding once more.
  void untied(const ModelSpec& spec, const std::string& file) {
    if (!spec.tied) tensor("unembedding.weight", file);
  }
  void linear(const std::string& engine, const std::string& file) { parts(engine, {file}, {0}); }
  // Old files say gamma and beta.
  void norm(const std::string& engine, const std::string& file);
  // The parts of one fused projection, of so many rows each; 0: all there are.
  void parts(const std::string& engine, const std::vector<std::string>& files,
             const std::vector<int64_t>& rows);
};

}  // namespace qkv
