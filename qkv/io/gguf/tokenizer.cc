#include "qkv/io/gguf/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/gguf/tokenizer_pre.h"
#include "qkv/io/gguf/tokenizer_vocab.h"
#include "qkv/text/bpe.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/sentencepiece_file.h"
#include "qkv/text/tokenizer_parts.h"
#include "qkv/text/unicode.h"
#include "qkv/text/word_mark.h"
#include "qkv/text/word_piece.h"

namespace qkv {
namespace {

using gguf::TokenizerModel;
using gguf::TokenType;
using gguf::Vocab;
using text::AddedToken;
using text::kNoToken;
using text::TokenId;
using text::TokenizerParts;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

// The tokens that a text may spell out. GGUF has no flags of the white space around them; llama.cpp sets them
// by the model's name.
std::vector<AddedToken> added_tokens(const Gguf& file, const Vocab& vocab) {
  std::string name = file.has("general.name") ? file.string("general.name") : "";
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool phi3 = contains(name, "phi-3") || contains(name, "phi3");
  const std::string_view mask = contains(vocab.pre, "jina-v2-") ? "<mask>"
                                : contains(name, "modern-bert") ? "[MASK]"
                                                                : "";
  std::vector<AddedToken> tokens;
  for (size_t i = 0; i < vocab.size(); ++i) {
    if (!gguf::is_spelt_out(vocab.types[i])) continue;
    AddedToken token;
    token.id = static_cast<TokenId>(i);
    token.content = vocab.tokens[i];
    token.special = vocab.types[i] != TokenType::user_defined;
    token.lstrip = !mask.empty() && token.content == mask;
    token.rstrip =
        phi3 && token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// tokenizer.chat_template, or a list with the templates of other names.
Json chat_template(const Gguf& file) {
  static constexpr std::string_view kKey = "tokenizer.chat_template";
  Json list = Json::array();
  const auto add = [&](std::string_view name, const std::string& key) {
    text::check_utf8(key, file.path + ": a key");
    text::check_utf8(file.string(key), fmt::format("{}: {}", file.path, key));
    list.push_back({{"name", name}, {"template", file.string(key)}});
  };
  if (file.has(kKey)) add("default", std::string(kKey));
  for (const auto& [key, value] : file.metadata)
    if (key.starts_with(kKey) && key.size() > kKey.size() + 1 && key[kKey.size()] == '.')
      add(std::string_view(key).substr(kKey.size() + 1), key);
  if (list.empty()) return nullptr;
  return list.size() == 1 && file.has(kKey) ? list[0]["template"] : list;
}

std::optional<std::pair<std::string, TokenId>> token_around(const Vocab& vocab, bool wanted,
                                                            std::string_view name) {
  if (!wanted) return std::nullopt;
  const TokenId id = vocab.special_id(name);
  return std::pair(vocab.token(id), id);
}

// tokenizer_config.json without the class. A special token that is a word of the vocabulary is named under
// "gguf", unless texts begin or end with it: as one of tokenizer_config.json it would be found in texts.
OrderedJson config_of(const Gguf& file, const Vocab& vocab) {
  OrderedJson config = {{"add_bos_token", vocab.add_bos},
                        {"add_eos_token", vocab.add_eos},
                        {"clean_up_tokenization_spaces", false}};
  OrderedJson own = OrderedJson::object();
  if (!vocab.pre.empty()) own["pre"] = vocab.pre;
  for (const gguf::SpecialName& special : gguf::kSpecialNames) {
    const TokenId id = vocab.special_id(special.name);
    if (id == kNoToken) continue;
    const bool around =
        (special.name == "bos_token" && vocab.add_bos) || (special.name == "eos_token" && vocab.add_eos);
    if (around || gguf::is_spelt_out(vocab.type(id)))
      config[special.name] = vocab.token(id);
    else
      own["ids"][special.name] = id;
  }
  config["gguf"] = std::move(own);
  if (const Json templates = chat_template(file); !templates.is_null()) config["chat_template"] = templates;
  return config;
}

// {"123": {"content": "<|im_end|>", ...}}
OrderedJson decoder_of(const std::vector<AddedToken>& tokens) {
  OrderedJson decoder = OrderedJson::object();
  for (const AddedToken& token : tokens)
    decoder[std::to_string(token.id)] = {{"content", token.content},         {"lstrip", token.lstrip},
                                         {"normalized", token.normalized},   {"rstrip", token.rstrip},
                                         {"single_word", token.single_word}, {"special", token.special}};
  return decoder;
}

// --- SentencePiece ---

// The ids of fairseq: <s>, <pad>, </s>, <unk>, then the pieces of the file from the fourth on.
bool has_fairseq_ids(const Vocab& vocab) {
  return vocab.model == TokenizerModel::t5 && vocab.add_bos && vocab.add_eos && vocab.size() > 4 &&
         vocab.tokens[0] == "<s>" && vocab.tokens[1] == "<pad>" && vocab.tokens[2] == "</s>" &&
         vocab.tokens[3] == "<unk>";
}

std::string charsmap_of(const Gguf& file) {
  static constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  std::string bytes;
  if (!file.has(kKey)) return bytes;
  const GgufValue& value = *file.find(kKey);
  check(value.type == GgufValue::Type::u8 || value.type == GgufValue::Type::i8, "{}: {}: expected bytes",
        file.path, kKey);
  for (const int64_t byte : file.integers(kKey)) bytes += static_cast<char>(byte);
  return bytes;
}

// The piece for what is unknown.
TokenId unknown_of(const Vocab& vocab) {
  TokenId unknown = vocab.special_id("unk_token");
  for (size_t i = 0; unknown == kNoToken && i < vocab.size(); ++i)
    if (vocab.types[i] == TokenType::unknown) unknown = static_cast<TokenId>(i);
  check(unknown != kNoToken, "{}: tokenizer.ggml.unknown_token_id: the vocabulary has no unknown token",
        vocab.path);
  return unknown;
}

text::SentencePieceFile pieces_of(const Gguf& file, const Vocab& vocab) {
  using PieceType = text::SentencePieceFile::PieceType;
  const bool unigram = vocab.model == TokenizerModel::t5;
  check(!vocab.scores.empty(), "{}: tokenizer.ggml.scores is missing", vocab.path);
  const TokenId unknown = unknown_of(vocab);
  text::SentencePieceFile model;
  size_t bytes = 0;
  for (size_t i = 0; i < vocab.size(); ++i) {
    auto type = static_cast<PieceType>(vocab.types[i]);
    if (static_cast<TokenId>(i) == unknown)
      type = PieceType::kUnknown;
    else if (type == PieceType::kUnknown)
      type = PieceType::kControl;
    if (type == PieceType::kByte) {
      if (text::byte_of_fallback(vocab.tokens[i]) < 0)
        fail("{}: tokenizer.ggml.tokens[{}]: \"{}\" is of type byte, expected <0x00> to <0xFF>", vocab.path,
             i, vocab.tokens[i]);
      ++bytes;
    }
    model.pieces.push_back({vocab.tokens[i], static_cast<float>(vocab.scores[i]), type});
  }
  check(unigram || bytes == 0 || bytes == 256,
        "{}: tokenizer.ggml.token_type: {} tokens are bytes, expected 256", vocab.path, bytes);
  using ModelType = text::SentencePieceFile::ModelType;
  model.model_type = unigram ? ModelType::kUnigram : ModelType::kBpe;
  model.byte_fallback = !unigram && bytes == 256;
  // llama.cpp's unigram models put a space before every word whose spaces they merge.
  model.remove_extra_whitespaces = unigram && vocab.remove_extra_whitespaces;
  model.add_dummy_prefix = vocab.add_space_prefix || model.remove_extra_whitespaces;
  if (unigram) model.precompiled_charsmap = charsmap_of(file);
  return model;
}

TokenizerParts sentencepiece_parts(const Gguf& file, const Vocab& vocab, OrderedJson& config) {
  text::SentencePieceFile model = pieces_of(file, vocab);
  std::vector<AddedToken> added = added_tokens(file, vocab);
  const TokenId unknown = unknown_of(vocab);
  const char* name = "tokenizer.model";
  std::string kind = "LlamaTokenizer";
  if (has_fairseq_ids(vocab)) {
    kind = "XLMRobertaTokenizer";
    name = "sentencepiece.bpe.model";
    std::vector<text::SentencePieceFile::Piece> pieces = {model.pieces[3], model.pieces[0], model.pieces[2]};
    pieces.insert(pieces.end(), model.pieces.begin() + 4, model.pieces.end());
    if (pieces.back().piece == "<mask>") pieces.pop_back();  // the class adds it
    model.pieces = std::move(pieces);
  } else if (vocab.model == TokenizerModel::t5 && !vocab.add_bos && vocab.add_eos) {
    kind = "T5Tokenizer";
    name = "spiece.model";
    config["extra_ids"] = 0;  // they are among the pieces
  }
  // A piece of the type unknown is special by its name alone, which tells it from a control token.
  std::erase_if(added, [&](const AddedToken& token) {
    return token.id == unknown && vocab.type(unknown) == TokenType::unknown;
  });
  config["unk_token"] = vocab.token(unknown);
  // The classes have names of their own for what a file does not name.
  for (const char* key : {"bos_token", "eos_token", "pad_token"})
    if (!config.contains(key)) config[key] = "";
  config["tokenizer_class"] = kind;
  config["legacy"] = true;
  config["add_prefix_space"] = vocab.add_space_prefix;
  config["added_tokens_decoder"] = decoder_of(added);
  const std::string place = vocab.path + ": tokenizer.ggml";
  return text::sentencepiece_parts(
      {{name, text::serialize_sentencepiece(model)}, {"tokenizer_config.json", config.dump(2) + "\n"}},
      place);
}

// --- byte-level BPE ---

// Filling up to the rows of the embedding: "[PAD123]".
bool is_padding(const Vocab& vocab, size_t i) {
  return vocab.types[i] == TokenType::unused && vocab.tokens[i].starts_with("[PAD");
}

TokenizerParts bpe_parts(const Gguf& file, const Vocab& vocab) {
  static constexpr std::string_view kKey = "tokenizer.ggml.merges";
  const std::vector<std::string>& lines = file.strings(kKey);
  text::Vocabulary vocabulary;
  for (size_t i = 0; i < vocab.size(); ++i)
    if (!gguf::is_spelt_out(vocab.types[i]) && !is_padding(vocab, i))
      vocabulary.add(vocab.tokens[i], static_cast<TokenId>(i));
  // Merges may lead to tokens that texts may spell out, too.
  const auto id_of = [&](std::string_view token, size_t line) {
    const TokenId id = vocab.find(token);
    if (id == kNoToken) fail("{}: {}[{}]: \"{}\" is not in the vocabulary", vocab.path, kKey, line, token);
    if (vocabulary.token(id) == nullptr) vocabulary.add(std::string(token), id);
    return id;
  };
  std::vector<text::Merge> merges;
  merges.reserve(lines.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t space = lines[i].find(' ', 1);
    if (space == std::string::npos || space + 1 == lines[i].size())
      fail("{}: {}[{}]: expected \"left right\"", vocab.path, kKey, i);
    const std::string_view line = lines[i], left = line.substr(0, space), right = line.substr(space + 1);
    merges.emplace_back(id_of(left, i), id_of(right, i));
    id_of(std::string(left) + std::string(right), i);
  }
  const gguf::PreTokenizer& pre = *gguf::find_pre_tokenizer(vocab.pre.empty() ? "default" : vocab.pre);
  text::BpeOptions options;
  options.ignore_merges = pre.ignore_merges;

  TokenizerParts parts;
  parts.model = std::make_unique<text::Bpe>(std::move(vocabulary), std::move(merges), options,
                                            fmt::format("{}: {}", vocab.path, kKey));
  parts.added_tokens =
      text::AddedTokens(added_tokens(file, vocab), parts.model->vocabulary(), nullptr, vocab.path);
  const Json stages = gguf::pre_tokenizer_stages(pre);
  parts.pre_tokenizer = text::parse_pre_tokenizer(JsonField(stages, "pre_tokenizer"));
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  parts.decoder = text::parse_decoder(JsonField(bytes, "decoder"));
  const auto begin = token_around(vocab, vocab.add_bos, "bos_token"),
             end = token_around(vocab, vocab.add_eos, "eos_token");
  Json around = text::template_around(begin, end);
  if (begin && end && vocab.add_sep)
    around = {{"type", "RobertaProcessing"},
              {"sep", {end->first, end->second}},
              {"cls", {begin->first, begin->second}},
              {"trim_offsets", false},
              {"add_prefix_space", false}};
  if (begin || end) parts.post_processor = text::parse_post_processor(JsonField(around, "post_processor"));
  return parts;
}

// --- WordPiece ---

// GGUF marks where words begin, vocab.txt where they go on. Older files leave "[unused1]" without a mark.
text::Vocabulary word_pieces(const Vocab& vocab, bool& bare_brackets) {
  text::Vocabulary pieces;
  for (size_t i = 0; i < vocab.size(); ++i) {
    std::string_view token = vocab.tokens[i];
    const bool bare = token.size() > 2 && token.starts_with('[') && token.ends_with(']') &&
                      vocab.types[i] == TokenType::normal;
    bare_brackets |= bare;
    std::string piece;
    if (token.starts_with(text::kWordMark))
      piece = token.substr(text::kWordMark.size());
    else if (bare || gguf::is_spelt_out(vocab.types[i]) || vocab.types[i] == TokenType::unused)
      piece = token;
    else
      piece = "##" + std::string(token);
    check(!piece.empty() && pieces.add(piece, static_cast<TokenId>(i)),
          "{}: tokenizer.ggml.tokens[{}]: \"{}\" stands for \"{}\", which is empty or another token already",
          vocab.path, i, token, piece);
  }
  return pieces;
}

TokenizerParts word_piece_parts(const Gguf& file, const Vocab& vocab, OrderedJson& config) {
  const auto flag = [&](std::string_view key, bool otherwise) {
    return file.has(key) ? file.boolean(key) : otherwise;
  };
  const bool lowercase = flag("tokenizer.ggml.normalizer.lowercase", true);
  const bool strip_accents = flag("tokenizer.ggml.normalizer.strip_accents", lowercase);
  bool bare_brackets = false;
  text::Vocabulary pieces = word_pieces(vocab, bare_brackets);
  text::WordPieceOptions options;
  options.unk_token = vocab.token(unknown_of(vocab));

  TokenizerParts parts;
  parts.model = std::make_unique<text::WordPiece>(std::move(pieces), options);
  const Json normalizer = {{"type", "BertNormalizer"},
                           {"clean_text", true},
                           {"handle_chinese_chars", true},
                           {"strip_accents", strip_accents},
                           {"lowercase", lowercase}};
  parts.normalizer = text::parse_normalizer(JsonField(normalizer, "normalizer"));
  const Json words = {{"type", "BertPreTokenizer"}};
  parts.pre_tokenizer = text::parse_pre_tokenizer(JsonField(words, "pre_tokenizer"));
  parts.added_tokens = text::AddedTokens(added_tokens(file, vocab), parts.model->vocabulary(),
                                         parts.normalizer.get(), vocab.path);
  const Json around =
      text::bert_template(*token_around(vocab, true, "bos_token"), *token_around(vocab, true, "sep_token"));
  parts.post_processor = text::parse_post_processor(JsonField(around, "post_processor"));
  const Json joined = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  parts.decoder = text::parse_decoder(JsonField(joined, "decoder"));

  if (!config.contains("cls_token") && config.contains("bos_token"))
    config["cls_token"] = config["bos_token"];
  config["do_lower_case"] = lowercase;
  config["strip_accents"] = strip_accents;
  config["tokenizer_class"] = "BertTokenizer";
  if (bare_brackets) config["gguf"]["bare_brackets"] = true;
  return parts;
}

TokenizerParts parts_of(const Gguf& file, const Vocab& vocab, OrderedJson& config) {
  switch (vocab.model) {
    case TokenizerModel::llama:
    case TokenizerModel::t5:
      return sentencepiece_parts(file, vocab, config);
    case TokenizerModel::bert:
      return word_piece_parts(file, vocab, config);
    case TokenizerModel::gpt2:
      break;
  }
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return bpe_parts(file, vocab);
}

}  // namespace

GgufTokenizer tokenizer_of_gguf(const Gguf& file) {
  const Vocab vocab = gguf::vocab_of(file);
  OrderedJson config = config_of(file, vocab);
  GgufTokenizer out{.tokenizer = text::Tokenizer(parts_of(file, vocab, config))};
  out.config = config.dump(2) + "\n";
  out.bos = vocab.special_id("bos_token");
  out.pad = vocab.special_id("pad_token");
  out.eos = gguf::ends_of_text(vocab);
  out.warning = vocab.warning;
  return out;
}

}  // namespace qkv
