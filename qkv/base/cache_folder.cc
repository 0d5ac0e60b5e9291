#include "qkv/base/cache_folder.h"

#include <cstdlib>

namespace qkv {

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("QKV_CACHE_DIR"); !own.empty()) return own;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/qkv";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/qkv";
  return "";
}

}  // namespace qkv
