// Reads JSON that may be hostile: every failed access throws Error naming the file and the field.
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

// Json has members in the order of their names, OrderedJson in the order of the file.
using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The double that a float's shortest decimal form denotes, so that 0.1f is written as 0.1.
double decimal(float x);

// Parses a whole document. Throws Error for anything but JSON, nesting deeper than 64 and repeated keys. In a
// config.json, Infinity is read as null: Python writes it where a number has no limit.
Json parse_json(std::string_view document, const std::string& file);

// Calls `f` with the value of each line that is not blank, and with its place, "NAME:12".
void for_each_json_line(std::istream& in, const std::string& name,
                        const std::function<void(const Json& value, const std::string& place)>& f);

// A value inside a parsed document together with its place, "tokenizer.json: model.merges[3]". The document
// must outlive it.
class JsonField {
 public:
  JsonField(const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const Json& json() const { return *value_; }
  const std::string& place() const { return place_; }

  // The member `key`. If it is absent, operator[] throws Error; if it is absent or null, find() returns
  // nullopt.
  JsonField operator[](std::string_view key) const;
  std::optional<JsonField> find(std::string_view key) const;

  // REQUIRES: index < size().
  JsonField at(size_t index) const;
  size_t size() const;  // number of elements; throws Error for anything but an array

  const std::string& string() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;  // finite
  // Elements of an array.
  std::vector<int64_t> integers(int64_t least, int64_t most) const;
  std::vector<double> numbers() const;
  const Json& object() const;

  // Value of the member `key`, or `otherwise` if it is absent or null.
  bool boolean_or(std::string_view key, bool otherwise) const;
  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t least, int64_t most) const;
  float number_or(std::string_view key, float otherwise) const;
  std::string string_or(std::string_view key, const std::string& otherwise) const;

  [[noreturn]] void refuse(std::string_view expected) const;

  // Throws Error for an object's member that is not in `known`, naming the most similar one.
  void expect_keys(std::span<const std::string_view> known) const;

  // Throws Error for the name of a stage that is not in `supported`, naming the most similar one.
  [[noreturn]] void refuse_type(std::string_view type, std::span<const std::string_view> supported) const;

 private:
  const Json* value_;
  std::string place_;
};

}  // namespace qkv
