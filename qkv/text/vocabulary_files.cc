#include "qkv/text/vocabulary_files.h"

#include <algorithm>
#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/bpe.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/neighbour_files.h"
#include "qkv/text/piece_patterns.h"
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

// The tokens of vocab.txt, one a line, numbered from 0. A token on two lines gets the number of the later
// one.
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

namespace {

// How a class of transformers uses vocab.json and merges.txt.
enum class BytePairKind : uint8_t { gpt2, roberta, clip, qwen2 };

struct BytePairClass {
  std::string_view name;
  BytePairKind kind;
};
constexpr BytePairClass kBytePairClasses[] = {
    {"GPT2Tokenizer", BytePairKind::gpt2},    {"GPTNeoXTokenizer", BytePairKind::gpt2},
    {"CodeGenTokenizer", BytePairKind::gpt2}, {"RobertaTokenizer", BytePairKind::roberta},
    {"BartTokenizer", BytePairKind::roberta}, {"LongformerTokenizer", BytePairKind::roberta},
    {"LEDTokenizer", BytePairKind::roberta},  {"CLIPTokenizer", BytePairKind::clip},
    {"Qwen2Tokenizer", BytePairKind::qwen2}};

BytePairKind byte_pair_kind(const JsonField& config, const Vocabulary& vocabulary) {
  std::string name = config.string_or("tokenizer_class", "");
  if (name.ends_with("TokenizerFast")) name.resize(name.size() - 4);
  // CLIP's vocabulary is recognized by its marks at the end of words.
  if (name.empty())
    return vocabulary.find("<|startoftext|>") != kNoToken && vocabulary.find("!</w>") != kNoToken
               ? BytePairKind::clip
               : BytePairKind::gpt2;
  std::vector<std::string_view> known;
  for (const BytePairClass& c : kBytePairClasses) {
    if (c.name == name) return c.kind;
    known.push_back(c.name);
  }
  config["tokenizer_class"].refuse_type(name, known);
}

Json split_at(std::string_view regex, const char* behavior, bool invert) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
}

Json bytes_of_pieces() {
  Json stage = byte_level_json(true);
  stage["use_regex"] = false;
  return stage;
}

// Adds GPT-2's stages: its pattern, and a start token if the files ask for one.
void add_gpt2_stages(const NeighbourFiles& files, TokenizerParts& parts) {
  const Json stage = byte_level_json(true), untrimmed = byte_level_json(false);
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  if (files.config().boolean_or("add_prefix_space", false)) parts.text_prefix.assign(1, ' ');
  if (!files.config().boolean_or("add_bos_token", false)) {
    parts.post_processor = parse_post_processor(JsonField(untrimmed, "post_processor"));
    return;
  }
  const std::string bos = files.named("bos_token", "<|endoftext|>");
  const Json post_processor = template_around(std::pair(bos, parts.added_tokens.find(bos)), std::nullopt);
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
}

// Adds RoBERTa's stages: GPT-2's pieces between <s> and </s>.
void add_roberta_stages(const NeighbourFiles& files, TokenizerParts& parts) {
  const bool prefix = files.config().boolean_or("add_prefix_space", false);
  Json stage = byte_level_json(true);
  stage["add_prefix_space"] = prefix;
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  const std::string cls = files.named("cls_token", "<s>"), sep = files.named("sep_token", "</s>");
  const Json post_processor = {{"type", "RobertaProcessing"},
                               {"sep", {sep, parts.added_tokens.find(sep)}},
                               {"cls", {cls, parts.added_tokens.find(cls)}},
                               {"trim_offsets", true},
                               {"add_prefix_space", prefix}};
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
}

// Adds CLIP's stages; its words end with </w>.
void add_clip_stages(const NeighbourFiles& files, TokenizerParts& parts) {
  const Json pieces = split_at(
      R"((?i:<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d)|\p{L}+|\p{N}|[^\s\p{L}\p{N}]+)",
      "Removed", true);
  const Json both = {{"type", "Sequence"}, {"pretokenizers", {pieces, bytes_of_pieces()}}};
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(both, "pre_tokenizer"));
  const std::string bos = files.named("bos_token", "<|startoftext|>"),
                    eos = files.named("eos_token", "<|endoftext|>");
  const Json post_processor = {{"type", "RobertaProcessing"},
                               {"sep", {eos, parts.added_tokens.find(eos)}},
                               {"cls", {bos, parts.added_tokens.find(bos)}},
                               {"trim_offsets", false},
                               {"add_prefix_space", false}};
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
  Json decoders = Json::array({byte_level_json(true)});
  decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", "</w>"}}}, {"content", " "}});
  decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}});
  if (files.config().boolean_or("clean_up_tokenization_spaces", false))
    for (Json& stage : clean_up_stages()) decoders.push_back(std::move(stage));
  const Json decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  parts.decoder = parse_decoder(JsonField(decoder, "decoder"));
}

void add_qwen2_stages(TokenizerParts& parts) {
  const Json both = {{"type", "Sequence"},
                     {"pretokenizers", {split_at(kQwenPattern, "Isolated", false), bytes_of_pieces()}}};
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(both, "pre_tokenizer"));
  const Json stage = bytes_of_pieces(), untrimmed = byte_level_json(false);
  parts.post_processor = parse_post_processor(JsonField(untrimmed, "post_processor"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
}

// The normalizer of a kind; null if it has none.
std::unique_ptr<Normalizer> byte_pair_normalizer(BytePairKind kind) {
  Json normalizer;
  if (kind == BytePairKind::qwen2) normalizer = {{"type", "NFC"}};
  if (kind == BytePairKind::clip)
    normalizer = {{"type", "Sequence"},
                  {"normalizers",
                   {{{"type", "BertNormalizer"},
                     {"clean_text", true},
                     {"handle_chinese_chars", true},
                     {"strip_accents", false},
                     {"lowercase", false}},
                    {{"type", "NFC"}},
                    {{"type", "Lowercase"}}}}};
  return normalizer.is_null() ? nullptr : parse_normalizer(JsonField(normalizer, "normalizer"));
}

}  // namespace

TokenizerParts load_byte_pair_files(const std::string& path) {
  const fs::path directory(path);
  const std::string vocab_file = (directory / "vocab.json").string();
  const std::string merges_file = (directory / "merges.txt").string();

  const Json vocab = parse_json(read_file(vocab_file), vocab_file);
  Vocabulary vocabulary(JsonField(vocab, vocab_file));
  std::vector<Merge> merges = parse_merges_text(read_file(merges_file), merges_file, vocabulary);
  const NeighbourFiles files(path);
  const BytePairKind kind = byte_pair_kind(files.config(), vocabulary);
  BpeOptions options;
  if (kind == BytePairKind::clip) {
    options.unk_token = files.named("unk_token", "<|endoftext|>");
    options.end_of_word_suffix = "</w>";
  }
  auto model = std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), options, merges_file);

  LegacyTokens tokens(model->vocabulary());
  files.add_to(tokens);
  if (kind == BytePairKind::roberta) {
    for (const char* token : {"<s>", "<pad>", "</s>", "<unk>", "<mask>"}) tokens.add_special(token);
    tokens.strip_before(files.named("mask_token", "<mask>"));
  }
  if (kind == BytePairKind::clip) tokens.add_special("<|startoftext|>");
  if (kind == BytePairKind::clip || model->vocabulary().find("<|endoftext|>") != kNoToken)
    tokens.add_special("<|endoftext|>");

  TokenizerParts parts;
  parts.normalizer = byte_pair_normalizer(kind);
  parts.added_tokens =
      AddedTokens(tokens.take(), model->vocabulary(), parts.normalizer.get(), directory.string());
  parts.model = std::move(model);
  switch (kind) {
    case BytePairKind::gpt2:
      add_gpt2_stages(files, parts);
      break;
    case BytePairKind::roberta:
      add_roberta_stages(files, parts);
      break;
    case BytePairKind::clip:
      add_clip_stages(files, parts);
      break;
    case BytePairKind::qwen2:
      add_qwen2_stages(parts);
      break;
  }
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

bool has_byte_class(const std::string& path) {
  const std::string file = path + "/tokenizer_config.json";
  if (!file_exists(file)) return false;
  const Json config = parse_json(read_file(file), file);
  return JsonField(config, file).string_or("tokenizer_class", "") == "PerceiverTokenizer";
}

TokenizerParts load_byte_files(const std::string& path) {
  constexpr int kBytes = 256;
  const NeighbourFiles files(path);
  std::vector<std::string> named;
  for (const auto& [name, otherwise] : {std::pair("pad_token", "[PAD]"),
                                        {"bos_token", "[BOS]"},
                                        {"eos_token", "[EOS]"},
                                        {"mask_token", "[MASK]"},
                                        {"cls_token", "[CLS]"},
                                        {"sep_token", "[SEP]"}})
    named.push_back(files.named(name, otherwise));
  Vocabulary vocabulary;
  const auto add = [&](const std::string& spelling) {
    check(vocabulary.add(spelling, static_cast<TokenId>(vocabulary.id_limit())),
          "{}: the token '{}' is there twice", files.config().place(), spelling);
  };
  for (const std::string& token : named) add(token);
  for (int b = 0; b < kBytes; ++b) {
    std::string spelling;
    append_utf8(spelling, byte_to_character(static_cast<unsigned char>(b)));
    add(spelling);
  }
  TokenizerParts parts;
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), std::vector<Merge>(), BpeOptions{}, path);
  LegacyTokens tokens(parts.model->vocabulary());
  files.add_to(tokens);
  for (const std::string& token : named) tokens.add_special(token);
  parts.added_tokens = AddedTokens(tokens.take(), parts.model->vocabulary(), nullptr, path);
  const Json stage = byte_level_json(true);
  parts.pre_tokenizer = parse_pre_tokenizer(JsonField(stage, "pre_tokenizer"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  const std::string &cls = named[4], &sep = named[5];
  const Json post_processor =
      bert_template({cls, parts.added_tokens.find(cls)}, {sep, parts.added_tokens.find(sep)});
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
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
  OrderedJson config = {{"add_prefix_space", true},
                        {"added_tokens_decoder", std::move(decoder)},
                        {"tokenizer_class", "GPT2Tokenizer"}};
  // Saves a start token before each text as add_bos_token.
  if (parts.post_processor && parts.post_processor->assembles()) {
    const Encoding around = parts.post_processor->assemble(std::vector<Encoding>(1));
    const AddedToken* start = around.ids.empty() ? nullptr : parts.added_tokens.find(around.ids[0]);
    if (start != nullptr) {
      config["add_bos_token"] = true;
      config["bos_token"] = start->content;
    }
  }
  write_file_atomically((directory / "vocab.json").string(), vocab.dump() + "\n");
  write_file_atomically((directory / "merges.txt").string(), merges);
  write_file_atomically((directory / "tokenizer_config.json").string(), config.dump(2) + "\n");
}

}  // namespace qkv::text
