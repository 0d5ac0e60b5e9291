// Runs the fuzz target over mutations of a valid file, for builds without a fuzzer.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "qkv/text/trainer.h"

#define LLVMFuzzerTestOneInput fuzz_tokenizer_json
#include "tests/fuzz/tokenizer_json_fuzz.cc"
#include "tests/unit/mutation.h"
#undef LLVMFuzzerTestOneInput

namespace qkv::text::tokenizer_json_fuzz_test {
namespace {

void run(const std::string& document) {
  fuzz_tokenizer_json(reinterpret_cast<const uint8_t*>(document.data()), document.size());
}

// A file that names every kind of stage, with a vocabulary small enough that mutations hit the rest too.
const std::string kDocument =
    R"({"version": "1.0", "truncation": null, "padding": {"strategy": "BatchLongest"},
"added_tokens": [
 {"id": 9, "content": "<|endoftext|>", "single_word": false, "lstrip": true, "rstrip": false, "normalized": false, "special": true},
 {"id": 10, "content": "World", "single_word": true, "lstrip": false, "rstrip": true, "normalized": true, "special": false}],
"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "NFD"}, {"type": "Lowercase"}]},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
 {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}| ?\\w+|[^\\s]+"}, "behavior": "MergedWithNext", "invert": false},
 {"type": "Split", "pattern": {"String": "l"}, "behavior": "Contiguous", "invert": true},
 {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}]},
"post_processor": {"type": "Sequence", "processors": [
 {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
 {"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "E", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
  "special_tokens": {"E": {"id": "E", "ids": [9, 0], "tokens": ["<|endoftext|>", "l"]}}}]},
"decoder": {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "Fuse"}]},
"model": {"type": "BPE", "dropout": null, "unk_token": "h", "continuing_subword_prefix": null,
 "end_of_word_suffix": "", "fuse_unk": true, "byte_fallback": true, "ignore_merges": true,
 "vocab": {"l": 0, "o": 1, "lo": 2, "h": 3, "e": 4, "he": 5, "w": 6, "<0xC3>": 7, "helo": 8},
 "merges": ["l o", ["h", "e"], "he lo"]}})";

// The same for BERT's stages.
const std::string kBertDocument =
    R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "[CLS]", "special": true}],
"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}, {"type": "BertPreTokenizer"}]},
"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
"decoder": {"type": "Sequence", "decoders": [{"type": "WordPiece", "prefix": "##", "cleanup": true},
 {"type": "Replace", "pattern": {"String": "l"}, "content": "ll"}]},
"model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
 "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "hello": 3, "##lo": 4, "hel": 5, "world": 6, "'": 7, "s": 8}}})";

// The same for those that stand for SentencePiece's models.
const std::string kUnigramDocument =
    R"({"version": "1.0", "added_tokens": [{"id": 1, "content": "<s>", "special": true}],
"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}, {"type": "ByteLevel"}, {"type": "Prepend", "prepend": "_"},
 {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}, {"type": "StripAccents"},
 {"type": "Replace", "pattern": {"String": "l"}, "content": "ll"},
 {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAABhAA=="}, {"type": "Strip", "strip_left": true, "strip_right": false}]},
"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true},
"post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": true, "add_prefix_space": true},
"decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
 {"type": "ByteFallback"}, {"type": "BPEDecoder", "suffix": "</w>"}, {"type": "Fuse"},
 {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]},
"model": {"type": "Unigram", "unk_id": 0, "byte_fallback": true,
 "vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -2], ["h", -3.5], ["el", -4], ["▁w", -5], ["o", -1], ["<0xC3>", -9], ["<0xA9>", -9]]}})";

// Replaces, removes, repeats or swaps a few pieces of the document.
std::string mutate(std::string s, std::mt19937& rng) {
  static constexpr const char* kPieces[] = {
      "null",    "true",          "-1",          "99999999999",   "\"\"",        "[]",        "{}",
      "\"BPE\"", "\"WordLevel\"", "\"Split\"",   "\"WordPiece\"", "\"Unigram\"", "\"files\"", "[[[[",
      "1e9",     "\xFF",          "\"\\u0000\"", "10000000"};
  return qkv::testing::mutate(std::move(s), rng, kPieces,
                              [](std::string& text, size_t at, const char* piece) {
                                const size_t colon = text.find(": ", at);  // a whole value by another
                                if (colon == text.npos) return;
                                const size_t end = text.find_first_of(",}]", colon);
                                text.replace(colon + 2, std::min(end, text.size()) - colon - 2, piece);
                              });
}

TEST(TokenizerJsonFuzz, TheDocumentsAreValid) {
  for (const std::string& document : {kDocument, kBertDocument, kUnigramDocument}) {
    const Tokenizer tokenizer = Tokenizer::from_json(document);
    EXPECT_EQ(Tokenizer::from_json(tokenizer.to_json()).to_json(), tokenizer.to_json());
  }
}

TEST(TokenizerJsonFuzz, MutatedFilesAreReadOrRefused) {
  std::mt19937 rng(2024);
  for (int i = 0; i < 3000; ++i) run(mutate(kDocument, rng));
  for (int i = 0; i < 3000; ++i) run(mutate(kBertDocument, rng));
  for (int i = 0; i < 3000; ++i) run(mutate(kUnigramDocument, rng));
}

TEST(TokenizerJsonFuzz, CutFilesAreRefused) {
  for (size_t n = 0; n < kDocument.size(); n += 7) run(kDocument.substr(0, n));
  for (size_t n = 0; n < kBertDocument.size(); n += 7) run(kBertDocument.substr(0, n));
  for (size_t n = 0; n < kUnigramDocument.size(); n += 7) run(kUnigramDocument.substr(0, n));
}

}  // namespace
}  // namespace qkv::text::tokenizer_json_fuzz_test
