// SPDX-License-Identifier: Apache-2.0

#include "gateway/responses/response_answer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "tests/gateway/responses/read_response.h"
#include "tests/gateway/responses/response_events.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kAnswerTools[] = R"("tools": [{"type": "function", "name": "f"}, {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "send"}]}])";

AnswerHead Head() {
  return {.id = "resp_1", .created_unix_sec = 5, .model = "tales"};
}

v1::GenerateResponse Response(const std::string& text, v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED) {
  v1::GenerateResponse response;
  response.set_text_delta(text);
  if (!text.empty()) response.add_token_ids(7);
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

std::string Streaming(bool streams, const std::string& members) {
  return absl::StrCat(R"("stream": )", streams ? "true" : "false", members.empty() ? "" : ", ", members);
}

// The answer to a call for an output, which comes in pieces of this size.
Json Answer(const std::string& output, size_t piece_bytes, bool streams, v1::FinishReason reason,
            const std::string& members, ToolCallFormat format = ToolCallFormat::kHermes) {
  const GenerateCall call = ReadResponse(Streaming(streams, members));
  ResponseAnswer answer(call, Head());
  answer.SetSyntax(Syntax(call, format));
  std::string events;
  for (size_t i = 0; i < output.size(); i += piece_bytes)
    events += answer.Add(0, Response(output.substr(i, piece_bytes)));
  events += answer.Add(0, Response("", reason));
  if (streams) return JoinedResponse(events + answer.LastEvents());
  EXPECT_EQ(events, "");
  return Json::parse(answer.Body());
}

// The answer, which must be the same for a stream and a body, and for every division of the output.
Json Answer(const std::string& output, v1::FinishReason reason = v1::FINISH_REASON_STOP,
            const std::string& members = kAnswerTools) {
  const auto without_reasoning_tokens = [](Json answer) {
    answer["usage"].erase("output_tokens_details");  // Several tokens that come at once are counted together.
    return answer;
  };
  const Json whole = Answer(output, output.size() + 1, /*streams=*/false, reason, members);
  for (size_t piece_bytes = 1; piece_bytes <= output.size() + 1; ++piece_bytes) {
    for (const bool streams : {false, true}) {
      EXPECT_EQ(without_reasoning_tokens(Answer(output, piece_bytes, streams, reason, members)),
                without_reasoning_tokens(whole))
          << piece_bytes;
    }
  }
  return whole;
}

// What the items have besides their ids.
std::vector<std::string> Items(const Json& answer) {
  std::vector<std::string> items;
  for (Json item : answer["output"]) {
    const std::string type = item["type"];
    std::string text = type + " ";
    if (item.contains("content")) text += item["content"][0]["text"].get<std::string>();
    for (const char* name : {"namespace", "name", "arguments", "input"}) {
      if (item.contains(name)) absl::StrAppend(&text, item[name].get<std::string>(), "|");
    }
    if (item["status"] != "completed") absl::StrAppend(&text, " (", item["status"].get<std::string>(), ")");
    items.push_back(text);
  }
  return items;
}

TEST(ResponseAnswerTest, ABodyHasTheDocumentedMembers) {
  const GenerateCall call = ReadResponse(R"("instructions": "i", "max_output_tokens": 9, "metadata": {"a": "b"})");
  ResponseAnswer answer(call, Head());
  EXPECT_EQ(answer.Add(0, Response("Once ")), "");
  EXPECT_EQ(answer.Add(0, Response("upon", v1::FINISH_REASON_STOP)), "");
  Json body = Json::parse(answer.Body());
  const std::string id = body["output"][0]["id"];
  EXPECT_EQ(id.substr(0, 4), "msg_");
  body["output"][0]["id"] = "";
  EXPECT_EQ(body, Json::parse(R"({"id": "resp_1", "object": "response", "created_at": 5, "status": "completed",
      "error": null, "incomplete_details": null, "model": "tales", "output": [{"id": "", "type": "message",
      "role": "assistant", "content": [{"type": "output_text", "annotations": [], "logprobs": [],
      "text": "Once upon"}], "status": "completed"}], "usage": {"input_tokens": 20, "input_tokens_details":
      {"cached_tokens": 16, "cache_write_tokens": 0}, "output_tokens": 7, "output_tokens_details":
      {"reasoning_tokens": 0}, "total_tokens": 27}, "background": false, "previous_response_id": null,
      "service_tier": "default", "instructions": "i", "max_output_tokens": 9, "max_tool_calls": null,
      "prompt_cache_key": null, "safety_identifier": null, "temperature": null, "top_p": null, "user": null,
      "metadata": {"a": "b"}, "parallel_tool_calls": true, "reasoning": {"effort": null, "summary": null},
      "store": false, "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_logprobs": 0,
      "truncation": "disabled"})"));
}

TEST(ResponseAnswerTest, AStreamHasTheDocumentedEventsInTheirOrder) {
  const GenerateCall call = ReadResponse(Streaming(true, kAnswerTools));
  ResponseAnswer answer(call, Head());
  answer.SetSyntax(Syntax(call));
  std::string text = answer.Add(0, Response("<think>hm</think>Look: "));
  text += answer.Add(0, Response(R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)"));
  text += answer.Add(
      0, Response(R"(<tool_call>{"name": "patch", "arguments": {"input": "p"}}</tool_call>)", v1::FINISH_REASON_STOP));
  text += answer.LastEvents();
  std::vector<std::string> types;
  for (const Json& event : EventsOf(text)) types.push_back(event["type"]);
  EXPECT_THAT(types,
              ElementsAre("response.created", "response.in_progress",  //
                          "response.output_item.added", "response.content_part.added", "response.reasoning_text.delta",
                          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.content_part.added", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.output_item.added", "response.function_call_arguments.delta",
                          "response.function_call_arguments.done", "response.output_item.done",
                          "response.output_item.added", "response.custom_tool_call_input.delta",
                          "response.custom_tool_call_input.done", "response.output_item.done", "response.completed"));
}

TEST(ResponseAnswerTest, AnEventOfTextIsShort) {
  const GenerateCall call = ReadResponse(Streaming(true, ""));
  ResponseAnswer answer(call, Head());
  answer.Add(0, Response("a"));
  EXPECT_EQ(answer.Add(0, Response("")), "") << "the text lags behind the tokens";
  const std::string event = answer.Add(0, Response("\"b\""));
  ASSERT_EQ(event.substr(0, 34), "event: response.output_text.delta\n");
  Json data = Json::parse(event.substr(40));
  data.erase("item_id");
  EXPECT_EQ(data, Json::parse(R"({"type": "response.output_text.delta", "sequence_number": 5, "output_index": 0,
                                  "content_index": 0, "delta": "\"b\"", "logprobs": []})"));
}

TEST(ResponseAnswerTest, ItemsComeInTheOrderOfTheText) {
  const Json answer = Answer(
      "<think>\nso</think>\n\nI look.\n<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, {}]}}</tool_call>\n"
      "<tool_call>\n{\"name\": \"mail.send\", \"arguments\": {}}\n</tool_call> then <tool_call>{\"name\": \"patch\", "
      "\"arguments\": {\"input\": \"*** \\\"a\\\"\\n\"}}</tool_call>");
  EXPECT_THAT(Items(answer),
              ElementsAre("reasoning so", "message I look.", "function_call f|{\"a\": [1, {}]}|",
                          "function_call mail|send|{}|", "message  then", "custom_tool_call patch|*** \"a\"\n|"));
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["summary"], Json::array());
  EXPECT_EQ(answer["output"][0]["encrypted_content"], nullptr);
}

TEST(ResponseAnswerTest, IdsTellItemsAndCallsApart) {
  const std::string calls =
      "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call><tool_call>{\"name\": \"f\", \"arguments\": "
      "{}}</tool_call>";
  const Json output = Answer(calls)["output"];
  ASSERT_EQ(output.size(), 2u);
  EXPECT_NE(output[0]["id"], output[1]["id"]);
  EXPECT_NE(output[0]["call_id"], output[1]["call_id"]);
  EXPECT_EQ(output[0]["id"].get<std::string>().substr(0, 3), "fc_");
  EXPECT_EQ(output[0]["call_id"].get<std::string>().substr(0, 5), "call_");
  const Json mistral = Answer("[TOOL_CALLS]f{}", 99, /*streams=*/false, v1::FINISH_REASON_STOP, kAnswerTools,
                              ToolCallFormat::kMistral)["output"];
  EXPECT_EQ(mistral[0]["call_id"].get<std::string>().size(), 9u) << "templates of Mistral refuse others";
  EXPECT_EQ(mistral[0]["id"].get<std::string>().substr(0, 3), "fc_");
}

TEST(ResponseAnswerTest, AnAnswerThatIsCutIsIncomplete) {
  for (const auto& [output, item] : std::vector<std::pair<std::string, std::string>>{
           {"Once", "message Once (incomplete)"},
           {"<think>hm", "reasoning hm (incomplete)"},
           {R"(<tool_call>{"name": "f", "arguments": {"a": "lon)", R"(function_call f|{"a": "lon| (incomplete))"},
           {R"(<tool_call>{"name": "patch", "arguments": {"input": "lon)",
            R"(custom_tool_call patch|{"input": "lon| (incomplete))"},
           {R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)", "function_call f|{}|"}}) {
    const Json answer = Answer(output, v1::FINISH_REASON_LENGTH);
    EXPECT_THAT(Items(answer), ElementsAre(item));
    EXPECT_EQ(answer["status"], "incomplete");
    EXPECT_EQ(answer["incomplete_details"]["reason"], "max_output_tokens");
  }
}

TEST(ResponseAnswerTest, AnAnswerWithoutTextIsAnEmptyMessage) {
  const Json answer = Answer("");
  EXPECT_THAT(Items(answer), ElementsAre("message "));
  EXPECT_EQ(answer["status"], "completed");
}

TEST(ResponseAnswerTest, AnAnswerThatAnOperatorHasAbortedHasFailed) {
  const Json answer = Answer("Once", v1::FINISH_REASON_ABORT);
  EXPECT_THAT(Items(answer), ElementsAre("message Once (incomplete)"));
  EXPECT_EQ(answer["status"], "failed");
  EXPECT_EQ(answer["error"]["code"], "server_error");
  EXPECT_EQ(answer["error"]["message"], "an operator has aborted the request");
}

TEST(ResponseAnswerTest, ThoughtsHaveATokenOnDemand) {
  const Json answer =
      Answer("<think>so</think>ok", v1::FINISH_REASON_STOP, R"("include": ["reasoning.encrypted_content"])");
  EXPECT_EQ(answer["output"][0]["encrypted_content"], "quire.1.c28");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "so");
}

TEST(ResponseAnswerTest, TokensOfThoughtsAreCounted) {
  const GenerateCall call = ReadResponse("");
  ResponseAnswer answer(call, Head());
  answer.SetSyntax({.has_reasoning = true});
  for (const char* text : {"<think>", "a", "b", "</think>", "c"}) answer.Add(0, Response(text));
  answer.Add(0, Response("", v1::FINISH_REASON_STOP));
  EXPECT_EQ(Json::parse(answer.Body())["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
}

TEST(ResponseAnswerTest, APromptMayEndInThoughts) {
  const GenerateCall call = ReadResponse("");
  ResponseAnswer answer(call, Head());
  answer.SetSyntax({.has_reasoning = true});
  answer.SetBeginsInReasoning(true);
  answer.Add(0, Response("hm</think>ok", v1::FINISH_REASON_STOP));
  EXPECT_THAT(Items(Json::parse(answer.Body())), ElementsAre("reasoning hm", "message ok"));
}

v1::GenerateResponse WithLogprob(v1::GenerateResponse response, const std::string& token) {
  v1::PositionLogprobs* const position = response.add_logprobs();
  position->mutable_chosen()->set_token(token);
  position->mutable_chosen()->set_logprob(-0.5);
  position->add_top()->set_token(token);
  return response;
}

std::vector<std::string> LogprobTokens(const Json& item) {
  std::vector<std::string> tokens;
  for (const Json& entry : item["content"][0]["logprobs"]) tokens.push_back(entry["token"]);
  return tokens;
}

TEST(ResponseAnswerTest, ATextHasTheLogprobsOfItsTokens) {
  for (const bool streams : {false, true}) {
    const GenerateCall call =
        ReadResponse(Streaming(streams, R"("include": ["message.output_text.logprobs"], "top_logprobs": 1)"));
    ResponseAnswer plain(call, Head());
    std::string events;
    for (const char* text : {"a", "b"}) events += plain.Add(0, WithLogprob(Response(text), text));
    events += plain.Add(0, WithLogprob(Response("", v1::FINISH_REASON_STOP), "</s>"));
    EXPECT_EQ(plain.num_logprobs(), 6u);
    const Json whole = streams ? JoinedResponse(events + plain.LastEvents()) : Json::parse(plain.Body());
    EXPECT_THAT(LogprobTokens(whole["output"][0]), ElementsAre("a", "b", "</s>"));
    EXPECT_EQ(whole["output"][0]["content"][0]["logprobs"][0],
              Json::parse(R"({"token": "a", "logprob": -0.5, "bytes": [97],
                              "top_logprobs": [{"token": "a", "logprob": 0.0, "bytes": [97]}]})"));

    ResponseAnswer thinking(call, Head());
    thinking.SetSyntax({.has_reasoning = true});
    events.clear();
    for (const char* text : {"<think>", "hm", "</think>", "\n\n", "a", "b"}) {
      events += thinking.Add(0, WithLogprob(Response(text), text));
    }
    events += thinking.Add(0, Response("", v1::FINISH_REASON_STOP));
    const Json thought = streams ? JoinedResponse(events + thinking.LastEvents()) : Json::parse(thinking.Body());
    EXPECT_THAT(LogprobTokens(thought["output"][1]), ElementsAre("a", "b"));
  }
}

TEST(ResponseAnswerTest, EventsOfTextMayHideTheirLength) {
  const GenerateCall call = ReadResponse(Streaming(true, R"("stream_options": {"include_obfuscation": true})"));
  ResponseAnswer answer(call, Head());
  answer.Add(0, Response("first"));
  for (const char* text : {"a", "bcdef"}) EXPECT_EQ(answer.Add(0, Response(text)).size() % 64, 0u) << text;
}

TEST(ResponseAnswerTest, TheCopiesInTheLastEventsAreCounted) {
  for (const bool streams : {false, true}) {
    const GenerateCall call = ReadResponse(Streaming(streams, ""));
    ResponseAnswer answer(call, Head());
    answer.Add(0, Response(std::string(100'000, 'a')));
    answer.Add(0, Response("", v1::FINISH_REASON_STOP));
    const size_t counted = answer.num_bytes();
    constexpr size_t kFrame = 2000;  // What the events have besides the text.
    EXPECT_GE(counted + kFrame, (streams ? answer.LastEvents() : answer.Body()).size()) << streams;
  }
}

TEST(ResponseAnswerTest, AnErrorIsAnEventAndTheResponseHasFailed) {
  const GenerateCall call = ReadResponse(Streaming(true, ""));
  ResponseAnswer answer(call, Head());
  const std::string begin = answer.Add(0, Response("Once"));
  const std::vector<Json> events = EventsOf(
      begin + answer.ErrorEvent({.http_code = 503, .message = "the manager was lost", .code = "manager_lost"}, "r1"));
  ASSERT_GE(events.size(), 2u);
  const Json& error = events[events.size() - 2];
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["code"], "manager_lost");
  EXPECT_EQ(error["message"], "the manager was lost");
  EXPECT_EQ(error["param"], nullptr);
  const Json& failed = events.back()["response"];
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(failed["status"], "failed");
  EXPECT_EQ(failed["error"], Json::parse(R"({"code": "server_error", "message": "the manager was lost"})"));
  EXPECT_EQ(failed["usage"], nullptr);
  EXPECT_THAT(Items(failed), ElementsAre("message Once (incomplete)"));
}

}  // namespace
}  // namespace quire
