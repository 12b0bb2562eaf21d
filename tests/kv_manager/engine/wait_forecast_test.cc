// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/wait_forecast.h"

#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/wait_meter.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kSecond = 1'000'000;

Request WithDeadline(int64_t deadline_us, int max_tokens = 100) {
  Request request;
  request.deadline_us = deadline_us;
  request.max_tokens = max_tokens;
  return request;
}

// A plan every 100 ms that starts one request of 50 tokens and leaves 20 of them waiting.
WaitMeter BusyMeter(int num_plans) {
  WaitMeter meter;
  for (int i = 0; i < num_plans; ++i) {
    meter.OnPlanned(i * 100'000, {.waiting = 20, .waiting_tokens = 1000, .entered = i, .entered_tokens = 50 * i});
  }
  return meter;
}

TEST(WaitMeterTest, TheWaitIsThatOfTheTokensBeforeAtTheRateOfStarts) {
  const WaitForecast forecast = BusyMeter(100).Forecast();
  // 500 tokens start in a second. The next request counts as started, which is 1 of 21 in the window.
  EXPECT_NEAR(static_cast<double>(forecast.WaitUs(1000)), 2.0 * kSecond, 0.1 * kSecond);
  EXPECT_EQ(forecast.WaitUs(0), 0);
}

TEST(WaitMeterTest, LongPromptsCountMoreThanShortOnes) {
  const WaitForecast forecast = BusyMeter(100).Forecast();
  EXPECT_NEAR(static_cast<double>(forecast.WaitUs(5000)), 5.0 * static_cast<double>(forecast.WaitUs(1000)), 10);
}

TEST(WaitMeterTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(WaitMeter().Forecast().WaitUs(1'000'000), 0);
  EXPECT_EQ(BusyMeter(2).Forecast().WaitUs(1'000'000), 0);
}

TEST(WaitMeterTest, NobodyWaitsWhenTheLastPlanLeftNobody) {
  WaitMeter meter = BusyMeter(100);
  meter.OnPlanned(100 * 100'000, {.entered = 100, .entered_tokens = 5000});
  EXPECT_EQ(meter.Forecast().WaitUs(1000), 0);
}

TEST(WaitMeterTest, IdleTimeDoesNotLowerTheRateAndEndsWhatIsKnown) {
  for (const auto& [pause_us, is_known] : {std::pair(5 * kSecond, true), std::pair(20 * kSecond, false)}) {
    WaitMeter meter = BusyMeter(100);
    meter.OnPlanned(10 * kSecond, {.entered = 100, .entered_tokens = 5000});
    meter.OnPlanned(10 * kSecond + pause_us,
                    {.waiting = 20, .waiting_tokens = 1000, .entered = 100, .entered_tokens = 5000});
    const auto wait_us = static_cast<double>(meter.Forecast().WaitUs(1000));
    EXPECT_NEAR(wait_us, is_known ? 2.0 * kSecond : 0, 0.7 * kSecond) << pause_us;
  }
}

TEST(WaitMeterTest, AWorkerThatStartsNothingMakesTheWaitGrow) {
  WaitMeter meter;
  for (int i = 0; i < 100; ++i) meter.OnPlanned(i * 100'000, {.waiting = 20, .waiting_tokens = 1000});
  // At best the first request starts now, after almost 10 s.
  EXPECT_NEAR(static_cast<double>(meter.Forecast().WaitUs(1000)), 198.0 * kSecond, kSecond);
}

TEST(WaitMeterTest, RowsFullOfRequestsThatBeganTogetherSayNothingUntilSomeEnd) {
  WaitMeter meter;
  for (int i = 0; i < 50; ++i) {
    meter.OnStep(100'000, 256, 256, 256);
    meter.OnPlanned(i * 100'000, {.waiting = 45, .waiting_tokens = 2250, .entered = 256, .entered_tokens = 12'800});
  }
  EXPECT_EQ(meter.Forecast().WaitUs(2250), 0) << "after 5 s, all of the first 256 requests still run";
  meter.OnPlanned(5 * kSecond, {.waiting = 37, .waiting_tokens = 1850, .entered = 264, .entered_tokens = 13'200});
  EXPECT_GT(meter.Forecast().WaitUs(1850), kSecond);
}

TEST(WaitMeterTest, MoreRequestsMakeStepsLonger) {
  WaitMeter meter;
  for (int i = 0; i < 100; ++i) meter.OnStep(1000, 1, 1, 1);
  meter.OnFinished(100, 100, 0);
  WaitForecast forecast = meter.Forecast();
  EXPECT_EQ(forecast.OutputUs(WithDeadline(kNever)), 0) << "one request is no load";
  for (int i = 0; i < 500; ++i) meter.OnStep(11'000, 100, 100, 100);
  forecast = meter.Forecast();
  forecast.num_requests = 99;
  EXPECT_NEAR(static_cast<double>(forecast.OutputUs(WithDeadline(kNever))), 1.1e6, 0.02e6);
  forecast.num_requests = 199;
  EXPECT_NEAR(static_cast<double>(forecast.OutputUs(WithDeadline(kNever))), 2.1e6, 0.05e6);
  // Nothing is known of requests with another size.
  EXPECT_EQ(forecast.OutputUs(WithDeadline(kNever, 1000)), 0);
  meter.OnLost();
  EXPECT_EQ(meter.Forecast().OutputUs(WithDeadline(kNever)), 0);
}

// A step takes 300 us, 60 us for each request, and 10 us for each token of a prompt. At light load 1 to 4 requests run.
// Each has a prompt of 512 tokens and 256 tokens of output.
WaitMeter LightlyLoadedMeter() {
  WaitMeter meter;
  for (int i = 0; i < 2000; ++i) {
    const int num_requests = 1 + i / 7 % 4;
    const int num_prompt_tokens = i % 64 == 0 ? 512 : 0;
    meter.OnStep(300 + 60 * num_requests + 10 * num_prompt_tokens, num_requests, num_requests,
                 num_requests + num_prompt_tokens);
  }
  for (int i = 0; i < 100; ++i) meter.OnFinished(256, 256, 512);
  return meter;
}

TEST(WaitMeterTest, AnOverloadLastsFromAFullQueueUntilItHasBeenShortForAsLong) {
  constexpr WaitLimits kLimits{.max_wait_us = 5 * kSecond, .max_deadline_share = 0.1};
  WaitMeter meter = BusyMeter(100);  // 500 tokens start in a second.
  const auto is_overloaded = [&](double now_s, int64_t waiting_tokens) {
    meter.NoteQueues(static_cast<int64_t>(now_s * kSecond), {{.queue = "", .num_tokens_ahead = waiting_tokens}},
                     kLimits);
    return meter.Forecast().is_overloaded;
  };
  EXPECT_FALSE(is_overloaded(100, 2000)) << "a burst";
  EXPECT_TRUE(is_overloaded(101, 2400));
  EXPECT_TRUE(is_overloaded(120, 200)) << "the queue has 0.4 s, near the limit of an overload";
  EXPECT_TRUE(is_overloaded(124, 50));
  EXPECT_TRUE(is_overloaded(124.5, 200));
  EXPECT_TRUE(is_overloaded(129, 50));
  EXPECT_FALSE(is_overloaded(129.5, 50));
  constexpr WaitLimits kNoLimits;
  meter.NoteQueues(130 * kSecond, {{.queue = "", .num_tokens_ahead = 1'000'000'000}}, kNoLimits);
  EXPECT_FALSE(meter.Forecast().is_overloaded);
}

TEST(WaitMeterTest, AnOverloadEndsWhenNobodyHasWaitedForAsLongAsItLetsRequestsWait) {
  constexpr WaitLimits kLimits{.max_wait_us = 5 * kSecond, .max_deadline_share = 0.1};
  WaitMeter meter = BusyMeter(100);  // 500 tokens start in a second.
  const auto is_overloaded = [&](double now_s, const std::vector<TenantBacklog>& backlogs) {
    meter.NoteQueues(static_cast<int64_t>(now_s * kSecond), backlogs, kLimits);
    return meter.Forecast().is_overloaded;
  };
  EXPECT_TRUE(is_overloaded(100, {{"", 2400}}));
  EXPECT_TRUE(is_overloaded(100.4, {}));
  EXPECT_TRUE(is_overloaded(100.8, {{"", 50}})) << "somebody came again";
  EXPECT_TRUE(is_overloaded(101.2, {{"", 0}}));
  EXPECT_FALSE(is_overloaded(101.3, {{"", 0}}));
}

TEST(WaitMeterTest, EachQueueHasAnOverloadOfItsOwn) {
  constexpr WaitLimits kLimits{.max_wait_us = 5 * kSecond, .max_deadline_share = 0.1};
  WaitMeter meter = BusyMeter(100);  // 500 tokens start in a second.
  EXPECT_EQ(meter.overloaded_queues(), nullptr);
  const auto overloaded_at = [&](double now_s, const std::vector<TenantBacklog>& backlogs) {
    meter.NoteQueues(static_cast<int64_t>(now_s * kSecond), backlogs, kLimits);
    return *meter.overloaded_queues();
  };
  EXPECT_THAT(overloaded_at(100, {{"hog", 2400}, {"", 200}, {"modest", 2000}}), UnorderedElementsAre("hog"));
  EXPECT_TRUE(meter.Forecast("hog").is_overloaded);
  EXPECT_FALSE(meter.Forecast("modest").is_overloaded);
  EXPECT_FALSE(meter.Forecast("idle").is_overloaded);
  EXPECT_THAT(overloaded_at(103, {{"second", 2400}, {"hog", 200}}), UnorderedElementsAre("hog", "second"));
  EXPECT_THAT(overloaded_at(107.9, {{"second", 50}, {"hog", 50}}), UnorderedElementsAre("hog", "second"));
  EXPECT_THAT(overloaded_at(108, {{"second", 50}}), IsEmpty());
}

TEST(WaitMeterTest, LightLoadSaysHowLongTheStepsOfManyRequestsAre) {
  WaitForecast forecast = LightlyLoadedMeter().Forecast();
  EXPECT_NEAR(forecast.us_per_request, 60 + 10 * 2, 1) << "each step has two tokens of prompts for each request";
  forecast.num_requests = 299;
  // When these requests come at once, their steps take 24 ms, not just a little more than with a few requests.
  EXPECT_NEAR(static_cast<double>(forecast.OutputUs(WithDeadline(kNever, 256))), 256 * 24'300, 256 * 300);
  const absl::Status refused = CheckWait({}, forecast, 0, WithDeadline(5 * kSecond, 256), 0);
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  forecast.num_requests = 99;
  EXPECT_TRUE(CheckWait({}, forecast, 0, WithDeadline(5 * kSecond, 256), 0).ok());
}

TEST(WaitMeterTest, StepsOfTheSameNumberOfRequestsDoNotChangeTheTimePerRequest) {
  WaitMeter meter = LightlyLoadedMeter();
  for (int i = 0; i < 5000; ++i) meter.OnStep(16'300, 200, 200, 600);
  EXPECT_NEAR(meter.Forecast().us_per_request, 80, 1);
}

TEST(WaitMeterTest, OneVeryLongOutputIsSoonForgotten) {
  WaitMeter meter;
  meter.OnFinished(100, 100'000, 0);
  for (int i = 0; i < 32; ++i) meter.OnFinished(100, 200, 0);
  EXPECT_LT(meter.Forecast().output_tokens[WaitForecast::OutputSizeOf(100)], 4000);
}

TEST(WaitMeterTest, AnOutputThatWasCutOffCountsWhenItIsLongerThanTheMean) {
  WaitMeter meter;
  const auto mean = [&] { return meter.Forecast().output_tokens[WaitForecast::OutputSizeOf(100)]; };
  meter.OnFinished(100, 10, 0);
  meter.OnEndedEarly(100, 5);
  EXPECT_EQ(mean(), 10);
  for (int i = 0; i < 500; ++i) meter.OnEndedEarly(100, 60);
  EXPECT_NEAR(mean(), 60, 1);
}

TEST(CheckWaitTest, ADeadlineLimitsTheWaitToAShareOfTheTimeThatIsLeft) {
  WaitForecast forecast;
  forecast.us_per_waiting_token = 100;
  const WaitLimits limits;
  EXPECT_TRUE(CheckWait(limits, forecast, 4900, WithDeadline(15 * kSecond), 10 * kSecond).ok());
  const absl::Status refused = CheckWait(limits, forecast, 25'000, WithDeadline(15 * kSecond), 10 * kSecond);
  EXPECT_TRUE(absl::IsResourceExhausted(refused));
  EXPECT_THAT(refused.message(), HasSubstr("would wait 2500 ms before it runs, the limit is 500 ms"));
  EXPECT_EQ(ReasonOf(refused)->word, "OVERLOADED");
  EXPECT_EQ(ReasonOf(refused)->metadata.at("expected_ms"), "2500");
  EXPECT_EQ(RetryDelayOf(refused), 2000);
}

TEST(CheckWaitTest, ADeadlineThatHasPassedIsNoReasonToTryAgain) {
  WaitForecast forecast;
  forecast.us_per_waiting_token = 100;
  forecast.step_us = 10'000;
  EXPECT_TRUE(CheckWait({}, forecast, 25'000, WithDeadline(10 * kSecond), 10 * kSecond).ok());
  EXPECT_TRUE(CheckWait({}, forecast, 25'000, WithDeadline(9 * kSecond), 10 * kSecond).ok());
}

// 32 requests have all rows. Half of them end in 100 ms, and the others in 900 ms. 100 requests wait.
WaitForecast FullRows() {
  WaitForecast forecast{.step_us = 10'000, .num_requests = 132, .num_running = 32, .tokens_per_waiting = 100};
  forecast.output_tokens[WaitForecast::OutputSizeOf(100)] = 100;
  for (size_t i = 0; i < forecast.ends_us.size(); ++i) forecast.ends_us[i] = i < 4 ? 100'000 : 900'000;
  return forecast;
}

TEST(CheckWaitTest, ARequestWithADeadlineWaitsForARowNoLongerThanItMay) {
  const WaitForecast forecast = FullRows();
  const Request request = WithDeadline(5 * kSecond);
  EXPECT_EQ(forecast.RowWaitUs(0, request), 100'000);
  EXPECT_EQ(forecast.RowWaitUs(13 * 100, request), 100'000) << "it takes the 14th row";
  EXPECT_EQ(forecast.RowWaitUs(18 * 100, request), 900'000);
  EXPECT_EQ(forecast.RowWaitUs(32 * 100, request), 1'000'000) << "a request of 1 s runs before it";
  EXPECT_EQ(forecast.RowWaitUs(64 * 100, request), 2'000'000);
  EXPECT_TRUE(CheckWait({}, forecast, 13 * 100, WithDeadline(5 * kSecond), 0).ok());
  const absl::Status refused = CheckWait({}, forecast, 18 * 100, WithDeadline(5 * kSecond), 0);
  EXPECT_THAT(refused.message(), HasSubstr("would wait 900 ms before it runs, the limit is 500 ms"));
  EXPECT_TRUE(CheckWait({.max_wait_us = 1}, forecast, 16 * 100, WithDeadline(kNever), 0).ok());
  EXPECT_EQ(WaitForecast().RowWaitUs(1000, request), 0);
}

TEST(CheckWaitTest, NoMoreRequestsAreAheadThanWait) {
  WaitForecast forecast = FullRows();
  forecast.num_running = 1;
  forecast.num_free_rows = 31;
  forecast.num_requests = 2;
  // The one that waits has a long prompt, and the mean comes from the short ones before it.
  EXPECT_EQ(forecast.RowWaitUs(20'000, WithDeadline(5 * kSecond)), 0);
}

TEST(CheckWaitTest, TheFirstRowIsFreeWhenTheFirstRequestEnds) {
  WaitForecast forecast{.num_running = 64};
  for (size_t i = 0; i < forecast.ends_us.size(); ++i)
    forecast.ends_us[i] = static_cast<float>(i) * 4'000'000 + 500'000;
  EXPECT_EQ(forecast.RowWaitUs(0, WithDeadline(30 * kSecond)), 500'000);
  EXPECT_EQ(forecast.EndUs(63), 28'500'000);
}

TEST(CheckWaitTest, NoMoreRequestsRunTogetherThanThereAreRows) {
  WaitForecast forecast{.step_us = 15'000, .step_requests = 200, .least_step_us = 3000, .num_requests = 4000};
  forecast.output_tokens[WaitForecast::OutputSizeOf(100)] = 100;
  forecast.num_running = 200;
  EXPECT_NEAR(static_cast<double>(forecast.OutputUs(WithDeadline(kNever))), 1.5e6, 0.01e6);
}

TEST(CheckWaitTest, RowsThatAreFreeGoToThoseWhoCameBefore) {
  WaitForecast forecast = FullRows();
  const Request request = WithDeadline(5 * kSecond);
  forecast.num_free_rows = 2;
  EXPECT_EQ(forecast.RowWaitUs(1 * 100, request), 0);
  EXPECT_EQ(forecast.RowWaitUs(2 * 100, request), 100'000);
  // Nothing runs yet, and 32 requests have come at once.
  forecast.num_running = 0;
  forecast.num_free_rows = 32;
  forecast.ends_us = {};
  EXPECT_EQ(forecast.RowWaitUs(31 * 100, request), 0);
  EXPECT_EQ(forecast.RowWaitUs(32 * 100, request), 1'000'000);
}

TEST(CheckWaitTest, ARequestWithoutADeadlineWaitsAsLongAsTheFlagAllows) {
  WaitForecast forecast;
  forecast.us_per_waiting_token = 100;
  EXPECT_TRUE(CheckWait({}, forecast, 1'000'000, WithDeadline(kNever), 0).ok());
  const absl::Status refused = CheckWait({.max_wait_us = kSecond}, forecast, 20'000, WithDeadline(kNever), 0);
  EXPECT_EQ(refused.message(),
            "the request would wait 2000 ms before it runs, the limit is 1000 ms for a request without a deadline "
            "(--max-queue-wait of the manager)");
}

TEST(CheckWaitTest, WhileAnOverloadLastsARequestWithoutADeadlineWaitsForAShareOfThat) {
  WaitForecast forecast;
  forecast.us_per_waiting_token = 100;
  forecast.is_overloaded = true;
  EXPECT_TRUE(CheckWait({.max_wait_us = 5 * kSecond}, forecast, 5000, WithDeadline(kNever), 0).ok());
  const absl::Status refused = CheckWait({.max_wait_us = 5 * kSecond}, forecast, 6000, WithDeadline(kNever), 0);
  EXPECT_EQ(refused.message(),
            "the request would wait 600 ms before it runs, the limit is 500 ms for a request without a deadline while "
            "the overload lasts (--max-queue-wait of the manager)");
  forecast.calm_since_us = 0;
  const auto refuses_at = [&](int64_t now_us) {
    return !CheckWait({.max_wait_us = 5 * kSecond}, forecast, 6000, WithDeadline(kNever), now_us).ok();
  };
  EXPECT_TRUE(refuses_at(kSecond / 2 - 1));
  EXPECT_FALSE(refuses_at(kSecond / 2)) << "nobody has waited for half a second";
  EXPECT_TRUE(CheckWait({}, forecast, 1'000'000'000, WithDeadline(kNever), 0).ok()) << "there is no limit";
  EXPECT_EQ(WaitLimits({.max_deadline_share = 1}).overloaded_wait_us(), kNever);
  forecast = FullRows();
  EXPECT_TRUE(CheckWait({.max_wait_us = 5 * kSecond}, forecast, 16 * 100, WithDeadline(kNever), 0).ok());
  forecast.is_overloaded = true;
  EXPECT_FALSE(CheckWait({.max_wait_us = 5 * kSecond}, forecast, 16 * 100, WithDeadline(kNever), 0).ok());
}

TEST(CheckWaitTest, ADeadlineSaysItselfHowLongARequestMayWait) {
  WaitForecast forecast;
  forecast.us_per_waiting_token = 100;
  EXPECT_TRUE(CheckWait({.max_wait_us = 1}, forecast, 20'000, WithDeadline(20 * kSecond), 0).ok());
}

TEST(CheckWaitTest, ARequestMustEndBeforeItsDeadline) {
  WaitForecast forecast{.step_us = 20'000, .step_requests = 100, .least_step_us = 1000, .num_requests = 100};
  forecast.output_tokens[WaitForecast::OutputSizeOf(100)] = 100;
  EXPECT_TRUE(CheckWait({}, forecast, 0, WithDeadline(3 * kSecond), 0).ok());
  const absl::Status refused = CheckWait({}, forecast, 0, WithDeadline(2 * kSecond), 0);
  EXPECT_THAT(refused.message(), HasSubstr("would end in 2019 ms, the limit is 1500 ms"));
  EXPECT_TRUE(CheckWait({}, forecast, 0, WithDeadline(kNever), 0).ok());
  // Alone, it runs as fast as it can.
  forecast.step_requests = 1;
  forecast.num_requests = 0;
  EXPECT_TRUE(CheckWait({}, forecast, 0, WithDeadline(kSecond / 10), 0).ok());
}

}  // namespace
}  // namespace quire
