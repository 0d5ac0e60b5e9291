// Rotary positions and windows in the metadata of GGUF files.
#pragma once

#include "qkv/io/gguf/architecture.h"

namespace qkv {

// Adds the base, the rotated width and rope_scaling to a config that has head_dim, as Hugging Face has them.
// Factors of single frequencies (tensors rope_freqs, rope_factors_long, rope_factors_short) become parameters
// of llama3 where these give the same, or else lists of longrope. Throws Error naming the key for a scaling
// that is not supported.
void read_gguf_rotary(const GgufKeys& keys, const GgufArchitecture& architecture, Json& config);
// The reverse, of a config as families write it.
void write_gguf_rotary(const Json& config, const GgufArchitecture& architecture, GgufKeyWriter& keys);

// Adds layer_types to a config, and its reverse.
void read_gguf_windows(const GgufKeys& keys, const GgufArchitecture& architecture, Json& config);
void write_gguf_windows(const Json& config, const GgufArchitecture& architecture, GgufKeyWriter& keys);

// Llama 3's factors of the frequencies of `width` rotated columns, by which they are divided.
struct Llama3Scaling {
  double factor, low, high;
  int64_t original_context;
};
std::vector<double> llama3_factors(double base, int64_t width, const Llama3Scaling& scaling);

}  // namespace qkv
