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

// A sequence takes a row: from here on the worker keeps its tokens, its block table and its sampling parameters there.
// Whatever the row held before is forgotten.
struct SequenceStart {
  RowId row;
  SequenceId sequence;
  uint32_t sample_index;        // Which sample of its request; part of the counter of every draw.
  int prompt_length;            // tokens[0 .. prompt_length) came from the caller, the rest was generated.
  std::vector<TokenId> tokens;  // All tokens known so far.
  SamplingParams sampling;

  bool operator==(const SequenceStart&) const = default;
};

// Work on tokens [first_position, first_position + num_tokens) of the sequence in `row`: their K and V are stored and
// attention runs over everything up to them. One token is a decode, many are a prefill chunk. Tokens are those the row
// holds, including the one that the step before sampled.
struct SequenceSlice {
  RowId row;
  int first_position;
  int num_tokens;
  int first_changed_block;          // The row's block table is the same as before below this index ...
  std::vector<BlockId> block_tail;  // ... and these are its entries from there on. Empty: nothing changed.
  bool sample;                      // Sample the token after the last of the slice and append it to the row.

  bool operator==(const SequenceSlice&) const = default;
};

// Everything that a worker must do in one step, in this order: starts, copies, slices. All copies are complete before
// any K or V of the step is stored. A plan is a value: equal inputs give equal plans.
struct StepPlan {
  StepId step{0};
  std::vector<SequenceStart> starts;
  std::vector<BlockCopy> copies;
  std::vector<SequenceSlice> slices;

  int num_tokens() const {
    int sum = 0;
    for (const SequenceSlice& slice : slices) sum += slice.num_tokens;
    return sum;
  }
  bool operator==(const StepPlan&) const = default;
};

struct TokenLogprob {
  TokenId token;
  float logprob;  // Natural log of the model's probability, before bias, penalties, temperature and truncation.

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
  ScoredToken token;  // When sampled.
  // Logprobs of the slice's tokens given those before them, when the request asks for prompt logprobs. Entry i belongs
  // to position first_position + i + 1; positions outside the prompt have none.
  std::vector<ScoredToken> prompt_logprobs;

  bool operator==(const SliceResult&) const = default;
};

struct StepResult {
  StepId step{0};
  std::vector<SliceResult> slices;  // In the order of StepPlan::slices.

  bool operator==(const StepResult&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_PLAN_H_
