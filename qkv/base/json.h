// Reading JSON that may be hostile: every access names the file and the field when it refuses.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Members in the order of their names; OrderedJson keeps them in the order of the file.
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// Parses a whole document. Refuses what is not JSON, nesting deeper than 64 and keys that repeat.
Json parse_json(std::string_view document, const std::string& file);

// Calls `f` with the value of each line that is not blank and with its place, "NAME:12".
void for_each_json_line(std::istream& in, const std::string& name,
                        const std::function<void(const Json& value, const std::string& place)>& f);

// A value inside a parsed document together with its place, "tokenizer.json: model.merges[3]". The document
// must outlive it.
class JsonField {
 public:
  JsonField(const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const Json& json() const { return *value_; }
  const std::string& place() const { return place_; }

  // The member `key`; operator[] refuses when it is absent, find() then (or when it is null) returns nothing.
  JsonField operator[](std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;

  // REQUIRES: index < size().
  JsonField at(size_t index) const;
  size_t size() const;  // of an array; refuses anything else

  const std::string& string() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;  // finite
  // Of an array.
  std::vector<int64_t> integers(int64_t least, int64_t most) const;
  std::vector<double> numbers() const;
  const Json& object() const;

  // Of the member `key`, or `otherwise` where it is absent or null.
  bool boolean_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const;
  float number_or(std::string_view key, float otherwise) const;
  std::string string_or(std::string_view key, const std::string& otherwise) const;

  [[noreturn]] void refuse(std::string_view expected) const;

  // Refuses an object's member that is not among `known`, naming the nearest.
  void expect_keys(std::span<const std::string_view> known) const;

  // Refuses the name of a stage that is not among `supported`, naming the nearest.
  [[noreturn]] void refuse_type(std::string_view type, std::span<const std::string_view> supported) const;

 private:
  const Json* value_;
  std::string place_;
};

}  // namespace qkv
