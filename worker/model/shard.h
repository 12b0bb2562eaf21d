// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_MODEL_SHARD_H_
#define QUIRE_WORKER_MODEL_SHARD_H_

#include "absl/status/statusor.h"
#include "worker/model/config.h"

namespace quire {

// Returns the shape of what rank `rank` of `size` has: its heads of attention, its columns of the MLPs, its experts and
// its part of the vocabulary. A KV head that several ranks need is on each of them. The embedding, the router and the
// shared expert are on every rank. Returns INVALID_ARGUMENT, with both numbers, when the ranks do not divide the model.
// REQUIRES: `whole` is of one rank.
absl::StatusOr<ModelConfig> ShardOf(const ModelConfig& whole, int rank, int size);

// Returns the shape of the model of which `config` is a shard.
ModelConfig WholeOf(const ModelConfig& config);

// Returns the first KV head of the whole model that the rank has.
int FirstKvHead(const ModelConfig& config);

// Consecutive indices [begin, end).
struct IndexRange {
  int begin;
  int end;

  int size() const { return end - begin; }
  bool contains(int index) const { return index >= begin && index < end; }
};

// Returns the experts of the rank.
IndexRange OwnExperts(const ModelConfig& config);
// Returns the tokens whose logits the rank computes.
IndexRange OwnVocabulary(const ModelConfig& config);

}  // namespace quire

#endif  // QUIRE_WORKER_MODEL_SHARD_H_
