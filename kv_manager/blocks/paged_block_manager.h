#ifndef QUIRE_KV_MANAGER_BLOCKS_PAGED_BLOCK_MANAGER_H_
#define QUIRE_KV_MANAGER_BLOCKS_PAGED_BLOCK_MANAGER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_audit.h"
#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/block_state.h"
#include "kv_manager/blocks/block_table.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/blocks/prefix_pins.h"
#include "kv_manager/blocks/prefix_promises.h"
#include "kv_manager/blocks/prefix_tree.h"
#include "scheduler/block_manager.h"

namespace quire {

// free + evictable + used == total; shared and pinned ones are among the used.
struct BlockCounts {
  int total = 0;
  int free = 0;
  int evictable = 0;
  int used = 0;
  int shared = 0;
  int host_total = 0;  // Of the host tier.
  int host_used = 0;
  int pinned = 0;
  // Of sequences that are not swapped: entries of their tables, a shared block once for each that holds it; and tokens
  // that those hold or that a plan is storing there. table_entries * block_size - live_tokens slots are empty.
  int64_t table_entries = 0;
  int64_t live_tokens = 0;
};

// Who holds one block of the pool, but for the sequences by name.
struct BlockHolders {
  BlockState state = BlockState::kFree;
  int num_references = 0;
  int num_pins = 0;
  int num_copies = 0;
  bool is_cached = false;
  // Of a cached block:
  int depth = 0;           // 1 for the first of a prefix.
  PrefixHash prefix = 0;   // That it ends; 0 without an index.
  uint64_t age_steps = 0;  // Since it, or one below it, was last used.
};

struct PagedBlockManagerOptions {
  int num_blocks = 0;
  int block_size = 1;       // Tokens per block.
  int num_host_blocks = 0;  // Of the host tier.
  bool has_prefix_cache = true;
  int max_pinned_blocks = 0;
  PrefixIndex* index = nullptr;  // Told what is cached; null: nobody is. Outlives the block manager.
};

// Paged KV memory with copy-on-write, a prefix cache and a host tier. Tables, copies in flight, the cache and its pins
// hold the references; a block returns to the pool when the last one goes. A block with more than one owner is never
// written: the writer gets a copy of its partial last block, and the last owner left writes in place. One exception:
// what forks wait for (see Fork), their parent stores in blocks that they hold already. Owned by the step-loop thread.
//
// The prefix cache gets a block as soon as a plan that fills it has been made: plans run in order, so whoever finds it
// there reads it in a later step. What nobody but the cache holds counts as free and is evicted when it is needed.
class PagedBlockManager : public BlockManager {
 public:
  explicit PagedBlockManager(const PagedBlockManagerOptions& options);
  PagedBlockManager(int num_blocks, int block_size)
      : PagedBlockManager({.num_blocks = num_blocks, .block_size = block_size}) {}

  int block_size() const override { return options_.block_size; }
  int num_blocks() const override { return pool_.num_blocks(); }
  int num_free_blocks() const override { return pool_.num_free() + pool_.num_evictable(); }

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  absl::Span<const BlockId> Table(SequenceId sequence) const override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;

  PrefixHit FindPrefix(const std::string& salt, absl::Span<const TokenId> tokens) const override;
  void AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                   int num_tokens) override;
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;

  bool SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) override;
  int NumBlocksToSwapIn(absl::Span<const SequenceId> sequences) const override;
  bool SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) override;

  // Pins keep what is cached from eviction. They give way to sequences: whoever finds that nothing else is left ends
  // them.

  // Pins the cached whole blocks of `tokens` and returns how many tokens these are. See PrefixPins::Pin.
  absl::StatusOr<int> Pin(const std::string& salt, absl::Span<const TokenId> tokens, int64_t expires_us);
  // False when these tokens are not pinned.
  bool Unpin(const std::string& salt, absl::Span<const TokenId> tokens) { return pins_.Unpin(salt, tokens); }
  void ExpirePins(int64_t now_us) { pins_.Expire(now_us); }
  int64_t next_pin_expiry_us() const { return pins_.next_expiry_us(); }
  // Ends the pin that expires first. False when there is none.
  bool EndOnePin() { return pins_.EndOne(); }

  // Frees up to `max_blocks` of those that only the cache holds, as eviction would. Returns how many.
  int EvictCached(int max_blocks);
  void EndPins() { pins_.Clear(); }
  int num_cached_blocks() const { return tree_.num_blocks(); }

  BlockCounts counts() const;
  int64_t num_evictions() const { return num_evictions_; }

  // For those who look on:

  // The BlockState of every block as one byte. Some microseconds for 100,000 blocks. [num_blocks()]
  void CopyStates(std::string* states) const;
  BlockHolders HoldersOf(BlockId block) const;
  int num_references(BlockId block) const { return pool_.ref_count(block); }
  // More than one sequence, copy or pin holds it.
  bool IsHeldByMany(BlockId block) const { return pool_.num_owners(block) > 1; }
  // As Table, of a sequence that is swapped out: blocks of the host tier.
  absl::Span<const BlockId> HostTable(SequenceId sequence) const;

  // Recomputes every reference count from the tables, the copies in flight, the cache and the pins. O(blocks); the
  // error names the first block that contradicts.
  absl::Status CheckIntegrity() const;
  // The same, and names them all.
  BlockAudit Audit() const;
  // Takes for true what was recomputed where counts differ. Returns what it has found before. What contradicts itself
  // in another way is left as it is; Audit tells.
  BlockAudit Repair();

 private:
  friend class BlockManagerPeer;  // Of tests, which plant mistakes.

  // What one sequence holds.
  struct Holding {
    explicit Holding(int block_size) : table(block_size) {}

    BlockTable table;    // Of the pool, or of the host tier.
    int num_tokens = 0;  // That the table holds, or a plan is storing there.
    bool is_swapped = false;
    bool is_published = false;     // To be, as it is computed.
    std::string salt;              // If so.
    int num_published_blocks = 0;  // The first of `table`, which are the cache's own.
    StepId published_in{0};        // When these were last used, for the cache, until they are given up.
    int num_lent_blocks = 0;       // The first of `table`: forks wait for what this sequence stores there.
  };
  struct CopyInFlight {
    StepId step;
    BlockRef source;
    BlockRef destination;
  };
  struct SwapInFlight {
    StepId step;
    BlockRef host;  // Being read.
  };

  // What those who hold blocks say, by block.
  struct Recount {
    std::vector<int> references;       // To blocks of the pool.
    std::vector<int> copies;           // Of these, by copies in flight.
    std::vector<int> host_references;  // To blocks of the host tier.
  };
  Recount CountAll() const;
  void CompareCounts(const Recount& recount, BlockAudit* audit) const;
  absl::Status CheckTables() const;  // Against num_table_entries_ and num_live_tokens_.

  // Tables, pins and the cache are owners. What a copy in flight holds keeps a block alive but does not forbid writing,
  // because the copies of a step come before its stores.
  int NumOwners(BlockId block) const { return pool_.ref_count(block) - num_copies_[Value(block)]; }
  bool IsShared(BlockId block) const { return NumOwners(block) > 1; }
  // Null unless a copy of the step in the making fills the block.
  const CopyInFlight* FindFilling(BlockId block) const;

  // Whether the sequence must not write to entry `index` of its table.
  bool IsProtected(const Holding& holding, int index) const {
    return index >= holding.num_lent_blocks && IsShared(holding.table.ids()[index]);
  }
  Holding& HoldingOf(SequenceId sequence);
  // Between these two, what the holding adds to the counts may change.
  void Uncount(const Holding& holding);
  void Count(const Holding& holding);
  void LeaveCache(SequenceId sequence, Holding* holding);
  BlockRef Take();
  bool EvictOne();
  void TellIndex(const Holding& holding, int block_index, absl::Span<const TokenId> tokens);
  // Gives entry `index` of the table a block of its own.
  void CopyOnWrite(BlockTable* table, int index, bool keeps_tokens, std::vector<BlockCopy>* copies);
  void CountCopy(const CopyInFlight& copy, int change);

  const PagedBlockManagerOptions options_;
  BlockPool pool_;  // Before everything that holds references.
  BlockPool host_pool_;
  PrefixTree tree_;
  PrefixPins pins_;
  PrefixPromises promises_;
  absl::flat_hash_map<SequenceId, Holding> holdings_;
  std::deque<CopyInFlight> copies_;  // By step.
  std::deque<SwapInFlight> swaps_;   // By step.
  std::vector<int> num_copies_;      // By block id: how often it is an end of a copy in flight.
  std::vector<PrefixHash> hashes_;   // By block id: of the prefix that a cached block ends, as the index knows it.
  StepId step_{0};                   // Begun last.
  StepId cache_step_{0};             // Counts on over sessions: the cache's clock.
  int64_t num_evictions_ = 0;
  int64_t num_table_entries_ = 0;  // See BlockCounts.
  int64_t num_live_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PAGED_BLOCK_MANAGER_H_
