// Declares subcommands and their options. The only file that sees the parser (CLI11) is options.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

namespace qkv {

// One declared option, flag or positional argument.
class Option {
 public:
  Option* required();
  Option* show_default();  // in --help
  Option* one_of(std::initializer_list<const char*> values);
  // Bounds are inclusive. --help leaves out upper bounds that nobody reaches.
  template <typename T>
  Option* range(T least, T most) {
    if constexpr (std::is_floating_point_v<T>)
      return number_range(least, most);
    else
      return whole_range(least, most);
  }
  Option* when_bare(const std::string& value);  // value of the option if none follows it
  Option* one_value();                          // takes a single value: the next word is not another one
  Option* delimiter(char divides_values);
  Option* excludes(Option* other);
  Option* excludes(const std::string& other);
  Option* needs(Option* other);

  size_t count() const;      // number of times it was given
  std::string name() const;  // "--tokens"

 private:
  friend class Command;
  struct Impl;
  Option* number_range(double least, double most);
  Option* whole_range(int64_t least, int64_t most);
  std::shared_ptr<Impl> impl_;
};

// The program or one of its subcommands.
class Command {
 public:
  Command* add_subcommand(const std::string& name, const std::string& description);
  void require_subcommand();

  // `value` receives the given value, and is unchanged without one.
  Option* add_option(const std::string& name, std::string& value, const std::string& help);
  Option* add_option(const std::string& name, int& value, const std::string& help);
  Option* add_option(const std::string& name, int64_t& value, const std::string& help);
  Option* add_option(const std::string& name, uint64_t& value, const std::string& help);
  Option* add_option(const std::string& name, float& value, const std::string& help);
  Option* add_option(const std::string& name, double& value, const std::string& help);
  Option* add_option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  Option* add_option(const std::string& name, std::optional<uint64_t>& value, const std::string& help);
  Option* add_option(const std::string& name, std::optional<double>& value, const std::string& help);
  Option* add_option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  Option* add_flag(const std::string& name, bool& value, const std::string& help);

  Option* get_option(const std::string& name) const;
  std::vector<const Option*> given() const;  // in the order of their declaration

  void footer(const std::string& text);  // below the options in --help
  void callback(std::function<void()> run);

 protected:
  struct Impl;
  template <typename T>
  Option* declare(const std::string& name, T& value, const std::string& help);
  std::shared_ptr<Impl> impl_;
};

// The whole command line.
class Program : public Command {
 public:
  Program(const std::string& name, const std::string& description, const std::string& version);

  // Called after the command line is parsed, before the subcommand's callback.
  void before_running(std::function<void()> f);

  // Parses the words and runs the subcommand that they name, or prints --help or --version. Throws
  // UsageError for words that it does not understand, and passes on errors of the subcommand.
  void run(int argc, char** argv);
};

}  // namespace qkv
