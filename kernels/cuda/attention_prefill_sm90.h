// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_
#define QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_

#include "kernels/cuda/attention_convert_int8.h"
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

// The types of K and V in products. Weights are rounded to the type of V.
template <typename Element>
struct KvOperands {
  using Key = Element;
  using Value = Element;
  static constexpr bool kAreConverted = false;
};
template <typename Element>
struct KvOperands<Int8Kv<Element>> {
  using Key = Element;
  using Value = Bf16;  // A weight times a scale may be too large or too small for float16.
  static constexpr bool kAreConverted = true;
};

// A place in a ring of kSlots buffers, and the parity of the round.
template <int kSlots>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  // Returns this place and moves on to the next one.
  QUIRE_DEVICE RingPlace Take() {
    const RingPlace taken = *this;
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
    return taken;
  }
};

// Attention of up to 128 rows of queries with the products of warp groups (192 rows with heads of 64 and K and V of
// 16 bits), for compute capability 9.0, blocks of at least 16 tokens, and heads of 64 and 128.
//
// Two or three warp groups, the consumers, have 64 rows each. The warps of another one, the producers, copy tiles of
// 128 tokens. K of the first tile, then K of each further tile and V of the tile before it, and at last V of the last
// tile pass through a ring of kSlots buffers in shared memory. A slot has two barriers: `full` ends a phase when the
// slot's copies have landed, and `empty` when all warps of the consumers have read it. The producers continue with the
// next item while the consumers still compute.
//
// K and V of int8 pass through the same slots as 16-bit floats. Each warp of the producers copies the numbers and
// scales of its two units two steps ahead to buffers of its own (cp.async), and converts them into a slot, which is
// exact: numbers of bfloat16 are divided by 64, and their scales multiplied by it. The scales of K and V of a tile are
// stored with its K, in a ring of their own, and the consumers multiply by them. The formula is the same as in
// attention_tile_int8.h:
//   - The score of a token is (sum of q * k) * scale of k, in float32.
//   - The weight exp(score - max) of a token is multiplied by the scale of its V in float32 and then rounded to
//     bfloat16, also with queries of float16. The sum of the weights is taken without the scales.
// So nothing is rounded that attention over 16-bit K and V does not round: a rounded weight differs by at most 2^-9 of
// itself, and all sums are float32. The numbers of tokens behind the end are zeros in the slots.
template <typename Element, int kHeadDim>
class AttentionPrefillSm90 {
 public:
  using Args = AttentionArgs;
  static constexpr int kGroupRows = 64;
  // With K and V of int8, the registers for three consumers would not suffice for the scales.
  static constexpr int kConsumers = kHeadDim == 64 && !KvOperands<Element>::kAreConverted ? 3 : 2;
  static constexpr int kThreads = (1 + kConsumers) * simt::kWarpGroupThreads;

 private:
  static_assert(kHeadDim == 64 || kHeadDim == 128);
  static constexpr int kPanels = kHeadDim / 64;
  static constexpr int kRowBytes = 128;  // Bytes of a panel row.
  static constexpr int kUnitPanelBytes = kUnitTokens * kRowBytes;
  static constexpr int kUnitMatrixBytes = kPanels * kUnitPanelBytes;
  static constexpr int kTileUnits = 8;
  static constexpr int kProducers = 4;  // Warps.
  static constexpr int kProducerUnits = kTileUnits / kProducers;
  static constexpr int kTileTokens = kTileUnits * kUnitTokens;
  static constexpr int kPanelBytes = kTileTokens * kRowBytes;
  static constexpr int kSlotBytes = kPanels * kPanelBytes;
  static constexpr int kSlots = 4;
  static constexpr int kQueryPanelBytes = kGroupRows * kRowBytes;
  static constexpr int kQueryBytes = kPanels * kQueryPanelBytes;  // Bytes of the queries of a consumer.
  static constexpr int kConsumerWarps = kConsumers * 4;
  using Key = typename KvOperands<Element>::Key;
  using Value = typename KvOperands<Element>::Value;
  // It is true if K and V are int8.
  static constexpr bool kConverts = KvOperands<Element>::kAreConverted;
  // A stage holds what a producer has copied and not yet converted. While it converts one, it copies to the others.
  using Pair = Int8Pair<kHeadDim>;
  static_assert(Pair::kUnits == kProducerUnits);
  static constexpr int kStages = 3;
  // Scales of K and V of a tile. When the slot for K of a tile is empty, all consumers have left K of the tile two
  // before it, or V of the tile three before it. So they no longer need the scales of the tile four before it.
  static constexpr int kScaleSlots = 4;
  static_assert(kSlots % kScaleSlots == 0);  // The place of a tile relies on it.
  static constexpr int kScaleFloats = 2 * kTileTokens;
  // Shared memory: slots, queries of the consumers, stages of the producers, scales, barriers.
  static constexpr int kQueryStart = kSlots * kSlotBytes;
  static constexpr int kStageStart = kQueryStart + kConsumers * kQueryBytes;
  static constexpr int kScaleStart = kStageStart + (kConverts ? kProducers * kStages * Pair::kBytes : 0);
  static constexpr int kBarrierStart = kScaleStart + (kConverts ? kScaleSlots * kScaleFloats * int(sizeof(float)) : 0);
  // The threads of the producers' warp group give registers to the consumers.
  static constexpr int kProducerRegisters = kConverts ? 56 : kConsumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = kConverts ? 224 : kConsumers == 2 ? 232 : 160;
  // A block has the registers with which its threads start. If all groups wanted more in all, the last one would wait
  // for ever.
  static constexpr int kStartRegisters = 65536 / kThreads / 8 * 8;
  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters <= (1 + kConsumers) * kStartRegisters);

 public:
  static constexpr int kSharedBytes = kBarrierStart + (2 * kSlots + 1) * int(sizeof(uint64_t));

  static QUIRE_DEVICE void Run(const AttentionArgs& args) {
    if (simt::ThreadIndex() == 0) {
      for (int slot = 0; slot < kSlots; ++slot) {
        simt::InitBarrier(Full(slot), kProducers);
        simt::InitBarrier(Empty(slot), kConsumerWarps);
      }
      simt::InitBarrier(EndOfContext(), kProducers);
      simt::FenceAsyncProxy();
    }
    simt::SyncBlock();
    if (simt::WarpIndex() < kProducers) {
      simt::LowerRegisters<kProducerRegisters>();
      if constexpr (kConverts) {
        ConvertAndProduce(args);
      } else {
        Produce(args);
      }
    } else {
      simt::RaiseRegisters<kConsumerRegisters>();
      Consume(args);
    }
  }

 private:
  static QUIRE_DEVICE char* Slot(int slot) { return simt::SharedMemory() + slot * kSlotBytes; }
  // Returns the scales of the tile whose K is at this place: K of tile n of a block is item 2n - 1 of the ring, or 2n
  // if the tile is the first one of an item of the plan.
  static QUIRE_DEVICE float* Scales(const RingPlace<kSlots>& keys) {
    const int tile = (int(keys.parity) * kSlots + keys.slot + 1) / 2 % kScaleSlots;
    return reinterpret_cast<float*>(simt::SharedMemory() + kScaleStart) + tile * kScaleFloats;
  }
  static QUIRE_DEVICE uint64_t* Barrier(int i) {
    return reinterpret_cast<uint64_t*>(simt::SharedMemory() + kBarrierStart) + i;
  }
  static QUIRE_DEVICE uint64_t* Full(int slot) { return Barrier(slot); }
  static QUIRE_DEVICE uint64_t* Empty(int slot) { return Barrier(kSlots + slot); }
  // Its phases end when the V of the last tile of a context has landed.
  static QUIRE_DEVICE uint64_t* EndOfContext() { return Barrier(2 * kSlots); }

  // The tiles [first, end) of an item.
  struct Tiles {
    int first, end;

    explicit QUIRE_DEVICE Tiles(const AttentionItem& item)
        : first(item.begin / kTileTokens), end((item.end + kTileTokens - 1) / kTileTokens) {}
  };

  // --- The producers

  static QUIRE_DEVICE void Produce(const AttentionArgs& args) {
    // A lane copies one panel of a unit of K, and every kPanels-th lane copies a unit of V. The warps share the units
    // of a tile, because a warp needs some hundred cycles to begin the copies of 16 lanes.
    const int tile_unit = simt::WarpIndex() * kProducerUnits + simt::LaneIndex() / kPanels;
    const int panel = simt::LaneIndex() % kPanels;
    const bool has_unit = simt::LaneIndex() < kProducerUnits * kPanels;
    RingPlace<kSlots> ring;
    uint32_t end_parity = 0;
    ForEachInRange<true>(args, [&](int item, int kv_head) {
      const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
      const uint32_t* const table = BlockTable(rows);
      const int last_unit = (rows.item.end - 1) / kUnitTokens;
      const Tiles tiles(rows.item);
      const char* source = args.kv_pool;  // The lane's unit of the tile: K, and then V.
      for (int tile = tiles.first; tile < tiles.end; ++tile) {
        const char* const source_before = source;
        // Units behind the end repeat the last one, so that all copies have the same size. The scores of their tokens
        // are hidden, and their V is cleared.
        int unit = tile * kTileUnits + tile_unit;
        if (unit > last_unit) unit = last_unit;
        if (has_unit) source = FullUnit<KvUnit<kHeadDim>>(rows, table, unit);
        const RingPlace<kSlots> keys = ring.Take();
        BeginCopies(Full(keys.slot), keys);
        if (has_unit) {
          simt::CopyBulk(Slot(keys.slot) + panel * kPanelBytes + tile_unit * kUnitPanelBytes,
                         source + panel * kUnitPanelBytes, kUnitPanelBytes, Full(keys.slot));
        }
        if (tile == tiles.first) continue;
        const RingPlace<kSlots> values = ring.Take();
        BeginCopies(Full(values.slot), values);
        if (has_unit && panel == 0) CopyValues(source_before, tile_unit, values, Full(values.slot));
      }
      const RingPlace<kSlots> values = ring.Take();
      const bool is_whole = tiles.end * kTileTokens == rows.item.end;
      uint64_t* const landed = is_whole ? Full(values.slot) : EndOfContext();
      BeginCopies(landed, values);
      if (has_unit && panel == 0) CopyValues(source, tile_unit, values, landed);
      if (!is_whole) {
        simt::WaitForBarrier(EndOfContext(), end_parity);
        end_parity ^= 1;
        ClearValues(Slot(values.slot), rows.item.end - (tiles.end - 1) * kTileTokens);
        if (simt::LaneIndex() == 0) simt::ArriveAtBarrier(Full(values.slot));
      }
    });
  }

  // Waits until the consumers have left the slot, and announces the warp's copies into it. They land before a phase of
  // `landed` ends.
  static QUIRE_DEVICE void BeginCopies(uint64_t* landed, const RingPlace<kSlots>& place) {
    simt::WaitForBarrier(Empty(place.slot), place.parity ^ 1);
    if (simt::LaneIndex() == 0) simt::ArriveAndAnnounce(landed, kSlotBytes / kProducers);
    simt::SyncWarp();
  }

  // Copies V of a unit. Its panels stay together, because the products read V unit by unit.
  static QUIRE_DEVICE void CopyValues(const char* source, int tile_unit, const RingPlace<kSlots>& place,
                                      uint64_t* landed) {
    simt::CopyBulk(Slot(place.slot) + tile_unit * kUnitMatrixBytes, source + kUnitMatrixBytes, kUnitMatrixBytes,
                   landed);
  }

  // Makes V of the tokens from `first` on zeros, because even weight 0 would not suppress a NaN. Each producer clears
  // some of the rows.
  static QUIRE_DEVICE void ClearValues(char* values, int first) {
    constexpr int kRowChunks = kRowBytes / 16, kRowsAtATime = kProducers * simt::kWarpSize / kRowChunks;
    const int thread = simt::ThreadIndex();
    QUIRE_NO_UNROLL for (int token = first + thread / kRowChunks; token < kTileTokens; token += kRowsAtATime) {
      char* const to = values + token / kUnitTokens * kUnitMatrixBytes + token % kUnitTokens * kRowBytes;
      QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
        simt::StoreShared(reinterpret_cast<simt::U32x4*>(to + p * kUnitPanelBytes + thread % kRowChunks * 16),
                          simt::U32x4{});
      }
    }
    simt::FenceAsyncProxy();
    simt::SyncWarp();
  }

  // --- The producers of int8

  static QUIRE_DEVICE void ConvertAndProduce(const AttentionArgs& args) {
    const int tile_unit = simt::WarpIndex() * kProducerUnits;
    char* const stages = simt::SharedMemory() + kStageStart + simt::WarpIndex() * (kStages * Pair::kBytes);
    RingPlace<kSlots> ring;
    ForEachInRange<true>(args, [&](int item, int kv_head) {
      const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
      const uint32_t* const table = BlockTable(rows);
      const Tiles tiles(rows.item);
      // The steps: K of the first tile, then K of each further tile and V of the tile before it, and V of the last one.
      const int last_step = 2 * (tiles.end - tiles.first) - 1;
      const auto is_keys = [&](int step) { return step == 0 || (step % 2 == 1 && step < last_step); };
      const auto start = [&](int step, int stage) {
        if (step <= last_step) {
          const int tile = tiles.first + (is_keys(step) ? step + 1 : step == last_step ? step : step - 2) / 2;
          Pair::Start(rows, table, tile * kTileUnits + tile_unit, is_keys(step), stages + stage * Pair::kBytes);
        }
        simt::CommitCopies();
      };
      QUIRE_NO_UNROLL for (int s = 0; s < kStages - 1; ++s) start(s, s);
      int stage = 0;
      QUIRE_NO_UNROLL for (int step = 0; step <= last_step; ++step) {
        start(step + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
        simt::WaitCopies<kStages - 1>();
        simt::SyncWarp();  // The scales were copied by other lanes.
        const RingPlace<kSlots> place = ring.Take();
        simt::WaitForBarrier(Empty(place.slot), place.parity ^ 1);
        const char* const from = stages + stage * Pair::kBytes;
        if (is_keys(step)) {
          Pair::template StoreScales<Key, Value, kTileTokens>(from, Scales(place) + tile_unit * kUnitTokens);
          Pair::template Convert<Key, kPanelBytes, kUnitPanelBytes>(from,
                                                                    Slot(place.slot) + tile_unit * kUnitPanelBytes);
        } else {
          Pair::template Convert<Value, kUnitPanelBytes, kUnitMatrixBytes>(
              from, Slot(place.slot) + tile_unit * kUnitMatrixBytes);
        }
        simt::FenceAsyncProxy();
        simt::SyncWarp();
        if (simt::LaneIndex() == 0) simt::ArriveAtBarrier(Full(place.slot));
        if (++stage == kStages) stage = 0;
      }
    });
  }

  // --- The consumers

  // 64 rows of queries. The weights of a tile are computed while the tensor cores multiply the weights of the tile
  // before with V. The order of the sums is the same as without this overlap.
  class Rows : public SoftmaxRows<kHeadDim> {
   public:
    // `queries` describes the matrix of the queries, and `ring` is the place of K of the first tile.
    QUIRE_DEVICE Rows(uint64_t queries, const Visible& visible, float scale_log2, RingPlace<kSlots>* ring)
        : queries_(queries), visible_(visible), scale_log2_(scale_log2), ring_(ring) {}

    // Computes the weights of the first tile.
    QUIRE_DEVICE void Begin(int first_token) {
      float scores[kTileUnits][8];
      const RingPlace<kSlots> keys = ring_->Take();
      simt::WaitForBarrier(Full(keys.slot), keys.parity);
      BeginScores(keys, scores);
      simt::WaitForProducts(scores);
      Leave(keys);
      float factors[2];
      Weigh(first_token, keys, scores, factors);  // The values are 0 yet, so they need not shrink.
      WaitForNextSlot();
      RoundWeights(scores);
    }

    // Adds the values of the tile before, and computes the weights of this one.
    QUIRE_DEVICE void Continue(int first_token) {
      float scores[kTileUnits][8];
      const RingPlace<kSlots> keys = ring_->Take(), values = ring_->Take();
      BeginScores(keys, scores);
      simt::WaitForBarrier(Full(values.slot), values.parity);
      BeginValues(values);
      simt::WaitForProducts<1>(scores);
      Leave(keys);
      float factors[2] = {1, 1};
      const bool have_grown = Weigh(first_token, keys, scores, factors);
      WaitForNextSlot();
      simt::WaitForProducts(this->values);
      Leave(values);
      if (have_grown) {
        QUIRE_UNROLL for (int h = 0; h < 2; ++h) this->ShrinkValues(h, factors[h]);
      }
      RoundWeights(scores);
    }

    // Adds the values of the last tile.
    QUIRE_DEVICE void End() {
      const RingPlace<kSlots> values = ring_->Take();
      BeginValues(values);
      simt::WaitForProducts(this->values);
      Leave(values);
    }

   private:
    // Begins the products of the queries with K of a tile.
    QUIRE_DEVICE void BeginScores(const RingPlace<kSlots>& keys, float (&scores)[kTileUnits][8]) const {
      const uint64_t k = simt::MatrixDescriptor(Slot(keys.slot), kPanelBytes);
      simt::BeginProducts(scores);
      simt::Repeat<kHeadDim / 16>([&](auto i) {
        constexpr int kPanel = i / 4, kColumn = i % 4 * 16;
        WarpGroupProducts<Key>::Multiply(scores, simt::AtColumn(simt::AtRow(queries_, kPanel * kGroupRows), kColumn),
                                         simt::AtColumn(simt::AtRow(k, kPanel * kTileTokens), kColumn), i > 0);
      });
      simt::CommitProducts();
    }

    // Begins the products of the rounded weights with V of their tile.
    QUIRE_DEVICE void BeginValues(const RingPlace<kSlots>& values) {
      const uint64_t v = simt::MatrixDescriptor(Slot(values.slot), kUnitPanelBytes);
      simt::BeginProducts(this->values);
      simt::Repeat<kTileUnits>([&](auto u) {
        WarpGroupProducts<Value>::MultiplyRows(this->values, weights_[u], simt::AtRow(v, u * kPanels * kUnitTokens));
      });
      simt::CommitProducts();
    }

    // Turns the scores of a tile into weights, with int8 into weights times scales of V. Returns whether the earlier
    // values of the two rows must be multiplied by `factors`.
    QUIRE_DEVICE bool Weigh(int first_token, const RingPlace<kSlots>& keys, float (&scores)[kTileUnits][8],
                            float (&factors)[2]) {
      if constexpr (kConverts) MultiplyByScales(Scales(keys), scores);
      const bool see_all = simt::All(visible_.SeesAll(first_token, kTileTokens));
      if (!see_all) this->Hide(visible_, first_token, scores);
      float largest[2];
      const bool have_grown = this->HaveGrown(scale_log2_, scores, largest);
      if (have_grown) {
        QUIRE_UNROLL for (int h = 0; h < 2; ++h) factors[h] = this->RaiseMax(h, largest[h]);
      }
      this->AddWeights(scale_log2_, scores);
      if constexpr (kConverts) {
        MultiplyByScales(Scales(keys) + kTileTokens, scores);
        if (!see_all) this->Hide(visible_, first_token, scores, 0);  // The scales of hidden tokens may be NaN.
      }
      return have_grown;
    }

    // Waits for K of the next tile, or for V of the last one. The next products need it, but only after the products in
    // flight. The wait comes before theirs because the compiler does not move theirs across this one: with heads of 128
    // it would move it before the exponentials. With heads of 64 it moves exponentials behind both waits, which costs
    // little, because the products of values end while the largest scores are found.
    QUIRE_DEVICE void WaitForNextSlot() { simt::WaitForBarrier(Full(ring_->slot), ring_->parity); }

    QUIRE_DEVICE void RoundWeights(const float (&weights)[kTileUnits][8]) {
      QUIRE_UNROLL for (int u = 0; u < kTileUnits; ++u) {
        SoftmaxRows<kHeadDim>::template RoundWeights<Value>(weights[u], weights_[u]);
      }
    }

    // Tells the producers that this warp has read the slot, and all scales that it has used.
    static QUIRE_DEVICE void Leave(const RingPlace<kSlots>& place) {
      if constexpr (kConverts) simt::SyncWarp();
      if (simt::LaneIndex() == 0) simt::ArriveAtBarrier(Empty(place.slot));
    }

    const uint64_t queries_;
    const Visible& visible_;
    const float scale_log2_;
    RingPlace<kSlots>* const ring_;
    uint32_t weights_[kTileUnits][4];  // Of the tile whose values are added next.
  };

  static QUIRE_DEVICE void Consume(const AttentionArgs& args) {
    const int consumer = simt::WarpIndex() / 4 - 1, warp = simt::WarpIndex() % 4;
    const int first_row = consumer * kGroupRows + warp * kTileRows;
    char* const queries = simt::SharedMemory() + kQueryStart + consumer * kQueryBytes;
    const uint64_t matrix = simt::MatrixDescriptor(queries, kQueryPanelBytes);
    RingPlace<kSlots> ring;
    ForEachInRange<true>(args, [&](int item, int kv_head) {
      const ItemRows rows = {args, LoadWords(args.items + item), kv_head};
      simt::SyncWarpGroup();  // All warps have done the products with the queries of the item before.
      StoreQueries(rows, first_row, queries, warp * kTileRows);
      simt::FenceAsyncProxy();
      simt::SyncWarpGroup();
      const Visible visible(rows, first_row);
      const Tiles tiles(rows.item);
      Rows sums(matrix, visible, args.scale_log2, &ring);
      sums.Begin(tiles.first * kTileTokens);
      for (int tile = tiles.first + 1; tile < tiles.end; ++tile) sums.Continue(tile * kTileTokens);
      sums.End();
      sums.JoinLanes();
      WriteRows<Element>(rows, first_row, sums);
    });
  }

  // Stores 16 rows of queries at the row `at` of a matrix for products, with the permutation of K. Rows beyond the item
  // become zeros.
  static QUIRE_DEVICE void StoreQueries(const ItemRows& rows, int first_row, char* matrix, int at) {
    const int lane = simt::LaneIndex();
    // Each lane looks up one of the rows.
    const int lane_row = first_row + lane % kTileRows;
    const int lane_token = lane_row < rows.count() ? rows.Token(lane_row) : -1, lane_head = rows.Head(lane_row);
    QUIRE_UNROLL for (int i = 0; i < kTileRows; ++i) {
      const int token = simt::Shuffle(lane_token, i), head = simt::Shuffle(lane_head, i);
      const uint16_t* const q = rows.args.q + int64_t{token} * rows.args.q_stride + head * kHeadDim;
      QUIRE_UNROLL for (int p = 0; p < kPanels; ++p) {
        // The lane has two elements of the panel row.
        const uint32_t pair =
            token >= 0 ? simt::LoadGlobal(reinterpret_cast<const uint32_t*>(q) + p * simt::kWarpSize + lane) : 0;
        const int place = lane / 4 ^ i % 8;
        char* const to = matrix + p * kQueryPanelBytes + (at + i) * kRowBytes + place * 16 + lane % 4 * 4;
        simt::StoreShared(reinterpret_cast<uint32_t*>(to), pair);
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ATTENTION_PREFILL_SM90_H_
