// Tokenizers from files and to files.
#include <algorithm>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/text/bpe.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/tokenizer_parts.h"

namespace qkv::text {
namespace {

namespace fs = std::filesystem;

OrderedJson byte_level_json(bool trim_offsets) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", trim_offsets},
          {"use_regex", true}};
}

template <typename Stage>
OrderedJson or_null(const std::unique_ptr<Stage>& stage) {
  return stage ? stage->to_json() : OrderedJson(nullptr);
}

OrderedJson parts_to_json(const TokenizerParts& parts) {
  return {{"version", "1.0"},
          {"truncation", parts.truncation},
          {"padding", parts.padding},
          {"added_tokens", parts.added_tokens.to_json()},
          {"normalizer", or_null(parts.normalizer)},
          {"pre_tokenizer", or_null(parts.pre_tokenizer)},
          {"post_processor", or_null(parts.post_processor)},
          {"decoder", or_null(parts.decoder)},
          {"model", parts.model->to_json()}};
}

// Everything that a template may put into a sequence must be a token.
void check_post_processor(const TokenizerParts& parts, const std::string& name) {
  if (!parts.post_processor) return;
  for (const size_t texts : {1, 2}) {
    for (const TokenId id : parts.post_processor->assemble(std::vector<Encoding>(texts)).ids) {
      const bool known =
          parts.model->vocabulary().token(id) != nullptr || parts.added_tokens.find(id) != nullptr;
      check(known, "{}: post_processor: {} is no token's id", name, id);
    }
  }
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
    AddedToken token;
    token.content = field.string();
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

constexpr std::string_view kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                              "pad_token", "cls_token", "mask_token"};

void add_named_specials(const JsonField& field, LegacyTokens& tokens) {
  for (const std::string_view name : kSpecialNames) {
    if (const auto token = field.find(name)) tokens.add_special(*token);
  }
  if (const auto more = field.find("additional_special_tokens")) {
    for (size_t i = 0; i < more->size(); ++i) tokens.add_special(more->at(i));
  }
}

// A JSON file of a directory, an empty object when there is none.
Json read_optional_json(const fs::path& path) {
  return file_exists(path.string()) ? parse_json(read_file(path.string()), path.string()) : Json::object();
}

Tokenizer load_gpt2_files(const fs::path& directory) {
  const std::string vocab_file = (directory / "vocab.json").string();
  const std::string merges_file = (directory / "merges.txt").string();
  const std::string config_file = (directory / "tokenizer_config.json").string();
  const std::string map_file = (directory / "special_tokens_map.json").string();
  const std::string added_file = (directory / "added_tokens.json").string();

  const Json vocab = parse_json(read_file(vocab_file), vocab_file);
  Vocabulary vocabulary(JsonField(vocab, vocab_file));
  std::vector<Merge> merges = parse_merges_text(read_file(merges_file), merges_file, vocabulary);
  auto model = std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), BpeOptions{}, merges_file);

  const Json config = read_optional_json(config_file), map = read_optional_json(map_file);
  const Json added = read_optional_json(added_file);
  const JsonField config_field(config, config_file);
  LegacyTokens tokens(model->vocabulary());
  if (const auto decoder = config_field.find("added_tokens_decoder")) tokens.add_decoder(*decoder);
  add_named_specials(config_field, tokens);
  add_named_specials(JsonField(map, map_file), tokens);
  tokens.add_list(JsonField(added, added_file));
  const Json end_of_text = "<|endoftext|>";
  if (model->vocabulary().find("<|endoftext|>") != kNoToken)
    tokens.add_special(JsonField(end_of_text, vocab_file));

  TokenizerParts parts;
  parts.added_tokens = AddedTokens(tokens.take(), model->vocabulary(), nullptr, directory.string());
  parts.model = std::move(model);
  const Json stage = byte_level_json(true), untrimmed = byte_level_json(false);
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  parts.post_processor = parse_post_processor(JsonField(untrimmed, "post_processor"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  if (config_field.boolean_or("add_prefix_space", false)) parts.text_prefix.assign(1, ' ');
  return Tokenizer(std::move(parts));
}

// The vocab.json form, for what tokenizer.json cannot say.
void save_gpt2_files(const TokenizerParts& parts, const fs::path& directory) {
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

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view document, const std::string& name) {
  const Json root = parse_json(document, name);
  const JsonField field(root, name);
  if (const auto version = field.find("version"); version && version->string() != "1.0")
    version->refuse("\"1.0\"");
  TokenizerParts parts;
  parts.model = parse_model(field["model"]);
  if (const auto stage = field.find("normalizer")) parts.normalizer = parse_normalizer(*stage);
  if (const auto stage = field.find("pre_tokenizer")) parts.pre_tokenizer = parse_pre_tokenizer(*stage);
  if (const auto stage = field.find("post_processor")) parts.post_processor = parse_post_processor(*stage);
  if (const auto stage = field.find("decoder")) parts.decoder = parse_decoder(*stage);
  if (const auto list = field.find("added_tokens")) {
    parts.added_tokens = AddedTokens(parse_added_tokens(*list), parts.model->vocabulary(),
                                     parts.normalizer.get(), list->place());
  }
  if (const auto kept = field.find("truncation")) parts.truncation = kept->object();
  if (const auto kept = field.find("padding")) parts.padding = kept->object();
  check_post_processor(parts, name);
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::load(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return from_json(read_file(path), path);
  const fs::path directory(path), file = directory / "tokenizer.json";
  if (file_exists(file.string())) return from_json(read_file(file.string()), file.string());
  if (file_exists((directory / "vocab.json").string()) && file_exists((directory / "merges.txt").string()))
    return load_gpt2_files(path);
  fail("{}: no tokenizer here: expected tokenizer.json, or vocab.json and merges.txt", path);
}

std::string Tokenizer::to_json() const {
  check(parts_->text_prefix.empty(),
        "tokenizer.json cannot express a space before every text: save to a directory");
  return parts_to_json(*parts_).dump(2) + "\n";
}

void Tokenizer::save(const std::string& path) const {
  if (path.ends_with(".json")) return write_file_atomically(path, to_json());
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, "{}: cannot be created: {}", path, error.message());
  if (!parts_->text_prefix.empty()) return save_gpt2_files(*parts_, path);
  write_file_atomically((fs::path(path) / "tokenizer.json").string(), to_json());
}

}  // namespace qkv::text
