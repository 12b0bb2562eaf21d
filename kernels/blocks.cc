// SPDX-License-Identifier: Apache-2.0

#include "kernels/blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace quire {
namespace {

constexpr int kScaleBytes = 12;  // Scales and minima of the eight groups of a block of kQ4_K or kQ5_K.

float HalfAt(const uint8_t* bytes) {
  Float16 half;
  memcpy(&half, bytes, sizeof(half));
  return ToFloat(half);
}

// Scale, 32 numbers.
void UnpackQ8(const uint8_t* block, BlockNumbers* numbers) {
  numbers->scale = HalfAt(block);
  numbers->scales[0] = 1;
  memcpy(numbers->numbers, block + sizeof(Float16), ShapeOf(BlockType::kQ8_0).columns);
}

// The scale and the minimum of each group have 6 bits. The first four groups have them in the low bits of bytes 0 to 3
// and 4 to 7. The others have their low halves in bytes 8 to 11, and their upper bits in the two bits that the first
// groups leave.
void UnpackScales(const uint8_t* packed, BlockNumbers* numbers) {
  for (int group = 0; group < 4; ++group) {
    numbers->scales[group] = int8_t(packed[group] & 63);
    numbers->minima[group] = packed[group + 4] & 63;
    numbers->scales[group + 4] = int8_t((packed[group + 8] & 15) | (packed[group] >> 6) << 4);
    numbers->minima[group + 4] = uint8_t(packed[group + 8] >> 4 | (packed[group + 4] >> 6) << 4);
  }
}

// Scale, minimum, 12 bytes of scales and minima of groups, 128 bytes of numbers: 32 bytes hold two groups, the first in
// the low halves. kQ5_K has 32 bytes before the numbers, and bit g of byte i is the fifth bit of number i of group g.
void UnpackGroups(const uint8_t* block, bool has_fifth_bits, BlockNumbers* numbers) {
  constexpr int kGroup = 32, kGroups = kMaxBlockColumns / kGroup;
  numbers->scale = HalfAt(block);
  numbers->minimum = HalfAt(block + sizeof(Float16));
  UnpackScales(block + 2 * sizeof(Float16), numbers);
  const uint8_t* const fifth = block + 2 * sizeof(Float16) + kScaleBytes;
  const uint8_t* const halves = has_fifth_bits ? fifth + kGroup : fifth;
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < kGroup; ++i) {
      const int number = halves[group / 2 * kGroup + i] >> group % 2 * 4 & 15;
      const int high = has_fifth_bits ? fifth[i] >> group & 1 : 0;
      numbers->numbers[group * kGroup + i] = int8_t(number | high << 4);
    }
  }
}

// 128 bytes of low halves, 64 bytes of upper bits, 16 scales, scale; a number is greater than what it means by 32. Each
// half of the block has 64 bytes of low halves and 32 of upper bits, for four runs of 32 columns.
void UnpackQ6(const uint8_t* block, BlockNumbers* numbers) {
  const uint8_t* const high = block + kMaxBlockColumns / 2;
  const uint8_t* const scales = high + kMaxBlockColumns / 4;
  numbers->scale = HalfAt(scales + kMaxBlockGroups);
  memcpy(numbers->scales, scales, kMaxBlockGroups);
  for (int at = 0; at < kMaxBlockColumns; ++at) {
    const int half = at / 128, run = at / 32 % 4, i = at % 32;
    const uint8_t byte = block[half * 64 + run % 2 * 32 + i];
    const int upper = high[half * 32 + i] >> 2 * run & 3;
    numbers->numbers[at] = int8_t(((run < 2 ? byte & 15 : byte >> 4) | upper << 4) - 32);
  }
}

// Scale, 16 bytes of codes: the low halves are the first 16 columns, and the high halves are the others.
void UnpackCodes(BlockType type, const uint8_t* block, BlockNumbers* numbers) {
  constexpr int kHalf = 16;
  const bool has_byte = type == BlockType::kMXFP4;
  numbers->scale = has_byte ? std::ldexp(1.0f, int{block[0]} - kMXFP4ScaleBias) : HalfAt(block);
  numbers->scales[0] = 1;
  const uint8_t* const codes = block + (has_byte ? 1 : sizeof(Float16));
  for (int i = 0; i < kHalf; ++i) {
    numbers->numbers[i] = CodedNumbers(type)[codes[i] & 15];
    numbers->numbers[i + kHalf] = CodedNumbers(type)[codes[i] >> 4];
  }
}

}  // namespace

void UnpackBlock(BlockType type, const uint8_t* block, BlockNumbers* numbers) {
  switch (type) {
    case BlockType::kQ8_0:
      return UnpackQ8(block, numbers);
    case BlockType::kQ4_K:
      return UnpackGroups(block, /*has_fifth_bits=*/false, numbers);
    case BlockType::kQ5_K:
      return UnpackGroups(block, /*has_fifth_bits=*/true, numbers);
    case BlockType::kQ6_K:
      return UnpackQ6(block, numbers);
    case BlockType::kIQ4_NL:
    case BlockType::kMXFP4:
      return UnpackCodes(type, block, numbers);
  }
}

void SetBlockScale(BlockType type, float scale, float minimum, uint8_t* block) {
  const BlockShape shape = ShapeOf(type);
  if (type == BlockType::kMXFP4) {
    const int power = scale == 0 ? 0 : std::ilogb(scale) + kMXFP4ScaleBias;
    block[shape.scale_at] = uint8_t(std::clamp(power, 0, kMaxMXFP4Scale));
    return;
  }
  const Float16 halves[] = {ToFloat16(scale), ToFloat16(minimum)};
  memcpy(block + shape.scale_at, halves, shape.has_minima ? sizeof(halves) : sizeof(Float16));
}

}  // namespace quire
