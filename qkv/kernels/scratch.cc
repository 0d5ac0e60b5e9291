#include "qkv/kernels/scratch.h"

namespace qkv {
namespace {

// Under AddressSanitizer each has memory of its own, so that it sees every step outside.
#ifdef __SANITIZE_ADDRESS__
constexpr int64_t kStack = 0;
#else
constexpr int64_t kStack = 1 << 17;  // floats
#endif

struct Stack {
  std::shared_ptr<Storage> storage;
  int64_t used = 0;
};
thread_local Stack stack;

}  // namespace

Scratch::Scratch(int64_t floats) {
  constexpr int64_t kLine = 16;  // floats of a cache line
  const int64_t rounded = (floats + kLine - 1) / kLine * kLine;
  if (stack.used + rounded > kStack) {
    storage_ = Storage::allocate(static_cast<size_t>(floats) * sizeof(float));
    data_ = reinterpret_cast<float*>(storage_->data());
    return;
  }
  if (!stack.storage) stack.storage = Storage::allocate(kStack * sizeof(float));
  data_ = reinterpret_cast<float*>(stack.storage->data()) + stack.used;
  stack.used += on_stack_ = rounded;
}

Scratch::~Scratch() {
  stack.used -= on_stack_;
}

}  // namespace qkv
