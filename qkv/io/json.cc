#include "qkv/io/json.h"

#include <cmath>
#include <set>
#include <vector>

namespace qkv {

Json parse_json(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> keys;
  const Json::parser_callback_t guard = [&](int depth, Json::parse_event_t event, Json& value) {
    check(depth < 64, "{}: nested more than 64 levels deep", where);
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key)
      check(keys.back().insert(value.get<std::string>()).second, "{}: key \"{}\" appears twice", where, value.get<std::string>());
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), guard);
  } catch (const nlohmann::json::exception& e) {
    fail("{}: not valid JSON: {}", where, e.what());
  }
}

namespace {

const Json& member(const Json& object, const std::string& key, const std::string& where) {
  check(object.is_object(), "{}: expected an object", where);
  const auto it = object.find(key);
  check(it != object.end(), "{}: {}: missing", where, key);
  return *it;
}

[[noreturn]] void wrong_type(const std::string& where, const std::string& key, const char* expected, const Json& got) {
  fail("{}: {}: expected {}, got {}", where, key, expected, got.dump().substr(0, 60));
}

}  // namespace

template <>
int64_t json_field(const Json& object, const std::string& key, const std::string& where) {
  const Json& v = member(object, key, where);
  if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{1} << 62)) wrong_type(where, key, "an integer", v);
  return v.get<int64_t>();
}

template <>
float json_field(const Json& object, const std::string& key, const std::string& where) {
  const Json& v = member(object, key, where);
  if (!v.is_number() || !std::isfinite(v.get<double>())) wrong_type(where, key, "a number", v);
  return v.get<float>();
}

template <>
bool json_field(const Json& object, const std::string& key, const std::string& where) {
  const Json& v = member(object, key, where);
  if (!v.is_boolean()) wrong_type(where, key, "true or false", v);
  return v.get<bool>();
}

template <>
std::string json_field(const Json& object, const std::string& key, const std::string& where) {
  const Json& v = member(object, key, where);
  if (!v.is_string()) wrong_type(where, key, "a string", v);
  return v.get<std::string>();
}

template <>
std::vector<int64_t> json_field(const Json& object, const std::string& key, const std::string& where) {
  const Json& v = member(object, key, where);
  if (!v.is_array()) wrong_type(where, key, "a list of integers", v);
  std::vector<int64_t> out;
  for (const Json& e : v) {
    if (!e.is_number_integer()) wrong_type(where, key, "a list of integers", v);
    out.push_back(e.get<int64_t>());
  }
  return out;
}

}  // namespace qkv
