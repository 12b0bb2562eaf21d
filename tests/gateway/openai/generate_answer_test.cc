// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_answer.h"

#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

const AnswerHead kHead{.id = "cmpl-1", .created_unix_sec = 5, .model = "tales"};

GenerateCall CompletionCall(const std::string& members) {
  return std::get<GenerateCall>(ReadCompletionCall(*ParseBody("{" + members + "}")));
}

GenerateCall ChatCall(const std::string& members) {
  return std::get<GenerateCall>(
      ReadChatCall(*ParseBody("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]" + members + "}")));
}

v1::GenerateResponse Response(const std::string& text, uint32_t index = 0) {
  v1::GenerateResponse response;
  response.set_index(index);
  response.set_text_delta(text);
  return response;
}

v1::GenerateResponse Last(const std::string& text, v1::FinishReason reason, uint32_t index = 0) {
  v1::GenerateResponse response = Response(text, index);
  response.set_finish_reason(reason);
  return response;
}

v1::GenerateResponse WithUsage(v1::GenerateResponse response, uint32_t prompt, uint32_t completion) {
  response.mutable_usage()->set_prompt_tokens(prompt);
  response.mutable_usage()->set_completion_tokens(completion);
  return response;
}

v1::PositionLogprobs* AddLogprob(LogprobList* list, const std::string& token, float logprob) {
  v1::PositionLogprobs* const position = list->Add();
  position->mutable_chosen()->set_token(token);
  position->mutable_chosen()->set_logprob(logprob);
  position->mutable_chosen()->set_token_id(7);
  position->set_rank(1);
  return position;
}

// The JSON of each event. The end is "[DONE]".
std::vector<Json> Events(const std::string& text) {
  std::vector<Json> events;
  for (absl::string_view event : absl::StrSplit(text, "\n\n", absl::SkipEmpty())) {
    EXPECT_TRUE(absl::ConsumePrefix(&event, "data: ")) << event;
    events.push_back(event == "[DONE]" ? Json("[DONE]") : Json::parse(event));
  }
  return events;
}

TEST(GenerateAnswerTest, ACompletionHasTextReasonAndUsage) {
  const GenerateCall call = CompletionCall(R"("prompt": "x")");
  GenerateAnswer answer(call, kHead);
  EXPECT_EQ(answer.Add(0, Response("Once ")), "");
  EXPECT_EQ(answer.Add(0, WithUsage(Last("upon", v1::FINISH_REASON_LENGTH), 3, 2)), "");
  EXPECT_EQ(
      answer.Body(),
      R"({"id":"cmpl-1","object":"text_completion","created":5,"model":"tales","choices":[{"index":0,)"
      R"("text":"Once upon","logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":{)"
      R"("prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":0}}})");
}

TEST(GenerateAnswerTest, ChoicesAreNumberedAcrossPrompts) {
  const GenerateCall call = CompletionCall(R"("prompt": ["a", "b"], "n": 2)");
  GenerateAnswer answer(call, kHead);
  answer.Add(1, Last("b0", v1::FINISH_REASON_STOP, 0));
  answer.Add(0, Last("a1", v1::FINISH_REASON_STOP, 1));
  answer.Add(1, WithUsage(Last("b1", v1::FINISH_REASON_STOP, 1), 10, 20));
  answer.Add(0, WithUsage(Last("a0", v1::FINISH_REASON_STOP, 0), 1, 2));
  const Json body = Json::parse(answer.Body());
  std::vector<std::string> texts;
  for (const Json& choice : body["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_EQ(body["choices"][3]["index"], 3);
  EXPECT_EQ(body["usage"]["prompt_tokens"], 11);
  EXPECT_EQ(body["usage"]["total_tokens"], 33);
}

TEST(GenerateAnswerTest, ABeamSearchMayReturnFewerHypotheses) {
  const GenerateCall call = CompletionCall(R"("prompt": "a", "n": 3, "use_beam_search": true)");
  GenerateAnswer answer(call, kHead);
  answer.Add(0, Last("a", v1::FINISH_REASON_STOP, 0));
  EXPECT_EQ(Json::parse(answer.Body())["choices"].size(), 1u);
}

TEST(GenerateAnswerTest, AStreamOfACompletionHasAnEventForEachText) {
  const GenerateCall call =
      CompletionCall(R"("prompt": "x", "stream": true, "stream_options": {"include_usage": true})");
  GenerateAnswer answer(call, kHead);
  std::string text = answer.Add(0, Response("On\"ce\n"));
  EXPECT_EQ(answer.Add(0, Response("")), "") << "the text lags behind the tokens";
  v1::GenerateResponse last = WithUsage(Last("", v1::FINISH_REASON_STOP), 3, 2);
  last.set_stop("END");
  text += answer.Add(0, last);
  text += answer.LastEvents();
  const std::vector<Json> events = Events(text);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0]["object"], "text_completion");
  EXPECT_EQ(events[0]["choices"][0]["text"], "On\"ce\n");
  EXPECT_TRUE(events[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(events[0]["usage"].is_null());
  EXPECT_EQ(events[1]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(events[1]["choices"][0]["stop_reason"], "END");
  EXPECT_TRUE(events[2]["choices"].empty());
  EXPECT_EQ(events[2]["usage"]["total_tokens"], 5);
  EXPECT_EQ(events[3], "[DONE]");
}

TEST(GenerateAnswerTest, WithRunningUsageEachEventHasTheTokensOfItsChoiceSoFar) {
  const std::string options =
      R"(, "stream": true, "n": 2, "stream_options": {"include_usage": true, "continuous_usage_stats": true})";
  const auto tokens = [](v1::GenerateResponse response, uint32_t position, int num_tokens) {
    response.set_position(position);
    for (int i = 0; i < num_tokens; ++i) response.add_token_ids(7);
    return response;
  };
  // The prompt has 4 tokens. The text of a token may come later than the token.
  const std::vector<v1::GenerateResponse> responses = {
      tokens(Response("One", 0), 4, 1),
      tokens(Response("", 0), 5, 2),
      tokens(Response("A", 1), 4, 2),
      tokens(Response(" day", 0), 7, 1),
      tokens(Last("", v1::FINISH_REASON_STOP, 1), 6, 1),
      WithUsage(tokens(Last("", v1::FINISH_REASON_LENGTH, 0), 8, 0), 4, 7)};
  const auto usages = [&](const GenerateCall& call) {
    GenerateAnswer answer(call, kHead);
    std::string text;
    for (const v1::GenerateResponse& response : responses) text += answer.Add(0, response);
    text += answer.LastEvents();
    std::vector<std::string> all;
    for (const Json& event : Events(text)) {
      if (event == "[DONE]") continue;
      const Json& usage = event["usage"];
      EXPECT_EQ(usage["total_tokens"], int{usage["prompt_tokens"]} + int{usage["completion_tokens"]});
      all.push_back(usage["prompt_tokens"].dump() + "+" + usage["completion_tokens"].dump());
    }
    return all;
  };
  EXPECT_THAT(usages(CompletionCall(R"("prompt": "x")" + options)),
              ElementsAre("4+1", "4+2", "4+4", "4+3", "4+4", "4+7"));
  // The event with the role is made before the first token.
  EXPECT_THAT(usages(ChatCall(options)), ElementsAre("4+0", "4+1", "4+0", "4+2", "4+4", "4+3", "4+4", "4+7"));
}

v1::GenerateResponse WithTokens(v1::GenerateResponse response, const std::vector<uint32_t>& ids) {
  for (const uint32_t id : ids) response.add_token_ids(id);
  return response;
}

TEST(GenerateAnswerTest, TokenIdsAreThoseOfTheChoiceAndOfItsPrompt) {
  const GenerateCall call = CompletionCall(R"("prompt": ["a", "b"], "return_token_ids": true)");
  GenerateAnswer answer(call, kHead);
  answer.SetPromptTokens(0, {1, 2});
  answer.SetPromptTokens(1, {3});
  answer.Add(0, WithTokens(Response(""), {4, 5}));
  answer.Add(1, WithTokens(Last("x", v1::FINISH_REASON_STOP), {6}));
  answer.Add(0, WithTokens(Last("y", v1::FINISH_REASON_STOP), {7}));
  const Json body = Json::parse(answer.Body());
  EXPECT_EQ(body["choices"][0]["prompt_token_ids"], Json({1, 2}));
  EXPECT_EQ(body["choices"][0]["token_ids"], Json({4, 5, 7}));
  EXPECT_EQ(body["choices"][1]["prompt_token_ids"], Json::array({3}));
  EXPECT_EQ(body["choices"][1]["token_ids"], Json::array({6}));

  const GenerateCall chat = ChatCall(R"(, "return_token_ids": true)");
  GenerateAnswer chat_answer(chat, kHead);
  chat_answer.SetPromptTokens(0, {1, 2});
  chat_answer.Add(0, WithTokens(Last("x", v1::FINISH_REASON_STOP), {6}));
  const Json chat_body = Json::parse(chat_answer.Body());
  EXPECT_EQ(chat_body["prompt_token_ids"], Json({1, 2}));
  EXPECT_EQ(chat_body["choices"][0]["token_ids"], Json::array({6}));
  EXPECT_FALSE(chat_body["choices"][0].contains("prompt_token_ids"));
}

TEST(GenerateAnswerTest, AStreamWithTokenIdsHasAnEventForTokensWhoseTextComesLater) {
  const GenerateCall call = CompletionCall(R"("prompt": "a", "stream": true, "return_token_ids": true, "logprobs": 0)");
  GenerateAnswer answer(call, kHead);
  answer.SetPromptTokens(0, {1, 2});
  std::string text = answer.Add(0, WithTokens(Response(""), {4, 5}));
  text += answer.Add(0, WithTokens(Last("x", v1::FINISH_REASON_STOP), {6}));
  const std::vector<Json> events = Events(text);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0]["choices"][0]["token_ids"], Json({4, 5}));
  EXPECT_EQ(events[0]["choices"][0]["prompt_token_ids"], Json({1, 2}));
  EXPECT_EQ(events[1]["choices"][0]["token_ids"], Json::array({6}));
  EXPECT_FALSE(events[1]["choices"][0].contains("prompt_token_ids"));

  const GenerateCall chat = ChatCall(R"(, "stream": true, "return_token_ids": true)");
  GenerateAnswer chat_answer(chat, kHead);
  chat_answer.SetPromptTokens(0, {1, 2});
  const std::vector<Json> chat_events = Events(chat_answer.Add(0, WithTokens(Response("x"), {4})));
  ASSERT_EQ(chat_events.size(), 2u);
  EXPECT_EQ(chat_events[0]["prompt_token_ids"], Json({1, 2}));
  EXPECT_FALSE(chat_events[1].contains("prompt_token_ids"));
  EXPECT_EQ(chat_events[1]["choices"][0]["token_ids"], Json::array({4}));
}

TEST(GenerateAnswerTest, AStreamOfAChatBeginsWithTheRoleOfEachChoice) {
  const GenerateCall call = ChatCall(R"(, "stream": true, "n": 2)");
  GenerateAnswer answer(call, kHead);
  std::string text = answer.Add(0, Response("Hi", 1));
  text += answer.Add(0, Response("!", 1));
  text += answer.Add(0, Last("", v1::FINISH_REASON_LENGTH, 0));
  text += answer.LastEvents();
  const std::vector<Json> events = Events(text);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0]["object"], "chat.completion.chunk");
  EXPECT_EQ(events[0]["choices"][0]["index"], 1);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(events[1]["choices"][0]["delta"]["content"], "Hi");
  EXPECT_EQ(events[2]["choices"][0]["delta"]["content"], "!");
  EXPECT_EQ(events[3]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(events[4]["choices"][0]["delta"].empty());
  EXPECT_EQ(events[4]["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(events[4].contains("usage")) << "the client did not ask for it";
}

TEST(GenerateAnswerTest, AStreamThatCanBeResumedHasIdsAndGoesOnBehindThem) {
  const GenerateCall call =
      ChatCall(R"(, "stream": true, "stream_options": {"resumable": true, "include_usage": true})");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse response = Response("Hi");
  response.set_request_id("cmpl-1");
  response.set_resume_token("token");
  response.set_position(4);
  response.add_token_ids(1);
  EXPECT_THAT(answer.Add(0, response), testing::HasSubstr("}\n\nid: chat.token:0.5\ndata: {"));

  GenerateAnswer resumed(call, AnswerHead{.id = "another", .created_unix_sec = 5, .model = "tales"});
  resumed.ResumeBehind(*StreamPosition::Parse("chat.token:0.5", /*is_chat=*/true));
  v1::GenerateResponse last = Last("!", v1::FINISH_REASON_STOP);
  last.set_request_id("cmpl-1");
  last.set_position(5);
  last.add_token_ids(2);
  EXPECT_THAT(resumed.Add(0, last), testing::StartsWith("id: chat.token:0.6f\ndata: {\"id\":\"cmpl-1\","))
      << "the role came before";
  EXPECT_EQ(resumed.LastEvents(), "data: [DONE]\n\n") << "the usage is not known";
}

TEST(GenerateAnswerTest, AChatHasAMessage) {
  const GenerateCall call = ChatCall("");
  GenerateAnswer answer(call, kHead);
  answer.Add(0, Last("Hello", v1::FINISH_REASON_STOP));
  const Json body = Json::parse(answer.Body());
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello");
}

TEST(GenerateAnswerTest, LogprobsOfACompletionAreListsOverThePositions) {
  const GenerateCall call = CompletionCall(R"("prompt": "x", "echo": true, "logprobs": 1)");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse first = Response("x\xC3\xA4");
  first.add_prompt_logprobs()->set_first_token("x");
  v1::PositionLogprobs* const position = AddLogprob(first.mutable_logprobs(), "\xC3\xA4", -1);
  position->set_text_offset(1);
  v1::TokenLogprob* const top = position->add_top();
  top->set_token("b");
  top->set_logprob(-0.5);
  answer.Add(0, first);
  v1::GenerateResponse second = Last("y", v1::FINISH_REASON_LENGTH);
  AddLogprob(second.mutable_logprobs(), "y", -std::numeric_limits<float>::infinity())->set_text_offset(2);
  answer.Add(0, second);
  const Json logprobs = Json::parse(answer.Body())["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["tokens"], Json::array({"x", "\xC3\xA4", "y"}));
  EXPECT_EQ(logprobs["token_logprobs"], Json::array({nullptr, -1.0, -9999.0}));
  EXPECT_EQ(logprobs["text_offset"], Json::array({0, 1, 2}));
  EXPECT_EQ(logprobs["top_logprobs"][1], Json({{"b", -0.5}, {"\xC3\xA4", -1.0}}));
}

TEST(GenerateAnswerTest, AnAnswerWithoutTokensHasThePromptAndItsLogprobs) {
  for (const bool streams : {false, true}) {
    const GenerateCall call = CompletionCall(
        absl::StrCat(R"("prompt": "x", "echo": true, "max_tokens": 0, "logprobs": 1, "n": 2, "stream": )",
                     streams ? "true" : "false"));
    GenerateAnswer answer(call, kHead);
    std::string events;
    for (const uint32_t index : {0, 1}) {
      v1::GenerateResponse response = Last("\xC3\xA4x", v1::FINISH_REASON_LENGTH);
      response.set_index(index);
      if (index == 0) response.add_prompt_logprobs()->set_first_token("\xC3\xA4x");
      response.mutable_usage()->set_prompt_tokens(1);
      events += answer.Add(0, response);
    }
    if (streams) {
      std::string text;
      for (const Json& event : Events(events)) text += event["choices"][0]["text"].get<std::string>();
      EXPECT_EQ(text, "\xC3\xA4x\xC3\xA4x");
      continue;
    }
    const Json body = Json::parse(answer.Body());
    for (const Json& choice : body["choices"]) {
      EXPECT_EQ(choice["text"], "\xC3\xA4x");
      EXPECT_EQ(choice["logprobs"]["tokens"], Json::array({"\xC3\xA4x"}));
      EXPECT_EQ(choice["finish_reason"], "length");
      EXPECT_EQ(choice["stop_reason"], nullptr);
    }
    EXPECT_EQ(body["usage"]["completion_tokens"], 0);
  }
}

TEST(GenerateAnswerTest, LogprobsOfAChatHaveTheBytesOfTokens) {
  const GenerateCall call = ChatCall(R"(, "logprobs": true, "top_logprobs": 1, "stream": true)");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse response = Response("");
  AddLogprob(response.mutable_logprobs(), "\xC3", -1);  // A part of a code point.
  const std::vector<Json> events = Events(answer.Add(0, response));
  ASSERT_EQ(events.size(), 2u);
  const Json entry = events[1]["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "\xEF\xBF\xBD");
  EXPECT_EQ(entry["bytes"], Json::array({0xC3}));
  EXPECT_EQ(entry["logprob"], -1.0);
  EXPECT_TRUE(entry["top_logprobs"].empty());
}

TEST(GenerateAnswerTest, LogprobsMayNameTokensByTheirIds) {
  const GenerateCall chat = ChatCall(R"(, "logprobs": true, "stream": true, "return_tokens_as_token_ids": true)");
  const GenerateCall completion =
      CompletionCall(R"("prompt": "x", "logprobs": 0, "stream": true, "return_tokens_as_token_ids": true)");
  v1::GenerateResponse response = Response("a");
  AddLogprob(response.mutable_logprobs(), "a", -1);
  GenerateAnswer of_chat(chat, kHead);
  const Json entry = Events(of_chat.Add(0, response))[1]["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(entry["token"], "token_id:7");
  EXPECT_EQ(entry["bytes"], Json::array({'a'}));
  GenerateAnswer of_completion(completion, kHead);
  const Json lists = Events(of_completion.Add(0, response))[0]["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"], Json::array({"token_id:7"}));
  EXPECT_EQ(lists["top_logprobs"][0], Json({{"token_id:7", -1.0}}));
}

TEST(GenerateAnswerTest, WithObfuscationShortTextsGiveEventsOfOneLength) {
  const GenerateCall call =
      ChatCall(R"(, "stream": true, "stream_options": {"include_obfuscation": true, "include_usage": true})");
  GenerateAnswer answer(call, kHead);
  answer.Add(0, Response("a"));  // With the role.
  const size_t length = answer.Add(0, Response("a")).size();
  EXPECT_EQ(length % 64, 0u);
  for (const size_t size : {2, 3, 9, 15}) {
    const std::string event = answer.Add(0, Response(std::string(size, 'b')));
    EXPECT_EQ(event.size() % 64, 0u) << size;
    EXPECT_LE(event.size(), length + 64) << size;
    const Json json = Events(event)[0];
    EXPECT_EQ(json["choices"][0]["delta"]["content"], std::string(size, 'b'));
    EXPECT_FALSE(json["obfuscation"].get<std::string>().empty());
  }
}

TEST(GenerateAnswerTest, PromptLogprobsAreMapsOfTokenIds) {
  const GenerateCall call = CompletionCall(R"("prompt": "x", "prompt_logprobs": 1)");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse response = Last("y", v1::FINISH_REASON_LENGTH);
  response.add_prompt_logprobs();
  AddLogprob(response.mutable_prompt_logprobs(), "x", -2);
  answer.Add(0, response);
  const Json list = Json::parse(answer.Body())["choices"][0]["prompt_logprobs"];
  EXPECT_EQ(list[0], nullptr);
  EXPECT_EQ(list[1]["7"], Json({{"logprob", -2.0}, {"rank", 1}, {"decoded_token", "x"}}));
}

constexpr char kTools[] = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
constexpr char kCall[] = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";

AnswerSyntax ThinkingHermes(const GenerateCall& call) {
  return {.has_reasoning = true, .tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}};
}

TEST(GenerateAnswerTest, ThoughtsAndCallsAreMembersOfTheMessage) {
  const GenerateCall call = ChatCall(kTools);
  GenerateAnswer answer(call, kHead);
  answer.SetSyntax(ThinkingHermes(call));
  answer.Add(0, Response("<think>hm</thi"));
  answer.Add(0, Response("nk>"));
  answer.Add(0, Last(kCall, v1::FINISH_REASON_STOP));
  const Json choice = Json::parse(answer.Body())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
  EXPECT_EQ(choice["message"]["reasoning"], "hm");
  ASSERT_EQ(choice["message"]["tool_calls"].size(), 1u);
  const Json made = choice["message"]["tool_calls"][0];
  EXPECT_EQ(made["type"], "function");
  EXPECT_EQ(made["function"], Json({{"name", "f"}, {"arguments", "{\"a\": 1}"}}));
  EXPECT_EQ(made["id"].get<std::string>().substr(0, 5), "call_");
}

TEST(GenerateAnswerTest, AStreamHasThePartsOfThoughtsAndCalls) {
  const GenerateCall call = ChatCall(std::string(R"(, "stream": true)") + kTools);
  GenerateAnswer answer(call, kHead);
  answer.SetSyntax(ThinkingHermes(call));
  answer.SetBeginsInReasoning(true);
  std::string text = answer.Add(0, Response("hm"));
  text += answer.Add(0, Response("</think>Look.<tool_call>{\"name\": \"f\", \"arguments\": {\"a"));
  EXPECT_EQ(answer.Add(0, Response("")), "");
  text += answer.Add(0, Response("\": 1}}</tool_call>"));
  text += answer.Add(0, Last("", v1::FINISH_REASON_STOP));
  std::vector<Json> deltas;
  std::vector<Json> reasons;
  for (const Json& event : Events(text)) {
    deltas.push_back(event["choices"][0]["delta"]);
    reasons.push_back(event["choices"][0]["finish_reason"]);
  }
  ASSERT_EQ(deltas.size(), 5u);
  EXPECT_EQ(deltas[1], Json({{"reasoning_content", "hm"}, {"reasoning", "hm"}}));
  EXPECT_EQ(deltas[2]["content"], "Look.");
  const Json first = deltas[2]["tool_calls"][0];
  EXPECT_EQ(first["index"], 0);
  EXPECT_EQ(first["type"], "function");
  EXPECT_TRUE(first["id"].is_string());
  EXPECT_EQ(first["function"], Json({{"name", "f"}, {"arguments", "{\"a"}}));
  EXPECT_EQ(deltas[3], Json::parse(R"({"tool_calls": [{"index": 0, "function": {"arguments": "\": 1}"}}]})"));
  EXPECT_EQ(deltas[4], Json::object());
  EXPECT_EQ(reasons.back(), "tool_calls");
}

TEST(GenerateAnswerTest, ACallThatIsCutEndsWithTheLength) {
  const GenerateCall call = ChatCall(kTools);
  GenerateAnswer answer(call, kHead);
  answer.SetSyntax(ThinkingHermes(call));
  answer.Add(0, Last(R"(<tool_call>{"name": "f", "arguments": {"a)", v1::FINISH_REASON_LENGTH));
  const Json choice = Json::parse(answer.Body())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"a");
}

TEST(GenerateAnswerTest, ACallThatAStopStringHasCutDoesNotEndWithToolCalls) {
  for (const bool streams : {false, true}) {
    const GenerateCall call = ChatCall(std::string(streams ? R"(, "stream": true)" : "") + kTools);
    GenerateAnswer answer(call, kHead);
    answer.SetSyntax(ThinkingHermes(call));
    v1::GenerateResponse last = Last(R"(<tool_call>{"name": "f", "arguments": {"a": 1)", v1::FINISH_REASON_STOP);
    last.set_stop("}");
    const std::string events = answer.Add(0, last);
    const Json body = streams ? Events(events).back() : Json::parse(answer.Body());
    EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(body["choices"][0]["stop_reason"], "}");
  }
}

TEST(GenerateAnswerTest, ACallOfTheToolThatTheClientHasNamedStops) {
  const std::string named = R"(, "tool_choice": {"type": "function", "function": {"name": "f"}})";
  const GenerateCall call = ChatCall(named + kTools);
  GenerateAnswer answer(call, kHead);
  answer.SetSyntax({.tool_calls = {.format = ToolCallFormat::kHermes, .tools = call.tools}});
  answer.Add(0, Last(kCall, v1::FINISH_REASON_STOP));
  const Json choice = Json::parse(answer.Body())["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
}

TEST(GenerateAnswerTest, IdsOfCallsDifferAndFitTheTemplate) {
  const GenerateCall call = ChatCall(std::string(R"(, "n": 2)") + kTools);
  GenerateAnswer answer(call, kHead);
  answer.SetSyntax({.tool_calls = {.format = ToolCallFormat::kMistral, .tools = call.tools}});
  answer.Add(0, Last("[TOOL_CALLS]f{}[TOOL_CALLS]f{}", v1::FINISH_REASON_STOP, 0));
  answer.Add(0, Last("[TOOL_CALLS]f{}", v1::FINISH_REASON_STOP, 1));
  std::set<std::string> ids;
  const Json body = Json::parse(answer.Body());
  for (const Json& choice : body["choices"]) {
    for (const Json& made : choice["message"]["tool_calls"]) ids.insert(made["id"].get<std::string>());
  }
  EXPECT_EQ(ids.size(), 3u);
  for (const std::string& id : ids) EXPECT_THAT(id, ::testing::MatchesRegex("[a-z0-9]{9}"));
}

TEST(GenerateAnswerTest, AStreamHasPromptLogprobsOncePerChoice) {
  const GenerateCall call = CompletionCall(R"("prompt": "x", "prompt_logprobs": 1, "stream": true, "n": 2)");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse response = Response("");
  response.add_prompt_logprobs();
  AddLogprob(response.mutable_prompt_logprobs(), "x", -2);
  std::string text = answer.Add(0, response);
  text += answer.Add(0, Response("a"));
  text += answer.Add(0, Response("b", 1));
  text += answer.Add(0, Response("c", 1));
  std::vector<bool> has_them;
  for (const Json& event : Events(text)) has_them.push_back(event["choices"][0].contains("prompt_logprobs"));
  EXPECT_THAT(has_them, ElementsAre(true, false, true, false));
  EXPECT_EQ(Events(text)[0]["choices"][0]["prompt_logprobs"][1]["7"]["logprob"], -2.0);
}

TEST(GenerateAnswerTest, AStreamOfAChatHasPromptLogprobsBesideTheChoices) {
  const GenerateCall call = ChatCall(R"(, "prompt_logprobs": 1, "stream": true)");
  GenerateAnswer answer(call, kHead);
  v1::GenerateResponse response = Response("a");
  response.add_prompt_logprobs();
  std::string text = answer.Add(0, response);
  text += answer.Add(0, Response("b"));
  const std::vector<Json> events = Events(text);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1]["prompt_logprobs"], Json::array({nullptr}));
  EXPECT_FALSE(events[2].contains("prompt_logprobs"));
}

}  // namespace
}  // namespace quire
