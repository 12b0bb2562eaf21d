#ifndef QUIRE_WORKER_STEP_BATCH_H_
#define QUIRE_WORKER_STEP_BATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/batch.h"
#include "quire/v1/worker.pb.h"
#include "worker/mark_set.h"
#include "worker/sequence_row.h"
#include "worker/worker_limits.h"

namespace quire {

// A plan's slice, with its row.
struct BatchSlice {
  SequenceRow* row;
  int row_index;
  int first_position;
  int num_tokens;
  int first_token;  // Where the slice begins in the batch's token arrays.
  int last_token;   // The token whose logits the slice samples from: its last, or with no tokens its parent's.
  bool samples;

  int end_position() const { return first_position + num_tokens; }
};

// A plan's slices as the flat arrays that the kernels read; those without tokens have no part in them. Memory is kept
// from step to step. Owned by the executor thread.
//
// A token that is still being drawn has the id that kernels/batch.h gives the token drawn last for the place of its
// row, its index.
//
// Example: blocks of 4 tokens; one slice, position 5 of a row with tokens t0 .. t5 and the table (7, 2): one entry in
// the token arrays, id t5, position 5, slot 2 * 4 + 1 = 9; context length 6; table entries 7, 2.
class StepBatch {
 public:
  // Takes memory for a step of the largest size; only that of the block tables grows with the steps.
  explicit StepBatch(const WorkerLimits& limits);

  // Applies the plan's table changes to `rows` and fills the arrays. INVALID_ARGUMENT when a slice does not fit its
  // row: a position that the row has no token for, a gap after what was computed before, a table that does not reach, a
  // block that is written while another slice reads or writes it. After an error the batch and the rows are good for
  // nothing but a new session. REQUIRES: PlanCheck accepted the plan, its starts were applied.
  absl::Status Build(const v1::StepPlan& plan, absl::Span<SequenceRow> rows);

  // Valid until the next Build.
  BatchView view() const;
  absl::Span<const BatchSlice> slices() const { return slices_; }

 private:
  void Clear();
  // Sets last_token of the slices without tokens.
  void FindParents(const v1::StepPlan& plan);
  absl::Status CheckSlice(const v1::StepPlan& plan, int index, const SequenceRow& row) const;
  // Marks the blocks that the slice's tokens go to, each of them written by this slice alone.
  absl::Status ClaimWrites(int index);
  // Appends the slice's tokens and table. No block of it may be claimed by another slice.
  absl::Status Append(int index);

  const WorkerLimits limits_;
  std::vector<BatchSlice> slices_;
  MarkSet writers_;      // Blocks written in this step; the owner is the slice's index.
  MarkSet sliced_rows_;  // The owner is the slice's index.

  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> table_starts_;
  std::vector<uint32_t> block_tables_;
};

}  // namespace quire

#endif  // QUIRE_WORKER_STEP_BATCH_H_
