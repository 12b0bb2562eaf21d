// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/unknown_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

std::string MessageFor(absl::string_view path) {
  const ApiError error = UnknownUrl(path, {"/", "/v1/completions", "/v1/chat/completions", "/v1/models", "/tokenize"});
  EXPECT_EQ(error.http_code, 404);
  EXPECT_EQ(error.code, "unknown_url");
  return error.message;
}

TEST(UnknownUrlTest, AWrongBaseUrlIsToldTheRightPath) {
  EXPECT_EQ(MessageFor("/chat/completions"),
            "there is nothing at /chat/completions; did you mean /v1/chat/completions?");
  EXPECT_EQ(MessageFor("/completions"), "there is nothing at /completions; did you mean /v1/completions?");
  EXPECT_EQ(MessageFor("/v1/v1/models"), "there is nothing at /v1/v1/models; did you mean /v1/models?");
  EXPECT_EQ(MessageFor("/v1/chat/completions/"),
            "there is nothing at /v1/chat/completions/; did you mean /v1/chat/completions?");
  EXPECT_EQ(MessageFor("/v1/tokenize"), "there is nothing at /v1/tokenize; did you mean /tokenize?");
  EXPECT_EQ(MessageFor("/v1/nothing"), "there is nothing at /v1/nothing");
  EXPECT_EQ(MessageFor("//"), "there is nothing at //");
}

TEST(UnknownUrlTest, APathOfOtherServersIsToldWhatToUseInstead) {
  const std::string lacks = ": this server does not have ";
  const std::string chats = "; use /v1/chat/completions";
  EXPECT_EQ(MessageFor("/v1/responses"),
            "there is nothing at /v1/responses" + lacks + "the Responses interface" + chats);
  EXPECT_EQ(MessageFor("/v1/responses/resp_1/cancel"),
            "there is nothing at /v1/responses/resp_1/cancel" + lacks + "the Responses interface" + chats);
  EXPECT_EQ(MessageFor("/v1/messages"), "there is nothing at /v1/messages" + lacks + "the Messages interface" + chats);
  EXPECT_EQ(MessageFor("/v1/messages/count_tokens"),
            "there is nothing at /v1/messages/count_tokens" + lacks + "the Messages interface; use /tokenize");
  EXPECT_EQ(MessageFor("/v1/embeddings"), "there is nothing at /v1/embeddings" + lacks + "embeddings");
  EXPECT_EQ(MessageFor("/embeddings"), "there is nothing at /embeddings" + lacks + "embeddings") << "without /v1";
  EXPECT_EQ(MessageFor("/v1/chat/completions/chatcmpl-1"),
            "there is nothing at /v1/chat/completions/chatcmpl-1" + lacks + "stored answers");
  for (const char* const path : {"/v1/assistants",
                                 "/v1/threads/t/messages",
                                 "/v1/conversations",
                                 "/pooling",
                                 "/v1/rerank",
                                 "/v2/rerank",
                                 "/rerank",
                                 "/score",
                                 "/v1/score",
                                 "/classify",
                                 "/v1/moderations",
                                 "/v1/audio/transcriptions",
                                 "/v1/realtime",
                                 "/v1/images/generations",
                                 "/v1/videos",
                                 "/v1/batches/b",
                                 "/v1/files",
                                 "/v1/uploads",
                                 "/v1/vector_stores",
                                 "/v1/fine_tuning/jobs",
                                 "/v1/load_lora_adapter"}) {
    EXPECT_THAT(MessageFor(path), testing::HasSubstr(lacks));
  }
  EXPECT_EQ(MessageFor("/v1/filesystem"), "there is nothing at /v1/filesystem");
}

}  // namespace
}  // namespace quire
