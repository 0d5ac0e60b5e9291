#include "qkv/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "qkv/autograd/graph.h"
#include "qkv/ops/dispatch.h"

namespace qkv {
namespace {

// Angle per position of each pair.
std::vector<double> frequencies(const RotarySpec& s, int64_t length) {
  const int64_t pairs = s.width / 2;
  double base = s.base;
  if (s.scaling == RotaryScaling::dynamic && length > s.original_context) {
    const double growth =
        s.factor * static_cast<double>(length) / static_cast<double>(s.original_context) - (s.factor - 1);
    base *= std::pow(growth, static_cast<double>(s.width) / static_cast<double>(s.width - 2));
  }
  std::vector<double> out;
  for (int64_t i = 0; i < pairs; ++i)
    out.push_back(std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(s.width)));
  const auto original = static_cast<double>(s.original_context);
  if (s.scaling == RotaryScaling::linear)
    for (double& f : out) f /= s.factor;
  if (s.scaling == RotaryScaling::longrope)
    for (int64_t i = 0; i < pairs; ++i)
      out[i] /= (length > s.original_context ? s.long_factors : s.short_factors)[i];
  if (s.scaling == RotaryScaling::llama3)
    for (double& f : out) {
      // How many times the pair turns over the original context, on a ramp from low to high.
      const double turns = original * f / (2 * std::numbers::pi);
      const double smooth = turns >= s.high ? 1 : turns <= s.low ? 0 : (turns - s.low) / (s.high - s.low);
      f = (1 - smooth) * f / s.factor + smooth * f;
    }
  if (s.scaling == RotaryScaling::yarn) {
    // The pair that turns so many times over the original context.
    const auto pair_of = [&](double turns) {
      return static_cast<double>(s.width) * std::log(original / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(s.base));
    };
    double first = pair_of(s.high), last = pair_of(s.low);
    if (s.truncated) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0);
    last = std::min(last, static_cast<double>(s.width - 1));
    if (first == last) last += 0.001;
    for (int64_t i = 0; i < pairs; ++i) {
      const double slow = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
      out[i] = out[i] / s.factor * slow + out[i] * (1 - slow);
    }
  }
  if (s.turned > 0) std::fill(out.begin() + s.turned / 2, out.end(), 0.0);
  return out;
}

// Turns by the angles, or back (`sign` -1).
template <typename T>
void turn(const T* from, T* to, int64_t rows, int64_t stride, int64_t heads, int64_t head_width,
          RotaryLayout layout, const float* rotation, int64_t pairs, float sign) {
  const int64_t step = layout == RotaryLayout::halves ? 1 : 2,
                second = layout == RotaryLayout::halves ? pairs : 1;
  for (int64_t r = 0; r < rows; ++r) {
    const float *cosine = rotation + r * 2 * pairs, *sine = cosine + pairs;
    for (int64_t h = 0; h < heads; ++h) {
      const T* x = from + r * stride + h * head_width;
      T* y = to + r * stride + h * head_width;
      for (int64_t i = 0; i < pairs; ++i) {
        const auto a = static_cast<float>(x[i * step]), b = static_cast<float>(x[i * step + second]);
        const float c = cosine[i], s = sign * sine[i];
        y[i * step] = static_cast<T>(a * c - b * s);
        y[i * step + second] = static_cast<T>(a * s + b * c);
      }
    }
  }
}

struct Turned {
  int64_t heads, head_width;
  RotaryLayout layout;
};

Tensor turned(const Tensor& x, const Turned& t, const Tensor& rotation, float sign) {
  Tensor out = Tensor::empty(x.shape(), x.dtype());
  const int64_t width = x.width(), pairs = rotation.width() / 2;
  with_float_type("rotary", x.dtype(), [&]<typename T>(T) {
    const T* from = x.data<T>();
    T* to = out.mutable_data<T>();
    parallel_for(x.rows(), row_grain(kFunctionCost * width), [&](int64_t r, int64_t end) {
      std::copy(from + r * width, from + end * width, to + r * width);
      turn(from + r * width, to + r * width, end - r, width, t.heads, t.head_width, t.layout,
           rotation.data<float>() + r * 2 * pairs, pairs, sign);
    });
  });
  return out;
}

class RotaryNode : public Node {
 public:
  RotaryNode(const Tensor& x, const Turned& t, const Tensor& rotation) : turned_(t), rotation_(rotation) {
    add_input(x);
  }
  std::string_view name() const override { return "rotary"; }
  void backward(std::span<Tensor> grads) override { give(0, turned(grads[0], turned_, rotation_, -1)); }

 private:
  Turned turned_;
  Tensor rotation_;
};

}  // namespace

Tensor rotation(const RotarySpec& spec, const Indices& positions, std::span<const int64_t> lengths) {
  check(spec.width > 0 && spec.width % 2 == 0, "rotary: width must be even and positive, got {}", spec.width);
  for (const auto& factors : {spec.short_factors, spec.long_factors})
    check(spec.scaling != RotaryScaling::longrope || std::ssize(factors) == spec.width / 2,
          "rotary: longrope has a factor for each of {} pairs, got {}", spec.width / 2, factors.size());
  const int64_t axes = positions.width();
  check(axes == 1 || (axes == 2 && spec.width % 4 == 0),
        "rotary: positions {} in two dimensions need a width divisible by 4, got {}", positions, spec.width);
  RotarySpec of_axis = spec;
  of_axis.width = spec.width / axes;
  const int64_t each = of_axis.width / 2, pairs = axes * each, rows = positions.rows();
  check(lengths.size() == 1 || std::ssize(lengths) == rows, "rotary: {} rows with {} lengths", rows,
        lengths.size());
  std::map<int64_t, std::vector<double>> angles_of;  // by the length of a sequence
  for (const int64_t length : lengths)
    if (!angles_of.contains(length)) angles_of[length] = frequencies(of_axis, length);
  Tensor out = Tensor::empty({rows, 2 * pairs}, DType::f32);
  const auto position = positions.values();
  float* to = out.mutable_data<float>();
  parallel_for(rows, row_grain(32 * pairs), [&](int64_t r, int64_t end) {
    for (; r < end; ++r) {
      const std::vector<double>& angles = angles_of.at(lengths[lengths.size() == 1 ? 0 : r]);
      for (int64_t i = 0; i < pairs; ++i) {
        const int64_t axis = i / each;
        const double angle = position[r * axes + axis] * angles[i % each];
        to[r * 2 * pairs + i] = static_cast<float>(std::cos(angle) * spec.magnitude);
        to[r * 2 * pairs + pairs + i] = static_cast<float>(std::sin(angle) * spec.magnitude);
      }
    }
  });
  return out;
}

Tensor rotary(const Tensor& x, int64_t heads, int64_t head_width, RotaryLayout layout,
              const Tensor& rotation) {
  check(
      x.defined() && x.shape().rank() == 2 && heads >= 0 && head_width > 0 && heads * head_width <= x.width(),
      "rotary: {} heads of {} columns, got {}", heads, head_width, x);
  check(rotation.defined() && rotation.shape().rank() == 2 && rotation.rows() == x.rows() &&
            rotation.width() % 2 == 0 && rotation.width() <= head_width,
        "rotary: the rotation must be [{}, at most {}], got {}", x.rows(), head_width, rotation);
  expect_dtype("rotary", "rotation", rotation, DType::f32);
  const Turned t{heads, head_width, layout};
  Tensor out = turned(x, t, rotation, 1);
  if (wants_grad({&x})) connect(out, std::make_shared<RotaryNode>(x, t, rotation));
  return out;
}

}  // namespace qkv
