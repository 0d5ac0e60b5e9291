#include "qkv/metrics/bleu_tokenizer.h"

#include <algorithm>
#include <array>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

void replace_all(std::string& s, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = s.find(from, at)) != std::string::npos; at += to.size())
    s.replace(at, from.size(), to);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_point(char c) {
  return c == '.' || c == ',';
}
// [\{-\~\[-\` -\&\(-\+\:-\@\/]
bool is_symbol_of_ascii(char c) {
  return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
         (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}
// Python's str.split() treats four control characters as white space, too.
bool is_python_space(int32_t codepoint) {
  return text::is_space(codepoint) || (codepoint >= 0x1C && codepoint <= 0x1F);
}

// Calls f(code point, its bytes) for each character; bytes that are not UTF-8 have a negative code point.
template <typename F>
void for_each_character(std::string_view text, const F& f) {
  for (size_t at = 0; at < text.size();) {
    const text::Character c = text::character_at(text, at);
    f(c.codepoint, text.substr(at, c.length));
    at += c.length;
  }
}

std::vector<std::string> words_between_spaces(std::string_view text) {
  std::vector<std::string> words;
  bool inside = false;
  for_each_character(text, [&](int32_t codepoint, std::string_view bytes) {
    const bool space = is_python_space(codepoint);
    if (!space && !inside) words.emplace_back();
    if (!space) words.back() += bytes;
    inside = !space;
  });
  return words;
}

// The text without white space at the end; with `both` also at the beginning.
std::string_view stripped(std::string_view text, bool both) {
  size_t begin = std::string_view::npos, end = 0, at = 0;
  for_each_character(text, [&](int32_t codepoint, std::string_view bytes) {
    if (!is_python_space(codepoint)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  if (end == 0) return {};
  return both ? text.substr(begin, end - begin) : text.substr(0, end);
}

// Spaces around the two parts of a match.
struct Spaces {
  const char *before, *between, *after;
};

// Adds these spaces to each pair of neighbours in `units` that `matches`; pairs do not overlap.
template <typename Units, typename F>
std::string spaced(const Units& units, const F& matches, const Spaces& spaces) {
  std::string out;
  for (size_t i = 0; i < units.size(); ++i) {
    if (i + 1 == units.size() || !matches(units[i], units[i + 1])) {
      out += units[i];
      continue;
    }
    out += spaces.before;
    out += units[i];
    out += spaces.between;
    out += units[++i];
    out += spaces.after;
  }
  return out;
}

// The expressions that 13a and zh share (tokenizer_re), one after the other. Bytes suffice, because each
// matches ASCII beside any other character.
std::vector<std::string> words_of_western(const std::string& line) {
  std::string s;
  for (const char c : line) is_symbol_of_ascii(c) ? (s += ' ', s += c, s += ' ') : s += c;
  s = spaced(
      s, [](char a, char b) { return !is_digit(a) && is_point(b); }, Spaces{"", " ", " "});
  s = spaced(
      s, [](char a, char b) { return is_point(a) && !is_digit(b); }, Spaces{" ", " ", ""});
  s = spaced(
      s, [](char a, char b) { return is_digit(a) && b == '-'; }, Spaces{"", " ", " "});
  return words_between_spaces(s);
}

std::vector<std::string> words_of_13a(std::string_view line) {
  std::string s(line);
  replace_all(s, "<skipped>", "");
  replace_all(s, "-\n", "");
  replace_all(s, "\n", " ");
  replace_all(s, "&quot;", "\"");
  replace_all(s, "&amp;", "&");
  replace_all(s, "&lt;", "<");
  replace_all(s, "&gt;", ">");
  return words_of_western(" " + s + " ");
}

struct CodeRange {
  int32_t first, last;
};

bool is_in(std::span<const CodeRange> ranges, int32_t codepoint) {
  return std::ranges::any_of(ranges,
                             [&](const CodeRange& r) { return codepoint >= r.first && codepoint <= r.last; });
}

// tokenizer_zh's table as Python reads it. Two of its rows are meant for planes above 0xFFFF, but are
// written '\u20000' to '\u2a6d6' and '\u2f800' to '\u2fa1d'. These are strings of two characters, so that
// the single characters 0x2001 to 0x2A6D and 0x2F81 to 0x2FA1 lie between them. Typographic quotes, dashes
// and arrows are therefore split off, and the ideographs of extension B are not.
constexpr CodeRange kChinese[] = {
    {0x3400, 0x4DB5}, {0x4E00, 0x9FA5}, {0x9FA6, 0x9FBB}, {0xF900, 0xFA2D}, {0xFA30, 0xFA6A},
    {0xFA70, 0xFAD9}, {0x2001, 0x2A6D}, {0x2F81, 0x2FA1}, {0xFF00, 0xFFEF}, {0x2E80, 0x2EFF},
    {0x3000, 0x303F}, {0x31C0, 0x31EF}, {0x2F00, 0x2FDF}, {0x2FF0, 0x2FFF}, {0x3100, 0x312F},
    {0x31A0, 0x31BF}, {0xFE10, 0xFE1F}, {0xFE30, 0xFE4F}, {0x2600, 0x26FF}, {0x2700, 0x27BF},
    {0x3200, 0x32FF}, {0x3300, 0x33FF},
};

std::vector<std::string> words_of_chinese(std::string_view line) {
  std::string s;
  for_each_character(stripped(line, true), [&](int32_t codepoint, std::string_view bytes) {
    const bool alone = is_in(kChinese, codepoint);
    if (alone) s += ' ';
    s += bytes;
    if (alone) s += ' ';
  });
  return words_of_western(s);
}

std::vector<std::string> words_of_characters(std::string_view line) {
  std::vector<std::string> words;
  for_each_character(line, [&](int32_t codepoint, std::string_view bytes) {
    if (!is_python_space(codepoint)) words.emplace_back(bytes);
  });
  return words;
}

// (\P{N})(\p{P}), (\p{P})(\P{N}) and \p{S}, one after the other.
std::vector<std::string> words_of_international(std::string_view line) {
  const auto codepoint_of = [](const std::string& c) { return text::character_at(c, 0).codepoint; };
  const auto number = [&](const std::string& c) { return text::is_number(codepoint_of(c)); };
  const auto punctuation = [&](const std::string& c) { return text::is_punctuation(codepoint_of(c)); };
  const auto characters_of = [](std::string_view text) {
    std::vector<std::string> out;
    for_each_character(text, [&](int32_t, std::string_view bytes) { out.emplace_back(bytes); });
    return out;
  };
  std::string s = spaced(
      characters_of(line), [&](const auto& a, const auto& b) { return !number(a) && punctuation(b); },
      Spaces{"", " ", " "});
  s = spaced(
      characters_of(s), [&](const auto& a, const auto& b) { return punctuation(a) && !number(b); },
      Spaces{" ", " ", ""});
  std::string apart;
  for_each_character(s, [&](int32_t codepoint, std::string_view bytes) {
    const bool alone = text::is_symbol(codepoint);
    if (alone) apart += ' ';
    apart += bytes;
    if (alone) apart += ' ';
  });
  return words_between_spaces(apart);
}

// Scripts that put no spaces between words.
constexpr CodeRange kHan[] = {{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x323AF}};
constexpr CodeRange kKana[] = {{0x3041, 0x30FF}, {0x31F0, 0x31FF}, {0xFF66, 0xFF9F}};
constexpr CodeRange kThai[] = {{0x0E01, 0x0E7F}}, kLao[] = {{0x0E80, 0x0EFF}},
                    kMyanmar[] = {{0x1000, 0x109F}, {0xA9E0, 0xA9FF}, {0xAA60, 0xAA7F}},
                    kKhmer[] = {{0x1780, 0x17FF}, {0x19E0, 0x19FF}};
constexpr double kKanaOfJapanese = 0.1;  // Chinese texts sometimes quote kana

}  // namespace

std::string name_of(BleuTokenizer tokenizer) {
  return kBleuTokenizerNames[static_cast<size_t>(tokenizer)];
}

BleuTokenizer bleu_tokenizer_from_name(std::string_view name) {
  const auto at = std::ranges::find(kBleuTokenizerNames, name);
  check(at != std::end(kBleuTokenizerNames), "BLEU: there is no tokenizer '{}'", name);
  return static_cast<BleuTokenizer>(at - std::begin(kBleuTokenizerNames));
}

std::vector<std::string> bleu_words(std::string_view line, BleuTokenizer tokenizer) {
  const std::string_view text = stripped(line, false);  // as sacreBLEU does before it calls a tokenizer
  switch (tokenizer) {
    case BleuTokenizer::none:
      return words_between_spaces(text);
    case BleuTokenizer::mteval_13a:
      return words_of_13a(text);
    case BleuTokenizer::characters:
      return words_of_characters(text);
    case BleuTokenizer::chinese:
      return words_of_chinese(text);
    case BleuTokenizer::international:
      break;
  }
  return words_of_international(text);
}

ChosenTokenizer bleu_tokenizer_for(std::span<const std::string> references) {
  constexpr std::array<std::span<const CodeRange>, 6> kScripts = {kHan, kKana, kThai, kLao, kMyanmar, kKhmer};
  constexpr std::array kNames = {"Chinese", "Japanese", "Thai", "Lao", "Myanmar", "Khmer"};
  std::array<double, 6> of_script = {};
  double spaced_letters = 0;
  for (const std::string& reference : references)
    for_each_character(reference, [&](int32_t codepoint, std::string_view) {
      for (size_t i = 0; i < kScripts.size(); ++i)
        if (is_in(kScripts[i], codepoint)) {
          ++of_script[i];
          return;
        }
      if (text::class_of(codepoint) == text::CharacterClass::kLetter) ++spaced_letters;
    });
  // Japanese uses both.
  const double both = of_script[0] + of_script[1];
  const bool japanese = of_script[1] > kKanaOfJapanese * both;
  of_script[0] = japanese ? 0 : both;
  of_script[1] = japanese ? both : 0;
  const auto most = static_cast<size_t>(std::ranges::max_element(of_script) - of_script.begin());
  if (of_script[most] <= spaced_letters) return {};
  return {most == 0 ? BleuTokenizer::chinese : BleuTokenizer::characters, kNames[most]};
}

}  // namespace qkv
