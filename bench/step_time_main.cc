// SPDX-License-Identifier: Apache-2.0

// Measures how long a step of the real CPU worker takes, as a function of its tokens and their context. The result is
// the constants of the simulated worker in `batching`.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "base/check.h"
#include "base/program_main.h"
#include "base/status.h"
#include "bench/conversations.h"
#include "bench/local_worker.h"
#include "bench/step_time.h"
#include "client/load/samples.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"

ABSL_FLAG(std::string, model, "models/tales", "Directory of the model.");
ABSL_FLAG(int32_t, requests, 200, "Requests, all at once, of log-normal lengths.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "step_time",
      "serves requests with the real executor on one thread and fits the CPU time of a step to its work.",
      "[flags]",
      {{"Load:", {"model", "requests"}}}};
  return *flags;
}

// Appends one session with max_sequences sequences at the same time.
absl::Status TimeSteps(LocalWorker* worker, const LocalWorkerOptions& options, int max_sequences, int num_requests,
                       std::vector<TimedStep>* steps) {
  worker->Reset();
  const int context = worker->config().max_position_embeddings;
  PagedBlockManager blocks(options.num_blocks, options.block_size);
  SchedulerOptions scheduling;
  scheduling.max_sequences = max_sequences;
  scheduling.max_waiting_requests = num_requests;
  scheduling.max_context_tokens = context;
  Scheduler scheduler(scheduling, &blocks);
  std::vector<RequestLengths> requests = DrawLogNormal(context / 4.0, context / 8.0, num_requests, /*seed=*/1);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request;
    request.id = RequestId{i + 1};
    const int num_tokens = std::min(requests[i].prompt, context / 2);
    for (int j = 0; j < num_tokens; ++j) {
      request.prompt.push_back(static_cast<TokenId>((i * 131 + j * 7) % worker->config().vocab_size));
    }
    request.max_tokens = std::min(requests[i].output, context / 2);
    request.bypass_prefix_cache = true;
    QUIRE_RETURN_IF_ERROR(scheduler.Submit(std::move(request)));
  }
  while (true) {
    const StepPlan plan = scheduler.Plan();
    if (plan.empty()) return absl::OkStatus();
    TimedStep step;
    step.work = WorkOf(plan);
    QUIRE_ASSIGN_OR_RETURN(StepResult result, worker->Execute(plan, &step.seconds));
    steps->push_back(step);
    scheduler.Commit(std::move(result));
  }
}

absl::Status Run() {
  LocalWorkerOptions options;
  options.model = absl::GetFlag(FLAGS_model);
  const int num_requests = absl::GetFlag(FLAGS_requests);
  QUIRE_RETURN_IF_ERROR(CheckFlagRange("requests", num_requests, 8, 1 << 20));
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<LocalWorker> worker, LocalWorker::Create(options));
  std::vector<TimedStep> steps;
  for (const int max_sequences : {1, 4, 16, 64}) {
    const int count = std::max(1, num_requests * max_sequences / 64);
    QUIRE_RETURN_IF_ERROR(TimeSteps(worker.get(), options, max_sequences, count, &steps));
  }
  const StepTime time = FitStepTime(steps);
  Samples errors;
  for (const TimedStep& step : steps) errors.Add(std::abs(time.Seconds(step.work) / step.seconds - 1));
  std::printf(
      "%zu steps of %s on one thread, CPU time:\n"
      "  %.0f us + %.2f us per token + %.5f us for each pair of a token and a position that it attends to\n"
      "The fit is off by %.1f %% (median), %.1f %% (nine of ten steps).\n",
      steps.size(), options.model.c_str(), time.base_us, time.per_token_us, time.per_context_token_us,
      100 * errors.Median(), 100 * errors.Quantile(0.9));
  return absl::OkStatus();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::ProgramMain(quire::Flags(), argc, argv, quire::Run);
}
