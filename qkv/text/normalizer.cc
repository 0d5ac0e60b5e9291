#include "qkv/text/normalizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "qkv/base/base64.h"
#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/charsmap.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

// Ordering n combining marks takes n^2 steps, so longer runs, which no language has, are cut.
constexpr size_t kLongestSegment = 2048;  // bytes

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// One of the four Unicode normal forms. Alignment is as fine as the segments that can be normalized
// independently. Bytes that are not UTF-8 are left unchanged.
class UnicodeForm : public Normalizer {
 public:
  UnicodeForm(NormalForm form, std::string name) : form_(form), name_(std::move(name)) {}

  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    if (is_ascii(in)) return text;
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const Range segment = segment_at(in, i);
      const std::string_view old = in.substr(segment.begin, segment.size());
      const bool changes = !is_ascii(old) && character_at(in, i).valid();
      if (const std::string normal = changes ? to_normal_form(old, form_) : ""; changes && normal != old) {
        out.replace(segment, normal);
      } else {
        out.keep(segment);
      }
      i = segment.end;
    }
    return std::move(out).finish();
  }

  OrderedJson to_json() const override { return {{"type", name_}}; }

 private:
  static Range segment_at(std::string_view text, size_t begin) {
    const Character first = character_at(text, begin);
    size_t end = begin + first.length;
    while (first.valid() && end < text.size() && end - begin < kLongestSegment) {
      const Character next = character_at(text, end);
      if (!next.valid() || starts_normalization_segment(next.codepoint)) break;
      end += next.length;
    }
    return {begin, end};
  }

  NormalForm form_;
  std::string name_;
};

class Lowercase : public Normalizer {
 public:
  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    Rewriter out(text);
    std::string lower;
    for (size_t i = 0; i < in.size();) {
      const Character c = character_at(in, i);
      const Range at{i, i + c.length};
      if (c.valid()) {
        lower.clear();
        append_lowercase(lower, c.codepoint);
        out.replace(at, lower);
      } else {
        out.keep(at);
      }
      i = at.end;
    }
    return std::move(out).finish();
  }

  OrderedJson to_json() const override { return {{"type", "Lowercase"}}; }
};

// BERT's normalization. Each flag is a step, in the order of the members.
class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const JsonField& field)
      : clean_text_(field.boolean_or("clean_text", true)),
        handle_chinese_chars_(field.boolean_or("handle_chinese_chars", true)),
        lowercase_(field.boolean_or("lowercase", true)) {
    if (const auto strip = field.find("strip_accents")) strip_accents_ = strip->boolean();
  }

  AlignedText normalize(AlignedText text) const override {
    if (clean_text_ || handle_chinese_chars_) text = respace(text);
    if (strip_accents_.value_or(lowercase_) && !is_ascii(text.view())) {
      text = without_marks(UnicodeForm(NormalForm::kNfd, "NFD").normalize(std::move(text)));
    }
    return lowercase_ ? Lowercase().normalize(std::move(text)) : text;
  }

  OrderedJson to_json() const override {
    return {{"type", "BertNormalizer"},
            {"clean_text", clean_text_},
            {"handle_chinese_chars", handle_chinese_chars_},
            {"strip_accents", strip_accents_ ? OrderedJson(*strip_accents_) : OrderedJson(nullptr)},
            {"lowercase", lowercase_}};
  }

 private:
  // Drops control characters, replaces white space with plain spaces and puts spaces around CJK ideographs.
  AlignedText respace(const AlignedText& text) const {
    const std::string_view in = text.view();
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const Character c = character_at(in, i);
      const Range at{i, i + c.length};
      const bool blank = c.codepoint == '\t' || c.codepoint == '\n' || c.codepoint == '\r';
      if (clean_text_ && !blank && (c.codepoint == 0xFFFD || is_other(c.codepoint))) {
        out.replace(at, "");
      } else if (clean_text_ && is_space(c.codepoint)) {
        out.replace(at, " ");
      } else if (handle_chinese_chars_ && is_cjk_ideograph(c.codepoint)) {
        out.replace({at.begin, at.begin}, " ");
        out.keep(at);
        out.replace({at.end, at.end}, " ");
      } else {
        out.keep(at);
      }
      i = at.end;
    }
    return std::move(out).finish();
  }

  static AlignedText without_marks(const AlignedText& text) {
    const std::string_view in = text.view();
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const Character c = character_at(in, i);
      const Range at{i, i + c.length};
      if (is_nonspacing_mark(c.codepoint)) {
        out.replace(at, "");
      } else {
        out.keep(at);
      }
      i = at.end;
    }
    return std::move(out).finish();
  }

  bool clean_text_, handle_chinese_chars_;
  std::optional<bool> strip_accents_;  // absent: same as lowercase_
  bool lowercase_;
};

// Replaces a string, or the matches of a regular expression.
class ReplaceNormalizer : public Normalizer {
 public:
  explicit ReplaceNormalizer(const JsonField& field) : content_(field["content"].string()) {
    const JsonField pattern = field["pattern"];
    if (const auto string = pattern.find("String")) {
      string_ = string->string();
    } else {
      regex_.emplace(pattern["Regex"].string());
    }
    if (content_.size() > kLongestContent) field["content"].refuse("at most 1024 bytes");
  }

  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    const size_t most = kMostGrown + 16 * text.source_range({0, in.size()}).size();
    Rewriter out(text);
    size_t done = 0;
    for (const Range match : find_all(in)) {
      if (match.begin > done) out.keep({done, match.begin});
      out.replace(match, content_);
      done = match.end;
      check(out.size() <= most, "encode: normalizer: replacing takes over {} bytes", most);
    }
    if (done == 0) return text;
    if (done < in.size()) out.keep({done, in.size()});
    return std::move(out).finish();
  }

  OrderedJson to_json() const override {
    OrderedJson pattern = {{"String", string_}};
    if (regex_) pattern = {{"Regex", regex_->pattern()}};
    return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content_}};
  }

 private:
  static constexpr size_t kLongestContent = 1024;        // bytes
  static constexpr size_t kMostGrown = size_t{1} << 26;  // bytes, in addition to 16 times the source

  std::vector<Range> find_all(std::string_view text) const {
    if (regex_) return regex_->find_all(text);
    std::vector<Range> matches;
    if (string_.empty()) return matches;
    for (size_t at = 0; (at = text.find(string_, at)) != text.npos; at += string_.size())
      matches.push_back({at, at + string_.size()});
    return matches;
  }

  std::string string_, content_;
  std::optional<Regex> regex_;
};

// Rewrites a text character by character: f(character, its bytes) returns the replacement, which may be
// empty.
template <typename F>
AlignedText map_characters(const AlignedText& text, const F& f) {
  const std::string_view in = text.view();
  Rewriter out(text);
  for (size_t i = 0; i < in.size();) {
    const Character c = character_at(in, i);
    const Range at{i, i + c.length};
    const std::string_view old = in.substr(i, c.length), by = f(c.codepoint, old);
    if (by.data() == old.data()) {
      out.keep(at);
    } else {
      out.replace(at, by);
    }
    i = at.end;
  }
  return std::move(out).finish();
}

// Removes every mark (M*).
class StripAccents : public Normalizer {
 public:
  AlignedText normalize(AlignedText text) const override {
    if (is_ascii(text.view())) return text;
    return map_characters(text, [](int32_t c, std::string_view old) { return is_mark(c) ? "" : old; });
  }
  OrderedJson to_json() const override { return {{"type", "StripAccents"}}; }
};

// Cleaning for neural machine translation: drops control characters and makes blanks plain spaces.
class Nmt : public Normalizer {
 public:
  AlignedText normalize(AlignedText text) const override {
    return map_characters(text, [](int32_t c, std::string_view old) -> std::string_view {
      if (is_control(c)) return "";
      return is_blank(c) ? " " : old;
    });
  }
  OrderedJson to_json() const override { return {{"type", "Nmt"}}; }

 private:
  static bool is_control(int32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
           c == 0x9F;
  }
  static bool is_blank(int32_t c) {
    return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 || (c >= 0x200B && c <= 0x200F) ||
           c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  }
};

// Removes white space at the ends.
class Strip : public Normalizer {
 public:
  explicit Strip(const JsonField& field)
      : left_(field.boolean_or("strip_left", true)), right_(field.boolean_or("strip_right", true)) {}

  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    size_t begin = in.size(), end = 0;  // range without white space at the ends
    for (size_t i = 0; i < in.size();) {
      const Character c = character_at(in, i);
      if (!is_space(c.codepoint)) {
        begin = std::min(begin, i);
        end = i + c.length;
      }
      i += c.length;
    }
    if (!left_) begin = 0;
    if (!right_) end = in.size();
    if (begin == 0 && end == in.size()) return text;
    Rewriter out(text);
    if (begin > 0) out.replace({0, begin}, "");
    if (begin < end) out.keep({begin, end});
    return std::move(out).finish();
  }

  OrderedJson to_json() const override {
    return {{"type", "Strip"}, {"strip_left", left_}, {"strip_right", right_}};
  }

 private:
  bool left_, right_;
};

// Puts a string before every text that is not empty.
class Prepend : public Normalizer {
 public:
  explicit Prepend(const JsonField& field) : prepend_(field["prepend"].string()) {
    if (prepend_.size() > kLongestPrepend) field["prepend"].refuse("at most 1024 bytes");
  }

  AlignedText normalize(AlignedText text) const override {
    if (text.view().empty()) return text;
    Rewriter out(text);
    out.replace({0, 0}, prepend_);
    out.keep({0, text.view().size()});
    return std::move(out).finish();
  }

  OrderedJson to_json() const override { return {{"type", "Prepend"}, {"prepend", prepend_}}; }

 private:
  static constexpr size_t kLongestPrepend = 1024;  // bytes
  std::string prepend_;
};

// SentencePiece's charsmap as Hugging Face's library applies it. A short grapheme is replaced as a whole,
// by the rule for the shortest prefix that has one. Otherwise its characters are replaced one by one.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(const JsonField& field)
      : charsmap_(parse_bytes(field["precompiled_charsmap"]), field["precompiled_charsmap"].place()) {}

  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const size_t end = grapheme_end(in, i);
      if (end - i < kLongGrapheme && replace_whole(in, {i, end}, out)) {
        i = end;
        continue;
      }
      while (i < end) {
        const Range at{i, i + character_at(in, i).length};
        if (!replace_whole(in, at, out)) out.keep(at);
        i = at.end;
      }
    }
    return std::move(out).finish();
  }

  OrderedJson to_json() const override {
    return {{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(charsmap_.bytes())}};
  }

 private:
  static constexpr size_t kLongGrapheme = 6;  // bytes

  static std::string parse_bytes(const JsonField& field) {
    std::optional<std::string> bytes = from_base64(field.string());
    if (!bytes) field.refuse("bytes in base64");
    return std::move(*bytes);
  }

  bool replace_whole(std::string_view text, Range at, Rewriter& out) const {
    const auto rule = charsmap_.shortest(text.substr(at.begin, at.size()));
    if (rule) out.replace(at, rule->by);
    return rule.has_value();
  }

  Charsmap charsmap_;
};

// Every byte becomes its character in the byte alphabet.
class ByteLevelNormalizer : public Normalizer {
 public:
  AlignedText normalize(AlignedText text) const override {
    const std::string_view in = text.view();
    Rewriter out(text);
    for (size_t i = 0; i < in.size();) {
      const Range at{i, i + character_at(in, i).length};
      const std::string_view old = in.substr(at.begin, at.size());
      const std::string by = spell_bytes(old);
      if (by == old) {
        out.keep(at);
      } else {
        out.replace(at, by);
      }
      i = at.end;
    }
    return std::move(out).finish();
  }
  bool spells_bytes() const override { return true; }

  OrderedJson to_json() const override { return {{"type", "ByteLevel"}}; }
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> stages) : stages_(std::move(stages)) {}

  AlignedText normalize(AlignedText text) const override {
    for (const auto& stage : stages_) text = stage->normalize(std::move(text));
    return text;
  }
  bool spells_bytes() const override {
    return std::ranges::any_of(stages_, [](const auto& stage) { return stage->spells_bytes(); });
  }

  OrderedJson to_json() const override {
    OrderedJson stages = OrderedJson::array();
    for (const auto& stage : stages_) stages.push_back(stage->to_json());
    return {{"type", "Sequence"}, {"normalizers", std::move(stages)}};
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> stages_;
};

}  // namespace

std::unique_ptr<Normalizer> parse_normalizer(const JsonField& field) {
  static constexpr std::array<std::string_view, 14> kSupported = {
      "Precompiled", "Prepend", "Strip", "StripAccents", "Nmt",       "Replace",   "BertNormalizer",
      "NFC",         "NFD",     "NFKC",  "NFKD",         "Lowercase", "ByteLevel", "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc, type);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd, type);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc, type);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd, type);
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(field);
  if (type == "Precompiled") return std::make_unique<Precompiled>(field);
  if (type == "Prepend") return std::make_unique<Prepend>(field);
  if (type == "Strip") return std::make_unique<Strip>(field);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(field);
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<Normalizer>> stages;
  const JsonField list = field["normalizers"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_normalizer(list.at(i)));
  // A second one would spell out the spelling of the first, which doubles the text.
  if (std::ranges::count_if(stages, [](const auto& stage) { return stage->spells_bytes(); }) > 1)
    list.refuse("at most one ByteLevel stage");
  return std::make_unique<NormalizerSequence>(std::move(stages));
}

}  // namespace qkv::text
