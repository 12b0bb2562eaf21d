// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_

#include <cstring>

#include "kernels/cpu/linear/block_products.h"
#include "kernels/cpu/linear/linear_blocks.h"
#include "kernels/cpu/linear/linear_epilogue.h"
#include "kernels/cpu/linear/linear_slices.h"
#include "kernels/cpu/linear/quantize_kernel.h"

// Products by weights in blocks (kernels/blocks.h), whose inputs are rounded to whole numbers q of 8 bits with a scale
// for each block. y is the sum over the blocks, in ascending order, of
//   (sum over the groups of small scale * sum of q * number) * (scale of the row's block * scale of the column's block)
// and then, in types with minima, less
//   (sum over the groups of small minimum * sum of q) * (scale of the row's block * minimum of the column's block).
// The sums are whole numbers below 2^31 and therefore exact in any order, and the other operations are the same
// everywhere, so all instruction sets give the same bits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

// Weights are fetched into the second-level cache, because the first-level one has too few buffers for lines that wait
// for memory.
QUIRE_INLINE void FetchAhead(const uint8_t* p) {
  constexpr int kBytes = 8192;
  __builtin_prefetch(p + kBytes, /*rw=*/0, /*locality=*/2);
}
constexpr int kPanelHalves = kPanelColumns / kLanes;
// A tile of rows has the sums of a group and of a block in registers. With few registers it has half a panel.
constexpr int kMaxBlockRows = kRegisters >= 32 ? 6 : kRegisters >= 8 ? 4 : 2;
constexpr int kTileHalves = kRegisters >= 32 ? kPanelHalves : 1;

template <BlockType kType>
constexpr int kSumBytes = BlockPanelOf(kType).num_groups() == 1 ? 4 : 2;

// The rows of a tile, at a unit of k.
struct BlockRows {
  const char* scales;  // Of the first row.
  const char* sums;
  const int8_t* values;
  int64_t stride;  // Bytes of a row.

  QUIRE_INLINE Vec Scale(int row) const { return Set(ReadInt<float>(scales + row * stride)); }
};

// Calls f<row, half>() for each vector of a tile.
template <int kRows, typename F>
QUIRE_INLINE void ForTile(F&& f) {
  Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
    Unroll<kTileHalves>([&]<int h>() __attribute__((always_inline)) { f.template operator()<r, h>(); });
  });
}

// Adds the products of span kSpan of a group, whose inputs begin at `values` in the first row.
template <typename Reader, int kSpan, int kRows>
QUIRE_INLINE void AddSpanProducts(const int8_t* values, int64_t stride, const uint8_t* group, int first_half,
                                  SpanSums (&span)[kRows][kTileHalves]) {
  Unroll<Reader::kSpanQuads>([&]<int i>() __attribute__((always_inline)) {
    constexpr int kQuad = kSpan * Reader::kSpanQuads + i;
    NibbleQuads w[kTileHalves];
    Unroll<kTileHalves>([&]<int h>() __attribute__((always_inline)) {
      w[h] = Reader::template Read<kQuad>(group, first_half + h);
    });
    if constexpr (kQuad < Reader::kGroupQuads) {
      // The two halves of a panel prefetch the same lines.
      constexpr int kBytes = Reader::kGroupBytes / Reader::kGroupQuads;
      FetchAhead(group + kQuad * kBytes);
      if constexpr (kBytes > kQuadBytes) FetchAhead(group + kQuad * kBytes + kQuadBytes);
    }
    ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) {
      span[r][h] = AddNibbles(span[r][h], w[h], values + r * stride + Reader::InputQuad(kQuad) * 4);
      EndAddition(&span[r][h]);
    });
  });
}

template <typename Half = Float16>
QUIRE_INLINE Vec LoadHalves(const uint8_t* p, int half) {
  return Load(reinterpret_cast<const Half*>(p) + half * kLanes);
}
template <BlockType kType>
QUIRE_INLINE Vec LoadScales(const uint8_t* p, int half) {
  if constexpr (kType == BlockType::kMXFP4) return LoadHalves<BFloat16>(p, half);
  return LoadHalves(p, half);
}

// Adds the products of a unit to y.
template <BlockType kType, int kRows>
QUIRE_INLINE void AddUnit(const BlockRows& rows, const uint8_t* unit, int first_half, Vec (&y)[kRows][kTileHalves]) {
  using Reader = BlockNumberReader<kType>;
  constexpr BlockPanel kPanel = Reader::kPanel;
  constexpr int kHeaderBytes = kPanel.header_bytes(), kGroup = kPanel.group, kPairs = kPanel.unit / kGroup / 2;
  constexpr bool kHasMinima = kPanel.has_minima;
  constexpr int kFactors = kHasMinima ? kPanel.small_minima() : kPanel.small_scales(), kMinima = kPanel.minima();
  const uint8_t* const numbers = unit + kHeaderBytes;
  for (int at = 0; at < kHeaderBytes; at += kQuadBytes) FetchAhead(unit + at);
  IntVec total[kRows][kTileHalves], less[kRows][kTileHalves];
  if constexpr (kPanel.num_groups() == 1) {
    ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) {
      total[r][h] = SetInt(ReadInt<int32_t>(rows.sums + r * rows.stride));
    });
    Unroll<Reader::kSpans>([&]<int span>() __attribute__((always_inline)) {
      SpanSums sum[kRows][kTileHalves] = {};
      AddSpanProducts<Reader, span>(rows.values, rows.stride, numbers, first_half, sum);
      ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) {
        total[r][h] =
            Reader::IsHigh(span) ? AddScaled(total[r][h], sum[r][h], SetScale(16)) : AddSpan(total[r][h], sum[r][h]);
      });
    });
  } else {
    constexpr int kScales = kPanel.small_scales(), kPairBytes = 2 * kPanelColumns;
    ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) { total[r][h] = less[r][h] = SetInt(0); });
    const auto pairs_at = [&](int offset, int pair, int half) __attribute__((always_inline)) {
      return LoadBytePairs(reinterpret_cast<const int8_t*>(unit + offset + pair * kPairBytes + half * 2 * kLanes));
    };
    for (int pair = 0; pair < kPairs; ++pair) {
      BytePairs scales[kTileHalves];
      Unroll<kTileHalves>([&]<int h>()
                              __attribute__((always_inline)) { scales[h] = pairs_at(kScales, pair, first_half + h); });
      Unroll<2>([&]<int odd>() __attribute__((always_inline)) {
        const uint8_t* const group = numbers + (2 * pair + odd) * Reader::kGroupBytes;
        const int8_t* const values = rows.values + (2 * pair + odd) * kGroup;
        Unroll<Reader::kSpans>([&]<int span>() __attribute__((always_inline)) {
          SpanSums sum[kRows][kTileHalves] = {};
          AddSpanProducts<Reader, span>(values, rows.stride, group, first_half, sum);
          ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) {
            total[r][h] = AddScaled(total[r][h], sum[r][h], ScaleOf<(odd != 0)>(scales[h]));
          });
        });
      });
    }
    for (int pair = 0; pair < kPairs; ++pair) {
      Unroll<kTileHalves>([&]<int h>() __attribute__((always_inline)) {
        const BytePairs factors = pairs_at(kFactors, pair, first_half + h);
        Unroll<kRows>([&]<int r>() __attribute__((always_inline)) {
          const auto* const sums = reinterpret_cast<const int16_t*>(rows.sums + r * rows.stride);
          less[r][h] = AddProducts(less[r][h], factors, sums + 2 * pair);
        });
      });
    }
  }
  Vec scales[kTileHalves], minima[kTileHalves];
  Unroll<kTileHalves>([&]<int h>() __attribute__((always_inline)) {
    scales[h] = LoadScales<kType>(unit, first_half + h);
    if constexpr (kHasMinima) minima[h] = LoadHalves(unit + kMinima, first_half + h);
  });
  ForTile<kRows>([&]<int r, int h>() __attribute__((always_inline)) {
    if constexpr (kType == BlockType::kQ6_K) total[r][h] = Subtract(total[r][h], less[r][h], /*shift=*/5);
    const Vec scale = rows.Scale(r);
    y[r][h] = Add(y[r][h], Mul(ToFloats(total[r][h]), Mul(scale, scales[h])));
    if constexpr (kHasMinima) y[r][h] = Sub(y[r][h], Mul(ToFloats(less[r][h]), Mul(scale, minima[h])));
  });
}

// Consecutive units of a panel and of the inputs.
struct BlockSpan {
  const uint8_t* units;
  int first;  // Index of the first unit in a row.
  int count;
};

// Adds the products of kRows rows from `row` on to sums[row, row + kRows), which are [rows][32].
template <BlockType kType, int kRows>
void AddRows(const LinearTask& task, const BlockSpan& span, int row, float* sums) {
  using Reader = BlockNumberReader<kType>;
  constexpr int kUnit = Reader::kPanel.unit, kUnitBytes = Reader::kPanel.unit_bytes();
  constexpr int kUnitSums = kUnit / Reader::kPanel.group * kSumBytes<kType>;
  const BlockInput input = BlockInputOf(kType, task.cols);
  const char* const x = static_cast<const char*>(task.x.data) + row * task.x.stride;
  for (int half = 0; half < kPanelHalves; half += kTileHalves) {
    Vec y[kRows][kTileHalves];
    float* const to = sums + row * kPanelColumns + half * kLanes;
    ForTile<kRows>([&]<int r, int h>()
                       __attribute__((always_inline)) { y[r][h] = Load(to + r * kPanelColumns + h * kLanes); });
    BlockRows rows = {x + span.first * 4, x + input.sums_at + span.first * kUnitSums,
                      reinterpret_cast<const int8_t*>(x + input.values_at) + span.first * kUnit, task.x.stride};
    for (int i = 0; i < span.count; ++i) {
      AddUnit<kType>(rows, span.units + int64_t{i} * kUnitBytes, half, y);
      rows.scales += sizeof(float);
      rows.sums += kUnitSums;
      rows.values += kUnit;
    }
    ForTile<kRows>([&]<int r, int h>()
                       __attribute__((always_inline)) { Store(to + r * kPanelColumns + h * kLanes, y[r][h]); });
  }
}

// REQUIRES: 1 <= rows <= kRows.
template <BlockType kType, int kRows = kMaxBlockRows>
void DispatchBlockRows(const LinearTask& task, const BlockSpan& span, int row, int rows, float* sums) {
  if (rows == kRows) return AddRows<kType, kRows>(task, span, row, sums);
  if constexpr (kRows > 1) DispatchBlockRows<kType, kRows - 1>(task, span, row, rows, sums);
}

// With several tiles of rows, all of them are multiplied by some columns of a panel while these are in the cache.
template <BlockType kType>
void LinearBlocks(const LinearTask& task) {
  constexpr int kUnit = BlockPanelOf(kType).unit, kUnitBytes = BlockPanelOf(kType).unit_bytes();
  const int num_tiles = (task.num_rows + kMaxBlockRows - 1) / kMaxBlockRows;
  const int units_in_slice = task.cols / kUnit / task.num_slices;
  const int units_at_once = num_tiles == 1 ? units_in_slice : kBlockColumnsAtOnce / kUnit;
  auto* const sums = static_cast<float*>(task.scratch);
  const int num_sums = task.num_rows * kPanelColumns;
  float* const earlier = sums + num_sums;
  for (int index = 0; index < task.num_panels; ++index) {
    const auto* const panel = static_cast<const uint8_t*>(task.w.panels) + index * task.w.panel_elements;
    for (int slice = 0; slice < task.num_slices; ++slice) {
      memset(sums, 0, num_sums * sizeof(float));
      const int end = (slice + 1) * units_in_slice;
      for (int unit = end - units_in_slice; unit < end; unit += units_at_once) {
        const BlockSpan span = {panel + int64_t{unit} * kUnitBytes, unit, Min(units_at_once, end - unit)};
        int row = 0;
        for (int tiles = num_tiles; tiles > 0; --tiles) {
          const int rows = (task.num_rows - row + tiles - 1) / tiles;
          DispatchBlockRows<kType>(task, span, row, rows, sums);
          row += rows;
        }
      }
      const int num_earlier = NumEarlierSums(slice);
      const bool is_last = slice + 1 == task.num_slices;
      AddEarlierRows(num_sums, sums, num_earlier, earlier, num_sums,
                     is_last ? sums : earlier + int64_t{num_earlier} * num_sums);
    }
    StoreRows(task, /*row=*/0, task.num_rows, index, sums);
  }
}

// Rounds a row as BlockInput says.
template <BlockType kType>
void QuantizeBlockRow(const QuantizeBlocksTask& task) {
  constexpr BlockPanel kPanel = BlockPanelOf(kType);
  const BlockInput input = BlockInputOf(kType, task.cols);
  const int offset = NumberOffset(task.type);
  char* const row = static_cast<char*>(task.row);
  auto* values = reinterpret_cast<int8_t*>(row + input.values_at);
  char *scales = row, *sums = row + input.sums_at;
  const float* const end = task.x + task.cols;
  for (const float* x = task.x; x < end; scales += sizeof(float)) {
    const float largest = LargestMagnitude(x, kPanel.unit);
    const bool is_zero = !(largest >= kSmallestMagnitude);  // Also true for a NaN.
    const float scale = is_zero ? 0 * largest : largest / 127.0f;
    memcpy(scales, &scale, sizeof(scale));
    const Vec inverse = Set(is_zero ? 0 : 127.0f / largest);
    for (int k = 0; k < kPanel.unit; k += kPanel.group, sums += kSumBytes<kType>) {
      Vec sum = Zero();
      for (int i = 0; i < kPanel.group; i += kLanes, x += kLanes, values += kLanes) {
        const Vec rounded = is_zero ? Zero() : Round(Mul(Load(x), inverse));
        sum = Add(sum, rounded);
        StoreQuantized(values, rounded);
      }
      const auto whole = int32_t(ReduceAdd(sum));  // Exact.
      if constexpr (kPanel.num_groups() == 1) {
        const int32_t less = -offset * whole;
        memcpy(sums, &less, sizeof(less));
      } else {
        const auto word = int16_t(whole);
        memcpy(sums, &word, sizeof(word));
      }
    }
  }
}

void LinearQ8_0(const LinearTask& task) {
  LinearBlocks<BlockType::kQ8_0>(task);
}
void LinearQ4_K(const LinearTask& task) {
  LinearBlocks<BlockType::kQ4_K>(task);
}
void LinearQ5_K(const LinearTask& task) {
  LinearBlocks<BlockType::kQ5_K>(task);
}
void LinearQ6_K(const LinearTask& task) {
  LinearBlocks<BlockType::kQ6_K>(task);
}
void LinearIQ4_NL(const LinearTask& task) {
  LinearBlocks<BlockType::kIQ4_NL>(task);
}
void LinearMXFP4(const LinearTask& task) {
  LinearBlocks<BlockType::kMXFP4>(task);
}

// The types of a case have the same units and groups.
void QuantizeBlocks(const QuantizeBlocksTask& task) {
  switch (task.type) {
    case BlockType::kQ8_0:
    case BlockType::kIQ4_NL:
    case BlockType::kMXFP4:
      return QuantizeBlockRow<BlockType::kQ8_0>(task);
    case BlockType::kQ4_K:
    case BlockType::kQ5_K:
      return QuantizeBlockRow<BlockType::kQ4_K>(task);
    case BlockType::kQ6_K:
      return QuantizeBlockRow<BlockType::kQ6_K>(task);
  }
}

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_BLOCK_KERNEL_H_
