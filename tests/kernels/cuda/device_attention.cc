// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/device_attention.h"

#include <cmath>

namespace quire::cuda {
namespace {

template <typename T>
std::unique_ptr<DeviceArray<T>> Upload(Device* device, const T* values, size_t count) {
  return std::make_unique<DeviceArray<T>>(device, std::vector<T>(values, values + count));
}
template <typename T>
std::unique_ptr<DeviceArray<T>> Upload(Device* device, const std::vector<T>& values) {
  return std::make_unique<DeviceArray<T>>(device, values);
}

}  // namespace

DeviceAttention::DeviceAttention(Device* device, const Shape& shape, const BatchView& batch, const uint16_t* q,
                                 int q_stride, const char* kv_pool, uint16_t* out, bool cuts_items)
    : device_(device) {
  const int group_size = shape.num_heads / shape.num_kv_heads;
  AttentionPlanner planner;
  kernels_ = FindKernelsFor(*device, shape);
  AttentionPlanOptions options = CuttingPlanOptions({.num_kv_heads = shape.num_kv_heads,
                                                     .group_size = group_size,
                                                     .window = shape.window,
                                                     .block_size = shape.block_size},
                                                    MostItemRows(*kernels_, shape.softcap > 0));
  if (!cuts_items) options.min_items = 1;
  const AttentionPlan& plan = planner.Plan(batch, options);
  std::vector<AttentionItem> items;
  ListLaunches(plan, group_size, &items, &launches_);
  std::vector<int32_t> ranges;
  for (const AttentionLaunch& launch : launches_) {
    ranges.insert(ranges.end(), {launch.begin, launch.end});
    if (launch.kernel == &KernelTable::attention_prefill || launch.kernel == &KernelTable::attention_prefill_sm90) {
      num_prefill_items_ += launch.end - launch.begin;
    }
  }

  positions_ = Upload(device, batch.positions, batch.num_tokens);
  table_starts_ = Upload(device, batch.table_starts, batch.num_sequences + 1);
  block_tables_ = Upload(device, batch.block_tables, batch.table_starts[batch.num_sequences]);
  tokens_ = Upload(device, plan.tokens);
  items_ = Upload(device, items);
  merges_ = Upload(device, plan.merges);
  places_ = Upload(device, plan.places);
  ranges_ = Upload(device, ranges);
  states_ = std::make_unique<DeviceArray<SoftmaxState>>(device, plan.num_partials);
  values_ = std::make_unique<DeviceArray<float>>(device, size_t(plan.num_partials) * shape.head_dim);
  args_ = {.q = q,
           .q_stride = q_stride,
           .out = out,
           .kv_pool = kv_pool,
           .positions = positions_->data(),
           .table_starts = table_starts_->data(),
           .block_tables = block_tables_->data(),
           .tokens = tokens_->data(),
           .items = items_->data(),
           .merges = merges_->data(),
           .places = places_->data(),
           .range = nullptr,
           .partial_states = states_->data(),
           .partial_values = values_->data(),
           .num_kv_heads = shape.num_kv_heads,
           .group_size = group_size,
           .block_size = shape.block_size,
           .window = shape.window,
           .scale_log2 = float(1 / std::sqrt(double(shape.head_dim)) / std::log(2.0)),
           .cap = 0,
           .cap_slope = 0};
  if (shape.softcap > 0) SetSoftcap(1 / std::sqrt(double(shape.head_dim)), shape.softcap, &args_);
}

void DeviceAttention::Launch(int num_blocks) const {
  for (size_t i = 0; i < launches_.size(); ++i) {
    const AttentionLaunch& launch = launches_[i];
    AttentionArgs args = args_;
    args.range = ranges_->data() + 2 * i;
    device_->Launch(kernels_->*launch.kernel, args,
                    num_blocks > 0 ? num_blocks : (launch.end - launch.begin) * args.num_kv_heads);
  }
}

DeviceAttentionResult AttendOnDevice(Device* device, const Shape& shape, const std::vector<Slice>& slices,
                                     PagedPool* pool, int num_blocks, bool cuts_items) {
  PagedBatch batch;
  std::vector<float> q;
  const int row_size = shape.num_heads * shape.head_dim;
  for (const Slice& slice : slices) {
    batch.Add(slice.table, slice.begin, slice.end, shape.block_size);
    q.insert(q.end(), slice.sequence->q.begin() + int64_t{slice.begin} * row_size,
             slice.sequence->q.begin() + int64_t{slice.end} * row_size);
  }
  const char* const pool_data = static_cast<const char*>(pool->data());
  DeviceArray<char> kv_pool(device, std::vector<char>(pool_data, pool_data + pool->bytes()));
  DeviceArray<char> q_bits(device, Encoded(q, shape.type));
  DeviceArray<char> out(device, std::vector<char>(q_bits.size(), char(0xff)));
  const DeviceAttention attention(device, shape, batch.View(), reinterpret_cast<const uint16_t*>(q_bits.data()),
                                  row_size, kv_pool.data(), reinterpret_cast<uint16_t*>(out.data()), cuts_items);
  attention.Launch(num_blocks);
  return {Decoded(out.Download(), shape.type), attention.num_prefill_items()};
}

}  // namespace quire::cuda
