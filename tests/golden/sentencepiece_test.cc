// SentencePiece's models against the library itself, and against the classes that Hugging Face's transformers
// builds around them. The cases lie outside the repository.
#include <gtest/gtest.h>

#include "tests/golden/tokenizer_reference.h"

namespace qkv::text::sentencepiece_test {
namespace {

class SentencePieceReference : public ::testing::TestWithParam<const char*> {};

TEST_P(SentencePieceReference, Library) {
  const ReferenceCases reference(std::string("sentencepiece_") + GetParam());
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  reference.expect_library();
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceReference,
                         ::testing::Values("albert", "llama", "sp_bpe_1k", "sp_bytefallback_2k", "sp_char",
                                           "sp_ja_test", "sp_unigram_1k", "sp_unigram_no_bos"),
                         [](const auto& info) { return std::string(info.param); });

struct ClassCase {
  std::string name;
  const char* tokenizer_class;
  const char* config;  // further members of tokenizer_config.json
  bool pairs;
};

void PrintTo(const ClassCase& c, std::ostream* out) {
  *out << c.name;
}

class SentencePieceClass : public ::testing::TestWithParam<ClassCase> {};

TEST_P(SentencePieceClass, HuggingFace) {
  const ReferenceCases reference(GetParam().name);
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  nlohmann::json config = nlohmann::json::parse(GetParam().config);
  config.update(reference.special_tokens());
  config["tokenizer_class"] = GetParam().tokenizer_class;
  reference.expect_texts(config);
  // In the others a special token changes the text before it.
  if (GetParam().name == "llama_nonlegacy") reference.expect_streams(reference.load(config));
  if (GetParam().pairs) reference.expect_pairs(config);
}

INSTANTIATE_TEST_SUITE_P(
    All, SentencePieceClass,
    ::testing::Values(ClassCase{"llama", "LlamaTokenizer", "{}", false},
                      ClassCase{"llama_nonlegacy", "LlamaTokenizer", R"({"legacy": false})", false},
                      ClassCase{"llama_bpe1k", "LlamaTokenizer", "{}", false},
                      ClassCase{"t5_unigram1k", "T5Tokenizer", "{}", true},
                      ClassCase{"t5_albert30k", "T5Tokenizer", "{}", false},
                      ClassCase{"albert", "AlbertTokenizer", "{}", true},
                      ClassCase{"xlnet_unigram1k", "XLNetTokenizer", "{}", true},
                      ClassCase{"xlmr_unigram1k", "XLMRobertaTokenizer", "{}", true},
                      ClassCase{"albert_keep_accents", "AlbertTokenizer",
                                R"({"do_lower_case": false, "keep_accents": true})", true}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace qkv::text::sentencepiece_test
