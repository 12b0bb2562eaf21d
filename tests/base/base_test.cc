// SPDX-License-Identifier: Apache-2.0

#include <unistd.h>

#include <cmath>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/number_text.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(CheckDeathTest, AFailedCheckPrintsPlaceConditionBothNumbersAndContext) {
  int free = 3;  // Not const, because clang warns of checks that always fail.
  int total = 4;
  EXPECT_DEATH(QUIRE_CHECK_EQ(free, total) << "after step 7",
               "base_test.cc:[0-9]+: check failed: free == total \\(3 vs. 4\\) after step 7");
}

TEST(CheckTest, APassingCheckDoesNotEvaluateItsContext) {
  int evaluated = 0;
  QUIRE_CHECK(true) << ++evaluated;
  EXPECT_EQ(evaluated, 0);
}

TEST(CountedTest, OneIsSingular) {
  EXPECT_EQ(Counted(0, "block"), "0 blocks");
  EXPECT_EQ(Counted(1, "block"), "1 block");
  EXPECT_EQ(Counted(2, "block"), "2 blocks");
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

TEST(LogTest, ALineOfTextIsOneLineOfUtf8WhateverIsInIt) {
  testing::internal::CaptureStderr();
  QUIRE_LOG(kInfo) << "a\nb\r\tc\x1b[2J\xff" << Named("name", "\xc2\x9b") << "\xe2\x82\xac \xe2\x82 \"\\";
  const std::string output = testing::internal::GetCapturedStderr();
  EXPECT_THAT(output, testing::StartsWith("I 2"));
  EXPECT_THAT(output, testing::EndsWith("Z a\\nb\\r\\tc\\x1b[2J\\xff\\xc2\\x9b\xe2\x82\xac \\xe2\\x82 \"\\\n"));
}

TEST(LogTest, ALineOfJsonHasTheMessageAndItsNamedParts) {
  SetLogFormat(LogFormat::kJson);
  testing::internal::CaptureStderr();
  QUIRE_LOG(kWarning) << "worker " << Named("worker", std::string("unix:/\"w\"")) << " lost after " << Named("step", 12)
                      << " steps of " << Named("seconds", 0.5) << " s";
  const std::string output = testing::internal::GetCapturedStderr();
  SetLogFormat(LogFormat::kText);
  EXPECT_EQ(output.find('\n'), output.size() - 1);
  const nlohmann::json line = nlohmann::json::parse(output);
  EXPECT_EQ(line["severity"], "WARNING");
  EXPECT_EQ(line["message"], "worker unix:/\"w\" lost after 12 steps of 0.5 s");
  EXPECT_EQ(line["worker"], "unix:/\"w\"");
  EXPECT_EQ(line["step"], 12);
  EXPECT_EQ(line["seconds"], 0.5);
  EXPECT_EQ(line["pid"], getpid());
  EXPECT_GT(line["thread"], 0);
  EXPECT_THAT(line["source"].get<std::string>(), testing::MatchesRegex("tests/base/base_test.cc:[0-9]+"));
  EXPECT_THAT(line["time"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..\\.......Z"))
      << "RFC 3339, microseconds";
}

TEST(LogTest, JsonIsValidForAnyBytesAndNumbers) {
  std::string all_bytes;
  for (int byte = 0; byte < 256; ++byte) all_bytes.push_back(static_cast<char>(byte));
  for (const double number : {1e300, -0.0, std::nan(""), HUGE_VAL}) {
    const std::string text =
        JsonLogLine("INFO", all_bytes, {Named("bytes", all_bytes), Named("number", number)}, "a\"b", 1);
    const nlohmann::json line = nlohmann::json::parse(text);
    EXPECT_EQ(line["message"], line["bytes"]);
    EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("\\x00\\x01"));
    EXPECT_THAT(line["message"].get<std::string>(), HasSubstr("\\xfe\\xff"));
  }
}

TEST(LogTest, TheLimiterLetsTheFirstOfEachSecondThroughAndCountsTheOthers) {
  LogLimiter limiter(2);
  EXPECT_EQ(limiter.Admit(0), 0);
  EXPECT_EQ(limiter.Admit(1), 0);
  EXPECT_EQ(limiter.Admit(2), std::nullopt);
  EXPECT_EQ(limiter.Admit(999'999), std::nullopt);
  EXPECT_EQ(limiter.Admit(1'000'000), 2);
  EXPECT_EQ(limiter.Admit(1'000'001), 0);
}

}  // namespace
}  // namespace quire
