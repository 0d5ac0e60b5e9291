// The decoding states of a model's layers: each layer finds its own by itself.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "qkv/nn/context.h"
#include "qkv/nn/layer_state.h"
#include "qkv/nn/segment_state.h"

namespace qkv {

// A state for each layer that remembers, in the layers' order. Layers are keys by their addresses, so that
// states are of one model.
template <typename State>
class LayerStates {
 public:
  void add(const void* layer, std::unique_ptr<State> state) {
    places_.emplace(layer, states_.size());
    states_.push_back(std::move(state));
  }
  // The state of a layer; throws Error where there is none.
  State& of(const void* layer) const {
    const auto it = places_.find(layer);
    check(it != places_.end(), "states: a layer has none: they are another model's");
    return *states_[it->second];
  }
  std::span<const std::unique_ptr<State>> all() const { return states_; }

  // See LayerState.
  LayerStates fork() const requires(std::is_same_v<State, LayerState>) {
    LayerStates copy;
    copy.places_ = places_;
    for (const auto& state : states_) copy.states_.push_back(state->fork());
    return copy;
  }
  void reorder(std::span<const int32_t> sources) const {
    for (const auto& state : states_) state->reorder(sources);
  }
  void join(const LayerStates& other, std::span<const int32_t> sequences) const
      requires(std::is_same_v<State, LayerState>) {
    check(states_.size() == other.states_.size(), "join: the states of another model");
    for (size_t i = 0; i < states_.size(); ++i) states_[i]->join(*other.states_[i], sequences);
  }
  bool can_truncate(int64_t sequence, int64_t length) const requires(std::is_same_v<State, LayerState>) {
    for (const auto& state : states_)
      if (!state->can_truncate(sequence, length)) return false;
    return true;
  }
  void truncate(int64_t sequence, int64_t length) const {
    for (const auto& state : states_) state->truncate(sequence, length);
  }

 private:
  std::vector<std::unique_ptr<State>> states_;
  std::unordered_map<const void*, size_t> places_;
};

// A layer that remembers what it has decoded as a `State`, a LayerState. It makes its own state, and what it
// finds is what it made.
template <typename State>
class Remembering {
 public:
  virtual ~Remembering() = default;
  // Adds a fresh state for so many sequences.
  void add_state(DecodingStates& states, int64_t sequences) const { states.add(this, make_state(sequences)); }

 protected:
  virtual std::unique_ptr<State> make_state(int64_t sequences) const = 0;
  // Its state; null when nothing is remembered.
  State* state(const Context& context) const {
    return context.states == nullptr ? nullptr : static_cast<State*>(&context.states->of(this));
  }
};

}  // namespace qkv
