#include "qkv/base/unpack.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "qkv/base/error.h"

namespace qkv {
namespace {

constexpr std::string_view kGzip = "\x1F\x8B", kZstd = "\x28\xB5\x2F\xFD";
constexpr size_t kPart = size_t{1} << 18;

bool ends_with(std::string_view path, std::string_view end) {
  return path.size() > end.size() &&
         std::equal(end.begin(), end.end(), path.end() - static_cast<std::ptrdiff_t>(end.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
}

[[noreturn]] void fail_cut_short(const std::string& path, const char* format) {
  fail("{}: cut short: the {} data end in the middle (copy or download the file again)", path, format);
}

[[noreturn]] void fail_damaged(const std::string& path, const char* format, const char* why) {
  fail("{}: damaged {} data: {}", path, format, why);
}

// Passes on parts up to a limit on their total size.
class Sink {
 public:
  Sink(const std::string& path, int64_t most, const std::function<void(std::string_view)>& sink)
      : path_(path), most_(most), left_(most), sink_(sink) {}

  void give(std::string_view part) {
    left_ -= static_cast<int64_t>(part.size());
    check(
        left_ >= 0,
        "{}: holds more than {} bytes, the most that a packed file of its size may hold: unpack it yourself, "
        "if that is what it should hold, and name the unpacked file",
        path_, most_);
    if (!part.empty()) sink_(part);
  }

 private:
  const std::string& path_;
  int64_t most_, left_;
  const std::function<void(std::string_view)>& sink_;
};

void unpack_gzip(std::string_view packed, const std::string& path, Sink& sink) {
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  z_stream z = {};
  check(inflateInit2(&z, kGzipOnly) == Z_OK, "{}: zlib cannot be started", path);
  const std::unique_ptr<z_stream, int (*)(z_streamp)> end(&z, inflateEnd);
  std::vector<char> out(kPart);
  constexpr size_t kMostAtOnce = size_t{1} << 30;
  size_t taken = 0;  // bytes of `packed` that previous calls consumed
  for (bool done = false; !done || taken < packed.size();) {
    if (done) {  // concatenated files count as one
      if (!packed.substr(taken).starts_with(kGzip)) fail_damaged(path, "gzip", "other bytes follow its end");
      inflateReset(&z);
      done = false;
    }
    const std::string_view in = packed.substr(taken, kMostAtOnce);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    z.avail_in = static_cast<uInt>(in.size());
    z.next_out = reinterpret_cast<Bytef*>(out.data());
    z.avail_out = static_cast<uInt>(out.size());
    const int rc = inflate(&z, Z_NO_FLUSH);
    taken += in.size() - z.avail_in;
    sink.give({out.data(), out.size() - z.avail_out});
    done = rc == Z_STREAM_END;
    if (rc == Z_BUF_ERROR || (!done && rc == Z_OK && taken == packed.size() && z.avail_out > 0))
      fail_cut_short(path, "gzip");
    if (!done && rc != Z_OK) fail_damaged(path, "gzip", z.msg == nullptr ? "no valid stream" : z.msg);
  }
}

void unpack_zstd(std::string_view packed, const std::string& path, Sink& sink) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(),
                                                                        ZSTD_freeDStream);
  check(stream != nullptr, "{}: zstd cannot be started", path);
  std::vector<char> out(kPart);
  ZSTD_inBuffer in = {packed.data(), packed.size(), 0};
  size_t missing = 1;  // bytes expected in the current frame; 0: it is complete
  bool full = false;   // more output may follow
  while (in.pos < in.size || full) {
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    missing = ZSTD_decompressStream(stream.get(), &to, &in);
    if (ZSTD_isError(missing) != 0) fail_damaged(path, "zstd", ZSTD_getErrorName(missing));
    sink.give({out.data(), to.pos});
    full = missing != 0 && to.pos == to.size;
  }
  if (missing != 0) fail_cut_short(path, "zstd");
}

}  // namespace

Packing packing_of(std::string_view bytes) {
  return bytes.starts_with(kGzip) ? Packing::gzip : bytes.starts_with(kZstd) ? Packing::zstd : Packing::none;
}

Packing packing_by_name(std::string_view path) {
  return ends_with(path, ".gz")                                ? Packing::gzip
         : ends_with(path, ".zst") || ends_with(path, ".zstd") ? Packing::zstd
                                                               : Packing::none;
}

std::string_view without_packing(std::string_view path) {
  return packing_by_name(path) == Packing::none ? path : path.substr(0, path.rfind('.'));
}

int64_t most_unpacked(int64_t packed) {
  return std::max(int64_t{1} << 30, 100 * packed);
}

void unpack(std::string_view packed, Packing packing, const std::string& path,
            const std::function<void(std::string_view part)>& sink, int64_t most) {
  Sink to(path, most > 0 ? most : most_unpacked(static_cast<int64_t>(packed.size())), sink);
  packing == Packing::gzip ? unpack_gzip(packed, path, to) : unpack_zstd(packed, path, to);
}

}  // namespace qkv
