#include "qkv/infer/decode_state.h"

#include <algorithm>

#include "qkv/ops/parts.h"
#include "qkv/ops/rows.h"

namespace qkv {
namespace {

// Tokens of a prompt that are read at once: more take memory, but no less time.
constexpr int64_t kAtOnce = 256;

}  // namespace

bool continues_in_parts(const ModelSpec& spec) {
  if (spec.memory > 0 || spec.hashes()) return false;
  for (const BlockSpec* block : spec.blocks_in_use()) {
    const RotaryScaling scaling = block->attention.rotary.scaling;
    const bool by_length = scaling == RotaryScaling::dynamic || scaling == RotaryScaling::longrope;
    if (block->experts.capacity > 0 || (block->positions == Positions::rotary && by_length)) return false;
  }
  return true;
}

bool looks_back(const ModelSpec& spec) {
  return spec.architecture == Architecture::decoder && spec.order != Order::prefix &&
         continues_in_parts(spec);
}

DecodeState::DecodeState(const Transformer& model, int64_t sequences)
    : model_(&model),
      lengths_(sequences, 0),
      reads_again_(model.spec().hashes()),
      texts_(reads_again_ ? sequences : 0),
      states_(model.make_states(sequences)) {}

DecodeState::DecodeState(const Transformer& model, const Sources& sources)
    : DecodeState(model, static_cast<int64_t>(sources.ids.size())) {
  features_ = sources.features;
  const int64_t longest = model.spec().encoder_spec().longest();
  std::vector<int32_t> flat, lengths;
  for (const auto& s : sources.ids) {
    check(!s.empty(), "decode: source {} is empty: expected at least one token", lengths.size());
    check(static_cast<int64_t>(s.size()) <= longest, "decode: source {} has {} tokens, the context is {}",
          lengths.size(), s.size(), longest);
    flat.insert(flat.end(), s.begin(), s.end());
    lengths.push_back(static_cast<int32_t>(s.size()));
  }
  source_ = std::move(flat);
  source_layout_ = Layout::of(lengths);
  std::vector<int32_t> flags;
  for (const auto& of_source : sources.globals) flags.insert(flags.end(), of_source.begin(), of_source.end());
  if (!flags.empty()) globals_ = std::move(flags);
}

void DecodeState::expect_room(int64_t sequence, int64_t tokens) const {
  const int64_t wanted = lengths_[sequence] + tokens, longest = model_->spec().longest();
  check(wanted <= longest, "decode: sequence {} would have {} tokens, the context is {}", sequence, wanted,
        longest);
}

Tensor DecodeState::extend(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& o) {
  const NoGrad guard;
  check(static_cast<int64_t>(tokens.size()) == sequences(), "decode: {} sequences, got tokens of {}",
        sequences(), tokens.size());
  check(o.wanted.empty() || o.wanted.size() == tokens.size(),
        "decode: {} sequences, got the wanted logits of {}", sequences(), o.wanted.size());
  std::vector<int32_t> flat, counts;
  for (size_t s = 0; s < tokens.size(); ++s) {
    expect_room(static_cast<int64_t>(s), std::ssize(tokens[s]));
    flat.insert(flat.end(), tokens[s].begin(), tokens[s].end());
    counts.push_back(static_cast<int32_t>(tokens[s].size()));
  }
  check(!flat.empty(), "decode: no sequence got a token");
  ModelInput input{std::move(flat), Layout::of(counts, lengths_), {}, source_, source_layout_};
  input.features = features_;
  if (source_.defined()) input.globals = globals_;
  if (model_->spec().order == Order::prefix) {
    const auto fresh = std::count(lengths_.begin(), lengths_.end(), 0);
    check(fresh == 0 || fresh == sequences(), "decode: the prompts of a prefix LM are read at the same time");
    if (fresh > 0)
      input.visibility =
          prefix_ranks(input.layout, o.prefixes.empty() ? std::span<const int32_t>(counts) : o.prefixes);
  }
  Context context;
  context.probe = o.probe;
  const bool adapted = std::ranges::any_of(o.adapters, [](const AdapterWeights* a) { return a != nullptr; });
  if (adapted) context.adapters = o.adapters;
  for (size_t s = 0; s < texts_.size(); ++s)
    texts_[s].insert(texts_[s].end(), tokens[s].begin(), tokens[s].end());
  context.states = reads_again_ ? nullptr : &states_;
  Tensor hidden = reads_again_ ? read_again(counts, context) : model_->hidden(input, context);
  source_ = {};
  globals_ = {};
  features_ = {};
  for (size_t s = 0; s < counts.size(); ++s) lengths_[s] += counts[s];
  if (o.hidden != nullptr) *o.hidden = hidden;
  return hidden;
}

Tensor DecodeState::read_again(const std::vector<int32_t>& counts, Context& context) const {
  std::vector<int32_t> flat, lengths, rows;
  for (size_t s = 0; s < texts_.size(); ++s) {
    const size_t length = counts[s] > 0 ? texts_[s].size() : 0;
    flat.insert(flat.end(), texts_[s].begin(), texts_[s].begin() + static_cast<int64_t>(length));
    lengths.push_back(static_cast<int32_t>(length));
    for (int32_t i = counts[s]; i > 0; --i) rows.push_back(static_cast<int32_t>(flat.size()) - i);
  }
  const Tensor hidden = model_->hidden({std::move(flat), Layout::of(lengths)}, context);
  return select_rows(hidden, rows);
}

Tensor DecodeState::advance(const std::vector<std::vector<int32_t>>& tokens, const PassOptions& o) {
  const NoGrad guard;
  if (sequences() == 1 && tokens.size() == 1 && std::ssize(tokens[0]) > kAtOnce && o.probe == nullptr &&
      (o.wanted.empty() || o.wanted[0] == 1) && looks_back(model_->spec())) {
    const int64_t n = std::ssize(tokens[0]), parts = (n + kAtOnce - 1) / kAtOnce;
    expect_room(0, n);
    std::vector<Tensor> rows;
    for (int64_t i = 0; i < parts; ++i) {
      const std::vector<int32_t> part(tokens[0].begin() + i * n / parts,
                                      tokens[0].begin() + (i + 1) * n / parts);
      const Tensor hidden = extend({part}, {.adapters = o.adapters});
      if (o.hidden != nullptr) rows.push_back(hidden);
      if (i + 1 < parts) continue;
      if (o.hidden != nullptr) *o.hidden = join_rows(rows);
      return model_->logits(hidden.slice_rows(hidden.dim(0) - 1, hidden.dim(0)));
    }
  }
  const Tensor hidden = extend(tokens, o);
  std::vector<int64_t> rows;  // those of hidden whose logits are wanted
  int64_t end = 0;
  for (size_t s = 0; s < tokens.size(); ++s) {
    const int64_t fed = std::ssize(tokens[s]),
                  wanted = o.wanted.empty() ? std::min<int64_t>(fed, 1) : o.wanted[s];
    check(wanted >= 0 && wanted <= fed, "decode: sequence {} gets {} tokens, logits after {} are wanted", s,
          fed, wanted);
    end += fed;
    for (int64_t row = end - wanted; row < end; ++row) rows.push_back(row);
  }
  if (rows.empty()) return {};
  if (std::ssize(rows) == hidden.dim(0)) return model_->logits(hidden);
  Tensor some = Tensor::empty({std::ssize(rows), hidden.width()}, hidden.dtype());
  for (int64_t i = 0; i < some.dim(0); ++i) copy_rows(hidden, rows[i], 0, 1, some, i);
  return model_->logits(some);
}

DecodeState DecodeState::fork() const {
  DecodeState copy(*model_, 0);
  copy.lengths_ = lengths_;
  copy.texts_ = texts_;
  copy.source_ = source_;
  copy.features_ = features_;
  copy.source_layout_ = source_layout_;
  copy.states_ = states_.fork();
  return copy;
}

void DecodeState::reorder(std::span<const int32_t> sources) {
  check(!source_.defined(), "reorder: the sources are not encoded yet");
  std::vector<int32_t> lengths;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    lengths.push_back(lengths_[s]);
  }
  if (reads_again_) {
    std::vector<std::vector<int32_t>> texts;
    for (const int32_t s : sources) texts.push_back(texts_[s]);
    texts_ = std::move(texts);
  }
  states_.reorder(sources);
  lengths_ = std::move(lengths);
}

void DecodeState::join(const DecodeState& other, std::span<const int32_t> sequences) {
  check(model_ == other.model_, "join: the state of another model");
  check(!source_.defined() && !other.source_.defined(), "join: the sources are not encoded yet");
  states_.join(other.states_, sequences);
  for (const int32_t s : sequences) {
    lengths_.push_back(other.lengths_[s]);
    if (reads_again_) texts_.push_back(other.texts_[s]);
  }
}

bool DecodeState::can_truncate(int64_t sequence, int64_t length) const {
  return length <= lengths_[sequence] && (reads_again_ || states_.can_truncate(sequence, length));
}

int64_t DecodeState::bytes() const {
  int64_t bytes = 0;
  for (const auto& text : texts_) bytes += std::ssize(text) * static_cast<int64_t>(sizeof(int32_t));
  for (const auto& state : states_.all()) bytes += state->bytes();
  return bytes;
}

std::vector<std::vector<Tensor>> DecodeState::save() const {
  check(!source_.defined(), "save: the sources are not encoded yet");
  check(!reads_again_, "save: a text that is read again has no states of layers");
  std::vector<std::vector<Tensor>> layers;
  for (const auto& state : states_.all()) layers.push_back(state->save());
  return layers;
}

void DecodeState::load(const std::vector<std::vector<Tensor>>& layers, int64_t length) {
  check(!reads_again_, "load: a text that is read again has no states of layers");
  const auto states = states_.all();
  check(layers.size() == states.size(), "load: states of {} layers, the model has {}", layers.size(),
        states.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    states[i]->load(layers[i]);
    check(states[i]->sequences() == 1 && states[i]->length(0) == length,
          "load: expected one sequence of {} tokens", length);
  }
  lengths_ = {static_cast<int32_t>(length)};
}

void DecodeState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  if (reads_again_)
    texts_[sequence].resize(length);
  else
    states_.truncate(sequence, length);
  lengths_[sequence] = static_cast<int32_t>(length);
}

}  // namespace qkv
