#include "qkv/text/decoder.h"

#include <algorithm>
#include <array>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

void fuse(std::vector<std::string>& tokens) {
  std::string whole;
  for (const std::string& token : tokens) whole += token;
  tokens.assign(1, whole);
}

constexpr size_t kMostGrown = size_t{1} << 26;  // bytes; limits stages that grow a text in turns

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  size_t at = text.find(from), done = 0;
  if (at == text.npos) return;
  std::string result;
  for (; at != text.npos; at = text.find(from, done)) {
    result.append(text, done, at - done);
    result += to;
    done = at + from.size();
    check(to.size() <= from.size() || result.size() <= kMostGrown,
          "decode: replacing \"{}\" takes over {} bytes", from, kMostGrown);
  }
  result.append(text, done);
  text = std::move(result);
}

// From the byte alphabet's characters to the bytes. A token with other characters is text already.
class ByteLevelDecoder : public Decoder {
 public:
  explicit ByteLevelDecoder(const JsonField& field)
      : add_prefix_space_(field.boolean_or("add_prefix_space", true)),
        trim_offsets_(field.boolean_or("trim_offsets", true)),
        use_regex_(field.boolean_or("use_regex", true)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      if (auto bytes = unspell_bytes(token)) token = std::move(*bytes);
    }
    fuse(tokens);
  }

  OrderedJson to_json() const override {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", add_prefix_space_},
            {"trim_offsets", trim_offsets_},
            {"use_regex", use_regex_}};
  }

 private:
  bool add_prefix_space_, trim_offsets_, use_regex_;  // no effect here; written back by to_json()
};

// Replaces one string with another within each token.
class Replace : public Decoder {
 public:
  explicit Replace(const JsonField& field)
      : from_(field["pattern"]["String"].string()), to_(field["content"].string()) {
    if (from_.empty()) field["pattern"]["String"].refuse("at least one character");
    if (to_.size() > kLongestReplacement) field["content"].refuse("at most 1024 bytes");
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) replace_all(token, from_, to_);
  }

  OrderedJson to_json() const override {
    return {{"type", "Replace"}, {"pattern", {{"String", from_}}}, {"content", to_}};
  }

 private:
  static constexpr size_t kLongestReplacement = 1024;  // bytes
  std::string from_, to_;
};

class Fuse : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override { fuse(tokens); }
  OrderedJson to_json() const override { return {{"type", "Fuse"}}; }
};

// Pieces with the prefix continue the previous word; all others begin one.
class WordPieceDecoder : public Decoder {
 public:
  explicit WordPieceDecoder(const JsonField& field)
      : prefix_(field.string_or("prefix", "##")), cleanup_(field.boolean_or("cleanup", true)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix_)) {
        tokens[i].erase(0, prefix_.size());
      } else if (i > 0) {
        tokens[i].insert(0, 1, ' ');
      }
      if (cleanup_) clean_up(tokens[i]);
    }
  }

  OrderedJson to_json() const override {
    return {{"type", "WordPiece"}, {"prefix", prefix_}, {"cleanup", cleanup_}};
  }

 private:
  // Removes spaces before punctuation and contractions within each token, as Hugging Face's library does.
  static void clean_up(std::string& token) {
    static constexpr std::array<std::string_view, 2> kReplacements[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kReplacements) replace_all(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
};

// Tokens like <0xE4> are bytes. Each byte of a run that is not valid UTF-8 as a whole becomes U+FFFD.
class ByteFallback : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string run;
    const auto flush = [&] {
      if (find_invalid_utf8(run) == std::string_view::npos) {
        if (!run.empty()) result.push_back(run);
      } else {
        result.insert(result.end(), run.size(), std::string(kReplacementCharacter));
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of_fallback(token); byte >= 0) {
        run += static_cast<char>(byte);
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }

  OrderedJson to_json() const override { return {{"type", "ByteFallback"}}; }
};

// Strips a character from both ends of each token, at most `start` and `stop` times.
class StripDecoder : public Decoder {
 public:
  explicit StripDecoder(const JsonField& field)
      : content_(field["content"].string()),
        start_(field["start"].integer(0, INT32_MAX)),
        stop_(field["stop"].integer(0, INT32_MAX)) {
    if (count_characters(content_) != 1) field["content"].refuse("one character");
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      token = std::string(rest);
    }
  }

  OrderedJson to_json() const override {
    return {{"type", "Strip"}, {"content", content_}, {"start", start_}, {"stop", stop_}};
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

// Turns marks back into spaces. Marks of the first token are removed, unless prepend_scheme is "never".
class MetaspaceDecoder : public Decoder {
 public:
  explicit MetaspaceDecoder(const JsonField& field)
      : replacement_(field.string_or("replacement", "\xE2\x96\x81")),
        scheme_(field.string_or("prepend_scheme",
                                field.boolean_or("add_prefix_space", true) ? "always" : "never")),
        split_(field.boolean_or("split", true)) {
    static constexpr std::array<std::string_view, 3> kSchemes = {"always", "first", "never"};
    if (count_characters(replacement_) != 1) field["replacement"].refuse("one character");
    if (std::find(kSchemes.begin(), kSchemes.end(), scheme_) == kSchemes.end())
      field["prepend_scheme"].refuse_type(scheme_, kSchemes);
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement_, i == 0 && scheme_ != "never" ? "" : " ");
  }

  OrderedJson to_json() const override {
    return {
        {"type", "Metaspace"}, {"replacement", replacement_}, {"prepend_scheme", scheme_}, {"split", split_}};
  }

 private:
  std::string replacement_, scheme_;
  bool split_;  // no effect here; written back by to_json()
};

// Replaces the suffix that ends words with a space, and removes it from the last token.
class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(const JsonField& field) : suffix_(field.string_or("suffix", "</w>")) {
    if (suffix_.empty()) field["suffix"].refuse("at least one character");
  }

  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

  OrderedJson to_json() const override { return {{"type", "BPEDecoder"}, {"suffix", suffix_}}; }

 private:
  std::string suffix_;
};

class DecoderSequence : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<Decoder>> stages) : stages_(std::move(stages)) {}

  void decode(std::vector<std::string>& tokens) const override {
    for (const auto& stage : stages_) stage->decode(tokens);
  }

  OrderedJson to_json() const override {
    OrderedJson stages = OrderedJson::array();
    for (const auto& stage : stages_) stages.push_back(stage->to_json());
    return {{"type", "Sequence"}, {"decoders", std::move(stages)}};
  }

 private:
  std::vector<std::unique_ptr<Decoder>> stages_;
};

}  // namespace

std::unique_ptr<Decoder> parse_decoder(const JsonField& field) {
  static constexpr std::array<std::string_view, 9> kSupported = {"ByteLevel",  "ByteFallback", "Metaspace",
                                                                 "BPEDecoder", "Strip",        "WordPiece",
                                                                 "Replace",    "Fuse",         "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>(field);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(field);
  if (type == "Replace") return std::make_unique<Replace>(field);
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Metaspace") return std::make_unique<MetaspaceDecoder>(field);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(field);
  if (type == "Strip") return std::make_unique<StripDecoder>(field);
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<Decoder>> stages;
  const JsonField list = field["decoders"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_decoder(list.at(i)));
  return std::make_unique<DecoderSequence>(std::move(stages));
}

}  // namespace qkv::text
