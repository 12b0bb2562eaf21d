// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_ROW_KERNELS_H_
#define QUIRE_KERNELS_CUDA_ROW_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/vector8.h"

// Element-wise operations on rows of activations.

namespace quire::cuda {

// y[i, :] = x[rows[i], :]. Gathers token embeddings, and the rows whose logits are needed.
struct GatherRowsArgs {
  const uint16_t* x;    // [some rows, dim]
  const int32_t* rows;  // [num_rows]; a negative value means the row written_rows[-1 - row].
  uint16_t* y;          // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;                            // A multiple of 8.
  const int32_t* written_rows = nullptr;  // An earlier kernel writes them.
};

// A warp handles one row at a time.
class GatherRowsKernel {
 public:
  using Args = GatherRowsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;
  static constexpr int kRowsPerBlock = kThreads / simt::kWarpSize;

  static QUIRE_DEVICE void Run(const GatherRowsArgs& args) {
    simt::WaitForPriorGrid();
    for (int i = simt::BlockIndex() * kRowsPerBlock + simt::WarpIndex(); i < args.num_rows;
         i += simt::GridSize() * kRowsPerBlock) {
      int64_t row = simt::LoadReadOnly(args.rows + i);
      if (row < 0) row = simt::LoadGlobal(args.written_rows + (-1 - row));
      const uint16_t* const from = args.x + row * args.dim;
      uint16_t* const to = args.y + int64_t{i} * args.dim;
      for (int d = 8 * simt::LaneIndex(); d < args.dim; d += 8 * simt::kWarpSize) {
        simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(to + d),
                          simt::LoadGlobal(reinterpret_cast<const simt::U32x4*>(from + d)));
      }
    }
    simt::TriggerNextGrid();
  }
};

// y[i, k] = x[i, columns[k]]. Puts the input of a product into the order of the columns of its weights.
struct GatherColumnsArgs {
  const uint16_t* x;       // [num_rows, dim]
  const int32_t* columns;  // [dim]
  uint16_t* y;             // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

// A thread writes eight elements at a time.
class GatherColumnsKernel {
 public:
  using Args = GatherColumnsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const GatherColumnsArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const uint16_t* const x = args.x + i / chunks_per_row * args.dim;
      const int32_t* const columns = args.columns + i % chunks_per_row * 8;
      simt::U32x4 words;
      QUIRE_UNROLL for (int j = 0; j < 4; ++j) {
        const uint32_t low = simt::LoadGlobal(x + simt::LoadReadOnly(columns + 2 * j));
        const uint32_t high = simt::LoadGlobal(x + simt::LoadReadOnly(columns + 2 * j + 1));
        words.word[j] = low | high << 16;
      }
      simt::StoreGlobal(reinterpret_cast<simt::U32x4*>(args.y + 8 * i), words);
    }
    simt::TriggerNextGrid();
  }
};

// y[i, :] += bias.
struct AddBiasArgs {
  uint16_t* y;        // [num_rows, dim]
  const float* bias;  // [dim], aligned to 16 bytes.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

template <typename Element>
class AddBiasKernel {
 public:
  using Args = AddBiasArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const AddBiasArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t d = i % chunks_per_row * 8;
      Vector8<Element> y = Vector8<Element>::Load(args.y + 8 * i);
      QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
        const Floats4 bias = Floats4::LoadReadOnly(args.bias + d + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) y.x[j + k] += bias.x[k];
      }
      y.Store(args.y + 8 * i);
    }
    simt::TriggerNextGrid();
  }
};

// y[i, j] = silu(x[i, j]) * x[i, dim + j], where silu(a) = a / (1 + exp(-a)).
// This is the middle of a gated MLP whose gate and up matrices were multiplied as one.
struct SiluMulArgs {
  const uint16_t* x;  // [num_rows, 2 * dim]
  uint16_t* y;        // [num_rows, dim]
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
};

template <typename Element>
class SiluMulKernel {
 public:
  using Args = SiluMulArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const SiluMulArgs& args) {
    constexpr float kLog2E = 1.44269504f;
    simt::WaitForPriorGrid();
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t row = i / chunks_per_row, d = i % chunks_per_row * 8;
      const uint16_t* const x = args.x + row * 2 * args.dim + d;
      const Vector8<Element> gate = Vector8<Element>::Load(x), up = Vector8<Element>::Load(x + args.dim);
      Vector8<Element> y;
      QUIRE_UNROLL for (int j = 0; j < 8; ++j) {
        y.x[j] = gate.x[j] * simt::Reciprocal(1 + simt::Exp2(-gate.x[j] * kLog2E)) * up.x[j];
      }
      y.Store(args.y + row * args.dim + d);
    }
    simt::TriggerNextGrid();
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_ROW_KERNELS_H_
