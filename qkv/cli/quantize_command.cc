// qkv quantize: a model with weights of fewer bits.
#include "qkv/cli/command.h"
#include "qkv/cli/gguf_output.h"

namespace qkv {
namespace {

struct QuantizeOptions {
  std::string from, out, type = "q4_k_m";
  std::string calibrate;
  int64_t calibration_tokens = int64_t{1} << 16;
  bool requantize = false, overwrite = false;
};

}  // namespace

void add_quantize_command(Command& app) {
  auto o = std::make_shared<QuantizeOptions>();
  Command* c = app.add_subcommand("quantize", "Write a model with weights of fewer bits");
  c->add_option("FROM", o->from, "Model directory, run or GGUF file")->required();
  c->add_option("--type", o->type, "Mixture of types, by llama.cpp's names");
  c->add_option("--out", o->out, "GGUF file to write, or a directory for model.gguf")->required();
  c->add_option("--calibrate", o->calibrate,
                "Text like the model's input; errors count more where its activations are large");
  c->add_option("--calibration-tokens", o->calibration_tokens, "Tokens of that text to read, at most")
      ->show_default()
      ->range(2, 1 << 30);
  c->add_flag("--requantize", o->requantize, "Quantise tensors that are quantised already");
  c->add_flag("--overwrite", o->overwrite, "Replace the file");
  c->footer(
      "Types, with bits per weight: q8_0 (8.5), q6_k (6.6), q5_k_m (5.7), q4_k_m (4.8), q4_0 (4.5), q3_k_m "
      "(3.9),\n"
      "q2_k (3.0); also q5_k_s, q5_0, q5_1, q4_k_s, q4_1, iq4_nl, iq4_xs, q3_k_s, q3_k_l, mxfp4_moe, bf16, "
      "f16, f32.\n"
      "The bytes are those of llama.cpp's llama-quantize. Every command reads the file in place of a "
      "directory.\n"
      "Example: qkv quantize models/llama --type q4_k_m --out llama-q4_k_m.gguf");
  c->callback([o] {
    const std::string out = o->out.ends_with(".gguf") ? o->out : o->out + "/model.gguf";
    write_gguf_file({.from = o->from,
                     .out = out,
                     .type = o->type,
                     .requantize = o->requantize,
                     .overwrite = o->overwrite,
                     .calibrate = o->calibrate,
                     .calibration_tokens = o->calibration_tokens});
  });
}

}  // namespace qkv
