// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_TILES_H_
#define QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_TILES_H_

#include "kernels/cpu/isa/amx_tile.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/linear/linear_amx_tiles.h"
#include "kernels/cpu/linear/linear_task.h"

// Panels of int8 and int4 as tiles. A step multiplies up to 64 columns of each row of x by a tile for each half of a
// panel, and the sums of a group are the sums of one or more steps. Sums are whole numbers, so their order does not
// matter; the rest is done in the order of linear_int8_kernel.h and linear_int4_kernel.h, and gives the same bits.
namespace quire::cpu::QUIRE_CPU_NAMESPACE {

constexpr int kWeightStride = 2 * kTileRowBytes;       // Distance between rows of a tile of weights.
constexpr int kStepBytes = kTileRows * kWeightStride;  // Bytes of the weights of a step.
constexpr int kPassRows = 2 * kTileRows;

// The formats. A format says how many columns a step has (a number that fills a row of a tile of x), how many steps a
// group and a panel have, where the numbers of x begin, and where the weights of a step are or how they are converted.
// Combine adds a vector of sums of a group to the product of the groups before.

class Int8Tiles {
 public:
  static constexpr bool kIsConverted = false;
  static constexpr int kMostGroups = 1;

  explicit Int8Tiles(const LinearTask& task)
      : task_(task), num_steps_((task.cols + kColumns - 1) / kColumns), x_(static_cast<const char*>(task.x.data)) {}

  int columns() const { return kColumns; }
  int steps_per_group() const { return num_steps_; }
  int num_steps() const { return num_steps_; }
  const char* x() const { return x_ + kQuantizedHeaderBytes; }
  const char* WeightsAt(const char* panel, int step) const {
    return panel + kInt8ScaleBytes + int64_t{step} * kStepBytes;
  }

  QUIRE_INLINE Vec Scales(const char* panel, int /*group*/, int half) const {
    return Load(reinterpret_cast<const float*>(panel) + half * kLanes);
  }
  QUIRE_INLINE Vec Combine(Vec /*before*/, const int32_t* sums, int row, int /*group*/, Vec scales) const {
    const auto* header = reinterpret_cast<const QuantizedHeader*>(x_ + row * task_.x.stride);
    const __m512i sum = _mm512_sub_epi32(_mm512_loadu_si512(sums), _mm512_set1_epi32(header->offset_sum));
    return Mul({_mm512_cvtepi32_ps(sum)}, Mul(Set(header->scale), scales));
  }
  template <int kSums, int kX, int kW>
  static QUIRE_INLINE void Multiply() {
    MultiplySignedByUnsigned<kSums, kX, kW>();
  }

 private:
  static constexpr int kColumns = 64;

  const LinearTask& task_;
  const int num_steps_;
  const char* const x_;
};

class Int4Tiles {
 public:
  static constexpr bool kIsConverted = true;
  static constexpr int kMostGroups = 4;

  explicit Int4Tiles(const LinearTask& task)
      : task_(task),
        columns_(Int4TileStep(task.w.group)),
        steps_per_group_(task.w.group / columns_),
        num_steps_((task.cols + columns_ - 1) / columns_),
        x_(static_cast<const char*>(task.x.data)) {}

  int columns() const { return columns_; }
  int steps_per_group() const { return steps_per_group_; }
  int num_steps() const { return num_steps_; }
  const char* x() const { return x_ + task_.x.header_bytes; }

  // Writes each weight minus its zero point as a signed byte: [columns / 4][32][4].
  QUIRE_INLINE void Convert(const char* panel, int step, char* to) const {
    const char* const group = GroupAt(panel, step / steps_per_group_);
    const int num_lines = columns_ / kInt4LineColumns;
    const char* from = group + kInt4HeaderBytes + step % steps_per_group_ * num_lines * kWeightStride;
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i zeros[2];
    Unroll<2>([&]<int half>() __attribute__((always_inline)) {
      const auto* bytes = reinterpret_cast<const __m128i*>(group + kPanelColumns * sizeof(float) + half * kLanes);
      zeros[half] = _mm512_mullo_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes)), _mm512_set1_epi32(0x01010101));
    });
    for (int line = 0; line < num_lines; ++line, from += kWeightStride, to += 2 * kWeightStride) {
      Unroll<2>([&]<int half>() __attribute__((always_inline)) {
        const __m512i bytes = _mm512_loadu_si512(from + half * kTileRowBytes);
        const __m512i low = _mm512_and_si512(bytes, mask);
        const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
        _mm512_storeu_si512(to + half * kTileRowBytes, _mm512_sub_epi8(low, zeros[half]));
        _mm512_storeu_si512(to + half * kTileRowBytes + kWeightStride, _mm512_sub_epi8(high, zeros[half]));
      });
    }
  }
  QUIRE_INLINE Vec Scales(const char* panel, int group, int half) const {
    return Load(reinterpret_cast<const float*>(GroupAt(panel, group)) + half * kLanes);
  }
  QUIRE_INLINE Vec Combine(Vec before, const int32_t* sums, int row, int group, Vec scales) const {
    const auto* headers = reinterpret_cast<const GroupHeader*>(x_ + row * task_.x.stride);
    const Vec sum = {_mm512_cvtepi32_ps(_mm512_loadu_si512(sums))};
    return Add(before, Mul(sum, Mul(Set(headers[group].scale), scales)));
  }
  template <int kSums, int kX, int kW>
  static QUIRE_INLINE void Multiply() {
    MultiplySigned<kSums, kX, kW>();
  }

 private:
  const char* GroupAt(const char* panel, int group) const {
    return panel + int64_t{group} * Int4GroupBytes(task_.w.group);
  }

  const LinearTask& task_;
  const int columns_;
  const int steps_per_group_;
  const int num_steps_;
  const char* const x_;
};

}  // namespace quire::cpu::QUIRE_CPU_NAMESPACE

#endif  // QUIRE_KERNELS_CPU_LINEAR_LINEAR_AMX_QUANTIZED_TILES_H_
