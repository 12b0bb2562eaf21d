// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/inference_service.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_reason.h"
#include "tests/kv_manager/inference/service_harness.h"

namespace quire {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr TokenId kEos = ToyTokenizer::kEos;

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (char c : text) tokens.push_back(ToyTokenizer::Byte(c));
  return tokens;
}

v1::GenerateRequest TextRequest(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

TEST(InferenceServiceTest, StreamsTokensAndText) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("hello");
  v1::GenerateRequest request = TextRequest("ab");
  request.mutable_stopping()->set_max_tokens(5);
  request.mutable_sampling()->set_seed(11);
  request.set_request_id("one");
  const ServiceHarness::Result result = harness.Generate(request);

  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.text(), "hello");
  EXPECT_EQ(result.tokens(), Bytes("hello"));
  uint32_t position = 3;
  for (const auto& response : result.responses) {
    EXPECT_EQ(response.request_id(), "one");
    EXPECT_EQ(response.position(), position);
    EXPECT_EQ(response.has_seed(), position == 3);
    position += response.token_ids_size();
  }
  EXPECT_EQ(result.responses[0].seed(), 11u);
  EXPECT_EQ(result.last().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(result.last().usage().prompt_tokens(), 3u);
  EXPECT_EQ(result.last().usage().completion_tokens(), 5u);
}

TEST(InferenceServiceTest, DrawnSeedRepeatsTheResult) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request = TextRequest("ab");
  const ServiceHarness::Result first = harness.Generate(request);
  const ServiceHarness::Result other = harness.Generate(request);
  EXPECT_NE(first.tokens(), other.tokens());
  request.mutable_sampling()->set_seed(first.responses[0].seed());
  EXPECT_EQ(harness.Generate(request).tokens(), first.tokens());
}

TEST(InferenceServiceTest, OwnNamesDiffer) {
  ServiceHarness harness(ToyModel());
  const std::string a = harness.Generate(TextRequest("a")).responses[0].request_id();
  const std::string b = harness.Generate(TextRequest("a")).responses[0].request_id();
  EXPECT_THAT(a, SizeIs(16));
  EXPECT_NE(a, b);
}

TEST(InferenceServiceTest, EndTokenOfTheModelLeavesNoText) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = {ToyTokenizer::Byte('x'), kEos};
  v1::GenerateRequest request = TextRequest("a");
  request.set_skip_special_tokens(false);
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.text(), "x");
  EXPECT_THAT(result.tokens(), ElementsAre(ToyTokenizer::Byte('x'), kEos));
  EXPECT_EQ(result.last().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.last().stop_match_case(), v1::GenerateResponse::STOP_MATCH_NOT_SET);
  EXPECT_EQ(result.last().usage().completion_tokens(), 2u);
}

TEST(InferenceServiceTest, StopTokenIsNamedAndShownOnlyIfAsked) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("xyz");
  v1::GenerateRequest request = TextRequest("a");
  request.mutable_stopping()->add_stop_token_ids(ToyTokenizer::Byte('y'));
  ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.text(), "x");
  EXPECT_EQ(result.last().stop_token_id(), static_cast<uint32_t>(ToyTokenizer::Byte('y')));
  request.mutable_stopping()->set_include_stop(true);
  EXPECT_EQ(harness.Generate(request).text(), "xy");
}

TEST(InferenceServiceTest, StopStringEndsTheRequestInTheEngine) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  harness.engine.script = Bytes("one END two");
  v1::GenerateRequest request = TextRequest("a");
  request.mutable_stopping()->set_max_tokens(100);
  request.mutable_stopping()->add_stop("END");
  harness.engine.Step(7);
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_EQ(result.text(), "one ");
  EXPECT_EQ(result.last().finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(result.last().stop(), "END");
  EXPECT_EQ(result.tokens(), Bytes("one END"));
  EXPECT_EQ(result.last().usage().completion_tokens(), 7u);
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
}

TEST(InferenceServiceTest, EchoPutsThePromptBeforeTheText) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("world");
  v1::GenerateRequest request = TextRequest("hello ");
  request.set_echo(true);
  request.mutable_stopping()->set_max_tokens(5);
  EXPECT_EQ(harness.Generate(request).text(), "hello world");
  for (TokenId token : Bytes("hej ")) request.mutable_token_ids()->add_ids(token);
  EXPECT_EQ(harness.Generate(request).text(), "hej world");
}

TEST(InferenceServiceTest, LogprobsCarryTheTokensBytes) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("xy");
  v1::GenerateRequest request = TextRequest("ab");
  request.mutable_stopping()->set_max_tokens(2);
  request.set_logprobs(2);
  request.set_prompt_logprobs(1);
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();

  const v1::GenerateResponse& first = result.responses[0];
  ASSERT_EQ(first.prompt_logprobs_size(), 3);
  EXPECT_FALSE(first.prompt_logprobs(0).has_chosen());
  EXPECT_EQ(first.prompt_logprobs(1).chosen().token(), "a");
  EXPECT_EQ(first.prompt_logprobs(2).chosen().token(), "b");
  EXPECT_EQ(first.prompt_logprobs(2).top_size(), 1);
  EXPECT_EQ(first.logprobs(0).chosen().token(), "x");
  EXPECT_EQ(first.logprobs(0).chosen().logprob(), -0.5f);
  EXPECT_EQ(first.logprobs(0).rank(), 1u);
  EXPECT_EQ(first.logprobs(0).top_size(), 2);
  int num_logprobs = 0;
  for (const auto& response : result.responses) {
    EXPECT_EQ(response.logprobs_size(), response.token_ids_size());
    num_logprobs += response.logprobs_size();
    EXPECT_EQ(response.prompt_logprobs_size(), &response == &first ? 3 : 0);
  }
  EXPECT_EQ(num_logprobs, 2);
}

std::vector<uint32_t> TextOffsets(const google::protobuf::RepeatedPtrField<v1::PositionLogprobs>& positions) {
  std::vector<uint32_t> offsets;
  for (const v1::PositionLogprobs& position : positions) offsets.push_back(position.text_offset());
  return offsets;
}

TEST(InferenceServiceTest, LogprobsSayWhereTokensBeginInTheText) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("\xC3\xA4y");
  v1::GenerateRequest request = TextRequest("\xC3\xB6g");
  request.set_echo(true);
  request.mutable_stopping()->set_max_tokens(3);
  request.set_logprobs(0);
  request.set_prompt_logprobs(0);
  ServiceHarness::Result result = harness.Generate(request);
  ASSERT_EQ(result.text(), "\xC3\xB6g\xC3\xA4y");
  google::protobuf::RepeatedPtrField<v1::PositionLogprobs> generated;
  for (const auto& response : result.responses) generated.MergeFrom(response.logprobs());
  // The token <s> is not in the text, and a character of two bytes has two tokens.
  EXPECT_EQ(result.responses[0].prompt_logprobs(0).first_token(), "<s>");
  EXPECT_EQ(result.responses[0].prompt_logprobs(1).first_token(), "");
  EXPECT_THAT(TextOffsets(result.responses[0].prompt_logprobs()), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(TextOffsets(generated), ElementsAre(2, 2, 3));

  request.set_echo(false);
  result = harness.Generate(request);
  EXPECT_THAT(TextOffsets(result.responses[0].prompt_logprobs()), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(result.responses[0].logprobs(0).text_offset(), 0u);
}

TEST(InferenceServiceTest, DeadlineOfTheCallReachesTheEngine) {
  ServiceHarness harness(ToyModel());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  auto reader = harness.stub->Generate(&context, TextRequest("a"));
  v1::GenerateResponse response;
  while (reader->Read(&response)) continue;
  ASSERT_TRUE(reader->Finish().ok());
  harness.Generate(TextRequest("a"));

  const std::vector<Request> requests = harness.engine.requests();
  // gRPC rounds the remaining time, and rounds an hour by up to a minute.
  const double minutes_left = (requests[0].deadline_us - requests[0].arrival_us) / 60e6;
  EXPECT_NEAR(minutes_left, 60, 2);
  EXPECT_EQ(requests[1].deadline_us, std::numeric_limits<int64_t>::max());
}

TEST(InferenceServiceTest, PassedDeadlineEndsTheCall) {
  ServiceHarness harness(ToyModel());
  harness.engine.failure = absl::DeadlineExceededError("the call's deadline passed while it ran");
  const ServiceHarness::Result result = harness.Generate(TextRequest("a"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(result.status.error_message(), "the call's deadline passed while it ran");
}

TEST(InferenceServiceTest, NoWorkerIsUnavailableAndMayBeTriedAgain) {
  ServiceHarness harness(nullptr);
  const ServiceHarness::Result result = harness.Generate(TextRequest("a"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "NO_WORKER");
  EXPECT_EQ(Detail<google::rpc::RetryInfo>(result.status).retry_delay().seconds(), 1);
  const auto pushback = result.trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, result.trailers.end());
  EXPECT_EQ(pushback->second, "1000");

  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_EQ(harness.stub->GetModel(&context, {}, &model).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(InferenceServiceTest, CallsAreCountedByMethodAndCode) {
  ServiceHarness harness(ToyModel());
  harness.engine.script = Bytes("ab");
  harness.engine.ending = FinishReason::kLength;
  harness.Generate(TextRequest("a"));
  harness.Generate({});
  harness.Abort("nobody");
  EXPECT_EQ(harness.counts().count(RpcMethod::kGenerate, absl::StatusCode::kOk), 1);
  EXPECT_EQ(harness.counts().count(RpcMethod::kGenerate, absl::StatusCode::kInvalidArgument), 1);
  EXPECT_EQ(harness.counts().count(RpcMethod::kAbort, absl::StatusCode::kNotFound), 1);
}

TEST(InferenceServiceTest, RefusalOfTheEngineKeepsItsCode) {
  struct Case {
    absl::Status status;
    grpc::StatusCode code;
    const char* reason;
  };
  for (const Case& c :
       {Case{absl::ResourceExhaustedError("the queue has 8 requests, the limit"), grpc::StatusCode::RESOURCE_EXHAUSTED,
             "QUEUE_FULL"},
        Case{absl::UnavailableError("gone"), grpc::StatusCode::UNAVAILABLE, "NO_WORKER"},
        Case{WithRetryDelay(WithReason(absl::UnavailableError("the manager is draining"), "DRAINING"), 1000),
             grpc::StatusCode::UNAVAILABLE, "DRAINING"}}) {
    ServiceHarness harness(ToyModel());
    harness.engine.submit_status = c.status;
    const ServiceHarness::Result result = harness.Generate(TextRequest("a"));
    EXPECT_EQ(result.status.error_code(), c.code);
    EXPECT_EQ(result.status.error_message(), c.status.message());
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), c.reason);
    EXPECT_THAT(result.trailers, ::testing::Contains(::testing::Key("grpc-retry-pushback-ms")));
  }
}

TEST(InferenceServiceTest, RequestThatNeverFitsIsRefusedBeforeAnyResponse) {
  ServiceHarness harness(ToyModel());
  harness.engine.failure = absl::FailedPreconditionError("the request needs 9 blocks, the pool has 8");
  const ServiceHarness::Result result = harness.Generate(TextRequest("a"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(result.status.error_message(), "the request needs 9 blocks, the pool has 8");
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "NEVER_FITS");
  EXPECT_THAT(result.responses, IsEmpty());
  EXPECT_EQ(result.trailers.count("grpc-retry-pushback-ms"), 0u);
}

TEST(InferenceServiceTest, ClientThatLeavesFreesTheRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  v1::GenerateRequest request = TextRequest("a");
  request.set_request_id("gone");
  request.mutable_stopping()->set_max_tokens(100);
  grpc::ClientContext context;
  auto reader = harness.stub->Generate(&context, request);
  harness.engine.WaitForRequests(1);
  harness.engine.Step();
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
}

TEST(InferenceServiceTest, ClientThatLeavesBeforeTheFirstTokenFreesTheRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  grpc::ClientContext context;
  auto reader = harness.stub->Generate(&context, TextRequest("a"));
  harness.engine.WaitForRequests(1);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
}

TEST(InferenceServiceTest, AbortEndsTheStreamWithWhatIsThere) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  harness.engine.script = Bytes("abcdef");
  v1::GenerateRequest request = TextRequest("a");
  request.set_request_id("victim");
  request.mutable_stopping()->add_stop("bX");  // Delays "b".
  grpc::ClientContext context;
  auto reader = harness.stub->Generate(&context, request);
  harness.engine.WaitForRequests(1);
  harness.engine.Step();
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  harness.engine.Step();
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.text_delta(), "");

  EXPECT_TRUE(harness.Abort("victim").ok());
  ASSERT_TRUE(reader->Read(&response));
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_EQ(response.text_delta(), "b");
  EXPECT_EQ(response.usage().completion_tokens(), 2u);
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
  harness.engine.WaitUntilIdle();

  const grpc::Status status = harness.Abort("victim");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "request_id: no request \"victim\" is running");
}

TEST(InferenceServiceTest, AbortBeforeTheSubmissionEndsTheRequestInTheEngine) {
  auto model = ToyModel();
  model->max_context_tokens = 100000;
  ServiceHarness harness(model);
  harness.engine.Hold();
  harness.engine.before_submit = [&] { EXPECT_TRUE(harness.Abort("early").ok()); };
  v1::GenerateRequest request = TextRequest(std::string(50000, 'a'));  // Submitted on a thread that may wait.
  request.set_request_id("early");
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.last().finish_reason(), v1::FINISH_REASON_ABORT);
  harness.engine.WaitForRequests(1);
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
}

TEST(InferenceServiceTest, NameOfARunningRequestIsTaken) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  v1::GenerateRequest request = TextRequest("a");
  request.set_request_id("same");
  request.mutable_stopping()->set_max_tokens(1);
  grpc::ClientContext context;
  auto reader = harness.stub->Generate(&context, request);
  harness.engine.WaitForRequests(1);
  const ServiceHarness::Result second = harness.Generate(request);
  EXPECT_EQ(second.status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(second.status.error_message(), "request_id: a request \"same\" is running");

  harness.engine.Step();
  v1::GenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  // The client has read the last response, so the name is free again.
  harness.engine.Step();
  while (response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) ASSERT_TRUE(reader->Read(&response));
  EXPECT_TRUE(harness.Generate(request).status.ok());
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(InferenceServiceTest, NumberOfRequestsIsLimited) {
  ServiceHarness harness(ToyModel(), {.max_requests = 1});
  harness.engine.Hold();
  grpc::ClientContext context;
  auto reader = harness.stub->Generate(&context, TextRequest("a"));
  harness.engine.WaitForRequests(1);
  const ServiceHarness::Result refused = harness.Generate(TextRequest("a"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused.status).metadata().at("max_requests"), "1");
  context.TryCancel();
}

TEST(InferenceServiceTest, LongTextIsTokenizedElsewhereAndServed) {
  auto model = ToyModel();
  model->max_context_tokens = 100000;
  ServiceHarness harness(model);
  v1::GenerateRequest request = TextRequest(std::string(50000, 'a'));
  request.mutable_stopping()->set_max_tokens(2);
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.last().usage().prompt_tokens(), 50001u);
}

// A tokenizer that needs as long as somebody waits for the tokens.
class EndlessTokenizer : public ToyTokenizer {
 public:
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view /*text*/, const EncodeOptions& options) const override {
    ++num_texts;
    while (!(*options.has_left)()) std::this_thread::yield();
    return absl::CancelledError("nobody waits");
  }

  mutable std::atomic<int> num_texts = 0;
};

TEST(InferenceServiceTest, NothingIsTokenizedForAClientThatHasLeft) {
  auto model = ToyModel();
  auto made = std::make_unique<EndlessTokenizer>();
  const EndlessTokenizer& tokenizer = *made;
  model->tokenizer = std::move(made);
  ServiceHarness harness(model, {.num_text_threads = 1});
  v1::TokenizeRequest tokenize;
  tokenize.set_text(std::string(kShortTextBytes + 1, 'a'));
  v1::RenderChatRequest render;
  render.mutable_chat()->add_messages()->set_role("user");
  render.mutable_chat()->mutable_messages(0)->set_content(tokenize.text());
  const auto leave_after_begin = [&](grpc::ClientContext* context) {
    const int before = tokenizer.num_texts;
    return std::thread([&tokenizer, context, before] {
      while (tokenizer.num_texts == before) std::this_thread::yield();
      context->TryCancel();
    });
  };
  {
    grpc::ClientContext context;
    std::thread leaving = leave_after_begin(&context);
    v1::TokenizeResponse response;
    EXPECT_EQ(harness.stub->Tokenize(&context, tokenize, &response).error_code(), grpc::StatusCode::CANCELLED);
    leaving.join();
  }
  {
    grpc::ClientContext context;
    std::thread leaving = leave_after_begin(&context);
    v1::RenderChatResponse response;
    EXPECT_EQ(harness.stub->RenderChat(&context, render, &response).error_code(), grpc::StatusCode::CANCELLED);
    leaving.join();
  }
  {
    grpc::ClientContext context;
    std::thread leaving = leave_after_begin(&context);
    auto reader = harness.stub->Generate(&context, TextRequest(tokenize.text()));
    v1::GenerateResponse response;
    EXPECT_FALSE(reader->Read(&response));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
    leaving.join();
  }
  EXPECT_EQ(tokenizer.num_texts, 3);
}

// The threads of gRPC are needed for the tokens of all streams.
TEST(InferenceServiceTest, LongMessagesAreParsedByTextThreads) {
  const google::protobuf::LogSilencer silencer;  // The texts are not UTF-8.
  ServiceHarness harness(ToyModel(), {.num_text_threads = 1});
  std::promise<void> goes_on;
  harness.text_threads().RunMessage("", [&] { goes_on.get_future().wait(); });
  std::atomic<bool> has_answer = false;
  std::thread caller([&] {
    const v1::GenerateRequest long_and_wrong = TextRequest(std::string(kShortMessageBytes, '\xff'));
    EXPECT_EQ(harness.Generate(long_and_wrong).status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    v1::TokenizeRequest tokenize;
    tokenize.set_text(long_and_wrong.text());
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    EXPECT_EQ(harness.stub->Tokenize(&context, tokenize, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    has_answer = true;
  });
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(harness.Generate(RequestFor("a", 1)).status.ok());
  EXPECT_FALSE(has_answer);
  goes_on.set_value();
  caller.join();
}

TEST(InferenceServiceTest, AVeryLongMessageIsRefusedBeforeItIsParsed) {
  const google::protobuf::LogSilencer silencer;  // The texts are not UTF-8.
  ServiceHarness harness(ToyModel(), {.max_waiting_texts = 0});
  const v1::GenerateRequest generate = TextRequest(std::string(kVeryLongTextBytes, '\xff'));
  EXPECT_EQ(harness.Generate(generate).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::TokenizeRequest tokenize;
  tokenize.set_text(generate.text());
  grpc::ClientContext context;
  v1::TokenizeResponse response;
  EXPECT_EQ(harness.stub->Tokenize(&context, tokenize, &response).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST(InferenceServiceTest, LongTextsThatWaitAreLimited) {
  ServiceHarness harness(ToyModel(), {.max_waiting_texts = 0});
  v1::GenerateRequest bad_words = TextRequest("a");
  for (int i = 0; i < 256; ++i) bad_words.mutable_sampling()->add_bad_words(std::string(1024, 'a'));
  v1::GenerateRequest token_ids;
  for (int i = 0; i < 5000; ++i) token_ids.mutable_token_ids()->add_ids(5);
  v1::GenerateRequest guided = TextRequest("a");
  guided.mutable_guided()->set_regex("a+");
  for (const auto& request : {TextRequest(std::string(50000, 'a')), bad_words, token_ids, guided}) {
    const ServiceHarness::Result result = harness.Generate(request);
    EXPECT_EQ(result.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << result.status.error_message();
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(result.status).reason(), "TOO_MANY_LONG_TEXTS");
  }
}

TEST(InferenceServiceTest, ShutdownEndsRunningCalls) {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  {
    ServiceHarness harness(ToyModel());
    harness.engine.Hold();
    reader = harness.stub->Generate(&context, TextRequest("a"));
    harness.engine.WaitForRequests(1);
  }
  v1::GenerateResponse response;
  EXPECT_FALSE(reader->Read(&response));
  EXPECT_FALSE(reader->Finish().ok());
}

TEST(InferenceServiceTest, ManyRequestsAtOnceGetTheirOwnTokens) {
  ServiceHarness harness(ToyModel());
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&harness, i] {
      v1::GenerateRequest request = TextRequest(std::string(1 + i, 'a'));
      request.mutable_sampling()->set_seed(i);
      request.mutable_stopping()->set_max_tokens(50);
      request.mutable_stopping()->set_ignore_eos(true);
      const ServiceHarness::Result result = harness.Generate(request);
      EXPECT_TRUE(result.status.ok()) << result.status.error_message();
      EXPECT_THAT(result.tokens(), SizeIs(50));
      EXPECT_EQ(harness.Generate(request).tokens(), result.tokens());
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST(InferenceServiceTest, TokenizeAndDetokenizeAreInverse) {
  ServiceHarness harness(ToyModel({"hel"}));
  v1::TokenizeRequest request;
  request.set_text("hello");
  v1::TokenizeResponse tokens;
  grpc::ClientContext tokenize_context;
  ASSERT_TRUE(harness.stub->Tokenize(&tokenize_context, request, &tokens).ok());
  EXPECT_THAT(tokens.token_ids(), ElementsAre(0, 258, ToyTokenizer::Byte('l'), ToyTokenizer::Byte('o')));
  EXPECT_THAT(tokens.pieces(), ElementsAre("<s>", "hel", "l", "o"));

  v1::DetokenizeRequest back;
  *back.mutable_token_ids() = tokens.token_ids();
  v1::DetokenizeResponse text;
  grpc::ClientContext detokenize_context;
  ASSERT_TRUE(harness.stub->Detokenize(&detokenize_context, back, &text).ok());
  EXPECT_EQ(text.text(), "hello");
  back.set_skip_special_tokens(false);
  grpc::ClientContext special_context;
  ASSERT_TRUE(harness.stub->Detokenize(&special_context, back, &text).ok());
  EXPECT_EQ(text.text(), "<s>hello");
}

TEST(InferenceServiceTest, GetModelDescribesTheModel) {
  ServiceHarness harness(ToyModel());
  const v1::GetModelResponse model = harness.GetModel();
  EXPECT_EQ(model.name(), "toy");
  EXPECT_EQ(model.architecture(), "ToyForCausalLM");
  EXPECT_EQ(model.vocab_size(), 258u);
  EXPECT_EQ(model.max_context_tokens(), 128u);
  EXPECT_THAT(model.eos_token_ids(), ElementsAre(kEos));
  EXPECT_EQ(model.bos_token_id(), 0u);
  EXPECT_TRUE(model.has_tokenizer());
  EXPECT_EQ(model.max_message_bytes(), InferenceServiceOptions().max_message_bytes);
  EXPECT_EQ(model.max_batch_requests(), InferenceServiceOptions().max_batch_requests);
}

TEST(InferenceServiceTest, TheContextIsAtMostWhatTheLargestPoolHolds) {
  ServiceHarness harness(ToyModel());
  for (const auto& [longest, expected] : std::vector<std::pair<int64_t, uint32_t>>{{65, 65}, {5000, 128}, {0, 128}}) {
    harness.engine.longest_sequence = longest;
    const v1::GetModelResponse model = harness.GetModel();
    EXPECT_EQ(model.max_context_tokens(), expected) << longest;
  }
}

TEST(InferenceServiceTest, GetModelShowsTheDefaultsThatRequestsGet) {
  for (const bool uses_model_defaults : {true, false}) {
    auto model = ToyModel();
    model->defaults.sampling = {{"temperature", 0}, {"top_k", 20}};
    model->defaults.max_tokens = 30;
    ServiceHarness harness(model, {.limits = {.uses_model_defaults = uses_model_defaults}});
    const v1::GetModelResponse shown = harness.GetModel();
    EXPECT_EQ(shown.has_default_sampling(), uses_model_defaults);
    EXPECT_EQ(shown.has_default_max_tokens(), uses_model_defaults);
    if (!uses_model_defaults) continue;
    EXPECT_TRUE(shown.default_sampling().has_temperature());
    EXPECT_EQ(shown.default_sampling().temperature(), 0);
    EXPECT_EQ(shown.default_sampling().top_k(), 20u);
    EXPECT_FALSE(shown.default_sampling().has_top_p());
    EXPECT_EQ(shown.default_max_tokens(), 30u);
  }
}

TEST(InferenceServiceTest, ModelWithoutTokenizerServesTokens) {
  auto model = ToyModel();
  model->tokenizer = nullptr;
  ServiceHarness harness(model);
  const ServiceHarness::Result refused = harness.Generate(TextRequest("a"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused.status).reason(), "NO_TOKENIZER");
  EXPECT_THAT(refused.status.error_message(), HasSubstr("send token ids"));

  v1::GenerateRequest request;
  request.mutable_token_ids()->add_ids(5);
  request.set_logprobs(0);
  const ServiceHarness::Result result = harness.Generate(request);
  ASSERT_TRUE(result.status.ok());
  EXPECT_THAT(result.tokens(), AllOf(SizeIs(Ge(1u))));
  EXPECT_EQ(result.text(), "");

  grpc::ClientContext context;
  v1::TokenizeResponse tokens;
  EXPECT_EQ(harness.stub->Tokenize(&context, {}, &tokens).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
}

}  // namespace
}  // namespace quire
