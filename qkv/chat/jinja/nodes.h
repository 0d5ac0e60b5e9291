// Parsed templates: expressions, which have a value, and statements, which write.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "qkv/chat/jinja/value.h"

namespace qkv::text::jinja {

// Variables by name. Falls back to the enclosing scope.
class Scope {
 public:
  explicit Scope(std::shared_ptr<const Scope> around = nullptr) : around_(std::move(around)) {}
  const Value* find(const std::string& name) const;
  void set(const std::string& name, Value value) { variables_[name] = std::move(value); }

 private:
  std::shared_ptr<const Scope> around_;
  std::map<std::string, Value> variables_;
};

// Bytes [begin, end) of the output.
struct Span {
  size_t begin, end;
};

// State of a running template.
struct Frame {
  Budget& budget;
  std::shared_ptr<Scope> scope;
  std::string* out;
  std::vector<Span>* generated;  // bytes of generation blocks; null if `out` is not the template's own output

  void write(std::string_view text) const;
};

class Expression;
// Owns an expression.
using ExpressionPtr = std::unique_ptr<const Expression>;

// A node that has a value.
class Expression {
 public:
  // `within`: the height of the operands. Throws Error if expressions are nested too deep.
  explicit Expression(size_t line, int within = 0);
  virtual ~Expression() = default;
  // Evaluates the expression. Counts a step, and adds the line to errors.
  Value value(const Frame& frame) const;
  const size_t line;
  const int height;

 protected:
  virtual Value evaluate(const Frame& frame) const = 0;
};
// The largest height of some expressions; null counts as none.
int height_of(std::initializer_list<const Expression*> all);
int height_of(const std::vector<ExpressionPtr>& all);

// Arguments of a call as written in the template.
struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  Call call(std::string_view name, const Frame& frame) const;
  int height() const;
};

// A number, a string, true, false or none.
class Literal : public Expression {
 public:
  Literal(size_t line, Value value) : Expression(line), value_(std::move(value)) {}

 protected:
  Value evaluate(const Frame&) const override { return value_; }

 private:
  Value value_;
};

// A name.
class Variable : public Expression {
 public:
  Variable(size_t line, std::string name) : Expression(line), name_(std::move(name)) {}
  const std::string& name() const { return name_; }

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  std::string name_;
};

// [a, b], or (a, b).
class ListOf : public Expression {
 public:
  ListOf(size_t line, std::vector<ExpressionPtr> elements, bool tuple)
      : Expression(line, height_of(elements)), elements_(std::move(elements)), tuple_(tuple) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  std::vector<ExpressionPtr> elements_;
  bool tuple_;
};

// {'a': b}
class DictOf : public Expression {
 public:
  DictOf(size_t line, std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members)
      : Expression(line, height_of_members(members)), members_(std::move(members)) {}
  static int height_of_members(const std::vector<std::pair<ExpressionPtr, ExpressionPtr>>& members);

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> members_;
};

// a.b looks up methods first, a[b] members.
class Member : public Expression {
 public:
  Member(size_t line, ExpressionPtr object, ExpressionPtr key, bool dotted)
      : Expression(line, height_of({object.get(), key.get()})),
        object_(std::move(object)),
        key_(std::move(key)),
        dotted_(dotted) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr object_, key_;
  bool dotted_;
};

// a[from:to:step], each of which may be absent.
class Slice : public Expression {
 public:
  Slice(size_t line, ExpressionPtr object, ExpressionPtr from, ExpressionPtr to, ExpressionPtr step)
      : Expression(line, height_of({object.get(), from.get(), to.get(), step.get()})),
        object_(std::move(object)),
        from_(std::move(from)),
        to_(std::move(to)),
        step_(std::move(step)) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr object_, from_, to_, step_;
};

// f(a, b=c)
class CallOf : public Expression {
 public:
  CallOf(size_t line, ExpressionPtr function, std::string name, Arguments arguments)
      : Expression(line, std::max(function->height, arguments.height())),
        function_(std::move(function)),
        name_(std::move(name)),
        arguments_(std::move(arguments)) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr function_;
  std::string name_;
  Arguments arguments_;
};

// object | name(arguments), or object is name(arguments); `function` is the filter or test.
class Applied : public Expression {
 public:
  Applied(size_t line, ExpressionPtr object, std::string name, Function function, Arguments arguments,
          bool negated)
      : Expression(line, std::max(object->height, arguments.height())),
        object_(std::move(object)),
        name_(std::move(name)),
        function_(std::move(function)),
        arguments_(std::move(arguments)),
        negated_(negated) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr object_;
  std::string name_;
  Function function_;
  Arguments arguments_;
  bool negated_;
};

// -a, +a, not a
class Unary : public Expression {
 public:
  Unary(size_t line, std::string sign, ExpressionPtr operand)
      : Expression(line, operand->height), sign_(std::move(sign)), operand_(std::move(operand)) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  std::string sign_;  // -, +, not
  ExpressionPtr operand_;
};

// Two operands with a sign between them.
class Binary : public Expression {
 public:
  Binary(size_t line, std::string sign, ExpressionPtr left, ExpressionPtr right)
      : Expression(line, height_of({left.get(), right.get()})),
        sign_(std::move(sign)),
        left_(std::move(left)),
        right_(std::move(right)) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  std::string sign_;  // and, or, ~, +, -, *, /, //, %, **
  ExpressionPtr left_, right_;
};

// a < b <= c
class Comparison : public Expression {
 public:
  Comparison(size_t line, ExpressionPtr first, std::vector<std::pair<std::string, ExpressionPtr>> rest)
      : Expression(line, std::max(first->height, height_of_rest(rest))),
        first_(std::move(first)),
        rest_(std::move(rest)) {}
  static int height_of_rest(const std::vector<std::pair<std::string, ExpressionPtr>>& rest);

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr first_;
  std::vector<std::pair<std::string, ExpressionPtr>> rest_;  // ==, !=, <, <=, >, >=, in, not in
};

// a if b else c; c may be absent.
class Choice : public Expression {
 public:
  Choice(size_t line, ExpressionPtr yes, ExpressionPtr condition, ExpressionPtr no)
      : Expression(line, height_of({yes.get(), condition.get(), no.get()})),
        yes_(std::move(yes)),
        condition_(std::move(condition)),
        no_(std::move(no)) {}

 protected:
  Value evaluate(const Frame& frame) const override;

 private:
  ExpressionPtr yes_, condition_, no_;
};

// How a statement ended.
enum class Flow { on, next, last };  // next: continue; last: break

// A node that writes output.
class Statement {
 public:
  virtual ~Statement() = default;
  virtual Flow run(const Frame& frame) const = 0;
};
// A sequence of statements; run_all() stops at the first that does not end with `on`.
using Body = std::vector<std::unique_ptr<const Statement>>;
// Runs the statements.
Flow run_all(const Body& body, const Frame& frame);

// Text between tags, written unchanged.
class Text : public Statement {
 public:
  explicit Text(std::string text) : text_(std::move(text)) {}
  Flow run(const Frame& frame) const override;

 private:
  std::string text_;
};

// {{ a }}
class Print : public Statement {
 public:
  explicit Print(ExpressionPtr e) : e_(std::move(e)) {}
  Flow run(const Frame& frame) const override;

 private:
  ExpressionPtr e_;
};

// {% if a %}...{% elif b %}...{% else %}...{% endif %}
class If : public Statement {
 public:
  // A branch without a condition is the last.
  explicit If(std::vector<std::pair<ExpressionPtr, Body>> branches) : branches_(std::move(branches)) {}
  Flow run(const Frame& frame) const override;

 private:
  std::vector<std::pair<ExpressionPtr, Body>> branches_;
};

// One name, several, or an attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  std::string attribute;  // attribute of names[0]
  void set(Value value, const Frame& frame) const;
};

// {% for a in b if c %}...{% else %}...{% endfor %}
class For : public Statement {
 public:
  For(Target target, ExpressionPtr sequence, ExpressionPtr condition, Body body, Body otherwise)
      : target_(std::move(target)),
        sequence_(std::move(sequence)),
        condition_(std::move(condition)),
        body_(std::move(body)),
        otherwise_(std::move(otherwise)) {}
  Flow run(const Frame& frame) const override;

 private:
  Target target_;
  ExpressionPtr sequence_, condition_;
  Body body_, otherwise_;
};

// {% set a = b %}
class Set : public Statement {
 public:
  Set(Target target, ExpressionPtr e) : target_(std::move(target)), e_(std::move(e)) {}
  Flow run(const Frame& frame) const override;

 private:
  Target target_;
  ExpressionPtr e_;
};

// {% set x %}...{% endset %}
class SetBlock : public Statement {
 public:
  SetBlock(Target target, Body body) : target_(std::move(target)), body_(std::move(body)) {}
  Flow run(const Frame& frame) const override;

 private:
  Target target_;
  Body body_;
};

// A macro's parameters and body; the functions made from it share it.
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with default values, or null
  Body body;
};

// {% macro f(a, b=c) %}...{% endmacro %}
class Macro : public Statement {
 public:
  explicit Macro(std::shared_ptr<const MacroDefinition> definition) : definition_(std::move(definition)) {}
  Flow run(const Frame& frame) const override;

 private:
  std::shared_ptr<const MacroDefinition> definition_;
};

// {% filter name %}...{% endfilter %}
class FilterBlock : public Statement {
 public:
  FilterBlock(std::string name, Function function, Arguments arguments, Body body)
      : name_(std::move(name)),
        function_(std::move(function)),
        arguments_(std::move(arguments)),
        body_(std::move(body)) {}
  Flow run(const Frame& frame) const override;

 private:
  std::string name_;
  Function function_;
  Arguments arguments_;
  Body body_;
};

// {% generation %}...{% endgeneration %} marks text that a model writes.
class Generation : public Statement {
 public:
  explicit Generation(Body body) : body_(std::move(body)) {}
  Flow run(const Frame& frame) const override;

 private:
  Body body_;
};

// {% break %}, {% continue %}
class Leave : public Statement {
 public:
  explicit Leave(Flow flow) : flow_(flow) {}
  Flow run(const Frame&) const override { return flow_; }

 private:
  Flow flow_;
};

}  // namespace qkv::text::jinja
