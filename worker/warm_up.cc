// SPDX-License-Identifier: Apache-2.0

#include "worker/warm_up.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status.h"
#include "base/worker_protocol.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_storage.h"

namespace quire {
namespace {

// Adds a row that starts with a prompt of that length, and samples in its slice. The caller adds the rest of the slice.
void StartRow(int row, int length, v1::StepPlan* plan) {
  v1::SequenceStart* const start = plan->add_starts();
  start->set_row(row);
  start->set_prompt_length(length);
  start->mutable_token_ids()->Resize(length, 0);
  start->mutable_sampling()->set_temperature(1);
  start->mutable_sampling()->set_top_p(1);
  start->mutable_sampling()->set_repetition_penalty(1);
  plan->add_slice_rows(row);
  plan->add_slice_first_changed_blocks(0);
  plan->mutable_slice_samples()->push_back(1);
}

// Makes a step of `num_tokens` prompt tokens. They are spread over as many sequences as possible, each in blocks of its
// own.
v1::StepPlan StepOf(int num_tokens, uint64_t step, const WorkerLimits& limits) {
  v1::StepPlan plan;
  plan.set_step(step);
  const int num_rows = std::min(num_tokens, limits.max_sequences);
  uint32_t next_block = 0;
  for (int row = 0; row < num_rows; ++row) {
    // With few rows, a row's share may be longer than the context; the step is smaller then.
    const int share = num_tokens / num_rows + (row < num_tokens % num_rows ? 1 : 0);
    const int length = std::min(share, limits.max_context_tokens);
    StartRow(row, length, &plan);
    plan.add_slice_first_positions(0);
    plan.add_slice_num_tokens(length);
    plan.add_slice_tail_lengths(limits.NumBlocksFor(length));
    for (int i = 0; i < limits.NumBlocksFor(length); ++i) plan.add_block_tails(next_block++);
  }
  return plan;
}

// The largest decode step that RecordSteps runs.
constexpr int kMostSequences = 256;
// A device divides long contexts of few sequences, so that all of it has work, and then needs other launches. Steps
// with more tokens than these in their contexts fill it in any case.
constexpr int kMostContextTokens = 1 << 15;
constexpr int kLeastLongContext = 512;

struct DecodeStep {
  int num_sequences;
  int context_len;  // Tokens of each sequence.
};

// Lists the decode steps that RecordSteps runs.
std::vector<DecodeStep> UsualDecodeSteps(const WorkerLimits& limits) {
  const int64_t most = std::min({int64_t{kMostSequences}, int64_t{limits.max_sequences},
                                 int64_t{limits.max_tokens_per_step}, int64_t{limits.num_blocks} / 2});
  const int64_t longest = std::min<int64_t>(limits.max_context_tokens, int64_t{limits.num_blocks} * limits.block_size);
  std::vector<DecodeStep> steps;
  for (int n = 1; n <= most; n += n < 8 ? n : n < 64 ? 8 : 32) {
    steps.push_back({n, 1});
    for (int length = kLeastLongContext; length <= std::min<int64_t>(longest, kMostContextTokens / n); length *= 2) {
      steps.push_back({n, length});
    }
  }
  return steps;
}

// Makes the plan of a decode step, in which `num_ended` rows of the step before it end. Each sequence writes one block
// and reads another one for all of its earlier tokens.
v1::StepPlan PlanOf(const DecodeStep& decode, uint64_t step, int num_ended, const WorkerLimits& limits) {
  v1::StepPlan plan;
  plan.set_step(step);
  for (int row = 0; row < num_ended; ++row) plan.add_end_rows(row);
  for (int row = 0; row < decode.num_sequences; ++row) {
    StartRow(row, decode.context_len, &plan);
    plan.add_slice_first_positions(decode.context_len - 1);
    plan.add_slice_num_tokens(1);
    const int num_blocks = limits.NumBlocksFor(decode.context_len);
    plan.add_slice_tail_lengths(num_blocks);
    for (int i = 0; i < num_blocks; ++i) plan.add_block_tails(2 * row + (i + 1 < num_blocks ? 1 : 0));
  }
  return plan;
}

}  // namespace

absl::Status RecordSteps(Backend* backend, const WorkerLimits& limits, absl::Duration longest_time,
                         Executor* executor) {
  // Recorded steps of a rank hold exchanges of one session.
  if (backend->layer_recorder() == nullptr || executor->num_ranks() > 1) return absl::OkStatus();
  const int64_t end_us = SteadyClock().NowMicros() + absl::ToInt64Microseconds(longest_time);
  uint64_t step = 0;
  int num_rows = 0;
  // The first step of a number of sequences is not recorded, and a step that needs more memory than those before it
  // makes the backend forget what it has recorded. So all steps run twice.
  for (int i = 0; i < 2; ++i) {
    for (const DecodeStep& decode : UsualDecodeSteps(limits)) {
      if (SteadyClock().NowMicros() >= end_us) break;
      v1::StepResult result;
      QUIRE_RETURN_IF_ERROR(executor->Run(PlanOf(decode, ++step, num_rows, limits), &result));
      num_rows = decode.num_sequences;
    }
  }
  executor->Reset();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> WarmUp(Backend* backend, const Model& model, const KvLayout& layout, WorkerLimits limits) {
  // A backend may know only after its first step what the arrays of later steps need, so there are two steps at least.
  std::vector<v1::StepPlan> plans = {StepOf(1, 1, limits)};
  limits.num_blocks = 0;
  limits.num_host_blocks = 0;
  for (int num_tokens = 1;; num_tokens = std::min(2 * num_tokens, limits.max_tokens_per_step)) {
    plans.push_back(StepOf(num_tokens, plans.size() + 1, limits));
    limits.num_blocks = std::max<uint32_t>(limits.num_blocks, plans.back().block_tails_size());
    if (num_tokens == limits.max_tokens_per_step) break;
  }
  const StepSizes sizes = {.max_tokens = limits.max_tokens_per_step,
                           .max_sequences = limits.max_sequences,
                           .max_context_tokens = limits.max_context_tokens,
                           .max_logit_rows = LogitRowsFor(limits),
                           .max_top = std::max<int>(kMaxCandidates, kMaxTopLogprobs),
                           .vocab_size = limits.vocab_size};
  const size_t free_bytes = *backend->FreeBytes();
  const BackendStatus reserved = backend->Reserve(layout, model.config.num_heads, sizes);
  if (!reserved.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(reserved.message(), "; lower --max-tokens-per-step"));
  }
  QUIRE_LOG(kInfo) << "steps of up to " << sizes.max_tokens << " tokens in contexts of up to "
                   << sizes.max_context_tokens << " tokens keep "
                   << FormatBytes(static_cast<int64_t>(free_bytes - *backend->FreeBytes()))
                   << " of the device's memory beside the pool, for attention and draws";
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<BlockStorage> storage,
                         BlockStorage::Create(backend, layout, limits.num_blocks, /*num_host_blocks=*/0,
                                              /*prefault=*/false));
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Executor> executor,
                         Executor::Create(backend, &model, storage.get(), limits, LogitRowsFor(limits)));
  for (const v1::StepPlan& plan : plans) {
    v1::StepResult result;
    QUIRE_RETURN_IF_ERROR(executor->Run(plan, &result));
  }
  return static_cast<int64_t>(*backend->FreeBytes() + storage->pool_bytes());
}

}  // namespace quire
