// A mixer as data: what every kind of mixer provides.
#pragma once

#include <cstdint>
#include <memory>

namespace qkv {

class Sublayer;     // nn/sublayer.h
struct MixerPlace;  // models/mixers/mixer_place.h
struct ModelSpec;

// Memory and arithmetic of a mixer, per token, for `qkv plan`.
struct MixerCost {
  int64_t projected = 0;        // columns computed from each input row, kept for the backward pass
  int64_t out = 0;              // columns of its result, also kept
  int64_t kept_f32 = 0;         // f32 numbers that are kept
  int64_t again_f32 = 0;        // the part of kept_f32 whose gradients are in memory at once
  int64_t multiplications = 0;  // with weights
  int64_t scores = 0;           // multiplications for scores, per visible key
  int64_t per_key = 0;          // all multiplications per visible key
  int64_t remembered = 0;       // numbers that decoding stores per token
  int64_t state = 0;            // numbers that decoding stores per sequence, whatever its length
};

// A mixer is a struct with its fields and:
//
//   static constexpr const char* kName;     its name as model.mixer
//   static constexpr const char* kPart;     the part of a block's name that its parameters have
//   static constexpr bool kAttends;         the spec's attention, positions and patterns mean something to it
//   static constexpr bool kKnowsOrder;      it tells the order of tokens without positions
//   template <typename Spec, typename Visitor>
//   static void for_each_field(Spec& mixer, Visitor& v);   its fields, as in spec_schema.h
//   void derive(int64_t width);             optional: sets fields that are 0, for blocks of this width
//   void check(const ModelSpec& spec) const;               throws Error if it does not fit the rest
//   std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
//   MixerCost cost(const ModelSpec& spec, bool causal) const;   causal: no token sees those after it
//   bool operator==(const M&) const;
//
// Its header knows no layer: check(), make() and cost() are in mixers/NAME_layer.cc. models/mixer_spec.h
// lists them all.

}  // namespace qkv
