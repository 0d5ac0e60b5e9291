// The registry of model families: how a Hugging Face config.json and its weight names map to a ModelSpec and
// the engine's parameter names. A family is one file, named by its model_type; *_parts hold the pieces that
// several share; new mathematics belongs in nn/.
#pragma once

#include <string>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/models/spec.h"

namespace qkv {

// A parameter in the engine and in the file.
struct WeightName {
  std::string engine;
  std::string file;         // empty: no file has these rows, which are 0 (biases that a family lacks)
  bool transposed = false;  // the file stores [in, out]
  // The rows of the engine's parameter that the file's tensor has: files store queries, keys and values
  // apart. rows 0: all.
  int64_t first_row = 0, rows = 0;
  int64_t unused = 0;               // rows before them that only the file has (positions that no token takes)
  std::string also = "";            // another name that files have for it
  std::vector<int64_t> shape = {};  // the file's, where it has these elements in another one
  std::vector<int64_t> row_order = {};  // of the engine's rows, which the file's is; empty: the same
  bool optional = false;                // 0 where a file does not have it
};

// How one kind of model directory is read and written: its config.json and its names of tensors.
struct Family {
  std::string model_type;
  // Throws Error naming the file and the field for what is missing, mistyped or not supported.
  ModelSpec (*read_config)(const JsonField& config);
  OrderedJson (*write_config)(const ModelSpec& spec);
  // True when the family's config.json can say everything about this spec.
  bool (*expresses)(const ModelSpec& spec);
  std::vector<WeightName> (*weights)(const ModelSpec& spec);
  // A prefix that files of the bare model leave out.
  std::string prefix;
  // True for tensors that files carry though they are no parameters (masks, say).
  bool (*ignores)(const ModelSpec& spec, const std::string& name);
  Activation pooler = Activation::tanh;  // of a new classifier's
  // A decoder's class that "architectures" names, and the tensor of one that tells the classes of sequences;
  // empty: there is none, or the config's reader looks itself.
  std::string language_model = "", classifier = "";
  Pooling pooling = Pooling::first;  // of an encoder's new classifier, whose pooler reads that
};

// Reads and writes a config.json of this family, heads included. Throws Error naming the file and the field.
ModelSpec spec_of(const Family& family, const JsonField& config);
OrderedJson config_of(const Family& family, const ModelSpec& spec);
std::vector<WeightName> weights_of(const Family& family, const ModelSpec& spec);

// The family that a config.json's model_type names. Throws Error listing those that are supported.
const Family& family_of(const JsonField& config);
// The family whose config.json describes this spec: spec.family or the first that expresses it, else "qkv".
const Family& family_for(const ModelSpec& spec);

// Each in the file that its model_type names; native_family(), "qkv", takes any spec that no other can
// express.
const Family& gpt2_family();
const Family& gpt_neo_family();
const Family& gptj_family();
const Family& gpt_neox_family();
const Family& gpt_bigcode_family();
const Family& opt_family();
const Family& bloom_family();
const Family& falcon_family();
const Family& mpt_family();
const Family& ctrl_family();
const Family& xglm_family();

const Family& llama_family();
const Family& mistral_family();
const Family& mixtral_family();
const Family& qwen2_family();
const Family& qwen2_moe_family();
const Family& gemma_family();
const Family& gemma2_family();
const Family& phi_family();
const Family& phi3_family();
const Family& olmo_family();
const Family& olmo2_family();
const Family& stablelm_family();
const Family& starcoder2_family();
const Family& granite_family();
const Family& cohere_family();
const Family& deepseek_v2_family();
const Family& deepseek_v3_family();

const Family& bert_family();
const Family& roberta_family();
const Family& distilbert_family();
const Family& albert_family();
const Family& electra_family();
const Family& big_bird_family();
const Family& longformer_family();
const Family& deberta_v2_family();
const Family& xlnet_family();

const Family& t5_family();
const Family& switch_family();
const Family& bart_family();
const Family& mbart_family();
const Family& pegasus_family();
const Family& marian_family();
const Family& m2m100_family();
const Family& whisper_family();

const Family& vit_family();
const Family& deit_family();

const Family& reformer_family();

const Family& native_family();

}  // namespace qkv
