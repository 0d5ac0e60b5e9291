// LoRA adapters as GGUF files, and back.
#pragma once

#include <string>

namespace qkv {

// True if the path names a GGUF file that holds an adapter.
bool is_gguf_adapter_file(const std::string& path);

// Writes the adapter in DIR (PEFT's format) to the GGUF file TO in one step. The file has one alpha, so that
// a module whose scale is not alpha / rank has the quotient in its B. Throws Error naming what cannot be
// written.
void save_gguf_adapter(const std::string& dir, const std::string& to);

// Writes the adapter of a GGUF file for the model in BASE, a directory or a GGUF file, to the directory TO in
// PEFT's format. Throws Error if it does not fit the model.
void save_adapter_of_gguf(const std::string& from, const std::string& base, const std::string& to);

}  // namespace qkv
