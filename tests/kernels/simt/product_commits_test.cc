// SPDX-License-Identifier: Apache-2.0

// Products of warp groups in several commits, which are waited for one by one.

#include <cmath>
#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/simt/launch.h"
#include "kernels/simt/simt_sm90.h"
#include "tests/kernels/simt/report_test_util.h"

namespace quire::simt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr CopyLanding kAllLandings[] = {CopyLanding::kLate, CopyLanding::kImmediate, CopyLanding::kRandom};
constexpr int kMatrixBytes = 128 * 128;

// Fills shared memory with bfloat16 ones.
void StoreOnes(int bytes) {
  for (int i = ThreadIndex(); i < bytes / 4; i += 128) StoreShared(&Words()[i], PackBf16(1, 1));
  FenceAsyncProxy();
  SyncBlock();
}

// A group multiplies two matrices of ones, each in a commit of its own, and waits for the first one. Then it stores
// over the matrix `overwritten`.
std::vector<ProblemKind> KindsOfTwoCommits(int overwritten, CopyLanding landing) {
  const LaunchConfig config = {.num_threads = 128, .shared_bytes = 2 * kMatrixBytes, .landing = landing};
  return KindsOf(config, [&] {
    StoreOnes(2 * kMatrixBytes);
    float d[2][16][4] = {};
    const uint32_t ones = PackBf16(1, 1), rows[4] = {ones, ones, ones, ones};
    for (int i = 0; i < 2; ++i) {
      BeginProducts(d[i]);
      MultiplyRowsBf16(d[i], rows, MatrixDescriptor(SharedMemory() + i * kMatrixBytes, kMatrixBytes / 2));
      CommitProducts();
    }
    WaitForProducts<1>(d[0]);
    EXPECT_EQ(d[0][0][0], 16);
    EXPECT_EQ(std::isnan(d[1][0][0]), landing != CopyLanding::kImmediate) << "the second commit is in flight";
    SyncWarpGroup();
    StoreShared(&Words()[overwritten * kMatrixBytes / 4 + ThreadIndex()], 0);
    WaitForProducts(d[1]);
    EXPECT_EQ(d[1][0][0], 16);
  });
}

TEST(ProductCommitsTest, AWaitLeavesTheLatestCommitsInFlight) {
  for (const CopyLanding landing : kAllLandings) {
    EXPECT_THAT(KindsOfTwoCommits(0, landing), IsEmpty());
    EXPECT_THAT(KindsOfTwoCommits(1, landing), ElementsAre(ProblemKind::kSharedRace));
  }
}

// Two commits add to the same accumulators. They are valid when the second one is done.
TEST(ProductCommitsTest, CommitsCanAddToTheSameAccumulators) {
  const LaunchReport report = Launch({.num_threads = 128, .shared_bytes = kMatrixBytes}, [] {
    StoreOnes(kMatrixBytes);
    float d[8][4] = {};
    const uint32_t ones = PackBf16(1, 1), rows[4] = {ones, ones, ones, ones};
    BeginProducts(d);
    for (int i = 0; i < 2; ++i) {
      MultiplyRowsBf16(d, rows, MatrixDescriptor(SharedMemory(), kMatrixBytes));
      CommitProducts();
    }
    WaitForProducts<1>(d);
    EXPECT_TRUE(std::isnan(d[0][0]));
    WaitForProducts(d);
    EXPECT_EQ(d[0][0], 32);
  });
  EXPECT_TRUE(report.ok()) << report.ToString();
}

}  // namespace
}  // namespace quire::simt
