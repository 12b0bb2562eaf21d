// SPDX-License-Identifier: Apache-2.0

// paged_attention_cuda_forward on a GPU, compared with float64.

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/paged_attention.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_under_test.h"
#include "tests/kernels/paged_attention_cases.h"

namespace quire::cuda {
namespace {

using GpuPagedAttentionTest = DeviceTest;

std::vector<char> Forward(const PagedCase& paged, Device* device) {
  const DeviceArray<char> query(device, paged.query()), keys(device, paged.keys()), values(device, paged.values());
  const DeviceArray<char> out(device, paged.out_bytes());
  PagedAttentionArgs args = paged.Args(out.data());
  const DeviceArray<int32_t> tables(device, paged.tables());
  const DeviceArray<int32_t> lens(device, std::vector<int32_t>(args.context_lens, args.context_lens + args.num_seqs));
  args.query = query.data();
  args.key_cache = keys.data();
  args.value_cache = values.data();
  args.block_tables = tables.data();
  args.context_lens = lens.data();
  device->Synchronize();  // The device's stream is not the stream of the call.
  const PagedAttentionStatus status = paged_attention_cuda_forward(args, nullptr);
  EXPECT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  return out.Download();
}

TEST_F(GpuPagedAttentionTest, IsTheAttentionOfEverySequenceOverItsBlocks) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int head_dim : {32, 64, 80, 96, 128, 256}) {
      for (const int block_size : {1, 8, 16, 32}) {
        if (device()->FindKernels(type, head_dim, block_size) == nullptr) continue;  // Too little shared memory.
        for (const auto& [num_heads, num_kv_heads] : {std::pair(4, 4), {8, 2}, {40, 1}}) {
          const PagedCase paged({.type = type,
                                 .num_heads = num_heads,
                                 .num_kv_heads = num_kv_heads,
                                 .head_dim = head_dim,
                                 .block_size = block_size,
                                 .gap = block_size == 8 ? 3 : 0},
                                {1, 37, 0, 700}, 1);
          SCOPED_TRACE(paged.Description());
          EXPECT_LT(RelativeError(Decoded(Forward(paged, device()), type), paged.Expected()),
                    PagedCase::Tolerance(type));
        }
      }
    }
  }
}

}  // namespace
}  // namespace quire::cuda
