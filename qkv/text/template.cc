#include "qkv/text/template.h"

#include <nlohmann/json.hpp>

#include "qkv/base/error.h"

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

bool truncate(const Tokenizer& tokenizer, Encoding& encoding, size_t most) {
  if (encoding.size() <= most) return false;
  std::vector<bool> kept(encoding.size(), true);
  std::vector<size_t> of_type[2];  // places of ordinary tokens
  size_t around = 0;
  for (size_t i = 0; i < encoding.size(); ++i) {
    const Range at = encoding.offsets[i];
    // What the text itself says, [UNK] for one, is as good as any token of it.
    if (tokenizer.is_special(encoding.ids[i]) && at.begin == at.end)
      ++around;
    else
      of_type[encoding.type_ids[i] == 0 ? 0 : 1].push_back(i);
  }
  for (size_t excess = encoding.size() - most; excess > 0; --excess) {
    auto& from = of_type[0].size() >= of_type[1].size() ? of_type[0] : of_type[1];
    check(!from.empty(), "{} special tokens are more than the model's {}", around, most);
    kept[from.back()] = false;
    from.pop_back();
  }
  Encoding cut;
  for (size_t i = 0; i < encoding.size(); ++i)
    if (kept[i]) cut.add(encoding.ids[i], encoding.offsets[i], encoding.type_ids[i]);
  encoding = std::move(cut);
  return true;
}

}  // namespace qkv::text
