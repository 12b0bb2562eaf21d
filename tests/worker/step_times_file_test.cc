// SPDX-License-Identifier: Apache-2.0

#include "worker/step_times_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

std::string ErrorOf(const std::string& text) {
  return std::string(ParseStepTimes("FILE", text).status().message());
}

TEST(ParseStepTimesTest, EachKeyIsADurationAndAMissingOneIsZero) {
  const auto times = ParseStepTimes("FILE", "step: 8ms\nprefill_token: 40us\ndecode_row: 1.5us\ncontext_token: 5ns\n");
  ASSERT_TRUE(times.ok()) << times.status();
  EXPECT_EQ(times->step, std::chrono::milliseconds(8));
  EXPECT_EQ(times->prefill_token, std::chrono::microseconds(40));
  EXPECT_EQ(times->decode_row, std::chrono::nanoseconds(1500));
  EXPECT_EQ(times->context_token, std::chrono::nanoseconds(5));
  EXPECT_EQ(*ParseStepTimes("FILE", "step: 0"), simulated::StepTimes());
  EXPECT_EQ(ParseStepTimes("FILE", "step: 10m")->step, std::chrono::minutes(10));
}

TEST(ParseStepTimesTest, AnErrorNamesTheLineTheKeyTheValueAndTheLimit) {
  EXPECT_EQ(ErrorOf("step: 1ms\ndecode_row: 5\n"),
            "FILE:2: decode_row is 5, it must be a duration such as 5ms, from 0 to 1s");
  EXPECT_EQ(ErrorOf("step: -1ms"), "FILE:1: step is -1ms, it must be a duration such as 5ms, from 0 to 10m");
  EXPECT_EQ(ErrorOf("step: 11m"), "FILE:1: step is 11m, it must be a duration such as 5ms, from 0 to 10m");
  EXPECT_EQ(ErrorOf("step: inf"), "FILE:1: step is inf, it must be a duration such as 5ms, from 0 to 10m");
  EXPECT_EQ(ErrorOf("context_token: 2ms"),
            "FILE:1: context_token is 2ms, it must be a duration such as 5ms, from 0 to 1ms");
  EXPECT_EQ(ErrorOf("stop: 1ms"),
            "FILE:1: unknown key stop, it must be step, prefill_token, decode_row or context_token");
  EXPECT_EQ(ErrorOf("step: [1ms]"), "FILE:1: step is a list, it must be one duration");
  EXPECT_EQ(ErrorOf("step: 1ms\nstep: 2ms"), "FILE:2: step is given twice");
  EXPECT_EQ(ErrorOf("# nothing\n"), "FILE: it has no time; \"step: 0\" makes steps as fast as possible");
}

}  // namespace
}  // namespace quire
