// SPDX-License-Identifier: Apache-2.0

#include "gateway/anthropic/message_answer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gateway/anthropic/cache_breakpoints.h"
#include "gmock/gmock.h"
#include "tests/gateway/anthropic/message_events.h"
#include "tests/gateway/anthropic/read_message.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kTwoTools[] = R"(, "tools": [{"name": "f", "input_schema": {}}, {"name": "g", "input_schema": {}}])";

AnswerHead Head() {
  return {.id = "msg_1", .created_unix_sec = 5, .model = "tales"};
}

v1::GenerateResponse Response(const std::string& text, v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  response.set_position(20);
  response.set_text_delta(text);
  response.set_finish_reason(reason);
  if (reason == v1::FINISH_REASON_UNSPECIFIED) return response;
  response.mutable_usage()->set_prompt_tokens(20);
  response.mutable_usage()->set_cached_tokens(16);
  response.mutable_usage()->set_completion_tokens(7);
  return response;
}

AnswerSyntax Syntax(const GenerateCall& call, ToolCallFormat format = ToolCallFormat::kHermes) {
  return {.has_reasoning = true, .tool_calls = {.format = format, .tools = call.tools}};
}

// The answer to a call with two tools for an output, which comes in pieces of this size.
Json Answer(const std::string& output, size_t piece_bytes, bool streams,
            v1::FinishReason reason = v1::FINISH_REASON_STOP, ToolCallFormat format = ToolCallFormat::kHermes) {
  const GenerateCall call = ReadMessage(std::string(R"("stream": )") + (streams ? "true" : "false") + kTwoTools);
  MessageAnswer answer(call, Head());
  answer.SetSyntax(Syntax(call, format));
  std::string events;
  for (size_t i = 0; i < output.size(); i += piece_bytes)
    events += answer.Add(0, Response(output.substr(i, piece_bytes)));
  events += answer.Add(0, Response("", reason));
  if (!streams) {
    EXPECT_EQ(events, "");
    return Json::parse(answer.Body());
  }
  return JoinedEvents(events + answer.LastEvents());
}

// The answer, which must be the same for a stream and a body, and for every division of the output.
Json Answer(const std::string& output, v1::FinishReason reason = v1::FINISH_REASON_STOP) {
  const Json whole = Answer(output, output.size() + 1, /*streams=*/false, reason);
  for (size_t piece_bytes = 1; piece_bytes <= output.size() + 1; ++piece_bytes) {
    EXPECT_EQ(Answer(output, piece_bytes, /*streams=*/false, reason), whole) << piece_bytes;
    EXPECT_EQ(Answer(output, piece_bytes, /*streams=*/true, reason), whole) << piece_bytes;
  }
  return whole;
}

Json Text(const std::string& text) {
  return {{"type", "text"}, {"text", text}};
}

Json Thinking(const std::string& text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

// A call without its id.
Json ToolUse(const std::string& name, const Json& input) {
  return {{"type", "tool_use"}, {"name", name}, {"input", input}};
}

Json ContentWithoutIds(Json answer) {
  for (Json& block : answer["content"]) block.erase("id");
  return answer["content"];
}

TEST(MessageAnswerTest, ABodyHasBlocksReasonAndUsage) {
  const GenerateCall call = ReadMessage("");
  MessageAnswer answer(call, Head());
  EXPECT_EQ(answer.Add(0, Response("Once ")), "");
  EXPECT_EQ(answer.Add(0, Response("upon", v1::FINISH_REASON_LENGTH)), "");
  EXPECT_EQ(answer.Body(),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"tales","content":[{"type":"text","text":)"
            R"("Once upon"}],"stop_reason":"max_tokens","stop_sequence":null,"usage":{"input_tokens":4,)"
            R"("cache_creation_input_tokens":0,"cache_read_input_tokens":16,"cache_creation":)"
            R"({"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":7}})");
}

TEST(MessageAnswerTest, AStreamHasTheDocumentedEventsInTheirOrder) {
  const GenerateCall call = ReadMessage(R"("stream": true)");
  MessageAnswer answer(call, Head());
  answer.SetSyntax({.has_reasoning = true});
  EXPECT_EQ(
      answer.Add(0, Response("<think>hm")),
      "event: message_start\n"
      R"(data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"tales",)"
      R"("content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":0,"cache_creation":)"
      R"({"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":0}}})"
      "\n\n"
      "event: content_block_start\n"
      R"(data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"",)"
      R"("signature":""}})"
      "\n\n"
      "event: ping\n"
      R"(data: {"type":"ping"})"
      "\n\n"
      "event: content_block_delta\n"
      R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}})"
      "\n\n");
  EXPECT_EQ(answer.Add(0, Response("")), "") << "the text lags behind the tokens";
  EXPECT_EQ(answer.Add(0, Response("</think>\n\n\"ok\"", v1::FINISH_REASON_STOP)),
            "event: content_block_delta\n"
            R"(data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":""}})"
            "\n\n"
            "event: content_block_stop\n"
            R"(data: {"type":"content_block_stop","index":0})"
            "\n\n"
            "event: content_block_start\n"
            R"(data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})"
            "\n\n"
            "event: content_block_delta\n"
            R"(data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\"ok\""}})"
            "\n\n");
  EXPECT_EQ(answer.LastEvents(),
            "event: content_block_stop\n"
            R"(data: {"type":"content_block_stop","index":1})"
            "\n\n"
            "event: message_delta\n"
            R"(data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":)"
            R"({"input_tokens":4,"cache_creation_input_tokens":0,"cache_read_input_tokens":16,"cache_creation":)"
            R"({"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},"output_tokens":7}})"
            "\n\n"
            "event: message_stop\n"
            R"(data: {"type":"message_stop"})"
            "\n\n");
}

TEST(MessageAnswerTest, BlocksComeInTheOrderOfTheText) {
  const Json answer = Answer(
      "<think>\nso</think>\n\nI look.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  EXPECT_EQ(ContentWithoutIds(answer),
            Json({Thinking("so"), Text("I look."), ToolUse("f", {{"a", {1, Json::object()}}}),
                  ToolUse("g", Json::object())}));
  EXPECT_EQ(answer["stop_reason"], "tool_use");
}

TEST(MessageAnswerTest, ATextBehindACallIsABlockBehindIt) {
  const Json answer = Answer(
      "first <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> then <tool_call>{\"name\": \"g\", "
      "\"arguments\": {}}</tool_call> last");
  std::vector<std::string> types;
  for (const Json& block : answer["content"]) types.push_back(block["type"]);
  EXPECT_THAT(types, ElementsAre("text", "tool_use", "text", "tool_use", "text"));
  EXPECT_EQ(answer["content"][2]["text"], " then");
}

TEST(MessageAnswerTest, CallsHaveIdsOfTheirOwn) {
  const std::string calls =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"f\", \"arguments\": "
      "{}}</tool_call>";
  const Json content = Answer(calls)["content"];
  ASSERT_EQ(content.size(), 2u);
  EXPECT_NE(content[0]["id"], content[1]["id"]);
  EXPECT_EQ(content[0]["id"].get<std::string>().substr(0, 6), "toolu_");
  const Json mistral =
      Answer("[TOOL_CALLS]f{}", 99, /*streams=*/false, v1::FINISH_REASON_STOP, ToolCallFormat::kMistral);
  EXPECT_EQ(mistral["content"][0]["id"].get<std::string>().size(), 9u) << "templates of Mistral refuse others";
}

TEST(MessageAnswerTest, ACallThatWasCutHasAnEmptyInput) {
  const Json answer = Answer(R"(<tool_call>{"name": "f", "arguments": {"a": "lon)", v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(ContentWithoutIds(answer), Json({ToolUse("f", Json::object())}));
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
}

TEST(MessageAnswerTest, AnAnswerMayHaveNoBlocks) {
  const Json answer = Answer("");
  EXPECT_THAT(answer["content"], IsEmpty());
  EXPECT_EQ(answer["stop_reason"], "end_turn");
}

TEST(MessageAnswerTest, EachEndHasItsReason) {
  GenerateCall call = ReadMessage("");
  const auto end = [&call](v1::GenerateResponse response) {
    MessageAnswer answer(call, Head());
    answer.Add(0, response);
    const Json body = Json::parse(answer.Body());
    return absl::StrCat(body["stop_reason"].dump(), " ", body["stop_sequence"].dump());
  };
  EXPECT_EQ(end(Response("a", v1::FINISH_REASON_STOP)), R"("end_turn" null)");
  EXPECT_EQ(end(Response("a", v1::FINISH_REASON_LENGTH)), R"("max_tokens" null)");
  EXPECT_EQ(end(Response("a", v1::FINISH_REASON_ABORT)), R"("refusal" null)");
  v1::GenerateResponse stopped = Response("a", v1::FINISH_REASON_STOP);
  stopped.set_stop("END\n");
  EXPECT_EQ(end(stopped), R"("stop_sequence" "END\n")");
  call.is_cut_to_context = true;
  EXPECT_EQ(end(Response("a", v1::FINISH_REASON_LENGTH)), R"("model_context_window_exceeded" null)");
}

TEST(MessageAnswerTest, AnAnswerThatOnlyFillsTheCacheIsEmpty) {
  for (const char* streams : {"false", "true"}) {
    const GenerateCall call = ReadMessage(absl::StrCat(R"("max_tokens": 0, "stream": )", streams));
    MessageAnswer answer(call, Head());
    const std::string events = answer.Add(0, Response("a", v1::FINISH_REASON_STOP));
    const Json message = call.streams ? JoinedEvents(events + answer.LastEvents()) : Json::parse(answer.Body());
    EXPECT_THAT(message["content"], IsEmpty());
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    EXPECT_EQ(message["usage"]["input_tokens"], 4);
    EXPECT_EQ(message["usage"]["output_tokens"], 0);
  }
}

TEST(MessageAnswerTest, ACallOfTheToolThatTheClientHasNamedIsToolUse) {
  const GenerateCall call = ReadMessage(
      R"("tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_choice": {"type": "tool", "name": "f"})");
  MessageAnswer answer(call, Head());
  answer.SetSyntax(Syntax(call));
  answer.Add(0, Response("<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", v1::FINISH_REASON_STOP));
  EXPECT_EQ(Json::parse(answer.Body())["stop_reason"], "tool_use");
}

TEST(MessageAnswerTest, APromptMayEndInThoughts) {
  const GenerateCall call = ReadMessage("");
  MessageAnswer answer(call, Head());
  answer.SetSyntax({.has_reasoning = true});
  answer.SetBeginsInReasoning(true);
  answer.Add(0, Response("hm</think>ok", v1::FINISH_REASON_STOP));
  EXPECT_EQ(Json::parse(answer.Body())["content"], Json({Thinking("hm"), Text("ok")}));
}

TEST(MessageAnswerTest, TheMemoryOfAStreamIsSmall) {
  const GenerateCall whole = ReadMessage("");
  const GenerateCall stream = ReadMessage(R"("stream": true)");
  MessageAnswer body(whole, Head());
  MessageAnswer events(stream, Head());
  body.Add(0, Response(std::string(100'000, 'a')));
  events.Add(0, Response(std::string(100'000, 'a')));
  EXPECT_GE(body.num_bytes(), 100'000u);
  EXPECT_LT(events.num_bytes(), 1000u);
}

TEST(MessageAnswerTest, AnErrorIsAnEvent) {
  const GenerateCall call = ReadMessage(R"("stream": true)");
  EXPECT_EQ(MessageAnswer(call, Head()).ErrorEvent({.http_code = 503, .message = "lost"}, "r1"),
            "event: error\n"
            R"(data: {"type":"error","error":{"type":"overloaded_error","message":"lost"},"request_id":"r1"})"
            "\n\n");
}

// A conversation of 20 tokens with these pins of 5 minutes and of an hour, of which `num_cached` were cached. Returns
// the tokens that were read, those that are kept for an hour and for 5 minutes, and the rest.
std::vector<int> CacheUsage(uint32_t num_cached, const std::vector<uint32_t>& short_pins,
                            const std::vector<uint32_t>& long_pins) {
  GenerateCall call = ReadMessage("");
  v1::GenerateResponse response = Response("x", v1::FINISH_REASON_STOP);
  response.mutable_usage()->set_cached_tokens(num_cached);
  for (const auto& [seconds, pins] : {std::pair(kShortCacheSeconds, short_pins), {kLongCacheSeconds, long_pins}}) {
    for (const uint32_t num_tokens : pins) {
      call.pin_seconds.push_back(seconds);
      response.mutable_usage()->add_pins()->set_pinned_tokens(num_tokens);
    }
  }
  MessageAnswer answer(call, Head());
  answer.Add(0, response);
  const Json usage = Json::parse(answer.Body())["usage"];
  const int hour = usage["cache_creation"]["ephemeral_1h_input_tokens"];
  const int minutes = usage["cache_creation"]["ephemeral_5m_input_tokens"];
  EXPECT_EQ(usage["cache_creation_input_tokens"], hour + minutes);
  return {usage["cache_read_input_tokens"], hour, minutes, usage["input_tokens"]};
}

TEST(MessageAnswerTest, TheUsageDividesThePromptAtThePins) {
  EXPECT_THAT(CacheUsage(0, {}, {}), ElementsAre(0, 0, 0, 20));
  EXPECT_THAT(CacheUsage(0, {8}, {}), ElementsAre(0, 0, 8, 12));
  EXPECT_THAT(CacheUsage(0, {4, 16}, {8}), ElementsAre(0, 8, 8, 4));
  EXPECT_THAT(CacheUsage(6, {16}, {8}), ElementsAre(6, 2, 8, 4));
  EXPECT_THAT(CacheUsage(12, {16}, {8}), ElementsAre(12, 0, 4, 4));
  EXPECT_THAT(CacheUsage(19, {16}, {8}), ElementsAre(19, 0, 0, 1)) << "everything is there already";
  EXPECT_THAT(CacheUsage(6, {0}, {8}), ElementsAre(6, 2, 0, 12)) << "the other one was beyond a limit";
}

TEST(MessageAnswerTest, AStreamBeginsWithTheCountsOfThePinsAndKeepsThem) {
  GenerateCall call = ReadMessage(R"("stream": true)");
  call.pin_seconds = {kShortCacheSeconds};
  MessageAnswer answer(call, Head());
  v1::GenerateResponse first = Response("Once ");
  first.mutable_prompt_usage()->set_prompt_tokens(20);
  first.mutable_prompt_usage()->set_cached_tokens(4);
  first.mutable_prompt_usage()->add_pins()->set_pinned_tokens(16);
  const std::string counts =
      R"("usage":{"input_tokens":4,"cache_creation_input_tokens":12,"cache_read_input_tokens":4,"cache_creation":)"
      R"({"ephemeral_5m_input_tokens":12,"ephemeral_1h_input_tokens":0},"output_tokens":)";
  EXPECT_THAT(answer.Add(0, first), HasSubstr(counts + "0}"));
  // It comes from another manager, which knows nothing of the pin.
  answer.Add(0, Response("upon", v1::FINISH_REASON_LENGTH));
  EXPECT_THAT(answer.LastEvents(), HasSubstr(counts + "7}"));
}

}  // namespace
}  // namespace quire
