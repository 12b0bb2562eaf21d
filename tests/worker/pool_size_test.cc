// SPDX-License-Identifier: Apache-2.0

#include "worker/pool_size.h"

#include <gtest/gtest.h>

#include "base/number_text.h"
#include "base/worker_protocol.h"

namespace quire {
namespace {

// A block of 16 tokens takes 2 * 16 * 1 * 8 * 4 bytes in each of 2 layers, which is 2048 bytes.
constexpr KvLayout kLayout{
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = KvType::kFloat32};
// 2 sequences of 100 tokens can fill 2 * 7 blocks.
const WorkerLimits kLimits{.max_sequences = 2,
                           .max_tokens_per_step = 64,
                           .max_context_tokens = 100,
                           .vocab_size = 96,
                           .block_size = 16,
                           .num_blocks = 0};

TEST(PoolSizeTest, BlocksAreTakenAsGiven) {
  EXPECT_EQ(*PlanPool({.num_blocks = 5}, kLayout, kLimits, 1 << 20), 5u);
}

TEST(PoolSizeTest, BytesAreRoundedDownToBlocks) {
  EXPECT_EQ(*PlanPool({.bytes = 3 * 2048 + 2047}, kLayout, kLimits, 1 << 20), 3u);
}

TEST(PoolSizeTest, AFractionIsOfTheAvailableMemory) {
  EXPECT_EQ(*PlanPool({.memory_fraction = 0.25}, kLayout, kLimits, 2048 * 400), 100u);
}

TEST(PoolSizeTest, TheDefaultIsHalfTheMemoryButNotMoreThanTheRowsCanFill) {
  EXPECT_EQ(*PlanPool({}, kLayout, kLimits, 2048 * 20), 10u);
  EXPECT_EQ(*PlanPool({}, kLayout, kLimits, 2048 * 1000), 14u);
}

// A sequence of 100 tokens takes 7 blocks for the layers that keep all tokens. For the others it has six sheets of
// three blocks: a slice of 64 tokens with a window of 16 reads and writes 80 tokens.
TEST(PoolSizeTest, RowsFillOnlyWhatTheirWindowsKeep) {
  WorkerLimits limits = kLimits;
  limits.groups.push_back({.window_tokens = 16, .blocks_per_sheet = 3});
  EXPECT_EQ(*PlanPool({}, kLayout, limits, 2048 * 1000), 2u * (7 + 3 * 6));
}

absl::Status Refusal(const PoolRequest& request, int64_t available_bytes) {
  return PlanPool(request, kLayout, kLimits, available_bytes).status();
}

TEST(PoolSizeTest, APoolWithoutABlockSaysWhatWasAskedAndTheLeast) {
  EXPECT_EQ(Refusal({.bytes = 1024}, 1 << 20),
            absl::ResourceExhaustedError(
                "--kv-bytes is 1024 bytes (1.0 KiB), the minimum is 2048 bytes (2.0 KiB): one block of 16 tokens"));
  EXPECT_EQ(Refusal({.memory_fraction = 0.125}, 4096),
            absl::ResourceExhaustedError(
                "--memory-fraction=0.125 is 512 bytes, the minimum is 2048 bytes (2.0 KiB): one block of 16 tokens"));
  EXPECT_EQ(Refusal({}, 2048), absl::ResourceExhaustedError(
                                   "0.5 of the available memory is 1024 bytes (1.0 KiB), the minimum is 2048 bytes "
                                   "(2.0 KiB): one block of 16 tokens"));
}

TEST(PoolSizeTest, APoolBeyondTheMemoryIsRefused) {
  EXPECT_EQ(Refusal({.num_blocks = 513}, 1 << 20),
            absl::ResourceExhaustedError("--num-blocks is 513, which needs 1050624 bytes (1.0 MiB); available: "
                                         "1048576 bytes (1.0 MiB)"));
}

TEST(PoolSizeTest, NoPoolHasMoreBlocksThanAManagerAccepts) {
  const int64_t plenty = int64_t{4096} * kMaxWorkerBlocks;
  EXPECT_EQ(*PlanPool({.num_blocks = kMaxWorkerBlocks}, kLayout, kLimits, plenty), uint32_t{kMaxWorkerBlocks});
  EXPECT_EQ(*PlanPool({.memory_fraction = 1}, kLayout, kLimits, plenty), uint32_t{kMaxWorkerBlocks});
  EXPECT_EQ(Refusal({.num_blocks = kMaxWorkerBlocks + 1}, plenty).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Refusal({.bytes = plenty}, plenty),
            absl::InvalidArgumentError("--kv-bytes is 68719476736 bytes (64.0 GiB), the maximum is 34359738368 bytes "
                                       "(32.0 GiB): 16777216 blocks of 16 tokens"));
}

// 2 GiB hold 1.88 times as many blocks of int8 as of 16 bits, with heads of 64.
TEST(PoolSizeTest, Int8HoldsNearlyTwiceAsManyBlocksAs16Bits) {
  KvLayout layout = {.num_layers = 16, .num_kv_heads = 6, .head_dim = 64, .block_size = 16, .type = KvType::kBFloat16};
  const PoolRequest request = {.bytes = int64_t{2} << 30};
  EXPECT_EQ(*PlanPool(request, layout, kLimits, int64_t{4} << 30), 5461u);
  layout.type = KvType::kInt8;
  EXPECT_EQ(*PlanPool(request, layout, kLimits, int64_t{4} << 30), 10280u);
}

TEST(PoolSizeTest, AHostTierIsOfWholeBlocksAndMayBeMissing) {
  EXPECT_EQ(*PlanHostTier(0, kLayout, 1 << 20), 0u);
  EXPECT_EQ(*PlanHostTier(2 * 2048 + 2047, kLayout, 1 << 20), 2u);
  EXPECT_EQ(PlanHostTier(2047, kLayout, 1 << 20).status(),
            absl::ResourceExhaustedError(
                "--swap-bytes is 2047 bytes (2.0 KiB), the minimum is 2048 bytes (2.0 KiB): one block of 16 tokens"));
  EXPECT_EQ(PlanHostTier(4096, kLayout, 4095).status(),
            absl::ResourceExhaustedError("--swap-bytes is 4096 bytes (4.0 KiB), which needs 4096 bytes (4.0 KiB); "
                                         "available: 4095 bytes (4.0 KiB)"));
  EXPECT_EQ(PlanHostTier(int64_t{2048} * (kMaxWorkerBlocks + 1), kLayout, int64_t{1} << 50).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PoolSizeTest, TwoSizesAreRefused) {
  EXPECT_EQ(PlanPool({.num_blocks = 1, .bytes = 4096}, kLayout, kLimits, 1 << 20).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PoolSizeTest, BytesHaveSuffixes) {
  EXPECT_EQ(*ParseBytes("4096"), 4096);
  EXPECT_EQ(*ParseBytes("2KiB"), 2048);
  EXPECT_EQ(*ParseBytes("512MiB"), 512 << 20);
  EXPECT_EQ(*ParseBytes("1.5GiB"), int64_t{3} << 29);
  for (const char* bad : {"", "GiB", "12XB", "-1", "0", "nan", "1e30", "1 GB"}) {
    EXPECT_FALSE(ParseBytes(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace quire
