#include "qkv/trace/step.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

namespace qkv {
namespace {

// A value's place: its stack, its block if it is of one, and the rest of its name.
struct StepPlace {
  std::string stack, rest;
  int64_t layer = -1;
};

StepPlace place_of(std::string_view name) {
  StepPlace place;
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
std::optional<int> line_of(const ModelSpec& spec, const StepPlace& place, std::string_view part, bool norm) {
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
  switch (spec.normalization) {
    case Normalization::rms:
    case Normalization::rms_plus_one:
      return "RMSnorm";
    case Normalization::layer:
    case Normalization::layer_scale:
      return "layer_norm";
    default:
      return name_of(spec.normalization) + "_norm";
  }
}

// "W X + b 1^T", or without the bias.
std::string affine(const std::string& weight, const std::string& of, const std::string& bias, bool biased) {
  return biased ? fmt::format("{} {} + {} 1^T", weight, of, bias) : fmt::format("{} {}", weight, of);
}

// The stack, block and part that a value is of, and the paper's letters there.
struct Where {
  const ModelSpec& spec;  // that of the stack
  const BlockSpec& block;
  int64_t layer;
  bool encoder, cross;
  std::string input;  // the letter that the part reads
};

// How queries and keys meet.
std::string scores_text(const Where& at, const std::string& mask) {
  const AttentionSpec& a = at.block.attention;
  std::string s = a.scale > 0 ? fmt::format("{:g} S", a.scale)
                  : !a.scaled ? "S"
                  : a.relative.on() && a.relative.terms() > 1
                      ? fmt::format("S / sqrt({} d_attn)", a.relative.terms())
                      : "S / sqrt(d_attn)";
  if (a.scaled_by_layer) s += " / (l + 1)";
  if (a.cap > 0) s = fmt::format("{0:g} tanh(({1}) / {0:g})", a.cap, s);
  if (!at.cross && a.relative.on()) s += " + terms of the distance";
  const Positions bias = at.block.bias();
  if (!at.cross && (bias == Positions::relative || bias == Positions::toeplitz || is_alibi(bias)))
    s += " + bias by distance";
  std::string out = s + ", S = K^T Q";
  if (!mask.empty()) out += ", " + mask;
  return out;
}

Step step_of_attention(const Where& at, const std::string& of) {
  const AttentionSpec& a = at.block.attention;
  if (of == "query_latents")
    return {"latents of queries", "RMSnorm(" + affine("W_cq", at.input, "b_cq", a.bias) + ")"};
  if (of == "latents")
    return {"latents of keys and values", "RMSnorm(" + affine("W_c", at.input, "b_c", a.bias) + ")"};
  const std::string source = at.cross ? "Z" : at.input;
  std::string meet;  // the changes of queries and keys before they meet
  if (a.clip > 0) meet += ", clipped";
  if (!at.cross && a.query_key_norm != QueryKeyNorm::none) meet += ", normalised";
  if (!at.cross && a.rotary.width > 0) meet += ", rotated";
  if (of == "queries")
    return {"queries", "Q = " + affine("W_q", at.input, "b_q", a.bias) + meet +
                           (!at.cross && a.query_growth != 0 ? ", growing with the position" : "")};
  if (of == "keys") return {"keys", "K = " + affine("W_k", source, "b_k", a.bias && a.key_bias) + meet};
  if (of == "values")
    return {"values", a.values_of_keys ? "V = the keys before they are normalised and rotated"
                                       : "V = " + affine("W_v", source, "b_v", a.bias) +
                                             (a.value_norm ? ", normalised" : "")};
  const bool causal = !at.cross && !at.encoder && at.spec.causal();
  const std::string mask = a.patterns.empty() || at.cross ? causal ? "-inf where the key comes later" : ""
                                                          : "-inf where the layer's pattern does not look";
  if (of == "scores") return {"scores", scores_text(at, mask)};
  if (of == "probabilities")
    return {"attention", std::string("softmax of the scores") +
                             (a.sinks ? ", a share of which goes to no key (sinks)" : "")};
  if (of == "heads" && at.cross && a.cross_linear)
    return {"heads",
            "Y = [Y^1; ...; Y^H], Y^h = V^h phi(K^h)^T phi(Q^h), divided by the sums of phi(K^h)^T phi(Q^h); "
            "phi(x) = elu(x) + 1"};
  if (of == "heads")
    return {"heads", std::string("Y = [Y^1; ...; Y^H], Y^h = V^h times the attention of head h") +
                         (!at.cross && a.gated ? ", times sigmoid(W_gate " + at.input + ")" : "")};
  return {of};
}

// A branch with what is done to it before it is added.
std::string added(const Where& at, std::string branch) {
  if (at.spec.norm_placement == NormPlacement::branch || at.spec.norm_placement == NormPlacement::sandwich)
    branch = fmt::format("{}({})", norm_name(at.spec), branch);
  if (at.block.residual_multiplier != 1)
    branch = fmt::format("{:g} {}", at.block.residual_multiplier, branch);
  return branch;
}

Step step_of_feed_forward(const Where& at, const std::string& of, const std::string& up,
                          const std::string& down) {
  const std::string f = name_of(at.block.activation), b = "b_" + up.substr(2), c = "b_" + down.substr(2);
  if (of == "up" && at.block.gated)
    return {"before the activation",
            affine(fmt::format("[{}; W_g]", up), at.input, b, at.block.feed_forward_bias)};
  if (of == "up") return {"before the activation", affine(up, at.input, b, at.block.feed_forward_bias)};
  if (of == "hidden")
    return {"neurons",
            at.block.gated ? f + " of the first half of that, times the second half" : f + " of that"};
  if (of == "router") return {"router's logits"};
  if (of == "weights") return {"experts' weights", "those of the chosen experts, else 0"};
  if (of == "branch" && !at.spec.experts.in_layer(at.layer))
    return {"feed-forward's output", added(at, affine(down, "of that", c, at.block.feed_forward_bias))};
  if (of == "branch") return {"experts' output"};
  return {of};
}

// A value of a block.
Step step_in_block(const ModelSpec& model, const StepPlace& place) {
  const bool two = model.architecture == Architecture::encoder_decoder, encoder = place.stack == "encoder";
  const ModelSpec spec = encoder && two ? model.encoder_spec() : model;
  const size_t dot = place.rest.find('.');
  const std::string part = place.rest.substr(0, dot),
                    of = dot == std::string::npos ? "" : place.rest.substr(dot + 1);
  const bool cross = part == "cross_attention",
             read_normed =
                 spec.norm_placement == NormPlacement::pre || spec.norm_placement == NormPlacement::sandwich,
             decoder_of_two = two && !encoder;
  const std::string stream = two && encoder ? "Z" : "X";
  const Where at{
      spec, spec.block(place.layer), place.layer, encoder, cross, read_normed ? stream + "~" : stream};
  Step step{of.empty() ? part : part + "." + of};
  const std::string up = decoder_of_two ? "W_mlp3" : "W_mlp1", down = decoder_of_two ? "W_mlp4" : "W_mlp2";
  if (part.ends_with("attention")) {
    step = of == "branch"
               ? Step{"attention's output", added(at, affine("W_o", "Y", "b_o", at.block.attention.out_bias))}
               : step_of_attention(at, of);
  } else if (part == "feed_forward") {
    step = step_of_feed_forward(at, of, up, down);
  } else if (of.ends_with("input")) {
    step = {"input of the gates", affine("W", at.input, "b", true)};
  } else if (of == "states") {
    step = {"states of the recurrence"};
  } else if (of == "values") {
    step = {"values", "V = " + affine("W_v", at.input, "b_v", true)};
  }
  const std::string branch = cross                    ? fmt::format("MHAttention({}, Z)", at.input)
                             : part == "attention"    ? fmt::format("MHAttention({})", at.input)
                             : part == "feed_forward" ? fmt::format("MLP({})", at.input)
                             : part == "parallel"     ? fmt::format("MHAttention({0}) + MLP({0})", at.input)
                                                      : fmt::format("{}({})", part, at.input);
  if (of == "branch" && part == "parallel") step = {"both outputs", "MHAttention + MLP"};
  if (of == "norm")
    step = {"norm", fmt::format("{} = {}({})", read_normed ? stream + "~" : stream, norm_name(spec), stream)};
  if (of == "sum") step = {"residual sum", fmt::format("{0} = {0} + {1}", stream, added(at, branch))};
  if (place.rest == "scaled") step = {"scaled block", fmt::format("{0} times the block's scale", stream)};
  if (part == "attention" || cross || part == "feed_forward")
    step.where = where(model, line_of(model, place, part, of == "norm"));
  return step;
}

Step step_of_embedding(const ModelSpec& spec, const std::string& stack, const std::string& of) {
  const std::string stream =
                        spec.architecture == Architecture::encoder_decoder && stack == "encoder" ? "Z" : "X",
                    read = stream == "Z" ? "z" : "x";
  const bool added = !is_of_blocks(spec.positions) && spec.positions != Positions::none;
  std::string factor;
  if (spec.embedding_scaled) factor = "sqrt(d_e) ";
  if (spec.embedding_multiplier != 1) factor += fmt::format("{:g} ", spec.embedding_multiplier);
  const std::string token = fmt::format("{}W_e[:, {}[t]]", factor, read);
  if (of == "embedding.token")
    return {"token embeddings", spec.embedding_width > 0 ? "" : token, "Algorithm 1"};
  if (of == "embedding.position") return {"positions", "W_p[:, t]", "Algorithm 2"};
  if (of == "embedding.segment") return {"segments"};
  if (of == "embedding.sum")
    return {"sum of embeddings", fmt::format("{} = {}{}{}", stream, token, added ? " + W_p[:, t]" : "",
                                             spec.segments > 0 ? " + the segment's" : "")};
  if (of == "embedding") return {"input of the blocks", stream};
  return {of};
}

}  // namespace

Step step_of(const ModelSpec& spec, std::string_view name) {
  const StepPlace place = place_of(name);
  Step step{std::string(name)};
  if (place.layer >= 0 && spec.has_blocks()) {
    step = step_in_block(spec, place);
  } else if (place.rest.starts_with("embedding") && !place.stack.empty()) {
    step = step_of_embedding(spec, place.stack, place.rest);
  } else if (place.rest == "norm" && !place.stack.empty()) {
    const std::string stream =
        spec.architecture == Architecture::encoder_decoder && place.stack == "encoder" ? "Z" : "X";
    step = {"last norm", fmt::format("{0} = {1}({0})", stream, norm_name(spec)),
            is_as_printed(spec) && spec.architecture == Architecture::decoder ? "Algorithm 10, line 10" : ""};
  } else if (name == "logits" || name == "probabilities") {
    const bool plain = spec.head_width == 0 && spec.logit_multiplier == 1 && spec.logit_cap == 0 &&
                       !spec.unembedding_scaled && !spec.unembedding_bias && spec.embedding_width == 0;
    if (name == "logits")
      step = {"logits", plain ? "W_u X" : "", "Algorithm 7"};
    else
      step = {"probabilities", plain ? "P = softmax(W_u X)" : "P = softmax of the logits", "Algorithm 7"};
  } else if (name == "head") {
    const std::string f = name_of(spec.activation_of_head());
    step = {"head",
            fmt::format("X = {}({}({}))", norm_name(spec), f, affine("W_f", "X", "b_f", spec.head_bias)),
            spec.architecture == Architecture::encoder ? "Algorithm 9, lines 10 and 11" : ""};
  } else if (name == "pooled") {
    step = {"vector of the sequence"};
  } else if (name == "classes") {
    step = {"scores of the classes"};
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
