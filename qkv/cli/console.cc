#include "qkv/cli/console.h"

#include <cstdio>
#include <iostream>
#include <iterator>

#include "qkv/base/file.h"

namespace qkv {

std::string read_input(const std::string& file) {
  if (!file.empty() && file != "-") return read_file(file);
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  check(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, "standard output cannot be written");
}

}  // namespace qkv
