// The functions of libllama that benchmarks call, found at run time: those of v0.5.0, as the npm package
// @node-llama-cpp/linux-x64 3.22.1 has them. The structures follow llama.h.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/base/error.h"
#include "qkv/io/gguf/model.h"

namespace libllama {

struct ModelParams {
  void *devices, *buffer_types;
  int32_t gpu_layers, split_mode, main_gpu;
  const float* split;
  void *progress, *progress_data, *overrides;
  bool flags[16];  // more than there are: the rest is padding
};

struct ContextParams {
  uint32_t context, batch, micro_batch, sequences, recurrent, outputs, more;
  int32_t threads, batch_threads, kind, scaling, pooling, attention, flash_attention;
  float rope[6];
  uint32_t original_context;
  float defragmentation;
  void *eval, *eval_data;
  int32_t type_k, type_v;
  void *abort, *abort_data;
  bool embeddings, offload, no_timing, offload_ops, full_windows, unified;
  void* samplers;
  size_t n_samplers;
  char reserve[64];  // for fields of later versions
};

struct Batch {
  int32_t tokens;
  int32_t* token;
  float* embedding;
  int32_t *position, *sequences;
  int32_t** sequence;
  int8_t* output;
};

class Library {
 public:
  // The folder has libllama.v0.5.0.so and the backends for processors.
  explicit Library(const std::string& folder) {
    for (const char* name : {"libggml-base.so", "libggml.v0.5.0.so", "libllama.v0.5.0.so"}) {
      handles_.push_back(dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_GLOBAL));
      qkv::check(handles_.back() != nullptr, "{}", dlerror());
    }
    find<void(const char*)>("ggml_backend_load_all_from_path")(folder.c_str());
    find<void()>("llama_backend_init")();
  }

  template <typename F>
  F* find(const char* name) const {
    for (void* handle : handles_)
      if (void* f = dlsym(handle, name)) return reinterpret_cast<F*>(f);
    qkv::fail("libllama has no '{}'", name);
  }

 private:
  std::vector<void*> handles_;
};

// Loads a GGUF file for the processor.
inline void* load(const Library& library, const std::string& path) {
  auto params = library.find<ModelParams()>("llama_model_default_params")();
  params.gpu_layers = 0;
  void* model =
      library.find<void*(const char*, ModelParams)>("llama_model_load_from_file")(path.c_str(), params);
  qkv::check(model != nullptr, "{}: libllama does not load it", path);
  return model;
}

inline void* make_context(const Library& library, void* model, const ContextParams& params) {
  void* context = library.find<void*(void*, ContextParams)>("llama_init_from_model")(model, params);
  qkv::check(context != nullptr, "libllama makes no context");
  return context;
}

// Decodes tokens[s] of each sequence s at this position, with outputs for all.
inline void run_sequences(const Library& library, void* context, std::vector<int32_t> tokens,
                          int32_t position) {
  const size_t n = tokens.size();
  std::vector<int32_t> positions(n, position), counts(n, 1), ids;
  for (size_t s = 0; s < n; ++s) ids.push_back(static_cast<int32_t>(s));
  std::vector<int32_t*> sequences;
  for (int32_t& id : ids) sequences.push_back(&id);
  std::vector<int8_t> outputs(n, 1);
  const Batch batch = {static_cast<int32_t>(n), tokens.data(),    nullptr,       positions.data(),
                       counts.data(),           sequences.data(), outputs.data()};
  const int32_t status = library.find<int32_t(void*, Batch)>("llama_decode")(context, batch);
  qkv::check(status == 0, "llama_decode gives {}", status);
}

// Calls "llama_decode" or "llama_encode" for tokens from position `first` on, with outputs for all or the
// last.
inline void run(const Library& library, const char* function, void* context, std::vector<int32_t> tokens,
                int32_t first, bool all_outputs) {
  std::vector<int32_t> positions, counts(tokens.size(), 1);
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(first + static_cast<int32_t>(i));
  int32_t zero = 0;
  std::vector<int32_t*> sequences(tokens.size(), &zero);
  std::vector<int8_t> outputs(tokens.size(), all_outputs ? 1 : 0);
  outputs.back() = 1;
  const Batch batch = {static_cast<int32_t>(tokens.size()),
                       tokens.data(),
                       nullptr,
                       positions.data(),
                       counts.data(),
                       sequences.data(),
                       outputs.data()};
  const int32_t status = library.find<int32_t(void*, Batch)>(function)(context, batch);
  qkv::check(status == 0, "{} gives {}", function, status);
}

// A vocabulary of numbers, which libllama needs to accept ids.
inline void add_vocabulary(qkv::GgufParts& parts, int64_t size) {
  using qkv::GgufValue;
  std::vector<std::string> tokens;
  // Letters, so that text has tokens; the rest only fills the table.
  for (int64_t i = 0; i < size; ++i)
    tokens.push_back(i == 0    ? "<unk>"
                     : i <= 26 ? std::string(1, static_cast<char>('a' + i - 1))
                               : fmt::format("t{}", i));
  const auto n = static_cast<size_t>(size);
  std::vector<int64_t> types(n, 1);
  types[0] = 2;
  parts.metadata.emplace_back("tokenizer.ggml.model", GgufValue::of(std::string_view("llama")));
  parts.metadata.emplace_back("tokenizer.ggml.pre", GgufValue::of(std::string_view("default")));
  parts.metadata.emplace_back("tokenizer.ggml.tokens", GgufValue::of_strings(std::move(tokens)));
  parts.metadata.emplace_back("tokenizer.ggml.scores", GgufValue::of_f32s(std::vector<double>(n, 0.0)));
  parts.metadata.emplace_back("tokenizer.ggml.token_type",
                              GgufValue::of_integers(GgufValue::Type::i32, std::move(types)));
  parts.metadata.emplace_back("tokenizer.ggml.token_type_count", GgufValue::of_u32(2));
}

}  // namespace libllama
