// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_

#include "kernels/cuda/attention_copy.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/attention_write.h"
#include "kernels/simt/simt_sm90.h"

namespace quire::cuda {

// The products of warp groups for a type of elements.
template <typename Element>
struct WarpGroupProducts;
template <>
struct WarpGroupProducts<Bf16> {
  static QUIRE_DEVICE void Multiply(float (&d)[8][8], uint64_t a, uint64_t b, bool adds) {
    simt::MultiplyBf16(d, a, b, adds);
  }
  template <int kRows>
  static QUIRE_DEVICE void MultiplyRows(float (&d)[kRows][4], const uint32_t (&a)[4], uint64_t b) {
    simt::MultiplyRowsBf16(d, a, b);
  }
};
template <>
struct WarpGroupProducts<F16> {
  static QUIRE_DEVICE void Multiply(float (&d)[8][8], uint64_t a, uint64_t b, bool adds) {
    simt::MultiplyF16(d, a, b, adds);
  }
  template <int kRows>
  static QUIRE_DEVICE void MultiplyRows(float (&d)[kRows][4], const uint32_t (&a)[4], uint64_t b) {
    simt::MultiplyRowsF16(d, a, b);
  }
};

// A place in a ring of kSlots buffers, and the parity of the round.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  QUIRE_DEVICE void Advance() {
    if (++slot < kSlots) return;
    slot = 0;
    parity ^= 1;
  }
};

// Attention of up to 128 rows of queries with the products of warp groups, for compute capability 9.0, blocks of at
// least 16 tokens, and heads of 64 and 128.
//
// Two warp groups, the consumers, have 64 rows each. One warp, the producer, copies tiles of 128 tokens. K of a tile,
// its V, K of the next tile, and so on pass through a ring of kSlots buffers in shared memory. A slot has two barriers:
// `full` ends a phase when the slot's copies have landed, and `empty` when all warps of the consumers have read it. The
// producer continues with the next item while the consumers still compute.
template <typename Element, int kHeadDim>
class AttentionPrefillSm90 {
 public:
  using Args = AttentionArgs;
  static constexpr int kGroupRows = 64;
  static constexpr int kConsumers = 2;
  static constexpr int kThreads = (1 + kConsumers) * simt::kWarpGroupThreads;

 private:
  static_assert(kHeadDim == 64 || kHeadDim == 128);
  static constexpr int kPanels = kHeadDim / 64;
  static constexpr int kRowBytes = 128;  // Bytes of a panel row.
  static constexpr int kUnitPanelBytes = kUnitTokens * kRowBytes;
  static constexpr int kTileUnits = 8;
  static constexpr int kTileTokens = kTileUnits * kUnitTokens;
  static constexpr int kPanelBytes = kTileTokens * kRowBytes;
  static constexpr int kSlotBytes = kPanels * kPanelBytes;
  static constexpr int kSlots = 4;
  static constexpr int kQueryPanelBytes = kGroupRows * kRowBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;  // Of a consumer.
  static constexpr int kConsumerWarps = kConsumers * 4;
  // Shared memory: slots, queries of the consumers, barriers.
  static constexpr int kQueryStart = kSlots * kSlotBytes;
  static constexpr int kBarrierStart = kQueryStart + kConsumers * kQueryBytes;
  // The threads of the producer's warp group give registers to the consumers.
  static constexpr int kProducerRegisters = 40;
  static constexpr int kConsumerRegisters = 232;
  // A block has the registers with which its threads start. If all groups wanted more in all, the last one would wait
  // for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * kStartRegisters);

 public:
  static constexpr int kSharedBytes = kBarrierStart + (2 * kSlots + 1) * int(sizeof(uint64_t));

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    if (simt::ThreadIndex() == 0) {
      for (int slot = 0; slot < kSlots; ++slot) {
        simt::InitBarrier(Full(slot), 1);
        simt::InitBarrier(Empty(slot), kConsumerWarps);
      }
      simt::InitBarrier(EndOfContext(), 1);
      simt::FenceAsyncProxy();
    }
    simt::SyncBlock();
    if (simt::WarpIndex() < 4) {
      simt::LowerRegisters<kProducerRegisters>();
      if (simt::WarpIndex() == 0) {
        Produce(args);
      } else {
        simt::WaitForPriorGrid();  // Every warp of a kernel waits for it.
      }
    } else {
      simt::RaiseRegisters<kConsumerRegisters>();
      Consume(args);
    }
  }

 private:
  static QUIRE_DEVICE char* Slot(int slot) { return simt::SharedMemory() + slot * kSlotBytes; }
  static QUIRE_DEVICE uint64_t* Barrier(int i) {
    return reinterpret_cast<uint64_t*>(simt::SharedMemory() + kBarrierStart) + i;
  }
  static QUIRE_DEVICE uint64_t* Full(int slot) { return Barrier(slot); }
  static QUIRE_DEVICE uint64_t* Empty(int slot) { return Barrier(kSlots + slot); }
  // Its phases end when the V of the last tile of a context has landed.
  static QUIRE_DEVICE uint64_t* EndOfContext() { return Barrier(2 * kSlots); }

  // --- The producer

  static QUIRE_DEVICE void Produce(const AttentionArgs& args) {
    RingPlace<kSlots> place;
    uint32_t end_parity = 0;
    ForEachInRange(args, [&](int item, int kv_head) {
      const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
      const uint32_t* const table = BlockTable(rows);
      const int last_unit = (rows.item.end - 1) / kUnitTokens;
      // A lane copies one panel of a unit.
      const int lane_unit = simt::LaneIndex() / kPanels, panel = simt::LaneIndex() % kPanels;
      const int to = panel * kPanelBytes + lane_unit * kUnitPanelBytes;
      for (int tile = rows.item.begin / kTileTokens; tile * kTileTokens < rows.item.end; ++tile) {
        // Units behind the end repeat the last one, so that all copies have the same size. The scores of their tokens
        // are hidden, and their V is cleared.
        int unit = tile * kTileUnits + lane_unit;
        if (unit > last_unit) unit = last_unit;
        const char* from = args.kv_pool;
        if (lane_unit < kTileUnits) from = FullUnit<kHeadDim>(rows, table, unit) + panel * kUnitPanelBytes;
        Copy(from, to, Full(place.slot), place);
        place.Advance();
        from += kPanels * kUnitPanelBytes;
        if ((tile + 1) * kTileTokens <= rows.item.end) {
          Copy(from, to, Full(place.slot), place);
        } else {
          Copy(from, to, EndOfContext(), place);
          simt::WaitForBarrier(EndOfContext(), end_parity);
          end_parity ^= 1;
          ClearRows(Slot(place.slot), rows.item.end - tile * kTileTokens);
          if (simt::LaneIndex() == 0) simt::ArriveAtBarrier(Full(place.slot));
        }
        place.Advance();
      }
    });
  }

  // Copies one panel of a unit per lane, 16 or 8 in all, when the consumers have left the slot. The copies land before
  // a phase of `landed` ends.
  static QUIRE_DEVICE void Copy(const char* from, int to, uint64_t* landed, const RingPlace<kSlots>& place) {
    simt::WaitForBarrier(Empty(place.slot), place.parity ^ 1);
    if (simt::LaneIndex() == 0) simt::ArriveAndAnnounce(landed, kSlotBytes);
    simt::SyncWarp();
    if (simt::LaneIndex() < kTileUnits * kPanels) simt::CopyBulk(Slot(place.slot) + to, from, kUnitPanelBytes, landed);
  }

  // Makes the rows from `first` on zeros, because even weight 0 would not suppress a NaN.
  static QUIRE_DEVICE void ClearRows(char* matrix, int first) {
    constexpr int kRowChunks = kRowBytes / 16, kRowsAtATime = simt::kWarpSize / kRowChunks;
    const int lane = simt::LaneIndex();
    QUIRE_NO_UNROLL for (int row = first + lane / kRowChunks; row < kTileTokens; row += kRowsAtATime) {
      QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
        char* const to = matrix + p * kPanelBytes + row * kRowBytes + lane % kRowChunks * 16;
        simt::StoreShared(reinterpret_cast<simt::U32x4*>(to), simt::U32x4{});
      }
    }
    simt::FenceAsyncProxy();
    simt::SyncWarp();
  }

  // --- The consumers

  class Rows : public SoftmaxRows<kHeadDim> {
   public:
    // Attends to a tile: K is in the slot of `place`, and V in the next one.
    QUIRE_DEVICE void Attend(const char* queries, const Visible& visible, int first_token, float scale_log2,
                             RingPlace<kSlots>* place) {
      float scores[kTileUnits][8];
      simt::WaitForBarrier(Full(place->slot), place->parity);
      const uint64_t q = simt::MatrixDescriptor(queries, kQueryPanelBytes);
      const uint64_t k = simt::MatrixDescriptor(Slot(place->slot), kPanelBytes);
      simt::BeginProducts(scores);
      simt::Repeat<kHeadDim / 16>([&](auto i) {
        constexpr int kPanel = i / 4, kColumn = i % 4 * 16;
        WarpGroupProducts<Element>::Multiply(scores, simt::AtColumn(simt::AtRow(q, kPanel * kGroupRows), kColumn),
                                             simt::AtColumn(simt::AtRow(k, kPanel * kTileTokens), kColumn), i > 0);
      });
      simt::CommitProducts();
      simt::WaitForProducts(scores);
      Leave(place);
      this->HideInvisible(visible, first_token, scores);
      this->SoftMax(scale_log2, scores);
      uint32_t weights[kTileUnits][4];
      QUIRE_UNROLL for (int u = 0; u < kTileUnits; ++u) {
        this->template RoundWeights<Element>(scores[u], weights[u]);
      }
      simt::WaitForBarrier(Full(place->slot), place->parity);
      const uint64_t v = simt::MatrixDescriptor(Slot(place->slot), kPanelBytes);
      simt::BeginProducts(this->values);
      simt::Repeat<kTileUnits>([&](auto u) {
        WarpGroupProducts<Element>::MultiplyRows(this->values, weights[u], simt::AtRow(v, u * kUnitTokens));
      });
      simt::CommitProducts();
      simt::WaitForProducts(this->values);
      Leave(place);
    }

   private:
    // Tells the producer that this warp has read the slot, and goes to the next one.
    static QUIRE_DEVICE void Leave(RingPlace<kSlots>* place) {
      if (simt::LaneIndex() == 0) simt::ArriveAtBarrier(Empty(place->slot));
      place->Advance();
    }
  };

  static QUIRE_DEVICE void Consume(const AttentionArgs& args) {
    const int consumer = simt::WarpIndex() / 4 - 1, warp = simt::WarpIndex() % 4;
    const int first_row = consumer * kGroupRows + warp * kTileRows;
    char* const queries = simt::SharedMemory() + kQueryStart + consumer * kQueryBytes;
    RingPlace<kSlots> place;
    ForEachInRange(args, [&](int item, int kv_head) {
      const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
      simt::SyncWarpGroup();  // All warps have done the products with the queries of the item before.
      StoreQueries(rows, first_row, queries, warp * kTileRows);
      simt::FenceAsyncProxy();
      simt::SyncWarpGroup();
      const Visible visible(rows, first_row);
      Rows sums;
      for (int tile = rows.item.begin / kTileTokens; tile * kTileTokens < rows.item.end; ++tile) {
        sums.Attend(queries, visible, tile * kTileTokens, args.scale_log2, &place);
      }
      sums.JoinLanes();
      WriteRows<Element>(rows, first_row, sums);
    });
  }

  // Stores 16 rows of queries at the row `at` of a matrix for products, with the permutation of K. Rows beyond the item
  // become zeros.
  static QUIRE_DEVICE void StoreQueries(const ItemRows& rows, int first_row, char* matrix, int at) {
    const int lane = simt::LaneIndex();
    QUIRE_UNROLL for (int i = 0; i < kTileRows; ++i) {
      const int row = first_row + i;
      const bool exists = row < rows.count();
      const uint16_t* const q = rows.args.q + (exists ? int64_t{rows.Token(row)} * rows.args.q_stride : 0) +
                                (exists ? rows.Head(row) * kHeadDim : 0);
      QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
        // The lane has two elements of the panel row.
        const uint32_t pair =
            exists ? simt::LoadGlobal(reinterpret_cast<const uint32_t*>(q) + p * simt::kWarpSize + lane) : 0;
        const int place = lane / 4 ^ i % 8;
        char* const to = matrix + p * kQueryPanelBytes + (at + i) * kRowBytes + place * 16 + lane % 4 * 4;
        simt::StoreShared(reinterpret_cast<uint32_t*>(to), pair);
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_
