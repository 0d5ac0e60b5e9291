// Model inputs other than tokens.
#pragma once

#include <cstdint>

namespace qkv {

// Rows of numbers among a sequence's tokens, or in place of a source's tokens.
struct FeatureSpec {
  enum class Kind : uint8_t {
    none,
    patches,  // squares of an image, one per row, through a linear layer (Dosovitskiy et al. 2021, eq. 1)
    frames,   // spectrogram frames, through convolutions of 3 frames, the second with stride 2 (Whisper)
  };
  Kind kind = Kind::none;
  int64_t channels = 0;  // values per pixel or frame
  int64_t patch = 0;     // side of a patch in pixels
  int64_t image = 0;     // side of the image in pixels; patches are cut from it row by row
  bool bias = true;      // bias in the linear layer or the convolutions
  // The second token is also a class token, with its own head. Class scores are the mean of both heads'
  // (Touvron et al. 2021, DeiT).
  bool distilled = false;

  bool any() const { return kind != Kind::none; }
  // Numbers in a row.
  int64_t width() const { return kind == Kind::patches ? channels * patch * patch : channels; }
  // Patches of an image.
  int64_t patches() const { return (image / patch) * (image / patch); }
  bool operator==(const FeatureSpec&) const = default;
};

}  // namespace qkv
