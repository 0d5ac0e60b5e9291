#include "qkv/bridge/forward_clip.h"

#include <algorithm>

#include "qkv/base/error.h"
#include "qkv/bridge/collector.h"
#include "qkv/ops/elementwise.h"

namespace qkv {
namespace {

using Named = std::vector<std::pair<std::string, Tensor>>;

// Returns a tower's output states and adds its intermediate values to `out` under `prefix`.
Tensor states_of(const Transformer& tower, const Inputs& inputs, const std::string& prefix,
                 bool hidden_states, bool attentions, Named& out) {
  Collector collector(tower.spec(), inputs, hidden_states, attentions, false);
  Context context;
  context.probe = &collector;
  const Tensor states = tower.hidden(inputs.input, context);
  for (const auto& [name, tensor] : collector.found) out.emplace_back(prefix + name, tensor);
  return states;
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> forward_clip(const std::string& dir, const TensorFile& in,
                                                         const std::string& path, DType compute,
                                                         bool hidden_states, bool attentions) {
  const ClipModel clip = load_clip(dir, compute);
  for (const auto& [name, tensor] : in.tensors)
    check(name == "input_ids" || name == "attention_mask" || name == "pixel_values",
          "{}: {}: CLIP has no such input (it has input_ids, attention_mask, pixel_values)", path, name);
  for (const char* name : {"input_ids", "pixel_values"})
    check(in.tensors.contains(name), "{}: {}: missing", path, name);
  const ModelSpec &text_spec = clip.text->spec(), &vision_spec = clip.vision->spec();
  Inputs texts;
  texts.tokens =
      read_padded(in, path, "input_ids", "attention_mask", text_spec.vocab_size, text_spec.longest());
  texts.input.ids = texts.tokens.ids;
  texts.input.layout = texts.tokens.layout();
  const Inputs images = read_images(in, path, vision_spec);
  Named out;
  const NoGrad guard;
  const Tensor text_states =
      states_of(*clip.text, texts, "text_model_output.", hidden_states, attentions, out);
  const Tensor image_states =
      states_of(*clip.vision, images, "vision_model_output.", hidden_states, attentions, out);
  Tensor text_pooled;
  try {
    text_pooled = clip.pooled_texts(text_states, texts.input.layout, texts.tokens.ids);
  } catch (const Error& e) {
    fail("{}: {}", path, e.what());
  }
  const Tensor image_pooled = clip.pooled_images(image_states, images.input.layout);
  const Tensor text = clip.text_embeds(text_pooled), image = clip.image_embeds(image_pooled);
  if (hidden_states) {
    out.emplace_back("text_model_output.pooler_output", convert(text_pooled, DType::f32));
    out.emplace_back("text_model_output.last_hidden_state",
                     texts.tokens.spread(convert(text_states, DType::f32)));
    out.emplace_back("vision_model_output.pooler_output", convert(image_pooled, DType::f32));
    // For images this is the state before the last norm, which applies only to the pooled token.
    const std::string last = fmt::format("vision_model_output.hidden_states.{}", vision_spec.layers);
    const auto found = std::ranges::find(out, last, [](const auto& named) { return named.first; });
    out.emplace_back("vision_model_output.last_hidden_state", Tensor(found->second));
  }
  out.emplace_back("text_embeds", text);
  out.emplace_back("image_embeds", image);
  out.emplace_back("logits_per_text", clip.logits(text, image));
  out.emplace_back("logits_per_image", clip.logits(image, text));
  return out;
}

}  // namespace qkv
