// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KERNELS_RANK_SUMS_H_
#define QUIRE_KERNELS_RANK_SUMS_H_

#include <cstdint>

#include "kernels/collective.h"
#include "kernels/types.h"

namespace quire {

// Adds the sums of the ranks, which have adjacent slices each (kernels/linear.h), as the upper part of the tree of
// slices: for four ranks (0 + 1) + (2 + 3). Then
//   y = scale * (sum + bias) (+ shared_weight * shared) (+ residual),
// so that the bits are those of one rank that has all slices. Outputs of experts are added in the same way, because a
// rank has whole ranges of them (kernels/experts.h).
struct AddPartsArgs {
  Collective* group;   // Null if `part` has the sums of all ranks.
  const float* part;   // [num_tokens, dim] float32: the sums of this rank. `dim` is a multiple of the number of ranks.
  const float* bias;   // [dim] or null.
  const void* shared;  // [num_tokens, dim] activations, or null; as in ExpertMlpArgs.
  const float* shared_weights;  // [num_tokens], or null for 1.
  const void* residual;         // [num_tokens, dim] activations, or null.
  void* y;                      // [num_tokens, dim] activations; may be the residual.
  int num_tokens;
  int dim;
  float scale = 1;  // REQUIRES: 1 if there is `shared`.
};

// Returns the columns of a matrix of `cols` columns that each of `size` ranks has. The last ranks may have fewer.
constexpr int ColumnsOfRank(int cols, int size) {
  return (cols + size - 1) / size;
}

// Joins the columns that the ranks have: y[i, j] = x[i, j - r * n] of rank r = j / n, where n is
// ColumnsOfRank(cols, group->size()).
struct GatherColumnsArgs {
  Collective* group;
  const void* x;     // [num_rows, x_stride], of which the first columns are those of this rank.
  int64_t x_stride;  // In elements.
  void* y;           // [num_rows, cols]
  int num_rows;
  int cols;       // Of all ranks together.
  DataType type;  // Of x and y.
};

// Returns how many of the rows r, r + n, r + 2 n and so on there are, for rank r of n ranks.
constexpr int RowsInTurn(int num_rows, int rank, int size) {
  return rank < num_rows ? (num_rows - rank - 1) / size + 1 : 0;
}

// Gives each rank its rows in turn of a matrix, of which every rank has columns of all rows as in GatherColumnsArgs:
// y[i] is row r + i * n for rank r of n.
struct ExchangeRowsArgs {
  Collective* group;
  const void* x;     // [num_rows, x_stride], of which the first columns are those of this rank.
  int64_t x_stride;  // In elements.
  void* y;           // [RowsInTurn(num_rows, group->rank(), group->size()), cols]
  int num_rows;
  int cols;       // Of all ranks together.
  DataType type;  // Of x and y.
};

}  // namespace quire

#endif  // QUIRE_KERNELS_RANK_SUMS_H_
