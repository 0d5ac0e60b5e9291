#include "qkv/io/gguf/metadata.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace qkv {

GgufKeys::GgufKeys(const Gguf& file) : file_(file), architecture_(file.string("general.architecture")) {}

std::string GgufKeys::full(std::string_view key) const {
  std::string name = fmt::format("{}.{}", architecture_, key);
  known_.insert(name);
  return name;
}

bool GgufKeys::has(std::string_view key) const {
  return file_.has(full(key));
}

std::vector<int64_t> GgufKeys::integers(std::string_view key) const {
  const std::string name = full(key);
  const GgufValue* value = file_.find(name);
  if (value == nullptr || !value->is_array) return {file_.integer(name)};
  return file_.integers(name);
}

int64_t GgufKeys::integer(std::string_view key) const {
  const std::vector<int64_t> all = integers(key);
  const auto unequal = [&](int64_t n) { return n != all.front(); };
  check(!all.empty() && std::none_of(all.begin(), all.end(), unequal),
        "{}: key '{}': layers with values of their own are not supported", file_.path, full(key));
  check(all.front() >= 0, "{}: key '{}': {} is negative", file_.path, full(key), all.front());
  return all.front();
}

double GgufKeys::number(std::string_view key) const {
  const double value = file_.number(full(key));
  check(std::isfinite(value), "{}: key '{}': expected a finite number", file_.path, full(key));
  return value;
}

bool GgufKeys::flag(std::string_view key) const {
  return file_.boolean(full(key));
}

int64_t GgufKeys::integer_or(std::string_view key, int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}
double GgufKeys::number_or(std::string_view key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}
bool GgufKeys::flag_or(std::string_view key, bool otherwise) const {
  return has(key) ? flag(key) : otherwise;
}
std::string GgufKeys::text_or(std::string_view key, const std::string& otherwise) const {
  return has(key) ? file_.string(full(key)) : otherwise;
}

std::vector<double> GgufKeys::numbers_of_tensor(std::string_view name) const {
  const Weight* tensor = file_.tensor(name);
  check(tensor != nullptr, "{}: tensor '{}' is missing", file_.path, name);
  const Tensor& dense = tensor->dense();
  check(dense.defined() && dense.dtype() == DType::f32 && dense.shape().rank() == 1,
        "{}: tensor '{}': expected f32 numbers of one axis", file_.path, name);
  const auto values = dense.values<float>();
  return {values.begin(), values.end()};
}

void GgufKeys::expect_all_known() const {
  std::string unknown;
  for (const auto& [key, value] : file_.metadata)
    if (key.starts_with(architecture_ + ".") && !known_.contains(key))
      unknown += (unknown.empty() ? "'" : ", '") + key + "'";
  check(unknown.empty(), "{}: qkv does not know what {} means for the architecture {}", file_.path, unknown,
        architecture_);
}

GgufKeyWriter::GgufKeyWriter(std::string architecture, GgufParts& parts)
    : architecture_(std::move(architecture)), parts_(parts) {}

void GgufKeyWriter::add(std::string_view key, GgufValue value) {
  std::string name = fmt::format("{}.{}", architecture_, key);
  for (const auto& [other, present] : parts_.metadata) {
    if (other != name) continue;
    check(present.integers == value.integers && present.numbers == value.numbers, "gguf: two values of '{}'",
          name);
    return;
  }
  parts_.metadata.emplace_back(std::move(name), std::move(value));
}

void GgufKeyWriter::integer(std::string_view key, int64_t value) {
  check(value >= 0 && value <= std::numeric_limits<uint32_t>::max(), "gguf: '{}.{}': {} does not fit 32 bits",
        architecture_, key, value);
  add(key, GgufValue::of_u32(value));
}
void GgufKeyWriter::number(std::string_view key, double value) {
  add(key, GgufValue::of_f32(value));
}
void GgufKeyWriter::flag(std::string_view key, bool value) {
  add(key, GgufValue::of(value));
}
void GgufKeyWriter::text(std::string_view key, std::string_view value) {
  add(key, GgufValue::of(value));
}

void GgufKeyWriter::tensor(const std::string& name, const std::vector<double>& numbers) {
  Tensor values = Tensor::empty({std::ssize(numbers)}, DType::f32);
  std::transform(numbers.begin(), numbers.end(), values.mutable_values<float>().begin(),
                 [](double x) { return static_cast<float>(x); });
  parts_.tensors.emplace_back(name, values);
}

}  // namespace qkv
