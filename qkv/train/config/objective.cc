#include "qkv/train/config/objective.h"

#include <fmt/format.h>

#include <algorithm>

#include "qkv/base/error.h"

namespace qkv {

const std::vector<ObjectiveSpec>& objective_specs() {
  using enum Objective;
  using enum Architecture;
  static const std::vector<std::string> kTexts = {"text", "csv", "tsv", "jsonl"},
                                        kRows = {"csv", "tsv", "jsonl"};
  static const std::vector<ObjectiveSpec> specs = {
      {next_token,
       "next_token",
       {decoder},
       Output::tokens,
       false,
       kTexts,
       "qkv generate {} --prompt \"...\""},
      {masked, "masked", {encoder}, Output::tokens, false, kTexts, "echo \"... [MASK] ...\" | qkv fill {}"},
      {permutation, "permutation", {encoder}, Output::tokens, false, kTexts, nullptr},
      {sequence_to_sequence,
       "sequence_to_sequence",
       {decoder, encoder_decoder},
       Output::tokens,
       true,
       kTexts,
       "echo \"...\" | qkv translate {}"},
      {span_corruption, "span_corruption", {decoder, encoder_decoder}, Output::tokens, true, kTexts, nullptr},
      {denoise, "denoise", {decoder, encoder_decoder}, Output::tokens, true, kTexts, nullptr},
      {prefix_lm,
       "prefix_lm",
       {encoder_decoder},
       Output::tokens,
       true,
       kTexts,
       "echo \"...\" | qkv translate {}"},
      {chat, "chat", {decoder}, Output::tokens, false, {"jsonl"}, "qkv chat {}"},
      {classify,
       "classify",
       {decoder, encoder},
       Output::sequence_classes,
       false,
       kRows,
       "echo \"...\" | qkv classify {}"},
      {multi_label,
       "multi_label",
       {decoder, encoder},
       Output::sequence_classes,
       false,
       kRows,
       "echo \"...\" | qkv classify {}",
       Problem::multi_label},
      {regression,
       "regression",
       {decoder, encoder},
       Output::sequence_classes,
       false,
       kRows,
       "echo \"...\" | qkv classify {}",
       Problem::regression},
      {multiple_choice,
       "multiple_choice",
       {decoder, encoder},
       Output::sequence_classes,
       false,
       kRows,
       "qkv choose {} --file questions.jsonl",
       Problem::multiple_choice},
      {tag,
       "tag",
       {decoder, encoder},
       Output::token_classes,
       false,
       {"conll", "conllu", "text", "jsonl"},
       "echo \"...\" | qkv tag {}"},
      {embed, "embed", {decoder, encoder}, Output::embedding, false, kRows, "echo \"...\" | qkv embed {}"},
      {answer, "answer", {encoder}, Output::span, false, kRows, "qkv answer {} --help"},
  };
  return specs;
}

const ObjectiveSpec& spec_of(Objective objective) {
  const auto it = std::ranges::find(objective_specs(), objective, &ObjectiveSpec::objective);
  check(it != objective_specs().end(), "objective: there is no number {}", static_cast<int>(objective));
  return *it;
}

template <>
std::string name_of(Objective objective) {
  return spec_of(objective).name;
}

template <>
std::vector<std::string> names_of<Objective>() {
  std::vector<std::string> names;
  for (const ObjectiveSpec& spec : objective_specs()) names.emplace_back(spec.name);
  return names;
}

template <>
Objective from_name(const std::string& name) {
  for (const ObjectiveSpec& spec : objective_specs())
    if (name == spec.name) return spec.objective;
  fail("objective: expected one of {}, got '{}'", fmt::join(names_of<Objective>(), ", "), name);
}

bool carries(Architecture architecture, Objective objective) {
  return std::ranges::find(spec_of(objective).architectures, architecture) !=
         spec_of(objective).architectures.end();
}

bool writes_targets(Objective objective) {
  return spec_of(objective).writes_targets;
}

}  // namespace qkv
