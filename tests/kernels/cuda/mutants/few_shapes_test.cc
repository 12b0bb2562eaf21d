// SPDX-License-Identifier: Apache-2.0

// The shapes of device_attention_test.cc that a mutant's device supports.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/kernels/cuda/attention_cases.h"
#include "tests/kernels/cuda/device_attention.h"
#include "tests/kernels/cuda/device_under_test.h"

namespace quire::cuda {
namespace {

constexpr double kTolerance = 5e-3;  // Weights and outputs are rounded to bfloat16.

using FewShapesTest = DeviceTest;

TEST_F(FewShapesTest, AgreeWithFloat64) {
  int num_cases = 0;
  std::vector<AttentionCase> cases = AttentionCases();
  const std::vector<AttentionCase> int8_cases = Int8KvCases();
  cases.insert(cases.end(), int8_cases.begin(), int8_cases.end());
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(ToString(c.shape));
    if (c.shape.head_dim == 128 || c.shape.type != DataType::kBFloat16) continue;
    if (FindKernelsFor(*device(), c.shape) == nullptr) continue;
    ++num_cases;
    Random random(7);
    PagedPool pool(LayoutOf(c.shape), 700 / std::min(c.shape.block_size, 16) + 10, &random);
    std::vector<Sequence> sequences;
    const std::vector<Slice> slices = MakeSlices(c.shape, c.sequences, &sequences, &pool, &random);
    const DeviceAttentionResult result = AttendOnDevice(device(), c.shape, slices, &pool);
    EXPECT_LT(RelativeError(result.out, ReferenceAttention(c.shape, slices)), kTolerance);
  }
  EXPECT_GE(num_cases, 4);
}

}  // namespace
}  // namespace quire::cuda
