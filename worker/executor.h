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
class Executor {
 public:
  // Takes the scratch memory of the largest step. Everything pointed to must outlive the executor; `storage` has the
  // model's shape and as many blocks as the limits say. A step may score more than `max_logit_rows` tokens, but that
  // many at a time: they bound the logits' memory, and nothing else depends on them.
  static absl::StatusOr<std::unique_ptr<Executor>> Create(Backend* backend, const Model* model, BlockStorage* storage,
                                                          const WorkerLimits& limits, int max_logit_rows);

  // Forgets all rows. The next plan is step 1. Blocks keep their contents.
  void Reset();

  // Fills `result`, which must be empty. INVALID_ARGUMENT for a plan that breaks the contract, INTERNAL for logits that
  // are not numbers. After an error only Reset may follow.
  absl::Status Run(const v1::StepPlan& plan, v1::StepResult* result);

  const WorkerLimits& limits() const { return limits_; }

 private:
  Executor(Backend* backend, BlockStorage* storage, const WorkerLimits& limits);

  // Starts, forks and appends. INVALID_ARGUMENT when a row is not what its fork or append needs.
  absl::Status ChangeRows(const v1::StepPlan& plan);
  // Swaps and copies.
  void MoveBlocks(const v1::StepPlan& plan);

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
};

}  // namespace quire

#endif  // QUIRE_WORKER_EXECUTOR_H_
