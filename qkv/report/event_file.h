// TensorBoard's event files, for `tensorboard --logdir`.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace qkv {

// A new event file.
class EventFile {
 public:
  // Creates a new file in `dir`, which is created if necessary. TensorBoard reads a folder's files in the
  // order of their names; this one comes after existing files.
  explicit EventFile(const std::string& dir);

  void scalar(int64_t step, std::string_view tag, double value);
  // `text` is shown as Markdown. REQUIRES: valid UTF-8.
  void text(int64_t step, std::string_view tag, std::string_view text);
  // Marks the start of a session: TensorBoard discards data of `step` and later from earlier files.
  void session_start(int64_t step);

 private:
  void write(std::string_view event);

  std::string path_;
  std::ofstream out_;
};

// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);

}  // namespace qkv
