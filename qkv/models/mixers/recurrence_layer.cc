#include "qkv/models/mixers/mixer_place.h"
#include "qkv/models/mixers/recurrence.h"
#include "qkv/models/spec.h"
#include "qkv/nn/recurrent_sublayer.h"

namespace qkv {

template <Cell cell>
void RecurrenceMixer<cell>::check(const ModelSpec& s) const {
  check_reads_in_turn(s, kName, false);
  qkv::check(
      s.architecture == Architecture::decoder || s.width % 2 == 0,
      "model: mixer {}: an encoder's reads both ways, each with half of the width, which must be even, "
      "got {}",
      kName, s.width);
}

template <Cell cell>
std::unique_ptr<Sublayer> RecurrenceMixer<cell>::make(const MixerPlace& p) const {
  return std::make_unique<RecurrentSublayer>(p.parameters, p.name, cell, p.spec.width, !p.mask.is_causal(),
                                             p.std.inner);
}

// Kept: what it reads, h by time and in order, of a GRU the reset h; in f32 the gates and the states.
template <Cell cell>
MixerCost RecurrenceMixer<cell>::cost(const ModelSpec& s, bool causal) const {
  const int64_t d = s.width, halves = causal ? 1 : 2;
  return {.projected = (cell == Cell::gru ? 3 : 2) * d,
          .out = halves * d,
          .kept_f32 = (gates_of(cell) + state_parts(cell)) * d,
          .multiplications = gates_of(cell) * (d * d + d * d / halves),
          .state = (RecurrentState::kKept + 1) * state_parts(cell) * d};
}

template struct RecurrenceMixer<Cell::lstm>;
template struct RecurrenceMixer<Cell::gru>;

}  // namespace qkv
