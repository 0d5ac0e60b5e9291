#include "qkv/tensor/span.h"

#include "qkv/base/error.h"

namespace qkv {

void fail_index(int64_t index, size_t size) {
  fail("span: element {} of {}", index, size);
}

void fail_part(int64_t begin, int64_t count, size_t size) {
  fail("span: {} elements from {} on, of {}", count, begin, size);
}

void fail_sizes(size_t from, size_t to) {
  fail("span: {} elements do not fill {}", from, to);
}

}  // namespace qkv
