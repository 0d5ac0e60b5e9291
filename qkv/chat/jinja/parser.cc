#include "qkv/chat/jinja/parser.h"

#include <charconv>
#include <initializer_list>
#include <optional>

#include "qkv/base/error.h"
#include "qkv/chat/jinja/builtins.h"
#include "qkv/chat/jinja/lexer.h"

namespace qkv::text::jinja {
namespace {

// Recursive descent parser; the functions are in the order of Jinja's precedences.
class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body run() {
    Body body = statements({});
    if (peek().kind != Token::Kind::end) refuse("expected the end of the template");
    return body;
  }

 private:
  using Kind = Token::Kind;
  using Keywords = std::initializer_list<std::string_view>;

  // Limits nesting to what the stack can hold.
  class Deeper {
   public:
    explicit Deeper(Parser& parser) : parser_(parser) {
      constexpr int kDeepest = 150;
      if (++parser_.depth_ > kDeepest) parser_.refuse(fmt::format("nested more than {} deep", kDeepest));
    }
    ~Deeper() { --parser_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Parser& parser_;
  };

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  [[noreturn]] void refuse(const std::string& what) const { fail("line {}: {}", peek().line, what); }
  [[noreturn]] void expected(const std::string& what) const {
    refuse(peek().kind == Kind::end ? fmt::format("expected {}, got the end of the template", what)
                                    : fmt::format("expected {}, got '{}'", what, peek().text));
  }

  bool at_sign(std::string_view sign) const { return peek().kind == Kind::sign && peek().text == sign; }
  bool at_name(std::string_view name) const { return peek().kind == Kind::name && peek().text == name; }
  bool take_sign(std::string_view sign) { return at_sign(sign) && (take(), true); }
  bool take_name(std::string_view name) { return at_name(name) && (take(), true); }
  void need_sign(std::string_view sign) {
    if (!take_sign(sign)) expected(fmt::format("'{}'", sign));
  }
  void need_name(std::string_view name) {
    if (!take_name(name)) expected(fmt::format("'{}'", name));
  }
  std::string any_name(const char* what) {
    if (peek().kind != Kind::name) expected(what);
    return take().text;
  }
  void end_block() {
    if (peek().kind != Kind::block_end) expected("'%}'");
    take();
  }

  // Parses statements up to a block with one of the keywords, which is left to the caller, or to the end.
  Body statements(Keywords until) {
    const Deeper deeper(*this);
    Body body;
    for (;;) {
      if (peek().kind == Kind::end) return body;
      if (peek().kind == Kind::text) {
        body.push_back(std::make_unique<Text>(take().text));
        continue;
      }
      if (peek().kind == Kind::variable_begin) {
        take();
        body.push_back(std::make_unique<Print>(tuple()));
        if (peek().kind != Kind::variable_end) expected("'}}'");
        take();
        continue;
      }
      for (const std::string_view keyword : until)
        if (peek(1).kind == Kind::name && peek(1).text == keyword) return body;
      take();
      body.push_back(statement());
    }
  }

  // Reads {% and a keyword, which must be one of `known`.
  std::string block_keyword(Keywords known) {
    if (peek().kind != Kind::block_begin) expected(fmt::format("{{% {} %}}", *known.begin()));
    take();
    for (const std::string_view keyword : known)
      if (take_name(keyword)) return std::string(keyword);
    expected(std::string(*known.begin()));
  }
  void end_of(std::string_view keyword) {
    block_keyword({keyword});
    end_block();
  }

  std::unique_ptr<const Statement> statement() {
    const std::string keyword = any_name("a statement");
    if (keyword == "if") return if_statement();
    if (keyword == "for") return for_statement();
    if (keyword == "set") return set_statement();
    if (keyword == "macro") return macro();
    if (keyword == "filter") return filter_block();
    if (keyword == "generation") {
      end_block();
      Body body = statements({"endgeneration"});
      end_of("endgeneration");
      return std::make_unique<Generation>(std::move(body));
    }
    if (keyword == "break" || keyword == "continue") {
      if (loops_ == 0) refuse(fmt::format("'{}' outside of a loop", keyword));
      end_block();
      return std::make_unique<Leave>(keyword == "break" ? Flow::last : Flow::next);
    }
    refuse(
        fmt::format("the statement '{}' is not supported (if, for, set, macro, filter, generation, break, "
                    "continue and raw are)",
                    keyword));
  }

  std::unique_ptr<const Statement> if_statement() {
    std::vector<std::pair<ExpressionPtr, Body>> branches;
    ExpressionPtr condition = tuple();
    for (;;) {
      end_block();
      branches.emplace_back(std::move(condition), statements({"elif", "else", "endif"}));
      const std::string keyword = block_keyword({"endif", "elif", "else"});
      if (keyword == "endif") break;
      if (keyword == "elif") {
        condition = tuple();
        continue;
      }
      end_block();
      branches.emplace_back(nullptr, statements({"endif"}));
      block_keyword({"endif"});
      break;
    }
    end_block();
    return std::make_unique<If>(std::move(branches));
  }

  Target target() {
    Target t;
    const bool bracket = take_sign("(");
    do t.names.push_back(any_name("a name"));
    while (take_sign(",") && peek().kind == Kind::name);
    if (bracket) need_sign(")");
    if (t.names.size() == 1 && take_sign(".")) t.attribute = any_name("an attribute");
    return t;
  }

  std::unique_ptr<const Statement> for_statement() {
    Target t = target();
    need_name("in");
    ExpressionPtr sequence = tuple(false), condition;
    if (take_name("if")) condition = expression();
    if (at_name("recursive")) refuse("recursive loops are not supported");
    end_block();
    ++loops_;
    Body body = statements({"else", "endfor"}), otherwise;
    --loops_;
    if (block_keyword({"endfor", "else"}) == "else") {
      end_block();
      otherwise = statements({"endfor"});
      block_keyword({"endfor"});
    }
    end_block();
    return std::make_unique<For>(std::move(t), std::move(sequence), std::move(condition), std::move(body),
                                 std::move(otherwise));
  }

  std::unique_ptr<const Statement> set_statement() {
    Target t = target();
    if (take_sign("=")) {
      ExpressionPtr e = tuple();
      end_block();
      return std::make_unique<Set>(std::move(t), std::move(e));
    }
    end_block();
    Body body = statements({"endset"});
    end_of("endset");
    return std::make_unique<SetBlock>(std::move(t), std::move(body));
  }

  std::unique_ptr<const Statement> macro() {
    auto definition = std::make_shared<MacroDefinition>();
    definition->name = any_name("the macro's name");
    need_sign("(");
    while (!take_sign(")")) {
      std::string name = any_name("a parameter");
      definition->parameters.emplace_back(std::move(name), take_sign("=") ? expression() : nullptr);
      if (!at_sign(")")) need_sign(",");
    }
    end_block();
    const int loops = std::exchange(loops_, 0);
    definition->body = statements({"endmacro"});
    loops_ = loops;
    block_keyword({"endmacro"});
    take_name(definition->name);
    end_block();
    return std::make_unique<Macro>(std::move(definition));
  }

  std::unique_ptr<const Statement> filter_block() {
    std::string name = any_name("a filter");
    const Function& function = filter(name);
    Arguments arguments;
    if (take_sign("(")) arguments = call_arguments();
    end_block();
    Body body = statements({"endfilter"});
    end_of("endfilter");
    return std::make_unique<FilterBlock>(std::move(name), function, std::move(arguments), std::move(body));
  }

  const Function& filter(const std::string& name) const {
    const Function* found = find_filter(name);
    if (found == nullptr)
      refuse(fmt::format("the filter '{}' is not supported ({} are)", name, filter_names()));
    return *found;
  }

  // a, b: a list. Without `choices` an "if" ends it, as after the "in" of a loop.
  ExpressionPtr tuple(bool choices = true) {
    const size_t line = peek().line;
    ExpressionPtr first = choices ? expression() : disjunction();
    if (!at_sign(",")) return first;
    std::vector<ExpressionPtr> all;
    all.push_back(std::move(first));
    while (take_sign(",")) {
      if (peek().kind == Kind::variable_end || peek().kind == Kind::block_end || at_sign(")")) break;
      all.push_back(choices ? expression() : disjunction());
    }
    return std::make_unique<ListOf>(line, std::move(all), true);
  }

  ExpressionPtr expression() {
    const Deeper deeper(*this);
    const size_t line = peek().line;
    ExpressionPtr e = disjunction();
    while (take_name("if")) {
      ExpressionPtr condition = disjunction(), no;
      if (take_name("else")) no = expression();
      e = std::make_unique<Choice>(line, std::move(e), std::move(condition), std::move(no));
    }
    return e;
  }

  // Operands joined by signs of one precedence, left-associative.
  template <typename Operand, typename Sign>
  ExpressionPtr chain(const Operand& operand, const Sign& take_one) {
    constexpr int kMost = 500;  // each adds a level of calls when evaluated
    const size_t line = peek().line;
    ExpressionPtr left = operand();
    int operands = 1;
    for (std::string sign; !(sign = take_one()).empty();) {
      if (++operands > kMost) refuse(fmt::format("an expression of more than {} operands", kMost));
      left = std::make_unique<Binary>(line, sign, std::move(left), operand());
    }
    return left;
  }
  std::string one_of(Keywords signs) {
    for (const std::string_view sign : signs)
      if (take_sign(sign)) return std::string(sign);
    return "";
  }

  ExpressionPtr disjunction() {
    return chain([&] { return conjunction(); },
                 [&] { return take_name("or") ? std::string("or") : std::string(); });
  }
  ExpressionPtr conjunction() {
    return chain([&] { return negation(); },
                 [&] { return take_name("and") ? std::string("and") : std::string(); });
  }
  ExpressionPtr negation() {
    const Deeper deeper(*this);
    const size_t line = peek().line;
    if (take_name("not")) return std::make_unique<Unary>(line, "not", negation());
    return comparison();
  }
  ExpressionPtr comparison() {
    const size_t line = peek().line;
    ExpressionPtr first = sum();
    std::vector<std::pair<std::string, ExpressionPtr>> rest;
    for (;;) {
      std::string sign = one_of({"==", "!=", "<=", ">=", "<", ">"});
      if (sign.empty() && take_name("in")) sign = "in";
      if (sign.empty() && at_name("not") && peek(1).kind == Kind::name && peek(1).text == "in") {
        take(), take();
        sign = "not in";
      }
      if (sign.empty()) break;
      rest.emplace_back(sign, sum());
    }
    if (rest.empty()) return first;
    return std::make_unique<Comparison>(line, std::move(first), std::move(rest));
  }
  ExpressionPtr sum() {
    return chain([&] { return concatenation(); }, [&] { return one_of({"+", "-"}); });
  }
  ExpressionPtr concatenation() {
    return chain([&] { return product(); }, [&] { return one_of({"~"}); });
  }
  ExpressionPtr product() {
    return chain([&] { return power(); }, [&] { return one_of({"*", "/", "//", "%"}); });
  }
  ExpressionPtr power() {
    return chain([&] { return unary(true); }, [&] { return one_of({"**"}); });
  }
  ExpressionPtr unary(bool filters) {
    const Deeper deeper(*this);
    const size_t line = peek().line;
    ExpressionPtr e;
    if (const std::string sign = one_of({"-", "+"}); !sign.empty())
      e = std::make_unique<Unary>(line, sign, unary(false));
    else
      e = primary();
    e = postfix(std::move(e));
    return filters ? filtered(std::move(e)) : std::move(e);
  }

  ExpressionPtr primary() {
    const Token token = take();
    switch (token.kind) {
      case Kind::string: {
        std::string text = token.text;
        while (peek().kind == Kind::string) text += take().text;
        return std::make_unique<Literal>(token.line, text);
      }
      case Kind::integer: {
        int64_t n = 0;
        const auto [end, error] =
            std::from_chars(token.text.data(), token.text.data() + token.text.size(), n);
        if (error != std::errc()) fail("line {}: the number {} is too large", token.line, token.text);
        return std::make_unique<Literal>(token.line, n);
      }
      case Kind::real: {
        double x = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), x);
        return std::make_unique<Literal>(token.line, x);
      }
      case Kind::name:
        return named(token);
      case Kind::sign:
        if (token.text == "(") return bracketed(token.line);
        if (token.text == "[") return std::make_unique<ListOf>(token.line, elements("]"), false);
        if (token.text == "{") return mapping(token.line);
        break;
      default:
        break;
    }
    --at_;
    expected("an expression");
  }

  ExpressionPtr named(const Token& token) {
    const std::string& name = token.text;
    if (name == "true" || name == "True") return std::make_unique<Literal>(token.line, true);
    if (name == "false" || name == "False") return std::make_unique<Literal>(token.line, false);
    if (name == "none" || name == "None") return std::make_unique<Literal>(token.line, Value::None{});
    for (const std::string_view keyword : {"if", "else", "elif", "in", "is", "and", "or", "for"})
      if (name == keyword) {
        --at_;
        expected("an expression");
      }
    return std::make_unique<Variable>(token.line, name);
  }

  ExpressionPtr bracketed(size_t line) {
    if (take_sign(")")) return std::make_unique<ListOf>(line, std::vector<ExpressionPtr>{}, true);
    ExpressionPtr e = tuple();
    need_sign(")");
    return e;
  }

  std::vector<ExpressionPtr> elements(std::string_view close) {
    std::vector<ExpressionPtr> all;
    while (!take_sign(close)) {
      all.push_back(expression());
      if (!at_sign(close)) need_sign(",");
    }
    return all;
  }

  ExpressionPtr mapping(size_t line) {
    std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members;
    while (!take_sign("}")) {
      ExpressionPtr key = expression();
      need_sign(":");
      members.emplace_back(std::move(key), expression());
      if (!at_sign("}")) need_sign(",");
    }
    return std::make_unique<DictOf>(line, std::move(members));
  }

  Arguments call_arguments() {  // after (
    Arguments a;
    while (!take_sign(")")) {
      if (at_sign("*") || at_sign("**")) refuse("* and ** in calls are not supported");
      if (peek().kind == Kind::name && peek(1).kind == Kind::sign && peek(1).text == "=") {
        std::string name = take().text;
        take();
        a.named.emplace_back(std::move(name), expression());
      } else {
        if (!a.named.empty()) refuse("an argument without a name stands behind one with");
        a.positional.push_back(expression());
      }
      if (!at_sign(")")) need_sign(",");
    }
    return a;
  }

  ExpressionPtr postfix(ExpressionPtr e) {
    std::string called = "the value";
    if (const auto* variable = dynamic_cast<const Variable*>(e.get())) called = variable->name();
    for (int links = 0;; ++links) {
      constexpr int kMostLinks = 200;  // each adds a level of calls when evaluated
      if (links > kMostLinks) refuse(fmt::format("more than {} members of members", kMostLinks));
      const size_t line = peek().line;
      if (take_sign(".")) {
        if (peek().kind == Kind::integer) {
          e = std::make_unique<Member>(line, std::move(e), primary(), false);
          continue;
        }
        called = any_name("an attribute");
        e = std::make_unique<Member>(line, std::move(e), std::make_unique<Literal>(line, called), true);
      } else if (take_sign("[")) {
        e = subscript(std::move(e), line);
      } else if (take_sign("(")) {
        Arguments arguments = call_arguments();
        e = std::make_unique<CallOf>(line, std::move(e), called, std::move(arguments));
      } else {
        return e;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr object, size_t line) {
    ExpressionPtr bounds[3];
    bool slice = false;
    for (int i = 0; i < 3; ++i) {
      if (!at_sign(":") && !at_sign("]")) bounds[i] = expression();
      if (!take_sign(":")) break;
      slice = true;
    }
    need_sign("]");
    if (slice)
      return std::make_unique<Slice>(line, std::move(object), std::move(bounds[0]), std::move(bounds[1]),
                                     std::move(bounds[2]));
    if (!bounds[0]) refuse("expected an index");
    return std::make_unique<Member>(line, std::move(object), std::move(bounds[0]), false);
  }

  ExpressionPtr filtered(ExpressionPtr e) {
    for (int links = 0;; ++links) {
      constexpr int kMostLinks = 200;
      if (links > kMostLinks) refuse(fmt::format("more than {} filters of filters", kMostLinks));
      const size_t line = peek().line;
      if (take_sign("|")) {
        std::string name = any_name("a filter");
        const Function& function = filter(name);
        Arguments arguments;
        if (take_sign("(")) arguments = call_arguments();
        e = std::make_unique<Applied>(line, std::move(e), std::move(name), function, std::move(arguments),
                                      false);
      } else if (take_name("is")) {
        e = test(std::move(e), line);
      } else {
        return e;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr e, size_t line) {
    const bool negated = take_name("not");
    std::string name = any_name("a test");
    const Function* found = find_test(name);
    if (found == nullptr) refuse(fmt::format("the test '{}' is not supported ({} are)", name, test_names()));
    Arguments arguments;
    const bool keyword = at_name("else") || at_name("or") || at_name("and") || at_name("if") ||
                         at_name("is") || at_name("not") || at_name("in");
    if (at_name("is")) refuse("a test of a test: bracket the first");
    if (take_sign("(")) {
      arguments = call_arguments();
    } else if ((peek().kind == Kind::name && !keyword) || peek().kind == Kind::string ||
               peek().kind == Kind::integer || peek().kind == Kind::real || at_sign("[") || at_sign("{")) {
      arguments.positional.push_back(postfix(primary()));
    }
    return std::make_unique<Applied>(line, std::move(e), std::move(name), *found, std::move(arguments),
                                     negated);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
};

}  // namespace

Body parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace qkv::text::jinja
