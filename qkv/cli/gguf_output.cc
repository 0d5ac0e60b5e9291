#include "qkv/cli/gguf_output.h"

#include <fmt/format.h>

#include <filesystem>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/progress.h"
#include "qkv/convert/gguf_file.h"
#include "qkv/io/model_dir.h"

namespace qkv {
namespace {

std::optional<FileType> type_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  const std::optional<FileType> type = file_type(name);
  std::string known;
  for (const std::string_view one : file_type_names())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one);
  check(type.has_value(), "--type: expected one of {}; got '{}'", known, name);
  return type;
}

}  // namespace

void write_gguf_file(const GgufOutput& o) {
  const std::optional<FileType> type = type_named(o.type);
  const std::string from = resolve_model_dir(o.from);
  check(!file_exists(o.out) || o.overwrite, "{}: exists already", o.out);
  const std::filesystem::path folder = std::filesystem::path(o.out).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  {
    Progress progress;
    save_gguf(from, o.out,
              {.type = type,
               .requantize = o.requantize,
               .progress = [&](const std::string& name, size_t i, size_t n) {
                 progress.update(fmt::format("{} of {} tensors: {}", i + 1, n, name));
               }});
  }
  fmt::print(stderr, "{}: {:.1f} MB{}\n", o.out, static_cast<double>(std::filesystem::file_size(o.out)) / 1e6,
             type ? fmt::format(", {}", name_of(*type)) : "");
}

}  // namespace qkv
