// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_WORKER_EXECUTOR_H_
#define QUIRE_WORKER_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_storage.h"
#include "worker/guide_book.h"
#include "worker/label_keeper.h"
#include "worker/mark_set.h"
#include "worker/model/model.h"
#include "worker/model/transformer.h"
#include "worker/plan_check.h"
#include "worker/sequence_row.h"
#include "worker/step_batch.h"
#include "worker/step_sampler.h"
#include "worker/worker_limits.h"

namespace quire {

// Returns how many rows of logits to compute at a time: the number that fits into 64 MiB (128 rows with a vocabulary of
// 128 Ki tokens), but not more than a step can need.
int LogitRowsFor(const WorkerLimits& limits);

// Runs plans one after the other. For each plan it changes rows, swaps and copies blocks, runs the model and samples.
// It holds the rows of one session. If it keeps labels, it also knows what the blocks contain. It knows no network;
// benchmarks and tests call it directly. Used by one thread at a time.
//
// On an asynchronous backend a second plan may begin before the first is finished, so that the device does not wait for
// the host. The second plan can use tokens that the first is still drawing, because they stay on the device.
class Executor {
 public:
  // Allocates the scratch memory of the largest step. All pointers must stay valid while the executor exists. `storage`
  // has the model's shape and the number of blocks in `limits`. The executor computes at most `max_logit_rows` rows of
  // logits at a time, which limits their memory. A step may still score more tokens than that.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Backend* backend, const Model* model, BlockStorage* storage,
                                                          const WorkerLimits& limits, int max_logit_rows);

  // Keeps labels of blocks from now on. REQUIRES: no plan has run.
  void KeepLabels();
  // Sets whether draws may be postponed (StepResult.postponed_slices). By default they may not: then a step waits until
  // the guides of its rows are compiled. The ranks of a model never postpone, because their guides are compiled at
  // different times, and all must draw the same rows.
  void SetMayPostpone(bool may_postpone) {
    may_postpone_ = may_postpone && transformer_->num_ranks() == 1;
    guides_.SetMayPostpone(may_postpone_);
  }

  // Forgets all rows, all labels and all plans that are not finished. The next plan is step 1. Blocks keep their
  // contents.
  void Reset();
  // Begins another session with the rows and labels of this one. The next plan is step 1. REQUIRES: no plan is begun
  // and not finished, and none has failed.
  void StartOver() { last_step_ = 0; }

  // Returns whether the plan may begin now. It may not while two plans are begun, or while the device draws tokens
  // whose values the host needs for this plan, for example for bad words. When all earlier plans are finished, every
  // plan may begin.
  bool CanBegin(const v1::StepPlan& plan) const;
  // Queues the plan. Returns INVALID_ARGUMENT when it violates the contract, RESOURCE_EXHAUSTED when there is no memory
  // for the answers, and GroupStatus, before it changes a row, when the group has ended. After another error only Reset
  // may follow. REQUIRES: CanBegin.
  absl::Status Begin(const v1::StepPlan& plan);
  // The number of plans that are begun and not finished.
  int num_begun() const { return static_cast<int>(begun_.size()); }
  // Returns whether Finish would return without waiting. REQUIRES: num_begun() > 0.
  bool IsDone() const { return backend_->IsDone(begun_.front().mark); }
  // Waits for the oldest plan that was begun, and fills `result`, which must be empty. A sequence whose logits are not
  // finite fails alone, see StepSampler::Finish. REQUIRES: num_begun() > 0.
  void Finish(v1::StepResult* result);
  // Begins a plan and finishes it. Returns an error of both, or of the group. REQUIRES: num_begun() is 0.
  absl::Status Run(const v1::StepPlan& plan, v1::StepResult* result);

  // Sets the group in which this rank runs plans, or none (Transformer::SetGroup). All ranks run the same plans. Does
  // nothing if the model is whole: the ranks of a simulated device exchange no sums. When the devices of the ranks
  // cannot reach each other, returns UNAVAILABLE with the reason that GroupStatus has.
  absl::Status SetGroup(Collective* group);
  int num_ranks() const { return transformer_->num_ranks(); }
  // Returns UNAVAILABLE with the reason GROUP_PEER_LOST when the group has ended. Then the rows and the blocks of the
  // last step that was begun are undefined, and its result has no meaning. The weights and the device are as before.
  absl::Status GroupStatus() const;

  // Tells the backend that the calling thread will run the plans (Backend::BindThreads).
  void BindThreads() { backend_->BindThreads(); }

  const WorkerLimits& limits() const { return limits_; }
  absl::Span<const SequenceRow> rows() const { return rows_; }  // [max_sequences]
  // The labels after the steps that are finished. Returns null without KeepLabels.
  const BlockLabels* labels() const { return label_keeper_ == nullptr ? nullptr : &label_keeper_->labels(); }

 private:
  Executor(Backend* backend, BlockStorage* storage, const WorkerLimits& limits);

  // Applies the plan's vocabulary, ends, starts, forks, appends and records. Returns INVALID_ARGUMENT when a change
  // does not match its row.
  absl::Status ChangeRows(const v1::StepPlan& plan);
  // If the step has nothing to do before a guide is compiled, waits a moment for that. If draws may not be postponed,
  // waits until the guides of all rows that draw are compiled.
  void WaitForGuides();
  // Queues the plan's swaps and copies of blocks.
  void MoveBlocks(const v1::StepPlan& plan);
  // Tells the rows which of their blocks the plan swaps out.
  void NoteSwapsOut(const v1::StepPlan& plan);

  struct BegunStep {
    uint64_t step;
    int64_t start_us;
    uint64_t mark;
    bool has_slices;
    std::unique_ptr<v1::RowTables> tables;  // Null unless the plan wants them.
  };

  Backend* const backend_;
  BlockStorage* const storage_;
  const WorkerLimits limits_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<StepSampler> sampler_;
  StepBatch batch_;
  PlanCheck check_;
  GuideBook guides_;
  bool may_postpone_ = false;
  std::unique_ptr<LabelKeeper> label_keeper_;  // Null without KeepLabels.
  MarkSet swapped_out_;                        // Blocks. The owner is the index of the swap in the plan.

  // The state of the session.
  std::vector<SequenceRow> rows_;  // [max_sequences]
  uint64_t last_step_ = 0;
  std::vector<BegunStep> begun_;  // The plans that are not finished, the oldest first.
  int64_t last_finish_us_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_EXECUTOR_H_
