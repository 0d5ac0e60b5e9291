// Trains a small GPT on the characters of a text, saves it, and prints what it writes.
//   g++ -std=c++20 train_and_sample.cc $(pkg-config --cflags --libs qkv) -o train_and_sample
//   ./train_and_sample DIR [TEXT.txt]
// `./run_model DIR PROMPT` and `qkv generate DIR --prompt PROMPT` then run it again.
#include <cstdio>

#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/infer/generate.h"
#include "qkv/text/trainer.h"
#include "qkv/train/run/checkpoint.h"

constexpr const char* kWoodchuck =  // traditional
    "How much wood would a woodchuck chuck if a woodchuck could chuck wood?\n"
    "He would chuck, he would, as much as he could, and chuck as much wood as a woodchuck would\n"
    "if a woodchuck could chuck wood.\n";

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);  // other programs want the processors too
  if (argc < 2 || argc > 3) return std::fprintf(stderr, "usage: train_and_sample DIR [TEXT.txt]\n"), 2;
  try {
    const std::string text = argc == 3 ? qkv::read_file(argv[2]) : kWoodchuck;
    const std::string_view texts[] = {text};
    const auto tokenizer = qkv::text::train_characters(texts, {});
    qkv::TokenStream stream;
    stream.append(tokenizer.encode(text).ids);

    constexpr int64_t context = 64, batch = 8, steps = 300;
    constexpr uint64_t seed = 1;
    const auto vocab_size = static_cast<int64_t>(tokenizer.vocab_size());
    const auto spec = qkv::gpt2_spec(vocab_size, context, /*width=*/64, /*layers=*/2, /*heads=*/4);
    qkv::TrainingState training(std::make_unique<qkv::Transformer>(spec),
                                {.schedule = {.learning_rate = 5e-3, .warmup_steps = 20}}, {.seed = seed});
    const qkv::RandomWindows windows(stream, context, seed);
    for (int64_t step = 1; step <= steps; ++step) {
      const auto result = training.step({windows.batch(step, 0, batch)}, step, steps);
      if (step % 100 == 0) std::fprintf(stderr, "step %3ld: loss %.3f\n", step, result.loss);
    }

    qkv::save_model_dir(argv[1], training.model(), tokenizer);
    const auto prompt = tokenizer.encode(text.substr(0, text.find(' ') + 1)).ids;
    const auto written = qkv::generate(training.model(), {prompt}, {.sampler = {.temperature = 0.5}});
    std::printf("%s%s\n", tokenizer.decode(prompt).c_str(), tokenizer.decode(written[0]).c_str());
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "train_and_sample: %s\n", e.what()), 1;
  }
}
