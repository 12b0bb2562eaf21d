// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DESCRIPTION_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// A file of the checkpoint, whole.
struct ModelFile {
  std::string name;
  std::string content;

  bool operator==(const ModelFile&) const = default;
};

// A worker as it describes itself: its constants and the state of its sessions.
struct WorkerDescription {
  std::string model_name;
  std::string architecture;
  int vocab_size = 0;
  int max_context_tokens = 0;
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::vector<ModelFile> tokenizer_files;
  int block_size = 0;
  int num_blocks = 0;
  int num_host_blocks = 0;      // Blocks of the host tier; 0: there is none.
  int max_sequences = 0;        // Rows.
  int max_tokens_per_step = 0;  // Tokens of the largest plan that it accepts.
  std::string numerics_fingerprint;
  std::string device;
  std::string process_id;    // Differs between processes. Empty: the worker does not tell it.
  bool keeps_rows = false;   // Its rows and blocks stay for a time after the end of a session.
  uint64_t last_epoch = 0;   // The greatest epoch that it has seen.
  bool has_session = false;  // A session is open, perhaps with another manager.

  // Both workers have the same blocks and rows, so this one can take over the requests of the other.
  bool HasPoolOf(const WorkerDescription& other) const;
};

// Returns an error if the manager would need more than `max_bytes` of its own memory for the blocks, the rows and the
// vocabulary that the worker describes. It needs them at once, whatever the worker has in truth. FAILED_PRECONDITION
// names the numbers and the limit.
absl::Status CheckMemoryFor(const WorkerDescription& worker, int64_t max_bytes);

// Returns `options`, reduced to what the worker can do.
SchedulerOptions NarrowedTo(const WorkerDescription& worker, SchedulerOptions options);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DESCRIPTION_H_
