// A field of a spec: its name, range and the conditions under which it acts. The list of all is
// spec_schema.h.
#pragma once

#include <cstdint>
#include <type_traits>

namespace qkv {

struct ModelSpec;

// The relation of a field to weights that a run begins with (model.from).
enum class WithWeights : uint8_t {
  free,         // a run may change it
  kept,         // the weights are meaningless with another value
  kept_output,  // the same if the run keeps the model's output
};

// Files that have a field.
enum class FieldPlace : uint8_t { everywhere, configuration, model_file };

// A condition under which a field changes what a model computes.
struct FieldCondition {
  const char* text;  // for users
  const char* key;   // configuration key on which it depends
  bool (*holds)(const ModelSpec& spec);
  bool own_block_alone = false;  // kinds of blocks do not have the field from the model
};

// A field in the schema, without its member and its range.
struct SpecField {
  const char* name;               // in [model] of a configuration
  const char* help = "";          // one line for users
  const char* derived = nullptr;  // its default if that depends on other fields
  WithWeights weights = WithWeights::free;
  int since = 1;                    // first version of the native config.json that has it
  const char* file_name = nullptr;  // its name there, if different
  FieldPlace place = FieldPlace::everywhere;
  const FieldCondition* needs = nullptr;  // null: none, or one that check_spec() knows
  bool implied = false;  // its value follows from fields before it, which alone tell models apart

  bool in_configuration() const { return place != FieldPlace::model_file; }
  bool in_model_file() const { return place != FieldPlace::configuration; }
  const char* name_in_file() const { return file_name ? file_name : name; }
};

// The values that a number may have, both ends included.
template <typename T>
struct Range {
  T least, most;
  bool holds(T value) const { return value >= least && value <= most; }  // false for NaN
};

// An optional member, and the value that it has if empty. Empty and that value mean the same.
template <typename Optional, typename T>
struct OrElse {
  Optional& member;
  const T& otherwise;

  T value() const { return member.value_or(otherwise); }
  void set(const T& v) const requires(!std::is_const_v<Optional>) {
    if (v == otherwise)
      member.reset();
    else
      member = v;
  }
};

// For compilers that deduce no aggregates.
template <typename Optional, typename T>
OrElse(Optional&, const T&) -> OrElse<Optional, T>;

// Ranges of whole and of other numbers.
using Integers = Range<int64_t>;
using Numbers = Range<double>;
// The range of dropout rates.
inline constexpr Numbers kDropout = {0, 0.95};
// The range of factors.
inline constexpr Numbers kFactor = {-1e6, 1e6};

}  // namespace qkv
