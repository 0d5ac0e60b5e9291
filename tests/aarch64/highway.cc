// What Highway's library, of which there is no aarch64 build here, tells of the processor: the target that
// the compiler may assume is the one that there is.
#include "hwy/targets.h"

namespace hwy {

int64_t SupportedTargets() {
  return HWY_STATIC_TARGET;
}
void SetSupportedTargetsForTest(int64_t) {}
ChosenTarget& GetChosenTarget() {
  static ChosenTarget target;
  return target;
}

}  // namespace hwy
