// qkv tokenizer: train, encode, decode.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/command.h"
#include "qkv/cli/console.h"
#include "qkv/data/text_file.h"
#include "qkv/text/tokenizer.h"
#include "qkv/text/trainer.h"

namespace qkv {
namespace {

using text::TokenId;
using text::Tokenizer;
using text::TrainerOptions;

struct TrainArguments {
  std::vector<std::string> inputs;
  std::string type = "bpe";
  std::optional<size_t> vocab_size;
  std::optional<int64_t> min_frequency;
  std::vector<std::string> special_tokens;
  bool cased = false, overwrite = false;
  std::string out;
};

struct RunArguments {
  std::string directory;
  std::string file;  // empty: standard input
  bool jsonl = false;
  bool no_special = false;
  bool fit = false;      // encode only
  bool windows = false;  // encode only
  bool details = false;  // encode only
};

// Shows the progress of training: a line that is rewritten at a terminal, else a new line now and then.
void show_progress(std::string_view what, size_t done, size_t total) {
  using Clock = std::chrono::steady_clock;
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  static Clock::time_point last = Clock::now();
  if (Clock::now() - last < (terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(5))) return;
  last = Clock::now();
  const std::string line =
      fmt::format("{} {} of {} ({}%)", what, done, total, 100 * done / std::max<size_t>(total, 1));
  std::cerr << (terminal ? "\r" : "") << line << (terminal ? "\x1b[K" : "\n") << std::flush;
}

TrainerOptions trainer_options(const TrainArguments& arguments) {
  TrainerOptions options;
  const bool sized = arguments.type != "char" && arguments.type != "byte";
  if (!sized && (arguments.vocab_size || arguments.min_frequency)) {
    throw UsageError(
        fmt::format("--vocab-size and --min-frequency mean nothing for --type {}", arguments.type));
  }
  const bool counted = sized && arguments.type != "unigram" && arguments.type != "sentencepiece_bpe";
  if (!counted && arguments.min_frequency)
    throw UsageError(fmt::format("--min-frequency means nothing for --type {}", arguments.type));
  if (arguments.cased && arguments.type != "wordpiece")
    throw UsageError(fmt::format("--cased means nothing for --type {}", arguments.type));
  options.lowercase = !arguments.cased;
  if (arguments.vocab_size) options.vocab_size = *arguments.vocab_size;
  if (arguments.min_frequency) options.min_frequency = *arguments.min_frequency;
  options.special_tokens = arguments.special_tokens;
  options.progress = show_progress;
  return options;
}

Tokenizer train(const TrainArguments& arguments) {
  const TrainerOptions options = trainer_options(arguments);
  if (arguments.type == "byte") return text::train_bytes(options);
  if (arguments.inputs.empty()) throw UsageError("tokenizer train: no INPUT to learn from");
  std::vector<FileText> files;
  std::vector<std::string_view> texts;
  Notes notes;
  for (const std::string& input : arguments.inputs) {
    files.push_back(open_plain_text(input, {}, &notes));
    texts.push_back(files.back().text);
  }
  print_notes(notes);
  check(std::ranges::any_of(texts, [](std::string_view text) { return !text.empty(); }),
        "{}: {} no text to learn from", fmt::join(arguments.inputs, ", "),
        arguments.inputs.size() == 1 ? "holds" : "hold");
  if (arguments.type == "char") return text::train_characters(texts, options);
  if (arguments.type == "word") return text::train_words(texts, options);
  if (arguments.type == "unigram")
    return text::train_sentencepiece(texts, options, text::SentencePieceKind::kUnigram);
  if (arguments.type == "sentencepiece_bpe")
    return text::train_sentencepiece(texts, options, text::SentencePieceKind::kBpe);
  if (arguments.type == "wordpiece") return text::train_word_piece(texts, options);
  return text::train_byte_level_bpe(texts, options);
}

void run_train(const TrainArguments& arguments) {
  if (!arguments.overwrite && Tokenizer::exists(arguments.out))
    throw UsageError(fmt::format("{}: holds a tokenizer already (--overwrite replaces it)", arguments.out));
  const Tokenizer tokenizer = train(arguments);
  tokenizer.save(arguments.out);
  const char* over = isatty(STDERR_FILENO) != 0 ? "\r\x1b[K" : "";  // the progress line
  std::cerr << fmt::format("{}{}: {} tokens\n", over, arguments.out, tokenizer.vocab_size());
  const auto wanted = static_cast<size_t>(arguments.vocab_size.value_or(0));
  if (tokenizer.vocab_size() < wanted)
    std::cerr << fmt::format(
        "note: {} tokens were asked for; the text holds no more that occur often enough\n", wanted);
}

void print_indented(const Json& value) {
  std::cout << value.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
}

// Calls `convert` with each line's JSON value and writes the result as a line.
template <typename Convert>
void convert_lines(const RunArguments& arguments, const Convert& convert) {
  read_json_lines(arguments.file, [&](const Json& value, const std::string& place) {
    print_indented(convert(value, place));
  });
}

std::vector<TokenId> ids_from_json(const Json& value, const std::string& place) {
  const Json* list = &value;
  if (value.is_object() && value.contains("ids")) list = &value["ids"];
  check(list->is_array(), "{}: expected a list of ids", place);
  std::vector<TokenId> ids;
  for (const Json& id : *list) {
    const bool fits = id.is_number_integer() && id >= 0 && id <= text::kLargestTokenId;
    check(fits, "{}: expected ids from 0 to {}, found {}", place, text::kLargestTokenId, id.dump());
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

std::vector<TokenId> ids_from_text(const std::string& text) {
  std::vector<TokenId> ids;
  std::istringstream in(text);
  for (std::string word; in >> word;) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    check(error == std::errc() && end == word.data() + word.size() && id >= 0, "expected an id, found \"{}\"",
          word.substr(0, 40));
    ids.push_back(id);
  }
  return ids;
}

// The tokenizer of a run is beside its models.
Tokenizer load_tokenizer(const std::string& dir) {
  for (const std::string& candidate : {dir, dir + "/best", dir + "/last"})
    if (Tokenizer::exists(candidate)) return Tokenizer::load(candidate);
  return Tokenizer::load(dir);
}

// Encodes a text or a pair. With windows there are several encodings.
std::vector<text::Encoding> encode(const Tokenizer& tokenizer, std::string_view first,
                                   std::optional<std::string_view> second, const RunArguments& arguments) {
  const bool special = !arguments.no_special;
  if (arguments.windows) return tokenizer.encode_windows(*tokenizer.truncation(), first, second, special);
  if (arguments.fit && tokenizer.truncation())
    return {tokenizer.encode_within(*tokenizer.truncation(), first, second, special)};
  return {second ? tokenizer.encode_pair(first, *second, special) : tokenizer.encode(first, special)};
}

std::vector<text::Encoding> encode_value(const Tokenizer& tokenizer, const Json& value,
                                         const std::string& place, const RunArguments& arguments) {
  const bool pair = value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
  check(value.is_string() || pair, "{}: expected a JSON string, or a list of two", place);
  const auto text = [](const Json& v) { return std::string_view(v.get_ref<const std::string&>()); };
  return naming_place(place, [&] {
    return pair ? encode(tokenizer, text(value[0]), text(value[1]), arguments)
                : encode(tokenizer, text(value), std::nullopt, arguments);
  });
}

// One encoding as JSON. Its first `tokens`, or with padding on the left its last, are no padding.
Json encoding_to_json(const Tokenizer& tokenizer, const text::Encoding& e, size_t tokens, bool details) {
  if (!details) return e.ids;
  Json names = Json::array(), offsets = Json::array(), mask = Json::array();
  const bool left = tokenizer.padding() && tokenizer.padding()->on_left;
  for (size_t i = 0; i < e.size(); ++i) {
    const bool is_token = (left ? e.size() - 1 - i : i) < tokens;
    names.push_back(is_token ? tokenizer.id_to_token(e.ids[i]).value_or("") : tokenizer.padding()->token);
    offsets.push_back({e.offsets[i].begin, e.offsets[i].end});
    mask.push_back(is_token ? 1 : 0);
  }
  return {{"ids", e.ids},
          {"tokens", std::move(names)},
          {"offsets", std::move(offsets)},
          {"type_ids", e.type_ids},
          {"attention_mask", std::move(mask)}};
}

// The encoding of a text, or a list of its windows, padded to `length` if they are shorter.
Json encodings_to_json(const Tokenizer& tokenizer, const std::vector<text::Encoding>& encodings,
                       size_t length, const RunArguments& arguments) {
  Json all = Json::array();
  for (const text::Encoding& bare : encodings) {
    text::Encoding e = bare;
    if (e.size() < length) text::pad(e, length, *tokenizer.padding());
    all.push_back(encoding_to_json(tokenizer, e, bare.size(), arguments.details));
  }
  return arguments.windows ? all : all[0];
}

// All lines form one batch, since the longest may decide the padded length of the others.
void encode_batch(const Tokenizer& tokenizer, const RunArguments& arguments) {
  std::vector<std::vector<text::Encoding>> batch;
  std::vector<text::Encoding> firsts;  // each text's first window, which is its longest
  read_json_lines(arguments.file, [&](const Json& value, const std::string& place) {
    batch.push_back(encode_value(tokenizer, value, place, arguments));
    firsts.push_back(batch.back()[0]);
  });
  const size_t length = text::padded_length(firsts, *tokenizer.padding());
  for (const auto& encodings : batch)
    print_indented(encodings_to_json(tokenizer, encodings, length, arguments));
}

void run_encode(const RunArguments& arguments) {
  const Tokenizer tokenizer = load_tokenizer(arguments.directory);
  const bool padded = arguments.fit && tokenizer.padding();
  if (arguments.fit && !padded && !tokenizer.truncation())
    throw UsageError(fmt::format("--fit: {} says nothing of truncation or padding", arguments.directory));
  if (arguments.windows && (!arguments.fit || !tokenizer.truncation()))
    throw UsageError(arguments.fit
                         ? fmt::format("--windows: {} says nothing of truncation", arguments.directory)
                         : "--windows: goes with --fit, which says how long they are");
  if (arguments.jsonl && padded) return encode_batch(tokenizer, arguments);
  if (arguments.jsonl) {
    return convert_lines(arguments, [&](const Json& value, const std::string& place) {
      return encodings_to_json(tokenizer, encode_value(tokenizer, value, place, arguments), 0, arguments);
    });
  }
  const std::string text = read_input(arguments.file);
  const std::vector<text::Encoding> encodings = naming_place(
      input_name(arguments.file), [&] { return encode(tokenizer, text, std::nullopt, arguments); });
  const size_t length = padded ? text::padded_length({encodings[0]}, *tokenizer.padding()) : 0;
  const Json json = encodings_to_json(tokenizer, encodings, length, arguments);
  if (arguments.details || arguments.windows) return print_indented(json);
  std::string line;
  for (const Json& id : json) line += (line.empty() ? "" : " ") + id.dump();
  std::cout << line << '\n';
}

void run_decode(const RunArguments& arguments) {
  const Tokenizer tokenizer = load_tokenizer(arguments.directory);
  if (arguments.jsonl) {
    return convert_lines(arguments, [&](const Json& value, const std::string& place) -> Json {
      const auto ids = ids_from_json(value, place);
      return naming_place(place, [&] { return tokenizer.decode(ids, arguments.no_special); });
    });
  }
  const std::string text = read_input(arguments.file);
  std::cout << naming_place(input_name(arguments.file),
                            [&] { return tokenizer.decode(ids_from_text(text), arguments.no_special); });
}

void add_train(Command& parent) {
  auto arguments = std::make_shared<TrainArguments>();
  Command* command = parent.add_subcommand(
      "train", "Train a tokenizer and write DIR/tokenizer.json (SentencePiece types: tokenizer.model)");
  command->add_option("INPUT", arguments->inputs, "UTF-8 text files (none needed for --type byte)");
  command
      ->add_option("--type", arguments->type,
                   "Type: bpe (byte-level, as in GPT-2), wordpiece (BERT), unigram, sentencepiece_bpe "
                   "(Llama), char, byte, word")
      ->one_of({"bpe", "wordpiece", "unigram", "sentencepiece_bpe", "char", "byte", "word"})
      ->show_default();
  command
      ->add_option("--vocab-size", arguments->vocab_size,
                   "Vocabulary size, except for char and byte (default: 8192)")
      ->range(int64_t{1}, int64_t{10'000'000});
  command
      ->add_option(
          "--min-frequency", arguments->min_frequency,
          "A pair (bpe, wordpiece) or word (word) must occur this often to become a token (default: 2)")
      ->range(int64_t{1}, int64_t{1} << 60);
  command->add_option("--special", arguments->special_tokens,
                      "Special tokens, in the order of their ids (<unk>: the unknown token)");
  command->add_flag("--cased", arguments->cased, "Keep capitals and accents (wordpiece)");
  command->add_option("--out", arguments->out, "Directory to write")->required();
  command->add_flag("--overwrite", arguments->overwrite, "Replace the tokenizer in --out");
  command->footer(
      "Example:\n  qkv tokenizer train corpus.txt --vocab-size 8192 --special '<|endoftext|>' --out tok");
  command->callback([arguments] { run_train(*arguments); });
}

std::shared_ptr<RunArguments> add_run_options(Command& command) {
  auto arguments = std::make_shared<RunArguments>();
  command
      .add_option(
          "DIR", arguments->directory,
          "Directory with tokenizer.json (or GPT-2's, BERT's or SentencePiece's files), .model file, or run")
      ->required();
  command.add_option("FILE", arguments->file, "Input file (default: standard input)");
  return arguments;
}

void add_encode(Command& parent) {
  Command* command =
      parent.add_subcommand("encode", "Convert text to token ids (the whole input is one text)");
  const auto arguments = add_run_options(*command);
  command->add_flag(
      "--jsonl", arguments->jsonl,
      "Read a JSON string (or a list of two for a pair) per line; print a JSON list of ids per line");
  command->add_flag("--no-special", arguments->no_special, "Do not add special tokens");
  command->add_flag("--fit", arguments->fit,
                    "Truncate and pad as tokenizer.json says; all lines are one batch");
  command->add_flag("--windows", arguments->windows,
                    "With --fit: split long texts into windows that overlap by the truncation stride");
  command->add_flag("--details", arguments->details,
                    "Write objects: ids, tokens, offsets (bytes of the text), type_ids, attention_mask");
  command->footer("Example:\n  echo '\"Hello world\"' | qkv tokenizer encode tok --jsonl");
  command->callback([arguments] { run_encode(*arguments); });
}

void add_decode(Command& parent) {
  Command* command = parent.add_subcommand("decode", "Convert token ids, separated by white space, to text");
  const auto arguments = add_run_options(*command);
  command->add_flag("--jsonl", arguments->jsonl,
                    "Read a JSON list of ids per line; print a JSON string per line");
  command->add_flag("--no-special", arguments->no_special, "Leave out special tokens");
  command->footer("Example:\n  echo '[15496, 995]' | qkv tokenizer decode tok --jsonl");
  command->callback([arguments] { run_decode(*arguments); });
}

}  // namespace

void add_tokenizer_command(Command& app) {
  Command* command = app.add_subcommand("tokenizer", "Train a tokenizer, encode text, decode ids");
  command->require_subcommand();
  add_train(*command);
  add_encode(*command);
  add_decode(*command);
  command->footer("Example:\n  qkv tokenizer train corpus.txt --vocab-size 8192 --out tok");
}

}  // namespace qkv
