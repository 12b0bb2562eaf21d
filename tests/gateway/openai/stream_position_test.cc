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
  EXPECT_EQ(position.Id(), "to-ken_1:1.7");
  response.clear_resume_token();
  response.set_index(0);
  response.set_finish_reason(v1::FINISH_REASON_STOP);
  position.Note(response);
  EXPECT_EQ(position.Id(), "to-ken_1:0.7f,1.7");
  const std::optional<StreamPosition> read = StreamPosition::Parse(position.Id());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->Id(), position.Id());
  EXPECT_TRUE(read->HasBegun(1));
  EXPECT_FALSE(read->HasBegun(2));
  const v1::ResumeRequest resume = read->Resume();
  EXPECT_EQ(resume.resume_token(), "to-ken_1");
  ASSERT_EQ(resume.received_size(), 2);
  EXPECT_TRUE(resume.received(0).has_finish());
  EXPECT_EQ(resume.received(1).next_position(), 7u);
  EXPECT_FALSE(resume.received(1).has_finish());
}

TEST(StreamPositionTest, WhatIsNoIdIsRefused) {
  EXPECT_TRUE(StreamPosition::Parse("token:").has_value()) << "nothing was received yet";
  for (const std::string id : {"", "7", ":0.1", "to ken:0.1", "token:0", "token:0.1.2", "token:0.x", "token:-1.2",
                               "token:0.1,0.2", "token:0.4294967296"}) {
    EXPECT_FALSE(StreamPosition::Parse(id).has_value()) << id;
  }
  EXPECT_FALSE(StreamPosition::Parse(std::string(9000, 'x') + ":0.1").has_value());
}

}  // namespace
}  // namespace quire
