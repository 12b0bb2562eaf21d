#ifndef QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_
#define QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/types/span.h"

namespace quire {

// What placement knows of one worker.
struct WorkerLoad {
  bool is_ready = false;
  bool may_return = false;   // Lost, but not for so long that requests do not wait for it.
  bool is_draining = false;  // Gets no new requests.
  int block_size = 1;        // Tokens per block.
  int num_blocks = 0;        // Of the pool.
  int num_free_blocks = 0;
  int64_t wanted_blocks = 0;  // By requests that were placed there and have not started yet.
  int num_requests = 0;       // Placed there and not ended.
  int max_sequences = 0;      // Rows; 0: unknown.
  int num_cached_tokens = 0;  // Of the prompt of the request to be placed.
};

// Blocks that a request takes when it starts: its prompt and the first token after it.
int BlocksWanted(int num_prompt_tokens, int block_size);

// The request to be placed.
struct PlacementRequest {
  int num_prompt_tokens = 0;
  int num_rows = 1;                                   // One per sample or beam.
  std::function<int64_t(int block_size)> max_blocks;  // It may ever hold.
};

// The index of the worker for the request. Among those whose pool can hold it, ready ones come before those that may
// return; of these the one with the most of
//
//   share of the prompt that it has cached - load,
//
// the load being the share of its blocks that are taken once everybody who was placed there has started, or that of its
// rows if it is larger: a whole prompt is worth as much as a whole worker. Equal ones are told apart by fewer requests,
// then by the lower index. When no pool can hold it, the largest one, which refuses it with the numbers. One that
// drains is never chosen. Nothing when no other worker is ready or may return.
std::optional<int> ChooseWorker(absl::Span<const WorkerLoad> workers, const PlacementRequest& request);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_PLACEMENT_H_
