// What training sees: the loss of a tiny random decoder on one sequence, and the norm of each parameter's
// gradient.
#include <cmath>
#include <cstdio>

#include "qkv/data/dataset.h"
#include "qkv/models/decoder.h"

int main() {
  qkv::Decoder model(
      qkv::gpt2_spec(/*vocab_size=*/32, /*context=*/16, /*width=*/24, /*layers=*/2, /*heads=*/3));
  model.parameters().prepare_training(qkv::DType::f32, /*seed=*/1);

  qkv::TokenStream stream;
  stream.append({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8});
  const qkv::Batch batch = qkv::cut_windows(stream, {0}, stream.size());
  qkv::Context context;
  context.layout = batch.layout;

  model.parameters().reset_gradients();
  const auto result =
      model.loss(batch.ids, batch.targets, context, 1 / static_cast<float>(batch.target_count));
  qkv::backward(result.loss);
  std::printf("loss %.4f, ln 32 = %.4f\n", result.loss.item(), std::log(32.0));
  for (const auto& p : model.parameters().all()) {
    double squares = 0;
    for (const float g : p.leaf->grad.values<float>()) squares += double{g} * g;
    std::printf("%-40s %-10s %.3e\n", p.name.c_str(), p.shape.text().c_str(), std::sqrt(squares));
  }
}
