#include "qkv/base/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_set>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/base/suggest.h"

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
template class nlohmann::detail::serializer<nlohmann::json>;
template class nlohmann::detail::serializer<nlohmann::ordered_json>;

namespace qkv {
namespace {

constexpr size_t kDeepestNesting = 64;

// Checks a document event by event without building values.
class DocumentChecker : public nlohmann::json_sax<Json> {
 public:
  explicit DocumentChecker(const std::string& file) : file_(file) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    check(keys_.back().insert(name).second, "{}: the key \"{}\" appears twice in one object", file_, name);
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view what = error.what();  // "[json.exception...] parse error at line ..."
    fail("{}: not valid JSON: {}", file_, what.substr(std::min(what.size(), what.find("] ") + 2)));
  }

 private:
  bool enter() {
    keys_.emplace_back();
    check(keys_.size() <= kDeepestNesting, "{}: nested deeper than {} levels", file_, kDeepestNesting);
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> keys_;
};

// True for "FILE.json", "FILE.toml" or "FILE:LINE", which name no field.
bool is_document(const std::string& place) {
  const size_t digits = place.find_last_not_of("0123456789") + 1;
  const bool line = digits > 0 && digits < place.size() && place[digits - 1] == ':';
  return line || place.ends_with(".json") || place.ends_with(".toml");
}

// The document with null for Infinity, and everything else where it was.
std::string without_infinities(std::string document) {
  constexpr std::string_view kInfinity = "Infinity";
  bool in_string = false;
  for (size_t i = 0; i < document.size(); ++i) {
    if (document[i] == '\\' && in_string)
      ++i;
    else if (document[i] == '"')
      in_string = !in_string;
    if (in_string || i >= document.size() || document.compare(i, kInfinity.size(), kInfinity) != 0) continue;
    const size_t begin = i > 0 && document[i - 1] == '-' ? i - 1 : i;
    const size_t count = i + kInfinity.size() - begin;
    document.replace(begin, count, "null" + std::string(count - 4, ' '));
  }
  return document;
}

}  // namespace

double decimal(float x) {
  return std::stod(fmt::format("{}", x));
}

Json parse_json(std::string_view given, const std::string& file) {
  std::string changed;
  if (file.ends_with("config.json") && given.find("Infinity") != std::string_view::npos)
    changed = without_infinities(std::string(given));
  const std::string_view document = changed.empty() ? given : changed;
  DocumentChecker checker(file);
  Json::sax_parse(document, &checker);
  return Json::parse(document);
}

void for_each_json_line(std::istream& in, const std::string& name,
                        const std::function<void(const Json& value, const std::string& place)>& f) {
  std::string line;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", name, number);
    f(parse_json(line, place), place);
  }
}

JsonField JsonField::operator[](std::string_view key) const {
  const Json& members = object();
  const auto it = members.find(key);
  if (it == members.end()) fail("{}: \"{}\" is missing", place_, key);
  const char* separator = is_document(place_) ? ": " : ".";
  return JsonField(*it, fmt::format("{}{}{}", place_, separator, key));
}

std::optional<JsonField> JsonField::find(std::string_view key) const {
  const Json& members = object();
  const auto it = members.find(key);
  if (it == members.end() || it->is_null()) return std::nullopt;
  return (*this)[key];
}

JsonField JsonField::at(size_t index) const {
  check(index < size(), "{}: expected more than {} entries", place_, index);
  return JsonField((*value_)[index], place_ + "[" + std::to_string(index) + "]");
}

size_t JsonField::size() const {
  if (!value_->is_array()) refuse("a list");
  return value_->size();
}

const std::string& JsonField::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

int64_t JsonField::integer(int64_t least, int64_t most) const {
  const bool huge =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = value_->is_number_integer() && !huge ? value_->get<int64_t>() : most;
  if (!value_->is_number_integer() || huge || number < least || number > most) {
    refuse(fmt::format("an integer from {} to {}", least, most));
  }
  return number;
}

const Json& JsonField::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

bool JsonField::boolean_or(std::string_view key, bool otherwise) const {
  const auto field = find(key);
  return field ? field->boolean() : otherwise;
}

int64_t JsonField::integer_or(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const {
  const auto field = find(key);
  return field ? field->integer(least, most) : otherwise;
}

float JsonField::number_or(std::string_view key, float otherwise) const {
  const auto field = find(key);
  return field ? static_cast<float>(field->number()) : otherwise;
}

double JsonField::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>())) refuse("a number");
  return value_->get<double>();
}

std::vector<int64_t> JsonField::integers(int64_t least, int64_t most) const {
  if (!value_->is_array()) refuse("a list of integers");
  std::vector<int64_t> out;
  for (size_t i = 0; i < size(); ++i) out.push_back(at(i).integer(least, most));
  return out;
}

std::vector<double> JsonField::numbers() const {
  std::vector<double> out;
  for (size_t i = 0; i < size(); ++i) out.push_back(at(i).number());
  return out;
}

std::string JsonField::string_or(std::string_view key, const std::string& otherwise) const {
  const auto field = find(key);
  return field ? field->string() : otherwise;
}

void JsonField::refuse(std::string_view expected) const {
  std::string found = value_->is_structured() ? std::string(value_->type_name())
                                              : value_->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (found.size() > 60) found = found.substr(0, 57) + "...";
  fail("{}: expected {}, found {}", place_, expected, found);
}

void JsonField::expect_keys(std::span<const std::string_view> known) const {
  for (const auto& [key, value] : object().items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("{}: \"{}\": unknown key{}", place_, key, did_you_mean(key, known));
}

void JsonField::refuse_type(std::string_view type, std::span<const std::string_view> supported) const {
  const std::string_view shown = type.substr(0, 60);
  std::string all;
  for (const std::string_view name : supported) all.append(all.empty() ? "" : ", ").append(name);
  fail("{}: \"{}\" is not supported{}; qkv reads {}", place_, shown, did_you_mean(shown, supported), all);
}

}  // namespace qkv
