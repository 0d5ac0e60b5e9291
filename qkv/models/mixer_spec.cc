#include "qkv/models/mixer_spec.h"

#include "qkv/models/spec.h"

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

void check_reads_in_turn(const ModelSpec& s, const char* name, bool decoder) {
  check(s.has_blocks() && !s.recurrence.any(),
        "model: mixer {}: of blocks; model.encoder or model.decoder name a recurrence instead of them", name);
  check(s.order == Order::stack, "model: mixer {}: it reads tokens in turn, not in order {}", name,
        name_of(s.order));
  check(!decoder || s.architecture == Architecture::decoder, "model: mixer {}: of a decoder, not of {}", name,
        name_of(s.architecture));
}

void check_heads(const ModelSpec& s, const char* name, int64_t heads, const char* key) {
  for (const int64_t width : {s.width, s.encoder_spec().width})
    check(width % heads == 0, "model: mixer {}: width {} is not divisible by {} heads ({})", name, width,
          heads, key);
}

}  // namespace qkv
