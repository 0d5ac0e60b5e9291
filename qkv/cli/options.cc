#include "qkv/cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>

#include "qkv/base/error.h"
#include "qkv/base/suggest.h"

namespace qkv {

struct Option::Impl {
  CLI::Option* option;
};

struct Command::Impl {
  CLI::App* app;
  std::unique_ptr<CLI::App> root;  // set for the program only; it owns all other apps
  std::vector<std::unique_ptr<Command>> subcommands;
  std::vector<std::unique_ptr<Option>> options;
};

namespace {

// Larger bounds protect the program's own arithmetic; readers of --help learn nothing from them.
constexpr int64_t kUnspokenBound = 1 << 20;

// Names of our options in other tools.
constexpr std::pair<std::string_view, std::string_view> kSynonyms[] = {
    {"--max-tokens", "--tokens"},
    {"--max-new-tokens", "--tokens"},
    {"--n-predict", "--tokens"},
    {"--max_new_tokens", "--tokens"},
    {"--length", "--tokens"},
    {"--temp", "--temperature"},
    {"--num-beams", "--beams"},
    {"--beam-size", "--beams"},
    {"--num-samples", "--samples"},
    {"--num-return-sequences", "--samples"},
    {"--output", "--out"},
    {"--output-dir", "--out"},
    {"--input", "--file"},
    {"--src", "--file"},
    {"--num-threads", "--threads"},
    {"--config", "CONFIG"},
    {"--model", "DIR"},
    {"--top_k", "--top-k"},
    {"--top_p", "--top-p"},
    {"--repeat-penalty", "--repetition-penalty"},
    {"--stop-sequence", "--stop"},
    {"--precision", "--dtype"},
    {"--random-seed", "--seed"},
};

std::string whole_number(const std::string& word, int64_t least, int64_t most) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc::invalid_argument || end != word.data() + word.size())
    return fmt::format("'{}' is not a whole number", word);
  if (error == std::errc() && value >= least && value <= most) return "";
  return most >= kUnspokenBound && (error == std::errc() && value < least)
             ? fmt::format("{} is too small: expected at least {}", word, least)
         : most >= kUnspokenBound ? fmt::format("{} is too large", word)
                                  : fmt::format("expected {} to {}, got {}", least, most, word);
}

std::string number(const std::string& word, double least, double most) {
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc::invalid_argument || end != word.data() + word.size())
    return fmt::format("'{}' is not a number", word);
  if (error == std::errc() && value >= least && value <= most) return "";
  return fmt::format("expected {} to {}, got {}", least, most, word);
}

// Suggests the nearest option of `app` and its parents.
std::string option_suggestion(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* a = &app; a != nullptr; a = a->get_parent())
    for (const CLI::Option* option : a->get_options()) names.push_back(option->get_name());
  return did_you_mean(word.substr(0, word.find('=')), names, kSynonyms);
}

std::string subcommand_suggestion(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return did_you_mean(word, names);
}

// Describes a parse error in one line. CLI11 reports missing words before unknown ones, but a mistyped
// subcommand or option is the better explanation.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  std::string command = app.get_name();
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) {
    last = last->get_subcommands().front();
    command += " " + last->get_name();
  }
  const std::vector<std::string> unknown = app.remaining(true);
  std::string what = error.what();
  if (!unknown.empty()) {
    const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
    const auto option = std::find_if(unknown.begin(), unknown.end(), is_option);
    const bool wants_subcommand = last->get_require_subcommand_min() > 0;
    if (option != unknown.end())
      what = fmt::format("unknown option '{}'{}", *option, option_suggestion(*last, *option));
    else if (wants_subcommand)
      what = fmt::format("unknown subcommand '{}'{}", unknown.front(),
                         subcommand_suggestion(*last, unknown.front()));
    else
      what = "unexpected argument '" + unknown.front() + "'";
  }
  std::replace(what.begin(), what.end(), '\n', ' ');  // one line, whatever the user typed
  return what + " (see " + command + " --help)";
}

}  // namespace

Option* Option::required() {
  impl_->option->required();
  return this;
}

Option* Option::show_default() {
  impl_->option->capture_default_str();
  return this;
}

Option* Option::one_of(std::initializer_list<const char*> values) {
  impl_->option->check(CLI::IsMember(std::vector<std::string>(values.begin(), values.end())));
  return this;
}

Option* Option::whole_range(int64_t least, int64_t most) {
  impl_->option->check(CLI::Validator(
      [=](std::string& word) { return whole_number(word, least, most); },
      most >= kUnspokenBound ? fmt::format("(at least {})", least) : fmt::format("({} to {})", least, most)));
  return this;
}

Option* Option::number_range(double least, double most) {
  impl_->option->check(CLI::Validator([=](std::string& word) { return number(word, least, most); },
                                      fmt::format("({} to {})", least, most)));
  return this;
}

Option* Option::when_bare(const std::string& value) {
  impl_->option->expected(0, 1)->default_str(value);
  return this;
}

Option* Option::one_value() {
  impl_->option->allow_extra_args(false);
  return this;
}

Option* Option::delimiter(char divides_values) {
  impl_->option->delimiter(divides_values);
  return this;
}

Option* Option::excludes(Option* other) {
  impl_->option->excludes(other->impl_->option);
  return this;
}

Option* Option::excludes(const std::string& other) {
  impl_->option->excludes(other);
  return this;
}

Option* Option::needs(Option* other) {
  impl_->option->needs(other->impl_->option);
  return this;
}

size_t Option::count() const {
  return impl_->option->count();
}

std::string Option::name() const {
  return impl_->option->get_name();
}

Command* Command::add_subcommand(const std::string& name, const std::string& description) {
  auto command = std::make_unique<Command>();
  command->impl_ = std::make_shared<Impl>();
  command->impl_->app = impl_->app->add_subcommand(name, description);
  impl_->subcommands.push_back(std::move(command));
  return impl_->subcommands.back().get();
}

void Command::require_subcommand() {
  impl_->app->require_subcommand(1);
}

template <typename T>
Option* Command::declare(const std::string& name, T& value, const std::string& help) {
  auto option = std::make_unique<Option>();
  option->impl_ = std::make_shared<Option::Impl>();
  if constexpr (std::is_same_v<T, bool>)
    option->impl_->option = impl_->app->add_flag(name, value, help);
  else
    option->impl_->option = impl_->app->add_option(name, value, help);
  impl_->options.push_back(std::move(option));
  return impl_->options.back().get();
}

Option* Command::add_option(const std::string& name, std::string& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, int& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, int64_t& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, uint64_t& value, const std::string& help) {
  return declare(name, value, help)->range(int64_t{0}, std::numeric_limits<int64_t>::max());
}

Option* Command::add_option(const std::string& name, float& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, double& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, std::optional<int64_t>& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, std::optional<uint64_t>& value,
                            const std::string& help) {
  return declare(name, value, help)->range(int64_t{0}, std::numeric_limits<int64_t>::max());
}

Option* Command::add_option(const std::string& name, std::optional<double>& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::add_option(const std::string& name, std::vector<std::string>& values,
                            const std::string& help) {
  return declare(name, values, help);
}

Option* Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return declare(name, value, help);
}

Option* Command::get_option(const std::string& name) const {
  for (const auto& option : impl_->options)
    if (option->name() == name) return option.get();
  fail("the command has no option {}", name);
}

std::vector<const Option*> Command::given() const {
  std::vector<const Option*> out;
  for (const auto& option : impl_->options)
    if (option->count() > 0) out.push_back(option.get());
  return out;
}

void Command::footer(const std::string& text) {
  impl_->app->footer(text);
}

void Command::callback(std::function<void()> run) {
  impl_->app->callback(std::move(run));
}

Program::Program(const std::string& name, const std::string& description, const std::string& version) {
  impl_ = std::make_shared<Impl>();
  impl_->root = std::make_unique<CLI::App>(description, name);
  impl_->app = impl_->root.get();
  impl_->app->set_version_flag("--version", version);
  impl_->app->fallthrough();  // global options may follow the subcommand; subcommands inherit it
}

void Program::before_running(std::function<void()> f) {
  impl_->app->parse_complete_callback(std::move(f));
}

void Program::run(int argc, char** argv) {
  try {
    impl_->app->parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) throw UsageError(describe(*impl_->app, e));
    impl_->app->exit(e);  // --help, --version
  }
}

}  // namespace qkv
