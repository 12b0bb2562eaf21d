// SPDX-License-Identifier: Apache-2.0

#include "bench/worker_speed.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status.h"
#include "bench/clocks.h"
#include "bench/local_worker.h"
#include "client/load/random.h"
#include "kernels/cpu/backend.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int kBlockSize = 16;

int NumRows(const WorkerSpeedOptions& options) {
  return std::max(options.num_sequences, options.num_beams);
}

// The pool has room for all sequences without sharing, so that nothing waits for blocks.
int NumBlocks(const WorkerSpeedOptions& options) {
  return NumRows(options) * ((options.prompt_tokens + options.output_tokens) / kBlockSize + 2);
}

void AppendTokens(int count, int vocab_size, BenchRandom* random, std::vector<TokenId>* tokens) {
  for (int i = 0; i < count; ++i) tokens->push_back(static_cast<TokenId>(random->Next() % vocab_size));
}

Request MakeRequest(const WorkerSpeedOptions& options, int index, int vocab_size) {
  Request request;
  request.id = RequestId{static_cast<uint64_t>(index + 1)};
  BenchRandom shared(0);
  AppendTokens(options.shared_tokens, vocab_size, &shared, &request.prompt);
  BenchRandom own(index + 1);
  AppendTokens(options.prompt_tokens - options.shared_tokens, vocab_size, &own, &request.prompt);
  request.sampling.temperature = 0;
  request.max_tokens = options.output_tokens;
  if (options.num_beams > 0) request.beam = BeamParams{.width = options.num_beams};
  return request;
}

// Warms up: the first step touches the memory for the first time.
absl::Status WarmUp(const WorkerSpeedOptions& options, LocalWorker* worker, Scheduler* scheduler) {
  WorkerSpeedOptions one = options;
  one.num_beams = 0;
  one.shared_tokens = 0;
  one.output_tokens = 2;
  Request request = MakeRequest(one, NumRows(options), worker->config().vocab_size);
  request.bypass_prefix_cache = true;
  QUIRE_RETURN_IF_ERROR(scheduler->Submit(std::move(request)));
  while (true) {
    const StepPlan plan = scheduler->Plan();
    if (plan.empty()) return absl::OkStatus();
    QUIRE_ASSIGN_OR_RETURN(StepResult result, worker->Execute(plan));
    scheduler->Commit(std::move(result));
  }
}

// True if every sequence computes one token and samples the next.
bool DecodesAll(const StepPlan& plan, int num_rows) {
  return static_cast<int>(plan.slices.size()) == num_rows &&
         std::all_of(plan.slices.begin(), plan.slices.end(),
                     [](const SequenceSlice& slice) { return slice.num_tokens == 1 && slice.sample; });
}

// Runs steps until all requests have ended.
absl::Status RunSteps(const WorkerSpeedOptions& options, LocalWorker* worker, TimedBackend* backend,
                      Scheduler* scheduler, const PagedBlockManager& blocks, WorkerSpeed* speed) {
  speed->decode_rows = NumRows(options);
  int most_used_blocks = 0;
  while (true) {
    const double start = WallSeconds();
    const StepPlan plan = scheduler->Plan();
    if (plan.empty()) break;
    most_used_blocks = std::max(most_used_blocks, blocks.counts().used);
    backend->TakeSeconds();
    backend->TakeUsedExperts();
    double cpu_seconds, wall_seconds;
    QUIRE_ASSIGN_OR_RETURN(StepResult result, worker->Execute(plan, &cpu_seconds, &wall_seconds));
    const double run_seconds = options.threads == 1 ? cpu_seconds : wall_seconds;
    const KernelSeconds kernels = backend->TakeSeconds();
    const double used_experts = backend->TakeUsedExperts();
    scheduler->Commit(std::move(result));
    const double step_seconds = WallSeconds() - start;

    speed->total_seconds += run_seconds;
    for (const SequenceSlice& slice : plan.slices) speed->total_tokens += slice.sample ? 1 : 0;
    if (DecodesAll(plan, speed->decode_rows)) {
      speed->decode_us.Add(1e6 * run_seconds);
      speed->used_experts.Add(used_experts);
      speed->overhead_us.Add(1e6 * (step_seconds - Sum(kernels)));
      for (int i = 0; i < kNumKernels; ++i) speed->decode_kernels[i] += kernels[i];
    } else if (speed->decode_us.size() == 0) {
      speed->prefill_seconds += run_seconds;
      for (int i = 0; i < kNumKernels; ++i) speed->prefill_kernels[i] += kernels[i];
      for (const SequenceSlice& slice : plan.slices) {
        speed->prefill_tokens += std::max(0, std::min(slice.num_tokens, options.prompt_tokens - slice.first_position));
      }
    }
  }
  speed->kv_bytes = static_cast<int64_t>(worker->layout().block_bytes_all_layers()) * most_used_blocks;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<WorkerSpeed> MeasureWorkerSpeed(const WorkerSpeedOptions& options) {
  LocalWorkerOptions worker_options;
  worker_options.model = options.model;
  worker_options.num_blocks = NumBlocks(options);
  worker_options.block_size = kBlockSize;
  worker_options.max_sequences = NumRows(options);
  worker_options.kv_type = options.kv_type;
  worker_options.rounding = options.rounding;
  auto timed = std::make_unique<TimedBackend>(cpu::MakeCpuBackend(options.threads, options.cpu_kernels));
  TimedBackend* const backend = timed.get();
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalWorker> worker,
                         LocalWorker::Create(worker_options, std::move(timed)));

  PagedBlockManager blocks(worker_options.num_blocks, worker_options.block_size);
  SchedulerOptions scheduling;
  scheduling.max_sequences = worker_options.max_sequences;
  scheduling.max_context_tokens = worker->config().max_position_embeddings;
  scheduling.watermark = 0;
  Scheduler scheduler(scheduling, &blocks);
  QUIRE_RETURN_IF_ERROR(WarmUp(options, worker.get(), &scheduler));
  for (int i = 0; i < options.num_sequences; ++i) {
    QUIRE_RETURN_IF_ERROR(scheduler.Submit(MakeRequest(options, i, worker->config().vocab_size)));
  }
  WorkerSpeed speed;
  QUIRE_RETURN_IF_ERROR(RunSteps(options, worker.get(), backend, &scheduler, blocks, &speed));
  if (speed.decode_us.size() > 0) return speed;
  return absl::InvalidArgumentError("the outputs are too short: no step decodes all sequences");
}

}  // namespace quire
