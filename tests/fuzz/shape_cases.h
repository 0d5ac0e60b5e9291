// Random models of every family and architecture, small and of odd shapes.
#pragma once

#include <string>
#include <vector>

#include "qkv/base/rng.h"
#include "qkv/io/model_dir.h"

namespace qkv::testing {

// Random choices, one after another: a function of the seed and the case alone.
class Draw {
 public:
  Draw(uint64_t seed, uint64_t number, uint32_t site) : stream_{seed, number, site} {}
  // Both ends included.
  int64_t between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(stream_.below(next_++, static_cast<uint64_t>(most - least + 1)));
  }
  bool chance(double p) { return stream_.uniform(next_++) < p; }
  double normal() { return stream_.normal(next_++); }
  template <typename T>
  T of(const std::vector<T>& values) {
    return values[static_cast<size_t>(between(0, std::ssize(values) - 1))];
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// Names of what is drawn: the families of config.json files, and the engine's own architectures.
const std::vector<std::string>& shape_families();

// One of them with random sizes and options; check_spec() may reject it. Throws Error for another name.
ModelSpec draw_shape(const std::string& family, Draw& draw);

// Two towers that CLIP's directory can hold: of texts and of images.
ModelSpec draw_clip_text(Draw& draw);
ModelSpec draw_clip_vision(Draw& draw);

// Special ids, some of which the vocabulary may be too small for.
SpecialIds draw_ids(const ModelSpec& spec, Draw& draw);

// The fields in which a model differs from the default one, as JSON.
std::string description_of(const ModelSpec& spec);

}  // namespace qkv::testing
