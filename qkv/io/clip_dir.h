// CLIP's directories: a config.json for two models, and their weights in one file.
#pragma once

#include <string>

#include "qkv/models/clip.h"

namespace qkv {

// True if DIR/config.json is CLIP's.
bool is_clip_dir(const std::string& dir);

// Reads such a directory. Throws Error naming file and field or tensor.
ClipModel load_clip(const std::string& dir, DType compute);

// Writes config.json and model.safetensors into an existing directory. Tensors are written as they were
// read, bit for bit.
void save_clip(const std::string& dir, const ClipModel& clip);

}  // namespace qkv
