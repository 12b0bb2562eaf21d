#ifndef QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_
#define QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/block_manager.h"

namespace quire {

// A PagedBlockManager whose calls are audited. The auditor keeps accounts of its own: the table of every sequence, the
// owners of every block, the copies in flight, and what is cached below what. Each call must do to the tables and the
// counts what scheduler/block_manager.h says, and nothing else.
class AuditedBlocks : public PagedBlockManager {
 public:
  // Hears of the scheduler's steps before anything in the blocks has changed, and of a loss afterwards.
  class Observer {
   public:
    virtual ~Observer() = default;
    virtual void OnBeginStep() = 0;
    virtual void OnStepCommitted() = 0;
    virtual void OnStepsAbandoned() = 0;
  };

  // `observer` is borrowed.
  AuditedBlocks(const PagedBlockManagerOptions& options, Observer* observer);

  void BeginStep(StepId step) override;
  bool Allocate(SequenceId sequence, int first_written, int num_tokens, std::vector<BlockCopy>* copies) override;
  void Fork(SequenceId parent, SequenceId child, int num_tokens) override;
  void Free(SequenceId sequence) override;
  void OnStepCommitted(StepId step) override;
  void OnStepsAbandoned() override;
  void AdoptPrefix(SequenceId sequence, const std::string& salt, absl::Span<const TokenId> tokens,
                   int num_tokens) override;
  std::optional<int> Publish(SequenceId sequence, absl::Span<const TokenId> tokens, int num_tokens) override;
  bool SwapOut(absl::Span<const SequenceExtent> sequences, std::vector<BlockSwap>* swap_outs) override;
  bool SwapIn(absl::Span<const SequenceId> sequences, std::vector<BlockSwap>* swap_ins) override;

  // The first contradiction.
  const absl::Status& status() const { return status_; }

  // Compares the counts of the manager with the accounts, and lets it recompute its own. O(blocks).
  absl::Status CheckAll() const;

  // Whether the sequence has blocks in the pool.
  bool HoldsBlocks(SequenceId sequence) const;
  // Grows whenever the block is handed out: a table entry of an older generation names a block that was freed.
  uint32_t generation(BlockId block) const { return states_[Value(block)].generation; }
  // Sequences whose blocks were freed or swapped out since the last call.
  std::vector<SequenceId> TakeReleased() { return std::exchange(released_, {}); }
  int64_t num_copies() const { return num_copies_; }
  int64_t num_adopted_tokens() const { return num_adopted_tokens_; }  // Taken over from the cache.

 private:
  struct Account {
    std::vector<BlockId> table;  // Of the pool, or of the host tier.
    bool is_swapped = false;
    bool is_published = false;
    std::string salt;  // Under which it is.
    int num_lent = 0;  // Entries that it may store into although forks share them.
  };
  // What a block is cached by: the one before it (as cached_below), and salt and tokens.
  using Content = std::pair<uint32_t, std::string>;
  struct BlockState {
    int owners = 0;  // Tables.
    int copies = 0;  // In flight, of which it is an end.
    bool is_cached = false;
    std::string salt;           // Under which it is.
    Content content;            // Of a cached block.
    uint32_t cached_below = 0;  // One more than the number of the block before it in its prefix; 0: it is the first.
    int num_cached_above = 0;   // Those that follow it.
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

  template <typename... Parts>
  void Complain(const Parts&... parts);

  void AddFresh(BlockId block, std::vector<BlockId>* table);
  // The pool has handed out the block as a free one.
  void TakeFresh(BlockId block);
  void DropOwners(const std::vector<BlockId>& table, bool is_host);
  void SetCached(BlockId block, Content content, const std::string& salt);
  void ClearCached(BlockId block);
  void EndCopy(const CopyInFlight& copy);
  void CheckWritable(SequenceId sequence, const Account& account, int first_written, int num_tokens);

  Observer* const observer_;
  const bool has_prefix_cache_;
  absl::flat_hash_map<SequenceId, Account> accounts_;
  std::vector<BlockState> states_;  // By block.
  absl::flat_hash_map<Content, BlockId> cached_;
  std::vector<int> host_owners_;       // By host block.
  std::deque<CopyInFlight> copies_;    // By step.
  std::deque<SwapInFlight> swap_ins_;  // By step. They hold the host block that is read.
  StepId step_{0};
  std::vector<SequenceId> released_;
  int64_t num_copies_ = 0;
  int64_t num_evictions_ = 0;
  int64_t num_adopted_tokens_ = 0;
  absl::Status status_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_AUDITED_BLOCKS_H_
