// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace quire::cuda {
namespace {

constexpr int64_t kPartialBytes = int64_t{256} << 20;  // Limit on the partial results of a step, when not exact.
// Thread blocks that a step should have per multiprocessor, when not exact. A block of attention_prefill_sm90 fills a
// multiprocessor, and its items are long, so that their partial results would cost more than a better balance gains.
constexpr int kWantedBlocksPerMultiprocessor = 2;
constexpr int kWantedLongBlocksPerMultiprocessor = 1;

constexpr int64_t BytesPerPartial(int head_dim) {
  return int64_t{head_dim} * int64_t{sizeof(float)} + int64_t{sizeof(SoftmaxState)};
}

// Largest number of thread blocks per multiprocessor of a recorded launch. If there are more items, each block
// processes several of them in turn. There are more blocks than the device runs at a time, so that blocks with little
// work make room for others.
constexpr int kRecordedBlocksPerMultiprocessor = 8;
// For every launch of attention_prefill_sm90, because a block copies for its next item while it computes.
constexpr int kLongBlocksPerMultiprocessor = 1;

// Returns the room for `count` values, with some to spare.
size_t Capacity(size_t count) {
  constexpr size_t kLeast = 64;
  return std::max(std::bit_ceil(count), kLeast);
}

// Makes room for `count` values. Returns whether the capacity was too small.
bool GrowCapacity(size_t count, size_t* capacity) {
  if (count <= *capacity) return false;
  *capacity = Capacity(count);
  return true;
}

int64_t NumSplits(int64_t num_tokens) {
  return CeilDiv(num_tokens, kSplitTokens);
}

// There are two phases of items, each for three kernels, and the merges (ListLaunches).
constexpr int kMostLaunches = 7;

// Returns whether a sequence of the batch has more than this number of query rows.
bool HasMoreRows(const BatchView& batch, int group_size, int num_rows) {
  for (int i = 0; i < batch.num_sequences; ++i) {
    if ((batch.query_starts[i + 1] - batch.query_starts[i]) * group_size > num_rows) return true;
  }
  return false;
}

}  // namespace

CudaAttention::CudaAttention(Device* device, bool exact)
    : device_(device),
      exact_(exact),
      partial_states_(device, "partial results of attention"),
      partial_values_(device, "partial results of attention") {}

int64_t CudaAttention::MaxPartials(int head_dim) {
  return kPartialBytes / BytesPerPartial(head_dim);
}

size_t CudaAttention::Reserve(const KvLayout& layout, int num_heads, const StepSizes& sizes) {
  int64_t num_partials = NumSplits(sizes.max_context_tokens) * sizes.max_tokens * num_heads;
  if (!exact_) num_partials = std::min(num_partials, MaxPartials(layout.head_dim));
  const size_t bytes = num_partials * BytesPerPartial(layout.head_dim), free_bytes = device_->FreeBytes();
  if (bytes > free_bytes) return bytes - free_bytes;
  partial_states_.Reserve<SoftmaxState>(num_partials);
  partial_values_.Reserve<float>(num_partials * layout.head_dim);
  reserved_ = sizes;
  reserved_partials_ = num_partials;
  return 0;
}

size_t CudaAttention::MostUploadBytes() const {
  if (reserved_.max_tokens == 0) return 0;
  size_t bytes = 0;
  for (const auto& plan : plans_) {
    const Kind& kind = plan->kind;
    const int64_t tokens_of_item = std::max(1, ItemRows(*plan) / kind.group_size);
    const int64_t whole =
        std::min<int64_t>(reserved_.max_tokens, reserved_.max_sequences + reserved_.max_tokens / tokens_of_item);
    // A part of an item, and a split that sequences share, have a partial result for every query head at least.
    const int64_t parts = std::min(whole * NumSplits(reserved_.max_context_tokens),
                                   reserved_partials_ / (kind.num_kv_heads * kind.group_size));
    // An item that is cut passes the places of its shared splits on to its merge.
    bytes += UploadBytes(Capacity(reserved_.max_tokens), Capacity(whole + parts), Capacity(whole), Capacity(2 * parts),
                         kMostLaunches);
  }
  return bytes;
}

void CudaAttention::BeginStep(const BatchView& batch) {
  views_ = {batch};
  for (const auto& plan : plans_) plan->is_current = false;
}

size_t CudaAttention::PlanStep(const BatchView* views, int num_views) {
  views_.assign(views, views + num_views);
  size_t bytes = 0;
  for (const auto& plan : plans_) {
    MakePlan(plan.get());
    bytes += UploadBytes(*plan);
  }
  return bytes;
}

void CudaAttention::AddPlans(UploadArena* arena) {
  for (const auto& plan : plans_) AddPlan(plan.get(), arena);
}

void CudaAttention::Run(const quire::AttentionArgs& args, const KernelTable& kernels, int view) {
  const StepPlan& plan = PlanFor(args, kernels, view);
  AttentionArgs kernel_args = plan.args;
  kernel_args.positions = args.batch->positions;
  kernel_args.table_starts = args.batch->table_starts;
  kernel_args.block_tables = args.batch->block_tables;
  kernel_args.q = static_cast<const uint16_t*>(args.q);
  kernel_args.q_stride = args.q_stride;
  kernel_args.out = static_cast<uint16_t*>(args.out);
  kernel_args.kv_pool = static_cast<const char*>(args.kv_pool);
  kernel_args.partial_states = partial_states_.Reserve<SoftmaxState>(plan.num_partials);
  kernel_args.partial_values = partial_values_.Reserve<float>(size_t(plan.num_partials) * plan.kind.head_dim);
  kernel_args.scale_log2 = float(args.scale / std::log(2.0));
  if (args.softcap > 0) SetSoftcap(args.scale, args.softcap, &kernel_args);
  for (size_t i = 0; i < plan.launches.size(); ++i) {
    const AttentionLaunch& launch = plan.launches[i];
    kernel_args.range = plan.ranges + 2 * i;
    device_->Launch(kernels.*launch.kernel, kernel_args, NumBlocks(plan.kind, launch, is_recording_));
  }
}

int CudaAttention::NumBlocks(const Kind& kind, const AttentionLaunch& launch, bool is_recorded) const {
  const bool is_long = launch.kernel == &KernelTable::attention_prefill_sm90;
  const unsigned items = launch.end - launch.begin;
  const int64_t blocks = int64_t{is_recorded ? std::bit_ceil(items) : items} * kind.num_kv_heads;
  if (!is_long && !is_recorded) return int(blocks);
  const int64_t most = is_long ? kLongBlocksPerMultiprocessor : kRecordedBlocksPerMultiprocessor;
  return int(std::min(blocks, most * device_->num_multiprocessors()));
}

std::string CudaAttention::PlanForRecording() {
  std::string launches;
  for (const auto& plan : plans_) {
    if (!plan->is_current) MakeAndUploadPlan(plan.get());
    for (const AttentionLaunch& launch : plan->launches) {
      launches += launch.kernel == &KernelTable::attention_decode         ? 'd'
                  : launch.kernel == &KernelTable::attention_prefill      ? 'p'
                  : launch.kernel == &KernelTable::attention_prefill_sm90 ? 'h'
                                                                          : 'm';
      launches += std::to_string(NumBlocks(plan->kind, launch, /*is_recorded=*/true));
    }
    launches += ' ';
  }
  return launches;
}

const CudaAttention::StepPlan& CudaAttention::PlanFor(const quire::AttentionArgs& args, const KernelTable& kernels,
                                                      int view) {
  const Kind kind = {.view = view,
                     .head_dim = args.layout->head_dim,
                     .num_kv_heads = args.layout->num_kv_heads,
                     .group_size = args.num_heads / args.layout->num_kv_heads,
                     .window = args.window,
                     .block_size = args.layout->block_size,
                     .kv_type = args.layout->type,
                     .has_softcap = args.softcap > 0};
  auto plan = std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p->kind == kind; });
  if (plan == plans_.end()) {
    plan =
        plans_.insert(plans_.end(), std::make_unique<StepPlan>(kind, MostItemRows(kernels, kind.has_softcap), device_));
    // A later step of this kind may be recorded with a kernel that this step does not need.
    device_->Prepare(kernels);
  }
  if (!(*plan)->is_current) MakeAndUploadPlan(plan->get());
  return **plan;
}

void CudaAttention::MakePlan(StepPlan* plan) {
  static_assert(kWindowAlignment % kSplitTokens == 0);
  const Kind& kind = plan->kind;
  const BatchView& batch = views_[kind.view];
  AttentionPlanOptions options = CuttingPlanOptions({.num_kv_heads = kind.num_kv_heads,
                                                     .group_size = kind.group_size,
                                                     .window = kind.window,
                                                     .block_size = kind.block_size},
                                                    ItemRows(*plan));
  if (!exact_) {
    const bool is_long = plan->most_item_rows > kPrefillRows && HasMoreRows(batch, kind.group_size, kPrefillRows);
    options.min_items = (is_long ? kWantedLongBlocksPerMultiprocessor : kWantedBlocksPerMultiprocessor) *
                        device_->num_multiprocessors();
    options.sizes_parts = true;
    options.max_partials = MaxPartials(kind.head_dim);
  }
  const AttentionPlan& steps = planner_.Plan(batch, options);
  ListLaunches(steps, kind.group_size, &plan->host_items, &plan->launches);
  plan->host_tokens.assign(steps.tokens.begin(), steps.tokens.end());
  plan->host_merges.assign(steps.merges.begin(), steps.merges.end());
  plan->host_places.assign(steps.places.begin(), steps.places.end());
  plan->host_ranges.clear();
  for (const AttentionLaunch& launch : plan->launches) {
    plan->host_ranges.insert(plan->host_ranges.end(), {launch.begin, launch.end});
  }
  bool has_grown = GrowCapacity(plan->host_tokens.size(), &plan->token_capacity);
  has_grown |= GrowCapacity(plan->host_items.size(), &plan->item_capacity);
  has_grown |= GrowCapacity(plan->host_merges.size(), &plan->merge_capacity);
  has_grown |= GrowCapacity(plan->host_places.size(), &plan->place_capacity);
  if (has_grown) ++num_moves_;
  plan->num_partials = steps.num_partials;
  // The buffers are reserved before anything is recorded, because this may move them.
  partial_states_.Reserve<SoftmaxState>(plan->num_partials);
  partial_values_.Reserve<float>(size_t(plan->num_partials) * kind.head_dim);
}

size_t CudaAttention::UploadBytes(size_t tokens, size_t items, size_t merges, size_t places, size_t launches) {
  return UploadArena::BytesFor<int32_t>(tokens) + UploadArena::BytesFor<AttentionItem>(items) +
         UploadArena::BytesFor<AttentionMerge>(merges) + UploadArena::BytesFor<PartialPlace>(places) +
         UploadArena::BytesFor<int32_t>(2 * launches);
}

size_t CudaAttention::UploadBytes(const StepPlan& plan) {
  return UploadBytes(plan.token_capacity, plan.item_capacity, plan.merge_capacity, plan.place_capacity,
                     plan.launches.size());
}

void CudaAttention::AddPlan(StepPlan* plan, UploadArena* arena) {
  const auto add = [&](const auto& values, size_t capacity) {
    return arena->Add(values.data(), values.size(), capacity);
  };
  plan->args = {};
  plan->args.tokens = add(plan->host_tokens, plan->token_capacity);
  plan->args.items = add(plan->host_items, plan->item_capacity);
  plan->args.merges = add(plan->host_merges, plan->merge_capacity);
  plan->args.places = add(plan->host_places, plan->place_capacity);
  plan->args.num_kv_heads = plan->kind.num_kv_heads;
  plan->args.group_size = plan->kind.group_size;
  plan->args.block_size = plan->kind.block_size;
  plan->args.window = plan->kind.window;
  plan->ranges = add(plan->host_ranges, plan->host_ranges.size());
  plan->is_current = true;
}

void CudaAttention::MakeAndUploadPlan(StepPlan* plan) {
  MakePlan(plan);
  plan->arena.Begin(UploadBytes(*plan));
  AddPlan(plan, &plan->arena);
  plan->arena.Upload();
}

}  // namespace quire::cuda
