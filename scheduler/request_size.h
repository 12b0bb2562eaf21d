// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_REQUEST_SIZE_H_
#define QUIRE_SCHEDULER_REQUEST_SIZE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/cache_groups.h"
#include "scheduler/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// Returns whether the request can ever be served. INVALID_ARGUMENT: a field is out of range, or the model's context is
// too short for prompt and max_tokens. FAILED_PRECONDITION: the context has room for them, but the whole pool has not.
// The K and V of the last token are never stored, so 5 prompt tokens and max_tokens 4 need 8 slots.
absl::Status CheckCanEverFit(const Request& request, const SchedulerOptions& options, const BlockManager& blocks);

// Checks whether the request can ever be served within the share of its tenant. The error FAILED_PRECONDITION names the
// tenant and the numbers.
absl::Status CheckFitsShare(const Request& request, const TenantShares& shares, const BlockManager& blocks);

// The largest number of blocks that the request can ever hold. All samples or beams share the whole blocks of the
// prompt, and each has the remaining blocks for itself.
int64_t MaxBlocks(const Request& request, const CacheGroups& groups);

// Largest number of numbers in the sequence starts of one plan: 16 MiB. That is far below the largest message to a
// worker.
constexpr int64_t kMaxStartTokens = 4 << 20;
// A request starts without the scores of its tokens when these are more numbers.
constexpr int64_t kMaxStartScores = 1 << 20;

// Returns how many numbers the start of one sequence of the request holds when the sequence has `num_tokens` tokens:
// the tokens themselves and the lists in the sampling parameters.
int64_t NumStartTokens(const Request& request, int num_tokens);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_REQUEST_SIZE_H_
