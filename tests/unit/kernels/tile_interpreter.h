// Emulates tile instructions on processors without them: each is an illegal instruction, which the handler
// of SIGILL decodes and executes. For tests of machine code that would otherwise first run on a user's
// machine.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapters 2.3 (VEX) and
// 3-5.
#pragma once

#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>

namespace qkv {

// Interprets for its lifetime, on one thread. Any other illegal instruction ends the program as usual.
class TileInterpreter {
 public:
  TileInterpreter() {
    state() = {};
    struct sigaction handler {};
    handler.sa_sigaction = interpret;
    handler.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &handler, &before_);
  }
  ~TileInterpreter() { sigaction(SIGILL, &before_, nullptr); }
  TileInterpreter(const TileInterpreter&) = delete;
  TileInterpreter& operator=(const TileInterpreter&) = delete;

  int64_t instructions() const { return state().instructions; }
  bool configured() const { return state().configured; }

 private:
  struct State {
    bool configured = false;
    uint8_t rows[8];
    uint16_t row_bytes[8];
    uint8_t tiles[8][16][64];
    int64_t instructions = 0;
  };
  static State& state() {
    static State s;
    return s;
  }

  // A VEX instruction with a three-byte prefix, in the map 0F 38, as all tile instructions are.
  struct Instruction {
    int prefix;  // 0: none, 1: 66, 2: F3, 3: F2
    int opcode;
    int reg, rm, vvvv;
    bool memory;
    uint8_t* base = nullptr;  // address of the operand in memory, with its displacement
    int64_t index = 0;
    int64_t length;
  };

  static int64_t general_register(const ucontext_t& c, int number) {
    constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                 REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return c.uc_mcontext.gregs[kPlaces[number]];
  }

  static bool decode(const ucontext_t& c, Instruction& i) {
    const auto* start = reinterpret_cast<const uint8_t*>(c.uc_mcontext.gregs[REG_RIP]);
    if (start[0] != 0xC4 || (start[1] & 0x1F) != 2 || (start[2] & 0x84) != 0) return false;
    const int r = start[1] & 0x80 ? 0 : 8, x = start[1] & 0x40 ? 0 : 8, b = start[1] & 0x20 ? 0 : 8;
    i.prefix = start[2] & 3;
    i.vvvv = ~start[2] >> 3 & 15;
    i.opcode = start[3];
    const int mod = start[4] >> 6;
    i.reg = (start[4] >> 3 & 7) + r;
    i.rm = start[4] & 7;
    i.memory = mod != 3;
    const uint8_t* at = start + 5;
    if (i.memory) {
      int base = i.rm;
      if (i.rm == 4) {
        const int scale = *at >> 6, index = (*at >> 3 & 7) + x;
        base = *at++ & 7;
        if (index != 4) i.index = general_register(c, index) << scale;
      }
      const bool absolute = mod == 0 && base == 5;  // on its own after SIB, else from the next instruction
      int64_t displacement = 0;
      if (mod == 1) {
        displacement = static_cast<int8_t>(*at++);
      } else if (mod == 2 || absolute) {
        int32_t wide;
        std::memcpy(&wide, at, sizeof wide);
        displacement = wide, at += sizeof wide;
      }
      int64_t address = displacement;
      if (!absolute)
        address += general_register(c, base + b);
      else if (i.rm == 5)
        address += reinterpret_cast<int64_t>(at);
      i.base = reinterpret_cast<uint8_t*>(address);
    }
    i.length = at - start;
    return true;
  }

  static bool execute(const Instruction& i) {
    State& s = state();
    const bool tile_memory = i.opcode == 0x4B && i.memory && i.rm == 4;
    if (i.opcode == 0x49 && i.prefix == 0 && i.memory) {  // LDTILECFG
      if (i.base[0] != 1 || i.base[1] != 0) return false;
      std::memcpy(s.row_bytes, i.base + 16, sizeof s.row_bytes);
      std::memcpy(s.rows, i.base + 48, sizeof s.rows);
      std::memset(s.tiles, 0, sizeof s.tiles);
      return s.configured = true;
    }
    if (!s.configured || i.reg > 7) return false;
    if (i.opcode == 0x49 && i.prefix == 0) {  // TILERELEASE
      s.configured = false;
    } else if (i.opcode == 0x49 && i.prefix == 3 && !i.memory) {  // TILEZERO
      std::memset(s.tiles[i.reg], 0, sizeof s.tiles[0]);
    } else if (tile_memory && (i.prefix == 3 || i.prefix == 1)) {  // TILELOADD, TILELOADDT1
      std::memset(s.tiles[i.reg], 0, sizeof s.tiles[0]);
      for (int row = 0; row < s.rows[i.reg]; ++row)
        std::memcpy(s.tiles[i.reg][row], i.base + row * i.index, s.row_bytes[i.reg]);
    } else if (tile_memory && i.prefix == 2) {  // TILESTORED
      for (int row = 0; row < s.rows[i.reg]; ++row)
        std::memcpy(i.base + row * i.index, s.tiles[i.reg][row], s.row_bytes[i.reg]);
    } else if (i.opcode == 0x5C && i.prefix == 2 && !i.memory) {  // TDPBF16PS
      multiply(i.reg, i.rm, i.vvvv);
    } else if (i.opcode == 0x5E && i.prefix == 2 && !i.memory) {  // TDPBSUD
      multiply_bytes(i.reg, i.rm, i.vvvv);
    } else {
      return false;
    }
    return true;
  }

  static float bf16(const uint8_t* bytes) {
    uint32_t bits = uint32_t{bytes[0]} << 16 | uint32_t{bytes[1]} << 24;
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
  }

  static void multiply(int sums, int a, int b) {
    State& s = state();
    for (int row = 0; row < s.rows[sums]; ++row)
      for (int column = 0; column < s.row_bytes[sums] / 4; ++column) {
        float parts[2] = {0, 0};
        for (int k = 0; k < s.row_bytes[a] / 4; ++k)
          for (int parity = 0; parity < 2; ++parity)
            parts[parity] +=
                bf16(&s.tiles[a][row][4 * k + 2 * parity]) * bf16(&s.tiles[b][k][4 * column + 2 * parity]);
        float sum;
        std::memcpy(&sum, &s.tiles[sums][row][4 * column], sizeof sum);
        sum += parts[0] + parts[1];
        std::memcpy(&s.tiles[sums][row][4 * column], &sum, sizeof sum);
      }
  }

  // Bytes with sign by bytes without.
  static void multiply_bytes(int sums, int a, int b) {
    State& s = state();
    for (int row = 0; row < s.rows[sums]; ++row)
      for (int column = 0; column < s.row_bytes[sums] / 4; ++column) {
        int32_t sum;
        std::memcpy(&sum, &s.tiles[sums][row][4 * column], sizeof sum);
        for (int k = 0; k < s.row_bytes[a]; ++k)
          sum += static_cast<int8_t>(s.tiles[a][row][k]) * s.tiles[b][k / 4][4 * column + k % 4];
        std::memcpy(&s.tiles[sums][row][4 * column], &sum, sizeof sum);
      }
  }

  static void interpret(int, siginfo_t*, void* context) {
    auto& c = *static_cast<ucontext_t*>(context);
    Instruction i;
    if (!decode(c, i) || !execute(i)) {
      signal(SIGILL, SIG_DFL);  // then the instruction traps again
      return;
    }
    ++state().instructions;
    c.uc_mcontext.gregs[REG_RIP] += i.length;
  }

  struct sigaction before_ {};
};

}  // namespace qkv
