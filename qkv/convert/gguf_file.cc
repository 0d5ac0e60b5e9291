#include "qkv/convert/gguf_file.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/base/parallel.h"
#include "qkv/io/binding.h"
#include "qkv/io/gguf/directory.h"
#include "qkv/io/gguf/model.h"
#include "qkv/io/gguf/tensors.h"
#include "qkv/io/gguf/tokenizer.h"
#include "qkv/io/model_dir.h"
#include "qkv/io/weights.h"
#include "qkv/models/part.h"
#include "qkv/quant/float16.h"
#include "qkv/quant/quantize.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileTypeKey = "general.file_type";
constexpr const char* kVersionKey = "general.quantization_version";

// A directory's config.json and tensors. A model that only qkv's own config.json expresses, for its modules
// of multi-token prediction, is taken without them; in others the tensors of modules have no place anyway.
struct ModelFile {
  Json config;
  std::vector<std::pair<std::string, Weight>> tensors;
};
ModelFile file_of_directory(const std::string& dir) {
  const std::string path = dir + "/config.json";
  ModelFile file{parse_json(read_file(path), path), {}};
  if (file.config.value("model_type", "") == "qkv" && parse_spec(read_file(path), path).mtp.any()) {
    const auto model = without_mtp(*load_model(dir, DType::f32));
    const Family& family = family_for(model->spec());
    file.config.update(Json::parse(config_of(family, model->spec()).dump()));
    for (auto& [name, tensor] : weights_to_write(*model, weights_of(family, model->spec())))
      file.tensors.emplace_back(name, tensor);
    return file;
  }
  for (const auto& [name, tensor] : read_weights(dir).file.tensors) file.tensors.emplace_back(name, tensor);
  return file;
}

GgufParts parts_of_directory(const std::string& dir) {
  const auto [config, tensors] = file_of_directory(dir);
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

namespace {

// The columns of the matrices in rows [first, first + rows) of a parameter, in turn. A matrix that met no
// activations, as an expert that no token chose, has ones. Empty if none met any.
std::vector<float> columns_in(const std::vector<ColumnImportance>& matrices, int64_t first, int64_t rows) {
  std::vector<float> columns;
  if (matrices.empty()) return columns;
  const int64_t size = std::min(rows, matrices.front().rows), end = first + rows;
  bool any = false;
  for (int64_t row = first; row < end; row += size) {
    const auto of = std::ranges::find_if(matrices, [&](const ColumnImportance& m) {
      return m.first_row <= row && row < m.first_row + m.rows;
    });
    any = any || of != matrices.end();
    if (of == matrices.end())
      columns.insert(columns.end(), matrices.front().columns.size(), 1.0F);
    else
      columns.insert(columns.end(), of->columns.begin(), of->columns.end());
  }
  return any ? columns : std::vector<float>();
}

// True if a tensor of this form has the same columns as the engine's matrix.
bool keeps_columns(GgufForm form) {
  return form != GgufForm::latent_keys;  // which is transposed
}

}  // namespace

std::map<std::string, std::vector<float>> importance_by_name(
    const std::string& from, const std::vector<std::vector<ColumnImportance>>& importance) {
  const std::string path = from + "/config.json";
  const GgufNaming naming = gguf_naming_of(parse_json(read_file(path), path), path);
  Transformer model(naming.spec);
  std::map<std::string, std::pair<const Parameter*, const std::vector<ColumnImportance>*>> known;
  size_t i = 0;
  for (const Parameter& p : model.parameters().all()) known[p.name] = {&p, &importance.at(i++)};
  // The tensors of a stack come in any order.
  std::map<std::string, std::map<int64_t, std::vector<float>>> parts;
  std::map<std::string, size_t> widths;
  for (const WeightName& w : weights_of(naming.family, naming.spec)) {
    const auto& [parameter, matrices] = known.at(w.engine);
    if (w.file.empty() || matrices->empty()) continue;
    const int64_t rows = w.rows > 0 ? w.rows : parameter->shape[0];
    for (const GgufCounterpart& place : gguf_names_of(w.file, naming)) {
      if (!keeps_columns(place.form)) continue;
      parts[place.name][place.part] = columns_in(*matrices, w.first_row, rows);
      widths[place.name] = matrices->front().columns.size();
    }
  }
  std::map<std::string, std::vector<float>> out;
  for (auto& [name, of_parts] : parts) {
    std::vector<float> columns;
    bool any = false;
    for (auto& [part, values] : of_parts) {
      any = any || !values.empty();
      if (values.empty()) values.assign(widths.at(name), 1.0F);
      columns.insert(columns.end(), values.begin(), values.end());
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
