#ifndef QUIRE_SCHEDULER_ADMISSION_H_
#define QUIRE_SCHEDULER_ADMISSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "scheduler/block_manager.h"
#include "scheduler/request.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// Whether a request can ever be served. INVALID_ARGUMENT: a field is out of range, or the model's context is too short
// for prompt and max_tokens. FAILED_PRECONDITION: they fit the context, but not into the whole pool. The K and V of the
// last token are never stored, so 5 prompt tokens and max_tokens 4 need 8 slots.
absl::Status CheckCanEverFit(const Request& request, const SchedulerOptions& options, const BlockManager& blocks);

// The most blocks that the request can ever hold: every sample or beam has the prompt's whole blocks in common with the
// others, and the rest for itself.
int64_t MaxBlocks(const Request& request, int block_size);

// Blocks that admission leaves free for the running ones to grow into: this share of the pool, rounded up.
int WatermarkBlocks(double watermark, int num_blocks);

// Whether `num_needed` blocks may go to a newcomer. A pool that serves nobody gives all it has: the watermark keeps
// room for running sequences, and without any it would only lock the door.
bool HasRoom(int num_needed, int num_free, int watermark_blocks, bool is_idle);

// The starts of one plan hold no more numbers than this, 16 MiB of them: far below what one message to a worker may
// hold.
constexpr int64_t kMaxStartTokens = 4 << 20;

// Numbers in the start of one sequence of the request that has `num_tokens` tokens: these, and what sampling lists.
int64_t NumStartTokens(const Request& request, int num_tokens);

}  // namespace quire

#endif  // QUIRE_SCHEDULER_ADMISSION_H_
