#include "qkv/infer/encode.h"

namespace qkv {

EncodedText encode_text(const TextPair& text, const text::Tokenizer& tokenizer, const ModelSpec& spec) {
  EncodedText out;
  const std::optional<std::string_view> second =
      text.second.empty() ? std::nullopt : std::optional<std::string_view>(text.second);
  const text::Truncation to_context{.max_length = static_cast<size_t>(spec.context)};
  out.encoding = tokenizer.encode_within(to_context, text.first, second, true, &out.cut);
  check(out.encoding.size() > 0, "'{}' gives no token", text.first);
  return out;
}

ModelInput input_of(const std::vector<EncodedText>& texts, std::span<const int64_t> which) {
  std::vector<int32_t> ids, segments, lengths;
  for (const int64_t d : which) {
    const text::Encoding& e = texts[d].encoding;
    ids.insert(ids.end(), e.ids.begin(), e.ids.end());
    segments.insert(segments.end(), e.type_ids.begin(), e.type_ids.end());
    lengths.push_back(static_cast<int32_t>(e.size()));
  }
  ModelInput input;
  input.ids = std::move(ids);
  input.segments = std::move(segments);
  input.layout = Layout::of(lengths);
  return input;
}

std::vector<int64_t> first_tokens(const text::Encoding& encoding, const std::vector<std::string>& words) {
  std::vector<int64_t> out;
  size_t token = 0, begin = 0;
  for (const std::string& word : words) {
    const size_t end = begin + word.size();
    while (token < encoding.size() && encoding.offsets[token].end <= begin)
      ++token;  // special tokens have empty ranges
    const bool found = token < encoding.size() && encoding.offsets[token].begin < end;
    out.push_back(found ? static_cast<int64_t>(token) : -1);
    begin = end + 1;
  }
  return out;
}

}  // namespace qkv
