// Decompression of gzip and zstd files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qkv {

// Formats of packed files.
enum class Packing : uint8_t { none, gzip, zstd };

// The format by a file's first bytes. No UTF-8 text begins like a packed file.
Packing packing_of(std::string_view bytes);
// The format by the extension: .gz, .zst or .zstd, case-insensitive.
Packing packing_by_name(std::string_view path);
// The name without the extension of a packed file: "a.csv" for "a.csv.gz".
std::string_view without_packing(std::string_view path);

// The maximum number of bytes in a packed file of this size: 1 GiB, or 100 times its size if that is more.
// A small file with more was made to fill memory and disks.
int64_t most_unpacked(int64_t packed);

// Passes the decompressed data to `sink`, part by part. Throws Error naming the file if it is damaged,
// truncated, or holds more than `most` bytes (0: most_unpacked()). REQUIRES: packing is not none.
void unpack(std::string_view packed, Packing packing, const std::string& path,
            const std::function<void(std::string_view part)>& sink, int64_t most = 0);

}  // namespace qkv
