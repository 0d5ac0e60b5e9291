#include "qkv/models/mixers/mixer_place.h"

#include "qkv/base/error.h"
#include "qkv/models/spec.h"

namespace qkv {

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
