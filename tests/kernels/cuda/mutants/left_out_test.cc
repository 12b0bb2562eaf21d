// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

namespace quire::cuda {
namespace {

// kernel_mutants_test.cmake never runs this test. So the tests that it runs are not all tests of the program, and need
// not launch every kernel of a device (launched_kernels.cc).
TEST(LeftOutTest, NeverRuns) {
  FAIL() << "run the program as kernel_mutants_test.cmake does";
}

}  // namespace
}  // namespace quire::cuda
