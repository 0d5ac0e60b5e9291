// Conditions under which fields of a spec act.
#pragma once

#include <string>

#include "qkv/models/spec.h"
#include "qkv/models/spec_field.h"

namespace qkv {

// Conditions under which fields act.
struct Needs {
  static constexpr FieldCondition kAttention = {"attention (mixer, or a source)", "model.mixer",
                                                [](const ModelSpec& s) { return s.attends(); }};
  static constexpr FieldCondition kSelfAttention = {"a mixer of attention", "model.mixer",
                                                    [](const ModelSpec& s) { return s.mixer.attends(); }};
  static constexpr FieldCondition kRotary = {
      "positions = \"rotary\"", "model.positions",
      [](const ModelSpec& s) { return s.positions == Positions::rotary; }};
  static constexpr FieldCondition kScaledRotary = {
      "positions = \"rotary\" and a rotary_scaling", "model.rotary_scaling",
      [](const ModelSpec& s) { return s.attention.rotary.scaling != RotaryScaling::none; }};
  static constexpr FieldCondition kSinusoidal = {
      "positions = \"sinusoidal\", \"sinusoidal_halves\" or \"sinusoidal_closed\"", "model.positions",
      [](const ModelSpec& s) {
        return s.positions == Positions::sinusoidal || s.positions == Positions::sinusoidal_halves ||
               s.positions == Positions::sinusoidal_closed;
      }};
  static constexpr FieldCondition kBuckets = {
      "positions or distance_bias = \"relative\"", "model.positions",
      [](const ModelSpec& s) { return s.bias() == Positions::relative; }};
  static constexpr FieldCondition kDistances = {
      "positions or distance_bias = \"relative\" or \"toeplitz\"", "model.positions",
      [](const ModelSpec& s) { return s.bias() == Positions::relative || s.bias() == Positions::toeplitz; }};
  static constexpr FieldCondition kGrowingQueries = {
      "a query_growth above 0", "model.query_growth",
      [](const ModelSpec& s) { return s.attention.query_growth != 0; }};
  static constexpr FieldCondition kGated = {"gated = true", "model.gated",
                                            [](const ModelSpec& s) { return s.gated; }};
  static constexpr FieldCondition kRecurrentEncoder = {
      "a recurrent encoder (encoder = \"lstm\" or \"gru\")", "model.encoder",
      [](const ModelSpec& s) { return s.recurrence.encoder != Cell::none; }};
  static constexpr FieldCondition kLocalAttention = {
      "source_attention = \"local\"", "model.source_attention",
      [](const ModelSpec& s) { return s.recurrence.attention == SourceAttention::local; }};
  static constexpr FieldCondition kMtp = {"an mtp_layers above 0", "model.mtp_layers",
                                          [](const ModelSpec& s) { return s.mtp.any(); }};
  static constexpr FieldCondition kLatents = {"a latents above 0", "model.latents",
                                              [](const ModelSpec& s) { return s.latents.any(); }};
  static constexpr FieldCondition kTokens = {"an objective that predicts tokens", "train.objective",
                                             [](const ModelSpec& s) { return s.output == Output::tokens; }};
  static constexpr FieldCondition kLogits = {
      "an objective that predicts tokens or classes", "train.objective",
      [](const ModelSpec& s) { return s.output != Output::embedding; }};
  static constexpr FieldCondition kPooled = {
      "an objective that pools: classify, multi_label, regression, multiple_choice, embed, or masked with "
      "next_sentence",
      "train.objective", [](const ModelSpec& s) {
        return s.output == Output::sequence_classes || s.output == Output::embedding || s.pooler;
      }};
  static constexpr FieldCondition kSequenceClasses = {
      "train.objective = \"classify\", \"multi_label\", \"regression\" or \"multiple_choice\"",
      "train.objective", [](const ModelSpec& s) { return s.output == Output::sequence_classes; }};
  static constexpr FieldCondition kPooler = {"pooler = true", "model.pooler",
                                             [](const ModelSpec& s) { return s.pooler; }};
  static constexpr FieldCondition kClasses = {
      "an objective with classes: classify, multi_label, regression, multiple_choice, tag, answer, or masked "
      "with "
      "next_sentence",
      "train.objective", [](const ModelSpec& s) {
        return s.pooler || (s.output != Output::tokens && s.output != Output::embedding);
      }};
  static constexpr FieldCondition kHead = {"a head_width above 0", "model.head_width",
                                           [](const ModelSpec& s) { return s.head_width > 0; }};
};

// Fields that act where `condition` holds, beside those that say more.
template <typename Visitor>
struct Conditional {
  Visitor& visitor;
  const FieldCondition* condition;

  template <typename T, typename... Range>
  void operator()(SpecField field, T&& member, Range... range) {
    if (field.needs == nullptr) field.needs = condition;
    visitor(field, member, range...);
  }
};

// "mixer = NAME", for people.
std::string mixer_condition(const char* name);
// The condition that a block's mixer is an `M`.
template <typename M>
const FieldCondition& is_mixer() {
  static const std::string text = mixer_condition(M::kName);
  static const FieldCondition condition = {
      text.c_str(), "model.mixer", [](const ModelSpec& s) { return s.mixer.get_if<M>() != nullptr; }, true};
  return condition;
}

}  // namespace qkv
