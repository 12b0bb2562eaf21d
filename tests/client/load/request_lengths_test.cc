// SPDX-License-Identifier: Apache-2.0

#include "client/load/request_lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AzureTraceTest, TimesCountFromTheFirstRequest) {
  const auto requests = ParseAzureTrace(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n"
      "2023-11-16 23:59:59.5000000,374,44\r\n"
      "2023-11-17 00:00:01.0000000,396,109\n");
  ASSERT_EQ(requests.status(), absl::OkStatus());
  EXPECT_THAT(*requests, ElementsAre(RequestLengths{0, 374, 44}, RequestLengths{1.5, 396, 109}));
}

TEST(AzureTraceTest, BadLineIsNamed) {
  const auto requests = ParseAzureTrace("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6,0,44\n");
  EXPECT_EQ(requests.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(requests.status().message()), HasSubstr("line 2 is '2023-11-16 18:15:46.6,0,44'"));
}

}  // namespace
}  // namespace quire
