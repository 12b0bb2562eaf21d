// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_STEP_BATCH_H_
#define QUIRE_WORKER_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/batch.h"
#include "quire/v1/worker.pb.h"
#include "worker/mark_set.h"
#include "worker/sequence_row.h"
#include "worker/worker_limits.h"

namespace quire {

// A slice of a plan, with its row.
struct BatchSlice {
  SequenceRow* row;
  int row_index;
  int first_position;
  int num_tokens;
  int first_token;  // The index in the batch's token arrays at which the slice begins.
  int last_token;   // The token whose logits the slice samples from: its last one, or its parent's if it has none.
  bool is_sampling;
  bool is_early = false;   // Needs the token of a postponed draw. Computes and draws nothing.
  bool is_repeat = false;  // Repeats a postponed draw after the last token of the row. num_tokens is 0.

  int end_position() const { return first_position + num_tokens; }
};

// The slices of a plan as the flat arrays that kernels read. Slices without tokens do not appear in the arrays. The
// memory is kept from step to step. Owned by the executor thread.
//
// A draw that is repeated has one token in the arrays: the last one of its row, whose K and V are stored once more.
// They are the same as before, so it does not matter who shares the block. Rows that share the block there share the
// token.
//
// There is a view of the arrays for each column of the block tables: for each block that a sheet of a cache group has.
// The table of a sequence in a view begins at the sheets that attention may look at (kWindowAlignment). Where the slice
// may no longer read a sheet, its first one that it may read stands, because others may hold anything by now. That one
// is full: a window has at least the tokens of a sheet. Slots that are not written yet may hold anything as well.
//
// If a token is still being drawn, its id means the last token drawn for a place (kernels/batch.h). The place is the
// index of its row.
//
// Example with blocks of 4 tokens: a row has the tokens t0 .. t5 and the block table (7, 2), and its slice is
// position 5. The token arrays get one entry: id t5, position 5, slot 2 * 4 + 1 = 9. The context length is 6, and the
// entries of the block table are 7 and 2.
class StepBatch {
 public:
  // Allocates memory for the largest step. Only the memory for block tables may grow later.
  explicit StepBatch(const WorkerLimits& limits);

  // Applies the plan's changes of tables to `rows` and fills the arrays. Returns INVALID_ARGUMENT when a slice does not
  // match its row: the row has no token at a position, there is a gap after the computed tokens, a table lacks a sheet,
  // or a block is written while another slice may read it or writes it. After an error the batch and the rows are
  // unusable until the session is reset. REQUIRES: PlanCheck accepted the plan, and its starts were applied.
  absl::Status Build(const v1::StepPlan& plan, absl::Span<SequenceRow> rows);

  // Valid until the next Build. [number of columns]
  absl::Span<const BatchView> views() const { return views_; }
  absl::Span<const BatchSlice> slices() const { return slices_; }

 private:
  // The arrays that differ from view to view.
  struct Column {
    int group;
    int part;  // Index of the block in a sheet.
    std::vector<int64_t> slots;
    std::vector<int32_t> table_starts;
    std::vector<uint32_t> block_tables;
  };

  void Clear();
  // Sets last_token of every slice of a fork without tokens.
  void FindParents(const v1::StepPlan& plan);
  absl::Status CheckSlice(const v1::StepPlan& plan, int index, const SequenceRow& row) const;
  absl::Status CheckRepeat(int index, const SequenceRow& row) const;
  // Applies the plan's changes of the slice's sheets in other groups than group 0, and checks that none is missing.
  absl::Status ChangeSheets(const v1::StepPlan& plan, int index);
  // Returns the number of tokens that the slice of a repeated draw appends, and sets its last_token.
  int FindRepeated(BatchSlice* slice);
  // Marks the blocks that the slice writes. Returns an error when another slice writes one of them.
  absl::Status ClaimWrites(int index);
  // Appends the slice's tokens and tables to the arrays. Returns an error when another slice writes one of the blocks
  // that it may read.
  absl::Status Append(int index);
  absl::Status AppendTable(int index, Column* column);
  void SetViews();

  const WorkerLimits limits_;
  std::vector<BatchSlice> slices_;
  MarkSet writers_;      // The blocks that this step writes. The owner is the slice's index.
  MarkSet sliced_rows_;  // The owner is the slice's index.
  MarkSet forked_rows_;
  absl::flat_hash_map<int64_t, int> repeated_;  // The tokens of repeated draws, by slot.

  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> context_lens_;
  std::vector<Column> columns_;
  std::vector<BatchView> views_;
  // The next one to be applied.
  int next_change_ = 0;
  const uint32_t* next_change_block_ = nullptr;
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_BATCH_H_
