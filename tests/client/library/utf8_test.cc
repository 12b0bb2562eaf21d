// SPDX-License-Identifier: Apache-2.0

#include "client/library/utf8.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(Utf8Test, NestedAndRepeatedStringsAreNamedByTheirPath) {
  v1::GenerateRequest request;
  request.set_text("fine");
  request.mutable_stopping()->add_stop("fine");
  EXPECT_TRUE(CheckUtf8Fields(request).ok());
  request.mutable_stopping()->add_stop("\xFF");
  EXPECT_THAT(std::string(CheckUtf8Fields(request).message()), HasSubstr("stopping.stop[1]: is not valid UTF-8"));
  request.mutable_stopping()->clear_stop();
  (*request.mutable_sampling()->mutable_logit_bias())[7] = 1;
  v1::Chat* const chat = request.mutable_chat();
  chat->add_messages()->set_content("fine");
  chat->add_messages()->add_tool_calls()->set_name("\xFF");
  EXPECT_THAT(std::string(CheckUtf8Fields(request).message()),
              HasSubstr("chat.messages[1].tool_calls[0].name: is not valid UTF-8"));
  chat->mutable_messages(1)->set_content("\xFF");
  EXPECT_THAT(std::string(CheckUtf8Fields(request).message()),
              HasSubstr("chat.messages[1].content: is not valid UTF-8"));
  request.set_text("\xFF");
  EXPECT_THAT(std::string(CheckUtf8Fields(request).message()), HasSubstr("text: is not valid UTF-8"));
}

}  // namespace
}  // namespace quire
