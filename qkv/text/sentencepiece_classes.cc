#include "qkv/text/sentencepiece_classes.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/text/neighbour_files.h"
#include "qkv/text/sentencepiece.h"
#include "qkv/text/sentencepiece_decoder.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

using PieceType = SentencePieceFile::PieceType;
using Style = SentencePieceDecoder::Style;

constexpr std::array<const char*, 3> kNeighbours = {"tokenizer_config.json", "special_tokens_map.json",
                                                    "added_tokens.json"};
constexpr std::array<std::string_view, 6> kClasses = {"LlamaTokenizer",      "T5Tokenizer",
                                                      "AlbertTokenizer",     "XLNetTokenizer",
                                                      "XLMRobertaTokenizer", "SentencePieceProcessor"};

// AlbertTokenizer's and XLNetTokenizer's preprocess_text().
class AlbertNormalizer : public Normalizer {
 public:
  AlbertNormalizer(const JsonField& config, bool lowercase)
      : lowercase_(config.boolean_or("do_lower_case", lowercase)),
        keep_accents_(config.boolean_or("keep_accents", false)) {
    const auto replace = [](const char* kind, const char* pattern, const char* content) -> Json {
      return {{"type", "Replace"}, {"pattern", {{kind, pattern}}}, {"content", content}};
    };
    Json stages = Json::array();
    if (lowercase_) stages.push_back({{"type", "Lowercase"}});
    if (config.boolean_or("remove_space", true)) {  // white space as Python's str.split() has it
      stages.push_back(replace("Regex", R"(\A[\s\x1C-\x1F]+|[\s\x1C-\x1F]+\z)", ""));
      stages.push_back(replace("Regex", R"([\s\x1C-\x1F]+)", " "));
    }
    stages.push_back(replace("String", "``", "\""));
    stages.push_back(replace("String", "''", "\""));
    if (!keep_accents_) stages.push_back({{"type", "NFKD"}});
    const Json sequence = {{"type", "Sequence"}, {"normalizers", std::move(stages)}};
    stages_ = parse_normalizer(JsonField(sequence, "normalizer"));
    const Json lower = {{"type", "Lowercase"}};
    lower_ = parse_normalizer(JsonField(lower, "normalizer"));
  }

  AlignedText normalize(AlignedText text) const override {
    text = stages_->normalize(std::move(text));
    if (!keep_accents_) text = without_combining(text);
    return lowercase_ ? lower_->normalize(std::move(text)) : text;
  }

  OrderedJson to_json() const override { return {{"type", "Albert"}}; }

 private:
  static AlignedText without_combining(const AlignedText& text) {
    const std::string_view in = text.view();
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const Character c = character_at(in, i);
      if (is_combining(c.codepoint)) {
        out.replace({i, i + c.length}, "");
      } else {
        out.keep({i, i + c.length});
      }
      i += c.length;
    }
    return std::move(out).finish();
  }

  bool lowercase_, keep_accents_;
  std::unique_ptr<Normalizer> stages_, lower_;
};

// Ends each text with a token, unless it already ends with that token.
class EndOnce : public PostProcessor {
 public:
  explicit EndOnce(TokenId end) : end_(end) {}
  void adjust(std::vector<Encoding>&, const std::vector<std::string_view>&) const override {}
  bool assembles() const override { return true; }
  Encoding assemble(const std::vector<Encoding>& parts) const override {
    Encoding result;
    for (const Encoding& part : parts) {
      result.append(part);
      if (part.ids.empty() || part.ids.back() != end_) result.add(end_, {0, 0}, 0);
    }
    result.type_ids.assign(result.size(), 0);
    return result;
  }
  OrderedJson to_json() const override { return {{"type", "T5"}}; }

 private:
  TokenId end_;
};

class CleanedUp : public Decoder {
 public:
  explicit CleanedUp(std::unique_ptr<Decoder> inner) : inner_(std::move(inner)) {
    const Json stages = {{"type", "Sequence"}, {"decoders", clean_up_stages()}};
    clean_up_ = parse_decoder(JsonField(stages, "decoder"));
  }
  void decode(std::vector<std::string>& tokens) const override {
    inner_->decode(tokens);
    clean_up_->decode(tokens);
  }
  OrderedJson to_json() const override { return inner_->to_json(); }

 private:
  std::unique_ptr<Decoder> inner_, clean_up_;
};

const std::string* find_file(const TokenizerFiles& files, std::string_view name) {
  const auto it =
      std::find_if(files.begin(), files.end(), [&](const auto& file) { return file.first == name; });
  return it == files.end() ? nullptr : &it->second;
}

// The model among the files. Throws Error for file names that such a directory does not have.
const std::pair<std::string, std::string>& model_file(const TokenizerFiles& files, const std::string& place) {
  const std::pair<std::string, std::string>* model = nullptr;
  for (const auto& file : files) {
    if (std::find(kNeighbours.begin(), kNeighbours.end(), file.first) != kNeighbours.end()) continue;
    const bool known = std::find(kSentencePieceNames.begin(), kSentencePieceNames.end(), file.first) !=
                       kSentencePieceNames.end();
    check(known, "{}: a file \"{}\" has no place among those of a SentencePiece model", place, file.first);
    model = &file;
  }
  check(model != nullptr, "{}: no .model file", place);
  return *model;
}

// Builds one of transformers' tokenizer classes.
class ClassBuilder {
 public:
  ClassBuilder(const TokenizerFiles& files, const std::string& place)
      : place_(place),
        neighbours_(place,
                    [&](const std::string& name) -> std::optional<std::string> {
                      const std::string* contents = find_file(files, name);
                      return contents == nullptr ? std::nullopt : std::optional(*contents);
                    }),
        config_(neighbours_.config()) {
    const auto& [name, contents] = model_file(files, place);
    std::string type =
        config_.string_or("tokenizer_class", name == kSentencePieceNames[0] ? "LlamaTokenizer" : "");
    if (type.ends_with("Fast")) type.resize(type.size() - 4);
    const bool known = type.empty() || std::find(kClasses.begin(), kClasses.end(), type) != kClasses.end();
    if (!known) config_["tokenizer_class"].refuse_type(type, kClasses);

    SentencePieceOptions options;
    if ((type == "LlamaTokenizer" || type == "T5Tokenizer") && !legacy())
      options.prefix = config_.boolean_or("add_prefix_space", true) ? SentencePieceOptions::Prefix::kFirst
                                                                    : SentencePieceOptions::Prefix::kNone;
    options.split_digit_comma = type == "AlbertTokenizer" || type == "XLNetTokenizer";
    options.fairseq_ids = type == "XLMRobertaTokenizer";
    // For a single .model file `place` is that file.
    const std::string file = place.ends_with(".model") ? place : place + "/" + name;
    auto model = std::make_unique<SentencePiece>(contents, file, options);
    model_ = model.get();
    parts_.model = std::move(model);
    tokens_.emplace(model_->vocabulary());

    if (type == "LlamaTokenizer") {
      build_llama();
    } else if (type == "T5Tokenizer") {
      build_t5();
    } else if (type == "AlbertTokenizer") {
      build_albert();
    } else if (type == "XLNetTokenizer") {
      build_xlnet();
    } else if (type == "XLMRobertaTokenizer") {
      build_xlm_roberta();
    } else if (type == "SentencePieceProcessor") {
      decode_as(Style::kPlain);
    } else {
      build_plain();
    }
    if (config_.boolean_or("clean_up_tokenization_spaces", false))
      parts_.decoder = std::make_unique<CleanedUp>(std::move(parts_.decoder));
  }

  TokenizerParts take() { return std::move(parts_); }

 private:
  bool legacy() const { return config_.boolean_or("legacy", true); }

  // The id of the token with the name `name`.
  TokenId special(const char* name, const char* otherwise) {
    const std::string content = neighbours_.named(name, otherwise);
    const TokenId id = parts_.added_tokens.find(content);
    check(id != kNoToken, "{}: {} \"{}\" is no token", place_, name, content);
    return id;
  }

  // Adds the tokens of the files, then the special tokens of the class (names and default contents).
  void add_tokens(const std::vector<std::pair<const char*, const char*>>& names) {
    neighbours_.add_to(*tokens_);
    for (const auto& [name, otherwise] : names) {
      const std::string content = neighbours_.named(name, otherwise);
      tokens_->add_special(content);
      // A mask strips the space before it, as the word it stands for would.
      if (name == std::string_view("mask_token") && !neighbours_.has_flags()) tokens_->strip_before(content);
    }
    parts_.added_tokens = AddedTokens(tokens_->take(), model_->vocabulary(), parts_.normalizer.get(), place_);
  }

  void decode_as(Style style) {
    SentencePieceDecoder::Options options;
    options.style = style;
    const auto pieces = static_cast<TokenId>(model_->contents().pieces.size());
    for (const AddedToken& token : parts_.added_tokens.all()) {
      if (token.special) options.special_tokens.push_back(token.content);
      // The class's own tokens do not count as additional tokens, whatever their ids are.
      const bool named = std::find(named_.begin(), named_.end(), token.content) != named_.end();
      const bool all = style == Style::kXlnet;
      if (all || !token.special || (token.id >= pieces && !named))
        options.isolated_tokens.push_back(token.content);
    }
    parts_.decoder = std::make_unique<SentencePieceDecoder>(model_->contents(), options);
  }

  void name_tokens(const std::vector<std::pair<const char*, const char*>>& names) {
    for (const auto& [name, otherwise] : names) named_.push_back(neighbours_.named(name, otherwise));
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
      named_.push_back(neighbours_.named(name, ""));
    add_tokens(names);
  }

  void build_plain() {
    for (const auto& [piece, score, type] : model_->contents().pieces) {
      if (type == PieceType::kControl || type == PieceType::kUnknown) tokens_->add_special(piece);
    }
    name_tokens({});
    decode_as(Style::kPlain);
  }

  void build_llama() {
    name_tokens({{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}});
    const auto token = [&](bool wanted, const char* name, const char* otherwise) {
      return wanted ? std::optional(std::pair(neighbours_.named(name, otherwise), special(name, otherwise)))
                    : std::nullopt;
    };
    const Json json = template_around(token(config_.boolean_or("add_bos_token", true), "bos_token", "<s>"),
                                      token(config_.boolean_or("add_eos_token", false), "eos_token", "</s>"));
    parts_.post_processor = parse_post_processor(JsonField(json, "post_processor"));
    decode_as(legacy() ? Style::kLlamaLegacy : Style::kLlama);
  }

  void build_t5() {
    const int64_t extra = config_.integer_or("extra_ids", 100, 0, kMostExtraIds);
    const auto pieces = static_cast<int64_t>(model_->contents().pieces.size());
    for (int64_t i = 0; i < extra; ++i) {
      AddedToken token;
      token.content = fmt::format("<extra_id_{}>", i);
      token.id = static_cast<TokenId>(pieces - 1 + extra - i);
      token.lstrip = token.rstrip = true;
      tokens_->add(std::move(token));
    }
    name_tokens({{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}});
    parts_.post_processor = std::make_unique<EndOnce>(special("eos_token", "</s>"));
    decode_as(Style::kT5);
  }

  void build_albert() {
    parts_.normalizer = std::make_unique<AlbertNormalizer>(config_, true);
    name_tokens({{"bos_token", "[CLS]"},
                 {"eos_token", "[SEP]"},
                 {"unk_token", "<unk>"},
                 {"sep_token", "[SEP]"},
                 {"pad_token", "<pad>"},
                 {"cls_token", "[CLS]"},
                 {"mask_token", "[MASK]"}});
    const Json json = bert_template({neighbours_.named("cls_token", "[CLS]"), special("cls_token", "[CLS]")},
                                    {neighbours_.named("sep_token", "[SEP]"), special("sep_token", "[SEP]")});
    parts_.post_processor = parse_post_processor(JsonField(json, "post_processor"));
    decode_as(Style::kAlbert);
  }

  void build_xlnet() {
    parts_.normalizer = std::make_unique<AlbertNormalizer>(config_, false);
    name_tokens({{"bos_token", "<s>"},
                 {"eos_token", "</s>"},
                 {"unk_token", "<unk>"},
                 {"sep_token", "<sep>"},
                 {"pad_token", "<pad>"},
                 {"cls_token", "<cls>"},
                 {"mask_token", "<mask>"},
                 {"", "<eop>"},
                 {"", "<eod>"}});
    Json tokens = Json::object();
    for (const auto& [name, otherwise] : {std::pair("sep_token", "<sep>"), std::pair("cls_token", "<cls>")}) {
      tokens[name] = {{"id", name},
                      {"ids", Json::array({special(name, otherwise)})},
                      {"tokens", Json::array({neighbours_.named(name, otherwise)})}};
    }
    const auto item = [](const char* kind, const char* id, int type) -> Json {
      return {{kind, {{"id", id}, {"type_id", type}}}};
    };
    const Json a = item("Sequence", "A", 0), b = item("Sequence", "B", 1);
    const Json end_a = item("SpecialToken", "sep_token", 0), end_b = item("SpecialToken", "sep_token", 1);
    const Json cls = item("SpecialToken", "cls_token", 2);
    const Json json = {{"type", "TemplateProcessing"},
                       {"single", Json::array({a, end_a, cls})},
                       {"pair", Json::array({a, end_a, b, end_b, cls})},
                       {"special_tokens", std::move(tokens)}};
    parts_.post_processor = parse_post_processor(JsonField(json, "post_processor"));
    decode_as(Style::kXlnet);
  }

  void build_xlm_roberta() {
    name_tokens({{"bos_token", "<s>"},
                 {"eos_token", "</s>"},
                 {"unk_token", "<unk>"},
                 {"sep_token", "</s>"},
                 {"pad_token", "<pad>"},
                 {"cls_token", "<s>"},
                 {"mask_token", "<mask>"}});
    const auto token = [&](const char* name, const char* otherwise) {
      return Json::array({neighbours_.named(name, otherwise), special(name, otherwise)});
    };
    const Json json = {{"type", "RobertaProcessing"},
                       {"sep", token("sep_token", "</s>")},
                       {"cls", token("cls_token", "<s>")},
                       {"trim_offsets", false},
                       {"add_prefix_space", true}};
    parts_.post_processor = parse_post_processor(JsonField(json, "post_processor"));
    decode_as(Style::kXlmRoberta);
  }

  static constexpr int64_t kMostExtraIds = 10'000;

  std::string place_;
  NeighbourFiles neighbours_;
  JsonField config_;
  TokenizerParts parts_;
  const SentencePiece* model_ = nullptr;
  std::optional<LegacyTokens> tokens_;
  std::vector<std::string> named_;
};

}  // namespace

TokenizerParts sentencepiece_parts(TokenizerFiles files, const std::string& place) {
  TokenizerParts parts = ClassBuilder(files, place).take();
  parts.files = std::move(files);
  return parts;
}

TokenizerParts plain_sentencepiece_parts(std::string file, const std::string& name) {
  TokenizerFiles files;
  files.emplace_back(kSentencePieceNames[1], std::move(file));
  files.emplace_back(kNeighbours[0], "{\"tokenizer_class\": \"SentencePieceProcessor\"}\n");
  return sentencepiece_parts(std::move(files), name);
}

TokenizerFiles read_sentencepiece_files(const std::string& path) {
  TokenizerFiles files;
  const auto add = [&](const char* name) {
    const std::string file = path + "/" + name;
    if (file_exists(file)) files.emplace_back(name, read_file(file));
  };
  for (const char* name : kSentencePieceNames) {
    if (files.empty()) add(name);
  }
  if (files.empty()) return files;
  for (const char* name : kNeighbours) add(name);
  return files;
}

}  // namespace qkv::text
