// Memory for the f32 numbers that a product needs meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "qkv/tensor/storage.h"

namespace qkv {

// Not initialised; aligned to 64 bytes. Small ones lie on a stack of the thread, whose memory stays in the
// caches of the thread's processor. REQUIRES: a thread's objects end in the reverse order of their beginning.
class Scratch {
 public:
  explicit Scratch(int64_t floats);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  float* data() const { return data_; }

 private:
  float* data_;
  int64_t on_stack_ = 0;              // floats
  std::shared_ptr<Storage> storage_;  // else
};

}  // namespace qkv
