#include "qkv/base/suggest.h"

#include <algorithm>
#include <vector>

namespace qkv {
namespace {

// Insertions, deletions, substitutions and exchanges of neighbours (optimal string alignment).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i)
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] = std::min({d[i - 1][j - 1] + (a[i - 1] != b[j - 1]), d[i - 1][j] + 1, d[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

bool is_near(std::string_view name, std::string_view candidate) {
  if (name.starts_with("--") && candidate.starts_with("--")) {  // the dashes do not count
    name.remove_prefix(2);
    candidate.remove_prefix(2);
  }
  const size_t longer = std::max(name.size(), candidate.size());
  const size_t begun = std::min(name.size(), candidate.size());
  // An abbreviated name: "--temp" for "--temperature".
  if (begun >= 4 && name.substr(0, begun) == candidate.substr(0, begun)) return true;
  return longer >= 3 && edit_distance(name, candidate) * 3 <= longer;
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string_view> candidates) {
  if (name.size() > 256) return "";  // too long for a mistyped name
  std::vector<std::string_view> near;
  for (const std::string_view c : candidates)
    if (c.size() <= 256 && is_near(name, c)) near.push_back(c);
  if (near.empty()) return "";
  return std::string(*std::min_element(near.begin(), near.end(), [&](auto a, auto b) {
    return edit_distance(name, a) < edit_distance(name, b);
  }));
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates,
                         Synonyms synonyms) {
  std::string best;
  for (const auto& [theirs, ours] : synonyms)
    if (theirs == name && std::ranges::find(candidates, ours) != candidates.end()) best = ours;
  if (best.empty()) best = nearest(name, candidates);
  return best.empty() ? "" : " (did you mean " + best + "?)";
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates, Synonyms synonyms) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  return did_you_mean(name, views, synonyms);
}

}  // namespace qkv
