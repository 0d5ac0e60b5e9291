#include "qkv/text/decoder.h"

#include <array>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/text/byte_alphabet.h"

namespace qkv::text {
namespace {

void fuse(std::vector<std::string>& tokens) {
  std::string whole;
  for (const std::string& token : tokens) whole += token;
  tokens.assign(1, std::move(whole));
}

constexpr size_t kMostGrown = size_t{1} << 26;  // bytes; stages that blow up a text in turns end here

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
  bool add_prefix_space_, trim_offsets_, use_regex_;  // of no effect here; written back
};

// One string in place of another, within each token.
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

// Pieces with the prefix continue the word before; all others begin one.
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
  // Closes up punctuation and contractions, in each token by itself as Hugging Face's library does.
  static void clean_up(std::string& token) {
    static constexpr std::array<std::string_view, 2> kReplacements[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kReplacements) replace_all(token, from, to);
  }

  std::string prefix_;
  bool cleanup_;
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
  static constexpr std::array<std::string_view, 5> kSupported = {"ByteLevel", "WordPiece", "Replace", "Fuse",
                                                                 "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>(field);
  if (type == "WordPiece") return std::make_unique<WordPieceDecoder>(field);
  if (type == "Replace") return std::make_unique<Replace>(field);
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<Decoder>> stages;
  const JsonField list = field["decoders"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_decoder(list.at(i)));
  return std::make_unique<DecoderSequence>(std::move(stages));
}

}  // namespace qkv::text
