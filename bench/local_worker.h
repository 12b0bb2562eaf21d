// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_LOCAL_WORKER_H_
#define QUIRE_BENCH_LOCAL_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kv_manager/worker_link/wire.h"
#include "scheduler/step_plan.h"
#include "worker/block_storage.h"
#include "worker/executor.h"
#include "worker/model/model.h"

namespace quire {

struct LocalWorkerOptions {
  std::string model = "models/tales";  // Directory.
  int num_blocks = 4096;
  int block_size = 16;
  int max_sequences = 256;
  int max_tokens_per_step = 2048;
  KvType kv_type = KvType::kFloat32;
  WeightRounding rounding;
};

// The real executor with a real model in this process. Plans go through the wire's messages but not through a network.
class LocalWorker {
 public:
  // The backend has one thread, so that the CPU time is the time of a step.
  static absl::StatusOr<std::unique_ptr<LocalWorker>> Create(const LocalWorkerOptions& options);
  static absl::StatusOr<std::unique_ptr<LocalWorker>> Create(const LocalWorkerOptions& options,
                                                             std::unique_ptr<Backend> backend);

  // Runs the plan. The executor's CPU time and wall-clock time are stored in the last arguments, which may be null.
  absl::StatusOr<StepResult> Execute(const StepPlan& plan, double* cpu_seconds = nullptr,
                                     double* wall_seconds = nullptr);

  // Begins a new session: the next plan is step 1.
  void Reset() { executor_->Reset(); }

  const ModelConfig& config() const { return model_->config; }
  const KvLayout& layout() const { return storage_->layout(); }

 private:
  LocalWorker() = default;

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<BlockStorage> storage_;
  std::unique_ptr<Executor> executor_;
  PlanEncoder encoder_;
  v1::StepPlan plan_;
  v1::StepResult result_;
};

}  // namespace quire

#endif  // QUIRE_BENCH_LOCAL_WORKER_H_
