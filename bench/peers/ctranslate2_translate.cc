// The peer of `qkv translate --stop-early`: CTranslate2 with a model of ctranslate2_model.py. Reads a JSON
// list of source ids a line, writes lists of target ids, and prints "name value" lines; loading is not timed.
// It is built beside CTranslate2 alone: g++ -std=c++20 -O2 -I CTranslate2/include ctranslate2_translate.cc
// -lctranslate2 ctranslate2_translate MODEL IDS OUT [--beams 4] [--tokens 128] [--batch-tokens 2048]
// [--threads 2] [--compute float32]
//           [--patience 1] [--length-penalty 1] [--warm]
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>

#include "ctranslate2/translator.h"
#include "qkv/base/json_value.h"

using Clock = std::chrono::steady_clock;

int main(int argc, char** argv) try {
  std::vector<std::string> files;
  std::map<std::string, std::string> o{
      {"--beams", "4"},    {"--tokens", "128"},       {"--batch-tokens", "2048"}, {"--threads", "2"},
      {"--patience", "1"}, {"--length-penalty", "1"}, {"--compute", "float32"},   {"--warm", "0"}};
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (!o.count(a)) {
      if (a.starts_with("--")) throw std::invalid_argument("no option " + a);
      files.push_back(a);
    } else if (a == "--warm") {
      o[a] = "1";
    } else {
      o[a] = argv[++i];
    }
  }
  if (files.size() != 3) throw std::invalid_argument("ctranslate2_translate MODEL IDS OUT");
  const auto config = nlohmann::json::parse(std::ifstream(files[0] + "/config.json"));
  const size_t context = config["context"];
  const std::string eos = config["eos_token"];

  std::vector<std::vector<std::string>> sources;
  std::ifstream in(files[1]);
  if (!in) throw std::invalid_argument("cannot read " + files[1]);
  for (std::string line; std::getline(in, line);) {
    auto& s = sources.emplace_back();
    for (const int id : nlohmann::json::parse(line)) s.push_back(std::to_string(id));
    s.push_back(eos);
  }

  ctranslate2::ReplicaPoolConfig pool_config;
  pool_config.num_threads_per_replica = std::stoul(o["--threads"]);
  ctranslate2::Translator translator(files[0], ctranslate2::Device::CPU,
                                     ctranslate2::str_to_compute_type(o["--compute"]), {0}, false,
                                     pool_config);
  ctranslate2::TranslationOptions options;
  options.beam_size = std::stoul(o["--beams"]);
  options.patience = std::stof(o["--patience"]);
  options.length_penalty = std::stof(o["--length-penalty"]);
  options.return_end_token = true;  // the score divides by a length that counts the end, as qkv's does
  options.max_input_length = context;
  options.max_decoding_length = std::min<size_t>(std::stoul(o["--tokens"]), context - 1);
  options.min_decoding_length = 0;
  const size_t batch = std::stoul(o["--batch-tokens"]);
  if (o["--warm"] == "1") translator.translate_batch({sources[0]}, options);

  const auto begin = Clock::now();
  const auto results = translator.translate_batch(sources, options, batch, ctranslate2::BatchType::Tokens);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();

  std::ofstream out(files[2]);
  for (const auto& r : results) {
    auto tokens = r.output();
    if (!tokens.empty() && tokens.back() == eos) tokens.pop_back();
    out << '[';
    for (size_t i = 0; i < tokens.size(); ++i) out << (i ? ", " : "") << tokens[i];
    out << "]\n";
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("sentences_per_second %.1f\n", static_cast<double>(sources.size()) / seconds);
  std::printf("peak_memory_mb %.0f\n", static_cast<double>(usage.ru_maxrss) / 1e3);
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
