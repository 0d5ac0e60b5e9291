#include "qkv/models/spec_schema.h"

#include <fmt/format.h>

namespace qkv {
namespace {

class TextWriter {
 public:
  std::vector<FieldText> fields;

  template <typename T, typename... Range>
  void operator()(const SpecField& f, const T& value, Range...) {
    fields.push_back({f, text(value)});
  }
  template <typename Optional, typename T>
  void operator()(const SpecField& f, const OrElse<Optional, T>& value) {
    fields.push_back({f, value.member ? text(*value.member) : fmt::format("as {}", f.derived)});
  }

 private:
  template <typename T>
  static std::string text(const T& value) {
    if constexpr (std::is_enum_v<T>)
      return name_of(value);
    else
      return fmt::format("{}", value);
  }
  template <typename T>
  static std::string text(const std::vector<T>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
  }
  static std::string text(const std::vector<Pattern>& values) { return text(texts_of(values)); }
};

}  // namespace

std::string mixer_condition(const char* name) {
  return fmt::format("mixer = \"{}\"", name);
}

std::vector<FieldText> field_texts(const ModelSpec& spec) {
  TextWriter writer;
  for_each_field(spec, writer);
  return std::move(writer.fields);
}

std::vector<FieldText> field_texts(const BlockSpec& block) {
  TextWriter writer;
  for_each_field(block, writer);
  return std::move(writer.fields);
}

std::vector<FieldText> differing_texts(const BlockSpec& block, const BlockSpec& other) {
  std::vector<FieldText> texts = field_texts(block), others = field_texts(other), out;
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].text != others[i].text) out.push_back(texts[i]);
  return out;
}

}  // namespace qkv
