#include "qkv/ops/dequantize.h"

#include <vector>

#include "qkv/ops/dispatch.h"
#include "qkv/quant/quantize.h"

namespace qkv {

Tensor dequantized(const Weight& weight, DType type) {
  check(weight.defined(), "dequantized: the weight is undefined");
  if (!weight.is_packed() && weight.dense().dtype() == type) return weight.dense().detach();
  const Shape& shape = weight.shape();
  const int64_t width = shape[-1];
  Tensor out = Tensor::empty(shape, type);
  const Weight matrix = weight.is_quantized() || !weight.is_packed()
                            ? weight.reshape({width == 0 ? 0 : shape.count() / width, width})
                            : weight;
  with_float_type("dequantized", type, [&]<typename T>(T) {
    T* to = out.mutable_data<T>();
    for (const Weight::Rows& run : matrix.runs())
      parallel_for(run.count, row_grain(width), [&](int64_t r, int64_t end) {
        std::vector<float> row(width);
        for (; r < end; ++r) {
          dequantize_row(run.view.type, static_cast<const std::byte*>(run.view.from(r, 0).data), width,
                         row.data());
          kernels().typed<T>().from_f32(width, row.data(), to + (run.first + r) * width);
        }
      });
  });
  return out;
}

}  // namespace qkv
