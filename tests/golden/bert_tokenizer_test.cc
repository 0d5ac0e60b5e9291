// BERT's real vocabulary against what Hugging Face's BertTokenizer gives. The cases lie outside the
// repository.
#include <gtest/gtest.h>

#include "tests/golden/tokenizer_reference.h"

namespace qkv::text::bert_tokenizer_test {
namespace {

TEST(BertReference, Uncased) {
  const ReferenceCases reference("bert_uncased");
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  reference.expect_texts();
  reference.expect_streams(reference.load(ReferenceCases::Json::object()));
  reference.expect_pairs();
}

TEST(BertReference, AccentsAndCaseKept) {
  const ReferenceCases reference("bert_nolower");
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  reference.expect_texts({{"do_lower_case", false}});
  reference.expect_pairs({{"do_lower_case", false}});
}

TEST(BertReference, LlamaCpp) {
  const ReferenceCases reference("llamacpp_bert_uncased");
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  reference.expect_texts();
}

}  // namespace
}  // namespace qkv::text::bert_tokenizer_test
