#include "qkv/text/vocabulary_files.h"

#include <algorithm>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/text/bpe.h"
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

// The tokens that files beside vocab.json add to it.
class LegacyTokens {
 public:
  explicit LegacyTokens(const Vocabulary& vocabulary)
      : vocabulary_(vocabulary), next_id_(static_cast<TokenId>(vocabulary.id_limit())) {}

  // A name in special_tokens_map.json or tokenizer_config.json: a string or an object with "content".
  void add_special(const JsonField& field) {
    if (field.json().is_object()) return add(parse_added_token(field, {}));
    add_special(field.string());
  }
  void add_special(const std::string& content) {
    AddedToken token;
    token.content = content;
    add(std::move(token));
  }

  // "added_tokens_decoder": {"50256": {"content": ...}}
  void add_decoder(const JsonField& field) {
    for (auto it = field.object().begin(); it != field.object().end(); ++it) {
      AddedToken token = parse_added_token(field[it.key()], {});
      token.id = parse_id(it.key(), field);
      add(std::move(token));
    }
  }

  // added_tokens.json: {"token": id}
  void add_list(const JsonField& field) {
    for (auto it = field.object().begin(); it != field.object().end(); ++it) {
      AddedToken token;
      token.content = it.key();
      token.special = false;
      token.id = static_cast<TokenId>(field[it.key()].integer(0, kLargestTokenId));
      add(std::move(token));
    }
  }

  // The tokens; those that no file numbered come after all others.
  std::vector<AddedToken> take() {
    for (AddedToken& token : tokens_) {
      if (token.id == kNoToken) token.id = vocabulary_.find(token.content);
      next_id_ = std::max(next_id_, token.id + 1);
    }
    for (AddedToken& token : tokens_) {
      if (token.id == kNoToken) token.id = next_id_++;
    }
    return std::move(tokens_);
  }

 private:
  static TokenId parse_id(const std::string& digits, const JsonField& field) {
    const bool number =
        !digits.empty() && digits.size() <= 8 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!number || std::stoi(digits) > kLargestTokenId) field.refuse("ids as keys");
    return static_cast<TokenId>(std::stoi(digits));
  }

  // The first file to name a token decides on its flags; a later one may still say that it is special.
  void add(AddedToken token) {
    if (token.content.empty()) return;
    for (AddedToken& known : tokens_) {
      if (known.content != token.content) continue;
      known.special |= token.special;
      if (known.id == kNoToken) known.id = token.id;
      return;
    }
    tokens_.push_back(std::move(token));
  }

  const Vocabulary& vocabulary_;
  TokenId next_id_;
  std::vector<AddedToken> tokens_;
};

// The small files of a directory.
class NeighbourFiles {
 public:
  explicit NeighbourFiles(const fs::path& directory)
      : config_file_((directory / "tokenizer_config.json").string()),
        map_file_((directory / "special_tokens_map.json").string()),
        added_file_((directory / "added_tokens.json").string()),
        config_(read_optional(config_file_)),
        map_(read_optional(map_file_)),
        added_(read_optional(added_file_)) {}

  JsonField config() const { return {config_, config_file_}; }

  // The token that is called `name` ("cls_token"); `otherwise` where no file says.
  std::string named(std::string_view name, const std::string& otherwise) const {
    for (const JsonField& field : {config(), JsonField(map_, map_file_)}) {
      if (const auto token = field.find(name))
        return token->json().is_object() ? (*token)["content"].string() : token->string();
    }
    return otherwise;
  }

  // All tokens that the files name.
  void add_to(LegacyTokens& tokens) const {
    if (const auto decoder = config().find("added_tokens_decoder")) tokens.add_decoder(*decoder);
    add_named(config(), tokens);
    add_named({map_, map_file_}, tokens);
    tokens.add_list({added_, added_file_});
  }

 private:
  // An empty object when there is no such file.
  static Json read_optional(const std::string& path) {
    return file_exists(path) ? parse_json(read_file(path), path) : Json::object();
  }

  static void add_named(const JsonField& field, LegacyTokens& tokens) {
    static constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};
    for (const std::string_view name : kNames) {
      if (const auto token = field.find(name)) tokens.add_special(*token);
    }
    if (const auto more = field.find("additional_special_tokens")) {
      for (size_t i = 0; i < more->size(); ++i) tokens.add_special(more->at(i));
    }
  }

  std::string config_file_, map_file_, added_file_;
  Json config_, map_, added_;
};

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

// What clean_up_tokenization_spaces does to decoded text.
void append_clean_up(Json& decoders) {
  static constexpr std::string_view kReplacements[][2] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  decoders.push_back({{"type", "Fuse"}});
  for (const auto& [from, to] : kReplacements)
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}});
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

  const NeighbourFiles files(directory);
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
  if (config.boolean_or("clean_up_tokenization_spaces", false)) append_clean_up(decoders);
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
