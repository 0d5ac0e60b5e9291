#include "qkv/report/metrics_file.h"

#include <filesystem>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "qkv/text/unicode.h"

namespace qkv {
namespace {

// The lines of `path` for steps up to `step`.
std::string lines_up_to(const std::string& path, int64_t step) {
  std::string kept;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    const auto json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_integer() &&
        json["step"].get<int64_t>() <= step)
      kept += line + "\n";
  }
  return kept;
}

// TensorBoard's folder in `run_dir`. `fresh`: removes files of an earlier run.
std::string events_dir(const std::string& run_dir, bool fresh) {
  std::string dir = run_dir + "/tensorboard";
  std::error_code error;
  if (fresh) std::filesystem::remove_all(dir, error);
  check(!error, "{}: cannot be removed: {}", dir, error.message());
  return dir;
}

// A verbatim Markdown block: every line is indented by four spaces.
std::string verbatim(const std::string& text) {
  std::string out = "    ";
  for (const char c : text) {
    out.push_back(c);
    if (c == '\n') out += "    ";
  }
  return out;
}

}  // namespace

std::string tag_of_field(const std::string& field) {
  if (field == "lr") return "train/learning_rate";
  if (field == "grad_norm") return "train/gradient_norm";
  constexpr std::string_view kValid = "valid_";  // "ema_valid_loss" belongs to validation, too
  const size_t at = field.find(kValid);
  if (at == std::string::npos) return "train/" + field;
  return "valid/" + field.substr(0, at) + field.substr(at + kValid.size());
}

Metrics::Metrics(const std::string& run_dir, int64_t step)
    : path_(run_dir + "/metrics.jsonl"), events_(events_dir(run_dir, step == 0)) {
  write_file_atomically(path_, step > 0 && file_exists(path_) ? lines_up_to(path_, step) : "");
  out_.open(path_, std::ios::app);
  check(out_.good(), "{}: cannot be written", path_);
  if (step > 0) events_.session_start(step + 1);
}

void Metrics::write(const OrderedJson& record) {
  out_ << record.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << std::endl;
  check(out_.good(), "{}: cannot be written", path_);
  const auto step = record.at("step").get<int64_t>();
  for (const auto& [field, value] : record.items())
    if (value.is_number() && field != "step" && field != "seconds")  // every event has these
      events_.scalar(step, tag_of_field(field), value.get<double>());
  if (record.contains("sample")) {
    sample_number_ = step == sample_step_ ? sample_number_ + 1 : 1;
    sample_step_ = step;
    const std::string text = record.value("prompt", "") + record.at("sample").get<std::string>();
    events_.text(step, fmt::format("samples/{}", sample_number_), verbatim(text::to_valid_utf8(text)));
  }
}

}  // namespace qkv
