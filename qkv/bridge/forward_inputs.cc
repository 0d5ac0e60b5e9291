#include "qkv/bridge/forward_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "qkv/models/feature_embedding.h"
#include "qkv/ops/rows.h"

namespace qkv {

void take_rotations(TensorFile& in, Transformer& model, const std::string& path) {
  constexpr std::string_view kBegin = "rotations.";
  const char* stack = model.spec().architecture == Architecture::encoder ? "encoder" : "decoder";
  for (auto it = in.tensors.begin(); it != in.tensors.end();) {
    const auto& [name, given] = *it;
    if (!name.starts_with(kBegin)) {
      ++it;
      continue;
    }
    Parameter* p = model.parameters().find(
        fmt::format("{}.block.{}.attention.rotations", stack, name.substr(kBegin.size())));
    check(p != nullptr, "{}: {}: the model has no such layer that attends by hashes", path, name);
    check(given.shape() == p->shape && given.dtype() == DType::f32, "{}: {}: expected F32 {}, got {}", path,
          name, p->shape, given);
    p->value = given.clone();
    it = in.tensors.erase(it);
  }
}

void expect_known_inputs(const TensorFile& in, const ModelSpec& spec, const std::string& path) {
  const bool image = spec.features.kind == FeatureSpec::Kind::patches;
  const bool frames = spec.features.kind == FeatureSpec::Kind::frames;
  const std::string what = image ? "pixel_values" : frames ? "input_features" : "input_ids";
  std::set<std::string> known = {what, "labels"};
  if (!image && !frames) known.insert("attention_mask");
  if (spec.architecture == Architecture::encoder && !image) known.insert("token_type_ids");
  const auto has_patterns = [](const BlockSpec* block) { return !block->attention.patterns.empty(); };
  const auto knows_globals = [](const BlockSpec* block) { return block->attention.global_projections; };
  if (spec.architecture == Architecture::encoder ? std::ranges::any_of(spec.blocks_in_use(), has_patterns)
                                                 : std::ranges::any_of(spec.blocks_in_use(), knows_globals))
    known.insert("global_attention_mask");
  if (spec.output == Output::span) known.insert({"start_positions", "end_positions"});
  if (spec.architecture == Architecture::encoder_decoder)
    known.insert(
        {"decoder_input_ids", "decoder_attention_mask", "encoder_hidden_states", "encoder_value_states"});
  const bool encoded =
      known.contains("encoder_hidden_states") && in.tensors.contains("encoder_hidden_states");
  check(in.tensors.contains(what) != encoded, "{}: {}: {}", path, what,
        encoded ? "encoder_hidden_states takes its place, give one of them" : "missing");
  for (const auto& [name, tensor] : in.tensors)
    check(known.contains(name), "{}: {}: a model whose architecture is {} has no such input (it has {})",
          path, name, name_of(spec.architecture), fmt::join(known, ", "));
}

std::vector<std::vector<int32_t>> global_flags(const TensorFile& in, const std::string& path,
                                               const PaddedBatch& batch) {
  constexpr const char* kName = "global_attention_mask";
  check(in.tensors.at(kName).shape() == Shape{batch.rows, batch.columns}, "{}: {}: expected [{}, {}]", path,
        kName, batch.rows, batch.columns);
  const std::vector<int64_t> values = batch.gather(integers(in, kName, path));
  std::vector<std::vector<int32_t>> out;
  auto at = values.begin();
  for (const int32_t length : batch.lengths) {
    out.emplace_back(at, at + length);
    at += length;
  }
  return out;
}

PaddedBatch read_frames(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                        Tensor& features) {
  const Tensor& x = in.tensors.at("input_features");
  const int64_t channels = spec.features.channels, longest = spec.encoder_spec().longest();
  check(x.shape().rank() == 3 && x.dim(0) > 0 && x.dim(1) == channels && x.dim(2) > 0 && x.dim(2) % 2 == 0 &&
            x.dim(2) <= 2 * longest && x.dtype() == DType::f32,
        "{}: input_features: expected F32 [batch, {}, an even number up to {}], got {} {}", path, channels,
        2 * longest, name_of(x.dtype()), x.shape());
  PaddedBatch b;
  b.rows = x.dim(0);
  b.columns = x.dim(2) / 2;
  b.lengths.assign(static_cast<size_t>(b.rows), static_cast<int32_t>(b.columns));
  b.ids.assign(static_cast<size_t>(b.rows * b.columns), kFeature);
  for (int64_t i = 0; i < b.rows * b.columns; ++i) b.places.push_back(i);
  features = Tensor::empty({b.rows * x.dim(2), channels}, DType::f32);
  for (int64_t r = 0; r < b.rows; ++r)
    for (int64_t t = 0; t < x.dim(2); ++t) {
      const auto to = features.mutable_row<float>(r * x.dim(2) + t);
      for (int64_t c = 0; c < channels; ++c) to[c] = x.part<float>(r, c)[t];
    }
  return b;
}

namespace {

// Labels shifted right by one, after the token that starts decoding; -100 becomes the padding.
PaddedBatch shifted_right(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                          const SpecialIds& ids) {
  const std::vector<int64_t> labels = integers(in, "labels", path);
  const Shape shape = in.tensors.at("labels").shape();
  check(shape.rank() == 2, "{}: labels: expected [batch, length], got {}", path, shape);
  const int64_t start = ids.decoder_start >= 0 ? ids.decoder_start : ids.bos;
  check(start >= 0 && start < spec.vocab_size,
        "{}: decoder_input_ids: missing, and config.json names no token "
        "that decoding starts with",
        path);
  const int64_t pad = std::max<int64_t>(ids.pad, 0);
  std::vector<int64_t> inputs(labels.size(), start);
  for (int64_t i = 0; i < std::ssize(labels); ++i)
    if (i % shape[1] > 0) inputs[i] = labels[i - 1] == kIgnored ? pad : labels[i - 1];
  TensorFile made;
  made.tensors.emplace("decoder_input_ids", Tensor::of(shape, inputs));
  return read_padded(made, path, "decoder_input_ids", "", spec.vocab_size, spec.longest());
}

// Encoded sources [B, S, D] in place of tokens: encoder_hidden_states are the rows of keys, and of values
// unless encoder_value_states has others.
PaddedBatch read_encoded(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                         ModelInput& input) {
  const Tensor& states = in.tensors.at("encoder_hidden_states");
  const int64_t width = spec.encoder_spec().output_width();
  const auto expect_states = [&](const char* name, const Tensor& x) {
    check(x.dtype() == DType::f32 && x.shape().rank() == 3 && x.width() == width &&
              x.dim(0) == states.dim(0) && x.dim(1) == states.dim(1),
          "{}: {}: expected F32 [batch, length, {}], got {} {}", path, name, width, name_of(x.dtype()),
          x.shape());
  };
  expect_states("encoder_hidden_states", states);
  TensorFile made;  // which rows are real
  made.tensors.emplace("ids",
                       Tensor::of({states.dim(0), states.dim(1)},
                                  std::vector<int64_t>(static_cast<size_t>(states.dim(0) * states.dim(1)))));
  if (const auto mask = in.tensors.find("attention_mask"); mask != in.tensors.end())
    made.tensors.emplace("attention_mask", mask->second);
  PaddedBatch b = read_padded(made, path, "ids", "attention_mask", 1, 0);
  const auto real_rows = [&](const Tensor& x) {
    std::vector<int32_t> rows(b.places.begin(), b.places.end());
    return select_rows(x.reshape({x.dim(0) * x.dim(1), width}), rows);
  };
  input.source_keys = real_rows(states);
  if (const auto values = in.tensors.find("encoder_value_states"); values != in.tensors.end()) {
    expect_states("encoder_value_states", values->second);
    input.source_values = real_rows(values->second);
  }
  return b;
}

// A mask for each pair of tokens takes the place of the stack's: all blocks must be able to follow it.
void expect_given_mask(const TensorFile& in, const ModelSpec& spec, const std::string& path) {
  check(spec.architecture != Architecture::encoder_decoder,
        "{}: attention_mask: a mask of pairs [B, T, T] is of a model of one stack", path);
  check(!spec.latents.any(),
        "{}: attention_mask: a mask of pairs [B, T, T] does not go with latents, which read all tokens",
        path);
  check(spec.all_attend(), "{}: attention_mask: a mask of pairs [B, T, T] needs blocks that all attend",
        path);
  check(std::ranges::none_of(spec.blocks_in_use(),
                             [&](const BlockSpec* block) {
                               return !block->attention.shared_query_key.empty() ||
                                      (spec.causal() && block->attention.relative.on());
                             }),
        "{}: attention_mask: a mask of pairs [B, T, T] goes neither with shared queries and keys nor with a "
        "decoder's relative attention",
        path);
  check(!in.tensors.contains("global_attention_mask") &&
            std::ranges::none_of(spec.blocks_in_use(),
                                 [](const BlockSpec* block) { return block->attention.global_projections; }),
        "{}: attention_mask: a mask of pairs [B, T, T] does not go with global attention", path);
}

}  // namespace

TensorFile with_rows_of_choices(const TensorFile& in, const std::string& path, int64_t& choices) {
  TensorFile out = in;
  const auto ids = in.tensors.find("input_ids");
  check(ids != in.tensors.end(), "{}: input_ids: missing", path);
  const Shape shape = ids->second.shape();
  check(shape.rank() == 3 && shape[0] > 0 && shape[1] > 0,
        "{}: input_ids: expected [questions, choices, length], got {}", path, shape);
  choices = shape[1];
  for (auto& [name, tensor] : out.tensors) {
    if (name == "labels") continue;
    check(tensor.shape() == shape, "{}: {}: expected {}, got {}", path, name, shape, tensor.shape());
    tensor = tensor.reshape({shape[0] * shape[1], shape[2]});
  }
  return out;
}

Inputs read_inputs(const TensorFile& in, const std::string& path, const ModelSpec& spec,
                   const SpecialIds& ids) {
  expect_known_inputs(in, spec, path);
  check(spec.order == Order::stack, "{}: a model whose order of tokens is {} cannot be told it here", path,
        name_of(spec.order));
  if (spec.features.kind == FeatureSpec::Kind::patches) return read_images(in, path, spec);
  Inputs out;
  const auto mask = in.tensors.find("attention_mask");
  const bool of_pairs = mask != in.tensors.end() && mask->second.shape().rank() == 3;
  if (of_pairs) expect_given_mask(in, spec, path);
  const int64_t vocab = spec.input_vocab_size(), longest = spec.encoder_spec().longest();
  const bool encoded = in.tensors.contains("encoder_hidden_states");
  check(encoded || !in.tensors.contains("encoder_value_states"),
        "{}: encoder_value_states: needs encoder_hidden_states, the rows of the keys", path);
  const PaddedBatch read = encoded               ? read_encoded(in, path, spec, out.input)
                           : spec.features.any() ? read_frames(in, path, spec, out.input.features)
                           : of_pairs ? read_with_pairs(in, path, "input_ids", "attention_mask", vocab,
                                                        longest, out.input.visibility)
                                      : read_padded(in, path, "input_ids", "attention_mask", vocab, longest);
  if (spec.architecture == Architecture::encoder_decoder) {
    out.source = read;
    out.tokens = in.tensors.contains("decoder_input_ids")
                     ? read_padded(in, path, "decoder_input_ids", "decoder_attention_mask", spec.vocab_size,
                                   spec.longest())
                     : shifted_right(in, path, spec, ids);
    check(out.tokens.rows == read.rows, "{}: decoder_input_ids: expected {} rows, got {}", path, read.rows,
          out.tokens.rows);
    if (!encoded) out.input.source = read.ids;
    out.input.source_layout = read.layout();
  } else {
    out.tokens = read;
  }
  out.input.ids = out.tokens.ids;
  out.input.layout = out.tokens.layout();
  if (spec.latents.any() && spec.output == Output::tokens) {
    out.positions = PaddedBatch::whole(out.tokens.rows, spec.context);
    out.input.query_layout = out.positions.layout();
  }
  if (spec.output == Output::sequence_classes || spec.output == Output::embedding)
    for (int64_t r = 0; r < out.tokens.rows; ++r)
      check(out.tokens.lengths[static_cast<size_t>(r)] > 0,
            "{}: input_ids: row {} has no token that is not padding, and so no class or vector", path, r);
  const auto of_tokens = [&](const char* name, Indices& to) {
    if (!in.tensors.contains(name)) return;
    check(in.tensors.at(name).shape() == Shape{read.rows, read.columns}, "{}: {}: expected [{}, {}]", path,
          name, read.rows, read.columns);
    const std::vector<int64_t> values = read.gather(integers(in, name, path));
    to = std::vector<int32_t>(values.begin(), values.end());
  };
  of_tokens("token_type_ids", out.input.segments);
  of_tokens("global_attention_mask", out.input.globals);
  return out;
}

}  // namespace qkv
