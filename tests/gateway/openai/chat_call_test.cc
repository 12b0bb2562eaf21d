// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_call.h"

#include <string>
#include <variant>
#include <vector>

#include "gateway/openai/api_error.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/read_call.h"

namespace quire {
namespace {

TEST(ChatCallTest, MessagesBecomeAConversation) {
  const GenerateCall call = Chat(R"({"messages": [
      {"role": "system", "content": "Be kind."},
      {"role": "user", "name": "tom", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "reasoning_content": "hm", "refusal": null,
       "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "c1", "content": "7"}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {}, "description": "d"}}],
      "tool_choice": "auto", "chat_template_kwargs": {"z": 1, "a": 2}, "add_generation_prompt": false,
      "continue_final_message": false})");
  EXPECT_TRUE(call.is_chat);
  const v1::Chat& chat = call.requests[0].chat();
  ASSERT_EQ(chat.messages_size(), 4);
  EXPECT_EQ(chat.messages(0).content(), "Be kind.");
  EXPECT_FALSE(chat.messages(1).has_content());
  EXPECT_THAT(chat.messages(1).content_parts(), testing::ElementsAre("a", "b"));
  EXPECT_EQ(chat.messages(1).name(), "tom");
  EXPECT_FALSE(chat.messages(2).has_content());
  EXPECT_EQ(chat.messages(2).reasoning_content(), "hm");
  EXPECT_EQ(chat.messages(2).tool_calls(0).name(), "f");
  EXPECT_EQ(chat.messages(2).tool_calls(0).arguments(), "{}");
  EXPECT_EQ(chat.messages(3).tool_call_id(), "c1");
  EXPECT_EQ(chat.tools(), R"([{"type":"function","function":{"name":"f","parameters":{},"description":"d"}}])")
      << "templates write the members in their order";
  EXPECT_EQ(chat.template_kwargs(), R"({"z":1,"a":2})");
  EXPECT_TRUE(chat.has_add_generation_prompt() && chat.has_continue_final_message());
}

TEST(ChatCallTest, MaxTokensIsAnotherNameOfMaxCompletionTokens) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}])";
  const GenerateCall call = Chat(messages + R"(, "max_tokens": 6, "max_completion_tokens": 6})");
  EXPECT_EQ(call.requests[0].stopping().max_tokens(), 6u);
  EXPECT_EQ(call.names.max_tokens, "max_completion_tokens");
  EXPECT_TRUE(call.has_max_tokens);
  EXPECT_EQ(Chat(messages + R"(, "max_tokens": 5})").requests[0].stopping().max_tokens(), 5u);
  EXPECT_EQ(Chat(messages + R"(, "max_tokens": 5, "max_completion_tokens": null})").names.max_tokens, "max_tokens");
  EXPECT_FALSE(Chat(messages + "}").has_max_tokens);
  const ApiError error = ChatError(R"("max_tokens": 5, "max_completion_tokens": 6)");
  EXPECT_EQ(error.param, "max_completion_tokens");
  EXPECT_EQ(error.message,
            "max_completion_tokens is 6, but max_tokens, its older name, is 5; they must be equal, or one of them must "
            "be left out");
}

// The gateway fills the context then, or the manager has a default.
TEST(ChatCallTest, ErrorsDoNotSayThatAClientHasSentMaxTokensWhenItHasNot) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}])";
  const auto message_of = [](const GenerateCall& call, const std::string& message) {
    google::rpc::Status status;
    status.set_code(9);
    status.set_message(message);
    return ToApiError(status, call.names).message;
  };
  const std::string pool = "prompt has 5 tokens and stopping.max_tokens is 91: this takes up to 6 KV blocks";
  EXPECT_EQ(message_of(Chat(messages + "}"), pool),
            "prompt has 5 tokens and the limit of the answer (max_tokens is not set) is 91: this takes up to 6 KV "
            "blocks");
  EXPECT_EQ(message_of(Chat(messages + R"(, "max_completion_tokens": 91})"), pool),
            "prompt has 5 tokens and max_completion_tokens is 91: this takes up to 6 KV blocks");
  EXPECT_EQ(message_of(Completion(R"({"prompt": "x"})"), pool),
            "prompt has 5 tokens and the limit of the answer (max_tokens is not set) is 91: this takes up to 6 KV "
            "blocks");
  EXPECT_EQ(message_of(Completion(R"({"prompt": "x", "max_tokens": 91})"), pool),
            "prompt has 5 tokens and max_tokens is 91: this takes up to 6 KV blocks");
}

// A worker with a shorter context may have come since the gateway has asked for the context.
TEST(ChatCallTest, WithoutMaxTokensTheMessagesAreTooLongForTheContext) {
  const GenerateCall call = Chat(R"({"messages": [{"role": "user", "content": "x"}]})");
  google::rpc::Status status;
  status.set_code(3);
  google::rpc::BadRequest bad_request;
  auto* const violation = bad_request.add_field_violations();
  violation->set_field("stopping.max_tokens");
  violation->set_description("is 91, with the prompt's 5 tokens 96; the model's context is 64");
  status.add_details()->PackFrom(bad_request);
  const ApiError error = ToApiError(status, call.names);
  EXPECT_EQ(error.param, "messages");
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.message,
            "the limit of the answer (max_tokens is not set) is 91, with the prompt's 5 tokens 96; the model's context "
            "is 64");
}

TEST(ChatCallTest, LogprobsIsASwitchAndTopLogprobsANumber) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}])";
  EXPECT_EQ(Chat(messages + R"(, "logprobs": true})").requests[0].logprobs(), 0u);
  EXPECT_EQ(Chat(messages + R"(, "logprobs": true, "top_logprobs": 3})").logprobs, 3u);
  EXPECT_FALSE(Chat(messages + "}").requests[0].has_logprobs());
  EXPECT_EQ(ChatError(R"("top_logprobs": 3)").param, "top_logprobs");
  EXPECT_EQ(ChatError(R"("logprobs": 3)").param, "logprobs");
}

TEST(ChatCallTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(ChatError(R"("functions": [{}])").param, "functions");
  EXPECT_EQ(ChatError(R"("audio": {})").param, "audio");
  EXPECT_EQ(ChatError(R"("echo": true)").param, "echo");
}

TEST(ChatCallTest, TheEffortOfReasoningIsAVariableOfTheTemplate) {
  const auto variables = [](const std::string& members) {
    return Chat(R"({"messages": [{"role": "user", "content": "x"}])" + members + "}")
        .requests[0]
        .chat()
        .template_kwargs();
  };
  EXPECT_EQ(variables(R"(, "reasoning_effort": "low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"(, "reasoning_effort": "low", "chat_template_kwargs": {"a": 1})"),
            R"({"a":1,"reasoning_effort":"low"})");
  EXPECT_EQ(variables(R"(, "reasoning_effort": null)"), "");
  EXPECT_EQ(variables(R"(, "verbosity": "low")"), R"({"verbosity":"low"})");
  EXPECT_EQ(ChatError(R"("verbosity": "low", "chat_template_kwargs": {"verbosity": "high"})").param, "verbosity");
  EXPECT_EQ(ChatError(R"("reasoning_effort": 1)").param, "reasoning_effort");
  EXPECT_EQ(ChatError(R"("reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"})").message,
            "reasoning_effort is \"low\", but chat_template_kwargs.reasoning_effort is another value");
  EXPECT_EQ(variables(R"(, "reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "low"})"),
            R"({"reasoning_effort":"low"})");
}

TEST(ChatCallTest, NullMissingAndEmptyFieldsOfAMessageStayApart) {
  const GenerateCall call = Chat(R"({"messages": [
      {"role": "assistant", "content": null, "name": null, "tool_calls": null, "reasoning": null},
      {"role": "assistant", "content": "", "name": "", "tool_calls": [], "reasoning": "", "thinking": "t"},
      {"role": "assistant", "content": []},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]})");
  const v1::Chat& chat = call.requests[0].chat();
  EXPECT_FALSE(chat.messages(0).has_content() || chat.messages(0).has_name() || chat.messages(0).has_reasoning());
  EXPECT_TRUE(chat.messages(1).has_content() && chat.messages(1).has_name() && chat.messages(1).has_reasoning());
  EXPECT_EQ(chat.messages(1).thinking(), "t");
  EXPECT_FALSE(chat.messages(1).has_reasoning_content());
  EXPECT_TRUE(chat.messages(2).has_content());
  EXPECT_THAT(chat.messages(3).content_parts(), testing::ElementsAre("no"));
}

TEST(ChatCallTest, AnOldCallOfAFunctionIsACallOfATool) {
  const GenerateCall call = Chat(R"({"messages": [
      {"role": "user", "content": "x"},
      {"role": "assistant", "content": null, "function_call": {"name": "f", "arguments": "{}"}},
      {"role": "function", "name": "f", "content": "7"}]})");
  const v1::Chat& chat = call.requests[0].chat();
  ASSERT_EQ(chat.messages(1).tool_calls_size(), 1);
  EXPECT_EQ(chat.messages(1).tool_calls(0).name(), "f");
  EXPECT_EQ(chat.messages(1).tool_calls(0).arguments(), "{}");
  EXPECT_EQ(chat.messages(2).role(), "tool");
  EXPECT_EQ(chat.messages(2).tool_call_id(), chat.messages(1).tool_calls(0).id());
  EXPECT_EQ(Chat(R"({"messages": [{"role": "function", "content": "7"}]})").requests[0].chat().messages(0).role(),
            "function")
      << "without such a call, the template may know this role";
  EXPECT_EQ(ChatError(R"("messages": [{"role": "assistant", "function_call": {"name": 1}}])").message,
            "messages[0].function_call.name is 1, it must be a string");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "assistant", "function_call": {"name": "f"},
                                       "tool_calls": [{"function": {"name": "f"}}]}])")
                .param,
            "messages[0].function_call");
}

TEST(ChatCallTest, ArgumentsOfACallMayBeAnObject) {
  const GenerateCall call = Chat(R"({"messages": [{"role": "assistant", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": [1, "b"]}}}]}]})");
  EXPECT_EQ(call.requests[0].chat().messages(0).tool_calls(0).arguments(), R"({"a":[1,"b"]})");
}

TEST(ChatCallTest, AnErrorInAMessageHasItsPath) {
  EXPECT_EQ(ChatError(R"("messages": 5)").param, "messages");
  EXPECT_EQ(ChatError(R"("messages": [5])").param, "messages[0]");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "user", "content": "x"}, {"content": "x"}])").param, "messages[1].role");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "user", "content": [{"type": "image_url"}]}])").param,
            "messages[0].content[0].type");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "user", "content": [{"type": "refusal", "text": "x"}]}])").param,
            "messages[0].content[0].refusal");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "user", "content": "x", "mood": 1}])").param, "messages[0].mood");
  EXPECT_EQ(ChatError(R"("messages": [{"role": "assistant", "tool_calls": [{"type": "x", "function": {}}]}])").param,
            "messages[0].tool_calls[0].type");
}

TEST(ChatCallTest, ToolsAreKnownByTheirNamesUnlessTheModelMayNotCallThem) {
  const auto read = [](const std::string& members) {
    return std::get<GenerateCall>(ReadChatCall(*ParseBody(
        R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}},
            {"function": {"name": "g"}}])" +
        members + "}")));
  };
  GenerateCall call = read("");
  EXPECT_TRUE(call.may_call_tools);
  EXPECT_TRUE(call.has_parallel_tool_calls);
  EXPECT_EQ(call.tools, (std::vector<std::string>{"f", "g"}));
  EXPECT_FALSE(read(R"(, "parallel_tool_calls": false)").has_parallel_tool_calls);
  call = read(R"(, "tool_choice": "none")");
  EXPECT_FALSE(call.may_call_tools);
  EXPECT_EQ(call.requests[0].chat().tools(), "");
  EXPECT_EQ(ChatError(R"("parallel_tool_calls": 1)").param, "parallel_tool_calls");
}

TEST(ChatCallTest, ToolsAreCheckedWhetherTheModelMustCallThemOrNot) {
  const auto check = [](const std::string& tools, const std::string& message) {
    for (const char* choice : {"auto", "none", "required"}) {
      const ApiError error = ChatError(R"("tools": [)" + tools + R"(], "tool_choice": ")" + choice + "\"");
      EXPECT_EQ(error.message, message);
      EXPECT_EQ(error.param, message.substr(0, message.find(' ')));
    }
  };
  check("5", "tools[0] is 5, it must be an object");
  check(R"({"function": {"name": "f"}}, null)", "tools[1] is null, it must be an object");
  check("{}", "tools[0].function is missing");
  check(R"({"type": "function", "name": "f", "parameters": {}})",
        "tools[0].function is missing; the name and what follows it belong into an object \"function\", unlike in the "
        "Responses interface");
  check(R"({"type": "web_search"})", "tools[0].type is \"web_search\", only functions are supported");
  check(R"({"function": "f"})", "tools[0].function is \"f\", it must be an object");
  check(R"({"function": {"name": "f"}, "foo": 1})", "tools[0].foo is not known to this server");
  check(R"({"function": {"name": 5}})", "tools[0].function.name is 5, it must be a string");
  check(R"({"function": {"name": ""}})", "tools[0].function.name is missing or empty");
  check(R"({"function": {"name": "f", "description": 1}})", "tools[0].function.description is 1, it must be a string");
  check(R"({"function": {"name": "f", "foo": 1}})", "tools[0].function.foo is not known to this server");
  check(R"({"function": {"name": "f", "parameters": "x"}})",
        "tools[0].function.parameters is \"x\", it must be an object");
  check(R"({"function": {"name": "f", "strict": 1}})", "tools[0].function.strict is 1, it must be true or false");
  check(R"({"function": {"name": "f"}}, {"function": {"name": "f"}})",
        "tools[1].function.name is \"f\", which tools[0] has already");
}

TEST(ChatCallTest, AToolChoiceForcesCalls) {
  const auto read = [](const std::string& members) {
    return std::get<GenerateCall>(ReadChatCall(*ParseBody(
        R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f",
            "parameters": {"properties": {"b": {}, "a": {}}}}}, {"type": "function", "function": {"name": "g"}}])" +
        members + "}")));
  };
  GenerateCall call = read(R"(, "tool_choice": "required")");
  EXPECT_TRUE(call.may_call_tools);
  EXPECT_FALSE(call.names_tool);
  EXPECT_EQ(call.names.guide, "tools");
  ASSERT_EQ(call.forced_tools.size(), 2u);
  EXPECT_EQ(call.forced_tools[0].name, "f");
  EXPECT_EQ(call.forced_tools[0].parameters, R"({"properties":{"b":{},"a":{}},"type":"object"})");
  EXPECT_EQ(call.forced_tools[1].parameters, R"({"type":"object","properties":{},"additionalProperties":false})");
  EXPECT_EQ(call.forced_tools[1].field, "tools[1]");
  // A schema that refers to others keeps their types.
  const GenerateCall referring = std::get<GenerateCall>(ReadChatCall(*ParseBody(
      R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required", "tools": [{"type": "function",
          "function": {"name": "f", "parameters": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}}}]})")));
  EXPECT_EQ(referring.forced_tools[0].parameters, R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}})");
  call = read(R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})");
  EXPECT_TRUE(call.names_tool);
  ASSERT_EQ(call.forced_tools.size(), 1u);
  EXPECT_EQ(call.forced_tools[0].name, "g");
  EXPECT_TRUE(read(R"(, "tool_choice": "auto")").forced_tools.empty());
}

TEST(ChatCallTest, AllowedToolsAreTheOnlyOnes) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}},
                                         {"type": "function", "function": {"name": "g"}},
                                         {"type": "function", "function": {"name": "h"}}])";
  const auto choice = [](const std::string& mode, const std::string& names) {
    return absl::StrCat(R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": ")", mode,
                        R"(", "tools": [)", names, "]}}");
  };
  const std::string g_and_h =
      R"({"type": "function", "function": {"name": "h"}}, {"type": "function", "function": {"name": "g"}})";
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}], )";
  const GenerateCall call = Chat(messages + tools + choice("auto", g_and_h) + "}");
  EXPECT_EQ(call.tools, (std::vector<std::string>{"h", "g"}));
  EXPECT_TRUE(call.may_call_tools);
  EXPECT_TRUE(call.forced_tools.empty());
  EXPECT_EQ(call.requests[0].chat().tools(),
            R"([{"type":"function","function":{"name":"h"}},{"type":"function","function":{"name":"g"}}])");
  const GenerateCall forced = Chat(messages + tools + choice("required", g_and_h) + "}");
  ASSERT_EQ(forced.forced_tools.size(), 2u);
  EXPECT_EQ(forced.forced_tools[0].name, "g");
  EXPECT_EQ(forced.forced_tools[0].field, "tools[1]") << "an error names the place in the request";
  EXPECT_FALSE(forced.names_tool);
  EXPECT_EQ(ChatError(tools + choice("none", g_and_h)).param, "tool_choice.allowed_tools.mode");
  EXPECT_EQ(ChatError(tools + choice("auto", "")).param, "tool_choice.allowed_tools.tools");
  EXPECT_EQ(ChatError(tools + choice("auto", R"({"function": {"name": "i"}})")).message,
            "tool_choice.allowed_tools.tools[0].function.name is \"i\", which no function of tools has");
  const auto message = [&](const std::string& tool) { return ChatError(tools + choice("auto", tool)).message; };
  EXPECT_EQ(message(R"({"type": "custom", "custom": {"name": "x"}})"),
            "tool_choice.allowed_tools.tools[0].type is \"custom\", it must be \"function\"");
  EXPECT_EQ(message(R"({"type": "function", "name": "f"})"), "tool_choice.allowed_tools.tools[0].function is missing");
  EXPECT_EQ(
      message(R"({"function": {"nam": "f"}})"),
      "tool_choice.allowed_tools.tools[0].function.name is missing; tool_choice.allowed_tools.tools[0].function.nam "
      "is not known to this server; did you mean name?");
  EXPECT_EQ(message(R"({"function": {"name": "f"}, "mood": 1})"),
            "tool_choice.allowed_tools.tools[0].mood is not known to this server");
  EXPECT_EQ(message("5"), "tool_choice.allowed_tools.tools[0] is 5, it must be an object");
  EXPECT_EQ(
      Chat(messages + tools +
           choice("auto", R"({"function": {"name": "f", "description": "d", "parameters": {}, "strict": true}})") + "}")
          .tools,
      (std::vector<std::string>{"f"}));
  EXPECT_EQ(ChatError(tools + R"(, "tool_choice": {"type": "allowed_tools"})").message,
            "tool_choice.allowed_tools is missing");
}

TEST(ChatCallTest, AWrongToolChoiceIsNamedWithItsValue) {
  const auto message = [](const std::string& members) { return ChatError(members).message; };
  EXPECT_EQ(message(R"("tool_choice": "required")"), "tool_choice is \"required\", but tools is missing or empty");
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}], )";
  EXPECT_EQ(message(tools + R"("tool_choice": "any")"),
            "tool_choice is \"any\", it must be none, auto, required or an object with a function");
  EXPECT_EQ(message(tools + R"("tool_choice": {"type": "custom"})"),
            "tool_choice.type is \"custom\", it must be \"function\"");
  EXPECT_EQ(message(tools + R"("tool_choice": {"type": "function", "function": {"name": "h"}})"),
            "tool_choice.function.name is \"h\", which no function of tools has");
  EXPECT_EQ(ChatError(tools + R"("tool_choice": {"type": "function", "function": {"name": "f"}, "x": 1})").param,
            "tool_choice.x");
  EXPECT_EQ(ChatError(tools + R"("tool_choice": {"type": "function"})").param, "tool_choice.function");
  EXPECT_EQ(ChatError(tools + R"("tool_choice": {"type": "function", "function": {}})").param,
            "tool_choice.function.name");
  EXPECT_EQ(message(tools + R"("tool_choice": "required", "response_format": {"type": "json_object"})"),
            "tool_choice is \"required\", which cannot be combined with response_format.type");
  EXPECT_EQ(message(tools + R"("tool_choice": "required", "ignore_eos": true)"),
            "ignore_eos is true, which cannot be combined with tool_choice, which is \"required\"");
  EXPECT_EQ(ChatError(tools + R"("tool_choice": "required", "ignore_eos": true)").param, "ignore_eos");
  EXPECT_EQ(message(tools + R"("tool_choice": {"type": "function", "function": {"name": "f"}}, "min_tokens": 2)"),
            "min_tokens is 2, which cannot be combined with tool_choice, which names a function");
  EXPECT_EQ(ChatError(R"("tools": [{"type": "function"}], "tool_choice": "required")").param, "tools[0].function");
  EXPECT_EQ(ChatError(R"("tools": [{"function": {}}], "tool_choice": "required")").param, "tools[0].function.name");
  const std::string typed = R"("tools": [{"function": {"name": "f", "parameters": {"type": "array"}}}], )";
  EXPECT_EQ(message(typed + R"("tool_choice": "required")"),
            "tools[0].function.parameters.type is \"array\", it must be \"object\"");
}

TEST(ChatCallTest, ASeedHas64Bits) {
  const auto seed = [](const std::string& text) {
    return std::get<GenerateCall>(
               ReadChatCall(*ParseBody(R"({"messages": [{"role": "user", "content": "x"}], "seed": )" + text + "}")))
        .requests[0]
        .sampling()
        .seed();
  };
  EXPECT_EQ(seed("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(seed("9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed("-1"), UINT64_MAX);
  EXPECT_EQ(seed("5.0"), 5u);
  EXPECT_EQ(ChatError(R"("seed": 18446744073709551616)").param, "seed");
  EXPECT_EQ(ChatError(R"("seed": 0.5)").param, "seed");
}

// The manager decides which of them the template sees under which name.
TEST(ChatCallTest, ThoughtsKeepTheNamesThatTheClientUses) {
  const GenerateCall call = Chat(R"({"messages": [{"role": "assistant", "content": "y", "reasoning": "a",
      "reasoning_content": "a", "thinking": null}]})");
  const v1::ChatMessage& message = call.requests[0].chat().messages(0);
  EXPECT_EQ(message.reasoning(), "a");
  EXPECT_EQ(message.reasoning_content(), "a");
  EXPECT_FALSE(message.has_thinking());
}

TEST(ChatCallTest, ThoughtsThatContradictEachOtherAreRefused) {
  const auto error = [](const std::string& members) {
    const auto call = ReadChatCall(*ParseBody(R"({"messages": [{"role": "assistant", )" + members + "}]}"));
    const auto* const found = std::get_if<ApiError>(&call);
    return found == nullptr ? ApiError() : *found;
  };
  EXPECT_EQ(error(R"("reasoning": "a", "reasoning_content": "b")").param, "messages[0].reasoning");
  EXPECT_EQ(error(R"("reasoning": "a", "reasoning_content": "b")").message,
            "messages[0].reasoning differs from reasoning_content, another name of the same field; they must be equal, "
            "or one of them must be left out");
  EXPECT_EQ(error(R"("reasoning_content": "a", "thinking": "b")").param, "messages[0].thinking");
  EXPECT_EQ(error(R"("reasoning": "a", "thinking": "b")").param, "messages[0].reasoning");
}

TEST(ChatCallTest, OneStrictToolRestrictsTheCallsThatTheModelChooses) {
  const auto strict_tools = [](const std::string& fields) {
    std::string names;
    const GenerateCall call = Chat(R"({"messages": [{"role": "user", "content": "x"}], "tools": [
        {"type": "function", "function": {"name": "f", "strict": true, "parameters": {"properties": {}}}},
        {"type": "function", "function": {"name": "g", "parameters": {"type": "string"}}}])" +
                                   fields + "}");
    for (const CallableTool& tool : call.strict_tools) {
      names += tool.name + (tool.is_strict ? " " : "? ") + tool.parameters + "; ";
    }
    return names;
  };
  const std::string all = R"(f {"properties":{},"type":"object"}; g? {}; )";
  EXPECT_EQ(strict_tools(""), all);
  EXPECT_EQ(strict_tools(R"(, "tool_choice": "auto")"), all);
  for (const char* fields :
       {R"(, "tool_choice": "none")", R"(, "ignore_eos": true)", R"(, "min_tokens": 3)", R"(, "guided_regex": "a")"}) {
    EXPECT_EQ(strict_tools(fields), "") << fields;
  }
  EXPECT_EQ(Chat(R"({"messages": [{"role": "user", "content": "x"}],
                     "tools": [{"type": "function", "function": {"name": "f"}}]})")
                .strict_tools.size(),
            0u);
}

}  // namespace
}  // namespace quire
