// Files that gzip or zstd packed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qkv {

// Formats of packed files.
enum class Packing : uint8_t { none, gzip, zstd };

// By a file's first bytes. No UTF-8 text begins like a packed file.
Packing packing_of(std::string_view bytes);
// By a name's end: .gz, .zst or .zstd, in capitals or not.
Packing packing_by_name(std::string_view path);
// The name of what is packed: "a.csv" of "a.csv.gz".
std::string_view without_packing(std::string_view path);

// The most that a packed file of this size may hold: 1 GiB, or 100 times its size where that is more.
// A small file that holds more was made to fill memory and disks.
int64_t most_unpacked(int64_t packed);

// Hands what is packed to `sink`, part by part. Throws Error naming the file where it is damaged, cut short,
// or holds more than `most` bytes (0: most_unpacked()). REQUIRES: packing is not none.
void unpack(std::string_view packed, Packing packing, const std::string& path,
            const std::function<void(std::string_view part)>& sink, int64_t most = 0);

}  // namespace qkv
