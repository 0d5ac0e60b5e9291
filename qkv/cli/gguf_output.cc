#include "qkv/cli/gguf_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "qkv/api/text_model.h"
#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/progress.h"
#include "qkv/convert/gguf_file.h"
#include "qkv/infer/importance.h"
#include "qkv/io/gguf/directory.h"
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

// The columns that count in the model for the text of the file.
std::map<std::string, std::vector<float>> importance_of(const GgufOutput& o, const std::string& from) {
  TextModel m = load_language_model(from);
  const auto text = read_file(o.calibrate);
  const std::vector<int32_t> ids = m.tokenizer.encode(text).ids;
  constexpr int64_t kWindow = 512;
  const std::vector<int32_t> begin = prompt_ids(m, "a");
  const bool has_start = m.special.bos >= 0 && begin.front() == m.special.bos;
  const int64_t length = std::min<int64_t>(kWindow, m.model->spec().longest()) - (has_start ? 1 : 0),
                tokens = std::min<int64_t>(std::ssize(ids), o.calibration_tokens);
  check(length > 0, "{}: its context has no room for a text", from);
  std::vector<std::vector<int32_t>> windows;
  for (int64_t i = 0; i + 1 < tokens; i += length) {
    windows.emplace_back(has_start ? 1 : 0, static_cast<int32_t>(m.special.bos));
    windows.back().insert(windows.back().end(), ids.begin() + i, ids.begin() + std::min(i + length, tokens));
  }
  std::erase_if(windows, [](const auto& window) { return window.size() < 2; });
  check(!windows.empty(), "{}: has fewer than two tokens", o.calibrate);
  Calibration result;
  {
    Progress progress;
    result = calibrate(*m.model, windows, [&](size_t i) {
      progress.update(fmt::format("calibrating: {} of {} windows", i + 1, windows.size()));
    });
  }
  fmt::print(stderr, "calibrated on {} tokens of {}: perplexity {:.3f} before quantisation\n", tokens,
             o.calibrate, std::exp(result.loss));
  m.model.reset();  // its memory is needed
  return importance_by_name(from, result.importance);
}

}  // namespace

void expect_type(const std::string& type) {
  type_named(type);
}

void write_gguf_file(const GgufOutput& o) {
  const std::optional<FileType> type = type_named(o.type);
  const std::string from = resolve_model_dir(o.from);
  check(!file_exists(o.out) || o.overwrite, "{}: exists already", o.out);
  const std::filesystem::path folder = std::filesystem::path(o.out).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  std::map<std::string, std::vector<float>> importance;
  if (!o.calibrate.empty()) importance = importance_of(o, from);
  {
    Progress progress;
    save_gguf(from, o.out,
              {.type = type,
               .requantize = o.requantize,
               .importance = std::move(importance),
               .progress = [&](const std::string& name, size_t i, size_t n) {
                 progress.update(fmt::format("{} of {} tensors: {}", i + 1, n, name));
               }});
  }
  if (!is_gguf(from) && load_spec(from).mtp.any())
    fmt::print(stderr, "note: the file is without the modules of multi-token prediction (mtp_layers)\n");
  fmt::print(stderr, "{}: {:.1f} MB{}\n", o.out, static_cast<double>(std::filesystem::file_size(o.out)) / 1e6,
             type ? fmt::format(", {}", name_of(*type)) : "");
}

}  // namespace qkv
