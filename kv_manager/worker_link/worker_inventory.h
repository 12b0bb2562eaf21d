// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_WORKER_LINK_WORKER_INVENTORY_H_
#define QUIRE_KV_MANAGER_WORKER_LINK_WORKER_INVENTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// An earlier session has left this on a worker. InventoryReader makes it: every number is in its range, and all columns
// fit together. It does not follow that rows and labels agree with each other.
struct WorkerInventory {
  struct SwappedBlock {
    int entry;      // An index in the block table.
    BlockId block;  // A block of the host tier.

    bool operator==(const SwappedBlock&) const = default;
  };

  struct Row {
    RowId row{0};
    SequenceId sequence{0};
    std::optional<SequenceId> forked_from;
    uint32_t sample_index = 0;
    int prompt_length = 0;
    std::vector<TokenId> tokens;
    int64_t idle_us = 0;   // InventoryRow.idle_ms, in microseconds.
    int num_computed = 0;  // At most the number of tokens, and at most what the block table has room for.
    std::vector<BlockId> blocks;
    std::vector<SwappedBlock> swapped;  // Their entries rise.
    std::string record;
    std::optional<int> root;  // An index in `roots`.
    // The row reports these, as in SamplingParams, but at most the size of the vocabulary.
    int num_logprobs = -1;  // -1 also if it reports candidates.
    int num_prompt_logprobs = -1;
    int num_candidates = 0;
    // `scores` belongs to the first tokens behind the prompt, and `prompt_scores` to the prompt from position 1 on, as
    // far as the worker knows them. There are never more of them than tokens.
    std::vector<ScoredToken> scores;
    std::vector<ScoredToken> prompt_scores;
  };

  struct Label {
    BlockId block{0};           // A block of the pool, or of the host tier.
    bool is_host = false;       // Whether it is one of the host tier.
    std::optional<int> parent;  // The index of an earlier label, which is full and has the same root.
    int root = 0;               // An index in `roots`.
    std::vector<TokenId> tokens;
  };

  struct Slice {
    RowId row{0};
    SequenceId sequence{0};
    int first_position = 0;
    int num_tokens = 0;
    bool samples = false;
  };

  // What one step has computed. Its tokens are in the rows.
  struct Result {
    StepId step{0};
    std::vector<Slice> slices;
  };

  uint64_t epoch = 0;   // The last session that has executed a step. 0: there is none.
  StepId last_step{0};  // The last step of that session.
  // Hash of all rows and labels, which is the same on all ranks of a group that have executed the same steps. 0: the
  // worker is no rank of a group.
  uint64_t digest = 0;
  int num_left_out = 0;
  std::vector<Result> results;  // At most two, oldest first. The last one belongs to last_step.
  std::vector<std::string> roots;
  std::vector<Row> rows;      // Their numbers rise.
  std::vector<Label> labels;  // No block twice.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_WORKER_LINK_WORKER_INVENTORY_H_
