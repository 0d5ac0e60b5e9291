#include "qkv/text/trainer.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/bpe.h"
#include "qkv/text/bpe_trainer.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/gpt2_pattern.h"
#include "qkv/text/sentencepiece_classes.h"
#include "qkv/text/sentencepiece_training.h"
#include "qkv/text/tokenizer_parts.h"
#include "qkv/text/unicode.h"
#include "qkv/text/word_level.h"
#include "qkv/text/word_piece.h"

namespace qkv::text {
namespace {

constexpr size_t kProgressEvery = 256;      // merges
constexpr size_t kProgressBytes = 1 << 24;  // bytes of text
constexpr size_t kAlphabet = 256;
constexpr std::string_view kWordPiecePrefix = "##";

void report(const TrainerOptions& options, std::string_view what, size_t done, size_t total) {
  if (options.progress) options.progress(what, done, total);
}

Vocabulary vocabulary_of(const std::vector<std::string>& special_tokens) {
  Vocabulary vocabulary;
  for (const std::string& token : special_tokens) {
    check(!token.empty(), "tokenizer training: a special token is empty");
    check_utf8(token, "tokenizer training: special token");
    check(vocabulary.add(token, static_cast<TokenId>(vocabulary.id_limit())),
          "tokenizer training: the special token \"{}\" is given twice", token);
  }
  return vocabulary;
}

AddedTokens added_tokens_of(const std::vector<std::string>& special_tokens, const Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  for (const std::string& content : special_tokens) {
    AddedToken token;
    token.id = vocabulary.find(content);
    token.content = content;
    tokens.push_back(std::move(token));
  }
  return AddedTokens(std::move(tokens), vocabulary, nullptr, "tokenizer training: special tokens");
}

// Adds the byte alphabet in the order of its characters. A special token that is one of them keeps its id.
void add_byte_alphabet(Vocabulary& vocabulary) {
  std::vector<int32_t> characters;
  for (size_t b = 0; b < kAlphabet; ++b)
    characters.push_back(byte_to_character(static_cast<unsigned char>(b)));
  std::sort(characters.begin(), characters.end());
  for (const int32_t c : characters) {
    std::string spelling;
    append_utf8(spelling, c);
    vocabulary.add(spelling, static_cast<TokenId>(vocabulary.id_limit()));
  }
}

std::unique_ptr<PreTokenizer> pre_tokenizer_of(const Json& json) {
  return parse_pre_tokenizer(JsonField(json, "pre_tokenizer"));
}

Tokenizer byte_level_tokenizer(const TrainerOptions& options, Vocabulary vocabulary,
                               std::vector<Merge> merges) {
  const Json stage = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json untrimmed = stage;
  untrimmed["trim_offsets"] = false;
  TokenizerParts parts;
  parts.model = std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), BpeOptions{}, "merges");
  parts.added_tokens = added_tokens_of(options.special_tokens, parts.model->vocabulary());
  parts.pre_tokenizer = pre_tokenizer_of(stage);
  parts.post_processor = parse_post_processor(JsonField(untrimmed, "post_processor"));
  parts.decoder = parse_decoder(JsonField(stage, "decoder"));
  return Tokenizer(std::move(parts));
}

// The special token for unknown pieces; empty if there is none.
std::string unknown_token(const std::vector<std::string>& special_tokens) {
  for (const std::string& token : special_tokens) {
    if (token == "<unk>" || token == "[UNK]") return token;
  }
  return "";
}

void learn_merges(BpeTrainer& trainer, const TrainerOptions& options) {
  while (trainer.vocabulary().size() < options.vocab_size && trainer.step(options.min_frequency)) {
    if (trainer.merges().size() % kProgressEvery == 0) {
      report(options, "tokens", trainer.vocabulary().size(), options.vocab_size);
    }
  }
}

WordCounts count_gpt2_words(std::span<const std::string_view> texts, const TrainerOptions& options) {
  WordCounts counts;
  size_t total = 0, done = 0;
  for (const std::string_view text : texts) total += text.size();
  for (const std::string_view text : texts) {
    for (size_t at = 0; at < text.size();) {
      const size_t end = gpt2_match_end(text, at);
      ++counts[text.substr(at, end - at)];
      if ((done + end) / kProgressBytes != (done + at) / kProgressBytes) {
        report(options, "bytes counted", done + end, total);
      }
      at = end;
    }
    done += text.size();
  }
  return counts;
}

// Counts words of BERT's pipeline. Works line by line, because lines end words and this limits memory.
std::map<std::string, int64_t> count_bert_words(std::span<const std::string_view> texts,
                                                const TokenizerParts& parts, const TrainerOptions& options) {
  std::unordered_map<std::string, int64_t> counts;
  size_t total = 0, done = 0;
  for (const std::string_view text : texts) total += text.size();
  for (const std::string_view text : texts) {
    check_utf8(text, "tokenizer training");
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
      PieceList list(parts.normalizer->normalize(AlignedText(text.substr(at, end - at), 0)));
      parts.pre_tokenizer->split(list);
      for (size_t i = 0; i < list.pieces.size(); ++i) ++counts[std::string(list.piece(i))];
      if ((done + end) / kProgressBytes != (done + at) / kProgressBytes)
        report(options, "bytes counted", done + end, total);
      at = end;
    }
    done += text.size();
  }
  return {counts.begin(), counts.end()};
}

// The most frequent characters; ties go to the smaller code point.
std::set<int32_t> frequent_characters(const std::map<std::string, int64_t>& words, size_t limit) {
  std::map<int32_t, int64_t> counts;
  for (const auto& [word, count] : words) {
    for (size_t i = 0; i < word.size();) {
      const Character c = character_at(word, i);
      counts[c.codepoint] += count;
      i += c.length;
    }
  }
  std::vector<std::pair<int64_t, int32_t>> order;
  order.reserve(counts.size());
  for (const auto& [character, count] : counts) order.emplace_back(-count, character);
  std::sort(order.begin(), order.end());
  if (order.size() > limit) order.resize(limit);
  std::set<int32_t> frequent;
  for (const auto& [count, character] : order) frequent.insert(character);
  return frequent;
}

// Words as tokens of the alphabet. Characters outside it are dropped, and all but the first get the prefix.
std::vector<CountedWord> spell_with_prefix(const std::map<std::string, int64_t>& words,
                                           const std::set<int32_t>& alphabet, Vocabulary& vocabulary) {
  const auto add = [&](std::string token) {
    vocabulary.add(std::move(token), static_cast<TokenId>(vocabulary.id_limit()));
  };
  std::set<int32_t> inside;  // characters that occur inside words
  const auto for_each_character = [&](std::string_view word, const auto& f) {
    for (size_t i = 0; i < word.size();) {
      const Character c = character_at(word, i);
      if (alphabet.contains(c.codepoint)) f(c.codepoint, i > 0, word.substr(i, c.length));
      i += c.length;
    }
  };
  for (const int32_t c : alphabet) {
    std::string token;
    append_utf8(token, c);
    add(std::move(token));
  }
  for (const auto& [word, count] : words) {
    for_each_character(word, [&](int32_t c, bool continues, std::string_view) {
      if (continues) inside.insert(c);
    });
  }
  for (const int32_t c : inside) {
    std::string token(kWordPiecePrefix);
    append_utf8(token, c);
    add(std::move(token));
  }
  std::vector<CountedWord> spelled;
  spelled.reserve(words.size());
  for (const auto& [word, count] : words) {
    CountedWord counted{{}, count};
    for_each_character(word, [&](int32_t, bool continues, std::string_view character) {
      std::string token(continues ? kWordPiecePrefix : "");
      token += character;
      counted.tokens.push_back(vocabulary.find(token));
    });
    spelled.push_back(std::move(counted));
  }
  return spelled;
}

// BERT's special tokens, except for those in `named`, followed by `named`.
std::vector<std::string> with_bert_tokens(const std::vector<std::string>& named) {
  std::vector<std::string> tokens;
  for (const char* token : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}) {
    if (std::find(named.begin(), named.end(), token) == named.end()) tokens.emplace_back(token);
  }
  tokens.insert(tokens.end(), named.begin(), named.end());
  return tokens;
}

}  // namespace

Tokenizer train_byte_level_bpe(std::span<const std::string_view> texts, const TrainerOptions& options) {
  Vocabulary vocabulary = vocabulary_of(options.special_tokens);
  add_byte_alphabet(vocabulary);
  check(options.vocab_size >= vocabulary.size() && options.vocab_size <= kLargestTokenId,
        "tokenizer training: a vocabulary of {} tokens, expected {} (special tokens and bytes) to {}",
        options.vocab_size, vocabulary.size(), kLargestTokenId);
  std::vector<CountedWord> words = spell_words(count_gpt2_words(texts, options), vocabulary);
  BpeTrainer trainer(std::move(words), std::move(vocabulary));
  learn_merges(trainer, options);
  std::vector<Merge> merges = trainer.merges();
  return byte_level_tokenizer(options, std::move(trainer).take_vocabulary(), std::move(merges));
}

Tokenizer train_bytes(const TrainerOptions& options) {
  Vocabulary vocabulary = vocabulary_of(options.special_tokens);
  add_byte_alphabet(vocabulary);
  return byte_level_tokenizer(options, std::move(vocabulary), {});
}

Tokenizer train_characters(std::span<const std::string_view> texts, const TrainerOptions& options) {
  std::set<int32_t> characters;
  for (const std::string_view text : texts) {
    check_utf8(text, "tokenizer training");
    for (size_t i = 0; i < text.size();) {
      const Character c = character_at(text, i);
      characters.insert(c.codepoint);
      i += c.length;
    }
  }
  Vocabulary vocabulary = vocabulary_of(options.special_tokens);
  for (const int32_t c : characters) {
    std::string spelling;
    append_utf8(spelling, c);
    vocabulary.add(spelling, static_cast<TokenId>(vocabulary.id_limit()));
  }
  std::string unk = unknown_token(options.special_tokens);
  TokenizerParts parts;
  parts.model = std::make_unique<WordLevel>(std::move(vocabulary), unk.empty() ? "<unk>" : std::move(unk));
  parts.added_tokens = added_tokens_of(options.special_tokens, parts.model->vocabulary());
  parts.pre_tokenizer = pre_tokenizer_of({{"type", "Split"},
                                          {"pattern", {{"Regex", R"([\s\S])"}}},
                                          {"behavior", "Isolated"},
                                          {"invert", false}});
  const Json fuse = {{"type", "Fuse"}};
  parts.decoder = parse_decoder(JsonField(fuse, "decoder"));
  return Tokenizer(std::move(parts));
}

Tokenizer train_words(std::span<const std::string_view> texts, const TrainerOptions& options) {
  TrainerOptions with_unk = options;
  std::string unk = unknown_token(options.special_tokens);
  if (unk.empty()) {
    unk = "<unk>";
    with_unk.special_tokens.insert(with_unk.special_tokens.begin(), unk);
  }
  Vocabulary vocabulary = vocabulary_of(with_unk.special_tokens);
  check(options.vocab_size >= vocabulary.size() && options.vocab_size <= kLargestTokenId,
        "tokenizer training: a vocabulary of {} tokens, expected {} (special tokens) to {}",
        options.vocab_size, vocabulary.size(), kLargestTokenId);

  TokenizerParts parts;
  parts.pre_tokenizer = pre_tokenizer_of({{"type", "Whitespace"}});
  WordCounts counts;
  for (const std::string_view text : texts) {
    check_utf8(text, "tokenizer training");
    PieceList list(AlignedText(text, 0));
    parts.pre_tokenizer->split(list);
    for (const Range piece : list.pieces) ++counts[text.substr(piece.begin, piece.size())];
  }
  std::vector<std::pair<int64_t, std::string_view>> words;
  for (const auto& [word, count] : counts) {
    if (count >= options.min_frequency) words.emplace_back(-count, word);
  }
  std::sort(words.begin(), words.end());
  for (const auto& [count, word] : words) {
    if (vocabulary.size() == options.vocab_size) break;
    vocabulary.add(std::string(word), static_cast<TokenId>(vocabulary.id_limit()));
  }
  parts.model = std::make_unique<WordLevel>(std::move(vocabulary), unk);
  parts.added_tokens = added_tokens_of(with_unk.special_tokens, parts.model->vocabulary());
  return Tokenizer(std::move(parts));
}

Tokenizer train_word_piece(std::span<const std::string_view> texts, const TrainerOptions& options) {
  const std::vector<std::string> special_tokens = with_bert_tokens(options.special_tokens);
  TokenizerParts parts;
  const Json normalizer = {{"type", "BertNormalizer"}, {"lowercase", options.lowercase}};
  parts.normalizer = parse_normalizer(JsonField(normalizer, "normalizer"));
  parts.pre_tokenizer = pre_tokenizer_of({{"type", "BertPreTokenizer"}});

  const auto words = count_bert_words(texts, parts, options);
  Vocabulary vocabulary = vocabulary_of(special_tokens);
  const std::set<int32_t> alphabet = frequent_characters(words, options.alphabet_limit);
  std::vector<CountedWord> spelled = spell_with_prefix(words, alphabet, vocabulary);
  check(options.vocab_size >= vocabulary.size() && options.vocab_size <= kLargestTokenId,
        "tokenizer training: a vocabulary of {} tokens, expected {} (special tokens and characters) to {}",
        options.vocab_size, vocabulary.size(), kLargestTokenId);
  BpeTrainer trainer(std::move(spelled), std::move(vocabulary), std::string(kWordPiecePrefix));
  learn_merges(trainer, options);

  parts.model = std::make_unique<WordPiece>(std::move(trainer).take_vocabulary(), WordPieceOptions{});
  const Vocabulary& learned = parts.model->vocabulary();
  parts.added_tokens = added_tokens_of(special_tokens, learned);
  const Json post_processor =
      bert_template({"[CLS]", learned.find("[CLS]")}, {"[SEP]", learned.find("[SEP]")});
  parts.post_processor = parse_post_processor(JsonField(post_processor, "post_processor"));
  const Json decoder = {{"type", "WordPiece"}};
  parts.decoder = parse_decoder(JsonField(decoder, "decoder"));
  return Tokenizer(std::move(parts));
}

Tokenizer train_sentencepiece(std::span<const std::string_view> texts, const TrainerOptions& options,
                              SentencePieceKind kind) {
  SentencePieceTraining training;
  training.bpe = kind == SentencePieceKind::kBpe;
  training.vocab_size = options.vocab_size;
  training.special_tokens = options.special_tokens;
  for (const char* token : {"<unk>", "<s>", "</s>"}) {
    if (std::find(options.special_tokens.begin(), options.special_tokens.end(), token) ==
        options.special_tokens.end())
      training.special_tokens.emplace_back(token);
  }
  training.progress = [&](size_t done, size_t total) { report(options, "bytes read", done, total); };
  const size_t least = vocabulary_of(training.special_tokens).size() + kAlphabet + 1;
  check(
      options.vocab_size >= least && options.vocab_size <= kLargestTokenId,
      "tokenizer training: a vocabulary of {} tokens, expected {} (special tokens, bytes and one more) to {}",
      options.vocab_size, least, kLargestTokenId);
  for (const std::string_view text : texts) check_utf8(text, "tokenizer training");
  check(std::any_of(texts.begin(), texts.end(),
                    [](std::string_view text) { return text.find_first_not_of("\r\n") != text.npos; }),
        "tokenizer training: the texts are empty");

  const OrderedJson config = {{"tokenizer_class", "LlamaTokenizer"},
                              {"legacy", false},
                              {"add_bos_token", options.surrounded},
                              {"add_eos_token", options.surrounded},
                              {"bos_token", "<s>"},
                              {"eos_token", "</s>"},
                              {"unk_token", "<unk>"},
                              {"additional_special_tokens", options.special_tokens},
                              {"clean_up_tokenization_spaces", false}};
  TokenizerFiles files;
  files.emplace_back("tokenizer.model", train_sentencepiece_file(texts, training));
  files.emplace_back("tokenizer_config.json", config.dump(2) + "\n");
  return Tokenizer(sentencepiece_parts(std::move(files), "tokenizer training"));
}

}  // namespace qkv::text
