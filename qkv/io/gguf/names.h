// Names of tensors with numbers in them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// The numbers at the places "{}" of a pattern; nothing if the name is not of the pattern.
inline std::optional<std::vector<int64_t>> numbers_in(std::string_view pattern, std::string_view name) {
  std::vector<int64_t> numbers;
  while (!pattern.empty() && !name.empty()) {
    if (!pattern.starts_with("{}")) {
      if (pattern.front() != name.front()) return std::nullopt;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
      continue;
    }
    constexpr size_t kMostDigits = 6;
    size_t digits = 0;
    while (digits < name.size() && name[digits] >= '0' && name[digits] <= '9') ++digits;
    if (digits == 0 || digits > kMostDigits || (digits > 1 && name.front() == '0')) return std::nullopt;
    int64_t number = 0;
    std::from_chars(name.data(), name.data() + digits, number);
    numbers.push_back(number);
    pattern.remove_prefix(2);
    name.remove_prefix(digits);
  }
  if (!pattern.empty() || !name.empty()) return std::nullopt;
  return numbers;
}

// The pattern with these numbers. REQUIRES: it has no more places.
inline std::string with_numbers(std::string_view pattern, const std::vector<int64_t>& numbers) {
  std::string name;
  size_t next = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (!pattern.substr(i).starts_with("{}")) {
      name += pattern[i];
      continue;
    }
    name += std::to_string(numbers[next++]);
    ++i;
  }
  return name;
}

}  // namespace qkv
