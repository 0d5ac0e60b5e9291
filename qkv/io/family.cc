#include "qkv/io/family.h"

namespace qkv {
namespace {

const std::vector<const Family*>& registry() {
  static const std::vector<const Family*> families = {
      &gpt2_family(),       &bert_family(),        &roberta_family(),     &distilbert_family(),
      &t5_family(),         &bart_family(),        &marian_family(),      &mbart_family(),
      &pegasus_family(),    &albert_family(),      &electra_family(),     &llama_family(),
      &mistral_family(),    &qwen2_family(),       &gemma_family(),       &phi_family(),
      &phi3_family(),       &olmo_family(),        &olmo2_family(),       &stablelm_family(),
      &starcoder2_family(), &granite_family(),     &cohere_family(),      &gpt_neox_family(),
      &gptj_family(),       &falcon_family(),      &bloom_family(),       &mpt_family(),
      &gpt_neo_family(),    &gpt_bigcode_family(), &opt_family(),         &gemma2_family(),
      &mixtral_family(),    &qwen2_moe_family(),   &deepseek_v2_family(), &deepseek_v3_family(),
      &m2m100_family(),     &switch_family(),      &ctrl_family(),        &xglm_family(),
      &big_bird_family(),   &deberta_v2_family(),  &xlnet_family(),       &longformer_family(),
      &vit_family(),        &deit_family(),        &whisper_family(),     &reformer_family(),
      &native_family()};
  return families;
}

// The spec without what means nothing in it: no config.json has to say that.
ModelSpec essence(ModelSpec s) {
  const ModelSpec defaults;
  s.family.clear();
  s.lora = {};  // lies beside the model
  if (s.positions != Positions::relative) {
    s.relative_buckets = defaults.relative_buckets;
    if (s.positions != Positions::toeplitz) s.relative_distance = defaults.relative_distance;
  }
  if (s.positions != Positions::rotary) s.attention.rotary = {};
  if (!s.recurrence.any()) s.recurrence = {};
  s.init_std = defaults.init_std;                        // of fresh weights alone, and
  s.experts.choice_rate = defaults.experts.choice_rate;  // of training
  if (s.classes() == 0) s.head_dropout = 0;
  if (s.output == Output::tokens && s.labels.empty()) s.pooling = defaults.pooling;
  return s;
}

// Whether a family's config.json says all about a spec: what is read from it is what was written.
bool describes(const Family& family, const ModelSpec& spec) {
  if (&family == &native_family()) return true;
  if (!family.expresses(spec)) return false;
  try {
    const Json json = Json::parse(family.write_config(spec).dump());
    return essence(family.read_config(JsonField(json, "config.json"))) == essence(spec);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const Family& family_of(const JsonField& config) {
  const JsonField type = config["model_type"];
  check(type.string() != "clip", "{}: CLIP is two models, of texts and of images: qkv forward compares them",
        type.place());
  std::vector<std::string_view> known;
  for (const Family* f : registry()) {
    if (f->model_type == type.string()) return *f;
    known.push_back(f->model_type);
  }
  type.refuse_type(type.string(), known);
}

const Family& family_for(const ModelSpec& spec) {
  for (const Family* f : registry())
    if (f->model_type == spec.family && describes(*f, spec)) return *f;
  for (const Family* f : registry())
    if (describes(*f, spec)) return *f;
  return native_family();
}

}  // namespace qkv
