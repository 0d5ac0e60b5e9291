#include "qkv/train/corpus.h"

#include <optional>

#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/base/progress.h"
#include "qkv/data/table.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/template.h"
#include "qkv/text/trainer.h"

namespace qkv {
namespace {

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr int kSentinels = 100;

std::string sentinel(int i) {
  return fmt::format("<extra_id_{}>", i);
}

struct TextFile {
  std::string path, text;
};

TextFile read_text(const std::string& path) {
  TextFile file{path, read_file(path)};
  check(!file.text.empty(), "{}: the file is empty", path);
  return file;
}

std::vector<std::string_view> documents_of(std::string_view text, const std::string& separator) {
  if (separator.empty()) return {text};
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + separator.size();
  }
  return out;
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

int64_t count_characters(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += !continues_character(c);
  return n;
}

// Where the last `fraction` of the characters begins; with a separator, at the start of the next document.
size_t split_point(std::string_view text, double fraction, const std::string& separator) {
  const auto keep = static_cast<int64_t>(static_cast<double>(count_characters(text)) * (1 - fraction));
  int64_t seen = 0;
  size_t at = 0;
  while (at < text.size() && (continues_character(text[at]) || seen++ != keep)) ++at;
  if (separator.empty()) return at;
  // The character may lie inside a separator: look from one separator's length before it.
  const size_t next = text.find(separator, at - std::min(at, separator.size() - 1));
  return next == std::string_view::npos ? text.size() : next + separator.size();
}

void append_text(TokenStream& stream, std::string_view text, const std::string& path,
                 const std::string& separator, const text::Tokenizer& tokenizer) {
  const int32_t end = end_of_text(tokenizer);
  for (const std::string_view document : documents_of(text, separator)) {
    std::vector<int32_t> ids;
    try {
      ids = tokenizer.encode(document, false).ids;
    } catch (const Error& e) {
      fail("{}: {}", path, e.what());
    }
    if (end >= 0) ids.push_back(end);
    stream.append(ids);
    stream.characters += count_characters(document);
    stream.bytes += static_cast<int64_t>(document.size());
  }
}

}  // namespace

text::Tokenizer train_tokenizer(const TokenizerConfig& config, std::span<const std::string_view> texts,
                                Objective objective) {
  const bool next_token = objective == Objective::next_token, word_piece = config.type == "wordpiece",
             pairs = writes_targets(objective);
  // A language model of characters has no token that ends a text.
  std::vector<std::string> special;
  if (word_piece)
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  else if (!next_token)
    special = {"<s>", "</s>"};
  else if (config.type != "char")
    special = {kEndOfText};
  if (word_piece && pairs) special.insert(special.end(), {"<s>", "</s>"});
  if (objective == Objective::denoise || (!next_token && !pairs && !word_piece))
    special.emplace_back("<mask>");
  if (objective == Objective::span_corruption)
    for (int i = 0; i < kSentinels; ++i) special.push_back(sentinel(i));

  text::TrainerOptions options;
  options.lowercase = config.lowercase;
  options.vocab_size = static_cast<size_t>(config.vocab_size);
  options.min_frequency = config.min_frequency;
  Progress progress;
  options.progress = [&](std::string_view what, size_t done, size_t total) {
    progress.update(fmt::format("tokenizer: {} {} of {}", what, done, total));
  };
  if (config.type == "char" || config.type == "word") options.special_tokens = {"<unk>"};
  options.special_tokens.insert(options.special_tokens.end(), special.begin(), special.end());
  const auto trained = [&] {
    if (word_piece) return text::train_word_piece(texts, options);
    if (config.type == "char") return text::train_characters(texts, options);
    if (config.type == "word") return text::train_words(texts, options);
    return config.type == "byte" ? text::train_bytes(options) : text::train_byte_level_bpe(texts, options);
  };
  const text::Tokenizer tokenizer = trained();
  return next_token || pairs || word_piece ? tokenizer : text::with_template(tokenizer, "<s>", "</s>");
}

text::Tokenizer tokenizer_for(const TrainConfig& config, const text::Tokenizer* given,
                              const std::function<text::Tokenizer()>& trained) {
  if (given != nullptr) return *given;
  if (!config.from.empty()) return text::Tokenizer::load(resolve_model_dir(config.from));
  return config.tokenizer.path.empty() ? trained() : text::Tokenizer::load(config.tokenizer.path);
}

std::vector<int32_t> sentinels(const text::Tokenizer& tokenizer) {
  std::vector<int32_t> out;
  for (int i = 0; i < kSentinels; ++i)
    if (const auto id = tokenizer.token_to_id(sentinel(i))) out.push_back(static_cast<int32_t>(*id));
  check(!out.empty(), "the tokenizer has no token {}: span corruption puts it in place of spans",
        sentinel(0));
  return out;
}

EncoderTokens encoder_tokens(const text::Tokenizer& tokenizer) {
  const auto id_of = [&](const char* bert, const char* roberta, const char* use) {
    for (const char* token : {bert, roberta})
      if (const auto id = tokenizer.token_to_id(token)) return static_cast<int32_t>(*id);
    fail("the tokenizer has neither {} nor {}: {}", bert, roberta, use);
  };
  return {id_of("[CLS]", "<s>", "an encoder's texts begin with it"),
          id_of("[SEP]", "</s>", "an encoder's texts end with it"),
          id_of("[MASK]", "<mask>", "masked tokens need it")};
}

int32_t end_of_text(const text::Tokenizer& tokenizer) {
  return static_cast<int32_t>(tokenizer.token_to_id(kEndOfText).value_or(-1));
}

TokenStream tokenize_file(const std::string& path, const std::string& separator,
                          const text::Tokenizer& tokenizer) {
  const TextFile file = read_text(path);
  TokenStream stream;
  append_text(stream, file.text, path, separator, tokenizer);
  return stream;
}

namespace {

// The training and the validation part of a run's files.
struct Texts {
  std::vector<TextFile> train, valid;

  explicit Texts(const DataConfig& data) {
    for (const std::string& path : data.train) train.push_back(read_text(path));
    for (const std::string& path : data.valid) valid.push_back(read_text(path));
    if (valid.empty() && data.valid_fraction > 0)
      for (TextFile& file : train) {
        const size_t at = split_point(file.text, data.valid_fraction, data.separator);
        valid.push_back({file.path, file.text.substr(at)});
        file.text.resize(at);
      }
  }
};

text::Tokenizer make_tokenizer(const TrainConfig& config, const Texts& texts) {
  std::vector<std::string_view> documents;
  for (const TextFile& file : texts.train)
    for (const std::string_view d : documents_of(file.text, config.data.separator)) documents.push_back(d);
  try {
    return train_tokenizer(config.tokenizer, documents, config.objective);
  } catch (const Error& e) {
    fail("{}: {}", fmt::join(config.data.train, ", "), e.what());
  }
}

TokenStream tokenize(const std::vector<TextFile>& files, const std::string& separator,
                     const text::Tokenizer& tokenizer) {
  TokenStream stream;
  for (const TextFile& file : files) append_text(stream, file.text, file.path, separator, tokenizer);
  return stream;
}

std::vector<int32_t> prefix_of(const text::Tokenizer& tokenizer) {
  try {
    return tokenizer.encode("a", false).ids;
  } catch (const Error&) {  // a word that it does not know
    return {};
  }
}

std::string hash_of_tokens(const TokenStream& s) {
  return hash_of(std::as_bytes(s.tokens())) + hash_of(std::as_bytes(s.starts()));
}

}  // namespace

Corpus load_corpus(const TrainConfig& run, const text::Tokenizer* given) {
  const DataConfig& data = run.data;
  const TokenizerConfig& config = run.tokenizer;
  const CorpusCache cache(data.cache);
  const std::string source = fmt::format("{}\n{}\n{}\n{}", signature_of(data.train), signature_of(data.valid),
                                         data.valid_fraction, data.separator);
  std::optional<Texts> texts;  // read only where the cache does not know them
  const auto read = [&]() -> const Texts& { return texts ? *texts : texts.emplace(data); };
  const auto trained = [&] {
    const std::string key = fmt::format("{}\n{} {} {} {} {}", source, config.type, config.vocab_size,
                                        config.min_frequency, config.lowercase, name_of(run.objective));
    if (const auto json = cache.load_tokenizer(key)) try {
        return text::Tokenizer::from_json(*json);
      } catch (const Error&) {  // damaged: make it anew
      }
    text::Tokenizer tokenizer = make_tokenizer(run, read());
    cache.save_tokenizer(key, tokenizer.to_json());
    return tokenizer;
  };
  const text::Tokenizer tokenizer = tokenizer_for(run, given, trained);
  // A prefix space has no words in tokenizer.json: the encoding of a letter shows it.
  const std::string key =
      fmt::format("{}{}{}", source, tokenizer.to_json(), fmt::join(prefix_of(tokenizer), " "));
  if (auto text = cache.load_text(key)) return {tokenizer, std::move(*text), true};

  TokenizedText text{tokenize(read().train, data.separator, tokenizer),
                     tokenize(read().valid, data.separator, tokenizer), "", ""};
  check(text.train.size() > 1, "{}: too short: nothing to train on", fmt::join(data.train, ", "));
  text.train_hash = hash_of_tokens(text.train);
  text.valid_hash = hash_of_tokens(text.valid);
  cache.save_text(key, text);
  return {tokenizer, std::move(text), false};
}

SequenceEnds sequence_ends(const text::Tokenizer& tokenizer) {
  // Of a language model's tokenizer one token ends all.
  if (const int32_t end = end_of_text(tokenizer); end >= 0 && !tokenizer.token_to_id("</s>"))
    return {end, end};
  const auto id_of = [&](const char* token) {
    const auto id = tokenizer.token_to_id(token);
    check(id.has_value(),
          "the tokenizer has no token {}: sequence-to-sequence models begin with <s> and end with </s>",
          token);
    return static_cast<int32_t>(*id);
  };
  return {id_of("<s>"), id_of("</s>")};
}

PairTexts read_pairs(const std::vector<std::string>& files, const std::vector<std::string>& targets,
                     const DataConfig& data) {
  PairTexts out;
  out.path = fmt::format("{}", fmt::join(files, ", "));
  check(targets.empty() || targets.size() == files.size(),
        "{}: {} files need as many with their translations, got {}", out.path, files.size(), targets.size());
  for (size_t f = 0; f < files.size(); ++f) {
    Table table = targets.empty() ? read_table(files[f]) : read_parallel(files[f], targets[f]);
    const size_t from = table.column(targets.empty() ? data.source_column : "source"),
                 to = table.column(targets.empty() ? data.target_column : "target");
    for (auto& row : table.rows) {
      if (row[from].empty() || row[to].empty()) continue;
      out.source.push_back(std::move(row[from]));
      out.target.push_back(std::move(row[to]));
    }
  }
  return out;
}

namespace {

// Takes the last `fraction` of the pairs away.
PairTexts split_off(PairTexts& pairs, double fraction) {
  PairTexts out{{}, {}, pairs.path};
  const auto keep = static_cast<int64_t>(static_cast<double>(pairs.source.size()) * (1 - fraction));
  for (auto [to, from] : {std::pair(&out.source, &pairs.source), std::pair(&out.target, &pairs.target)}) {
    to->assign(std::make_move_iterator(from->begin() + keep), std::make_move_iterator(from->end()));
    from->resize(static_cast<size_t>(keep));
  }
  return out;
}

TokenStream tokenize_lines(const std::vector<std::string>& lines, const std::string& path,
                           const text::Tokenizer& tokenizer) {
  TokenStream stream;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids;
    try {
      ids = tokenizer.encode(lines[i], false).ids;
    } catch (const Error& e) {
      fail("{}: {}", path, e.what());
    }
    check(!ids.empty(), "{}: '{}' gives no token", path, lines[i]);
    stream.append(ids);
    stream.characters += count_characters(lines[i]);
    stream.bytes += static_cast<int64_t>(lines[i].size());
  }
  return stream;
}

}  // namespace

PairStream tokenize_pairs(const PairTexts& texts, const text::Tokenizer& tokenizer) {
  return {tokenize_lines(texts.source, texts.path, tokenizer),
          tokenize_lines(texts.target, texts.path, tokenizer)};
}

PairCorpus load_pairs(const TrainConfig& run, const text::Tokenizer* given) {
  const DataConfig& data = run.data;
  PairTexts train = read_pairs(data.train, data.train_target, data);
  PairTexts valid = data.valid.empty() ? split_off(train, data.valid_fraction)
                                       : read_pairs(data.valid, data.valid_target, data);
  check(!train.source.empty(), "{}: there is no pair to learn from", train.path);
  const auto trained = [&] {
    std::vector<std::string_view> texts(train.source.begin(), train.source.end());
    texts.insert(texts.end(), train.target.begin(), train.target.end());
    return train_tokenizer(run.tokenizer, texts, run.objective);
  };
  const text::Tokenizer tokenizer = tokenizer_for(run, given, trained);
  PairCorpus out{tokenizer,
                 tokenize_pairs(train, tokenizer),
                 tokenize_pairs(valid, tokenizer),
                 sequence_ends(tokenizer),
                 "",
                 {}};
  out.hash = hash_of_tokens(out.train.source) + hash_of_tokens(out.train.target);
  out.valid_texts = std::move(valid);
  return out;
}

}  // namespace qkv
