// Documents of files, and filters for training.
#include "qkv/train/corpora/documents.h"

#include "qkv/base/file.h"
#include "qkv/text/trainer.h"
#include "qkv/train/corpora/corpus.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::documents_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;
using Texts = std::vector<std::string>;

DataConfig data_of(const std::string& path) {
  DataConfig data;
  data.train = {path};
  data.valid_fraction = 0;
  data.cache = false;
  return data;
}

Texts texts_of(const std::vector<Documents>& files) {
  Texts out;
  for (const Documents& file : files) file.for_each([&](std::string_view d) { out.emplace_back(d); });
  return out;
}

TEST(Documents, OfPlainTextAreDividedByTheSeparator) {
  const ScratchDir dir;
  DataConfig data = data_of(dir.write("a.txt", "one\n\ntwo three\n"));
  EXPECT_EQ(texts_of(TextFiles(data).train), (Texts{"one\n\ntwo three\n"}));
  data.separator = "\n";
  EXPECT_EQ(texts_of(TextFiles(data).train), (Texts{"one", "two three"}));
}

TEST(Documents, OfRowsAreOneColumn) {
  const ScratchDir dir;
  const std::string jsonl =
      dir.write("a.jsonl", "{\"text\": \"one\\nline\", \"n\": 1}\n{\"text\": \"\\u00e9\", \"n\": 2}\n");
  EXPECT_EQ(texts_of(TextFiles(data_of(jsonl)).train), (Texts{"one\nline", "\u00e9"}));
  DataConfig data = data_of(dir.write("a.csv", "id,body\n1,\"a, b\"\n2,\n3,c\n"));
  expect_error([&] { TextFiles{data}; }, {"a.csv", "no column 'text'"});
  data.text_column = "body";
  EXPECT_EQ(texts_of(TextFiles(data).train), (Texts{"a, b", "c"}));
  expect_error([&] { TextFiles{data_of(dir.write("c.tsv", "text\na\nb\xFFz\n"))}; }, {"c.tsv:3", "UTF-8"});
  data.train = {dir.write("b.tsv", "x\ty\n")};
  data.columns = {"body", "other"};
  EXPECT_EQ(texts_of(TextFiles(data).train), (Texts{"x"}));
}

TEST(Documents, OfRowsWithoutTextAreCounted) {
  const ScratchDir dir;
  const DataConfig data = data_of(dir.write("a.csv", "id,text\n1,a\n2,\n3,\n"));
  EXPECT_EQ(TextFiles(data).skipped.text(), " (2 rows without text left out)");
  EXPECT_EQ(TextFiles(data_of(dir.write("b.txt", "a\n\n\nb"))).skipped.text(), "");
}

TEST(Documents, OfRowsWithLabelsHint) {
  const ScratchDir dir;
  const auto hint = [&](const std::string& header, const std::function<std::string(int)>& row) {
    std::string rows = header + "\n";
    for (int i = 0; i < 40; ++i) rows += row(i) + "\n";
    return TextFiles(data_of(dir.write("bank.csv", rows))).hint;
  };
  const auto number = [](int i) { return std::to_string(i); };
  const std::string found =
      hint("text,category", [&](int i) { return "t" + number(i) + (i % 2 ? ",a" : ",b"); });
  for (const char* part : {"hint: ", "bank.csv", "'category'", "train.objective = \"classify\"",
                           "data.label_column = \"category\""})
    EXPECT_NE(found.find(part), std::string::npos) << found;
  EXPECT_EQ(hint("text,label", [](int i) { return i % 2 ? "t,a" : "t,b"; }).find("label_column"),
            std::string::npos);
  EXPECT_EQ(hint("text,id", [&](int i) { return "t," + number(i); }), "");  // each has its own value
  EXPECT_EQ(hint("text,lang", [&](int) { return "t,en"; }), "");            // all the same
  EXPECT_EQ(hint("text,note", [&](int i) { return "t," + std::string(70 + i % 2, 'x'); }), "");  // texts
  EXPECT_EQ(hint("text", number), "");
}

TEST(Documents, OfWindowsHaveOtherLineEnds) {
  const ScratchDir dir;
  DataConfig data = data_of(dir.write("a.txt", "one\r\ntwo\r\n"));
  TextFiles texts(data);
  EXPECT_EQ(texts_of(texts.train), Texts{"one\ntwo\n"});
  EXPECT_EQ(texts.notes.size(), 1u);
  data.keep_carriage_returns = true;
  EXPECT_EQ(texts_of(TextFiles(data).train), Texts{"one\r\ntwo\r\n"});
}

TEST(Documents, ThatAreLeftOutAreCounted) {
  const ScratchDir dir;
  DataConfig data = data_of(dir.write("a.txt", "aa\nb\naa\n\u00e9\u00e9\u00e9\nbbbb\naa\n"));
  data.separator = "\n";
  data.min_characters = 2;
  data.max_characters = 3;
  TextFiles texts(data);
  EXPECT_EQ(texts_of(texts.train), (Texts{"aa", "aa", "\u00e9\u00e9\u00e9", "aa"}));
  EXPECT_EQ(texts.skipped.unfit, 2);
  data.deduplicate = true;
  texts = TextFiles(data);
  EXPECT_EQ(texts_of(texts.train), (Texts{"aa", "\u00e9\u00e9\u00e9"}));
  EXPECT_EQ(texts.skipped.repeated, 2);
  EXPECT_EQ(texts.skipped.text(), " (4 left out: 2 repeated, 2 of other lengths)");
}

// A text of one document still has a validation part.
TEST(Documents, OfOneTextAreSplitAsWithoutAFilter) {
  const ScratchDir dir;
  DataConfig data = data_of(dir.write("a.txt", "one text of some words\n"));
  data.valid_fraction = 0.25;
  const TextFiles plain(data);
  data.deduplicate = true;
  const TextFiles filtered(data);
  EXPECT_FALSE(texts_of(plain.valid).empty());
  EXPECT_EQ(texts_of(filtered.train), texts_of(plain.train));
  EXPECT_EQ(texts_of(filtered.valid), texts_of(plain.valid));
  data.max_characters = 5;
  const TextFiles none(data);
  EXPECT_TRUE(texts_of(none.train).empty());
  EXPECT_EQ(none.skipped.unfit, 1);
}

// Validation files are not filtered. A part that is split off shares nothing with training.
TEST(Documents, OfValidationAreNotFiltered) {
  const ScratchDir dir;
  DataConfig data = data_of(dir.write("a.txt", "same\nsame\nother one\nthird\nfourth\n"));
  data.separator = "\n";
  data.deduplicate = true;
  data.valid = {dir.write("b.txt", "same\nsame\n")};
  EXPECT_EQ(texts_of(TextFiles(data).valid), (Texts{"same", "same"}));
  data.valid.clear();
  data.valid_fraction = 0.5;
  const TextFiles split(data);
  Texts all = texts_of(split.train);
  const Texts valid = texts_of(split.valid);
  EXPECT_FALSE(valid.empty());
  all.insert(all.end(), valid.begin(), valid.end());
  EXPECT_EQ(all, (Texts{"same", "other one", "third", "fourth"}));
}

TEST(Documents, OfPairsAreFilteredBySides) {
  const ScratchDir dir;
  DataConfig data = data_of(
      dir.write("p.tsv", "source\ttarget\nab\tcd\nab\tcd\nab\tce\nab\tcdefg\na\tcd\nabcdefgh\tabcdefgh\n"));
  const auto sources = [&](const DataConfig& d) {
    const PairTexts pairs = read_pairs(d.train, {}, d);
    return std::pair(pairs.source.size(), pairs.filtered.text());
  };
  EXPECT_EQ(sources(data).first, 6u);
  data.deduplicate = true;
  EXPECT_EQ(sources(data), std::pair(size_t{5}, std::string(" (1 left out: 1 repeated)")));
  data.max_ratio = 2;
  EXPECT_EQ(sources(data).first, 4u);
  data.min_characters = 2;
  data.max_characters = 7;
  EXPECT_EQ(sources(data),
            std::pair(size_t{2}, std::string(" (4 left out: 1 repeated, 3 of other lengths)")));
}

std::vector<Texts> tokens_of(const TokenStream& stream, const text::Tokenizer& tokenizer) {
  std::vector<Texts> out;
  for (size_t d = 0; d + 1 < stream.starts().size(); ++d) {
    out.emplace_back();
    for (int64_t i = stream.starts()[d]; i < stream.starts()[d + 1]; ++i)
      out.back().push_back(*tokenizer.id_to_token(static_cast<text::TokenId>(stream.tokens()[i])));
  }
  return out;
}

// A model of names learns where a name begins and ends.
TEST(Documents, OfCharactersBeginAndEnd) {
  const ScratchDir dir;
  const std::string text = dir.write("names.txt", "ab\nb\n"), rows = dir.write("names.csv", "text\nab\nb\n");
  TrainConfig run;
  run.tokenizer.type = "char";
  const auto tokens = [&](const std::string& path, const char* separator) {
    run.data = data_of(path);
    run.data.separator = separator;
    const Corpus c = load_corpus(run);
    EXPECT_EQ(c.text.train.beginnings, begins_with_end_of_text(c.tokenizer) ? 2 : 0);
    return tokens_of(c.text.train, c.tokenizer);
  };
  const std::string end = "<|endoftext|>";
  const std::vector<Texts> names = {{end, "a", "b", end}, {end, "b", end}};
  EXPECT_EQ(tokens(text, "\n"), names);
  EXPECT_EQ(tokens(rows, ""), names);
  // A single text has no end to learn.
  EXPECT_EQ(tokens(text, ""), (std::vector<Texts>{{"a", "b", "\n", "b", "\n"}}));
  // Other tokenizers have no token that begins texts.
  run.tokenizer.type = "byte";
  EXPECT_EQ(tokens(text, "\n"), (std::vector<Texts>{{"a", "b", end}, {"b", end}}));
}

// Cached tokens depend on the tokenizer, which SentencePiece may have trained.
TEST(Documents, AreKeptByTheTokenizerThatReadThem) {
  const auto trained = [](const std::string& text) {
    std::string all;
    for (int i = 0; i < 40; ++i) all += text + "\n";
    const std::vector<std::string_view> texts = {all};
    text::TrainerOptions options;
    options.vocab_size = 290;
    return text::train_sentencepiece(texts, options, text::SentencePieceKind::kBpe).to_json();
  };
  EXPECT_EQ(trained("a fox runs"), trained("a fox runs"));
  EXPECT_NE(trained("a fox runs"), trained("a run foxes"));
}

}  // namespace
}  // namespace qkv::documents_test
