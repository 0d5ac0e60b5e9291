// Covers: qkv/text/bpe_trainer.cc, qkv/text/sentencepiece_training.cc
#include "qkv/text/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/gpt2_pattern.h"

namespace qkv::text::trainer_test {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

// Training by its definition, with a new count of all pairs at every step.
std::vector<std::string> naive_merges(std::string_view text, size_t steps, int64_t min_frequency) {
  std::map<std::string, TokenId> ids;
  std::map<TokenId, std::string> tokens;
  for (int c = 0; c < 0x144; ++c) {  // the byte alphabet in the order of its characters
    for (int b = 0; b < 256; ++b) {
      if (byte_to_character(static_cast<unsigned char>(b)) != c) continue;
      const auto id = static_cast<TokenId>(ids.size());
      const char byte = static_cast<char>(b);
      ids[spell_bytes({&byte, 1})] = id;
      tokens[id] = spell_bytes({&byte, 1});
    }
  }
  std::map<std::string, int64_t> words;
  for (size_t i = 0; i < text.size();) {
    const size_t end = gpt2_match_end(text, i);
    ++words[std::string(text.substr(i, end - i))];
    i = end;
  }
  std::vector<std::pair<Ids, int64_t>> sequences;
  for (const auto& [word, count] : words) {
    Ids s;
    for (const char& c : word) s.push_back(ids[spell_bytes({&c, 1})]);
    sequences.emplace_back(s, count);
  }
  std::vector<std::string> merges;
  while (merges.size() < steps) {
    std::map<std::pair<TokenId, TokenId>, int64_t> counts;
    for (const auto& [s, count] : sequences) {
      for (size_t i = 1; i < s.size(); ++i) counts[{s[i - 1], s[i]}] += count;
    }
    std::pair<TokenId, TokenId> best;
    int64_t best_count = 0;
    for (const auto& [pair, count] : counts) {
      if (count > best_count) best = pair, best_count = count;
    }
    if (best_count < min_frequency || best_count == 0) break;
    const std::string joined = tokens[best.first] + tokens[best.second];
    merges.push_back(tokens[best.first] + " " + tokens[best.second]);
    const TokenId id = ids.emplace(joined, static_cast<TokenId>(ids.size())).first->second;
    tokens[id] = joined;
    for (auto& [s, count] : sequences) {
      Ids merged;
      for (size_t i = 0; i < s.size(); ++i) {
        const bool hit = i + 1 < s.size() && s[i] == best.first && s[i + 1] == best.second;
        merged.push_back(hit ? id : s[i]);
        i += hit;
      }
      s = merged;
    }
  }
  return merges;
}

TEST(Trainer, IncrementalBpeEqualsTheDefinition) {
  std::mt19937 rng(3);
  for (int round = 0; round < 30; ++round) {
    std::string text;
    const size_t letters = 2 + rng() % 4;
    for (int i = 0; i < 400; ++i)
      text.push_back(rng() % 5 == 0 ? ' ' : static_cast<char>('a' + rng() % letters));
    TrainerOptions options;
    options.vocab_size = 300;
    const std::string_view texts[] = {text};
    const Json json = Json::parse(train_byte_level_bpe(texts, options).to_json());
    const auto merges = json["model"]["merges"].get<std::vector<std::string>>();
    const auto expected = naive_merges(text, merges.size() + 1, options.min_frequency);
    ASSERT_GE(expected.size(), merges.size());
    ASSERT_EQ(merges, std::vector<std::string>(expected.begin(),
                                               expected.begin() + static_cast<long>(merges.size())));
    if (json["model"]["vocab"].size() < options.vocab_size) {
      ASSERT_EQ(expected.size(), merges.size());
    }
  }
}

TEST(Trainer, SpecialTokensComeFirst) {
  TrainerOptions options;
  options.special_tokens = {"<pad>", "<|endoftext|>"};
  options.vocab_size = 260;
  const std::string_view texts[] = {"aaaa aaaa aaaa"};
  const Tokenizer tokenizer = train_byte_level_bpe(texts, options);
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 1);
  EXPECT_EQ(tokenizer.token_to_id("!"), 2);
  EXPECT_EQ(tokenizer.vocab_size(), 260u);
  EXPECT_EQ(tokenizer.encode("a<pad>").ids[1], 0);
  options.vocab_size = 257;
  EXPECT_THROW(train_byte_level_bpe(texts, options), Error);
  options.special_tokens = {"<pad>", "<pad>"};
  EXPECT_THROW(train_bytes(options), Error);
}

TEST(Trainer, CharactersAreSorted) {
  const std::string_view texts[] = {"b\n\xC3\xA9", "\xE4\xBD\xA0 a"};
  const Tokenizer tokenizer = train_characters(texts, {});
  EXPECT_EQ(tokenizer.vocab_size(), 6u);
  EXPECT_EQ(tokenizer.encode("\n ab\xC3\xA9\xE4\xBD\xA0").ids, (Ids{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tokenizer.decode(Ids{5, 1, 0, 2}), "\xE4\xBD\xA0 \na");
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).to_json(), tokenizer.to_json());
  const std::string_view broken[] = {"a\xFF"};
  EXPECT_THROW(train_characters(broken, {}), Error);
}

TEST(Trainer, BytesAreTheirOwnTokens) {
  const Tokenizer tokenizer = train_bytes({});
  EXPECT_EQ(tokenizer.vocab_size(), 256u);
  EXPECT_EQ(tokenizer.encode("caf\xC3\xA9").ids.size(), 5u);
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).encode("x y\xFF").ids, tokenizer.encode("x y\xFF").ids);
}

TEST(Trainer, WordsByFrequency) {
  const std::string_view texts[] = {"b b b, a a, c c d"};
  TrainerOptions options;
  const Tokenizer tokenizer = train_words(texts, options);
  EXPECT_EQ(tokenizer.encode("<unk> b , a c d").ids, (Ids{0, 1, 2, 3, 4, 0}));
  options.vocab_size = 3;
  EXPECT_EQ(train_words(texts, options).vocab_size(), 3u);
  options.min_frequency = 3;
  EXPECT_EQ(train_words(texts, options).vocab_size(), 2u);
}

// The vocabulary by definition: characters, their ## forms, then the most frequent pair joined at each step.
std::vector<std::string> naive_word_pieces(const std::map<std::string, int64_t>& words, size_t size) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::map<std::string, size_t> ids;
  const auto add = [&](const std::string& token) {
    if (ids.emplace(token, tokens.size()).second) tokens.push_back(token);
  };
  for (char c = 'a'; c <= 'z'; ++c)
    for (const auto& [word, count] : words)
      if (word.find(c) != word.npos) add(std::string(1, c));
  for (char c = 'a'; c <= 'z'; ++c)
    for (const auto& [word, count] : words)
      if (word.find(c, 1) != word.npos) add(std::string("##") + c);
  std::vector<std::pair<std::vector<size_t>, int64_t>> sequences;
  for (const auto& [word, count] : words) {
    std::vector<size_t> s;
    for (size_t i = 0; i < word.size(); ++i) s.push_back(ids.at((i > 0 ? "##" : "") + word.substr(i, 1)));
    sequences.emplace_back(s, count);
  }
  while (tokens.size() < size) {
    std::map<std::pair<size_t, size_t>, int64_t> counts;
    for (const auto& [s, count] : sequences)
      for (size_t i = 1; i < s.size(); ++i) counts[{s[i - 1], s[i]}] += count;
    std::pair<size_t, size_t> best;
    int64_t most = 1;
    for (const auto& [pair, count] : counts)
      if (count > most) best = pair, most = count;
    if (most < 2) break;
    const std::string joined = tokens[best.first] + tokens[best.second].substr(2);
    add(joined);
    for (auto& [s, count] : sequences) {
      for (size_t i = 1; i < s.size(); ++i) {
        if (s[i - 1] != best.first || s[i] != best.second) continue;
        s[i - 1] = ids.at(joined);
        s.erase(s.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
  }
  return tokens;
}

TEST(Trainer, WordPieceEqualsTheDefinition) {
  std::mt19937 rng(5);
  for (int round = 0; round < 20; ++round) {
    std::string text;
    std::map<std::string, int64_t> words;
    for (int i = 0; i < 120; ++i) {
      std::string word;
      for (size_t n = 1 + rng() % 6; n > 0; --n) word.push_back("aabcd"[rng() % 5]);
      ++words[word];
      text += word + " \n"[rng() % 2];
    }
    TrainerOptions options;
    options.vocab_size = 60;
    const std::string_view texts[] = {text};
    const Tokenizer tokenizer = train_word_piece(texts, options);
    const auto expected = naive_word_pieces(words, options.vocab_size);
    ASSERT_EQ(tokenizer.vocab_size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(tokenizer.id_to_token(static_cast<TokenId>(i)), expected[i]);
  }
}

TEST(Trainer, SentencePieceKeepsEveryText) {
  std::mt19937 rng(9);
  std::string text;
  for (int i = 0; i < 2000; ++i)
    text += std::vector<std::string>{"the ", "cat", " sat\n", "on  ", "mat, "}[rng() % 5];
  const std::string_view texts[] = {text};
  TrainerOptions options;
  options.vocab_size = 320;
  options.special_tokens = {"<|endoftext|>", "<a,\"b\">", "<pad>"};
  for (const SentencePieceKind kind : {SentencePieceKind::kUnigram, SentencePieceKind::kBpe}) {
    const Tokenizer tokenizer = train_sentencepiece(texts, options, kind);
    EXPECT_LE(tokenizer.vocab_size(), options.vocab_size);
    for (size_t i = 0; i < options.special_tokens.size(); ++i)
      EXPECT_EQ(tokenizer.token_to_id(options.special_tokens[i]), static_cast<TokenId>(i));
    EXPECT_EQ(tokenizer.token_to_id("<unk>"), 3);
    EXPECT_EQ(tokenizer.token_to_id("</s>"), 5);
    for (const std::string written : {"the cat  sat\non", " a\t\xE4\xBD\xA0", ""}) {
      const Ids ids = tokenizer.encode(written).ids;
      EXPECT_EQ(tokenizer.decode(ids), written);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 3), 0);
    }
    EXPECT_LT(tokenizer.encode("the cat sat").ids.size(), 9u);  // the text has 12 characters
    EXPECT_EQ(tokenizer.encode("a<|endoftext|>").ids.back(), 0);
    EXPECT_EQ(train_sentencepiece(texts, options, kind).to_json(), tokenizer.to_json());
  }
  const std::string_view blank[] = {"", "\n\n"};
  EXPECT_THROW(train_sentencepiece(blank, options, SentencePieceKind::kBpe), Error);
  options.vocab_size = 262;
  EXPECT_THROW(train_sentencepiece(texts, options, SentencePieceKind::kUnigram), Error);
}

TEST(Trainer, WordPieceIsBertsPipeline) {
  const std::string_view texts[] = {"The caf\xC3\xA9, the Cafe. THE end", "the \xE4\xBD\xA0\xE5\xA5\xBD"};
  TrainerOptions options;
  options.vocab_size = 64;
  options.special_tokens = {"[UNK]", "<x>"};
  const Tokenizer tokenizer = train_word_piece(texts, options);
  EXPECT_EQ(tokenizer.token_to_id("[PAD]"), 0);
  EXPECT_EQ(tokenizer.token_to_id("[MASK]"), 3);
  EXPECT_EQ(tokenizer.token_to_id("[UNK]"), 4);
  EXPECT_EQ(tokenizer.token_to_id("<x>"), 5);
  const TokenId the = tokenizer.token_to_id("the").value(), cafe = tokenizer.token_to_id("cafe").value();
  EXPECT_EQ(tokenizer.encode("the caf\xC3\x89 #").ids, (Ids{1, the, cafe, 4, 2}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("The cafe, the end.").ids, true), "the cafe, the end.");
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).to_json(), tokenizer.to_json());

  options.lowercase = false;
  const Tokenizer cased = train_word_piece(texts, options);
  EXPECT_TRUE(cased.token_to_id("T"));
  EXPECT_TRUE(cased.token_to_id("##\xC3\xA9"));

  options.alphabet_limit = 4;  // e, t, h, a: by count, then by code point
  options.lowercase = true;
  const Tokenizer few = train_word_piece(texts, options);
  EXPECT_TRUE(few.token_to_id("the"));
  EXPECT_FALSE(few.token_to_id("d"));

  options.vocab_size = 10;
  EXPECT_THROW(train_word_piece(texts, options), Error);
}

}  // namespace
}  // namespace qkv::text::trainer_test
