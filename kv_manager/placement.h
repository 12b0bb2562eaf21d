#ifndef QUIRE_KV_MANAGER_PLACEMENT_H_
#define QUIRE_KV_MANAGER_PLACEMENT_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace quire {

// What placement knows of one worker.
struct WorkerLoad {
  bool is_ready = false;
  int block_size = 1;  // Tokens per block.
  int num_blocks = 0;  // Of the pool.
  int num_free_blocks = 0;
  int64_t wanted_blocks = 0;  // By requests that were placed there and have not started yet.
  int num_requests = 0;       // Placed there and not ended.
};

// Blocks that a request takes when it starts: its prompt and the first token after it.
int BlocksWanted(int num_prompt_tokens, int block_size);

// The index of the ready worker with the most free blocks after everybody who was placed there has started; equal ones
// are told apart by fewer requests, then by the lower index. Nothing when no worker is ready.
std::optional<int> ChooseWorker(absl::Span<const WorkerLoad> workers);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_PLACEMENT_H_
