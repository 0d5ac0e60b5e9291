#include "qkv/report/event_file.h"

#include <array>
#include <bit>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "qkv/base/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Builds a protobuf message: fields one after the other, each a key (number and wire type) and a value.
// https://protobuf.dev/programming-guides/encoding
class Message {
 public:
  Message& integer(int field, uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  Message& real64(int field, double value) {
    key(field, 1);
    append_little_endian(bytes_, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, float value) {
    key(field, 5);
    append_little_endian(bytes_, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  // A string, or a message inside this one.
  Message& bytes(int field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return bytes(field, value.bytes_); }

  const std::string& encoded() const { return bytes_; }

 private:
  void key(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  // Seven bits per byte, lowest first; the eighth marks that more follow.
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

// The fields of Event.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;

// An Event at the current time.
Message event(int64_t step) {
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch());
  return Message().real64(kWallTime, now.count()).integer(kStep, static_cast<uint64_t>(step));
}

// An Event with one Summary.Value.
Message event(int64_t step, const Message& value) {
  return event(step).message(kSummary, Message().message(1, value));
}

// TFRecord stores checksums rotated and offset, so that checksums of data that contains checksums are
// sound.
uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82F63B78u : 0);  // the reflected polynomial
      table[i] = c;
    }
    return table;
  }();
  uint32_t c = ~0u;
  for (const char b : bytes) c = c >> 8 ^ kTable[(c ^ static_cast<unsigned char>(b)) & 0xFF];
  return ~c;
}

EventFile::EventFile(const std::string& dir) {
  std::error_code error;
  fs::create_directories(dir, error);
  check(!error, "{}: cannot be created: {}", dir, error.message());
  const auto earlier = std::distance(fs::directory_iterator(dir, error), fs::directory_iterator());
  path_ = fmt::format("{}/events.out.tfevents.{:010}.{:04}.qkv", dir, std::time(nullptr), earlier);
  out_.open(path_, std::ios::binary);
  check(out_.good(), "{}: cannot be written", path_);
  write(event(0).bytes(kFileVersion, "brain.Event:2").encoded());
}

void EventFile::scalar(int64_t step, std::string_view tag, double value) {
  const Message summary = Message().bytes(1, tag).real32(2, static_cast<float>(value));
  write(event(step, summary).encoded());
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view text) {
  constexpr int kDtString = 7, kTensorData = 2;       // DataType, DataClass
  const Message plugin = Message().bytes(1, "text");  // SummaryMetadata.PluginData
  const Message metadata = Message().message(1, plugin).integer(4, kTensorData);
  const Message tensor = Message().integer(1, kDtString).message(2, Message()).bytes(8, text);  // rank 0
  write(event(step, Message().bytes(1, tag).message(8, tensor).message(9, metadata)).encoded());
}

void EventFile::session_start(int64_t step) {
  constexpr int kStart = 1;  // SessionLog.SessionStatus
  write(event(step).message(kSessionLog, Message().integer(1, kStart)).encoded());
}

void EventFile::write(std::string_view event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_little_endian(record, masked_crc32c(record), 4);
  record += event;
  append_little_endian(record, masked_crc32c(event), 4);
  out_.write(record.data(), static_cast<std::streamsize>(record.size())).flush();
  check(out_.good(), "{}: cannot be written", path_);
}

}  // namespace qkv
