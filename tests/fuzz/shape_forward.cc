#include "tests/fuzz/shape_forward.h"

#include <filesystem>

#include "qkv/cli/command.h"
#include "qkv/io/container/safetensors.h"

namespace qkv::testing {

void run_forward(const std::string& dir, const Named& in, const std::vector<std::string>& more) {
  write_safetensors(dir + "/in.safetensors", in);
  std::filesystem::remove(dir + "/out.safetensors");
  std::vector<std::string> words = {
      "qkv", "forward", dir, "--inputs", dir + "/in.safetensors", "--outputs", dir + "/out.safetensors"};
  words.insert(words.end(), more.begin(), more.end());
  std::vector<char*> pointers;
  for (std::string& w : words) pointers.push_back(w.data());
  Program app("qkv", "", "");
  app.require_subcommand();
  add_forward_command(app);
  app.run(static_cast<int>(pointers.size()), pointers.data());
}

}  // namespace qkv::testing
