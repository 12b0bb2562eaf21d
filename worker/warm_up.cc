#include "worker/warm_up.h"

#include <algorithm>
#include <memory>

#include "base/status.h"
#include "quire/v1/worker.pb.h"
#include "worker/block_storage.h"
#include "worker/executor.h"

namespace quire {
namespace {

// As many prompts as it takes to fill a step, each in blocks of its own from block 0 on.
v1::StepPlan LargestStep(const WorkerLimits& limits) {
  v1::StepPlan plan;
  plan.set_step(1);
  uint32_t next_block = 0;
  int tokens_left = limits.max_tokens_per_step;
  for (int row = 0; row < limits.max_sequences && tokens_left > 0; ++row) {
    const int num_tokens = std::min(tokens_left, limits.max_context_tokens);
    tokens_left -= num_tokens;
    v1::SequenceStart* const start = plan.add_starts();
    start->set_row(row);
    start->set_prompt_length(num_tokens);
    start->mutable_token_ids()->Resize(num_tokens, 0);
    start->mutable_sampling()->set_temperature(1);
    start->mutable_sampling()->set_top_p(1);
    start->mutable_sampling()->set_repetition_penalty(1);
    plan.add_slice_rows(row);
    plan.add_slice_first_positions(0);
    plan.add_slice_num_tokens(num_tokens);
    plan.add_slice_first_changed_blocks(0);
    plan.add_slice_tail_lengths(limits.BlocksFor(num_tokens));
    for (int i = 0; i < limits.BlocksFor(num_tokens); ++i) plan.add_block_tails(next_block++);
    plan.mutable_slice_samples()->push_back(1);
  }
  return plan;
}

}  // namespace

absl::StatusOr<int64_t> WarmUp(Backend* backend, const Model& model, const KvLayout& layout, WorkerLimits limits) {
  const v1::StepPlan plan = LargestStep(limits);
  limits.num_blocks = plan.block_tails_size();
  limits.num_host_blocks = 0;
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<BlockStorage> storage,
                         BlockStorage::Create(backend, layout, limits.num_blocks, /*num_host_blocks=*/0,
                                              /*prefault=*/false));
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Executor> executor,
                         Executor::Create(backend, &model, storage.get(), limits, LogitRowsFor(limits)));
  v1::StepResult result;
  QUIRE_RETURN_IF_ERROR(executor->Run(plan, &result));
  return static_cast<int64_t>(*backend->FreeBytes() + storage->pool_bytes());
}

}  // namespace quire
