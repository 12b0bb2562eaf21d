// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_SCHEDULER_BLOCK_MANAGER_H_
#define QUIRE_SCHEDULER_BLOCK_MANAGER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "scheduler/step_plan.h"

namespace quire {

// The first tokens of a sequence.
struct SequenceExtent {
  SequenceId sequence;
  int num_tokens;
};

// The part of a prompt that is computed and in the prefix cache.
struct PrefixHit {
  int num_tokens = 0;        // Cached tokens: all tokens of whole blocks, and the matching ones of one more block.
  int num_block_tokens = 0;  // Cached tokens that are in whole blocks.
  // Some cached blocks count as free. These are the numbers of them that are no longer free once a sequence shares the
  // whole blocks, and once it shares the partial block as well.
  int num_revived_blocks = 0;
  int num_revived_with_part = 0;
  bool is_promised = false;  // A running sequence is about to compute a block that continues the cached ones.
};

// The sheets of a sequence in a cache group, from `first` on.
struct SheetsView {
  int first = 0;
  absl::Span<const BlockId> blocks;  // Sheet after sheet.
};

// Continuous batching needs this of the KV memory of one worker: how sequences hold blocks, not where the blocks are.
// Owned by the step-loop thread. Every allocation succeeds completely or changes nothing. Running out of blocks is
// normal and is never an error.
//
// A block may be given to another sequence as soon as it is free, even within one plan. Plans run strictly in order, so
// the worker has finished reading the old content. Within a plan, everything that leaves a block is copied before
// anything is stored. Only the two ends of a copy and the sources of a swap must wait for the worker: they stay
// referenced until the step is committed.
class BlockManager {
 public:
  virtual ~BlockManager() = default;

  virtual const CacheGroups& groups() const = 0;  // Constant.
  int block_size() const { return groups().block_size(); }
  virtual int num_blocks() const = 0;       // All blocks of the pool.
  virtual int num_free_blocks() const = 0;  // Includes the blocks that only the prefix cache holds.

  // Copies and swaps belong to `step` from here on. A step that restarts was never sent, so its earlier copies and
  // swaps are void.
  virtual void BeginStep(StepId step) = 0;

  // Makes room for the first `num_tokens` tokens of the sequence and makes the slots from `first_written` on writable.
  // A block in that range that has other owners is replaced by a new one; if it holds tokens before `first_written`,
  // the copy is appended to `copies`. A sequence that is not known starts with an empty table. Returns false, and has
  // changed nothing, when too few blocks are free.
  //
  // In groups with a window, the sequence first gives back the sheets that no slice from `first_written` on may read.
  // Another slice of the same plan may get their blocks, because all slices that read them are in earlier plans. Then
  // the sequence gets sheets, from the first one that its next slice may read on and at most CacheGroups::MaxLiveSheets
  // of them, which is enough for that slice. REQUIRES: `first_written` does not decrease from call to call.
  virtual bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) = 0;

  // The number of free blocks that Allocate with the same arguments would take. It is negative if Allocate gives back
  // more than it takes.
  virtual int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const = 0;

  // `child` must be new. It shares the blocks of the first `num_tokens` tokens of `parent` in group 0, also when
  // `parent` is swapped out. A parent without a table has no blocks to share. The parent may store some of these tokens
  // later, for both sequences. REQUIRES: `parent` has blocks for all of these tokens; the child allocates in a later
  // step than that of the last copy into one of these blocks.
  virtual void Fork(SequenceId parent, SequenceId child, int num_tokens) = 0;

  // `child` was forked from `parent` and gets no slice before position `num_tokens`. It shares the sheets in groups
  // with windows that a slice there may read. REQUIRES: `parent` has computed these tokens, and has allocated nothing
  // for a slice that begins behind them.
  virtual void ShareSheets(SequenceId /*parent*/, SequenceId /*child*/, int /*num_tokens*/) {}

  // Drops the tables, whether they are in the pool or swapped out. Does nothing for a sequence without a table.
  virtual void Free(SequenceId sequence) = 0;

  // The blocks of the sequence in group 0. The result is empty for a sequence that is not known or swapped out. Valid
  // until the next non-const call.
  virtual absl::Span<const BlockId> Table(SequenceId sequence) const = 0;
  // The same for the sheets of a group behind group 0.
  virtual SheetsView Sheets(SequenceId /*sequence*/, int /*group*/) const { return {}; }

  // Called once per committed step, in order. Blocks that were kept alive only for the copies and swaps of `step` may
  // be reused from here on.
  virtual void OnStepCommitted(StepId step) = 0;

  // The worker is lost, and with it the content of every block. No step in flight will be committed. The tables of
  // swapped sequences and the prefix cache are gone. The next session counts from step 1 again.
  virtual void OnStepsAbandoned() = 0;

  // The prefix cache. The default implementations have no cache and find nothing.

  // Returns how many of tokens[0, tokens.size() - 1) are cached. The last token must be computed, because its logits
  // are needed.
  virtual PrefixHit FindPrefix(const std::string& /*salt*/, absl::Span<const TokenId> /*tokens*/) const { return {}; }

  // `sequence` must be new. It shares the cached blocks of the first `num_tokens` of `tokens` and promises to compute
  // the others. REQUIRES: `num_tokens` is 0, or num_tokens or num_block_tokens of what FindPrefix returns.
  virtual void AdoptPrefix(SequenceId /*sequence*/, const std::string& /*salt*/, absl::Span<const TokenId> /*tokens*/,
                           int /*num_tokens*/) {}

  // The plans made so far compute the first `num_tokens` of `tokens`, so later plans may share the whole blocks with
  // other sequences. Where the cache already has a block with the same tokens, the table entry is replaced by the block
  // of the cache. This ends at the first block that a fork shares. Returns the index of the first table entry that was
  // replaced, if any. Does nothing for a sequence that has not adopted a prefix.
  virtual std::optional<int> Publish(SequenceId /*sequence*/, absl::Span<const TokenId> /*tokens*/,
                                     int /*num_tokens*/) {
    return std::nullopt;
  }

  // A token was drawn from what the first `num_tokens` of the sequence hold. So the whole blocks of them are sound.
  virtual void Prove(SequenceId /*sequence*/, int /*num_tokens*/) {}

  // Something that `tokens` hold is of no use. The cache forgets their first block that nobody has proved to be sound,
  // and all that is cached behind it. Sequences that share these blocks keep them, and publish nothing any more.
  virtual void Uncache(const std::string& /*salt*/, absl::Span<const TokenId> /*tokens*/) {}

  // The host tier. The default implementations have no host tier and never swap.

  // Moves the blocks that the sequences hold for these tokens to the host tier. A block that several of them share is
  // moved once. Appends what the worker must copy to `swap_outs`, and frees all other blocks of the sequences. Returns
  // false, and has changed nothing, when there is no block to move or the host tier has too little room.
  virtual bool SwapOut(absl::Span<const SequenceExtent> /*sequences*/, std::vector<BlockSwap>* /*swap_outs*/) {
    return false;
  }

  // The number of free blocks that SwapIn would take.
  virtual int NumBlocksToSwapIn(absl::Span<const SequenceId> /*sequences*/) const { return 0; }

  // Moves the blocks of swapped sequences back to the pool. Returns false, and has changed nothing, when too few blocks
  // are free.
  virtual bool SwapIn(absl::Span<const SequenceId> /*sequences*/, std::vector<BlockSwap>* /*swap_ins*/) {
    return false;
  }
};

}  // namespace quire

#endif  // QUIRE_SCHEDULER_BLOCK_MANAGER_H_
