#include "qkv/io/family/family_parts.h"

#include <cmath>

#include "qkv/base/json_value.h"

namespace qkv {

Activation read_activation(const JsonField& config, const char* key, const char* otherwise) {
  const auto name = config.string_or(key, otherwise);
  for (const char* tanh : {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate"})
    if (name == tanh) return Activation::gelu_tanh;
  if (name == "gelu" || name == "gelu_python") return Activation::gelu;
  if (name == "relu") return Activation::relu;
  if (name == "silu" || name == "swish") return Activation::silu;
  if (name == "quick_gelu") return Activation::gelu_quick;
  if (name == "relu2") return Activation::relu_squared;
  if (name == "tanh") return Activation::tanh;
  if (name == "sigmoid") return Activation::sigmoid;
  if (name == "linear") return Activation::identity;
  fail(
      "{}: {}: '{}' is not supported (gelu, gelu_new, gelu_pytorch_tanh, quick_gelu, relu, relu2, silu, "
      "tanh, "
      "sigmoid, linear are)",
      config.place(), key, name);
}

const char* config_name_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return "relu";
    case Activation::gelu:
      return "gelu";
    case Activation::gelu_tanh:
      return "gelu_new";
    case Activation::gelu_quick:
      return "quick_gelu";
    case Activation::silu:
      return "silu";
    case Activation::relu_squared:
      return "relu2";
    case Activation::tanh:
      return "tanh";
    case Activation::sigmoid:
      return "sigmoid";
    case Activation::identity:
      return "linear";
    case Activation::xielu:
      return "xielu";
  }
  return "?";
}

OrderedJson number_or_null(int64_t number) {
  return number > 0 ? OrderedJson(number) : OrderedJson(nullptr);
}
OrderedJson number_or_null(float number) {
  return number > 0 ? OrderedJson(decimal(number)) : OrderedJson(nullptr);
}

std::optional<JsonField> rotary_scaling_of(const JsonField& config, const char* layer_type) {
  auto scaling = config.find("rope_scaling");
  if (!scaling || scaling->json().empty()) scaling = config.find("rope_parameters");
  if (!scaling || layer_type == nullptr) return scaling;
  auto of_type = scaling->find(layer_type);
  return of_type ? of_type : scaling;
}

std::optional<JsonField> plain_rotary_of(const JsonField& config, const char* layer_type) {
  const auto parameters = config.find("rope_parameters");
  auto of_type = parameters ? parameters->find(layer_type) : std::nullopt;
  check(!of_type || of_type->string_or("rope_type", "default") == "default",
        "{}: rope_parameters: {}: rope_type: only default is supported", config.place(), layer_type);
  return of_type;
}

void expect_one_rotation(const JsonField& config) {
  const auto rotary = config.find("rope_parameters");
  if (!rotary) return;
  for (const auto& [key, value] : rotary->object().items())
    check(!value.is_object(),
          "{}: {}: parameters of one type of layers are not supported for this model_type", rotary->place(),
          key);
}

bool says_no_scaling(const JsonField& config) {
  return !config.object().contains("rope_scaling") && !config.object().contains("rope_parameters");
}

void default_rotary_base(const JsonField& config, double base, RotarySpec& rotary) {
  const auto scaling = rotary_scaling_of(config);
  if (!config.find("rope_theta") && !(scaling && scaling->find("rope_theta"))) rotary.base = base;
}

namespace {

double longrope_magnitude(const RotarySpec& r) {
  return std::sqrt(1 + std::log(r.factor) / std::log(static_cast<double>(r.original_context)));
}

}  // namespace

double yarn_magnitude(double factor, double weight) {
  return factor > 1 ? 0.1 * weight * std::log(factor) + 1 : 1;
}

void read_longrope(const JsonField& config, const JsonField& scaling, int64_t context, int64_t otherwise,
                   RotarySpec& r) {
  r.scaling = RotaryScaling::longrope;
  constexpr const char* kOriginal = "original_max_position_embeddings";  // in older files beside the lists
  const auto original = config.find(kOriginal) ? config.find(kOriginal) : scaling.find(kOriginal);
  const bool said = original.has_value() || otherwise > 0;
  r.original_context = original ? original->integer(1, kMost) : otherwise > 0 ? otherwise : context;
  const double longer = static_cast<double>(context) / static_cast<double>(r.original_context);
  r.factor = std::max(1.0, said ? longer : static_cast<double>(scaling.number_or("factor", 1)));
  r.short_factors = scaling["short_factor"].numbers();
  r.long_factors = scaling["long_factor"].numbers();
  const auto given = scaling.find("attention_factor");
  r.magnitude = given ? given->number() : longrope_magnitude(r);
}

void read_rotary_scaling(const JsonField& config, int64_t context, RotarySpec& r, const char* layer_type) {
  const auto scaling = rotary_scaling_of(config, layer_type);
  if (!scaling) return;
  r.base = scaling->number_or("rope_theta", r.base);
  const auto type = scaling->string_or("rope_type", scaling->string_or("type", ""));
  if (type == "default" || (type.empty() && !scaling->find("factor"))) return;
  if (type == "longrope" || type == "su" || scaling->find("short_factor"))
    return read_longrope(config, *scaling, context, 0, r);
  static constexpr std::pair<const char*, RotaryScaling> kTypes[] = {{"linear", RotaryScaling::linear},
                                                                     {"dynamic", RotaryScaling::dynamic},
                                                                     {"yarn", RotaryScaling::yarn},
                                                                     {"llama3", RotaryScaling::llama3}};
  for (const auto& [name, value] : kTypes)
    if (type == name) r.scaling = value;
  check(r.scaling != RotaryScaling::none,
        "{}: rope_type: '{}' is not supported (default, linear, dynamic, yarn, llama3, longrope are)",
        scaling->place(), type);
  r.factor = (*scaling)["factor"].number();
  if (r.scaling != RotaryScaling::linear) r.original_context = context;
  if (r.scaling == RotaryScaling::yarn) {
    r.truncated = scaling->boolean_or("truncate", true);
    r.low = scaling->number_or("beta_slow", 1);
    r.high = scaling->number_or("beta_fast", 32);
    r.original_context = scaling->integer_or("original_max_position_embeddings", context, 1, kMost);
    const auto given = scaling->find("attention_factor");
    const double one = scaling->number_or("mscale", 0), all = scaling->number_or("mscale_all_dim", 0);
    r.magnitude = given                  ? given->number()
                  : one != 0 && all != 0 ? yarn_magnitude(r.factor, one) / yarn_magnitude(r.factor, all)
                                         : yarn_magnitude(r.factor, 1);
  }
  if (r.scaling == RotaryScaling::llama3) {
    r.low = (*scaling)["low_freq_factor"].number();
    r.high = (*scaling)["high_freq_factor"].number();
    r.original_context = (*scaling)["original_max_position_embeddings"].integer(1, kMost);
  }
}

namespace {

// The value of rope_scaling; null if there is none.
OrderedJson rotary_scaling_json(const RotarySpec& r) {
  switch (r.scaling) {
    case RotaryScaling::none:
      return nullptr;
    case RotaryScaling::linear:
      return {{"rope_type", "linear"}, {"factor", r.factor}};
    case RotaryScaling::dynamic:
      return {{"rope_type", "dynamic"}, {"factor", r.factor}};
    case RotaryScaling::yarn: {
      OrderedJson scaling = {{"rope_type", "yarn"},
                             {"factor", r.factor},
                             {"beta_slow", r.low},
                             {"beta_fast", r.high},
                             {"attention_factor", r.magnitude},
                             {"original_max_position_embeddings", r.original_context}};
      if (!r.truncated) scaling["truncate"] = false;
      return scaling;
    }
    case RotaryScaling::llama3:
      return {{"rope_type", "llama3"},
              {"factor", r.factor},
              {"low_freq_factor", r.low},
              {"high_freq_factor", r.high},
              {"original_max_position_embeddings", r.original_context}};
    case RotaryScaling::longrope: {
      OrderedJson scaling = {
          {"type", "longrope"}, {"short_factor", r.short_factors}, {"long_factor", r.long_factors}};
      if (r.magnitude != longrope_magnitude(r)) scaling["attention_factor"] = r.magnitude;
      return scaling;
    }
  }
  return nullptr;
}

}  // namespace

OrderedJson rotary_parameters(const RotarySpec& r) {
  OrderedJson parameters = rotary_scaling_json(r);
  if (parameters.is_null()) parameters = {{"rope_type", "default"}};
  parameters["rope_theta"] = r.base;
  return parameters;
}

void write_rotary_scaling(const RotarySpec& r, OrderedJson& config) {
  if (OrderedJson scaling = rotary_scaling_json(r); !scaling.is_null())
    config["rope_scaling"] = std::move(scaling);
}

int64_t read_rotated(const JsonField& config, const char* key, double otherwise, int64_t head_width) {
  auto fraction = config.find(key);
  const auto parameters = config.find("rope_parameters");
  if (!fraction && parameters) fraction = parameters->find(key);
  const double share = fraction ? fraction->number() : otherwise;
  check(share > 0 && share <= 1, "{}: {}: expected a number above 0, at most 1", config.place(), key);
  return static_cast<int64_t>(share * static_cast<double>(head_width));
}
double rotated_part(const AttentionSpec& a) {
  return static_cast<double>(a.rotary.width) / static_cast<double>(a.d_qk);
}

std::vector<std::string> read_labels(const JsonField& c) {
  const auto names = c.find("id2label");
  const int64_t n = names ? static_cast<int64_t>(names->object().size())
                          : c.integer_or("num_labels", 2, 1, int64_t{1} << 24);
  check(n > 0, "{}: id2label: there are no labels", c.place());
  std::vector<std::string> labels;
  for (int64_t i = 0; i < n; ++i)
    labels.push_back(names ? (*names)[std::to_string(i)].string() : fmt::format("LABEL_{}", i));
  return labels;
}

bool has_decoder_head(const ModelSpec& s) {
  return s.output == Output::tokens || (s.output == Output::sequence_classes && s.pooling == Pooling::last &&
                                        !s.pooler && !s.classifier_bias);
}

int64_t read_first_position(const JsonField& c) {
  const int64_t first = c.integer_or("pad_token_id", 1, 0, 1 << 20) + 1;
  return first == 2 ? 0 : first;
}
int64_t rows_before_first(const ModelSpec& s) {
  return s.first_position > 0 ? s.first_position : 2;
}

void read_head(const JsonField& c, const std::string& base, ModelSpec& s) {
  std::string name = base + "ForMaskedLM";
  if (const auto list = c.find("architectures"); list && list->size() > 0) name = list->at(0).string();
  const std::string head = name.starts_with(base) ? name.substr(base.size()) : name;
  const bool masked = head == "ForMaskedLM" || head == "ForPreTraining" || head == "LMHeadModel";
  if (masked) {
    s.output = Output::tokens;
    if (head == "ForPreTraining") s.labels = {"next", "random"};
  } else {
    s.head_width = 0;
    s.unembedding_bias = false;
    s.tied = true;
  }
  s.pooler = head == "ForPreTraining" || head == "ForNextSentencePrediction" ||
             head == "ForSequenceClassification" || head == "ForMultipleChoice" || head == "Model";
  if (head == "ForSequenceClassification") {
    s.output = Output::sequence_classes;
    s.labels = read_labels(c);
  } else if (head == "ForMultipleChoice") {
    s.output = Output::sequence_classes;
    s.problem = Problem::multiple_choice;
  } else if (head == "ForNextSentencePrediction") {
    s.output = Output::sequence_classes;
    s.labels = {"next", "random"};
  } else if (head == "ForTokenClassification") {
    s.output = Output::token_classes;
    s.labels = read_labels(c);
  } else if (head == "ForQuestionAnswering") {
    s.output = Output::span;
  } else if (head == "Model") {
    s.output = Output::embedding;
  } else if (!masked) {
    fail(
        "{}: architectures: '{}' is not supported ({}ForMaskedLM, ForPreTraining, ForNextSentencePrediction, "
        "ForSequenceClassification, ForMultipleChoice, ForTokenClassification, ForQuestionAnswering and "
        "{}Model are)",
        c.place(), name, base, base);
  }
}

std::string head_name(const ModelSpec& s) {
  switch (s.output) {
    case Output::tokens:
      return s.labels.empty() ? "ForMaskedLM" : "ForPreTraining";
    case Output::sequence_classes:
      return s.problem == Problem::multiple_choice ? "ForMultipleChoice" : "ForSequenceClassification";
    case Output::token_classes:
      return "ForTokenClassification";
    case Output::span:
      return "ForQuestionAnswering";
    case Output::embedding:
      break;
  }
  return "Model";
}

void write_labels(const ModelSpec& s, OrderedJson& config) {
  if (s.labels.empty() || s.output == Output::tokens) return;
  for (size_t i = 0; i < s.labels.size(); ++i) {
    config["id2label"][std::to_string(i)] = s.labels[i];
    config["label2id"][s.labels[i]] = i;
  }
}

void WeightNames::norm(const std::string& engine, const std::string& file) {
  all.push_back({engine + ".gamma", file + ".weight", false, 0, 0, 0, file + ".gamma"});
  if (bias) all.push_back({engine + ".beta", file + ".bias", false, 0, 0, 0, file + ".beta"});
}

void WeightNames::parts(const std::string& engine, const std::vector<std::string>& files,
                        const std::vector<int64_t>& rows) {
  for (const std::string kind : {".weight", ".bias"}) {
    if (kind == ".bias" && !bias) continue;
    int64_t first = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      all.push_back({engine + kind, files[i] + kind, false, first, rows[i]});
      first += rows[i];
    }
  }
}

void WeightNames::masked_head(const ModelSpec& spec, const MaskedHeadNames& names) {
  linear("head", names.dense);
  norm("head.norm", names.norm);
  tensor("unembedding.bias", names.bias);
  untied(spec, names.unembedding);
}

}  // namespace qkv
