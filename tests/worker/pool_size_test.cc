#include "worker/pool_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::HasSubstr;

// A block of 16 tokens takes 2 * 16 * 1 * 8 * 4 bytes in each of 2 layers: 2048.
constexpr KvLayout kLayout{
    .num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_size = 16, .type = DataType::kFloat32};
// 2 sequences of 100 tokens can fill 2 * 7 blocks.
constexpr WorkerLimits kLimits{.max_sequences = 2,
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

TEST(PoolSizeTest, APoolWithoutABlockSaysWhatABlockNeeds) {
  const absl::Status status = PlanPool({.bytes = 2047}, kLayout, kLimits, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a block of 16 tokens needs 2.0 KiB, available are 1.0 MiB"));
}

TEST(PoolSizeTest, APoolBeyondTheMemoryIsRefused) {
  const absl::Status status = PlanPool({.num_blocks = 513}, kLayout, kLimits, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a KV pool of 513 blocks needs 1.0 MiB, available are 1.0 MiB"));
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
