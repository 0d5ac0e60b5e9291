// A recurrence as a mixer.
#pragma once

#include "qkv/models/mixers/mixer.h"
#include "qkv/ops/recurrence_spec.h"

namespace qkv {

// A recurrence in a block (nn/recurrence.h): x + h, h = LSTM(norm(x)) or GRU(norm(x)), from states of zeros.
// In an encoder it reads both ways, each with half of the width.
template <Cell cell>
struct RecurrenceMixer {
  static constexpr const char* kName = cell == Cell::lstm ? "lstm" : "gru";
  static constexpr const char* kPart = "recurrence";
  static constexpr bool kAttends = false;
  static constexpr bool kKnowsOrder = true;

  template <typename Spec, typename Visitor>
  static void for_each_field(Spec& /*mixer*/, Visitor& /*v*/) {}
  void check(const ModelSpec& spec) const;
  std::unique_ptr<Sublayer> make(const MixerPlace& place) const;
  MixerCost cost(const ModelSpec& spec, bool causal) const;
  bool operator==(const RecurrenceMixer&) const = default;
};

using LstmMixer = RecurrenceMixer<Cell::lstm>;
using GruMixer = RecurrenceMixer<Cell::gru>;

}  // namespace qkv
