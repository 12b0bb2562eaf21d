// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_PACKED_WEIGHTS_H_
#define QUIRE_KERNELS_CUDA_PACKED_WEIGHTS_H_

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/simt/simt.h"

// Quantized weights as they are stored on a GPU, and how their numbers become 16-bit floats in registers.
//
// The weight of row n and column k is (value[n][k] - zero[n][k / group]) * scale[n][k / group], where zero is 0 in int8
// and FP8. The kernels for these weights never round the inputs of products (W4A16, W8A16). Matrices of int8 and
// FP8 whose products round their input are stored in another way (byte_matrix.h).
//
// The values are cut into tiles of 16 rows, and a tile into blocks of 128 columns. Rows and columns that are missing at
// the end have values and scales of 0. A lane of a warp holds the values of a block that it multiplies: rows g and g +
// 8, columns 32 q + 8 t to 32 q + 8 t + 7 for the quarters q = 0 to 3, where g = lane / 4 and t = lane % 4. So the
// values need no change of order on their way into the first factor of mma.m16n8k16. The columns of a step of 16 are 8
// t + 4 s to 8 t + 4 s + 3 for all t, where s = 0 or 1 is the step of the quarter; the kernels load x in the same
// order.
//
// The first factor of a step is four pairs: rows g, g + 8, g, g + 8; the first two have columns 0 and 1 of the lane's
// four, the others 2 and 3. Below, (i, 0) and (i, 1) are the two numbers of pair i.
//   int4   A word is a step. Number (i, j) has the four bits from 4 i + 16 j on. A lane has 16 bytes of two
//          quarters.
//   int8   Two words are a step: pairs 0 and 1, then 2 and 3. Number (i, j) is byte i % 2 + 2 j of its word, in two's
//          complement. A lane has 16 bytes of each quarter.
//   FP8    The same with numbers of E4M3.
// The pieces of 16 bytes of a warp are consecutive, as are the quarters, the blocks of a tile, and the tiles.

namespace quire::cuda {

struct PackedWeights {
  const char* values;      // [num_tiles][num_blocks][pieces of the format][32 lanes][16 bytes]
  const float* scales;     // [num_tiles][num_groups][16 rows]
  const uint8_t* zeros;    // In int4, one for each scale, at most 16; otherwise null.
  int32_t rows;            // Rows of the matrix.
  int32_t cols;            // A multiple of 8.
  int32_t num_blocks;      // ceil(cols / 128).
  int32_t num_groups;      // In all blocks of columns, at least 1. There are at most 2^31 scales.
  int32_t group_quarters;  // Columns that share a scale, in units of 32.
};

constexpr int kWeightTileRows = 16;
constexpr int kBlockColumns = 128;
constexpr int kQuarterColumns = 32;
constexpr int kBlockQuarters = kBlockColumns / kQuarterColumns;
constexpr int kPieceBytes = 16 * simt::kWarpSize;

// The first factor of the two steps of a quarter, for mma.m16n8k16.
struct WeightFragments {
  uint32_t step[2][4];
};

// Each format converts the words of a quarter. The results are exact: value - zero, without the scale.

struct Int4Values {
  static constexpr int kPieces = 2;  // Pieces of 16 bytes of each lane and block.
  static constexpr bool kHasZeros = true;

  // `zeros` are the zero points of rows g and g + 8, in the lowest bytes.
  template <typename Element>
  static QUIRE_DEVICE WeightFragments Convert(const simt::U32x4 (&pieces)[kPieces], int quarter, uint32_t zeros) {
    const uint32_t zero_pairs[2] = {Element::kMagic + (zeros & 0xff) * 0x00010001u,
                                    Element::kMagic + (zeros >> 8) * 0x00010001u};
    WeightFragments result;
    QUIRE_UNROLL for (int s = 0; s < 2; ++s) {
      const uint32_t word = pieces[quarter / 2].word[quarter % 2 * 2 + s];
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        const uint32_t pair = simt::AndOr(word >> (4 * i), 0x000f000fu, Element::kMagic);
        result.step[s][i] = Element::Fma(zero_pairs[i % 2], Element::kMinusOne, pair);
      }
    }
    return result;
  }
};

// Two words of a step hold four pairs, whose numbers are in bytes 0 and 2, or 1 and 3.
template <typename Values>
struct ByteValues {
  static constexpr int kPieces = 4;
  static constexpr bool kHasZeros = false;

  template <typename Element>
  static QUIRE_DEVICE WeightFragments Convert(const simt::U32x4 (&pieces)[kPieces], int quarter, uint32_t /*zeros*/) {
    WeightFragments result;
    QUIRE_UNROLL for (int s = 0; s < 2; ++s) {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        const uint32_t word = pieces[quarter].word[2 * s + i / 2];
        result.step[s][i] = i % 2 == 0 ? Values::LowBytes(word, Element()) : Values::HighBytes(word, Element());
      }
    }
    return result;
  }
};

struct Int8Values : ByteValues<Int8Values> {
  // The lower seven bits of a byte are added to 128, and what is taken away is 128, or 256 if the highest bit is set.
  static QUIRE_DEVICE uint32_t LowBytes(uint32_t word, Bf16) {
    const uint32_t seven_bits = simt::AndOr(word, 0x007f007fu, Bf16::kMagic);
    const uint32_t sign = simt::AndOr(word, 0x00800080u, Bf16::kMagic);
    return Bf16::Fma(sign, Bf16::kMinusOne, seven_bits);
  }
  static QUIRE_DEVICE uint32_t LowBytes(uint32_t word, F16) {
    constexpr uint32_t k1152 = F16::kMagic + 0x00800080u;
    return F16::Fma(k1152, F16::kMinusOne, (word & 0x00ff00ffu) ^ k1152);
  }
  template <typename Element>
  static QUIRE_DEVICE uint32_t HighBytes(uint32_t word, Element element) {
    return LowBytes(word >> 8, element);
  }
};

struct Fp8Values : ByteValues<Fp8Values> {
  // The bits of E4M3, read as a float with a wider exponent, are the number times a power of two. The addition of -0
  // keeps the sign of 0.
  static QUIRE_DEVICE uint32_t HighBytes(uint32_t word, Bf16) {
    const uint32_t bits = simt::AndOr(word, 0x80008000u, (word & 0x7f007f00u) >> 4);
    return Bf16::Fma(bits, /*2^120=*/0x7b807b80u, 0x80008000u);
  }
  static QUIRE_DEVICE uint32_t HighBytes(uint32_t word, F16) {
    const uint32_t bits = simt::AndOr(word, 0x80008000u, (word & 0x7f007f00u) >> 1);
    return F16::Fma(bits, /*2^8=*/0x5c005c00u, 0x80008000u);
  }
  template <typename Element>
  static QUIRE_DEVICE uint32_t LowBytes(uint32_t word, Element element) {
    return HighBytes(word << 8, element);
  }
};

// Scale and zero points of the two rows of a lane in one group.
struct LaneScales {
  float scale[2];
  uint32_t zeros;  // Convert takes them.

  template <typename Values>
  static QUIRE_DEVICE LaneScales Load(const PackedWeights& w, int tile, int group) {
    const int at = (tile * w.num_groups + group) * kWeightTileRows + simt::LaneIndex() / 4;
    LaneScales result;
    QUIRE_UNROLL for (int i = 0; i < 2; ++i) result.scale[i] = simt::LoadReadOnly(w.scales + at + 8 * i);
    result.zeros = 0;
    if constexpr (Values::kHasZeros) {
      result.zeros = simt::LoadReadOnly(w.zeros + at) | uint32_t{simt::LoadReadOnly(w.zeros + at + 8)} << 8;
    }
    return result;
  }

  // The scales and then the zero points of a tile and group in shared memory, in pieces of 16 bytes.
  template <typename Values>
  static constexpr int kPieces = Values::kHasZeros ? 5 : 4;

  // Copies one of the pieces.
  static QUIRE_DEVICE void CopyPiece(const PackedWeights& w, int tile, int group, int piece, char* entry) {
    constexpr int kZeroPiece = 4;
    const int64_t at = (int64_t{tile} * w.num_groups + group) * kWeightTileRows;
    const void* const from = piece == kZeroPiece ? static_cast<const void*>(w.zeros + at) : w.scales + at + 4 * piece;
    simt::CopyAsync16(entry + 16 * piece, from, true);
  }

  template <typename Values>
  static QUIRE_DEVICE LaneScales LoadEntry(const char* entry) {
    const int row = simt::LaneIndex() / 4;
    const float* const scales = reinterpret_cast<const float*>(entry);
    const auto* const zeros = reinterpret_cast<const uint8_t*>(scales + kWeightTileRows);
    LaneScales result;
    QUIRE_UNROLL for (int i = 0; i < 2; ++i) result.scale[i] = simt::LoadShared(scales + row + 8 * i);
    result.zeros = 0;
    if constexpr (Values::kHasZeros) {
      result.zeros = simt::LoadShared(zeros + row) | uint32_t{simt::LoadShared(zeros + row + 8)} << 8;
    }
    return result;
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_PACKED_WEIGHTS_H_
