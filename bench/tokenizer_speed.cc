// How fast a tokenizer encodes the lines of a text, on one thread: prints
//   megabytes_per_second tokens
// of the median of so many rounds. bench/tokenizers_against_peer.sh compares.
//
//   tokenizer_speed TOKENIZER TEXT [--rounds 5] [--save FILE.json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "qkv/base/file.h"
#include "qkv/data/table.h"
#include "qkv/text/tokenizer.h"

int main(int argc, char** argv) {
  CLI::App app("How fast a tokenizer encodes the lines of a text");
  std::string path, text, save;
  int rounds = 5;
  app.add_option("TOKENIZER", path)->required();
  app.add_option("TEXT", text);
  app.add_option("--rounds", rounds);
  app.add_option("--save", save, "Write the tokenizer as a tokenizer.json");
  CLI11_PARSE(app, argc, argv);
  const auto tokenizer = qkv::text::Tokenizer::load(path);
  if (!save.empty()) tokenizer.save(save);
  if (text.empty()) return 0;
  const std::vector<std::string> lines = qkv::lines_of(qkv::read_file(text));
  size_t bytes = 0, tokens = 0;
  for (const std::string& line : lines) bytes += line.size() + 1;
  std::vector<double> seconds;
  for (int r = 0; r < rounds; ++r) {
    const auto start = std::chrono::steady_clock::now();
    tokens = 0;
    for (const std::string& line : lines) tokens += tokenizer.encode(line, false).size();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  fmt::print("{:.2f} {}\n", static_cast<double>(bytes) / 1e6 / seconds[seconds.size() / 2], tokens);
}
