#include "worker/warm_up.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_storage.h"
#include "worker/executor.h"

namespace quire {
namespace {

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
    v1::SequenceStart* const start = plan.add_starts();
    start->set_row(row);
    start->set_prompt_length(length);
    start->mutable_token_ids()->Resize(length, 0);
    start->mutable_sampling()->set_temperature(1);
    start->mutable_sampling()->set_top_p(1);
    start->mutable_sampling()->set_repetition_penalty(1);
    plan.add_slice_rows(row);
    plan.add_slice_first_positions(0);
    plan.add_slice_num_tokens(length);
    plan.add_slice_first_changed_blocks(0);
    plan.add_slice_tail_lengths(limits.NumBlocksFor(length));
    for (int i = 0; i < limits.NumBlocksFor(length); ++i) plan.add_block_tails(next_block++);
    plan.mutable_slice_samples()->push_back(1);
  }
  return plan;
}

}  // namespace

absl::StatusOr<int64_t> WarmUp(Backend* backend, const Model& model, const KvLayout& layout, WorkerLimits limits) {
  std::vector<v1::StepPlan> plans;
  limits.num_blocks = 0;
  limits.num_host_blocks = 0;
  for (int num_tokens = 1;; num_tokens = std::min(2 * num_tokens, limits.max_tokens_per_step)) {
    plans.push_back(StepOf(num_tokens, plans.size() + 1, limits));
    limits.num_blocks = std::max<uint32_t>(limits.num_blocks, plans.back().block_tails_size());
    if (num_tokens == limits.max_tokens_per_step) break;
  }
  const BackendStatus reserved =
      backend->Reserve(layout, model.config.num_heads, limits.max_tokens_per_step, limits.max_context_tokens);
  if (!reserved.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(reserved.message(), "; lower --max-tokens-per-step"));
  }
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
