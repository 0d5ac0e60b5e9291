// Shared parts of T5 and its relatives.
#pragma once

#include "qkv/io/family/family_parts.h"

namespace qkv {

// `projection`: feed_forward_proj if the field is absent.
ModelSpec read_t5(const JsonField& config, const char* projection = "relu");
OrderedJson write_t5(const ModelSpec& spec);
bool expresses_t5(const ModelSpec& spec);
// `network`: the name of the feed-forward network.
std::vector<WeightName> weights_named_as_t5(const ModelSpec& spec, const char* network);
bool is_extra_in_t5(const ModelSpec& spec, const std::string& name);

}  // namespace qkv
