// A GGUF file's speed in qkv, or in libllama: seconds from opening it to the first token, tokens per second
// of a prompt, and of tokens one by one, by turns with reading the mapped file.
//   gguf_speed MODEL.gguf [--prompt 512] [--tokens 32] [--libllama FOLDER]
//   gguf_speed MODEL.gguf --sequences 8 [--libllama FOLDER]   instead tokens per second of so many sequences
//   that are
//                                                       decoded together
//   gguf_speed MODEL.gguf --again [--prompt 2000]       instead seconds to the first token of a prompt, and
//   of the same
//                                                       prompt again
//   gguf_speed MODEL.gguf --libllama FOLDER --compare   instead the largest difference of logits after a
//   prompt gguf_speed --make DIR                               writes DIR/model.gguf, a random model of
//   the 1.1B Llama shape
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "bench/peers/libllama.h"
#include "qkv/autograd/graph.h"
#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/infer/decode_state.h"
#include "qkv/infer/engine.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

struct Options {
  std::string model, make, libraries;
  int64_t prompt = 512, tokens = 32, sequences = 0;
  bool compare = false, again = false;
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<int32_t> prompt_of(int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(100 + i * 37 % 20000));
  return ids;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.empty() ? 0 : v[v.size() / 2];
}

// Bytes per second at which all threads read the mapped file, by turns with the tokens that are decoded: the
// speed of a machine's memory can change from one second to the next.
class Decoding {
 public:
  explicit Decoding(const std::string& path) : file_(MappedFile::open(path)) {}

  void begin() { start_ = Clock::now(); }
  // A token is done.
  void token() {
    if (++tokens_ % kTokens != 0) return;
    tokens_per_second_.push_back(kTokens / since(start_));
    const double bandwidth = read();
    bandwidth_.push_back(bandwidth);
    ratio_.push_back(tokens_per_second_.back() * static_cast<double>(file_->size()) / bandwidth);
    begin();
  }
  double tokens_per_second() const { return median(tokens_per_second_); }
  double bandwidth() const { return median(bandwidth_); }
  double ratio() const { return median(ratio_); }

 private:
  static constexpr int kTokens = 8;
  double read() {
    const auto* x = reinterpret_cast<const float*>(file_->data());
    const auto start = Clock::now();
    parallel_for(static_cast<int64_t>(file_->size() / 4), 1 << 16, [&](int64_t i, int64_t end) {
      volatile double sink = kernels().sum_squares(end - i, x + i);
      (void)sink;
    });
    return static_cast<double>(file_->size()) / since(start);
  }

  std::shared_ptr<const MappedFile> file_;
  Clock::time_point start_;
  int64_t tokens_ = 0;
  std::vector<double> tokens_per_second_, bandwidth_, ratio_;
};

struct Speed {
  double first, prompt;
  int64_t megabytes;
};

int64_t megabytes_used() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

void print(const char* who, const Options& o, const Speed& s, const Decoding& decoding) {
  fmt::print(
      "{:<8} first token {:.2f} s | prompt of {} {:.1f} tok/s, {} MB | decode {:.2f} tok/s, {:.0f}% of "
      "reading "
      "({:.1f} GB/s)\n",
      who, s.first, o.prompt, s.prompt, s.megabytes, decoding.tokens_per_second(), 100 * decoding.ratio(),
      decoding.bandwidth() / 1e9);
}

void run_qkv(const Options& o) {
  const auto start = Clock::now();
  const auto model = load_model(resolve_model_dir(o.model), DType::f32);
  const Ensemble ensemble(*model);
  GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_new_tokens = 1;
  const NoGrad guard;
  generate(ensemble, {{1}}, options);
  Speed speed{since(start), 0, 0};
  const auto begin = Clock::now();
  generate(ensemble, {prompt_of(o.prompt)}, options);
  speed.prompt = static_cast<double>(o.prompt) / since(begin);
  speed.megabytes = megabytes_used();
  options.max_new_tokens = o.tokens + 1;
  Decoding decoding(o.model);
  bool first = true;
  generate(ensemble, {prompt_of(8)}, options, [&](int64_t, int32_t, std::span<const float>) {
    first ? decoding.begin() : decoding.token();
    first = false;
    return true;
  });
  print("qkv", o, speed, decoding);
}

void be_silent(const libllama::Library& library) {
  library.find<void(void (*)(int, const char*, void*), void*)>("llama_log_set")(
      [](int, const char*, void*) {}, nullptr);
}

void run_peer(const Options& o) {
  const libllama::Library library(o.libraries);
  be_silent(library);
  const auto start = Clock::now();
  void* model = libllama::load(library, o.model);
  auto params = library.find<libllama::ContextParams()>("llama_context_default_params")();
  params.context = 1024;
  params.batch = params.micro_batch = 512;
  params.threads = params.batch_threads = num_threads();
  void* context = libllama::make_context(library, model, params);
  int32_t position = 0;
  const auto decode = [&](const std::vector<int32_t>& ids) {
    libllama::run(library, "llama_decode", context, ids, position, false);
    position += static_cast<int32_t>(ids.size());
    library.find<float*(void*, int32_t)>("llama_get_logits_ith")(context, -1);
  };
  const auto clear = [&] {
    void* memory = library.find<void*(void*)>("llama_get_memory")(context);
    library.find<void(void*, bool)>("llama_memory_clear")(memory, true);
    position = 0;
  };
  decode({1});
  Speed speed{since(start), 0, 0};
  clear();
  const auto begin = Clock::now();
  decode(prompt_of(o.prompt));
  speed.prompt = static_cast<double>(o.prompt) / since(begin);
  speed.megabytes = megabytes_used();
  clear();
  decode(prompt_of(8));
  Decoding decoding(o.model);
  decoding.begin();
  for (int64_t i = 0; i < o.tokens; ++i) {
    decode({static_cast<int32_t>(i * 91 % 20000)});
    decoding.token();
  }
  print("libllama", o, speed, decoding);
}

void print_batch(const char* who, const Options& o, double seconds) {
  const auto steps = static_cast<double>(o.tokens);
  fmt::print("{:<8} {} sequences: {:.2f} tok/s, {:.1f} ms a step\n", who, o.sequences,
             static_cast<double>(o.sequences) * steps / seconds, 1e3 * seconds / steps);
}

void run_batch(const Options& o) {
  const auto model = load_model(resolve_model_dir(o.model), DType::f32);
  Engine engine(*model);
  for (int64_t s = 0; s < o.sequences; ++s) {
    std::vector<int32_t> prompt = prompt_of(8);
    prompt[0] += static_cast<int32_t>(s);
    engine.add({.prompt = prompt, .sampler = {.temperature = 0}, .max_new_tokens = o.tokens + 1});
  }
  const auto go_on = [](const NewToken&) { return true; };
  while (engine.waiting() > 0) engine.step(go_on);
  const auto start = Clock::now();
  while (engine.step(go_on)) {
  }
  print_batch("qkv", o, since(start));
}

void run_again(const Options& o) {
  const auto model = load_model(resolve_model_dir(o.model), DType::f32);
  const Ensemble ensemble(*model);
  const auto first_token = [&](Engine& engine) {
    const auto start = Clock::now();
    engine.add({.prompt = prompt_of(o.prompt), .sampler = {.temperature = 0}, .max_new_tokens = 1});
    while (engine.step(nullptr)) {
    }
    return since(start);
  };
  const std::string folder = std::filesystem::temp_directory_path() / fmt::format("again-{}", ::getpid());
  PromptCache cache(folder, ensemble);
  EngineOptions options = {.kept_tokens = 2 * o.prompt, .prompt_cache = &cache};
  Engine engine(ensemble, options), next(ensemble, options);
  const double whole = first_token(engine), memory = first_token(engine);
  engine.save_kept(cache);
  const double disk = first_token(next);
  const auto start = Clock::now();
  fingerprint_of(ensemble);
  fmt::print(
      "first token of {} tokens {:.2f} s, from memory {:.3f} s ({:.1f}%), from disk {:.3f} s ({:.1f}%) and "
      "{:.3f} s "
      "once for the model's fingerprint\n",
      o.prompt, whole, memory, 100 * memory / whole, disk, 100 * disk / whole, since(start));
  std::filesystem::remove_all(folder);
}

void run_batch_of_peer(const Options& o) {
  const libllama::Library library(o.libraries);
  be_silent(library);
  void* model = libllama::load(library, o.model);
  auto params = library.find<libllama::ContextParams()>("llama_context_default_params")();
  params.sequences = static_cast<uint32_t>(o.sequences);
  params.context = static_cast<uint32_t>(o.sequences * 256);
  params.batch = params.micro_batch = 512;
  params.threads = params.batch_threads = num_threads();
  void* context = libllama::make_context(library, model, params);
  for (int32_t t = 0; t < 8; ++t)
    libllama::run_sequences(library, context, std::vector<int32_t>(o.sequences, 100 + t), t);
  const auto start = Clock::now();
  for (int32_t t = 0; t < o.tokens; ++t) {
    std::vector<int32_t> ids;
    for (int64_t s = 0; s < o.sequences; ++s) ids.push_back(static_cast<int32_t>((t * 91 + s * 7) % 20000));
    libllama::run_sequences(library, context, ids, 8 + t);
    library.find<float*(void*, int32_t)>("llama_get_logits_ith")(context, -1);
  }
  print_batch("libllama", o, since(start));
}

// Both quantise activations, to 8 bits with a scale for each block; they add blocks in orders of their own.
void compare(const Options& o) {
  const std::vector<int32_t> ids = prompt_of(o.prompt);
  std::vector<float> ours;
  {
    const auto model = load_model(resolve_model_dir(o.model), DType::f32);
    const NoGrad guard;
    const Tensor logits = DecodeState(*model, 1).advance({ids});
    const auto values = logits.values<float>();
    ours.assign(values.begin(), values.end());
  }
  const libllama::Library library(o.libraries);
  be_silent(library);
  void* model = libllama::load(library, o.model);
  auto params = library.find<libllama::ContextParams()>("llama_context_default_params")();
  params.context = params.batch = params.micro_batch = static_cast<uint32_t>(o.prompt);
  params.flash_attention = 0;
  params.type_k = params.type_v = 0;  // f32
  params.threads = params.batch_threads = num_threads();
  void* context = libllama::make_context(library, model, params);
  libllama::run(library, "llama_decode", context, ids, 0, false);
  const float* theirs = library.find<float*(void*, int32_t)>("llama_get_logits_ith")(context, -1);
  double most = 0, squares = 0, scale = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double difference = std::abs(double{ours[i]} - theirs[i]);
    most = std::max(most, difference);
    squares += difference * difference;
    scale += double{theirs[i]} * theirs[i];
  }
  const auto n = static_cast<double>(ours.size());
  fmt::print("{}: logits after {} tokens differ by {:.4f} of their root mean square, at most by {:.4f}\n",
             o.model, o.prompt, std::sqrt(squares / scale), most / std::sqrt(scale / n));
}

void make(const std::string& dir) {
  std::filesystem::create_directories(dir);
  const char* config = R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000,
    "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
    "num_key_value_heads": 4, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": false})";
  Transformer model(parse_spec(config, "config"));
  for (Parameter& p : model.parameters().all()) {
    p.value = Tensor::empty(p.shape, DType::f32);
    const bool gain = p.kind == ParameterKind::vector;
    const auto to = p.value.mutable_values<float>();
    const auto site = static_cast<uint32_t>(std::hash<std::string>()(p.name));
    parallel_for(p.shape.count(), 1 << 16, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        float sum = gain ? 1 : 0;  // nearly normal
        for (uint32_t k = 0; k < 4 && !gain; ++k)
          sum += static_cast<float>(dropout_bits({site, k}, static_cast<uint32_t>(i)) >> 8) * 0x1p-24F - 0.5F;
        to[i] = gain ? sum : 0.04F * sum;
      }
    });
  }
  std::vector<std::pair<std::string, Weight>> tensors;
  for (auto& [name, tensor] : named_tensors(model, [](const Parameter& p) { return p.value; }))
    tensors.emplace_back(name, tensor);
  GgufParts parts = gguf_of_model(Json::parse(config), tensors);
  libllama::add_vocabulary(parts, model.spec().vocab_size);
  write_gguf(dir + "/model.gguf", parts.metadata, parts.tensors);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);
  qkv::Options o;
  CLI::App app("speed of a GGUF file");
  app.add_option("model", o.model);
  app.add_option("--make", o.make);
  app.add_option("--prompt", o.prompt);
  app.add_option("--tokens", o.tokens);
  app.add_option("--sequences", o.sequences);
  app.add_option("--libllama", o.libraries);
  app.add_flag("--compare", o.compare);
  app.add_flag("--again", o.again);
  CLI11_PARSE(app, argc, argv);
  try {
    if (!o.make.empty())
      qkv::make(o.make);
    else if (o.again)
      qkv::run_again(o);
    else if (o.compare)
      qkv::compare(o);
    else if (o.sequences > 0)
      o.libraries.empty() ? qkv::run_batch(o) : qkv::run_batch_of_peer(o);
    else if (!o.libraries.empty())
      qkv::run_peer(o);
    else
      qkv::run_qkv(o);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "gguf_speed: {}\n", e.what());
    return 1;
  }
}
