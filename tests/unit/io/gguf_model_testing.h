// Small models of published architectures, to be written as GGUF files and read.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "qkv/base/json_value.h"
#include "qkv/io/gguf/model.h"
#include "qkv/io/model_dir.h"

namespace qkv::testing {

struct SmallModel {
  Json config;
  std::vector<std::pair<std::string, Weight>> tensors;
};

// The model of a config.json. The numbers of each tensor are 0, 1, 2, ....
inline SmallModel small_model(const Json& config) {
  SmallModel model{config, {}};
  const Transformer transformer(parse_spec(config.dump(), "config.json"));
  for (const auto& [name, tensor] :
       named_tensors(transformer, [](const Parameter& p) { return Tensor::zeros(p.shape, DType::f32); })) {
    std::vector<float> numbers(static_cast<size_t>(tensor.count()));
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    model.tensors.emplace_back(name, Tensor::of(tensor.shape(), numbers));
  }
  return model;
}

inline Json small_llama() {
  return {{"model_type", "llama"},        {"vocab_size", 5},        {"hidden_size", 8},
          {"intermediate_size", 6},       {"num_hidden_layers", 1}, {"num_attention_heads", 2},
          {"num_key_value_heads", 1},     {"rms_norm_eps", 1e-5},   {"rope_theta", 500.0},
          {"max_position_embeddings", 64}};
}

// A config with other fields.
inline Json with(Json config, const Json& fields) {
  config.update(fields);
  return config;
}

inline Gguf as_file(const GgufParts& parts) {
  return {.path = "model.gguf", .metadata = parts.metadata, .tensors = parts.tensors};
}
// The file of a small model.
inline Gguf small_file(const Json& config) {
  const SmallModel model = small_model(config);
  return as_file(gguf_of_model(model.config, model.tensors));
}

inline void set_key(Gguf& file, const std::string& key, GgufValue value) {
  for (auto& [name, present] : file.metadata)
    if (name == key) {
      present = std::move(value);
      return;
    }
  file.metadata.emplace_back(key, std::move(value));
}
inline void erase_key(Gguf& file, const std::string& key) {
  std::erase_if(file.metadata, [&](const auto& entry) { return entry.first == key; });
}
inline void set_tensor(Gguf& file, const std::string& name, Weight tensor) {
  for (auto& [other, present] : file.tensors)
    if (other == name) {
      present = std::move(tensor);
      return;
    }
  file.tensors.emplace_back(name, std::move(tensor));
}
inline void erase_tensor(Gguf& file, const std::string& name) {
  std::erase_if(file.tensors, [&](const auto& entry) { return entry.first == name; });
}

// The tensor of a name in a list or a file. Fails the test if there is none.
inline Weight named(const std::vector<std::pair<std::string, Weight>>& tensors, const std::string& name) {
  for (const auto& [other, tensor] : tensors)
    if (other == name) return tensor;
  ADD_FAILURE() << "there is no tensor " << name;
  return {};
}

inline std::vector<float> numbers_of(const Weight& w) {
  const auto values = w.dense().values<float>();
  return {values.begin(), values.end()};
}

// The former places of the rows of a matrix, or of the numbers of a vector, that counts from 0. Fails the
// test if a row is not whole.
inline std::vector<int64_t> rows_of(const Weight& w) {
  const int64_t width = w.shape().rank() == 1 ? 1 : w.dim(-1);
  const std::vector<float> numbers = numbers_of(w);
  std::vector<int64_t> rows;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto place = static_cast<int64_t>(numbers[i]);
    if (i % static_cast<size_t>(width) == 0) rows.push_back(place / width);
    EXPECT_EQ(place, rows.back() * width + static_cast<int64_t>(i) % width);
  }
  return rows;
}

// Blocks whose bytes are all different from their neighbours'.
inline QuantizedTensor blocks_of(const Shape& shape, WeightType type) {
  QuantizedTensor blocks = QuantizedTensor::empty(shape, type);
  uint8_t next = 0;
  for (std::byte& b : blocks.mutable_blocks()) b = static_cast<std::byte>(next += 7);
  return blocks;
}

// The bytes of a row of blocks.
inline std::vector<std::byte> row_of(const QuantizedTensor& blocks, int64_t row) {
  const auto bytes = blocks.blocks().subspan(row * blocks.row_bytes(), blocks.row_bytes());
  return {bytes.begin(), bytes.end()};
}

}  // namespace qkv::testing
