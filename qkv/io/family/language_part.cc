#include "qkv/io/family/language_part.h"

#include <utility>

#include "qkv/base/json_value.h"
#include "qkv/io/family/family.h"

namespace qkv {

std::optional<Json> language_part(const Json& config) {
  const auto type_of = [](const Json& c) {
    const auto type = c.is_object() ? c.find("model_type") : c.end();
    return c.is_object() && type != c.end() && type->is_string() ? type->get<std::string>() : "";
  };
  if (!config.is_object() || !config.contains("text_config")) return std::nullopt;
  Json part = config.at("text_config");
  const Family* family = find_family(type_of(part));
  if (family == nullptr || family->language_model.empty() || find_family(type_of(config)) != nullptr ||
      type_of(config) == "clip")
    return std::nullopt;
  for (const char* key : {"tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
                          "torch_dtype", "dtype", "quantization_config"})
    if ((!part.contains(key) || part.at(key).is_null()) && config.contains(key)) part[key] = config.at(key);
  part["architectures"] = {family->language_model};
  return part;
}

std::optional<std::string> name_in_language_part(const std::string& name) {
  // The forms of transformers 4 and 5, of models with a head and without.
  static constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
      {"language_model.model.", "model."}, {"language_model.lm_head.", "lm_head."},
      {"model.language_model.", "model."}, {"model.text_model.", "model."},
      {"language_model.", "model."},       {"lm_head.", "lm_head."}};
  for (const auto& [outside, inside] : kPrefixes)
    if (name.starts_with(outside)) return std::string(inside) + name.substr(outside.size());
  return std::nullopt;
}

std::string part_of_tensor(const std::string& name) {
  const size_t begin = name.starts_with("model.") ? 6 : 0;
  return name.substr(begin, name.find('.', begin) - begin);
}

}  // namespace qkv
