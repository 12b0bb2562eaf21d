// SPDX-License-Identifier: Apache-2.0

// The attention kernels of the GPU, run in the emulator and compared with float64.

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/cuda/emulated_attention.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;  // Weights and outputs are rounded to bfloat16.

void ExpectClean(const EmulatedRun& run) {
  for (const simt::LaunchReport& report : run.reports) {
    EXPECT_TRUE(report.ok()) << report.ToString();
    EXPECT_EQ(report.counters.load_matrix_conflicts, 0);
  }
}

// Runs a case, and returns how many items the kernel for compute capability 9.0 has taken.
int ExpectAgreesWithFloat64(const AttentionCase& c, bool is_sm90) {
  SCOPED_TRACE(ToString(c.shape));
  Random random(7);
  PagedPool pool(LayoutOf(c.shape), 700 / std::min(c.shape.block_size, 16) + 10, &random);
  std::vector<Sequence> sequences;
  const std::vector<Slice> slices = MakeSlices(c.shape, c.sequences, &sequences, &pool, &random);
  const EmulatedRun run = RunAttention(c.shape, slices, &pool, {.is_sm90 = is_sm90});
  ExpectClean(run);
  EXPECT_LT(RelativeError(run.out, ReferenceAttention(c.shape, slices)), kTolerance);
  return run.num_sm90_items;
}

TEST(CudaAttentionTest, EveryShapeAgreesWithFloat64) {
  for (const AttentionCase& c : AttentionCases()) ExpectAgreesWithFloat64(c, /*is_sm90=*/false);
}

// All of the pool that is not stored is NaN, also the scales behind the end of a sequence.
TEST(CudaAttentionTest, Int8KvAgreesWithFloat64) {
  for (const AttentionCase& c : Int8KvCases()) {
    EXPECT_EQ(ExpectAgreesWithFloat64(c, /*is_sm90=*/false), 0);
    // Group size times queries is the number of rows, and attention_prefill takes up to 64.
    const bool has_long_items =
        (c.shape.head_dim == 64 || c.shape.head_dim == 128) && c.shape.softcap == 0 &&
        std::any_of(c.sequences.begin(), c.sequences.end(), [&](const auto& tokens_and_queries) {
          return tokens_and_queries.second * c.shape.num_heads / c.shape.num_kv_heads > 64;
        });
    EXPECT_EQ(ExpectAgreesWithFloat64(c, /*is_sm90=*/true) > 0, has_long_items);
  }
}

TEST(CudaAttentionTest, LongItemsAgreeWithFloat64OnComputeCapability90) {
  const DataType bf16 = DataType::kBFloat16, f16 = DataType::kFloat16;
  const AttentionCase cases[] = {
      {{8, 2, 64, 16, bf16}, {{150, 70}, {40, 40}}},      // Ends within a tile, and in the first tile.
      {{8, 2, 128, 16, bf16}, {{330, 60}}},               // Two splits.
      {{8, 2, 128, 32, f16}, {{256, 33}}},                // Ends with a tile.
      {{4, 4, 64, 32, f16}, {{257, 100}}},                // No groups.
      {{8, 2, 64, 16, bf16, 50}, {{300, 40}, {20, 20}}},  // Sliding windows.
  };
  for (AttentionCase c : cases) {
    EXPECT_GT(ExpectAgreesWithFloat64(c, /*is_sm90=*/true), 0);
    c.shape.int8_kv = true;
    EXPECT_GT(ExpectAgreesWithFloat64(c, /*is_sm90=*/true), 0);
  }
}

TEST(CudaAttentionTest, SchedulingLandingGridAndPlacementChangeNoBit) {
  const DataType type = DataType::kBFloat16;
  const std::pair<Shape, bool> shapes_and_sm90[] = {
      {{8, 2, 64, 16, type}, false},          {{8, 2, 64, 4, type}, false},
      {{8, 2, 64, 16, type, 0, true}, false}, {{5, 1, 80, 16, type, 0, true}, false},
      {{8, 2, 64, 16, type}, true},           {{8, 2, 128, 16, type}, true},
      {{8, 2, 64, 16, type, 0, true}, true},  {{8, 2, 128, 16, type, 0, true}, true}};
  for (const auto& [shape, is_sm90] : shapes_and_sm90) {
    std::vector<float> expected;
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
      Random random(11), placement(seed);
      PagedPool pool(LayoutOf(shape), 200, &placement);
      std::vector<Sequence> sequences;
      const std::vector<Slice> slices =
          MakeSlices(shape, {{290, 1}, {290, 60}, {90, 30}, {40, 1}}, &sequences, &pool, &random);
      const auto landing = simt::CopyLanding(seed % 3);
      const EmulatedRun run = RunAttention(
          shape, slices, &pool, {.seed = seed, .landing = landing, .num_blocks = int(seed), .is_sm90 = is_sm90});
      ExpectClean(run);
      EXPECT_EQ(run.num_sm90_items > 0, is_sm90);
      if (expected.empty()) expected = run.out;
      EXPECT_EQ(run.out, expected);
    }
  }
}

TEST(CudaAttentionTest, WhatManyBeamsShareIsReadOnce) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  Beams beams(shape, 12);  // 48 rows of a KV head.
  const EmulatedRun together = RunAttention(shape, beams.slices, &beams.pool);
  ExpectClean(together);
  EXPECT_EQ(together.num_prefill_items, 2) << "the shared splits, once for all";
  EXPECT_LT(RelativeError(together.out, ReferenceAttention(shape, beams.slices)), kTolerance);
  int64_t bytes_alone = 0, bytes_together = 0;
  for (const simt::LaunchReport& report : together.reports) bytes_together += report.counters.global_bytes_read;
  for (const Slice& slice : beams.slices) {
    const EmulatedRun alone = RunAttention(shape, {slice}, &beams.pool);
    for (const simt::LaunchReport& report : alone.reports) bytes_alone += report.counters.global_bytes_read;
  }
  EXPECT_LT(3 * bytes_together, bytes_alone) << "K and V fivefold, less what partial results cost";
}

TEST(CudaAttentionTest, FewBeamsGiveTheSameBitsTogetherAndAlone) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  Beams beams(shape, 4);  // 16 rows.
  const EmulatedRun together = RunAttention(shape, beams.slices, &beams.pool);
  ExpectClean(together);
  EXPECT_EQ(together.num_prefill_items, 0);
  auto row = together.out.begin();
  for (const Slice& slice : beams.slices) {
    const EmulatedRun alone = RunAttention(shape, {slice}, &beams.pool);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), row));
    row += int64_t(alone.out.size());
  }
}

}  // namespace
}  // namespace quire::cuda
