// SPDX-License-Identifier: Apache-2.0

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
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/block_audit.h"
#include "kv_manager/blocks/block_holders.h"
#include "kv_manager/blocks/block_pool.h"
#include "kv_manager/blocks/block_recount.h"
#include "kv_manager/blocks/block_table.h"
#include "kv_manager/blocks/copies_in_flight.h"
#include "kv_manager/blocks/prefix_index.h"
#include "kv_manager/blocks/prefix_pins.h"
#include "kv_manager/blocks/prefix_promises.h"
#include "kv_manager/blocks/prefix_tree.h"
#include "kv_manager/blocks/sheet_table.h"
#include "scheduler/block_manager.h"

namespace quire {

// free + evictable + used == total. Shared and pinned blocks are among the used ones.
struct BlockCounts {
  int total = 0;
  int free = 0;
  int evictable = 0;  // Blocks that only the prefix cache holds.
  int used = 0;
  int shared = 0;      // Blocks with more than one owner beside the cache.
  int host_total = 0;  // Blocks of the host tier.
  int host_used = 0;
  int pinned = 0;
  // These two are sums over the sequences that are not swapped out. A shared block counts once for every table that has
  // it. The tokens include the ones that a plan is storing. table_entries * block_size - live_tokens slots are empty.
  int64_t table_entries = 0;
  int64_t live_tokens = 0;
};

struct PagedBlockManagerOptions {
  int num_blocks = 0;
  int block_size = 1;                               // Tokens per block.
  std::vector<CacheGroup> groups = {CacheGroup{}};  // The first one keeps all tokens.
  int max_slice_tokens = 1;                         // Limit for one slice; it means nothing without windows.
  int num_host_blocks = 0;                          // Blocks of the host tier. 0: there is no host tier.
  bool has_prefix_cache = true;                     // It is off if there are several groups.
  int max_pinned_blocks = 0;
  PrefixIndex* index = nullptr;  // Is told which prefixes are cached. May be null. Outlives the block manager.
};

// What the blocks of a pool contain when another block manager has filled them. All of it was checked: tables and
// cached blocks have the tokens that they are said to have.
struct RestoredBlocks {
  struct Table {
    SequenceId sequence{0};
    std::vector<BlockId> blocks;      // They hold the first num_stored tokens.
    int num_stored = 0;               // The tokens whose K and V are in the blocks.
    std::vector<TokenId> tokens;      // All tokens of the sequence.
    std::optional<std::string> salt;  // If set, the whole blocks of the sequence belong into the prefix cache.
  };
  struct CachedBlock {
    BlockId block{0};
    std::optional<int> parent;    // The index of an earlier entry with the same salt.
    const std::string* salt;      // Borrowed.
    std::vector<TokenId> tokens;  // Tokens of a whole block.
  };

  std::vector<Table> tables;
  std::vector<CachedBlock> cached;  // No block twice. They may have blocks of tables.
};

// Paged KV memory with copy-on-write, a prefix cache and a host tier. Tables, copies in flight, the cache and its pins
// hold references to blocks, and a block returns to the pool with its last reference. A block with more than one owner
// is never written: the writer gets a copy of its partial last block, and the last owner that is left writes in place.
// There is one exception: a parent stores the tokens that its forks wait for (see Fork) in blocks that they share with
// it. Owned by the step-loop thread.
//
// A block enters the prefix cache as soon as a plan that fills it has been made. Plans run in order, so a sequence that
// finds the block there reads it in a later step. A block that only the cache holds counts as free, and is evicted when
// it is needed.
class PagedBlockManager : public BlockManager {
 public:
  explicit PagedBlockManager(const PagedBlockManagerOptions& options);
  PagedBlockManager(int num_blocks, int block_size)
      : PagedBlockManager({.num_blocks = num_blocks, .block_size = block_size}) {}

  const CacheGroups& groups() const override { return groups_; }
  int num_blocks() const override { return pool_.num_blocks(); }
  int num_free_blocks() const override { return pool_.num_free() + pool_.num_evictable(); }

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  int NumBlocksNeeded(SequenceId sequence, int first_written, int num_tokens) const override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void ShareSheets(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  absl::Span<const BlockId> Table(SequenceId sequence) const override;
  SheetsView Sheets(SequenceId sequence, int group) const override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;

  PrefixHit FindPrefix(const std::string& salt, absl::Span<const TokenId> tokens) const override;
  void AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                   int num_tokens) override;
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;
  void Prove(SequenceId sequence, int num_tokens) override;
  void Uncache(const std::string& salt, absl::Span<const TokenId> tokens) override;

  bool SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) override;
  int NumBlocksToSwapIn(absl::Span<const SequenceId> sequences) const override;
  bool SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) override;

  // Takes the blocks over. A cached block whose content the cache has already is free, unless a table uses it.
  // REQUIRES: no sequence has a table, and the prefix cache is empty.
  virtual void Restore(const RestoredBlocks& restored);

  // Pins protect cached prefixes from eviction. They give way to sequences: when no other block is left, the step loop
  // ends pins one by one.

  // Pins the cached whole blocks of `tokens` and returns how many tokens these are. See PrefixPins::Pin.
  absl::StatusOr<int> Pin(const std::string& salt, absl::Span<const TokenId> tokens, int64_t expires_us);
  // The same for a request of a tenant, whose pins hold at most this share of the blocks that pins may hold. See
  // PrefixPins::PinForTenant.
  virtual absl::StatusOr<int> PinForTenant(const std::string& tenant, double max_share, const std::string& salt,
                                           absl::Span<const TokenId> tokens, int64_t expires_us);
  // Returns false when no operator has pinned these tokens.
  bool Unpin(const std::string& salt, absl::Span<const TokenId> tokens) { return pins_.Unpin(salt, tokens); }
  virtual void ExpirePins(int64_t now_us) { pins_.Expire(now_us); }
  int64_t next_pin_expiry_us() const { return pins_.next_expiry_us(); }
  // See PrefixPins::EndOne.
  virtual bool EndOnePin() { return pins_.EndOne(); }
  void EndPins() { pins_.Clear(); }

  // Evicts up to `max_blocks` blocks from the prefix cache, in the usual order. Returns how many were evicted.
  int EvictCached(int max_blocks);
  int num_cached_blocks() const { return tree_.num_blocks(); }

  BlockCounts counts() const;
  int64_t num_evictions() const { return num_evictions_; }

  // Views for reports.

  // Replaces `states` by the BlockState of every block, one byte each, as a string of num_blocks() bytes. This takes
  // some microseconds for 100,000 blocks.
  void CopyStates(std::string* states) const;
  BlockHolders HoldersOf(BlockId block) const;
  int num_references(BlockId block) const { return pool_.ref_count(block); }
  // Returns whether sequences, copies and pins hold more than one reference to the block.
  bool IsHeldByMany(BlockId block) const { return pool_.num_owners(block) > 1; }
  // The blocks of the host tier that a swapped sequence holds. The result is empty for other sequences. Valid until the
  // next non-const call.
  absl::Span<const BlockId> HostTable(SequenceId sequence) const;

  // Recomputes every reference count from the tables, the copies and swaps in flight, the cache and the pins, and
  // returns all differences. O(blocks).
  BlockAudit Audit() const;
  // Audits, and returns the first contradiction or difference as an error.
  absl::Status CheckIntegrity() const { return Audit().ToStatus(); }
  // Audits, replaces the counts that differ by the recomputed ones, and returns the audit. A contradiction that is not
  // a count is not repaired.
  BlockAudit Repair();

 private:
  friend class BlockManagerPeer;  // Test code that plants wrong counts.

  // What one sequence holds.
  struct Holding {
    explicit Holding(int block_size) : table(block_size) {}

    BlockTable table;                // Blocks of the pool, or of the host tier when is_swapped.
    std::vector<SheetTable> sheets;  // The same of groups 1, 2, ...
    int num_tokens = 0;              // Tokens that the table holds, or that a plan is storing there.
    bool is_swapped = false;
    bool is_published = false;     // Its whole blocks enter the prefix cache as they are computed.
    std::string salt;              // Cache salt of a published sequence.
    int num_published_blocks = 0;  // Number of first entries of `table` that are blocks of the cache.
    // The step in which the sequence last used these blocks. It is given to the cache when the sequence frees them.
    StepId published_in{0};
    int num_lent_blocks = 0;  // Number of first entries of `table` in which this sequence stores what forks wait for.
  };
  struct SwapInFlight {
    StepId step;
    BlockRef host;  // The host block that the worker reads.
  };

  // The number of references to the block, without copies in flight. A copy keeps its blocks alive but does not forbid
  // writing, because the copies of a step come before its stores.
  int NumOwners(BlockId block) const { return pool_.ref_count(block) - copies_.CountOf(block); }
  bool IsShared(BlockId block) const { return NumOwners(block) > 1; }

  // Returns whether the sequence must not write to entry `index` of its table.
  bool IsProtected(const Holding& holding, int index) const {
    return index >= holding.num_lent_blocks && IsShared(holding.table.ids()[index]);
  }
  // The same for a sheet of a group behind group 0. Only forks share sheets, and only sheets that are computed.
  bool IsProtected(const SheetTable& table, int sheet) const { return IsShared(table.block(sheet, 0).id()); }
  Holding& HoldingOf(SequenceId sequence);
  Holding NewHolding() const;
  // Returns the sheets that the sequence has in `group` after Allocate with these arguments.
  struct SheetRange {
    int first;  // The first that the slice may read.
    int end;
  };
  SheetRange SheetsFor(int group, int first_written, int num_tokens) const;
  // The part of NumBlocksNeeded for one group behind group 0. The table is empty if there is none.
  int NumSheetBlocksNeeded(int group, const SheetTable& table, int first_written, int num_tokens) const;
  void AllocateSheets(int group, SheetTable* table, int first_written, int num_tokens, std::vector<BlockCopy>* copies);
  // Returns the sheets that a slice behind these tokens may read, with references of their own: a table for each group
  // behind group 0.
  std::vector<SheetTable> LiveSheets(const SequenceExtent& extent) const;
  // Moves a block from the pool to the host tier, or takes its place there if another sequence has moved it.
  BlockRef MoveOut(BlockId block, absl::flat_hash_map<BlockId, BlockRef>* moved, std::vector<BlockSwap>* swap_outs);
  BlockRef MoveIn(const BlockRef& host, absl::flat_hash_map<BlockId, BlockRef>* moved,
                  std::vector<BlockSwap>* swap_ins);
  // The table and num_tokens of a holding change only between Uncount and Count, which keep the sums of BlockCounts.
  void Uncount(const Holding& holding);
  void Count(const Holding& holding);
  // The sequence is about to give up its blocks: ends its promise and records the last use of its published blocks.
  void LeaveCache(SequenceId sequence, Holding* holding);
  // Tells the index of the blocks that have just left the tree.
  void TellEvicted();
  // Takes a free block, or evicts one. REQUIRES: num_free_blocks() > 0.
  BlockRef Take();
  bool EvictOne();
  // The block, with these tokens, has entered the cache behind `parent`.
  void TellIndex(absl::string_view salt, std::optional<BlockId> parent, BlockId block,
                 absl::Span<const TokenId> tokens);
  // Give the references to the blocks to a table, and to the cache.
  void RestoreTable(const RestoredBlocks::Table& restored, const absl::flat_hash_map<BlockId, BlockRef>& references);
  void RestoreCache(absl::Span<const RestoredBlocks::CachedBlock> cached,
                    const absl::flat_hash_map<BlockId, BlockRef>& references);
  // Puts a block of its own in the place of a shared one. `replace` does that, and returns the shared one. With
  // `keeps_tokens`, the content of the shared block is copied.
  template <typename Replace>
  void CopyOnWrite(const Replace& replace, bool keeps_tokens, std::vector<BlockCopy>* copies);
  // A recount of everything that this holds.
  BlockRecount Recount() const;

  const PagedBlockManagerOptions options_;
  const CacheGroups groups_;
  const bool has_prefix_cache_;
  BlockPool pool_;  // Declared before everything that holds references to its blocks.
  BlockPool host_pool_;
  PrefixTree tree_;
  PrefixPins pins_;
  PrefixPromises promises_;
  absl::flat_hash_map<SequenceId, Holding> holdings_;
  CopiesInFlight copies_;
  std::deque<SwapInFlight> swaps_;  // Swap-ins whose steps are not committed, oldest first.
  // Indexed by block id: the prefix that a cached block ends. It is empty without an index.
  std::vector<PrefixHash> hashes_;
  StepId step_{0};        // The step that began last.
  StepId cache_step_{0};  // The cache's clock: it counts steps and continues from session to session.
  int64_t num_evictions_ = 0;
  int64_t num_table_entries_ = 0;  // See BlockCounts.
  int64_t num_live_tokens_ = 0;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_BLOCKS_PAGED_BLOCK_MANAGER_H_
