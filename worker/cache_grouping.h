// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_CACHE_GROUPING_H_
#define QUIRE_WORKER_CACHE_GROUPING_H_

#include "base/cache_groups.h"
#include "worker/model/config.h"
#include "worker/worker_limits.h"

namespace quire {

// Divides the layers of a model into a cache group that keeps all tokens and one for each window. A block gets the
// number of slots with which a long sequence takes the fewest bytes. A group with more layers than slots has several
// blocks per sheet. Changes nothing if this saves no memory, for example in a model without windows, or in one whose
// layers all have a window. A window smaller than a block, or as long as the context, counts as none. REQUIRES: the
// layers are in one group (MakeOneCacheGroup), and slices have at most max_slice_tokens tokens.
//
// Example: 8 layers keep all tokens and 40 have a window of 1024. Blocks have 8 slots. Group 0 has one block per sheet,
// which is column 0, and group 1 has five, which are the columns 1 to 5.
void DivideByWindows(int block_size, int max_slice_tokens, ModelConfig* config);

// Returns the cache groups of a worker.
inline CacheGroups CacheGroupsOf(const WorkerLimits& limits) {
  return {limits.block_size, limits.groups, limits.max_tokens_per_step};
}

}  // namespace quire

#endif  // QUIRE_WORKER_CACHE_GROUPING_H_
