// The registry of model families: maps a Hugging Face config.json and its weight names to a ModelSpec and
// the engine's parameter names. Each family is in one file, named by its model_type; *_parts hold parts
// that several share. New mathematics belongs in nn/.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/models/spec.h"

namespace qkv {

// A parameter in the engine and in the file.
struct WeightName {
  std::string engine;
  std::string file;         // empty: not in files, and 0 (biases that a family lacks)
  bool transposed = false;  // the file stores [in, out]
  // The rows of the engine's parameter that are in the file's tensor, because files store queries, keys and
  // values separately. rows 0: all.
  int64_t first_row = 0, rows = 0;
  int64_t unused = 0;                   // additional first rows of the file (positions that no token has)
  std::string also = "";                // another name used by some files
  std::vector<int64_t> shape = {};      // shape in the file, if it differs
  std::vector<int64_t> row_order = {};  // row of the file for each row of the engine; empty: the same order
  bool optional = false;                // 0 if a file lacks it
  bool drawn = false;                   // drawn as for training, with seed 0, if a file lacks it
  int64_t matrices = 1;                 // so many matrices one below the other, each transposed
};

// A tensor of a file that is a copy of another one.
struct TensorCopy {
  std::string name, of;
};

// Reads and writes one kind of model directory: its config.json and its tensor names.
struct Family {
  std::string model_type;
  // Throws Error naming the file and a field that is missing, mistyped or unsupported.
  ModelSpec (*read_config)(const JsonField& config);
  OrderedJson (*write_config)(const ModelSpec& spec);
  // True if the family's config.json can express the whole spec.
  bool (*expresses)(const ModelSpec& spec);
  std::vector<WeightName> (*weights)(const ModelSpec& spec);
  // A prefix that files of the bare model omit.
  std::string prefix;
  // True for tensors that files contain although they are not parameters (masks, for example).
  bool (*ignores)(const ModelSpec& spec, const std::string& name);
  Activation pooler = Activation::tanh;  // activation of a new classifier's pooler
  // A decoder's class in "architectures", and the tensor of its sequence classifier. Empty: there is none,
  // or read_config() handles it.
  std::string language_model = "", classifier = "";
  Pooling pooling = Pooling::first;  // pooling of an encoder's new classifier
  bool rotates_by_type = false;      // reads rope_parameters for each type of layers
  // The release that it was compared with fills the rows of a search that have ended with the end token if
  // the padding token is 0.
  bool fills_with_ends = false;
  // The name of the class with a sequence classifier before "For..."; empty: that of the language model.
  std::string classes_named = "";
  // Tensors that files have beside the parameters, as copies of others; null: none.
  std::vector<TensorCopy> (*copies)(const ModelSpec& spec) = nullptr;
};

// Reads and writes a config.json of this family, including heads. Throws Error naming the file and the
// field.
ModelSpec spec_of(const Family& family, const JsonField& config);
OrderedJson config_of(const Family& family, const ModelSpec& spec);
std::vector<WeightName> weights_of(const Family& family, const ModelSpec& spec);

// The family of a model_type; null: qkv does not read it.
const Family* find_family(std::string_view model_type);
// The family of a config.json's model_type. Throws Error listing the supported ones, and the one of almost
// the same name.
const Family& family_of(const JsonField& config);
// The family whose config.json describes this spec: spec.family or the first that expresses it, else "qkv".
const Family& family_for(const ModelSpec& spec);

// Each is in the file named by its model_type; native_family(), "qkv", accepts any spec that no other can
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
const Family& qwen3_family();
const Family& qwen3_moe_family();
const Family& gemma3_text_family();
const Family& gemma4_text_family();
const Family& olmo3_family();
const Family& cohere2_family();
const Family& exaone4_family();
const Family& smollm3_family();
const Family& ministral_family();
const Family& seed_oss_family();
const Family& ernie4_5_family();
const Family& ernie4_5_moe_family();
const Family& glm_family();
const Family& glm4_family();
const Family& glm4_moe_family();
const Family& granitemoe_family();
const Family& nemotron_family();
const Family& hunyuan_v1_dense_family();
const Family& gpt_oss_family();
const Family& ministral3_family();
const Family& llama4_text_family();
const Family& apertus_family();
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
const Family& modernbert_family();
const Family& mpnet_family();
const Family& roformer_family();
const Family& deberta_family();

const Family& t5_family();
const Family& switch_family();
const Family& umt5_family();
const Family& t5gemma_family();
const Family& bart_family();
const Family& mbart_family();
const Family& pegasus_family();
const Family& led_family();
const Family& marian_family();
const Family& m2m100_family();
const Family& whisper_family();

const Family& vit_family();
const Family& deit_family();

const Family& mamba_family();
const Family& rwkv_family();
const Family& mamba2_family();
const Family& jamba_family();
const Family& granitemoehybrid_family();
const Family& qwen3_next_family();
const Family& qwen3_5_text_family();
const Family& lfm2_family();

const Family& reformer_family();
const Family& perceiver_family();

const Family& native_family();

}  // namespace qkv
