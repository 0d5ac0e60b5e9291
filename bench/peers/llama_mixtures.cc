// The types that qkv and libllama give to the tensors of random models, for every file type.
//   llama_mixtures FOLDER [MODELS] [SEED]
// FOLDER has libllama.v0.5.0.so and libggml-base.so, as that of the npm package
// @node-llama-cpp/linux-x64 3.22.1. Prints a line for each file type: "q4_k_m models MODELS tensors TENSORS
// different TENSORS", before it each tensor that differs. Exits with 1 if any does. An importance matrix is
// not given: the functions called here take none.
#include <dlfcn.h>
#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/base/rng.h"
#include "qkv/quant/mixture.h"

namespace qkv {
namespace {

// Arguments of libllama's functions; its own types stay opaque.
struct ModelDescription {
  const char* architecture;
  uint32_t width, hidden, layers, heads, key_value_heads, experts, key_size, value_size;
};
struct Parameters {
  alignas(8) unsigned char bytes[256];  // more than they take
};
struct MemoryParameters {
  size_t size;
  void* buffer;
  bool without_data;
};

template <typename Function>
Function find(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  check(symbol != nullptr, "{} is not in the library", name);
  return reinterpret_cast<Function>(symbol);
}

void* open(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) fail("{}", dlerror());
  return library;
}

// The numbers of ggml's enum; its f64 marks tensors that keep their type.
constexpr int kKept = 28;
int number_of(WeightType type) {
  constexpr int kNumbers[kWeightTypes] = {0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 39};
  return kNumbers[static_cast<int>(type)];
}

class Peer {
 public:
  explicit Peer(const std::string& folder)
      : base_(open(folder + "/libggml-base.so")), llama_(open(folder + "/libllama.v0.5.0.so")) {
    const auto silent = [](int, const char*, void*) {};
    find<void (*)(void (*)(int, const char*, void*), void*)>(llama_, "llama_log_set")(silent, nullptr);
  }

  // The numbers of the types; nothing if libllama fails.
  std::vector<int> types(FileType type, const MixtureModel& model,
                         const std::vector<MixtureTensor>& tensors) const {
    const ModelDescription description{.architecture = model.architecture.c_str(),
                                       .width = 256,
                                       .hidden = 256,
                                       .layers = static_cast<uint32_t>(model.layers),
                                       .heads = static_cast<uint32_t>(model.heads),
                                       .key_value_heads = static_cast<uint32_t>(model.key_value_heads),
                                       .experts = static_cast<uint32_t>(model.experts),
                                       .key_size = 64,
                                       .value_size = 64};
    void* their_model = find<void* (*)(const ModelDescription*)>(
        llama_, "_Z31llama_quant_model_from_metadataPK22llama_quant_model_desc")(&description);
    const Parameters parameters = find<Parameters (*)()>(llama_, "llama_model_quantize_default_params")();
    void* state = find<void* (*)(void*, const Parameters*)>(
        llama_, "_Z16llama_quant_initPK11llama_modelPK27llama_model_quantize_params")(their_model,
                                                                                      &parameters);
    void* memory = find<void* (*)(MemoryParameters)>(base_, "ggml_init")(
        {.size = size_t{1024} * (tensors.size() + 1), .buffer = nullptr, .without_data = true});
    std::vector<void*> theirs;
    for (const MixtureTensor& tensor : tensors) {
      theirs.push_back(
          find<void* (*)(void*, int, int64_t, int64_t, int64_t, int64_t)>(base_, "ggml_new_tensor_4d")(
              memory, kKept, tensor.extents[0], tensor.extents[1], tensor.extents[2], tensor.extents[3]));
      find<void* (*)(void*, const char*)>(base_, "ggml_set_name")(theirs.back(), tensor.name.c_str());
    }
    std::vector<int> types(tensors.size());
    try {
      find<void (*)(void*, int, void**, int*, size_t)>(
          llama_,
          "_Z25llama_quant_compute_typesP19quantize_state_impl11llama_ftypePP11ggml_tensorP9ggml_typem")(
          state, traits_of(type).number, theirs.data(), types.data(), theirs.size());
    } catch (const std::exception&) {
      types.clear();
    }
    find<void (*)(void*)>(base_, "ggml_free")(memory);
    find<void (*)(void*)>(llama_, "_Z16llama_quant_freeP19quantize_state_impl")(state);
    find<void (*)(void*)>(llama_, "llama_model_free")(their_model);
    return types;
  }

 private:
  void *base_, *llama_;
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_{.seed = seed, .step = 0, .site = 0} {}
  template <typename T>
  T one_of(std::initializer_list<T> choices) {
    return choices
        .begin()[static_cast<size_t>(stream_.uniform(next_++) * static_cast<double>(choices.size()))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

MixtureModel draw_model(Draws& draws) {
  MixtureModel model;
  model.architecture = draws.one_of({"llama", "llama", "falcon", "qwen2", "qwen3moe", "gemma2", "phi3",
                                     "gpt2", "deepseek2", "gpt-oss", "bert", "t5", "starcoder2"});
  model.layers = draws.one_of({1, 2, 7, 12, 16, 22, 32, 40, 60, 80});
  if (model.architecture != "llama")
    model.layers = std::min<int64_t>(model.layers, 79);  // see has_70_billion()
  model.heads = draws.one_of({8, 32});
  model.key_value_heads = model.heads / draws.one_of({1, 2, 4, 8});
  model.experts = draws.one_of({0, 0, 1, 4, 8, 128});
  return model;
}

std::vector<MixtureTensor> draw_tensors(const MixtureModel& model, Draws& draws) {
  std::vector<MixtureTensor> tensors;
  const auto add = [&](std::string name, int64_t width, int64_t rows, int64_t experts = 1) {
    tensors.push_back({.name = std::move(name), .extents = {width, rows, experts, 1}});
  };
  const int64_t width = draws.one_of({256, 512, 288, 320, 256, 48});
  const int64_t hidden = draws.one_of({1024, 768, 864, 100, 512});
  add("token_embd.weight", width, 300);
  if (draws.one_of({true, false})) add("output.weight", width, 300);
  add("output_norm.weight", width, 1);
  add("position_embd.weight", width, 64);
  add("token_types.weight", width, 2);
  add("per_layer_token_embd.weight", width, 300);
  const bool fused = draws.one_of({true, false}), latent = draws.one_of({false, false, true});
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = fmt::format("blk.{}.", layer);
    add(prefix + "attn_norm.weight", width, 1);
    if (fused) {
      add(prefix + "attn_qkv.weight", width, 3 * width);
      add(prefix + "attn_qkv.bias", 3 * width, 1);
    } else {
      for (const char* name : {"attn_q.weight", "attn_k.weight"}) add(prefix + name, width, width);
      add(prefix + (latent ? "attn_kv_b.weight" : "attn_v.weight"), width, width);
    }
    add(prefix + "attn_output.weight", width, width);
    add(prefix + "attn_sinks.weight", 32, 1);
    if (model.experts > 1 && layer % 5 != 4) {
      add(prefix + "ffn_gate_inp.weight", width, model.experts);
      for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"})
        add(prefix + name, width, hidden, model.experts);
      add(prefix + "ffn_down_exps.weight", hidden, width, model.experts);
    } else {
      for (const char* name : {"ffn_gate.weight", "ffn_up.weight"}) add(prefix + name, width, hidden);
      add(prefix + "ffn_down.weight", hidden, width);
    }
    add(prefix + "attn_rel_b.weight", 8, 32);
    add(prefix + "ssm_conv1d.weight", 4, 32);
  }
  if (draws.one_of({false, false, false, true})) add("mtp.ffn_down.weight", width, width);  // names no layer
  // libllama's state counts in the order given, which is that of its files.
  std::sort(tensors.begin(), tensors.end(),
            [](const MixtureTensor& a, const MixtureTensor& b) { return is_written_before(a.name, b.name); });
  return tensors;
}

int run(int arguments, char** argument) {
  if (arguments < 2) throw UsageError("usage: llama_mixtures FOLDER [MODELS] [SEED]");
  const Peer peer(argument[1]);
  const int models = arguments > 2 ? std::stoi(argument[2]) : 100;
  const uint64_t seed = arguments > 3 ? std::stoull(argument[3]) : 1;
  int64_t all_different = 0;
  for (const std::string_view name : file_type_names()) {
    const FileType type = *file_type(name);
    Draws draws(seed);
    int64_t compared = 0, different = 0;
    int failed = 0;
    for (int i = 0; i < models; ++i) {
      const MixtureModel model = draw_model(draws);
      const std::vector<MixtureTensor> tensors = draw_tensors(model, draws);
      const std::vector<int> theirs = peer.types(type, model, tensors);
      std::vector<std::optional<WeightType>> ours;
      try {
        ours = mixture(type, model, tensors);
      } catch (const Error&) {
        ++failed;
      }
      if (ours.size() != theirs.size()) {
        fmt::print("{} {}: only one fails\n", name, model.architecture);
        ++different;
        continue;
      }
      for (size_t k = 0; k < ours.size(); ++k, ++compared) {
        const int number = ours[k] ? number_of(*ours[k]) : kKept;
        if (number == theirs[k]) continue;
        ++different;
        fmt::print("{} {} of {} layers: {} {} is {}\n", name, model.architecture, model.layers,
                   tensors[k].name, number, theirs[k]);
      }
    }
    fmt::print("{} models {} (rejected {}) tensors {} different {}\n", name, models, failed, compared,
               different);
    all_different += different;
  }
  return all_different == 0 ? 0 : 1;
}

}  // namespace
}  // namespace qkv

int main(int arguments, char** argument) {
  try {
    return qkv::run(arguments, argument);
  } catch (const std::exception& error) {
    fmt::print(stderr, "llama_mixtures: {}\n", error.what());
    return 2;
  }
}
