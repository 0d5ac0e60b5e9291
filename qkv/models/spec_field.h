// A field of a spec: its name, range and the conditions under which it acts. The list of all is
// spec_schema.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "qkv/models/spec.h"

namespace qkv {

// The relation of a field to weights that a run begins with (model.from).
enum class WithWeights : uint8_t {
  free,         // a run may change it
  kept,         // the weights mean nothing without it
  kept_output,  // the same where the run keeps the model's output
};

// Files that have a field.
enum class FieldPlace : uint8_t { everywhere, configuration, model_file };

// A condition under which a field changes what a model computes.
struct FieldCondition {
  const char* text;  // for people
  const char* key;   // of a configuration, on which it depends
  bool (*holds)(const ModelSpec& spec);
};

// A field as the schema has it, without its member and its range.
struct SpecField {
  const char* name;               // in [model] of a configuration
  const char* help = "";          // one line for people
  const char* derived = nullptr;  // its default where that depends on other fields
  WithWeights weights = WithWeights::free;
  int since = 1;                    // first version of the native config.json that has it
  const char* file_name = nullptr;  // its name there, where another
  FieldPlace place = FieldPlace::everywhere;
  const FieldCondition* needs = nullptr;  // null: none, or one that check_spec() knows

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

// An optional member, and what stands for it where it is empty. Empty and that value mean the same.
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

// Conditions of the fields below.
struct Needs {
  static constexpr FieldCondition kRotary = {
      "positions = \"rotary\"", "model.positions",
      [](const ModelSpec& s) { return s.positions == Positions::rotary; }};
  static constexpr FieldCondition kScaledRotary = {
      "positions = \"rotary\" and a rotary_scaling", "model.rotary_scaling",
      [](const ModelSpec& s) { return s.attention.rotary.scaling != RotaryScaling::none; }};
  static constexpr FieldCondition kBuckets = {
      "positions = \"relative\"", "model.positions",
      [](const ModelSpec& s) { return s.positions == Positions::relative; }};
  static constexpr FieldCondition kDistances = {
      "positions = \"relative\" or \"toeplitz\"", "model.positions", [](const ModelSpec& s) {
        return s.positions == Positions::relative || s.positions == Positions::toeplitz;
      }};
  static constexpr FieldCondition kRecurrentEncoder = {
      "a recurrent encoder (encoder = \"lstm\" or \"gru\")", "model.encoder",
      [](const ModelSpec& s) { return s.recurrence.encoder != Cell::none; }};
  static constexpr FieldCondition kLocalAttention = {
      "source_attention = \"local\"", "model.source_attention",
      [](const ModelSpec& s) { return s.recurrence.attention == SourceAttention::local; }};
  static constexpr FieldCondition kTokens = {"an objective that predicts tokens", "train.objective",
                                             [](const ModelSpec& s) { return s.output == Output::tokens; }};
  static constexpr FieldCondition kLogits = {
      "an objective that predicts tokens or classes", "train.objective",
      [](const ModelSpec& s) { return s.output != Output::embedding; }};
  static constexpr FieldCondition kPooled = {
      "an objective that pools: classify, embed, or masked with next_sentence", "train.objective",
      [](const ModelSpec& s) {
        return s.output == Output::sequence_classes || s.output == Output::embedding || s.pooler;
      }};
  static constexpr FieldCondition kSequenceClasses = {
      "train.objective = \"classify\"", "train.objective",
      [](const ModelSpec& s) { return s.output == Output::sequence_classes; }};
  static constexpr FieldCondition kPooler = {"pooler = true", "model.pooler",
                                             [](const ModelSpec& s) { return s.pooler; }};
  static constexpr FieldCondition kClasses = {
      "an objective with classes: classify, tag, answer, or masked with next_sentence", "train.objective",
      [](const ModelSpec& s) {
        return s.pooler || (s.output != Output::tokens && s.output != Output::embedding);
      }};
  static constexpr FieldCondition kHead = {"a head_width above 0", "model.head_width",
                                           [](const ModelSpec& s) { return s.head_width > 0; }};
};

}  // namespace qkv
