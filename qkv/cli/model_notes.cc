#include "qkv/cli/model_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "qkv/base/mounted_files.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/model_dir.h"

namespace qkv {

void print_model_notes(const std::string& dir, const Transformer& model) {
  const std::string notes = beside_or_base(resolve_model_dir(dir), kGgufNotes);
  if (const auto note = mounted_file(notes)) fmt::print(stderr, "note: {}\n", *note);
  const auto& parts = model.parameters().left_out;
  if (!parts.empty())
    fmt::print(stderr, "note: {}: only its language model is used (left out: {})\n", dir,
               fmt::join(parts, ", "));
}

}  // namespace qkv
