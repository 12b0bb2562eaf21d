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
// because a thread block processes several of them in turn.
template <typename F>
QUIRE_DEVICE void ForEachInRange(const AttentionArgs& args, F do_one) {
  simt::WaitForPriorGrid();
  const int first = simt::LoadReadOnly(args.range), end = simt::LoadReadOnly(args.range + 1);
  for (int i = simt::BlockIndex(); i < (end - first) * args.num_kv_heads; i += simt::GridSize()) {
    do_one(first + i / args.num_kv_heads, i % args.num_kv_heads);
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

// The range [begin, end) of context tokens that each of a lane's two rows sees. It is empty for rows beyond the item.
struct Visible {
  int begin[2];
  int end[2];

  QUIRE_DEVICE Visible(const ItemRows& rows, int first_row) {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
      begin[h] = end[h] = 0;
      if (row >= rows.count()) continue;
      const int position = simt::LoadReadOnly(rows.args.positions + rows.Token(row));
      const int window = rows.args.window;
      begin[h] = window > 0 && position >= window ? position - window + 1 : 0;
      if (begin[h] < rows.item.begin) begin[h] = rows.item.begin;
      end[h] = position + 1 < rows.item.end ? position + 1 : rows.item.end;
    }
  }

  QUIRE_DEVICE bool Sees(int h, int token) const { return token >= begin[h] && token < end[h]; }
};

// The rows first_row to first_row + 15 of the item. Rows beyond the item are zero.
template <int kHeadDim>
struct Queries {
  uint32_t a[kHeadDim / 16][4];

  QUIRE_DEVICE Queries(const ItemRows& rows, int first_row) {
    const int t = simt::LaneIndex() % 4;
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      const int row = first_row + simt::LaneIndex() / 4 + 8 * h;
      const bool exists = row < rows.count();
      const uint16_t* q = rows.args.q;
      if (exists) q += int64_t{rows.Token(row)} * rows.args.q_stride + rows.Head(row) * kHeadDim + 2 * t;
      QUIRE_UNROLL for (int k = 0; k < kHeadDim / 16; ++k) {
        QUIRE_UNROLL for (int half = 0; half < 2; ++half) {
          const uint32_t* pair = reinterpret_cast<const uint32_t*>(q + 16 * k + 8 * half);
          a[k][h + 2 * half] = exists ? simt::LoadGlobal(pair) : 0u;
        }
      }
    }
  }
};

// The running softmax of 16 rows and its product with V. Until JoinLanes, `sum` covers only the lane's own tokens.
template <typename Element, int kHeadDim>
struct Accumulator {
  using Unit = KvUnit<kHeadDim>;
  static constexpr int kUnitBytes = Unit{kUnitTokens}.bytes();

  float max[2] = {kMinusInfinity, kMinusInfinity};
  float sum[2] = {0, 0};
  float values[kHeadDim / 8][4] = {};

  // Attends to kUnits consecutive units in shared memory, each with K and then V. `first_token` is the position of
  // their first token in the context.
  template <int kUnits>
  QUIRE_DEVICE void Attend(const Queries<kHeadDim>& queries, const Visible& visible, const char* units, int first_token,
                           float scale_log2) {
    float scores[kUnits][8] = {};
    QUIRE_UNROLL for (int k = 0; k < kHeadDim / 16; ++k) {
      QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
        uint32_t keys[4];
        const int lane = simt::LaneIndex(), token = lane / 16 * 8 + lane % 8, chunk = 2 * k + lane / 8 % 2;
        simt::LoadMatrix4(keys, units + u * kUnitBytes + Unit{kUnitTokens}.Place(token, chunk) * Unit::kChunkBytes);
        Multiply(scores[u], 0, queries.a[k], keys[0], keys[1]);
        Multiply(scores[u], 4, queries.a[k], keys[2], keys[3]);
      }
    }
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) SoftMax(visible, h, first_token, scale_log2, scores);
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) AddValues(scores[u], units + u * kUnitBytes + kUnitBytes / 2);
  }

  // Gives every lane the sums of its rows.
  QUIRE_DEVICE void JoinLanes() {
    QUIRE_UNROLL for (int h = 0; h < 2; ++h) {
      sum[h] += simt::ShuffleXor(sum[h], 1);
      sum[h] += simt::ShuffleXor(sum[h], 2);
    }
  }

 private:
  // Computes four of the eight scores of a unit.
  static QUIRE_DEVICE void Multiply(float (&scores)[8], int at, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    float c[4] = {scores[at], scores[at + 1], scores[at + 2], scores[at + 3]};
    Element::Mma(c, a, b0, b1);
    QUIRE_UNROLL for (int i = 0; i < 4; ++i) scores[at + i] = c[i];
  }

  // Turns the scores of a lane's row into weights 2^(score - max), and scales the previous sums to the new max.
  template <int kUnits>
  QUIRE_DEVICE void SoftMax(const Visible& visible, int h, int first_token, float scale_log2,
                            float (&scores)[kUnits][8]) {
    float largest = max[h];
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        float& score = scores[u][i / 2 * 4 + 2 * h + i % 2];
        const int token = first_token + u * kUnitTokens + i / 2 * 8 + simt::LaneIndex() % 4 * 2 + i % 2;
        score = visible.Sees(h, token) ? score * scale_log2 : kMinusInfinity;
        largest = fmaxf(largest, score);
      }
    }
    largest = fmaxf(largest, simt::ShuffleXor(largest, 1));
    largest = fmaxf(largest, simt::ShuffleXor(largest, 2));
    // A row that has seen no token yet would compute -inf - -inf, which is NaN.
    const float offset = largest == kMinusInfinity ? 0 : largest;
    const float shrink = simt::Exp2(max[h] - offset);
    max[h] = largest;
    sum[h] *= shrink;
    QUIRE_UNROLL for (int u = 0; u < kUnits; ++u) {
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) {
        float& score = scores[u][i / 2 * 4 + 2 * h + i % 2];
        score = simt::Exp2(score - offset);
        sum[h] += score;
      }
    }
    QUIRE_UNROLL for (int n = 0; n < kHeadDim / 8; ++n) {
      values[n][2 * h] *= shrink;
      values[n][2 * h + 1] *= shrink;
    }
  }

  // The weights are in the layout of a result, which becomes the layout of an input when they are rounded.
  QUIRE_DEVICE void AddValues(const float (&weights)[8], const char* v) {
    const uint32_t a[4] = {Element::Pack(weights[0], weights[1]), Element::Pack(weights[2], weights[3]),
                           Element::Pack(weights[4], weights[5]), Element::Pack(weights[6], weights[7])};
    QUIRE_UNROLL for (int n = 0; n < kHeadDim / 16; ++n) {
      uint32_t rows[4];
      const int lane = simt::LaneIndex(), token = lane / 8 % 2 * 8 + lane % 8, chunk = 2 * n + lane / 16;
      simt::LoadMatrix4Transposed(rows, v + Unit{kUnitTokens}.Place(token, chunk) * Unit::kChunkBytes);
      Element::Mma(values[2 * n], a, rows[0], rows[1]);
      Element::Mma(values[2 * n + 1], a, rows[2], rows[3]);
    }
  }
};

// Starts to copy unit `unit` of the item's context (tokens from 16 * unit on) to shared memory. The caller is lane
// `thread` of `num_threads`. Tokens that no row of the item can see become zeros, whatever their slots contain, because
// even weight 0 would not suppress a NaN. A unit behind the item's end becomes all zeros.
template <UnitSize kSize, int kHeadDim>
QUIRE_DEVICE void CopyUnit(const ItemRows& rows, int unit, char* to, int thread, int num_threads) {
  using Unit = KvUnit<kHeadDim>;
  constexpr int kMatrixChunks = Unit{kUnitTokens}.matrix_chunks();
  const AttentionArgs& args = rows.args;
  // These values depend on the size of small blocks and are recomputed for every unit. If they were kept in registers,
  // the kernels of the largest heads would spill.
  const int block_size = kSize == UnitSize::kSmall ? simt::Opaque(args.block_size) : args.block_size;
  const Unit stored = {UnitTokens<kSize>(block_size)};
  const uint32_t* table = args.block_tables + simt::LoadReadOnly(args.table_starts + rows.item.sequence);
  const int units_per_block = UnitsPerBlock<kSize>(block_size);
  const char* source = nullptr;
  for (int i = thread; i < 2 * kMatrixChunks; i += num_threads) {
    const bool is_value = i >= kMatrixChunks;
    const int place = is_value ? i - kMatrixChunks : i;
    const int token = unit * kUnitTokens + Unit{kUnitTokens}.TokenAt(place);
    const bool exists = token < rows.item.end;
    // A full unit is copied unchanged from one place. With small units, each token comes from its own place.
    if (exists && (kSize == UnitSize::kSmall || source == nullptr)) {
      const int index = UnitIndex<kSize>(token, block_size);
      const uint32_t block = simt::LoadReadOnly(table + index / units_per_block);
      source = args.kv_pool +
               ((int64_t{block} * args.num_kv_heads + rows.kv_head) * units_per_block + index % units_per_block) *
                   stored.bytes();
    }
    const int from =
        (is_value ? stored.matrix_chunks() : 0) +
        (kSize == UnitSize::kFull ? place
                                  : stored.Place(token & (stored.num_tokens - 1), Unit{kUnitTokens}.ChunkAt(place)));
    simt::CopyAsync16(to + i * Unit::kChunkBytes, exists ? source + from * Unit::kChunkBytes : args.kv_pool, exists);
  }
}

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_TILE_H_
