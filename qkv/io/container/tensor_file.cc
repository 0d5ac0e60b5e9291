#include "qkv/io/container/tensor_file.h"

#include "qkv/base/file.h"

namespace qkv {

void release_copied(const Weight& stored, const Weight& value) {
  if (const QuantizedTensor blocks = stored.quantized(); blocks.defined()) {
    if (blocks.borrowed() && !blocks.same_storage(value.quantized()))
      MappedFile::release(blocks.blocks().data(), blocks.bytes());
  } else if (const Tensor& x = stored.dense();
             x.defined() && x.borrowed() && !x.same_storage(value.dense())) {
    MappedFile::release(x.value_bytes().data(), x.bytes());
  }
}

}  // namespace qkv
