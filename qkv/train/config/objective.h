// Training objectives, and the models and files that each of them needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/models/spec.h"

namespace qkv {

enum class Objective : uint8_t {
  next_token,            // Algorithm 13: a decoder continues texts
  masked,                // Algorithm 12: an encoder predicts masked tokens
  permutation,           // an encoder predicts tokens one by one in a random order (XLNet)
  sequence_to_sequence,  // Algorithm 11: an encoder-decoder, or a decoder, writes a target for a source
  span_corruption,       // such a model writes the spans that were removed from a text (T5)
  denoise,               // such a model restores a noised text (BART)
  prefix_lm,             // an encoder-decoder continues the beginning of a text (T5's prefix LM)
  chat,                  // a decoder writes the assistant's messages in conversations
  classify,              // an encoder, or a decoder, predicts the class of a text or a pair of texts
  multi_label,           // which of several labels apply to it
  regression,            // a number
  multiple_choice,       // which of a question's choices is right
  tag,                   // the class of each word
  embed,                 // the two texts of a pair get similar vectors
  answer,                // finds the answer to a question in a text
};

// A row of the table of objectives.
struct ObjectiveSpec {
  Objective objective;
  const char* name;
  std::vector<Architecture> architectures;  // architectures that can learn it
  Output output;                            // output of the model
  bool writes_targets;                      // true if it writes targets for sources
  std::vector<std::string> formats;         // formats of its files
  const char* next_command;  // command that uses the model; {} is the run. Null: other runs start from it
  Problem problem = Problem::single_label;
};
// All objectives, in the order of the help text.
const std::vector<ObjectiveSpec>& objective_specs();
const ObjectiveSpec& spec_of(Objective objective);

template <>
std::string name_of(Objective objective);
template <>
std::vector<std::string> names_of<Objective>();
template <>
Objective from_name(const std::string& name);
// True if models of this architecture can learn the objective.
bool carries(Architecture architecture, Objective objective);
// True if the objective writes targets for sources.
bool writes_targets(Objective objective);

}  // namespace qkv
