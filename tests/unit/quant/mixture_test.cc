#include "qkv/quant/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/unit/expect_error.h"
#include "tests/unit/quant/row_testing.h"

namespace qkv::mixture_test {
namespace {

std::vector<MixtureTensor> tensors_of(const MixtureModel& model, bool tied) {
  std::vector<MixtureTensor> tensors;
  const auto add = [&](std::string name, int64_t width, int64_t rows, int64_t experts = 1) {
    tensors.push_back({.name = std::move(name), .extents = {width, rows, experts, 1}});
  };
  add("token_embd.weight", 256, 4);
  add("output_norm.weight", 256, 1);
  if (!tied) add("output.weight", 256, 4);
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    add(prefix + "attn_norm.weight", 256, 1);
    if (model.architecture == "falcon") {
      add(prefix + "attn_qkv.weight", 256, 2);
    } else {
      for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight"}) add(prefix + name, 256, 2);
    }
    add(prefix + "attn_output.weight", 256, 2);
    if (model.experts > 0) {
      add(prefix + "ffn_gate_inp.weight", 256, model.experts);
      add(prefix + "ffn_gate_exps.weight", 256, 2, model.experts);
      add(prefix + "ffn_up_exps.weight", 256, 2, model.experts);
      add(prefix + "ffn_down_exps.weight", 512, 2, model.experts);
    } else {
      add(prefix + "ffn_gate.weight", 256, 2);
      add(prefix + "ffn_up.weight", 256, 2);
      const int64_t odd = layer % 2 ? 40 : 288;  // no multiple of 32, or of 256
      add(prefix + "ffn_down.weight", layer % 3 == 1 ? odd : 512, 2);
    }
  }
  return tensors;
}

// The types by name. Tensors that keep their type are f32.
std::map<std::string, WeightType> types_of(FileType type, const MixtureModel& model,
                                           const std::vector<MixtureTensor>& tensors) {
  const auto types = mixture(type, model, tensors);
  std::map<std::string, WeightType> by_name;
  for (size_t i = 0; i < tensors.size(); ++i) by_name[tensors[i].name] = types[i].value_or(WeightType::f32);
  return by_name;
}

// Digests of lines "NAME TYPE", in the order of the file that libllama v0.5.0's llama_model_quantize() writes
// for the tensors above, without importance, then with it; for each file type.
struct Golden {
  struct Facts {
    const char* architecture;
    int64_t layers, heads, key_value_heads, experts;
  } facts;
  bool tied;
  uint32_t digests[kFileTypes];
};
constexpr Golden kGolden[] = {
    {{"llama", 16, 8, 2, 0}, true, {0xB52805E5, 0x83E5A5A9, 0x13BE6845, 0x73806075, 0x6217BFE2,
                                    0x9ED9A921, 0x6F1BD3EC, 0x1E2DE9AF, 0x348AF7DF, 0x6499C8F7,
                                    0x73F0F35F, 0x11D077DB, 0xA5D6A84B, 0x4CD692E5, 0xB1370A73,
                                    0xA392C6C5, 0xED1F3965, 0x2D08E694, 0x47B42365, 0x73806075}},
    {{"llama", 80, 8, 1, 0}, false, {0x522B31D5, 0x564E9095, 0x8E5ADDC5, 0xCF994145, 0xF27F0DCF,
                                     0x50628FE5, 0x381CD149, 0x38D160FF, 0x8D2B65C5, 0xDB6290D7,
                                     0x0A950B97, 0x878C9267, 0x6A9E5365, 0x8B348D4B, 0x5D565253,
                                     0xD6D9F441, 0x28BA72F3, 0x3B38FE97, 0x3E8AE2B0, 0xCF994145}},
    {{"qwen2", 80, 8, 8, 0}, true, {0x6EE6D48D, 0x6F254EB1, 0xAA285885, 0xDF5DD46D, 0xAE4E85D5,
                                    0x447E7331, 0xFE154C85, 0xD36F6765, 0xD3F6F1F5, 0xD06C8A45,
                                    0x77C8E145, 0xA1B172AD, 0xD9D87885, 0xE615BE1D, 0xC470C2C5,
                                    0x9471CF4D, 0x1BB06945, 0x2F78690B, 0x5117BFAA, 0xDF5DD46D}},
    {{"falcon", 16, 8, 8, 0}, false, {0xF8C0519D, 0x83E3DC7D, 0x7C6C223D, 0x91C6A279, 0x4DCE8744,
                                      0x90E643ED, 0x05DA0C24, 0xB45821F9, 0x8B5472C5, 0xD583D2C1,
                                      0x2DCAEE8D, 0x6BC0D7A5, 0xB4C58A8D, 0x1F9D2A29, 0xBADA9AF1,
                                      0x8CECFEB1, 0x30553539, 0x4092E4E6, 0x36B4A633, 0x91C6A279}},
    {{"llama", 8, 8, 2, 8}, true, {0x7D74F005, 0x2A66FBD1, 0x08EF6FC5, 0x1D3E7CC9, 0xF4BDABD0,
                                   0x54B53249, 0x560ED984, 0x264CEDC9, 0xD5120629, 0xCA041DE9,
                                   0x57C51639, 0x3D457059, 0x1B225939, 0x339F5579, 0x42FE3EC9,
                                   0x89857019, 0x132C1A19, 0x94E42E2E, 0x88D9B1AF, 0xE40C9639}},
    {{"qwen2moe", 8, 8, 4, 4}, false, {0xFFE0CF55, 0xF1AA75F5, 0x3D0EC545, 0x3F518885, 0x4A59C666,
                                       0x39342D45, 0x487BBE74, 0x1394A73F, 0x8AA50D45, 0xDED387EF,
                                       0x3954591F, 0x2E75E86F, 0x01C37747, 0x2FD33231, 0x90E188DF,
                                       0x0D4FC32F, 0xA27C7125, 0x41527B14, 0x04B3E891, 0x543E9C95}},
};

TEST(Mixture, TypesOfLibllama) {
  for (const auto& [facts, tied, digests] : kGolden) {
    for (int t = 0; t < kFileTypes; ++t) {
      const auto type = static_cast<FileType>(t);
      testing::Digest digest;
      for (const bool importance : {false, true}) {
        const MixtureModel model{.architecture = facts.architecture,
                                 .layers = facts.layers,
                                 .heads = facts.heads,
                                 .key_value_heads = facts.key_value_heads,
                                 .experts = facts.experts,
                                 .importance = importance};
        const std::vector<MixtureTensor> tensors = tensors_of(model, tied);
        auto types = types_of(type, model, tensors);
        std::vector<std::string> names;
        for (const MixtureTensor& tensor : tensors) names.push_back(tensor.name);
        std::sort(names.begin(), names.end(), is_written_before);
        for (const std::string& name : names) {
          const std::string line = name + " " + std::string(name_of(types.at(name))) + "\n";
          digest.add(std::as_bytes(std::span(line)));
        }
      }
      EXPECT_EQ(digest.value(), digests[t])
          << facts.architecture << " " << facts.layers << " " << name_of(type);
    }
  }
}

TEST(Mixture, Q4KMOfALlama) {
  const MixtureModel model{.architecture = "llama", .layers = 16, .heads = 8, .key_value_heads = 2};
  const auto types = types_of(FileType::q4_k_m, model, tensors_of(model, true));
  for (int layer = 0; layer < 16; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    // The first two, the last two, and every third between.
    const bool more = layer < 2 || layer >= 14 || layer % 3 == 1;
    EXPECT_EQ(types.at(prefix + "attn_v.weight"), more ? WeightType::q6_k : WeightType::q4_k) << layer;
    EXPECT_EQ(types.at(prefix + "attn_k.weight"), WeightType::q4_k);
    EXPECT_EQ(types.at(prefix + "attn_norm.weight"), WeightType::f32);
  }
  EXPECT_EQ(types.at("token_embd.weight"), WeightType::q6_k);  // it is the output matrix, too
  EXPECT_EQ(types.at("blk.0.ffn_down.weight"), WeightType::q6_k);
  EXPECT_EQ(types.at("blk.2.ffn_down.weight"), WeightType::q4_k);
  EXPECT_EQ(types.at("blk.4.ffn_down.weight"), WeightType::q8_0);  // rows of 288
  EXPECT_EQ(types.at("blk.1.ffn_down.weight"), WeightType::f16);   // rows of 40
}

TEST(Mixture, OrderOfTensorsDoesNotCount) {
  const MixtureModel model{.architecture = "llama", .layers = 16, .heads = 8, .key_value_heads = 2};
  auto tensors = tensors_of(model, false);
  const auto types = types_of(FileType::q3_k_m, model, tensors);
  std::reverse(tensors.begin(), tensors.end());
  EXPECT_EQ(types_of(FileType::q3_k_m, model, tensors), types);
}

TEST(Mixture, KeptTensors) {
  const MixtureModel model{.architecture = "bert", .layers = 1, .heads = 4, .key_value_heads = 4};
  const auto type_of = [&](std::string name, int64_t rows) {
    const MixtureTensor tensor{.name = std::move(name), .extents = {256, rows, 1, 1}};
    return mixture(FileType::q8_0, model, std::span(&tensor, 1))[0];
  };
  EXPECT_EQ(type_of("blk.0.attn_q.weight", 256), WeightType::q8_0);
  EXPECT_EQ(type_of("blk.0.attn_q.weight", 1), std::nullopt);
  EXPECT_EQ(type_of("blk.0.attn_q.bias", 256), std::nullopt);
  EXPECT_EQ(type_of("position_embd.weight", 512), std::nullopt);
  EXPECT_EQ(type_of("token_types.weight", 2), std::nullopt);
  EXPECT_EQ(type_of("enc.blk.0.attn_rel_b.weight", 32), std::nullopt);
}

TEST(Mixture, ExpertsNeedLayers) {
  const MixtureModel model{
      .architecture = "llama", .layers = 2, .heads = 4, .key_value_heads = 4, .experts = 4};
  const auto choose = [&](std::string name) {
    const MixtureTensor tensor{.name = std::move(name), .extents = {256, 256, 4, 1}};
    mixture(FileType::q4_k_m, model, std::span(&tensor, 1));
  };
  choose("blk.1.ffn_down_exps.weight");
  testing::expect_error([&] { choose("ffn_up_exps.weight"); }, {"ffn_up_exps.weight", "no layer"});
  testing::expect_error([&] { choose("blk.2.ffn_down_exps.weight"); },
                        {"blk.2.ffn_down_exps.weight", "layer 2"});
}

TEST(Mixture, Names) {
  for (const std::string_view name : file_type_names()) EXPECT_EQ(name_of(*file_type(name)), name);
  EXPECT_EQ(file_type("q4_k_m"), FileType::q4_k_m);
  EXPECT_EQ(traits_of(FileType::q4_k_m).number, 15);
  EXPECT_EQ(file_type("Q4_K_M"), std::nullopt);
  EXPECT_EQ(file_type("iq2_xs"), std::nullopt);
}

TEST(Mixture, OrderOfFiles) {
  EXPECT_TRUE(is_written_before("token_embd.weight", "blk.0.attn_k.weight"));
  EXPECT_TRUE(is_written_before("blk.2.ffn_up.weight", "blk.10.attn_k.weight"));
  EXPECT_TRUE(is_written_before("blk.2.attn_k.weight", "blk.2.ffn_up.weight"));
  EXPECT_FALSE(is_written_before("blk.2.attn_k.weight", "blk.2.attn_k.weight"));
}

}  // namespace
}  // namespace qkv::mixture_test
