// Defines an op with its gradient and a module that uses it, then checks the gradients of the module's
// parameters against finite differences.
//   g++ -std=c++20 new_module.cc $(pkg-config --cflags --libs qkv) -o new_module && ./new_module
#include <cmath>
#include <cstdio>

#include "qkv/autograd/graph.h"
#include "qkv/nn/linear.h"
#include "qkv/nn/sublayer.h"
#include "qkv/ops/dispatch.h"
#include "qkv/ops/elementwise.h"

// x * y, element by element, in f32.
qkv::Tensor product(const qkv::Tensor& x, const qkv::Tensor& y) {
  qkv::Tensor out = qkv::Tensor::empty(x.shape(), qkv::DType::f32);
  const auto a = x.values<float>(), b = y.values<float>();  // spans that check their indices
  const auto to = out.mutable_values<float>();
  for (int64_t i = 0; i < x.count(); ++i) to[i] = a[i] * b[i];
  return out;
}

// dx = dz * y, dy = dz * x. Keeps x and y for the gradient, detached from the graph.
class MultiplyNode : public qkv::Node {
 public:
  MultiplyNode(const qkv::Tensor& x, const qkv::Tensor& y) : x_(x.detach()), y_(y.detach()) {
    add_input(x);
    add_input(y);
  }
  std::string_view name() const override { return "multiply"; }
  void backward(std::span<qkv::Tensor> grads) override {
    if (wants(0)) give(0, product(grads[0], y_));
    if (wants(1)) give(1, product(grads[0], x_));
  }

 private:
  qkv::Tensor x_, y_;
};

// x * y; both f32 of one shape.
qkv::Tensor multiply(const qkv::Tensor& x, const qkv::Tensor& y) {
  qkv::expect_shape("multiply", "y", y, x.shape());
  qkv::Tensor out = product(x, y);
  if (qkv::wants_grad({&x, &y})) qkv::connect(out, std::make_shared<MultiplyNode>(x, y));
  return out;
}

// GEGLU: W_2 (gelu(W_1 x) * V x), without biases (Shazeer, "GLU variants improve transformer", 2020).
class GatedFeedForward : public qkv::Sublayer {
 public:
  GatedFeedForward(qkv::Parameters& parameters, const std::string& name, int64_t width, int64_t hidden)
      : gate_(parameters, name + ".gate", width, hidden, /*bias=*/false, /*std=*/0.5F),
        up_(parameters, name + ".up", width, hidden, false, 0.5F),
        down_(parameters, name + ".down", hidden, width, false, 0.5F) {}
  // x [N, width] -> [N, width]
  qkv::Tensor forward(const qkv::Tensor& x, const qkv::Context&) const override {
    const qkv::Tensor gate = activation(qkv::Activation::gelu, gate_.forward(x));
    return down_.forward(multiply(gate, up_.forward(x)));
  }

 private:
  qkv::Linear gate_, up_, down_;  // W_1, V, W_2
};

int main() {
  qkv::Parameters parameters;
  const GatedFeedForward module(parameters, "mlp", /*width=*/4, /*hidden=*/6);
  parameters.prepare_training(qkv::DType::f32, /*seed=*/1);
  const qkv::Tensor x = qkv::Tensor::of<float>({2, 4}, std::vector<float>{1, -2, 3, .5, -1, .3, 2, -.7});

  // The scalar whose gradient is taken is the sum of the outputs: every output's gradient is 1.
  const auto sum_of_outputs = [&] {
    const qkv::NoGrad no_grad;
    const qkv::Tensor outputs = module.forward(x, {});
    double sum = 0;
    for (const float y : outputs.values<float>()) sum += y;
    return sum;
  };
  const qkv::Tensor ones = qkv::Tensor::of(x.shape(), std::vector<float>(x.count(), 1));
  const qkv::Seed seed[] = {{module.forward(x, {}), ones}};
  qkv::backward(seed);

  double worst = 0;
  for (qkv::Parameter& p : parameters.all())
    for (int64_t i = 0; i < p.shape.count(); ++i) {
      constexpr float h = 0x1p-8F;  // f32 rounds by 2^-24 of a sum near 1: the difference is good to 1e-4
      float& weight = p.master.mutable_values<float>()[i];
      const float centre = weight;
      weight = centre + h;
      const double above = sum_of_outputs();
      weight = centre - h;
      const double difference = (above - sum_of_outputs()) / (2 * h);
      weight = centre;
      worst = std::max(worst, std::abs(difference - p.leaf->grad.values<float>()[i]));
    }
  std::printf("%ld parameters: gradients and finite differences differ by at most %.1e\n", parameters.count(),
              worst);
  return worst < 1e-3 ? 0 : 1;
}
