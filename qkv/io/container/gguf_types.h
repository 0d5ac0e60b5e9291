// The codes of GGUF files: types of values and of tensors, and the limits of counts and names.
#pragma once

#include <bit>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "qkv/io/container/gguf.h"

namespace qkv::gguf {

static_assert(std::endian::native == std::endian::little, "the files are read as they lie");

inline constexpr std::string_view kMagic = "GGUF";
inline constexpr uint32_t kVersion = 3;    // version 2 is the same but for big-endian files
inline constexpr int64_t kAlignment = 32;  // unless general.alignment says otherwise
inline constexpr std::string_view kAlignmentKey = "general.alignment";
inline constexpr uint64_t kMaxKey = 65535;  // bytes
inline constexpr uint64_t kMaxName = 64;    // bytes; ggml itself takes 63
inline constexpr uint32_t kMaxRank = 4;

// "u32", "string", ...
constexpr std::string_view name_of(GgufValue::Type type) {
  constexpr std::string_view kNames[] = {"u8",      "i8",     "u16",   "i16", "u32", "i32", "f32",
                                         "boolean", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(type)];
}
inline constexpr uint32_t kValueTypes = static_cast<uint32_t>(GgufValue::Type::f64) + 1;

constexpr bool is_number(GgufValue::Type type) {
  return type == GgufValue::Type::f32 || type == GgufValue::Type::f64;
}
constexpr bool is_integer(GgufValue::Type type) {
  return !is_number(type) && type != GgufValue::Type::boolean && type != GgufValue::Type::string &&
         type != GgufValue::Type::array;
}

// Calls visitor(T{}) with the C++ type of a number in the file. REQUIRES: it is no string and no array.
template <typename Visitor>
void visit_number(GgufValue::Type type, const Visitor& visitor) {
  using Type = GgufValue::Type;
  switch (type) {
    case Type::u8:
    case Type::boolean:
      return visitor(uint8_t{});
    case Type::i8:
      return visitor(int8_t{});
    case Type::u16:
      return visitor(uint16_t{});
    case Type::i16:
      return visitor(int16_t{});
    case Type::u32:
      return visitor(uint32_t{});
    case Type::i32:
      return visitor(int32_t{});
    case Type::f32:
      return visitor(float{});
    case Type::u64:
      return visitor(uint64_t{});
    case Type::i64:
      return visitor(int64_t{});
    case Type::f64:
      return visitor(double{});
    case Type::string:
    case Type::array:
      break;
  }
}

// A type of tensors: ggml's name and ours, if there is one.
struct TensorType {
  std::string_view name;
  std::optional<DType> dense = std::nullopt;
  std::optional<WeightType> blocks = std::nullopt;
};

// All types that ggml has or had, by their codes (enum ggml_type in ggml.h).
inline constexpr TensorType kTensorTypes[] = {
    {"f32", DType::f32},
    {"f16", DType::f16},
    {"q4_0", {}, WeightType::q4_0},
    {"q4_1", {}, WeightType::q4_1},
    {"q4_2"},
    {"q4_3"},
    {"q5_0", {}, WeightType::q5_0},
    {"q5_1", {}, WeightType::q5_1},
    {"q8_0", {}, WeightType::q8_0},
    {"q8_1"},
    {"q2_k", {}, WeightType::q2_k},
    {"q3_k", {}, WeightType::q3_k},
    {"q4_k", {}, WeightType::q4_k},
    {"q5_k", {}, WeightType::q5_k},
    {"q6_k", {}, WeightType::q6_k},
    {"q8_k"},
    {"iq2_xxs"},
    {"iq2_xs"},
    {"iq3_xxs"},
    {"iq1_s"},
    {"iq4_nl", {}, WeightType::iq4_nl},
    {"iq3_s"},
    {"iq2_s"},
    {"iq4_xs", {}, WeightType::iq4_xs},
    {"i8"},
    {"i16"},
    {"i32", DType::i32},
    {"i64", DType::i64},
    {"f64", DType::f64},
    {"iq1_m"},
    {"bf16", DType::bf16},
    {"q4_0_4_4"},
    {"q4_0_4_8"},
    {"q4_0_8_8"},
    {"tq1_0"},
    {"tq2_0"},
    {"iq4_nl_4_4"},
    {"iq4_nl_4_8"},
    {"iq4_nl_8_8"},
    {"mxfp4", {}, WeightType::mxfp4},
    {"nvfp4"},
    {"q1_0"},
    {"q2_0"},
};
static_assert(std::size(kTensorTypes) == 43);

// Keys and names appear in messages of one line.
constexpr bool is_printable(std::string_view text) {
  for (const char c : text)
    if (c < 0x20 || c > 0x7E) return false;
  return true;
}

constexpr uint64_t align_up(uint64_t at, uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

}  // namespace qkv::gguf
