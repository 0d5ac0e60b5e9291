// Loading and saving of tokenizers.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "qkv/base/base64.h"
#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/mounted_files.h"
#include "qkv/text/neighbour_files.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/tiktoken_file.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/tokenizer_parts.h"
#include "qkv/text/vocabulary_files.h"

namespace qkv::text {
namespace {

namespace fs = std::filesystem;

template <typename Stage>
OrderedJson or_null(const std::unique_ptr<Stage>& stage) {
  return stage ? stage->to_json() : OrderedJson(nullptr);
}

OrderedJson parts_to_json(const TokenizerParts& parts) {
  if (!parts.files.empty()) {
    OrderedJson files;
    for (const auto& [name, contents] : parts.files) files[name] = to_base64(contents);
    return {{"version", "1.0"}, {"files", std::move(files)}};
  }
  return {{"version", "1.0"},
          {"truncation", parts.truncation ? to_json(*parts.truncation) : nullptr},
          {"padding", parts.padding ? to_json(*parts.padding) : nullptr},
          {"added_tokens", parts.added_tokens.to_json()},
          {"normalizer", or_null(parts.normalizer)},
          {"pre_tokenizer", or_null(parts.pre_tokenizer)},
          {"post_processor", or_null(parts.post_processor)},
          {"decoder", or_null(parts.decoder)},
          {"model", parts.model->to_json()}};
}

// Files embedded in tokenizer.json, which parts_to_json() writes from TokenizerParts::files.
TokenizerFiles parse_files(const JsonField& field) {
  TokenizerFiles files;
  for (auto it = field.object().begin(); it != field.object().end(); ++it) {
    const JsonField file = field[it.key()];
    std::optional<std::string> contents = from_base64(file.string());
    if (!contents) file.refuse("bytes in base64");
    files.emplace_back(it.key(), std::move(*contents));
  }
  return files;
}

// Checks that every id that a template puts into a sequence belongs to a token.
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

TokenizerParts parse_parts(std::string_view document, const std::string& name) {
  const Json root = parse_json(document, name);
  const JsonField field(root, name);
  if (const auto version = field.find("version"); version && version->string() != "1.0")
    version->refuse("\"1.0\"");
  if (const auto files = field.find("files")) return sentencepiece_parts(parse_files(*files), name);
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
  if (const auto lengths = field.find("truncation")) parts.truncation = parse_truncation(*lengths);
  if (const auto lengths = field.find("padding")) parts.padding = parse_padding(*lengths);
  check_post_processor(parts, name);
  return parts;
}

// Some classes put tokens around texts as tokenizer_config.json says, whatever tokenizer.json has (Hugging
// Face's LlamaTokenizerFast and GemmaTokenizerFast, update_post_processor()).
void surround_by_class(TokenizerParts& parts, const std::string& directory) {
  const NeighbourFiles neighbours(directory);
  const JsonField config = neighbours.config();
  std::string name = config.string_or("tokenizer_class", "");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const bool llama = name == "LlamaTokenizer" || name == "CodeLlamaTokenizer";
  if (!llama && name != "GemmaTokenizer") return;
  const auto is_null = [&](const char* key) {
    return config.object().contains(key) && config.object().at(key).is_null();
  };
  const auto token = [&](const char* add, bool by_default, const char* of, const char* otherwise) {
    std::optional<std::pair<std::string, TokenId>> out;
    if (is_null(add) || is_null(of) || !config.boolean_or(add, by_default)) return out;
    const std::string content = neighbours.named(of, otherwise);
    TokenId id = parts.added_tokens.find(content);
    if (id == kNoToken) id = parts.model->vocabulary().find(content);
    check(id != kNoToken, "{}: {}: '{}' is no token of tokenizer.json ({} puts it around texts)",
          config.place(), of, content, add);
    return out = std::pair(content, id);
  };
  const Json json = template_around(token("add_bos_token", true, "bos_token", llama ? "<s>" : "<bos>"),
                                    token("add_eos_token", false, "eos_token", llama ? "</s>" : "<eos>"));
  parts.post_processor = parse_post_processor(JsonField(json, "post_processor"));
}

}  // namespace

Tokenizer Tokenizer::from_json(std::string_view document, const std::string& name) {
  return Tokenizer(parse_parts(document, name));
}

namespace {

constexpr const char* kSourceFolder = "source";

// The rank file in a directory: *.tiktoken, or a tokenizer.model that is one. Empty if there is none.
std::string rank_file(const std::string& directory) {
  std::error_code ignored;
  std::vector<std::string> found;
  for (const auto& file : fs::directory_iterator(directory, ignored))
    if (file.path().extension() == ".tiktoken") found.push_back(file.path().string());
  std::sort(found.begin(), found.end());
  if (found.size() > 1)
    fail("{}: which vocabulary is meant, {} or {}? Name the file", directory, found[0], found[1]);
  if (!found.empty()) return found[0];
  const std::string model = directory + "/tokenizer.model";
  return file_exists(model) && is_tiktoken_file(read_file(model)) ? model : "";
}

Tokenizer load_directory(const std::string& path) {
  const fs::path directory(path), file = directory / "tokenizer.json";
  if (file_exists(file.string())) {
    TokenizerParts parts = parse_parts(read_file(file.string()), file.string());
    surround_by_class(parts, path);
    return Tokenizer(std::move(parts));
  }
  const auto has = [&](const char* name) { return file_exists((directory / name).string()); };
  if (has("vocab.json") && has("merges.txt")) return Tokenizer(load_byte_pair_files(path));
  if (const std::string ranks = rank_file(path); !ranks.empty())
    return Tokenizer(tiktoken_parts(read_file(ranks), ranks));
  if (TokenizerFiles files = read_sentencepiece_files(path); !files.empty())
    return Tokenizer(sentencepiece_parts(std::move(files), path));
  if (has("vocab.txt")) return Tokenizer(load_bert_files(path));
  if (has_byte_class(path)) return Tokenizer(load_byte_files(path));
  fail(
      "{}: no tokenizer here: expected tokenizer.json, vocab.json and merges.txt, tokenizer.model, "
      "spiece.model, sentencepiece.bpe.model, vocab.txt, a .tiktoken file or a PerceiverTokenizer's "
      "tokenizer_config.json (qkv generate --ids does "
      "without)",
      path);
}

}  // namespace

Tokenizer Tokenizer::load(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) && !is_mounted(path)) {
    if (path.ends_with(".tiktoken")) return Tokenizer(tiktoken_parts(read_file(path), path));
    if (path.ends_with(".model")) {
      std::string file = read_file(path);
      return Tokenizer(is_tiktoken_file(file) ? tiktoken_parts(file, path)
                                              : plain_sentencepiece_parts(std::move(file), path));
    }
    return from_json(read_file(path), path);
  }
  const Tokenizer tokenizer = load_directory(path);
  const std::string sources = (fs::path(path) / kSourceFolder).string();
  return exists(sources) ? tokenizer.with_sources(load_directory(sources)) : tokenizer;
}

Tokenizer Tokenizer::with_sources(Tokenizer sources) const {
  check(!sources.has_own_sources(), "a tokenizer of sources has no sources of its own");
  Tokenizer out = *this;
  out.sources_ = std::make_shared<const Tokenizer>(std::move(sources));
  return out;
}

Tokenizer Tokenizer::without_sources() const {
  Tokenizer out = *this;
  out.sources_.reset();
  return out;
}

bool Tokenizer::same_as(const Tokenizer& other) const {
  const auto rules_of = [](const TokenizerParts& parts) {
    OrderedJson json = parts_to_json(parts);
    for (const char* key : {"truncation", "padding"}) json.erase(key);
    return json;
  };
  return parts_ == other.parts_ ||
         (parts_->text_prefix == other.parts_->text_prefix && rules_of(*parts_) == rules_of(*other.parts_));
}

bool Tokenizer::exists(const std::string& path) {
  const auto has = [&](const char* name) { return file_exists(path + "/" + name); };
  return has("tokenizer.json") || (has("vocab.json") && has("merges.txt")) || has("vocab.txt") ||
         !rank_file(path).empty() ||
         std::any_of(kSentencePieceNames.begin(), kSentencePieceNames.end(), has) || has_byte_class(path);
}

std::string Tokenizer::to_json() const {
  check(parts_->text_prefix.empty(),
        "tokenizer.json cannot express a space before every text: save to a directory");
  return parts_to_json(*parts_).dump(2) + "\n";
}

namespace {

// Adds special tokens to the files beside a SentencePiece model.
TokenizerFiles with_tokens(TokenizerFiles files, const std::vector<std::string>& contents, TokenId first) {
  const auto change = [&](const char* name, const auto& f) {
    auto it = std::ranges::find(files, name, &TokenizerFiles::value_type::first);
    if (it == files.end()) it = files.emplace(files.end(), name, "{}");
    OrderedJson json = OrderedJson::parse(it->second);
    f(json);
    it->second = json.dump(2) + "\n";
  };
  bool numbered = false;  // tokenizer_config.json has ids and flags of all tokens
  change("tokenizer_config.json", [&](OrderedJson& config) {
    numbered = config.contains("added_tokens_decoder");
    TokenId id = first;
    for (const std::string& content : contents) {
      if (numbered)
        config["added_tokens_decoder"][std::to_string(id++)] = {{"content", content},   {"lstrip", false},
                                                                {"normalized", false},  {"rstrip", false},
                                                                {"single_word", false}, {"special", true}};
      else
        config["additional_special_tokens"].push_back(content);
    }
  });
  if (!numbered)
    change("added_tokens.json", [&](OrderedJson& list) {
      for (TokenId id = first; const std::string& content : contents) list[content] = id++;
    });
  return files;
}

}  // namespace

Tokenizer Tokenizer::with_special_tokens(const std::vector<std::string>& contents) const {
  std::vector<std::string> fresh;
  for (const std::string& content : contents) {
    check(!content.empty(), "special tokens: one is empty");
    if (!token_to_id(content) && std::ranges::find(fresh, content) == fresh.end()) fresh.push_back(content);
  }
  if (fresh.empty()) return *this;
  check(parts_->text_prefix.empty(),
        "special tokens cannot be added to a tokenizer of vocab.json with add_prefix_space: save it as "
        "tokenizer.json first");
  auto id = static_cast<TokenId>(vocab_size());
  const auto made = [&] {
    if (!parts_->files.empty())
      return Tokenizer(sentencepiece_parts(with_tokens(parts_->files, fresh, id), "tokenizer"));
    OrderedJson json = OrderedJson::parse(to_json());
    for (const std::string& content : fresh)
      json["added_tokens"].push_back({{"id", id++},
                                      {"content", content},
                                      {"single_word", false},
                                      {"lstrip", false},
                                      {"rstrip", false},
                                      {"normalized", false},
                                      {"special", true}});
    return from_json(json.dump());
  };
  Tokenizer out = made();
  out.sources_ = sources_;
  return out;
}

void Tokenizer::save(const std::string& path) const {
  if (path.ends_with(".json")) {
    check(!sources_, "{}: one file does not hold two vocabularies: save to a directory", path);
    return write_file_atomically(path, to_json());
  }
  if (sources_) sources_->save((fs::path(path) / kSourceFolder).string());
  std::error_code error;
  fs::create_directories(path, error);
  check(!error, "{}: cannot be created: {}", path, error.message());
  if (!parts_->text_prefix.empty()) return save_gpt2_files(*parts_, path);
  if (!parts_->files.empty()) {
    for (const auto& [name, contents] : parts_->files)
      write_file_atomically((fs::path(path) / name).string(), contents);
    return;
  }
  write_file_atomically((fs::path(path) / "tokenizer.json").string(), to_json());
}

}  // namespace qkv::text
