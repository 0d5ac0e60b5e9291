#include "qkv/chat/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text::jinja {
namespace {

constexpr std::string_view kWhite = " \t\r\n\v\f";

bool is_white(char c) {
  return kWhite.find(c) != kWhite.npos;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      add_text(tag);
      if (tag == source_.size()) break;
      const char kind = source_[tag + 1];
      at_ = tag + 2;
      if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
      if (kind == '#')
        skip_comment();
      else if (kind == '%' && is_raw())
        add_raw();
      else
        add_tag(kind);
    }
    push(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  void push(Token::Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }
  [[noreturn]] void refuse(const std::string& what) const { fail("line {}: {}", line_, what); }

  // Position of the next {{, {% or {#, or the end.
  size_t next_tag() const {
    for (size_t i = at_; (i = source_.find('{', i)) != source_.npos && i + 1 < source_.size(); ++i)
      if (std::string_view("{%#").find(source_[i + 1]) != std::string_view::npos) return i;
    return source_.size();
  }

  // Adds the text up to a tag, without the white space that the tags on both sides remove.
  void add_text(size_t tag) {
    std::string_view text = source_.substr(at_, tag - at_);
    const size_t line = line_;
    count_lines(text);
    if (strip_) text.remove_prefix(std::min(text.find_first_not_of(kWhite), text.size()));
    if (tag < source_.size()) {
      const char kind = source_[tag + 1], sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kWhite) + 1);
      } else if (kind != '{' && sign != '+') {
        const size_t begin = text.rfind('\n') + 1;
        if ((begin > 0 || line_begins_) && text.substr(begin).find_first_not_of(kWhite) == text.npos)
          text = text.substr(0, begin);
      }
    }
    if (!text.empty()) tokens_.push_back({Token::Kind::text, std::string(text), line});
  }

  void count_lines(std::string_view text) {
    line_ += static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  // Called after the end of a tag with the last sign `sign`. `trims`: the tag removes a newline.
  void after_tag(char sign, bool trims) {
    strip_ = sign == '-';
    line_begins_ = false;
    if (strip_) {
      const size_t end = std::min(source_.find_first_not_of(kWhite, at_), source_.size());
      line_begins_ = end > at_ && source_[end - 1] == '\n';
    } else if (trims && sign != '+' && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
      ++line_;
      line_begins_ = true;
    }
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) refuse("a comment does not end");
    count_lines(source_.substr(at_, end - at_));
    at_ = end + 2;
    after_tag(source_[end - 1], true);
  }

  // If `word` and the end of the tag follow {% and its sign, returns the position after them, else npos.
  size_t lone_keyword(size_t at, std::string_view word) const {
    at = std::min(source_.find_first_not_of(kWhite, at), source_.size());
    if (source_.substr(at, word.size()) != word) return source_.npos;
    at = std::min(source_.find_first_not_of(kWhite, at + word.size()), source_.size());
    if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
    return source_.substr(at, 2) == "%}" ? at + 2 : source_.npos;
  }
  bool is_raw() const { return lone_keyword(at_, "raw") != source_.npos; }

  void add_raw() {
    const size_t begin = lone_keyword(at_, "raw");
    for (size_t tag = begin; (tag = source_.find("{%", tag)) != source_.npos; ++tag) {
      size_t inside = tag + 2;
      if (inside < source_.size() && (source_[inside] == '-' || source_[inside] == '+')) ++inside;
      const size_t end = lone_keyword(inside, "endraw");
      if (end == source_.npos) continue;
      at_ = begin;
      after_tag(source_[begin - 3], false);
      add_text(tag);
      at_ = end;
      after_tag(source_[end - 3], true);
      return;
    }
    refuse("a raw block does not end");
  }

  void add_tag(char kind) {
    const bool block = kind == '%';
    const std::string_view close = block ? "%}" : "}}";
    push(block ? Token::Kind::block_begin : Token::Kind::variable_begin, std::string("{") + kind);
    for (int depth = 0;;) {
      skip_white();
      if (at_ >= source_.size()) refuse(fmt::format("expected '{}'", close));
      const bool signed_end =
          (source_[at_] == '-' || source_[at_] == '+') && source_.substr(at_ + 1, 2) == close;
      if (depth == 0 && (signed_end || source_.substr(at_, 2) == close)) {
        const char sign = signed_end ? source_[at_] : ' ';
        at_ += signed_end ? 3 : 2;
        push(block ? Token::Kind::block_end : Token::Kind::variable_end, std::string(close));
        return after_tag(sign, block);
      }
      const char c = source_[at_];
      if (c == '(' || c == '[' || c == '{') ++depth;
      if (c == ')' || c == ']' || c == '}') --depth;
      if (depth < 0) refuse(fmt::format("'{}' closes nothing", c));
      add_token();
    }
  }

  void skip_white() {
    while (at_ < source_.size() && is_white(source_[at_])) line_ += source_[at_++] == '\n';
  }

  void add_token() {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return add_string(c);
    if (is_digit(c)) return add_number();
    if (is_name_start(c)) {
      const size_t begin = at_;
      while (at_ < source_.size() && (is_name_start(source_[at_]) || is_digit(source_[at_]))) ++at_;
      return push(Token::Kind::name, std::string(source_.substr(begin, at_ - begin)));
    }
    static constexpr std::array<std::string_view, 6> kDouble = {"==", "!=", "<=", ">=", "//", "**"};
    const std::string_view two = source_.substr(at_, 2);
    if (std::ranges::find(kDouble, two) != kDouble.end()) {
      at_ += 2;
      return push(Token::Kind::sign, std::string(two));
    }
    if (std::string_view("+-*/%~<>=()[]{}.,:|").find(c) == std::string_view::npos)
      refuse(fmt::format("'{}' is no sign of an expression", c));
    ++at_;
    push(Token::Kind::sign, std::string(1, c));
  }

  void add_number() {
    const size_t begin = at_;
    const auto digits = [&] {
      while (at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_')) ++at_;
    };
    digits();
    bool real = false;
    if (at_ + 1 < source_.size() && source_[at_] == '.' && is_digit(source_[at_ + 1])) {
      real = true;
      ++at_;
      digits();
    }
    if (at_ < source_.size() && (source_[at_] == 'e' || source_[at_] == 'E')) {
      size_t next = at_ + 1;
      if (next < source_.size() && (source_[next] == '+' || source_[next] == '-')) ++next;
      if (next < source_.size() && is_digit(source_[next])) {
        real = true;
        at_ = next;
        digits();
      }
    }
    std::string text(source_.substr(begin, at_ - begin));
    std::erase(text, '_');
    push(real ? Token::Kind::real : Token::Kind::integer, text);
  }

  void add_string(char quote) {
    std::string out;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] == '\n') ++line_;
      if (source_[at_] != '\\' || at_ + 1 >= source_.size())
        out += source_[at_];
      else
        add_escape(out);
    }
    if (at_ >= source_.size()) refuse("a string does not end");
    ++at_;
    push(Token::Kind::string, out);
  }

  // Handles Python's escapes; others stay unchanged.
  void add_escape(std::string& out) {
    static constexpr std::string_view kNames = "abfnrtv\\'\"", kMeant = "\a\b\f\n\r\t\v\\'\"";
    const char c = source_[++at_];
    if (const size_t i = kNames.find(c); i != kNames.npos) {
      out += kMeant[i];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      int64_t code = 0;
      for (size_t i = 1; i <= n; ++i) {
        const char digit = at_ + i < source_.size() ? source_[at_ + i] : ' ';
        const size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
        if (value == std::string_view::npos || (digit < '0'))
          refuse(fmt::format("\\{} needs {} digits", c, n));
        code = code * 16 + static_cast<int64_t>(value);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse(fmt::format("\\{}: no character", c));
      append_utf8(out, static_cast<int32_t>(code));
      at_ += n;
    } else if (c == '\n') {
      ++line_;
    } else {
      out += '\\';
      out += c;
    }
  }

  std::string_view source_;
  size_t at_ = 0, line_ = 1;
  bool strip_ = false, line_begins_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::string text;  // with Unix newlines, without the last one
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return Lexer(text).run();
}

}  // namespace qkv::text::jinja
