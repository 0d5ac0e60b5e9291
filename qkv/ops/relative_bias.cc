#include "qkv/ops/relative_bias.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {

int64_t DistanceBuckets::of(int64_t distance) const {
  if (each) {
    const int64_t far = std::min(std::abs(distance), longest - 1);
    return distance <= 0 || far == 0 ? far : bidirectional ? longest - 1 + far : 0;
  }
  const int64_t buckets = bidirectional ? count / 2 : count, exact = buckets / 2;
  const int64_t first = bidirectional && distance > 0 ? buckets : 0;
  const int64_t far = bidirectional ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  if (far < exact) return first + far;
  // In f32, as the published models were trained: the border of a bucket is a rounding away.
  const float growth =
      std::log(static_cast<float>(far) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(longest) / static_cast<double>(exact)));
  return first +
         std::min(buckets - 1, exact + static_cast<int64_t>(growth * static_cast<float>(buckets - exact)));
}

namespace {

// The table's row of each distance.
std::vector<int64_t> rows_of(const DistanceBuckets& buckets, int64_t reach) {
  std::vector<int64_t> rows;
  for (int64_t i = 0; i <= 2 * reach; ++i) rows.push_back(buckets.of(reach - i));
  return rows;
}

class RelativeBiasNode : public Node {
 public:
  RelativeBiasNode(const Tensor& table, std::vector<int64_t> rows)
      : shape_(table.shape()), rows_(std::move(rows)) {
    add_input(table);
  }
  std::string_view name() const override { return "relative_bias"; }
  void backward(std::span<Tensor> grads) override {
    weight_grad(0, shape_, [&](Tensor& target, bool accumulate) {
      if (!accumulate) std::memset(target.raw(), 0, target.bytes());
      const float* from = grads[0].data<float>();
      for (int64_t h = 0; h < shape_[1]; ++h)
        for (const int64_t row : rows_) target.mutable_data<float>()[row * shape_[1] + h] += *from++;
    });
  }

 private:
  Shape shape_;
  std::vector<int64_t> rows_;
};

}  // namespace

Tensor alibi(int64_t heads, bool evens_first, int64_t reach, std::span<const float> scales, bool is_signed) {
  check(heads > 0 && reach >= 0, "alibi: {} heads, reach {}", heads, reach);
  check(scales.empty() || std::ssize(scales) == heads, "alibi: {} scales of {} heads", scales.size(), heads);
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const auto slope = [](int64_t h, int64_t of) {
    return std::exp2(-8.0 * static_cast<double>(h) / static_cast<double>(of));
  };
  std::vector<double> slopes;
  if (evens_first && heads != power) {
    for (const int64_t first : {2, 1})
      for (int64_t h = first; h <= 2 * power; h += 2) slopes.push_back(slope(h, 2 * power));
    slopes.resize(static_cast<size_t>(heads));
  } else {
    for (int64_t h = 1; h <= power; ++h) slopes.push_back(slope(h, power));
    for (int64_t h = 1; std::ssize(slopes) < heads; h += 2) slopes.push_back(slope(h, 2 * power));
  }
  for (size_t h = 0; h < scales.size(); ++h)
    slopes[h] = double{static_cast<float>(BFloat16(static_cast<float>(slopes[h])))} * double{scales[h]};
  Tensor out = Tensor::empty({heads, 2 * reach + 1}, DType::f32);
  float* to = out.mutable_data<float>();
  for (const double s : slopes)
    for (int64_t i = -reach; i <= reach; ++i)
      *to++ = static_cast<float>(-s * static_cast<double>(is_signed ? i : std::abs(i)));
  return out;
}

Tensor relative_bias(const Tensor& table, const DistanceBuckets& buckets, int64_t reach) {
  check(table.defined() && table.shape().rank() == 2 && table.dim(0) == buckets.count,
        "relative_bias: the table must have {} rows", buckets.count);
  expect_dtype("relative_bias", "table", table, DType::f32);
  check(buckets.each
            ? buckets == DistanceBuckets::of_each(buckets.longest, buckets.bidirectional)
            : buckets.count >= (buckets.bidirectional ? 4 : 2) && buckets.longest > buckets.count / 2,
        "relative_bias: {} buckets for distances up to {}", buckets.count, buckets.longest);
  check(reach >= 0, "relative_bias: reach must not be negative, got {}", reach);
  std::vector<int64_t> rows = rows_of(buckets, reach);
  const int64_t heads = table.dim(1);
  Tensor out = Tensor::empty({heads, std::ssize(rows)}, DType::f32);
  float* to = out.mutable_data<float>();
  for (int64_t h = 0; h < heads; ++h)
    for (const int64_t row : rows) *to++ = table.data<float>()[row * heads + h];
  if (wants_grad({&table})) connect(out, std::make_shared<RelativeBiasNode>(table, std::move(rows)));
  return out;
}

}  // namespace qkv
