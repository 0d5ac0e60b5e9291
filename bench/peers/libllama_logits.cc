// Compares the logits that libllama computes from our GGUF file of a model directory with the reference's.
//   libllama_logits FOLDER OUT.gguf DIR [INPUTS OUTPUTS]
// FOLDER has libllama.v0.5.0.so, as that of the npm package @node-llama-cpp/linux-x64 3.22.1. Writes
// OUT.gguf. DIR has config.json and the weights; or it is an adapter of such a directory, which becomes
// OUT.gguf.adapter.gguf and is applied by libllama. INPUTS is a safetensors file with input_ids, and OUTPUTS
// one with f64.logits, or with logits as `qkv forward` writes them. If they are not given, both are
// DIR/expected.safetensors, as in a case of the reference.
//
// Prints the largest difference, and exits with 1 if it is above 0.001 of the logits' scale. The cache is f32
// and flash attention is off. The structures follow llama.h. Known differences of libllama:
// - It ignores the windows of Mistral and StarCoder 2.
// - It takes LongRoPE's lists by the size of its context, which is at least 256.
// - It computes GELU with a table of f16, which takes up to the whole bound; other activations take 1e-6.
// - It does not scale the logits of a T5 whose embeddings are tied; this program does it.
// - BERT's tokens are all of the first segment. Its last hidden states are compared.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/peers/libllama.h"
#include "qkv/base/error.h"
#include "qkv/convert/gguf_adapter.h"
#include "qkv/io/adapter_dir.h"
#include "qkv/io/gguf/model.h"
#include "qkv/io/weights.h"

namespace {

using qkv::check;

constexpr double kBound = 1e-3;  // relative to the logits' scale

struct Expected {
  std::vector<int64_t> ids;          // the first sequence, which has no padding
  std::vector<int64_t> decoder_ids;  // the decoder's, if there is one
  std::vector<float> rows;           // [N, V] or [N, D]
  int64_t width = 0;
};

struct ExpectedFiles {
  std::string inputs, outputs;
};

Expected read_expected(const ExpectedFiles& files, bool vectors) {
  const auto file = qkv::read_tensors(files.inputs), out = qkv::read_tensors(files.outputs);

  const auto ids_of = [&](const char* name) {
    std::vector<int64_t> ids;
    if (const auto it = file.tensors.find(name); it != file.tensors.end())
      for (const int64_t id : it->second.row<int64_t>(0)) ids.push_back(id);
    return ids;
  };
  Expected e{.ids = ids_of("input_ids"), .decoder_ids = ids_of("decoder_input_ids"), .rows = {}};
  const std::string kind = out.tensors.contains(vectors ? "f64.hidden_states.0" : "f64.logits") ? "f64." : "";
  std::string name = kind + "logits";
  for (int layer = 0; vectors && out.tensors.contains(fmt::format("{}hidden_states.{}", kind, layer));
       ++layer)
    name = fmt::format("{}hidden_states.{}", kind, layer);
  const auto it = out.tensors.find(name);
  check(it != out.tensors.end(), "{}: tensor '{}' is missing", files.outputs, name);

  e.width = it->second.dim(2);
  const qkv::Tensor logits = it->second.slice_rows(0, 1);
  for (const float x : logits.values<float>()) e.rows.push_back(x);
  return e;
}

std::string adapter_path(const std::string& path) {
  return path + ".adapter.gguf";
}

// The rows that libllama computes, with the adapter beside the model if there is one.
std::vector<float> compute(const libllama::Library& library, const std::string& path, const Expected& e,
                           bool vectors, bool adapted) {
  void* model = libllama::load(library, path);
  auto params = library.find<libllama::ContextParams()>("llama_context_default_params")();
  params.context = params.batch = params.micro_batch =
      static_cast<uint32_t>(std::max<size_t>(e.ids.size(), 8));

  params.threads = params.batch_threads = 1;
  params.flash_attention = 0;
  params.type_k = params.type_v = 0;  // f32
  params.pooling = vectors ? 0 : params.pooling;
  params.embeddings = vectors;
  void* context = libllama::make_context(library, model, params);
  if (adapted) {
    void* adapter =
        library.find<void*(void*, const char*)>("llama_adapter_lora_init")(model, adapter_path(path).c_str());
    check(adapter != nullptr, "{}: libllama does not load it", adapter_path(path));
    float scale = 1;
    const int32_t status = library.find<int32_t(void*, void**, size_t, float*)>("llama_set_adapters_lora")(
        context, &adapter, 1, &scale);
    check(status == 0, "llama_set_adapters_lora gives {}", status);
  }
  const auto run = [&](const std::vector<int64_t>& ids, const char* function) {
    libllama::run(library, function, context, {ids.begin(), ids.end()}, 0, true);
  };
  const bool both = !e.decoder_ids.empty();
  if (both) run(e.ids, "llama_encode");
  run(both ? e.decoder_ids : e.ids, vectors ? "llama_encode" : "llama_decode");
  const size_t rows = both ? e.decoder_ids.size() : e.ids.size();
  std::vector<float> out;
  for (size_t i = 0; i < rows; ++i) {
    const float* row = library.find<float*(void*, int32_t)>(
        vectors ? "llama_get_embeddings_ith" : "llama_get_logits_ith")(context, static_cast<int32_t>(i));
    check(row != nullptr, "{}: row {} has no output", path, i);
    out.insert(out.end(), row, row + e.width);
  }
  return out;
}

int compare(const std::string& libraries, const std::string& path, const std::string& given,
            const ExpectedFiles& files) {
  const bool adapted = qkv::is_adapter_dir(given);
  if (adapted) qkv::save_gguf_adapter(given, adapter_path(path));
  const std::string dir = adapted ? qkv::read_adapter_config(given).base : given;
  std::ifstream in(dir + "/config.json");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  const qkv::Json config = qkv::parse_json(document, dir + "/config.json");
  std::vector<std::pair<std::string, qkv::Weight>> tensors;
  for (const auto& [name, tensor] : qkv::read_weights(dir).file.tensors) tensors.emplace_back(name, tensor);
  qkv::GgufParts parts = qkv::gguf_of_model(config, tensors);
  const bool vectors = config.at("model_type") == "bert";
  libllama::add_vocabulary(parts, config.at("vocab_size").get<int64_t>());
  qkv::write_gguf(path, parts.metadata, parts.tensors);

  const libllama::Library library(libraries);
  const Expected e = read_expected(files, vectors);
  std::vector<float> rows = compute(library, path, e, vectors, adapted);
  if (config.at("model_type") == "t5" && config.value("tie_word_embeddings", true))
    for (float& x : rows) x /= std::sqrt(config.at("d_model").get<float>());

  double largest = 0, scale = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    largest = std::max(largest, std::abs(double{rows[i]} - double{e.rows[i]}));
    scale = std::max(scale, std::abs(double{e.rows[i]}));
  }
  fmt::print("{}: {} rows, largest difference {:.2e}, scale {:.2f}, relative {:.2e}\n", given,
             static_cast<int64_t>(rows.size()) / e.width, largest, scale, largest / scale);
  return largest <= kBound * scale ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 6) {
    fmt::print(stderr, "usage: libllama_logits FOLDER OUT.gguf DIR [INPUTS OUTPUTS]\n");
    return 2;
  }
  try {
    const std::string dir = argv[3], reference = dir + "/expected.safetensors";
    return compare(argv[1], argv[2], dir,
                   argc == 6 ? ExpectedFiles{argv[4], argv[5]} : ExpectedFiles{reference, reference});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
