// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_

#include "kernels/cpu/linear/block_lines.h"
#include "kernels/cpu/linear/linear_converted_kernel.h"

// Products by weights in blocks (kernels/blocks.h). A small scale times the scale of its block is exact, so the scale
// of a group is the same number wherever it is computed.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

template <WeightFormat kFormat, typename LineType>
struct BlockPanelNumbers {
  static constexpr BlockPanel kPanel = BlockPanelOf(kFormat);
  static constexpr int kLineColumns = kPanel.line_columns;
  static constexpr int kLineBytes = kPanel.line_bytes;
  static constexpr bool kHasWholeLines = true;
  static constexpr bool kHasMinima = kPanel.has_minima;
  static constexpr int kUnitGroups = kPanel.num_groups();
  // Offsets in a unit, as constants, because a call could become a symbol that several instruction sets define.
  static constexpr int kMinima = kPanel.minima(), kSmallScales = kPanel.small_scales();
  static constexpr int kSmallMinima = kPanel.small_minima(), kHeaderBytes = kPanel.header_bytes();
  static constexpr int kGroupBytes = kPanel.group_bytes(), kUnitBytes = kPanel.unit_bytes();

  struct Group {};
  struct Line {
    LineType line;

    template <int kPair>
    QUIRE_INLINE NumberPairs Pair(const Group& /*group*/) const {
      return line.template Pair<kPair>();
    }
  };

  struct Place {
    const uint8_t* unit;
    int group;  // In the unit.

    QUIRE_INLINE const uint8_t* lines() const { return unit + kHeaderBytes + group * kGroupBytes; }
    QUIRE_INLINE Vec Scale(int half) const {
      const Vec scale = Load(reinterpret_cast<const Float16*>(unit) + half * kLanes);
      if constexpr (kUnitGroups == 1) return scale;
      const uint8_t* const small = unit + kSmallScales + group * kPanelColumns + half * kLanes;
      return Mul(scale, SignedByteFloats(small));
    }
    QUIRE_INLINE Vec Minimum(int half) const {
      const Vec minimum = Load(reinterpret_cast<const Float16*>(unit + kMinima) + half * kLanes);
      const uint8_t* const small = unit + kSmallMinima + group * kPanelColumns + half * kLanes;
      return Mul(minimum, SignedByteFloats(small));
    }
  };

  static QUIRE_INLINE Place PlaceOf(const uint8_t* panel, int group, int /*group_columns*/) {
    return {panel + int64_t{group / kUnitGroups} * kUnitBytes, group % kUnitGroups};
  }
  static QUIRE_INLINE Group ReadGroup(const Place& /*place*/, int /*vec*/) { return {}; }
  static QUIRE_INLINE Line ReadLine(const uint8_t* p) { return {LineType::Read(p)}; }
};

template <typename X>
void LinearQ8(const LinearTask& task) {
  LinearConverted<X, BlockPanelNumbers<WeightFormat::kQ8_0, Q8Line>>(task);
}
template <typename X>
void LinearQ4K(const LinearTask& task) {
  LinearConverted<X, BlockPanelNumbers<WeightFormat::kQ4_K, Q4Line>>(task);
}
template <typename X>
void LinearQ5K(const LinearTask& task) {
  LinearConverted<X, BlockPanelNumbers<WeightFormat::kQ5_K, Q5Line>>(task);
}
template <typename X>
void LinearQ6K(const LinearTask& task) {
  LinearConverted<X, BlockPanelNumbers<WeightFormat::kQ6_K, Q6Line>>(task);
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_
