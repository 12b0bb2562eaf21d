// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_GATEWAY_RESPONSES_RESPONSE_EVENTS_H_
#define QUIRE_TESTS_GATEWAY_RESPONSES_RESPONSE_EVENTS_H_

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gateway/openai/field_reader.h"
#include "gtest/gtest.h"

namespace quire {

// The data of the events. Each has its name as the type, and the number of the events before it.
inline std::vector<Json> EventsOf(absl::string_view text) {
  std::vector<Json> events;
  for (absl::string_view event : absl::StrSplit(text, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&event, "event: ")) << event;
    const size_t end = event.find('\n');
    const std::string name(event.substr(0, end));
    event.remove_prefix(end + 1);
    EXPECT_TRUE(absl::ConsumePrefix(&event, "data: ")) << event;
    Json json = Json::parse(event);
    EXPECT_EQ(json["type"], name);
    EXPECT_EQ(json["sequence_number"], events.size()) << event;
    events.push_back(std::move(json));
  }
  return events;
}

// Joins the events of a stream to a response as OpenAI's clients do. An order that is not documented, or an event that
// contradicts others, fails the test.
inline Json JoinedResponse(absl::string_view text) {
  const std::vector<Json> events = EventsOf(text);
  Json output = Json::array();
  bool is_open = false;
  const auto append = [&output](const char* member, const Json& delta) {
    Json& item = output.back();
    Json& holder = item.contains("content") ? item["content"].back() : item;
    holder[member] = holder[member].get<std::string>() + delta.get<std::string>();
  };
  for (size_t i = 0; i < events.size(); ++i) {
    const Json& event = events[i];
    const std::string type = event["type"];
    if (i < 2) {
      EXPECT_EQ(type, i == 0 ? "response.created" : "response.in_progress");
      EXPECT_EQ(event["response"]["status"], "in_progress");
      EXPECT_EQ(event["response"]["output"], Json::array());
      continue;
    }
    if (type == "response.completed" || type == "response.incomplete" || type == "response.failed") {
      EXPECT_EQ(i + 1, events.size());
      EXPECT_FALSE(is_open);
      EXPECT_EQ(event["response"]["output"], output);
      EXPECT_EQ(event["response"]["id"], events[0]["response"]["id"]);
      EXPECT_EQ("response." + event["response"]["status"].get<std::string>(), type);
      return event["response"];
    }
    if (type == "response.output_item.added") {
      EXPECT_FALSE(is_open);
      is_open = true;
      EXPECT_EQ(event["output_index"], output.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output.push_back(event["item"]);
      continue;
    }
    EXPECT_TRUE(is_open) << type;
    EXPECT_EQ(event["output_index"], output.size() - 1);
    Json& item = output.back();
    if (type == "response.output_item.done") {
      is_open = false;
      EXPECT_EQ(event["item"]["id"], item["id"]);
      item["status"] = event["item"]["status"];
      if (item.contains("encrypted_content")) item["encrypted_content"] = event["item"]["encrypted_content"];
      EXPECT_EQ(event["item"], item);
      continue;
    }
    EXPECT_EQ(event["item_id"], item["id"]) << type;
    if (type == "response.content_part.added") {
      EXPECT_EQ(event["content_index"], item["content"].size());
      item["content"].push_back(event["part"]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"], item["content"].back());
    } else if (type == "response.output_text.delta") {
      append("text", event["delta"]);
      for (const Json& logprob : event["logprobs"]) item["content"].back()["logprobs"].push_back(logprob);
    } else if (type == "response.output_text.done") {
      EXPECT_EQ(event["text"], item["content"].back()["text"]);
      EXPECT_EQ(event["logprobs"], item["content"].back()["logprobs"]);
    } else if (type == "response.reasoning_text.delta") {
      append("text", event["delta"]);
    } else if (type == "response.reasoning_text.done") {
      EXPECT_EQ(event["text"], item["content"].back()["text"]);
    } else if (type == "response.function_call_arguments.delta") {
      append("arguments", event["delta"]);
    } else if (type == "response.function_call_arguments.done") {
      EXPECT_EQ(event["arguments"], item["arguments"]);
    } else if (type == "response.custom_tool_call_input.delta") {
      append("input", event["delta"]);
    } else if (type == "response.custom_tool_call_input.done") {
      EXPECT_EQ(event["input"], item["input"]);
    } else {
      ADD_FAILURE() << type << " is not expected";
    }
  }
  ADD_FAILURE() << "the stream has no end";
  return {};
}

}  // namespace quire

#endif  // QUIRE_TESTS_GATEWAY_RESPONSES_RESPONSE_EVENTS_H_
