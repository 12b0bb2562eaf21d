#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(CheckDeathTest, AFailedCheckPrintsPlaceConditionBothNumbersAndContext) {
  const int free = 3;
  const int total = 4;
  EXPECT_DEATH(QUIRE_CHECK_EQ(free, total) << "after step 7",
               "base_test.cc:[0-9]+: check failed: free == total \\(3 vs. 4\\) after step 7");
}

TEST(CheckTest, APassingCheckDoesNotEvaluateItsContext) {
  int evaluated = 0;
  QUIRE_CHECK(true) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

absl::StatusOr<int> Half(int x) {
  if (x % 2 != 0) return absl::InvalidArgumentError("odd");
  return x / 2;
}

absl::StatusOr<int> Quarter(int x) {
  QUIRE_ASSIGN_OR_RETURN(const int half, Half(x));
  QUIRE_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

absl::Status CheckDivisible(int x) {
  QUIRE_RETURN_IF_ERROR(Quarter(x).status());
  return absl::OkStatus();
}

TEST(StatusTest, ErrorsReturnFromTheEnclosingFunction) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_TRUE(CheckDivisible(8).ok());
  EXPECT_FALSE(CheckDivisible(7).ok());
}

TEST(IdsTest, IdsPrintWithTheirKind) {
  std::ostringstream out;
  out << BlockId{7} << ", " << SequenceId{9};
  EXPECT_EQ(out.str(), "block 7, sequence 9");
  EXPECT_EQ(Value(RowId{3}), 3u);
}

TEST(ClockTest, ManualClockStandsStillUntilAdvanced) {
  ManualClock clock;
  const int64_t start = clock.NowMicros();
  EXPECT_EQ(clock.NowMicros(), start);
  clock.Advance(250);
  EXPECT_EQ(clock.NowMicros(), start + 250);
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
  SetLogLevel(LogLevel::kWarning);
  testing::internal::CaptureStderr();
  QUIRE_LOG(kInfo) << "worker joined";
  QUIRE_LOG(kWarning) << "worker lost";
  const std::string output = testing::internal::GetCapturedStderr();
  SetLogLevel(LogLevel::kInfo);
  EXPECT_THAT(output, testing::Not(HasSubstr("joined")));
  EXPECT_THAT(output, HasSubstr("worker lost\n"));
}

}  // namespace
}  // namespace quire
