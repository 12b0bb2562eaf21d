// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/stream_position.h"

#include <string>

#include "gtest/gtest.h"

namespace quire {
namespace {

TEST(StreamPositionTest, TheIdHasWhatResumeNeeds) {
  StreamPosition position;
  EXPECT_FALSE(position.CanResume());
  v1::GenerateResponse response;
  response.set_resume_token("to-ken_1");
  response.set_index(1);
  response.set_position(5);
  response.add_token_ids(9);
  response.add_token_ids(9);
  position.Note(response);
  EXPECT_EQ(position.Id(/*is_chat=*/false), "to-ken_1:1.7");
  response.clear_resume_token();
  response.set_index(0);
  response.set_finish_reason(v1::FINISH_REASON_STOP);
  position.Note(response);
  EXPECT_EQ(position.Id(/*is_chat=*/false), "to-ken_1:0.7f,1.7");
  const std::optional<StreamPosition> read = StreamPosition::Parse(position.Id(/*is_chat=*/false), /*is_chat=*/false);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Id(/*is_chat=*/false), position.Id(/*is_chat=*/false));
  EXPECT_TRUE(read->HasBegun(1));
  EXPECT_FALSE(read->HasBegun(2));
  const v1::ResumeRequest resume = read->Resume();
  EXPECT_EQ(resume.resume_token(), "to-ken_1");
  ASSERT_EQ(resume.received_size(), 2);
  EXPECT_TRUE(resume.received(0).has_finish());
  EXPECT_EQ(resume.received(1).next_position(), 7u);
  EXPECT_FALSE(resume.received(1).has_finish());
}

TEST(StreamPositionTest, AChatAndACompletionHaveNoIdInCommon) {
  v1::GenerateResponse response;
  response.set_resume_token("token");
  response.add_token_ids(9);
  StreamPosition position;
  position.Note(response);
  for (const bool is_chat : {false, true}) {
    const std::string id = position.Id(is_chat);
    EXPECT_EQ(id, is_chat ? "chat.token:0.1" : "token:0.1");
    ASSERT_TRUE(StreamPosition::Parse(id, is_chat).has_value());
    EXPECT_EQ(StreamPosition::Parse(id, is_chat)->Resume().resume_token(), "token");
    EXPECT_FALSE(StreamPosition::Parse(id, !is_chat).has_value());
  }
}

TEST(StreamPositionTest, TheIdHasWhereTheNumericsHaveChanged) {
  StreamPosition position;
  v1::GenerateResponse response;
  response.set_resume_token("token");
  response.set_position(5);
  response.add_token_ids(9);
  response.set_numerics_changed_at(5);
  position.Note(response);
  EXPECT_EQ(position.Id(/*is_chat=*/false), "token:0.6c5");
  response.set_position(6);
  response.clear_numerics_changed_at();
  response.set_finish_reason(v1::FINISH_REASON_STOP);
  position.Note(response);
  EXPECT_EQ(position.Id(/*is_chat=*/false), "token:0.7c5f") << "it is told once";
  const std::optional<StreamPosition> read = StreamPosition::Parse(position.Id(/*is_chat=*/false), /*is_chat=*/false);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Resume().received(0).numerics_changed_at(), 5u);
  for (const std::string id : {"token:0.6c", "token:0.6cx", "token:0.6c1c2", "token:0c5", "token:0.6c5ff"}) {
    EXPECT_FALSE(StreamPosition::Parse(id, /*is_chat=*/false).has_value()) << id;
  }
}

TEST(StreamPositionTest, WhatIsNoIdIsRefused) {
  EXPECT_TRUE(StreamPosition::Parse("token:", /*is_chat=*/false).has_value()) << "nothing was received yet";
  for (const std::string id : {"", "7", ":0.1", "to ken:0.1", "token:0", "token:0.1.2", "token:0.x", "token:-1.2",
                               "token:0.1,0.2", "token:0.4294967296"}) {
    EXPECT_FALSE(StreamPosition::Parse(id, /*is_chat=*/false).has_value()) << id;
  }
  EXPECT_FALSE(StreamPosition::Parse(std::string(9000, 'x') + ":0.1", /*is_chat=*/false).has_value());
}

}  // namespace
}  // namespace quire
