// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_RESTORED_REQUEST_H_
#define QUIRE_SCHEDULER_RESTORED_REQUEST_H_

#include <optional>
#include <vector>

#include "base/ids.h"
#include "scheduler/beam_search_state.h"
#include "scheduler/numerics_change.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace quire {

// A request that another scheduler has started, in an earlier session of the same worker. It is put together from what
// the worker still has of it.
struct RestoredRequest {
  // A sample that has not ended. It is in a row of the worker, and the block manager has its table.
  struct Sample {
    SequenceId sequence{0};
    int sample_index = 0;
    RowId row{0};
    std::vector<TokenId> tokens;           // The prompt and all generated tokens.
    int num_stored = 0;                    // The tokens whose K and V are in the blocks. Fewer than there are tokens.
    int num_computed = 0;                  // The tokens that the earlier scheduler has computed.
    std::vector<ScoredToken> scores = {};  // All generated tokens have one, if the request wants logprobs of them.
    std::optional<NumericsChange> numerics_change = std::nullopt;  // No later than the end of the tokens.
  };

  Request request;
  int num_cached_tokens = 0;  // Tokens of the prompt that were in the prefix cache when the request first ran.
  int num_moves = 0;          // See SequenceStart.
  // Either one sequence that has generated nothing, or all samples that have not ended, or all live beams in the order
  // of the search; or none: then the request restarts.
  std::vector<Sample> samples;
  // The search of these beams has become this. Nothing for samples, and before the first step of the search.
  std::optional<BeamSearchState> search = std::nullopt;
  // Prompt logprobs from position 1 on, for all stored tokens; empty if the request did not ask for them.
  std::vector<ScoredToken> prompt_scores = {};
  std::vector<RowId> ended_rows;  // The rows of the samples that have ended.
  // Only if there are no samples: the tokens that the earlier scheduler has computed, for the statistics.
  int num_computed = 0;
  // Only if there are no samples: the request had other numerics than its worker has, and no token of them.
  bool has_changed_numerics = false;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_RESTORED_REQUEST_H_
