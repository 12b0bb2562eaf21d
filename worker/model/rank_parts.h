// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_RANK_PARTS_H_
#define QUIRE_WORKER_MODEL_RANK_PARTS_H_

#include <string>
#include <vector>

#include "worker/model/config.h"
#include "worker/model/layer_stacks.h"

namespace quire {

// The parts of tensors that a rank of a group has (ShardOf). One rank alone has whole tensors.

// Returns the rank's rows of a tensor, if all ranks have as many.
MatrixPart RowsOfRank(const ModelConfig& config, const std::string& name, int rows);

// Returns the rank's rows of Q, K and V in three tensors whose names end with `suffix`.
std::vector<MatrixPart> ProjectionsOfRank(const ModelConfig& config, const std::string& prefix, const char* suffix);
// Returns the same in one tensor. One rank alone has one part.
std::vector<MatrixPart> FusedProjectionsOfRank(const ModelConfig& config, const std::string& prefix);

// Returns the rank's `cols` columns of the last matrix of attention or of an MLP.
MatrixPart LastColumnsOfRank(const ModelConfig& config, const std::string& name, int slice_unit, int cols);
// Returns the rows that the rank has in place of these columns where sums over columns cannot be divided.
MatrixPart RowsInPlaceOfColumns(const ModelConfig& config, const MatrixPart& part);

// Returns the rank's rows of the output matrix: of its part of the vocabulary.
MatrixPart OutputPart(const ModelConfig& config, const std::string& name);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_RANK_PARTS_H_
