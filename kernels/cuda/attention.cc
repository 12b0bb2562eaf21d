#include "kernels/cuda/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace quire::cuda {
namespace {

constexpr int kDecodeRows = 16;   // That the decode kernel takes.
constexpr int kPrefillRows = 64;  // That the prefill kernel takes at a time.

}  // namespace

CudaAttention::CudaAttention(Device* device, bool exact)
    : device_(device),
      exact_(exact),
      partial_states_(device, "partial results of attention"),
      partial_values_(device, "partial results of attention") {}

void CudaAttention::BeginStep(const BatchView& batch, const BatchView& on_device) {
  batch_ = batch;
  on_device_ = on_device;
  for (const auto& plan : plans_) plan->is_current = false;
}

void CudaAttention::Run(const quire::AttentionArgs& args, const KernelTable& kernels) {
  const StepPlan& plan = PlanFor(args);
  const int head_dim = args.layout->head_dim;
  AttentionArgs kernel_args = plan.args;
  kernel_args.q = static_cast<const uint16_t*>(args.q);
  kernel_args.q_stride = args.q_stride;
  kernel_args.out = static_cast<uint16_t*>(args.out);
  kernel_args.kv_pool = static_cast<const char*>(args.kv_pool);
  kernel_args.partial_states = partial_states_.Reserve<SoftmaxState>(plan.num_partials);
  kernel_args.partial_values = partial_values_.Reserve<float>(size_t(plan.num_partials) * head_dim);
  kernel_args.scale_log2 = float(args.scale / std::log(2.0));
  for (const LaunchRange& launch : plan.launches) {
    kernel_args.range = launch.range;
    device_->Launch(kernels.*launch.kernel, kernel_args, launch.count * plan.kind.num_kv_heads);
  }
}

const CudaAttention::StepPlan& CudaAttention::PlanFor(const quire::AttentionArgs& args) {
  const Kind kind = {.num_kv_heads = args.layout->num_kv_heads,
                     .group_size = args.num_heads / args.layout->num_kv_heads,
                     .window = args.window,
                     .block_size = args.layout->block_size};
  auto plan = std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p->kind == kind; });
  if (plan == plans_.end()) plan = plans_.insert(plans_.end(), std::make_unique<StepPlan>(kind, device_));
  if (!(*plan)->is_current) MakePlan(plan->get());
  return **plan;
}

void CudaAttention::MakePlan(StepPlan* plan) {
  const Kind& kind = plan->kind;
  const AttentionPlan& steps = planner_.Plan(batch_, {.num_kv_heads = kind.num_kv_heads,
                                                      .group_size = kind.group_size,
                                                      .window = kind.window,
                                                      .block_size = kind.block_size,
                                                      .tile_tokens = kSplitTokens,
                                                      .split_tokens = kSplitTokens,
                                                      .item_rows = exact_ ? kDecodeRows : kPrefillRows,
                                                      .min_items = std::numeric_limits<int>::max()});
  plan->launches.clear();
  ranges_.clear();
  items_.assign(steps.items.begin(), steps.items.end());
  const auto add_launch = [&](Kernel<AttentionArgs> KernelTable::*kernel, int begin, int end) {
    if (begin == end) return;
    plan->launches.push_back({kernel, nullptr, end - begin});
    ranges_.insert(ranges_.end(), {begin, end});
  };
  const auto is_small = [&](const AttentionItem& item) { return item.num_rows * kind.group_size <= kDecodeRows; };
  int begin = 0;
  for (const int end : steps.phase_ends) {
    const int middle = int(std::partition(items_.begin() + begin, items_.begin() + end, is_small) - items_.begin());
    add_launch(&KernelTable::attention_decode, begin, middle);
    add_launch(&KernelTable::attention_prefill, middle, end);
    begin = end;
  }
  add_launch(&KernelTable::attention_merge, 0, int(steps.merges.size()));

  UploadArena& arena = plan->arena;
  arena.Begin(
      UploadArena::BytesFor<int32_t>(steps.tokens.size()) + UploadArena::BytesFor<AttentionItem>(items_.size()) +
      UploadArena::BytesFor<AttentionMerge>(steps.merges.size()) +
      UploadArena::BytesFor<PartialPlace>(steps.places.size()) + UploadArena::BytesFor<int32_t>(ranges_.size()));
  plan->args = {};
  plan->args.positions = on_device_.positions;
  plan->args.table_starts = on_device_.table_starts;
  plan->args.block_tables = on_device_.block_tables;
  plan->args.tokens = arena.Add(steps.tokens.data(), steps.tokens.size());
  plan->args.items = arena.Add(items_.data(), items_.size());
  plan->args.merges = arena.Add(steps.merges.data(), steps.merges.size());
  plan->args.places = arena.Add(steps.places.data(), steps.places.size());
  plan->args.num_kv_heads = kind.num_kv_heads;
  plan->args.group_size = kind.group_size;
  plan->args.block_size = kind.block_size;
  plan->args.window = kind.window;
  const int32_t* const ranges = arena.Add(ranges_.data(), ranges_.size());
  for (size_t i = 0; i < plan->launches.size(); ++i) plan->launches[i].range = ranges + 2 * i;
  arena.Upload();
  plan->num_partials = steps.num_partials;
  plan->is_current = true;
}

}  // namespace quire::cuda
