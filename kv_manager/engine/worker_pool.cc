// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/worker_pool.h"

#include <utility>

namespace quire {
namespace {

std::unique_ptr<PagedBlockManager> MakeBlocks(const WorkerDescription& worker, const StepLoopOptions& options,
                                              const StepLoopHooks& hooks, PrefixIndex* index) {
  const PagedBlockManagerOptions blocks{
      .num_blocks = worker.num_blocks,
      .block_size = worker.block_size,
      .groups = worker.groups,
      .max_slice_tokens = NarrowedTo(worker, options.scheduler).max_chunk_tokens,
      .num_host_blocks = worker.num_host_blocks,
      .has_prefix_cache = options.has_prefix_cache,
      .max_pinned_blocks = static_cast<int>(options.max_pinned_share * worker.num_blocks),
      .index = index};
  return hooks.make_blocks ? hooks.make_blocks(blocks) : std::make_unique<PagedBlockManager>(blocks);
}

}  // namespace

WorkerPool::WorkerPool(const WorkerDescription& worker, const StepLoopOptions& options, const StepLoopHooks& hooks)
    : index_(options.has_prefix_cache ? std::make_shared<PrefixIndex>(worker.block_size) : nullptr),
      blocks_(MakeBlocks(worker, options, hooks, index_.get())),
      scheduler_(NarrowedTo(worker, options.scheduler), blocks_.get()) {
  if (options.quotas != nullptr) UpdateTenants(*options.quotas);
  if (options.max_step_us <= 0) return;
  step_budget_.emplace(options.max_step_us);
  scheduler_.SetStepLimit(step_budget_->limit());
}

void WorkerPool::UpdateTenants(const TenantQuotas& quotas) {
  if (quotas.has_shares(tenants_)) return;
  tenants_ = quotas.shares();
  scheduler_.SetTenants(*tenants_);
}

std::vector<int> WorkerPool::MakePins(const RequestPins& pins, int64_t now_us) {
  const TenantShares& tenants = tenants_ == nullptr ? scheduler_.options().tenants : *tenants_;
  const double max_share = tenants.Of(pins.tenant).max_blocks_share;
  std::vector<int> num_tokens;
  num_tokens.reserve(pins.pins.size());
  for (const Request::PrefixPin& pin : pins.pins) {
    const auto prefix = absl::MakeConstSpan(pins.tokens).first(pin.num_tokens);
    num_tokens.push_back(
        blocks_->PinForTenant(pins.tenant, max_share, pins.salt, prefix, now_us + pin.ttl_us).value_or(0));
  }
  return num_tokens;
}

void WorkerPool::OnStep(int num_tokens, int64_t duration_us) {
  if (!step_budget_.has_value() || num_tokens == 0) return;
  step_budget_->Record(num_tokens, duration_us);
  scheduler_.SetStepLimit(step_budget_->limit());
}

}  // namespace quire
