// SPDX-License-Identifier: Apache-2.0

#include "bench/memory_waste.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/num_blocks.h"
#include "bench/null_worker.h"
#include "bench/step_time.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "scheduler/scheduler.h"

namespace quire {
namespace {

constexpr int kMaxWaiting = 64;

// The time of a step of the simulated worker. Only the proportions matter here.
constexpr StepTime kStepTime = {.base_us = 10'000, .per_token_us = 40};

Request MakeRequest(const RequestLengths& lengths, int index) {
  Request request;
  request.id = RequestId{static_cast<uint64_t>(index) + 1};
  request.prompt.assign(lengths.prompt, index);
  request.max_tokens = lengths.output;
  request.bypass_prefix_cache = true;
  return request;
}

SchedulerOptions MakeSchedulerOptions(const WasteOptions& options) {
  SchedulerOptions scheduler;
  scheduler.max_sequences = options.max_sequences;
  scheduler.max_waiting_requests = kMaxWaiting;
  scheduler.max_context_tokens = options.max_context_tokens;
  scheduler.watermark = options.reservation.has_value() ? 0 : 0.01;
  return scheduler;
}

// One simulation of all requests, for MeasureWaste.
class WasteRun {
 public:
  WasteRun(const std::vector<RequestLengths>& requests, const WasteOptions& options)
      : requests_(requests),
        options_(options),
        blocks_(MakeBlocks()),
        scheduler_(MakeSchedulerOptions(options), blocks_) {}

  SlotUse Run() {
    while (true) {
      Feed();
      const StepPlan plan = scheduler_.Plan();
      if (plan.empty()) break;
      for (const SequenceStart& start : plan.starts) {
        if (rows_.size() <= Value(start.row)) rows_.resize(Value(start.row) + 1);
        rows_[Value(start.row)] = start.sequence;
      }
      if (num_finished_ >= requests_.size() / 10 && num_submitted_ < requests_.size()) Count(plan);
      num_finished_ += scheduler_.Commit(worker_.Execute(plan)).finished.size();
    }
    QUIRE_CHECK_EQ(num_finished_, requests_.size());
    QUIRE_CHECK_GT(seconds_, 0) << "the pool was never short";
    for (double* share : {&use_.live, &use_.later, &use_.never, &use_.outside}) {
      *share /= seconds_ * options_.pool_tokens;
    }
    use_.sequences /= seconds_;
    use_.preemptions = scheduler_.counts().preemptions;
    return use_;
  }

 private:
  BlockManager* MakeBlocks() {
    if (options_.reservation.has_value()) {
      contiguous_ = std::make_unique<ContiguousBlockManager>(options_.pool_tokens);
      return contiguous_.get();
    }
    paged_ = std::make_unique<PagedBlockManager>(options_.pool_tokens / options_.block_size, options_.block_size);
    return paged_.get();
  }

  void Feed() {
    while (num_submitted_ < requests_.size() && scheduler_.counts().waiting < kMaxWaiting) {
      const RequestLengths& lengths = requests_[num_submitted_];
      if (contiguous_ != nullptr) {
        const int num_slots =
            ReservedSlots(*options_.reservation, lengths.prompt, lengths.output, options_.max_context_tokens);
        if (!contiguous_->Reserve(num_slots, 1)) return;
      }
      const absl::Status status = scheduler_.Submit(MakeRequest(lengths, static_cast<int>(num_submitted_)));
      QUIRE_CHECK(status.ok()) << status;
      ++num_submitted_;
    }
  }

  // The budget of a step is larger than the number of sequences, so each that holds tokens has a slice.
  void Count(const StepPlan& plan) {
    int64_t live = 0;
    int64_t filled_in_the_end = 0;
    int64_t of_slices = 0;
    for (const SequenceSlice& slice : plan.slices) {
      const SequenceId sequence = rows_[Value(slice.row)];
      const int allocated = NumAllocated(sequence);
      live += slice.first_position + slice.num_tokens;
      filled_in_the_end += std::min(allocated, FinalTokens(sequence));
      of_slices += allocated;
    }
    const int64_t allocated = NumAllocated();
    // A sequence that has entered but had no slice yet will fill at least its prompt.
    const int64_t later = filled_in_the_end - live + (allocated - of_slices);
    const double seconds = kStepTime.Seconds(WorkOf(plan));
    seconds_ += seconds;
    use_.live += seconds * static_cast<double>(live);
    use_.later += seconds * static_cast<double>(later);
    use_.never += seconds * static_cast<double>(allocated - live - later);
    use_.outside += seconds * static_cast<double>(options_.pool_tokens - allocated);
    use_.sequences += seconds * scheduler_.counts().running;
  }

  int64_t NumAllocated() const {
    if (contiguous_ != nullptr) return contiguous_->num_reserved();
    return int64_t{paged_->counts().used} * options_.block_size;
  }
  int NumAllocated(SequenceId sequence) const {
    if (contiguous_ != nullptr) return contiguous_->num_reserved(sequence);
    return static_cast<int>(paged_->Table(sequence).size()) * options_.block_size;
  }

  // The scheduler numbers sequences in the order of submission when none forks.
  int FinalTokens(SequenceId sequence) const {
    const RequestLengths& lengths = requests_[Value(sequence) - 1];
    return lengths.prompt + lengths.output - 1;
  }

  const std::vector<RequestLengths>& requests_;
  const WasteOptions options_;
  std::unique_ptr<ContiguousBlockManager> contiguous_;  // Only one of the two managers is used.
  std::unique_ptr<PagedBlockManager> paged_;
  BlockManager* const blocks_;
  Scheduler scheduler_;
  NullWorker worker_;
  std::vector<SequenceId> rows_;  // [rows]: the sequence that runs there.
  size_t num_submitted_ = 0;
  size_t num_finished_ = 0;
  double seconds_ = 0;  // The measured time.
  SlotUse use_;         // The sum of slots times seconds.
};

}  // namespace

SlotUse MeasureWaste(const std::vector<RequestLengths>& requests, const WasteOptions& options) {
  return WasteRun(requests, options).Run();
}

double MeasureSharing(const std::vector<RequestLengths>& requests, Sharing sharing, int num_sequences) {
  constexpr int kBlockSize = 16;
  PagedBlockManager blocks({.num_blocks = 1 << 16, .block_size = kBlockSize, .has_prefix_cache = false});
  SchedulerOptions options;
  options.max_sequences = 256;
  options.max_waiting_requests = static_cast<int>(requests.size());
  options.max_context_tokens = 1 << 20;
  options.max_tokens_per_step = options.max_chunk_tokens =
      1 << 20;  // A prompt is computed in the step in which it enters.
  Scheduler scheduler(options, &blocks);
  NullWorker worker;
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request = MakeRequest(requests[i], static_cast<int>(i));
    if (sharing == Sharing::kSamples) {
      request.num_samples = num_sequences;
    } else {
      request.beam = BeamParams{.width = num_sequences};
    }
    const absl::Status status = scheduler.Submit(std::move(request));
    QUIRE_CHECK(status.ok()) << status;
  }
  double used = 0;
  double alone = 0;
  while (true) {
    const StepPlan plan = scheduler.Plan();
    if (plan.empty()) break;
    const double seconds = kStepTime.Seconds(WorkOf(plan));
    used += seconds * blocks.counts().used;
    for (const SequenceSlice& slice : plan.slices) {
      alone += seconds * NumBlocksFor(slice.first_position + slice.num_tokens, kBlockSize);
    }
    scheduler.Commit(worker.Execute(plan));
  }
  QUIRE_CHECK_EQ(scheduler.counts().waiting + scheduler.counts().running, 0);
  return 1 - used / alone;
}

}  // namespace quire
