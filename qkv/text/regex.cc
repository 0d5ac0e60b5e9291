#include "qkv/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"

namespace qkv::text {
namespace {

constexpr size_t kLongestPattern = 20'000;       // bytes; real patterns have a few hundred
constexpr size_t kStepsPerText = 1'000'000'000;  // limit of one attempt, divided by the length of the text
constexpr uint32_t kFewestSteps = 10'000, kMostSteps = 1'000'000;
constexpr uint32_t kDepthLimit = 10'000, kHeapLimitKib = 64 * 1024;
constexpr size_t kLargestJitStack = 1 << 20;

// White_Space and Oniguruma's Word; PCRE2's own \s and \w differ slightly.
constexpr std::string_view kSpaceSet = R"(\p{Z}\t-\r\x{85})";
constexpr std::string_view kWordSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// Rewrites constructs that Oniguruma spells or reads differently: \s \S \w \W \h, and (?m), which is
// PCRE2's (?s).
class DialectTranslator {
 public:
  explicit DialectTranslator(std::string_view pattern) : in_(pattern) {}

  std::string translate() {
    while (i_ < in_.size()) {
      const bool in_class = class_depth_ > 0;
      if (in_[i_] == '\\' && i_ + 1 < in_.size()) {
        translate_escape(in_[i_ + 1]);
      } else if (in_class && rest().starts_with("[:") && rest().find(":]") != std::string_view::npos) {
        copy(rest().find(":]") + 2);
      } else if (!in_class && rest().starts_with("(?")) {
        translate_group_options();
      } else {
        refuse_other_meaning();
        track_class(in_[i_]);
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return in_.substr(i_); }

  void copy(size_t count) {
    out_ += in_.substr(i_, count);
    i_ += count;
  }

  // Refuses syntax that both dialects accept but read differently, and that is not translated here.
  void refuse_other_meaning() const {
    const bool first = i_ == class_begin_ + 1 || (i_ == class_begin_ + 2 && in_[i_ - 1] == '^');
    if (class_depth_ > 0 && ((in_[i_] == '[' && !first) || rest().starts_with("&&"))) {
      fail("regular expression `{}`: sets inside sets are not supported", in_);
    }
    if (class_depth_ > 0 || in_[i_] != '{') return;
    const size_t end = in_.find_first_not_of("0123456789,", i_ + 1);
    if (end > i_ + 1 && end != in_.npos && in_.substr(end).starts_with("}+")) {
      fail("regular expression `{}`: a repeat count followed by + is not supported; write (?:...)+", in_);
    }
  }

  void translate_escape(char letter) {
    const bool in_class = class_depth_ > 0;
    i_ += 2;
    switch (letter) {
      case 's':
        put_set(kSpaceSet, false);
        return;
      case 'w':
        put_set(kWordSet, false);
        return;
      case 'h':
        put_set("0-9A-Fa-f", false);
        return;
      case 'S':
        if (!in_class) return put_set(kSpaceSet, true);
        break;
      case 'W':
        if (!in_class) return put_set(kWordSet, true);
        break;
      default:
        break;
    }
    out_ += '\\';
    out_ += letter;
    if ((letter == 'p' || letter == 'P' || letter == 'x') && rest().starts_with('{')) {
      copy(std::min(rest().find('}'), rest().size() - 1) + 1);
    }
  }

  void put_set(std::string_view set, bool negated) {
    if (class_depth_ > 0) {
      out_ += set;
      return;
    }
    out_ += negated ? "[^" : "[";
    out_ += set;
    out_ += ']';
  }

  void translate_group_options() {
    size_t end = i_ + 2;
    while (end < in_.size() && std::string_view("imxs-").find(in_[end]) != std::string_view::npos) ++end;
    const bool options = end > i_ + 2 && end < in_.size() && (in_[end] == ')' || in_[end] == ':');
    out_ += "(?";
    for (i_ += 2; options && i_ < end; ++i_) out_ += in_[i_] == 'm' ? 's' : in_[i_];
  }

  void track_class(char c) {
    if (class_depth_ == 0) {
      if (c != '[') return;
      class_depth_ = 1;
      class_begin_ = i_;
    } else if (c == ']') {
      const bool first = i_ == class_begin_ + 1 || (i_ == class_begin_ + 2 && in_[class_begin_ + 1] == '^');
      if (!first) class_depth_ = 0;  // a bracket in first place is a literal
    }
  }

  std::string_view in_;
  std::string out_;
  size_t i_ = 0, class_begin_ = 0;
  int class_depth_ = 0;
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Code = std::unique_ptr<pcre2_code, Freer<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freer<pcre2_jit_stack_free>>;

// Limits and working memory of this thread's matches; expensive to create.
pcre2_match_context* thread_match_context() {
  struct State {
    MatchContext context{pcre2_match_context_create(nullptr)};
    JitStack stack{pcre2_jit_stack_create(32 * 1024, kLargestJitStack, nullptr)};
  };
  thread_local const State state = [] {
    State s;
    pcre2_set_depth_limit(s.context.get(), kDepthLimit);
    pcre2_set_heap_limit(s.context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(s.context.get(), nullptr, s.stack.get());
    return s;
  }();
  return state.context.get();
}

}  // namespace

struct Regex::Compiled {
  Code code;
};

Regex::Regex(std::string pattern) : pattern_(std::move(pattern)), compiled_(std::make_unique<Compiled>()) {
  check(pattern_.size() <= kLongestPattern, "regular expression: {} bytes long, at most {} are taken",
        pattern_.size(), kLongestPattern);
  check_utf8(pattern_, "regular expression");
  const std::string translated = DialectTranslator(pattern_).translate();
  CompileContext context(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(context.get(), 100);
  int code = 0;
  PCRE2_SIZE at = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                      &code, &at, context.get()));
  if (!compiled_->code) fail("regular expression `{}`: {}", pattern_, error_text(code));
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);  // if it fails, the interpreter matches
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<Range> Regex::find_all(std::string_view text, Part part) const {
  std::vector<Range> matches;
  size_t begin = 0;
  while (begin < text.size()) {
    const std::string_view rest = text.substr(begin);
    const size_t valid = std::min(find_invalid_utf8(rest), rest.size());
    if (valid > 0) find_in_valid(rest.substr(0, valid), begin, part, matches);
    begin += valid + 1;
  }
  return matches;
}

void Regex::find_in_valid(std::string_view text, size_t offset, Part part, std::vector<Range>& out) const {
  MatchData data(pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  pcre2_match_context* context = thread_match_context();
  const size_t steps = std::clamp<size_t>(kStepsPerText / (text.size() + 1), kFewestSteps, kMostSteps);
  pcre2_set_match_limit(context, static_cast<uint32_t>(steps));

  size_t position = 0;
  while (position <= text.size()) {
    const int rc = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               position, PCRE2_NO_UTF_CHECK, data.get(), context);
    if (rc == PCRE2_ERROR_NOMATCH) return;
    if (rc < 0)
      fail("regular expression `{}`: {} (near byte {})", pattern_, error_text(rc), offset + position);
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
    const size_t begin = at[0], end = at[1];
    check(begin >= position && end >= begin, "regular expression `{}`: \\K moved a match backwards",
          pattern_);
    const bool grouped = part == Part::first_group && rc > 1 && at[2] != PCRE2_UNSET;
    const PCRE2_SIZE* shown = grouped ? at + 2 : at;
    out.push_back({offset + shown[0], offset + shown[1]});
    position = end;
    if (begin == end) {  // step over one character to avoid finding the empty match forever
      if (end == text.size()) return;
      position += character_at(text, end).length;
    }
  }
}

}  // namespace qkv::text
