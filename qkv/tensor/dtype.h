// Element types.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace qkv {

// bfloat16: the upper half of an f32. Arithmetic is done in f32.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float x) {  // to nearest, ties to even
    const uint32_t u = std::bit_cast<uint32_t>(x);
    bits = std::isnan(x) ? static_cast<uint16_t>(u >> 16 | 0x40)
                         : static_cast<uint16_t>((u + 0x7FFF + (u >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// The bits of a 16-bit IEEE number, which files may hold and nothing computes with.
struct Float16 {
  uint16_t bits = 0;
};

// The type of a tensor's elements. Files may hold any; ops compute in f32 or bf16, ids are i32.
enum class DType : uint8_t { f32, bf16, f16, f64, i64, i32, u8 };

// Bytes of one element.
constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

// "f32", "bf16", ...
constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::i64:
      return "i64";
    case DType::i32:
      return "i32";
    case DType::u8:
      return "u8";
  }
  return "?";
}

// The DType of a C++ type; of other types there is none.
template <typename T>
inline constexpr DType dtype_of = T::has_no_dtype;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<Float16> = DType::f16;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bf16;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;

// f16 is a storage format only: expanded to f32 when a file is read.
float float_from_f16(uint16_t bits);
// The bits of a number that f16 can hold; nothing for others.
std::optional<uint16_t> f16_from_float(float x);

}  // namespace qkv
