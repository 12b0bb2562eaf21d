// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace quire {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Samples SamplesOf(std::initializer_list<double> values) {
  Samples samples;
  for (const double value : values) samples.Add(value);
  return samples;
}

// The expected values come from numpy.percentile([40, 10, 30, 20], [0, 50, 90, 99, 100]) and numpy.std.
TEST(SamplesTest, QuantilesAreLinearBetweenTheValues) {
  const Samples samples = SamplesOf({40, 10, 30, 20});
  EXPECT_DOUBLE_EQ(samples.Quantile(0), 10);
  EXPECT_DOUBLE_EQ(samples.Median(), 25);
  EXPECT_DOUBLE_EQ(samples.Quantile(0.9), 37);
  EXPECT_DOUBLE_EQ(samples.Quantile(0.99), 39.7);
  EXPECT_DOUBLE_EQ(samples.Max(), 40);
  EXPECT_DOUBLE_EQ(samples.StandardDeviation(), std::sqrt(125.0));
  EXPECT_EQ(samples.CountAbove(20), 2);
  EXPECT_DOUBLE_EQ(SamplesOf({7}).Quantile(0.99), 7);
  EXPECT_DOUBLE_EQ(Samples().Quantile(0.5), 0);
}

TEST(LoadReportTest, WhatWasNotMeasuredIsNoNumber) {
  LoadReport report;
  report.num_sent = 1;
  report.num_completed = 1;
  report.duration_s = 2;
  report.input_tokens = 10;
  report.ttft_ms = SamplesOf({5});
  const nlohmann::ordered_json json = ToJson(report);
  for (const char* name : {"mean_tpot_ms", "median_itl_ms", "std_itl_ms", "p90_tpot_ms", "p99_e2el_ms", "max_itl_ms",
                           "sent_rate", "max_held_ms", "request_goodput", "good_request_share"}) {
    ASSERT_TRUE(json.contains(name)) << name;
    EXPECT_TRUE(json[name].is_null()) << name;
  }
  EXPECT_EQ(json["num_prompts"], 1);
  EXPECT_EQ(json["median_ttft_ms"], 5.0);
  EXPECT_EQ(json["input_throughput"], 5.0);
  const std::string text = ToText(report);
  EXPECT_THAT(text, ContainsRegex("Requests sent: +1\n"));
  EXPECT_THAT(text, ContainsRegex("Time per output token( +-){5}\n"));
  EXPECT_THAT(text, ContainsRegex("Time to first token( +5\\.00){5}\n"));
}

TEST(LoadReportTest, WhatWasMeasuredIsThereInTextAndJson) {
  LoadReport report;
  report.num_sent = 5;
  report.num_completed = 5;
  report.sending_s = 2;
  report.duration_s = 4;
  report.has_service_level = true;
  report.num_good = 4;
  report.itl_ms = SamplesOf({1, 3});
  const nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["sent_rate"], 2.0);
  EXPECT_EQ(json["request_goodput"], 1.0);
  EXPECT_NEAR(json["good_request_share"].get<double>(), 0.8, 1e-12);
  EXPECT_EQ(json["std_itl_ms"], 1.0);
  const std::string text = ToText(report);
  EXPECT_THAT(text, ContainsRegex("Requests sent: +5 \\(2\\.00 per second from the first to the last\\)\n"));
  EXPECT_THAT(text, HasSubstr("1.00 (80.0 % of requests)"));
}

TEST(LoadReportTest, OneRequestInAHundredMayBeLate) {
  LoadReport report;
  for (int i = 0; i < 99; ++i) report.lag_ms.Add(0);
  report.lag_ms.Add(10'000);
  EXPECT_FALSE(report.could_not_keep_up());
  EXPECT_THAT(ToText(report), Not(HasSubstr("could not keep up")));
  report.lag_ms.Add(10'000);
  EXPECT_TRUE(report.could_not_keep_up());
}

}  // namespace
}  // namespace quire
