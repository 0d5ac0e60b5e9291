#include "qkv/cli/model_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

namespace qkv {

void note_left_out(const std::string& dir, const Transformer& model) {
  const auto& parts = model.parameters().left_out;
  if (!parts.empty())
    fmt::print(stderr, "note: {}: only its language model is used (left out: {})\n", dir,
               fmt::join(parts, ", "));
}

}  // namespace qkv
