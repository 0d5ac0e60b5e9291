#include "qkv/chat/jinja/nodes.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/chat/jinja/builtins.h"

namespace qkv::text::jinja {

const Value* Scope::find(const std::string& name) const {
  for (const Scope* s = this; s != nullptr; s = s->around_.get())
    if (const auto it = s->variables_.find(name); it != s->variables_.end()) return &it->second;
  return nullptr;
}

void Frame::write(std::string_view text) const {
  budget.made(text.size());
  out->append(text);
}

Expression::Expression(size_t line, int within) : line(line), height(within + 1) {
  constexpr int kHighest = 600;
  check(height <= kHighest, "line {}: expressions stand more than {} deep in each other", line, kHighest);
}

int height_of(std::initializer_list<const Expression*> all) {
  int height = 0;
  for (const Expression* e : all)
    if (e != nullptr) height = std::max(height, e->height);
  return height;
}
int height_of(const std::vector<ExpressionPtr>& all) {
  int height = 0;
  for (const ExpressionPtr& e : all) height = std::max(height, e->height);
  return height;
}
int Arguments::height() const {
  int height = height_of(positional);
  for (const auto& [name, e] : named) height = std::max(height, e->height);
  return height;
}
int DictOf::height_of_members(const std::vector<std::pair<ExpressionPtr, ExpressionPtr>>& members) {
  int height = 0;
  for (const auto& [key, e] : members) height = std::max({height, key->height, e->height});
  return height;
}
int Comparison::height_of_rest(const std::vector<std::pair<std::string, ExpressionPtr>>& rest) {
  int height = 0;
  for (const auto& [sign, e] : rest) height = std::max(height, e->height);
  return height;
}

Value Expression::value(const Frame& frame) const {
  frame.budget.step();
  try {
    const Budget::Level level(frame.budget);
    return evaluate(frame);
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with("line ")) throw;
    fail("line {}: {}", line, e.what());
  }
}

Call Arguments::call(std::string_view name, const Frame& frame) const {
  Call call{name, frame.budget, {}, {}};
  for (const ExpressionPtr& e : positional) call.positional.push_back(e->value(frame));
  for (const auto& [key, e] : named) call.named.emplace_back(key, e->value(frame));
  return call;
}

Value Variable::evaluate(const Frame& frame) const {
  const Value* v = frame.scope->find(name_);
  return v != nullptr ? *v : Value(Value::Undefined{name_});
}

Value ListOf::evaluate(const Frame& frame) const {
  List list;
  for (const ExpressionPtr& e : elements_) list.push_back(e->value(frame));
  frame.budget.made(list.size() * sizeof(Value));
  return tuple_ ? Value::tuple(std::move(list)) : Value(std::move(list));
}

Value DictOf::evaluate(const Frame& frame) const {
  Dict dict;
  for (const auto& [key, e] : members_) {
    const std::string name = key->value(frame).string("a key");
    Value v = e->value(frame);
    const auto it = std::ranges::find(dict, name, [](const auto& m) { return m.first; });
    if (it != dict.end())
      it->second = std::move(v);
    else
      dict.emplace_back(name, std::move(v));
  }
  frame.budget.made(dict.size() * sizeof(Dict::value_type));
  return dict;
}

namespace {

// Index i of n elements, counted from the end if negative; -1 if out of range.
int64_t place(int64_t i, int64_t n) {
  if (i < 0) i += n;
  return i >= 0 && i < n ? i : -1;
}

std::string character(const std::string& s, int64_t i) {
  const std::vector<size_t> offsets = character_offsets(s);
  return s.substr(offsets[static_cast<size_t>(i)],
                  offsets[static_cast<size_t>(i) + 1] - offsets[static_cast<size_t>(i)]);
}

void check_defined(const Value& v) {
  if (v.is_undefined()) fail("'{}' is undefined", v.undefined_name());
}

}  // namespace

Value Member::evaluate(const Frame& frame) const {
  const Value object = object_->value(frame), key = key_->value(frame);
  check_defined(object);
  if (key.is_integer() && (object.is_list() || object.is_string())) {
    const int64_t i = place(key.integer("an index"), object.length());
    if (i < 0) return Value::Undefined{fmt::format("[{}]", key.text())};
    if (object.is_string()) return character(object.string("an index"), i);
    return object.list("an index")[static_cast<size_t>(i)];
  }
  if (!key.is_string()) return Value::Undefined{fmt::format("[{}]", key.text())};
  const std::string& name = key.string("a key");
  const Value* member = object.member(name);
  if (dotted_ && !object.is_namespace()) {
    const Value method = find_method(object, name);
    if (!method.is_undefined()) return method;
  }
  if (member != nullptr) return *member;
  if (!dotted_) {
    Value method = find_method(object, name);
    if (!method.is_undefined()) return method;
  }
  return Value::Undefined{name};
}

Value Slice::evaluate(const Frame& frame) const {
  const Value object = object_->value(frame);
  check_defined(object);
  const auto bound = [&](const ExpressionPtr& e) -> std::optional<int64_t> {
    if (!e) return std::nullopt;
    const Value v = e->value(frame);
    return v.is_none() ? std::nullopt : std::optional(v.integer("a bound of a slice"));
  };
  const int64_t n = object.length(), step = bound(step_).value_or(1);
  check(step != 0, "a slice's step must not be 0");
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? n : n - 1;
  const auto clamped = [&](std::optional<int64_t> i, int64_t otherwise) {
    if (!i) return otherwise;
    return std::clamp(*i < 0 ? *i + n : *i, least, most);
  };
  const int64_t from = clamped(bound(from_), step > 0 ? least : most),
                to = clamped(bound(to_), step > 0 ? most : least);
  const List all = object.elements("a slice");
  frame.budget.step(n);
  List out;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += std::clamp(step, -n - 1, n + 1))
    out.push_back(all[static_cast<size_t>(i)]);
  frame.budget.made(out.size() * sizeof(Value));
  if (!object.is_string()) return out;
  std::string text;
  for (const Value& c : out) text += c.text();
  return text;
}

namespace {

// Counts the arguments' weight as steps, because the called function may read all of them.
void count(const Call& call) {
  for (const Value& v : call.positional) call.budget.step(v.weight());
  for (const auto& [key, v] : call.named) call.budget.step(v.weight());
}

}  // namespace

Value CallOf::evaluate(const Frame& frame) const {
  const Value function = function_->value(frame);
  if (function.is_undefined()) fail("there is no function '{}'", name_);
  const Call call = arguments_.call(name_, frame);
  count(call);
  frame.budget.enter();
  Value result = function.function(name_)(call);
  frame.budget.leave();
  return result;
}

namespace {

Value apply(const Function& function, std::string_view name, Value object, const Arguments& arguments,
            const Frame& frame) {
  Call call = arguments.call(name, frame);
  call.positional.insert(call.positional.begin(), std::move(object));
  count(call);
  return function(call);
}

}  // namespace

Value Applied::evaluate(const Frame& frame) const {
  Value v = apply(function_, name_, object_->value(frame), arguments_, frame);
  return negated_ ? Value(!v.truth()) : v;
}

Value Unary::evaluate(const Frame& frame) const {
  const Value v = operand_->value(frame);
  if (sign_ == "not") return !v.truth();
  check_defined(v);
  if (v.is_float()) return sign_ == "-" ? -v.number(sign_) : v.number(sign_);
  const int64_t n = v.integer(sign_);
  check(sign_ != "-" || n != INT64_MIN, "-: the number is too large");
  return sign_ == "-" ? -n : n;
}

namespace {

int64_t whole(const std::string& sign, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  if (sign == "+") overflow = __builtin_add_overflow(a, b, &out);
  if (sign == "-") overflow = __builtin_sub_overflow(a, b, &out);
  if (sign == "*") overflow = __builtin_mul_overflow(a, b, &out);
  if (sign == "//" || sign == "%") {
    check(b != 0, "{}: division by zero", sign);
    if (b == -1) return sign == "%" ? 0 : whole("-", 0, a);
    const int64_t rest = a % b, down = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;
    out = sign == "%" ? rest + down * b : a / b - down;
  }
  if (sign == "**") {
    out = 1;
    for (int64_t i = 0; i < b && !overflow; ++i) {
      overflow = __builtin_mul_overflow(out, a, &out);
      if (a == 0 || a == 1 || a == -1) {
        out = a == -1 && b % 2 == 0 ? 1 : a;
        break;
      }
    }
  }
  check(!overflow, "{}: the result is too large", sign);
  return out;
}

double real(const std::string& sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "**") return std::pow(a, b);
  check(b != 0, "{}: division by zero", sign);
  if (sign == "/") return a / b;
  return sign == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

Value repeated(const Value& v, int64_t times, Budget& budget) {
  times = std::max<int64_t>(0, times);
  const auto size = static_cast<size_t>(v.length()) * (v.is_list() ? sizeof(Value) : 4);
  check(size == 0 || times <= (int64_t{1} << 30) / static_cast<int64_t>(size), "*: the result is too large");
  budget.made(size * static_cast<size_t>(times));
  if (v.is_string()) {
    std::string out;
    for (int64_t i = 0; i < times && size > 0; ++i) out += v.string("*");
    return out;
  }
  List out;
  for (int64_t i = 0; i < times && size > 0; ++i)
    out.insert(out.end(), v.list("*").begin(), v.list("*").end());
  return out;
}

}  // namespace

Value Binary::evaluate(const Frame& frame) const {
  const Value a = left_->value(frame);
  if (sign_ == "and") return a.truth() ? right_->value(frame) : a;
  if (sign_ == "or") return a.truth() ? a : right_->value(frame);
  const Value b = right_->value(frame);
  if (sign_ == "~") {
    frame.budget.step(a.weight() + b.weight());
    std::string out = a.text() + b.text();
    frame.budget.made(out.size());
    return out;
  }
  check_defined(a);
  check_defined(b);
  if (sign_ == "+" && a.is_string() && b.is_string()) {
    std::string out = a.string("+") + b.string("+");
    frame.budget.made(out.size());
    return out;
  }
  if (sign_ == "+" && a.is_list() && b.is_list()) {
    List out = a.list("+");
    out.insert(out.end(), b.list("+").begin(), b.list("+").end());
    frame.budget.made(out.size() * sizeof(Value));
    return out;
  }
  if (sign_ == "*" && (a.is_string() || a.is_list()) && b.is_integer())
    return repeated(a, b.integer("*"), frame.budget);
  check(a.is_number() && b.is_number(), "{}: {} and {} do not go together", sign_, a.kind(), b.kind());
  const bool fraction =
      sign_ == "/" || a.is_float() || b.is_float() || (sign_ == "**" && b.integer("**") < 0);
  if (fraction) return real(sign_, a.number(sign_), b.number(sign_));
  return whole(sign_, a.integer(sign_), b.integer(sign_));
}

namespace {

bool contains(const Value& in, const Value& what) {
  if (in.is_string()) return in.string("in").find(what.string("in")) != std::string::npos;
  if (in.is_dict() || in.is_namespace()) return what.is_string() && in.member(what.string("in")) != nullptr;
  const List all = in.elements("in");
  return std::ranges::any_of(all, [&](const Value& v) { return v == what; });
}

bool holds(const std::string& sign, const Value& a, const Value& b) {
  if (sign == "==") return a == b;
  if (sign == "!=") return !(a == b);
  if (sign == "in") return contains(b, a);
  if (sign == "not in") return !contains(b, a);
  check_defined(a);
  check_defined(b);
  const int order = Value::compare(a, b);
  return sign == "<" ? order < 0 : sign == "<=" ? order <= 0 : sign == ">" ? order > 0 : order >= 0;
}

}  // namespace

Value Comparison::evaluate(const Frame& frame) const {
  Value left = first_->value(frame);
  for (const auto& [sign, e] : rest_) {
    Value right = e->value(frame);
    frame.budget.step(left.weight() + right.weight());
    if (!holds(sign, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Choice::evaluate(const Frame& frame) const {
  if (condition_->value(frame).truth()) return yes_->value(frame);
  return no_ ? no_->value(frame) : Value();
}

Flow run_all(const Body& body, const Frame& frame) {
  const Budget::Level level(frame.budget);
  for (const auto& statement : body)
    if (const Flow flow = statement->run(frame); flow != Flow::on) return flow;
  return Flow::on;
}

Flow Text::run(const Frame& frame) const {
  frame.write(text_);
  return Flow::on;
}

Flow Print::run(const Frame& frame) const {
  const Value v = e_->value(frame);
  frame.budget.step(v.weight());
  frame.write(v.text());
  return Flow::on;
}

Flow If::run(const Frame& frame) const {
  for (const auto& [condition, body] : branches_)
    if (!condition || condition->value(frame).truth()) return run_all(body, frame);
  return Flow::on;
}

void Target::set(Value value, const Frame& frame) const {
  if (!attribute.empty()) {
    const Value* space = frame.scope->find(names[0]);
    check(space != nullptr && space->is_namespace(), "'{}' is no namespace, whose attributes may be set",
          names[0]);
    check(!value.holds_namespace(), "a namespace's attribute must not hold a namespace");
    Dict& attributes = space->attributes();
    const auto it = std::ranges::find(attributes, attribute, [](const auto& m) { return m.first; });
    if (it != attributes.end())
      it->second = std::move(value);
    else
      attributes.emplace_back(attribute, std::move(value));
    return;
  }
  if (names.size() == 1) return frame.scope->set(names[0], std::move(value));
  const List parts = value.elements("an assignment");
  check(parts.size() == names.size(), "{} names for {} values", names.size(), parts.size());
  for (size_t i = 0; i < names.size(); ++i) frame.scope->set(names[i], parts[i]);
}

namespace {

// The variable `loop` of a for statement.
Value loop_of(const List& all, size_t i, const std::shared_ptr<Value>& seen) {
  const auto n = static_cast<int64_t>(all.size()), at = static_cast<int64_t>(i);
  Dict loop = {{"index", at + 1},  {"index0", at},        {"revindex", n - at}, {"revindex0", n - at - 1},
               {"first", at == 0}, {"last", at + 1 == n}, {"length", n},        {"depth", 1},
               {"depth0", 0}};
  loop.emplace_back("previtem", i > 0 ? all[i - 1] : Value(Value::Undefined{"previtem"}));
  loop.emplace_back("nextitem", i + 1 < all.size() ? all[i + 1] : Value(Value::Undefined{"nextitem"}));
  loop.emplace_back("cycle", Function([i](const Call& c) -> Value {
                      check(!c.positional.empty(), "cycle: there is nothing to choose from");
                      return c.positional[i % c.positional.size()];
                    }));
  loop.emplace_back("changed", Function([seen](const Call& c) -> Value {
                      const Value now(c.positional);
                      const bool changed = seen->is_undefined() || !(*seen == now);
                      *seen = now;
                      return changed;
                    }));
  return loop;
}

}  // namespace

Flow For::run(const Frame& frame) const {
  const Value sequence = sequence_->value(frame);
  List all = sequence.elements("for");
  frame.budget.step(std::ssize(all));
  frame.budget.enter();
  Frame inner = frame;
  if (condition_) {
    List kept;
    for (Value& v : all) {
      inner.scope = std::make_shared<Scope>(frame.scope);
      target_.set(v, inner);
      if (condition_->value(inner).truth()) kept.push_back(std::move(v));
    }
    all = std::move(kept);
  }
  const auto seen = std::make_shared<Value>();
  for (size_t i = 0; i < all.size(); ++i) {
    inner.scope = std::make_shared<Scope>(frame.scope);
    inner.scope->set("loop", loop_of(all, i, seen));
    target_.set(all[i], inner);
    if (run_all(body_, inner) == Flow::last) break;
  }
  frame.budget.leave();
  return all.empty() ? run_all(otherwise_, frame) : Flow::on;
}

Flow Set::run(const Frame& frame) const {
  target_.set(e_->value(frame), frame);
  return Flow::on;
}

namespace {

// Runs a body and returns its output separately.
std::string written(const Body& body, const Frame& frame) {
  std::string out;
  Frame inner = frame;
  inner.scope = std::make_shared<Scope>(frame.scope);
  inner.out = &out;
  inner.generated = nullptr;
  run_all(body, inner);
  return out;
}

}  // namespace

Flow SetBlock::run(const Frame& frame) const {
  target_.set(written(body_, frame), frame);
  return Flow::on;
}

Flow Macro::run(const Frame& frame) const {
  // A weak pointer, because the scope owns the macro.
  const auto call = [definition = definition_,
                     scope = std::weak_ptr<Scope>(frame.scope)](const Call& c) -> Value {
    const std::shared_ptr<Scope> around = scope.lock();
    check(around != nullptr, "{}: what it was defined in has ended", definition->name);
    std::string out;
    const Frame inner{c.budget, std::make_shared<Scope>(around), &out, nullptr};
    check(c.positional.size() <= definition->parameters.size(), "{}: expected at most {} arguments, got {}",
          definition->name, definition->parameters.size(), c.positional.size());
    for (const auto& [key, v] : c.named)
      check(
          std::ranges::any_of(definition->parameters, [&key = key](const auto& p) { return p.first == key; }),
          "{}: there is no argument '{}'", definition->name, key);
    for (size_t i = 0; i < definition->parameters.size(); ++i) {
      const auto& [name, otherwise] = definition->parameters[i];
      Value v = c.at(i, name);
      if (v.is_undefined() && otherwise) v = otherwise->value(inner);
      inner.scope->set(name, v.is_undefined() ? Value(Value::Undefined{name}) : v);
    }
    run_all(definition->body, inner);
    return out;
  };
  frame.scope->set(definition_->name, Function(call));
  return Flow::on;
}

Flow FilterBlock::run(const Frame& frame) const {
  frame.write(apply(function_, name_, written(body_, frame), arguments_, frame).text());
  return Flow::on;
}

Flow Generation::run(const Frame& frame) const {
  const size_t begin = frame.out->size();
  const Flow flow = run_all(body_, frame);
  if (frame.generated != nullptr) frame.generated->push_back({begin, frame.out->size()});
  return flow;
}

}  // namespace qkv::text::jinja
