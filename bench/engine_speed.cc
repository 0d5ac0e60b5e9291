// The engine beside itself, by turns in one run. MODEL is a directory or a GGUF file.
//   engine_speed MODEL --mixed 64 [--tokens 64]
//       requests of mixed lengths that arrive at random, together and one after the other
//   engine_speed MODEL --edit FILE --from A --to B
//       the edit of a text, greedily, with drafts by n-grams and without. The output is forced to be FILE
//       with B for A, so that any model will do: each token takes a whole pass
//   engine_speed MODEL --mtp TEXT [--tokens 64]
//       passages of a text continued greedily, one at a time, with drafts by the model's own modules and
//       without
//   engine_speed MODEL --steps 1000000
//       requests that come, go, are cancelled and interrupted for many steps: the memory that they take
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <chrono>
#include <functional>
#include <random>
#include <sstream>
#include <string_view>

#include "qkv/autograd/graph.h"
#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/infer/engine.h"
#include "qkv/infer/mtp_drafter.h"
#include "qkv/infer/ngram_drafter.h"
#include "qkv/io/model_dir.h"
#include "qkv/text/tokenizer.h"

namespace qkv {
namespace {

struct Options {
  std::string model, edit, from, to, mtp;
  int64_t mixed = 0, tokens = 64, pairs = 5, steps = 0;
};

double seconds_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using Tokens = std::vector<int32_t>;

void report(const char* what, const char* than, std::vector<double> fast, std::vector<double> slow,
            int64_t tokens) {
  std::vector<double> ratios;
  for (size_t i = 0; i < fast.size(); ++i) ratios.push_back(slow[i] / fast[i]);
  for (std::vector<double>* v : {&fast, &slow, &ratios}) std::sort(v->begin(), v->end());
  const auto n = static_cast<double>(tokens);
  const size_t middle = fast.size() / 2;
  fmt::print("{} {:.1f} tok/s, {} {:.1f} tok/s: {:.2f}x ({:.2f} to {:.2f})\n", what, n / fast[middle], than,
             n / slow[middle], ratios[middle], ratios.front(), ratios.back());
}

void run_mixed(const Options& o, const Transformer& model) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const int64_t vocabulary = model.spec().vocab_size, longest = model.spec().longest() / 2;
  std::vector<Request> requests;
  int64_t tokens = 0;
  for (int64_t i = 0; i < o.mixed; ++i) {
    Request r;
    for (int64_t n = 1 + below(std::min<int64_t>(128, longest)); n > 0; --n)
      r.prompt.push_back(static_cast<int32_t>(below(vocabulary)));
    r.max_new_tokens = 1 + below(std::min(2 * o.tokens, longest));
    r.sampler.temperature = i % 2 == 0 ? 0 : 0.8;
    r.seed = static_cast<uint64_t>(i);
    tokens += r.max_new_tokens;
    requests.push_back(std::move(r));
  }
  const auto take = [](const NewToken&) { return true; };
  std::vector<double> together, alone;
  for (int64_t pair = 0; pair < o.pairs; ++pair) {
    together.push_back(seconds_of([&] {
      Engine engine(model);
      for (size_t next = 0; next < requests.size();) {
        // One in about two steps, where there is something to do meanwhile.
        const bool busy = engine.step(take);
        if (!busy || below(2) == 0) engine.add(requests[next++]);
      }
      while (engine.step(take)) {
      }
    }));
    alone.push_back(seconds_of([&] {
      for (const Request& r : requests) {
        Engine engine(model);
        engine.add(r);
        while (engine.step(take)) {
        }
      }
    }));
  }
  report("together", "one after the other", together, alone, tokens);
}

int64_t resident_pages() {
  int64_t size = 0, resident = 0;
  std::istringstream(read_file("/proc/self/statm")) >> size >> resident;
  return resident;
}

void run_steps(const Options& o, const Transformer& model) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const int64_t vocabulary = model.spec().vocab_size,
                longest = std::min<int64_t>(model.spec().longest(), 256);
  EnsembleState page(model, 1);
  page.advance({Tokens(16, 0)});
  NgramDrafter ngrams(1);
  const EngineOptions options = {
      .sequences = 12, .memory_bytes = 60 * page.bytes(), .kept_tokens = 4 * longest, .drafter = &ngrams};
  Engine engine(model, options);
  int64_t added = 0, tokens = 0, most = 0;
  for (int64_t step = 1; step <= o.steps; ++step) {
    if (engine.waiting() < 4 && below(4) == 0) {
      Request r{.prompt = Tokens(static_cast<size_t>(1 + below(longest / 2)), static_cast<int32_t>(below(3))),
                .max_new_tokens = 1 + below(longest / 2),
                .seed = random(),
                .priority = below(3)};
      r.prompt.back() = static_cast<int32_t>(below(vocabulary));
      if (below(8) == 0) r.search = BeamOptions{.beams = 3, .max_new_tokens = r.max_new_tokens};
      added = engine.add(std::move(r)) + 1;
    }
    if (below(64) == 0) engine.cancel(std::max<int64_t>(0, added - 1 - below(16)));
    engine.step([&](const NewToken&) { return ++tokens > 0; });
    most = std::max(most, engine.bytes());
    if (step % std::max<int64_t>(1, o.steps / 10) == 0)
      fmt::print(
          "{} steps, {} requests, {} tokens: {} bytes of pages, {} at most of {}; the process has {} MB\n",
          step, added, tokens, engine.bytes(), most, options.memory_bytes, resident_pages() * 4096 >> 20);
  }
  while (engine.step(nullptr)) {
  }
  fmt::print("at the end {} tokens are kept, in {} bytes\n", engine.kept(), engine.bytes());
}

// Words, numbers, runs of blanks and other characters, each a token.
Tokens tokens_of(std::string_view text, int64_t vocabulary) {
  Tokens out;
  const auto kind = [](unsigned char c) { return std::isalnum(c) || c == '_' ? 1 : c == ' ' ? 2 : 0; };
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    for (end = begin + 1;
         end < text.size() && kind(text[begin]) != 0 && kind(text[end]) == kind(text[begin]);)
      ++end;
    const auto hash =
        static_cast<int64_t>(std::hash<std::string_view>()(text.substr(begin, end - begin)) >> 1);
    out.push_back(static_cast<int32_t>(3 + hash % (vocabulary - 3)));
  }
  return out;
}

void run_edit(const Options& o, const Transformer& model) {
  const std::string text = read_file(o.edit);
  std::string edited = text;
  for (size_t at = 0; !o.from.empty() && (at = edited.find(o.from, at)) != std::string::npos;
       at += o.to.size())
    edited.replace(at, o.from.size(), o.to);
  Request r;
  r.prompt = tokens_of(text, model.spec().vocab_size);
  r.rules.begin = tokens_of(edited, model.spec().vocab_size);
  const auto room = static_cast<size_t>(model.spec().longest() / 2 - 1);
  r.prompt.resize(std::min(r.prompt.size(), room));
  r.rules.begin.resize(std::min(r.rules.begin.size(), room));
  r.sampler.temperature = 0;
  r.max_new_tokens = std::ssize(r.rules.begin);
  NgramDrafter ngrams;
  std::vector<double> with, without;
  Drafting drafting;
  for (int64_t pair = 0; pair < o.pairs; ++pair)
    for (const bool drafts : {true, false}) {
      Engine engine(model, {.drafter = drafts ? &ngrams : nullptr});
      engine.add(r);
      while (engine.decoding() == 0) engine.step(nullptr);
      (drafts ? with : without).push_back(seconds_of([&] {
        while (engine.step(nullptr)) {
        }
      }));
      if (drafts) drafting = engine.drafting();
    }
  fmt::print("prompt of {} tokens, {} written in {} passes; {} of {} drafted tokens taken\n", r.prompt.size(),
             r.max_new_tokens, drafting.passes, drafting.accepted, drafting.drafted);
  report("with drafts", "without", with, without, r.max_new_tokens);
}

void run_mtp(const Options& o, const Transformer& model) {
  constexpr size_t kPassages = 8, kPrompt = 48;
  const std::vector<int32_t> all = text::Tokenizer::load(resolve_model_dir(o.model) + "/tokenizer.json")
                                       .encode(read_file(o.mtp), false)
                                       .ids;
  check(all.size() > kPassages * kPrompt, "{}: too short", o.mtp);
  MtpDrafter own(model);
  std::vector<double> with, without;
  Drafting all_drafts;
  for (int64_t pair = 0; pair < o.pairs; ++pair)
    for (const bool drafts : {true, false}) {
      double seconds = 0;
      for (size_t p = 0; p < kPassages; ++p) {
        const auto begin = all.begin() + static_cast<int64_t>(p * (all.size() - kPrompt) / kPassages);
        Request r{.prompt = Tokens(begin, begin + kPrompt), .max_new_tokens = o.tokens};
        r.sampler.temperature = 0;
        Engine engine(model, {.drafter = drafts ? &own : nullptr});
        engine.add(r);
        while (engine.decoding() == 0) engine.step(nullptr);
        seconds += seconds_of([&] {
          while (engine.step(nullptr)) {
          }
        });
        if (!drafts || pair > 0) continue;
        all_drafts.passes += engine.drafting().passes;
        all_drafts.drafted += engine.drafting().drafted;
        all_drafts.accepted += engine.drafting().accepted;
      }
      (drafts ? with : without).push_back(seconds);
    }
  fmt::print(
      "{} of {} drafted tokens taken, {:.2f} tokens a pass\n", all_drafts.accepted, all_drafts.drafted,
      static_cast<double>(all_drafts.passes + all_drafts.accepted) / static_cast<double>(all_drafts.passes));
  report("with drafts", "without", with, without, static_cast<int64_t>(kPassages) * o.tokens);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);
  qkv::Options o;
  CLI::App app("speed of the engine");
  app.add_option("model", o.model)->required();
  app.add_option("--mixed", o.mixed);
  app.add_option("--tokens", o.tokens);
  app.add_option("--pairs", o.pairs);
  app.add_option("--steps", o.steps);
  app.add_option("--edit", o.edit);
  app.add_option("--mtp", o.mtp);
  app.add_option("--from", o.from);
  app.add_option("--to", o.to);
  CLI11_PARSE(app, argc, argv);
  try {
    const auto model = qkv::load_model(qkv::resolve_model_dir(o.model), qkv::DType::f32);
    if (o.steps > 0)
      qkv::run_steps(o, *model);
    else if (!o.mtp.empty())
      qkv::run_mtp(o, *model);
    else if (o.mixed > 0)
      qkv::run_mixed(o, *model);
    else
      qkv::run_edit(o, *model);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "engine_speed: {}\n", e.what());
    return 1;
  }
}
