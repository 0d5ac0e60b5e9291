#include "qkv/text/normalizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/json.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

// Putting n marks in order takes n^2 steps, so a longer heap of them, which no language has, is cut.
constexpr size_t kLongestSegment = 2048;  // bytes

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// One of the four Unicode normal forms. Alignment is as fine as the runs that normalise on their own; bytes
// that are not UTF-8 stay as they are.
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
      if (is_ascii(old) || !character_at(in, i).valid()) {
        out.keep(segment);
      } else if (const std::string normal = to_normal_form(old, form_); normal == old) {
        out.keep(segment);
      } else {
        out.replace(segment, normal);
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

// What BERT does to a text before it is cut. Each flag is a step, in the order of the members.
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
  // Drops control characters, makes white space plain spaces and puts spaces around ideographs.
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
  std::optional<bool> strip_accents_;  // absent: as lowercase
  bool lowercase_;
};

// A string, or the matches of a regular expression, become something else.
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
  static constexpr size_t kMostGrown = size_t{1} << 26;  // bytes, and 16 times the source

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

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> stages) : stages_(std::move(stages)) {}

  AlignedText normalize(AlignedText text) const override {
    for (const auto& stage : stages_) text = stage->normalize(std::move(text));
    return text;
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
  static constexpr std::array<std::string_view, 8> kSupported = {
      "Replace", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc, type);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd, type);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc, type);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd, type);
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(field);
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(field);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<Normalizer>> stages;
  const JsonField list = field["normalizers"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_normalizer(list.at(i)));
  return std::make_unique<NormalizerSequence>(std::move(stages));
}

}  // namespace qkv::text
