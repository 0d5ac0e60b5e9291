// Byte-level vocabularies other than GPT-2's against the ids that their own programs give. The cases lie
// outside the repository.
#include <gtest/gtest.h>

#include <sstream>

#include "qkv/base/base64.h"
#include "qkv/text/byte_alphabet.h"
#include "tests/golden/tokenizer_reference.h"

namespace qkv::text::byte_pair_test {
namespace {

using Json = nlohmann::json;

TEST(ClipReference, HuggingFace) {
  const ReferenceCases reference("clip");
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  reference.expect_texts();
  Json config = reference.special_tokens();
  config["tokenizer_class"] = "CLIPTokenizer";
  reference.expect_texts(config);
}

// Pieces are cut by one expression after the other; digits where `digits` says so, first or last.
struct Pieces {
  std::string name;
  enum class Digits { none, first, last } digits;
  std::vector<std::string> expressions;
};

void PrintTo(const Pieces& p, std::ostream* out) {
  *out << p.name;
}

// The tokenizer.json that a vocabulary and these pieces make.
Json document_of(const Pieces& pieces, const std::filesystem::path& vocabulary) {
  Json stages = Json::array();
  const auto digits = [&](Pieces::Digits place) {
    if (pieces.digits == place) stages.push_back({{"type", "Digits"}, {"individual_digits", true}});
  };
  digits(Pieces::Digits::first);
  for (const std::string& regex : pieces.expressions)
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}});
  digits(Pieces::Digits::last);
  const Json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  stages.push_back(bytes);
  Json vocab = Json::parse(read_file((vocabulary / "vocab.json").string()));
  const std::string merges_text = read_file((vocabulary / "merges.txt").string());
  Json merges = Json::array();
  std::istringstream lines(merges_text);
  for (std::string line; std::getline(lines, line);)
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  Json added = Json::array();
  if (std::filesystem::exists(vocabulary / "token_types.json")) {
    const Json types = Json::parse(read_file((vocabulary / "token_types.json").string()))["token_type"];
    for (const auto& [content, id] : vocab.items()) {
      const std::string key = std::to_string(id.get<TokenId>());
      if (!types.contains(key) || types[key] == 5) continue;
      added.push_back({{"id", id},
                       {"content", content},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[key] == 3}});
    }
  }
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", stages}}},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}, {"ignore_merges", pieces.name == "llama3"}}}};
}

const char* const kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class LlamaCppReference : public ::testing::TestWithParam<Pieces> {};

TEST_P(LlamaCppReference, Ids) {
  const ReferenceCases reference("llamacpp_" + GetParam().name);
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  const Tokenizer tokenizer = Tokenizer::from_json(document_of(GetParam(), reference.vocabulary()).dump());
  reference.expect_ids(tokenizer);
  reference.expect_ids(Tokenizer::from_json(tokenizer.to_json()));
}

INSTANTIATE_TEST_SUITE_P(
    All, LlamaCppReference,
    ::testing::Values(
        Pieces{"mpt", Pieces::Digits::none, {kGpt2}}, Pieces{"starcoder", Pieces::Digits::first, {kGpt2}},
        Pieces{"falcon", Pieces::Digits::none, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
        Pieces{
            "deepseek_llm",  // letters that have a case, marks of punctuation, then the rest of Unicode's CJK
            Pieces::Digits::last,
            {"[\r\n]", R"(\s?[\p{Lu}\p{Ll}\p{Lt}]+)", R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
             "[一-龥ࠀ-一가-퟿]+"}},
        Pieces{
            "llama3",
            Pieces::Digits::none,
            {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}),
    [](const auto& info) { return info.param.name; });

// The vocabulary as a rank file, under the name that Llama 3 gives it.
TEST(TiktokenReference, Llama3) {
  const ReferenceCases reference("llama3_tiktoken");
  if (!reference.found()) GTEST_SKIP() << kNoReference;
  const Json vocab = Json::parse(read_file((reference.vocabulary() / "vocab.json").string()));
  std::string ranks;
  for (const auto& [token, id] : vocab.items())
    if (const auto bytes = unspell_bytes(token); bytes && id < 128000)
      ranks += to_base64(*bytes) + " " + std::to_string(id.get<int>()) + "\n";
  const std::filesystem::path& folder = reference.folder();
  std::filesystem::create_directories(folder);
  const std::string file = (folder / "tokenizer.model").string();
  write_file_atomically(file, ranks);
  for (const Tokenizer& tokenizer : {Tokenizer::load(file), Tokenizer::load(folder.string())}) {
    EXPECT_EQ(tokenizer.token_to_id("<|begin_of_text|>"), 128000);
    EXPECT_EQ(tokenizer.token_to_id("<|eot_id|>"), 128009);
    reference.expect_ids(tokenizer);
  }
}

}  // namespace
}  // namespace qkv::text::byte_pair_test
