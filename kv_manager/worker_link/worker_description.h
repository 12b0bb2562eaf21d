// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DESCRIPTION_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_DESCRIPTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/cache_groups.h"
#include "base/fingerprint.h"
#include "base/ids.h"
#include "scheduler/sampling_params.h"
#include "scheduler/scheduler_options.h"

namespace quire {

// A file of the checkpoint, whole.
struct ModelFile {
  std::string name;
  std::string content;

  bool operator==(const ModelFile&) const = default;
};

// What the embeddings of a model are.
struct ModelPooling {
  Pooling kind = Pooling::kNone;
  bool normalizes = false;  // An embedding is divided by its length (L2).
  int embedding_size = 0;   // Number of values; 0 if the kind is kNone.
  // Why the model gives no embeddings. It has no meaning if the kind is another one than kNone.
  std::string refusal = "its worker has a version without embeddings";

  bool operator==(const ModelPooling&) const = default;
};

// A worker as it describes itself: its constants and the state of its sessions.
struct WorkerDescription {
  // The place of the worker among the ranks that hold one model together. A worker with a whole model is a group of
  // one.
  struct RankPlace {
    std::string group_id;                // The same for all ranks of one group. Empty for a whole model.
    int rank = 0;                        // 0 .. size - 1.
    int size = 1;                        // Number of ranks.
    std::string transport_address = "";  // Where the other ranks reach this one in the next session.
    // At which the manager reaches the ranks, by rank. Empty: at adjacent addresses.
    std::vector<std::string> addresses = {};

    bool operator==(const RankPlace&) const = default;
  };

  std::string model_name;
  std::string architecture;
  int vocab_size = 0;
  int max_context_tokens = 0;
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::vector<ModelFile> tokenizer_files;
  int block_size = 0;
  std::vector<CacheGroup> groups = {CacheGroup{}};
  int num_blocks = 0;
  int num_host_blocks = 0;      // Blocks of the host tier; 0: there is none.
  int max_sequences = 0;        // Rows.
  int max_tokens_per_step = 0;  // Tokens of the largest plan that it accepts.
  std::string numerics_fingerprint;
  std::string device;
  ModelPooling pooling;
  bool embeds_only = false;  // The model has no output matrix.
  std::string process_id;    // Differs between processes. Empty: the worker does not tell it.
  bool keeps_rows = false;   // Its rows and blocks stay for a time after the end of a session.
  RankPlace place;
  // What a rank has digested of the weights, which its fingerprint does not name. JoinDescriptions() names them.
  std::optional<TensorDigests> weights;
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
