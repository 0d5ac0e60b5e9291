#include "qkv/train/corpora/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>

#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/base/progress.h"
#include "qkv/data/table.h"
#include "qkv/data/token_file.h"
#include "qkv/infer/sequence_ends.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/template.h"
#include "qkv/text/trainer.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

constexpr int kSentinels = 100;

bool is_sentencepiece(const std::string& type) {
  return type == "unigram" || type == "sentencepiece_bpe";
}

std::string sentinel(int i) {
  return fmt::format("<extra_id_{}>", i);
}

// A text's characters and bytes, for losses per character and per byte.
class TextSize {
 public:
  explicit TextSize(const text::Tokenizer& tokenizer) : unknown_(tokenizer.vocab_size(), false) {
    for (const text::TokenId id : tokenizer.ids_without_text(unknown_.size())) unknown_[id] = true;
  }
  void add(std::string_view text) {
    characters_ += count_characters(text);
    bytes_ += static_cast<int64_t>(text.size());
  }
  void look_at(std::span<const int32_t> ids) {
    for (const int32_t id : ids) unknown_tokens_ += unknown_[static_cast<size_t>(id)];
  }
  // 0 if there are unknown tokens: the model does not predict their characters, so losses per character or
  // byte are undefined.
  int64_t characters() const { return unknown_tokens_ > 0 ? 0 : characters_; }
  int64_t bytes() const { return unknown_tokens_ > 0 ? 0 : bytes_; }
  int64_t unknown_tokens() const { return unknown_tokens_; }

 private:
  std::vector<bool> unknown_;
  int64_t characters_ = 0, bytes_ = 0, unknown_tokens_ = 0;
};

// The tokens around documents.
struct DocumentEnds {
  int32_t end;  // -1: nothing
  bool begins;  // also stands before documents

  explicit DocumentEnds(const text::Tokenizer& tokenizer)
      : end(end_of_text(tokenizer)), begins(begins_with_end_of_text(tokenizer)) {}
};

TokenStream stream_of(TokenFile& tokens, const TextSize& size) {
  TokenStream stream = tokens.stream();
  stream.characters = size.characters();
  stream.bytes = size.bytes();
  stream.unknown = size.unknown_tokens();
  return stream;
}

void append_document(TokenFile& tokens, std::string_view document, const std::string& path,
                     const text::Tokenizer& tokenizer, const DocumentEnds& ends, TextSize& size) {
  if (ends.begins) tokens.append(std::span(&ends.end, 1));
  for (const std::string_view piece : pieces_to_encode(document)) try {
      const std::vector<int32_t> ids = tokenizer.encode(piece, false).ids;
      tokens.append(ids);
      size.look_at(ids);
    } catch (const Error& e) {
      fail("{}: {}", path, e.what());
    }
  if (ends.end >= 0) tokens.append(std::span(&ends.end, 1));
  tokens.end_document();
  size.add(document);
}

// Tokenizes in bounded memory: the tokens go to a file in `folder`.
TokenStream tokenize(const std::vector<Documents>& files, const text::Tokenizer& tokenizer,
                     const std::string& folder) {
  TokenFile tokens(folder);
  TextSize size(tokenizer);
  const DocumentEnds ends(tokenizer);
  int64_t documents = 0;
  for (const Documents& file : files)
    file.for_each([&](std::string_view document) {
      append_document(tokens, document, file.path, tokenizer, ends, size);
      ++documents;
    });
  TokenStream stream = stream_of(tokens, size);
  if (ends.begins) stream.beginnings = documents;
  return stream;
}

}  // namespace

std::vector<std::string_view> pieces_to_encode(std::string_view document, size_t bytes) {
  const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const auto filled = [](char c) { return std::isspace(static_cast<unsigned char>(c)) == 0; };
  // The last lone line end between such characters in the window's second half; 0: none.
  const auto line_end = [&](std::string_view in, const auto& right) -> size_t {
    for (size_t at = in.size() - 2; at > in.size() / 2; --at)
      if (in[at] == '\n' && right(in[at - 1]) && right(in[at + 1])) return at;
    return 0;
  };
  std::vector<std::string_view> out;
  while (document.size() > bytes) {
    const std::string_view window = document.substr(0, bytes);
    size_t cut = line_end(window, word);
    if (cut == 0) cut = line_end(window, filled);
    if (cut == 0)  // between characters, which have at most four bytes
      for (cut = bytes; cut > 1 && cut + 4 > bytes && continues_character(document[cut]);) --cut;
    out.push_back(document.substr(0, cut));
    document.remove_prefix(cut);
  }
  if (!document.empty()) out.push_back(document);
  return out;
}

text::Tokenizer train_tokenizer(const TokenizerConfig& config, std::span<const std::string_view> texts,
                                const std::vector<Objective>& objectives, bool documents) {
  const auto any = [&](Objective o) {
    return std::find(objectives.begin(), objectives.end(), o) != objectives.end();
  };
  const bool next_token = any(Objective::next_token), chat = any(Objective::chat),
             word_piece = config.type == "wordpiece",
             pairs = std::any_of(objectives.begin(), objectives.end(), writes_targets);
  // With many texts, a character-level language model has a token that ends a text, from which it learns
  // how texts begin. SentencePiece adds its own <unk>, <s> and </s> after these tokens.
  const bool ended_characters = config.type == "char" && next_token && documents;
  std::vector<std::string> special;
  if (is_sentencepiece(config.type))
    special = next_token || chat ? std::vector<std::string>{kEndOfText} : std::vector<std::string>{};
  else if (word_piece)
    special = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  else if (!next_token && !chat)
    special = {"<s>", "</s>"};
  else if (config.type != "char" || ended_characters)
    special = {kEndOfText};
  if (chat) special.insert(special.end(), {"<|im_start|>", "<|im_end|>"});
  if (word_piece && pairs) special.insert(special.end(), {"<s>", "</s>"});
  const bool bare = next_token || chat || pairs || word_piece;  // no special tokens around texts
  if (any(Objective::denoise) || !bare) special.emplace_back("<mask>");
  if (any(Objective::span_corruption))
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
    if (config.type == "unigram")
      return text::train_sentencepiece(texts, options, text::SentencePieceKind::kUnigram);
    if (config.type == "sentencepiece_bpe")
      return text::train_sentencepiece(texts, options, text::SentencePieceKind::kBpe);
    return config.type == "byte" ? text::train_bytes(options) : text::train_byte_level_bpe(texts, options);
  };
  options.surrounded = !bare;
  const text::Tokenizer tokenizer = trained();
  if (ended_characters && bare) return text::with_template(tokenizer, kEndOfText, "");
  return bare || is_sentencepiece(config.type) ? tokenizer : text::with_template(tokenizer, "<s>", "</s>");
}

text::Tokenizer tokenizer_for(const TrainConfig& config, const Origin* given,
                              const std::function<text::Tokenizer()>& trained) {
  if (given != nullptr) {
    const auto size = static_cast<int64_t>(given->tokenizer.vocab_size());
    check(config.from.empty() || size <= config.model.vocab_size,
          "model.from: the tokenizer of {} has {} tokens, its model {}", config.from, size,
          config.model.vocab_size);
    return given->tokenizer;
  }
  if (config.tokenizer.trained) return *config.tokenizer.trained;
  if (config.tokenizer.path.empty()) return trained().with_special_tokens(config.tokenizer.add_special);
  const auto tokenizer =
      text::Tokenizer::load(config.tokenizer.path).with_special_tokens(config.tokenizer.add_special);
  const std::string& source = config.tokenizer.source_path;
  return source.empty() ? tokenizer : tokenizer.with_sources(text::Tokenizer::load(source));
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

bool are_documents(const DataConfig& data) {
  return !data.separator.empty() ||
         std::ranges::any_of(data.train, [options = file_options(data)](const std::string& path) {
           return is_of_rows(path, options);
         });
}

TokenStream tokenize_file(const std::string& path, const DataConfig& given, const text::Tokenizer& tokenizer,
                          Notes* notes) {
  DataConfig data = given;
  data.any_bytes = reads_bytes(tokenizer);
  return tokenize({read_documents(path, data, notes)}, tokenizer, CorpusCache(data.cache).scratch_folder());
}

bool reads_bytes(const text::Tokenizer& tokenizer) {
  constexpr std::string_view kSample =
      " the of and to in is that it\xFF";  // other tokenizers would merge or reject this
  try {
    return tokenizer.encode(kSample, false).ids.size() == kSample.size();
  } catch (const Error&) {
    return false;
  }
}

namespace {

// The texts that a tokenizer is trained on.
std::vector<std::string_view> documents_of(const std::vector<Documents>& files) {
  std::vector<std::string_view> documents;
  for (const Documents& file : files)
    file.for_each([&](std::string_view document) {
      for (const std::string_view piece : pieces_to_encode(document)) documents.push_back(piece);
    });
  return documents;
}

text::Tokenizer make_tokenizer(const TrainConfig& config, const TextFiles& texts) {
  const auto documents = documents_of(texts.train);
  try {
    return train_tokenizer(config.tokenizer, documents, {config.objective}, are_documents(config.data));
  } catch (const Error& e) {
    fail("{}: {}", fmt::join(config.data.train, ", "), e.what());
  }
}

std::vector<int32_t> prefix_of(const text::Tokenizer& tokenizer) {
  try {
    return tokenizer.encode("a", false).ids;
  } catch (const Error&) {  // an unknown word
    return {};
  }
}

// The run's data, with any_bytes set for its tokenizer.
DataConfig readable_data(const TrainConfig& run, const Origin* given) {
  DataConfig data = run.data;
  data.any_bytes = given != nullptr             ? reads_bytes(given->tokenizer)
                   : run.tokenizer.path.empty() ? run.tokenizer.type == "byte"
                                                : reads_bytes(text::Tokenizer::load(run.tokenizer.path));
  return data;
}

std::string hash_of_tokens(const TokenStream& s) {
  return hash_of(std::as_bytes(s.tokens())) + hash_of(std::as_bytes(s.starts()));
}

}  // namespace

Corpus load_corpus(const TrainConfig& run, const Origin* given) {
  const DataConfig data = readable_data(run, given);
  const TokenizerConfig& config = run.tokenizer;
  const CorpusCache cache(data.cache);
  const std::string source =
      fmt::format("{}\n{}\n{}\n{}\n{} {} {} {} {}\n{} {} {}", signature_of(data.train),
                  signature_of(data.valid), data.valid_fraction, data.separator, data.deduplicate,
                  data.min_characters, data.max_characters, data.text_column, fmt::join(data.columns, "\t"),
                  data.format, data.delimiter, data.keep_carriage_returns);
  std::optional<TextFiles> texts;  // read only if they are not in the cache
  const auto read = [&]() -> const TextFiles& { return texts ? *texts : texts.emplace(data); };
  const auto trained = [&] {
    const std::string key =
        fmt::format("{}\n{} {} {} {} {} {}", source, config.type, config.vocab_size, config.min_frequency,
                    config.lowercase, name_of(run.objective), are_documents(data));
    if (const auto json = cache.load_tokenizer(key)) try {
        return text::Tokenizer::from_json(*json);
      } catch (const Error&) {  // damaged: train again
      }
    text::Tokenizer tokenizer = make_tokenizer(run, read());
    cache.save_tokenizer(key, tokenizer.to_json());
    return tokenizer;
  };
  const text::Tokenizer tokenizer = tokenizer_for(run, given, trained);
  // tokenizer.json does not record a prefix space, but the encoding of a letter shows it.
  const std::string key =
      fmt::format("{}{}{}", source, tokenizer.to_json(), fmt::join(prefix_of(tokenizer), " "));
  if (auto text = cache.load_text(key)) return {tokenizer, std::move(*text), true};

  const auto tokenized = [&](const std::vector<Documents>& files) {
    return tokenize(files, tokenizer, cache.scratch_folder());
  };
  TokenizedText text{tokenized(read().train), tokenized(read().valid), "", "", read().skipped, read().notes};
  if (run.objective == Objective::next_token && !read().hint.empty()) text.notes.push_back(read().hint);
  check(text.train.size() > 1, "{}: too short: nothing to train on", fmt::join(data.train, ", "));
  text.train_hash = hash_of_tokens(text.train);
  text.valid_hash = hash_of_tokens(text.valid);
  cache.save_text(key, text);
  if (auto kept = cache.load_text(key)) text = std::move(*kept);  // use the cached file of the tokens
  return {tokenizer, std::move(text), false};
}

std::string PairTexts::place(size_t pair) const {
  const auto file = std::upper_bound(first_of_file.begin(), first_of_file.end(), first + pair) - 1;
  return fmt::format("{}:{}", files[static_cast<size_t>(file - first_of_file.begin())], lines[pair]);
}

PairTexts read_pairs(const std::vector<std::string>& files, const std::vector<std::string>& targets,
                     const DataConfig& data) {
  PairTexts out;
  out.files = files;
  check(targets.empty() || targets.size() == files.size(),
        "{}: {} files need as many with their translations, got {}", fmt::join(files, ", "), files.size(),
        targets.size());
  // Texts go to a file as they are read, and are then mapped.
  ScratchFile texts(CorpusCache(data.cache).scratch_folder());
  std::vector<std::pair<size_t, size_t>> sizes;
  TextFilter filter(data);
  const FileOptions options = file_options(data);
  const auto add = [&](std::string_view source, std::string_view target, int64_t line) {
    if (is_blank(source) || is_blank(target)) {
      ++out.skipped;
      return;
    }
    if (filter.on() && !filter.keeps(source, target)) return;
    out.lines.push_back(line);
    for (const std::string_view part : {std::string_view(data.prefix), source, target})
      texts.write(part.data(), part.size());
    sizes.emplace_back(data.prefix.size() + source.size(), target.size());
  };
  for (size_t f = 0; f < files.size(); ++f) {
    out.first_of_file.push_back(sizes.size());
    if (!targets.empty()) {
      int64_t line = 0;
      for_each_parallel_line(
          files[f], targets[f],
          [&](std::string_view source, std::string_view target) { add(source, target, ++line); }, options,
          &out.notes);
      continue;
    }
    size_t from = 0, to = 0;
    for_each_row(
        files[f], options,
        [&](const Table& head) {
          from = head.column(data.source_column);
          to = head.column(data.target_column);
        },
        [&](const TableRow& row) { add(row.fields[from], row.fields[to], row.line); }, &out.notes);
  }
  const auto file = texts.mapped();
  size_t at = 0;
  for (const auto& [source, target] : sizes) {
    out.source.push_back(file->text().substr(at, source));
    out.target.push_back(file->text().substr(at + source, target));
    at += source + target;
  }
  out.owner = file;
  out.filtered = filter.skipped();
  return out;
}

namespace {

// Removes the last `fraction` of the pairs and returns them.
PairTexts split_off(PairTexts& pairs, double fraction) {
  PairTexts out = pairs;
  const auto keep = static_cast<int64_t>(static_cast<double>(pairs.source.size()) * (1 - fraction));
  for (auto [to, from] : {std::pair(&out.source, &pairs.source), std::pair(&out.target, &pairs.target)}) {
    to->erase(to->begin(), to->begin() + keep);
    from->resize(static_cast<size_t>(keep));
  }
  out.lines.erase(out.lines.begin(), out.lines.begin() + keep);
  pairs.lines.resize(static_cast<size_t>(keep));
  out.first = static_cast<size_t>(keep);
  out.skipped = 0;
  out.filtered = {};
  out.notes = {};
  return out;
}

// Tokenizes one side of the pairs.
TokenStream tokenize_lines(const PairTexts& pairs, const std::vector<std::string_view>& lines,
                           const text::Tokenizer& tokenizer, const std::string& folder) {
  TokenFile tokens(folder);
  TextSize size(tokenizer);
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids;
    try {
      ids = tokenizer.encode(lines[i], false).ids;
    } catch (const Error& e) {
      fail("{}: {}", pairs.place(i), e.what());
    }
    check(!ids.empty(), "{}: '{}' gives no token", pairs.place(i), lines[i]);
    tokens.append(ids);
    tokens.end_document();
    size.look_at(ids);
    size.add(lines[i]);
  }
  return stream_of(tokens, size);
}

}  // namespace

PairStream tokenize_pairs(const PairTexts& texts, const text::Tokenizer& tokenizer, bool cache) {
  const std::string folder = CorpusCache(cache).scratch_folder();
  return {tokenize_lines(texts, texts.source, tokenizer.of_sources(), folder),
          tokenize_lines(texts, texts.target, tokenizer, folder)};
}

namespace {

// Validation data are not filtered.
DataConfig unfiltered(DataConfig data) {
  data.deduplicate = false;
  data.min_characters = data.max_characters = 0;
  data.max_ratio = 0;
  return data;
}

// Training and validation pairs.
std::pair<PairTexts, PairTexts> train_and_valid_pairs(const DataConfig& data) {
  PairTexts train = read_pairs(data.train, data.train_target, data);
  PairTexts valid = data.valid.empty() ? split_off(train, data.valid_fraction)
                                       : read_pairs(data.valid, data.valid_target, unfiltered(data));
  check(!train.source.empty(), "{}: there is no pair to learn from", fmt::join(train.files, ", "));
  return {std::move(train), std::move(valid)};
}

std::vector<std::string_view> both_sides(const PairTexts& pairs) {
  std::vector<std::string_view> texts = pairs.source;
  texts.insert(texts.end(), pairs.target.begin(), pairs.target.end());
  return texts;
}

}  // namespace

TrainingTexts training_texts(const TrainConfig& config) {
  const DataConfig data = readable_data(config, nullptr);
  if (config.objective != Objective::sequence_to_sequence) {
    const auto texts = std::make_shared<const TextFiles>(data);
    return {documents_of(texts->train), texts};
  }
  PairTexts pairs = train_and_valid_pairs(data).first;
  return {both_sides(pairs), std::move(pairs.owner)};
}

PairCorpus load_pairs(const TrainConfig& run, const Origin* given) {
  auto [train, valid] = train_and_valid_pairs(readable_data(run, given));
  const auto learned = [&, &train = train] {
    if (!run.tokenizer.separate) return train_tokenizer(run.tokenizer, both_sides(train), {run.objective});
    return train_tokenizer(run.tokenizer, train.target, {run.objective})
        .with_sources(train_tokenizer(run.tokenizer, train.source, {run.objective}));
  };
  const auto trained = [&, &train = train] {
    try {
      return learned();
    } catch (const Error& e) {
      for (size_t i = 0; i < train.source.size(); ++i)
        for (const std::string_view side : {train.source[i], train.target[i]})
          if (text::find_invalid_utf8(side) < side.size()) fail("{}: {}", train.place(i), e.what());
      fail("{}: {}", fmt::join(run.data.train, ", "), e.what());
    }
  };
  const text::Tokenizer tokenizer = tokenizer_for(run, given, trained);
  PairCorpus out{tokenizer,
                 tokenize_pairs(train, tokenizer, run.data.cache),
                 tokenize_pairs(valid, tokenizer, run.data.cache),
                 sequence_ends(tokenizer, given ? &given->ids : nullptr),
                 "",
                 {}};
  out.hash = hash_of_tokens(out.train.source) + hash_of_tokens(out.train.target);
  out.skipped = train.skipped + valid.skipped;
  out.filtered = train.filtered;
  out.notes = train.notes;
  out.notes.insert(out.notes.end(), valid.notes.begin(), valid.notes.end());
  out.valid_texts = std::move(valid);
  return out;
}

}  // namespace qkv
