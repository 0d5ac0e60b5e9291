#include "qkv/cli/model_notes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <optional>

#include "qkv/base/mounted_files.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/gguf/directory.h"

namespace qkv {
namespace {

// That of a GGUF file, which may be in a directory, or the base of an adapter.
std::optional<std::string> gguf_note(const std::string& dir) {
  for (const std::string& at : {dir, dir + "/best", dir + "/last"})
    for (const std::string& file :
         {is_adapter_dir(at) ? read_adapter_config(at).base : at, at + "/model.gguf"})
      if (const auto note = mounted_file(file + "/" + kGgufNotes)) return note;
  return std::nullopt;
}

}  // namespace

void print_model_notes(const std::string& dir, const Transformer& model) {
  if (const auto note = gguf_note(dir)) fmt::print(stderr, "note: {}\n", *note);
  const auto& parts = model.parameters().left_out;
  if (!parts.empty())
    fmt::print(stderr, "note: {}: only its language model is used (left out: {})\n", dir,
               fmt::join(parts, ", "));
}

}  // namespace qkv
