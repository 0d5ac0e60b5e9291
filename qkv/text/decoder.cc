#include "qkv/text/decoder.h"

#include <array>

#include "qkv/base/json.h"
#include "qkv/text/byte_alphabet.h"

namespace qkv::text {
namespace {

void fuse(std::vector<std::string>& tokens) {
  std::string whole;
  for (const std::string& token : tokens) whole += token;
  tokens.assign(1, std::move(whole));
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

class Fuse : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override { fuse(tokens); }
  OrderedJson to_json() const override { return {{"type", "Fuse"}}; }
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
  static constexpr std::array<std::string_view, 3> kSupported = {"ByteLevel", "Fuse", "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>(field);
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<Decoder>> stages;
  const JsonField list = field["decoders"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_decoder(list.at(i)));
  return std::make_unique<DecoderSequence>(std::move(stages));
}

}  // namespace qkv::text
