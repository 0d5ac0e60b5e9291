// The registry of mixers, and the mixer of a block: one of them.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "qkv/models/mixers/attention.h"
#include "qkv/models/mixers/attention_free.h"
#include "qkv/models/mixers/average.h"
#include "qkv/models/mixers/convolution.h"
#include "qkv/models/mixers/fast_weights.h"
#include "qkv/models/mixers/gated_delta.h"
#include "qkv/models/mixers/latent_attention.h"
#include "qkv/models/mixers/random_features.h"
#include "qkv/models/mixers/recurrence.h"
#include "qkv/models/mixers/rwkv.h"
#include "qkv/models/mixers/state_space.h"

namespace qkv {

// All mixers, in the order of the help text. To add one, write it as mixers/mixer.h says and list it here.
using AnyMixer =
    std::variant<AttentionMixer, LatentMixer, LstmMixer, GruMixer, AverageMixer, LinearAttentionMixer,
                 DeltaRuleMixer, GatedDeltaMixer, MambaMixer, Mamba2Mixer, ConvolutionMixer, Rwkv4Mixer,
                 Rwkv7Mixer, RandomFeaturesMixer, AttentionFreeMixer>;

template <typename M, typename List>
inline constexpr bool kIsListed = false;
template <typename M, typename... Ms>
inline constexpr bool kIsListed<M, std::variant<Ms...>> = (std::is_same_v<M, Ms> || ...);
template <typename M>
concept Mixer = kIsListed<M, AnyMixer>;

// Which of them: its place in the list. name_of() and from_name() know their names.
enum class MixerKind : uint8_t {};

// How tokens meet in a block: attention, or what stands in its place.
class MixerSpec {
 public:
  MixerSpec() = default;
  template <Mixer M>
  MixerSpec(const M& mixer) : mixer_(mixer) {}  // NOLINT(google-explicit-constructor): a mixer is a spec

  MixerKind kind() const { return static_cast<MixerKind>(mixer_.index()); }
  // The mixer where it is an `M`, else null.
  template <typename M>
  const M* get_if() const {
    return std::get_if<M>(&mixer_);
  }
  template <typename F>
  decltype(auto) visit(const F& f) const {
    return std::visit(f, mixer_);
  }

  // As in mixers/mixer.h.
  const char* part() const;
  bool attends() const;
  bool knows_order() const;
  void derive(int64_t width);
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const MixerSpec&) const = default;

  // for_each_field() of each mixer in turn: f(mixer), of those that this is not with a fresh one.
  template <typename F>
  void for_each(const F& f) const {
    for_each(f, std::make_index_sequence<std::variant_size_v<AnyMixer>>());
  }
  // The mixer of this kind with its usual fields.
  static MixerSpec of(MixerKind kind);

 private:
  template <typename F, size_t... i>
  void for_each(const F& f, std::index_sequence<i...> /*all*/) const {
    (visit_one<std::variant_alternative_t<i, AnyMixer>>(f), ...);
  }
  template <typename M, typename F>
  void visit_one(const F& f) const {
    const M* mixer = get_if<M>();
    f(mixer ? *mixer : M());
  }

  AnyMixer mixer_;
};

}  // namespace qkv
