// CLIP's directories: two models in one file, and the position of a text's vector.
// Covers: qkv/io/clip_dir.cc, qkv/models/clip.cc
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <tuple>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/clip_dir.h"
#include "qkv/io/container/safetensors.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::clip_test {
namespace {

using testing::expect_error;

// Width 8 for texts, width 6 for images of 4 pixels with 2 patches a side; one layer each.
class ClipDir : public ::testing::Test {
 protected:
  ClipDir() {
    config_ = {{"model_type", "clip"},
               {"projection_dim", 5},
               {"text_config",
                {{"vocab_size", 11},
                 {"max_position_embeddings", 7},
                 {"hidden_size", 8},
                 {"intermediate_size", 9},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 2},
                 {"eos_token_id", 10}}},
               {"vision_config",
                {{"image_size", 4},
                 {"patch_size", 2},
                 {"hidden_size", 6},
                 {"intermediate_size", 7},
                 {"num_hidden_layers", 1},
                 {"num_attention_heads", 3}}}};
    add("logit_scale", {});
    add("text_projection.weight", {5, 8});
    add("visual_projection.weight", {5, 6});
    add("text_model.embeddings.token_embedding.weight", {11, 8});
    add("text_model.embeddings.position_embedding.weight", {7, 8});
    add("vision_model.embeddings.class_embedding", {6});
    add("vision_model.embeddings.patch_embedding.weight", {6, 3, 2, 2});
    add("vision_model.embeddings.position_embedding.weight", {5, 6});
    for (const char* norm :
         {"text_model.final_layer_norm", "vision_model.pre_layrnorm", "vision_model.post_layernorm"})
      add_affine(norm, {norm[0] == 't' ? 8 : 6});
    for (const auto& [tower, width, hidden] :
         {std::tuple<std::string, int64_t, int64_t>{"text", 8, 9}, {"vision", 6, 7}}) {
      const std::string layer = tower + "_model.encoder.layers.0.";
      for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
        add_affine(layer + "self_attn." + name, {width, width});
      add_affine(layer + "layer_norm1", {width});
      add_affine(layer + "layer_norm2", {width});
      add_affine(layer + "mlp.fc1", {hidden, width});
      add_affine(layer + "mlp.fc2", {width, hidden});
    }
  }
  void add(const std::string& name, Shape shape) {
    Tensor x = Tensor::empty(shape, DType::f32);
    for (int64_t i = 0; i < x.count(); ++i)
      x.mutable_data<float>()[i] = 0.1F * static_cast<float>((i * 7 + std::ssize(tensors_)) % 11) - 0.5F;
    tensors_.emplace_back(name, x);
  }
  void add_affine(const std::string& name, Shape weight) {
    add(name + ".weight", weight);
    add(name + ".bias", {weight[0]});
  }
  void write() {
    dir_.write("config.json", config_.dump());
    write_safetensors(dir_.path() + "/model.safetensors", tensors_);
  }
  void refuse(std::initializer_list<std::string> parts) {
    write();
    expect_error([&] { load_clip(dir_.path(), DType::f32); }, parts);
  }

  testing::ScratchDir dir_;
  Json config_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

TEST_F(ClipDir, HoldsTwoModels) {
  EXPECT_FALSE(is_clip_dir(dir_.path()));
  write();
  EXPECT_TRUE(is_clip_dir(dir_.path()));
  const ClipModel clip = load_clip(dir_.path(), DType::f32);
  EXPECT_EQ(clip.text->spec().architecture, Architecture::decoder);
  EXPECT_EQ(clip.vision->spec().context, 5);
  EXPECT_EQ(clip.vision->spec().features.patches(), 4);
  EXPECT_EQ(clip.text->parameters().find("decoder.block.0.attention.qkv.weight")->value.shape(),
            (Shape{24, 8}));
  EXPECT_EQ(clip.text_projection.shape(), (Shape{5, 8}));
  EXPECT_EQ(clip.visual_projection.shape(), (Shape{5, 6}));
}

TEST_F(ClipDir, ATextsVectorStandsAtItsEnd) {
  write();
  ClipModel clip = load_clip(dir_.path(), DType::f32);
  EXPECT_EQ(clip.place_of_text(std::vector<int32_t>{1, 4, 10, 10, 3}), 2);
  EXPECT_EQ(clip.place_of_text(std::vector<int32_t>{1, 4, 3}), 0);  // there is no end
  clip.end = 2;                                                     // in old files: the largest id
  EXPECT_EQ(clip.place_of_text(std::vector<int32_t>{1, 2, 9, 10, 10, 3}), 3);
}

// Reads and writes it again, in the types of the stored tensors.
TEST_F(ClipDir, ComesBackBitForBit) {
  config_["text_config"]["hidden_act"] = "gelu";
  config_["vision_config"]["layer_norm_eps"] = 0.25;
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    write();
    if (stored != DType::f32) {
      auto tensors = tensors_;
      for (auto& [name, x] : tensors) {
        for (int64_t i = 0; i < x.count(); ++i)  // values that both types hold exactly
          x.mutable_data<float>()[i] = static_cast<float>(BFloat16(x.data<float>()[i]));
        x = as_stored(x, stored);
      }
      write_safetensors(dir_.path() + "/model.safetensors", tensors);
    }
    const std::string out = dir_.path() + "/out";
    std::filesystem::create_directories(out);
    const ClipModel clip = load_clip(dir_.path(), DType::f32);
    save_clip(out, clip);
    EXPECT_TRUE(is_clip_dir(out));
    const ClipModel again = load_clip(out, DType::f32);
    EXPECT_EQ(again.text->spec(), clip.text->spec());
    EXPECT_EQ(again.vision->spec(), clip.vision->spec());
    EXPECT_EQ(again.end, clip.end);
    const TensorFile before = read_safetensors(dir_.path() + "/model.safetensors"),
                     after = read_safetensors(out + "/model.safetensors");
    EXPECT_EQ(before.tensors.size(), after.tensors.size());
    for (const auto& [name, x] : before.tensors) {
      SCOPED_TRACE(name);
      const Tensor& y = after.tensors.at(name);
      EXPECT_EQ(y.dtype(), stored);
      EXPECT_EQ(y.shape(), x.shape());
      EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0);
    }
  }
}

TEST_F(ClipDir, WhatDoesNotFitIsRefused) {
  tensors_.emplace_back("extra", Tensor::zeros({1}, DType::f32));
  refuse({"'extra'", "CLIP"});
  tensors_.pop_back();
  const auto last = tensors_.back();
  tensors_.pop_back();
  refuse({"'" + last.first + "'", "missing"});
  tensors_.emplace_back(last.first, Tensor::zeros({3}, DType::f32));
  refuse({"'" + last.first + "'", "[3]"});
  tensors_.back() = last;
  config_["projection_dim"] = 4;
  refuse({"text_projection.weight", "[4, 8]"});
  config_["projection_dim"] = 5;
  config_["text_config"]["num_attention_heads"] = 3;
  refuse({"hidden_size", "3 heads"});
  config_["text_config"]["num_attention_heads"] = 2;
  config_.erase("vision_config");
  refuse({"vision_config"});
}

}  // namespace
}  // namespace qkv::clip_test
