#include "qkv/train/corpora/examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/suggest.h"
#include "qkv/data/conll.h"
#include "qkv/data/length_batches.h"
#include "qkv/data/table.h"
#include "qkv/train/corpora/choices.h"
#include "qkv/train/corpora/documents.h"

namespace qkv {
namespace {

Example tagged(std::vector<std::string> words, std::vector<std::string> tags, std::string place) {
  Example e;
  e.text.first = fmt::format("{}", fmt::join(words, " "));
  e.words = std::move(words);
  e.tags = std::move(tags);
  e.place = std::move(place);
  return e;
}

// The list of an object under the first of these names that it has.
std::vector<std::string> list_in(const JsonField& object, const std::vector<std::string>& names,
                                 const char* key) {
  const auto name = std::ranges::find_if(names, [&](const auto& n) { return object.json().contains(n); });
  if (name == names.end()) {
    std::vector<std::string> known;
    for (const auto& [its_key, value] : object.object().items()) known.push_back(its_key);
    fail("{}: there is no \"{}\" (the keys are: {}): set data.{}", object.place(), names.front(),
         fmt::join(known, ", "), key);
  }
  const JsonField list = object[*name];
  std::vector<std::string> out;
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonField entry = list.at(i);
    out.push_back(entry.json().is_number() ? entry.json().dump() : entry.string());
  }
  return out;
}

// Lists of words and of their tags, as Hugging Face's data sets have them.
void read_tagged_lists(const std::string& path, const DataConfig& data, std::vector<Example>& out,
                       ReadExamples& found) {
  const DataConfig none;
  const bool own_words = !data.text_column.empty() && data.text_column != none.text_column,
             own_tags = !data.label_column.empty() && data.label_column != none.label_column;
  const std::vector<std::string> words = own_words ? std::vector{data.text_column}
                                                   : std::vector<std::string>{"tokens", "words", "text"},
                                 tags = own_tags ? std::vector{data.label_column}
                                                 : std::vector<std::string>{"ner_tags", "tags", "pos_tags",
                                                                            "labels", "label"};
  const FileText file = open_text(path, file_options(data), &found.notes);
  TextStream in(file.text);
  int64_t trimmed = 0;
  for_each_json_line(in, path, [&](const Json& value, const std::string& place) {
    const JsonField object(value, place);
    if (!value.is_object()) object.refuse("an object with a list of words and a list of tags");
    std::vector<std::string> its_words = list_in(object, words, "text_column");
    Example e = tagged(std::move(its_words), list_in(object, tags, "label_column"), place);
    check(e.words.size() == e.tags.size(), "{}: {} words, but {} tags: each word needs one", place,
          e.words.size(), e.tags.size());
    for (size_t w = 0; w < e.words.size(); ++w) {
      trimmed += trim_label(e.tags[w]);
      check(!e.words[w].empty() && !e.tags[w].empty(), "{}: {} {} is empty", place,
            e.words[w].empty() ? "word" : "tag", w + 1);
    }
    (e.words.empty() ? found.without_text : out).push_back(std::move(e));
  });
  note_trimmed(path, trimmed, &found.notes);
}

void read_tagged(const std::string& path, const DataConfig& data, std::vector<Example>& out,
                 ReadExamples& found) {
  const FileOptions options = file_options(data);
  const FileFormat format = format_of(path, options);
  if (format == FileFormat::jsonl) return read_tagged_lists(path, data, out, found);
  for (TaggedSentence& sentence : read_conll(path, data.word_column, data.tag_column, options, &found.notes))
    out.push_back(tagged(std::move(sentence.words), std::move(sentence.tags),
                         fmt::format("{}:{}", path, sentence.lines.front())));
}

// The labels of a cell, each once and sorted.
std::vector<std::string> split_labels(const std::string& cell, const std::string& separator) {
  std::set<std::string> labels;
  for (size_t begin = 0; begin <= cell.size();) {
    const size_t end = std::min(cell.find(separator, begin), cell.size());
    std::string label = cell.substr(begin, end - begin);
    trim_label(label);
    if (!label.empty()) labels.insert(std::move(label));
    begin = end + separator.size();
  }
  return {labels.begin(), labels.end()};
}

double number_of(const std::string& cell, const std::string& place, const std::string& column) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  check(error == std::errc() && end == cell.data() + cell.size() && std::isfinite(number),
        "{}: column '{}': expected a number, got '{}'", place, column, cell);
  return number;
}

void read_rows(const std::string& path, const DataConfig& data, const LabelKind& kind,
               std::vector<Example>& out, ReadExamples& found) {
  const Output output = kind.output;
  check(!kind.several() || !data.label_separator.empty(),
        "{}: label_separator: expected the text between two labels, it is empty", path);
  Table table = read_table(path, file_options(data), &found.notes);
  const size_t first = table.column(data.text_column), label = table.column(data.label_column);
  std::optional<size_t> second;
  if (!data.second_column.empty()) second = table.column(data.second_column);
  int64_t trimmed = 0;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    auto& row = table.rows[r];
    Example e;
    e.place = fmt::format("{}:{}", path, table.lines[r]);
    e.text.first = std::move(row[first]);
    if (second) e.text.second = std::move(row[*second]);
    e.label = std::move(row[label]);
    if (output == Output::sequence_classes) trimmed += trim_label(e.label);
    if (kind.several()) {  // none may apply
      e.tags = split_labels(e.label, data.label_separator);
      e.label = fmt::format("{}", fmt::join(e.tags, data.label_separator));
    } else {
      check(!e.label.empty(), "{}: column '{}' is empty", e.place, data.label_column);
    }
    if (kind.problem == Problem::regression) e.number = number_of(e.label, e.place, data.label_column);
    if (is_blank(e.text.first)) {
      found.without_text.push_back(std::move(e));
      continue;
    }
    if (output == Output::span) {
      const size_t at = e.text.second.find(e.label);
      check(at != std::string::npos, "{}: the answer '{}' is not in column '{}'", e.place, e.label,
            data.second_column);
      // No token has spaces only.
      const size_t first = e.label.find_first_not_of(" \t\n\r"), last = e.label.find_last_not_of(" \t\n\r");
      check(first != std::string::npos, "{}: column '{}' is empty", e.place, data.label_column);
      e.answer_begin = static_cast<int64_t>(at + first);
      e.answer_end = static_cast<int64_t>(at + last + 1);
    }
    out.push_back(std::move(e));
  }
  note_trimmed(path, trimmed, &found.notes);
}

}  // namespace

std::vector<Example> read_examples(const std::vector<std::string>& files, const DataConfig& data,
                                   const LabelKind& kind, ReadExamples* found) {
  std::vector<Example> out;
  ReadExamples own;
  ReadExamples& rest = found == nullptr ? own : *found;
  for (const std::string& path : files)
    if (kind.output == Output::token_classes)
      read_tagged(path, data, out, rest);
    else if (kind.problem == Problem::multiple_choice)
      read_choices(path, data, out, rest);
    else
      read_rows(path, data, kind, out, rest);
  check(!out.empty(), "{}: there is no example{}", fmt::join(files, ", "),
        without_text(std::ssize(rest.without_text)));
  return out;
}

namespace {

std::string key_of(const Example& e) {
  std::string key = e.text.first + '\0' + e.text.second;
  for (const std::string& choice : e.choices) key += '\0' + choice;
  return key;
}

// Places of examples by their text.
using Places = std::map<std::string, std::vector<int64_t>>;

Places places_by_text(const std::vector<Example>& examples) {
  Places out;
  for (size_t i = 0; i < examples.size(); ++i) out[key_of(examples[i])].push_back(static_cast<int64_t>(i));
  return out;
}

// The first place of each text, in an order that the seed chooses.
std::vector<int64_t> shuffled_firsts(const Places& by_text, uint64_t seed) {
  std::vector<int64_t> firsts;
  for (const auto& [text, places] : by_text) firsts.push_back(places.front());
  std::sort(firsts.begin(), firsts.end());
  shuffle(firsts, seed, 0);
  return firsts;
}

// Takes the chosen ones away, in their order.
std::vector<Example> take(std::vector<Example>& examples, const std::set<int64_t>& chosen) {
  std::vector<Example> kept, out;
  for (size_t i = 0; i < examples.size(); ++i)
    (chosen.contains(static_cast<int64_t>(i)) ? out : kept).push_back(std::move(examples[i]));
  examples = std::move(kept);
  return out;
}

}  // namespace

std::vector<Example> split_off(std::vector<Example>& examples, double fraction, uint64_t seed) {
  const Places by_text = places_by_text(examples);
  const auto wanted = static_cast<size_t>(std::llround(static_cast<double>(examples.size()) * fraction));
  std::set<int64_t> chosen;
  for (const int64_t i : shuffled_firsts(by_text, seed)) {
    if (chosen.size() >= wanted) break;
    const auto& same = by_text.at(key_of(examples[i]));
    chosen.insert(same.begin(), same.end());
  }
  return take(examples, chosen);
}

std::vector<Example> take_fold(std::vector<Example>& examples, int64_t fold, int64_t folds, uint64_t seed) {
  const Places by_text = places_by_text(examples);
  std::vector<int64_t> firsts = shuffled_firsts(by_text, seed);
  check(std::ssize(firsts) >= folds, "{} different texts are too few for {} folds", firsts.size(), folds);
  std::stable_sort(firsts.begin(), firsts.end(), [&](int64_t a, int64_t b) {
    const Example &x = examples[a], &y = examples[b];
    return std::tie(x.number, x.label) < std::tie(y.number, y.label);
  });
  std::set<int64_t> chosen;
  for (auto i = static_cast<size_t>(fold - 1); i < firsts.size(); i += static_cast<size_t>(folds)) {
    const auto& same = by_text.at(key_of(examples[firsts[i]]));
    chosen.insert(same.begin(), same.end());
  }
  return take(examples, chosen);
}

int64_t deduplicate(std::vector<Example>& examples) {
  std::set<std::string> seen;
  return static_cast<int64_t>(
      std::erase_if(examples, [&](const Example& e) { return !seen.insert(key_of(e)).second; }));
}

std::vector<std::string> labels_of(const std::vector<Example>& examples, const LabelKind& kind) {
  std::set<std::string> found;
  for (const Example& e : examples)
    if (kind.several())
      found.insert(e.tags.begin(), e.tags.end());
    else
      found.insert(e.label);
  std::vector<std::string> labels(found.begin(), found.end());
  const auto number = [](const std::string& s) -> std::optional<int64_t> {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n);
    return error == std::errc() && end == s.data() + s.size() ? std::optional(n) : std::nullopt;
  };
  if (std::all_of(labels.begin(), labels.end(), [&](const auto& s) { return number(s).has_value(); }))
    std::sort(labels.begin(), labels.end(),
              [&](const auto& a, const auto& b) { return *number(a) < *number(b); });
  return labels;
}

std::vector<std::string> texts_of(const std::vector<Example>& examples) {
  std::vector<std::string> out;
  for (const Example& e : examples) {
    out.push_back(e.text.first);
    if (!e.text.second.empty()) out.push_back(e.text.second);
    out.insert(out.end(), e.choices.begin(), e.choices.end());
  }
  return out;
}

LabelIndex::LabelIndex(std::vector<std::string> labels) : labels_(std::move(labels)) {
  for (size_t c = 0; c < labels_.size(); ++c) class_of_[labels_[c]] = static_cast<int32_t>(c);
}

std::optional<int32_t> LabelIndex::find(const std::string& label) const {
  const auto it = class_of_.find(label);
  return it == class_of_.end() ? std::nullopt : std::optional(it->second);
}

int32_t LabelIndex::operator()(const std::string& label, const std::string& place) const {
  if (const auto found = find(label)) return *found;
  const std::vector<std::string_view> known(labels_.begin(), labels_.end());
  fail("{}: the label '{}' is none of the {} that the model was trained with{}", place, label, known.size(),
       did_you_mean(label, known));
}

std::optional<std::pair<int32_t, int32_t>> answer_tokens(const text::Encoding& encoding, const Example& e) {
  int32_t first = -1, last = -1;
  for (size_t t = 0; t < encoding.size(); ++t) {
    const auto [begin, end] = encoding.offsets[t];
    if (encoding.type_ids[t] != 1 || begin == end) continue;
    if (static_cast<int64_t>(end) <= e.answer_begin || static_cast<int64_t>(begin) >= e.answer_end) continue;
    if (first < 0) first = static_cast<int32_t>(t);
    last = static_cast<int32_t>(t);
    if (static_cast<int64_t>(end) >= e.answer_end) return std::pair(first, last);
  }
  return std::nullopt;
}

std::vector<EncodedText> encode_example(const Example& e, const text::Tokenizer& tokenizer,
                                        const ModelSpec& spec) {
  std::vector<EncodedText> out;
  try {
    const bool choices = spec.problem == Problem::multiple_choice;
    for (const TextPair& text : choices ? texts_of_choices(e) : std::vector{e.text})
      out.push_back(encode_text(text, tokenizer, spec));
    return out;
  } catch (const Error& error) {
    fail("{}: {}", e.place, error.what());
  }
}

EncodedExamples encode_examples(const std::vector<Example>& examples, const text::Tokenizer& tokenizer,
                                const ModelSpec& spec) {
  const LabelIndex target(spec.labels);
  EncodedExamples out;
  out.stream.output = spec.output;
  const bool choices = spec.problem == Problem::multiple_choice,
             of_numbers = spec.problem != Problem::single_label && !choices;
  if (choices) out.stream.questions = {0};
  out.stream.columns = of_numbers ? spec.classes() : 0;
  for (const Example& e : examples) {
    if (e.text.first.empty()) {
      ++out.without_text;
      continue;
    }
    const std::vector<EncodedText> texts = encode_example(e, tokenizer, spec);
    out.cut += std::ranges::any_of(texts, &EncodedText::cut);
    const auto append = [&](const text::Encoding& encoding, const std::vector<int32_t>& targets,
                            const std::vector<float>& numbers) {
      const std::vector<int32_t> ids(encoding.ids.begin(), encoding.ids.end());
      const std::vector<int32_t> segments(encoding.type_ids.begin(), encoding.type_ids.end());
      out.stream.append(ids, segments, targets, numbers);
    };
    if (choices) {
      for (const EncodedText& text : texts) append(text.encoding, {}, {});
      out.stream.end_question(static_cast<int32_t>(e.right));
      continue;
    }
    const text::Encoding& encoding = texts.front().encoding;
    std::vector<int32_t> targets;
    std::vector<float> numbers;
    if (of_numbers) {
      targets = {0};
      numbers.assign(static_cast<size_t>(spec.classes()), static_cast<float>(e.number));
      if (spec.problem == Problem::multi_label) std::ranges::fill(numbers, 0.0F);
      for (const std::string& label : e.tags)  // those that it has not learnt are never found
        if (const auto at = target.find(label)) numbers[static_cast<size_t>(*at)] = 1;
    } else if (spec.output == Output::token_classes) {
      targets.assign(encoding.size(), kIgnored);
      const std::vector<int64_t> first = first_tokens(encoding, e.words);
      for (size_t w = 0; w < e.words.size(); ++w)
        if (first[w] >= 0) targets[first[w]] = target(e.tags[w], e.place);
    } else if (spec.output == Output::span) {
      const auto tokens = answer_tokens(encoding, e).value_or(std::pair(kIgnored, kIgnored));
      targets = {tokens.first, tokens.second};
    } else {
      targets = {target(e.label, e.place)};
    }
    if (std::all_of(targets.begin(), targets.end(), [](int32_t t) { return t == kIgnored; })) {
      ++out.lost;
      continue;
    }
    append(encoding, targets, numbers);
  }
  return out;
}

}  // namespace qkv
