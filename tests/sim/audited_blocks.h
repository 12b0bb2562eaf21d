// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_
#define QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/block_manager.h"

namespace quire {

// A PagedBlockManager whose calls are audited. The auditor has its own record of the table of every sequence, the
// owners of every block, the copies in flight, and the order of cached blocks. Each call must change the tables and the
// counts exactly as scheduler/block_manager.h says.
class AuditedBlocks : public PagedBlockManager {
 public:
  // Is called at the scheduler's steps before any block has changed, and after a loss.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnBeginStep() = 0;
    virtual void OnStepCommitted() = 0;
    virtual void OnStepsAbandoned() = 0;
    // A request has asked for a pin, and this number of tokens is pinned.
    virtual void OnPin(const std::string& tenant, double max_share, const std::string& salt,
                       absl::Span<const TokenId> tokens, int64_t expires_us, int num_tokens) = 0;
    // The blocks of an earlier manager were taken over.
    virtual void OnRestored(const RestoredBlocks& restored) = 0;
  };

  // `observer` is borrowed.
  AuditedBlocks(const PagedBlockManagerOptions& options, Observer* observer);

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void ShareSheets(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;
  void AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                   int num_tokens) override;
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;
  void Prove(SequenceId sequence, int num_tokens) override;
  void Uncache(const std::string& salt, absl::Span<const TokenId> tokens) override;
  bool SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) override;
  bool SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) override;
  void Restore(const RestoredBlocks& restored) override;
  absl::StatusOr<int> PinForTenant(const std::string& tenant, double max_share, const std::string& salt,
                                   absl::Span<const TokenId> tokens, int64_t expires_us) override;
  void ExpirePins(int64_t now_us) override;
  bool EndOnePin() override;

  // A cached prefix that no cached block follows. All cached blocks are in one of these or in several.
  struct CachedPrefix {
    std::string salt;
    std::vector<BlockId> blocks;
    std::vector<TokenId> tokens;
  };
  std::vector<CachedPrefix> CachedPrefixes() const;

  // The first contradiction.
  const absl::Status& status() const { return status_; }

  // Compares the counts of the manager with this record, and lets the manager recount. O(blocks).
  absl::Status CheckAll() const;

  // Whether the sequence has blocks in the pool.
  bool HoldsBlocks(SequenceId sequence) const;
  // Increases whenever the block is allocated. A table entry of an older generation names a block that was freed.
  uint32_t generation(BlockId block) const { return states_[Value(block)].generation; }
  // Sequences whose blocks were freed or swapped out since the last call.
  std::vector<SequenceId> TakeReleased() { return std::exchange(released_, {}); }
  int64_t num_copies() const { return num_copies_; }
  int64_t num_adopted_tokens() const { return num_adopted_tokens_; }  // Tokens that sequences took from the cache.
  int64_t first_pin_expiry_us() const;                                // INT64_MAX without a pin.

 private:
  // The live sheets of a cache group with a window, by index.
  using Sheets = std::map<int, std::vector<BlockId>>;
  struct Account {
    std::vector<BlockId> table;  // Blocks of the pool, or of the host tier if it is swapped.
    std::vector<Sheets> sheets;  // The same of cache groups 1, 2, ...
    bool is_swapped = false;
    bool is_published = false;
    std::string salt;       // The salt of the published blocks.
    int num_lent = 0;       // Entries that the sequence may write although forks share them.
    int num_published = 0;  // The first entries of `table` that the sequence knows to be cached.
  };
  // The key of a cached block: the block before it (as cached_below), and its salt and tokens.
  using Content = std::pair<uint32_t, std::string>;
  struct BlockState {
    int owners = 0;  // Tables that hold the block.
    int copies = 0;  // Copies in flight that read or write it.
    int pins = 0;    // Pins that hold it.
    bool is_cached = false;
    bool is_proved = false;
    std::string salt;           // The salt under which it is cached.
    Content content;            // Set if it is cached.
    uint32_t cached_below = 0;  // 1 + the id of the block before it in its prefix; 0 if it is the first.
    int num_cached_above = 0;   // Cached blocks that follow it directly.
    uint32_t generation = 0;
  };
  struct CopyInFlight {
    StepId step;
    BlockCopy copy;
  };
  struct SwapInFlight {
    StepId step;
    BlockId host;
  };
  struct Pin {
    std::string tenant;
    std::vector<BlockId> blocks;
    int64_t expires_us;
  };

  template <typename... Parts>
  void Complain(const Parts&... parts);

  Account& AccountOf(SequenceId sequence);
  // The first sheet of the group that a slice which begins at `position` may read.
  int FirstSheet(int group, int position) const;
  // The sheets of the manager.
  Sheets FoundSheets(SequenceId sequence, int group) const;
  // Takes over what Allocate has done with the sheets of one group. `next_copy` is the index of its first copy.
  void TakeSheets(SequenceId sequence, int group, int first_written, int num_tokens,
                  const std::vector<BlockCopy>& copies, size_t* next_copy);
  void DropSheets(Sheets* sheets, bool is_host);
  // Sheets are moved to the host tier, or back, and each block goes where `moved` says.
  Sheets Moved(const Sheets& sheets, const absl::flat_hash_map<BlockId, BlockId>& moved, bool to_host);
  // The next copy of Allocate must be this one.
  void TakeCopy(const BlockCopy& copy, const std::vector<BlockCopy>& copies, size_t* next_copy);
  void AddFresh(BlockId block, std::vector<BlockId>* table);
  // The pool has allocated the block, so it must be free.
  void TakeFresh(BlockId block);
  void DropOwners(const std::vector<BlockId>& table, bool is_host);
  void SetCached(BlockId block, Content content, const std::string& salt);
  // The block leaves the cache because another one takes its place, or because what it holds is of no use.
  void ClearCached(BlockId block, bool is_evicted = true);
  void EndCopy(const CopyInFlight& copy);
  void CheckWritable(SequenceId sequence, const Account& account, int first_written, int num_tokens);

  // The whole blocks that the cache has of a prompt.
  std::vector<BlockId> CachedBlocks(const std::string& salt, absl::Span<const TokenId> tokens) const;
  // The different blocks of these pins and of `blocks`.
  int NumPinned(absl::FunctionRef<bool(const Pin&)> counts, const std::vector<BlockId>& blocks) const;
  void EndPins(absl::FunctionRef<bool(const Pin&)> ends);

  static Content ContentOf(std::optional<BlockId> parent, const std::string& salt, absl::Span<const TokenId> tokens);

  Observer* const observer_;
  const int max_pinned_blocks_;
  const bool has_prefix_cache_;
  absl::flat_hash_map<SequenceId, Account> accounts_;
  std::vector<BlockState> states_;  // By block.
  absl::flat_hash_map<Content, BlockId> cached_;
  std::vector<int> host_owners_;       // By host block.
  std::deque<CopyInFlight> copies_;    // By step.
  std::deque<SwapInFlight> swap_ins_;  // By step. Each holds the host block that it reads.
  std::vector<Pin> pins_;
  StepId step_{0};
  std::vector<SequenceId> released_;
  bool is_restoring_ = false;
  int64_t num_copies_ = 0;
  int64_t num_evictions_ = 0;
  int64_t num_adopted_tokens_ = 0;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_
