// A GGUF file in place of a model directory.
#pragma once

#include <string>

#include "qkv/io/container/tensor_file.h"

namespace qkv {

// The name of those notes.
inline constexpr const char* kGgufNotes = "notes.txt";

// True if the path names a file of this format.
bool is_gguf(const std::string& path);

// From now on the documents of a Hugging Face directory are found below the file's path: config.json,
// generation_config.json, tokenizer.json and tokenizer_config.json, with the chat template; and notes for the
// user, if there are any. Does nothing for other paths, and for a file that was mounted before. Throws Error
// naming the file, and the key or tensor.
void mount_gguf(const std::string& path);

// The file's tensors under Hugging Face's names.
TensorFile read_gguf_tensors_of(const std::string& path);

}  // namespace qkv
