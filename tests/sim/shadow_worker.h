// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_SIM_SHADOW_WORKER_H_
#define QUIRE_TESTS_SIM_SHADOW_WORKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/cache_groups.h"
#include "base/ids.h"
#include "kv_manager/worker_link/worker_inventory.h"
#include "scheduler/step_plan.h"
#include "tests/sim/shadow_model.h"

namespace quire {

// Hashes that are the same on all ranks of a group, see StepResult::digest and WorkerInventory::digest.
uint64_t DigestOf(const StepResult& result);
uint64_t DigestOf(const WorkerInventory& inventory);

// A worker that executes plans without computing a model. Instead of K and V, a slot holds the token that was stored
// there and a hash of all tokens up to it. Every slice reads its context through the row's block table, and must find
// exactly the row's own tokens. So the first read of a wrong slot (old, unwritten, overwritten or of another sequence)
// is found.
class ShadowWorker {
 public:
  ShadowWorker(const ShadowModel& model, int num_blocks, int block_size, int num_rows, int num_host_blocks = 0,
               std::vector<CacheGroup> groups = {CacheGroup{}});

  // Puts off about one draw in `one_in` from now on, or none if that is 0 or 1.
  void Postpone(int one_in) { postpones_ = one_in; }

  // The error says which rule of step_plan.h the plan breaks, or which slot held what.
  absl::StatusOr<StepResult> Execute(const StepPlan& plan);

  // The sequences whose slices in the last plan have counted on a token of a draw that was put off.
  const std::vector<SequenceId>& early_sequences() const { return early_sequences_; }

  // The sequence of this slice of the last plan has failed. Returns its result, which has replaced what was drawn. What
  // the slice has stored from `first_position` on is of no use and must not be in the cache of a manager.
  SliceResult Fail(const SequenceSlice& slice, int first_position);

  // What a real worker would say about its rows and blocks, without rows that have failed. The roots of private caches
  // have no salt.
  WorkerInventory MakeInventory() const;
  // Whether a row that has failed, or one that has not and so is in the inventory, has a record of this request.
  bool HasRowOf(absl::string_view record, bool has_failed) const;
  // Another session takes the rows over. Its first plan is step 1.
  void BeginSession();

  // Checks that the slots of `table` hold `tokens`, the first tokens of a sequence, and nothing that is of no use. The
  // error names the first wrong slot.
  absl::Status CheckSlots(absl::Span<const BlockId> table, absl::Span<const TokenId> tokens) const;

 private:
  struct Slot {
    TokenId token = -1;
    uint64_t prefix_hash = 0;  // The hash of all tokens up to and including this one.
    // For labels:
    uint64_t before = 0;  // The hash of the tokens before this one.
    std::optional<CacheRoot> root = {};
    bool is_poisoned = false;
    // Which of the blocks of a sheet it belongs to, counted through all cache groups.
    int column = 0;

    bool HasSameTokens(const Slot& other) const {
      return token == other.token && prefix_hash == other.prefix_hash && column == other.column;
    }
  };
  struct Row {
    SequenceStart start;  // With the last record and with the scores of all tokens that are known.
    std::shared_ptr<std::vector<ScoredToken>> prompt_scores;  // Shared by a row and its forks.
    std::vector<TokenId> tokens;
    std::vector<uint64_t> prefix_hashes;  // By position, for all of `tokens`.
    std::vector<BlockId> table;
    std::vector<RowTable::Sheets> sheets;  // Of cache groups 1, 2, ... Those behind a window are there as well.
    int num_stored = -1;                   // -1 until the first slice, which may begin anywhere.
    StepId last_step{0};
    bool has_failed = false;
    bool lacks_draw = false;           // The last draw was put off.
    bool is_early = false;             // The slice of this step counts on the token of a draw that was put off.
    bool may_go_back = false;          // The next slice may begin at any position that is stored.
    std::optional<RowId> parent = {};  // Set if the row is forked in this step.
    ShadowEmbedding embedding = {};    // What was added so far, if the row has a pooling.

    void Append(TokenId token);
  };

  absl::Status Swap(const StepPlan& plan);
  absl::Status Start(const SequenceStart& start);
  absl::Status Fork(const SequenceFork& fork);
  absl::Status Append(const TokenAppend& append);
  absl::Status Record(const RecordChange& change);
  absl::Status Copy(const std::vector<BlockCopy>& copies);
  // Takes the changes of tables, then writes K and V.
  absl::Status Store(const StepPlan& plan, int index);
  absl::Status ChangeSheets(const StepPlan& plan, int index, int end, Row* row);
  absl::Status StoreToken(StepId step, const Row& row, int position, int column, BlockId block);
  // Checks what the slice reads in a cache group behind group 0.
  absl::Status ReadSheets(const SequenceSlice& slice, const Row& row, int group, int first_column) const;
  absl::Status Read(const SequenceSlice& slice) const;
  // Checks a slice without tokens.
  absl::Status CheckDraw(StepId step, const SequenceSlice& slice, const Row& row) const;
  SliceResult Finish(const SequenceSlice& slice);  // Samples and scores.
  bool IsPostponed(const SequenceSlice& slice) const;

  std::vector<RowTable> TellTables(const StepPlan& plan) const;

  int64_t SlotOf(const Row& row, int position) const;
  // The block of a sheet in a group behind group 0, if the row has one.
  std::optional<BlockId> SheetBlock(const Row& row, int group, int sheet, int part) const;

  const ShadowModel model_;
  const int num_blocks_;
  const int block_size_;
  const std::vector<CacheGroup> groups_;
  std::vector<std::optional<Row>> rows_;
  std::vector<Slot> slots_;
  std::vector<Slot> host_slots_;
  std::vector<StepId> written_in_;  // By slot: the last step that stored into it.
  StepId last_step_{0};
  int postpones_ = 0;
  std::vector<SequenceId> early_sequences_;
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_SHADOW_WORKER_H_
