// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/generate_call.h"

#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/gateway/openai/read_call.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CompletionCallTest, EveryFieldOfOpenAiBecomesAFieldOfQuire) {
  const GenerateCall call = Completion(R"({"model": "tales", "prompt": "Once", "max_tokens": 7, "temperature": 0.5,
      "top_p": 0.25, "n": 2, "best_of": 3, "logprobs": 4, "echo": false, "seed": -1, "stop": ["a", "b"],
      "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"5": -100, "6": 1.5}, "user": "u",
      "stream": true, "stream_options": {"include_usage": true}, "suffix": null})");
  EXPECT_EQ(call.model, "tales");
  EXPECT_EQ(call.num_choices, 2u);
  EXPECT_EQ(call.logprobs, 4u);
  EXPECT_TRUE(call.streams);
  EXPECT_TRUE(call.includes_usage);
  ASSERT_EQ(call.requests.size(), 1u);
  const v1::GenerateRequest& request = call.requests[0];
  EXPECT_EQ(request.text(), "Once");
  EXPECT_EQ(request.n(), 2u);
  EXPECT_EQ(request.best_of(), 3u);
  EXPECT_EQ(request.logprobs(), 4u);
  EXPECT_EQ(request.sampling().temperature(), 0.5f);
  EXPECT_EQ(request.sampling().top_p(), 0.25f);
  EXPECT_EQ(request.sampling().seed(), UINT64_MAX);
  EXPECT_EQ(request.sampling().presence_penalty(), 0.5f);
  EXPECT_EQ(request.sampling().frequency_penalty(), -0.5f);
  EXPECT_EQ(request.sampling().logit_bias().at(5), -100);
  EXPECT_EQ(request.sampling().logit_bias().at(6), 1.5);
  EXPECT_EQ(request.stopping().max_tokens(), 7u);
  EXPECT_THAT(request.stopping().stop(), ElementsAre("a", "b"));
}

TEST(CompletionCallTest, TopNSigmaOfLlamaCppBecomesAFieldOfQuire) {
  const auto top_n_sigma = [](const std::string& text) {
    return Completion("{\"prompt\": \"x\", \"top_n_sigma\": " + text + "}").requests[0].sampling().top_n_sigma();
  };
  EXPECT_EQ(top_n_sigma("1.5"), 1.5f);
  EXPECT_EQ(top_n_sigma("-1.0"), 0) << "llama.cpp's default, which drops nothing";
  EXPECT_EQ(top_n_sigma("-2"), -2) << "the manager refuses it";
}

TEST(CompletionCallTest, XtcOfLlamaCppBecomesFieldsOfQuire) {
  const GenerateCall call = Completion(R"({"prompt": "x", "xtc_probability": 0.5, "xtc_threshold": 0.2})");
  EXPECT_EQ(call.requests[0].sampling().xtc_probability(), 0.5f);
  EXPECT_EQ(call.requests[0].sampling().xtc_threshold(), 0.2f);
}

TEST(CompletionCallTest, TheExtrasOfVllmBecomeFieldsOfQuire) {
  const GenerateCall call = Completion(R"({"prompt": "x", "top_k": -1, "min_p": 0.5, "repetition_penalty": 1.5,
      "min_tokens": 2, "ignore_eos": true, "stop_token_ids": [1, 2], "bad_words": ["w"], "allowed_token_ids": [3],
      "cache_salt": "s", "priority": -4, "prompt_logprobs": 1, "skip_special_tokens": false,
      "include_stop_str_in_output": true, "add_special_tokens": false})");
  const v1::GenerateRequest& request = call.requests[0];
  EXPECT_EQ(request.sampling().top_k(), 0u);
  EXPECT_EQ(request.sampling().min_p(), 0.5f);
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(request.stopping().min_tokens(), 2u);
  EXPECT_TRUE(request.stopping().ignore_eos());
  EXPECT_THAT(request.stopping().stop_token_ids(), ElementsAre(1, 2));
  EXPECT_THAT(request.sampling().bad_words(), ElementsAre("w"));
  EXPECT_THAT(request.sampling().allowed_token_ids(), ElementsAre(3));
  EXPECT_EQ(request.cache_salt(), "s");
  EXPECT_EQ(request.priority(), -4);
  EXPECT_EQ(request.prompt_logprobs(), 1u);
  EXPECT_TRUE(call.has_prompt_logprobs);
  EXPECT_TRUE(request.has_skip_special_tokens() && !request.skip_special_tokens());
  EXPECT_TRUE(request.stopping().include_stop());
  EXPECT_TRUE(request.has_add_special_tokens() && !request.add_special_tokens());
}

TEST(CompletionCallTest, APromptIsATextTokensOrAListOfThem) {
  EXPECT_THAT(Completion(R"({"prompt": [1, 2, 3]})").requests[0].token_ids().ids(), ElementsAre(1, 2, 3));
  const GenerateCall call = Completion(R"({"prompt": ["a", [4, 5]], "seed": 7})");
  ASSERT_EQ(call.requests.size(), 2u);
  EXPECT_EQ(call.requests[0].text(), "a");
  EXPECT_THAT(call.requests[1].token_ids().ids(), ElementsAre(4, 5));
  EXPECT_THAT(Completion(R"({"prompt": [[1], [2, 3]]})").requests[1].token_ids().ids(), ElementsAre(2, 3));
  EXPECT_EQ(call.requests[1].sampling().seed(), 7u);
  EXPECT_EQ(CompletionError(R"("prompt": [])").param, "prompt");
  EXPECT_EQ(CompletionError(R"("prompt": ["a", 1])").param, "prompt[1]");
  EXPECT_EQ(CompletionError(R"("prompt": [[]])").param, "prompt[0]");
  EXPECT_EQ(CompletionError(R"("prompt": null)").message, "prompt is missing");
  const auto check = [](const std::string& prompt, const std::string& message) {
    const ApiError error = CompletionError("\"prompt\": " + prompt);
    EXPECT_EQ(error.message, message);
    EXPECT_EQ(error.param, message.substr(0, message.find(' ')));
  };
  const std::string limit = ", it must be a token id, a whole number from 0 to 4294967295";
  check("[373, -1]", "prompt[1] is -1" + limit);
  check("[373, 4294967296]", "prompt[1] is 4294967296" + limit);
  check("[-1, 373]", "prompt[0] is -1" + limit);
  check(R"([1, "a"])", "prompt[1] is \"a\"" + limit);
  check("[[373], [353, 2.5]]", "prompt[1][1] is 2.5" + limit);
  check("[[], [1]]", "prompt[0] is empty");
  check("[null]", "prompt[0] is null, it must be a text or a list of token ids");
  check(R"(["a", 1])", "prompt[1] is 1, it must be a text or a list of token ids");
  check("7", "prompt is 7, it must be a text, a list of token ids, or a list of these");
  EXPECT_EQ(CompletionError(R"("stop_token_ids": [1, -1])").message, "stop_token_ids[1] is -1" + limit);
  EXPECT_EQ(CompletionError(R"("stop": ["a", 5])").message, "stop[1] is 5, it must be a string");
}

TEST(CompletionCallTest, FieldsThatEveryPromptHasAreBoundedForAllPromptsTogether) {
  const auto read = [](size_t num_prompts, size_t salt_bytes) {
    return ReadCompletionCall(
        {{"prompt", std::vector<std::string>(num_prompts, "a")}, {"cache_salt", std::string(salt_bytes, 's')}});
  };
  const size_t salt_bytes = (16 << 20) / 256 - 100;  // The other fields are shorter.
  const auto accepted = read(256, salt_bytes);
  ASSERT_TRUE(std::holds_alternative<GenerateCall>(accepted));
  EXPECT_EQ(std::get<GenerateCall>(accepted).requests[255].cache_salt().size(), salt_bytes);
  EXPECT_TRUE(std::holds_alternative<GenerateCall>(read(1, 256 * salt_bytes)));
  const auto refused = read(256, salt_bytes + 200);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "prompt");
  EXPECT_EQ(std::get<ApiError>(refused).message,
            "prompt has 256 prompts, and the other fields take 65644 bytes for each; at most 16777216 bytes are "
            "allowed for all together");
}

TEST(CompletionCallTest, NIsTheWidthOfABeamSearch) {
  const GenerateCall call =
      Completion(R"({"prompt": "x", "use_beam_search": true, "n": 3, "best_of": 5, "temperature": 0,
      "length_penalty": 0.5})");
  const v1::GenerateRequest& request = call.requests[0];
  EXPECT_EQ(request.beam().width(), 5u);
  EXPECT_EQ(request.beam().num_return_sequences(), 3u);
  EXPECT_EQ(request.beam().length_penalty(), 0.5f);
  EXPECT_FALSE(request.has_n() || request.has_best_of() || request.sampling().has_temperature());
  EXPECT_EQ(call.names.num_samples, "best_of");
  EXPECT_EQ(call.num_choices, 3u);
  EXPECT_EQ(CompletionError(R"("length_penalty": 0.5)").param, "length_penalty");
}

TEST(CompletionCallTest, EchoWithLogprobsAsksForThoseOfThePrompt) {
  const GenerateCall call = Completion(R"({"prompt": "x", "echo": true, "logprobs": 2})");
  EXPECT_TRUE(call.echoes_logprobs);
  EXPECT_FALSE(call.has_prompt_logprobs);
  EXPECT_EQ(call.requests[0].prompt_logprobs(), 2u);
}

TEST(CompletionCallTest, AWrongValueIsRefusedWithFieldValueAndLimit) {
  EXPECT_EQ(CompletionError(R"("temperature": "hot")").message, "temperature is \"hot\", it must be a number");
  EXPECT_EQ(CompletionError(R"("max_tokens": -1)").message,
            "max_tokens is -1, it must be a whole number from 0 to 4294967295");
  EXPECT_EQ(CompletionError(R"("logprobs": true)").message, "logprobs is true, it must be a whole number from 0 to 20");
  EXPECT_EQ(CompletionError(R"("prompt_logprobs": 21)").message,
            "prompt_logprobs is 21, it must be a whole number from 0 to 20");
  EXPECT_EQ(ChatError(R"("logprobs": true, "top_logprobs": 21)").message,
            "top_logprobs is 21, it must be a whole number from 0 to 20");
  EXPECT_EQ(ChatError(R"("max_completion_tokens": 0)").message,
            "max_completion_tokens is 0, it must be a whole number from 1 to 4294967295");
  EXPECT_EQ(CompletionError(R"("n": 257)").message, "n is 257, it must be a whole number from 1 to 256");
  EXPECT_EQ(CompletionError(R"("n": 1.5)").param, "n");
  EXPECT_EQ(CompletionError(R"("stream": 1)").param, "stream");
  EXPECT_EQ(CompletionError(R"("stop": [1])").param, "stop[0]");
  EXPECT_EQ(CompletionError(R"("logit_bias": {"a": 1})").param, "logit_bias");
  EXPECT_EQ(CompletionError(R"("logit_bias": {"1": "a"})").param, "logit_bias[1]");
  EXPECT_EQ(CompletionError(R"("stop_token_ids": [4294967296])").param, "stop_token_ids[0]");
  EXPECT_EQ(CompletionError(R"("stream_options": {"include_usage": true})").param, "stream_options");
  EXPECT_EQ(CompletionError(R"("stream": true, "stream_options": {"x": true})").param, "stream_options.x");
}

TEST(CompletionCallTest, WholeNumbersAreExactOrRefused) {
  const auto seed = [](const std::string& text) {
    return Completion("{\"prompt\": \"x\", \"seed\": " + text + "}").requests[0].sampling().seed();
  };
  EXPECT_EQ(seed("9007199254740993"), 9007199254740993u);
  EXPECT_EQ(seed("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(seed("-9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed("1e3"), 1000u);
  EXPECT_EQ(seed("-2.0"), UINT64_MAX - 1);
  EXPECT_EQ(seed("9007199254740991.0"), 9007199254740991u);
  const std::string digits =
      ", which has a point or an exponent; such a number must be below 2^53, so write all of its digits";
  EXPECT_EQ(CompletionError(R"("seed": 9007199254740993.0)").message, "seed is 9.007199254740992e+15" + digits);
  EXPECT_EQ(CompletionError(R"("seed": 1e16)").message, "seed is 1e+16" + digits);
  const std::string range = ", it must be a whole number from -9223372036854775808 to 18446744073709551615";
  EXPECT_EQ(CompletionError(R"("seed": 1e20)").message, "seed is 1e+20" + range);
  EXPECT_EQ(CompletionError(R"("seed": 18446744073709551616)").message, "seed is 1.8446744073709552e+19" + range);
  EXPECT_EQ(CompletionError(R"("seed": -9223372036854775809)").message, "seed is -9.223372036854776e+18" + range);
  EXPECT_EQ(CompletionError(R"("seed": 0.5)").message, "seed is 0.5" + range);
  EXPECT_EQ(CompletionError(R"("max_tokens": 4294967296)").message,
            "max_tokens is 4294967296, it must be a whole number from 0 to 4294967295");
  EXPECT_EQ(CompletionError(R"("priority": -2147483649)").message,
            "priority is -2147483649, it must be a whole number from -2147483648 to 2147483647");
  for (const char* const key : {"05", "+5", " 5", "5.0", "-1", "4294967296", ""}) {
    EXPECT_EQ(CompletionError(absl::StrCat(R"("logit_bias": {")", key, R"(": 1})")).message,
              absl::StrCat("logit_bias has the key \"", key, "\", it must be a token id, a whole number from 0 to ",
                           "4294967295"));
  }
}

TEST(CompletionCallTest, NumbersKeepTheirSideOfALimit) {
  const auto top_p = [](const std::string& text) {
    return Completion("{\"prompt\": \"x\", \"top_p\": " + text + "}").requests[0].sampling().top_p();
  };
  EXPECT_GT(top_p("1e-300"), 0);
  EXPECT_LT(top_p("-1e-300"), 0);
  EXPECT_EQ(top_p("0.25"), 0.25f);
  EXPECT_EQ(CompletionError(R"("temperature": 1e39)").message,
            "temperature is 1e+39, it must be a number from -3.4028235e+38 to 3.4028235e+38");
  EXPECT_EQ(CompletionError(R"("logit_bias": {"5": -1e39})").message,
            "logit_bias[5] is -1e+39, it must be a number from -3.4028235e+38 to 3.4028235e+38");
}

TEST(CompletionCallTest, AnEmptyListOfAllowedTokensIsRefused) {
  EXPECT_EQ(CompletionError(R"("allowed_token_ids": [])").message,
            "allowed_token_ids is empty, which allows no token; it must have at least one, or be left out");
  Completion(R"({"prompt": "x", "allowed_token_ids": null, "stop": [], "stop_token_ids": [], "bad_words": [],
      "logit_bias": {}})");
}

TEST(CompletionCallTest, RunningUsageIsAnExtraOfTheUsage) {
  const GenerateCall call = Completion(
      R"({"prompt": "x", "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}})");
  EXPECT_TRUE(call.includes_usage);
  EXPECT_TRUE(call.includes_running_usage);
  const std::string name = "stream_options.continuous_usage_stats";
  EXPECT_EQ(CompletionError(R"("stream": true, "stream_options": {"continuous_usage_stats": true})").param, name);
  EXPECT_EQ(CompletionError(R"("stream": true, "stream_options": {"include_usage": true, "resumable": true,
      "continuous_usage_stats": true})")
                .param,
            name);
}

TEST(CompletionCallTest, AStreamCanBeMadeResumable) {
  const std::string options = R"("stream": true, "stream_options": {"resumable": true})";
  EXPECT_TRUE(Completion("{\"prompt\": \"x\", " + options + "}").is_resumable);
  EXPECT_EQ(CompletionError(R"("prompt": ["a", "b"], )" + options).param, "stream_options.resumable");
  EXPECT_EQ(CompletionError(R"("logprobs": 1, )" + options).param, "stream_options.resumable");
  EXPECT_EQ(CompletionError(R"("return_token_ids": true, )" + options).param, "return_token_ids");
}

TEST(CompletionCallTest, WhatIsNotSupportedIsRefusedByName) {
  EXPECT_EQ(CompletionError(R"("suffix": "x")").param, "suffix");
  const ApiError error = CompletionError(R"("temprature": 1)");
  EXPECT_EQ(error.param, "temprature");
  EXPECT_THAT(error.message, HasSubstr("did you mean temperature?"));
}

TEST(GenerateCallTest, AMissingFieldIsFoundUnderANameLikeIt) {
  const auto message = [](const auto& read, const char* body) {
    return std::get<ApiError>(read(*ParseBody(body), UnknownFields::kRefuse)).message;
  };
  EXPECT_EQ(message(ReadChatCall, R"({"mesages": []})"),
            "messages is missing; mesages is not known to this server; did you mean messages?");
  EXPECT_EQ(message(ReadCompletionCall, R"({"prommpt": "x"})"),
            "prompt is missing; prommpt is not known to this server; did you mean prompt?");
  EXPECT_EQ(message(ReadChatCall, R"({"mesages": [], "messages": 5})"), "messages is 5, it must be a list");
  EXPECT_EQ(message(ReadChatCall, R"({"messages": [{"rolle": "user"}]})"),
            "messages[0].role is missing; messages[0].rolle is not known to this server; did you mean role?");
}

TEST(GenerateCallTest, UnknownFieldsAreIgnoredAndNotedIfTheyMayBe) {
  const auto read = [](const char* body) { return ReadChatCall(*ParseBody(body), UnknownFields::kIgnore); };
  const auto call = std::get<GenerateCall>(read(R"({
    "messages": [{"role": "user", "content": "x", "mood": "good", "tool_calls":
                  [{"id": "1", "x": 1, "function": {"name": "f", "y": 1}}]}],
    "tools": [{"type": "function", "z": 1, "function": {"name": "f", "color": 3}}],
    "tool_choice": {"type": "function", "t": 1, "function": {"name": "f", "u": 1}},
    "stream": true, "stream_options": {"speed": 1}, "nothing": null, "new": 1})"));
  EXPECT_EQ(call.ignored.count, 9u);
  EXPECT_THAT(call.ignored.names,
              ElementsAre("stream_options.speed", "messages[0].tool_calls[0].function.y", "messages[0].tool_calls[0].x",
                          "messages[0].mood", "tools[0].function.color", "tools[0].z", "tool_choice.function.u",
                          "tool_choice.t"));
  EXPECT_EQ(
      std::get<GenerateCall>(read(R"({"messages": [], "response_format": {"type": "text", "a": 1}})")).ignored.names,
      std::vector<std::string>{"response_format.a"});
  const auto error = std::get<ApiError>(read(R"({"messages": [], "audio": {}, "new": 1})"));
  EXPECT_EQ(error.param, "audio") << "what is known and not supported stays refused";
}

TEST(CompletionCallTest, FieldsThatAreNullAndFieldsWithoutEffectAreAccepted) {
  Completion(R"({"prompt": "x", "temperature": null, "unknown": null, "user": "u", "metadata": {}, "store": false,
      "service_tier": "auto", "response_format": {"type": "text"}})");
}

TEST(CompletionCallTest, MaxTokensMayBeZeroWhenTheAnswerShowsThePrompt) {
  for (const char* shown : {R"("echo": true)", R"("prompt_logprobs": 0)"}) {
    const GenerateCall call = Completion(absl::StrCat(R"({"prompt": "x", "max_tokens": 0, )", shown, "}"));
    EXPECT_TRUE(call.requests[0].stopping().has_max_tokens());
    EXPECT_EQ(call.requests[0].stopping().max_tokens(), 0u);
    EXPECT_FALSE(call.requests[0].has_logprobs());
  }
  EXPECT_EQ(CompletionError(R"("max_tokens": 0)").message,
            "max_tokens is 0, which needs echo or prompt_logprobs, because the answer would be empty");
}

TEST(CompletionCallTest, LogprobsMayNameTokensByTheirIds) {
  EXPECT_EQ(Completion(R"({"prompt": "x", "return_tokens_as_token_ids": true})").token_name, TokenName::kId);
  EXPECT_EQ(Completion(R"({"prompt": "x", "return_tokens_as_token_ids": false})").token_name, TokenName::kText);
  EXPECT_EQ(CompletionError(R"("return_tokens_as_token_ids": true, "echo": true, "logprobs": 1)").param,
            "return_tokens_as_token_ids");
}

TEST(GuideFieldsTest, EachFieldBecomesAGuideAndErrorsNameTheField) {
  const auto guide = [](const std::string& member) {
    const GenerateCall call = Completion("{\"prompt\": \"x\", " + member + "}");
    return call.requests[0].guided().ShortDebugString() + " " + ApiFieldName("guided.any", call.names);
  };
  EXPECT_EQ(guide(R"("response_format": {"type": "json_object"})"), "json_object: true response_format.type");
  for (const char* type : {"json_object", "json_schema"}) {
    EXPECT_EQ(guide(absl::StrCat(R"("response_format": {"schema": {"type": "null"}, "type": ")", type, "\"}")),
              R"(json_schema: "{\"type\":\"null\"}" response_format.schema)");
  }
  EXPECT_EQ(guide(R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
                "schema": {"type": "object", "properties": {"b": {}, "a": {}}}}})"),
            "json_schema: \"{\\\"type\\\":\\\"object\\\",\\\"properties\\\":{\\\"b\\\":{},\\\"a\\\":{}}}\" "
            "response_format.json_schema.schema")
      << "properties keep their order";
  EXPECT_EQ(guide(R"("guided_json": "{}")"), "json_schema: \"{}\" guided_json");
  EXPECT_EQ(guide(R"("guided_regex": "a+")"), "regex: \"a+\" guided_regex");
  EXPECT_EQ(guide(R"("guided_choice": ["a", "b"])"), "choice { texts: \"a\" texts: \"b\" } guided_choice");
  EXPECT_EQ(guide(R"("guided_grammar": "root ::= x")"), "grammar: \"root ::= x\" guided_grammar");
  EXPECT_EQ(guide(R"("structured_outputs": {"json": true})"), "json_schema: \"true\" structured_outputs.json");
  EXPECT_EQ(guide(R"("structured_outputs": {"regex": "a"})"), "regex: \"a\" structured_outputs.regex");
  EXPECT_EQ(guide(R"("structured_outputs": {"choice": ["a"]})"), "choice { texts: \"a\" } structured_outputs.choice");
  EXPECT_EQ(guide(R"("structured_outputs": {"json_object": true})"),
            "json_object: true structured_outputs.json_object");
  // Clients send the same guide under an old and a new name.
  EXPECT_EQ(guide(R"("structured_outputs": {"regex": "a"}, "guided_regex": "a")"),
            "regex: \"a\" structured_outputs.regex");
  EXPECT_EQ(guide(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"a": 1}}},
                     "guided_json": {"a": 1})"),
            R"(json_schema: "{\"a\":1}" response_format.json_schema.schema)");
}

TEST(GuideFieldsTest, WrongFieldsAreNamed) {
  EXPECT_EQ(CompletionError(R"("guided_regex": "a", "guided_choice": ["a"])").param, "guided_choice");
  EXPECT_EQ(CompletionError(R"("structured_outputs": {"regex": "a"}, "guided_regex": "b")").message,
            "guided_regex cannot be combined with structured_outputs.regex, which is another guide");
  EXPECT_EQ(CompletionError(R"("guided_choice": [])").message,
            "guided_choice is empty, it must be a list of 1 to 1024 texts");
  EXPECT_EQ(CompletionError(R"("structured_outputs": {"choice": []})").param, "structured_outputs.choice");
  for (const char* const empty : {"{}", R"({"json": null})", R"({"json_object": false})"}) {
    EXPECT_EQ(CompletionError(std::string("\"structured_outputs\": ") + empty).message,
              "structured_outputs has none of json, regex, choice, grammar and json_object");
  }
  EXPECT_EQ(CompletionError(R"("structured_outputs": {"jsn": {}})").param, "structured_outputs.jsn");
  EXPECT_EQ(
      CompletionError(R"("response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"})").param,
      "structured_outputs.regex");
  EXPECT_EQ(CompletionError(R"("structured_outputs": {"structural_tag": "a"})").param,
            "structured_outputs.structural_tag");
  EXPECT_EQ(ChatError(R"("response_format": {"type": "xml"})").param, "response_format.type");
  EXPECT_EQ(ChatError(R"("response_format": {"type": "json_schema"})").param, "response_format.json_schema");
  EXPECT_EQ(ChatError(R"("response_format": {"type": "json_schema", "json_schema": {}})").param,
            "response_format.json_schema.schema");
  EXPECT_EQ(ChatError(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}})").param,
            "response_format.json_schema.x");
}

}  // namespace
}  // namespace quire
