#include "qkv/models/transformer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/models/recurrent.h"
#include "qkv/ops/elementwise.h"
#include "qkv/ops/linear.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

constexpr float kTemperature = 0.05F;  // of pairs of vectors (Gao et al. 2021, SimCSE)

// The places that use randomness, apart from each other.
constexpr uint32_t kEmbeddingSite = 1, kSourceEmbeddingSite = 2, kHeadSite = 3, kStackSite = 16,
                   kEncoderSite = 1 << 20;

std::vector<int32_t> predicted_rows(const Tensor& targets) {
  std::vector<int32_t> rows;
  const auto wanted = targets.values<int32_t>();
  for (int64_t i = 0; i < std::ssize(wanted); ++i)
    if (wanted[i] != kIgnored) rows.push_back(static_cast<int32_t>(i));
  return rows;
}

// The ids of each sequence from the last to the first.
Tensor reversed(const Tensor& ids, const std::vector<int32_t>& offsets) {
  Tensor out = ids.clone();
  const auto id = out.mutable_values<int32_t>();
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    std::ranges::reverse(id.subspan(offsets[s], offsets[s + 1] - offsets[s]));
  return out;
}

// What a stack's embedding has; positions are for blocks of attention.
ModelSpec embedded_for(Cell cell, ModelSpec spec) {
  if (cell == Cell::none) return spec;
  spec.positions = Positions::none;
  spec.grid = spec.axial_width = 0;
  return spec;
}

// An encoder-decoder's features are the encoder's.
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
  if (encoder_cell != Cell::none)
    encoder_ = std::make_unique<RecurrentEncoder>(parameters_, "encoder", spec, kEncoderSite);
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
  if (spec.output == Output::tokens) add_unembedding(normal);
  if (spec.pooler)
    pooler_ =
        std::make_unique<Linear>(parameters_, "pooler", spec.output_width(), spec.width, true, spec.init_std);
  if (spec.classes() > 0) {
    classifier_ = &parameters_.add("classifier.weight", {spec.classes(), spec.pooled_width()},
                                   ParameterKind::matrix, normal);
    if (spec.classifier_bias)
      classifier_bias_ = &parameters_.add("classifier.bias", {spec.classes()}, ParameterKind::vector,
                                          {Initializer::Kind::zeros});
  }
  if (spec.features.distilled)
    distilled_classifier_ = std::make_unique<Linear>(parameters_, "classifier.distilled", spec.output_width(),
                                                     spec.classes(), true, spec.init_std);
  for (const AdapterSpec& a : spec.lora.adapters)
    check(parameters_.find(Adapters::name_of_a(a)) != nullptr,
          "model: '{}' is no product that can be adapted", a.parameter);
}

void Transformer::add_unembedding(const Initializer& normal) {
  const int64_t width = spec_.head_width > 0        ? spec_.head_width
                        : spec_.embedding_width > 0 ? spec_.embedding_width
                                                    : spec_.output_width();
  if (spec_.embedding_width > 0 && spec_.head_width == 0)
    out_projection_ = std::make_unique<Linear>(parameters_, "unembedding.projection", spec_.output_width(),
                                               width, false, spec_.init_std);
  if (spec_.head_width > 0) {
    head_ = std::make_unique<Linear>(parameters_, "head", spec_.output_width(), width, true, spec_.init_std);
    head_norm_ = std::make_unique<Norm>(parameters_, "head.norm", width, spec_.norm());
  }
  unembedding_ = spec_.tied ? token_
                            : &parameters_.add("unembedding.weight", {spec_.vocab_size, width},
                                               ParameterKind::matrix, normal);
  if (spec_.unembedding_bias)
    unembedding_bias_ = &parameters_.add("unembedding.bias", {spec_.vocab_size}, ParameterKind::vector,
                                         {Initializer::Kind::zeros});
}

void Transformer::set_recompute(bool on) {
  for (Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->set_recompute(on);
}

void Transformer::set_layer_drop(float p) {
  for (Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->set_layer_drop(p);
}

void Transformer::update_buffers() const {
  for (const Stack* stack : {encoder_.get(), decoder_.get()})
    if (stack != nullptr) stack->update_buffers();
}

Tensor Transformer::encode(const ModelInput& input, const Context& context) const {
  check(encoder_ && decoder_, "model: a model of one stack has no source to encode");
  check(input.source.defined() && input.source_layout.sequences() == input.layout.sequences(),
        "model: {} sequences need as many sources, got {}", input.layout.sequences(),
        input.source.defined() ? input.source_layout.sequences() : 0);
  Context inner = context;
  inner.layout = input.source_layout;
  inner.segments = Tensor();
  inner.states = nullptr;
  const InputEmbedding& embedding = source_embedding_ ? *source_embedding_ : *embedding_;
  const Tensor ids =
      spec_.source_reversed ? reversed(input.source, input.source_layout.offsets) : input.source;
  return encoder_->forward(embedding.forward(ids, input.features, inner, kSourceEmbeddingSite), inner);
}

namespace {

// flags i32 [N] -> i32 [N + 1]: how many rows before each, and before the end, have one.
Tensor counts_before(const Tensor& flags, int64_t rows) {
  check(flags.dtype() == DType::i32 && flags.count() == rows,
        "model: {} tokens need as many i32 flags of global ones", rows);
  std::vector<int32_t> counts = {0};
  for (const int32_t f : flags.values<int32_t>()) counts.push_back(counts.back() + (f != 0));
  return Tensor::of({rows + 1}, counts);
}

}  // namespace

Tensor Transformer::hidden(const ModelInput& input, const Context& context) const {
  Context inner = context;
  inner.layout = input.layout;
  inner.segments = input.segments;
  inner.ranks = input.ranks;
  if (input.globals.defined()) inner.globals = counts_before(input.globals, input.layout.rows());
  if (encoder_ && decoder_ && input.source.defined()) {
    inner.source = encode(input, context);
    inner.source_layout = input.source_layout;
  }
  const Stack& stack = decoder_ ? *decoder_ : *encoder_;
  const Tensor features = decoder_ ? Tensor() : input.features;
  return stack.forward(embedding_->forward(input.ids, features, inner, kEmbeddingSite), inner);
}

Tensor Transformer::projected(const Tensor& hidden) const {
  if (head_) return head_norm_->forward(activation(spec_.activation_of_head(), head_->forward(hidden)));
  const Tensor x = out_projection_ ? out_projection_->forward(hidden) : hidden;
  const float root = spec_.unembedding_scaled ? 1 / std::sqrt(static_cast<float>(spec_.width)) : 1;
  const float factor = root * spec_.logit_multiplier;
  return factor == 1 ? x : scaled(x, factor);
}

Tensor Transformer::unembedding() const {
  return spec_.embedding_unit ? unit_rows(unembedding_->value) : unembedding_->value;
}

Tensor Transformer::logits(const Tensor& hidden) const {
  check(unembedding_ != nullptr, "model: output {} has no logits over the vocabulary", name_of(spec_.output));
  const Tensor z = linear(projected(hidden), unembedding(),
                          unembedding_bias_ ? unembedding_bias_->value : Tensor(), DType::f32);
  if (spec_.logit_cap == 0) return z;
  return scaled(activation(Activation::tanh, scaled(z, 1 / spec_.logit_cap)), spec_.logit_cap);
}

Tensor Transformer::classifier_bias() const {
  return classifier_bias_ ? classifier_bias_->value : Tensor();
}

Tensor Transformer::pooled(const Tensor& hidden, const ModelInput& input) const {
  check(spec_.architecture != Architecture::encoder_decoder, "model: {} has no vector for a sequence",
        name_of(spec_.architecture));
  const std::vector<int32_t>& offsets = input.layout.offsets;
  const auto row_of_each = [&] {
    std::vector<int32_t> rows;
    for (size_t s = 0; s + 1 < offsets.size(); ++s)
      rows.push_back(spec_.pooling == Pooling::first ? offsets[s] : offsets[s + 1] - 1);
    return Tensor::of({input.layout.sequences()}, rows);
  };
  const Tensor rows = spec_.pooling == Pooling::mean ? mean_of_sequences(hidden, offsets)
                                                     : select_rows(hidden, row_of_each());
  return pooler_ ? activation(spec_.pooler_activation, pooler_->forward(rows)) : rows;
}

Tensor Transformer::class_features(const Tensor& hidden, const ModelInput& input,
                                   const Context& context) const {
  check(classifier_ != nullptr, "model: output {} has no classes", name_of(spec_.output));
  const bool of_sequence = spec_.output == Output::sequence_classes || spec_.output == Output::tokens;
  const Tensor x = of_sequence ? pooled(hidden, input)
                   : pooler_   ? activation(spec_.pooler_activation, pooler_->forward(hidden))
                               : hidden;
  return dropout(x, context.dropout(spec_.head_dropout, kHeadSite));
}

Tensor Transformer::classes(const Tensor& hidden, const ModelInput& input, const Context& context) const {
  if (distilled_classifier_) {
    const auto [first, second] = distilled_classes(hidden, input);
    return scaled(add(first, second), 0.5F);
  }
  return linear(class_features(hidden, input, context), classifier_->value, classifier_bias(), DType::f32);
}

std::pair<Tensor, Tensor> Transformer::distilled_classes(const Tensor& hidden,
                                                         const ModelInput& input) const {
  check(distilled_classifier_ != nullptr, "model: it has no distillation token");
  std::vector<int32_t> second(input.layout.offsets.begin(), input.layout.offsets.end() - 1);
  for (int32_t& row : second) ++row;
  const Tensor rows = select_rows(hidden, Tensor::of({std::ssize(second)}, second));
  return {linear(pooled(hidden, input), classifier_->value, classifier_bias(), DType::f32),
          convert(distilled_classifier_->forward(rows), DType::f32)};
}

CrossEntropyResult Transformer::token_loss(const Tensor& x, const Tensor& targets, float scale,
                                           const LossTerms& terms) const {
  const Tensor bias = unembedding_bias_ ? unembedding_bias_->value : Tensor();
  // Where few tokens are predicted, only their rows meet the vocabulary.
  const std::vector<int32_t> rows = predicted_rows(targets);
  if (std::ssize(rows) * 2 > targets.count() || rows.empty())
    return unembed_cross_entropy(projected(x), unembedding(), bias, targets, scale, terms, spec_.logit_cap);
  std::vector<int32_t> kept;
  for (const int32_t r : rows) kept.push_back(targets.values<int32_t>()[r]);
  const int64_t n = std::ssize(rows);
  return unembed_cross_entropy(projected(select_rows(x, Tensor::of({n}, rows))), unembedding(), bias,
                               Tensor::of({n}, kept), scale, terms, spec_.logit_cap);
}

CrossEntropyResult Transformer::loss(const ModelInput& input, const Tensor& targets, const Context& context,
                                     float scale, const LossTerms& terms) const {
  Context inner = context;
  // Vectors are learnt from pairs of texts, and have no targets.
  const int64_t predicted = spec_.output == Output::embedding ? input.layout.sequences() / 2
                            : spec_.output == Output::span    ? targets.dim(0)
                                                              : std::ssize(predicted_rows(targets));
  inner.balance_scale = scale * static_cast<float>(predicted);
  check(!distilled_classifier_, "model: a distillation token learns from a teacher, and there is none");
  const Tensor x = hidden(input, inner);
  if (spec_.output == Output::tokens) {
    CrossEntropyResult tokens = token_loss(x, targets, scale, terms);
    if (!input.sequence_targets.defined()) return tokens;
    const int64_t sequences = std::ssize(predicted_rows(input.sequence_targets));
    if (sequences == 0) return tokens;
    // A mean beside a mean: `scale` counts tokens.
    const float of_sequences = scale * static_cast<float>(tokens.count) / static_cast<float>(sequences);
    const CrossEntropyResult classes =
        unembed_cross_entropy(class_features(x, input, context), classifier_->value, classifier_bias(),
                              input.sequence_targets, of_sequences);
    tokens.loss = add(tokens.loss, classes.loss);
    return tokens;
  }
  if (spec_.output == Output::span) {
    const Tensor scores = linear(class_features(x, input, context), classifier_->value, classifier_bias());
    const SpanLoss span =
        span_cross_entropy(convert(scores, DType::f32), input.layout.offsets, targets, scale);
    return {span.loss, {}, span.total, span.count};
  }
  if (spec_.output == Output::embedding) {  // the first half of the sequences against the second
    const int64_t pairs = input.layout.sequences() / 2;
    check(input.layout.sequences() == 2 * pairs, "model: {} sequences are no pairs",
          input.layout.sequences());
    const Tensor vectors = unit_rows(convert(pooled(x, input), DType::f32));
    const auto half = [&](int32_t first) {
      std::vector<int32_t> rows(pairs);
      std::iota(rows.begin(), rows.end(), first);
      return select_rows(vectors, Tensor::of({pairs}, rows));
    };
    const ContrastiveLoss c =
        contrastive_cross_entropy(half(0), half(static_cast<int32_t>(pairs)), kTemperature, scale);
    return {c.loss, {}, c.total, pairs};
  }
  return unembed_cross_entropy(class_features(x, input, context), classifier_->value, classifier_bias(),
                               targets, scale, terms);
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
