// SPDX-License-Identifier: Apache-2.0

#include "scheduler/scheduler_options.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(SchedulerOptionsTest, DefaultsAreValid) {
  EXPECT_EQ(CheckSchedulerOptions(SchedulerOptions()), absl::OkStatus());
}

TEST(SchedulerOptionsTest, ErrorNamesTheOptionTheValueAndTheLimit) {
  SchedulerOptions options;
  options.max_chunk_tokens = 0;
  EXPECT_EQ(CheckSchedulerOptions(options).message(), "max_chunk_tokens is 0, it must be at least 1");
}

TEST(SchedulerOptionsTest, AtMostTwoPlansAreInFlight) {
  SchedulerOptions options;
  options.max_plans_in_flight = 3;
  EXPECT_THAT(CheckSchedulerOptions(options).message(), HasSubstr("max_plans_in_flight is 3"));
}

TEST(SchedulerOptionsTest, SharesOfTenantsAreInTheirRange) {
  SchedulerOptions options;
  options.tenants.by_tenant["acme"].weight = 0;
  EXPECT_EQ(CheckSchedulerOptions(options).message(),
            "weight of tenant \"acme\" is 0, it must be above 0 and below 1e9");
  options.tenants = {};
  options.tenants.others.max_blocks_share = 1.00000001;
  EXPECT_EQ(CheckSchedulerOptions(options).message(),
            "max_blocks_share of other tenants is 1.00000001, it must be above 0 and at most 1");
}

TEST(SchedulerOptionsTest, WatermarkIsAShareBelowOne) {
  SchedulerOptions options;
  for (double watermark : {-0.1, 1.0, std::nan("")}) {
    options.watermark = watermark;
    EXPECT_THAT(CheckSchedulerOptions(options).message(), HasSubstr("watermark")) << watermark;
  }
}

}  // namespace
}  // namespace quire
