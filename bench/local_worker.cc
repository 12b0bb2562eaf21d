// SPDX-License-Identifier: Apache-2.0

#include "bench/local_worker.h"

#include <utility>

#include "absl/memory/memory.h"
#include "base/status.h"
#include "bench/clocks.h"

namespace quire {

absl::StatusOr<std::unique_ptr<LocalWorker>> LocalWorker::Create(const LocalWorkerOptions& options) {
  return Create(options, MakeCpuBackend(/*num_threads=*/1));
}

absl::StatusOr<std::unique_ptr<LocalWorker>> LocalWorker::Create(const LocalWorkerOptions& options,
                                                                 std::unique_ptr<Backend> backend) {
  auto worker = absl::WrapUnique(new LocalWorker());
  worker->backend_ = std::move(backend);
  QUIRE_ASSIGN_OR_RETURN(worker->model_, LoadModel(options.model, worker->backend_.get(), nullptr, options.rounding));
  const ModelConfig& config = worker->model_->config;
  const WorkerLimits limits = {.max_sequences = options.max_sequences,
                               .max_tokens_per_step = options.max_tokens_per_step,
                               .max_context_tokens = config.max_position_embeddings,
                               .vocab_size = config.vocab_size,
                               .block_size = options.block_size,
                               .num_blocks = static_cast<uint32_t>(options.num_blocks)};
  const KvLayout layout = {.num_layers = config.num_layers,
                           .num_kv_heads = config.num_kv_heads,
                           .head_dim = config.head_dim,
                           .block_size = options.block_size,
                           .type = options.kv_type};
  QUIRE_ASSIGN_OR_RETURN(worker->storage_, BlockStorage::Create(worker->backend_.get(), layout, limits.num_blocks,
                                                                limits.num_host_blocks, /*prefault=*/true));
  QUIRE_ASSIGN_OR_RETURN(worker->executor_, Executor::Create(worker->backend_.get(), worker->model_.get(),
                                                             worker->storage_.get(), limits, LogitRowsFor(limits)));
  worker->executor_->BindThreads();
  return worker;
}

absl::StatusOr<StepResult> LocalWorker::Execute(const StepPlan& plan, double* cpu_seconds, double* wall_seconds) {
  const ExpectedResult expected = encoder_.Encode(plan, &plan_);
  result_.Clear();
  const double cpu_start = ThreadCpuSeconds();
  const double wall_start = WallSeconds();
  QUIRE_RETURN_IF_ERROR(executor_->Run(plan_, &result_));
  if (cpu_seconds != nullptr) *cpu_seconds = ThreadCpuSeconds() - cpu_start;
  if (wall_seconds != nullptr) *wall_seconds = WallSeconds() - wall_start;
  return DecodeStepResult(result_, expected, model_->config.vocab_size);
}

}  // namespace quire
