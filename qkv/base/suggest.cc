#include "qkv/base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace qkv {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string_view> candidates) {
  return std::string(*std::min_element(candidates.begin(), candidates.end(), [&](auto a, auto b) {
    return edit_distance(name, a) < edit_distance(name, b);
  }));
}

}  // namespace qkv
