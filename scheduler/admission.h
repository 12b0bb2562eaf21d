#ifndef QUIRE_SCHEDULER_ADMISSION_H_
#define QUIRE_SCHEDULER_ADMISSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "scheduler/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// Whether the request can ever be served. INVALID_ARGUMENT: a field is out of range, or the model's context is too
// short for prompt and max_tokens. FAILED_PRECONDITION: the context has room for them, but the whole pool has not. The
// K and V of the last token are never stored, so 5 prompt tokens and max_tokens 4 need 8 slots.
absl::Status CheckCanEverFit(const Request& request, const SchedulerOptions& options, const BlockManager& blocks);

// The largest number of blocks that the request can ever hold. All samples or beams share the whole blocks of the
// prompt, and each has the remaining blocks for itself.
int64_t MaxBlocks(const Request& request, int block_size);

// The number of blocks that admission leaves free so that running sequences can grow: this share of the pool, rounded
// up.
int WatermarkBlocks(double watermark, int num_blocks);

// Whether a group that wants to enter may take `num_needed` blocks. The watermark keeps room for running sequences. An
// idle pool runs none, so there the group may take all free blocks.
bool HasRoom(int num_needed, int num_free, int watermark_blocks, bool is_idle);

// The sequence starts of one plan hold at most this many numbers, which are 16 MiB. That is far below the largest
// message to a worker.
constexpr int64_t kMaxStartTokens = 4 << 20;

// How many numbers the start of one sequence of the request holds when the sequence has `num_tokens` tokens: the tokens
// themselves and the lists in the sampling parameters.
int64_t NumStartTokens(const Request& request, int num_tokens);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_ADMISSION_H_
