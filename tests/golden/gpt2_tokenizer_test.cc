// GPT-2's real vocabulary against the ids and texts that Hugging Face's tokenizer gives.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/text/tokenizer.h"
#include "tests/source_dir.h"

namespace qkv::text::gpt2_tokenizer_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path kGolden = fs::path(testing::source_dir()) / "tests/golden/gpt2_tokenizer";

void expect_cases(const Tokenizer& tokenizer, const Json& cases) {
  ASSERT_GT(cases.size(), 0u);
  for (const Json& c : cases) {
    const auto text = c["text"].get<std::string>();
    const auto ids = c["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(tokenizer.encode(text, false).ids, ids) << c["text"];
    if (c.contains("decoded")) {
      EXPECT_EQ(tokenizer.decode(ids), c["decoded"].get<std::string>());
    }
    if (c.contains("decoded_special_skipped")) {
      EXPECT_EQ(tokenizer.decode(ids, true), c["decoded_special_skipped"].get<std::string>());
    }
    std::string streamed;
    StreamDecoder stream(tokenizer, false);
    for (const TokenId id : ids) streamed += stream.add(id);
    EXPECT_EQ(streamed + stream.finish(), tokenizer.decode(ids));
  }
}

// GPT-2's files with add_prefix_space, in a folder of their own.
class PrefixSpaceFolder {
 public:
  explicit PrefixSpaceFolder(const fs::path& from)
      : path_(fs::path(::testing::TempDir()) / ("qkv_gpt2_prefix_space_" + std::to_string(::getpid()))) {
    fs::create_directories(path_);
    for (const char* name : {"vocab.json", "merges.txt"}) {
      fs::copy_file(from / name, path_ / name, fs::copy_options::overwrite_existing);
      fs::permissions(path_ / name, fs::perms::owner_write, fs::perm_options::add);
    }
    write_file_atomically((path_ / "tokenizer_config.json").string(), R"({"add_prefix_space": true})");
  }
  ~PrefixSpaceFolder() { fs::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST(Gpt2Golden, EncodesAndDecodesAsHuggingFace) {
  const Json cases = Json::parse(read_file((kGolden / "cases.json").string()));
  const Tokenizer tokenizer = Tokenizer::load(kGolden.string());
  EXPECT_EQ(tokenizer.vocab_size(), 50257u);
  EXPECT_EQ(tokenizer.token_to_id("<|endoftext|>"), 50256);
  expect_cases(tokenizer, cases["gpt2"]);
}

TEST(Gpt2Golden, PrefixSpace) {
  const Json cases = Json::parse(read_file((kGolden / "cases.json").string()));
  const PrefixSpaceFolder folder(kGolden);
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  expect_cases(tokenizer, cases["gpt2_prefix_space"]);
  const std::string saved = folder.path() + "/saved";
  tokenizer.save(saved);
  expect_cases(Tokenizer::load(saved), cases["gpt2_prefix_space"]);
}

TEST(Gpt2Golden, SavedAsTokenizerJsonItIsTheSame) {
  const Json cases = Json::parse(read_file((kGolden / "cases.json").string()));
  const Tokenizer tokenizer = Tokenizer::load(kGolden.string());
  const std::string document = tokenizer.to_json();
  const Tokenizer again = Tokenizer::from_json(document);
  EXPECT_EQ(again.to_json(), document);
  expect_cases(again, cases["gpt2"]);
}

// The full sets lie outside the repository.
void expect_reference(const std::string& name, bool prefix_space) {
  const char* reference = std::getenv("QKV_REFERENCE");
  if (reference == nullptr) GTEST_SKIP() << "QKV_REFERENCE does not name a folder with tokenizers/";
  const fs::path root = fs::path(reference) / "tokenizers";
  const Json cases = Json::parse(read_file((root / "cases" / (name + ".json")).string()));
  const fs::path vocabulary = root / "vocab/gpt2";
  if (!prefix_space) return expect_cases(Tokenizer::load(vocabulary.string()), cases["cases"]);
  expect_cases(Tokenizer::load(PrefixSpaceFolder(vocabulary).path()), cases["cases"]);
}

TEST(Gpt2Reference, HuggingFace) {
  expect_reference("gpt2", false);
}
TEST(Gpt2Reference, HuggingFaceWithPrefixSpace) {
  expect_reference("gpt2_prefix_space", true);
}
TEST(Gpt2Reference, LlamaCpp) {
  expect_reference("llamacpp_gpt2", false);
}

}  // namespace
}  // namespace qkv::text::gpt2_tokenizer_test
