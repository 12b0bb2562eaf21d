// SPDX-License-Identifier: Apache-2.0

#include "client/library/bearer_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/library/client.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HeaderTokenTest, WhiteSpaceBehindItGoes) {
  EXPECT_EQ(*HeaderToken("secret"), "secret");
  EXPECT_EQ(*HeaderToken("secret\n"), "secret");
  EXPECT_EQ(*HeaderToken("secret \t\r\n"), "secret");
  EXPECT_EQ(*HeaderToken("\n"), "");
  EXPECT_EQ(*HeaderToken(""), "");
}

TEST(HeaderTokenTest, WhatAHeaderCannotCarryIsRefusedAndNotShown) {
  for (const char* token : {"sec\nret", "sec\rret", "sec\tret", "\nsecret", "secr\xC3\xA9t", "sec\x7Fret"}) {
    const absl::Status status = HeaderToken(token).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("the token has a character that a header cannot carry: byte "));
    EXPECT_THAT(status.message(), Not(HasSubstr("sec")));
  }
}

TEST(HeaderTokenTest, ALongTokenIsRefused) {
  const std::string longest(4096, 'a');
  EXPECT_EQ(*HeaderToken(longest + "\n"), longest);
  EXPECT_THAT(HeaderToken(longest + "a").status().message(),
              HasSubstr("the token has 4097 bytes, and at most 4096 are allowed"));
}

// Nobody listens at this address, so an error other than UNAVAILABLE comes from the client itself.
TEST(HeaderTokenTest, AClientWithATokenThatCannotBeSentSendsNothing) {
  Client client({.endpoint = "unix:/nonexistent/quire.sock", .token = "sec\nret"});
  EXPECT_THAT(client.GetModel().status().message(), HasSubstr("a header cannot carry"));
  const auto stream = client.Generate({}, absl::Seconds(10));
  v1::GenerateResponse response;
  EXPECT_FALSE(stream->Next(&response));
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kInvalidArgument);
  Client trimmed({.endpoint = "unix:/nonexistent/quire.sock", .token = "secret\r\n"});
  EXPECT_EQ(trimmed.GetModel().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace quire
