// SPDX-License-Identifier: Apache-2.0

// The steps of paged_attention_cuda_forward on the emulated device, compared with float64.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "kernels/cuda/emulated_device.h"
#include "kernels/cuda/emulated_entry.h"
#include "kernels/cuda/paged_attention_run.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/paged_attention_cases.h"

namespace quire::cuda {
namespace {

using testing::HasSubstr;

Kernel<RepackBlocksArgs> RepackKernel() {
  return {.entry = EmulatedEntry::Of<RepackBlocksKernel>(),
          .num_threads = RepackBlocksKernel::kThreads,
          .shared_bytes = RepackBlocksKernel::kSharedBytes};
}

struct Result {
  PagedAttentionStatus status;
  std::vector<char> out;
};

// Runs with all arrays on the device. `misaligned` elements precede the query and the caches.
Result Forward(const PagedCase& paged, int misaligned = 0, void (*change)(PagedAttentionArgs*) = nullptr) {
  EmulatedDevice device;
  const auto upload = [&](const std::vector<char>& values) {
    std::vector<char> shifted(2 * misaligned, 0);
    shifted.insert(shifted.end(), values.begin(), values.end());
    return std::make_unique<DeviceArray<char>>(&device, shifted);
  };
  const auto query = upload(paged.query()), keys = upload(paged.keys()), values = upload(paged.values());
  DeviceArray<char> out(&device, paged.out_bytes());
  out.Upload({char(0x5a)});
  PagedAttentionArgs args = paged.Args(out.data());
  const DeviceArray<int32_t> tables(&device, paged.tables());
  const DeviceArray<int32_t> lens(&device, std::vector<int32_t>(args.context_lens, args.context_lens + args.num_seqs));
  args.query = query->data() + 2 * misaligned;
  args.key_cache = keys->data() + 2 * misaligned;
  args.value_cache = values->data() + 2 * misaligned;
  args.block_tables = tables.data();
  args.context_lens = lens.data();
  if (change != nullptr) change(&args);
  Result result;
  result.status = PagedAttentionRun<EmulatedDevice>(args, RepackKernel(), &device).Run();
  result.out = out.Download();
  return result;
}

void ExpectClose(const PagedCase& paged, int misaligned = 0) {
  SCOPED_TRACE(paged.Description());
  const Result result = Forward(paged, misaligned);
  EXPECT_TRUE(result.status.ok()) << result.status.message;
  const DataType type = paged.shape().type;
  EXPECT_LT(RelativeError(Decoded(result.out, type), paged.Expected()), PagedCase::Tolerance(type));
}

TEST(CudaPagedAttentionTest, IsTheAttentionOfEverySequenceOverItsBlocks) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    for (const int head_dim : {32, 64, 128}) {
      for (const int block_size : {1, 8, 16, 32}) {
        ExpectClose(PagedCase({.type = type, .head_dim = head_dim, .block_size = block_size}, {1, 37, 0, 70}, 1));
      }
    }
  }
}

// Groups of up to 16 heads use the decode kernels, groups of up to 64 heads the prefill kernels. Both have several
// splits with merges.
TEST(CudaPagedAttentionTest, QueryHeadsShareKvHeads) {
  for (const auto& [num_heads, num_kv_heads] : {std::pair(4, 4), {8, 2}, {6, 1}, {40, 1}}) {
    ExpectClose(
        PagedCase({.type = DataType::kBFloat16, .num_heads = num_heads, .num_kv_heads = num_kv_heads}, {33, 600}, 2));
  }
}

TEST(CudaPagedAttentionTest, SequencesMayShareBlocks) {
  PagedCase paged({.type = DataType::kFloat16, .block_size = 16}, {600, 590, 40}, 3);
  for (int i = 0; i < 33; ++i) paged.Table(1)[i] = paged.Table(0)[i];
  for (int i = 0; i < 3; ++i) paged.Table(2)[i] = paged.Table(0)[i];
  ExpectClose(paged);
}

TEST(CudaPagedAttentionTest, ArraysMayHaveGapsAndAnyAlignment) {
  const std::vector<int> lens = {70, 0, 300, 1};
  const std::vector<char> expected = Forward(PagedCase({.type = DataType::kBFloat16}, lens, 4)).out;
  for (const int gap : {1, 2, 8}) {
    for (const int misaligned : {0, 1, 8}) {
      const PagedCase other({.type = DataType::kBFloat16, .gap = gap, .placement_seed = 5}, lens, 4);
      EXPECT_EQ(Forward(other, misaligned).out, expected) << gap << ", " << misaligned;
    }
  }
}

TEST(CudaPagedAttentionTest, NoSequencesAreNoWork) {
  ExpectClose(PagedCase({.type = DataType::kBFloat16}, {}, 6));
  ExpectClose(PagedCase({.type = DataType::kBFloat16}, {0, 0}, 6));
}

TEST(CudaPagedAttentionTest, MistakesAreNamedWithTheirLimit) {
  const struct {
    void (*change)(PagedAttentionArgs*);
    const char* message;
  } mistakes[] = {
      {[](PagedAttentionArgs* args) { args->type = DataType::kFloat32; }, "query is float32, must be bfloat16 or"},
      {[](PagedAttentionArgs* args) { args->head_dim = 48; }, "head_dim is 48, must be 32, 64, 80, 96, 128 or 256"},
      {[](PagedAttentionArgs* args) { args->num_heads = 200; },
       "num_heads is 200, must be at most 64 times num_kv_heads 2 on a GPU"},
      {[](PagedAttentionArgs* args) { args->scale = 0; }, "scale is 0.000000, must be positive on a GPU"},
      {[](PagedAttentionArgs* args) { args->scale = -0.5; }, "scale is -0.500000, must be positive on a GPU"},
      {[](PagedAttentionArgs* args) { args->max_context_len = 39; }, "context_lens[1] is 40, above max_context_len 39"},
      {[](PagedAttentionArgs* args) { args->num_blocks = 1; }, "must be in [0, 1), the blocks of key_cache"},
  };
  for (const auto& mistake : mistakes) {
    const Result result = Forward(PagedCase({.type = DataType::kBFloat16}, {30, 40}, 7), 0, mistake.change);
    EXPECT_EQ(result.status.code, PagedAttentionStatus::kInvalidArgument) << mistake.message;
    EXPECT_THAT(result.status.message, HasSubstr(mistake.message));
    EXPECT_EQ(std::count(result.out.begin(), result.out.end(), char(0x5a)), std::ptrdiff_t(result.out.size()));
  }
}

}  // namespace
}  // namespace quire::cuda
