// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_TILE_INT8_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_TILE_INT8_H_

#include "kernels/cuda/attention_join.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/packed_weights.h"

// The products of attention_tile.h over K and V of int8. The numbers are at most 127, so they are exact in bfloat16 and
// float16, and lanes convert them between shared memory and the products. Their scales are factors in float32:
//   - The score of a token is (sum of q * k) * scale of k.
//   - The weight exp(score - max) of a token is multiplied by the scale of its V and then rounded to bfloat16. This
//     applies to queries of float16, too, because a weight times a scale may be too large or too small for float16. The
//     sum of the weights is taken without the scales.
// So nothing is rounded that attention over 16-bit K and V does not round, and outputs have the same error.
//
// All numbers of K and V are finite, so a weight of 0 hides a token whatever its scales are.
namespace quire::cuda {

// A lane finds its row for LoadMatrix4 of 16 tokens by 32 numbers (two chunks) of K or V in shared memory here. The
// matrices 0 and 1 have the tokens 0 to 7, and 2 and 3 have the tokens 8 to 15. The matrices 0 and 2 have the first
// chunk. The row for the chunks 2 * p and 2 * p + 1 is at Address(matrix, p) + kPanelStart<p>.
template <int kHeadDim>
class Int8LaneRows {
 public:
  QUIRE_DEVICE Int8LaneRows() {
    const int lane = simt::LaneIndex(), token = lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
    // In a row with an odd number of chunks, what follows the last one is not used.
    first_ = Unit{kUnitTokens}.Place(token, chunk < Unit::kRowChunks ? chunk : 0) * Unit::kChunkBytes;
  }

  QUIRE_DEVICE const char* Address(const char* matrix, int p) const {
    const int distance = 2 * p % Unit::kPanelChunks * Unit::kChunkBytes;
    return matrix + (kIsPermuted ? first_ ^ distance : first_ + distance);
  }

  template <int p>
  static constexpr int kPanelStart = 2 * p /
                                     KvUnit<kHeadDim, 1>::kPanelChunks* KvUnit<kHeadDim, 1>::kPanelChunks* kUnitTokens*
                                         KvUnit<kHeadDim, 1>::kChunkBytes;

 private:
  using Unit = KvUnit<kHeadDim, 1>;
  static_assert(Unit::kRowChunks <= Unit::kPanelChunks || Unit::kRowChunks % Unit::kPanelChunks == 0);
  // This tells whether the places of chunks in a panel row differ by an exclusive or. Otherwise pairs of chunks keep
  // their order.
  static constexpr bool kIsPermuted = Unit::kRowChunks % 4 == 0;

  int first_;  // The lane's row for the first pair of a panel, in bytes from its start.
};

template <typename Element, int kHeadDim>
class Accumulator<Int8Kv<Element>, kHeadDim> : public SoftmaxRows<kHeadDim> {
 public:
  // Does the same as Attend of the accumulator for 16-bit elements.
  template <int kUnits>
  QUIRE_DEVICE void Attend(const Queries<kHeadDim>& queries, const Visible& visible, const char* units, int first_token,
                           const AttentionArgs& args) {
    float scores[kUnits][8] = {};
    simt::Repeat<kPairs>([&](auto p) {
      constexpr int kFirstChunk = 2 * p, kPanelStart = Int8LaneRows<kHeadDim>::template kPanelStart<p>;
      const char* const row = lane_rows_.Address(units, p);
      simt::Repeat<kUnits>([&](auto u) {
        uint32_t keys[4];
        simt::LoadMatrix4<kPanelStart + u * kUnitBytes>(keys, row);
        Multiply<Element>(scores[u], queries.a[kFirstChunk], keys[0], keys[2]);
        if constexpr (kFirstChunk + 1 < kChunks) {
          Multiply<Element>(scores[u], queries.a[kFirstChunk + 1], keys[1], keys[3]);
        }
      });
    });
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) Scale(units + u * kUnitBytes + kKeyScales, scores[u]);
    this->Cap(args, scores);
    const bool see_all = simt::All(visible.SeesAll(first_token, kUnits * kUnitTokens));
    if (!see_all) this->Hide(visible, first_token, scores);
    this->SoftMax(args.scale_log2, scores);
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) Scale(units + u * kUnitBytes + kValueScales, scores[u]);
    if (!see_all) this->Hide(visible, first_token, scores, 0);  // The scales of hidden tokens may be NaN.
    simt::Repeat<kUnits>([&](auto u) { AddValues<u * kUnitBytes + kMatrixBytes>(scores[u], units); });
  }

 private:
  using Unit = KvUnit<kHeadDim, 1>;
  static constexpr int kUnitBytes = Unit{kUnitTokens}.bytes();
  static constexpr int kMatrixBytes = Unit{kUnitTokens}.matrix_bytes();
  static constexpr int kKeyScales = 2 * kMatrixBytes;
  static constexpr int kValueScales = kKeyScales + Unit{kUnitTokens}.scale_bytes();
  static constexpr int kChunks = Unit::kRowChunks, kPairs = (kChunks + 1) / 2;
  static_assert(Unit::kChunkElements == 16);  // A chunk of K is an operand of one product.

  // Adds the product of queries and a chunk of K to the scores of a unit: of the tokens 0 to 7, and then of the others.
  template <typename Operand>
  static QUIRE_DEVICE void Multiply(float (&scores)[8], const uint32_t (&a)[4], uint32_t low_tokens,
                                    uint32_t high_tokens) {
    QUIRE_UNROLL for (int at = 0; at < 8; at += 4) {
      const uint32_t bytes = at == 0 ? low_tokens : high_tokens;
      float c[4] = {scores[at], scores[at + 1], scores[at + 2], scores[at + 3]};
      Operand::Mma(c, a, Int8Values::LowBytes(bytes, Operand()), Int8Values::HighBytes(bytes, Operand()));
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) scores[at + i] = c[i];
    }
  }

  // Multiplies the scores, or weights, of a unit by the scales of its tokens.
  static QUIRE_DEVICE void Scale(const char* scales, float (&unit)[8]) {
    QUIRE_UNROLL for (int half = 0; half < 2; ++half) {
      const auto pair = simt::LoadShared(reinterpret_cast<const Floats<2>*>(scales) + 4 * half + simt::LaneIndex() % 4);
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) unit[4 * half + i] *= pair.x[i % 2];
    }
  }

  // Adds the product of weights and V, which is kOffset bytes behind `units`.
  template <int kOffset>
  QUIRE_DEVICE void AddValues(const float (&weights)[8], const char* units) {
    uint32_t a[4];
    this->template RoundWeights<Bf16>(weights, a);
    simt::Repeat<kPairs>([&](auto p) {
      uint32_t rows[4];
      simt::LoadMatrix4Transposed<kOffset + Int8LaneRows<kHeadDim>::template kPanelStart<p>>(
          rows, lane_rows_.Address(units, p));
      AddChunk(a, 2 * p, rows[0], rows[2]);
      if constexpr (2 * p + 1 < kChunks) AddChunk(a, 2 * p + 1, rows[1], rows[3]);
    });
  }

  QUIRE_DEVICE void AddChunk(const uint32_t (&a)[4], int chunk, uint32_t low_tokens, uint32_t high_tokens) {
    Bf16::Mma(this->values[2 * chunk], a, Int8Values::LowBytes(low_tokens, Bf16()),
              Int8Values::LowBytes(high_tokens, Bf16()));
    Bf16::Mma(this->values[2 * chunk + 1], a, Int8Values::HighBytes(low_tokens, Bf16()),
              Int8Values::HighBytes(high_tokens, Bf16()));
  }

  Int8LaneRows<kHeadDim> lane_rows_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_TILE_INT8_H_
