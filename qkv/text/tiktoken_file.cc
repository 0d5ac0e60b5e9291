#include "qkv/text/tiktoken_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_map>
#include <vector>

#include "qkv/base/base64.h"
#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/bpe.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/gpt2_pattern.h"
#include "qkv/text/piece_patterns.h"

namespace qkv::text {
namespace {

struct SpecialToken {
  std::string_view content;
  TokenId after;  // its id minus (largest rank + 1)
};

// The properties of an encoding that its rank file lacks.
struct RankEncoding {
  std::string_view name, pattern;
  std::vector<SpecialToken> special;
};

const std::vector<RankEncoding>& encodings() {
  static const std::vector<RankEncoding> known = {
      {"gpt2", kGpt2Pattern, {{"<|endoftext|>", 0}}},
      {"r50k_base", kGpt2Pattern, {{"<|endoftext|>", 0}}},
      {"p50k_base", kGpt2Pattern, {{"<|endoftext|>", -25}}},  // the ranks have a gap for it
      {"cl100k_base",
       kCl100kPattern,
       {{"<|endoftext|>", 1},
        {"<|fim_prefix|>", 2},
        {"<|fim_middle|>", 3},
        {"<|fim_suffix|>", 4},
        {"<|endofprompt|>", 20}}},
      {"o200k_base", kO200kPattern, {{"<|endoftext|>", 1}, {"<|endofprompt|>", 20}}},
      {"qwen", kQwenPattern, {{"<|endoftext|>", 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}}},
      {"tokenizer",  // the tokens that Llama 3 and 3.1 share
       kCl100kPattern,
       {{"<|begin_of_text|>", 0},
        {"<|end_of_text|>", 1},
        {"<|start_header_id|>", 6},
        {"<|end_header_id|>", 7},
        {"<|eot_id|>", 9}}}};
  return known;
}

std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

struct Rank {
  std::string bytes;
  TokenId id;
};

// Parses "bytes-in-base64 rank"; returns nullopt if the line is anything else.
std::optional<Rank> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == line.npos || space == 0) return std::nullopt;
  std::optional<std::string> bytes = from_base64(line.substr(0, space));
  Rank rank{{}, kNoToken};
  const char *begin = line.data() + space + 1, *end = line.data() + line.size();
  const auto [stopped, error] = std::from_chars(begin, end, rank.id);
  if (!bytes || bytes->empty() || error != std::errc() || stopped != end || rank.id < 0 ||
      rank.id > kLargestTokenId)
    return std::nullopt;
  rank.bytes = std::move(*bytes);
  return rank;
}

constexpr size_t kLongestToken = 1024;  // bytes; bounds the number of ways to cut a token in two

std::vector<Rank> parse_ranks(std::string_view text, const std::string& path) {
  std::vector<Rank> ranks;
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (line.empty()) continue;
    std::optional<Rank> rank = parse_line(line);
    check(rank.has_value(), "{}:{}: expected a token in base64 and its rank", path, number);
    check(rank->bytes.size() <= kLongestToken, "{}:{}: a token longer than {} bytes", path, number,
          kLongestToken);
    ranks.push_back(std::move(*rank));
  }
  check(!ranks.empty(), "{}: there are no tokens in it", path);
  std::sort(ranks.begin(), ranks.end(), [](const Rank& a, const Rank& b) { return a.id < b.id; });
  return ranks;
}

// All pairs of tokens that make a token, ordered by that token's rank.
std::vector<Merge> merges_of(const std::vector<Rank>& ranks) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (const Rank& r : ranks) ids.emplace(r.bytes, r.id);
  std::vector<Merge> merges, of_one;
  for (const Rank& r : ranks) {
    of_one.clear();
    for (size_t cut = 1; cut < r.bytes.size(); ++cut) {
      const auto left = ids.find(std::string_view(r.bytes).substr(0, cut)),
                 right = ids.find(std::string_view(r.bytes).substr(cut));
      if (left != ids.end() && right != ids.end()) of_one.emplace_back(left->second, right->second);
    }
    std::sort(of_one.begin(), of_one.end());
    merges.insert(merges.end(), of_one.begin(), of_one.end());
  }
  return merges;
}

}  // namespace

bool is_tiktoken_file(std::string_view contents) {
  constexpr size_t kLongestLine = 2048;
  contents = contents.substr(0, kLongestLine);
  return contents.find('\n') != contents.npos && parse_line(take_line(contents)).has_value();
}

TokenizerParts tiktoken_parts(std::string_view contents, const std::string& path) {
  const std::string name = std::filesystem::path(path).stem().string();
  const auto encoding = std::find_if(encodings().begin(), encodings().end(),
                                     [&](const RankEncoding& e) { return e.name == name; });
  if (encoding == encodings().end()) {
    std::string known;
    for (const RankEncoding& e : encodings()) known += (known.empty() ? "" : ", ") + std::string(e.name);
    fail(
        "{}: a rank file does not say where pieces of text end, and '{}' is no name that does (known: {}): "
        "name it so, or write a tokenizer.json",
        path, name, known);
  }
  const std::vector<Rank> ranks = parse_ranks(contents, path);
  Vocabulary vocabulary;
  for (const Rank& r : ranks) {
    const std::string token = spell_bytes(r.bytes);
    check(vocabulary.find(token) == kNoToken && vocabulary.token(r.id) == nullptr,
          "{}: rank {} or its token occurs twice", path, r.id);
    vocabulary.add(token, r.id);
  }
  BpeOptions options;
  options.ignore_merges = true;
  TokenizerParts parts;
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), merges_of(ranks), options, path);
  const auto limit = static_cast<TokenId>(parts.model->vocabulary().id_limit());
  std::vector<AddedToken> special;
  for (const SpecialToken& s : encoding->special) {
    AddedToken token;
    token.content = std::string(s.content);
    token.id = limit + s.after;
    check(token.id >= 0 && parts.model->vocabulary().token(token.id) == nullptr,
          "{}: {} ranks are not those of {}: {} has no place among them", path, ranks.size(), name,
          s.content);
    special.push_back(std::move(token));
  }
  parts.added_tokens = AddedTokens(std::move(special), parts.model->vocabulary(), nullptr, path);
  const Json pieces = {{"type", "Split"},
                       {"pattern", {{"Regex", encoding->pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}};
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json both = {{"type", "Sequence"}, {"pretokenizers", {pieces, bytes}}};
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(both, "pre_tokenizer"));
  parts.decoder = parse_decoder(JsonField(bytes, "decoder"));
  return parts;
}

}  // namespace qkv::text
