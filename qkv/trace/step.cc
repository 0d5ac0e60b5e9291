#include "qkv/trace/step.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace qkv {
namespace {

// A value's place: its stack, its block if it is of one, and the rest of its name.
struct Place {
  std::string stack, rest;
  int64_t layer = -1;
};

Place place_of(std::string_view name) {
  Place place;
  for (const std::string_view stack : {"encoder", "decoder"})
    if (name.starts_with(stack) && (name.size() == stack.size() || name[stack.size()] == '.')) {
      place.stack = stack;
      name.remove_prefix(std::min(name.size(), stack.size() + 1));
    }
  constexpr std::string_view kBlock = "block.";
  if (!place.stack.empty() && name.starts_with(kBlock)) {
    name.remove_prefix(kBlock.size());
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place.layer);
    name.remove_prefix(static_cast<size_t>(end - name.data()));
    if (name.starts_with('.')) name.remove_prefix(1);
  }
  place.rest = name;
  return place;
}

int algorithm_number(const ModelSpec& spec) {
  return spec.architecture == Architecture::decoder ? 10 : spec.architecture == Architecture::encoder ? 9 : 8;
}

// True if blocks have their norms where the paper's algorithm has them.
bool is_as_printed(const ModelSpec& spec) {
  const NormPlacement printed =
      spec.architecture == Architecture::decoder ? NormPlacement::pre : NormPlacement::post;
  return spec.has_blocks() && spec.norm_placement == printed && spec.branches == Branches::serial;
}

// The line of the algorithm that computes a part of a block: "attention", "cross_attention" or
// "feed_forward", or the norm of one of them.
std::optional<int> line_of(const ModelSpec& spec, const Place& place, std::string_view part, bool norm) {
  const int algorithm = algorithm_number(spec);
  const bool pre = algorithm == 10, feed_forward = part == "feed_forward";
  if (pre) return (feed_forward ? 7 : 5) + (norm ? 0 : 1);
  if (algorithm == 9) return (feed_forward ? 7 : 5) + (norm ? 1 : 0);
  if (place.stack == "encoder") return (feed_forward ? 7 : 5) + (norm ? 1 : 0);
  return (feed_forward ? 18 : part == "cross_attention" ? 16 : 14) + (norm ? 1 : 0);
}

std::string where(const ModelSpec& spec, std::optional<int> line) {
  if (!is_as_printed(spec) || !line) return {};
  return fmt::format("Algorithm {}, line {}", algorithm_number(spec), *line);
}

std::string norm_name(const ModelSpec& spec) {
  return spec.normalization == Normalization::layer || spec.normalization == Normalization::layer_scale
             ? "layer_norm"
             : "RMSnorm";
}

// "W X + b 1^T", or without the bias.
std::string affine(const std::string& weight, const std::string& of, const std::string& bias, bool biased) {
  return biased ? fmt::format("{} {} + {} 1^T", weight, of, bias) : fmt::format("{} {}", weight, of);
}

Step step_of_attention(const ModelSpec& spec, const AttentionSpec& a, const std::string& of,
                       const std::string& input, bool cross) {
  const std::string source = cross ? "Z" : input;
  std::string meet;  // the changes of queries and keys before they meet
  if (!cross && a.query_key_norm != QueryKeyNorm::none) meet += ", normalised";
  if (!cross && a.rotary.width > 0) meet += ", rotated";
  const std::string scaled = a.scaled ? "S / sqrt(d_attn)" : "S";
  if (of == "queries") return {"queries", "Q = " + affine("W_q", input, "b_q", a.bias) + meet, ""};
  if (of == "keys") return {"keys", "K = " + affine("W_k", source, "b_k", a.bias) + meet, ""};
  if (of == "values") return {"values", "V = " + affine("W_v", source, "b_v", a.bias), ""};
  if (of == "scores") {
    const bool causal = !cross && spec.causal();
    return {"scores", scaled + " of S = K^T Q" + (causal ? ", -inf where the key comes later" : ""), ""};
  }
  if (of == "probabilities") return {"attention", "softmax(" + scaled + ")", ""};
  if (of == "heads")
    return {
        "heads",
        "Y = [Y^1; ...; Y^H], Y^h = V^h softmax(" + (a.scaled ? "S^h / sqrt(d_attn))" : std::string("S^h)")),
        ""};
  if (of == "branch") return {"attention's output", affine("W_o", "Y", "b_o", a.out_bias), ""};
  return {of, "", ""};
}

// A value of a block.
Step step_in_block(const ModelSpec& model, const Place& place) {
  const ModelSpec spec = place.stack == "encoder" ? model.encoder_spec() : model;
  const BlockSpec& block = spec.block(place.layer);
  const size_t dot = place.rest.find('.');
  const std::string part = place.rest.substr(0, dot),
                    of = dot == std::string::npos ? "" : place.rest.substr(dot + 1);
  const bool post = spec.norm_placement == NormPlacement::post, attends = part.ends_with("attention");
  const std::string input = post ? "X" : "X~";
  Step step{of.empty() ? part : part + "." + of, "", ""};
  if (attends) step = step_of_attention(spec, block.attention, of, input, part == "cross_attention");
  const std::string branch = attends ? "MHAttention(" + input + (part == "cross_attention" ? ", Z" : "") + ")"
                                     : "MLP(" + input + ")";
  if (part == "feed_forward") {
    const std::string f = name_of(block.activation);
    if (of == "up")
      step = {"before the activation", affine("W_mlp1", input, "b_mlp1", block.feed_forward_bias), ""};
    if (of == "hidden")
      step = {"neurons", block.gated ? f + " of one half of that, times the other" : f + " of that", ""};
    if (of == "branch")
      step = {"feed-forward's output", affine("W_mlp2", "of that", "b_mlp2", block.feed_forward_bias), ""};
    if (of == "router") step = {"router's logits", "", ""};
  }
  if (of == "norm") step = {"norm", fmt::format("{} = {}(X)", post ? "X" : "X~", norm_name(spec)), ""};
  if (of == "sum") step = {"residual sum", "X = X + " + branch, ""};
  if (part == "attention" || part == "cross_attention" || part == "feed_forward")
    step.where = where(model, line_of(model, place, part, of == "norm"));
  return step;
}

Step step_of_embedding(const ModelSpec& spec, const std::string& of) {
  const bool two = spec.architecture == Architecture::encoder_decoder;
  if (of == "embedding.token") return {"token embeddings", "W_e[:, x[t]]", "Algorithm 1"};
  if (of == "embedding.position") return {"positions", "W_p[:, t]", "Algorithm 2"};
  if (of == "embedding.segment") return {"segments", "", ""};
  if (of == "embedding.sum") return {"sum of embeddings", "X = W_e[:, x[t]] + W_p[:, t]", ""};
  if (of == "embedding") return {"input of the blocks", two && spec.causal() ? "X" : "X", ""};
  return {of, "", ""};
}

}  // namespace

Step step_of(const ModelSpec& spec, std::string_view name) {
  const Place place = place_of(name);
  Step step{std::string(name), "", ""};
  if (place.layer >= 0 && spec.has_blocks()) {
    step = step_in_block(spec, place);
  } else if (place.rest.starts_with("embedding") && !place.stack.empty()) {
    step = step_of_embedding(spec, place.rest);
  } else if (place.rest == "norm" && !place.stack.empty()) {
    step = {"last norm", fmt::format("X = {}(X)", norm_name(spec)),
            is_as_printed(spec) && spec.architecture == Architecture::decoder ? "Algorithm 10, line 10" : ""};
  } else if (name == "logits") {
    step = {"logits", "W_u X", "Algorithm 7"};
  } else if (name == "probabilities") {
    step = {"probabilities", "P = softmax(W_u X)", "Algorithm 7"};
  } else if (name == "pooled") {
    step = {"vector of the sequence", "", ""};
  } else if (name == "classes") {
    step = {"scores of the classes", "", ""};
  }
  step.layer = place.layer;
  step.stack = place.stack;
  return step;
}

std::string algorithm_of(const ModelSpec& spec) {
  switch (spec.architecture) {
    case Architecture::decoder:
      return "Algorithm 10, DTransformer";
    case Architecture::encoder:
      return "Algorithm 9, ETransformer";
    case Architecture::encoder_decoder:
      break;
  }
  return "Algorithm 8, EDTransformer";
}

}  // namespace qkv
