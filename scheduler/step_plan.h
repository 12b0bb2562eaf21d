// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_STEP_PLAN_H_
#define QUIRE_SCHEDULER_STEP_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "scheduler/numerics_change.h"
#include "scheduler/sampling_params.h"

namespace quire {

// Copy-on-write: the worker copies the whole of block `source`, K and V of all layers, to block `destination`.
struct BlockCopy {
  BlockId source;
  BlockId destination;

  bool operator==(const BlockCopy&) const = default;
};

// The whole content of a block moves between the worker's pool and its host tier.
struct BlockSwap {
  BlockId device;  // A block of the pool.
  BlockId host;    // A block of the host tier.

  bool operator==(const BlockSwap&) const = default;
};

// The prefix cache that the blocks of a sequence belong to: that of a salt, or none.
struct CacheRoot {
  bool is_private;  // No other request uses the blocks.
  std::string salt;

  bool operator==(const CacheRoot&) const = default;
};

struct TokenLogprob {
  TokenId token;
  // The natural logarithm of the probability that the model gives, before bias, penalties, temperature and truncation.
  // For a candidate it is the value after bias, penalties and masks.
  float logprob;

  bool operator==(const TokenLogprob&) const = default;
};

// A token with its own logprob and with the most likely alternatives.
struct ScoredToken {
  TokenId token = 0;
  float logprob = 0;  // 0 when the request asks for no logprobs.
  int rank = 0;       // 1 for the most likely token of the vocabulary. 0 when the request asks for no logprobs.
  std::vector<TokenLogprob> top;  // The most likely tokens, the most likely first; the request sets their number.

  bool operator==(const ScoredToken&) const = default;
};

// A sequence takes a row. From here on the worker keeps the tokens, the block table and the sampling parameters of the
// sequence there. The previous content of the row is forgotten.
struct SequenceStart {
  RowId row;
  SequenceId sequence;
  uint32_t sample_index;        // The number of the sample in its request. It is added to the seed.
  int prompt_length;            // tokens[0 .. prompt_length) came from the caller. The rest was generated.
  std::vector<TokenId> tokens;  // All tokens that are known so far.
  SamplingParams sampling;
  std::string guide_owner = "";  // Salt of a request with a guide; requests of one salt share kept guides.
  // The following are set when the worker keeps its rows after the end of a session, see SchedulerOptions::keeps_rows.
  std::optional<CacheRoot> cache_root = std::nullopt;
  std::shared_ptr<const std::string> record = nullptr;  // See Request.
  int num_cached_tokens = 0;                            // The tokens of the prompt that the request found cached.
  std::string search = "";  // EncodeBeamSearchState of the search whose best beam this is. Otherwise empty.
  int num_moves = 0;        // Number of times that the request left a scheduler or came from an earlier manager.
  // The scores of all tokens behind the prompt, and of the tokens of the prompt from position 1 on, if the request
  // wants them and they are known. The worker keeps them for the next manager.
  std::vector<ScoredToken> scores = {};
  std::vector<ScoredToken> prompt_scores = {};
  // Set when the numerics of the sequence have changed. The worker keeps it with the record for the next manager.
  std::optional<NumericsChange> numerics_change = std::nullopt;

  bool operator==(const SequenceStart&) const = default;
};

// The row of the best beam of a search gets a new record, because the search has made a step.
struct RecordChange {
  RowId row;
  std::shared_ptr<const std::string> record;                     // See Request.
  int num_cached_tokens;                                         // See SequenceStart.
  std::string search;                                            // See SequenceStart.
  int num_moves = 0;                                             // See SequenceStart.
  std::optional<NumericsChange> numerics_change = std::nullopt;  // See SequenceStart.

  bool operator==(const RecordChange&) const = default;
};

// A sequence takes a row that becomes a copy of the row `parent` as it is before the step: tokens, block table and
// sampling state. Only the sample index differs.
struct SequenceFork {
  RowId row;
  RowId parent;
  SequenceId sequence;
  uint32_t sample_index;

  bool operator==(const SequenceFork&) const = default;
};

// The next token of a row that does not draw its tokens. Such a row runs a beam, whose tokens the scheduler picks among
// the candidates.
struct TokenAppend {
  RowId row;
  TokenId token;

  bool operator==(const TokenAppend&) const = default;
};

// The worker computes tokens [first_position, first_position + num_tokens) of the sequence in `row`: it stores their K
// and V, and attention covers everything up to them. One token is a decode, many are a prefill chunk. The row holds
// the tokens, including the one that the previous step has sampled.
//
// A slice of no tokens stores nothing. If the row is forked in this plan, it draws the next token of the row from the
// logits of the slice of the parent, which ends at first_position. In this way a prompt is computed once for many
// samples. In another row it repeats a draw that the worker has postponed. The row has first_position tokens, and all
// of them are computed.
struct SequenceSlice {
  RowId row;
  int first_position;
  int num_tokens;
  int first_changed_block;          // Below this index the row's block table is the same as before ...
  std::vector<BlockId> block_tail;  // ... and these are its entries from there on. When empty, nothing has changed.
  // Sample the token after the last one of the slice and append it to the row. For a row with num_candidates, report
  // the candidates for it instead and append nothing. For a row with a pooling, give the embedding and append nothing.
  bool sample;

  bool operator==(const SequenceSlice&) const = default;
};

// The sheets of a slice's row in a cache group behind group 0 become these, from first_sheet on. The sheets before them
// stay as they are.
struct SheetChange {
  int slice;  // Index into StepPlan::slices.
  int group;
  int first_sheet;
  int num_sheets;
  std::vector<BlockId> blocks;  // Sheet after sheet.

  bool operator==(const SheetChange&) const = default;
};

// Everything that a worker must do in one step, in this order. All swaps and copies are complete before any K or V of
// the step is stored. A plan is a value: equal inputs give equal plans.
struct StepPlan {
  StepId step{0};
  std::vector<BlockSwap> swap_outs;  // From the pool to the host tier.
  std::vector<BlockSwap> swap_ins;   // From the host tier to the pool.
  std::vector<BlockCopy> copies;     // No block is both a source and a destination.
  std::vector<RowId> end_rows;       // Rows whose sequences no other manager may find. They end before the starts.
  std::vector<SequenceStart> starts;
  std::vector<SequenceFork> forks;  // Made in this order. No fork takes over a row that is the parent of a later one.
  std::vector<TokenAppend> appends;
  std::vector<RecordChange> records;
  std::vector<SequenceSlice> slices;
  std::vector<SheetChange> sheet_changes;  // In the order of slices, and of groups within a slice.
  bool wants_tables = false;               // The result must have the tables of the rows of the slices.

  int num_tokens() const {
    int sum = 0;
    for (const SequenceSlice& slice : slices) sum += slice.num_tokens;
    return sum;
  }
  // Returns whether there is nothing to do. An empty plan is not sent.
  bool empty() const { return slices.empty() && swap_outs.empty() && end_rows.empty(); }
  bool operator==(const StepPlan&) const = default;
};

// Why the worker has ended a sequence.
struct SequenceFailure {
  enum class Reason {
    kUnknown,            // The message tells it.
    kLogitsNotFinite,    // The model gives no finite numbers for the sequence.
    kGuideTooExpensive,  // To find the tokens that its guide allows takes too long.
  };

  SequenceId sequence{0};
  Reason reason = Reason::kUnknown;
  std::string message;

  // Returns whether what the sequence has stored is of no use. The failure of a guide says nothing about it.
  bool spoils_blocks() const { return reason != Reason::kGuideTooExpensive; }

  bool operator==(const SequenceFailure&) const = default;
};

// The result of one slice.
struct SliceResult {
  bool sampled = false;
  ScoredToken token;  // Set when `sampled`, unless the row has num_candidates or a pooling.
  // Set when `sampled` and the row has num_candidates: its tokens, the best first; fewer when masks leave no more.
  // Their logprobs, after bias, penalties and masks, are what they add to the score of a beam.
  std::vector<TokenLogprob> candidates;
  // Set when the request asks for prompt logprobs: the logprobs of the tokens of the slice, each given the tokens
  // before it. Entry i belongs to position first_position + i + 1. Positions outside the prompt have no entry.
  std::vector<ScoredToken> prompt_logprobs;
  // Set when the sequence of the slice cannot continue. Nothing else is set then.
  std::optional<SequenceFailure> failure = std::nullopt;
  // The slice was to sample, and the worker has put that off. If the slice counts on a token whose draw was put off, it
  // has computed nothing.
  bool is_postponed = false;
  // Set when `sampled` and the row has a pooling. Finite numbers. [embedding_size]
  std::vector<float> embedding = {};

  bool operator==(const SliceResult&) const = default;
};

// What a row of the worker holds once all changes of the plan are made.
struct RowTable {
  // The sheets of a cache group behind group 0 that the slice may read or write.
  struct Sheets {
    int first_sheet;
    std::vector<BlockId> blocks;  // Sheet after sheet.

    bool operator==(const Sheets&) const = default;
  };

  SequenceId sequence;
  int num_computed;  // Tokens whose K and V are stored by the end of the step.
  std::vector<BlockId> blocks;
  std::vector<Sheets> groups = {};  // From group 1 on.

  bool operator==(const RowTable&) const = default;
};

struct StepResult {
  StepId step{0};
  std::vector<SliceResult> slices;    // In the order of StepPlan::slices.
  std::vector<RowTable> tables = {};  // In the same order. Empty unless the plan has wants_tables.
  // Hash of the slices and tables, which is the same on all ranks of a group. 0: the worker is no rank of a group.
  uint64_t digest = 0;

  bool operator==(const StepResult&) const = default;
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_STEP_PLAN_H_
