// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_INPUT_TILES_H_
#define QUIRE_KERNELS_CPU_INPUT_TILES_H_

#include <vector>

#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/half_float.h"

namespace quire::cpu {

// Copies the columns [first, first + count) of a row to their places in tiles.
void StoreInTiles(const BFloat16* from, int count, int row, int first, const TileOrder& order, BFloat16* tiles);

// Copies of the input of a product in tiles, for inputs that nobody has written in tiles. Owned by the thread that owns
// the pool.
class InputTiles {
 public:
  // The pool must outlive the object.
  explicit InputTiles(ThreadPool* pool) : pool_(pool) {}

  // Up to this number of rows, a copy takes longer than it saves.
  static constexpr int kMaxPlainRows = 32;
  // Up to this number, each thread may make a copy for itself: multiplying what another core has just written takes as
  // long as making a copy, or longer.
  static constexpr int kMaxOwnRows = 128;

  // Copies x [num_rows, w.cols()] with all threads together, or leaves this to Get.
  void Prepare(const CpuPackedMatrix& w, const BFloat16* x, int num_rows);

  // Returns the tiles. Called by thread `thread` of the pool, after Prepare, whose x must still be there.
  const BFloat16* Get(int thread);

 private:
  // A part is a block of k of a pair of tiles.
  int num_parts() const { return order_.num_pairs * order_.blocks.size; }
  void CopyPart(int part, BFloat16* tiles) const;

  ThreadPool* const pool_;
  const BFloat16* x_ = nullptr;
  int num_rows_ = 0;
  int cols_ = 0;
  TileOrder order_{0, 1, 1};
  bool is_shared_ = false;  // Whether all threads use the first copy.
  std::vector<Memory> copies_;
  // Each thread has an entry. Not a vector of bits, because threads write at the same time.
  std::vector<char> is_copied_;
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_INPUT_TILES_H_
