// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_ANTHROPIC_MESSAGE_EVENTS_H_
#define QUIRE_TESTS_GATEWAY_ANTHROPIC_MESSAGE_EVENTS_H_

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gateway/openai/field_reader.h"
#include "gtest/gtest.h"

namespace quire {

// Joins the events of a stream to a message as Anthropic's clients do. An order that is not documented fails the test.
inline Json JoinedEvents(absl::string_view events) {
  Json message;
  std::string input;  // The JSON of the input of the open block.
  bool is_open = false;
  bool has_ended = false;
  for (absl::string_view text : absl::StrSplit(events, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&text, "event: ")) << text;
    const size_t end = text.find('\n');
    const absl::string_view name = text.substr(0, end);
    text.remove_prefix(end + 1);
    EXPECT_TRUE(absl::ConsumePrefix(&text, "data: ")) << text;
    const Json event = Json::parse(text);
    EXPECT_EQ(event["type"], std::string(name));
    EXPECT_FALSE(has_ended) << text;
    if (name == "message_start") {
      EXPECT_TRUE(message.is_null());
      message = event["message"];
    } else if (name == "content_block_start") {
      EXPECT_FALSE(is_open);
      is_open = true;
      input.clear();
      EXPECT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
    } else if (name == "content_block_delta") {
      EXPECT_TRUE(is_open);
      EXPECT_EQ(event["index"], message["content"].size() - 1);
      const Json& delta = event["delta"];
      Json& block = message["content"].back();
      const auto append = [&](const char* member) {
        block[member] = block[member].get<std::string>() + delta[member].get<std::string>();
      };
      if (delta["type"] == "text_delta") append("text");
      if (delta["type"] == "thinking_delta") append("thinking");
      if (delta["type"] == "signature_delta") append("signature");
      if (delta["type"] == "input_json_delta") input += delta["partial_json"].get<std::string>();
    } else if (name == "content_block_stop") {
      EXPECT_TRUE(is_open);
      is_open = false;
      const Json parsed = Json::parse(input, nullptr, /*allow_exceptions=*/false);
      if (parsed.is_object()) message["content"].back()["input"] = parsed;
    } else if (name == "message_delta") {
      EXPECT_FALSE(is_open);
      message["stop_reason"] = event["delta"]["stop_reason"];
      message["stop_sequence"] = event["delta"]["stop_sequence"];
      message["usage"] = event["usage"];
    } else if (name == "message_stop") {
      EXPECT_FALSE(message["stop_reason"].is_null());
      has_ended = true;
    } else {
      EXPECT_EQ(name, "ping");
    }
  }
  EXPECT_TRUE(has_ended);
  return message;
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_ANTHROPIC_MESSAGE_EVENTS_H_
