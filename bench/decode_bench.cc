// Decoding one stream of tokens with a GPT of about a billion parameters, beside the memory bandwidth that
// reading its weights reaches in the same run; and a prompt of 512 tokens beside its matrix products alone,
// by our own and by oneDNN's with the matrices packed beforehand.
//
//   decode_bench [--dtype f32|bf16] [--layers 24] [--width 2048] [--heads 16] [--vocab 50257] [--tokens 16]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <dnnl.hpp>
#include <map>

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
  parameters.compute = dtype;
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

// In the order in which a token reads them: what the last product left in the caches is no head start.
double read_seconds(const Parameters& parameters) {
  std::vector<const Parameter*> order;
  for (const Parameter& p : parameters.all())
    if (!p.name.starts_with("embedding")) order.push_back(&p);
  for (const Parameter& p : parameters.all())
    if (p.name == "embedding.token") order.push_back(&p);
  return seconds([&] {
    for (const Parameter* p : order) {
      const auto floats = static_cast<int64_t>(p->value.bytes() / 4);
      const auto* x = static_cast<const float*>(p->value.raw());
      parallel_for(floats, 1 << 16, [&](int64_t i, int64_t end) {
        volatile double sink = kernels().sum_squares(end - i, x + i);
        (void)sink;
      });
    }
  });
}

// Random values: tiles multiply zeros a quarter faster.
Tensor noise(int64_t rows, int64_t width, DType dtype) {
  Tensor x = Tensor::empty({rows, width}, dtype);
  for (int64_t i = 0; i < rows * width; ++i) {
    const float v = static_cast<float>(dropout_bits({5, 7}, static_cast<uint32_t>(i)) >> 8) * 0x1p-24F - 0.5F;
    if (dtype == DType::bf16)
      x.mutable_data<BFloat16>()[i] = BFloat16(v);
    else
      x.mutable_data<float>()[i] = v;
  }
  return x;
}

// Seconds of the products of `rows` tokens with all matrices, by product(matrix, x, y).
template <typename F>
double products_seconds(const Parameters& parameters, int64_t rows, DType dtype, const F& product) {
  double total = 0;
  for (const Parameter& p : parameters.all()) {
    if (p.kind != ParameterKind::matrix || p.name.starts_with("embedding")) continue;
    const Tensor x = noise(rows, p.shape[1], dtype);
    Tensor y = Tensor::empty({rows, p.shape[0]}, dtype);
    total += seconds([&] { product(p, x, y); });
  }
  return total;
}

void own_product(const Parameter& p, const Tensor& x, Tensor& y) {
  matrix_product({.m = x.rows(),
                  .n = p.shape[0],
                  .k = p.shape[1],
                  .out = x.dtype(),
                  .a = dense(x.raw(), x.dtype(), p.shape[1]),
                  .b = dense(p.value.raw(), x.dtype(), p.shape[1], true),
                  .c = y.raw(),
                  .c_stride = p.shape[0]});
}

// oneDNN's products with matrices in the layout that it chooses itself, brought there beforehand.
class PackedMatrices {
 public:
  PackedMatrices(const Parameters& parameters, int64_t rows, DType dtype) {
    using dnnl::memory;
    const auto type = dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    for (const Parameter& p : parameters.all()) {
      if (p.kind != ParameterKind::matrix || p.name.starts_with("embedding")) continue;
      const int64_t n = p.shape[0], k = p.shape[1];
      const memory::desc x({rows, k}, type, memory::format_tag::ab),
          y({rows, n}, type, memory::format_tag::ab);
      const memory::desc plain({k, n}, type, memory::format_tag::ba),
          any({k, n}, type, memory::format_tag::any);
      const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(x, any, y), engine_);
      memory from(plain, engine_, const_cast<std::byte*>(static_cast<const std::byte*>(p.value.raw())));
      memory to(chosen.weights_desc(), engine_);
      dnnl::reorder(from, to).execute(stream_, from, to);
      matrices_.emplace(
          p.name, Matrix{dnnl::matmul(chosen), to, memory(x, engine_, nullptr), memory(y, engine_, nullptr)});
    }
    stream_.wait();
  }
  void product(const Parameter& p, const Tensor& x, Tensor& y) {
    Matrix& m = matrices_.at(p.name);
    m.x.set_data_handle(const_cast<std::byte*>(static_cast<const std::byte*>(x.raw())));
    m.y.set_data_handle(y.raw());
    m.primitive.execute(stream_, {{DNNL_ARG_SRC, m.x}, {DNNL_ARG_WEIGHTS, m.packed}, {DNNL_ARG_DST, m.y}});
    stream_.wait();
  }

 private:
  struct Matrix {
    dnnl::matmul primitive;
    dnnl::memory packed, x, y;
  };
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::map<std::string, Matrix> matrices_;
};

void run(const Options& o) {
  const DType dtype = o.dtype == "bf16" ? DType::bf16 : DType::f32;
  Transformer model(gpt2_spec(o.vocab, 1024, o.width, o.layers, o.heads));
  fill(model.parameters(), dtype);
  double bytes =
      0;  // read for one token: all but the tables of embeddings, of which the tied one is the unembedding
  for (const Parameter& p : model.parameters().all())
    if (p.name != "embedding.position") bytes += static_cast<double>(p.value.bytes());
  double read = 1e9, token = 1e9, prompt = 1e9, products = 1e9, packed_products = 1e9;
  PackedMatrices packed(model.parameters(), 512, dtype);
  std::vector<int32_t> ids(512);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 97 % o.vocab);
  for (int round = 0; round < 3; ++round) {
    DecodeState state(model, 1);
    prompt = std::min(prompt, seconds([&] { state.advance({ids}); }));
    products = std::min(products, products_seconds(model.parameters(), 512, dtype, own_product));
    packed_products = std::min(
        packed_products,
        products_seconds(model.parameters(), 512, dtype,
                         [&](const Parameter& p, const Tensor& x, Tensor& y) { packed.product(p, x, y); }));
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
  fmt::print(
      "prompt_512_ms {:.0f}\nprompt_tokens_per_s {:.0f}\nits_products_alone_ms {:.0f}\n"
      "its_products_through_onednn_prepacked_ms {:.0f}\n",
      prompt * 1e3, 512 / prompt, products * 1e3, packed_products * 1e3);
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
