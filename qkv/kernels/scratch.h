// Memory for the f32 numbers that a product needs meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "qkv/tensor/storage.h"

namespace qkv {

// Not initialised; aligned to 64 bytes.
class Scratch {
 public:
  explicit Scratch(int64_t floats)
      : storage_(Storage::allocate(static_cast<size_t>(floats) * sizeof(float))) {}
  float* data() const { return reinterpret_cast<float*>(storage_->data()); }

 private:
  std::shared_ptr<Storage> storage_;
};

}  // namespace qkv
