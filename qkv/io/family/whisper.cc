// Whisper: Hugging Face's WhisperForConditionalGeneration. The keys have no biases, and the input is frames.

#include "qkv/base/json_value.h"
#include "qkv/io/family/bart_parts.h"

namespace qkv {
namespace {

ModelSpec read_whisper(const JsonField& c) {
  ModelSpec s = read_bart_like(c, "max_target_positions");
  s.encoder.context = c["max_source_positions"].integer(1, kMost);
  s.features.kind = FeatureSpec::Kind::frames;
  s.features.channels = c["num_mel_bins"].integer(1, 1 << 16);
  s.norm_placement = NormPlacement::pre;
  s.stacks_apart = true;
  s.unembedding_bias = s.embedding_scaled = false;  // no code reads scale_embedding
  check(!c.boolean_or("use_weighted_layer_sum", false), "{}: use_weighted_layer_sum: not supported",
        c.place());
  return s;
}

OrderedJson write_whisper(const ModelSpec& s) {
  OrderedJson c = write_bart_like(s, "whisper", "WhisperForConditionalGeneration");
  c.erase("max_position_embeddings");
  c["max_target_positions"] = s.context;
  c["max_source_positions"] = s.encoder.context;
  c["num_mel_bins"] = s.features.channels;
  return c;
}

std::vector<WeightName> whisper_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "model.decoder.embed_tokens.weight");
  for (const char* stack : {"encoder", "decoder"})
    n.tensor(fmt::format("{}.embedding.position", stack),
             fmt::format("model.{}.embed_positions.weight", stack));
  for (int i = 0; i < 2; ++i) {
    const std::string engine = fmt::format("encoder.embedding.convolution.{}", i),
                      file = fmt::format("model.encoder.conv{}", i + 1);
    n.all.push_back({.engine = engine + ".weight",
                     .file = file + ".weight",
                     .shape = {s.width, i == 0 ? s.features.channels : s.width, 3}});
    n.tensor(engine + ".bias", file + ".bias");
  }
  add_bart_blocks(s, n);
  n.untied(s, "proj_out.weight");
  for (WeightName& w : n.all)
    if (w.file.ends_with(".k_proj.bias")) w.file.clear();
  return n.all;
}

}  // namespace

const Family& whisper_family() {
  static const Family family = {
      "whisper",
      read_whisper,
      write_whisper,
      [](const ModelSpec& s) {
        return is_bart_like(s) && s.features.kind == FeatureSpec::Kind::frames && s.encoder.context > 0;
      },
      whisper_weights,
      "",
      [](const ModelSpec& s, const std::string& name) { return s.tied && name == "proj_out.weight"; }};
  return family;
}

}  // namespace qkv
