// A file that holds several documents, read as if it were a folder of files.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace qkv {

// From now on, read_file() and file_exists() find `files` (names and contents) below `path`, which is no
// folder: as "PATH/NAME". A second call for the path replaces them.
void mount_files(const std::string& path, std::map<std::string, std::string> files);

// True if files are mounted at the path.
bool is_mounted(const std::string& path);

// The contents of "PATH/NAME", if it is mounted.
std::optional<std::string> mounted_file(const std::string& path);

}  // namespace qkv
