#ifndef QUIRE_SCHEDULER_BLOCK_MANAGER_H_
#define QUIRE_SCHEDULER_BLOCK_MANAGER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// Blocks that hold `num_tokens` tokens.
constexpr int NumBlocksFor(int num_tokens, int block_size) {
  return num_tokens / block_size + (num_tokens % block_size != 0);
}

// The first tokens of a sequence.
struct SequenceExtent {
  SequenceId sequence;
  int num_tokens;
};

// The computed part of a prompt that is in the prefix cache.
struct PrefixHit {
  int num_tokens = 0;        // In whole blocks, and in the part of one more that agrees.
  int num_block_tokens = 0;  // Of these, in whole blocks.
  // Free blocks that a sequence would take out of the count of free ones by sharing the whole blocks, and by sharing
  // all.
  int num_revived_blocks = 0;
  int num_revived_with_part = 0;
  bool is_promised = false;  // A running sequence is about to compute a block more than these.
};

// What continuous batching needs to know about the KV memory of one worker: how sequences hold blocks, not where the
// blocks live. Owned by the step-loop thread. Every allocation is all-or-nothing and none ever fails loudly:
// exhaustion is normal life.
//
// A block may change hands as soon as it is free, even within one plan: plans run strictly in order, so its old reader
// is done, and within a plan whatever leaves a block is copied before anything is stored. Only the two ends of a copy
// and the sources of a swap wait for the worker: they stay referenced until the step is committed.
class BlockManager {
 public:
  virtual ~BlockManager() = default;

  virtual int block_size() const = 0;       // Tokens per block.
  virtual int num_blocks() const = 0;       // Blocks of the pool, free and used.
  virtual int num_free_blocks() const = 0;  // Those that only the prefix cache holds included.

  // From here on copies and swaps belong to `step`. A step that is begun again was never sent: its copies are void.
  virtual void BeginStep(StepId step) = 0;

  // Makes room for the first `num_tokens` tokens of the sequence and makes the slots from `first_written` up writable:
  // a block in that range which has other owners is replaced by a fresh one, and where it holds tokens before
  // `first_written` the copy is appended to `copies`. An unknown sequence starts with an empty table. Returns false,
  // and has changed nothing, when blocks run out.
  virtual bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) = 0;

  // Blocks that Allocate with the same arguments would take from the free ones.
  virtual int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const = 0;

  // `child`, which must be new, shares the blocks of the first `num_tokens` tokens of `parent`, be they swapped out. A
  // parent without a table has none to share. The parent may yet have to store some of these tokens, for both.
  // REQUIRES: `parent` has them otherwise. The child allocates in a later step than the last copy into one of them.
  virtual void Fork(SequenceId parent, SequenceId child, int num_tokens) = 0;

  // Drops the table, be it in the pool or swapped out. A sequence without one is left alone.
  virtual void Free(SequenceId sequence) = 0;

  // Valid until the next non-const call. Empty for an unknown sequence and for one that is swapped out.
  virtual absl::Span<const BlockId> Table(SequenceId sequence) const = 0;

  // Called once per committed step, in order: blocks that were only kept alive for the copies of `step` may be reused.
  virtual void OnStepCommitted(StepId step) = 0;

  // The worker is lost, and with it the content of every block: no step in flight will be committed, tables of swapped
  // sequences and the prefix cache are gone, the next session counts from step 1 again.
  virtual void OnStepsAbandoned() = 0;

  // The prefix cache. Without one nothing is ever found.

  // How much of tokens[0, tokens.size() - 1) is cached: the last token has to be computed for its logits.
  virtual PrefixHit FindPrefix(const std::string& /*salt*/, absl::Span<const TokenId> /*tokens*/) const { return {}; }

  // `sequence`, which must be new, shares the cached blocks of the first `num_tokens` of `tokens` and promises to
  // compute the others. REQUIRES: `num_tokens` is 0, or num_tokens or num_block_tokens of what FindPrefix says.
  virtual void AdoptPrefix(SequenceId /*sequence*/, const std::string& /*salt*/, absl::Span<const TokenId> /*tokens*/,
                           int /*num_tokens*/) {}

  // The first `num_tokens` of `tokens` are computed by the plans made so far; their whole blocks may serve others, in
  // later plans. Blocks of the table which the cache has already are given up for those of the cache, up to the first
  // that a fork shares. Returns the index of the first table entry that has changed thereby. A sequence that has not
  // adopted a prefix is left alone.
  virtual std::optional<int> Publish(SequenceId /*sequence*/, absl::Span<const TokenId> /*tokens*/,
                                     int /*num_tokens*/) {
    return std::nullopt;
  }

  // The host tier. Without one nothing is ever swapped.

  // Moves what the sequences hold for these tokens to the host tier, each block once however many of them share it,
  // appends what the worker must copy, and frees the rest. Returns false, and has changed nothing, when there is
  // nothing to move or the host tier lacks room.
  virtual bool SwapOut(absl::Span<const SequenceExtent> /*sequences*/, std::vector<BlockSwap>* /*swap_outs*/) {
    return false;
  }

  // Blocks that SwapIn would take from the free ones.
  virtual int NumBlocksToSwapIn(absl::Span<const SequenceId> /*sequences*/) const { return 0; }

  // The way back. Returns false, and has changed nothing, when blocks run out.
  virtual bool SwapIn(absl::Span<const SequenceId> /*sequences*/, std::vector<BlockSwap>* /*swap_ins*/) {
    return false;
  }
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BLOCK_MANAGER_H_
