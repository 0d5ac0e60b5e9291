// Tables of what shape_cases.h draws.
#pragma once

#include <span>

#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

struct ShapeFamily {
  const char* name;
  ModelSpec (*make)(Draw&);
};

std::span<const ShapeFamily> encoder_shapes();          // shape_encoders.cc
std::span<const ShapeFamily> encoder_decoder_shapes();  // shape_encoder_decoders.cc
std::span<const ShapeFamily> llama_shapes();            // shape_llama.cc
std::span<const ShapeFamily> hybrid_shapes();           // shape_hybrids.cc
std::span<const ShapeFamily> decoder_shapes();          // shape_decoders.cc
std::span<const ShapeFamily> own_shapes();              // shape_own.cc

}  // namespace qkv::testing
