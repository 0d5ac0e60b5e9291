#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "qkv/base/file.h"
#include "qkv/io/gguf/tokenizer.h"
#include "qkv/io/gguf/tokenizer_lists.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/tiktoken_file.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using gguf::fail_to_express;
using gguf::TokenizerLists;
using gguf::TokenizerSource;
using gguf::TokenType;
using text::kNoToken;
using text::TokenId;

// Adds the members of a document to an object.
void update(Json& object, std::string_view document, const std::string& file) {
  const Json json = parse_json(document, file);
  object.update(JsonField(json, file).object());
}

TokenizerSource source_of(const GgufTokenizer& from) {
  if (from.tokenizer.has_own_sources()) fail_to_express("it has another vocabulary for source texts");
  TokenizerSource source{from, nullptr, Json::object(), nullptr};
  try {
    source.document = parse_json(from.tokenizer.to_json(), "tokenizer.json");
  } catch (const Error& e) {
    fail_to_express("{}", e.what());
  }
  if (source.document.contains("files") && source.document["files"].contains("tokenizer_config.json"))
    source.config =
        parse_json(gguf::embedded_file(source.document, "tokenizer_config.json"), "tokenizer_config.json");
  if (!from.config.empty()) update(source.config, from.config, "tokenizer_config.json");
  if (source.config.contains("gguf")) source.own = source.config["gguf"];
  return source;
}

// The tokens by id with the types that follow from the added tokens.
TokenizerLists lists_of(const TokenizerSource& source, size_t rows) {
  const text::Tokenizer& tokenizer = source.from.tokenizer;
  std::set<TokenId> added;
  const auto add_list = [&](const Json& list) {
    for (const Json& token : list) added.insert(token["id"].get<TokenId>());
  };
  if (source.document.contains("added_tokens")) add_list(source.document["added_tokens"]);
  if (source.config.contains("added_tokens_decoder"))
    for (const auto& [id, token] : source.config["added_tokens_decoder"].items())
      if (const auto known =
              tokenizer.token_to_id(JsonField(token, "added_tokens_decoder")["content"].string()))
        added.insert(*known);
  TokenizerLists lists;
  const size_t size = std::max(rows, tokenizer.vocab_size());
  for (size_t i = 0; i < size; ++i) {
    const auto id = static_cast<TokenId>(i);
    const std::optional<std::string> token = tokenizer.id_to_token(id);
    lists.tokens.push_back(token ? *token : fmt::format("[PAD{}]", i));
    lists.types.push_back(!token                     ? TokenType::unused
                          : tokenizer.is_special(id) ? TokenType::control
                          : added.contains(id)       ? TokenType::user_defined
                                                     : TokenType::normal);
  }
  return lists;
}

void put_model(const TokenizerSource& source, TokenizerLists& lists) {
  if (source.document.contains("files")) return put_sentencepiece(source, lists);
  const JsonField model = JsonField(source.document, "tokenizer.json")["model"];
  const std::string& type = model["type"].string();
  if (type == "WordPiece") return put_word_pieces(source, lists);
  if (type == "Unigram") return put_unigram(source, lists);
  if (type != "BPE") fail_to_express("a model '{}' has no counterpart", type);
  if (model.boolean_or("byte_fallback", false)) return put_scored_merges(source, lists);
  put_byte_level(source, lists);
}

// The tokens that are put before and after a text.
struct Around {
  TokenId begin = kNoToken, end = kNoToken;
};

Around around_of(const text::Tokenizer& tokenizer) {
  const std::vector<TokenId> inside = tokenizer.encode("a", false).ids, whole = tokenizer.encode("a").ids;
  const auto at = std::search(whole.begin(), whole.end(), inside.begin(), inside.end());
  const auto before = at - whole.begin();
  const auto after = whole.end() - at - static_cast<std::ptrdiff_t>(inside.size());
  if ((at == whole.end() && !inside.empty()) || before > 1 || after > 1)
    fail_to_express("it puts more than one token before or after a text");
  Around around;
  if (before == 1) around.begin = whole.front();
  if (after == 1) around.end = whole.back();
  return around;
}

// Ids by the names of tokenizer_config.json.
class SpecialTokens {
 public:
  SpecialTokens(const TokenizerSource& source, const TokenizerLists& lists, const Around& around)
      : lists_(lists), around_(around) {
    const JsonField config(source.config, "tokenizer_config.json");
    for (const auto& [name, key, old_key] : gguf::kSpecialNames) {
      if (const auto token = config.find(name))
        if (const auto id = source.from.tokenizer.token_to_id(
                token->json().is_object() ? (*token)["content"].string() : token->string()))
          put(name, *id);
      if (source.own.contains("ids"))
        if (const auto id = JsonField(source.own["ids"], "gguf.ids").find(name))
          put(name, static_cast<TokenId>(id->integer(0, static_cast<int64_t>(lists.tokens.size()) - 1)));
    }
    put("bos_token", static_cast<TokenId>(source.from.bos));
    put("pad_token", static_cast<TokenId>(source.from.pad));
    put("unk_token", source.from.tokenizer.unknown());
    put_around();
    put_ends(source.from.eos, source.own.is_object());
  }

  void append_to(std::vector<std::pair<std::string, GgufValue>>& metadata) const {
    for (const auto& [name, key, old_key] : gguf::kSpecialNames)
      if (const auto it = ids_.find(name); it != ids_.end())
        metadata.emplace_back(std::string(key), GgufValue::of_u32(it->second));
  }

 private:
  // The first to name one determines it.
  void put(std::string_view name, TokenId id) {
    if (id != kNoToken) ids_.emplace(name, id);
  }

  // add_bos_token and so on mean these.
  void put_around() {
    const bool bert = lists_.model == "bert";
    if (around_.begin != kNoToken) ids_["bos_token"] = around_.begin;
    if (bert) ids_["cls_token"] = around_.begin;
    if (around_.end == kNoToken) return;
    std::string_view name = bert ? "sep_token" : "eos_token";
    const auto it = ids_.find(name);
    if (!bert && it != ids_.end() && it->second != around_.end) put("eot_token", it->second);
    ids_.insert_or_assign(std::string(name), around_.end);
  }

  // Ends that llama.cpp does not know by their text take the keys that are left.
  void put_ends(const std::vector<int64_t>& ends, bool from_gguf) {
    for (const int64_t end : ends) {
      if (end < 0 || end >= static_cast<int64_t>(lists_.tokens.size()) || is_end(end)) continue;
      const auto id = static_cast<TokenId>(end);
      const size_t at = static_cast<size_t>(id);
      const bool by_text = gguf::is_spelt_out(lists_.types[at]) && gguf::ends_by_text(lists_.tokens[at]);
      if (!ids_.contains("eos_token") && !(by_text && from_gguf))
        put("eos_token", id);
      else if (!by_text)
        put(ids_.contains("eot_token") ? "eom_token" : "eot_token", id);
    }
  }
  bool is_end(int64_t id) const {
    return std::ranges::any_of(
        std::initializer_list<std::string_view>{"eos_token", "eot_token", "eom_token", "fim_pad_token",
                                                "fim_rep_token", "fim_sep_token"},
        [&](std::string_view name) {
          const auto it = ids_.find(name);
          return it != ids_.end() && it->second == id;
        });
  }

  const TokenizerLists& lists_;
  const Around& around_;
  std::map<std::string, TokenId, std::less<>> ids_;
};

// The template of a model, and those of other names.
void append_templates(const TokenizerSource& source,
                      std::vector<std::pair<std::string, GgufValue>>& metadata) {
  static constexpr const char* kKey = "tokenizer.chat_template";
  const auto field = JsonField(source.config, "tokenizer_config.json").find("chat_template");
  if (!field) return;
  if (field->json().is_string()) {
    metadata.emplace_back(kKey, GgufValue::of(field->string()));
    return;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < field->size(); ++i) {
    const std::string& name = field->at(i)["name"].string();
    const std::string& text = field->at(i)["template"].string();
    if (name == "default") {
      metadata.emplace_back(kKey, GgufValue::of(text));
      continue;
    }
    const bool plain = !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    if (!plain) fail_to_express("a chat template has the name '{}' (letters, digits, _ and - only)", name);
    names.push_back(name);
    metadata.emplace_back(std::string(kKey) + "." + name, GgufValue::of(text));
  }
  if (!names.empty()) metadata.emplace_back("tokenizer.chat_templates", GgufValue::of_strings(names));
}

bool is_roberta(const Json& document) {
  const Json stage = document.value("post_processor", Json());
  if (!stage.is_object()) return false;
  if (stage.value("type", "") == "RobertaProcessing") return true;
  const Json list = stage.value("processors", Json::array());
  return std::ranges::any_of(list, [](const Json& s) { return s.value("type", "") == "RobertaProcessing"; });
}

}  // namespace

std::vector<std::pair<std::string, GgufValue>> gguf_of_tokenizer(const GgufTokenizer& from, size_t rows) {
  const TokenizerSource source = source_of(from);
  TokenizerLists lists = lists_of(source, rows);
  put_model(source, lists);
  const Around around = around_of(from.tokenizer);
  const bool bert = lists.model == "bert", roberta = is_roberta(source.document);
  if (bert && (around.begin == kNoToken || around.end == kNoToken))
    fail_to_express("llama.cpp puts [CLS] and [SEP] around every text of a WordPiece vocabulary");
  const SpecialTokens special(source, lists, around);

  std::vector<std::pair<std::string, GgufValue>> out;
  out.emplace_back("tokenizer.ggml.model", GgufValue::of(lists.model));
  out.emplace_back("tokenizer.ggml.pre", GgufValue::of(lists.pre));
  out.emplace_back("tokenizer.ggml.tokens", GgufValue::of_strings(std::move(lists.tokens)));
  if (!lists.scores.empty())
    out.emplace_back("tokenizer.ggml.scores", GgufValue::of_f32s(std::move(lists.scores)));
  std::vector<int64_t> types;
  for (const TokenType type : lists.types) types.push_back(static_cast<int64_t>(type));
  out.emplace_back("tokenizer.ggml.token_type",
                   GgufValue::of_integers(GgufValue::Type::i32, std::move(types)));
  if (lists.model == "gpt2")
    out.emplace_back("tokenizer.ggml.merges", GgufValue::of_strings(std::move(lists.merges)));
  special.append_to(out);
  out.emplace_back("tokenizer.ggml.add_bos_token", GgufValue::of(around.begin != kNoToken));
  out.emplace_back("tokenizer.ggml.add_eos_token", GgufValue::of(around.end != kNoToken && !bert));
  if (bert || roberta) out.emplace_back("tokenizer.ggml.add_sep_token", GgufValue::of(true));
  for (auto& flag : lists.flags) out.push_back(std::move(flag));
  append_templates(source, out);
  return out;
}

GgufTokenizer tokenizer_of_directory(const std::string& directory) {
  GgufTokenizer out{.tokenizer = text::Tokenizer::load(directory)};
  const auto read = [&](const std::string& name) -> std::optional<std::string> {
    const std::string path = directory + "/" + name;
    return file_exists(path) ? std::optional(read_file(path)) : std::nullopt;
  };
  Json config = Json::object();
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"})
    if (const auto text = read(name)) update(config, *text, directory + "/" + name);
  if (auto text = read("chat_template.jinja")) {
    config["chat_template"] = *text;
    std::error_code none;
    std::set<fs::path> more;
    for (const auto& file : fs::directory_iterator(directory + "/additional_chat_templates", none))
      if (file.path().extension() == ".jinja") more.insert(file.path());
    if (!more.empty()) config["chat_template"] = {{{"name", "default"}, {"template", *text}}};
    for (const fs::path& path : more)
      config["chat_template"].push_back(
          {{"name", path.stem().string()}, {"template", read_file(path.string())}});
  }
  out.config = config.dump();
  for (const char* name : text::kSentencePieceNames)
    if (auto bytes = read(name); bytes && out.sentencepiece.empty() && !text::is_tiktoken_file(*bytes))
      out.sentencepiece = std::move(*bytes);
  return out;
}

}  // namespace qkv
