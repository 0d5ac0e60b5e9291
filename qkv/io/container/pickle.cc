#include "qkv/io/container/pickle.h"

#include <bit>
#include <map>
#include <optional>

#include "qkv/base/error.h"

namespace qkv {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMostValues = size_t{1} << 22;  // more are no table of tensors
constexpr size_t kLongestName = 512;             // longest name of a module or a class

// A pickle is a program for a stack machine (Python's pickletools.py describes its instructions).
class Machine {
 public:
  Machine(std::string_view bytes, const std::string& where, std::vector<PickleValue>& values)
      : bytes_(bytes), where_(where), values_(values) {}

  // Runs to the end; returns the number of the result.
  uint32_t run() {
    while (true) {
      const size_t start = at_;
      const auto code = static_cast<uint8_t>(take(1)[0]);
      if (code == '.') return pop();
      if (!step(code))
        fail("{}: byte {}: the pickle's instruction 0x{:02x} is not one of plain data", where_, start, code);
    }
  }
  size_t position() const { return at_; }

 private:
  std::string_view take(size_t n) {
    check(n <= bytes_.size() - at_, "{}: the pickle is cut short at byte {}", where_, at_);
    at_ += n;
    return bytes_.substr(at_ - n, n);
  }
  uint64_t number(size_t width) {
    uint64_t n = 0;
    const std::string_view raw = take(width);
    for (size_t i = 0; i < width; ++i) n |= uint64_t{static_cast<uint8_t>(raw[i])} << (8 * i);
    return n;
  }
  std::string line() {
    const size_t end = bytes_.find('\n', at_);
    check(end != bytes_.npos, "{}: the pickle is cut short at byte {}", where_, at_);
    const std::string out(bytes_.substr(at_, end - at_));
    at_ = end + 1;
    return out;
  }
  // Little-endian two's complement of any length; what 64 bits cannot hold becomes text, for magic numbers.
  void long_integer(size_t width) {
    const std::string_view raw = take(width);
    if (width > 8) return push({.kind = Kind::text, .text = std::string(raw)});
    uint64_t n = width > 0 && (static_cast<uint8_t>(raw.back()) & 0x80) != 0 ? ~uint64_t{0} : 0;
    for (size_t i = width; i-- > 0;) n = n << 8 | static_cast<uint8_t>(raw[i]);
    push({.kind = Kind::integer, .integer = static_cast<int64_t>(n)});
  }

  void push(PickleValue value) {
    check(values_.size() < kMostValues, "{}: the pickle has more than {} values", where_, kMostValues);
    stack_.push_back(static_cast<uint32_t>(values_.size()));
    values_.push_back(std::move(value));
  }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = std::string(text)}); }
  uint32_t pop() {
    check(!stack_.empty() && (marks_.empty() || stack_.size() > marks_.back()),
          "{}: the pickle takes a value that is not there, at byte {}", where_, at_);
    const uint32_t value = stack_.back();
    stack_.pop_back();
    return value;
  }
  PickleValue& top(Kind kind) {
    check(!stack_.empty() && values_[stack_.back()].kind == kind,
          "{}: the pickle adds to something else than expected, at byte {}", where_, at_);
    return values_[stack_.back()];
  }
  std::vector<uint32_t> pop_to_mark() {
    check(!marks_.empty(), "{}: the pickle lacks a mark, at byte {}", where_, at_);
    const size_t begin = marks_.back();
    marks_.pop_back();
    std::vector<uint32_t> out(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin);
    return out;
  }
  void tuple(size_t n) {
    std::vector<uint32_t> items(n);
    for (size_t i = n; i-- > 0;) items[i] = pop();
    push({.kind = Kind::list, .items = std::move(items)});
  }
  void remember(uint64_t slot) {
    check(!stack_.empty() && memory_.size() < kMostValues,
          "{}: the pickle remembers nothing or too much, at byte {}", where_, at_);
    memory_[slot] = stack_.back();
  }
  void recall(uint64_t slot) {
    const auto it = memory_.find(slot);
    check(it != memory_.end(), "{}: the pickle recalls what it never remembered, at byte {}", where_, at_);
    stack_.push_back(it->second);
    check(stack_.size() < kMostValues, "{}: the pickle has more than {} values", where_, kMostValues);
  }
  void append(const std::vector<uint32_t>& items) {
    auto& to = top(Kind::list).items;
    to.insert(to.end(), items.begin(), items.end());
  }
  // An OrderedDict is a call without arguments, to which items are added.
  void set(const std::vector<uint32_t>& items) {
    check(items.size() % 2 == 0, "{}: a key of a dictionary lacks its value, at byte {}", where_, at_);
    PickleValue& to = top(Kind::dictionary);
    to.items.insert(to.items.end(), items.begin(), items.end());
  }
  // Keys and values of an OrderedDict's arguments: none, or (Python 2) a list of pairs.
  std::optional<std::vector<uint32_t>> pairs_of(const PickleValue& arguments) const {
    std::vector<uint32_t> out;
    if (arguments.items.empty()) return out;
    const PickleValue& list = values_[arguments.items[0]];
    if (arguments.items.size() > 1 || list.kind != Kind::list) return std::nullopt;
    for (const uint32_t i : list.items) {
      const PickleValue& pair = values_[i];
      if (pair.kind != Kind::list || pair.items.size() != 2) return std::nullopt;
      out.insert(out.end(), pair.items.begin(), pair.items.end());
    }
    return out;
  }
  void call() {
    const uint32_t arguments = pop(), function = pop();
    check(values_[function].kind == Kind::global && values_[arguments].kind == Kind::list,
          "{}: the pickle calls something without a name, at byte {}", where_, at_);
    if (values_[function].text == "collections.OrderedDict")
      if (auto pairs = pairs_of(values_[arguments]))
        return push({.kind = Kind::dictionary, .items = std::move(*pairs)});
    push({.kind = Kind::call, .items = {function, arguments}});
  }
  void global(const std::string& module, const std::string& name) {
    check(module.size() <= kLongestName && name.size() <= kLongestName,
          "{}: byte {}: the name of a class has more than {} bytes", where_, at_, kLongestName);
    push({.kind = Kind::global, .text = module + "." + name});
  }

  // One instruction; false if it is unknown.
  bool step(uint8_t code) {
    return scalar(code) || text(code) || container(code) || memory(code) || object(code);
  }

  bool scalar(uint8_t code) {
    switch (code) {
      case 'N':
        return push({}), true;
      case 0x88:
      case 0x89:
        return push({.kind = Kind::boolean, .integer = code == 0x88}), true;
      case 'J':
        return push({.kind = Kind::integer, .integer = static_cast<int32_t>(number(4))}), true;
      case 'K':
        return push({.kind = Kind::integer, .integer = static_cast<int64_t>(number(1))}), true;
      case 'M':
        return push({.kind = Kind::integer, .integer = static_cast<int64_t>(number(2))}), true;
      case 0x8a:
        return long_integer(number(1)), true;
      case 'G': {  // big-endian
        uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8 | static_cast<uint8_t>(c);
        return push({.kind = Kind::floating, .floating = std::bit_cast<double>(bits)}), true;
      }
      default:
        return false;
    }
  }
  bool text(uint8_t code) {
    switch (code) {
      case 'X':
      case 'T':
      case 'B':
        return push_text(take(number(4))), true;
      case 'U':
      case 'C':
      case 0x8c:
        return push_text(take(number(1))), true;
      default:
        return false;
    }
  }
  bool container(uint8_t code) {
    switch (code) {
      case '(':
        check(marks_.size() < kMostValues, "{}: the pickle has more than {} marks", where_, kMostValues);
        return marks_.push_back(stack_.size()), true;
      case ')':
      case ']':
      case 0x8f:
        return push({.kind = Kind::list}), true;
      case '}':
        return push({.kind = Kind::dictionary}), true;
      case 't':
      case 'l':
        return push({.kind = Kind::list, .items = pop_to_mark()}), true;
      case 0x85:
      case 0x86:
      case 0x87:
        return tuple(code - 0x84U), true;
      case 'a':
        return append({pop()}), true;
      case 'e':
      case 0x90:
        return append(pop_to_mark()), true;
      case 's': {
        const uint32_t value = pop(), key = pop();
        return set({key, value}), true;
      }
      case 'u':
        return set(pop_to_mark()), true;
      default:
        return false;
    }
  }
  bool memory(uint8_t code) {
    switch (code) {
      case 'q':
        return remember(number(1)), true;
      case 'r':
        return remember(number(4)), true;
      case 0x94:
        return remember(memory_.size()), true;
      case 'h':
        return recall(number(1)), true;
      case 'j':
        return recall(number(4)), true;
      case '0':
        return pop(), true;
      default:
        return false;
    }
  }
  bool object(uint8_t code) {
    switch (code) {
      case 0x80:
        return take(1), true;
      case 0x95:
        return take(8), true;
      case 'c': {
        const std::string module = line();
        return global(module, line()), true;
      }
      case 0x93: {
        const uint32_t name = pop(), module = pop();
        check(values_[name].kind == Kind::text && values_[module].kind == Kind::text,
              "{}: the pickle names a class by something else than words, at byte {}", where_, at_);
        return global(values_[module].text, values_[name].text), true;
      }
      case 'R':
      case 0x81:
        return call(), true;
      case 'Q':
        return push({.kind = Kind::persistent, .items = {pop()}}), true;
      case 'b':  // the state of an object, for example a dictionary's attributes: left out
        return pop(), true;
      default:
        return false;
    }
  }

  std::string_view bytes_;
  const std::string& where_;
  std::vector<PickleValue>& values_;
  size_t at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, uint32_t> memory_;
};

}  // namespace

Pickle::Pickle(std::string_view bytes, const std::string& where) {
  Machine machine(bytes, where, values_);
  root_ = machine.run();
  size_ = machine.position();
}

}  // namespace qkv
