// What a model reads that are no tokens.
#pragma once

#include <cstdint>

namespace qkv {

// The rows of numbers that stand among a sequence's tokens, or for a source's.
struct FeatureSpec {
  enum class Kind : uint8_t {
    none,
    patches,  // squares of an image, each a row: a linear map of its pixels (Dosovitskiy et al. 2021, eq. 1)
    frames,   // of a spectrogram, through two convolutions of 3 frames, the second of every other (Whisper)
  };
  Kind kind = Kind::none;
  int64_t channels = 0;  // of a pixel or a frame
  int64_t patch = 0;     // pixels along a side
  int64_t image = 0;     // likewise of the whole, of which patches are cut row by row
  bool bias = true;      // of the linear map
  // The second token is a class token, too, with a head of its own; classes are the mean of both (Touvron et
  // al. 2021, DeiT).
  bool distilled = false;

  bool any() const { return kind != Kind::none; }
  // Numbers in a row.
  int64_t width() const { return kind == Kind::patches ? channels * patch * patch : channels; }
  // Patches of an image.
  int64_t patches() const { return (image / patch) * (image / patch); }
  bool operator==(const FeatureSpec&) const = default;
};

}  // namespace qkv
