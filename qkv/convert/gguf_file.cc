#include "qkv/convert/gguf_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/parallel.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/gguf/model.h"
#include "qkv/io/gguf/tokenizer.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileTypeKey = "general.file_type";
constexpr const char* kVersionKey = "general.quantization_version";

GgufParts parts_of_directory(const std::string& dir) {
  const std::string path = dir + "/config.json";
  const Json config = parse_json(read_file(path), path);
  const ModelWeights weights = read_weights(dir);
  std::vector<std::pair<std::string, Weight>> tensors;
  for (const auto& [name, tensor] : weights.file.tensors) tensors.emplace_back(name, tensor);
  GgufParts parts = gguf_of_model(config, tensors);
  const auto at = parts.metadata.begin() + 1;  // behind general.architecture
  parts.metadata.insert(at, {"general.name", GgufValue::of(fs::path(dir).filename().string())});
  if (!text::Tokenizer::exists(dir)) return parts;
  GgufTokenizer tokenizer = tokenizer_of_directory(dir);
  const SpecialIds ids = load_special_ids(dir);
  tokenizer.bos = ids.bos, tokenizer.pad = ids.pad, tokenizer.eos = ids.eos;
  const auto rows = static_cast<size_t>(load_spec(dir).vocab_size);
  for (auto& entry : gguf_of_tokenizer(tokenizer, rows)) parts.metadata.push_back(std::move(entry));
  return parts;
}

GgufParts parts_of(const std::string& from) {
  if (!is_gguf(from)) return parts_of_directory(from);
  Gguf file = read_gguf(from);
  return {std::move(file.metadata), std::move(file.tensors)};
}

MixtureModel facts_of(const GgufParts& parts, bool importance) {
  const Gguf file{.path = "the GGUF file", .metadata = parts.metadata, .tensors = {}};
  MixtureModel model{.architecture = file.string("general.architecture"), .importance = importance};
  const auto number = [&](const char* key) {
    const std::string full = model.architecture + "." + key;
    const GgufValue* value = file.find(full);
    return value != nullptr && !value->integers.empty() ? value->integers.front() : int64_t{0};
  };
  model.layers = number("block_count");
  model.heads = number("attention.head_count");
  model.key_value_heads = file.has(model.architecture + ".attention.head_count_kv")
                              ? number("attention.head_count_kv")
                              : model.heads;
  model.experts = number("expert_count");
  return model;
}

MixtureTensor description_of(const std::string& name, const Shape& shape) {
  MixtureTensor out{name};
  for (int i = 0; i < shape.rank(); ++i) out.extents[i] = shape[-1 - i];
  return out;
}

// Rows of f32 from a weight of any type.
class RowReader {
 public:
  explicit RowReader(const Weight& weight)
      : bytes_(weight.is_quantized() ? weight.quantized().blocks() : weight.dense().value_bytes()),
        type_(weight.type()),
        width_(weight.shape()[-1]),
        row_bytes_(width_ / layout_of(type_).elements * layout_of(type_).bytes) {}
  void read(int64_t row, float* to) const {
    dequantize_row(type_, bytes_.subspan(row * row_bytes_, row_bytes_).data(), width_, to);
  }

 private:
  Span<const std::byte> bytes_;
  WeightType type_;
  int64_t width_, row_bytes_;
};

// The weight in another type. `importance`: of each column, for each matrix in turn; empty: none.
Weight in_type(const Weight& weight, WeightType type, const std::vector<float>& importance) {
  const Shape& shape = weight.shape();
  const int64_t width = shape[-1], rows = shape.count() / width;
  const RowReader reader(weight);
  Weight out;
  Span<std::byte> to;
  Tensor dense;
  QuantizedTensor blocks;
  if (is_quantized(type)) {
    blocks = QuantizedTensor::empty(shape, type);
    to = blocks.mutable_blocks();
  } else {
    dense = Tensor::empty(shape, type == WeightType::f32   ? DType::f32
                                 : type == WeightType::f16 ? DType::f16
                                                           : DType::bf16);
    to = dense.mutable_value_bytes();
  }
  const int64_t row_bytes = static_cast<int64_t>(to.size()) / rows,
                rows_a_matrix = shape.rank() > 2 ? shape[-2] : rows;
  parallel_for(rows, 4, [&](int64_t r, int64_t end) {
    std::vector<float> row(width);
    for (; r < end; ++r) {
      reader.read(r, row.data());
      std::byte* at = to.subspan(r * row_bytes, row_bytes).data();
      const float* weights =
          importance.empty()
              ? nullptr
              : importance.data() + r / rows_a_matrix * width % static_cast<int64_t>(importance.size());
      if (is_quantized(type)) {
        quantize_row(type, width, row.data(), weights, at);
      } else if (type == WeightType::f32) {
        std::memcpy(at, row.data(), row_bytes);
      } else {
        for (int64_t c = 0; c < width; ++c) {
          const uint16_t bits = type == WeightType::f16 ? round_to_f16(row[c]).bits : BFloat16(row[c]).bits;
          std::memcpy(at + 2 * c, &bits, 2);
        }
      }
    }
  });
  return is_quantized(type) ? Weight(blocks) : Weight(dense);
}

void set(GgufParts& parts, const char* key, GgufValue value) {
  const auto at = std::ranges::find(parts.metadata, key, [](const auto& entry) { return entry.first; });
  if (at != parts.metadata.end())
    at->second = std::move(value);
  else
    parts.metadata.emplace_back(key, std::move(value));
}

void quantize(GgufParts& parts, const GgufFileOptions& options) {
  const FileType type = *options.type;
  std::ranges::sort(parts.tensors,
                    [](const auto& a, const auto& b) { return is_written_before(a.first, b.first); });
  std::vector<MixtureTensor> tensors;
  for (const auto& [name, weight] : parts.tensors) tensors.push_back(description_of(name, weight.shape()));
  const auto known = [&](const auto& tensor) { return options.importance.contains(tensor.first); };
  check(options.importance.empty() || std::ranges::any_of(parts.tensors, known),
        "the importance of columns is known for none of the model's tensors");
  const auto types = mixture(type, facts_of(parts, !options.importance.empty()), tensors);
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    auto& [name, weight] = parts.tensors[i];
    if (options.progress) options.progress(name, i, parts.tensors.size());
    if (!types[i] || *types[i] == weight.type()) continue;
    check(!weight.is_quantized() || options.requantize,
          "{}: is {} already; quantising again loses more (--requantize does it)", name,
          name_of(weight.type()));
    const auto importance = options.importance.find(name);
    weight = in_type(weight, *types[i],
                     importance != options.importance.end() ? importance->second : std::vector<float>());
  }
  set(parts, kVersionKey, GgufValue::of_u32(2));
  set(parts, kFileTypeKey, GgufValue::of_u32(traits_of(type).number));
}

}  // namespace

std::map<std::string, std::vector<float>> importance_by_name(const std::string& from, const ModelSpec& spec,
                                                             std::vector<Tensor> matrices) {
  // A model whose weights are the rows of importance goes the way of all weights to GGUF's names and shapes.
  Transformer shadow(spec);
  size_t i = 0;
  for (Parameter& p : shadow.parameters().all()) {
    Tensor& known = matrices.at(i++);
    p.value = known.defined() ? std::move(known) : Tensor::zeros(p.shape, DType::f32);
  }
  const std::string path = from + "/config.json";
  std::vector<std::pair<std::string, Weight>> tensors;
  for (auto& [name, tensor] : named_tensors(shadow, [](const Parameter& p) { return p.value; }))
    tensors.emplace_back(name, tensor);
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, weight] : gguf_of_model(parse_json(read_file(path), path), tensors).tensors) {
    const Shape& shape = weight.shape();
    if (shape.rank() < 2) continue;
    const int64_t width = shape[-1], rows = shape[-2], count = shape.count() / width / rows;
    const auto values = weight.dense().values<float>();
    std::vector<float> columns;
    bool any = false;
    for (int64_t m = 0; m < count; ++m) {
      const auto row = values.subspan(m * rows * width, width);
      const bool seen = std::ranges::any_of(row, [](float x) { return x > 0; });
      for (const float x : row) columns.push_back(seen ? x : 1);  // an expert that no token chose
      any = any || seen;
    }
    if (any) out.emplace(name, std::move(columns));
  }
  return out;
}

void save_gguf(const std::string& from, const std::string& to, const GgufFileOptions& options) {
  GgufParts parts = parts_of(from);
  if (options.type) quantize(parts, options);
  write_gguf_atomically(to, parts);
}

void write_gguf_atomically(const std::string& to, const GgufParts& parts) {
  const std::string temporary = to + ".tmp";
  try {
    write_gguf(temporary, parts.metadata, parts.tensors);
    fs::rename(temporary, to);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

}  // namespace qkv
