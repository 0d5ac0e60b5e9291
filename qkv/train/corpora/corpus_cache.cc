#include "qkv/train/corpora/corpus_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "qkv/base/cache_folder.h"
#include "qkv/base/file.h"
#include "qkv/base/hash.h"
#include "qkv/data/table.h"
#include "qkv/io/container/safetensors.h"

namespace qkv {
namespace fs = std::filesystem;

namespace {

constexpr const char* kVersion = "4";  // version of the entries; a new one invalidates older entries

TokenStream stream_from(TensorFile& file, const std::string& part) {
  TokenStream stream(file.tensors.at(part + ".tokens"), file.tensors.at(part + ".starts"));
  stream.characters = std::stoll(file.metadata.at(part + ".characters"));
  stream.bytes = std::stoll(file.metadata.at(part + ".bytes"));
  stream.unknown = std::stoll(file.metadata.at(part + ".unknown"));
  stream.beginnings = std::stoll(file.metadata.at(part + ".beginnings"));
  return stream;
}

}  // namespace

std::string signature_of(const std::vector<std::string>& paths) {
  std::string out;
  for (const std::string& path : paths) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) fail_to_open(path, errno);
    std::error_code ignored;
    out += fmt::format("{} {} {}.{} {}.{} {}:{}\n", fs::weakly_canonical(path, ignored).string(),
                       info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec,
                       info.st_ctim.tv_nsec, info.st_dev, info.st_ino);
  }
  return out;
}

CorpusCache::CorpusCache(bool on) : folder_(on ? cache_folder() : "") {}

std::string CorpusCache::path_of(const char* kind, const std::string& key, const char* suffix) const {
  return fmt::format("{}/{}-{}{}", folder_, kind, hash_of(kVersion + key), suffix);
}

std::optional<std::string> CorpusCache::load_tokenizer(const std::string& key) const {
  const std::string path = path_of("tokenizer", key, ".json");
  if (folder_.empty() || !file_exists(path)) return std::nullopt;
  try {
    return read_file(path);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void CorpusCache::save_tokenizer(const std::string& key, const std::string& json) const {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  try {
    write_file_atomically(path_of("tokenizer", key, ".json"), json);
  } catch (const Error&) {
  }
}

std::optional<TokenizedText> CorpusCache::load_text(const std::string& key) const {
  const std::string path = path_of("tokens", key, ".safetensors");
  if (folder_.empty() || !file_exists(path)) return std::nullopt;
  try {
    TensorFile file = read_safetensors(path);
    return TokenizedText{stream_from(file, "train"),
                         stream_from(file, "valid"),
                         file.metadata.at("train.hash"),
                         file.metadata.at("valid.hash"),
                         {std::stoll(file.metadata.at("repeated")), std::stoll(file.metadata.at("unfit")),
                          std::stoll(file.metadata.at("empty"))},
                         lines_of(file.metadata.at("notes"))};
  } catch (const std::exception&) {  // damaged, or written by another version
    return std::nullopt;
  }
}

std::string CorpusCache::scratch_folder() const {
  std::error_code error;
  if (!folder_.empty()) fs::create_directories(folder_, error);
  return !folder_.empty() && ::access(folder_.c_str(), W_OK) == 0 ? folder_
                                                                  : fs::temp_directory_path().string();
}

void CorpusCache::save_text(const std::string& key, const TokenizedText& text) const {
  if (folder_.empty()) return;
  const std::string path = path_of("tokens", key, ".safetensors");
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  std::error_code error;
  fs::create_directories(folder_, error);
  try {
    std::vector<std::pair<std::string, Tensor>> tensors;
    std::map<std::string, std::string> metadata = {{"train.hash", text.train_hash},
                                                   {"valid.hash", text.valid_hash},
                                                   {"repeated", std::to_string(text.skipped.repeated)},
                                                   {"unfit", std::to_string(text.skipped.unfit)},
                                                   {"empty", std::to_string(text.skipped.empty)},
                                                   {"notes", fmt::format("{}", fmt::join(text.notes, "\n"))}};
    const std::pair<std::string, const TokenStream*> parts[] = {{"train", &text.train},
                                                                {"valid", &text.valid}};
    // Wider elements come first, so that each tensor begins at a multiple of its element size and can be
    // mapped.
    for (const auto& [name, stream] : parts) tensors.emplace_back(name + ".starts", stream->start_tensor());
    for (const auto& [name, stream] : parts) {
      tensors.emplace_back(name + ".tokens", stream->token_tensor());
      metadata[name + ".characters"] = std::to_string(stream->characters);
      metadata[name + ".bytes"] = std::to_string(stream->bytes);
      metadata[name + ".unknown"] = std::to_string(stream->unknown);
      metadata[name + ".beginnings"] = std::to_string(stream->beginnings);
    }
    write_safetensors(temporary, tensors, metadata);
    fs::rename(temporary, path);
  } catch (const std::exception&) {
    fs::remove(temporary, error);
  }
}

}  // namespace qkv
