#include "qkv/chat/chat_template.h"

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/chat/jinja/builtins.h"
#include "qkv/chat/jinja/parser.h"

namespace qkv::text {

struct ChatTemplate::Parsed {
  std::string where;
  jinja::Body body;
  jinja::Dict special_tokens = {};
};

ChatTemplate::ChatTemplate(std::string_view source, const std::string& where) {
  try {
    parsed_ = std::make_shared<Parsed>(Parsed{where, jinja::parse(source)});
  } catch (const Error& e) {
    fail("{}: {}", where, e.what());
  }
}

namespace {

// The object in a file; an empty one if the file is missing.
Json object_of(const std::string& file) {
  return file_exists(file) ? parse_json(read_file(file), file) : Json::object();
}

// The template, or the one named "default" in a list of several.
std::string source_of(const JsonField& field) {
  if (field.json().is_string()) return field.string();
  for (size_t i = 0; i < field.size(); ++i)
    if (field.at(i)["name"].string() == "default") return field.at(i)["template"].string();
  field.refuse("a template, or a list of templates with one named \"default\"");
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::find(const std::string& dir) {
  const std::string file = dir + "/chat_template.jinja", config_file = dir + "/tokenizer_config.json";
  const Json config = object_of(config_file);
  std::optional<ChatTemplate> out;
  if (file_exists(file))
    out.emplace(read_file(file), file);
  else if (const auto field = JsonField(config, config_file).find("chat_template"))
    out.emplace(source_of(*field), config_file + ": chat_template");
  if (out) out->name_special_tokens(dir);
  return out;
}

void ChatTemplate::name_special_tokens(const std::string& dir) {
  for (const std::string& file : {dir + "/tokenizer_config.json", dir + "/special_tokens_map.json"}) {
    const Json json = object_of(file);
    const JsonField fields(json, file);
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
      if (const auto token = fields.find(name))
        parsed_->special_tokens.emplace_back(
            name, token->json().is_object() ? (*token)["content"].string() : token->string());
  }
}

ChatTemplate::Rendered ChatTemplate::render(const nlohmann::ordered_json& variables, int64_t now) const {
  check(variables.is_object(), "{}: expected an object of variables", parsed_->where);
  Rendered out;
  std::vector<jinja::Span> generated;
  jinja::Budget budget;
  try {
    const auto scope = std::make_shared<jinja::Scope>();
    for (auto& [name, function] : jinja::global_functions(now)) scope->set(name, function);
    for (const auto& [name, token] : parsed_->special_tokens) scope->set(name, token);
    for (const char* name : {"tools", "documents"}) scope->set(name, jinja::Value::None{});
    scope->set("add_generation_prompt", false);
    for (auto it = variables.begin(); it != variables.end(); ++it)
      scope->set(it.key(), jinja::Value::from_json(it.value()));
    jinja::run_all(parsed_->body, {budget, scope, &out.text, &generated});
  } catch (const Error& e) {
    fail("{}: {}", parsed_->where, e.what());
  }
  for (const jinja::Span& span : generated) out.generated.push_back({span.begin, span.end});
  return out;
}

}  // namespace qkv::text
