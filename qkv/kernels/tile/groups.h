// Sums of products of bytes by tiles (AMX-INT8): 16 rows of activations by 32 rows of a quantised weight, a
// sum for each group of 32 elements, since each group has a scale. Like share.h, a border that only plain
// data and functions cross.
#pragma once

#include <cstdint>

namespace qkv::tile {

inline constexpr int64_t kGroupElements = 32, kGroupRows = 16, kGroupColumns = 32;

struct GroupSums {
  int64_t groups;
  const int8_t* a;
  int64_t a_stride;  // bytes between the rows of A [16, groups * 32]
  const uint8_t* b;  // [groups * 8, 32, 4]: four neighbours along k of each column, side by side
  int64_t b_stride;  // bytes between its lines
  int32_t* sums;     // [groups, 16, 32]
};

// Before the thread's first sums. release_amx() (block.h) ends it; between the two the thread must not run
// other users of tiles.
void configure_groups_amx();
void sum_groups_amx(const GroupSums&);

// Needs no configuration.
void sum_groups_emulated(const GroupSums&);

}  // namespace qkv::tile
