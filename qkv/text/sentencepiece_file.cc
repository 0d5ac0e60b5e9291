#include "qkv/text/sentencepiece_file.h"

#include <bit>
#include <cmath>
#include <optional>
#include <unordered_set>

#include "qkv/base/error.h"
#include "qkv/text/unicode.h"
#include "qkv/text/vocabulary.h"

namespace qkv::text {
namespace {

// Reads the fields of a protocol buffer message one by one.
class Message {
 public:
  Message(std::string_view bytes, const std::string& file) : rest_(bytes), size_(bytes.size()), file_(file) {}

  // Moves to the next field; returns false at the end.
  bool next() {
    if (rest_.empty()) return false;
    const uint64_t key = varint();
    number = key >> 3;
    value_ = 0;
    bytes_ = {};
    switch (key & 7) {
      case 0:
        value_ = varint();
        break;
      case 1:
        bytes_ = take(8);
        break;
      case 2:
        bytes_ = take(varint());
        break;
      case 5:
        bytes_ = take(4);
        break;
      default:
        refuse(fmt::format("a field of the unknown kind {}", key & 7));
    }
    wire_ = key & 7;
    return true;
  }

  // The current field as a string or number; throws Error if it has another type.
  std::string_view text() const {
    if (wire_ != 2) refuse(fmt::format("field {} is not a string", number));
    return bytes_;
  }
  Message message() const { return {text(), file_}; }
  bool boolean() const { return integer() != 0; }
  uint64_t integer() const {
    if (wire_ != 0) refuse(fmt::format("field {} is not a number", number));
    return value_;
  }
  float real() const {
    if (wire_ != 5) refuse(fmt::format("field {} is not a float", number));
    uint32_t bits = 0;
    for (size_t i = 4; i-- > 0;) bits = bits << 8 | static_cast<unsigned char>(bytes_[i]);
    return std::bit_cast<float>(bits);
  }

  uint64_t number = 0;

 private:
  uint64_t varint() {
    uint64_t result = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      result |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return result;
    }
    refuse("a number of more than 64 bits");
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) refuse(fmt::format("{} bytes expected, {} left", count, rest_.size()));
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail("{}: not a SentencePiece model: {} (byte {} of {} of a message)", file_, why, size_ - rest_.size(),
         size_);
  }

  std::string_view rest_;
  size_t size_;
  const std::string& file_;
  uint64_t wire_ = 0, value_ = 0;
  std::string_view bytes_;
};

SentencePieceFile::Piece parse_piece(Message m, size_t index, const std::string& file) {
  SentencePieceFile::Piece piece;
  while (m.next()) {
    if (m.number == 1) piece.piece = m.text();
    if (m.number == 2) piece.score = m.real();
    if (m.number == 3) {
      check(m.integer() >= 1 && m.integer() <= 6, "{}: piece {}: the unknown type {}", file, index,
            m.integer());
      piece.type = static_cast<SentencePieceFile::PieceType>(m.integer());
    }
  }
  check(!piece.piece.empty(), "{}: piece {} is empty", file, index);
  check_utf8(piece.piece, fmt::format("{}: piece {}", file, index));
  check(std::isfinite(piece.score), "{}: piece {}: its score is not a finite number", file, index);
  return piece;
}

void parse_trainer_spec(Message m, SentencePieceFile& out, const std::string& file) {
  while (m.next()) {
    if (m.number == 3) {
      check(m.integer() >= 1 && m.integer() <= 4, "{}: the unknown model type {}", file, m.integer());
      out.model_type = static_cast<SentencePieceFile::ModelType>(m.integer());
    }
    if (m.number == 24) out.treat_whitespace_as_suffix = m.boolean();
    if (m.number == 35) out.byte_fallback = m.boolean();
    if (m.number == 44) out.unk_surface = m.text();
  }
  check_utf8(out.unk_surface, fmt::format("{}: unk_surface", file));
}

void parse_normalizer_spec(Message m, SentencePieceFile& out) {
  while (m.next()) {
    if (m.number == 2) out.precompiled_charsmap = m.text();
    if (m.number == 3) out.add_dummy_prefix = m.boolean();
    if (m.number == 4) out.remove_extra_whitespaces = m.boolean();
    if (m.number == 5) out.escape_whitespaces = m.boolean();
  }
}

}  // namespace

SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& file) {
  SentencePieceFile model;
  Message m(bytes, file);
  while (m.next()) {
    if (m.number == 1) {
      check(model.pieces.size() <= static_cast<size_t>(kLargestTokenId), "{}: more than {} pieces", file,
            kLargestTokenId);
      model.pieces.push_back(parse_piece(m.message(), model.pieces.size(), file));
    }
    if (m.number == 2) parse_trainer_spec(m.message(), model, file);
    if (m.number == 3) parse_normalizer_spec(m.message(), model);
  }
  size_t unknown = 0, byte_pieces = 0;
  std::unordered_set<std::string_view> seen;
  for (const auto& [piece, score, type] : model.pieces) {
    check(seen.insert(piece).second, "{}: the piece \"{}\" appears twice", file, piece);
    unknown += type == SentencePieceFile::PieceType::kUnknown;
    byte_pieces += type == SentencePieceFile::PieceType::kByte;
  }
  check(unknown == 1, "{}: {} pieces for what is unknown, expected one", file, unknown);
  check(!model.byte_fallback || byte_pieces == 256, "{}: {} pieces for bytes, expected 256", file,
        byte_pieces);
  return model;
}

namespace {

// Writes the fields of a protocol buffer message one by one.
class MessageWriter {
 public:
  void integer(int number, uint64_t value) {
    varint(static_cast<uint64_t>(number) << 3);
    varint(value);
  }
  void text(int number, std::string_view value) {
    varint(static_cast<uint64_t>(number) << 3 | 2);
    varint(value.size());
    bytes += value;
  }
  void real(int number, float value) {
    varint(static_cast<uint64_t>(number) << 3 | 5);
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift);
  }

  std::string bytes;

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    bytes += static_cast<char>(value);
  }
};

}  // namespace

std::string serialize_sentencepiece(const SentencePieceFile& model) {
  MessageWriter out, trainer, normalizer;
  for (const auto& [piece, score, type] : model.pieces) {
    MessageWriter p;
    p.text(1, piece);
    p.real(2, score);
    p.integer(3, static_cast<uint64_t>(type));
    out.text(1, p.bytes);
  }
  trainer.integer(3, static_cast<uint64_t>(model.model_type));
  trainer.integer(24, model.treat_whitespace_as_suffix ? 1 : 0);
  trainer.integer(35, model.byte_fallback ? 1 : 0);
  trainer.text(44, model.unk_surface);
  out.text(2, trainer.bytes);
  normalizer.text(2, model.precompiled_charsmap);
  normalizer.integer(3, model.add_dummy_prefix ? 1 : 0);
  normalizer.integer(4, model.remove_extra_whitespaces ? 1 : 0);
  normalizer.integer(5, model.escape_whitespaces ? 1 : 0);
  out.text(3, normalizer.bytes);
  return out.bytes;
}

}  // namespace qkv::text
