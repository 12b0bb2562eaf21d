#ifndef QUIRE_KV_MANAGER_ENGINE_REVIVAL_H_
#define QUIRE_KV_MANAGER_ENGINE_REVIVAL_H_

#include <optional>
#include <vector>

#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/inventory_check.h"
#include "kv_manager/engine/restore_request.h"
#include "scheduler/request.h"
#include "scheduler/restored_request.h"

namespace quire {

// How a request of a manager that is gone goes on.
struct Revival {
  // The stream has to be told this of a sample, or of a hypothesis that a beam search will return.
  struct Sample {
    int index = 0;
    // Up to the end, if the sample has ended. Of a hypothesis, the tokens that all have. They have scores if the
    // request wants logprobs.
    std::vector<ScoredToken> generated;
    std::optional<FinishReason> end;  // Why the sample has ended.
  };

  std::vector<Sample> samples;  // What its stream has to be told. Empty: nothing, because it begins again.
  bool is_over = false;         // All samples have ended.
  RestoredRequest request;      // For the scheduler, unless the request is over.
  std::vector<RestoredBlocks::Table> tables;  // Of its samples that have not ended.
  // The blocks that the samples were about to fill. They should not be cached for what they had before, because then
  // other cached blocks would have to make room for the samples.
  std::vector<BlockId> next_blocks;
  std::vector<RowId> end_rows;  // Rows that are of no use any more.
};

// The rows say which tokens the samples or beams have, and their scores, and `check` says how many of them are stored.
// What is not stored is computed again. The request begins again, with the same tokens, when the rows do not have all
// that its stream needs: when the row of a sample or of a beam is gone, or when scores are missing.
Revival Revive(Request request, int vocab_size, const RowsOfRequest& rows, const InventoryCheck& check);

// How far the worker has come, for the stream of the request.
RestoredCopy CopyOf(const Revival& revival, int num_outputs);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REVIVAL_H_
