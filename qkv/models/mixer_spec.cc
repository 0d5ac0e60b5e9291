#include "qkv/models/mixer_spec.h"

#include "qkv/nn/sublayer.h"

namespace qkv {

const char* MixerSpec::part() const {
  return visit([](const auto& m) { return m.kPart; });
}

bool MixerSpec::attends() const {
  return visit([](const auto& m) { return m.kAttends; });
}

bool MixerSpec::knows_order() const {
  return visit([](const auto& m) { return m.kKnowsOrder; });
}

void MixerSpec::derive(int64_t width) {
  std::visit(
      [width](auto& m) {
        if constexpr (requires { m.derive(width); }) m.derive(width);
      },
      mixer_);
}

void MixerSpec::check(const ModelSpec& spec) const {
  visit([&](const auto& m) { m.check(spec); });
}

std::unique_ptr<Sublayer> MixerSpec::make(const MixerPlace& place) const {
  return visit([&](const auto& m) { return m.make(place); });
}

MixerCost MixerSpec::cost(const ModelSpec& spec, bool causal) const {
  return visit([&](const auto& m) { return m.cost(spec, causal); });
}

MixerSpec MixerSpec::of(MixerKind kind) {
  MixerSpec found;
  found.for_each([&](const auto& m) {
    if (const MixerSpec fresh = std::decay_t<decltype(m)>(); fresh.kind() == kind) found = fresh;
  });
  return found;
}

}  // namespace qkv
