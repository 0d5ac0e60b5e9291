#include "qkv/text/post_processor.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

// [content, id] of BertProcessing and RobertaProcessing.
struct NamedToken {
  std::string content;
  TokenId id;
};

NamedToken parse_named_token(const JsonField& field) {
  if (field.size() != 2) field.refuse("[token, id]");
  return {field.at(0).string(), static_cast<TokenId>(field.at(1).integer(0, kLargestTokenId))};
}

// Excludes white space from the offsets.
class ByteLevelOffsets : public PostProcessor {
 public:
  explicit ByteLevelOffsets(const JsonField& field)
      : add_prefix_space_(field.boolean_or("add_prefix_space", true)),
        trim_offsets_(field.boolean_or("trim_offsets", true)),
        use_regex_(field.boolean_or("use_regex", true)) {}

  void adjust(std::vector<Encoding>& parts, const std::vector<std::string_view>& sources) const override {
    if (!trim_offsets_) return;
    for (size_t p = 0; p < parts.size(); ++p) {
      for (Range& range : parts[p].offsets) trim(range, sources[p]);
    }
  }

  Encoding assemble(const std::vector<Encoding>& parts) const override { return concatenate(parts); }

  OrderedJson to_json() const override {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", add_prefix_space_},
            {"trim_offsets", trim_offsets_},
            {"use_regex", use_regex_}};
  }

 private:
  static void trim(Range& range, std::string_view source) {
    while (range.begin < range.end) {
      const Character c = character_at(source.substr(0, range.end), range.begin);
      if (!is_space(c.codepoint)) break;
      range.begin += c.length;
    }
    while (range.end > range.begin) {
      size_t last = range.end - 1;
      while (last > range.begin && (static_cast<unsigned char>(source[last]) & 0xC0) == 0x80) --last;
      const Character c = character_at(source.substr(0, range.end), last);
      if (!is_space(c.codepoint) || last + c.length != range.end) break;
      range.end = last;
    }
  }

  bool add_prefix_space_, trim_offsets_, use_regex_;
};

// RoBERTa's template: <s> A </s>, and </s> B </s>, all of type 0. Offsets are those of ByteLevelOffsets.
class RobertaProcessing : public PostProcessor {
 public:
  explicit RobertaProcessing(const JsonField& field)
      : offsets_(field), sep_(parse_named_token(field["sep"])), cls_(parse_named_token(field["cls"])) {}

  void adjust(std::vector<Encoding>& parts, const std::vector<std::string_view>& sources) const override {
    offsets_.adjust(parts, sources);
  }
  bool assembles() const override { return true; }

  Encoding assemble(const std::vector<Encoding>& parts) const override {
    Encoding result;
    for (size_t p = 0; p < parts.size(); ++p) {
      result.add(p == 0 ? cls_.id : sep_.id, {0, 0}, 0);
      result.append(parts[p]);
      result.add(sep_.id, {0, 0}, 0);
    }
    result.type_ids.assign(result.size(), 0);
    return result;
  }

  OrderedJson to_json() const override {
    const OrderedJson offsets = offsets_.to_json();
    return {{"type", "RobertaProcessing"},
            {"sep", OrderedJson::array({sep_.content, sep_.id})},
            {"cls", OrderedJson::array({cls_.content, cls_.id})},
            {"trim_offsets", offsets["trim_offsets"]},
            {"add_prefix_space", offsets["add_prefix_space"]}};
  }

 private:
  ByteLevelOffsets offsets_;
  NamedToken sep_, cls_;
};

// Assembles the parts and special tokens by a template.
class TemplateProcessing : public PostProcessor {
 public:
  explicit TemplateProcessing(const JsonField& field) {
    const JsonField tokens = field["special_tokens"];
    for (auto it = tokens.object().begin(); it != tokens.object().end(); ++it) {
      special_[it.key()] = parse_special(tokens[it.key()]);
    }
    single_ = parse_template(field["single"], 1);
    pair_ = parse_template(field["pair"], 2);
  }

  void adjust(std::vector<Encoding>&, const std::vector<std::string_view>&) const override {}

  bool assembles() const override { return true; }

  Encoding assemble(const std::vector<Encoding>& parts) const override {
    Encoding result;
    for (const Item& item : parts.size() == 1 ? single_ : pair_) {
      if (item.special) {
        for (const TokenId id : special_.at(item.id).ids) result.add(id, {0, 0}, item.type);
        continue;
      }
      Encoding part = parts[item.id == "A" ? 0 : 1];
      part.type_ids.assign(part.size(), item.type);
      result.append(part);
    }
    return result;
  }

  OrderedJson to_json() const override {
    OrderedJson special = OrderedJson::object();
    for (const auto& [name, token] : special_) {
      special[name] = {{"id", token.id}, {"ids", token.ids}, {"tokens", token.tokens}};
    }
    return {{"type", "TemplateProcessing"},
            {"single", template_to_json(single_)},
            {"pair", template_to_json(pair_)},
            {"special_tokens", std::move(special)}};
  }

 private:
  struct Special {
    std::string id;
    std::vector<TokenId> ids;
    std::vector<std::string> tokens;
  };
  struct Item {
    bool special;
    std::string id;  // "A", "B" or the name of a special token
    TokenId type;
  };

  static constexpr size_t kLongestTemplate = 1000, kMostIds = 1000;

  static Special parse_special(const JsonField& field) {
    Special special{field["id"].string(), {}, {}};
    const JsonField ids = field["ids"], tokens = field["tokens"];
    if (ids.size() > kMostIds) ids.refuse("at most 1000 ids");
    if (ids.size() != tokens.size()) tokens.refuse("as many tokens as ids");
    for (size_t i = 0; i < ids.size(); ++i) {
      special.ids.push_back(static_cast<TokenId>(ids.at(i).integer(0, kLargestTokenId)));
      special.tokens.push_back(tokens.at(i).string());
    }
    return special;
  }

  std::vector<Item> parse_template(const JsonField& field, size_t sequences) const {
    std::vector<Item> items;
    if (field.size() > kLongestTemplate) field.refuse("at most 1000 items");
    size_t uses[2] = {0, 0};
    for (size_t i = 0; i < field.size(); ++i) {
      const JsonField item = field.at(i);
      const bool special = item.find("SpecialToken").has_value();
      const JsonField body = item[special ? "SpecialToken" : "Sequence"];
      const std::string& id = body["id"].string();
      if (special) {
        if (!special_.contains(id)) body["id"].refuse("one of special_tokens");
      } else {
        if (id != "A" && (id != "B" || sequences == 1)) body["id"].refuse(sequences == 1 ? "A" : "A or B");
        ++uses[id == "A" ? 0 : 1];
      }
      items.push_back({special, id, static_cast<TokenId>(body["type_id"].integer(0, INT32_MAX))});
    }
    if (uses[0] != 1 || (sequences == 2 && uses[1] != 1)) field.refuse("every sequence exactly once");
    return items;
  }

  static OrderedJson template_to_json(const std::vector<Item>& items) {
    OrderedJson list = OrderedJson::array();
    for (const Item& item : items) {
      OrderedJson entry;
      entry[item.special ? "SpecialToken" : "Sequence"] = {{"id", item.id}, {"type_id", item.type}};
      list.push_back(std::move(entry));
    }
    return list;
  }

  std::map<std::string, Special> special_;
  std::vector<Item> single_, pair_;
};

// BERT's template in short form: [CLS] A [SEP], then B [SEP] of type 1.
class BertProcessing : public PostProcessor {
 public:
  explicit BertProcessing(const JsonField& field)
      : sep_(parse_named_token(field["sep"])), cls_(parse_named_token(field["cls"])) {}

  void adjust(std::vector<Encoding>&, const std::vector<std::string_view>&) const override {}
  bool assembles() const override { return true; }

  Encoding assemble(const std::vector<Encoding>& parts) const override {
    Encoding result;
    result.add(cls_.id, {0, 0}, 0);
    for (size_t p = 0; p < parts.size(); ++p) {
      Encoding part = parts[p];
      part.type_ids.assign(part.size(), static_cast<TokenId>(p));
      result.append(part);
      result.add(sep_.id, {0, 0}, static_cast<TokenId>(p));
    }
    return result;
  }

  OrderedJson to_json() const override {
    return {{"type", "BertProcessing"},
            {"sep", OrderedJson::array({sep_.content, sep_.id})},
            {"cls", OrderedJson::array({cls_.content, cls_.id})}};
  }

 private:
  NamedToken sep_, cls_;
};

class PostProcessorSequence : public PostProcessor {
 public:
  explicit PostProcessorSequence(std::vector<std::unique_ptr<PostProcessor>> stages)
      : stages_(std::move(stages)) {}

  void adjust(std::vector<Encoding>& parts, const std::vector<std::string_view>& sources) const override {
    for (const auto& stage : stages_) stage->adjust(parts, sources);
  }

  bool assembles() const override { return assembler() != nullptr; }

  Encoding assemble(const std::vector<Encoding>& parts) const override {
    const PostProcessor* stage = assembler();
    return stage == nullptr ? concatenate(parts) : stage->assemble(parts);
  }

  OrderedJson to_json() const override {
    OrderedJson stages = OrderedJson::array();
    for (const auto& stage : stages_) stages.push_back(stage->to_json());
    return {{"type", "Sequence"}, {"processors", std::move(stages)}};
  }

 private:
  const PostProcessor* assembler() const {
    for (const auto& stage : stages_) {
      if (stage->assembles()) return stage.get();
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<PostProcessor>> stages_;
};

}  // namespace

void Encoding::append(const Encoding& other) {
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
  offsets.insert(offsets.end(), other.offsets.begin(), other.offsets.end());
  type_ids.insert(type_ids.end(), other.type_ids.begin(), other.type_ids.end());
}

Encoding concatenate(const std::vector<Encoding>& parts) {
  Encoding result = parts.front();
  for (size_t p = 1; p < parts.size(); ++p) {
    Encoding part = parts[p];
    part.type_ids.assign(part.size(), static_cast<TokenId>(p));
    result.append(part);
  }
  return result;
}

namespace {

Json special_item(const std::string& id, int type) {
  return {{"SpecialToken", {{"id", id}, {"type_id", type}}}};
}
Json sequence_item(const char* id, int type) {
  return {{"Sequence", {{"id", id}, {"type_id", type}}}};
}
// "special_tokens" of a template.
Json special_tokens(std::initializer_list<std::pair<std::string, TokenId>> list) {
  Json tokens;
  for (const auto& [content, id] : list)
    tokens[content] = {{"id", content}, {"ids", Json::array({id})}, {"tokens", Json::array({content})}};
  return tokens;
}

}  // namespace

Json bert_template(const std::pair<std::string, TokenId>& cls, const std::pair<std::string, TokenId>& sep) {
  return {{"type", "TemplateProcessing"},
          {"single", {special_item(cls.first, 0), sequence_item("A", 0), special_item(sep.first, 0)}},
          {"pair",
           {special_item(cls.first, 0), sequence_item("A", 0), special_item(sep.first, 0),
            sequence_item("B", 1), special_item(sep.first, 1)}},
          {"special_tokens", special_tokens({cls, sep})}};
}

Json template_around(const std::optional<std::pair<std::string, TokenId>>& begin,
                     const std::optional<std::pair<std::string, TokenId>>& end) {
  Json single = Json::array(), pair = Json::array();
  for (const int sequence : {0, 1}) {
    std::vector<Json> items;
    if (begin) items.push_back(special_item(begin->first, sequence));
    items.push_back(sequence_item(sequence == 0 ? "A" : "B", sequence));
    if (end) items.push_back(special_item(end->first, sequence));
    for (const Json& item : items) {
      if (sequence == 0) single.push_back(item);
      pair.push_back(item);
    }
  }
  Json tokens = Json::object();
  for (const auto& token : {begin, end})
    if (token) tokens.update(special_tokens({*token}));
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

std::unique_ptr<PostProcessor> parse_post_processor(const JsonField& field) {
  static constexpr std::array<std::string_view, 5> kSupported = {
      "RobertaProcessing", "ByteLevel", "TemplateProcessing", "BertProcessing", "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelOffsets>(field);
  if (type == "RobertaProcessing") return std::make_unique<RobertaProcessing>(field);
  if (type == "BertProcessing") return std::make_unique<BertProcessing>(field);
  if (type == "TemplateProcessing") return std::make_unique<TemplateProcessing>(field);
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<PostProcessor>> stages;
  const JsonField list = field["processors"];
  size_t assemblers = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    stages.push_back(parse_post_processor(list.at(i)));
    assemblers += stages.back()->assembles();
  }
  if (assemblers > 1) list.refuse("at most one stage that adds special tokens");
  return std::make_unique<PostProcessorSequence>(std::move(stages));
}

}  // namespace qkv::text
