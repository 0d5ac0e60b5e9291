// Stands in for Highway's library, of which there is no aarch64 build here: reports the compiler's static
// target as the processor's only one.
#include "hwy/targets.h"

namespace hwy {

int64_t SupportedTargets() {
  return HWY_STATIC_TARGET;
}

}  // namespace hwy
