// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KERNELS_CUDA_DEVICE_ATTENTION_H_
#define QUIRE_TESTS_KERNELS_CUDA_DEVICE_ATTENTION_H_

#include <memory>
#include <vector>

#include "kernels/cuda/attention_launches.h"
#include "tests/kernels/attention_steps.h"
#include "tests/kernels/cuda/device_array.h"

namespace quire::cuda {

// Returns the kernels for the shape, or null if the device has none.
inline const KernelTable* FindKernelsFor(const Device& device, const Shape& shape) {
  const KernelTable* const table = device.FindKernels(shape.type, shape.head_dim, shape.block_size);
  return table != nullptr && shape.int8_kv ? table->int8_kv : table;
}

// The attention of a step on a device. It is planned and uploaded once and can then be launched any number of times.
class DeviceAttention {
 public:
  // q and out are as in AttentionArgs, and kv_pool is the pool of one layer. All are on the device; the batch is on the
  // host.
  // Without `cuts_items` an item has all tokens that its rows see; otherwise it ends at the next split.
  // REQUIRES: the device has kernels for the shape.
  DeviceAttention(Device* device, const Shape& shape, const BatchView& batch, const uint16_t* q, int q_stride,
                  const char* kv_pool, uint16_t* out, bool cuts_items = true);

  // Queues the kernels. The grids have `num_blocks` thread blocks; 0 means one for each piece of work.
  void Launch(int num_blocks = 0) const;
  void set_kv_pool(const char* kv_pool) { args_.kv_pool = kv_pool; }

  int num_prefill_items() const { return num_prefill_items_; }

 private:
  Device* const device_;
  AttentionArgs args_{};
  const KernelTable* kernels_ = nullptr;
  int num_prefill_items_ = 0;
  std::vector<AttentionLaunch> launches_;
  std::unique_ptr<DeviceArray<int32_t>> positions_, table_starts_, tokens_, ranges_;
  std::unique_ptr<DeviceArray<uint32_t>> block_tables_;
  std::unique_ptr<DeviceArray<AttentionItem>> items_;
  std::unique_ptr<DeviceArray<AttentionMerge>> merges_;
  std::unique_ptr<DeviceArray<PartialPlace>> places_;
  std::unique_ptr<DeviceArray<SoftmaxState>> states_;
  std::unique_ptr<DeviceArray<float>> values_;
};

struct DeviceAttentionResult {
  std::vector<float> out;  // [num_tokens, num_heads * head_dim]
  int num_prefill_items;
};

// Runs attention once, with inputs and result in host memory.
DeviceAttentionResult AttendOnDevice(Device* device, const Shape& shape, const std::vector<Slice>& slices,
                                     PagedPool* pool, int num_blocks = 0, bool cuts_items = true);

}  // namespace quire::cuda

#endif  // QUIRE_TESTS_KERNELS_CUDA_DEVICE_ATTENTION_H_
