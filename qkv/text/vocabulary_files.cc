#include "qkv/text/vocabulary_files.h"

#include <algorithm>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/text/bpe.h"
#include "qkv/text/neighbour_files.h"
#include "qkv/text/unicode.h"
#include "qkv/text/word_piece.h"

namespace qkv::text {
namespace {

namespace fs = std::filesystem;

OrderedJson byte_level_json(bool trim_offsets) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", trim_offsets},
          {"use_regex", true}};
}

// merges.txt: a version line, then "left right" on each line.
std::vector<Merge> parse_merges_text(std::string_view text, const std::string& file,
                                     const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    check(space != line.npos && line.find(' ', space + 1) == line.npos, "{}:{}: expected \"left right\"",
          file, number);
    const std::string_view parts[2] = {line.substr(0, space), line.substr(space + 1)};
    TokenId ids[2];
    for (size_t i = 0; i < 2; ++i) {
      ids[i] = vocabulary.find(parts[i]);
      if (ids[i] == kNoToken) fail("{}:{}: \"{}\" is not in the vocabulary", file, number, parts[i]);
    }
    merges.emplace_back(ids[0], ids[1]);
  }
  return merges;
}

// The tokens of vocab.txt, one a line, numbered from 0; of a token on two lines the latter counts.
Vocabulary parse_vocab_text(std::string_view text, const std::string& file) {
  check_utf8(text, file);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    if (lines.back().ends_with('\r')) lines.back().remove_suffix(1);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  check(lines.size() <= static_cast<size_t>(kLargestTokenId), "{}: more than {} lines", file,
        kLargestTokenId);
  Vocabulary vocabulary;
  for (size_t i = lines.size(); i-- > 0;) {
    if (!lines[i].empty()) vocabulary.add(std::string(lines[i]), static_cast<TokenId>(i));
  }
  return vocabulary;
}

}  // namespace

TokenizerParts load_gpt2_files(const std::string& path) {
  const fs::path directory(path);
  const std::string vocab_file = (directory / "vocab.json").string();
  const std::string merges_file = (directory / "merges.txt").string();

  const Json vocab = parse_json(read_file(vocab_file), vocab_file);
  Vocabulary vocabulary(JsonField(vocab, vocab_file));
  std::vector<Merge> merges = parse_merges_text(read_file(merges_file), merges_file, vocabulary);
  auto model = std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), BpeOptions{}, merges_file);

  const NeighbourFiles files(path);
  LegacyTokens tokens(model->vocabulary());
  files.add_to(tokens);
  if (model->vocabulary().find("<|endoftext|>") != kNoToken) tokens.add_special("<|endoftext|>");

  TokenizerParts parts;
  parts.added_tokens = AddedTokens(tokens.take(), model->vocabulary(), nullptr, directory.string());
  parts.model = std::move(model);
  const Json stage = byte_level_json(true), untrimmed = byte_level_json(false);
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  parts.post_processor = parse_post_processor(JsonField(untrimmed, "post_processor"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  if (files.config().boolean_or("add_prefix_space", false)) parts.text_prefix.assign(1, ' ');
  return parts;
}

TokenizerParts load_bert_files(const std::string& path) {
  const std::string vocab_file = (fs::path(path) / "vocab.txt").string();
  const NeighbourFiles files(path);
  const JsonField config = files.config();
  WordPieceOptions options;
  options.unk_token = files.named("unk_token", options.unk_token);
  const std::string cls = files.named("cls_token", "[CLS]"), sep = files.named("sep_token", "[SEP]");
  const bool lowercase = config.boolean_or("do_lower_case", true);
  const bool strip_accents = config.boolean_or("strip_accents", lowercase);

  TokenizerParts parts;
  parts.model = std::make_unique<WordPiece>(parse_vocab_text(read_file(vocab_file), vocab_file), options);
  LegacyTokens tokens(parts.model->vocabulary());
  files.add_to(tokens);
  for (const std::string& token :
       {options.unk_token, sep, files.named("pad_token", "[PAD]"), cls, files.named("mask_token", "[MASK]")})
    tokens.add_special(token);

  Json normalizer = {{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", config.boolean_or("tokenize_chinese_chars", true)},
                     {"strip_accents", strip_accents},
                     {"lowercase", lowercase}};
  if (!strip_accents)
    normalizer = {{"type", "Sequence"}, {"normalizers", {std::move(normalizer), {{"type", "NFC"}}}}};
  parts.normalizer = parse_normalizer(JsonField(normalizer, "normalizer"));
  const Json pre_tokenizer = {{"type", "BertPreTokenizer"}};
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(pre_tokenizer, "pre_tokenizer"));
  parts.added_tokens = AddedTokens(tokens.take(), parts.model->vocabulary(), parts.normalizer.get(), path);
  const Json post_processor =
      bert_template({cls, parts.added_tokens.find(cls)}, {sep, parts.added_tokens.find(sep)});
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
  Json decoders = Json::array({{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", false}}});
  if (config.boolean_or("clean_up_tokenization_spaces", false))
    for (Json& stage : clean_up_stages()) decoders.push_back(std::move(stage));
  const Json decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  parts.decoder = parse_decoder(JsonField(decoder, "decoder"));
  return parts;
}

void save_gpt2_files(const TokenizerParts& parts, const std::string& path) {
  const fs::path directory(path);
  OrderedJson model = parts.model->to_json();
  OrderedJson vocab = model["vocab"];
  std::string merges = "#version: 0.2\n";
  for (const auto& merge : model["merges"]) merges += merge.get_ref<const std::string&>() + "\n";
  OrderedJson decoder = OrderedJson::object();
  for (const AddedToken& token : parts.added_tokens.all()) {
    decoder[std::to_string(token.id)] = {{"content", token.content},         {"lstrip", token.lstrip},
                                         {"normalized", token.normalized},   {"rstrip", token.rstrip},
                                         {"single_word", token.single_word}, {"special", token.special}};
  }
  const OrderedJson config = {{"add_prefix_space", true},
                              {"added_tokens_decoder", std::move(decoder)},
                              {"tokenizer_class", "GPT2Tokenizer"}};
  write_file_atomically((directory / "vocab.json").string(), vocab.dump() + "\n");
  write_file_atomically((directory / "merges.txt").string(), merges);
  write_file_atomically((directory / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

}  // namespace qkv::text
