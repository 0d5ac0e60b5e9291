#include "qkv/text/template.h"

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"

namespace qkv::text {

Tokenizer with_template(const Tokenizer& tokenizer, const std::string& first, const std::string& last) {
  using Json = nlohmann::ordered_json;
  Json special = Json::object();
  for (const std::string& token : {first, last}) {
    const auto id = tokenizer.token_to_id(token);
    check(id.has_value(), "the tokenizer has no token {}", token);
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  }
  const auto end = [](const std::string& token, int type) {
    return Json{{"SpecialToken", {{"id", token}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  Json document = Json::parse(tokenizer.to_json());
  document["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {end(first, 0), sequence("A", 0), end(last, 0)}},
      {"pair", {end(first, 0), sequence("A", 0), end(last, 0), sequence("B", 1), end(last, 1)}},
      {"special_tokens", special}};
  return Tokenizer::from_json(document.dump());
}

}  // namespace qkv::text
