#include "qkv/chat/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"

namespace qkv::text::jinja {

namespace {

constexpr int kDeepest = 100;                 // nested lists and mappings
constexpr int64_t kMostCharacters = 1 << 20;  // limit for a text that is split into characters

}  // namespace

void Value::nest(const Value& inner) {
  depth_ = std::max(depth_, inner.depth_ + 1);
  holds_namespace_ |= inner.holds_namespace_;
  // A list may contain another many times; it counts as often as it would be written.
  constexpr int64_t kMost = 1 << 20;
  within_ += 1 + inner.within_;
  constexpr int64_t kMostBytes = int64_t{256} << 20;
  bytes_ += inner.bytes_ + 8;
  check(bytes_ <= kMostBytes, "lists and mappings hold more than {} MiB of text", kMostBytes >> 20);
  check(within_ <= kMost, "lists and mappings hold more than {} values", kMost);
  check(depth_ <= kDeepest, "lists and mappings are nested more than {} deep", kDeepest);
}

Value::Value(List list) {
  for (const Value& v : list) nest(v);
  data_ = std::make_shared<const List>(std::move(list));
}
Value::Value(Dict dict) {
  for (const auto& [key, v] : dict) nest(v);
  data_ = std::make_shared<const Dict>(std::move(dict));
}

int64_t Value::weight() const {
  int64_t sum = 1 + within_;
  if (is_namespace())
    for (const auto& [key, v] : attributes()) sum += v.weight();
  return sum;
}

Value Value::tuple(List elements) {
  Value v(std::move(elements));
  v.is_tuple_ = true;
  return v;
}

Value Value::group(Value grouper, List elements) {
  Value v = tuple({std::move(grouper), std::move(elements)});
  v.is_group_ = true;
  return v;
}

Value Value::from_json(const nlohmann::ordered_json& json, int depth) {
  check(depth <= kDeepest, "lists and mappings are nested more than {} deep", kDeepest);
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return static_cast<double>(json.get<uint64_t>());
      return json.get<int64_t>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return json.get<std::string>();
    case Type::array: {
      List list;
      for (const auto& element : json) list.push_back(from_json(element, depth + 1));
      return list;
    }
    case Type::object: {
      Dict dict;
      for (auto it = json.begin(); it != json.end(); ++it)
        dict.emplace_back(it.key(), from_json(it.value(), depth + 1));
      return dict;
    }
    default:
      return None{};
  }
}

const char* Value::kind() const {
  static constexpr const char* kNames[] = {"undefined", "none",   "a boolean", "an integer",  "a number",
                                           "a string",  "a list", "a mapping", "a namespace", "a function"};
  return kNames[data_.index()];
}

const std::string& Value::string(std::string_view what) const {
  check(is_string(), "{}: expected a string, got {}", what, kind());
  return *std::get<std::shared_ptr<const std::string>>(data_);
}
int64_t Value::integer(std::string_view what) const {
  if (is_bool()) return std::get<bool>(data_) ? 1 : 0;
  check(is_integer(), "{}: expected an integer, got {}", what, kind());
  return std::get<int64_t>(data_);
}
double Value::number(std::string_view what) const {
  if (is_float()) return std::get<double>(data_);
  check(is_number(), "{}: expected a number, got {}", what, kind());
  return static_cast<double>(integer(what));
}
const List& Value::list(std::string_view what) const {
  check(is_list(), "{}: expected a list, got {}", what, kind());
  return *std::get<std::shared_ptr<const List>>(data_);
}
const Dict& Value::dict(std::string_view what) const {
  if (is_namespace()) return attributes();
  check(is_dict(), "{}: expected a mapping, got {}", what, kind());
  return *std::get<std::shared_ptr<const Dict>>(data_);
}
const Function& Value::function(std::string_view what) const {
  check(is_function(), "{}: {} cannot be called", what, kind());
  return *std::get<std::shared_ptr<const Function>>(data_);
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number("truth") != 0;
  if (is_string()) return !string("truth").empty();
  if (is_list()) return !list("truth").empty();
  if (is_dict()) return !dict("truth").empty();
  return true;
}

namespace {

// Python's repr() of a float.
std::string text_of(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  std::string s = fmt::format("{}", x);
  if (s.find_first_of(".e") == s.npos) s += ".0";
  return s;
}

std::string python_quoted(std::string_view s) {
  const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : s) {
    if (c == quote || c == '\\')
      out += '\\', out += c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + quote;
}

}  // namespace

std::string Value::text() const {
  if (is_undefined()) return "";
  return is_string() ? string("text") : repr();
}

std::string Value::repr() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return truth() ? "True" : "False";
  if (is_integer()) return std::to_string(integer("repr"));
  if (is_float()) return text_of(number("repr"));
  if (is_string()) return python_quoted(string("repr"));
  if (is_function()) return "<function>";
  std::string out;
  if (is_list()) {
    for (const Value& v : list("repr")) out += (out.empty() ? "" : ", ") + v.repr();
    if (!is_tuple_) return "[" + out + "]";
    return "(" + out + (length() == 1 ? ",)" : ")");
  }
  for (const auto& [key, v] : dict("repr"))
    out += (out.empty() ? "" : ", ") + python_quoted(key) + ": " + v.repr();
  return "{" + out + "}";
}

void Value::write_json(std::string& out, int64_t indent, int64_t depth) const {
  check(!is_undefined() && !is_function(), "tojson: {} has no JSON", kind());
  const auto line = [&](int64_t level) {
    if (indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(indent * level), ' ');
  };
  const auto members = [&](char open, char close, size_t n, const auto& write) {
    out += open;
    for (size_t i = 0; i < n; ++i) {
      if (i > 0) out += indent < 0 ? ", " : ",";
      line(depth + 1);
      write(i);
    }
    if (n > 0) line(depth);
    out += close;
  };
  if (is_none()) {
    out += "null";
  } else if (is_bool()) {
    out += truth() ? "true" : "false";
  } else if (is_float()) {
    const double x = number("tojson");
    out += std::isnan(x) ? "NaN" : std::isinf(x) ? (x > 0 ? "Infinity" : "-Infinity") : text_of(x);
  } else if (is_string()) {
    out += nlohmann::json(string("tojson")).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  } else if (is_list()) {
    const List& all = list("tojson");
    members('[', ']', all.size(), [&](size_t i) { all[i].write_json(out, indent, depth + 1); });
  } else if (is_dict() || is_namespace()) {
    const Dict& all = dict("tojson");
    members('{', '}', all.size(), [&](size_t i) {
      Value(all[i].first).write_json(out, indent, depth + 1);
      out += ": ";
      all[i].second.write_json(out, indent, depth + 1);
    });
  } else {
    out += repr();
  }
}

std::string Value::json(int64_t indent) const {
  std::string out;
  write_json(out, indent, 0);
  return out;
}

const Value* Value::member(std::string_view key) const {
  if (is_group_ && key == "grouper") return &list("member")[0];
  if (is_group_ && key == "list") return &list("member")[1];
  if (!is_dict() && !is_namespace()) return nullptr;
  const Dict& all = dict("member");
  const auto it = std::ranges::find(all, key, [](const auto& m) { return std::string_view(m.first); });
  return it == all.end() ? nullptr : &it->second;
}

List Value::elements(std::string_view what) const {
  if (is_undefined()) return {};
  if (is_list()) return list(what);
  List out;
  if (is_dict()) {
    for (const auto& [key, v] : dict(what)) out.emplace_back(key);
    return out;
  }
  check(is_string(), "{}: {} is no sequence", what, kind());
  const std::string& s = string(what);
  check(std::ssize(s) <= 4 * kMostCharacters, "{}: a text of more than {} characters is not taken apart",
        what, kMostCharacters);
  const std::vector<size_t> offsets = character_offsets(s);
  for (size_t i = 0; i + 1 < offsets.size(); ++i)
    out.emplace_back(s.substr(offsets[i], offsets[i + 1] - offsets[i]));
  return out;
}

int64_t Value::length() const {
  if (is_undefined()) return 0;
  if (is_list()) return std::ssize(list("length"));
  if (is_dict()) return std::ssize(dict("length"));
  return static_cast<int64_t>(count_characters(string("length")));
}

bool operator==(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.number("==") == b.number("==");
    return a.integer("==") == b.integer("==");
  }
  if (a.data_.index() != b.data_.index()) return false;
  if (a.is_undefined() || a.is_none()) return true;
  if (a.is_string()) return a.string("==") == b.string("==");
  if (a.is_list()) return a.list("==") == b.list("==");
  if (!a.is_dict()) return false;
  const Dict &x = a.dict("=="), &y = b.dict("==");
  return x.size() == y.size() && std::ranges::all_of(x, [&](const auto& m) {
           const Value* other = b.member(m.first);
           return other != nullptr && *other == m.second;
         });
}

int Value::compare(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const double x = a.number("<"), y = b.number("<");
    return x < y ? -1 : x > y;
  }
  if (a.is_string() && b.is_string()) return a.string("<").compare(b.string("<"));
  check(a.is_list() && b.is_list(), "{} and {} have no order", a.kind(), b.kind());
  const List &x = a.list("<"), &y = b.list("<");
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
    if (!(x[i] == y[i])) return compare(x[i], y[i]);
  return x.size() < y.size() ? -1 : x.size() > y.size();
}

void Budget::step(int64_t n) {
  constexpr int64_t kMost = 20'000'000;
  steps_ += n;
  check(steps_ <= kMost, "the template takes more than {} steps", kMost);
}
void Budget::made(size_t bytes) {
  constexpr size_t kMost = size_t{256} << 20;
  bytes_ += bytes;
  check(bytes_ <= kMost, "the template makes more than {} MiB of text", kMost >> 20);
}
void Budget::enter() {
  constexpr int64_t kMost = 100;
  check(++depth_ <= kMost, "the template nests calls and loops more than {} deep", kMost);
}

Budget::Level::Level(Budget& budget) : budget_(budget) {
  constexpr int64_t kMost = 1000;
  if (budget.levels_ >= kMost) fail("the template nests expressions and blocks more than {} deep", kMost);
  ++budget.levels_;
}

Value Call::at(size_t i, std::string_view wanted) const {
  if (i < positional.size()) return positional[i];
  for (const auto& [key, v] : named)
    if (key == wanted) return v;
  return {};
}

void Call::expect(const std::vector<std::string>& names) const {
  check(positional.size() <= names.size(), "{}: expected at most {} arguments, got {}", name, names.size(),
        positional.size());
  for (const auto& [key, v] : named)
    check(std::ranges::find(names, key) != names.end(), "{}: there is no argument '{}'", name, key);
}

std::vector<size_t> character_offsets(std::string_view text) {
  std::vector<size_t> out;
  for (size_t i = 0; i < text.size(); i += character_at(text, i).length) out.push_back(i);
  out.push_back(text.size());
  return out;
}

}  // namespace qkv::text::jinja
