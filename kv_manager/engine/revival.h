// SPDX-License-Identifier: Apache-2.0

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

// Says how a request of a manager that is gone continues.
struct Revival {
  // The stream has to be told this of a sample, or of a hypothesis that a beam search will return.
  struct Sample {
    int index = 0;
    // Tokens up to the end, if the sample has ended. A hypothesis has the tokens that all hypotheses share. They have
    // scores if the request wants logprobs.
    std::vector<ScoredToken> generated;
    std::optional<FinishReason> end;  // Why the sample has ended.
    // Its tokens from this position on have other numerics than the earlier ones. The position may be behind
    // `generated`.
    std::optional<int> numerics_changed_at = std::nullopt;
  };

  std::vector<Sample> samples;  // To be told to its stream. Empty: nothing, because the request restarts.
  bool is_over = false;         // All samples have ended.
  // The request would have to restart, and its first tokens had other numerics than its worker has. Nobody can
  // compute them again, and its client may have them. So it cannot continue. Only `end_rows` is set.
  bool is_lost = false;
  // All tokens of all samples will have other numerics than the request was submitted with; it has none of them yet.
  // Its stream has to be told this of each output, from the end of the prompt on.
  bool has_changed_numerics = false;
  RestoredRequest request;                    // The scheduler gets it, unless the request is over.
  std::vector<RestoredBlocks::Table> tables;  // Tables of its samples that have not ended.
  // The blocks that the samples were about to fill. They should not be cached for what they had before, because then
  // other cached blocks would have to make room for the samples.
  std::vector<BlockId> next_blocks;
  std::vector<RowId> end_rows;  // Rows that are of no use any more.
};

// Returns whether the rows have all tokens of all samples, so that the request has ended. `stop_strings` may be null. A
// beam search is never over by this account, because nothing shows whether it has made its last choice.
bool IsOver(const Request& request, const RowsOfRequest& rows, const StopCondition* stop_strings);

// The rows say which tokens the samples or beams have, and their scores, and `check` says how many of them are stored.
// What is not stored is computed again. The request restarts, with the same tokens, when the rows do not have all
// that its stream needs: when the row of a sample or of a beam is gone, or when scores are missing. It is lost if it
// would have to restart with other numerics than before.
// `is_over` is what IsOver has said: then samples that have not ended by their tokens have ended by a stop string.
Revival Revive(Request request, int vocab_size, const RowsOfRequest& rows, const InventoryCheck& check,
               bool is_over = false);

// Returns how far the worker has come, for the stream of the request.
RestoredCopy CopyOf(const Revival& revival, int num_outputs);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_REVIVAL_H_
