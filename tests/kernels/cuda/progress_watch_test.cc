// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/progress_watch.h"

#include <gtest/gtest.h>

namespace quire::cuda {
namespace {

using std::chrono::seconds;

class ProgressWatchTest : public testing::Test {
 protected:
  static ProgressWatch::Clock::time_point At(int second) { return ProgressWatch::Clock::time_point(seconds(second)); }

  ProgressWatch watch_{seconds(45)};
};

TEST_F(ProgressWatchTest, TheTimeCountsFromTheMarkAndNotFromTheFirstLook) {
  watch_.Add(7, At(1000));
  EXPECT_FALSE(watch_.Hangs(7, At(1000)));
  EXPECT_FALSE(watch_.Hangs(7, At(1045)));
  EXPECT_TRUE(watch_.Hangs(7, At(1046)));
}

TEST_F(ProgressWatchTest, AnotherMarkThatIsDoneIsProgress) {
  watch_.Add(7, At(1000));
  watch_.Add(8, At(1001));
  watch_.SetDone(At(1040));
  EXPECT_FALSE(watch_.Hangs(8, At(1085)));
  EXPECT_TRUE(watch_.Hangs(8, At(1086)));
}

TEST_F(ProgressWatchTest, TimeWithoutWorkDoesNotCount) {
  watch_.Add(7, At(1000));
  EXPECT_FALSE(watch_.Hangs(7, At(1001))) << "nobody asks again";
  watch_.Add(8, At(5000));
  EXPECT_FALSE(watch_.Hangs(8, At(5045)));
  EXPECT_TRUE(watch_.Hangs(8, At(5046)));
}

}  // namespace
}  // namespace quire::cuda
