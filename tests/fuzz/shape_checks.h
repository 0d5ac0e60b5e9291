// Everything that one model goes through: its directory, `qkv forward`, training, decoding.
#pragma once

#include <string>

#include "tests/fuzz/shape_cases.h"

namespace qkv::testing {

// Runs a drawn model in the empty directory `dir`. Throws std::exception that says what was wrong.
void check_shape(const ModelSpec& spec, const SpecialIds& ids, Draw& draw, const std::string& dir);

// Runs a pair of towers as CLIP.
void check_clip(const ModelSpec& text, const ModelSpec& vision, Draw& draw, const std::string& dir);

}  // namespace qkv::testing
