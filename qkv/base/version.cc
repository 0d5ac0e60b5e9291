#include "qkv/base/version.h"

namespace qkv {

std::string_view version() {
  return QKV_VERSION;  // from the project's version in CMakeLists.txt
}

}  // namespace qkv
