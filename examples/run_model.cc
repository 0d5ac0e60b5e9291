// Runs a saved model: loads a directory, continues a prompt, prints the text as it appears.
//   g++ -std=c++20 run_model.cc $(pkg-config --cflags --libs qkv) -o run_model
//   ./run_model DIR PROMPT
#include <cstdio>

#include "qkv/api/text_model.h"
#include "qkv/base/parallel.h"

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);  // other programs want the processors too
  if (argc != 3) return std::fprintf(stderr, "usage: run_model DIR PROMPT\n"), 2;
  try {
    const qkv::TextModel m = qkv::load(argv[1]);
    const auto print = [](int32_t /*token*/, std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return std::fflush(stdout) == 0;  // a closed pipe ends the text
    };
    std::printf("%s", argv[2]);
    qkv::complete(m, argv[2], {.sampler = {.temperature = 0.8}, .max_new_tokens = 50}, print);
    std::printf("\n");
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "run_model: %s\n", e.what()), 1;
  }
}
