// A GGUF file's speed in qkv, or in libllama: seconds from opening it to the first token, tokens per second
// of a prompt, and of tokens one by one, beside the bandwidth that reading the mapped file reaches.
//   gguf_speed MODEL.gguf [--prompt 512] [--tokens 32] [--libllama FOLDER]
//   gguf_speed --make DIR      writes DIR/model.gguf, a random model of the 1.1B Llama shape
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>

#include "bench/peers/libllama.h"
#include "qkv/autograd/graph.h"
#include "qkv/base/file.h"
#include "qkv/base/parallel.h"
#include "qkv/base/rng.h"
#include "qkv/infer/generate.h"
#include "qkv/io/model_dir.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

struct Options {
  std::string model, make, libraries;
  int64_t prompt = 512, tokens = 32;
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

double read_bandwidth(const std::string& path) {
  const auto file = MappedFile::open(path);
  const auto* x = reinterpret_cast<const float*>(file->data());
  double best = 0;
  for (int run = 0; run < 3; ++run) {
    const auto start = Clock::now();
    parallel_for(static_cast<int64_t>(file->size() / 4), 1 << 16, [&](int64_t i, int64_t end) {
      volatile double sink = kernels().sum_squares(end - i, x + i);
      (void)sink;
    });
    best = std::max(best, static_cast<double>(file->size()) / since(start) / 1e9);
  }
  return best;
}

struct Speed {
  double first, prompt, decode;
};

void print(const char* who, const Options& o, const Speed& s) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double bandwidth = read_bandwidth(o.model),
               size = static_cast<double>(std::filesystem::file_size(o.model));
  fmt::print(
      "{:<8} first token {:.2f} s | prompt of {} {:.1f} tok/s | decode {:.2f} tok/s, {:.2f} GB/s of {:.2f} "
      "({:.0f}%) "
      "| {} MB\n",
      who, s.first, o.prompt, s.prompt, s.decode, s.decode * size / 1e9, bandwidth,
      100 * s.decode * size / 1e9 / bandwidth, usage.ru_maxrss / 1024);
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
  auto begin = Clock::now();
  generate(ensemble, {prompt_of(o.prompt)}, options);
  speed.prompt = static_cast<double>(o.prompt) / since(begin);
  options.max_new_tokens = o.tokens + 1;
  std::vector<Clock::time_point> times;
  generate(ensemble, {prompt_of(8)}, options, [&](int64_t, int32_t, std::span<const float>) {
    times.push_back(Clock::now());
    return true;
  });
  speed.decode = static_cast<double>(std::ssize(times) - 1) /
                 std::chrono::duration<double>(times.back() - times.front()).count();
  print("qkv", o, speed);
}

void run_peer(const Options& o) {
  const libllama::Library library(o.libraries);
  library.find<void(void (*)(int, const char*, void*), void*)>("llama_log_set")(
      [](int, const char*, void*) {}, nullptr);
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
  auto begin = Clock::now();
  decode(prompt_of(o.prompt));
  speed.prompt = static_cast<double>(o.prompt) / since(begin);
  clear();
  decode(prompt_of(8));
  begin = Clock::now();
  for (int64_t i = 0; i < o.tokens; ++i) decode({static_cast<int32_t>(i * 91 % 20000)});
  speed.decode = static_cast<double>(o.tokens) / since(begin);
  print("libllama", o, speed);
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
  app.add_option("--libllama", o.libraries);
  CLI11_PARSE(app, argc, argv);
  try {
    if (!o.make.empty())
      qkv::make(o.make);
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
