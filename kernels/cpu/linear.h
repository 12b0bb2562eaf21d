// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_CPU_LINEAR_H_
#define QUIRE_KERNELS_CPU_LINEAR_H_

#include <vector>

#include "kernels/cpu/input_tiles.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/table/kernel_table.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/linear.h"

namespace quire::cpu {

// Multiplication by packed weights on all threads of a thread pool. Owned by the executor thread.
class CpuLinear {
 public:
  CpuLinear(const KernelTable* kernels, ThreadPool* pool) : kernels_(*kernels), pool_(pool), tiles_(pool) {}

  // REQUIRES: CpuPackedMatrix made args.w; y of a Linear is float32.
  void Run(const LinearArgs& args);
  void Run(const GatedLinearArgs& args);

  // Consecutive rows of an input, the matrix that multiplies them, and its bias as in the arguments of a product.
  struct RowGroup {
    const CpuPackedMatrix* w;
    const float* bias;
    int first_row;
    int num_rows;
  };
  // Multiplies the rows of each group by its matrix. Small groups share one loop over the threads. Each row of y has
  // the same bits as in a product of its own. REQUIRES: the groups have rows and divide the rows of args in their
  // order, and all matrices have the shape and the format of args.w; no residual, softcap or layout of tiles, and no
  // bias of args.
  void RunGroups(const LinearArgs& args, const std::vector<RowGroup>& groups);
  void RunGroups(const GatedLinearArgs& args, const std::vector<RowGroup>& groups);

  DataType InputType(const CpuPackedMatrix& w) const { return kernels_.linear_input[int(w.format())]; }
  InputLayout InputLayoutOf(const CpuPackedMatrix& w, int num_tokens) const;

 private:
  // Multiplies all rows by all panels, in tasks. The caller leaves empty the fields of `whole` that follow from the
  // matrix.
  void Multiply(const CpuPackedMatrix& w, InputLayout x_layout, LinearTask whole);
  // Does the same for groups of rows.
  void MultiplyGroups(const std::vector<RowGroup>& groups, LinearTask whole);
  // Returns whether the rows of a group are multiplied in a product of their own, because their form as an input
  // depends on their number or on the matrix.
  bool IsOwnProduct(const RowGroup& group) const;
  // Sets the fields of a product that follow from its matrix.
  static void SetMatrix(const CpuPackedMatrix& w, LinearTask* whole);
  // How a product is divided into items, and where an item finds its input.
  struct Items {
    int rows;  // Largest numbers of rows and panels of an item.
    int panels;
    int64_t x_row_bytes;  // 0 if all items share one input.
    bool copies_tiles;    // The input is copied into tiles_.
    bool has_scratch;
  };
  // Both functions prepare the input and the scratch memory of a product: of one in tiles, and of one in rows.
  Items PrepareTiles(const CpuPackedMatrix& w, InputLayout x_layout, LinearTask* whole);
  Items PrepareRows(const CpuPackedMatrix& w, LinearTask* whole);
  // Returns the item that begins at this row and panel, for this thread.
  LinearTask TaskOf(const CpuPackedMatrix& w, const LinearTask& whole, const Items& items, int row, int panel,
                    int thread);
  // Returns whether `num_rows` rows are multiplied in tiles.
  bool MultipliesTiles(const CpuPackedMatrix& w, int num_rows) const;

  // Points the task to its input in the form that kernels take, which is the input itself or a copy. Returns the bytes
  // of a row. Throws std::bad_alloc, as containers do, when there is no memory for the copy.
  int64_t PrepareInput(const CpuPackedMatrix& w, LinearTask* whole);
  // The copies: rows in pairs of k, and rows that are rounded to 8 bits with a scale for each row, group or block.
  int64_t PairInput(const CpuPackedMatrix& w, LinearTask* whole);
  int64_t QuantizeInput(const CpuPackedMatrix& w, LinearTask* whole);
  int64_t QuantizeInputGroups(const CpuPackedMatrix& w, LinearTask* whole);
  int64_t QuantizeInputBlocks(const CpuPackedMatrix& w, LinearTask* whole);
  // The same for rounded groups in tiles. The rows of an item begin at a multiple of rows_per_item.
  int64_t QuantizeInputTiles(const CpuPackedMatrix& w, int rows_per_item, LinearTask* whole);
  // The same for pairs of k in tiles, which all items share.
  void PairInputTiles(const CpuPackedMatrix& w, LinearTask* whole);
  // Rounds row `row` of x, or makes a row of zeros after the last one, and stores it in the tiles.
  void QuantizeTileRow(const CpuPackedMatrix& w, const LinearTask& whole, int row, int rows_per_item, char* scratch);
  // Makes a copy of `row_bytes` for each row, at multiples of 64 bytes, by quantize(x of the row, copy of the row).
  template <typename Quantize>
  int64_t QuantizeRows(const CpuPackedMatrix& w, int row_bytes, LinearTask* whole, Quantize&& quantize);
  // Points the task to a copy of its rows of bfloat16, with zeros after each row up to x_stride.
  void PadInput(const CpuPackedMatrix& w, LinearTask* whole);
  // Returns whether a kernel would read, at a time, lines of more rows of bfloat16 than a set of the first-level cache
  // holds.
  bool SharesCacheSets(int num_rows, int64_t x_stride) const;
  // Points the task to a copy of its input in the order of the columns of w.
  void OrderInput(const CpuPackedMatrix& w, LinearTask* whole);
  template <typename T>
  void OrderInputOf(const CpuPackedMatrix& w, LinearTask* whole);
  // Takes memory for LinearTask::scratch, which is `num_bytes` for each thread.
  void TakeScratch(size_t num_bytes);
  // Returns memory for the copy.
  char* CopyMemory(size_t bytes);

  const KernelTable& kernels_;
  ThreadPool* const pool_;
  InputTiles tiles_;  // Copies of an input for LinearInput::is_tiled.
  std::vector<RowGroup> small_groups_;
  // An item of small groups: the group, and its first row and panel.
  struct GroupItem {
    int group;
    int row;
    int panel;
  };
  std::vector<GroupItem> group_items_;
  Memory scales_;                // Of an input in tiles.
  Memory copy_;                  // A copy of an input. Grows to the size of the largest call.
  Memory ordered_;               // The same of OrderInput.
  std::vector<Memory> scratch_;  // Each thread has an entry. Grows in the same way.
};

}  // namespace quire::cpu

#endif  // QUIRE_KERNELS_CPU_LINEAR_H_
