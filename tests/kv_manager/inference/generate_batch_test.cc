// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/status_reason.h"
#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"

// Tests many requests on one stream, through gRPC.

namespace quire {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::GenerateRequest RequestFor(const std::string& text, int max_tokens = 5) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_sampling()->set_seed(7);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

template <typename Message>
std::string FieldOf(const Message& bad_request) {
  return bad_request.field_violations(0).field();
}

int64_t Count(const ServiceHarness& harness, RpcMethod method, absl::StatusCode code) {
  return harness.counts().count(method, code);
}

TEST(GenerateBatchTest, RequestsGetWhatGenerateGives) {
  ServiceHarness harness(ToyModel());
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < 40; ++i) {
    v1::GenerateRequest request = RequestFor(std::string(1 + i % 9, 'a'), 1 + i);
    request.mutable_sampling()->set_seed(i);
    request.set_n(1 + i % 3);
    if (i % 4 == 0) request.mutable_stopping()->add_stop("e");
    if (i % 5 == 0) request.set_logprobs(1);
    requests.push_back(request);
  }
  BatchClient batch(&harness);
  for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(batch.Start(i + 1, requests[i]));
  const grpc::Status status = batch.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_THAT(batch.results, SizeIs(requests.size()));
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(i);
    const BatchClient::Result& batched = batch.results[i + 1];
    EXPECT_TRUE(batched.status().ok());
    BatchClient::Result alone{.responses = harness.Generate(requests[i]).responses};
    for (uint32_t index = 0; index < requests[i].n(); ++index) {
      EXPECT_EQ(batched.tokens(index), alone.tokens(index));
      EXPECT_EQ(batched.text(index), alone.text(index));
    }
    EXPECT_EQ(batched.responses.back().usage().completion_tokens(), alone.responses.back().usage().completion_tokens());
  }
  EXPECT_EQ(Count(harness, RpcMethod::kGenerate, absl::StatusCode::kOk), 80) << "a batched request counts as a call";
  EXPECT_EQ(Count(harness, RpcMethod::kGenerateBatch, absl::StatusCode::kOk), 1);
}

TEST(GenerateBatchTest, WhatComesDuringAWriteGoesTogether) {
  ServiceHarness harness(ToyModel());
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 8; ++tag) batch.Start(tag, RequestFor("a", 50));
  harness.engine.WaitForRequests(8);
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(batch.Finish().ok());
  for (int tag = 1; tag <= 8; ++tag) EXPECT_THAT(batch.results[tag].tokens(), SizeIs(50));
  EXPECT_LT(batch.num_messages, 12) << "of 400 tokens that came before the first was read";
}

TEST(GenerateBatchTest, FirstResponsesDoNotWaitForTheTokensThatComeWithThem) {
  ServiceHarness harness(ToyModel(), {.num_text_threads = 1});
  harness.engine.takes_newest_first = true;  // As step loops do.
  harness.engine.Hold();
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 8; ++tag) batch.Start(tag, RequestFor("a", 2));
  harness.engine.WaitForRequests(8);
  harness.engine.Step();
  for (int tag = 1; tag <= 8; ++tag) {
    while (batch.results[tag].responses.empty()) ASSERT_TRUE(batch.Read());
  }
  batch.Start(9, RequestFor("b", 1));
  batch.Start(10, RequestFor("c", 1));
  harness.engine.WaitForRequests(10);
  std::promise<void> all_are_there;
  harness.text_threads().RunOutput([&] { all_are_there.get_future().wait(); });
  harness.engine.Step();
  harness.engine.WaitUntilIdle();  // All requests have their last token.
  const int num_before = batch.num_messages;
  all_are_there.set_value();
  ASSERT_TRUE(batch.Read());
  for (int tag = 1; tag <= 8; ++tag) EXPECT_THAT(batch.results[tag].ends, IsEmpty());
  for (int tag = 9; tag <= 10; ++tag) EXPECT_THAT(batch.results[tag].ends, SizeIs(1));
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_EQ(batch.num_messages - num_before, 2);
}

// gRPC has fewer threads than there are calls here.
TEST(GenerateBatchTest, WhileRequestsAreSubmittedOtherCallsAreServed) {
  ServiceHarness harness(ToyModel());
  std::promise<void> is_answered, is_submitting;
  std::atomic<int> num_submitted = 0;
  harness.engine.before_submit = [&, answered = is_answered.get_future().share()] {
    if (num_submitted++ == 0) is_submitting.set_value();
    answered.wait();
  };
  std::vector<std::thread> batches;
  for (int i = 0; i < 40; ++i) {
    batches.emplace_back([&harness] {
      BatchClient batch(&harness);
      batch.Start(1, RequestFor("a", 1));
      batch.Start(2, RequestFor("a", 1));
      EXPECT_TRUE(batch.Finish().ok());
    });
  }
  is_submitting.get_future().wait();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  v1::GetModelResponse model;
  const grpc::Status status = harness.stub->GetModel(&context, {}, &model);
  EXPECT_TRUE(status.ok()) << status.error_message();
  is_answered.set_value();
  for (std::thread& batch : batches) batch.join();
}

TEST(GenerateBatchTest, MessagesCostAsMuchAsCalls) {
  ServiceHarness harness(ToyModel());
  std::atomic<int> num_messages = 0, num_lost = 0;
  harness.ChargeWith([&](ClientWork work) { ++(work == ClientWork::kMessage ? num_messages : num_lost); });
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a", 1));
  batch.Start(2, RequestFor("a", 1));
  batch.Start(3, v1::GenerateRequest());  // It has no prompt.
  EXPECT_EQ(batch.ReadUntilEnd(3).status().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  batch.Cancel(2);
  EXPECT_EQ(batch.ReadUntilEnd(2).status().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.Step(1);
  EXPECT_TRUE(batch.ReadUntilEnd(1).status().ok());
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_EQ(num_messages, 4);
  EXPECT_EQ(num_lost, 2) << "the wrong request and the cancelled one";
}

TEST(GenerateBatchTest, CancelEndsOneRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  batch.Start(2, RequestFor("b"));
  harness.engine.WaitForRequests(2);
  batch.Cancel(1);
  batch.Cancel(99);
  EXPECT_EQ(batch.ReadUntilEnd(1).status().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
  harness.engine.Step(5);
  EXPECT_THAT(batch.ReadUntilEnd(2).tokens(), SizeIs(5));
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_THAT(batch.results, SizeIs(2));
}

TEST(GenerateBatchTest, CancelBeforeTheSubmissionFreesTheRequest) {
  auto model = ToyModel();
  model->max_context_tokens = 100000;
  ServiceHarness harness(model);
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor(std::string(50000, 'a')));  // A long text is submitted on another thread.
  batch.Cancel(1);
  EXPECT_EQ(batch.ReadUntilEnd(1).status().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, TagOfARunningRequestIsRefusedAndTheRequestGoesOn) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  harness.engine.WaitForRequests(1);
  batch.Start(1, RequestFor("b"));
  const grpc::Status refused = batch.ReadUntilEnd(1).status();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(refused).reason(), "TAG_RUNNING");
  harness.engine.Step(5);
  EXPECT_EQ(batch.ReadUntilEnd(1, 2).ends[1].code(), 0);
  EXPECT_THAT(batch.results[1].tokens(), SizeIs(5));
  // The client has read its end, so the tag is free.
  batch.Start(1, RequestFor("c"));
  harness.engine.Step(5);
  EXPECT_EQ(batch.ReadUntilEnd(1, 3).ends[2].code(), 0);
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, WrongRequestsEndAlone) {
  google::protobuf::LogSilencer silencer;  // protobuf logs an error for text that is not UTF-8.
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  batch.Start(2, {});
  v1::GenerateBatchRequest nothing;
  nothing.set_tag(3);
  batch.stream->Write(nothing);
  batch.Start(4, RequestFor("\xff"));
  v1::GenerateBatchRequest newer;
  newer.set_tag(5);
  *newer.mutable_start() = RequestFor("a");
  newer.GetReflection()->MutableUnknownFields(&newer)->AddVarint(99, 1);
  batch.stream->Write(newer);
  v1::GenerateRequest newer_request = RequestFor("a");
  newer_request.GetReflection()->MutableUnknownFields(&newer_request)->AddVarint(98, 1);
  batch.Start(6, newer_request);
  const std::vector<std::string> fields = {"prompt", "action", "text", "99", "98"};
  for (int tag = 2; tag <= 6; ++tag) {
    const grpc::Status status = batch.ReadUntilEnd(tag).status();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(FieldOf(Detail<google::rpc::BadRequest>(status)), fields[tag - 2]);
  }
  harness.engine.Step(5);
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_TRUE(batch.results[1].status().ok());
  EXPECT_EQ(Count(harness, RpcMethod::kGenerate, absl::StatusCode::kInvalidArgument), 5);
  EXPECT_EQ(Count(harness, RpcMethod::kGenerateBatch, absl::StatusCode::kOk), 1);
}

TEST(GenerateBatchTest, MessageWithoutTagEndsTheStream) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  harness.engine.WaitForRequests(1);
  batch.Start(0, RequestFor("a"));
  while (batch.Read()) continue;
  const grpc::Status status = batch.stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(FieldOf(Detail<google::rpc::BadRequest>(status)), "tag");
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
}

TEST(GenerateBatchTest, HalfCloseLetsRequestsRunToTheirEnd) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  batch.Start(2, RequestFor("b", 3));
  batch.stream->WritesDone();
  harness.engine.WaitForRequests(2);
  harness.engine.Step(5);
  while (batch.Read()) continue;
  EXPECT_TRUE(batch.stream->Finish().ok());
  EXPECT_THAT(batch.results[1].tokens(), SizeIs(5));
  EXPECT_THAT(batch.results[2].tokens(), SizeIs(3));
  EXPECT_TRUE(BatchClient(&harness).Finish().ok()) << "without a request";
}

TEST(GenerateBatchTest, EndOfTheCallFreesEverything) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 3; ++tag) batch.Start(tag, RequestFor("a"));
  harness.engine.WaitForRequests(3);
  harness.engine.Step();
  batch.Read();
  batch.context.TryCancel();
  EXPECT_EQ(batch.Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(3));
}

TEST(GenerateBatchTest, ShutdownEndsTheStream) {
  std::unique_ptr<BatchClient> batch;
  {
    ServiceHarness harness(ToyModel());
    harness.engine.Hold();
    batch = std::make_unique<BatchClient>(&harness);
    batch->Start(1, RequestFor("a"));
    harness.engine.WaitForRequests(1);
  }
  EXPECT_FALSE(batch->Finish().ok());
}

TEST(GenerateBatchTest, DrainingRefusesRequestsAndLeavesTheStream) {
  ServiceHarness harness(ToyModel());
  harness.engine.submit_status =
      WithRetryDelay(WithReason(absl::UnavailableError("the manager is draining"), "DRAINING"), 1000);
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"));
  const grpc::Status status = batch.ReadUntilEnd(1).status();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the manager is draining");
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "DRAINING");
  EXPECT_EQ(Detail<google::rpc::RetryInfo>(status).retry_delay().seconds(), 1);
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, RequestsWhoseEndsAreNotReadAreWaitedForAndTheStreamIsNot) {
  ServiceHarness harness(ToyModel());
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 8; ++tag) batch.Start(tag, RequestFor("a", 50));
  harness.engine.WaitForRequests(8);
  harness.engine.WaitUntilIdle();
  EXPECT_FALSE(harness.registry().WaitForReaders(absl::Milliseconds(1)));
  for (int tag = 1; tag <= 8; ++tag) batch.ReadUntilEnd(tag);
  EXPECT_TRUE(harness.registry().WaitForReaders(absl::Seconds(60)));
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, SlowReaderLosesTheRequests) {
  ServiceHarness harness(ToyModel(), {.max_outbox_tokens = 4});
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 3; ++tag) batch.Start(tag, RequestFor("a", 100));
  harness.engine.WaitForRequests(3);
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(batch.Finish().ok());
  for (int tag = 1; tag <= 3; ++tag) {
    const grpc::Status status = batch.results[tag].status();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "SLOW_READER");
  }
}

TEST(GenerateBatchTest, AReaderHasAsMuchTimeForManySamplesAsForOne) {
  ServiceHarness harness(ToyModel(), {.max_outbox_tokens = 20});
  BatchClient batch(&harness);
  v1::GenerateRequest request = RequestFor("a", 20);
  request.set_n(8);
  batch.Start(1, request);
  harness.engine.WaitForRequests(1);
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_TRUE(batch.results[1].status().ok()) << batch.results[1].status().error_message();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(batch.results[1].tokens(i).size(), 20u);
}

TEST(GenerateBatchTest, ClientThatDoesNotReadLosesTheStream) {
  ServiceHarness harness(ToyModel(), {.last_write_timeout = absl::Milliseconds(20)});
  harness.engine.Hold();
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a", 1));
  batch.Start(2, RequestFor("a", 100));
  harness.engine.WaitForRequests(2);
  harness.engine.Step();
  EXPECT_EQ(batch.stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
}

TEST(GenerateBatchTest, EachRequestHasItsDeadline) {
  ServiceHarness harness(ToyModel());
  {
    BatchClient batch(&harness);
    batch.Start(1, RequestFor("a"), 1234);
    batch.Start(2, RequestFor("a"));
    batch.Start(3, RequestFor("a"), std::numeric_limits<uint64_t>::max());
    EXPECT_TRUE(batch.Finish().ok());
  }
  BatchClient limited(&harness);
  limited.stream.reset();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::hours(1));
  limited.stream = harness.stub->GenerateBatch(&context);
  limited.Start(1, RequestFor("a"), 1234);
  limited.Start(2, RequestFor("a"), 10 * 3600 * 1000);
  EXPECT_TRUE(limited.Finish().ok());

  const std::vector<quire::Request> requests = harness.engine.requests();
  ASSERT_THAT(requests, SizeIs(5));
  const auto left_us = [&](int i) { return requests[i].deadline_us - requests[i].arrival_us; };
  EXPECT_NEAR(left_us(0), 1234e3, 1e6);
  EXPECT_EQ(requests[1].deadline_us, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(requests[2].deadline_us, std::numeric_limits<int64_t>::max());
  EXPECT_NEAR(left_us(3), 1234e3, 1e6);
  EXPECT_NEAR(left_us(4) / 60e6, 60, 2) << "the deadline of the call";
}

TEST(GenerateBatchTest, PassedDeadlineEndsTheRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.failure = absl::DeadlineExceededError("the request's deadline passed while it ran");
  BatchClient batch(&harness);
  batch.Start(1, RequestFor("a"), 0);
  EXPECT_EQ(batch.ReadUntilEnd(1).status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, RequestsOfAStreamAndOfAllAreLimited) {
  ServiceHarness harness(ToyModel(), {.max_requests = 3, .max_batch_requests = 2});
  harness.engine.Hold();
  BatchClient first(&harness);
  for (int tag = 1; tag <= 3; ++tag) first.Start(tag, RequestFor("a", 1));
  const grpc::Status of_stream = first.ReadUntilEnd(3).status();
  EXPECT_EQ(of_stream.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(of_stream).metadata().at("max_batch_requests"), "2");
  BatchClient second(&harness);
  for (int tag = 1; tag <= 2; ++tag) second.Start(tag, RequestFor("a", 1));
  const grpc::Status of_all = second.ReadUntilEnd(2).status();
  EXPECT_EQ(of_all.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(of_all).metadata().at("max_requests"), "3");
  harness.engine.Step();
  EXPECT_TRUE(first.ReadUntilEnd(1).status().ok());
  EXPECT_TRUE(first.ReadUntilEnd(2).status().ok());
  first.Start(4, RequestFor("a", 1));
  harness.engine.Step();
  EXPECT_TRUE(first.ReadUntilEnd(4).status().ok());
  EXPECT_TRUE(first.Finish().ok());
  EXPECT_TRUE(second.Finish().ok());
}

TEST(GenerateBatchTest, EndsThatNobodyReadsHoldTheClientUp) {
  ServiceHarness harness(ToyModel(), {.max_batch_requests = 2});
  BatchClient batch(&harness);
  std::thread writer([&] {
    for (int tag = 1; tag <= 200; ++tag) batch.Start(tag, {});
    batch.stream->WritesDone();
  });
  const auto num_refused = [&] { return Count(harness, RpcMethod::kGenerate, absl::StatusCode::kInvalidArgument); };
  while (num_refused() < 2) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LE(num_refused(), 3) << "two ends are unread, and a message may have been read before the second";
  while (batch.Read()) continue;
  writer.join();
  EXPECT_TRUE(batch.stream->Finish().ok());
  EXPECT_THAT(batch.results, SizeIs(200));
}

TEST(GenerateBatchTest, MessagesKeepToTheLimit) {
  ServiceHarness harness(ToyModel(), {.max_message_bytes = 400});
  BatchClient batch(&harness);
  for (int tag = 1; tag <= 20; ++tag) batch.Start(tag, RequestFor("a", 5));
  v1::GenerateRequest large = RequestFor("a", 100);
  large.set_logprobs(3);
  batch.Start(21, large);
  harness.engine.WaitForRequests(21);
  harness.engine.WaitUntilIdle();
  EXPECT_TRUE(batch.Finish().ok());
  EXPECT_LE(batch.max_message_bytes, 400u);
  for (int tag = 1; tag <= 20; ++tag) EXPECT_THAT(batch.results[tag].tokens(), SizeIs(5));
  const grpc::Status status = batch.results[21].status();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "RESPONSE_TOO_LARGE");
}

// It does not wait for a client that could only get the same response again.
TEST(GenerateBatchTest, AResponseThatIsTooLargeAlsoEndsAResumableRequest) {
  ServiceHarness harness(ToyModel(), {.max_message_bytes = 400});
  BatchClient batch(&harness);
  v1::GenerateRequest large = RequestFor("a", 100);
  large.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  large.set_request_id("large");
  large.set_prompt_logprobs(20);
  large.set_text(std::string(20, 'a'));
  harness.engine.Hold();
  batch.Start(1, large);
  harness.engine.WaitForRequests(1);
  harness.engine.Step(5);
  const grpc::Status status = batch.ReadUntilEnd(1).status();
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "RESPONSE_TOO_LARGE");
  EXPECT_THAT(harness.engine.cancelled(), SizeIs(1));
  EXPECT_THAT(harness.registry().Names(), IsEmpty());
  EXPECT_EQ(harness.resumable().counts().running, 0) << "requests that wait for a client";
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, AbortEndsABatchedRequest) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  v1::GenerateRequest request = RequestFor("a");
  request.set_request_id("victim");
  BatchClient batch(&harness);
  batch.Start(1, request);
  harness.engine.WaitForRequests(1);
  EXPECT_TRUE(harness.Abort("victim").ok());
  const BatchClient::Result result = batch.ReadUntilEnd(1);
  EXPECT_TRUE(result.status().ok());
  EXPECT_EQ(result.responses.back().finish_reason(), v1::FINISH_REASON_ABORT);
  EXPECT_TRUE(batch.Finish().ok());
}

TEST(GenerateBatchTest, EveryRequestEndsOnceWhateverIsCancelled) {
  ServiceHarness harness(ToyModel());
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&harness, c] {
      BatchClient batch(&harness);
      std::thread writer([&] {
        for (int tag = 1; tag <= 200; ++tag) {
          batch.Start(tag, RequestFor("a", 1 + tag % 20));
          if (tag % 3 == 0) batch.Cancel(tag - tag % 2);
          if (c == 3 && tag == 150) batch.context.TryCancel();
        }
        batch.stream->WritesDone();
      });
      while (batch.Read()) continue;
      writer.join();
      EXPECT_EQ(batch.stream->Finish().ok(), c != 3);
      for (int tag = 1; c != 3 && tag <= 200; ++tag) {
        SCOPED_TRACE(tag);
        const grpc::StatusCode code = batch.results[tag].status().error_code();
        if (code == grpc::StatusCode::OK) {
          EXPECT_THAT(batch.results[tag].tokens(), SizeIs(1 + tag % 20));
        } else {
          EXPECT_EQ(code, grpc::StatusCode::CANCELLED);
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  harness.engine.WaitUntilIdle();
}

}  // namespace
}  // namespace quire
