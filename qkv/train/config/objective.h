// Objectives: what a run learns, and what each of them asks of models and files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/models/spec.h"

namespace qkv {

enum class Objective : uint8_t {
  next_token,            // Algorithm 13: a decoder continues texts
  masked,                // Algorithm 12: an encoder finds what was hidden
  permutation,           // it finds tokens one after another in a random order (XLNet)
  sequence_to_sequence,  // Algorithm 11: an encoder-decoder, or a decoder, writes a target for a source
  span_corruption,       // it writes the spans that were taken from a text (T5)
  denoise,               // it writes the text that was noised (BART)
  chat,                  // a decoder writes what the assistant says in conversations
  classify,              // an encoder, or a decoder, tells the class of a text, or of a pair of texts
  tag,                   // of each word
  embed,                 // texts of a pair have vectors near each other
  answer,                // where in a text the answer to a question stands
};

// A row of the table of objectives.
struct ObjectiveSpec {
  Objective objective;
  const char* name;
  std::vector<Architecture> architectures;  // that can learn it
  Output output;                            // of the model
  bool writes_targets;                      // for sources
  std::vector<std::string> formats;         // of files that hold data for it
  const char* next_command;                 // uses what was learnt; {} is the run. Null: it begins others
};
// All of them, in the order of the help text.
const std::vector<ObjectiveSpec>& objective_specs();
const ObjectiveSpec& spec_of(Objective objective);

template <>
std::string name_of(Objective objective);
template <>
std::vector<std::string> names_of<Objective>();
template <>
Objective from_name(const std::string& name);
// True where a model of this kind can learn it.
bool carries(Architecture architecture, Objective objective);
// True where targets are written for sources.
bool writes_targets(Objective objective);

}  // namespace qkv
