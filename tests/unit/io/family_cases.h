// Models, and the family that describes each.
#pragma once

#include <span>

#include "qkv/models/spec.h"

namespace qkv {

struct FamilyCase {
  const char* model_type;
  void (*change)(ModelSpec& s);  // differences of the family from llama()
};

std::span<const FamilyCase> llama_family_cases();   // Llama's relatives
std::span<const FamilyCase> hybrid_family_cases();  // states and hybrids
std::span<const FamilyCase> family_cases();         // all others

// Turns a decoder into a sequence classifier, as in the families.
void classify(ModelSpec& s);

}  // namespace qkv
