// Runs a saved model: loads a directory, continues a prompt, prints the text as it appears.
//   g++ -std=c++20 run_model.cc $(pkg-config --cflags --libs qkv) -o run_model
//   ./run_model DIR PROMPT
#include <cstdio>

#include "qkv/base/parallel.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);  // other programs want the processors too
  if (argc != 3) return std::fprintf(stderr, "usage: run_model DIR PROMPT\n"), 2;
  try {
    const auto model = qkv::load_model(argv[1], qkv::DType::f32);
    const auto tokenizer = qkv::text::Tokenizer::load(argv[1]);
    qkv::text::StreamDecoder text(tokenizer);
    const auto print_token = [&](int64_t /*sequence*/, int32_t token, std::span<const float> /*logits*/) {
      std::printf("%s", text.add(token).c_str());
      return std::fflush(stdout) == 0;  // a closed pipe ends the text
    };
    std::printf("%s", argv[2]);
    qkv::generate(*model, {tokenizer.encode(argv[2]).ids},
                  {.sampler = {.temperature = 0.8}, .max_new_tokens = 50}, print_token);
    std::printf("%s\n", text.finish().c_str());
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "run_model: %s\n", e.what()), 1;
  }
}
