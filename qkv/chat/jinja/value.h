// Values of template expressions: Python's values, as far as templates use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace qkv::text::jinja {

class Value;
struct Call;

// The value of [a, b].
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in insertion order
// A callable value.
using Function = std::function<Value(const Call&)>;

// A value. Copies share their contents, which are immutable except for a namespace's attributes.
class Value {
 public:
  // The value of a missing variable or member.
  struct Undefined {
    std::string name;  // name that was looked up
  };
  struct None {};
  // A mapping whose members may be set.
  struct Namespace {
    std::shared_ptr<Dict> attributes;
  };

  Value() : data_(Undefined{}) {}
  Value(None none) : data_(none) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool b) : data_(b) {}
  Value(int64_t n) : data_(n) {}
  Value(int n) : data_(int64_t{n}) {}
  Value(double x) : data_(x) {}
  Value(std::string s)
      : data_(std::make_shared<const std::string>(std::move(s))), bytes_(std::ssize(string("a string"))) {}
  Value(const char* s) : Value(std::string(s)) {}
  // Throw Error if lists and mappings are nested too deep or hold too much.
  Value(List list);
  Value(Dict dict);
  Value(Namespace space) : data_(std::move(space)), holds_namespace_(true) {}
  Value(Function f) : data_(std::make_shared<const Function>(std::move(f))) {}

  // A list that is printed in round brackets.
  static Value tuple(List elements);
  // The tuple of a value and a list that groupby returns; they are also its members "grouper" and "list".
  static Value group(Value grouper, List elements);
  // Throws Error if it is nested too deep.
  static Value from_json(const nlohmann::ordered_json& json, int depth = 0);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_integer() const { return holds<int64_t>(); }
  bool is_number() const { return is_integer() || holds<double>() || is_bool(); }
  bool is_float() const { return holds<double>(); }
  bool is_string() const { return holds<std::shared_ptr<const std::string>>(); }
  bool is_list() const { return holds<std::shared_ptr<const List>>(); }
  bool is_dict() const { return holds<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return holds<Namespace>(); }
  bool is_function() const { return holds<std::shared_ptr<const Function>>(); }
  // "undefined", "a string", ...: for errors.
  const char* kind() const;

  // Throw Error if the value is of another kind; `what` says what it was needed for.
  const std::string& string(std::string_view what) const;
  int64_t integer(std::string_view what) const;
  double number(std::string_view what) const;
  const List& list(std::string_view what) const;
  const Dict& dict(std::string_view what) const;
  const Function& function(std::string_view what) const;
  Dict& attributes() const { return *std::get<Namespace>(data_).attributes; }
  // The number of values in it and itself, each as often as it would be written: the cost of reading it.
  int64_t weight() const;
  // True if it is or contains a namespace.
  bool holds_namespace() const { return holds_namespace_; }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }

  bool truth() const;
  // The text that {{ }} prints: str() of Python.
  std::string text() const;
  // Python's repr(): strings in quotes.
  std::string repr() const;
  // json.dumps(ensure_ascii=False), on several lines if indent >= 0.
  std::string json(int64_t indent = -1) const;
  // The member of a dict, a namespace or a group; null if there is none.
  const Value* member(std::string_view key) const;
  // The values that a for loop visits: elements, keys, characters.
  List elements(std::string_view what) const;
  // Number of elements, members or characters.
  int64_t length() const;

  friend bool operator==(const Value& a, const Value& b);
  // Returns a negative number, 0 or a positive one. Throws Error if the two cannot be ordered.
  static int compare(const Value& a, const Value& b);

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  void nest(const Value& inner);
  void write_json(std::string& out, int64_t indent, int64_t depth) const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace,
               std::shared_ptr<const Function>>
      data_;
  int64_t bytes_ = 0;   // text in it, as often as it would be written
  int64_t within_ = 0;  // values
  int32_t depth_ = 0;   // nesting of lists and mappings
  bool holds_namespace_ = false, is_tuple_ = false, is_group_ = false;
};

// Limits the cost of a template. Throws Error above the limits.
class Budget {
 public:
  // A node was evaluated, or an element was read.
  void step(int64_t n = 1);
  // A string or a list of `bytes` bytes was created.
  void made(size_t bytes);
  // A call or a loop begins, and ends.
  void enter();
  void leave() { --depth_; }
  // Counts an expression or a body nested in another for as long as this object lives; bounds the use of
  // the stack.
  class Level {
   public:
    explicit Level(Budget& budget);
    ~Level() { --budget_.levels_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  int64_t steps_ = 0, depth_ = 0, levels_ = 0;
  size_t bytes_ = 0;
};

// The arguments of a call.
struct Call {
  std::string_view name;  // name of the function, for errors
  Budget& budget;
  List positional;
  Dict named = {};

  // Argument i, or the named one, or undefined.
  Value at(size_t i, std::string_view name) const;
  // Throws Error for an argument without one of these names. The first name may be empty.
  void expect(const std::vector<std::string>& names) const;
};

// Byte offsets of a text's characters, and of its end.
std::vector<size_t> character_offsets(std::string_view text);

}  // namespace qkv::text::jinja
