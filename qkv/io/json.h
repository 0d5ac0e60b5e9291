// JSON files that name themselves in errors: every field is read with the type that is expected.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "qkv/base/error.h"

namespace qkv {

using Json = nlohmann::ordered_json;

// Parses `text`; errors name `where` (a path). Duplicate keys and more than 64 levels are refused.
Json parse_json(std::string_view text, const std::string& where);

// object[key] as T, or Error "<where>: <key>: expected ...".
template <typename T>
T json_field(const Json& object, const std::string& key, const std::string& where);
template <typename T>
T json_field_or(const Json& object, const std::string& key, T otherwise, const std::string& where) {
  return object.contains(key) && !object.at(key).is_null() ? json_field<T>(object, key, where) : otherwise;
}

}  // namespace qkv
