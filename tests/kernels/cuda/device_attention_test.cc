// Attention through a device, against float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/device_attention.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;  // Of weights and outputs that are rounded to bfloat16.

using DeviceAttentionTest = DeviceTest;

struct Result {
  std::vector<float> out;
  int num_prefill_items;
};

Result RunOnDevice(Device* device, const Shape& shape, const std::vector<Slice>& slices, PagedPool* pool,
                   int num_blocks = 0) {
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
                                  row_size, kv_pool.data(), reinterpret_cast<uint16_t*>(out.data()));
  attention.Launch(num_blocks);
  return {Decoded(out.Download(), shape.type), attention.num_prefill_items()};
}

TEST_F(DeviceAttentionTest, EveryShapeAgreesWithFloat64) {
  int num_cases = 0;
  for (const AttentionCase& c : AttentionCases()) {
    SCOPED_TRACE(ToString(c.shape));
    if (device()->FindKernels(c.shape.type, c.shape.head_dim, c.shape.block_size) == nullptr) continue;
    ++num_cases;
    Random random(7);
    PagedPool pool(LayoutOf(c.shape), 700 / std::min(c.shape.block_size, 16) + 10, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(c.shape, c.sequences, &sequences, &pool, &random);
    const Result result = RunOnDevice(device(), c.shape, slices, &pool);
    EXPECT_LT(RelativeError(result.out, ReferenceAttention(c.shape, slices)), kTolerance);
  }
  EXPECT_GE(num_cases, 10);
}

TEST_F(DeviceAttentionTest, GridAndPlacementChangeNoBit) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  std::vector<float> expected;
  for (const int num_blocks : {0, 1, 3}) {
    Random random(11), placement(num_blocks);
    PagedPool pool(LayoutOf(shape), 200, &placement);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(shape, {{290, 1}, {90, 30}, {40, 1}}, &sequences, &pool, &random);
    const Result result = RunOnDevice(device(), shape, slices, &pool, num_blocks);
    if (expected.empty()) expected = result.out;
    EXPECT_EQ(result.out, expected);
  }
}

TEST_F(DeviceAttentionTest, WhatBeamsShareIsReadOnceAndAgreesWithFloat64) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  Beams beams(shape, 12);  // 48 rows of a KV head.
  const Result together = RunOnDevice(device(), shape, beams.slices, &beams.pool);
  EXPECT_EQ(together.num_prefill_items, 2) << "the shared splits, once for all";
  EXPECT_LT(RelativeError(together.out, ReferenceAttention(shape, beams.slices)), kTolerance);
}

TEST_F(DeviceAttentionTest, SharingInASmallTileChangesNoBit) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  Beams beams(shape, 4);  // 16 rows.
  const Result together = RunOnDevice(device(), shape, beams.slices, &beams.pool);
  EXPECT_EQ(together.num_prefill_items, 0);
  auto row = together.out.begin();
  for (const Slice& slice : beams.slices) {
    const Result alone = RunOnDevice(device(), shape, {slice}, &beams.pool);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), row));
    row += int64_t(alone.out.size());
  }
}

}  // namespace
}  // namespace quire::cuda
