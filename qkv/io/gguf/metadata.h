// The metadata of one architecture: the keys below "llama." and so on.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/io/container/gguf.h"

namespace qkv {

// Reads the keys below an architecture's prefix and notes which were asked for. Errors name file and key.
class GgufKeys {
 public:
  explicit GgufKeys(const Gguf& file);

  const Gguf& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }

  // Keys are without the prefix. An integer may be an array of equal ones, as files with a value for each
  // layer have it; it is never negative.
  bool has(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;  // finite
  bool flag(std::string_view key) const;
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  bool flag_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, const std::string& otherwise) const;
  // One value for each layer, or one for all.
  std::vector<int64_t> integers(std::string_view key) const;

  // The same key with its prefix, as errors name it; notes that it is known.
  std::string full(std::string_view key) const;
  bool has_tensor(std::string_view name) const { return file_.tensor(name) != nullptr; }
  // The numbers of a tensor of one axis. Throws Error unless it is f32.
  std::vector<double> numbers_of_tensor(std::string_view name) const;

  // Throws Error naming the keys below the prefix that nobody asked for.
  void expect_all_known() const;

 private:
  const Gguf& file_;
  std::string architecture_;
  mutable std::set<std::string, std::less<>> known_;
};

// The contents of a GGUF file, in the order in which they are written.
struct GgufParts {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<std::pair<std::string, Weight>> tensors;
};

// Writes keys below an architecture's prefix.
class GgufKeyWriter {
 public:
  GgufKeyWriter(std::string architecture, GgufParts& parts);

  // Throw Error for an integer that does not fit 32 bits without a sign, and for a key that has another value
  // already.
  void integer(std::string_view key, int64_t value);
  void number(std::string_view key, double value);
  void flag(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  // A tensor of one axis, f32.
  void tensor(const std::string& name, const std::vector<double>& numbers);

 private:
  void add(std::string_view key, GgufValue value);

  std::string architecture_;
  GgufParts& parts_;
};

}  // namespace qkv
