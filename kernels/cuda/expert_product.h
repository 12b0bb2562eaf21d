// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_EXPERT_PRODUCT_H_
#define QUIRE_KERNELS_CUDA_EXPERT_PRODUCT_H_

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/expert_plan.h"

namespace quire::cuda {

// y[to(p)] = x[from(p)] * w[expert of p]^T for all places p of the order of pairs, where sums are float32 and are added
// in ascending order of columns, 16 at a time. So the bits of a row of y depend on its row of x and the matrix alone.
struct ExpertProductArgs {
  const uint16_t* x;         // [rows of x, cols], aligned to 16 bytes.
  const uint16_t* const* w;  // [num_experts]: each [rows, cols], aligned to 16 bytes.
  uint16_t* y;               // [num_pairs, rows]
  const int32_t* order;      // ExpertPlanArgs
  const ExpertItem* items;
  const int32_t* num_items;
  int32_t rows;
  int32_t cols;  // A multiple of 8.
  int32_t top_k;
  // Whether from(p) is the token of pair order[p], and to(p) is p. Otherwise from(p) is p, and to(p) is order[p].
  bool gathers;
};

// A thread block multiplies 64 rows of an expert's matrix by the pairs of an item, 64 columns at a time, which are
// copied kStages - 1 blocks ahead. Each of the four warps has 16 rows of weights.
template <typename Element>
class ExpertProductKernel {
 public:
  using Args = ExpertProductArgs;
  static constexpr int kRows = 64;
  static constexpr int kThreads = 128;

 private:
  static constexpr int kWarpRows = 16;
  static constexpr int kBlockBytes = 128;  // Of a row, in a block of columns.
  static constexpr int kBlockCols = kBlockBytes / int(sizeof(uint16_t));
  static constexpr int kChunks = kBlockBytes / 16;
  static constexpr int kStages = 4;
  static constexpr int kPairTiles = kItemPairs / 8;
  static constexpr int kWeightBytes = kRows * kBlockBytes;
  static constexpr int kStageBytes = kWeightBytes + kItemPairs * kBlockBytes;
  static_assert(kRows == kItemPairs);  // A thread copies rows of both alike.

 public:
  static constexpr int kSharedBytes = kStages * kStageBytes;

  static QUIRE_DEVICE void Run(const ExpertProductArgs& args) {
    simt::WaitForPriorGrid();
    const int row_blocks = (args.rows + kRows - 1) / kRows;
    const int count = simt::LoadGlobal(args.num_items) * row_blocks;
    for (int i = simt::BlockIndex(); i < count; i += simt::GridSize()) {
      ExpertProductKernel(args, i / row_blocks, i % row_blocks * kRows).Multiply();
    }
    simt::TriggerNextGrid();
  }

 private:
  QUIRE_DEVICE ExpertProductKernel(const ExpertProductArgs& args, int item, int first_row)
      : args_(args), first_row_(first_row) {
    const auto* const words = reinterpret_cast<const int32_t*>(args.items + item);
    w_ = simt::LoadReadOnly(args.w + simt::LoadGlobal(words));
    first_pair_ = simt::LoadGlobal(words + 1);
    num_pairs_ = simt::LoadGlobal(words + 2);
  }

  // Chunks of a row of 128 bytes are exchanged, so that ldmatrix reads 8 rows from different banks.
  static QUIRE_DEVICE int Place(int row, int chunk) { return row * kBlockBytes + (chunk ^ (row & 7)) * 16; }

  QUIRE_DEVICE int PairAt(int i) const { return simt::LoadGlobal(args_.order + first_pair_ + i); }

  QUIRE_DEVICE void Multiply() {
    constexpr int kRowsAtATime = kThreads / kChunks, kCopies = kRows / kRowsAtATime;
    const int chunk = simt::ThreadIndex() % kChunks, first = simt::ThreadIndex() / kChunks;
    const uint16_t* weights[kCopies];
    const uint16_t* inputs[kCopies];  // Rows that do not exist are null.
    QUIRE_UNROLL for (int c = 0; c < kCopies; ++c) {
      const int row = first + c * kRowsAtATime;
      weights[c] = inputs[c] = nullptr;
      if (first_row_ + row < args_.rows) weights[c] = w_ + int64_t{first_row_ + row} * args_.cols;
      if (row < num_pairs_) {
        const int from = args_.gathers ? PairAt(row) / args_.top_k : first_pair_ + row;
        inputs[c] = args_.x + int64_t{from} * args_.cols;
      }
    }
    const auto copy = [&](int block, int stage) {
      char* const to = simt::SharedMemory() + stage * kStageBytes;
      const int column = block * kBlockCols + 8 * chunk;
      const bool has_column = column < args_.cols;
      if (block * kBlockCols < args_.cols) {
        QUIRE_UNROLL for (int c = 0; c < kCopies; ++c) {
          const int row = first + c * kRowsAtATime;
          const bool has_weights = has_column && weights[c] != nullptr, has_input = has_column && inputs[c] != nullptr;
          simt::CopyAsync16(to + Place(row, chunk), has_weights ? weights[c] + column : w_, has_weights);
          simt::CopyAsync16(to + kWeightBytes + Place(row, chunk), has_input ? inputs[c] + column : args_.x, has_input);
        }
      }
      simt::CommitCopies();
    };
    float sums[kPairTiles][4] = {};
    const int num_blocks = (args_.cols + kBlockCols - 1) / kBlockCols;
    for (int s = 0; s < kStages - 1; ++s) copy(s, s);
    for (int block = 0, stage = 0; block < num_blocks; ++block) {
      simt::WaitCopies<kStages - 2>();
      simt::SyncBlock();  // Everybody's copies of this block have landed, and the buffer of the block before is free.
      copy(block + kStages - 1, stage == 0 ? kStages - 1 : stage - 1);
      MultiplyBlock(simt::SharedMemory() + stage * kStageBytes, sums);
      stage = stage + 1 == kStages ? 0 : stage + 1;
    }
    simt::WaitCopies<0>();
    simt::SyncBlock();  // The next item overwrites the buffers.
    Store(sums);
  }

  QUIRE_DEVICE void MultiplyBlock(const char* stage, float (&sums)[kPairTiles][4]) const {
    const int lane = simt::LaneIndex();
    // Of the four matrices of ldmatrix, 1 and 3 have the weights' rows 8 to 15, and 2 and 3 the columns 8 to 15. Of the
    // inputs, 2 and 3 have the rows 8 to 15, and 1 and 3 the columns 8 to 15.
    const int weight_row = simt::WarpIndex() * kWarpRows + lane % 16, weight_chunk = lane / 16;
    const int input_row = lane / 16 * 8 + lane % 8, input_chunk = lane / 8 % 2;
    QUIRE_UNROLL for (int k = 0; k < kChunks; k += 2) {
      uint32_t a[4];
      simt::LoadMatrix4(a, stage + Place(weight_row, k + weight_chunk));
      QUIRE_UNROLL for (int i = 0; i < kPairTiles; i += 2) {
        if (8 * i >= num_pairs_) continue;
        uint32_t b[4];
        simt::LoadMatrix4(b, stage + kWeightBytes + Place(8 * i + input_row, k + input_chunk));
        Element::Mma(sums[i], a, b[0], b[1]);
        Element::Mma(sums[i + 1], a, b[2], b[3]);
      }
    }
  }

  QUIRE_DEVICE void Store(const float (&sums)[kPairTiles][4]) const {
    const int g = simt::LaneIndex() / 4, t = simt::LaneIndex() % 4;
    const int row = first_row_ + simt::WarpIndex() * kWarpRows + g;
    QUIRE_UNROLL for (int i = 0; i < kPairTiles; ++i) {
      QUIRE_UNROLL for (int j = 0; j < 2; ++j) {
        const int pair = 8 * i + 2 * t + j;
        if (pair >= num_pairs_) continue;
        const int to = args_.gathers ? first_pair_ + pair : PairAt(pair);
        uint16_t* const y = args_.y + int64_t{to} * args_.rows;
        const uint32_t both = Element::Pack(sums[i][j], sums[i][j + 2]);
        if (row < args_.rows) simt::StoreGlobal(y + row, uint16_t(both));
        if (row + 8 < args_.rows) simt::StoreGlobal(y + row + 8, uint16_t(both >> 16));
      }
    }
  }

  const ExpertProductArgs& args_;
  const int first_row_;
  const uint16_t* w_;
  int first_pair_, num_pairs_;
};

// y = residual + the sum of the outputs of a token's experts, times their weights, in the order of kernels/experts.h
// (+ shared_weight * shared).
struct ExpertSumArgs {
  const uint16_t* outputs;      // [num_tokens, top_k, dim]
  const int32_t* experts;       // [num_tokens, top_k], rising.
  const float* weights;         // [num_tokens, top_k]
  const uint16_t* shared;       // [num_tokens, dim] or null.
  const float* shared_weights;  // [num_tokens], or null for 1.
  const uint16_t* residual;     // [num_tokens, dim] or null.
  uint16_t* y;                  // [num_tokens, dim]; may be the residual or `shared`.
  int32_t num_tokens;
  int32_t dim;  // A multiple of 8.
  int32_t num_experts;
  int32_t top_k;
};

// A thread adds eight elements at a time.
template <typename Element>
class ExpertSumKernel {
 public:
  using Args = ExpertSumArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const ExpertSumArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_tokens * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t token = i / chunks_per_row;
      Pairs pairs = {args, token * args.top_k, token * args.top_k + args.top_k, i % chunks_per_row * 8};
      Vector8<Element> y;
      AddRanges<0, kExpertRanges>(&pairs, y.x);
      if (args.shared != nullptr) {
        const float weight = args.shared_weights == nullptr ? 1 : simt::LoadGlobal(args.shared_weights + token);
        const Vector8<Element> shared = Vector8<Element>::Load(args.shared + 8 * i);
        QUIRE_UNROLL for (int j = 0; j < 8; ++j) y.x[j] = __builtin_fmaf(weight, shared.x[j], y.x[j]);
      }
      if (args.residual != nullptr) {
        const Vector8<Element> residual = Vector8<Element>::Load(args.residual + 8 * i);
        QUIRE_UNROLL for (int j = 0; j < 8; ++j) y.x[j] += residual.x[j];
      }
      y.Store(args.y + 8 * i);
    }
    simt::TriggerNextGrid();
  }

 private:
  // The pairs of a token that have not been added yet.
  struct Pairs {
    const ExpertSumArgs& args;
    int64_t next, end;
    int64_t column;
  };

  // Adds the experts of the ranges [kFirst, kFirst + kCount) as a balanced binary tree.
  template <int kFirst, int kCount>
  static QUIRE_DEVICE void AddRanges(Pairs* pairs, float (&sums)[8]) {
    if constexpr (kCount > 1) {
      float others[8];
      AddRanges<kFirst, kCount / 2>(pairs, sums);
      AddRanges<kFirst + kCount / 2, kCount / 2>(pairs, others);
      QUIRE_UNROLL for (int j = 0; j < 8; ++j) sums[j] += others[j];
    } else {
      const ExpertSumArgs& args = pairs->args;
      QUIRE_UNROLL for (int j = 0; j < 8; ++j) sums[j] = 0;
      for (; pairs->next < pairs->end; ++pairs->next) {
        const int expert = simt::LoadGlobal(args.experts + pairs->next);
        if (expert * kExpertRanges / args.num_experts > kFirst) break;  // As ExpertRange.
        const float weight = simt::LoadGlobal(args.weights + pairs->next);
        const auto output = Vector8<Element>::Load(args.outputs + pairs->next * args.dim + pairs->column);
        QUIRE_UNROLL for (int j = 0; j < 8; ++j) sums[j] = __builtin_fmaf(weight, output.x[j], sums[j]);
      }
    }
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_EXPERT_PRODUCT_H_
