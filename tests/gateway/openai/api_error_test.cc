// SPDX-License-Identifier: Apache-2.0

#include "gateway/openai/api_error.h"

#include "gateway/openai/field_reader.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

google::rpc::Status StatusOf(int code, const std::string& message) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  return status;
}

constexpr int kInvalidArgument = 3;
constexpr int kResourceExhausted = 8;
constexpr int kUnavailable = 14;
constexpr int kUnauthenticated = 16;

TEST(ApiErrorTest, TheBodyIsTheEnvelopeOfOpenAi) {
  const ApiError error{.message = "temperature is \"hot\"", .param = "temperature"};
  EXPECT_EQ(error.Body(),
            R"({"error":{"message":"temperature is \"hot\"","type":"invalid_request_error","param":"temperature",)"
            R"("code":null}})");
}

TEST(ApiErrorTest, FieldsOfTheManagerGetTheNamesOfTheInterface) {
  const ApiNames names{.max_tokens = "max_completion_tokens", .logprobs = "top_logprobs"};
  EXPECT_EQ(ApiFieldName("start.sampling.temperature", names), "temperature");
  EXPECT_EQ(ApiFieldName("stopping.max_tokens", names), "max_completion_tokens");
  EXPECT_EQ(ApiFieldName("stopping.stop[2]", names), "stop[2]");
  EXPECT_EQ(ApiFieldName("stopping.include_stop", names), "include_stop_str_in_output");
  EXPECT_EQ(ApiFieldName("logprobs", names), "top_logprobs");
  EXPECT_EQ(ApiFieldName("beam", names), "use_beam_search");
  EXPECT_EQ(ApiFieldName("beam.width", names), "n");
  EXPECT_EQ(ApiFieldName("start.beam.width", {.num_samples = "best_of"}), "best_of");
  EXPECT_EQ(ApiFieldName("token_ids.ids", names), "prompt");
  EXPECT_EQ(ApiFieldName("token_ids.ids[3]", names), "prompt[3]");
  EXPECT_EQ(ApiFieldName("start.token_ids.ids[3]", {.prompt = "prompt[1]"}), "prompt[1][3]");
  EXPECT_EQ(ApiFieldName("token_ids[3]", {.prompt = "tokens"}), "tokens[3]");
  EXPECT_EQ(ApiFieldName("text", names), "prompt");
  EXPECT_EQ(ApiFieldName("chat.messages[1].role", names), "messages[1].role");
  EXPECT_EQ(ApiFieldName("chat.messages[1].name", names), "messages[1].name");
  EXPECT_EQ(ApiFieldName("chat.messages[1].tool_calls[20].arguments", names),
            "messages[1].tool_calls[20].function.arguments");
  EXPECT_EQ(ApiFieldName("chat.messages[1].tool_calls[0].name", names), "messages[1].tool_calls[0].function.name");
  EXPECT_EQ(ApiFieldName("chat.messages[1].tool_calls[0].id", names), "messages[1].tool_calls[0].id");
  EXPECT_EQ(ApiFieldName("chat.messages[1].tool_calls", names), "messages[1].tool_calls");
  EXPECT_EQ(ApiFieldName("chat.tools", names), "tools");
  EXPECT_EQ(ApiFieldName("chat.template_kwargs", names), "chat_template_kwargs");
  EXPECT_EQ(ApiFieldName("received[0].next_position", names), "Last-Event-ID");
  EXPECT_EQ(ApiFieldName("resume_token", names), "Last-Event-ID");
}

TEST(ApiErrorTest, AnErrorOfTheParametersOfAToolNamesTheTool) {
  const auto error_of = [](const std::string& description, const std::string& guide) {
    google::rpc::Status status = StatusOf(kInvalidArgument, "guided.grammar: " + description);
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field("guided.grammar");
    violation->set_description(description);
    status.add_details()->PackFrom(bad_request);
    return ToApiError(status, {.guide = guide});
  };
  const std::string description =
      "at byte 150 in line 3, \"%\": in %json of the rule \"tools_12_function_parameters\", at #/properties/u/format: "
      "the keyword \"format\" is \"uri\"";
  const ApiError error = error_of(description, "tools");
  EXPECT_EQ(error.param, "tools[12].function.parameters");
  EXPECT_EQ(error.message, "tools[12].function.parameters at #/properties/u/format: the keyword \"format\" is \"uri\"");
  EXPECT_EQ(error_of("is too large", "tools").message, "tools is too large");
  EXPECT_EQ(error_of(description, "guided_grammar").message, "guided_grammar " + description)
      << "the client has named this rule";
}

TEST(ApiErrorTest, AWrongFieldIsInParamAndBeginsTheMessage) {
  google::rpc::Status status = StatusOf(kInvalidArgument, "sampling.top_p is 2, must be at most 1");
  google::rpc::BadRequest bad_request;
  auto* violation = bad_request.add_field_violations();
  violation->set_field("start.sampling.top_p");
  violation->set_description("is 2, must be at most 1");
  violation = bad_request.add_field_violations();
  violation->set_field("start.stopping.max_tokens");
  violation->set_description("is 9000, with the prompt's 5 tokens 9005; the model's context is 1024");
  status.add_details()->PackFrom(bad_request);
  const ApiError error = ToApiError(status);
  EXPECT_EQ(error.http_code, 400);
  EXPECT_EQ(error.param, "top_p");
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(
      error.message,
      "top_p is 2, must be at most 1; max_tokens is 9000, with the prompt's 5 tokens 9005; the model's context is "
      "1024");
}

TEST(ApiErrorTest, SentencesOfTheManagerNameTheFieldsOfTheClient) {
  const ApiNames names{.max_tokens = "max_completion_tokens", .prompt = "messages", .guide = "guided_regex"};
  const auto message_of = [&](const std::string& field, const std::string& description) {
    google::rpc::Status status = StatusOf(kInvalidArgument, field + ": " + description);
    google::rpc::BadRequest bad_request;
    auto* violation = bad_request.add_field_violations();
    violation->set_field(field);
    violation->set_description(description);
    status.add_details()->PackFrom(bad_request);
    return ToApiError(status, names).message;
  };
  EXPECT_EQ(message_of("start.stopping.min_tokens", "is 5, stopping.max_tokens is 4, the default"),
            "min_tokens is 5, max_completion_tokens is 4, the default");
  EXPECT_EQ(message_of("stopping.ignore_eos", "is true, it cannot be combined with guided.regex"),
            "ignore_eos is true, it cannot be combined with guided_regex");
  EXPECT_EQ(message_of("sampling.temperature", "is 2 in a beam search (beam.width is 4), which draws nothing"),
            "temperature is 2 in a beam search (n is 4), which draws nothing");
  EXPECT_EQ(message_of("sampling.bad_words[1]", "has \"stopping.max_tokens\" of tokenizer.json in logprobs."),
            "bad_words[1] has \"stopping.max_tokens\" of tokenizer.json in logprobs.")
      << "neither text of the client nor other words change";
}

TEST(ApiErrorTest, AFieldAtTheBeginningOfAMessageBecomesTheParam) {
  const int failed_precondition = 9;
  const auto error_of = [&](const std::string& message) {
    return ToApiError(StatusOf(failed_precondition, message), {.prompt = "prompt[1]"});
  };
  EXPECT_EQ(error_of("text: needs a tokenizer").message, "prompt[1]: needs a tokenizer");
  EXPECT_EQ(error_of("text: needs a tokenizer").param, "prompt[1]");
  EXPECT_EQ(error_of("chat: needs a chat template").message, "messages: needs a chat template");
  EXPECT_EQ(error_of("beam.width: is 300, the worker runs at most 256 sequences").param, "n");
  EXPECT_EQ(error_of("n or best_of: is 300, the worker runs at most 256 sequences").param, "n");
  EXPECT_EQ(error_of("n or best_of: is 300, the worker runs at most 256 sequences").message,
            "n: is 300, the worker runs at most 256 sequences");
  EXPECT_EQ(error_of("prompt has 5 tokens and stopping.max_tokens is 9: this takes up to 4 KV blocks").message,
            "prompt has 5 tokens and max_tokens is 9: this takes up to 4 KV blocks");
  EXPECT_EQ(error_of("request_id: a request \"a\" is running").param, std::nullopt);
  EXPECT_EQ(error_of("request_id: a request \"a\" is running").message, "request_id: a request \"a\" is running");
}

TEST(ApiErrorTest, AStreamThatCannotBeResumedIsToldByItsHeader) {
  google::rpc::Status status = StatusOf(/*NOT_FOUND*/ 5, "resume_token: the request is not known, or not any more");
  google::rpc::ErrorInfo info;
  info.set_reason("REQUEST_UNKNOWN");
  status.add_details()->PackFrom(info);
  const ApiError error = ToApiError(status);
  EXPECT_EQ(error.http_code, 404);
  EXPECT_EQ(error.code, "request_unknown");
  EXPECT_EQ(error.param, "Last-Event-ID");
  EXPECT_EQ(error.message,
            "Last-Event-ID is the id of a stream that cannot be resumed any more; send the request without it");
}

TEST(ApiErrorTest, AFullQueueIs429AndSaysWhenToTryAgain) {
  google::rpc::Status status = StatusOf(kResourceExhausted, "the queue is full");
  google::rpc::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(1);
  retry.mutable_retry_delay()->set_nanos(1);
  status.add_details()->PackFrom(retry);
  google::rpc::ErrorInfo info;
  info.set_reason("QUEUE_FULL");
  status.add_details()->PackFrom(info);
  const ApiError error = ToApiError(status);
  EXPECT_EQ(error.http_code, 429);
  EXPECT_EQ(error.retry_after_s, 2) << "the delay is rounded up";
  EXPECT_EQ(error.code, "queue_full");
}

TEST(ApiErrorTest, WhatWouldFailAgainIsNoReasonToTryAgain) {
  struct Case {
    const char* reason;
    int http_code;
    const char* type;
  };
  for (const Case& test :
       {Case{"RESPONSE_TOO_LARGE", 400, "invalid_request_error"},
        Case{"RECEIVING_TOO_MUCH", 400, "invalid_request_error"}, Case{"TENANT_LIMIT", 403, "permission_error"}}) {
    google::rpc::Status status = StatusOf(kResourceExhausted, "it is too much");
    google::rpc::ErrorInfo info;
    info.set_reason(test.reason);
    status.add_details()->PackFrom(info);
    const ApiError error = ToApiError(status);
    EXPECT_EQ(error.http_code, test.http_code) << test.reason;
    EXPECT_EQ(error.type, test.type);
    EXPECT_EQ(error.retry_after_s, std::nullopt);
    google::rpc::RetryInfo retry;
    retry.mutable_retry_delay()->set_seconds(3);
    status.add_details()->PackFrom(retry);
    EXPECT_EQ(ToApiError(status).http_code, 429) << test.reason;
    EXPECT_EQ(ToApiError(status).retry_after_s, 3);
  }
}

TEST(ApiErrorTest, CodesOfGrpcBecomeCodesOfHttp) {
  EXPECT_EQ(ToApiError(StatusOf(kUnavailable, "")).http_code, 503);
  EXPECT_EQ(ToApiError(StatusOf(kUnavailable, "")).retry_after_s, 1);
  EXPECT_EQ(ToApiError(StatusOf(kUnauthenticated, "")).http_code, 401);
  EXPECT_EQ(ToApiError(StatusOf(kUnauthenticated, "")).code, "invalid_api_key");
  const int permission_denied = 7;
  EXPECT_EQ(ToApiError(StatusOf(permission_denied, "")).http_code, 403);
  const int failed_precondition = 9;
  EXPECT_EQ(ToApiError(StatusOf(failed_precondition, "")).http_code, 400);
  const int internal = 13;
  EXPECT_EQ(ToApiError(StatusOf(internal, "")).http_code, 500);
}

TEST(ApiErrorTest, WhatGrpcSaysOfAConnectionIsNotForClients) {
  struct Case {
    int code;
    const char* message;
    const char* expected;
    const char* expected_code;
  };
  constexpr int kUnimplemented = 12;
  for (const Case& test : {
           Case{kUnavailable, "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: refused",
                "the gateway cannot reach its manager; try again", "no_manager"},
           Case{kUnavailable, "DNS resolution failed for manager:1", "the gateway cannot reach its manager; try again",
                "no_manager"},
           Case{kUnavailable, "recvmsg:Connection reset by peer", "the manager was lost in the middle of the answer",
                "manager_lost"},
           Case{kResourceExhausted, "received initial metadata size exceeds limit",
                "the manager was lost in the middle of the answer", "manager_lost"},
           Case{kUnimplemented, "", "what answers at --manager is not a manager; is it a worker?", "no_manager"},
       }) {
    const ApiError error = ToApiError(StatusOf(test.code, test.message));
    EXPECT_EQ(error.http_code, 503) << test.message;
    EXPECT_EQ(error.message, test.expected);
    EXPECT_EQ(error.code, test.expected_code);
    EXPECT_EQ(error.retry_after_s, 1);
  }
  google::rpc::Status restoring = StatusOf(kUnavailable, "the manager has just started");
  google::rpc::ErrorInfo info;
  info.set_reason("RESTORING");
  restoring.add_details()->PackFrom(info);
  EXPECT_EQ(ToApiError(restoring).message, "the manager has just started") << "the manager's own words";
  EXPECT_EQ(ToApiError(StatusOf(kUnimplemented, "no tokenizer")).http_code, 501);
}

TEST(ApiErrorTest, AMissingTokenIsOneOfAHeader) {
  EXPECT_EQ(ToApiError(StatusOf(kUnauthenticated,
                                "the call has no bearer token; send the metadata authorization: Bearer TOKEN"))
                .message,
            "the request has no bearer token; send the header Authorization: Bearer TOKEN");
}

}  // namespace
}  // namespace quire
