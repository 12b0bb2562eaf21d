#ifndef QUIRE_WORKER_EXECUTOR_H_
#define QUIRE_WORKER_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_storage.h"
#include "worker/model/model.h"
#include "worker/model/transformer.h"
#include "worker/plan_check.h"
#include "worker/sequence_row.h"
#include "worker/step_batch.h"
#include "worker/step_sampler.h"
#include "worker/worker_limits.h"

namespace quire {

// Rows of logits that are computed at a time: as many as fit 64 MiB (128 with a vocabulary of 128 Ki tokens), but no
// more than a step can need.
int LogitRowsFor(const WorkerLimits& limits);

// Runs plans, one after the other: rows, swaps, copies, forward, sample. Holds the rows of one session. Knows no
// network: benchmarks and tests call it directly. Used by one thread at a time.
//
// On a backend that is asynchronous a second plan may begin before the first is finished, so that the device never
// waits for the host. Tokens that the first is still drawing go from step to step on the device.
class Executor {
 public:
  // Takes the scratch memory of the largest step. Everything pointed to must outlive the executor; `storage` has the
  // model's shape and as many blocks as the limits say. A step may score more than `max_logit_rows` tokens, but that
  // many at a time: they bound the logits' memory, and nothing else depends on them.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Backend* backend, const Model* model, BlockStorage* storage,
                                                          const WorkerLimits& limits, int max_logit_rows);

  // Forgets all rows, and plans that are not finished. The next plan is step 1. Blocks keep their contents.
  void Reset();

  // Whether the plan may begin now; after every Finish of those before it may. Not while the device draws tokens that
  // the host has to know for it, as for penalties.
  bool CanBegin(const v1::StepPlan& plan) const;
  // Queues the plan. INVALID_ARGUMENT when it breaks the contract, RESOURCE_EXHAUSTED without memory for the answers.
  // After an error only Reset may follow. REQUIRES: CanBegin.
  absl::Status Begin(const v1::StepPlan& plan);
  // Of plans that were begun and not finished.
  int num_begun() const { return static_cast<int>(begun_.size()); }
  // Whether Finish would not wait. REQUIRES: num_begun() > 0.
  bool IsDone() const { return backend_->IsDone(begun_.front().mark); }
  // Waits for the oldest plan that was begun, and fills `result`, which must be empty. INTERNAL for logits that are not
  // numbers; then only Reset may follow. REQUIRES: num_begun() > 0.
  absl::Status Finish(v1::StepResult* result);
  // Begins a plan and finishes it. REQUIRES: num_begun() is 0.
  absl::Status Run(const v1::StepPlan& plan, v1::StepResult* result);

  // The calling thread is the one that will run plans (Backend::BindThreads).
  void BindThreads() { backend_->BindThreads(); }

  const WorkerLimits& limits() const { return limits_; }

 private:
  Executor(Backend* backend, BlockStorage* storage, const WorkerLimits& limits);

  // Starts, forks and appends. INVALID_ARGUMENT when a row is not what its fork or append needs.
  absl::Status ChangeRows(const v1::StepPlan& plan);
  // Swaps and copies.
  void MoveBlocks(const v1::StepPlan& plan);

  struct BegunStep {
    uint64_t step;
    int64_t start_us;
    uint64_t mark;
    bool has_slices;
    std::unique_ptr<v1::RowTables> tables;  // If the plan wants them.
  };

  Backend* const backend_;
  BlockStorage* const storage_;
  const WorkerLimits limits_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<StepSampler> sampler_;
  StepBatch batch_;
  PlanCheck check_;

  // State of the session.
  std::vector<SequenceRow> rows_;  // [max_sequences]
  uint64_t last_step_ = 0;
  std::vector<BegunStep> begun_;  // Not finished, the oldest first.
  int64_t last_finish_us_ = 0;
};

}  // namespace quire

#endif  // QUIRE_WORKER_EXECUTOR_H_
