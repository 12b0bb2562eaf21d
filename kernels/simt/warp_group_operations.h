// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_SIMT_WARP_GROUP_OPERATIONS_H_
#define QUIRE_KERNELS_SIMT_WARP_GROUP_OPERATIONS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/simt/product_reads.h"
#include "kernels/simt/warp_operations.h"

// The products of warp groups, as functions of the arguments of all their threads. Plain arithmetic without checks.
namespace quire::simt {

template <typename T>
using PerGroupThread = std::array<T, kWarpGroupThreads>;

// A matrix in shared memory, as wgmma describes it, with rows of 128 bytes whose chunks of 16 are permuted.
struct MatrixInShared {
  explicit MatrixInShared(uint64_t descriptor);
  static uint64_t Descriptor(size_t offset, size_t panel_bytes);

  // Returns the offset in shared memory of chunk `chunk` of a row. A panel has 8 chunks per row.
  size_t ChunkOffset(int row, int chunk) const;

  size_t start, panel_bytes, group_bytes;
};

struct ProductInput {
  const uint32_t* a_rows;  // [4]; null if a is in shared memory.
  uint64_t a, b;           // Descriptors.
  MmaType type;
  int num_columns;    // 64 or 128; 8 to 64 with kFp8.
  bool is_b_by_rows;  // Whether row k of b has the columns of d. Otherwise row n has the 32 bytes of k.
  bool adds;
  float* d;  // [num_columns / 2]
};

// Calls visit(offset) for every chunk of 16 bytes that the product reads.
template <typename Visit>
void ForEachChunk(const ProductInput& in, const Visit& visit) {
  constexpr int kRows = 64, kDepthChunks = 2;
  if (in.a_rows == nullptr) {
    const MatrixInShared a(in.a);
    for (int row = 0; row < kRows; ++row) {
      for (int chunk = 0; chunk < kDepthChunks; ++chunk) visit(a.ChunkOffset(row, chunk));
    }
  }
  const MatrixInShared b(in.b);
  const int rows = in.is_b_by_rows ? 16 : in.num_columns, chunks = in.is_b_by_rows ? in.num_columns / 8 : kDepthChunks;
  for (int row = 0; row < rows; ++row) {
    for (int chunk = 0; chunk < chunks; ++chunk) visit(b.ChunkOffset(row, chunk));
  }
}

// Computes the product into `d`, the accumulators of all threads, [128][num_columns / 2]. Sums are float32 in ascending
// k and are added to d at the end. The hardware uses its own order and rounding.
void ExecuteProduct(const PerGroupThread<const ProductInput*>& in, const char* shared, std::vector<float>* d);

}  // namespace quire::simt

#endif  // QUIRE_KERNELS_SIMT_WARP_GROUP_OPERATIONS_H_
