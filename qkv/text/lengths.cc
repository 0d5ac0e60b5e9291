#include "qkv/text/lengths.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"

namespace qkv::text {
namespace {

constexpr int64_t kMost = int64_t{1} << 62;       // tokens; some files use a large number for "no limit"
constexpr size_t kMostPadding = size_t{1} << 20;  // tokens

// "Left": true, "Right" (or absent): false.
bool is_left(const JsonField& field) {
  const std::string direction = field.string_or("direction", "Right");
  if (direction != "Left" && direction != "Right") field["direction"].refuse("\"Left\" or \"Right\"");
  return direction == "Left";
}

constexpr const char* kStrategies[] = {"LongestFirst", "OnlyFirst", "OnlySecond"};

template <typename T>
void keep(std::vector<T>& values, size_t length, bool from_left) {
  const auto surplus = static_cast<std::ptrdiff_t>(values.size() - length);
  if (from_left)
    values.erase(values.begin(), values.begin() + surplus);
  else
    values.resize(length);
}

void keep(Encoding& text, size_t length, bool from_left) {
  if (text.size() <= length) return;
  keep(text.ids, length, from_left);
  keep(text.offsets, length, from_left);
  keep(text.type_ids, length, from_left);
}

}  // namespace

Truncation parse_truncation(const JsonField& field) {
  Truncation out;
  out.max_length = static_cast<size_t>(field["max_length"].integer(0, kMost));
  const std::string strategy = field.string_or("strategy", kStrategies[0]);
  const auto* found = std::find(std::begin(kStrategies), std::end(kStrategies), strategy);
  if (found == std::end(kStrategies))
    field["strategy"].refuse("\"LongestFirst\", \"OnlyFirst\" or \"OnlySecond\"");
  out.strategy = static_cast<Truncation::Strategy>(found - std::begin(kStrategies));
  out.odd_to_longer = true;
  out.from_left = is_left(field);
  out.stride = static_cast<size_t>(field.integer_or("stride", 0, 0, kMost));
  return out;
}

nlohmann::ordered_json to_json(const Truncation& t) {
  return {{"direction", t.from_left ? "Left" : "Right"},
          {"max_length", t.max_length},
          {"strategy", kStrategies[static_cast<size_t>(t.strategy)]},
          {"stride", t.stride}};
}

Padding parse_padding(const JsonField& field) {
  Padding out;
  if (const auto strategy = field.find("strategy")) {
    if (strategy->json().is_object())
      out.length = static_cast<size_t>((*strategy)["Fixed"].integer(0, kMost));
    else if (!strategy->json().is_string() || strategy->string() != "BatchLongest")
      strategy->refuse("\"BatchLongest\" or {\"Fixed\": tokens}");
  }
  out.on_left = is_left(field);
  out.multiple_of =
      static_cast<size_t>(std::max<int64_t>(1, field.integer_or("pad_to_multiple_of", 1, 0, kMost)));
  out.id = static_cast<TokenId>(field.integer_or("pad_id", 0, 0, kLargestTokenId));
  out.type_id = static_cast<TokenId>(field.integer_or("pad_type_id", 0, 0, kLargestTokenId));
  out.token = field.string_or("pad_token", out.token);
  return out;
}

nlohmann::ordered_json to_json(const Padding& p) {
  using Json = nlohmann::ordered_json;
  return {{"strategy", p.length ? Json{{"Fixed", *p.length}} : Json("BatchLongest")},
          {"direction", p.on_left ? "Left" : "Right"},
          {"pad_to_multiple_of", p.multiple_of > 1 ? Json(p.multiple_of) : Json(nullptr)},
          {"pad_id", p.id},
          {"pad_type_id", p.type_id},
          {"pad_token", p.token}};
}

std::vector<size_t> kept_lengths(const std::vector<Encoding>& texts, size_t added, const Truncation& t) {
  std::vector<size_t> lengths;
  size_t all = added;
  for (const Encoding& text : texts) {
    lengths.push_back(text.size());
    all += text.size();
  }
  if (all <= t.max_length) return lengths;
  check(added <= t.max_length, "{} special tokens are more than the {} that are allowed", added,
        t.max_length);
  const size_t most = t.max_length - added, surplus = all - t.max_length;
  if (most == 0) return std::vector<size_t>(texts.size(), 0);
  if (t.strategy == Truncation::Strategy::kLongestFirst) {
    if (texts.size() == 1) return {most};
    const auto seen = [&](size_t text) { return std::min(lengths[text], t.max_length); };
    const bool odd_to_first = !t.odd_to_longer || seen(0) > seen(1);
    const size_t half = (most + (odd_to_first ? 1 : 0)) / 2;  // tokens kept of the first text
    const size_t first = std::min(lengths[0], std::max(half, most - std::min(most, lengths[1])));
    return {first, most - first};
  }
  const bool first = t.strategy == Truncation::Strategy::kOnlyFirst;
  check(first || texts.size() == 2, "truncation: only the second text may be cut, and there is one");
  size_t& length = lengths[first ? 0 : 1];
  check(length > surplus, "truncation: the {} text alone may be cut, and its {} tokens are too few for {}",
        first ? "first" : "second", length, surplus);
  length -= surplus;
  return lengths;
}

bool truncate(std::vector<Encoding>& texts, size_t added, const Truncation& t) {
  const std::vector<size_t> lengths = kept_lengths(texts, added, t);
  bool any = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    any |= lengths[i] < texts[i].size();
    keep(texts[i], lengths[i], t.from_left);
  }
  return any;
}

std::vector<Encoding> windows_of(const Encoding& text, size_t length, const Truncation& t) {
  const size_t size = text.size();
  if (length >= size) return {text};
  if (length == 0) return {Encoding(), text};
  check(t.stride < length, "truncation: windows of {} tokens that overlap by {} would not go on", length,
        t.stride);
  std::vector<Encoding> out;
  for (size_t passed = 0;; passed += length - t.stride) {  // tokens before it, or with from_left after it
    const size_t count = std::min(length, size - passed),
                 begin = t.from_left ? size - passed - count : passed;
    Encoding window;
    for (size_t i = begin; i < begin + count; ++i) window.add(text.ids[i], text.offsets[i], text.type_ids[i]);
    out.push_back(std::move(window));
    if (passed + count == size) return out;
  }
}

size_t padded_length(const std::vector<Encoding>& batch, const Padding& padding) {
  size_t length = padding.length.value_or(0);
  if (!padding.length)
    for (const Encoding& e : batch) length = std::max(length, e.size());
  if (padding.multiple_of > 1)
    length = (length + padding.multiple_of - 1) / padding.multiple_of * padding.multiple_of;
  check(length <= kMostPadding || (!padding.length && padding.multiple_of == 1),
        "padding: encodings of {} tokens are more than the {} that are written", length, kMostPadding);
  return length;
}

void pad(Encoding& e, size_t length, const Padding& padding) {
  if (e.size() >= length) return;
  const size_t missing = length - e.size();
  e.ids.insert(padding.on_left ? e.ids.begin() : e.ids.end(), missing, padding.id);
  e.offsets.insert(padding.on_left ? e.offsets.begin() : e.offsets.end(), missing, Range{0, 0});
  e.type_ids.insert(padding.on_left ? e.type_ids.begin() : e.type_ids.end(), missing, padding.type_id);
}

}  // namespace qkv::text
