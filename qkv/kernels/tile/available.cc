// Who may run what is in share.cc, block.cc and groups.cc.
#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <initializer_list>
#include <iterator>

#include "qkv/kernels/kernels.h"
#include "qkv/kernels/tile/block.h"
#include "qkv/kernels/tile/groups.h"
#include "qkv/kernels/tile/share.h"
#include "qkv/tensor/storage.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace qkv {

#ifdef __x86_64__

namespace {

constexpr uint32_t bits(std::initializer_list<int> positions) {
  uint32_t mask = 0;
  for (const int i : positions) mask |= uint32_t{1} << i;
  return mask;
}

// State that the operating system saves for a thread (XCR0).
constexpr uint32_t kAvx512State = bits({1, 2, 5, 6, 7});
constexpr uint32_t kTileState = bits({17, 18});  // configuration, data

struct Processor {
  uint32_t saved_state = 0;  // XCR0
  uint32_t ebx7 = 0, edx7 = 0, eax71 = 0;

  bool avx512() const {
    constexpr uint32_t kFDqBwVl = bits({16, 17, 30, 31});
    return (saved_state & kAvx512State) == kAvx512State && (ebx7 & kFDqBwVl) == kFDqBwVl;
  }
  bool bf16_tiles() const {
    constexpr uint32_t kBf16AndTile = bits({22, 24}), kAvx512Bf16 = bits({5});
    return avx512() && (saved_state & kTileState) == kTileState && (edx7 & kBf16AndTile) == kBf16AndTile &&
           (eax71 & kAvx512Bf16) != 0;
  }
  // REQUIRES: bf16_tiles().
  bool byte_tiles() const {
    constexpr uint32_t kInt8 = bits({25});
    return (edx7 & kInt8) != 0;
  }
};

Processor processor() {
  Processor found;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr uint32_t kXgetbv = bits({27});  // OSXSAVE: XCR0 can be read
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & kXgetbv) == 0) return found;
  asm("xgetbv" : "=a"(found.saved_state), "=d"(edx) : "c"(0));
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) found.ebx7 = ebx, found.edx7 = edx;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) found.eax71 = eax;
  return found;
}

// Linux saves eight KiB more for a thread only in processes that ask.
bool tiles_permitted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

sigjmp_buf refused;

// f() on this thread; false when an instruction is illegal. REQUIRES: no destructors in f's way.
template <typename F>
bool survives(const F& f) {
  struct sigaction jump {
  }, before{};
  jump.sa_handler = [](int) { siglongjmp(refused, 1); };
  ::sigemptyset(&jump.sa_mask);
  if (::sigaction(SIGILL, &jump, &before) != 0) return false;
  volatile bool done = false;
  if (sigsetjmp(refused, /*savemask=*/1) == 0) {
    f();
    done = true;
  }
  ::sigaction(SIGILL, &before, nullptr);
  return done;
}

// A product of small integers, exact in any order of sums, must come out as from the emulated tiles: with
// edges, and with sums that are stored and loaded again.
bool tiles_are_right() {
  constexpr int64_t kM = 40, kN = 50, kK = 70;
  BFloat16 a[kM * kK], b[kN * kK];
  for (int i = 0; i < kM * kK; ++i) a[i] = BFloat16(static_cast<float>(i % 13 - 6));
  for (int i = 0; i < kN * kK; ++i) b[i] = BFloat16(static_cast<float>(i % 11 - 5));
  float got[kM * kN] = {}, want[kM * kN] = {};
  Product p{.m = kM, .n = kN, .k = kK};
  p.a = dense(a, DType::bf16, kK), p.b = dense(b, DType::bf16, kK, true), p.c_stride = kN;
  const TileBlocking blocking{.rows = 32, .columns = 64, .depth = 32};
  const auto packed = Storage::allocate(tile::panels(kN) * tile::panels(kK) * tile::kStepElements * 2);
  const auto scratch = Storage::allocate(tile::scratch_bytes(p, blocking));
  auto* packed_b = reinterpret_cast<BFloat16*>(packed->data());
  tile::pack_b(p, {0, tile::panels(kK)}, packed_b);
  p.c = want;
  tile::multiply_emulated({p, packed_b, blocking, scratch->data()});
  p.c = got;
  const tile::Share share{p, packed_b, blocking, scratch->data()};
  return survives([&] { tile::multiply_amx(share); }) && std::equal(std::begin(got), std::end(got), want);
}

bool byte_tiles_are_right() {
  constexpr int64_t kGroups = 2, kDepth = kGroups * tile::kGroupElements,
                    kSums = kGroups * tile::kGroupRows * tile::kGroupColumns;
  int8_t a[tile::kGroupRows * kDepth];
  uint8_t b[tile::kGroupColumns * kDepth];
  for (int i = 0; i < tile::kGroupRows * kDepth; ++i) a[i] = static_cast<int8_t>(i % 255 - 127);
  for (int i = 0; i < tile::kGroupColumns * kDepth; ++i) b[i] = static_cast<uint8_t>(i % 253);
  int32_t got[kSums] = {}, want[kSums] = {};
  tile::GroupSums p{kGroups, a, kDepth, b, 4 * tile::kGroupColumns, want};
  tile::sum_groups_emulated(p);
  p.sums = got;
  return survives([&] {
           tile::configure_groups_amx();
           tile::sum_groups_amx(p);
           tile::release_amx();
         }) &&
         std::equal(std::begin(got), std::end(got), want);
}

}  // namespace

bool tiles_available(TileUnit unit) {
  static const bool vectors = max_isa() >= Isa::avx512 && processor().avx512();
  static const bool tiles =
      vectors && max_isa() >= Isa::amx && processor().bf16_tiles() && tiles_permitted() && tiles_are_right();
  return unit == TileUnit::amx ? tiles : vectors;
}

bool byte_tiles_available(TileUnit unit) {
  if (unit == TileUnit::emulated || !tiles_available(unit)) return tiles_available(unit);
  static const bool tiles = processor().byte_tiles() && byte_tiles_are_right();
  return tiles;
}

#else

bool tiles_available(TileUnit) {
  return false;
}
bool byte_tiles_available(TileUnit) {
  return false;
}

#endif

}  // namespace qkv
