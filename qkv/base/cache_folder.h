// The folder of what may be made again.
#pragma once

#include <string>

namespace qkv {

// $QKV_CACHE_DIR, $XDG_CACHE_HOME/qkv or ~/.cache/qkv; empty where none is set.
std::string cache_folder();

}  // namespace qkv
