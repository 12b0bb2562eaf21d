// SPDX-License-Identifier: Apache-2.0

#include "bench/conversations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/load/samples.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// The trace has the medians 1020 and 129, the ninth deciles 2735 and 424, and the mean output 211.1.
TEST(DrawConversationsTest, HasTheQuantilesOfTheTrace) {
  Samples prompts, outputs;
  for (const RequestLengths& request : DrawConversations(20'000, /*seed=*/1)) {
    prompts.Add(request.prompt);
    outputs.Add(request.output);
  }
  EXPECT_NEAR(prompts.Median(), 1020, 20);
  EXPECT_NEAR(prompts.Quantile(0.9), 2735, 100);
  EXPECT_NEAR(outputs.Median(), 129, 5);
  EXPECT_NEAR(outputs.Quantile(0.9), 424, 5);
  EXPECT_NEAR(outputs.Mean(), 211, 6);
}

TEST(DrawConversationsTest, EqualSeedsDrawTheSame) {
  EXPECT_EQ(DrawConversations(100, 7), DrawConversations(100, 7));
  EXPECT_NE(DrawConversations(100, 7), DrawConversations(100, 8));
}

TEST(DrawLogNormalTest, HasTheMeansAskedFor) {
  Samples prompts, outputs;
  for (const RequestLengths& request : DrawLogNormal(161, 338, 20'000, /*seed=*/1)) {
    prompts.Add(request.prompt);
    outputs.Add(request.output);
  }
  EXPECT_NEAR(prompts.Mean(), 161, 4);
  EXPECT_NEAR(outputs.Mean(), 338, 8);
}

TEST(LoadConversationsTest, AreDrawnWhenThereIsNoFile) {
  const auto conversations = LoadConversations("no/such/file", 500, 2048);
  ASSERT_EQ(conversations.status(), absl::OkStatus());
  EXPECT_THAT(conversations->source, HasSubstr("no/such/file"));
  EXPECT_GT(conversations->requests.size(), 400u);
  EXPECT_LT(conversations->requests.size(), 500u);
}

}  // namespace
}  // namespace quire
