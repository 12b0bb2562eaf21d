// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/trace_context.h"
#include "nlohmann/json.hpp"
#include "tests/kv_manager/inference/service_harness.h"

// Tests the lines that --log-requests writes, and the traceparent of a call and of its answer.

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

InferenceServiceOptions Logged() {
  InferenceServiceOptions options;
  options.logs_requests = true;
  return options;
}

v1::GenerateRequest NamedRequest(const std::string& name, int max_tokens = 3) {
  v1::GenerateRequest request;
  request.set_request_id(name);
  request.set_text("secret");
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// One call of Generate with these traceparents.
struct Answer {
  grpc::Status status;
  std::vector<std::string> traceparents;
};
Answer Generate(ServiceHarness* harness, const v1::GenerateRequest& request,
                const std::vector<std::string>& traceparents = {}) {
  grpc::ClientContext context;
  for (const std::string& traceparent : traceparents) context.AddMetadata("traceparent", traceparent);
  const auto reader = harness->stub->Generate(&context, request);
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  Answer answer{.status = reader->Finish(), .traceparents = {}};
  const auto [begin, end] = context.GetServerInitialMetadata().equal_range("traceparent");
  for (auto it = begin; it != end; ++it) answer.traceparents.emplace_back(it->second.data(), it->second.size());
  return answer;
}

// Collects the log as JSON. Also collects lines below the log level.
class RequestLogTest : public testing::Test {
 protected:
  RequestLogTest() {
    SetLogFormat(LogFormat::kJson);
    SetLogLevel(LogLevel::kError);
    testing::internal::CaptureStderr();
  }
  ~RequestLogTest() override {
    SetLogFormat(LogFormat::kText);
    SetLogLevel(LogLevel::kInfo);
  }

  std::vector<nlohmann::json> Lines() {
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_THAT(text, Not(HasSubstr("secret")));
    std::vector<nlohmann::json> lines;
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      lines.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
      EXPECT_TRUE(lines.back().is_object()) << line;
    }
    return lines;
  }
};

TEST_F(RequestLogTest, ALineHasTheRequestsNamesNumbersAndTrace) {
  ServiceHarness harness(ToyModel(), Logged());
  v1::GenerateRequest request = NamedRequest("one");
  request.set_tenant("blue");
  request.set_n(2);
  const Answer answer = Generate(&harness, request, {kTraceparent});
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_THAT(answer.traceparents, SizeIs(1));
  const auto span = ParseTraceparent(answer.traceparents[0]);
  ASSERT_TRUE(span.has_value()) << answer.traceparents[0];
  EXPECT_EQ(span->trace_id, kTrace);
  EXPECT_TRUE(span->is_sampled);

  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  const nlohmann::json& line = lines[0];
  EXPECT_EQ(line["request_id"], "one");
  EXPECT_EQ(line["tenant"], "blue");
  EXPECT_EQ(line["finish_reason"], "length");
  EXPECT_EQ(line["prompt_tokens"], 7);
  EXPECT_EQ(line["cached_tokens"], 0);
  EXPECT_EQ(line["output_tokens"], 6);
  EXPECT_GE(line["ttft_s"], 0.0);
  EXPECT_GE(line["duration_s"], line["ttft_s"]);
  EXPECT_EQ(line["trace_id"], kTrace);
  EXPECT_EQ(line["span_id"], span->parent_id) << "the parent of whatever the caller counts under the answer";
  EXPECT_EQ(line["parent_span_id"], "00f067aa0ba902b7");
}

TEST_F(RequestLogTest, ARequestWithoutATraceparentThatCountsStartsATrace) {
  ServiceHarness harness(ToyModel(), Logged());
  const std::vector<std::vector<std::string>> sent = {
      {}, {""}, {"00-zz"}, {kTraceparent, kTraceparent}, {std::string(kTraceparent) + "0"}};
  for (const std::vector<std::string>& traceparents : sent) {
    const Answer answer = Generate(&harness, NamedRequest(""), traceparents);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_THAT(answer.traceparents, SizeIs(1));
    const auto span = ParseTraceparent(answer.traceparents[0]);
    ASSERT_TRUE(span.has_value()) << answer.traceparents[0];
    EXPECT_NE(span->trace_id, kTrace);
    EXPECT_FALSE(span->is_sampled);
  }
  std::vector<std::string> traces;
  for (const nlohmann::json& line : Lines()) {
    EXPECT_FALSE(line.contains("parent_span_id")) << line;
    EXPECT_FALSE(line.contains("tenant")) << line;
    for (const std::string& other : traces) EXPECT_NE(line["trace_id"], other);
    traces.push_back(line["trace_id"]);
  }
  EXPECT_THAT(traces, SizeIs(sent.size()));
}

TEST_F(RequestLogTest, RequestsOfABatchHaveSpansOfTheirOwnInTheStreamsTrace) {
  ServiceHarness harness(ToyModel(), Logged());
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kTraceparent);
  const auto stream = harness.stub->GenerateBatch(&context);
  for (const int tag : {1, 2}) {
    v1::GenerateBatchRequest message;
    message.set_tag(tag);
    *message.mutable_start() = NamedRequest("");
    ASSERT_TRUE(stream->Write(message));
  }
  stream->WritesDone();
  v1::GenerateBatchResponse response;
  while (stream->Read(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok());
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(2));
  for (const nlohmann::json& line : lines) {
    EXPECT_EQ(line["trace_id"], kTrace);
    EXPECT_EQ(line["parent_span_id"], "00f067aa0ba902b7");
  }
  EXPECT_NE(lines[0]["span_id"], lines[1]["span_id"]);
}

TEST_F(RequestLogTest, RefusedRequestHasNoLine) {
  ServiceHarness harness(ToyModel(), Logged());
  const Answer refused = Generate(&harness, NamedRequest("refused", /*max_tokens=*/1 << 20), {kTraceparent});
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(refused.traceparents, IsEmpty()) << "a call with nothing but a status may be tried again by gRPC";
  EXPECT_THAT(Lines(), IsEmpty());
}

TEST_F(RequestLogTest, FailedRequestEndsWithTheNameOfItsStatus) {
  ServiceHarness harness(ToyModel(), Logged());
  harness.engine.failure = absl::UnavailableError("secret: the worker is gone");
  const Answer failed = Generate(&harness, NamedRequest("failed"));
  EXPECT_EQ(failed.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(failed.traceparents, IsEmpty());
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_EQ(lines[0]["request_id"], "failed");
  EXPECT_EQ(lines[0]["finish_reason"], "UNAVAILABLE");
  EXPECT_EQ(lines[0]["output_tokens"], 0);
  EXPECT_FALSE(lines[0].contains("ttft_s"));
}

TEST_F(RequestLogTest, NothingIsLoggedUnlessWanted) {
  SetLogLevel(LogLevel::kDebug);
  ServiceHarness harness(ToyModel());
  EXPECT_THAT(Generate(&harness, NamedRequest("one"), {kTraceparent}).traceparents, SizeIs(1));
  EXPECT_THAT(Lines(), IsEmpty());
}

}  // namespace
}  // namespace quire
