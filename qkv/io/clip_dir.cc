#include "qkv/io/clip_dir.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/io/binding.h"
#include "qkv/io/container/safetensors.h"
#include "qkv/io/family/family_parts.h"
#include "qkv/io/weights.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

// Reads the settings that both towers' configurations share.
ModelSpec read_tower(const JsonField& c, int64_t width, int64_t hidden, int64_t layers, int64_t heads) {
  ModelSpec s;
  s.width = c.integer_or("hidden_size", width, 1, kMost);
  s.hidden = c.integer_or("intermediate_size", hidden, 1, kMost);
  s.layers = c.integer_or("num_hidden_layers", layers, 1, kMost);
  AttentionSpec& a = s.attention;
  a.heads = a.kv_heads = c.integer_or("num_attention_heads", heads, 1, kMost);
  check(s.width % a.heads == 0, "{}: hidden_size: {} is not divisible by {} heads", c.place(), s.width,
        a.heads);
  a.d_qk = a.d_vo = s.width / a.heads;
  s.activation = read_activation(c, "hidden_act", "quick_gelu");
  s.norm_epsilon = c.number_or("layer_norm_eps", 1e-5F);
  s.output = Output::embedding;
  return s;
}

OrderedJson write_tower(const ModelSpec& s, const char* type, int64_t projection) {
  return {{"model_type", type},
          {"hidden_size", s.width},
          {"intermediate_size", s.hidden},
          {"num_hidden_layers", s.layers},
          {"num_attention_heads", s.attention.heads},
          {"hidden_act", config_name_of(s.activation)},
          {"layer_norm_eps", decimal(s.norm_epsilon)},
          {"projection_dim", projection}};
}

ModelSpec read_text(const JsonField& c) {
  ModelSpec s = read_tower(c, 512, 2048, 12, 8);
  s.vocab_size = c.integer_or("vocab_size", 49408, 1, kMost);
  s.context = c.integer_or("max_position_embeddings", 77, 1, kMost);
  s.pooling = Pooling::last;
  return s;
}

ModelSpec read_vision(const JsonField& c) {
  ModelSpec s = read_tower(c, 768, 3072, 12, 12);
  s.architecture = Architecture::encoder;
  FeatureSpec& f = s.features;
  f.kind = FeatureSpec::Kind::patches;
  f.image = c.integer_or("image_size", 224, 1, 1 << 14);
  f.patch = c.integer_or("patch_size", 32, 1, f.image);
  f.channels = c.integer_or("num_channels", 3, 1, 1 << 16);
  f.bias = false;
  s.vocab_size = 1;
  s.context = f.patches() + 1;
  s.embedding_norm = true;
  return s;
}

void add_blocks(const ModelSpec& s, const std::string& stack, const std::string& base, WeightNames& n) {
  for (int64_t l = 0; l < s.layers; ++l) {
    const std::string engine = fmt::format("{}.block.{}.", stack, l),
                      file = fmt::format("{}.encoder.layers.{}.", base, l), self = file + "self_attn.";
    n.parts(engine + "attention.qkv", {self + "q_proj", self + "k_proj", self + "v_proj"},
            {s.width, s.width, s.width});
    n.linear(engine + "attention.out", self + "out_proj");
    n.norm(engine + "attention.norm", file + "layer_norm1");
    n.linear(engine + "feed_forward.up", file + "mlp.fc1");
    n.linear(engine + "feed_forward.down", file + "mlp.fc2");
    n.norm(engine + "feed_forward.norm", file + "layer_norm2");
  }
}

std::vector<WeightName> text_weights(const ModelSpec& s) {
  WeightNames n;
  n.tensor("embedding.token", "text_model.embeddings.token_embedding.weight");
  n.tensor("embedding.position", "text_model.embeddings.position_embedding.weight");
  add_blocks(s, "decoder", "text_model", n);
  n.norm("decoder.norm", "text_model.final_layer_norm");
  return n.all;
}

std::vector<WeightName> vision_weights(const ModelSpec& s) {
  WeightNames n;
  const FeatureSpec& f = s.features;
  const std::string e = "vision_model.embeddings.";
  n.all.push_back({.engine = "embedding.token", .file = e + "class_embedding", .shape = {s.width}});
  n.tensor("embedding.position", e + "position_embedding.weight");
  n.all.push_back({.engine = "embedding.patch.weight",
                   .file = e + "patch_embedding.weight",
                   .shape = {s.width, f.channels, f.patch, f.patch}});
  n.norm("embedding.norm", "vision_model.pre_layrnorm");  // the spelling of published files
  add_blocks(s, "encoder", "vision_model", n);
  n.norm("encoder.norm", "vision_model.post_layernorm");
  return n.all;
}

}  // namespace

bool is_clip_dir(const std::string& dir) {
  const std::string path = dir + "/config.json";
  if (!file_exists(path)) return false;
  const Json json = parse_json(read_file(path), path);
  return JsonField(json, path).string_or("model_type", "") == "clip";
}

ClipModel load_clip(const std::string& dir, DType compute) {
  const std::string path = dir + "/config.json";
  const Json json = parse_json(read_file(path), path);
  const JsonField c(json, path), text = c["text_config"];
  ClipModel clip;
  clip.text = std::make_unique<Transformer>(read_text(text));
  clip.vision = std::make_unique<Transformer>(read_vision(c["vision_config"]));
  clip.end = static_cast<int32_t>(text.integer_or("eos_token_id", 49407, 0, INT32_MAX));
  const ModelWeights from = read_weights(dir);
  const std::string& weights = from.path;
  const TensorFile& file = from.file;
  std::set<std::string> used;
  used.merge(bind_weights(*clip.text, text_weights(clip.text->spec()), {weights, file, path, ""}, compute));
  used.merge(
      bind_weights(*clip.vision, vision_weights(clip.vision->spec()), {weights, file, path, ""}, compute));
  const auto take = [&](const std::string& name, const Shape& shape, DType type) {
    const auto it = file.tensors.find(name);
    check(it != file.tensors.end(), "{}: tensor '{}' is missing", weights, name);
    check(it->second.shape() == shape, "{}: tensor '{}': expected {} by {}, got {}", weights, name, shape,
          path, it->second.shape());
    used.insert(name);
    if (it->second.dtype() != DType::f32) clip.stored[name] = it->second.dtype();
    return floating(it->second, type, fmt::format("{}: tensor '{}'", weights, name));
  };
  const int64_t projection = c.integer_or("projection_dim", 512, 1, kMost);
  clip.text_projection = take("text_projection.weight", {projection, clip.text->spec().width}, compute);
  clip.visual_projection = take("visual_projection.weight", {projection, clip.vision->spec().width}, compute);
  clip.log_scale = take("logit_scale", {}, DType::f32).item();
  for (const auto& [name, tensor] : file.tensors)
    check(used.contains(name) || name.ends_with(".position_ids"),
          "{}: tensor '{}' belongs to no parameter of CLIP", weights, name);
  return clip;
}

void save_clip(const std::string& dir, const ClipModel& clip) {
  const ModelSpec &text = clip.text->spec(), &vision = clip.vision->spec();
  const int64_t projection = clip.text_projection.dim(0);
  OrderedJson of_text = write_tower(text, "clip_text_model", projection),
              of_vision = write_tower(vision, "clip_vision_model", projection);
  of_text["vocab_size"] = text.vocab_size;
  of_text["max_position_embeddings"] = text.context;
  of_text["eos_token_id"] = clip.end;
  of_vision["image_size"] = vision.features.image;
  of_vision["patch_size"] = vision.features.patch;
  of_vision["num_channels"] = vision.features.channels;
  const OrderedJson config = {
      {"model_type", "clip"},         {"architectures", {"CLIPModel"}},
      {"projection_dim", projection}, {"logit_scale_init_value", decimal(clip.log_scale)},
      {"text_config", of_text},       {"vision_config", of_vision},
      {"torch_dtype", "float32"}};
  auto tensors = weights_to_write(*clip.text, text_weights(text));
  for (auto& tensor : weights_to_write(*clip.vision, vision_weights(vision)))
    tensors.push_back(std::move(tensor));
  const auto add = [&](const char* name, const Tensor& x) {
    const Tensor whole = convert(x.detach(), DType::f32);
    const auto it = clip.stored.find(name);
    tensors.emplace_back(name, it == clip.stored.end() ? whole : as_stored(whole, it->second));
  };
  add("text_projection.weight", clip.text_projection);
  add("visual_projection.weight", clip.visual_projection);
  add("logit_scale", Tensor::of({}, std::vector<float>{clip.log_scale}));
  write_file_atomically(dir + "/config.json", config.dump(2) + "\n");
  write_safetensors(dir + "/model.safetensors", tensors, {{"format", "pt"}});
}

}  // namespace qkv
