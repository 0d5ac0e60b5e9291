#include "qkv/train/run/suggest_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <set>
#include <sstream>

#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/base/parallel.h"
#include "qkv/base/progress.h"
#include "qkv/data/conll.h"
#include "qkv/data/table.h"
#include "qkv/text/unicode.h"
#include "qkv/train/corpora/examples.h"
#include "qkv/train/run/plan.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::string extension_of(const std::string& path) {
  return lower(fs::path(path).extension().string());
}

template <typename Names>
bool is_one_of(const std::string& name, const Names& names) {
  return std::ranges::find(names, lower(name)) != std::end(names);
}

constexpr std::array kTextNames = {"text",  "sentence",  "review",   "message", "content",
                                   "body",  "document",  "question", "title",   "comment",
                                   "tweet", "utterance", "sms"};
constexpr std::array kLabelNames = {"label", "class",  "category", "sentiment", "intent",
                                    "topic", "rating", "target",   "emotion",   "spam"};
constexpr std::array kSourceNames = {"source", "src", "en", "input", "article"};
constexpr std::array kTargetNames = {"target", "tgt", "output", "translation", "summary"};

// Statistics of texts: their letters and lengths.
struct TextLook {
  int64_t characters = 0, words = 0;
  int64_t without_spaces = 0;  // characters of scripts without spaces between words
  int64_t letters = 0;
  std::vector<int64_t> lengths = {};  // number of characters of each text

  void add(std::string_view text) {
    int64_t count = 0;
    bool in_word = false;
    for (size_t at = 0; at < text.size();) {
      const text::Character c = text::character_at(text, at);
      at += c.length;
      ++count;
      if (!c.valid()) continue;
      const bool space = text::is_space(c.codepoint);
      if (!space && !in_word) ++words;
      in_word = !space;
      if (text::class_of(c.codepoint) == text::CharacterClass::kLetter) ++letters;
      const int32_t p = c.codepoint;
      // Thai to Burmese; kana and Chinese characters.
      if ((p >= 0x0E00 && p <= 0x109F) || (p >= 0x3040 && p <= 0x30FF) || (p >= 0x3400 && p <= 0x9FFF) ||
          (p >= 0x20000 && p <= 0x3FFFF))
        ++without_spaces;
    }
    characters += count;
    lengths.push_back(count);
  }
  bool has_spaces() const { return 2 * without_spaces < letters; }
  // Estimated number of subword tokens with a small vocabulary.
  double tokens() const { return static_cast<double>(characters) / tokens_per(); }
  double tokens_per() const { return has_spaces() ? 3.2 : 1.3; }
  // Length in tokens that 98 of 100 texts do not exceed.
  double long_text() const {
    if (lengths.empty()) return 0;
    std::vector<int64_t> sorted = lengths;
    const auto at = sorted.begin() + static_cast<int64_t>(static_cast<double>(sorted.size() - 1) * 0.98);
    std::nth_element(sorted.begin(), at, sorted.end());
    return static_cast<double>(*at) / tokens_per();
  }
  const char* script() const { return has_spaces() ? "" : ", a script without spaces"; }
};

// A column of a table.
struct Column {
  std::string name;
  std::set<std::string> values = {};  // the first distinct values, at most kMany
  int64_t filled = 0, bytes = 0, spaces = 0;
  TextLook look = {};
  static constexpr size_t kMany = 2000;  // a column of classes has fewer values

  void add(const std::string& value) {
    std::string label = value;
    trim_label(label);
    if (values.size() < kMany) values.insert(label);
    filled += !value.empty();
    bytes += static_cast<int64_t>(value.size());
    spaces += std::ranges::count(value, ' ');
    look.add(value);
  }
  double mean_bytes() const {
    return filled == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(filled);
  }
  bool repeats() const { return 2 * std::ssize(values) < filled && values.size() < kMany; }
};

// Findings about the data.
struct Look {
  DataKind kind = DataKind::text;
  std::string text_column, label_column;  // columns of rows; for pairs source and target
  std::vector<std::string> columns;       // made-up names for a file without a header
  std::string separator;
  int64_t examples = 0, labels = 0;
  TextLook source, target;
  double tokens = 0;  // training tokens
  std::string about;
};

// True if the first row is a header. It is one if a name is known, or if no cell is a number, long like a
// text, or repeated below.
bool is_header(const std::vector<Column>& columns) {
  for (const Column& c : columns)
    if (is_one_of(c.name, kTextNames) || is_one_of(c.name, kLabelNames) || is_one_of(c.name, kSourceNames) ||
        is_one_of(c.name, kTargetNames))
      return true;
  return std::ranges::none_of(columns, [](const Column& c) {
    const bool number = !c.name.empty() && c.name.find_first_not_of("0123456789.-") == std::string::npos;
    return number || c.name.size() > 40 || c.values.contains(c.name);
  });
}

std::vector<Column> read_columns(const std::string& path) {
  std::vector<Column> columns;
  for_each_row(
      path, {},
      [&](const Table& head) {
        for (const std::string& name : head.columns) columns.push_back({.name = name});
      },
      [&](const TableRow& row) {
        for (size_t c = 0; c < columns.size(); ++c) columns[c].add(row.fields[c]);
      });
  check(!columns.empty() && columns[0].look.lengths.size() > 1, "{}: there are too few rows to learn from",
        path);
  return columns;
}

template <typename Names>
Column* named(std::vector<Column>& columns, const Names& names) {
  for (const char* name : names)
    for (Column& c : columns)
      if (lower(c.name) == name) return &c;
  return nullptr;
}

// The column with the longest texts.
Column* longest(std::vector<Column>& columns, const Column* other_than) {
  Column* best = nullptr;
  for (Column& c : columns)
    if (&c != other_than && (best == nullptr || c.mean_bytes() > best->mean_bytes())) best = &c;
  return best;
}

// A column with few short values that repeat, or null.
Column* label_of(std::vector<Column>& columns) {
  if (Column* c = named(columns, kLabelNames); c != nullptr && c->repeats()) return c;
  Column* best = nullptr;
  for (Column& c : columns)
    if (c.repeats() && c.values.size() > 1 && c.mean_bytes() < 40 &&
        (best == nullptr || c.values.size() < best->values.size()))
      best = &c;
  return best;
}

void look_at_rows(const SuggestOptions& o, Look& out) {
  std::vector<Column> columns = read_columns(o.data);
  if (extension_of(o.data) != ".jsonl" && !is_header(columns))
    for (size_t c = 0; c < columns.size(); ++c) {
      columns[c].add(columns[c].name);
      columns[c].name = fmt::format("column{}", c + 1);
      out.columns.push_back(columns[c].name);
    }
  out.examples = std::ssize(columns[0].look.lengths);
  const auto is_text = [](const Column& c) { return c.mean_bytes() > 4 && !c.repeats(); };
  Column *label = label_of(columns), *source = named(columns, kSourceNames),
         *target = named(columns, kTargetNames);
  if (target == source) target = nullptr;
  const bool two_texts = columns.size() == 2 && is_text(columns[0]) && is_text(columns[1]);
  if (source == nullptr || target == nullptr) {
    source = columns.size() > 1 ? &columns[0] : nullptr;
    target = columns.size() > 1 ? &columns[1] : nullptr;
  }
  const bool pairs = two_texts || (named(columns, kSourceNames) != nullptr &&
                                   named(columns, kTargetNames) != nullptr && label == nullptr);
  out.kind = o.kind ? *o.kind : pairs ? DataKind::translate : label ? DataKind::classify : DataKind::text;
  if (out.kind == DataKind::translate) {
    check(source != nullptr && target != nullptr, "{}: one column: pairs need a source and a target", o.data);
    out.text_column = source->name;
    out.label_column = target->name;
    out.source = source->look;
    out.target = target->look;
    out.about =
        fmt::format("{} pairs of texts ({}, {})", grouped_count(out.examples), source->name, target->name);
    return;
  }
  check(out.kind != DataKind::classify || label != nullptr,
        "{}: no column looks like classes: few different values that come again", o.data);
  check(out.kind == DataKind::text || out.kind == DataKind::classify,
        "{}: rows are texts, texts with classes or pairs, not what this asks for", o.data);
  Column* text = named(columns, kTextNames);
  if (text == nullptr || text == label)
    text = longest(columns, out.kind == DataKind::classify ? label : nullptr);
  check(text != nullptr, "{}: there is no column of texts", o.data);
  out.text_column = text->name;
  out.source = text->look;
  out.about = fmt::format("{} texts ({})", grouped_count(out.examples), text->name);
  if (out.kind == DataKind::text) return;
  out.label_column = label->name;
  out.labels = std::ssize(label->values);
  check(out.labels > 1, "{}: all rows are of one class ({}): there is nothing to tell apart", o.data,
        label->name);
  out.about += fmt::format(" of {} classes ({})", out.labels, label->name);
}

void look_at_words(const SuggestOptions& o, Look& out) {
  const bool universal = extension_of(o.data) == ".conllu";
  std::set<std::string> tags;
  int64_t words = 0;
  DataConfig data;
  if (universal) data.word_column = 2, data.tag_column = 4;
  for (const Example& e : read_examples({o.data}, data, Output::token_classes)) {
    out.source.add(e.text.first + " ");
    tags.insert(e.tags.begin(), e.tags.end());
    words += std::ssize(e.words);
    ++out.examples;
  }
  out.labels = std::ssize(tags);
  out.about = fmt::format("{} sentences, {} words with {} tags", grouped_count(out.examples),
                          grouped_count(words), out.labels);
}

// True if each line is a document: short, mostly one word, as in a list of names.
bool is_list(std::string_view text) {
  int64_t lines = 0, words = 0, longest = 0;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) return false;
    ++lines;
    words += 1 + std::ranges::count(line, ' ');
    longest = std::max(longest, std::ssize(line));
  }
  return lines >= 100 && longest < 60 && 10 * words < 12 * lines;
}

void look_at_text(const SuggestOptions& o, Look& out) {
  const FileText file = map_text(o.data);
  check(!file.text.empty(), "{}: the file is empty", o.data);
  constexpr size_t kSample = 1 << 20;
  const std::string_view sample = file.text.substr(0, kSample);
  check(sample.find('\0') == std::string_view::npos, "{}: this is no text: it has bytes of value 0", o.data);
  out.source.add(sample);
  const double share = static_cast<double>(file.text.size()) / static_cast<double>(sample.size());
  out.tokens = out.source.tokens() * share;
  out.about = fmt::format("{} bytes of text", grouped_count(std::ssize(file.text)));
  if (sample.find("<|endoftext|>") != std::string_view::npos) {
    out.separator = "<|endoftext|>";
    out.about += " in documents";
  } else if (is_list(sample.substr(0, sample.rfind('\n')))) {
    out.separator = "\n";
    out.about += ", a list of lines";
  }
}

void look_at_lines_beside(const SuggestOptions& o, Look& out) {
  for_each_parallel_line(o.data, o.target, [&](std::string_view source, std::string_view target) {
    out.source.add(source);
    out.target.add(target);
    ++out.examples;
  });
  check(out.examples > 0, "{}: the file is empty", o.data);
  out.about = fmt::format("{} lines with translations", grouped_count(out.examples));
}

// True if the first line is an object with messages, or a list of messages.
bool is_conversation(const std::string& path) {
  const FileText file = map_text(path);
  const Json line = Json::parse(file.text.substr(0, file.text.find('\n')), nullptr, false);
  return line.is_array() || (line.is_object() && line.contains("messages"));
}

void look_at_conversations(const SuggestOptions& o, Look& out) {
  check(
      is_conversation(o.data),
      "{}: the first line is no conversation: expected {{\"messages\": [{{\"role\": ..., \"content\": ...}}, "
      "...]}} on each line",
      o.data);
  const FileText file = map_text(o.data);
  for (const std::string& line : lines_of(file.text)) {
    if (line.empty()) continue;
    out.source.add(line);
    ++out.examples;
  }
  out.about = counted(out.examples, "conversation");
}

Look look_at(const SuggestOptions& o) {
  Look out;
  const std::string extension = extension_of(o.data);
  const bool words =
      extension == ".conllu" || extension == ".conll" || extension == ".iob" || o.kind == DataKind::tag;
  const bool chat = o.kind == DataKind::chat || (extension == ".jsonl" && is_conversation(o.data));
  if (!o.target.empty()) {
    out.kind = DataKind::translate;
    look_at_lines_beside(o, out);
  } else if (words) {
    out.kind = DataKind::tag;
    look_at_words(o, out);
  } else if (chat) {
    out.kind = DataKind::chat;
    look_at_conversations(o, out);
  } else if (is_of_rows(lower(o.data))) {
    look_at_rows(o, out);
  } else {
    check(!o.kind || *o.kind == DataKind::text,
          "{}: a text without columns: {} needs rows (.csv, .tsv, .jsonl){}", o.data,
          data_kind_names()[static_cast<size_t>(*o.kind)],
          o.kind == DataKind::translate ? ", or --target with the translations of its lines" : "");
    look_at_text(o, out);
  }
  check(!o.kind || *o.kind == out.kind, "{}: these are data for {}", o.data,
        data_kind_names()[static_cast<size_t>(out.kind)]);
  if (out.tokens == 0) out.tokens = out.source.tokens() + out.target.tokens();
  out.tokens = std::max(out.tokens, 1.0);
  return out;
}

// ---- Sizes

struct Size {
  int64_t width, layers, heads;
  // Approximate number of parameters in the blocks of one stack.
  double parameters() const {
    return 12 * static_cast<double>(width) * static_cast<double>(width) * static_cast<double>(layers);
  }
};
constexpr Size kSizes[] = {{64, 2, 2},  {96, 2, 3},  {128, 2, 4}, {128, 4, 4}, {192, 4, 6},
                           {256, 4, 8}, {256, 6, 8}, {384, 6, 6}, {512, 8, 8}, {768, 12, 12}};

int64_t power_of_two(double at_least, int64_t least, int64_t most) {
  int64_t n = least;
  while (n < most && static_cast<double>(n) < at_least) n *= 2;
  return n;
}

// Settings that follow from the data, and from the objective that the user may have chosen.
struct Dimensions {
  int64_t context, vocabulary, batch_tokens;
  double passes;      // upper bound
  const char* type;   // type of the tokenizer; null: the default
  bool encoder, two;  // encoder: a single encoder stack; two: encoder and decoder
  bool windows;       // steps count windows of a text, as next_token's do, rather than tokens
};

Dimensions shape_of(const Look& look) {
  Dimensions s{};
  s.encoder = look.kind == DataKind::classify || look.kind == DataKind::tag;
  s.two = look.kind == DataKind::translate;
  if (s.encoder || s.two) s.type = look.source.has_spaces() ? nullptr : "unigram";
  const double characters = look.tokens * look.source.tokens_per();
  s.vocabulary = power_of_two(characters / 600, look.source.has_spaces() ? 512 : 2048, 16384);
  const double longest = std::max(look.source.long_text(), look.target.long_text());
  if (look.kind == DataKind::text)
    s.context = look.separator == "\n" ? 64
                : look.tokens < 2e3    ? power_of_two(look.tokens / 40, 8, 64)  // a tenth is for validation
                : look.tokens < 2e5    ? 128
                                       : 256;
  else
    s.context = power_of_two(longest * 1.2 + 8, 32, look.kind == DataKind::chat ? 1024 : 512);
  // Some 30 steps per pass if there are enough tokens.
  s.batch_tokens = power_of_two(look.tokens / 40, std::max<int64_t>(512, s.context), 4096);
  s.passes = look.kind == DataKind::text ? 15 : look.kind == DataKind::translate ? 25 : 30;
  return s;
}

// The configuration as TOML; `steps` 0: unknown yet.
std::string toml_of(const SuggestOptions& o, const Look& look, const Dimensions& s, const Size& size,
                    int64_t steps, const std::string& about_steps, const std::string& out_folder) {
  std::string out;
  const auto line = [&](const std::string& key, const std::string& value, const std::string& comment = "") {
    const std::string text = key + " = " + value;
    out += comment.empty() ? text + "\n" : fmt::format("{:<26} # {}\n", text, comment);
  };
  const auto quoted = [](const std::string& text) { return OrderedJson(text).dump(); };  // as a TOML string
  const bool rows = !look.text_column.empty();
  out += fmt::format("# {}: {}{}.\n", fs::path(o.data).filename().string(), look.about, look.source.script());
  out += fmt::format("# Sized for {:g} min of training on this machine with {}.\n", o.minutes,
                     counted(num_threads(), "thread"));
  out += "# Train with: qkv train THIS_FILE    All settings: qkv config\n\n[data]\n";
  line("train", quoted(o.data));
  if (!o.target.empty()) line("train_target", quoted(o.target));
  if (!look.columns.empty()) {
    std::string names;
    for (const std::string& name : look.columns) names += (names.empty() ? "" : ", ") + quoted(name);
    line("columns", "[" + names + "]", "the file has no header");
  }
  if (rows && s.two) {
    line("source_column", quoted(look.text_column), "column to read");
    line("target_column", quoted(look.label_column), "column to write");
  } else if (rows) {
    line("text_column", quoted(look.text_column));
  }
  if (look.kind == DataKind::classify) line("label_column", quoted(look.label_column));
  if (!look.separator.empty()) line("separator", quoted(look.separator), "ends a document");
  if (s.encoder) line("test_fraction", "0.1", "share of the examples for a test at the end");

  out += "\n[tokenizer]\n";
  if (s.type != nullptr) line("type", quoted(s.type), "for scripts without spaces");
  if (look.kind == DataKind::tag && s.type == nullptr)
    line("lowercase", "false", "capitals often tell the tag");
  line("vocab_size", std::to_string(s.vocabulary), "tokens at most");

  out += "\n[model]\n";
  if (s.encoder) line("architecture", "\"encoder\"");
  if (s.two) line("architecture", "\"encoder_decoder\"");
  line("context", std::to_string(s.context), "longest text in tokens");
  line("width", std::to_string(size.width), "embedding width");
  line("layers", std::to_string(size.layers));
  line("heads", std::to_string(size.heads), "attention heads");
  if (s.encoder) {
    line("norm", "\"pre\"");
    if (look.kind == DataKind::classify) line("pooling", "\"mean\"");
  }
  if (s.two) line("positions", "\"sinusoidal\"");
  line("dropout", s.encoder ? "0.3" : s.two ? "0.2" : "0.1", "dropout rate against overfitting");

  out += "\n[train]\n";
  if (look.kind == DataKind::classify) line("objective", "\"classify\"");
  if (look.kind == DataKind::tag) line("objective", "\"tag\"");
  if (look.kind == DataKind::chat) line("objective", "\"chat\"");
  line("out", quoted(out_folder), "folder of the run");
  if (s.windows)
    line("batch", std::to_string(std::max<int64_t>(1, s.batch_tokens / s.context)), "windows of a step");
  else
    line("batch_tokens", std::to_string(s.batch_tokens), "tokens of a step");
  line("learning_rate", s.encoder || s.two || size.width > 256 ? "1e-3" : "2e-3", "peak learning rate");
  if (s.two || look.kind == DataKind::classify) line("label_smoothing", "0.1");
  line("steps", std::to_string(std::max<int64_t>(1, steps)), about_steps);
  line("eval_every", std::to_string(std::max<int64_t>(1, steps / 10)), "steps between validations");
  if (steps >= 20) line("patience", "5", "stop after 5 validations without a better one");
  return out;
}

// Parses a configuration and completes it for measuring, with its full vocabulary and labels.
TrainConfig complete(const std::string& toml, const SuggestOptions& o, const Dimensions& s,
                     const Look& look) {
  TrainConfig c = parse_train_config(toml, o.data, o.settings);
  c.model.vocab_size = s.vocabulary;
  for (int64_t i = 0; i < look.labels; ++i) c.model.labels.push_back(std::to_string(i));
  return c;
}

// Calls f(size) until it throws no Error, and returns its result; rethrows the first Error if all sizes
// throw.
template <typename F>
TrainConfig of_fitting_size(const F& f) {
  std::exception_ptr refused;
  for (const Size& size : kSizes) try {
      return f(size);
    } catch (const Error&) {
      if (!refused) refused = std::current_exception();
    }
  std::rethrow_exception(refused);
}

double tokens_of_step(const TrainConfig& c) {
  return static_cast<double>(
      c.accumulate * (c.objective == Objective::next_token ? c.batch * c.window_length() : c.batch_tokens));
}

// A decoder of this size, whose speed stands in for other kinds of models.
TrainConfig decoder_like(const Dimensions& s, const Size& size) {
  TrainConfig c;
  c.model = gpt2_spec(s.encoder ? 64 : s.vocabulary, s.context, size.width, size.layers, size.heads);
  c.batch = std::max<int64_t>(1, s.batch_tokens / s.context);
  return c;
}

double operations_per_second(const TrainConfig& config) {
  return flops_per_step(config, config.batch) / std::max(1e-9, measure_step_seconds(config, config.batch));
}

}  // namespace

const std::vector<std::string>& data_kind_names() {
  static const std::vector<std::string> names = {"text", "classify", "tag", "translate", "chat"};
  return names;
}

DataKind data_kind_from_name(const std::string& name) {
  const auto& names = data_kind_names();
  const auto it = std::ranges::find(names, name);
  check(it != names.end(), "expected one of {}, got '{}'", fmt::join(names, ", "), name);
  return static_cast<DataKind>(it - names.begin());
}

bool is_data_file(const std::string& path) {
  const std::string extension = extension_of(path);
  for (const char* known : {".txt", ".text", ".md", ".csv", ".tsv", ".jsonl", ".conllu", ".conll", ".iob"})
    if (extension == known) return true;
  std::error_code error;
  return extension != ".toml" && fs::is_regular_file(path, error) && !is_toml(path);
}

SuggestedConfig suggest_config(const SuggestOptions& o) {
  check(!fs::is_directory(o.data), "{}: is a directory, expected a file", o.data);
  check(file_exists(o.data), "{}: no such file", o.data);
  const Look look = look_at(o);
  Dimensions shape = shape_of(look);
  Architecture architecture = shape.encoder ? Architecture::encoder
                              : shape.two   ? Architecture::encoder_decoder
                                            : Architecture::decoder;
  if (look.kind == DataKind::text) {
    // The user's settings may choose another objective or, with a preset, another architecture.
    const TrainConfig wished = of_fitting_size([&](const Size& size) {
      return parse_train_config(
          fmt::format("[data]\ntrain = {}\n[model]\nwidth = {}\nlayers = {}\nheads = {}\n",
                      OrderedJson(o.data).dump(), size.width, size.layers, size.heads),
          o.data, o.settings);
    });
    architecture = wished.model.architecture;
    shape.windows = wished.objective == Objective::next_token;
  }
  const std::string folder = o.out.empty() ? "runs/" + fs::path(o.data).stem().string() : o.out;
  const double seconds = 60 * o.minutes * 0.9;  // validation takes the rest
  const auto toml = [&](const Size& size, int64_t steps, const std::string& about) {
    return toml_of(o, look, shape, size, steps, about, folder);
  };
  // The largest model that the settings fit, that the data are enough for, and that sees enough of them in
  // the time.
  const double speed = operations_per_second(decoder_like(shape, kSizes[2]));
  const Size* best = nullptr;
  of_fitting_size([&](const Size& size) {
    const TrainConfig c = complete(toml(size, 1000, ""), o, shape, look);
    best = &size;
    return c;
  });
  for (const Size* size = best + 1; size != std::end(kSizes); ++size) {
    try {
      const TrainConfig c = complete(toml(*size, 1000, ""), o, shape, look);
      const double seen = seconds * speed / flops_per_step(c, c.batch) * tokens_of_step(c);
      const double enough = std::min(5 * size->parameters(), 5 * look.tokens);
      if (size->parameters() <= 8 * look.tokens && seen >= enough) best = size;
    } catch (const Error&) {  // the settings do not fit this size
    }
  }
  const TrainConfig chosen = complete(toml(*best, 1000, ""), o, shape, look);
  const double rate = operations_per_second(decoder_like(shape, *best));
  const double step_seconds = flops_per_step(chosen, chosen.batch) / rate;
  const double per_pass = std::max(1.0, look.tokens * 0.9 / tokens_of_step(chosen));
  const double by_time = seconds / step_seconds, by_passes = std::max(200.0, shape.passes * per_pass);
  const auto steps = static_cast<int64_t>(std::max(10.0, std::min(by_time, by_passes)));
  const auto done = static_cast<double>(steps);
  SuggestedConfig out;
  out.out = folder;
  out.toml = toml(*best, steps,
                  fmt::format("about {:.2g} passes over the data, {} by the measured speed", done / per_pass,
                              duration_text(done * step_seconds)));
  out.about = fmt::format("{}: {}: {} of width {} with {}, {}", o.data, look.about,
                          architecture == Architecture::encoder   ? "an encoder"
                          : architecture == Architecture::decoder ? "a decoder"
                                                                  : "an encoder-decoder",
                          best->width, counted(best->layers, "layer"), counted(steps, "step"));
  parse_train_config(out.toml, o.data, o.settings);  // checks that the result can be read
  return out;
}

}  // namespace qkv
