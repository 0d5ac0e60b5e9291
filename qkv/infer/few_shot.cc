#include "qkv/infer/few_shot.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"

namespace qkv {
namespace {

constexpr std::string_view kInput = "{input}", kRationale = "{rationale}", kOutput = "{output}";
// The form if all examples have a rationale.
constexpr const char* kReasonedForm = "Input: {input}\nReasoning: {rationale}\nOutput: {output}";

// An example's form, cut at {input}, {rationale} and {output}.
struct Form {
  std::string_view before, between, after_rationale, after;
  bool reasons = false;  // it has a {rationale}
};

Form parse_form(std::string_view text, const std::string& place) {
  const size_t input = text.find(kInput), output = text.find(kOutput), rationale = text.find(kRationale);
  const bool reasons = rationale != text.npos;
  const auto once = [&](std::string_view part, size_t at) { return text.find(part, at + 1) == text.npos; };
  check(
      input != text.npos && output != text.npos && input < output && once(kInput, input) &&
          once(kOutput, output) &&
          (!reasons || (input < rationale && rationale < output && once(kRationale, rationale))),
      "{}: template: expected {{input}} and then {{output}}, each once, with a {{rationale}} between them or "
      "none, got \"{}\"",
      place, text);
  const auto part = [&](size_t begin, size_t end) { return text.substr(begin, end - begin); };
  const size_t after_input = input + kInput.size(), after_rationale = rationale + kRationale.size();
  return {text.substr(0, input), part(after_input, reasons ? rationale : output),
          reasons ? part(after_rationale, output) : std::string_view(), text.substr(output + kOutput.size()),
          reasons};
}

constexpr std::string_view kSettings[] = {"instruction", "template", "separator"};
constexpr std::string_view kExample[] = {"input", "output", "rationale"};
constexpr std::string_view kTomlKeys[] = {"instruction", "template", "separator", "example"};

// `form`: that of the template, if there is one.
void read_settings(const JsonField& field, FewShot& out, std::optional<std::string>& form) {
  out.instruction = field.string_or("instruction", out.instruction);
  if (const auto its = field.find("template")) form = its->string();
  out.separator = field.string_or("separator", out.separator);
}

FewShot::Example read_example(const JsonField& field) {
  field.expect_keys(kExample);
  return {field["input"].string(), field["output"].string(), field.string_or("rationale", "")};
}

FewShot read_toml(const std::string& path, std::optional<std::string>& form) {
  std::ostringstream json;
  try {
    json << toml::json_formatter(toml::parse(read_file(path), path));
  } catch (const toml::parse_error& e) {
    fail("{}:{}: {}", path, e.source().begin.line, e.description());
  }
  const Json document = parse_json(json.str(), path);
  const JsonField root(document, path);
  root.expect_keys(kTomlKeys);
  FewShot out;
  read_settings(root, out, form);
  if (const auto list = root.find("example"))
    for (size_t i = 0; i < list->size(); ++i) out.examples.push_back(read_example(list->at(i)));
  return out;
}

FewShot read_lines(const std::string& path, std::optional<std::string>& form) {
  std::istringstream in(read_file(path));
  FewShot out;
  bool first = true;
  for_each_json_line(in, path, [&](const Json& value, const std::string& place) {
    const JsonField line(value, place);
    const bool settings = first && !line.find("input");
    first = false;
    if (!settings) {
      out.examples.push_back(read_example(line));
      return;
    }
    line.expect_keys(kSettings);
    read_settings(line, out, form);
  });
  return out;
}

}  // namespace

std::string FewShot::prompt(std::string_view query) const {
  const Form f = parse_form(form, "few-shot prompt");
  std::string text = instruction.empty() ? "" : instruction + separator;
  for (const Example& e : examples) {
    text.append(f.before).append(e.input).append(f.between);
    if (f.reasons) text.append(e.rationale).append(f.after_rationale);
    text.append(e.output).append(f.after) += separator;
  }
  return text.append(f.before).append(query).append(f.between);
}

FewShot read_few_shot(const std::string& path) {
  std::optional<std::string> form;
  FewShot out = path.ends_with(".toml") ? read_toml(path, form) : read_lines(path, form);
  check(!out.examples.empty(), "{}: holds no example", path);
  const auto reasoned = [](const FewShot::Example& e) { return !e.rationale.empty(); };
  const auto missing = std::ranges::find_if_not(out.examples, reasoned);
  if (form || missing == out.examples.end()) out.form = form.value_or(kReasonedForm);
  check(!parse_form(out.form, path).reasons || missing == out.examples.end(),
        "{}: the template has a {{rationale}}, but example {} has none", path,
        missing - out.examples.begin() + 1);
  return out;
}

}  // namespace qkv
