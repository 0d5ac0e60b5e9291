#include "qkv/infer/ensemble.h"

#include <algorithm>
#include <cmath>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {

Ensemble::Ensemble(std::vector<const Transformer*> models) : models_(std::move(models)) {
  check(!models_.empty(), "ensemble: expected at least one model");
  const ModelSpec& first = spec();
  for (size_t i = 1; i < models_.size(); ++i) {
    const ModelSpec& s = models_[i]->spec();
    check(s.architecture == first.architecture && s.order == first.order,
          "ensemble: a model of another kind ({}, order {}) than the first ({}, order {})",
          name_of(s.architecture), name_of(s.order), name_of(first.architecture), name_of(first.order));
    const auto same = [](const char* what, int64_t got, int64_t want) {
      check(got == want, "ensemble: a model with {} {}, the first has {}", what, got, want);
    };
    same("vocab_size", s.vocab_size, first.vocab_size);
    same("source_vocab_size", s.source_vocab_size, first.source_vocab_size);
    same("context", s.context, first.context);
    same("tokens at most", s.longest(), first.longest());
  }
}

EnsembleState::EnsembleState(const Ensemble& models, int64_t sequences) {
  for (const Transformer* model : models.models()) states_.emplace_back(*model, sequences);
}

EnsembleState::EnsembleState(const Ensemble& models, const Sources& sources) {
  for (const Transformer* model : models.models()) states_.emplace_back(*model, sources);
}

namespace {

// The logarithm of the mean of the models' probabilities, or the logits of a single model.
Tensor mean_of(const std::vector<Tensor>& logits) {
  if (logits.size() == 1 || !logits[0].defined()) return logits[0];
  const int64_t vocab = logits[0].width();
  Tensor out = Tensor::empty({logits[0].rows(), vocab}, DType::f32);
  const auto share = 1 / static_cast<float>(logits.size());
  parallel_for(out.rows(), 1, [&](int64_t row, int64_t end) {
    std::vector<Span<const float>> z(logits.size());
    std::vector<float> log_z(logits.size());
    for (; row < end; ++row) {
      for (size_t m = 0; m < logits.size(); ++m) {
        z[m] = logits[m].row<float>(row);
        log_z[m] = static_cast<float>(kernels().log_sum_exp(std::ssize(z[m]), z[m].data()));
      }
      const auto to = out.mutable_row<float>(row);
      for (int64_t v = 0; v < vocab; ++v) {
        float most = z[0][v] - log_z[0], sum = 0;
        for (size_t m = 1; m < z.size(); ++m) most = std::max(most, z[m][v] - log_z[m]);
        for (size_t m = 0; m < z.size(); ++m) sum += std::exp(z[m][v] - log_z[m] - most);
        to[v] = most + std::log(sum * share);
      }
    }
  });
  return out;
}

}  // namespace

Tensor EnsembleState::advance(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& options) {
  std::vector<Tensor> logits = {states_.front().advance(tokens, options)};
  for (size_t i = 1; i < states_.size(); ++i)
    logits.push_back(states_[i].advance(tokens, {.prefixes = options.prefixes, .wanted = options.wanted}));
  return mean_of(logits);
}

void EnsembleState::reorder(std::span<const int32_t> sources) {
  for (DecodeState& state : states_) state.reorder(sources);
}

bool EnsembleState::can_truncate(int64_t sequence, int64_t length) const {
  return std::ranges::all_of(states_,
                             [&](const DecodeState& state) { return state.can_truncate(sequence, length); });
}

void EnsembleState::join(const EnsembleState& other, std::span<const int32_t> sequences) {
  check(states_.size() == other.states_.size(), "join: the states of another ensemble");
  for (size_t i = 0; i < states_.size(); ++i) states_[i].join(other.states_[i], sequences);
}

int64_t EnsembleState::bytes() const {
  int64_t bytes = 0;
  for (const DecodeState& state : states_) bytes += state.bytes();
  return bytes;
}

EnsembleState::Saved EnsembleState::save() const {
  Saved out;
  for (const DecodeState& state : states_) out.push_back(state.save());
  return out;
}

void EnsembleState::load(const Saved& saved, int64_t length) {
  check(saved.size() == states_.size(), "load: the states of another ensemble");
  for (size_t i = 0; i < states_.size(); ++i) states_[i].load(saved[i], length);
}

void EnsembleState::truncate(int64_t sequence, int64_t length) {
  for (DecodeState& state : states_) state.truncate(sequence, length);
}

}  // namespace qkv
