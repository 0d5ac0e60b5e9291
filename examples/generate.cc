// The smallest program around a model: load a directory, continue a prompt.
//   generate DIR PROMPT
#include "qkv/infer/generate.h"

#include <cstdio>

#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: generate DIR PROMPT\n"), 2;
  try {
    const auto model = qkv::load_model(argv[1], qkv::DType::f32);
    const auto tokenizer = qkv::text::Tokenizer::load(argv[1]);
    qkv::GenerateOptions options;
    options.max_new_tokens = 50;
    options.sampler.temperature = 0.8;
    const auto continuations = qkv::generate(*model, {tokenizer.encode(argv[2]).ids}, options);
    std::printf("%s%s\n", argv[2], tokenizer.decode(continuations[0], true).c_str());
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "generate: %s\n", e.what()), 1;
  }
}
