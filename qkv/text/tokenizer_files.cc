// Tokenizers from files and to files.
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
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
  const auto has = [&](const char* name) { return file_exists((directory / name).string()); };
  if (has("vocab.json") && has("merges.txt")) return Tokenizer(load_gpt2_files(path));
  if (has("vocab.txt")) return Tokenizer(load_bert_files(path));
  fail("{}: no tokenizer here: expected tokenizer.json, vocab.json and merges.txt, or vocab.txt", path);
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
