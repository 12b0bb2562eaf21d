#ifndef QUIRE_SCHEDULER_STEP_PLAN_H_
#define QUIRE_SCHEDULER_STEP_PLAN_H_

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "scheduler/sampling_params.h"

namespace quire {

// Copy-on-write: the whole of block `source`, all layers, K and V, to block `destination`.
struct BlockCopy {
  BlockId source;
  BlockId destination;

  bool operator==(const BlockCopy&) const = default;
};

// A block's whole content moves between the worker's pool and its host tier.
struct BlockSwap {
  BlockId device;  // Of the pool.
  BlockId host;    // Of the host tier.

  bool operator==(const BlockSwap&) const = default;
};

// A sequence takes a row: from here on the worker keeps its tokens, its block table and its sampling parameters there.
// Whatever the row held before is forgotten.
struct SequenceStart {
  RowId row;
  SequenceId sequence;
  uint32_t sample_index;        // Which sample of its request; added to the seed.
  int prompt_length;            // tokens[0 .. prompt_length) came from the caller, the rest was generated.
  std::vector<TokenId> tokens;  // All tokens known so far.
  SamplingParams sampling;

  bool operator==(const SequenceStart&) const = default;
};

// A sequence takes a row that becomes what the row of its `parent` is before the step: tokens, block table, sampling
// state. Only the sample index differs.
struct SequenceFork {
  RowId row;
  RowId parent;
  SequenceId sequence;
  uint32_t sample_index;

  bool operator==(const SequenceFork&) const = default;
};

// The next token of a row that does not draw its tokens: a beam's, which the scheduler picks among the candidates.
struct TokenAppend {
  RowId row;
  TokenId token;

  bool operator==(const TokenAppend&) const = default;
};

// Work on tokens [first_position, first_position + num_tokens) of the sequence in `row`: their K and V are stored and
// attention runs over everything up to them. One token is a decode, many are a prefill chunk. Tokens are those the row
// holds, including the one that the step before sampled.
//
// A slice of no tokens belongs to a row that is forked in this plan. It stores nothing and draws the row's next token
// from the logits of its parent's slice, which ends at first_position: so a prompt is computed once for many samples.
struct SequenceSlice {
  RowId row;
  int first_position;
  int num_tokens;
  int first_changed_block;          // The row's block table is the same as before below this index ...
  std::vector<BlockId> block_tail;  // ... and these are its entries from there on. Empty: nothing changed.
  // Sample the token after the last of the slice and append it to the row; of a row with num_candidates, report the
  // candidates for it and append nothing.
  bool sample;

  bool operator==(const SequenceSlice&) const = default;
};

// Everything that a worker must do in one step, in this order. All swaps and copies are complete before any K or V of
// the step is stored. A plan is a value: equal inputs give equal plans.
struct StepPlan {
  StepId step{0};
  std::vector<BlockSwap> swap_outs;  // Pool to host tier.
  std::vector<BlockSwap> swap_ins;   // Host tier to pool.
  std::vector<BlockCopy> copies;     // No block is both a source and a destination.
  std::vector<SequenceStart> starts;
  std::vector<SequenceFork> forks;  // In order; no parent's row is taken over by an earlier fork.
  std::vector<TokenAppend> appends;
  std::vector<SequenceSlice> slices;
  bool wants_tables = false;  // The result has the block tables of the slices' rows.

  int num_tokens() const {
    int sum = 0;
    for (const SequenceSlice& slice : slices) sum += slice.num_tokens;
    return sum;
  }
  // Nothing to do: such a plan is not sent.
  bool empty() const { return slices.empty() && swap_outs.empty(); }
  bool operator==(const StepPlan&) const = default;
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // Natural log of the model's probability, before bias, penalties, temperature and truncation; of a
                  // candidate after bias, penalties and masks.

  bool operator==(const TokenLogprob&) const = default;
};

// A token with its own logprob and the most likely alternatives.
struct ScoredToken {
  TokenId token = 0;
  float logprob = 0;              // 0 when the request asks for no logprobs.
  int rank = 0;                   // 1 for the most likely token of the vocabulary; 0 when no logprobs are asked for.
  std::vector<TokenLogprob> top;  // Most likely first; as many as the request asks for.

  bool operator==(const ScoredToken&) const = default;
};

// What one slice produced.
struct SliceResult {
  bool sampled = false;
  ScoredToken token;  // When sampled, unless the row has num_candidates.
  // Of a row with num_candidates, when sampled: as many tokens, best first, with what they add to the score of a beam:
  // logprobs after bias, penalties and masks. Fewer where masks leave no more.
  std::vector<TokenLogprob> candidates;
  // Logprobs of the slice's tokens given those before them, when the request asks for prompt logprobs. Entry i belongs
  // to position first_position + i + 1; positions outside the prompt have none.
  std::vector<ScoredToken> prompt_logprobs;

  bool operator==(const SliceResult&) const = default;
};

// What a row of the worker holds, with all that a plan changes.
struct RowTable {
  SequenceId sequence;
  int num_computed;  // Tokens whose K and V are stored by the end of the step.
  std::vector<BlockId> blocks;

  bool operator==(const RowTable&) const = default;
};

struct StepResult {
  StepId step{0};
  std::vector<SliceResult> slices;    // In the order of StepPlan::slices.
  std::vector<RowTable> tables = {};  // Likewise, when the plan wants them.

  bool operator==(const StepResult&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_PLAN_H_
