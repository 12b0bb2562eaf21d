// SPDX-License-Identifier: Apache-2.0

#include "bench/step_overhead.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/num_blocks.h"
#include "bench/clocks.h"
#include "bench/null_worker.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/worker_link/wire.h"
#include "quire/v1/worker.pb.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int kWarmUpSteps = 20;
constexpr int kMaxEntrySteps = 50;  // The limit of steps until all sequences run.

int MaxTokens(const StepOverheadOptions& options) {
  return kMaxEntrySteps + kWarmUpSteps + options.num_steps + 1;
}

SchedulerOptions MakeSchedulerOptions(const StepOverheadOptions& options) {
  SchedulerOptions scheduler;
  scheduler.max_sequences = options.num_sequences;
  scheduler.max_waiting_requests = options.num_sequences;
  scheduler.max_context_tokens = options.context_tokens + MaxTokens(options);
  scheduler.max_chunk_tokens = options.context_tokens;
  scheduler.max_tokens_per_step = options.num_sequences * options.context_tokens;
  scheduler.watermark = 0;
  return scheduler;
}

// No two prompts have the same beginning, and they do not all reach the end of a block in the same step.
Request MakeRequest(const StepOverheadOptions& options, int index) {
  Request request;
  request.id = RequestId{static_cast<uint64_t>(index + 1)};
  const int num_tokens = options.context_tokens - index % options.block_size;
  request.prompt.reserve(num_tokens);
  for (int i = 0; i < num_tokens; ++i) request.prompt.push_back((index * 7919 + i * 31) % 100'000);
  request.prompt[0] = index;
  request.max_tokens = MaxTokens(options);
  return request;
}

v1::StepResult ToMessage(const StepResult& result) {
  v1::StepResult message;
  message.set_step(Value(result.step));
  for (const SliceResult& slice : result.slices) {
    if (slice.sampled) message.add_token_ids(slice.token.token);
  }
  return message;
}

class Session {
 public:
  explicit Session(const StepOverheadOptions& options)
      : blocks_({.num_blocks = options.num_sequences *
                               NumBlocksFor(MakeSchedulerOptions(options).max_context_tokens, options.block_size),
                 .block_size = options.block_size}),
        scheduler_(MakeSchedulerOptions(options), &blocks_) {
    for (int i = 0; i < options.num_sequences; ++i) {
      const absl::Status status = scheduler_.Submit(MakeRequest(options, i));
      QUIRE_CHECK(status.ok()) << status;
    }
  }

  // Later plans look at what they have to share out, as in a manager with --max-step-ms.
  void LimitSteps() { scheduler_.SetStepLimit({.us_per_token = 1, .max_step_us = 1e9, .max_prompt_step_us = 1e9}); }

  // Runs one step. Returns how many sequences have drawn a token.
  int Step(StepOverhead* times) {
    const double start = ThreadCpuSeconds();
    const StepPlan plan = scheduler_.Plan();
    const double planned = ThreadCpuSeconds();
    const ExpectedResult expected = encoder_.Encode(plan, &message_);
    message_.SerializeToString(&bytes_);
    const double encoded = ThreadCpuSeconds();
    const std::string answer = ToMessage(worker_.Execute(plan)).SerializeAsString();
    const double answered = ThreadCpuSeconds();
    answer_.ParseFromString(answer);
    absl::StatusOr<StepResult> result = DecodeStepResult(answer_, expected, NullWorker::kVocabSize);
    const double decoded = ThreadCpuSeconds();
    QUIRE_CHECK(result.ok()) << result.status();
    const StepOutput output = scheduler_.Commit(*std::move(result));
    const double committed = ThreadCpuSeconds();
    times->plan.Add(planned - start);
    times->commit.Add(committed - decoded);
    times->plan_and_commit.Add(planned - start + committed - decoded);
    times->encode.Add(encoded - planned);
    times->decode.Add(decoded - answered);
    return static_cast<int>(output.emissions.size());
  }

 private:
  PagedBlockManager blocks_;
  Scheduler scheduler_;
  NullWorker worker_;
  PlanEncoder encoder_;
  v1::StepPlan message_;
  v1::StepResult answer_;
  std::string bytes_;
};

}  // namespace

StepOverhead MeasureStepOverhead(const StepOverheadOptions& options) {
  Session session(options);
  StepOverhead warm_up;
  while (session.Step(&warm_up) < options.num_sequences) {
  }
  session.LimitSteps();
  for (int i = 0; i < kWarmUpSteps; ++i) session.Step(&warm_up);
  StepOverhead times;
  for (int i = 0; i < options.num_steps; ++i) {
    const int num_decoded = session.Step(&times);
    QUIRE_CHECK_EQ(num_decoded, options.num_sequences);
  }
  return times;
}

}  // namespace quire
