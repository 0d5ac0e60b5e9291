// qkv tag: a tag for each word of each line.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/cli/encoder_command.h"
#include "qkv/data/conll.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

constexpr std::ptrdiff_t kSentencesAtOnce = 1024;

struct TagOptions : EncoderOptions {
  bool conll = false;
};

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string w; in >> w;) words.push_back(w);
  return words;
}

struct Sentence {
  std::vector<std::string> words;
  std::string place;
};

struct Tags {
  std::vector<std::string> names;
  std::vector<double> sure;  // probabilities
};

using Tag = std::function<std::vector<Tags>(const std::vector<Sentence>&)>;

void tag_texts(const TagOptions& o, const Tag& tag) {
  const bool rows = reads_rows(o);
  predict_texts(o, [&](const std::vector<InputText>& texts) {
    std::vector<Sentence> sentences;
    for (const InputText& text : texts) sentences.push_back({words_of(text.text.first), text.place});
    const std::vector<Tags> tags = tag(sentences);
    std::vector<Prediction> out(texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::vector<std::string>& words = sentences[i].words;
      std::string& line = out[i].line;
      if (rows) {
        out[i].columns["predicted_tags"] = tags[i].names;
      } else if (o.json) {
        line = json_line({{"words", words}, {"tags", tags[i].names}, {"probabilities", tags[i].sure}});
      } else {
        for (size_t w = 0; w < words.size(); ++w)
          line += o.conll ? fmt::format("{}\t{}\n", words[w], tags[i].names[w])
                          : fmt::format("{}{}/{}", w > 0 ? " " : "", words[w], tags[i].names[w]);
        line += "\n";
      }
    }
    return out;
  });
}

// True if the input has one word a line, in columns.
bool reads_words(const TagOptions& o) {
  const FileFormat format = format_of(o.file, file_options(o.columns));
  return !o.json_lines && (format == FileFormat::conll || format == FileFormat::conllu);
}

// Prints a file of words unchanged, with their tags as one more column. Lines of .conllu without a word of
// their own get "_"; its first line names the columns, as CoNLL-U Plus has it.
void tag_file_of_words(const TagOptions& o, const Tag& tag) {
  check(!o.file.empty() && o.file != "-", "words in columns are read from a file: give it with --file");
  check(!o.json && !o.conll, "{}: is printed with its tags as a further column: {} is for texts", o.file,
        o.json ? "--json" : "--conll");
  const FileOptions options = file_options(o.columns);
  const bool conllu = format_of(o.file, options) == FileFormat::conllu;
  Notes notes;
  std::vector<Sentence> sentences;
  std::vector<int64_t> at;  // the line of each word
  for (TaggedSentence& s : read_conll(o.file, o.columns.word_column, kNoTags, options, &notes)) {
    sentences.push_back({std::move(s.words), fmt::format("{}:{}", o.file, s.lines.front())});
    at.insert(at.end(), s.lines.begin(), s.lines.end());
  }
  print_notes(notes);
  std::vector<std::string> tags;
  for (size_t i = 0; i < sentences.size(); i += kSentencesAtOnce) {
    const auto from = sentences.begin() + static_cast<std::ptrdiff_t>(i);
    const auto to = sentences.end() - from > kSentencesAtOnce ? from + kSentencesAtOnce : sentences.end();
    for (const Tags& t : tag(std::vector<Sentence>(from, to)))
      tags.insert(tags.end(), t.names.begin(), t.names.end());
  }
  constexpr std::string_view kColumns = "# global.columns =";
  const std::vector<std::string> lines = lines_of(open_text(o.file, options).text);
  std::string out;
  if (conllu && !lines.front().starts_with(kColumns))
    out += fmt::format("{} ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC QKV:TAG\n", kColumns);
  size_t word = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const char divider = line.find('\t') != std::string::npos ? '\t' : ' ';
    out += line;
    if (word < at.size() && at[word] == static_cast<int64_t>(i) + 1)
      out += divider + tags[word++];
    else if (conllu && i == 0 && line.starts_with(kColumns))
      out += " QKV:TAG";
    else if (conllu && !line.starts_with('#') && line.find_first_not_of(" \t") != std::string::npos)
      out += "\t_";
    out += "\n";
  }
  print(out);
}

void run_tag(TagOptions o) {
  if (!reads_words(o)) take_settings_of_run(o, o.dir);
  const std::vector<TextModel> models = load_encoders(o, Output::token_classes, "tag");
  const std::vector<std::string>& labels = models[0].model->spec().labels;
  std::vector<int64_t> cut(models.size());
  // The tags of some sentences; words lost to truncation get none.
  const auto tag = [&](const std::vector<Sentence>& sentences) {
    std::vector<InputText> lines;  // with one space between words, as in training
    for (const Sentence& s : sentences)
      lines.push_back({{fmt::format("{}", fmt::join(s.words, " ")), ""}, s.place});
    std::vector<std::vector<MeanProbabilities>> of_words(lines.size());  // over models that read the word
    for (size_t i = 0; i < lines.size(); ++i) of_words[i].resize(sentences[i].words.size());
    for (size_t m = 0; m < models.size(); ++m) {
      std::vector<size_t> which;
      const std::vector<EncodedText> texts = encode_texts(o, models[m], lines, which, cut[m]);
      const std::vector<Tensor> scores = class_scores(*models[m].model, texts, o.batch_tokens);
      for (size_t i = 0; i < which.size(); ++i) {
        const std::vector<int64_t> rows = first_tokens(texts[i].encoding, sentences[which[i]].words);
        for (size_t w = 0; w < rows.size(); ++w)
          if (rows[w] >= 0) of_words[which[i]][w].add(probabilities_of(scores[i], rows[w]));
      }
    }
    std::vector<Tags> tags(lines.size());
    for (size_t i = 0; i < lines.size(); ++i)
      for (const MeanProbabilities& of_word : of_words[i]) {
        const std::vector<double> p = of_word.mean();
        const auto best = std::max_element(p.begin(), p.end());
        tags[i].names.push_back(p.empty() ? "_" : labels[best - p.begin()]);  // lost to truncation
        tags[i].sure.push_back(p.empty() ? 0 : *best);
      }
    return tags;
  };
  if (reads_words(o))
    tag_file_of_words(o, tag);
  else
    tag_texts(o, tag);
  note_cut(cut, models);
}

}  // namespace

void add_tag_command(Command& app) {
  auto o = std::make_shared<TagOptions>();
  Command* c = app.add_subcommand("tag", "Predict a tag for each word");
  o->objective = Objective::tag;
  o->first = {"text", "tokens", "words"};
  add_encoder_options(*c, *o);
  add_ensemble_option(*c, *o);
  c->add_option("--word-column", o->columns.word_column,
                "Column of the words in .conll and .conllu, from 1 (default: 1, or 2 in .conllu)")
      ->range(1, 1000);
  c->add_flag("--conll", o->conll,
              "Print CoNLL: a word and its tag per line, an empty line after each sentence")
      ->excludes("--json");
  c->footer(
      "Words are what stands between spaces. Words beyond the model's length are tagged \"_\". Rows get the\n"
      "column predicted_tags; a file of words in columns (.conll, .conllu) gets one more.\n"
      "Examples:\n"
      "  echo 'show me the flights' | qkv tag runs/pos\n"
      "  qkv tag runs/pos --file test.conllu > tagged.conllu");
  c->callback([o] { run_tag(*o); });
}

}  // namespace qkv
