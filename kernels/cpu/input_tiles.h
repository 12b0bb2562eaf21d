// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_INPUT_TILES_H_
#define QUIRE_KERNELS_CPU_INPUT_TILES_H_

#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half_float.h"

namespace quire::cpu {

// Copies of the input of a product in tiles (kernel_table.h). The rows are divided into blocks, which follow each
// other. Owned by the thread that owns the pool.
class InputTiles {
 public:
  // The pool must outlive the object.
  explicit InputTiles(ThreadPool* pool) : pool_(pool) {}

  // With so few rows the copy takes longer than it saves.
  static constexpr int kMaxPlainRows = 32;

  // Copies x [num_rows, w.cols()] with all threads together, or leaves this to Get. A few rows are copied by each
  // thread for itself: reading what another core has just written takes as long as making a copy.
  // Every block has `rows_per_block` rows, a multiple of 32, and the last one may have less.
  void Prepare(const CpuPackedMatrix& w, const BFloat16* x, int num_rows, int rows_per_block);

  // Returns the tiles of the block of rows that begins at `row`. Called by thread `thread` of the pool, after Prepare,
  // whose x must still be there.
  const BFloat16* Get(int thread, int row);

 private:
  // A part is a block of k of a pair of tiles.
  int num_blocks() const { return (cols_ + block_cols_ - 1) / block_cols_; }
  int num_parts() const { return num_pairs_ * num_blocks(); }
  void CopyPart(int part, BFloat16* tiles) const;

  ThreadPool* const pool_;
  const BFloat16* x_ = nullptr;
  int num_rows_ = 0;
  int cols_ = 0;
  int padded_cols_ = 0;
  int block_cols_ = 0;
  int num_pairs_ = 0;
  int pairs_per_block_ = 0;  // Of rows.
  bool is_shared_ = false;   // Whether all threads use the first copy.
  std::vector<Memory> copies_;
  std::vector<char> is_copied_;  // For each thread. Not a vector of bits, because threads write at the same time.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_INPUT_TILES_H_
