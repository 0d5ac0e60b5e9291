// Adapters as PEFT writes them: adapter_config.json and adapter_model.safetensors beside a model that stays
// where it is.
#pragma once

#include <memory>
#include <string>

#include "qkv/base/json.h"
#include "qkv/models/transformer.h"

namespace qkv {

// Whether a directory holds an adapter.
bool is_adapter_dir(const std::string& dir);

// Where a directory's file of this name is: in an adapter's, or else in its model's.
std::string beside_or_base(const std::string& dir, const std::string& name);

// What DIR/adapter_config.json says; `base` as it can be opened from here. Throws Error naming the field for
// what is not supported.
LoraSpec read_adapter_config(const std::string& dir);

// The changes that spec.lora's targets mean for this model: "all-linear" for all products of its blocks, else
// modules by their names in the family's files, or by the ends of those ("q_proj"). Throws Error where a
// target means none.
std::vector<AdapterSpec> adapters_of(const ModelSpec& spec);

// The config.json of an adapter's model with the head that the adapter was learnt with (task_type), where
// that is another: its classes are those of the adapter's weights.
Json config_with_head(const std::string& dir, Json config);

// The weights of an adapter's directory for a model made by its spec, whose other values are those of `base`,
// which it shares; these are frozen.
void load_adapters(const std::string& dir, Transformer& model, const Transformer& base);

// Writes both files into an existing directory: the adapters, and what else is not frozen.
void save_adapters(const std::string& dir, const Transformer& model);

// The model whose weights have the changes in them.
std::unique_ptr<Transformer> merged(const Transformer& model);

}  // namespace qkv
