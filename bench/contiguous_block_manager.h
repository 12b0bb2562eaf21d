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

// How much a contiguous sequence sets aside when it enters, as in section 6.1 of the PagedAttention paper.
enum class Reservation {
  kMax,         // The model's context.
  kPowerOfTwo,  // The prompt, and the output rounded up to a power of two.
  kOracle,      // What it will need: the output's length is known.
};

// Slots for a request; the K and V of the last token are never stored.
int ReservedSlots(Reservation reservation, int prompt_tokens, int output_tokens, int max_context_tokens);

// KV memory before paging, as a baseline: every sequence has one run of slots for all tokens it may ever have, taken
// first fit, and no two share one. A block is one slot. A fork copies what its parent has when it first allocates.
//
// Runs are reserved before the scheduler knows of the request: the sequences that begin take them in the order of
// Reserve, which must be the order in which the scheduler admits requests (FCFS). Nobody is ever preempted, because
// what runs has all it needs. There is neither a prefix cache nor a host tier.
//
// REQUIRES: the worker is not lost while sequences run.
class ContiguousBlockManager : public BlockManager {
 public:
  explicit ContiguousBlockManager(int num_slots);

  // Sets aside runs of `num_slots` slots, one for each of the `num_sequences` sequences that a request will have at the
  // same time. Returns false, and has changed nothing, when there are not so many gaps of this size.
  bool Reserve(int num_slots, int num_sequences);

  int num_reserved() const { return num_slots_ - num_unreserved_; }  // Slots of all runs.
  int num_reserved(SequenceId sequence) const { return holdings_.at(sequence).run->size; }
  int largest_gap() const;

  int block_size() const override { return 1; }
  int num_blocks() const override { return num_slots_; }
  // Slots without a token: whoever has a run finds room in it.
  int num_free_blocks() const override { return num_slots_ - num_stored_; }

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  absl::Span<const BlockId> Table(SequenceId sequence) const override;
  // Nothing is cached. But the row of a fork still has its parent's slots in its table, and must hear of the copies.
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;

 private:
  struct Run {
    int first;
    int size;
  };
  using RunRef = std::shared_ptr<const Run>;  // The last one gone, the run is a gap again.
  using Runs = std::deque<RunRef>;

  struct Holding {
    RunRef run;
    std::shared_ptr<Runs> spare;   // Of its request: for the forks to come.
    std::vector<BlockId> table;    // Slots of the run, from its first on.
    RunRef copied_from = nullptr;  // Of a fork that has not allocated yet: what its first tokens ...
    int num_tokens_to_copy = 0;    // ... are copied from.
    bool has_moved = false;        // They were copied, and its row does not know.
  };
  struct CopyInFlight {
    StepId step;
    RunRef source;
  };

  RunRef Take(int size);
  void GiveBack(const Run& run);

  const int num_slots_;
  std::map<int, int> gaps_;  // By first slot, their sizes. No two adjoin.
  int num_unreserved_;
  int num_stored_ = 0;
  std::deque<std::shared_ptr<Runs>> reserved_;  // By request; no sequence has begun there.
  absl::flat_hash_map<SequenceId, Holding> holdings_;
  std::deque<CopyInFlight> copies_;  // By step.
  StepId step_{0};
};

}  // namespace quire

#endif  // QUIRE_BENCH_CONTIGUOUS_BLOCK_MANAGER_H_
