#include "tests/source_dir.h"

namespace qkv::testing {

std::string source_dir() {
  return QKV_SOURCE_DIR;
}

}  // namespace qkv::testing
