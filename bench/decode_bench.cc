// Decoding one stream of tokens with a GPT of about a billion parameters, beside the memory bandwidth that
// reading its weights reaches in the same run; and a prompt of 512 tokens beside its matrix products alone.
//
//   decode_bench [--dtype f32|bf16] [--layers 24] [--width 2048] [--heads 16] [--vocab 50257] [--tokens 16]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "qkv/base/parallel.h"
#include "qkv/infer/generate.h"
#include "qkv/kernels/gemm.h"

namespace qkv {
namespace {

double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

struct Options {
  std::string dtype = "bf16";
  int64_t layers = 24, width = 2048, heads = 16, vocab = 50257, tokens = 16;
};

// Cheap noise of the size of trained weights: a billion normal numbers would take longer than the
// measurement.
void fill(Parameters& parameters, DType dtype) {
  for (Parameter& p : parameters.all()) {
    const bool bf16 = dtype == DType::bf16 && p.kind == ParameterKind::matrix;
    p.value = Tensor::empty(p.shape, bf16 ? DType::bf16 : DType::f32);
    parallel_for(p.shape.count(), 1 << 16, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) {
        const float x =
            0.04F *
            (static_cast<float>(dropout_bits({1, 3}, static_cast<uint32_t>(i)) >> 8) * 0x1p-24F - 0.5F);
        if (bf16)
          p.value.mutable_data<BFloat16>()[i] = BFloat16(x);
        else
          p.value.mutable_data<float>()[i] = x;
      }
    });
  }
}

double read_seconds(const Parameters& parameters) {
  return seconds([&] {
    for (const Parameter& p : parameters.all()) {
      const auto floats = static_cast<int64_t>(p.value.bytes() / 4);
      const auto* x = static_cast<const float*>(p.value.raw());
      parallel_for(floats, 1 << 16, [&](int64_t i, int64_t end) {
        volatile double sink = kernels().sum_squares(end - i, x + i);
        (void)sink;
      });
    }
  });
}

double products_seconds(const Parameters& parameters, int64_t rows, DType dtype) {
  return seconds([&] {
    for (const Parameter& p : parameters.all()) {
      if (p.kind != ParameterKind::matrix || p.name.starts_with("embedding")) continue;
      const Tensor x = Tensor::zeros({rows, p.shape[1]}, dtype);
      Tensor y = Tensor::empty({rows, p.shape[0]}, dtype);
      matrix_product({.m = rows,
                      .n = p.shape[0],
                      .k = p.shape[1],
                      .in = dtype,
                      .out = dtype,
                      .a = x.raw(),
                      .a_stride = p.shape[1],
                      .b = p.value.raw(),
                      .b_stride = p.shape[1],
                      .b_transposed = true,
                      .c = y.raw(),
                      .c_stride = p.shape[0]});
    }
  });
}

void run(const Options& o) {
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  Decoder model(gpt2_spec(o.vocab, 1024, o.width, o.layers, o.heads));
  fill(model.parameters(), dtype);
  double bytes =
      0;  // read for one token: all but the tables of embeddings, of which the tied one is the unembedding
  for (const Parameter& p : model.parameters().all())
    if (p.name != "embedding.position") bytes += static_cast<double>(p.value.bytes());
  double read = 1e9, token = 1e9, prompt = 1e9, products = 1e9;
  std::vector<int32_t> ids(512);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 97 % o.vocab);
  for (int round = 0; round < 2; ++round) {
    DecodeState state(model, 1);
    prompt = std::min(prompt, seconds([&] { state.advance({ids}); }));
    products = std::min(products, products_seconds(model.parameters(), 512, dtype));
    for (int64_t t = 0; t < o.tokens; ++t) {
      token = std::min(token, seconds([&] { state.advance({{static_cast<int32_t>(t)}}); }));
      if (t % 4 == 0) read = std::min(read, read_seconds(model.parameters()));
    }
  }
  fmt::print("{} parameters, {:.2f} GB, {}, {} threads\n", model.parameters().count(), bytes / 1e9, o.dtype,
             num_threads());
  fmt::print(
      "read_weights_gb_per_s {:.1f}\ntoken_ms {:.1f}\ndecoding_gb_per_s {:.1f}\npart_of_bandwidth {:.2f}\n",
      bytes / read / 1e9, token * 1e3, bytes / token / 1e9, read / token);
  fmt::print("prompt_512_ms {:.0f}\nprompt_tokens_per_s {:.0f}\nits_products_alone_ms {:.0f}\n", prompt * 1e3,
             512 / prompt, products * 1e3);
}

}  // namespace
}  // namespace qkv

int main(int argc, char** argv) {
  qkv::limit_spinning(argv);
  qkv::Options o;
  CLI::App app{"Times decoding with a GPT of a billion parameters"};
  app.add_option("--dtype", o.dtype)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--layers", o.layers);
  app.add_option("--width", o.width);
  app.add_option("--heads", o.heads);
  app.add_option("--vocab", o.vocab);
  app.add_option("--tokens", o.tokens);
  CLI11_PARSE(app, argc, argv);
  try {
    qkv::run(o);
  } catch (const std::exception& e) {
    fmt::print(stderr, "decode_bench: {}\n", e.what());
    return 1;
  }
}
