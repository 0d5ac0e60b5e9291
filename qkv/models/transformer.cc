#include "qkv/models/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/models/latents.h"
#include "qkv/models/recurrent.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// Random sites, far enough apart from each other; 3 is the classifier's.
constexpr uint32_t kEmbeddingSite = 1, kSourceEmbeddingSite = 2, kStackSite = 16, kMtpSite = 1 << 19,
                   kEncoderSite = 1 << 20;

// The ids of each sequence from the last to the first.
Indices reversed(const Indices& ids, const std::vector<int32_t>& offsets) {
  std::vector<int32_t> out(ids.values().begin(), ids.values().end());
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    std::reverse(out.begin() + offsets[s], out.begin() + offsets[s + 1]);
  return out;
}

// The spec of a stack's embedding: only blocks have positions, recurrences have none.
ModelSpec embedded_for(Cell cell, ModelSpec spec) {
  if (cell == Cell::none) return spec;
  spec.positions = Positions::none;
  spec.grid = spec.axial_width = 0;
  return spec;
}

// In an encoder-decoder, features are for the encoder.
ModelSpec without_features(ModelSpec spec) {
  if (spec.architecture == Architecture::encoder_decoder) spec.features = {};
  return spec;
}

}  // namespace

Transformer::~Transformer() = default;

Transformer::Transformer(const ModelSpec& spec) : spec_(spec) {
  check_spec(spec);
  parameters_.adapt(spec.lora.adapters);
  const Initializer normal{Initializer::Kind::normal, spec.init_std};
  const int64_t token_width = spec.embedding_width > 0 ? spec.embedding_width : spec.width;
  token_ = &parameters_.add("embedding.token", {spec.vocab_size, token_width}, ParameterKind::matrix, normal);
  token_->any_type = !spec.embedding_unit;
  const bool both = spec.architecture == Architecture::encoder_decoder;
  const auto [encoder_cell, decoder_cell] = std::pair(spec.recurrence.encoder, spec.recurrence.decoder);
  const ModelSpec encoder_spec = spec.encoder_spec();
  const bool apart = spec.stacks_apart || spec.source_vocab_size > 0 || spec.encoder.width > 0 ||
                     (encoder_cell == Cell::none) != (decoder_cell == Cell::none);
  Parameter* source_token = token_;
  if (spec.source_vocab_size > 0 || spec.encoder.width > 0)
    source_token =
        &parameters_.add("encoder.embedding.token",
                         {spec.input_vocab_size(), spec.encoder.width > 0 ? spec.encoder.width : token_width},
                         ParameterKind::matrix, normal);
  embedding_ = std::make_unique<InputEmbedding>(parameters_, apart ? "decoder.embedding" : "embedding",
                                                embedded_for(decoder_cell, without_features(spec)), *token_);
  if (apart)
    source_embedding_ = std::make_unique<InputEmbedding>(
        parameters_, "encoder.embedding", embedded_for(encoder_cell, encoder_spec), *source_token);
  if (spec.layer_input_width > 0)
    layer_inputs_ = std::make_unique<LayerInputs>(parameters_, "embedding", spec);
  if (encoder_cell != Cell::none)
    encoder_ = std::make_unique<RecurrentEncoder>(parameters_, "encoder", spec, kEncoderSite);
  else if (spec.latents.any())
    encoder_ = std::make_unique<LatentStack>(parameters_, "encoder", spec, kStackSite);
  else if (spec.architecture != Architecture::decoder)
    encoder_ =
        std::make_unique<BlockStack>(parameters_, "encoder", encoder_spec,
                                     BlockStack::Shape{both ? spec.encoder_layers : spec.layers, Mask::full(),
                                                       0, both ? kEncoderSite : kStackSite});
  if (decoder_cell != Cell::none)
    decoder_ = std::make_unique<RecurrentDecoder>(parameters_, "decoder", spec, kStackSite);
  else if (spec.architecture != Architecture::encoder)
    decoder_ = std::make_unique<BlockStack>(
        parameters_, "decoder", spec,
        BlockStack::Shape{spec.layers, Mask::causal(), both ? encoder_spec.width : 0, kStackSite});
  if (spec.output == Output::tokens)
    unembedding_ = std::make_unique<Unembedding>(parameters_, spec_, *token_);
  if (spec.mtp.any())
    mtp_ = std::make_unique<MtpModules>(parameters_, spec_, *embedding_, *unembedding_, kMtpSite);
  pooler_ = std::make_unique<Pooler>(parameters_, spec_);
  if (spec.classes() > 0) classifier_ = std::make_unique<Classifier>(parameters_, spec_, *pooler_);
  head_ = make_head(spec, unembedding_.get(), *pooler_, classifier_.get());
  for (const AdapterSpec& a : spec.lora.adapters)
    check(parameters_.find(Adapters::name_of_a(a)) != nullptr,
          "model: '{}' is no product that can be adapted", a.parameter);
}

void Transformer::set_recompute(bool on) {
  for (Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->set_recompute(on);
  if (mtp_) mtp_->set_recompute(on);
}

void Transformer::set_layer_drop(float p) {
  for (Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->set_layer_drop(p);
}

void Transformer::update_buffers() const {
  for (const Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->update_buffers();
  if (mtp_) mtp_->update_buffers();
}

namespace {

// flags [N] -> [N + 1]: how many rows before each row, and before the end, have a flag.
Indices counts_before(const Indices& flags, int64_t rows) {
  check(flags.count() == rows, "model: {} tokens need as many flags of global ones", rows);
  std::vector<int32_t> counts = {0};
  for (const int32_t f : flags.values()) counts.push_back(counts.back() + (f != 0));
  return counts;
}

}  // namespace

Tensor Transformer::encode(const ModelInput& input, const Context& context) const {
  check(encoder_ && decoder_, "model: a model of one stack has no source to encode");
  check(input.source.defined() && input.source_layout.sequences() == input.layout.sequences(),
        "model: {} sequences need as many sources, got {}", input.layout.sequences(),
        input.source.defined() ? input.source_layout.sequences() : 0);
  Context inner = context;
  inner.layout = input.source_layout;
  inner.segments = {};
  if (input.globals.defined()) inner.globals = counts_before(input.globals, input.source_layout.rows());
  inner.states = nullptr;
  const InputEmbedding& embedding = source_embedding_ ? *source_embedding_ : *embedding_;
  const Indices ids =
      spec_.source_reversed ? reversed(input.source, input.source_layout.offsets) : input.source;
  return encoder_->forward(embedding.forward(ids, input.features, inner, "encoder", kSourceEmbeddingSite),
                           inner);
}

void Transformer::take_source(const ModelInput& input, Context& context) const {
  check(encoder_ && decoder_ && spec_.recurrence.decoder == Cell::none,
        "model: only blocks with cross-attention read given rows of a source");
  const Shape wanted = {input.source_layout.rows(), spec_.encoder_spec().output_width()};
  check(input.source_layout.sequences() == input.layout.sequences(),
        "model: {} sequences need as many sources, got {}", input.layout.sequences(),
        input.source_layout.sequences());
  for (const Tensor* rows : {&input.source_keys, &input.source_values})
    check(!rows->defined() || rows->shape() == wanted, "model: rows of a source: expected {}, got {}", wanted,
          rows->shape());
  context.source = convert(input.source_keys, parameters_.compute);
  if (input.source_values.defined())
    context.source_values = convert(input.source_values, parameters_.compute);
  context.source_layout = input.source_layout;
}

Tensor Transformer::hidden(const ModelInput& input, const Context& context) const {
  Context inner = context;
  inner.layout = input.layout;
  inner.segments = input.segments;
  inner.visibility = input.visibility;
  inner.query_layout = input.query_layout;
  if (input.globals.defined() && !decoder_) inner.globals = counts_before(input.globals, input.layout.rows());
  if (input.source_keys.defined()) {
    take_source(input, inner);
  } else if (encoder_ && decoder_ && input.source.defined()) {
    inner.source = encode(input, context);
    inner.source_layout = input.source_layout;
  }
  const Stack& stack = decoder_ ? *decoder_ : *encoder_;
  const Tensor features = decoder_ ? Tensor() : input.features;
  const Tensor x =
      embedding_->forward(input.ids, features, inner, decoder_ ? "decoder" : "encoder", kEmbeddingSite);
  if (layer_inputs_) inner.layer_inputs = layer_inputs_->forward(input.ids, x, inner);
  return stack.forward(x, inner);
}

const Unembedding& Transformer::unembedding_of_tokens() const {
  check(unembedding_ != nullptr, "model: output {} has no logits over the vocabulary", name_of(spec_.output));
  return *unembedding_;
}

const Classifier& Transformer::classifier() const {
  check(classifier_ != nullptr, "model: output {} has no classes", name_of(spec_.output));
  return *classifier_;
}

CrossEntropyResult Transformer::loss(const ModelInput& input, const Indices& targets, const Context& context,
                                     float scale, const LossTerms& terms) const {
  Context inner = context;
  inner.balance_scale = scale * static_cast<float>(head_->predictions(input, targets));
  const Tensor rows = hidden(input, inner);
  CrossEntropyResult result = head_->loss({rows, input, targets, context}, scale, terms);
  if (mtp_ && (!recording() || (spec_.mtp.weight > 0 && !spec_.lora.any()))) {
    inner.layout = input.layout;
    mtp_->add_losses(result, rows, input.ids, targets, inner, scale, terms);
  }
  return result;
}

DecodingStates Transformer::make_states(int64_t sequences) const {
  check(decoder_ != nullptr, "model: an encoder does not decode");
  return decoder_->make_states(sequences);
}

SegmentStates Transformer::make_segment_states(int64_t sequences) const {
  check(spec_.memory > 0, "model: it has no memory of segments (model.memory)");
  return decoder_->make_segment_states(sequences);
}

}  // namespace qkv
