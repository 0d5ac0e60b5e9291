// What expressions of a template are worth: Python's values, as far as templates see them.
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

// What [a, b] is.
using List = std::vector<Value>;
using Dict = std::vector<std::pair<std::string, Value>>;  // in the order of insertion
// What can be called.
using Function = std::function<Value(const Call&)>;

// A value; copies share what they hold, which does not change, but for a namespace's attributes.
class Value {
 public:
  // What has no value.
  struct Undefined {
    std::string name;  // what was looked for
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
  // Throw Error where lists and mappings are nested too deep.
  Value(List list);
  Value(Dict dict);
  Value(Namespace space) : data_(std::move(space)), holds_namespace_(true) {}
  Value(Function f) : data_(std::make_shared<const Function>(std::move(f))) {}

  // A list that is written in round brackets.
  static Value tuple(List elements);
  // One of a value and a list, which are its members "grouper" and "list", too: what groupby makes.
  static Value group(Value grouper, List elements);
  // Throws Error where it is nested too deep.
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

  // Throw Error where the value is of another kind; `what` says for what it was needed.
  const std::string& string(std::string_view what) const;
  int64_t integer(std::string_view what) const;
  double number(std::string_view what) const;
  const List& list(std::string_view what) const;
  const Dict& dict(std::string_view what) const;
  const Function& function(std::string_view what) const;
  Dict& attributes() const { return *std::get<Namespace>(data_).attributes; }
  // The values within it and itself, each as often as it would be written: what to look through it costs.
  int64_t weight() const;
  // Whether it is a namespace or one lies within.
  bool holds_namespace() const { return holds_namespace_; }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }

  bool truth() const;
  // What {{ }} prints: str() of Python.
  std::string text() const;
  // Python's repr(): strings in quotes.
  std::string repr() const;
  // json.dumps(ensure_ascii=False), over several lines where indent >= 0.
  std::string json(int64_t indent = -1) const;
  // The member of a dict, a namespace or a group; null where there is none.
  const Value* member(std::string_view key) const;
  // What a for loop goes through: elements, keys, characters.
  List elements(std::string_view what) const;
  // Elements, members or characters.
  int64_t length() const;

  friend bool operator==(const Value& a, const Value& b);
  // Negative, 0 or positive. Throws Error where the two cannot be ordered.
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
  int64_t bytes_ = 0;   // of text within, as often as it would be written
  int64_t within_ = 0;  // values
  int32_t depth_ = 0;   // of lists and mappings in each other
  bool holds_namespace_ = false, is_tuple_ = false, is_group_ = false;
};

// What a template may cost. Throws Error beyond.
class Budget {
 public:
  // A node was evaluated, or an element looked at.
  void step(int64_t n = 1);
  // A string or a list of so many bytes was made.
  void made(size_t bytes);
  // A call or a loop is entered, and left.
  void enter();
  void leave() { --depth_; }
  // An expression or a body within another, for as long as this lives: what the stack has room for.
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
  std::string_view name;  // of what is called, for errors
  Budget& budget;
  List positional;
  Dict named = {};

  // Argument i, or the named one, or undefined.
  Value at(size_t i, std::string_view name) const;
  // Throws Error where an argument is not one of these names, the first of which may go without.
  void expect(const std::vector<std::string>& names) const;
};

// Byte offsets of a text's characters, and its end.
std::vector<size_t> character_offsets(std::string_view text);

}  // namespace qkv::text::jinja
