// The fourth stage: adds special tokens around a text or a pair and makes final changes to offsets.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/text/regex.h"
#include "qkv/text/vocabulary.h"

namespace qkv {
class JsonField;
}

namespace qkv::text {

// An encoded text. Each token has an id, the bytes of the text that it stands for (an empty range if none),
// and a type: which of a pair's two texts it belongs to.
struct Encoding {
  std::vector<TokenId> ids;
  std::vector<Range> offsets;
  std::vector<TokenId> type_ids;

  size_t size() const { return ids.size(); }
  void add(TokenId id, Range offset, TokenId type) {
    ids.push_back(id);
    offsets.push_back(offset);
    type_ids.push_back(type);
  }
  void append(const Encoding& other);
};

// Adjusts the tokens of a text, or of a pair of texts, and assembles them.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  // Changes offsets in place. `parts`: one or two encodings; their number stays the same. `sources`: the
  // texts that they encode.
  virtual void adjust(std::vector<Encoding>& parts, const std::vector<std::string_view>& sources) const = 0;
  // True if the stage defines how assemble() puts parts and special tokens together.
  virtual bool assembles() const { return false; }
  virtual Encoding assemble(const std::vector<Encoding>& parts) const = 0;
  virtual nlohmann::ordered_json to_json() const = 0;
};

// From its object in tokenizer.json: ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing,
// Sequence.
std::unique_ptr<PostProcessor> parse_post_processor(const JsonField& field);

// BERT's template as an object of tokenizer.json: [CLS] A [SEP] of type 0, then B [SEP] of type 1.
nlohmann::json bert_template(const std::pair<std::string, TokenId>& cls,
                             const std::pair<std::string, TokenId>& sep);
// Template with tokens around each text: `begin` before it and `end` after it, if present. The second
// text's tokens have type 1.
nlohmann::json template_around(const std::optional<std::pair<std::string, TokenId>>& begin,
                               const std::optional<std::pair<std::string, TokenId>>& end);

// Concatenates the parts; the second one's tokens get type 1.
Encoding concatenate(const std::vector<Encoding>& parts);

}  // namespace qkv::text
