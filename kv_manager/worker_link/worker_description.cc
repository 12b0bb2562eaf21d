// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/worker_description.h"

#include <algorithm>

namespace quire {

bool WorkerDescription::HasPoolOf(const WorkerDescription& other) const {
  return num_blocks == other.num_blocks && block_size == other.block_size && num_host_blocks == other.num_host_blocks &&
         max_sequences == other.max_sequences && max_tokens_per_step == other.max_tokens_per_step;
}

SchedulerOptions NarrowedTo(const WorkerDescription& worker, SchedulerOptions options) {
  options.max_sequences = worker.max_sequences;
  options.max_tokens_per_step = std::min(options.max_tokens_per_step, worker.max_tokens_per_step);
  options.max_chunk_tokens = std::min(options.max_chunk_tokens, options.max_tokens_per_step);
  options.max_context_tokens = std::min(options.max_context_tokens, worker.max_context_tokens);
  options.keeps_rows = worker.keeps_rows;
  return options;
}

}  // namespace quire
