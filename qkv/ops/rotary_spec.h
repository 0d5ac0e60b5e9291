// The options of rotary positions (ops/rotary.h).
#pragma once

#include <cstdint>
#include <vector>

namespace qkv {

// Which columns of a head form a pair that is rotated.
enum class RotaryLayout : uint8_t {
  halves,       // column i with column i + width / 2 (Llama, GPT-NeoX)
  interleaved,  // column 2 i with column 2 i + 1 (as printed in the paper; GPT-J)
};

// How the angles change for contexts longer than in pretraining.
enum class RotaryScaling : uint8_t {
  none,
  linear,    // positions divided by the factor (Chen et al. 2023)
  dynamic,   // a larger base as the sequence outgrows the original context (NTK-aware)
  yarn,      // slow pairs as linear, fast ones as none, a ramp between (Peng et al. 2023)
  llama3,    // the same with borders by wavelength (Llama 3.1)
  longrope,  // each pair has its own factor: one list up to the original context, one beyond (Ding et al.
             // 2024, LongRoPE)
};

// The options of rotary positions.
struct RotarySpec {
  int64_t width = 0;  // columns of a head that are rotated, from the first; 0: none
  RotaryLayout layout = RotaryLayout::halves;
  double base = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;             // for every scaling but longrope
  int64_t original_context = 0;  // for every scaling but linear
  double low = 1, high = 4;      // llama3: borders of the ramp; yarn: slow and fast turns (1, 32)
  double magnitude = 1;          // yarn, longrope: factor on cosines and sines
  bool truncated = true;         // yarn: the ramp's ends are whole numbers of pairs
  bool values = false;           // values are rotated, too (RoFormer's option)
  int64_t turned = 0;  // columns of `width` in the pairs that turn, the first of them; 0: all (Gemma 4)
  std::vector<double> short_factors = {}, long_factors = {};  // longrope: divisor of each pair's angle

  bool operator==(const RotarySpec&) const = default;
};

}  // namespace qkv
