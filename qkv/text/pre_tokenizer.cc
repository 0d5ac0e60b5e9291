#include "qkv/text/pre_tokenizer.h"

#include <algorithm>
#include <array>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/text/byte_alphabet.h"
#include "qkv/text/gpt2_pattern.h"
#include "qkv/text/unicode.h"
#include "qkv/text/unicode_scripts.h"

namespace qkv::text {
namespace {

class ByteLevelWords : public PreTokenizer {
 public:
  explicit ByteLevelWords(const JsonField& field)
      : add_prefix_space_(field["add_prefix_space"].boolean()),
        trim_offsets_(field["trim_offsets"].boolean()),
        use_regex_(field.boolean_or("use_regex", true)) {}

  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    if (add_prefix_space_) add_prefix_space(list);
    if (use_regex_) split_by_pattern(list);
    list.bytes = true;
  }

  bool takes_any_bytes() const override { return true; }

  OrderedJson to_json() const override {
    return {{"type", "ByteLevel"},
            {"add_prefix_space", add_prefix_space_},
            {"trim_offsets", trim_offsets_},
            {"use_regex", use_regex_}};
  }

 private:
  static void add_prefix_space(PieceList& list) {
    const std::string_view text = list.text.view();
    const auto lacks_space = [&](Range r) { return r.size() > 0 && text[r.begin] != ' '; };
    if (std::none_of(list.pieces.begin(), list.pieces.end(), lacks_space)) return;
    Rewriter out(list.text);
    for (Range& piece : list.pieces) {
      const size_t begin = out.size();
      if (lacks_space(piece)) out.replace({piece.begin, piece.begin}, " ");
      out.keep(piece);
      piece = {begin, out.size()};
    }
    list.text = std::move(out).finish();
  }

  static void split_by_pattern(PieceList& list) {
    std::vector<Range> pieces;
    pieces.reserve(list.text.view().size() / 4);
    for (const Range piece : list.pieces) {
      const std::string_view part = list.text.view().substr(0, piece.end);
      for (size_t at = piece.begin; at < piece.end;) {
        const size_t end = gpt2_match_end(part, at);
        pieces.push_back({at, end});
        at = end;
      }
    }
    list.pieces = std::move(pieces);
  }

  bool add_prefix_space_, trim_offsets_, use_regex_;
};

// Runs of characters other than White_Space.
class WhitespaceSplit : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    const std::string_view text = list.text.view();
    std::vector<Range> pieces;
    for (const Range piece : list.pieces) {
      size_t word = piece.begin;
      for (size_t i = piece.begin; i < piece.end;) {
        const Character c = character_at(text, i);
        if (is_space(c.codepoint)) {
          if (i > word) pieces.push_back({word, i});
          word = i + c.length;
        }
        i += c.length;
      }
      if (piece.end > word) pieces.push_back({word, piece.end});
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override { return {{"type", "WhitespaceSplit"}}; }
};

// \w+|[^\w\s]+ : words and runs of punctuation.
class Whitespace : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    const std::string_view text = list.text.view();
    std::vector<Range> pieces;
    for (const Range piece : list.pieces) {
      Kind kind = Kind::kSpace;
      size_t begin = piece.begin;
      for (size_t i = piece.begin; i < piece.end;) {
        const Character c = character_at(text, i);
        const Kind next = kind_of(c.codepoint);
        if (next != kind) {
          if (kind != Kind::kSpace) pieces.push_back({begin, i});
          begin = i;
          kind = next;
        }
        i += c.length;
      }
      if (kind != Kind::kSpace) pieces.push_back({begin, piece.end});
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override { return {{"type", "Whitespace"}}; }

 private:
  enum class Kind { kSpace, kWord, kPunctuation };
  static Kind kind_of(int32_t codepoint) {
    if (is_space(codepoint)) return Kind::kSpace;
    return is_word_character(codepoint) ? Kind::kWord : Kind::kPunctuation;
  }
};

// Unicode calls $, + and similar characters symbols; BERT counts all of ASCII's signs as punctuation.
bool is_bert_punctuation(int32_t c) {
  if (c >= 0x80) return is_punctuation(c);
  return c > ' ' && c < 0x7F && !(c >= '0' && c <= '9') && !(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z');
}

// Words, and every punctuation character on its own.
class BertPreTokenizer : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    const std::string_view text = list.text.view();
    std::vector<Range> pieces;
    for (const Range piece : list.pieces) {
      size_t word = piece.begin;
      for (size_t i = piece.begin; i < piece.end;) {
        const Character c = character_at(text, i);
        const bool punctuation = is_bert_punctuation(c.codepoint);
        if (punctuation || is_space(c.codepoint)) {
          if (i > word) pieces.push_back({word, i});
          word = i + c.length;
        }
        if (punctuation) pieces.push_back({i, i + c.length});
        i += c.length;
      }
      if (piece.end > word) pieces.push_back({word, piece.end});
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override { return {{"type", "BertPreTokenizer"}}; }
};

// Runs of characters of one script. A character without a script belongs to the run before it, and is
// dropped before the first run.
class UnicodeScripts : public PreTokenizer {
 public:
  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    const std::string_view text = list.text.view();
    std::vector<Range> pieces;
    for (const Range piece : list.pieces) {
      uint8_t run = kNoScript;
      size_t begin = piece.begin;
      for (size_t i = piece.begin; i < piece.end;) {
        const Character c = character_at(text, i);
        const uint8_t script = script_of(c.codepoint);
        if (script != kNoScript && script != run) {
          if (run != kNoScript) pieces.push_back({begin, i});
          begin = i;
          run = script;
        }
        i += c.length;
      }
      if (run != kNoScript) pieces.push_back({begin, piece.end});
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override { return {{"type", "UnicodeScripts"}}; }
};

// A part of a text that a pattern matched, or the part between two matches.
struct Stretch {
  Range range;
  bool matched;
};

// How matches and the text between them become pieces.
class Behavior {
 public:
  explicit Behavior(const JsonField& field) : name_(field.string()), apply_(find(name_)) {
    if (apply_ == nullptr) field.refuse_type(name_, kSupported);
  }
  // REQUIRES: `name` is supported.
  explicit Behavior(const char* name) : name_(name), apply_(find(name_)) {}

  const std::string& name() const { return name_; }
  void apply(const std::vector<Stretch>& stretches, std::vector<Range>& out) const { apply_(stretches, out); }

 private:
  using Apply = void (*)(const std::vector<Stretch>&, std::vector<Range>&);
  static constexpr std::array<std::string_view, 5> kSupported = {"Removed", "Isolated", "MergedWithPrevious",
                                                                 "MergedWithNext", "Contiguous"};

  static Apply find(const std::string& name) {
    static constexpr std::array<Apply, 5> kApply = {removed, isolated, merged_with_previous, merged_with_next,
                                                    contiguous};
    const auto it = std::find(kSupported.begin(), kSupported.end(), name);
    return it == kSupported.end() ? nullptr : kApply[static_cast<size_t>(it - kSupported.begin())];
  }

  static void push(Range range, std::vector<Range>& out) {
    if (range.size() > 0) out.push_back(range);
  }

  static void removed(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
    for (const Stretch& s : stretches) {
      if (!s.matched) push(s.range, out);
    }
  }

  static void isolated(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
    for (const Stretch& s : stretches) push(s.range, out);
  }

  static void merged_with_previous(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
    for (size_t i = 0; i < stretches.size(); ++i) {
      Range range = stretches[i].range;
      if (!stretches[i].matched && i + 1 < stretches.size() && stretches[i + 1].matched) {
        range.end = stretches[++i].range.end;
      }
      push(range, out);
    }
  }

  static void merged_with_next(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
    for (size_t i = 0; i < stretches.size(); ++i) {
      Range range = stretches[i].range;
      if (stretches[i].matched && i + 1 < stretches.size() && !stretches[i + 1].matched) {
        range.end = stretches[++i].range.end;
      }
      push(range, out);
    }
  }

  static void contiguous(const std::vector<Stretch>& stretches, std::vector<Range>& out) {
    for (size_t i = 0; i < stretches.size();) {
      Range range = stretches[i].range;
      const bool matched = stretches[i].matched;
      for (++i; i < stretches.size() && stretches[i].matched == matched; ++i)
        range.end = stretches[i].range.end;
      push(range, out);
    }
  }

  std::string name_;
  Apply apply_;
};

// Finds where to cut a text: the matches of a regular expression or the occurrences of a string.
class Pattern {
 public:
  virtual ~Pattern() = default;
  virtual std::vector<Range> find_all(std::string_view text) const = 0;
  virtual OrderedJson to_json() const = 0;
};

class RegexPattern : public Pattern {
 public:
  explicit RegexPattern(const std::string& pattern) : regex_(pattern) {}
  std::vector<Range> find_all(std::string_view text) const override { return regex_.find_all(text); }
  OrderedJson to_json() const override { return {{"Regex", regex_.pattern()}}; }

 private:
  Regex regex_;
};

// GPT-2's pattern in a Split, which is the pattern that ByteLevel has built in.
class Gpt2Pattern : public Pattern {
 public:
  std::vector<Range> find_all(std::string_view text) const override {
    std::vector<Range> matches;
    for (size_t i = 0; i < text.size();) {
      const size_t end = gpt2_match_end(text, i);
      matches.push_back({i, end});
      i = end;
    }
    return matches;
  }
  OrderedJson to_json() const override { return {{"Regex", kGpt2Pattern}}; }
};

// Any one character: the pattern of character tokenizers.
constexpr std::string_view kAnyCharacter = R"([\s\S])";

class AnyCharacterPattern : public Pattern {
 public:
  std::vector<Range> find_all(std::string_view text) const override {
    std::vector<Range> matches;
    matches.reserve(text.size());
    for (size_t i = 0; i < text.size();) {
      const size_t end = i + character_at(text, i).length;
      matches.push_back({i, end});
      i = end;
    }
    return matches;
  }
  OrderedJson to_json() const override { return {{"Regex", kAnyCharacter}}; }
};

class StringPattern : public Pattern {
 public:
  explicit StringPattern(std::string string) : string_(std::move(string)) {}
  std::vector<Range> find_all(std::string_view text) const override {
    std::vector<Range> matches;
    if (string_.empty()) return matches;
    for (size_t at = 0; (at = text.find(string_, at)) != text.npos; at += string_.size()) {
      matches.push_back({at, at + string_.size()});
    }
    return matches;
  }
  OrderedJson to_json() const override { return {{"String", string_}}; }

 private:
  std::string string_;
};

// Characters that have a property.
class CharacterPattern : public Pattern {
 public:
  using IsOne = bool (*)(int32_t codepoint);
  explicit CharacterPattern(IsOne is_one) : is_one_(is_one) {}
  std::vector<Range> find_all(std::string_view text) const override {
    std::vector<Range> matches;
    for (size_t i = 0; i < text.size();) {
      const Character c = character_at(text, i);
      if (is_one_(c.codepoint)) matches.push_back({i, i + c.length});
      i += c.length;
    }
    return matches;
  }
  OrderedJson to_json() const override { return nullptr; }  // its stage has a name of its own

 private:
  IsOne is_one_;
};

constexpr size_t kLongestString = 1024;  // bytes; bounds the work at each position of a text

std::unique_ptr<Pattern> parse_pattern(const JsonField& field) {
  if (const auto string = field.find("String")) {
    if (string->string().size() > kLongestString) string->refuse("at most 1024 bytes");
    return std::make_unique<StringPattern>(string->string());
  }
  const std::string& regex = field["Regex"].string();
  if (regex == kGpt2Pattern) return std::make_unique<Gpt2Pattern>();
  if (regex == kAnyCharacter) return std::make_unique<AnyCharacterPattern>();
  return std::make_unique<RegexPattern>(regex);
}

class Split : public PreTokenizer {
 public:
  explicit Split(const JsonField& field)
      : pattern_(parse_pattern(field["pattern"])),
        behavior_(field["behavior"]),
        invert_(field.boolean_or("invert", false)) {}
  Split(std::unique_ptr<Pattern> pattern, Behavior behavior)
      : pattern_(std::move(pattern)), behavior_(std::move(behavior)), invert_(false) {}

  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    std::vector<Range> pieces;
    std::vector<Stretch> stretches;
    for (size_t i = 0; i < list.pieces.size(); ++i) {
      cut(list.piece(i), list.pieces[i].begin, stretches);
      behavior_.apply(stretches, pieces);
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override {
    return {{"type", "Split"},
            {"pattern", pattern_->to_json()},
            {"behavior", behavior_.name()},
            {"invert", invert_}};
  }

 private:
  void cut(std::string_view piece, size_t offset, std::vector<Stretch>& out) const {
    out.clear();
    size_t at = 0;
    for (const Range match : pattern_->find_all(piece)) {
      if (match.begin > at) out.push_back({{offset + at, offset + match.begin}, invert_});
      out.push_back({{offset + match.begin, offset + match.end}, !invert_});
      at = match.end;
    }
    if (at < piece.size()) out.push_back({{offset + at, offset + piece.size()}, invert_});
  }

  std::unique_ptr<Pattern> pattern_;
  Behavior behavior_;
  bool invert_;
};

// Separates numbers (Unicode's Nd, Nl and No) from the rest: each digit, or each run of them.
class Digits : public Split {
 public:
  explicit Digits(const JsonField& field) : Digits(field.boolean_or("individual_digits", false)) {}
  OrderedJson to_json() const override { return {{"type", "Digits"}, {"individual_digits", each_}}; }

 private:
  explicit Digits(bool each)
      : Split(std::make_unique<CharacterPattern>(is_number), Behavior(each ? "Isolated" : "Contiguous")),
        each_(each) {}
  bool each_;
};

class Punctuation : public Split {
 public:
  explicit Punctuation(const JsonField& field)
      : Split(std::make_unique<CharacterPattern>(is_bert_punctuation), behavior_of(field)),
        behavior_(behavior_of(field).name()) {}
  OrderedJson to_json() const override { return {{"type", "Punctuation"}, {"behavior", behavior_}}; }

 private:
  static Behavior behavior_of(const JsonField& field) {
    return field.find("behavior") ? Behavior(field["behavior"]) : Behavior("Isolated");
  }
  std::string behavior_;
};

// Splits at each occurrence of a character, which is removed.
class CharDelimiterSplit : public Split {
 public:
  explicit CharDelimiterSplit(const JsonField& field)
      : Split(std::make_unique<StringPattern>(delimiter_of(field)), Behavior("Removed")),
        delimiter_(delimiter_of(field)) {}
  OrderedJson to_json() const override { return {{"type", "CharDelimiterSplit"}, {"delimiter", delimiter_}}; }

 private:
  static const std::string& delimiter_of(const JsonField& field) {
    const JsonField delimiter = field["delimiter"];
    if (count_characters(delimiter.string()) != 1) delimiter.refuse("one character");
    return delimiter.string();
  }
  std::string delimiter_;
};

// SentencePiece's treatment of spaces: each becomes a mark, and a word begins with a mark.
class Metaspace : public PreTokenizer {
 public:
  explicit Metaspace(const JsonField& field)
      : replacement_(field.string_or("replacement", "\xE2\x96\x81")),
        split_(field.boolean_or("split", true)) {
    if (count_characters(replacement_) != 1) field["replacement"].refuse("one character");
    // Older files have add_prefix_space instead.
    scheme_ =
        field.string_or("prepend_scheme", field.boolean_or("add_prefix_space", true) ? "always" : "never");
    if (std::find(kSchemes.begin(), kSchemes.end(), scheme_) == kSchemes.end())
      field["prepend_scheme"].refuse_type(scheme_, kSchemes);
  }

  void split(PieceList& list) const override {
    if (list.bytes) list.spell_out();
    mark(list);
    if (!split_) return;
    const std::string_view text = list.text.view();
    std::vector<Range> pieces;
    for (const Range piece : list.pieces) {
      size_t begin = piece.begin;
      const std::string_view part = text.substr(0, piece.end);
      while (begin < piece.end) {
        const size_t end = std::min(part.find(replacement_, begin + 1), piece.end);
        pieces.push_back({begin, end});
        begin = end;
      }
    }
    list.pieces = std::move(pieces);
  }

  OrderedJson to_json() const override {
    return {
        {"type", "Metaspace"}, {"replacement", replacement_}, {"prepend_scheme", scheme_}, {"split", split_}};
  }

 private:
  static constexpr std::array<std::string_view, 3> kSchemes = {"always", "first", "never"};

  void mark(PieceList& list) const {
    const std::string_view text = list.text.view();
    Rewriter out(list.text);
    for (Range& piece : list.pieces) {
      const size_t begin = out.size();
      const std::string_view part = text.substr(piece.begin, piece.size());
      const bool here =
          scheme_ == "always" ||
          (scheme_ == "first" && list.text.source_range({piece.begin, piece.begin + 1}).begin == 0);
      if (here && !part.starts_with(' ') && !part.starts_with(replacement_))
        out.replace({piece.begin, piece.begin}, replacement_);
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t space = std::min(text.find(' ', i), piece.end);
        if (space > i) out.keep({i, space});
        if (space < piece.end) out.replace({space, space + 1}, replacement_);
        i = space + 1;
      }
      piece = {begin, out.size()};
    }
    list.text = std::move(out).finish();
  }

  std::string replacement_, scheme_;
  bool split_;
};

class PreTokenizerSequence : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> stages)
      : stages_(std::move(stages)) {}

  void split(PieceList& list) const override {
    for (const auto& stage : stages_) stage->split(list);
  }

  bool takes_any_bytes() const override {
    return std::any_of(stages_.begin(), stages_.end(), [](const auto& s) { return s->takes_any_bytes(); });
  }

  OrderedJson to_json() const override {
    OrderedJson stages = OrderedJson::array();
    for (const auto& stage : stages_) stages.push_back(stage->to_json());
    return {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> stages_;
};

}  // namespace

PieceList::PieceList(AlignedText whole) : text(std::move(whole)) {
  if (!text.view().empty()) pieces.push_back({0, text.view().size()});
}

void PieceList::spell_out() {
  Rewriter out(text);
  for (Range& piece : pieces) {
    const size_t begin = out.size();
    for (size_t i = piece.begin; i < piece.end; ++i) {
      out.replace({i, i + 1}, spell_bytes(text.view().substr(i, 1)));
    }
    piece = {begin, out.size()};
  }
  text = std::move(out).finish();
  bytes = false;
}

std::unique_ptr<PreTokenizer> parse_pre_tokenizer(const JsonField& field) {
  static constexpr std::array<std::string_view, 11> kSupported = {
      "Metaspace", "ByteLevel",   "Whitespace",         "WhitespaceSplit", "BertPreTokenizer", "Split",
      "Digits",    "Punctuation", "CharDelimiterSplit", "UnicodeScripts",  "Sequence"};
  const std::string& type = field["type"].string();
  if (type == "ByteLevel") return std::make_unique<ByteLevelWords>(field);
  if (type == "UnicodeScripts") return std::make_unique<UnicodeScripts>();
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "Metaspace") return std::make_unique<Metaspace>(field);
  if (type == "Split") return std::make_unique<Split>(field);
  if (type == "Digits") return std::make_unique<Digits>(field);
  if (type == "Punctuation") return std::make_unique<Punctuation>(field);
  if (type == "CharDelimiterSplit") return std::make_unique<CharDelimiterSplit>(field);
  if (type != "Sequence") field["type"].refuse_type(type, kSupported);
  std::vector<std::unique_ptr<PreTokenizer>> stages;
  const JsonField list = field["pretokenizers"];
  for (size_t i = 0; i < list.size(); ++i) stages.push_back(parse_pre_tokenizer(list.at(i)));
  // A second one would spell out the spelling of the first, which makes no sense and grows exponentially.
  const auto takes_bytes = [](const auto& stage) { return stage->takes_any_bytes(); };
  if (std::count_if(stages.begin(), stages.end(), takes_bytes) > 1)
    list.refuse("at most one ByteLevel stage");
  return std::make_unique<PreTokenizerSequence>(std::move(stages));
}

}  // namespace qkv::text
