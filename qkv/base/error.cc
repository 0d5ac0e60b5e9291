#include "qkv/base/error.h"

namespace qkv {

void fail_formatted(fmt::string_view format, fmt::format_args args) {
  throw Error(fmt::vformat(format, args));
}

}  // namespace qkv
