// SPDX-License-Identifier: Apache-2.0

// Attention through a device, compared with float64.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/device_attention.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;  // The softmax weights and the outputs are rounded to 16 bits.

using DeviceAttentionTest = DeviceTest;

void ExpectFloat64(Device* device, const AttentionCase& c) {
  SCOPED_TRACE(ToString(c.shape));
  Random random(7);
  int num_tokens = 0;
  for (const auto& [context_len, num_queries] : c.sequences) num_tokens += context_len;
  num_tokens = std::max(num_tokens, 700);
  PagedPool pool(LayoutOf(c.shape), num_tokens / std::min(c.shape.block_size, 16) + 10, &random);
  std::vector<Sequence> sequences;
  const std::vector<Slice> slices = MakeSlices(c.shape, c.sequences, &sequences, &pool, &random);
  const DeviceAttentionResult result = AttendOnDevice(device, c.shape, slices, &pool);
  EXPECT_LT(RelativeError(result.out, ReferenceAttention(c.shape, slices)), kTolerance);
}

TEST_F(DeviceAttentionTest, EveryShapeAgreesWithFloat64) {
  int num_cases = 0;
  for (const AttentionCase& c : AttentionCases()) {
    if (device()->FindKernels(c.shape.type, c.shape.head_dim, c.shape.block_size) == nullptr) continue;
    ++num_cases;
    ExpectFloat64(device(), c);
  }
  EXPECT_GE(num_cases, 10);
}

TEST_F(DeviceAttentionTest, Int8KvAgreesWithFloat64) {
  for (const AttentionCase& c : Int8KvCases()) {
    if (FindKernelsFor(*device(), c.shape) != nullptr) ExpectFloat64(device(), c);
  }
}

// Each case has a decode over two splits, whose results are merged, and two prompts. The first prompt has too many
// queries for the decode kernel, and the second one has enough that compute capability 9.0
// has another kernel for them.
TEST_F(DeviceAttentionTest, EveryKernelTableAgreesWithFloat64) {
  ForEachTable(*device(), [&](DataType element, int head_dim, int block_size, const KernelTable& kernels) {
    AttentionCase c = {{4, 2, head_dim, block_size, element}, {{270, 1}, {30, 20}, {50, 40}}};
    ExpectFloat64(device(), c);
    c.shape.int8_kv = true;
    if (kernels.int8_kv != nullptr) ExpectFloat64(device(), c);
  });
}

// An item of eleven tiles of attention_prefill_sm90, and then a short one in the same block: the rings of buffers are
// used several times without a barrier of the block.
TEST_F(DeviceAttentionTest, ItemsOfManyTilesAgreeWithFloat64) {
  for (const bool int8_kv : {false, true}) {
    const Shape shape = {4, 1, 64, 16, DataType::kBFloat16, 0, int8_kv};
    if (FindKernelsFor(*device(), shape) == nullptr) continue;
    SCOPED_TRACE(ToString(shape));
    Random random(29);
    PagedPool pool(LayoutOf(shape), 100, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(shape, {{1350, 32}, {120, 30}}, &sequences, &pool, &random);
    const DeviceAttentionResult result = AttendOnDevice(device(), shape, slices, &pool, /*num_blocks=*/1,
                                                        /*cuts_items=*/false);
    EXPECT_LT(RelativeError(result.out, ReferenceAttention(shape, slices)), kTolerance);
  }
}

// More partial results than the merge loads at once, also with heads whose rows do not fill the threads of a block
// evenly.
TEST_F(DeviceAttentionTest, ManyPartialResultsAgreeWithFloat64) {
  for (const int head_dim : {64, 80}) {
    const int num_splits = head_dim == 64 ? 19 : 33;  // The merge finds 8 or 16 partial results of a row at once.
    const AttentionCase c = {{4, 2, head_dim, 16, DataType::kBFloat16}, {{num_splits * 256 + 5, 1}, {8 * 256, 1}}};
    if (device()->FindKernels(c.shape.type, head_dim, c.shape.block_size) == nullptr) continue;
    ExpectFloat64(device(), c);
  }
}

// The first split has scores that are larger than all others by more than the exponents of float32, and partial results
// are joined in several groups.
TEST_F(DeviceAttentionTest, ScoresThatShrinkFromSplitToSplitAgreeWithFloat64) {
  const Shape shape = {4, 2, 64, 16, DataType::kBFloat16};
  Random random(17);
  PagedPool pool(LayoutOf(shape), 170, &random);
  std::vector<Sequence> sequences;
  const std::vector<Slice> slices = MakeSlices(shape, {{10 * 256, 1}}, &sequences, &pool, &random);
  const size_t row_size = sequences[0].k.size() / sequences[0].num_tokens;
  for (size_t at = 0; at < 256 * row_size; ++at) sequences[0].k[at] *= 128;
  StoreTokens(shape, {{&sequences[0], slices[0].table, 0, sequences[0].num_tokens}}, &pool);
  const DeviceAttentionResult result = AttendOnDevice(device(), shape, slices, &pool);
  EXPECT_LT(RelativeError(result.out, ReferenceAttention(shape, slices)), kTolerance);
}

// A NaN in K must not turn into an ordinary number inside the kernels, because then nobody would notice it.
TEST_F(DeviceAttentionTest, NanInKGivesNanInTheOutput) {
  for (const bool int8_kv : {false, true}) {
    const Shape shape = {8, 2, 64, 16, DataType::kBFloat16, 0, int8_kv};
    if (FindKernelsFor(*device(), shape) == nullptr) continue;
    SCOPED_TRACE(ToString(shape));
    const int row_size = shape.num_heads * shape.head_dim, kv_row_size = shape.num_kv_heads * shape.head_dim;
    Random random(13);
    PagedPool pool(LayoutOf(shape), 60, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(shape, {{300, 1}, {90, 30}, {40, 1}}, &sequences, &pool, &random);
    for (const int spoiled : {0, 1}) {  // Token 5, the first KV head.
      sequences[spoiled].k[5 * kv_row_size] = std::numeric_limits<float>::quiet_NaN();
      StoreTokens(shape, {{&sequences[spoiled], slices[spoiled].table, 0, sequences[spoiled].num_tokens}}, &pool);
    }
    const std::vector<float> out = AttendOnDevice(device(), shape, slices, &pool).out;
    for (int row = 0; row < 32; ++row) {
      SCOPED_TRACE(row);
      const float* const first_group = &out[size_t(row) * row_size];
      EXPECT_EQ(std::isnan(first_group[0]), row < 31) << "the last sequence contains no NaN";
      EXPECT_FALSE(std::isnan(first_group[row_size / 2]))
          << "query heads that read the other KV head must not get the NaN";
    }
  }
}

// With int8, the V of a token is NaN by its scale alone. Rows that see the token get it even where its weight is 0, and
// rows before the token do not.
TEST_F(DeviceAttentionTest, NanInVOfInt8IsSeenByTheRowsThatSeeTheToken) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16, 0, /*int8_kv=*/true};
  if (FindKernelsFor(*device(), shape) == nullptr) GTEST_SKIP();
  constexpr int kTokens = 40, kSpoiled = 25;
  const int row_size = shape.num_heads * shape.head_dim, kv_row_size = shape.num_kv_heads * shape.head_dim;
  for (const float weight_of_others : {1.0f, 1000.0f}) {
    Random random(19);
    PagedPool pool(LayoutOf(shape), 20, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(shape, {{kTokens, kTokens}}, &sequences, &pool, &random);
    for (float& k : sequences[0].k) k *= weight_of_others;
    std::fill_n(sequences[0].k.begin() + kSpoiled * kv_row_size, kv_row_size, 0.0f);
    sequences[0].v[kSpoiled * kv_row_size + 3] = std::numeric_limits<float>::infinity();
    StoreTokens(shape, {{&sequences[0], slices[0].table, 0, kTokens}}, &pool);
    const std::vector<float> out = AttendOnDevice(device(), shape, slices, &pool).out;
    for (int row = 0; row < kTokens; ++row) {
      SCOPED_TRACE(row);
      for (int d = 0; d < row_size / 2; ++d) ASSERT_EQ(std::isnan(out[row * row_size + d]), row >= kSpoiled);
      for (int d = row_size / 2; d < row_size; ++d) ASSERT_FALSE(std::isnan(out[row * row_size + d]));
    }
  }
}

// Scales of V from 10^-4 to 10^4: the weights times the scales do not fit into float16.
TEST_F(DeviceAttentionTest, Int8KvOfManyMagnitudesAgreesWithFloat64) {
  for (const DataType type : {DataType::kBFloat16, DataType::kFloat16}) {
    const Shape shape = {8, 2, 64, 16, type, 0, /*int8_kv=*/true};
    if (FindKernelsFor(*device(), shape) == nullptr) continue;
    SCOPED_TRACE(Name(type));
    for (const float magnitude : {1e-4f, 1e4f}) {
      Random random(23);
      PagedPool pool(LayoutOf(shape), 60, &random);
      std::vector<Sequence> sequences;
      const std::vector<Slice> slices = MakeSlices(shape, {{300, 1}, {90, 30}}, &sequences, &pool, &random);
      for (int i = 0; i < 2; ++i) {
        for (float& v : sequences[i].v) v *= magnitude;
        StoreTokens(shape, {{&sequences[i], slices[i].table, 0, sequences[i].num_tokens}}, &pool);
      }
      EXPECT_LT(RelativeError(AttendOnDevice(device(), shape, slices, &pool).out, ReferenceAttention(shape, slices)),
                kTolerance);
    }
  }
}

// The last sequence has items of two tiles of attention_prefill_sm90. Several of them in one block reuse its buffers.
TEST_F(DeviceAttentionTest, GridAndPlacementChangeNoBit) {
  for (const bool int8_kv : {false, true}) {
    const Shape shape = {8, 2, 64, 16, DataType::kBFloat16, 0, int8_kv};
    if (FindKernelsFor(*device(), shape) == nullptr) continue;
    SCOPED_TRACE(ToString(shape));
    std::vector<float> expected;
    for (const int num_blocks : {0, 1, 3}) {
      Random random(11), placement(num_blocks);
      PagedPool pool(LayoutOf(shape), 200, &placement);
      std::vector<Sequence> sequences;
      const std::vector<Slice> slices =
          MakeSlices(shape, {{290, 1}, {90, 30}, {40, 1}, {50, 20}, {300, 40}}, &sequences, &pool, &random);
      const DeviceAttentionResult result = AttendOnDevice(device(), shape, slices, &pool, num_blocks);
      if (expected.empty()) expected = result.out;
      EXPECT_EQ(result.out, expected);
    }
  }
}

TEST_F(DeviceAttentionTest, SplitsThatBeamsShareAreReadOnce) {
  for (const bool int8_kv : {false, true}) {
    const Shape shape = {8, 2, 64, 16, DataType::kBFloat16, 0, int8_kv};
    if (FindKernelsFor(*device(), shape) == nullptr) continue;
    SCOPED_TRACE(ToString(shape));
    Beams beams(shape, 12);  // With 4 query heads for each KV head, these are 48 queries.
    const DeviceAttentionResult together = AttendOnDevice(device(), shape, beams.slices, &beams.pool);
    EXPECT_EQ(together.num_prefill_items, 2) << "one item for each shared split, for all beams together";
    EXPECT_LT(RelativeError(together.out, ReferenceAttention(shape, beams.slices)), kTolerance);
  }
}

// Each beam has 8 new tokens, which are 32 query rows with 4 query heads for each KV head. The shared splits are work
// items of their own, and the last work item of each beam begins after them. Blocks have 32 tokens here, because the
// kernels copy K and V in units of 16 tokens and must also find the second unit of a block.
TEST_F(DeviceAttentionTest, QueriesBehindACommonBeginningAgreeWithFloat64) {
  const Shape shape = {8, 2, 64, 32, DataType::kBFloat16};
  Beams beams(shape, 2);
  for (Slice& slice : beams.slices) slice.begin = slice.end - 8;
  const DeviceAttentionResult result = AttendOnDevice(device(), shape, beams.slices, &beams.pool);
  EXPECT_EQ(result.num_prefill_items, 6) << "four items for the shared splits, and one for the rest of each beam";
  EXPECT_LT(RelativeError(result.out, ReferenceAttention(shape, beams.slices)), kTolerance);
}

// The queries of all beams fit into one tile of 16 rows, so the decode kernel computes them.
TEST_F(DeviceAttentionTest, FewBeamsGiveTheSameBitsTogetherAndAlone) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  Beams beams(shape, 4);
  const DeviceAttentionResult together = AttendOnDevice(device(), shape, beams.slices, &beams.pool);
  EXPECT_EQ(together.num_prefill_items, 0);
  auto row = together.out.begin();
  for (const Slice& slice : beams.slices) {
    const DeviceAttentionResult alone = AttendOnDevice(device(), shape, {slice}, &beams.pool);
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), row));
    row += int64_t(alone.out.size());
  }
}

// The scores grow so much from tile to tile that the kernels must rescale the sums of earlier tiles. Some rows need
// this and others do not, because the kernels ignore growth below kSlack.
TEST_F(DeviceAttentionTest, GrowingScoresAgreeWithFloat64) {
  const Shape shape = {8, 2, 64, 16, DataType::kBFloat16};
  // With 4 query heads for each KV head, these are 16, 48 and 96 queries, for which there are three kernels.
  for (const int num_beams : {4, 12, 24}) {
    SCOPED_TRACE(num_beams);
    Beams beams(shape, num_beams);
    for (int i = 0; i < num_beams; ++i) {
      Sequence& beam = beams.sequences[i];
      const size_t row_size = beam.k.size() / beam.num_tokens;
      for (size_t at = 0; at < beam.k.size(); ++at) beam.k[at] *= 1 + float(at / row_size) / 8;
      StoreTokens(shape, {{&beam, beams.slices[i].table, 0, beam.num_tokens}}, &beams.pool);
    }
    const DeviceAttentionResult together = AttendOnDevice(device(), shape, beams.slices, &beams.pool);
    EXPECT_LT(RelativeError(together.out, ReferenceAttention(shape, beams.slices)), kTolerance);
    if (together.num_prefill_items > 0) continue;
    auto row = together.out.begin();
    for (const Slice& slice : beams.slices) {
      const DeviceAttentionResult alone = AttendOnDevice(device(), shape, {slice}, &beams.pool);
      EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), row)) << "scaling one row changes no bit of others";
      row += int64_t(alone.out.size());
    }
  }
}

}  // namespace
}  // namespace quire::cuda
