// Covers: qkv/text/added_tokens.cc, qkv/text/bpe.cc, qkv/text/model.cc, qkv/text/post_processor.cc
// Covers: qkv/text/pre_tokenizer.cc, qkv/text/regex.cc, qkv/text/tiktoken_file.cc
// Covers: qkv/text/tokenizer_files.cc, qkv/text/vocabulary.cc, qkv/text/vocabulary_files.cc
// Covers: qkv/text/word_level.cc
#include "qkv/text/tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <thread>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/text/trainer.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::text::tokenizer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<TokenId>;

// A byte-level tokenizer with a few merges and a special token.
const Tokenizer& small_bpe() {
  static const Tokenizer tokenizer = [] {
    TrainerOptions options;
    options.vocab_size = 290;
    options.special_tokens = {"<|endoftext|>"};
    const std::string_view texts[] = {
        "the cat sat on the mat and the other cat sat there, then that thing\n"};
    return train_byte_level_bpe(texts, options);
  }();
  return tokenizer;
}

// A tokenizer of words, as JSON to be altered. Ids: <unk> 0, hello 1, world 2, ! 3, [X] 4.
Json word_json() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "[X]", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "hello": 1, "world": 2, "!": 3}, "unk_token": "<unk>"}})");
}

Tokenizer tokenizer_of(const Json& json) {
  return Tokenizer::from_json(json.dump());
}

// The message with which a tokenizer.json is refused.
std::string refusal(const Json& json) {
  try {
    tokenizer_of(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

// The pieces that a pre-tokenizer makes of a text, seen through a model that knows them all.
std::vector<std::string> pieces(const Json& pre_tokenizer, const std::string& text) {
  Json json = word_json();
  json["pre_tokenizer"] = pre_tokenizer;
  std::vector<std::string> result;
  for (const Range r : tokenizer_of(json).encode(text).offsets)
    result.push_back(text.substr(r.begin, r.size()));
  return result;
}

std::string random_bytes(std::mt19937& rng) {
  std::string s;
  for (size_t n = rng() % 200; n > 0; --n)
    s.push_back(static_cast<char>(rng() % 3 == 0 ? rng() : "the cat\n"[rng() % 8]));
  return s;
}

TEST(Tokenizer, ByteLevelKeepsEveryByte) {
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_bytes(rng);
    const Encoding encoding = small_bpe().encode(text);
    ASSERT_EQ(small_bpe().decode(encoding.ids), text);
    size_t at = 0;  // offsets tile the text once white space is put back
    for (const Range r : encoding.offsets) {
      ASSERT_GE(r.begin, at);
      at = r.end;
    }
    ASSERT_EQ(at, text.size());
  }
}

// The definition: while some learned pair is there, join the one learned first, leftmost first.
std::vector<std::string> merge_by_definition(std::vector<std::string> word,
                                             const std::vector<std::string>& merges) {
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 1; i < word.size(); ++i) {
      const auto it = std::find(merges.begin(), merges.end(), word[i - 1] + " " + word[i]);
      const auto rank = static_cast<size_t>(it - merges.begin());
      if (rank < best) best = rank, at = i;
    }
    if (best == merges.size()) return word;
    word[at - 1] += word[at];
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

TEST(Bpe, MergesAsDefinedForEveryLength) {
  std::mt19937 rng(11);
  const auto random_word = [&](size_t length) {
    std::string word;
    for (size_t i = 0; i < length; ++i) word.push_back("aabc"[rng() % 4]);
    return word;
  };
  std::string corpus;
  for (int i = 0; i < 300; ++i) corpus += random_word(1 + rng() % 12) + "\n";
  TrainerOptions options;
  options.vocab_size = 400;
  const std::string_view texts[] = {corpus};
  const Tokenizer tokenizer = train_byte_level_bpe(texts, options);
  const auto merges = Json::parse(tokenizer.to_json())["model"]["merges"].get<std::vector<std::string>>();
  ASSERT_GT(merges.size(), 100u);
  for (size_t length = 1; length < 160;
       length += 1 + length / 40) {  // on both sides of where a queue takes over
    for (int round = 0; round < 5; ++round) {
      const std::string word = random_word(length);
      std::vector<std::string> letters;
      for (const char c : word) letters.emplace_back(1, c);
      std::vector<std::string> tokens;
      for (const TokenId id : tokenizer.encode(word).ids) tokens.push_back(*tokenizer.id_to_token(id));
      ASSERT_EQ(tokens, merge_by_definition(letters, merges)) << word;
    }
  }
}

TEST(Tokenizer, SpecialTokensAreFoundInTheText) {
  const Tokenizer& tokenizer = small_bpe();
  const Encoding encoding = tokenizer.encode("the<|endoftext|>cat");
  ASSERT_EQ(encoding.ids.size(), 3u);
  EXPECT_EQ(encoding.ids[1], 0);
  EXPECT_EQ(encoding.offsets[1], (Range{3, 16}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "the<|endoftext|>cat");
  EXPECT_EQ(tokenizer.decode(encoding.ids, true), "thecat");
  EXPECT_TRUE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(1));
}

TEST(Tokenizer, SavedAndLoadedItIsTheSame) {
  const std::string folder =
      (fs::path(::testing::TempDir()) / ("qkv_tokenizer_save_" + std::to_string(::getpid()))).string();
  small_bpe().save(folder);
  const Tokenizer again = Tokenizer::load(folder);
  EXPECT_EQ(again.to_json(), small_bpe().to_json());
  EXPECT_EQ(again.encode("the cat that sat").ids, small_bpe().encode("the cat that sat").ids);
  fs::remove_all(folder);
}

TEST(Tokenizer, ThreadsShareOne) {
  const Ids expected = small_bpe().encode("the cat sat on the other mat").ids;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i)
        EXPECT_EQ(small_bpe().encode("the cat sat on the other mat").ids, expected);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Tokenizer, StreamsWholeCharacters) {
  TrainerOptions options;
  const Tokenizer bytes = train_bytes(options);
  const std::string text = "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\xA6\x99!";
  StreamDecoder stream(bytes);
  std::string streamed;
  for (const TokenId id : bytes.encode(text).ids) {
    const std::string part = stream.add(id);
    EXPECT_NO_THROW(Json(part).dump());  // dump() refuses what is not UTF-8
    streamed += part;
  }
  EXPECT_EQ(streamed, text);
  EXPECT_EQ(stream.finish(), "");
  stream.add(bytes.encode("\xE4").ids[0]);
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, StreamEqualsDecodeForWords) {
  const Tokenizer words = tokenizer_of(word_json());
  StreamDecoder stream(words, false);
  std::string streamed;
  Ids ids;
  for (int i = 0; i < 40; ++i) {
    ids.push_back(i % 5);
    streamed += stream.add(ids.back());
  }
  EXPECT_EQ(streamed, words.decode(ids));
}

// Llama's decoder drops the space that begins a text; the space before a continuation stays.
TEST(Tokenizer, ContinuationsKeepTheirFirstSpace) {
  Json json = word_json();
  json["model"]["vocab"] = {{"<unk>", 0}, {"\u2581Once", 1}, {"\u2581upon", 2}, {"s", 3}};
  json["pre_tokenizer"] = nullptr;
  json["decoder"] = {{"type", "Sequence"},
                     {"decoders",
                      {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                       {{"type", "ByteFallback"}},
                       {{"type", "Fuse"}},
                       {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  const Tokenizer llama = tokenizer_of(json);
  const Ids prompt = {4, 1}, added = {2, 3, 2};  // 4 is special: it has no text
  EXPECT_EQ(llama.decode(added), "upons upon");
  EXPECT_EQ(llama.decode_after(prompt, added), " upons upon");
  EXPECT_EQ(llama.decode_after({}, added), "upons upon");
  EXPECT_EQ(llama.decode_after(Ids(20, 4), added), "upons upon");
  for (const Ids& context : {prompt, Ids{}, Ids(20, 1), Ids{1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}}) {
    StreamDecoder stream(llama, true, context);
    std::string streamed;
    for (const TokenId id : added) streamed += stream.add(id);
    EXPECT_EQ(streamed + stream.finish(), llama.decode_after(context, added));
  }
}

TEST(Tokenizer, WordsAndUnknownWords) {
  const Tokenizer words = tokenizer_of(word_json());
  EXPECT_EQ(words.encode("hello  world!! [X]hello").ids, (Ids{1, 2, 0, 4, 1}));
  EXPECT_EQ(words.decode(Ids{1, 2}), "hello world");
  EXPECT_THROW(words.decode(Ids{5}), Error);
  EXPECT_THROW(words.decode(Ids{-1}), Error);
  EXPECT_THROW(words.encode("caf\xE9"), Error);
}

TEST(Tokenizer, IdsWithoutText) {
  Json json = word_json();
  EXPECT_EQ(tokenizer_of(json).ids_without_text(7), (Ids{0, 5, 6}));  // <unk>, and beyond the vocabulary
  json["model"]["vocab"].erase("world");
  EXPECT_EQ(tokenizer_of(json).ids_without_text(5), (Ids{0, 2}));  // a gap
  EXPECT_TRUE(small_bpe().ids_without_text(small_bpe().vocab_size()).empty());
}

TEST(Tokenizer, UnknownCharactersAreNamedWhereThereIsNoUnk) {
  const std::string_view texts[] = {"abc "};
  TrainerOptions options;
  try {
    train_characters(texts, options).encode("ab\xC3\xA9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("U+00E9) at byte 2"), std::string::npos) << error.what();
  }
  options.special_tokens = {"<unk>"};
  EXPECT_EQ(train_characters(texts, options).encode("ab\xC3\xA9").ids, (Ids{2, 3, 0}));
}

TEST(PreTokenizer, WhitespaceAndSplit) {
  using Strings = std::vector<std::string>;
  EXPECT_EQ(pieces({{"type", "Whitespace"}}, "It's 3.5, na\xC3\xAFve"),
            (Strings{"It", "'", "s", "3", ".", "5", ",", "na\xC3\xAFve"}));
  EXPECT_EQ(pieces({{"type", "WhitespaceSplit"}},
                   " a-b\tc\xC2\xA0"
                   "d "),
            (Strings{"a-b", "c", "d"}));
  const auto split = [](const char* behavior, bool invert = false) {
    const Json json = {
        {"type", "Split"}, {"pattern", {{"String", "-"}}}, {"behavior", behavior}, {"invert", invert}};
    return pieces(json, "the-final--countdown");
  };
  EXPECT_EQ(split("Removed"), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split("Isolated"), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithPrevious"), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("MergedWithNext"), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split("Contiguous"), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("Removed", true), (Strings{"-", "-", "-"}));
  const Json regex = {
      {"type", "Split"}, {"pattern", {{"Regex", "\\d{1,3}"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_EQ(pieces(regex, "a12345"), (Strings{"a", "123", "45"}));
  const Json sequence = {{"type", "Sequence"}, {"pretokenizers", {{{"type", "WhitespaceSplit"}}, regex}}};
  EXPECT_EQ(pieces(sequence, "a 1234"), (Strings{"a", "123", "4"}));
}

TEST(PreTokenizer, CharactersOfAKind) {
  using Strings = std::vector<std::string>;
  const std::string text = "in 2024: 1\xC2\xBD\xE2\x80\xA6";  // 1½…
  const auto digits = [&](bool each) {
    return pieces({{"type", "Digits"}, {"individual_digits", each}}, text);
  };
  EXPECT_EQ(digits(true), (Strings{"in ", "2", "0", "2", "4", ": ", "1", "\xC2\xBD", "\xE2\x80\xA6"}));
  EXPECT_EQ(digits(false), (Strings{"in ", "2024", ": ", "1\xC2\xBD", "\xE2\x80\xA6"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}}, "a,b$ c--"), (Strings{"a", ",", "b", "$", " c", "-", "-"}));
  EXPECT_EQ(pieces({{"type", "Punctuation"}, {"behavior", "Removed"}}, "a,b--"), (Strings{"a", "b"}));
  EXPECT_EQ(pieces({{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}, "a-b--c"), (Strings{"a", "b", "c"}));
  for (const Json& stage : {Json{{"type", "Digits"}, {"individual_digits", true}},
                            Json{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                            Json{{"type", "CharDelimiterSplit"}, {"delimiter", "-"}}}) {
    Json json = word_json();
    json["pre_tokenizer"] = stage;
    EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["pre_tokenizer"], stage);
  }
  Json json = word_json();
  json["pre_tokenizer"] = {{"type", "CharDelimiterSplit"}, {"delimiter", "ab"}};
  EXPECT_NE(refusal(json).find("delimiter: expected one character"), std::string::npos);
  json["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "Removes"}};
  EXPECT_NE(refusal(json).find("behavior"), std::string::npos);
}

TEST(PreTokenizer, ByteLevelSparesTextsThatBeginWithASpace) {
  Json json = Json::parse(small_bpe().to_json());
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const Tokenizer prefixed = tokenizer_of(json);
  EXPECT_EQ(prefixed.encode("the cat").ids, small_bpe().encode(" the cat").ids);
  EXPECT_EQ(prefixed.encode(" the cat").ids, small_bpe().encode(" the cat").ids);
  EXPECT_TRUE(prefixed.encode("").ids.empty());
  EXPECT_EQ(prefixed.encode("the cat").offsets.front().begin, 0u);
}

TEST(AddedTokens, FlagsAreHonoured) {
  const auto encode = [](const Json& flags, const std::string& text) {
    Json json = word_json();
    json["added_tokens"][0].update(flags);
    return tokenizer_of(json).encode(text);
  };
  EXPECT_EQ(encode({{"lstrip", true}}, "hello  [X]").offsets[1], (Range{5, 10}));
  EXPECT_EQ(encode({{"rstrip", true}}, "[X]  hello").offsets[0], (Range{0, 5}));
  EXPECT_EQ(encode({{"single_word", true}}, "hello [X]world [X]").ids, (Ids{1, 0, 0, 0, 2, 4}));
  EXPECT_EQ(encode({{"content", "[Y]"}}, "hello[Y]").ids, (Ids{1, 4}));
  Json lower = word_json();
  lower["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_EQ(tokenizer_of(lower).encode("HELLO [X] [x]").ids, (Ids{1, 4, 0, 0, 0}));
  lower["added_tokens"][0]["normalized"] = true;
  EXPECT_EQ(tokenizer_of(lower).encode("HELLO [X] [x]").ids, (Ids{1, 4, 4}));
}

TEST(Bpe, UnknownCharacters) {
  Json json = word_json();
  json["model"] =
      Json::parse(R"({"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "ab": 3, "<0xC3>": 5, "<0xA9>": 6},
                                  "merges": ["a b"], "unk_token": "<unk>", "fuse_unk": false, "byte_fallback": false})");
  EXPECT_EQ(tokenizer_of(json).encode("abzzb").ids, (Ids{3, 0, 0, 2}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(tokenizer_of(json).encode("abzzb").ids, (Ids{3, 0, 2}));
  json["model"]["byte_fallback"] = true;
  EXPECT_EQ(tokenizer_of(json).encode("a\xC3\xA9z").ids, (Ids{1, 5, 6, 0}));
  json["model"]["unk_token"] = nullptr;
  EXPECT_EQ(tokenizer_of(json).encode("azb").ids, (Ids{3}));  // dropped, and the neighbours meet
}

TEST(Bpe, IgnoreMergesTakesWholePieces) {
  Json json = word_json();
  json["model"] =
      Json::parse(R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "bab": 3}, "merges": [["a", "b"]]})");
  EXPECT_EQ(tokenizer_of(json).encode("bab").ids, (Ids{1, 2}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(json).encode("bab").ids, (Ids{3}));
}

TEST(Bpe, DropoutPassesMergesByButKeepsTheText) {
  Json json = Json::parse(small_bpe().to_json());
  const std::string text = "the cat sat on the mat and the other cat sat there, then that thing";
  const auto tokens = [&](const Json& dropout) {
    json["model"]["dropout"] = dropout;
    const Tokenizer tokenizer = tokenizer_of(json);
    const Ids ids = tokenizer.encode(text).ids;
    EXPECT_EQ(ids, tokenizer.encode(text).ids);
    EXPECT_EQ(tokenizer.decode(ids), text);
    EXPECT_EQ(tokenizer_of(Json::parse(tokenizer.to_json())).encode(text).ids, ids);
    return ids.size();
  };
  EXPECT_EQ(tokens(0), tokens(nullptr));
  EXPECT_EQ(tokens(1), text.size());
  EXPECT_GT(tokens(0.5), tokens(0));
  EXPECT_LT(tokens(0.5), text.size());
  json["model"]["dropout"] = 1.5;
  EXPECT_NE(refusal(json).find("dropout: expected null, or a number from 0 to 1"), std::string::npos);
}

TEST(Bpe, MarksOfPosition) {
  Json json = word_json();
  json["model"] =
      Json::parse(R"({"type": "BPE", "vocab": {"a": 0, "##b": 1, "ab": 2, "##b</w>": 3, "ab</w>": 5},
      "merges": ["a ##b", "a ##b</w>"], "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"})");
  EXPECT_EQ(tokenizer_of(json).encode("ab").ids, (Ids{5}));
  EXPECT_EQ(tokenizer_of(json).encode("abb").ids, (Ids{2, 3}));
}

TEST(PostProcessor, TemplatesPutSpecialTokensAround) {
  Json json = word_json();
  json["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[X]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[X]", "type_id": 0}},
             {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"[X]": {"id": "[X]", "ids": [4], "tokens": ["[X]"]}}})");
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("hello").ids, (Ids{4, 1}));
  EXPECT_EQ(tokenizer.encode("hello", false).ids, (Ids{1}));
  const Encoding pair = tokenizer.encode_pair("hello", "world");
  EXPECT_EQ(pair.ids, (Ids{1, 4, 2}));
  EXPECT_EQ(pair.type_ids, (Ids{0, 0, 1}));
  EXPECT_EQ(Json::parse(tokenizer.to_json())["post_processor"], json["post_processor"]);
  json["post_processor"]["special_tokens"]["[X]"]["ids"] = {99};
  EXPECT_NE(refusal(json).find("99 is no token's id"), std::string::npos) << refusal(json);
}

TEST(Tokenizer, FilesOfUnknownStagesAreRefusedByName) {
  Json json = word_json();
  json["pre_tokenizer"] = {{"type", "WhitespaceSplitt"}};
  EXPECT_EQ(refusal(json),
            "tokenizer.json: pre_tokenizer.type: \"WhitespaceSplitt\" is not supported (did you mean "
            "WhitespaceSplit?); qkv reads Metaspace, ByteLevel, Whitespace, WhitespaceSplit, "
            "BertPreTokenizer, Split, "
            "Digits, Punctuation, CharDelimiterSplit, UnicodeScripts, Sequence");
  json = word_json();
  json["model"]["type"] = "Bigram";
  EXPECT_NE(refusal(json).find("model.type: \"Bigram\" is not supported"), std::string::npos);
}

// As the reference library takes them, with a warning at most.
TEST(Tokenizer, OddListsOfAddedTokens) {
  Json json = word_json();
  Json again = json["added_tokens"][0], empty = again, known = again;
  again["id"] = 7;  // the first one's holds, and the last one's flags
  again["special"] = false;
  empty["content"] = "";
  known["content"] = "world";
  known["id"] = 9;  // which is 2 in the vocabulary
  json["added_tokens"].insert(json["added_tokens"].end(), {again, empty, known});
  const Tokenizer tokenizer = tokenizer_of(json);
  EXPECT_EQ(tokenizer.encode("hello[X]world").ids, (Ids{1, 4, 2}));
  EXPECT_FALSE(tokenizer.is_special(4));
  EXPECT_TRUE(tokenizer.is_special(2));
  EXPECT_EQ(Json::parse(tokenizer.to_json())["added_tokens"].size(), 2U);
}

// Older files do not say what their model is.
TEST(Tokenizer, ModelsWithoutATypeAreKnownByWhatTheyHave) {
  Json json = word_json();
  json["model"].erase("type");
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["model"]["type"], "WordLevel");
  json["model"]["continuing_subword_prefix"] = "##";
  json["model"]["max_input_chars_per_word"] = 100;
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["model"]["type"], "WordPiece");
  json["model"] = {{"unk_id", 0}, {"vocab", Json::parse(R"([["<unk>", 0.0], ["hello", -1.0]])")}};
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["model"]["type"], "Unigram");
  json["model"] = {{"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}};
  EXPECT_EQ(Json::parse(tokenizer_of(json).to_json())["model"]["type"], "BPE");
  json["model"].erase("vocab");
  EXPECT_EQ(refusal(json), "tokenizer.json: model: \"type\" is missing");
}

// Llama's class and Gemma's put their tokens around texts by tokenizer_config.json.
TEST(Tokenizer, ClassesThatSurroundTexts) {
  const qkv::testing::ScratchDir dir;
  Json json = word_json();
  json["model"]["vocab"]["<s>"] = 5;
  json["model"]["vocab"]["</s>"] = 6;
  dir.write("tokenizer.json", json.dump());
  const auto ids = [&](const Json& config) {
    dir.write("tokenizer_config.json", config.dump());
    const Tokenizer tokenizer = Tokenizer::load(dir.path());
    EXPECT_EQ(tokenizer_of(Json::parse(tokenizer.to_json())).encode("hello").ids,
              tokenizer.encode("hello").ids);
    return tokenizer.encode_pair("hello", "world").ids;
  };
  EXPECT_EQ(ids({{"tokenizer_class", "LlamaTokenizerFast"}}), (Ids{5, 1, 5, 2}));
  EXPECT_EQ(ids({{"tokenizer_class", "LlamaTokenizer"}, {"add_eos_token", true}}), (Ids{5, 1, 6, 5, 2, 6}));
  EXPECT_EQ(ids({{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", false}}), (Ids{1, 2}));
  EXPECT_EQ(ids({{"tokenizer_class", "GemmaTokenizerFast"}, {"bos_token", {{"content", "</s>"}}}}),
            (Ids{6, 1, 6, 2}));
  EXPECT_EQ(ids({{"tokenizer_class", "CodeLlamaTokenizerFast"}, {"add_bos_token", nullptr}}), (Ids{1, 2}));
  EXPECT_EQ(ids({{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", nullptr}}), (Ids{1, 2}));
  EXPECT_THROW(ids({{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", "<bos>"}}), Error);
  EXPECT_EQ(ids({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"add_bos_token", true}}), (Ids{1, 2}));
}

TEST(Tokenizer, SamenessIsOfWhatIsMadeOfTexts) {
  Json json = word_json();
  const Tokenizer tokenizer = tokenizer_of(json);
  json["truncation"] = {{"max_length", 3}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_TRUE(tokenizer.same_as(tokenizer_of(json)));
  json["normalizer"] = {{"type", "Lowercase"}};
  EXPECT_FALSE(tokenizer.same_as(tokenizer_of(json)));
}

TEST(Tokenizer, HostileFilesAreRefusedByField) {
  const auto expect = [](const Json& pointer_and_value, const std::string& message) {
    Json json = word_json();
    json[Json::json_pointer(pointer_and_value[0])] = pointer_and_value[1];
    EXPECT_NE(refusal(json).find(message), std::string::npos) << refusal(json);
  };
  expect({"/model/vocab/hello", -1},
         "tokenizer.json: model.vocab.hello: expected an integer from 0 to 10000000");
  expect({"/model/vocab/hello", 10'000'001}, "model.vocab.hello: expected an integer");
  expect({"/model/vocab/hello", 1e300}, "model.vocab.hello: expected an integer");
  expect({"/model/vocab/hello", 18446744073709551615u}, "model.vocab.hello: expected an integer");
  expect({"/model/vocab/hello", 2}, "the id 2 belongs to both");
  expect({"/model/vocab", 7}, "model.vocab: expected an object, found 7");
  expect({"/model/unk_token", 7}, "model.unk_token: expected a string");
  expect({"/added_tokens/0/id", 2}, "which is \"world\" in the vocabulary");
  expect({"/added_tokens/0/content", std::string(1025, 'x')}, "has 1025 bytes");
  expect({"/added_tokens/0/special", "yes"}, "added_tokens[0].special: expected true or false");
  expect({"/normalizer", "NFC"}, "normalizer: expected an object");
  expect({"/version", "2.0"}, "version: expected \"1.0\"");
  expect({"/model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a"}}}},
         "tokenizer.json: model.merges[0]: expected \"left right\" or [left, right]");
  expect({"/model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a b"}}}},
         "\"b\" is not in the vocabulary");
  expect({"/model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", {"a a"}}}},
         "model.merges[0]: \"aa\"");
  expect({"/model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"aa", 1}}}, {"merges", {"a a", "a a"}}}},
         "merged twice");
}

TEST(Tokenizer, DocumentsThatAreNotWellFormedAreRefused) {
  EXPECT_THROW(Tokenizer::from_json(""), Error);
  EXPECT_THROW(Tokenizer::from_json("[]"), Error);
  EXPECT_THROW(Tokenizer::from_json("{\"model\": \"\xFF\"}"), Error);
  EXPECT_THROW(Tokenizer::from_json(std::string(100'000, '[')), Error);
  EXPECT_THROW(Tokenizer::from_json(R"({"model": {"type": "WordLevel", "vocab": {"a": 0, "a": 1}}})"), Error);
  EXPECT_THROW(Tokenizer::load("/nonexistent/tokenizer.json"), Error);
  EXPECT_THROW(Tokenizer::load(::testing::TempDir()), Error);
}

// The form with vocab.json and merges.txt, in a folder that goes with the test.
class VocabularyFolder {
 public:
  VocabularyFolder()
      : path_(fs::path(::testing::TempDir()) / ("qkv_vocabulary_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
    write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<|endoftext|>": 4})");
    write("merges.txt", "#version: 0.2\na b\n");
  }
  ~VocabularyFolder() { fs::remove_all(path_); }
  void write(const char* name, const std::string& contents) const {
    write_file_atomically((path_ / name).string(), contents);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }
  Tokenizer load() const { return Tokenizer::load(path_.string()); }
  std::string refusal() const {
    try {
      load();
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  fs::path path_;
};

TEST(VocabularyFiles, MeanGpt2sPipeline) {
  const VocabularyFolder folder;
  EXPECT_EQ(folder.load().encode("ab <|endoftext|>a").ids, (Ids{2, 3, 4, 0}));
  EXPECT_TRUE(folder.load().is_special(4));
}

TEST(VocabularyFiles, NeighbouringFilesAddTokens) {
  const VocabularyFolder folder;
  folder.write("special_tokens_map.json",
               R"({"pad_token": "<pad>", "eos_token": {"content": "<|endoftext|>", "rstrip": true}})");
  folder.write("added_tokens.json", R"({"<tool>": 7})");
  const Tokenizer tokenizer = folder.load();
  EXPECT_EQ(tokenizer.encode("<|endoftext|> a<pad><tool>").ids, (Ids{4, 0, 8, 7}));
  EXPECT_FALSE(tokenizer.is_special(7));
  EXPECT_EQ(tokenizer.vocab_size(), 9u);
}

TEST(VocabularyFiles, PrefixSpaceIsPutBeforeEveryText) {
  const VocabularyFolder folder;
  folder.write("tokenizer_config.json", R"({"add_prefix_space": true})");
  const Tokenizer tokenizer = folder.load();
  EXPECT_EQ(tokenizer.encode("").ids, (Ids{3}));
  EXPECT_EQ(tokenizer.encode(" a").ids, (Ids{3, 3, 0}));
  EXPECT_EQ(tokenizer.encode("a").offsets.back(), (Range{0, 1}));
  EXPECT_THROW(tokenizer.to_json(), Error);
}

TEST(VocabularyFiles, TheClassSaysWhatIsAround) {
  const VocabularyFolder folder;
  folder.write("vocab.json", R"({"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<s>": 4, "</s>": 5, "<mask>": 6})");
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "RobertaTokenizerFast"})");
  EXPECT_EQ(folder.load().encode("ab <mask>a").ids, (Ids{4, 2, 6, 0, 5}));  // which takes the space before it
  EXPECT_EQ(folder.load().encode_pair("a", "b").ids, (Ids{4, 0, 5, 5, 1, 5}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": true,
                                            "bos_token": "</s>"})");
  EXPECT_EQ(folder.load().encode("ab").ids, (Ids{5, 2}));
  folder.write("tokenizer_config.json",
               R"({"add_prefix_space": true, "add_bos_token": true, "bos_token": "</s>"})");
  folder.load().save(folder.file("saved"));
  EXPECT_EQ(Tokenizer::load(folder.file("saved")).encode("ab").ids, (Ids{5, 3, 2}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_EQ(folder.load().encode("ab a").ids, (Ids{2, 3, 0}));
  folder.write("tokenizer_config.json", R"({"tokenizer_class": "CanineTokenizer"})");
  EXPECT_NE(folder.refusal().find("tokenizer_class"), std::string::npos) << folder.refusal();
  EXPECT_NE(folder.refusal().find("CanineTokenizer"), std::string::npos) << folder.refusal();
}

// Ranks of a, b, ab, ba, bab and a space.
const char* const kRanks = "YQ== 0\nYg== 1\nYWI= 2\nYmE= 3\nYmFi 4\nIA== 5\n";

TEST(RankFiles, TwoTokensAreJoinedWhereverThatMakesOne) {
  const VocabularyFolder folder;
  const std::string file = folder.file("r50k_base.tiktoken");
  folder.write("r50k_base.tiktoken", kRanks);
  const Tokenizer tokenizer = Tokenizer::load(file);
  EXPECT_EQ(tokenizer.encode("bab").ids, (Ids{4}));  // a piece that is a token
  EXPECT_EQ(tokenizer.encode("abab").ids, (Ids{2, 2}));
  EXPECT_EQ(tokenizer.encode("bbab").ids, (Ids{1, 4}));  // b + ab
  EXPECT_EQ(tokenizer.encode("a<|endoftext|>").ids, (Ids{0, 6}));
  EXPECT_TRUE(tokenizer.is_special(6));
  tokenizer.save(folder.file("saved"));
  EXPECT_EQ(Tokenizer::load(folder.file("saved")).encode("bbab a").ids, tokenizer.encode("bbab a").ids);
}

TEST(RankFiles, WhatIsNotOneIsRefused) {
  const VocabularyFolder folder;
  const auto expect = [&](const char* name, const std::string& contents, const std::string& message) {
    folder.write(name, contents);
    try {
      Tokenizer::load(folder.file(name));
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  expect("mine.tiktoken", kRanks, "'mine' is no name that does (known: gpt2, r50k_base");
  expect("gpt2.tiktoken", "YQ== 0\nYg==\n", "gpt2.tiktoken:2: expected a token in base64 and its rank");
  expect("gpt2.tiktoken", "YQ== 0\nYg== -1\n", "gpt2.tiktoken:2: expected");
  expect("gpt2.tiktoken", "YQ== 0\nYg== 99999999999999999999\n", "gpt2.tiktoken:2: expected");
  expect("gpt2.tiktoken", "YQ== 0\nY 1\n", "gpt2.tiktoken:2: expected");
  expect("gpt2.tiktoken", "YQ== 0\nYg== 0\n", "rank 0 or its token occurs twice");
  expect("gpt2.tiktoken", "", "there are no tokens in it");
  expect("p50k_base.tiktoken", kRanks, "has no place among them");
}

TEST(VocabularyFiles, HostileOnesAreRefusedByLineAndField) {
  const VocabularyFolder folder;
  const auto expect = [&](const char* file, const std::string& good, const std::string& bad,
                          const char* message) {
    folder.write(file, bad);
    EXPECT_NE(folder.refusal().find(message), std::string::npos) << folder.refusal();
    folder.write(file, good);
  };
  const std::string merges = "#version: 0.2\na b\n";
  expect("merges.txt", merges, "#version: 0.2\na b c\n", "merges.txt:2: expected \"left right\"");
  expect("merges.txt", merges, "a c\n", "merges.txt:1: \"c\" is not in the vocabulary");
  expect("merges.txt", merges, "a b\na b\n", "merged twice");
  expect("added_tokens.json", "{}", R"({"<x>": -5})", "added_tokens.json: <x>: expected an integer");
  expect("special_tokens_map.json", "{}", R"({"pad_token": 3})",
         "special_tokens_map.json: pad_token: expected a string");
  expect("tokenizer_config.json", "{}", R"({"add_prefix_space": 3})",
         "add_prefix_space: expected true or false");
  expect("tokenizer_config.json", "{}", R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
         "expected ids as keys");
  expect("vocab.json", "{}", R"({"a": 0, "b": 0})", "vocab.json: the id 0 belongs to both");
}

TEST(Tokenizer, HostilePatternsEndInAnError) {
  Json json = word_json();
  json["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Removed"}, {"invert", false}};
  EXPECT_THROW(tokenizer_of(json).encode(std::string(100, 'a') + "b"), Error);
}

// transformers' PerceiverTokenizer: ids are bytes + 6, text between [CLS] and [SEP].
TEST(ByteFiles, AreThePerceivers) {
  const testing::ScratchDir folder;
  folder.write("tokenizer_config.json",
               R"({"tokenizer_class": "PerceiverTokenizer", "model_max_length": 2048})");
  ASSERT_TRUE(Tokenizer::exists(folder.path()));
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const std::string text = "h\xC3\xA9 [MASK]\n";  // é has two bytes
  const Ids ids = {4, 'h' + 6, 0xC3 + 6, 0xA9 + 6, ' ' + 6, 3, '\n' + 6, 5};
  EXPECT_EQ(tokenizer.encode(text).ids, ids);
  EXPECT_EQ(tokenizer.vocab_size(), 262U);
  EXPECT_EQ(tokenizer.decode(ids, true), "h\xC3\xA9 \n");
  EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).encode(text).ids, ids);
  const Encoding pair = tokenizer.encode_pair("a", "b");
  EXPECT_EQ(pair.ids, (Ids{4, 'a' + 6, 5, 'b' + 6, 5}));
}

}  // namespace
}  // namespace qkv::text::tokenizer_test
