// Adapters in PEFT's format: adapter_config.json and adapter_model.safetensors, for a model in another
// directory.
#pragma once

#include <memory>
#include <string>

#include "qkv/base/json.h"
#include "qkv/models/transformer.h"

namespace qkv {

// True if a directory holds an adapter.
bool is_adapter_dir(const std::string& dir);

// Path of the file `name` in a directory; if an adapter's directory lacks it, that in its model's
// directory.
std::string beside_or_base(const std::string& dir, const std::string& name);

// Reads DIR/adapter_config.json; `base` becomes a path that can be opened from the current directory.
// Throws Error naming an unsupported field.
LoraSpec read_adapter_config(const std::string& dir);

// The adapters that spec.lora's targets select in this model. "all-linear" selects all products of its
// blocks. Other targets are modules by their names in the family's files, or by the ends of these
// ("q_proj"). Throws Error if a target selects none.
std::vector<AdapterSpec> adapters_of(const ModelSpec& spec);

// The config.json of an adapter's model, with the head that the adapter was trained with (task_type) if it
// differs. The classes of that head are those of the adapter's weights.
Json config_with_head(const std::string& dir, Json config);

// Loads the weights of an adapter's directory into a model built from its spec. All other values are shared
// with `base` and frozen.
void load_adapters(const std::string& dir, Transformer& model, const Transformer& base);

// The weights of an adapter's directory for a model, which stays as it is: for requests that name them
// (infer/request.h). `model`: that of the directory's adapter_config.json, or one of its shape. Throws Error
// where the adapter does not fit, or has other weights beside its products, such as a head.
std::shared_ptr<const AdapterWeights> load_adapter_weights(const std::string& dir, const Transformer& model);

// Writes both files into an existing directory: the adapters, and all other weights that are not frozen.
void save_adapters(const std::string& dir, const Transformer& model);

// The change of one product, scale B A, as its file has it: the module's name in the family's files, A [rank,
// in] and B [out, rank] in f32, with B's rows in the order of those files.
struct AdapterModule {
  std::string name;
  Tensor a, b;
  float scale = 1;
};

// The modules of an adapter's directory, without its model's weights. Throws Error if it has others beside
// them, such as a head.
std::vector<AdapterModule> read_adapter_modules(const std::string& dir);

// Writes both files of an adapter for the model in spec.lora.base. Scales are those of spec.lora, which must
// select these modules and no others.
void write_adapter_modules(const std::string& dir, const ModelSpec& spec,
                           const std::vector<AdapterModule>& modules);

// Merges the adapters into the model's weights.
std::unique_ptr<Transformer> merged(const Transformer& model);

}  // namespace qkv
