// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_CONTIGUOUS_BLOCK_MANAGER_H_
#define QUIRE_BENCH_CONTIGUOUS_BLOCK_MANAGER_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/block_manager.h"

namespace quire {

// The number of slots that a contiguous sequence reserves when it enters, as in section 6.1 of the PagedAttention
// paper.
enum class Reservation {
  kMax,         // The model's context.
  kPowerOfTwo,  // The prompt and the output, rounded up to a power of two.
  kOracle,      // Exactly the number that it will need, as if the output's length were known.
};

// The slots for a request. The K and V of the last token are never stored.
int ReservedSlots(Reservation reservation, int prompt_tokens, int output_tokens, int max_context_tokens);

// The baseline: KV memory before paging. Every sequence has one contiguous run of slots for all tokens that it may ever
// have. Runs are found by first fit and are never shared. A block is one slot. A fork copies its parent's slots when it
// first allocates.
//
// Runs are reserved before the scheduler knows the request. Sequences take them in the order of Reserve, which must be
// the order in which the scheduler admits requests (FCFS). No sequence is ever preempted, because a running one has all
// its slots. There is no prefix cache and no host tier.
//
// REQUIRES: the worker is not lost while sequences run.
class ContiguousBlockManager : public BlockManager {
 public:
  explicit ContiguousBlockManager(int num_slots);

  // Reserves `num_sequences` runs of `num_slots` slots, one for each sequence that a request will have at the same
  // time. Returns false, and changes nothing, when there are not enough gaps of this size.
  bool Reserve(int num_slots, int num_sequences);

  int num_reserved() const { return num_slots_ - num_unreserved_; }  // The slots of all runs.
  int num_reserved(SequenceId sequence) const { return holdings_.at(sequence).run->size; }
  int largest_gap() const;

  const CacheGroups& groups() const override { return groups_; }
  int num_blocks() const override { return num_slots_; }
  // Counts slots without a token. A sequence with a run has room in it.
  int num_free_blocks() const override { return num_slots_ - num_stored_; }

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  absl::Span<const BlockId> Table(SequenceId sequence) const override;
  // Nothing is cached. The row of a fork still has its parent's slots in its table and must be told of the copies.
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;

 private:
  struct Run {
    int first;
    int size;
  };
  using RunRef = std::shared_ptr<const Run>;  // The run becomes a gap with the last reference.
  using Runs = std::deque<RunRef>;

  struct Holding {
    RunRef run;
    std::shared_ptr<Runs> spare;   // The request's runs for later forks.
    std::vector<BlockId> table;    // The slots of the run, beginning with the first.
    RunRef copied_from = nullptr;  // The run from which a new fork will copy its first tokens.
    int num_tokens_to_copy = 0;    // The number of tokens that it will copy.
    bool has_moved = false;        // The tokens were copied, and the row was not told yet.
  };
  struct CopyInFlight {
    StepId step;
    RunRef source;
  };

  RunRef Take(int size);
  void GiveBack(const Run& run);

  const int num_slots_;
  const CacheGroups groups_{/*block_size=*/1};
  std::map<int, int> gaps_;  // Sizes by first slot. No two gaps are adjacent.
  int num_unreserved_;
  int num_stored_ = 0;
  std::deque<std::shared_ptr<Runs>> reserved_;  // One per request; no sequence has begun there.
  absl::flat_hash_map<SequenceId, Holding> holdings_;
  std::deque<CopyInFlight> copies_;  // The copies are in the order of their steps.
  StepId step_{0};
};

}  // namespace quire

#endif  // QUIRE_BENCH_CONTIGUOUS_BLOCK_MANAGER_H_
