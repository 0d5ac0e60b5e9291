// The types that a file type gives to the tensors of a model: "q4_k_m" stores some in q6_k, and norms as they
// are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor/weight_type.h"

namespace qkv {

// The mixtures, by the names that llama-quantize gives them, in small letters.
enum class FileType : uint8_t {
  f32,
  f16,
  bf16,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q2_k,
  q3_k_s,
  q3_k_m,
  q3_k_l,
  q4_k_s,
  q4_k_m,
  q5_k_s,
  q5_k_m,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4_moe,
};
inline constexpr int kFileTypes = static_cast<int>(FileType::mxfp4_moe) + 1;

struct FileTypeTraits {
  std::string_view name;  // "q4_k_m"
  int number;             // general.file_type of a GGUF file
  WeightType base;        // most matrices have this type
};
const FileTypeTraits& traits_of(FileType type);
std::string_view name_of(FileType type);
// The file type of that name, or nothing.
std::optional<FileType> file_type(std::string_view name);
// For help texts, in the order of FileType.
const std::array<std::string_view, kFileTypes>& file_type_names();

// Facts about a model that mixtures depend on, as its GGUF metadata have them. Those of heads are of the
// first layer.
struct MixtureModel {
  std::string architecture;     // general.architecture
  int64_t layers = 0;           // block_count
  int64_t heads = 0;            // attention.head_count
  int64_t key_value_heads = 0;  // attention.head_count_kv; head_count where that is absent
  int64_t experts = 0;          // expert_count
  bool importance = false;      // an importance matrix is given
};

// A tensor by its name in GGUF files ("blk.0.ffn_down.weight"), with its extents in their order: the width of
// a row first, then the rows, then the experts.
struct MixtureTensor {
  std::string name;
  std::array<int64_t, 4> extents = {1, 1, 1, 1};
};

// The type of each of a model's tensors, or nothing for one that keeps its own: norms, biases, routers. Types
// depend on which other tensors there are; the order of `tensors` does not count. The choice is
// llama_model_quantize()'s (llama.cpp, src/llama-quant.cpp). A row that is no multiple of 256 gets a type
// with smaller blocks. Throws Error where llama_model_quantize() fails: a row fits no type that stands in for
// the chosen one, or the name of an expert's tensor tells no layer.
std::vector<std::optional<WeightType>> mixture(FileType type, const MixtureModel& model,
                                               std::span<const MixtureTensor> tensors);

// True if llama_model_quantize() writes tensor `a` before `b`: by layer, those of no layer first, then by
// name.
bool is_written_before(std::string_view a, std::string_view b);

}  // namespace qkv
