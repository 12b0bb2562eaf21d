// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CUDA_RANK_KERNELS_H_
#define QUIRE_KERNELS_CUDA_RANK_KERNELS_H_

#include <cstdint>

#include "kernels/cuda/vector8.h"

// What a rank of a group does with the sums and columns of all ranks; see kernels/rank_sums.h.

namespace quire::cuda {

// y[i, :] = scale * (the tree of parts[:, i, :] + bias) + residual[i, :].
struct AddPartsKernelArgs {
  const float* parts;        // [num_parts, num_rows, dim], aligned to 16 bytes.
  const float* bias;         // [dim], aligned to 16 bytes, or null.
  const uint16_t* residual;  // [num_rows, dim] or null.
  uint16_t* y;               // [num_rows, dim]; may be the residual.
  int32_t num_parts;         // 1, 2, 4 or 8.
  int32_t num_rows;
  int32_t dim;  // A multiple of 8.
  float scale;
};

// A thread makes eight elements at a time.
template <typename Element>
class AddPartsKernel {
 public:
  using Args = AddPartsKernelArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const AddPartsKernelArgs& args) {
    simt::WaitForPriorGrid();
    switch (args.num_parts) {
      case 1:
        AddAll<1>(args);
        break;
      case 2:
        AddAll<2>(args);
        break;
      case 4:
        AddAll<4>(args);
        break;
      default:
        AddAll<8>(args);
    }
    simt::TriggerNextGrid();
  }

 private:
  template <int kParts>
  static QUIRE_DEVICE void AddAll(const AddPartsKernelArgs& args) {
    const int64_t chunks_per_row = args.dim / 8, num_chunks = args.num_rows * chunks_per_row;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < num_chunks;
         i += int64_t{simt::GridSize()} * kThreads) {
      Vector8<Element> y, residual = {};
      if (args.residual != nullptr) residual = Vector8<Element>::Load(args.residual + 8 * i);
      QUIRE_UNROLL for (int j = 0; j < 8; j += 4) {
        const Floats4 sum = Tree<kParts>(args.parts + 8 * i + j, num_chunks * 8);
        Floats4 bias = {};
        if (args.bias != nullptr) bias = Floats4::LoadReadOnly(args.bias + i % chunks_per_row * 8 + j);
        QUIRE_UNROLL for (int k = 0; k < 4; ++k) {
          y.x[j + k] = (sum.x[k] + bias.x[k]) * args.scale + residual.x[j + k];
        }
      }
      y.Store(args.y + 8 * i);
    }
  }

  template <int kParts>
  static QUIRE_DEVICE Floats4 Tree(const float* from, int64_t stride) {
    if constexpr (kParts == 1) {
      return Floats4::Load(from);
    } else {
      Floats4 sum = Tree<kParts / 2>(from, stride);
      const Floats4 right = Tree<kParts / 2>(from + kParts / 2 * stride, stride);
      QUIRE_UNROLL for (int i = 0; i < 4; ++i) sum.x[i] += right.x[i];
      return sum;
    }
  }
};

// y[i, p * part_words + k] = x[p, i, k] for the first part_words columns of each part, up to num_words columns of y.
// Everything is in words of 4 bytes.
struct JoinColumnsArgs {
  const uint32_t* x;  // [number of parts, num_rows, x_stride]
  uint32_t* y;        // [num_rows, y_stride]
  int32_t num_rows;
  int32_t num_words;   // That are written in each row of y.
  int32_t part_words;  // Of each part but the last one, which may have fewer.
  int32_t x_stride;
  int32_t y_stride;
};

// A thread copies one word at a time.
class JoinColumnsKernel {
 public:
  using Args = JoinColumnsArgs;
  static constexpr int kThreads = 256;
  static constexpr int kSharedBytes = 0;

  static QUIRE_DEVICE void Run(const JoinColumnsArgs& args) {
    simt::WaitForPriorGrid();
    const int64_t count = int64_t{args.num_rows} * args.num_words;
    for (int64_t i = int64_t{simt::BlockIndex()} * kThreads + simt::ThreadIndex(); i < count;
         i += int64_t{simt::GridSize()} * kThreads) {
      const int64_t row = i / args.num_words, word = i % args.num_words;
      const int64_t part = word / args.part_words;
      const int64_t from = (part * args.num_rows + row) * args.x_stride + word % args.part_words;
      simt::StoreGlobal(args.y + row * args.y_stride + word, simt::LoadGlobal(args.x + from));
    }
    simt::TriggerNextGrid();
  }
};

}  // namespace quire::cuda

#endif  // QUIRE_KERNELS_CUDA_RANK_KERNELS_H_
