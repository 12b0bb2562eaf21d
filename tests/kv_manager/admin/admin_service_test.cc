// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/admin/admin_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kv_manager/inference/inference_service.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/kv_manager/engine/fake_worker.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

TEST(AdminServiceTest, StatusShowsEveryWorkerAsPublished) {
  WorkerStatus ready;
  ready.address = "host:1";
  ready.is_ready = true;
  ready.epoch = 42;
  ready.steps = 9;
  ready.block_size = 16;
  ready.blocks = {
      .total = 10, .free = 5, .evictable = 2, .used = 3, .shared = 1, .host_total = 20, .host_used = 6, .pinned = 2};
  ready.swapped_requests = 1;
  ready.waiting_requests = 2;
  ready.running_requests = 4;
  ready.device = "cpu";
  ready.numerics_fingerprint = "bits";
  ready.stats.preemptions = 5;
  ready.stats.prompt_tokens = 100;
  ready.stats.cached_tokens = 64;
  ready.stats.generated_tokens = 30;
  WorkerStatus away;
  away.address = "host:2";
  away.last_error = "connection refused";
  away.ranks = std::make_shared<const std::vector<RankState>>(
      std::vector<RankState>{{.address = "host:2", .is_ready = true, .device = "cpu"},
                             {.address = "host:3", .is_refused = true, .last_error = "the term is over"},
                             {.address = "host:4"}});
  away.stats.prompt_tokens = 1;
  ManagerStatus status;
  status.uptime_us = 61'900'000;
  status.model_name = "tales";
  status.is_draining = true;
  status.totals.Add(ready.stats);
  status.totals.Add(away.stats);
  status.workers = {std::make_shared<WorkerStatus>(ready), std::make_shared<WorkerStatus>(away)};

  v1::GetStatusResponse response;
  EncodeStatus(status, &response);
  EXPECT_EQ(response.version(), kVersion);
  EXPECT_EQ(response.uptime_seconds(), 61u);
  EXPECT_EQ(response.model_name(), "tales");
  EXPECT_TRUE(response.is_draining());
  EXPECT_EQ(response.prompt_tokens(), 101u);
  EXPECT_EQ(response.cached_prompt_tokens(), 64u);
  EXPECT_EQ(response.completion_tokens(), 30u);
  ASSERT_EQ(response.workers_size(), 2);
  const v1::WorkerStatus& first = response.workers(0);
  EXPECT_EQ(first.address(), "host:1");
  EXPECT_EQ(first.state(), v1::WORKER_STATE_READY);
  EXPECT_EQ(first.epoch(), 42u);
  EXPECT_EQ(first.steps(), 9u);
  EXPECT_EQ(first.block_size(), 16u);
  EXPECT_EQ(first.blocks().total(), 10u);
  EXPECT_EQ(first.blocks().free(), 5u);
  EXPECT_EQ(first.blocks().evictable(), 2u);
  EXPECT_EQ(first.blocks().used(), 3u);
  EXPECT_EQ(first.blocks().shared(), 1u);
  EXPECT_EQ(first.blocks().host_total(), 20u);
  EXPECT_EQ(first.blocks().host_used(), 6u);
  EXPECT_EQ(first.blocks().pinned(), 2u);
  EXPECT_EQ(first.swapped_requests(), 1u);
  EXPECT_EQ(first.waiting_requests(), 2u);
  EXPECT_EQ(first.running_requests(), 4u);
  EXPECT_EQ(first.preemptions(), 5u);
  EXPECT_EQ(first.device(), "cpu");
  EXPECT_EQ(first.numerics_fingerprint(), "bits");
  EXPECT_EQ(response.workers(1).state(), v1::WORKER_STATE_CONNECTING);
  EXPECT_EQ(response.workers(1).last_error(), "connection refused");
  EXPECT_EQ(first.ranks_size(), 0);
  ASSERT_EQ(response.workers(1).ranks_size(), 3);
  const v1::RankStatus& rank = response.workers(1).ranks(0);
  EXPECT_EQ(rank.rank(), 0u);
  EXPECT_EQ(rank.address(), "host:2");
  EXPECT_EQ(rank.state(), v1::WORKER_STATE_READY);
  EXPECT_EQ(rank.device(), "cpu");
  EXPECT_EQ(response.workers(1).ranks(1).rank(), 1u);
  EXPECT_EQ(response.workers(1).ranks(1).state(), v1::WORKER_STATE_REFUSED);
  EXPECT_EQ(response.workers(1).ranks(1).last_error(), "the term is over");
  EXPECT_EQ(response.workers(1).ranks(2).state(), v1::WORKER_STATE_CONNECTING);
}

// The services over an engine with one worker of 16 blocks of 4 tokens, and clients of them in the same process,
// through real gRPC.
class AdminServiceCallTest : public ::testing::Test {
 protected:
  AdminServiceCallTest()
      : engine_(StepLoopOptions(),
                {.make_client =
                     [this](const std::string& address) {
                       return address == "worker:1" ? worker_.NewClient() : newer_worker_.NewClient();
                     },
                 .on_readiness = [this](bool is_ready) { is_ready_ = is_ready; }},
                &SteadyClock()),
        requests_(&engine_, {.limits = {.max_prompt_bytes = 100}}),
        inference_service_(&requests_),
        admin_service_(&engine_, &requests_) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&inference_service_);
    builder.RegisterService(&admin_service_);
    server_ = builder.BuildAndStart();
    const auto channel = server_->InProcessChannel(grpc::ChannelArguments());
    admin_ = v1::AdminService::NewStub(channel);
    inference_ = v1::InferenceService::NewStub(channel);
  }
  ~AdminServiceCallTest() override {
    engine_.Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  void Join() {
    engine_.SetWorkers({"worker:1"});
    while (!is_ready_) std::this_thread::yield();
  }

  template <typename Request>
  static Request OfTokens(int num_tokens) {
    Request request;
    for (int i = 1; i <= num_tokens; ++i) request.mutable_token_ids()->add_ids(i);
    return request;
  }

  // Makes a whole call of Generate with this prompt.
  void Generate(int num_tokens) {
    v1::GenerateRequest request = OfTokens<v1::GenerateRequest>(num_tokens);
    request.mutable_stopping()->set_max_tokens(1);
    grpc::ClientContext context;
    const auto reader = inference_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    ASSERT_TRUE(reader->Finish().ok());
  }

  grpc::Status Pin(const v1::PinPrefixRequest& request) {
    grpc::ClientContext context;
    return admin_->PinPrefix(&context, request, &pinned_);
  }
  grpc::Status Unpin(const v1::UnpinPrefixRequest& request) {
    grpc::ClientContext context;
    v1::UnpinPrefixResponse response;
    return admin_->UnpinPrefix(&context, request, &response);
  }
  grpc::Status Explain(const std::string& name) {
    v1::ExplainWaitRequest request;
    request.set_request_id(name);
    grpc::ClientContext context;
    return admin_->ExplainWait(&context, request, &explained_);
  }
  // Repeats the question until a worker has the request.
  grpc::Status ExplainPlaced(const std::string& name) {
    grpc::Status status;
    do {
      status = Explain(name);
    } while (status.error_code() == grpc::StatusCode::NOT_FOUND || explained_.reason() == v1::WAIT_REASON_NOT_PLACED);
    return status;
  }

  FakeWorker worker_;
  FakeWorker newer_worker_;  // At "worker:2".
  std::atomic<bool> is_ready_{false};
  ManagerEngine engine_;
  RequestEnvironment requests_;
  InferenceServiceImpl inference_service_;
  AdminServiceImpl admin_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  v1::PinPrefixResponse pinned_;
  v1::ExplainWaitResponse explained_;
};

TEST_F(AdminServiceCallTest, ARequestIsExplainedByItsName) {
  Join();
  worker_.HoldBack();
  v1::GenerateRequest request = OfTokens<v1::GenerateRequest>(40);
  request.set_request_id("first");
  grpc::ClientContext first_context;
  const auto first = inference_->Generate(&first_context, request);
  EXPECT_TRUE(ExplainPlaced("first").ok());
  EXPECT_EQ(explained_.reason(), v1::WAIT_REASON_RUNS);
  EXPECT_EQ(explained_.worker(), "worker:1");

  request.set_request_id("second");
  request.mutable_token_ids()->set_ids(0, 100);
  grpc::ClientContext second_context;
  const auto second = inference_->Generate(&second_context, request);
  EXPECT_TRUE(ExplainPlaced("second").ok());
  EXPECT_EQ(explained_.reason(), v1::WAIT_REASON_BLOCKS);
  EXPECT_EQ(explained_.blocks_needed(), 10u);
  EXPECT_EQ(explained_.blocks_free(), 6u);
  EXPECT_EQ(explained_.explanation(),
            "waits for 5 more KV blocks: 10 needed, and 1 stays free for running requests to grow; 6 are free");
  first_context.TryCancel();
  second_context.TryCancel();
}

TEST_F(AdminServiceCallTest, ALostWorkerIsTheReason) {
  Join();
  worker_.HoldBack();
  v1::GenerateRequest request = OfTokens<v1::GenerateRequest>(5);
  request.set_request_id("first");
  grpc::ClientContext context;
  const auto reader = inference_->Generate(&context, request);
  EXPECT_TRUE(ExplainPlaced("first").ok());
  worker_.Kill();
  while (is_ready_) std::this_thread::yield();
  EXPECT_TRUE(Explain("first").ok());
  EXPECT_EQ(explained_.reason(), v1::WAIT_REASON_WORKER_LOST);
  EXPECT_THAT(explained_.explanation(), HasSubstr("waits for its worker to come back: "));
  context.TryCancel();
}

TEST_F(AdminServiceCallTest, AnUnknownRequestIsNotFound) {
  const grpc::Status status = Explain("nobody");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "request_id: no request \"nobody\" waits or runs");
}

TEST_F(AdminServiceCallTest, PinsHoldWhatIsCachedAndNothingElse) {
  Join();
  const auto prompt = OfTokens<v1::PinPrefixRequest>(10);
  EXPECT_TRUE(Pin(prompt).ok());
  ASSERT_EQ(pinned_.workers_size(), 1);
  EXPECT_EQ(pinned_.workers(0).address(), "worker:1");
  EXPECT_EQ(pinned_.workers(0).pinned_tokens(), 0u) << "nothing has run yet";
  Generate(10);
  EXPECT_TRUE(Pin(prompt).ok());
  EXPECT_EQ(pinned_.prompt_tokens(), 10u);
  EXPECT_EQ(pinned_.workers(0).pinned_tokens(), 8u);

  v1::PinPrefixRequest salted = prompt;
  salted.set_cache_salt("other");
  EXPECT_TRUE(Pin(salted).ok());
  EXPECT_EQ(pinned_.workers(0).pinned_tokens(), 0u);

  EXPECT_TRUE(Unpin(OfTokens<v1::UnpinPrefixRequest>(10)).ok());
  const grpc::Status again = Unpin(OfTokens<v1::UnpinPrefixRequest>(10));
  EXPECT_EQ(again.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(again.error_message(), "no worker has a pin of these 10 tokens");
}

TEST_F(AdminServiceCallTest, APinOnAWorkerOfAnOlderGenerationCanBeEnded) {
  Join();
  Generate(10);
  ASSERT_TRUE(Pin(OfTokens<v1::PinPrefixRequest>(10)).ok());
  WorkerDescription newer = SmallWorker();
  newer.numerics_fingerprint = "newer";
  newer_worker_.Start(newer);
  engine_.SetWorkers({"worker:1", "worker:2"});
  while (engine_.model()->numerics_fingerprint != "newer") std::this_thread::yield();
  const grpc::Status status = Unpin(OfTokens<v1::UnpinPrefixRequest>(10));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(AdminServiceCallTest, APromptThatFillsNoBlockCannotBePinned) {
  Join();
  const grpc::Status status = Pin(OfTokens<v1::PinPrefixRequest>(3));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "the prompt has 3 tokens and a block has 4: nothing of it can be pinned");
  EXPECT_TRUE(Pin(OfTokens<v1::PinPrefixRequest>(4)).ok());
}

TEST_F(AdminServiceCallTest, TheQuotaIsAnErrorWhenNoWorkerPins) {
  Join();
  Generate(24);
  const grpc::Status status = Pin(OfTokens<v1::PinPrefixRequest>(24));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(), "worker worker:1: the pin adds 6 blocks to 0 pinned ones, the limit is 4");
}

TEST_F(AdminServiceCallTest, WrongPinsNameTheField) {
  EXPECT_EQ(Pin(OfTokens<v1::PinPrefixRequest>(1)).error_code(), grpc::StatusCode::UNAVAILABLE) << "no worker yet";
  Join();
  const auto error = [this](const v1::PinPrefixRequest& request) {
    const grpc::Status status = Pin(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  EXPECT_EQ(error({}), "prompt: is not set: give text or token_ids");
  EXPECT_THAT(error(OfTokens<v1::PinPrefixRequest>(64)), HasSubstr("has 64 tokens, the model's context is 64"));
  v1::PinPrefixRequest request = OfTokens<v1::PinPrefixRequest>(4);
  request.set_ttl_seconds(0);
  EXPECT_EQ(error(request), "ttl_seconds: is 0, must be 1 .. 86400");
  request.set_ttl_seconds(86401);
  EXPECT_EQ(error(request), "ttl_seconds: is 86401, must be 1 .. 86400");
  request.clear_ttl_seconds();
  request.set_cache_salt(std::string(257, 'a'));
  EXPECT_EQ(error(request), "cache_salt: has 257 bytes, at most 256 are allowed");
  request.clear_cache_salt();
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(99, 1);
  EXPECT_THAT(error(request), HasSubstr("field number 99 of quire.v1.PinPrefixRequest is not known to this server"));
}

}  // namespace
}  // namespace quire
