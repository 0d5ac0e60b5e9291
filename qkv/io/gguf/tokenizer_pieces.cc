// Vocabularies with scores: SentencePiece models, and the merges of tokenizer.json that stem from one.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "qkv/io/gguf/tokenizer_lists.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/sentencepiece_file.h"
#include "qkv/text/word_mark.h"

namespace qkv::gguf {
namespace {

constexpr double kNoScore = -1000;  // that of added tokens

using PieceType = text::SentencePieceFile::PieceType;

std::string with_spaces(std::string text) {
  for (size_t at = 0; (at = text.find(text::kWordMark, at)) != text.npos; ++at)
    text.replace(at, text::kWordMark.size(), " ");
  return text;
}

text::SentencePieceFile model_in(const Json& document) {
  for (const char* name : text::kSentencePieceNames)
    if (document["files"].contains(name))
      return text::parse_sentencepiece(embedded_file(document, name), name);
  fail_to_express("it has no .model file");
}

// Scores and types of the pieces; added tokens keep the types that follow from their flags.
void put_pieces(const TokenizerSource& source, const text::SentencePieceFile& model, TokenizerLists& lists) {
  std::unordered_map<std::string_view, const text::SentencePieceFile::Piece*> pieces;
  for (const auto& piece : model.pieces) pieces.emplace(piece.piece, &piece);
  const bool from_gguf = source.own.is_object();
  const Json decoder = source.config.value("added_tokens_decoder", Json::object());
  lists.scores.assign(lists.tokens.size(), kNoScore);
  for (size_t i = 0; i < lists.tokens.size(); ++i) {
    std::string& token = lists.tokens[i];
    TokenType& type = lists.types[i];
    if (const auto it = pieces.find(token); it != pieces.end()) {
      lists.scores[i] = it->second->score;
      const bool listed = decoder.contains(std::to_string(i));
      if (it->second->type == PieceType::kUnknown)
        type = listed ? TokenType::control : TokenType::unknown;
      else if (!is_spelt_out(type))
        type = static_cast<TokenType>(it->second->type);
    }
    // llama.cpp finds these in a text whose spaces are not marks yet.
    if (type == TokenType::user_defined && !from_gguf) token = with_spaces(std::move(token));
  }
}

// The tokens of a BPE whose merges are all pairs of tokens that make a token, ordered by that token: what
// Hugging Face's converters write for a SentencePiece model. The first token merged gets the highest score.
// Throws Error if the merges are others.
std::unordered_map<std::string, double> scores_of_merges(const JsonField& model) {
  const JsonField merges = model["merges"];
  std::unordered_map<std::string, double> scores;
  std::unordered_set<std::string> pairs;
  std::string last;
  for (size_t i = 0; i < merges.size(); ++i) {
    const JsonField merge = merges.at(i);
    std::string left, right;
    if (merge.json().is_array()) {
      left = merge.at(0).string();
      right = merge.at(1).string();
    } else {
      const std::string& both = merge.string();
      left = both.substr(0, both.find(' '));
      right = both.substr(both.find(' ') + 1);
    }
    const std::string joined = left + right;
    pairs.insert(left + '\n' + right);
    if (joined == last) continue;
    if (!scores.emplace(joined, -static_cast<double>(scores.size())).second)
      fail_to_express(
          "its merges are not in the order of their tokens (\"{}\"), so scores cannot replace them", joined);
    last = joined;
  }
  for (const auto& [token, score] : scores)
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const std::string left = token.substr(0, cut), right = token.substr(cut);
      const Json& vocab = model["vocab"].json();
      if (vocab.contains(left) && vocab.contains(right) && !pairs.contains(left + '\n' + right))
        fail_to_express("\"{}\" and \"{}\" are not merged, which scores cannot express", left, right);
    }
  return scores;
}

// True if texts begin with a space, nullopt if the stages are not those of such a tokenizer.
std::optional<bool> prefix_of_stages(const Json& document) {
  const Json normalizer = document.value("normalizer", Json()), pre = document.value("pre_tokenizer", Json());
  const auto is_escape = [](const Json& stage) {
    return stage.value("type", "") == "Replace" && stage.value("content", "") == text::kWordMark &&
           stage.value("pattern", Json()) == Json{{"String", " "}};
  };
  if (normalizer.is_null() && pre.is_object() && pre.value("type", "") == "Metaspace" &&
      pre.value("replacement", std::string(text::kWordMark)) == text::kWordMark)
    return pre.value("prepend_scheme", pre.value("add_prefix_space", true) ? "always" : "never") != "never";
  const bool harmless = pre.is_null() || (pre.value("type", "") == "Split" &&
                                          pre.value("pattern", Json()) == Json{{"String", " "}});
  if (!harmless || !normalizer.is_object()) return std::nullopt;
  if (is_escape(normalizer)) return false;
  const Json list = normalizer.value("normalizers", Json::array());
  if (list.size() == 1 && is_escape(list[0])) return false;
  if (list.size() == 2 && list[0].value("type", "") == "Prepend" &&
      list[0].value("prepend", "") == text::kWordMark && is_escape(list[1]))
    return true;
  return std::nullopt;
}

// A piece that goes on after a space, which a tokenizer that cuts at spaces never makes.
bool spans_words(std::string_view token) {
  size_t begin = 0;
  while (token.substr(begin).starts_with(text::kWordMark)) begin += text::kWordMark.size();
  return token.find(text::kWordMark, begin) != token.npos;
}

}  // namespace

void put_sentencepiece(const TokenizerSource& source, TokenizerLists& lists) {
  const text::SentencePieceFile model = model_in(source.document);
  const JsonField config(source.config, "tokenizer_config.json");
  std::string kind = config.string_or("tokenizer_class", "");
  if (kind.ends_with("Fast")) kind.resize(kind.size() - 4);
  if (kind == "AlbertTokenizer" || kind == "XLNetTokenizer")
    fail_to_express("{} changes texts before SentencePiece does", kind);
  using ModelType = text::SentencePieceFile::ModelType;
  const bool unigram = model.model_type == ModelType::kUnigram;
  if (!unigram && model.model_type != ModelType::kBpe)
    fail_to_express("SentencePiece models of words or characters have no counterpart");
  if (!model.escape_whitespaces || model.treat_whitespace_as_suffix)
    fail_to_express("its SentencePiece model treats spaces in an uncommon way");
  if (!unigram && (!model.precompiled_charsmap.empty() || model.remove_extra_whitespaces))
    fail_to_express("its SentencePiece model of merges normalizes texts");
  if (unigram && model.byte_fallback) fail_to_express("a unigram model falls back to bytes");
  // llama.cpp cuts texts at them and puts a space before what follows; SentencePiece finds them inside words.
  for (const auto& piece : model.pieces)
    if (const auto id = source.from.tokenizer.token_to_id(piece.piece);
        unigram && piece.type == PieceType::kUserDefined && id &&
        lists.types[static_cast<size_t>(*id)] == TokenType::normal)
      fail_to_express("the user-defined piece \"{}\" stands inside words", piece.piece);
  lists.model = unigram ? "t5" : "llama";
  if (source.own.is_object()) lists.pre = JsonField(source.own, "gguf").string_or("pre", "default");
  put_pieces(source, model, lists);
  // Without "legacy", the class decides about the space before a text, not the file.
  const bool by_class = source.own.is_object() || !config.boolean_or("legacy", true);
  const bool add_prefix = by_class ? config.boolean_or("add_prefix_space", true) : model.add_dummy_prefix;
  lists.flags.emplace_back("tokenizer.ggml.add_space_prefix", GgufValue::of(add_prefix));
  if (!unigram) return;
  lists.flags.emplace_back("tokenizer.ggml.remove_extra_whitespaces",
                           GgufValue::of(model.remove_extra_whitespaces));
  append_charsmap(model.precompiled_charsmap, lists);
}

void put_scored_merges(const TokenizerSource& source, TokenizerLists& lists) {
  const std::optional<bool> add_prefix = prefix_of_stages(source.document);
  if (!add_prefix) fail_to_express("its normalizer or pre-tokenizer is not that of a SentencePiece model");
  const Json pre = source.document.value("pre_tokenizer", Json());
  if (pre.is_object() && pre.value("type", "") == "Metaspace" && pre.value("split", true))
    for (const std::string& token : lists.tokens)
      if (spans_words(token))
        fail_to_express("it cuts texts at spaces, but the token \"{}\" has one inside", token);
  lists.model = "llama";
  lists.flags.emplace_back("tokenizer.ggml.add_space_prefix", GgufValue::of(*add_prefix));
  // The .model file beside tokenizer.json has the scores.
  if (!source.from.sentencepiece.empty()) {
    const auto model = text::parse_sentencepiece(source.from.sentencepiece, "tokenizer.model");
    if (model.model_type == text::SentencePieceFile::ModelType::kBpe) return put_pieces(source, model, lists);
  }
  const auto scores = scores_of_merges(JsonField(source.document, "tokenizer.json")["model"]);
  lists.scores.assign(lists.tokens.size(), kNoScore);
  for (size_t i = 0; i < lists.tokens.size(); ++i) {
    std::string& token = lists.tokens[i];
    if (const auto it = scores.find(token); it != scores.end()) lists.scores[i] = it->second;
    if (lists.types[i] == TokenType::user_defined) token = with_spaces(std::move(token));
    if (lists.types[i] == TokenType::normal && text::byte_of_fallback(token) >= 0)
      lists.types[i] = TokenType::byte;
  }
  if (const text::TokenId unknown = source.from.tokenizer.unknown(); unknown != text::kNoToken)
    lists.types[static_cast<size_t>(unknown)] = TokenType::unknown;
}

}  // namespace qkv::gguf
