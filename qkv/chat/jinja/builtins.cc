#include "qkv/chat/jinja/builtins.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <tuple>

#include "qkv/base/error.h"
#include "qkv/chat/jinja/python_strings.h"
#include "qkv/text/unicode.h"

namespace qkv::text::jinja {
namespace {

// The attribute a.b of a value: a member of a member.
Value attribute(const Value& v, const Value& path) {
  if (path.is_integer()) {
    const List all = v.elements("attribute");
    const int64_t i = path.integer("attribute");
    return i >= 0 && i < std::ssize(all) ? all[static_cast<size_t>(i)] : Value();
  }
  Value now = v;
  std::string_view rest = path.string("attribute");
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const Value* inner = now.member(rest.substr(0, end));
    now = inner != nullptr ? *inner : Value(Value::Undefined{std::string(rest.substr(0, end))});
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return now;
}

const Value& object_of(const Call& c) {
  check(!c.positional.empty(), "{}: there is nothing to apply it to", c.name);
  const Value& v = c.positional[0];
  return v;
}
const std::string& text_of(const Call& c) {
  return object_of(c).string(c.name);
}
List elements_of(const Call& c) {
  List all = object_of(c).elements(c.name);
  c.budget.step(std::ssize(all));
  c.budget.made(all.size() * sizeof(Value));
  return all;
}

int64_t count_of(const Value& v, int64_t otherwise, std::string_view what) {
  return v.is_undefined() || v.is_none() ? otherwise : v.integer(what);
}

// Key of a sort: strings in lower case unless `cases` is set.
Value key_of(const Value& v, const Value& path, bool cases) {
  const Value key = path.is_undefined() || path.is_none() ? v : attribute(v, path);
  return key.is_string() && !cases ? Value(lower(key.string("sort"))) : key;
}

List sorted(const Call& c, List all, const Value& path, bool reverse, bool cases) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& v : all) keyed.emplace_back(key_of(v, path, cases), std::move(v));
  for (const auto& [key, v] : keyed) c.budget.step(20 * key.weight());
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return reverse ? Value::compare(b.first, a.first) < 0 : Value::compare(a.first, b.first) < 0;
  });
  List out;
  for (auto& [key, v] : keyed) out.push_back(std::move(v));
  return out;
}

// A call for another object, without the first `taken` arguments.
Call rest_of(const Call& c, std::string_view name, Value object, size_t taken) {
  Call inner{name, c.budget, {std::move(object)}, {}};
  for (size_t i = taken; i < c.positional.size(); ++i) inner.positional.push_back(c.positional[i]);
  return inner;
}

// select, reject, selectattr, rejectattr.
Value selected(const Call& c, bool by_attribute, bool wanted) {
  List out;
  const size_t first = by_attribute ? 2 : 1;
  const Value path = by_attribute ? c.at(1, "attribute") : Value();
  const Function* test = nullptr;
  std::string name;
  if (c.positional.size() > first) {
    name = c.positional[first].string(c.name);
    test = find_test(name);
    check(test != nullptr, "{}: there is no test '{}'", c.name, name);
  }
  for (const Value& v : elements_of(c)) {
    const Value judged = by_attribute ? attribute(v, path) : v;
    const bool yes = test == nullptr ? judged.truth() : (*test)(rest_of(c, name, judged, first + 1)).truth();
    if (yes == wanted) out.push_back(v);
  }
  return out;
}

Value mapped(const Call& c) {
  List out;
  const Value path = c.at(SIZE_MAX, "attribute"), otherwise = c.at(SIZE_MAX, "default");
  if (!path.is_undefined()) {
    for (const Value& v : elements_of(c)) {
      const Value found = attribute(v, path);
      out.push_back(found.is_undefined() ? otherwise : found);
    }
    return out;
  }
  const std::string name = c.at(1, "filter").string("map");
  const Function* filter = find_filter(name);
  check(filter != nullptr, "map: there is no filter '{}'", name);
  for (const Value& v : elements_of(c)) out.push_back((*filter)(rest_of(c, name, v, 2)));
  return out;
}

Value items_of(const Value& v) {
  List out;
  if (v.is_undefined()) return out;
  for (const auto& [key, value] : v.dict("items")) out.push_back(Value::tuple({key, value}));
  return out;
}

Value to_integer(const Call& c) {
  check(c.at(2, "base").is_undefined() || c.at(2, "base") == Value(10), "int: only base 10 is supported");
  const Value v = object_of(c), otherwise = c.at(1, "default");
  if (v.is_float()) return static_cast<int64_t>(std::clamp(v.number("int"), -9e18, 9e18));
  if (v.is_number()) return v.integer("int");
  if (v.is_string()) {
    const std::string s = stripped(v.string("int"), {}, true, true);
    int64_t n = 0;
    const char* begin = s.data() + (s.starts_with('+') ? 1 : 0);
    if (const auto [end, error] = std::from_chars(begin, s.data() + s.size(), n);
        error == std::errc() && end == s.data() + s.size())
      return n;
    double x = 0;
    if (const auto [end, error] = std::from_chars(begin, s.data() + s.size(), x);
        error == std::errc() && end == s.data() + s.size() && std::abs(x) < 9e18)
      return static_cast<int64_t>(x);
  }
  return otherwise.is_undefined() ? Value(0) : otherwise;
}

Value to_float(const Call& c) {
  const Value v = object_of(c), otherwise = c.at(1, "default");
  if (v.is_number()) return v.number("float");
  if (v.is_string()) {
    const std::string s = stripped(v.string("float"), {}, true, true);
    double x = 0;
    if (const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), x);
        error == std::errc() && end == s.data() + s.size())
      return x;
  }
  return otherwise.is_undefined() ? Value(0.0) : otherwise;
}

Value indented(const Call& c) {
  const std::string& s = text_of(c);
  const Value width = c.at(1, "width");
  const std::string by =
      width.is_string()
          ? width.string("indent")
          : std::string(static_cast<size_t>(std::clamp<int64_t>(count_of(width, 4, "indent"), 0, 1000)), ' ');
  const bool first = c.at(2, "first").truth(), blank = c.at(3, "blank").truth();
  std::string out;
  for (size_t at = 0, line = 0; at <= s.size(); ++line) {
    const size_t end = std::min(s.find('\n', at), s.size());
    const std::string_view text = std::string_view(s).substr(at, end - at);
    if ((line > 0 || first) && (blank || !text.empty())) out += by;
    out += text;
    if (end < s.size()) out += '\n';
    at = end + 1;
    c.budget.made(by.size() + text.size());
  }
  return out;
}

Value joined(const Call& c) {
  const Value separator = c.at(1, "d"), path = c.at(2, "attribute");
  std::string out;
  bool first = true;
  for (const Value& v : elements_of(c)) {
    if (!first) out += separator.text();
    first = false;
    out += (path.is_undefined() ? v : attribute(v, path)).text();
    c.budget.made(separator.text().size());
  }
  c.budget.made(out.size());
  return out;
}

Value rounded(const Call& c) {
  const double x = object_of(c).number("round");
  const auto digits =
      static_cast<double>(std::clamp<int64_t>(count_of(c.at(1, "precision"), 0, "round"), -18, 18));
  const Value how = c.at(2, "method");
  const std::string method = how.is_undefined() ? "common" : how.string("round");
  const double scale = std::pow(10.0, digits);
  if (method == "ceil") return std::ceil(x * scale) / scale;
  if (method == "floor") return std::floor(x * scale) / scale;
  check(method == "common", "round: expected common, ceil or floor, got '{}'", method);
  return std::nearbyint(x * scale) / scale;
}

Value unique(const Call& c) {
  List out, keys;
  const Value path = c.at(2, "attribute");
  const bool cases = c.at(1, "case_sensitive").truth();
  for (const Value& v : elements_of(c)) {
    Value key = key_of(v, path, cases);
    c.budget.step(std::ssize(keys) * key.weight());
    if (std::ranges::find(keys, key) != keys.end()) continue;
    keys.push_back(std::move(key));
    out.push_back(v);
  }
  return out;
}

// The smallest or the largest element.
Value extreme(const Call& c, int sign) {
  const List all = elements_of(c);
  const Value path = c.at(2, "attribute");
  const bool cases = c.at(1, "case_sensitive").truth();
  const Value* best = nullptr;
  for (const Value& v : all)
    if (best == nullptr || sign * Value::compare(key_of(v, path, cases), key_of(*best, path, cases)) > 0)
      best = &v;
  return best != nullptr ? *best : Value();
}

Value total(const Call& c) {
  const Value path = c.at(1, "attribute"), start = c.at(2, "start");
  const bool from_start = !start.is_undefined();
  double sum = from_start ? start.number("sum") : 0;
  bool integers = !start.is_float();
  int64_t whole = from_start && integers ? start.integer("sum") : 0;
  for (const Value& v : elements_of(c)) {
    const Value x = path.is_undefined() || path.is_none() ? v : attribute(v, path);
    integers = integers && !x.is_float();
    sum += x.number("sum");
    if (integers)
      check(!__builtin_add_overflow(whole, x.integer("sum"), &whole), "sum: the result is too large");
  }
  return integers ? Value(whole) : Value(sum);
}

std::string escaped(const std::string& s) {
  std::string out;
  for (const char c : s) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

// Groups of `linecount` elements.
Value batched(const Call& c) {
  const int64_t n = c.at(1, "linecount").integer("batch");
  check(n > 0 && n <= 1 << 20, "batch: expected a number up to a million, got {}", n);
  List out, now;
  for (const Value& v : elements_of(c)) {
    now.push_back(v);
    if (std::ssize(now) == n) out.emplace_back(std::exchange(now, {}));
  }
  const Value fill = c.at(2, "fill_with");
  if (!now.empty() && !fill.is_undefined()) now.resize(static_cast<size_t>(n), fill);
  if (!now.empty()) out.emplace_back(now);
  return out;
}

// `slices` groups. The first ones have one element more if the number of elements does not divide evenly;
// `fill_with` extends the others. If it divides evenly, all groups are extended.
Value sliced(const Call& c) {
  const int64_t n = c.at(1, "slices").integer("slice");
  check(n != 0 && n <= 1 << 20, "slice: expected a number up to a million, got {}", n);
  const Value fill = c.at(2, "fill_with");
  const bool fills = !fill.is_undefined() && !fill.is_none();
  const List all = elements_of(c);
  List out;
  auto from = all.begin();
  for (int64_t i = 0; i < n; ++i) {
    const bool longer = i < std::ssize(all) % n;
    const auto to = from + std::ssize(all) / n + (longer ? 1 : 0);
    List slice(from, to);
    if (fills && !longer) slice.push_back(fill);
    c.budget.step();
    c.budget.made((slice.size() + 1) * sizeof(Value));
    out.emplace_back(std::move(slice));
    from = to;
  }
  return out;
}

// Groups of elements with the same value of an attribute, in the order of the values. Without
// case_sensitive, strings that differ only in case are equal, and the first names the group.
Value grouped(const Call& c) {
  const Value path = c.at(1, "attribute"), otherwise = c.at(2, "default");
  const bool cases = c.at(3, "case_sensitive").truth();
  check(!path.is_undefined(), "groupby: expected an attribute");
  const auto called = [&](const Value& v) {
    const Value found = path.is_none() ? v : attribute(v, path);
    return found.is_undefined() && !otherwise.is_none() ? otherwise : found;
  };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& v : elements_of(c)) {
    keyed.emplace_back(key_of(called(v), {}, cases), std::move(v));
    c.budget.step(20 * keyed.back().first.weight());
  }
  std::ranges::stable_sort(keyed,
                           [](const auto& a, const auto& b) { return Value::compare(a.first, b.first) < 0; });
  List out;
  for (auto it = keyed.begin(); it != keyed.end();) {
    const Value name = called(it->second);
    const auto end = std::find_if_not(it, keyed.end(), [&](const auto& k) { return k.first == it->first; });
    List members;
    for (; it != end; ++it) members.push_back(std::move(it->second));
    out.push_back(Value::group(name, std::move(members)));
  }
  return out;
}

// The words that fit into `length` characters together with `end`, or as many characters if words may be
// cut. A text that is at most `leeway` longer is not truncated.
Value truncated(const Call& c) {
  if (object_of(c).is_undefined()) return object_of(c);
  const std::string& s = text_of(c);
  const auto number = [&](size_t i, const char* name, int64_t otherwise) {
    return c.at(i, name).is_undefined() ? otherwise : c.at(i, name).integer("truncate");
  };
  const Value given_end = c.at(3, "end");
  const std::string end = given_end.is_undefined() ? "..." : given_end.string("truncate");
  const auto end_length = static_cast<int64_t>(count_characters(end));
  const int64_t length = number(1, "length", 255),
                leeway = c.at(4, "leeway").is_none() ? 5 : number(4, "leeway", 5);
  check(length >= end_length, "truncate: expected a length of {} or more, got {}", end_length, length);
  check(leeway >= 0, "truncate: expected a leeway of 0 or more, got {}", leeway);
  const std::vector<size_t> offsets = character_offsets(s);
  if (std::ssize(offsets) - 1 - length <= leeway) return object_of(c);
  std::string kept = s.substr(0, offsets[static_cast<size_t>(length - end_length)]);
  if (!c.at(2, "killwords").truth()) kept.resize(std::min(kept.rfind(' '), kept.size()));
  c.budget.made(kept.size() + end.size());
  return kept + end;
}

// Percent-encodes all but letters, digits, slashes and _.-~. `part`: for a part of a query, a space becomes
// a plus and slashes are encoded.
std::string url_quoted(const std::string& s, bool part) {
  std::string out;
  for (const char x : s) {
    const bool plain = (x >= 'a' && x <= 'z') || (x >= 'A' && x <= 'Z') || (x >= '0' && x <= '9') ||
                       std::string_view("_.-~").find(x) != std::string_view::npos || (x == '/' && !part);
    if (plain)
      out += x;
    else if (x == ' ' && part)
      out += '+';
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(x));
  }
  return out;
}

// Encodes a text, or the members of a mapping or a list of pairs as a query.
Value url_encoded(const Call& c) {
  const Value& v = object_of(c);
  const bool query = v.is_dict() || v.is_list() || v.is_undefined();
  std::string out = query ? "" : url_quoted(v.text(), false);
  const List pairs = !query ? List() : v.is_dict() ? items_of(v).list("urlencode") : elements_of(c);
  for (const Value& pair : pairs) {
    const List both = pair.elements("urlencode");
    check(both.size() == 2, "urlencode: expected pairs, got {} values", both.size());
    out += (&pair == pairs.data() ? "" : "&") + url_quoted(both[0].text(), true) + "=" +
           url_quoted(both[1].text(), true);
    c.budget.step(pair.weight());
    c.budget.made(out.size() / pairs.size());
  }
  c.budget.made(out.size());
  return out;
}

using Table = std::map<std::string, Function>;
using Names = std::vector<std::string>;

// The table with checked calls. Functions in `arguments` accept these names after the object, all others
// the object alone. Those in `open` check their own arguments.
Table checked(Table table, const std::map<std::string, Names>& arguments, const Names& open = {}) {
  for (auto& [name, function] : table) {
    if (std::ranges::find(open, name) != open.end()) continue;
    const auto it = arguments.find(name);
    Names names = it == arguments.end() ? Names{} : it->second;
    names.insert(names.begin(), "");
    function = [names, inner = std::move(function)](const Call& c) {
      c.expect(names);
      return inner(c);
    };
  }
  return table;
}

const Table& filters() {
  static const Table table = [] {
    Table t;
    t["trim"] = [](const Call& c) -> Value {
      return stripped(object_of(c).text(), c.at(1, "chars"), true, true);
    };
    t["length"] = t["count"] = [](const Call& c) -> Value { return object_of(c).length(); };
    t["upper"] = [](const Call& c) -> Value { return upper(object_of(c).text()); };
    t["lower"] = [](const Call& c) -> Value { return lower(object_of(c).text()); };
    t["title"] = [](const Call& c) -> Value { return capitalized(object_of(c).text(), true); };
    t["capitalize"] = [](const Call& c) -> Value { return capitalized(object_of(c).text(), false); };
    t["replace"] = [](const Call& c) -> Value {
      return replaced(c, object_of(c).text(), c.at(1, "old").string("replace"),
                      c.at(2, "new").string("replace"), count_of(c.at(3, "count"), -1, "replace"));
    };
    t["join"] = joined;
    t["tojson"] = [](const Call& c) -> Value {
      for (const auto& [i, name] :
           {std::pair<size_t, const char*>{1, "ensure_ascii"}, {3, "separators"}, {4, "sort_keys"}})
        check(!c.at(i, name).truth(), "tojson: {} is not supported", name);
      const Value indent = c.at(2, "indent");
      std::string out = object_of(c).json(std::min<int64_t>(count_of(indent, -1, "tojson"), 100));
      c.budget.made(out.size());
      return out;
    };
    t["string"] = t["safe"] = [](const Call& c) -> Value { return object_of(c).text(); };
    t["escape"] = t["e"] = [](const Call& c) -> Value { return escaped(object_of(c).text()); };
    t["list"] = [](const Call& c) -> Value { return elements_of(c); };
    t["first"] = [](const Call& c) -> Value {
      const List all = elements_of(c);
      return all.empty() ? Value() : all.front();
    };
    t["last"] = [](const Call& c) -> Value {
      const List all = elements_of(c);
      return all.empty() ? Value() : all.back();
    };
    t["reverse"] = [](const Call& c) -> Value {
      List all = elements_of(c);
      std::ranges::reverse(all);
      if (!object_of(c).is_string()) return all;
      std::string out;
      for (const Value& v : all) out += v.text();
      return out;
    };
    t["sort"] = [](const Call& c) -> Value {
      return sorted(c, elements_of(c), c.at(3, "attribute"), c.at(1, "reverse").truth(),
                    c.at(2, "case_sensitive").truth());
    };
    t["dictsort"] = [](const Call& c) -> Value {
      const Value by = c.at(2, "by");
      const bool values = !by.is_undefined() && by.string("dictsort") == "value";
      return sorted(c, items_of(object_of(c)).list("dictsort"), Value(values ? 1 : 0),
                    c.at(3, "reverse").truth(), c.at(1, "case_sensitive").truth());
    };
    t["unique"] = unique;
    t["map"] = mapped;
    t["select"] = [](const Call& c) { return selected(c, false, true); };
    t["reject"] = [](const Call& c) { return selected(c, false, false); };
    t["selectattr"] = [](const Call& c) { return selected(c, true, true); };
    t["rejectattr"] = [](const Call& c) { return selected(c, true, false); };
    t["default"] = t["d"] = [](const Call& c) -> Value {
      const Value v = object_of(c), otherwise = c.at(1, "default_value");
      const bool keep = c.at(2, "boolean").truth() ? v.truth() : !v.is_undefined();
      return keep ? v : otherwise.is_undefined() ? Value("") : otherwise;
    };
    t["int"] = to_integer;
    t["float"] = to_float;
    t["abs"] = [](const Call& c) -> Value {
      const Value v = object_of(c);
      if (v.is_float()) return std::abs(v.number("abs"));
      const int64_t n = v.integer("abs");
      check(n != INT64_MIN, "abs: the number is too large");
      return n < 0 ? -n : n;
    };
    t["round"] = rounded;
    t["items"] = [](const Call& c) { return items_of(object_of(c)); };
    t["indent"] = indented;
    t["sum"] = total;
    t["min"] = [](const Call& c) { return extreme(c, -1); };
    t["max"] = [](const Call& c) { return extreme(c, 1); };
    t["attr"] = [](const Call& c) { return attribute(object_of(c), c.at(1, "name")); };
    t["batch"] = batched;
    t["slice"] = sliced;
    t["groupby"] = grouped;
    t["truncate"] = truncated;
    t["urlencode"] = url_encoded;
    t["wordcount"] = [](const Call& c) -> Value { return std::ssize(split(c, text_of(c), {}, -1, false)); };
    return checked(std::move(t),
                   {{"trim", {"chars"}},
                    {"replace", {"old", "new", "count"}},
                    {"join", {"d", "attribute"}},
                    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}},
                    {"sort", {"reverse", "case_sensitive", "attribute"}},
                    {"dictsort", {"case_sensitive", "by", "reverse"}},
                    {"unique", {"case_sensitive", "attribute"}},
                    {"default", {"default_value", "boolean"}},
                    {"d", {"default_value", "boolean"}},
                    {"int", {"default", "base"}},
                    {"float", {"default"}},
                    {"round", {"precision", "method"}},
                    {"indent", {"width", "first", "blank"}},
                    {"sum", {"attribute", "start"}},
                    {"min", {"case_sensitive", "attribute"}},
                    {"max", {"case_sensitive", "attribute"}},
                    {"attr", {"name"}},
                    {"batch", {"linecount", "fill_with"}},
                    {"slice", {"slices", "fill_with"}},
                    {"groupby", {"attribute", "default", "case_sensitive"}},
                    {"truncate", {"length", "killwords", "end", "leeway"}}},
                   {"map", "select", "reject", "selectattr", "rejectattr"});
  }();
  return table;
}

int compared(const Call& c) {
  return Value::compare(object_of(c), c.at(1, "other"));
}

const Table& tests() {
  static const Table table = [] {
    Table t;
    t["defined"] = [](const Call& c) -> Value { return !object_of(c).is_undefined(); };
    t["undefined"] = [](const Call& c) -> Value { return object_of(c).is_undefined(); };
    t["none"] = [](const Call& c) -> Value { return object_of(c).is_none(); };
    t["string"] = [](const Call& c) -> Value { return object_of(c).is_string(); };
    t["number"] = [](const Call& c) -> Value { return object_of(c).is_number(); };
    t["integer"] = [](const Call& c) -> Value { return object_of(c).is_integer(); };
    t["float"] = [](const Call& c) -> Value { return object_of(c).is_float(); };
    t["boolean"] = [](const Call& c) -> Value { return object_of(c).is_bool(); };
    t["true"] = [](const Call& c) -> Value { return object_of(c).is_bool() && object_of(c).truth(); };
    t["false"] = [](const Call& c) -> Value { return object_of(c).is_bool() && !object_of(c).truth(); };
    t["mapping"] = [](const Call& c) -> Value { return object_of(c).is_dict(); };
    t["sequence"] = t["iterable"] = [](const Call& c) -> Value {
      const Value& v = object_of(c);
      return v.is_list() || v.is_string() || v.is_dict();
    };
    t["callable"] = [](const Call& c) -> Value { return object_of(c).is_function(); };
    t["even"] = [](const Call& c) -> Value { return object_of(c).integer("even") % 2 == 0; };
    t["odd"] = [](const Call& c) -> Value { return object_of(c).integer("odd") % 2 != 0; };
    t["divisibleby"] = [](const Call& c) -> Value {
      const int64_t by = c.at(1, "num").integer("divisibleby");
      check(by != 0, "divisibleby: division by zero");
      return by == -1 || object_of(c).integer("divisibleby") % by == 0;
    };
    t["equalto"] = t["eq"] =
        t["sameas"] = [](const Call& c) -> Value { return object_of(c) == c.at(1, "other"); };
    t["ne"] = [](const Call& c) -> Value { return !(object_of(c) == c.at(1, "other")); };
    t["lt"] = t["lessthan"] = [](const Call& c) -> Value { return compared(c) < 0; };
    t["le"] = [](const Call& c) -> Value { return compared(c) <= 0; };
    t["gt"] = t["greaterthan"] = [](const Call& c) -> Value { return compared(c) > 0; };
    t["ge"] = [](const Call& c) -> Value { return compared(c) >= 0; };
    t["in"] = [](const Call& c) -> Value {
      const Value in = c.at(1, "seq"), &what = object_of(c);
      if (in.is_string()) return in.string("in").find(what.string("in")) != std::string::npos;
      const List all = in.elements("in");
      return std::ranges::find(all, what) != all.end();
    };
    t["lower"] = [](const Call& c) -> Value { return lower(text_of(c)) == text_of(c); };
    t["upper"] = [](const Call& c) -> Value { return upper(text_of(c)) == text_of(c); };
    return checked(std::move(t), {{"divisibleby", {"num"}},
                                  {"equalto", {"other"}},
                                  {"eq", {"other"}},
                                  {"sameas", {"other"}},
                                  {"ne", {"other"}},
                                  {"lt", {"other"}},
                                  {"lessthan", {"other"}},
                                  {"le", {"other"}},
                                  {"gt", {"other"}},
                                  {"greaterthan", {"other"}},
                                  {"ge", {"other"}},
                                  {"in", {"seq"}}});
  }();
  return table;
}

// Methods get the object as their first argument.
const Table& string_methods() {
  static const Table table = [] {
    Table t;
    t["strip"] = [](const Call& c) -> Value { return stripped(text_of(c), c.at(1, "chars"), true, true); };
    t["lstrip"] = [](const Call& c) -> Value { return stripped(text_of(c), c.at(1, "chars"), true, false); };
    t["rstrip"] = [](const Call& c) -> Value { return stripped(text_of(c), c.at(1, "chars"), false, true); };
    t["startswith"] = [](const Call& c) -> Value { return affix(text_of(c), c.at(1, "prefix"), true); };
    t["endswith"] = [](const Call& c) -> Value { return affix(text_of(c), c.at(1, "suffix"), false); };
    t["removeprefix"] = [](const Call& c) -> Value {
      const std::string &s = text_of(c), a = c.at(1, "prefix").string("removeprefix");
      return s.starts_with(a) ? s.substr(a.size()) : s;
    };
    t["removesuffix"] = [](const Call& c) -> Value {
      const std::string &s = text_of(c), a = c.at(1, "suffix").string("removesuffix");
      return s.ends_with(a) ? s.substr(0, s.size() - a.size()) : s;
    };
    t["split"] = [](const Call& c) -> Value {
      return split(c, text_of(c), c.at(1, "sep"), count_of(c.at(2, "maxsplit"), -1, "split"), false);
    };
    t["rsplit"] = [](const Call& c) -> Value {
      return split(c, text_of(c), c.at(1, "sep"), count_of(c.at(2, "maxsplit"), -1, "rsplit"), true);
    };
    t["splitlines"] = [](const Call& c) -> Value {
      List lines = split(c, text_of(c), "\n", -1, false);
      if (lines.back().string("splitlines").empty()) lines.pop_back();
      return lines;
    };
    t["upper"] = [](const Call& c) -> Value { return upper(text_of(c)); };
    t["lower"] = [](const Call& c) -> Value { return lower(text_of(c)); };
    t["title"] = [](const Call& c) -> Value { return capitalized(text_of(c), true); };
    t["capitalize"] = [](const Call& c) -> Value { return capitalized(text_of(c), false); };
    t["replace"] = [](const Call& c) -> Value {
      return replaced(c, text_of(c), c.at(1, "old").string("replace"), c.at(2, "new").string("replace"),
                      count_of(c.at(3, "count"), -1, "replace"));
    };
    t["join"] = [](const Call& c) -> Value {
      return joined({c.name, c.budget, {c.at(1, "iterable"), object_of(c)}, {}});
    };
    t["find"] = [](const Call& c) -> Value {
      const std::string& s = text_of(c);
      const size_t at = s.find(c.at(1, "sub").string("find"));
      return at == s.npos ? int64_t{-1}
                          : static_cast<int64_t>(count_characters(std::string_view(s).substr(0, at)));
    };
    t["count"] = [](const Call& c) -> Value {
      const std::string what = c.at(1, "sub").string("count");
      if (what.empty()) return object_of(c).length() + 1;
      return std::ssize(split(c, text_of(c), what, -1, false)) - 1;
    };
    t["isdigit"] = [](const Call& c) -> Value {
      const std::string& s = text_of(c);
      return !s.empty() && std::ranges::all_of(s, [](char x) { return x >= '0' && x <= '9'; });
    };
    return checked(std::move(t), {{"strip", {"chars"}},
                                  {"lstrip", {"chars"}},
                                  {"rstrip", {"chars"}},
                                  {"startswith", {"prefix"}},
                                  {"endswith", {"suffix"}},
                                  {"removeprefix", {"prefix"}},
                                  {"removesuffix", {"suffix"}},
                                  {"split", {"sep", "maxsplit"}},
                                  {"rsplit", {"sep", "maxsplit"}},
                                  {"replace", {"old", "new", "count"}},
                                  {"join", {"iterable"}},
                                  {"find", {"sub"}},
                                  {"count", {"sub"}}});
  }();
  return table;
}

const Table& dict_methods() {
  static const Table table = [] {
    Table t;
    t["get"] = [](const Call& c) -> Value {
      const Value* found = object_of(c).member(c.at(1, "key").text());
      if (found != nullptr) return *found;
      const Value otherwise = c.at(2, "default");
      return otherwise.is_undefined() ? Value(Value::None{}) : otherwise;
    };
    t["items"] = [](const Call& c) { return items_of(object_of(c)); };
    t["keys"] = [](const Call& c) -> Value { return object_of(c).elements("keys"); };
    t["values"] = [](const Call& c) -> Value {
      List out;
      for (const auto& [key, v] : object_of(c).dict("values")) out.push_back(v);
      return out;
    };
    return checked(std::move(t), {{"get", {"key", "default"}}});
  }();
  return table;
}

const Table& list_methods() {
  static const Table table = [] {
    Table t;
    t["index"] = [](const Call& c) -> Value {
      const List& all = object_of(c).list("index");
      const auto it = std::ranges::find(all, c.at(1, "value"));
      check(it != all.end(), "index: {} is not in the list", c.at(1, "value").repr());
      return std::distance(all.begin(), it);
    };
    t["count"] = [](const Call& c) -> Value {
      return std::ranges::count(object_of(c).list("count"), c.at(1, "value"));
    };
    return checked(std::move(t), {{"index", {"value"}}, {"count", {"value"}}});
  }();
  return table;
}

constexpr std::string_view kChanging[] = {"append", "extend", "insert",  "pop",        "remove", "clear",
                                          "sort",   "update", "reverse", "setdefault", "popitem"};

std::string names_of(const Table& table) {
  std::string out;
  for (const auto& [name, f] : table) out += (out.empty() ? "" : ", ") + name;
  return out;
}

Value range(const Call& c) {
  c.expect(Names{"start", "stop", "step"});
  const bool one = c.positional.size() == 1;
  const int64_t from = one ? 0 : c.at(0, "start").integer("range"),
                to = c.at(one ? 0 : 1, "stop").integer("range"), step = count_of(c.at(2, "step"), 1, "range");
  check(step != 0, "range: the step must not be 0");
  constexpr int64_t kMost = 1'000'000;
  check(std::abs(from) <= kMost * 1000 && std::abs(to) <= kMost * 1000 && std::abs(step) <= kMost * 1000,
        "range: the numbers are too large");
  List out;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) {
    check(std::ssize(out) < kMost, "range: more than {} numbers", kMost);
    out.emplace_back(i);
  }
  c.budget.step(std::ssize(out));
  c.budget.made(out.size() * sizeof(Value));
  return out;
}

}  // namespace

const Function* find_filter(const std::string& name) {
  const auto it = filters().find(name);
  return it == filters().end() ? nullptr : &it->second;
}
const Function* find_test(const std::string& name) {
  const auto it = tests().find(name);
  return it == tests().end() ? nullptr : &it->second;
}
std::string filter_names() {
  return names_of(filters());
}
std::string test_names() {
  return names_of(tests());
}

Value find_method(const Value& object, const std::string& name) {
  const Table* table = object.is_string()                          ? &string_methods()
                       : object.is_dict() || object.is_namespace() ? &dict_methods()
                       : object.is_list()                          ? &list_methods()
                                                                   : nullptr;
  if (table == nullptr) return {};
  if (const auto it = table->find(name); it != table->end())
    return Function([object, &method = it->second](const Call& c) {
      c.budget.step(object.weight());
      Call bound{c.name, c.budget, {object}, c.named};
      bound.positional.insert(bound.positional.end(), c.positional.begin(), c.positional.end());
      return method(bound);
    });
  if (!object.is_string() && object.member(name) == nullptr &&
      std::ranges::find(kChanging, name) != std::end(kChanging))
    return Function(
        [name](const Call&) -> Value { fail("{}: lists and mappings are not changed by templates", name); });
  return {};
}

Dict global_functions(int64_t now) {
  Dict out;
  out.emplace_back("range", Function(range));
  const auto members = [](const Call& c) {
    check(c.positional.size() <= 1, "{}: expected one mapping and named arguments", c.name);
    Dict all = c.positional.empty() ? Dict() : c.positional[0].dict(c.name);
    for (const auto& member : c.named) {
      std::erase_if(all, [&](const auto& m) { return m.first == member.first; });
      all.push_back(member);
    }
    return all;
  };
  out.emplace_back("dict", Function([members](const Call& c) -> Value { return members(c); }));
  out.emplace_back("namespace", Function([members](const Call& c) -> Value {
                     return Value::Namespace{std::make_shared<Dict>(members(c))};
                   }));
  out.emplace_back("raise_exception", Function([](const Call& c) -> Value {
                     fail("the template refuses: {}", c.at(0, "message").text());
                   }));
  out.emplace_back("strftime_now", Function([now](const Call& c) -> Value {
                     const std::string format = c.at(0, "format").string("strftime_now");
                     check(format.size() <= 200, "strftime_now: the format is too long");
                     const auto time = static_cast<std::time_t>(now);
                     std::tm local{};
                     localtime_r(&time, &local);
                     char text[4096];
                     return std::string(text, std::strftime(text, sizeof(text), format.c_str(), &local));
                   }));
  return out;
}

}  // namespace qkv::text::jinja
