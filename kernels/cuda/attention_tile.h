// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_TILE_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_TILE_H_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/attention_args.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/kv_unit.h"
#include "kernels/simt/simt.h"

// Flash attention of 16 rows of queries over units of 16 tokens, by one warp. All values stay in registers, in the
// layout of mma.m16n8k16. With g = lane / 4 and t = lane % 4, a lane holds the columns 2t and 2t + 1 of every 8 columns
// of the rows g and g + 8.

namespace quire::cuda {

constexpr int kTileRows = 16;
constexpr int kUnitTokens = KvLayout::kUnitTokens;
constexpr float kMinusInfinity = -INFINITY;

// Loads a plain struct of 32-bit words from read-only memory.
template <typename T>
QUIRE_DEVICE T LoadWords(const T* p) {
  static_assert(sizeof(T) % 4 == 0);
  uint32_t words[sizeof(T) / 4];
  QUIRE_UNROLL for (int i = 0; i < int(sizeof(T) / 4); ++i) {
    words[i] = simt::LoadReadOnly(reinterpret_cast<const uint32_t*>(p) + i);
  }
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
}

// Calls do_one(i, kv_head) for every item, or merge, i of the launch and every KV head. It works for any grid size,
// because a thread block processes several of them in turn. The most expensive items come first. With kBackAndForth,
// the block that has the first item of a round has the last one of the next round, so that all blocks get about the
// same work.
template <bool kBackAndForth = false, typename F>
QUIRE_DEVICE void ForEachInRange(const AttentionArgs& args, F do_one) {
  simt::WaitForPriorGrid();
  int place = simt::BlockIndex();
  for (int i = place;; i += simt::GridSize()) {
    // The range is loaded for every item, because the kernels have no registers to spare.
    const int first = simt::LoadGlobal(args.range), end = simt::LoadGlobal(args.range + 1);
    if (i >= (end - first) * args.num_kv_heads) break;
    do_one(first + i / args.num_kv_heads, i % args.num_kv_heads);
    if (kBackAndForth) {
      const int opposite = simt::GridSize() - 1 - place;
      i += opposite - place;
      place = opposite;
    }
  }
  simt::TriggerNextGrid();
}

// The queries of an item. Row r is query head r % group_size of the KV head's group, for token r / group_size.
struct ItemRows {
  const AttentionArgs& args;
  AttentionItem item;
  int kv_head;

  QUIRE_DEVICE int count() const { return item.num_rows * args.group_size; }
  // Returns the token index in the batch.
  QUIRE_DEVICE int Token(int row) const {
    return simt::LoadReadOnly(args.tokens + item.first_row + row / args.group_size);
  }
  QUIRE_DEVICE int Head(int row) const { return kv_head * args.group_size + row % args.group_size; }
  // Returns the index of the row's partial result.
  QUIRE_DEVICE int Partial(const PartialPlace& place, int row) const {
    return place.first + kv_head * place.head_stride + row;
  }
};

// The range [begin, end) of context tokens that each of a lane's two rows sees. Rows beyond the item see the whole
// item, because masks would cost time and their results are not used.
struct Visible {
  int begin[2];
  int end[2];

  QUIRE_DEVICE Visible(const ItemRows& rows, int first_row) {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
      begin[h] = rows.item.begin;
      end[h] = rows.item.end;
      if (row >= rows.count()) continue;
      const int position = simt::LoadReadOnly(rows.args.positions + rows.Token(row));
      const int window = rows.args.window;
      const int first = window > 0 && position >= window ? position - window + 1 : 0;
      if (begin[h] < first) begin[h] = first;
      if (end[h] > position + 1) end[h] = position + 1;
    }
  }

  QUIRE_DEVICE bool Sees(int h, int token) const { return token >= begin[h] && token < end[h]; }
  // Returns whether both rows see all of these tokens.
  QUIRE_DEVICE bool SeesAll(int first_token, int num_tokens) const {
    return first_token >= begin[0] && first_token >= begin[1] && first_token + num_tokens <= end[0] &&
           first_token + num_tokens <= end[1];
  }
};

// The rows first_row to first_row + 15 of the item. Rows beyond the item are zero.
template <int kHeadDim>
struct Queries {
  uint32_t a[kHeadDim / 16][4];

  QUIRE_DEVICE Queries(const ItemRows& rows, int first_row) {
    const int t = simt::LaneIndex() % 4;
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
      QUIRE_UNROLL for (int k = 0; k < kHeadDim / 16; ++k) a[k][h] = a[k][h + 2] = 0;
      if (row >= rows.count()) continue;
      const uint16_t* const q =
          rows.args.q + int64_t{rows.Token(row)} * rows.args.q_stride + rows.Head(row) * kHeadDim + 2 * t;
      QUIRE_UNROLL for (int k = 0; k < kHeadDim / 16; ++k) {
        a[k][h] = simt::LoadGlobal(reinterpret_cast<const uint32_t*>(q + 16 * k));
        a[k][h + 2] = simt::LoadGlobal(reinterpret_cast<const uint32_t*>(q + 16 * k + 8));
      }
    }
  }
};

// A lane finds its row for LoadMatrix4 of 16 tokens by 16 elements of K or V in shared memory here. The matrices 0 and
// 1 have the tokens 0 to 7, and 2 and 3 have the tokens 8 to 15. The matrices 0 and 2 have the first 8 elements.
//
// The row for the elements 16 * k to 16 * k + 15 is at Address(matrix, k) + kPanelStart<k>. The addresses are the same
// in all full panels, and in a panel row the places of chunks differ by an exclusive or (KvUnit).
template <int kHeadDim>
class LaneRows {
 public:
  QUIRE_DEVICE LaneRows() {
    const int lane = simt::LaneIndex(), token = lane / 16 * 8 + lane % 8, chunk = lane / 8 % 2;
    wide_ = Unit{kUnitTokens}.Place(token, chunk) * Unit::kChunkBytes;
    narrow_ = Unit{kUnitTokens}.Place(token, kFullPanels * Unit::kPanelChunks + chunk) * Unit::kChunkBytes -
              kFullPanels * kPanelBytes;
  }

  QUIRE_DEVICE const char* Address(const char* matrix, int k) const {
    const int distance = 2 * k % Unit::kPanelChunks * Unit::kChunkBytes;
    return matrix + ((2 * k / Unit::kPanelChunks < kFullPanels ? wide_ : narrow_) ^ distance);
  }

  template <int k>
  static constexpr int kPanelStart =
      2 * k /
      KvUnit<kHeadDim>::kPanelChunks* KvUnit<kHeadDim>::kPanelChunks* kUnitTokens* KvUnit<kHeadDim>::kChunkBytes;

 private:
  using Unit = KvUnit<kHeadDim>;
  static constexpr int kFullPanels = Unit::kRowChunks / Unit::kPanelChunks;
  static constexpr int kPanelBytes = Unit::kPanelChunks * kUnitTokens * Unit::kChunkBytes;

  int wide_;    // The lane's row for the first 16 elements of a full panel, in bytes from its start.
  int narrow_;  // The same for the narrow last panel.
};

// The running softmax of 16 rows and its product with V, in the registers of a warp. Until JoinLanes, `sum` covers only
// the lane's own tokens.
template <int kHeadDim>
class SoftmaxRows {
 public:
  // Weights are 2^(score - max). For a row that has seen no token, max is -inf. Otherwise max is one of the largest
  // scores so far: none of the others is larger by more than kSlack.
  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0, 0};
  float values[kHeadDim / 8][4] = {};

  // Gives every lane the sums of its rows.
  QUIRE_DEVICE void JoinLanes() {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      sum[h] += simt::ShuffleXor(sum[h], 1);
      sum[h] += simt::ShuffleXor(sum[h], 2);
    }
  }

 protected:
  // Caps the scores, if there is a softcap. tanh(x) is 1 - 2 / (1 + exp(2 x)).
  template <int kUnits>
  static QUIRE_DEVICE void Cap(const AttentionArgs& args, float (&scores)[kUnits][8]) {
    if (args.cap == 0) return;
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      QUIRE_UNROLL for (int i = 0; i < 8; ++i) {
        const float share = simt::Reciprocal(1 + simt::Exp2(scores[u][i] * args.cap_slope));
        scores[u][i] = __builtin_fmaf(-2 * args.cap, share, args.cap);
      }
    }
  }

  // Hides the scores of tokens that a row does not see. The scores belong to kUnits consecutive units, of which
  // `first_token` is the first token in the context.
  template <int kUnits>
  static QUIRE_DEVICE void HideInvisible(const Visible& visible, int first_token, float (&scores)[kUnits][8]) {
    if (!simt::All(visible.SeesAll(first_token, kUnits * kUnitTokens))) Hide(visible, first_token, scores);
  }

  // Turns scores into weights and adds them to the sums.
  template <int kUnits>
  QUIRE_DEVICE void SoftMax(float scale_log2, float (&scores)[kUnits][8]) {
    float largest[2];
    if (HaveGrown(scale_log2, scores, largest)) {
      QUIRE_UNROLL for (int h = 0; h < 2; ++h) ShrinkValues(h, RaiseMax(h, largest[h]));
    }
    AddWeights(scale_log2, scores);
  }

  // Finds the largest scores of both rows, and returns whether max must be raised in some row of the warp.
  template <int kUnits>
  QUIRE_DEVICE bool HaveGrown(float scale_log2, float (&scores)[kUnits][8], float (&largest)[2]) const {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      largest[h] = Score(scores[0], h, 0);
      QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
        QUIRE_UNROLL for (int i = 0; i < 4; ++i) largest[h] = fmaxf(largest[h], Score(scores[u], h, i));
      }
      largest[h] *= scale_log2;
      largest[h] = fmaxf(largest[h], simt::ShuffleXor(largest[h], 1));
      largest[h] = fmaxf(largest[h], simt::ShuffleXor(largest[h], 2));
    }
    return simt::Any(largest[0] > max[0] + kSlack || largest[1] > max[1] + kSlack);
  }

  // Raises the max of row h, if its scores have grown, and shrinks its sum. Returns the factor by which its values must
  // shrink before something is added to them. In rows whose scores have not grown, the factor is 1.
  QUIRE_DEVICE float RaiseMax(int h, float largest) {
    const float old_max = max[h];
    if (largest > old_max + kSlack) max[h] = largest;
    const float factor = simt::Exp2(old_max - fmaxf(max[h], kLowest));
    sum[h] *= factor;
    return factor;
  }

  QUIRE_DEVICE void ShrinkValues(int h, float factor) {
    QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
      values[n][2 * h] *= factor;
      values[n][2 * h + 1] *= factor;
    }
  }

  // Turns scores into weights, of which none is larger than 2^kSlack, and adds them to `sum`.
  template <int kUnits>
  QUIRE_DEVICE void AddWeights(float scale_log2, float (&scores)[kUnits][8]) {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      // A row that has seen no token yet would compute -inf - -inf, which is NaN.
      const float offset = fmaxf(max[h], kLowest);
      QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
        QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
          float& score = Score(scores[u], h, i);
          score = simt::Exp2(__builtin_fmaf(score, scale_log2, -offset));
          sum[h] += score;
        }
      }
    }
  }

  // Rounds the weights of a unit. They are in the layout of a result, which becomes the layout of an input.
  template <typename Element>
  static QUIRE_DEVICE void RoundWeights(const float (&weights)[8], uint32_t (&a)[4]) {
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) a[i] = Element::Pack(weights[2 * i], weights[2 * i + 1]);
  }

  // Makes the scores of invisible tokens -inf, or their weights 0.
  template <int kUnits>
  static QUIRE_DEVICE void Hide(const Visible& visible, int first_token, float (&scores)[kUnits][8],
                                float hidden = kMinusInfinity) {
    const int first = first_token + simt::LaneIndex() % 4 * 2;
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
          if (!visible.Sees(h, first + u * kUnitTokens + i / 2 * 8 + i % 2)) Score(scores[u], h, i) = hidden;
        }
      }
    }
  }

 private:
  // Growth of the scores, in powers of two, at which the sums shrink to a new max, which is rare. Until then the
  // weights are larger than 1, but not too large for float16.
  static constexpr float kSlack = 8;
  static constexpr float kLowest = -3.402823466e38f;

  // Returns score i (0 to 3) of a unit for the lane's row h. It belongs to token i / 2 * 8 + 2t + i % 2.
  static QUIRE_DEVICE float& Score(float (&unit)[8], int h, int i) { return unit[i / 2 * 4 + 2 * h + i % 2]; }
};

// Attention with the instructions of one warp.
template <typename Element, int kHeadDim>
class Accumulator : public SoftmaxRows<kHeadDim> {
 public:
  // Attends to kUnits consecutive units in shared memory, each with K and then V. `first_token` is the position of
  // their first token in the context.
  template <int kUnits>
  QUIRE_DEVICE void Attend(const Queries<kHeadDim>& queries, const Visible& visible, const char* units, int first_token,
                           const AttentionArgs& args) {
    float scores[kUnits][8] = {};
    simt::Repeat<kHeadDim / 16>([&](auto k) {
      constexpr int kPanelStart = LaneRows<kHeadDim>::template kPanelStart<k>;
      const char* const row = lane_rows_.Address(units, k);
      simt::Repeat<kUnits>([&](auto u) {
        uint32_t keys[4];
        simt::LoadMatrix4<kPanelStart + u * kUnitBytes>(keys, row);
        Multiply(scores[u], 0, queries.a[k], keys[0], keys[1]);
        Multiply(scores[u], 4, queries.a[k], keys[2], keys[3]);
      });
    });
    this->Cap(args, scores);
    this->HideInvisible(visible, first_token, scores);
    this->SoftMax(args.scale_log2, scores);
    simt::Repeat<kUnits>([&](auto u) { AddValues<u * kUnitBytes + kUnitBytes / 2>(scores[u], units); });
  }

 private:
  static constexpr int kUnitBytes = KvUnit<kHeadDim>{kUnitTokens}.bytes();

  // Computes four of the eight scores of a unit.
  static QUIRE_DEVICE void Multiply(float (&scores)[8], int at, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    float c[4] = {scores[at], scores[at + 1], scores[at + 2], scores[at + 3]};
    Element::Mma(c, a, b0, b1);
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) scores[at + i] = c[i];
  }

  // Adds the product of weights and V, which is kOffset bytes behind `units`.
  template <int kOffset>
  QUIRE_DEVICE void AddValues(const float (&weights)[8], const char* units) {
    uint32_t a[4];
    this->template RoundWeights<Element>(weights, a);
    simt::Repeat<kHeadDim / 16>([&](auto n) {
      uint32_t rows[4];
      simt::LoadMatrix4Transposed<kOffset + LaneRows<kHeadDim>::template kPanelStart<n>>(rows,
                                                                                         lane_rows_.Address(units, n));
      Element::Mma(this->values[2 * n], a, rows[0], rows[2]);
      Element::Mma(this->values[2 * n + 1], a, rows[1], rows[3]);
    });
  }

  LaneRows<kHeadDim> lane_rows_;
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_TILE_H_
