#include "qkv/io/family/family.h"

#include <algorithm>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family_parts.h"

namespace qkv {
namespace {

const std::vector<const Family*>& registry() {
  static const std::vector<const Family*> families = {&gpt2_family(),
                                                      &bert_family(),
                                                      &roberta_family(),
                                                      &distilbert_family(),
                                                      &t5_family(),
                                                      &bart_family(),
                                                      &marian_family(),
                                                      &mbart_family(),
                                                      &pegasus_family(),
                                                      &albert_family(),
                                                      &electra_family(),
                                                      &llama_family(),
                                                      &mistral_family(),
                                                      &qwen2_family(),
                                                      &gemma_family(),
                                                      &phi_family(),
                                                      &phi3_family(),
                                                      &olmo_family(),
                                                      &olmo2_family(),
                                                      &stablelm_family(),
                                                      &starcoder2_family(),
                                                      &granite_family(),
                                                      &cohere_family(),
                                                      &gpt_neox_family(),
                                                      &gptj_family(),
                                                      &falcon_family(),
                                                      &bloom_family(),
                                                      &mpt_family(),
                                                      &gpt_neo_family(),
                                                      &gpt_bigcode_family(),
                                                      &opt_family(),
                                                      &gemma2_family(),
                                                      &mixtral_family(),
                                                      &qwen2_moe_family(),
                                                      &deepseek_v2_family(),
                                                      &deepseek_v3_family(),
                                                      &m2m100_family(),
                                                      &switch_family(),
                                                      &ctrl_family(),
                                                      &xglm_family(),
                                                      &big_bird_family(),
                                                      &deberta_v2_family(),
                                                      &xlnet_family(),
                                                      &longformer_family(),
                                                      &vit_family(),
                                                      &deit_family(),
                                                      &whisper_family(),
                                                      &reformer_family(),
                                                      &perceiver_family(),
                                                      &qwen3_family(),
                                                      &qwen3_moe_family(),
                                                      &gemma3_text_family(),
                                                      &gemma4_text_family(),
                                                      &olmo3_family(),
                                                      &cohere2_family(),
                                                      &exaone4_family(),
                                                      &smollm3_family(),
                                                      &ministral_family(),
                                                      &seed_oss_family(),
                                                      &ernie4_5_family(),
                                                      &ernie4_5_moe_family(),
                                                      &glm_family(),
                                                      &glm4_family(),
                                                      &glm4_moe_family(),
                                                      &granitemoe_family(),
                                                      &nemotron_family(),
                                                      &hunyuan_v1_dense_family(),
                                                      &gpt_oss_family(),
                                                      &ministral3_family(),
                                                      &llama4_text_family(),
                                                      &apertus_family(),
                                                      &umt5_family(),
                                                      &t5gemma_family(),
                                                      &led_family(),
                                                      &modernbert_family(),
                                                      &mpnet_family(),
                                                      &roformer_family(),
                                                      &deberta_family(),
                                                      &mamba_family(),
                                                      &mamba2_family(),
                                                      &jamba_family(),
                                                      &granitemoehybrid_family(),
                                                      &qwen3_next_family(),
                                                      &qwen3_5_text_family(),
                                                      &lfm2_family(),
                                                      &rwkv_family(),
                                                      &native_family()};
  return families;
}

// The spec without settings that have no effect, which no config.json needs to express.
ModelSpec essence(ModelSpec s) {
  const ModelSpec defaults;
  s.family.clear();
  s.lora = {};  // stored beside the model
  if (s.bias() != Positions::relative) {
    s.relative_buckets = defaults.relative_buckets;
    if (s.bias() != Positions::toeplitz) s.relative_distance = defaults.relative_distance;
  }
  if (s.positions != Positions::rotary) s.attention.rotary = {};
  const auto leave_idle = [&](BlockSpec& block) {
    if (s.architecture == Architecture::decoder && !block.mixer.attends()) block.attention = {};
    if (block.hidden > 0) return;
    block.activation = defaults.activation;
    block.gated = defaults.gated;
    block.feed_forward_bias = defaults.feed_forward_bias;
  };
  if (!s.layer_kinds.empty() && s.architecture != Architecture::encoder_decoder) {
    std::vector<std::string> kinds;
    for (int64_t l = 0; l < s.layers; ++l) kinds.push_back(s.kind_of(l));
    s.layer_kinds = shortest_run(std::move(kinds));
  }
  leave_idle(s);
  for (BlockKind& kind : s.kinds) leave_idle(kind.block);
  if (!s.recurrence.any()) s.recurrence = {};
  s.init_std = defaults.init_std;                        // affects only new weights
  s.experts.choice_rate = defaults.experts.choice_rate;  // affects only training
  if (s.mtp.any())
    s.mtp.weight = defaults.mtp.weight;  // so does this
  else
    s.mtp = {};
  if (s.classes() == 0) s.head_dropout = 0;
  if (s.output == Output::tokens && s.labels.empty()) s.pooling = defaults.pooling;
  if (s.architecture == Architecture::decoder) s.head_dropout = 0;  // training only: their files lack it
  return s;
}

// The prefix of the names of a decoder's classes.
std::string base_of(const Family& family) {
  const std::string& name = family.language_model;
  for (const std::string_view end : {"ForCausalLM", "LMHeadModel"})
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  return name;
}

// The name of a decoder's class with a classifier of sequences.
std::string classes_of(const Family& family) {
  return (family.classes_named.empty() ? base_of(family) : family.classes_named) +
         "ForSequenceClassification";
}

char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Reads the head of a decoder from "architectures": the unembedding, or classes.
void read_decoder_head(const Family& family, const JsonField& c, ModelSpec& s) {
  const auto list = c.find("architectures");
  if (!list || list->size() == 0) return;
  const std::string name = list->at(0).string(), base = base_of(family), classes = classes_of(family);
  // MPT's authors call it MPTForCausalLM, its family MptForCausalLM.
  const auto is = [&](const std::string& known) {
    return std::ranges::equal(name, known, {}, ascii_lower, ascii_lower);
  };
  if (is(family.language_model) || is(base + "Model")) return;
  check(!family.classifier.empty() && is(classes), "{}: architectures: '{}' is not supported ({}{} {})",
        c.place(), name, family.language_model, family.classifier.empty() ? "" : " and " + classes,
        family.classifier.empty() ? "is" : "are");
  check(s.embedding_width == 0, "{}: {} of embeddings of another width is not supported", c.place(), classes);
  s.output = Output::sequence_classes;
  s.labels = read_labels(c);
  s.pooling = Pooling::last;
  s.classifier_bias = s.unembedding_bias = false;
  s.tied = true;
}

// Other classes of an encoder-decoder have other heads, or only one of its stacks.
void expect_writer(const JsonField& c) {
  const auto list = c.find("architectures");
  if (!list || list->size() == 0) return;
  const std::string name = list->at(0).string();
  for (const std::string_view other : {"EncoderModel", "Classification", "QuestionAnswering", "ForCausalLM"})
    check(!name.ends_with(other),
          "{}: architectures: '{}' is not supported: of this model_type what writes a target for a source is",
          c.place(), name);
}

constexpr std::pair<Problem, const char*> kProblems[] = {
    {Problem::single_label, "single_label_classification"},
    {Problem::multi_label, "multi_label_classification"},
    {Problem::regression, "regression"}};

Problem read_problem(const JsonField& c) {
  const std::string name = c.string_or("problem_type", kProblems[0].second);
  for (const auto& [problem, its_name] : kProblems)
    if (name == its_name) return problem;
  fail("{}: problem_type: '{}' is not supported ({}, {} and {} are)", c.place(), name, kProblems[0].second,
       kProblems[1].second, kProblems[2].second);
}

bool tells_classes(const Family& family, const ModelSpec& s) {
  return !family.language_model.empty() && s.output == Output::sequence_classes;
}

}  // namespace

ModelSpec spec_of(const Family& family, const JsonField& config) {
  if (!family.rotates_by_type) expect_one_rotation(config);
  ModelSpec s = family.read_config(config);
  const auto expect_network = [&](const BlockSpec& block) {
    check(block.hidden > 0 || block.experts.count > 0 || !block.mixer.attends(),
          "{}: feed-forward networks of width 0: a published model has none such", config.place());
  };
  if (&family != &native_family()) {
    expect_network(s);
    for (const BlockKind& kind : s.kinds) expect_network(kind.block);
  }
  if (!family.language_model.empty()) read_decoder_head(family, config, s);
  if (s.architecture == Architecture::encoder_decoder) expect_writer(config);
  if (s.output == Output::sequence_classes && s.problem != Problem::multiple_choice &&
      &family != &native_family())
    s.problem = read_problem(config);
  return s;
}

OrderedJson config_of(const Family& family, const ModelSpec& spec) {
  OrderedJson config = family.write_config(spec);
  if (tells_classes(family, spec)) {
    config["architectures"] = {classes_of(family)};
    write_labels(spec, config);
  }
  for (const auto& [problem, name] : kProblems)
    if (spec.problem == problem && problem != Problem::single_label && &family != &native_family())
      config["problem_type"] = name;
  return config;
}

std::vector<WeightName> weights_of(const Family& family, const ModelSpec& spec) {
  std::vector<WeightName> names = family.weights(spec);
  if (tells_classes(family, spec)) {
    std::erase_if(names, [](const WeightName& w) { return w.engine.starts_with("unembedding."); });
    names.push_back({"classifier.weight", family.classifier + ".weight"});
  }
  return names;
}

namespace {

// True if a family's config.json describes the whole spec: reading it gives the same spec.
bool describes(const Family& family, const ModelSpec& spec) {
  if (&family == &native_family()) return true;
  if (!family.expresses(spec)) return false;
  try {
    const Json json = Json::parse(config_of(family, spec).dump());
    return essence(spec_of(family, JsonField(json, "config.json"))) == essence(spec);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

const Family* find_family(std::string_view model_type) {
  for (const Family* f : registry())
    if (f->model_type == model_type) return f;
  return nullptr;
}

namespace {

// Letters and digits in lower case, without what tells a language part from its whole.
std::string core_of(std::string_view type) {
  std::string core;
  for (const char c : type)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) core += ascii_lower(c);
  return core.ends_with("text") ? core.substr(0, core.size() - 4) : core;
}

}  // namespace

const Family& family_of(const JsonField& config) {
  const JsonField type = config["model_type"];
  for (const char* key : {"quantization_config", "pruned_heads"})
    if (const auto field = config.find(key))
      check(field->json().empty(), "{}: not supported: the weights must be whole, in f32, bf16 or f16",
            field->place());
  const std::string& name = type.string();
  check(name != "clip", "{}: CLIP is two models, of texts and of images: qkv forward compares them",
        type.place());
  if (const Family* f = find_family(name)) return *f;
  // Another version of a family is another model: only a name that is written otherwise is near.
  std::string near, all;
  for (const Family* f : registry()) {
    all += (all.empty() ? "" : ", ") + f->model_type;
    if (core_of(f->model_type) == core_of(name)) near = fmt::format(" (did you mean {}?)", f->model_type);
  }
  fail("{}: \"{}\" is not supported{}; qkv reads {}", type.place(), name.substr(0, 60), near, all);
}

const Family& family_for(const ModelSpec& spec) {
  for (const Family* f : registry())
    if (f->model_type == spec.family && describes(*f, spec)) return *f;
  for (const Family* f : registry())
    if (describes(*f, spec)) return *f;
  return native_family();
}

}  // namespace qkv
