// Models of llama2.c, rwkv.cpp and CTranslate2, and mutations of them.
// Covers: qkv/convert/llama2c.cc, qkv/convert/ctranslate2_dir.cc, qkv/convert/foreign_model.cc
// Covers: qkv/convert/rwkv_file.cc
// Covers: qkv/io/container/ctranslate2.cc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "qkv/base/file.h"
#include "qkv/convert/ctranslate2_dir.h"
#include "qkv/convert/llama2c.h"
#include "qkv/convert/rwkv_file.h"
#include "qkv/io/container/ctranslate2.h"
#include "qkv/text/sentencepiece_file.h"
#include "tests/unit/expect_error.h"
#include "tests/unit/mutation.h"
#include "tests/unit/scratch_dir.h"
#define LLVMFuzzerTestOneInput fuzz_foreign
#include "tests/fuzz/foreign_fuzz.cc"
#undef LLVMFuzzerTestOneInput

namespace qkv::foreign_test {
namespace {

using testing::expect_error;
using testing::ScratchDir;

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A Llama of 2 layers, 3 heads of 4 entries, 1 of keys, a vocabulary of 7 and a context of 5, whose numbers
// count from 0.
std::string llama2c(bool legacy, bool tied) {
  std::string out;
  if (!legacy) put<uint32_t>(out, 0x616b3432), put<int32_t>(out, 1);
  for (const int n : {12, 6, 2, 3, 1, legacy && !tied ? -7 : 7, 5}) put<int32_t>(out, n);
  if (!legacy) {
    put<uint8_t>(out, tied ? 1 : 0);
    out.resize(256);
  }
  const int64_t each = 12 + 144 + 48 + 48 + 144 + 12 + 3 * 72,
                count = 84 + 2 * each + 12 + (legacy ? 20 : 0) + (tied ? 0 : 84);
  for (int64_t i = 0; i < count; ++i) put<float>(out, static_cast<float>(i));
  return out;
}

const Tensor& value(Transformer& model, const std::string& name) {
  return model.parameters().find(name)->value;
}

TEST(Llama2c, IsReadInBothForms) {
  for (const bool tied : {true, false}) {
    const auto first = parse_llama2c(llama2c(true, tied), "a"),
               second = parse_llama2c(llama2c(false, tied), "b");
    for (const auto& model : {first.get(), second.get()}) {
      EXPECT_EQ(family_for(model->spec()).model_type, "llama");
      EXPECT_EQ(model->spec().tied, tied);
      EXPECT_EQ(model->spec().context, 5);
    }
    EXPECT_EQ(value(*first, "embedding.token").data<float>()[0], 0);
    EXPECT_EQ(value(*first, "decoder.block.0.attention.norm.gamma").data<float>()[0], 84);
    // After both layers' norms: 24 + 24 + 12 numbers.
    EXPECT_EQ(value(*second, "embedding.token").data<float>()[0], 60);
    // Rows 0, 2, 1, 3 of each head: its pairs are turned side by side there, half a head apart here.
    const float q = 84 + 24;
    const Tensor& qkv = value(*first, "decoder.block.0.attention.qkv.weight");
    for (const auto& [row, of] : {std::pair(0, 0), {1, 2}, {2, 1}, {3, 3}, {4, 4}, {5, 6}})
      EXPECT_EQ(qkv.row<float>(row)[0], q + static_cast<float>(12 * of)) << row;
  }
}

TEST(Llama2c, RejectsOtherFiles) {
  const auto refuse = [](std::string bytes, const char* why) {
    expect_error([&] { parse_llama2c(bytes, "m.bin"); }, {"m.bin", why});
  };
  const std::string good = llama2c(true, true);
  refuse("", "ends after 0 bytes");
  refuse(good.substr(0, good.size() - 4), "ends after");
  refuse(good + "abcd", "4 bytes follow");
  std::string version = llama2c(false, true), heads = good;
  version[4] = 2;
  refuse(version, "version 2");
  heads[12] = 5;
  refuse(heads, "5 heads");
}

std::string tokenizer_of(int64_t count) {
  std::string out;
  put<uint32_t>(out, 7);
  for (int64_t id = 0; id < count; ++id) {
    const std::string token = id == 0    ? "<unk>"
                              : id == 1  ? "\n<s>\n"
                              : id == 2  ? "\n</s>\n"
                              : id < 259 ? fmt::format("<0x{:02X}>", id - 3)
                                         : fmt::format(" word{}", id);
    put<float>(out, static_cast<float>(-id));
    put<uint32_t>(out, static_cast<uint32_t>(token.size()));
    out += token;
  }
  return out;
}

TEST(Llama2c, ItsTokenizerIsAFileOfSentencePiece) {
  const std::string written = sentencepiece_of_llama2c(tokenizer_of(261), 261, "t.bin");
  const text::SentencePieceFile file = text::parse_sentencepiece(written, "t");
  ASSERT_EQ(file.pieces.size(), 261U);
  EXPECT_EQ(file.pieces[1].piece, "<s>");
  EXPECT_EQ(file.pieces[1].type, text::SentencePieceFile::PieceType::kControl);
  EXPECT_EQ(file.pieces[68].type, text::SentencePieceFile::PieceType::kByte);
  EXPECT_EQ(file.pieces[260].piece, "\xE2\x96\x81word260");
  EXPECT_EQ(file.pieces[260].score, -260);
  EXPECT_TRUE(file.byte_fallback);
  EXPECT_EQ(text::serialize_sentencepiece(file), written);
  expect_error([] { sentencepiece_of_llama2c(tokenizer_of(261), 260, "t.bin"); }, {"t.bin", "another model"});
  expect_error([] { sentencepiece_of_llama2c(tokenizer_of(261), 262, "t.bin"); }, {"t.bin", "ends after"});
}

// A file of CTranslate2, variable by variable.
class Variables {
 public:
  explicit Variables(uint32_t version = 2, const std::string& spec = "TransformerBase") : version_(version) {
    put(head_, version);
    name(head_, spec);
    put<uint32_t>(head_, 2);
  }
  template <typename T>
  void add(const std::string& of, const std::vector<uint32_t>& shape, uint8_t type,
           const std::vector<T>& values) {
    name(body_, of);
    put<uint8_t>(body_, static_cast<uint8_t>(shape.size()));
    for (const uint32_t n : shape) put(body_, n);
    put(body_, version_ >= 4 ? type : static_cast<uint8_t>(sizeof(T)));
    put<uint32_t>(body_, static_cast<uint32_t>(version_ >= 4 ? values.size() * sizeof(T) : values.size()));
    for (const T v : values) put(body_, v);
    ++count_;
  }
  void alias(const std::string& of, const std::string& as) {
    name(aliases_, of);
    name(aliases_, as);
    ++alias_count_;
  }
  std::string bytes() const {
    std::string out = head_;
    put(out, count_);
    out += body_;
    if (version_ >= 3) put(out, alias_count_), out += aliases_;
    return out;
  }

 private:
  static void name(std::string& out, const std::string& text) {
    put<uint16_t>(out, static_cast<uint16_t>(text.size() + 1));
    out += text;
    out += '\0';
  }
  uint32_t version_, count_ = 0, alias_count_ = 0;
  std::string head_, body_, aliases_;
};

constexpr uint8_t kF32 = 0, kI8 = 1, kI16 = 2;

TEST(Ctranslate2, VariablesOfIntegersAreDividedByTheirScales) {
  for (const uint32_t version : {2U, 4U, 6U}) {
    Variables v(version);
    v.add<float>("a", {2, 2}, kF32, {1, 2, 3, 4});
    v.add<int8_t>("b", {2, 2}, kI8, {10, -20, 30, 127});
    v.add<float>("b_scale", {2}, kF32, {10, 2});
    v.add<int16_t>("c", {3}, kI16, {1000, -500, 0});
    v.add<float>("c_scale", {}, kF32, {1000});
    v.add<int8_t>("encoder/pre_norm", {}, kI8, {1});
    if (version >= 3) v.alias("d", "a");
    const Ctranslate2File file = parse_ctranslate2(v.bytes(), "model.bin");
    EXPECT_TRUE(is_ctranslate2(v.bytes()));
    EXPECT_EQ(file.spec, "TransformerBase");
    EXPECT_EQ(file.settings.at("encoder/pre_norm"), 1);
    const auto values = [&](const char* name) {
      const auto all = file.tensors.at(name).values<float>();
      return std::vector<float>(all.begin(), all.end());
    };
    EXPECT_EQ(values("b"), (std::vector<float>{1, -2, 15, 63.5F}));
    EXPECT_EQ(values("c"), (std::vector<float>{1, -0.5F, 0}));
    EXPECT_EQ(file.tensors.contains("d"), version >= 3);
    EXPECT_FALSE(file.tensors.contains("b_scale"));
  }
}

TEST(Ctranslate2, RejectsWhatItCannotRead) {
  const auto refuse = [](const std::string& bytes, const char* why) {
    expect_error([&] { parse_ctranslate2(bytes, "model.bin"); }, {"model.bin", why});
  };
  Variables v;
  v.add<float>("a", {2}, kF32, {1, 2});
  const std::string good = v.bytes();
  refuse(good.substr(0, good.size() - 1), "ends after");
  refuse(good + "x", "follow the last variable");
  refuse(Variables(7).bytes(), "version 7");
  Variables twice = v, wide, unscaled;
  twice.add<float>("a", {1}, kF32, {1});
  refuse(twice.bytes(), "twice");
  wide.add<float>("a", {3}, kF32, {1, 2});
  refuse(wide.bytes(), "3 elements");
  unscaled.add<int8_t>("a", {2}, kI8, {1, 2});
  refuse(unscaled.bytes(), "a_scale");
  EXPECT_FALSE(is_ctranslate2("PK\3\4 an archive"));
}

// x as f16, which has it.
uint16_t half_of(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = bits >> 16 & 0x8000U, exponent = (bits >> 23 & 0xFFU) - 112,
                 digits = bits >> 13 & 0x3FFU;
  return static_cast<uint16_t>(sign | exponent << 10 | digits);
}

// A model of rwkv.cpp of width 4 and hidden 6, a vocabulary of 5, whose numbers are small; of generation 4,
// or 7 with two heads. `type`: of its matrices, f32 or f16.
std::string rwkv(int generation, int layers, int type = 0) {
  std::string out;
  for (const uint32_t n : {0x67676d66U, 101U, 5U, 4U, static_cast<uint32_t>(layers), 0U})
    put<uint32_t>(out, n);
  int next = 0;
  const auto add = [&](const std::string& name, const std::vector<int32_t>& sizes, float sign = 1) {
    const bool half = type == 1 && sizes.size() == 2;
    put<int32_t>(out, static_cast<int32_t>(sizes.size()));
    put<int32_t>(out, static_cast<int32_t>(name.size()));
    put<int32_t>(out, half ? 1 : 0);
    int32_t count = 1;
    for (const int32_t n : sizes) put<int32_t>(out, n), count *= n;
    out += name;
    for (int32_t i = 0; i < count; ++i) {
      const float x = sign * (0.5F + static_cast<float>(next++ % 7) / 8);
      half ? put<uint16_t>(out, half_of(x)) : put<float>(out, x);
    }
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {4});
    add(name + ".bias", {4});
  };
  add("emb.weight", {4, 5});
  for (int l = 0; l < layers; ++l) {
    const std::string f = fmt::format("blocks.{}.", l);
    if (l == 0) norm(f + "ln0");
    norm(f + "ln1");
    norm(f + "ln2");
    for (const char* name : {"key", "value", "receptance", "output"})
      add(f + "att." + name + ".weight", {4, 4});
    add(f + "ffn.key.weight", {4, 6});
    add(f + "ffn.value.weight", {6, 4});
    if (generation == 4) {
      add(f + "att.time_decay", {4}, -1);
      add(f + "att.time_first", {4});
      for (const char* name :
           {"att.time_mix_k", "att.time_mix_v", "att.time_mix_r", "ffn.time_mix_k", "ffn.time_mix_r"})
        add(f + name, {4});
      add(f + "ffn.receptance.weight", {4, 4});
      continue;
    }
    add(f + "att.x_rwkvag", {4, 1, 6});
    for (const char* name : {"w", "a", "v", "g"}) {
      if (l == 0 && *name == 'v') continue;
      add(fmt::format("{}att.{}1", f, name), {4, 3});
      add(fmt::format("{}att.{}2", f, name), {3, 4});
      if (*name != 'g') add(fmt::format("{}att.{}0", f, name), {4, 1, 1});
    }
    add(f + "att.k_k", {4, 1, 1});
    add(f + "att.k_a", {4, 1, 1});
    add(f + "att.r_k", {2, 2});
    norm(f + "att.ln_x");
    add(f + "ffn.x_k", {4, 1, 1});
  }
  norm("ln_out");
  add("head.weight", {4, 5});
  return out;
}

TEST(Rwkv, BothGenerationsAreRead) {
  for (const int generation : {4, 7})
    for (const int layers : {1, 3}) {
      const auto model = parse_rwkv(rwkv(generation, layers), "a", 9);
      EXPECT_EQ(family_for(model->spec()).model_type, generation == 4 ? "rwkv" : "qkv");
      EXPECT_EQ(model->spec().context, 9);
      EXPECT_EQ(model->spec().hidden, 6);
      const Tensor tokens = value(*model, "embedding.token");
      EXPECT_EQ(tokens.shape(), Shape({5, 4}));
      EXPECT_EQ(tokens.values<float>()[8], 0.5F + 1.0F / 8);
      const auto halves = parse_rwkv(rwkv(generation, layers, 1), "a", 9);  // which these numbers are
      for (const Parameter& p : model->parameters().all())
        EXPECT_TRUE(std::ranges::equal(p.value.values<float>(), value(*halves, p.name).values<float>()))
            << p.name;
    }
}

TEST(Rwkv, WhatIsWrongIsNamed) {
  const auto refuse = [](const std::string& bytes, const std::string& why) {
    expect_error([&] { parse_rwkv(bytes, "m.bin", 9); }, {"m.bin", why});
  };
  const std::string good = rwkv(7, 2);
  std::string version = good, other = good, type = good, large = good;
  version[4] = 102;
  refuse(version, "version 102");
  refuse("what?", "no model of rwkv.cpp");
  refuse(good.substr(0, good.size() - 1), "ends");
  other.replace(other.find("blocks.0.att.r_k"), 16, "blocks.0.att.q_k");
  refuse(other, "generations 4 and 7");
  type[24 + 8] = 5;
  refuse(type, "type 5");
  large[24 + 12 + 3] = 1;
  refuse(large, "dimension");
  std::string missing = good;
  missing.replace(missing.find("ln_out.bias"), 11, "ln_out.bier");
  refuse(missing, "ln_out.bias");
  EXPECT_FALSE(is_rwkv_file("fm"));
  EXPECT_TRUE(is_rwkv_file(good));
}

// Each file, cut off anywhere and with bytes changed, is read or rejected.
TEST(ForeignFiles, DamagedOnesAreRejected) {
  Variables v(6);
  v.add<int8_t>("a", {2, 2}, kI8, {10, -20, 30, 127});
  v.add<float>("a_scale", {2}, kF32, {10, 2});
  v.alias("b", "a");
  const std::string files[] = {std::string(1, '\0') + v.bytes(),
                               "\1" + llama2c(true, true).substr(0, 400),
                               "\1" + llama2c(false, false),
                               "\3" + tokenizer_of(261),
                               "\2" + rwkv(4, 3),
                               "\2" + rwkv(7, 2)};
  std::mt19937 random(1);
  const char* const pieces[] = {"\xFF\xFF\xFF\xFF", "\1", "a_scale", "\x7F\xFF"};
  const auto replace = [](std::string& s, size_t at, const char* piece) { s.replace(at, 4, piece); };
  for (const std::string& file : files)
    for (int i = 0; i < 400; ++i) {
      const std::string damaged = testing::mutate(file, random, pieces, replace);
      fuzz_foreign(reinterpret_cast<const uint8_t*>(damaged.data()), damaged.size());
    }
}

}  // namespace
}  // namespace qkv::foreign_test
