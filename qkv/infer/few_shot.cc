#include "qkv/infer/few_shot.h"

#include <toml++/toml.h>

#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"

namespace qkv {
namespace {

constexpr std::string_view kInput = "{input}", kOutput = "{output}";

// An example's form, cut at {input} and {output}.
struct Form {
  std::string_view before, between, after;
};

Form parse_form(std::string_view text, const std::string& place) {
  const size_t input = text.find(kInput), output = text.find(kOutput);
  const bool once = input != text.npos && output != text.npos && input < output &&
                    text.find(kInput, input + 1) == text.npos && text.find(kOutput, output + 1) == text.npos;
  check(once, "{}: template: expected {{input}} and then {{output}}, each once, got \"{}\"", place, text);
  const size_t after_input = input + kInput.size();
  return {text.substr(0, input), text.substr(after_input, output - after_input),
          text.substr(output + kOutput.size())};
}

constexpr std::string_view kSettings[] = {"instruction", "template", "separator"};
constexpr std::string_view kExample[] = {"input", "output"};
constexpr std::string_view kTomlKeys[] = {"instruction", "template", "separator", "example"};

void read_settings(const JsonField& field, FewShot& out) {
  out.instruction = field.string_or("instruction", out.instruction);
  out.form = field.string_or("template", out.form);
  out.separator = field.string_or("separator", out.separator);
}

FewShot::Example read_example(const JsonField& field) {
  field.expect_keys(kExample);
  return {field["input"].string(), field["output"].string()};
}

FewShot read_toml(const std::string& path) {
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
  read_settings(root, out);
  if (const auto list = root.find("example"))
    for (size_t i = 0; i < list->size(); ++i) out.examples.push_back(read_example(list->at(i)));
  return out;
}

FewShot read_lines(const std::string& path) {
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
    read_settings(line, out);
  });
  return out;
}

}  // namespace

std::string FewShot::prompt(std::string_view query) const {
  const Form f = parse_form(form, "few-shot prompt");
  std::string text = instruction.empty() ? "" : instruction + separator;
  for (const Example& e : examples)
    text.append(f.before).append(e.input).append(f.between).append(e.output).append(f.after) += separator;
  return text.append(f.before).append(query).append(f.between);
}

FewShot read_few_shot(const std::string& path) {
  FewShot out = path.ends_with(".toml") ? read_toml(path) : read_lines(path);
  parse_form(out.form, path);
  check(!out.examples.empty(), "{}: holds no example", path);
  return out;
}

}  // namespace qkv
