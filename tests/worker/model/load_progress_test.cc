// SPDX-License-Identifier: Apache-2.0

#include "worker/model/load_progress.h"

#include <algorithm>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000;

// Returns what is logged when `bytes` are read after `seconds`.
std::string LogOf(LoadProgress* progress, ManualClock* clock, int64_t seconds, int64_t bytes) {
  clock->Advance(seconds * kSecond);
  testing::internal::CaptureStderr();
  progress->Add(bytes);
  return testing::internal::GetCapturedStderr();
}

TEST(LoadProgressTest, EveryTenthAndEveryTenSecondsHaveALine) {
  ManualClock clock;
  LoadProgress progress(&clock);
  testing::internal::CaptureStderr();
  progress.Begin("/models/tales", 2, 2'000'000'000);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("loading /models/tales: 1.9 GiB of weights in 2 files\n"));
  EXPECT_EQ(LogOf(&progress, &clock, 2, 100'000'000), "");
  EXPECT_THAT(LogOf(&progress, &clock, 2, 100'000'000),
              HasSubstr("loading /models/tales: 10 % of 1.9 GiB after 4.0 s\n"));
  EXPECT_EQ(LogOf(&progress, &clock, 9, 1'000'000), "");
  EXPECT_THAT(LogOf(&progress, &clock, 1, 1'000'000), HasSubstr("10 % of 1.9 GiB after 14.0 s\n"));
  EXPECT_EQ(LogOf(&progress, &clock, 0, 798'000'000), "") << "less than a second after the last line";
  clock.Advance(kSecond / 2);
  testing::internal::CaptureStderr();
  progress.End();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("loaded /models/tales: read 953.7 MiB in 14.5 s\n"));
}

TEST(LoadProgressTest, TheTimeStopsAtTheEnd) {
  ManualClock clock;
  LoadProgress progress(&clock);
  EXPECT_EQ(progress.Get().total_bytes, 0);
  clock.Advance(kSecond);
  progress.Begin("/models/tales", 1, 10);
  clock.Advance(kSecond);
  progress.Add(4);
  EXPECT_EQ(progress.Get().read_bytes, 4);
  EXPECT_EQ(progress.Get().total_bytes, 10);
  EXPECT_EQ(progress.Get().seconds, 1);
  EXPECT_FALSE(progress.Get().is_done);
  progress.End();
  clock.Advance(kSecond);
  EXPECT_EQ(progress.Get().seconds, 1);
  EXPECT_TRUE(progress.Get().is_done);
}

}  // namespace
}  // namespace quire
