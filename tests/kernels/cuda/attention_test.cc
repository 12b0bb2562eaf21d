// The attention kernels of the GPU, in the emulator, against float64.

#include <gtest/gtest.h>

#include "tests/kernels/cuda/emulated_attention.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;  // Of weights and outputs that are rounded to bfloat16.

void ExpectClean(const EmulatedRun& run) {
  for (const simt::LaunchReport& report : run.reports) {
    EXPECT_TRUE(report.ok()) << report.ToString();
    EXPECT_EQ(report.counters.load_matrix_conflicts, 0);
  }
}

// Sequences of random lengths, each with its last tokens as queries.
std::vector<Slice> MakeSlices(const Shape& shape, const std::vector<std::pair<int, int>>& tokens_and_queries,
                              std::vector<Sequence>* sequences, PagedPool* pool, Random* random) {
  sequences->clear();
  for (const auto& [num_tokens, num_queries] : tokens_and_queries) {
    sequences->push_back(MakeSequence(shape, num_tokens, random));
  }
  std::vector<Slice> slices;
  for (size_t i = 0; i < sequences->size(); ++i) {
    const auto [num_tokens, num_queries] = tokens_and_queries[i];
    const Slice whole = {&(*sequences)[i], pool->MakeTable(num_tokens), 0, num_tokens};
    StoreTokens(shape, {whole}, pool);
    slices.push_back({whole.sequence, whole.table, num_tokens - num_queries, num_tokens});
  }
  return slices;
}

TEST(CudaAttentionTest, EveryShapeAgreesWithFloat64) {
  struct Case {
    Shape shape;
    std::vector<std::pair<int, int>> sequences;
  };
  const DataType bf16 = DataType::kBFloat16, f16 = DataType::kFloat16;
  const std::vector<Case> cases = {
      {{8, 2, 128, 16, bf16}, {{517, 1}, {33, 1}, {1, 1}}},  // Splits and merges.
      {{8, 2, 128, 16, f16}, {{300, 1}, {16, 1}}},
      {{4, 4, 64, 16, bf16}, {{100, 1}, {257, 1}}},  // No groups.
      {{16, 1, 64, 32, f16}, {{70, 1}}},             // One KV head, larger blocks.
      {{5, 1, 80, 16, bf16}, {{90, 1}, {17, 3}}},    // Narrow last panels.
      {{6, 2, 96, 64, bf16}, {{130, 1}, {64, 2}}},
      {{2, 1, 256, 16, bf16}, {{40, 1}}},
      {{4, 2, 64, 1, bf16}, {{37, 1}, {5, 2}}},  // Small blocks.
      {{4, 2, 128, 2, bf16}, {{37, 1}}},
      {{4, 2, 64, 4, f16}, {{37, 1}}},
      {{5, 1, 80, 8, bf16}, {{37, 1}}},
      {{6, 2, 96, 1, bf16}, {{37, 18}}},
      {{4, 2, 128, 8, bf16}, {{37, 1}}},
      {{8, 2, 64, 16, bf16}, {{150, 70}, {40, 40}}},  // Prompts.
      {{8, 2, 128, 16, f16}, {{330, 60}}},
      {{32, 1, 64, 16, bf16}, {{45, 1}}},                           // More heads than a small tile has rows.
      {{8, 2, 64, 16, bf16, 50}, {{300, 1}, {300, 40}, {20, 20}}},  // Sliding windows.
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(ToString(c.shape));
    Random random(7);
    PagedPool pool(LayoutOf(c.shape), 700 / std::min(c.shape.block_size, 16) + 10, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(c.shape, c.sequences, &sequences, &pool, &random);
    const EmulatedRun run = RunAttention(c.shape, slices, &pool);
    ExpectClean(run);
    EXPECT_LT(RelativeError(run.out, ReferenceAttention(c.shape, slices)), kTolerance);
  }
}

TEST(CudaAttentionTest, SchedulingLandingGridAndPlacementChangeNoBit) {
  for (const Shape& shape : {Shape{8, 2, 64, 16, DataType::kBFloat16}, Shape{8, 2, 64, 4, DataType::kBFloat16}}) {
    std::vector<float> expected;
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
      Random random(11), placement(seed);
      PagedPool pool(LayoutOf(shape), 200, &placement);
      std::vector<Sequence> sequences;
      const std::vector<Slice> slices = MakeSlices(shape, {{290, 1}, {90, 30}, {40, 1}}, &sequences, &pool, &random);
      const auto landing = simt::CopyLanding(seed % 3);
      const EmulatedRun run =
          RunAttention(shape, slices, &pool, {.seed = seed, .landing = landing, .num_blocks = int(seed)});
      ExpectClean(run);
      if (expected.empty()) expected = run.out;
      EXPECT_EQ(run.out, expected);
    }
  }
}

// Beams that share 34 blocks of 16: two splits of 256, and a tail that each reads for itself.
struct Beams {
  static constexpr int kSharedBlocks = 34;

  Beams(const Shape& shape, int count) : random(13), pool(LayoutOf(shape), 40 + 3 * count, &random) {
    const int num_shared = kSharedBlocks * shape.block_size;
    const Sequence parent = MakeSequence(shape, num_shared, &random);
    const std::vector<uint32_t> shared = pool.MakeTable(num_shared);
    StoreTokens(shape, {{&parent, shared, 0, num_shared}}, &pool);
    for (int i = 0; i < count; ++i) {
      Sequence beam = MakeSequence(shape, num_shared + 20 + i, &random);
      std::copy(parent.q.begin(), parent.q.end(), beam.q.begin());
      std::copy(parent.k.begin(), parent.k.end(), beam.k.begin());
      std::copy(parent.v.begin(), parent.v.end(), beam.v.begin());
      sequences.push_back(std::move(beam));
    }
    for (const Sequence& beam : sequences) {
      std::vector<uint32_t> table = shared;
      const std::vector<uint32_t> own = pool.MakeTable(beam.num_tokens - num_shared);
      table.insert(table.end(), own.begin(), own.end());
      StoreTokens(shape, {{&beam, table, num_shared, beam.num_tokens}}, &pool);
      slices.push_back({&beam, table, beam.num_tokens - 1, beam.num_tokens});
    }
  }

  Random random;
  PagedPool pool;
  std::vector<Sequence> sequences;
  std::vector<Slice> slices;
};

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

TEST(CudaAttentionTest, SharingInASmallTileChangesNoBit) {
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
