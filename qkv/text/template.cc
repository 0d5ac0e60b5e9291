#include "qkv/text/template.h"

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"

namespace qkv::text {

Tokenizer with_template(const Tokenizer& tokenizer, const std::string& first, const std::string& last) {
  using Json = nlohmann::ordered_json;
  Json special = Json::object();
  for (const std::string& token : {first, last}) {
    if (token.empty()) continue;
    const auto id = tokenizer.token_to_id(token);
    check(id.has_value(), "the tokenizer has no token {}", token);
    special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
  }
  const auto add_end = [](Json& to, const std::string& token, int type) {
    if (!token.empty()) to.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
  };
  const auto add_sequence = [](Json& to, const char* id, int type) {
    to.push_back({{"Sequence", {{"id", id}, {"type_id", type}}}});
  };
  Json single = Json::array();
  add_end(single, first, 0);
  add_sequence(single, "A", 0);
  add_end(single, last, 0);
  Json pair = single;
  add_sequence(pair, "B", 1);
  add_end(pair, last, 1);
  Json document = Json::parse(tokenizer.to_json());
  document["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", std::move(single)},
                                {"pair", std::move(pair)},
                                {"special_tokens", std::move(special)}};
  return Tokenizer::from_json(document.dump());
}

}  // namespace qkv::text
