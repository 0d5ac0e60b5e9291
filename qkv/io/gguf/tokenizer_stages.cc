// The tokenizers of tokenizer.json that become byte-level BPE, WordPiece and unigram models of GGUF.
#include <algorithm>
#include <optional>

#include "qkv/base/base64.h"
#include "qkv/io/gguf/tokenizer_lists.h"
#include "qkv/io/gguf/tokenizer_pre.h"
#include "qkv/text/bpe.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/word_mark.h"

namespace qkv::gguf {
namespace {

// A stage of tokenizer.json; nullopt if it is absent.
std::optional<JsonField> stage_of(const TokenizerSource& source, const char* name) {
  return JsonField(source.document, "tokenizer.json").find(name);
}

// The stages of a sequence, or the stage itself.
std::vector<JsonField> flattened(const std::optional<JsonField>& stage, const char* list_name) {
  std::vector<JsonField> out;
  if (!stage) return out;
  if ((*stage)["type"].string() != "Sequence") return {*stage};
  const JsonField list = (*stage)[list_name];
  for (size_t i = 0; i < list.size(); ++i)
    for (JsonField& inner : flattened(list.at(i), list_name)) out.push_back(std::move(inner));
  return out;
}

// True if every token is what the merges make of its bytes, so that taking it whole changes nothing.
bool merges_reach_all(const JsonField& model) {
  Json without = model.json();
  without["ignore_merges"] = false;
  const text::Bpe bpe(JsonField(without, "model"));
  std::vector<text::Token> tokens;
  for (size_t id = 0; id < bpe.vocabulary().id_limit(); ++id) {
    const std::string* token = bpe.vocabulary().token(static_cast<text::TokenId>(id));
    const auto bytes = token == nullptr ? std::nullopt : text::unspell_bytes(*token);
    if (!bytes || bytes->empty()) continue;
    text::PieceList piece{text::AlignedText(*bytes, 0)};
    piece.bytes = true;
    tokens.clear();
    bpe.tokenize(piece, tokens);
    if (tokens.size() != 1 || tokens[0].id != static_cast<text::TokenId>(id)) return false;
  }
  return true;
}

// The name of the pre-tokenizer: that of the file that the tokenizer is from, or the first with its patterns.
std::string pre_of(const TokenizerSource& source, const JsonField& model) {
  const auto stages = stage_of(source, "pre_tokenizer");
  const auto patterns = stages ? patterns_of_stages(*stages) : std::nullopt;
  if (!patterns)
    fail_to_express("its pre-tokenizer does more than cut texts at patterns: {}",
                    stages ? stages->json().dump().substr(0, 300) : "there is none");
  const bool ignore_merges = model.boolean_or("ignore_merges", false);
  const PreTokenizer* pre = nullptr;
  if (source.own.is_object()) {
    pre = find_pre_tokenizer(JsonField(source.own, "gguf").string_or("pre", "default"));
    if (pre != nullptr && (!has_patterns(*pre, *patterns) || pre->ignore_merges != ignore_merges))
      pre = nullptr;
  }
  if (pre == nullptr) pre = find_by_patterns(*patterns, ignore_merges);
  if (pre == nullptr) {
    std::string shown;
    for (const std::string& pattern : *patterns) shown += " " + pattern;
    fail_to_express("no pre-tokenizer that llama.cpp names cuts texts at{}", shown.substr(0, 500));
  }
  if (pre->ignore_merges != ignore_merges && !merges_reach_all(model))
    fail_to_express("pre-tokenizer '{}' {} whole words past the merges, and this tokenizer does {}",
                    pre->name, pre->ignore_merges ? "takes" : "does not take", ignore_merges ? "" : "not");
  return std::string(pre->name);
}

std::string base64_or_fail(const JsonField& field) {
  std::optional<std::string> bytes = from_base64(field.string());
  if (!bytes) field.refuse("bytes in base64");
  return std::move(*bytes);
}

}  // namespace

std::string embedded_file(const Json& document, const std::string& name) {
  return base64_or_fail(JsonField(document, "tokenizer.json")["files"][name]);
}

void put_byte_level(const TokenizerSource& source, TokenizerLists& lists) {
  const JsonField model = JsonField(source.document, "tokenizer.json")["model"];
  for (const JsonField& stage : flattened(stage_of(source, "normalizer"), "normalizers"))
    if (const std::string& type = stage["type"].string(); type != "NFC")
      fail_to_express("texts go through the normalizer {}", type);
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.string_or(name, "").empty()) fail_to_express("tokens have marks ({})", name);
  if (const auto dropout = model.find("dropout"); dropout && dropout->number() > 0)
    fail_to_express("merges are skipped at random (dropout)");
  lists.model = "gpt2";
  lists.pre = pre_of(source, model);
  const JsonField merges = model["merges"];
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonField merge = merges.at(i);
    if (!merge.json().is_string()) fail_to_express("{} has a space in a token", merge.place());
    lists.merges.push_back(merge.string());
  }
}

void put_word_pieces(const TokenizerSource& source, TokenizerLists& lists) {
  const JsonField model = JsonField(source.document, "tokenizer.json")["model"];
  if (const std::string prefix = model.string_or("continuing_subword_prefix", "##"); prefix != "##")
    fail_to_express("words go on with \"{}\" instead of ##", prefix);
  const auto words = flattened(stage_of(source, "pre_tokenizer"), "pretokenizers");
  if (words.size() != 1 || words[0]["type"].string() != "BertPreTokenizer")
    fail_to_express("its pre-tokenizer is not BERT's");
  bool lowercase = false;
  std::optional<bool> strip_accents;
  bool bert = false;
  for (const JsonField& stage : flattened(stage_of(source, "normalizer"), "normalizers")) {
    const std::string& type = stage["type"].string();
    if (type == "NFC") continue;
    if (type != "BertNormalizer" || bert) fail_to_express("texts go through the normalizer {}", type);
    bert = true;
    lowercase = stage.boolean_or("lowercase", true);
    if (const auto strip = stage.find("strip_accents")) strip_accents = strip->boolean();
    for (const char* name : {"clean_text", "handle_chinese_chars"})
      if (!stage.boolean_or(name, true)) fail_to_express("its normalizer has no {}", name);
  }
  if (!bert) fail_to_express("its normalizer is not BERT's");
  lists.model = "bert";
  if (source.own.is_object()) lists.pre = JsonField(source.own, "gguf").string_or("pre", "default");
  const bool bare_brackets =
      source.own.is_object() && JsonField(source.own, "gguf").boolean_or("bare_brackets", false);
  for (size_t i = 0; i < lists.tokens.size(); ++i) {
    std::string& token = lists.tokens[i];
    if (is_spelt_out(lists.types[i]) || lists.types[i] == TokenType::unused) continue;
    if (token.starts_with("##"))
      token.erase(0, 2);
    else if (!bare_brackets || token.size() < 3 || !token.starts_with('[') || !token.ends_with(']'))
      token.insert(0, text::kWordMark);
  }
  lists.flags.emplace_back("tokenizer.ggml.normalizer.lowercase", GgufValue::of(lowercase));
  lists.flags.emplace_back("tokenizer.ggml.normalizer.strip_accents",
                           GgufValue::of(strip_accents.value_or(lowercase)));
}

void put_unigram(const TokenizerSource& source, TokenizerLists& lists) {
  const JsonField model = JsonField(source.document, "tokenizer.json")["model"];
  if (model.boolean_or("byte_fallback", false)) fail_to_express("a unigram model falls back to bytes");
  std::string charsmap;
  bool remove_spaces = false, add_prefix = false, marks = false;
  for (const JsonField& stage : flattened(stage_of(source, "normalizer"), "normalizers")) {
    const std::string& type = stage["type"].string();
    const bool spaces = type == "Strip" || (type == "Replace" && stage["pattern"].find("Regex") &&
                                            stage["pattern"]["Regex"].string().starts_with(" {2,}"));
    if (type == "Precompiled")
      charsmap = base64_or_fail(stage["precompiled_charsmap"]);
    else if (spaces)
      remove_spaces = true;
    else
      fail_to_express("texts go through the normalizer {}", type);
  }
  for (const JsonField& stage : flattened(stage_of(source, "pre_tokenizer"), "pretokenizers")) {
    const std::string& type = stage["type"].string();
    if (type == "WhitespaceSplit" && !marks) {
      remove_spaces = true;
    } else if (type == "Metaspace" && !marks &&
               stage.string_or("replacement", std::string(text::kWordMark)) == text::kWordMark) {
      marks = true;
      add_prefix =
          stage.string_or("prepend_scheme",
                          stage.boolean_or("add_prefix_space", true) ? "always" : "never") != "never";
    } else {
      fail_to_express("texts go through the pre-tokenizer {}", type);
    }
  }
  if (!marks) fail_to_express("its pre-tokenizer is not Metaspace");
  lists.model = "t5";
  const JsonField vocab = model["vocab"];
  lists.scores.assign(lists.tokens.size(), -1000);
  for (size_t i = 0; i < vocab.size(); ++i) lists.scores[i] = vocab.at(i).at(1).number();
  if (const text::TokenId unknown = source.from.tokenizer.unknown(); unknown != text::kNoToken)
    lists.types[static_cast<size_t>(unknown)] = TokenType::unknown;
  lists.flags.emplace_back("tokenizer.ggml.add_space_prefix", GgufValue::of(add_prefix));
  lists.flags.emplace_back("tokenizer.ggml.remove_extra_whitespaces", GgufValue::of(remove_spaces));
  append_charsmap(charsmap, lists);
}

void append_charsmap(const std::string& charsmap, TokenizerLists& lists) {
  if (charsmap.empty()) return;
  std::vector<int64_t> bytes;
  for (const char c : charsmap) bytes.push_back(static_cast<unsigned char>(c));
  lists.flags.emplace_back("tokenizer.ggml.precompiled_charsmap",
                           GgufValue::of_integers(GgufValue::Type::u8, std::move(bytes)));
}

}  // namespace qkv::gguf
