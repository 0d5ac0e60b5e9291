// TensorBoard's event files: a run that writes one is shown by `tensorboard --logdir`.
//
// A file is a list of TFRecords: length (8 bytes, little-endian), masked CRC-32C of the length (4), data,
// masked CRC-32C of the data (4). Each record's data is a protobuf message Event
// (tensorboard/compat/proto/event.proto).
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

namespace qkv {

// One such file, written from its beginning.
class EventFile {
 public:
  // Starts a new file in `dir`, which is made if need be. TensorBoard reads a folder's files one after the
  // other, in the order of their names: this one follows those that are there.
  explicit EventFile(const std::string& dir);

  void scalar(int64_t step, std::string_view tag, double value);
  // `text` is shown as Markdown. REQUIRES: valid UTF-8.
  void text(int64_t step, std::string_view tag, std::string_view text);
  // Says that a session starts here: what earlier files hold of `step` and later is discarded.
  void session_start(int64_t step);

 private:
  void write(std::string_view event);

  std::string path_;
  std::ofstream out_;
};

// CRC-32C (Castagnoli), RFC 3720 appendix B.4.
uint32_t crc32c(std::string_view bytes);

}  // namespace qkv
