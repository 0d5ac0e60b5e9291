// A mixer as data: what every kind of mixer brings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "qkv/nn/sublayer.h"
#include "qkv/ops/attention.h"

namespace qkv {

struct ModelSpec;
class Parameters;

// The place of a mixer in a model: the layer that it is made for.
struct MixerPlace {
  Parameters& parameters;
  const std::string& name;  // that its parameters begin with
  const ModelSpec& spec;    // as if all layers were of this one's kind
  Mask mask;                // of the stack: causal, or full
  int64_t layer;            // from 0
  uint32_t site;            // of its uses of randomness
  InitStd std;
};

// Memory and arithmetic of a mixer, per token, for `qkv plan`.
struct MixerCost {
  int64_t projected = 0;        // columns made of each row that it reads, kept for the backward pass
  int64_t out = 0;              // columns of its result, kept likewise
  int64_t kept_f32 = 0;         // numbers in f32 that are kept
  int64_t again_f32 = 0;        // of these, those whose gradients are in memory at once
  int64_t multiplications = 0;  // with weights
  int64_t scores = 0;           // multiplications per key that is seen, of the scores alone
  int64_t per_key = 0;          // and of all
  int64_t remembered = 0;       // numbers that decoding remembers of each token
  int64_t state = 0;            // and of each sequence, however long
};

// A mixer is a struct with its fields and:
//
//   static constexpr const char* kName;     its name as model.mixer
//   static constexpr const char* kPart;     the part of a block's name that its parameters have
//   static constexpr bool kAttends;         the spec's attention, positions and patterns mean something to it
//   static constexpr bool kKnowsOrder;      it tells the order of tokens without positions
//   template <typename Spec, typename Visitor>
//   static void for_each_field(Spec& mixer, Visitor& v);   its fields, as in spec_schema.h
//   void check(const ModelSpec& spec) const;               throws Error where it does not fit the rest
//   std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
//   MixerCost cost(const ModelSpec& spec, bool causal) const;   causal: no token sees those after it
//   bool operator==(const M&) const;
//
// models/mixer_spec.h lists them all.

}  // namespace qkv
