// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_WORKER_ATTENTION_H_
#define QUIRE_TESTS_KERNELS_CUDA_WORKER_ATTENTION_H_

#include <memory>

#include "kernels/cuda/attention.h"
#include "tests/kernels/attention_steps.h"
#include "tests/kernels/cuda/device_array.h"

namespace quire::cuda {

// The attention of one layer of a step as the worker launches it: the backend's CudaAttention plans it.
class WorkerAttention {
 public:
  // The batch is in host memory and must outlive this object. With `exact`, the plan is made as with --exact-gpu. With
  // `is_recorded`, the launches are the same as in decode steps, which the worker records; otherwise the same as in a
  // step that it does not record. REQUIRES: the device has kernels for the shape.
  WorkerAttention(Device* device, const Shape& shape, const BatchView& batch, bool exact, bool is_recorded);

  // Queues the kernels. q [num_tokens, q_stride], out and the pool are on the device, as in AttentionArgs. The first
  // call also copies the plan to the device, and must not be recorded.
  void Launch(const void* q, int q_stride, const void* kv_pool, void* out);

 private:
  const Shape shape_;
  const KvLayout layout_;
  const KernelTable& kernels_;
  BatchView on_device_;
  DeviceArray<int32_t> positions_, table_starts_;
  DeviceArray<uint32_t> block_tables_;
  CudaAttention attention_;
};

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_WORKER_ATTENTION_H_
