// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_CONVERT_INT8_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_CONVERT_INT8_H_

#include "kernels/cuda/attention_copy.h"
#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/packed_weights.h"

namespace quire::cuda {

// Makes 16-bit floats of the numbers in bytes 0 and 2, or 1 and 3, of a word. They are divided by kDivisor, a power of
// two, by which their scales are multiplied. Both are exact: the scales of 16-bit numbers are at most 2^128 / 127.
template <typename Element>
struct Int8Operand : Int8Values {
  static constexpr float kDivisor = 1;
};
// The bits of a whole number from 0 to 255, read as bfloat16, are the number times 2^-133. So it takes one logical
// operation and one fused multiply-add to make x / 64 of x + 128.
template <>
struct Int8Operand<Bf16> {
  static constexpr float kDivisor = 64;
  static QUIRE_DEVICE uint32_t LowBytes(uint32_t word, Bf16) {
    return Bf16::Fma(simt::AndXor(word, 0x00ff00ffu, 0x00800080u), /*2^127=*/0x7f007f00u, /*-2=*/0xc000c000u);
  }
  static QUIRE_DEVICE uint32_t HighBytes(uint32_t word, Bf16 element) { return LowBytes(word >> 8, element); }
};

// Two consecutive units of int8 on their way into the buffers of AttentionPrefillSm90, which hold 16-bit units. One
// warp copies their numbers to shared memory asynchronously, and later converts them, which is exact, and stores them
// where copies of 16-bit units would have stored them.
//
// Let g = lane / 8 and t = lane % 8. Of 8 tokens and a panel of 64 elements, a lane copies and converts chunk g of int8
// of token t, which becomes the 16-bit chunks 2g and 2g + 1: bytes 0 and 2 of its words belong to the first one
// (kv_unit.h). Lanes read only what they have copied themselves. Each quarter of a warp stores the same chunk of 8
// tokens, which is in 8 different groups of banks.
template <int kHeadDim>
class Int8Pair {
 public:
  static constexpr int kUnits = 2;

 private:
  static_assert(kHeadDim % 64 == 0);
  using Unit = KvUnit<kHeadDim, 1>;
  static constexpr int kPanels = kHeadDim / 64;
  static constexpr int kTokensAtOnce = 8;
  static constexpr int kParts = kUnitTokens / kTokensAtOnce;  // Number of parts of a unit.
  static constexpr int kMatrixBytes = Unit{kUnitTokens}.matrix_bytes();
  static constexpr int kScaleBytes = 2 * Unit{kUnitTokens}.scale_bytes();  // Bytes of the scales of K and V.
  static constexpr int kCopyBytes = simt::kWarpSize * Unit::kChunkBytes;
  static constexpr int kNumberBytes = kUnits * kParts * kPanels * kCopyBytes;

 public:
  // Bytes of K or V of both units, and of the scales of both K and V.
  static constexpr int kBytes = kNumberBytes + kUnits * kScaleBytes;

  // Starts to copy K, and the scales of K and V, or V of the units `first_unit` and the next one to `to`. Tokens behind
  // the end of the item become zeros. The scales of up to three of them are copied, too. No row uses them.
  static QUIRE_DEVICE void Start(const ItemRows& rows, const uint32_t* table, int first_unit, bool is_keys, char* to) {
    const int lane = simt::LaneIndex(), token = lane % kTokensAtOnce;
    // A lane of each half of the warp looks up a unit. Of units behind the end nothing is copied.
    const int last_unit = (rows.item.end - 1) / kUnitTokens;
    int unit = first_unit + lane / kUnitTokens;
    if (unit > last_unit) unit = last_unit;
    const char* const lane_unit = FullUnit<Unit>(rows, table, unit);
    const int at = Unit{kUnitTokens}.Place(token, lane / kTokensAtOnce) * Unit::kChunkBytes;
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      const char* const matrix = AddressOf(lane_unit, u * kUnitTokens) + (is_keys ? 0 : kMatrixBytes);
      const int num_tokens = rows.item.end - (first_unit + u) * kUnitTokens;
      QUIRE_UNROLL for (int part = 0; part < kParts; ++part) {
        const bool exists = part * kTokensAtOnce + token < num_tokens;
        QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
          // A panel has four chunks of int8, and the places of chunks in a row differ by an exclusive or.
          const int place = (at ^ p * 4 * Unit::kChunkBytes) + part * (kMatrixBytes / kParts);
          simt::CopyAsync16(to + Copy(u, part, p) + lane * Unit::kChunkBytes, matrix + place, exists);
        }
      }
    }
    if (!is_keys) return;
    constexpr int kUnitChunks = kScaleBytes / Unit::kChunkBytes, kMatrixScaleChunks = kUnitChunks / 2;
    constexpr int kChunkTokens = Unit::kChunkBytes / int(sizeof(float));
    const int u = lane / kUnitChunks, chunk = lane % kUnitChunks;
    const char* const scales = AddressOf(lane_unit, u * kUnitTokens) + 2 * kMatrixBytes;
    if (u < kUnits) {
      const int num_tokens = rows.item.end - (first_unit + u) * kUnitTokens;
      simt::CopyAsync16(to + kNumberBytes + lane * Unit::kChunkBytes, scales + chunk * Unit::kChunkBytes,
                        chunk % kMatrixScaleChunks * kChunkTokens < num_tokens);
    }
  }

  // Converts what has been copied to `from`. In `to`, panels and units of 16 bits are kPanelDistance and kUnitDistance
  // bytes apart.
  template <typename Element, int kPanelDistance, int kUnitDistance>
  static QUIRE_DEVICE void Convert(const char* from, char* to) {
    constexpr int kRowBytes = KvUnit<kHeadDim>::kPanelChunks * KvUnit<kHeadDim>::kChunkBytes;
    const int lane = simt::LaneIndex(), token = lane % kTokensAtOnce;
    const int place = 2 * (lane / kTokensAtOnce) ^ token;
    const int first = token * kRowBytes + place * Unit::kChunkBytes, second = first ^ Unit::kChunkBytes;
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      QUIRE_UNROLL for (int part = 0; part < kParts; ++part) {
        QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
          const auto numbers = simt::LoadShared(
              reinterpret_cast<const simt::U32x4*>(from + Copy(u, part, p) + lane * Unit::kChunkBytes));
          simt::U32x4 low, high;
          QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
            low.word[i] = Int8Operand<Element>::LowBytes(numbers.word[i], Element());
            high.word[i] = Int8Operand<Element>::HighBytes(numbers.word[i], Element());
          }
          char* const rows = to + u * kUnitDistance + p * kPanelDistance + part * kTokensAtOnce * kRowBytes;
          simt::StoreShared(reinterpret_cast<simt::U32x4*>(rows + first), low);
          simt::StoreShared(reinterpret_cast<simt::U32x4*>(rows + second), high);
        }
      }
    }
  }

  // Stores the scales that have been copied to `from`, behind a SyncWarp: the scales of K to `to`, and the scales of V
  // kMatrixDistance floats behind them. K and V are converted to Key and Value. MultiplyByScales has their order.
  template <typename Key, typename Value, int kMatrixDistance>
  static QUIRE_DEVICE void StoreScales(const char* from, float* to) {
    const int u = simt::LaneIndex() / kUnitTokens, token = simt::LaneIndex() % kUnitTokens;
    const float* const scales = reinterpret_cast<const float*>(from + kNumberBytes + u * kScaleBytes) + token;
    float* const place = to + u * kUnitTokens + token % 8 / 2 * 4 + token / 8 * 2 + token % 2;
    simt::StoreShared(place, simt::LoadShared(scales) * Int8Operand<Key>::kDivisor);
    simt::StoreShared(place + kMatrixDistance, simt::LoadShared(scales + kUnitTokens) * Int8Operand<Value>::kDivisor);
  }

 private:
  // Returns where the copies of a part of a unit begin.
  static QUIRE_HOST_DEVICE constexpr int Copy(int u, int part, int p) {
    return ((u * kParts + part) * kPanels + p) * kCopyBytes;
  }

  // Returns the address of `lane`.
  static QUIRE_DEVICE const char* AddressOf(const char* own, int lane) {
    const uint64_t bits = reinterpret_cast<uintptr_t>(own);
    const uint64_t low = simt::Shuffle(uint32_t(bits), lane), high = simt::Shuffle(uint32_t(bits >> 32), lane);
    return reinterpret_cast<const char*>(uintptr_t(high << 32 | low));
  }
};

// Multiplies the scores, or weights, of consecutive units by the scales of their tokens. A lane has the tokens 2t,
// 2t + 1, 2t + 8 and 2t + 9 of a unit, where t = lane % 4, and their scales are together.
template <int kUnits>
QUIRE_DEVICE void MultiplyByScales(const float* scales, float (&tile)[kUnits][8]) {
  QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
    const auto own =
        simt::LoadShared(reinterpret_cast<const Floats<4>*>(scales + u * kUnitTokens) + simt::LaneIndex() % 4);
    QUIRE_UNROLL for (int i = 0; i < 8; ++i) tile[u][i] *= own.x[i / 4 * 2 + i % 2];
  }
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_CONVERT_INT8_H_
