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
  EXPECT_EQ(MessageFor("/v1/"),
            "there is nothing at /v1/: this is the base URL of OpenAI's clients; /v1/models shows what is served");
  EXPECT_EQ(MessageFor("//"), "there is nothing at //");
}

TEST(UnknownUrlTest, APathOfOtherServersIsToldWhatToUseInstead) {
  const std::string lacks = ": this server does not have ";
  EXPECT_EQ(MessageFor("/v1/responses/resp_1/cancel"), "there is nothing at /v1/responses/resp_1/cancel" + lacks +
                                                           "stored responses; send all items to /v1/responses");
  EXPECT_EQ(MessageFor("/v1/responses/compact"),
            "there is nothing at /v1/responses/compact" + lacks +
                "this shortening of conversations; send a shorter input to /v1/responses");
  EXPECT_EQ(MessageFor("/v1/responses/input_tokens"),
            "there is nothing at /v1/responses/input_tokens" + lacks + "this count of tokens; use /tokenize");
  EXPECT_EQ(MessageFor("/v1/messages/msg_1"), "there is nothing at /v1/messages/msg_1" + lacks + "stored messages");
  EXPECT_EQ(MessageFor("/v1/messages/batches"), "there is nothing at /v1/messages/batches" + lacks +
                                                    "a batch interface; send each request to /v1/messages");
  EXPECT_EQ(MessageFor("/v1/moderations"), "there is nothing at /v1/moderations" + lacks + "moderation");
  EXPECT_EQ(MessageFor("/moderations"), "there is nothing at /moderations" + lacks + "moderation") << "without /v1";
  EXPECT_EQ(MessageFor("/v1/chat/completions/chatcmpl-1"),
            "there is nothing at /v1/chat/completions/chatcmpl-1" + lacks + "stored answers");
  for (const char* const path :
       {"/v1/assistants", "/v1/threads/t/messages", "/v1/conversations", "/pooling", "/classify", "/v1/moderations",
        "/v1/audio/transcriptions", "/v1/realtime", "/v1/images/generations", "/v1/videos", "/v1/batches/b",
        "/v1/files", "/v1/uploads", "/v1/vector_stores", "/v1/fine_tuning/jobs", "/v1/load_lora_adapter"}) {
    EXPECT_THAT(MessageFor(path), testing::HasSubstr(lacks));
  }
  EXPECT_EQ(MessageFor("/v1/filesystem"), "there is nothing at /v1/filesystem");
}

}  // namespace
}  // namespace quire
