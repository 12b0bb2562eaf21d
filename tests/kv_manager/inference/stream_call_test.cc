// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/inference/stream_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/kv_manager/inference/service_harness.h"

// Tests the end of a call of Generate whose client behaves badly.

namespace quire {
namespace {

v1::GenerateRequest RequestOfTokens(int max_tokens) {
  v1::GenerateRequest request;
  request.set_text("a");
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

TEST(StreamCallTest, ClientThatDoesNotReadTheLastResponseLosesTheCall) {
  // Returns how a call ends whose client reads nothing until it asks for the end after `wait`.
  const auto end_after = [&](int max_tokens, std::chrono::milliseconds wait) {
    ServiceHarness harness(ToyModel(), {.last_write_timeout = absl::Milliseconds(20)});
    harness.engine.Hold();
    grpc::ClientContext context;
    const auto reader = harness.stub->Generate(&context, RequestOfTokens(max_tokens));
    harness.engine.WaitForRequests(1);
    // The end is sent with the last token, or after a response that is not read. This depends on the threads.
    for (int i = 0; i < max_tokens; ++i) harness.engine.Step();
    const auto num_ended = [&](absl::StatusCode code) { return harness.counts().count(RpcMethod::kGenerate, code); };
    while (num_ended(absl::StatusCode::kOk) + num_ended(absl::StatusCode::kCancelled) == 0) std::this_thread::yield();
    std::this_thread::sleep_for(wait);
    const grpc::StatusCode code = reader->Finish().error_code();
    harness.engine.WaitUntilIdle();
    return code;
  };
  for (const int max_tokens : {1, 2}) {
    // Nothing tells the client when its call was cancelled. So it waits longer each time.
    grpc::StatusCode code = grpc::StatusCode::OK;
    for (int wait_ms = 50; wait_ms < 20000 && code == grpc::StatusCode::OK; wait_ms *= 2) {
      code = end_after(max_tokens, std::chrono::milliseconds(wait_ms));
    }
    EXPECT_EQ(code, grpc::StatusCode::CANCELLED) << max_tokens;
  }
}

TEST(StreamCallTest, ClientThatReadsInTimeLosesNothing) {
  ServiceHarness harness(ToyModel(), {.last_write_timeout = absl::Seconds(60)});
  const ServiceHarness::Result result = harness.Generate(RequestOfTokens(3));
  EXPECT_TRUE(result.status.ok()) << result.status.error_message();
  EXPECT_EQ(result.tokens().size(), 3u);
}

TEST(StreamCallTest, ATextIsTokenizedAgainWhenAnotherModelIsServedMeanwhile) {
  ServiceHarness harness(ToyModel());
  const std::shared_ptr<ServedModel> newer = ToyModel({"abc"});
  newer->generation = GenerationId{2};
  const std::shared_ptr<const ServedModel> older = harness.engine.model();
  std::atomic<int> num_calls = 0;
  harness.engine.model_now = [&]() -> std::shared_ptr<const ServedModel> { return ++num_calls == 1 ? older : newer; };
  v1::GenerateRequest request = RequestOfTokens(1);
  request.set_text("abc");
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_TRUE(result.status.ok()) << result.status.error_message();
  const Request submitted = harness.engine.requests().at(0);
  EXPECT_EQ(submitted.generation, GenerationId{2});
  EXPECT_EQ(submitted.prompt, (std::vector<TokenId>{ToyTokenizer::kBos, 258})) << "the newer model has a token for it";
}

TEST(StreamCallTest, ARequestThatIsContinuedAtItsEndNeedsNoWorker) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest request = RequestOfTokens(2);
  request.mutable_sampling()->set_seed(5);
  v1::ContinuedSample* const sample = request.add_continue_from();
  for (const char c : {'b', 'c'}) sample->add_token_ids(ToyTokenizer::Byte(c));
  const ServiceHarness::Result result = harness.Generate(request);
  EXPECT_TRUE(result.status.ok()) << result.status.error_message();
  ASSERT_EQ(result.responses.size(), 1u);
  EXPECT_EQ(result.last().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(result.last().token_ids_size(), 0);
  EXPECT_EQ(result.last().usage().completion_tokens(), 2u);
  EXPECT_TRUE(harness.engine.requests().empty());
}

TEST(StreamCallTest, AClientThatHasNotReadTheEndIsWaitedFor) {
  ServiceHarness harness(ToyModel());
  EXPECT_TRUE(harness.registry().WaitForReaders(absl::ZeroDuration()));
  grpc::ClientContext context;
  const auto reader = harness.stub->Generate(&context, RequestOfTokens(2));
  harness.engine.WaitForRequests(1);
  harness.engine.WaitUntilIdle();
  EXPECT_FALSE(harness.registry().WaitForReaders(absl::Milliseconds(1)));
  v1::GenerateResponse response;
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_TRUE(harness.registry().WaitForReaders(absl::Seconds(60)));
}

TEST(StreamCallTest, ARefusedCallIsNotWaitedFor) {
  ServiceHarness harness(ToyModel());
  harness.engine.submit_status = absl::UnavailableError("draining");
  grpc::ClientContext context;
  const auto reader = harness.stub->Generate(&context, RequestOfTokens(2));
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(harness.registry().WaitForReaders(absl::Seconds(60)));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// An Abort finds the request as soon as it has a name, even before the engine has it.
TEST(StreamCallTest, AbortAtAnyTimeEndsTheCallOnce) {
  ServiceHarness harness(ToyModel());
  constexpr int kCalls = 300;
  std::atomic<int> started = 0;
  std::thread aborter([&] {
    while (started < kCalls) harness.Abort(absl::StrCat("request-", started.load()));
  });
  for (int i = 1; i <= kCalls; ++i) {
    started = i;
    v1::GenerateRequest request = RequestOfTokens(4);
    request.set_request_id(absl::StrCat("request-", i));
    request.set_n(3);
    const ServiceHarness::Result result = harness.Generate(request);
    EXPECT_TRUE(result.status.ok()) << result.status.error_message();
    int num_finished = 0;
    for (const auto& response : result.responses) num_finished += response.finish_reason() != 0;
    EXPECT_EQ(num_finished, 3);
  }
  aborter.join();
  harness.engine.WaitUntilIdle();
}

}  // namespace
}  // namespace quire
