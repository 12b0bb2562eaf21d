// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/worker_attention.h"

#include <cmath>
#include <vector>

#include "tests/kernels/cuda/device_attention.h"

namespace quire::cuda {

WorkerAttention::WorkerAttention(Device* device, const Shape& shape, const BatchView& batch, bool exact,
                                 bool is_recorded)
    : shape_(shape),
      layout_(LayoutOf(shape)),
      kernels_(*FindKernelsFor(*device, shape)),
      on_device_(batch),
      positions_(device, std::vector<int32_t>(batch.positions, batch.positions + batch.num_tokens)),
      table_starts_(device, std::vector<int32_t>(batch.table_starts, batch.table_starts + batch.num_sequences + 1)),
      block_tables_(device, std::vector<uint32_t>(batch.block_tables,
                                                  batch.block_tables + batch.table_starts[batch.num_sequences])),
      attention_(device, exact) {
  on_device_.positions = positions_.data();
  on_device_.table_starts = table_starts_.data();
  on_device_.block_tables = block_tables_.data();
  attention_.BeginStep(batch);
  attention_.set_is_recording(is_recorded);
}

void WorkerAttention::Launch(const void* q, int q_stride, const void* kv_pool, void* out) {
  attention_.Run({.batch = &on_device_,
                  .q = q,
                  .q_stride = q_stride,
                  .out = out,
                  .num_heads = shape_.num_heads,
                  .scale = 1 / std::sqrt(float(shape_.head_dim)),
                  .window = shape_.window,
                  .layout = &layout_,
                  .kv_pool = kv_pool,
                  .out_type = shape_.type},
                 kernels_);
}

}  // namespace quire::cuda
