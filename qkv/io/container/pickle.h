// Python's pickles, read without executing them: a tree of plain values. A pickle may name classes and calls;
// the reader keeps them as names and arguments, and the caller decides which of them it knows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qkv {

// A value of a pickle. Its parts are numbers of other values of the same Pickle.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,  // `integer` is 0 or 1
    integer,
    floating,
    text,        // strings and bytes
    list,        // lists, tuples and sets: `items`
    dictionary,  // `items`: keys and values in turn
    global,      // `text`: "module.name"
    call,        // `items`: the global and its tuple of arguments
    persistent,  // `items`: the tuple that names an object outside the pickle
  };
  Kind kind = Kind::none;
  int64_t integer = 0;
  double floating = 0;
  std::string text = {};
  std::vector<uint32_t> items = {};
};

// All values of one pickle.
class Pickle {
 public:
  // Reads one pickle from the beginning of `bytes`; `where` names it in errors. Throws Error for what plain
  // data does not need, and for damaged input.
  Pickle(std::string_view bytes, const std::string& where);

  const PickleValue& root() const { return at(root_); }
  const PickleValue& at(uint32_t value) const { return values_[value]; }
  uint32_t count() const { return static_cast<uint32_t>(values_.size()); }
  // Item `i` of a value.
  const PickleValue& item(const PickleValue& of, size_t i) const { return at(of.items[i]); }
  // Bytes that the pickle takes.
  size_t size() const { return size_; }

 private:
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
  size_t size_ = 0;
};

}  // namespace qkv
