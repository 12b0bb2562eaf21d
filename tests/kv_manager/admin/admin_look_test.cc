// SPDX-License-Identifier: Apache-2.0

// The calls of AdminService that look inside workers, check them and drain them, through real gRPC.

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "kv_manager/admin/admin_service.h"
#include "kv_manager/inference/inference_service.h"
#include "quire/v1/admin.grpc.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/kv_manager/blocks/block_manager_peer.h"
#include "tests/kv_manager/engine/fake_worker.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Plans are made one at a time, so that a test knows what a worker has answered.
StepLoopOptions OnePlanInFlight() {
  StepLoopOptions options;
  options.scheduler.max_plans_in_flight = 1;
  return options;
}

// The services over an engine with two workers of 16 blocks of 4 tokens. A worker joins when a test calls Join.
class AdminLookTest : public ::testing::Test {
 protected:
  AdminLookTest()
      : engine_(OnePlanInFlight(),
                {.make_client = [this](const std::string& address) { return workers_[address].NewClient(); },
                 .on_readiness = [this](bool is_ready) { is_ready_ = is_ready; }},
                &SteadyClock()),
        requests_(&engine_, {}),
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
  ~AdminLookTest() override {
    for (auto& [name, running] : running_) running->context.TryCancel();
    engine_.Stop();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  // Workers "a" and "b".
  void Join(int num_workers = 1) {
    std::vector<std::string> addresses = {"a", "b"};
    addresses.resize(num_workers);
    engine_.SetWorkers(addresses);
    const auto all_ready = [this] {
      for (const auto& worker : engine_.status().workers) {
        if (!worker->is_ready) return false;
      }
      return true;
    };
    while (!all_ready()) std::this_thread::yield();
  }

  struct Running {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;
  };

  static v1::GenerateRequest Request(const std::string& name, int first, int num_tokens, int max_tokens = 20) {
    v1::GenerateRequest request;
    for (int i = 0; i < num_tokens; ++i) request.mutable_token_ids()->add_ids((first + i) % 999 + 1);
    request.set_request_id(name);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    return request;
  }

  // Starts a request and waits until a worker has it.
  void Begin(const v1::GenerateRequest& request) {
    auto& running = running_[request.request_id()] = std::make_unique<Running>();
    running->reader = inference_->Generate(&running->context, request);
    v1::DescribeRequestRequest asked;
    asked.set_request_id(request.request_id());
    while (!Call(&v1::AdminService::Stub::DescribeRequest, asked, &described_).ok()) std::this_thread::yield();
  }

  // Makes a whole call.
  void Finish(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    const auto reader = inference_->Generate(&context, request);
    v1::GenerateResponse response;
    while (reader->Read(&response)) continue;
    ASSERT_TRUE(reader->Finish().ok());
  }

  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    return (admin_.get()->*method)(&context, request, response);
  }
  v1::DescribeBlockResponse Block(uint32_t block) {
    v1::DescribeBlockRequest request;
    request.set_block(block);
    v1::DescribeBlockResponse response;
    const grpc::Status status = Call(&v1::AdminService::Stub::DescribeBlock, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  v1::ListRequestsResponse List(const v1::ListRequestsRequest& request = {}) {
    v1::ListRequestsResponse response;
    EXPECT_TRUE(Call(&v1::AdminService::Stub::ListRequests, request, &response).ok());
    return response;
  }
  v1::WorkerAudit Audit(bool repair = false, int max_wait_ms = 0) {
    v1::AuditRequest request;
    request.set_repair(repair);
    request.set_max_wait_ms(max_wait_ms);
    v1::AuditResponse response;
    EXPECT_TRUE(Call(&v1::AdminService::Stub::Audit, request, &response).ok());
    return response.workers(0);
  }
  // Runs a function on the loop of worker "a".
  void Tamper(const std::function<void(PagedBlockManager*)>& tamper) {
    std::atomic<bool> is_done = false;
    engine_.AskWorker(
        "a", [&](const LoopView& loop) { tamper(loop.blocks); }, [&](const absl::Status&) { is_done = true; });
    while (!is_done) std::this_thread::yield();
  }

  std::map<std::string, FakeWorker> workers_;  // By address.
  std::atomic<bool> is_ready_{false};
  ManagerEngine engine_;
  RequestEnvironment requests_;
  InferenceServiceImpl inference_service_;
  AdminServiceImpl admin_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::map<std::string, std::unique_ptr<Running>> running_;
  v1::DescribeRequestResponse described_;
};

TEST_F(AdminLookTest, RequestsAreListedTheRunningOnesFirst) {
  EXPECT_EQ(List().num_requests(), 0u) << "no worker yet";
  Join();
  workers_["a"].HoldBack();
  Begin(Request("first", 1, 40));
  Begin(Request("second", 100, 40));
  v1::ListRequestsResponse list = List();
  EXPECT_EQ(list.num_requests(), 2u);
  ASSERT_EQ(list.requests_size(), 2);
  const v1::RequestSummary& first = list.requests(0);
  EXPECT_EQ(first.request_id(), "first");
  EXPECT_EQ(first.worker(), "a");
  EXPECT_EQ(first.state(), v1::REQUEST_STATE_RUNNING);
  EXPECT_EQ(first.prompt_tokens(), 40u);
  EXPECT_EQ(first.num_sequences(), 1u);
  EXPECT_EQ(first.blocks(), 10u);
  EXPECT_EQ(first.shared_blocks(), 0u);
  EXPECT_EQ(list.requests(1).state(), v1::REQUEST_STATE_WAITING);
  EXPECT_EQ(list.requests(1).blocks(), 0u);

  v1::ListRequestsRequest few;
  few.set_max_requests(1);
  list = List(few);
  EXPECT_EQ(list.num_requests(), 2u);
  EXPECT_EQ(list.requests_size(), 1);
}

TEST_F(AdminLookTest, ARequestThatWaitsHasAllOfItsSamplesOrBeams) {
  Join();
  workers_["a"].HoldBack();
  Begin(Request("first", 1, 40));
  v1::GenerateRequest samples = Request("samples", 100, 33, 3);
  samples.set_n(3);
  Begin(samples);
  v1::GenerateRequest beams = Request("beams", 200, 33, 3);
  beams.mutable_beam()->set_width(4);
  Begin(beams);
  const v1::ListRequestsResponse list = List();
  ASSERT_EQ(list.requests_size(), 3);
  EXPECT_EQ(list.requests(1).state(), v1::REQUEST_STATE_WAITING);
  EXPECT_EQ(list.requests(1).num_sequences(), 3u);
  EXPECT_EQ(list.requests(2).state(), v1::REQUEST_STATE_WAITING);
  EXPECT_EQ(list.requests(2).num_sequences(), 4u);
}

TEST_F(AdminLookTest, ARequestIsDescribedWithItsForksAndWithWhomItShares) {
  Join();
  Finish(Request("", 1, 9, 1));  // Two blocks are cached.
  workers_["a"].HoldBack();
  Begin(Request("before", 500, 4, 1));  // The next two plans are made together when it has been answered.
  v1::GenerateRequest samples = Request("samples", 1, 9, 3);
  samples.set_n(3);
  Begin(samples);
  Begin(Request("other", 1, 10, 3));
  workers_["a"].AnswerOnce();
  v1::DescribeRequestRequest request;
  request.set_request_id("samples");
  do {
    ASSERT_TRUE(Call(&v1::AdminService::Stub::DescribeRequest, request, &described_).ok());
  } while (described_.summary().state() != v1::REQUEST_STATE_RUNNING);
  EXPECT_EQ(described_.summary().request_id(), "samples");
  EXPECT_EQ(described_.summary().cached_prompt_tokens(), 8u);
  EXPECT_EQ(described_.summary().num_sequences(), 3u);
  EXPECT_EQ(described_.summary().blocks(), 3u);
  EXPECT_EQ(described_.summary().shared_blocks(), 3u);
  EXPECT_EQ(described_.block_size(), 4u);
  EXPECT_GT(described_.step(), 0u);
  ASSERT_EQ(described_.sequences_size(), 3);
  EXPECT_EQ(described_.sequences(0).num_tokens(), 9u);
  EXPECT_EQ(described_.sequences(2).blocks_size(), 3);
  EXPECT_THAT(described_.sequences(0).references(), ElementsAre(5, 5, 3))
      << "three samples, another request, the cache";
  ASSERT_EQ(described_.tree_size(), 1);
  EXPECT_EQ(described_.tree(0).num_blocks(), 3u);
  EXPECT_THAT(described_.tree(0).sequences(), ElementsAre(0, 1, 2));
  ASSERT_EQ(described_.sharers_size(), 1);
  EXPECT_EQ(described_.sharers(0).request_id(), "other");
  EXPECT_EQ(described_.sharers(0).num_blocks(), 2u);
}

TEST_F(AdminLookTest, ABlockKnowsItsOwners) {
  Join();
  workers_["a"].HoldBack();
  Begin(Request("first", 1, 9));
  const uint32_t second_block = described_.sequences(0).blocks(1);
  v1::DescribeBlockResponse block = Block(second_block);
  EXPECT_EQ(block.worker(), "a");
  EXPECT_EQ(block.state(), v1::BLOCK_STATE_USED);
  EXPECT_EQ(block.references(), 2u) << "a sequence and the cache";
  EXPECT_TRUE(block.is_cached());
  EXPECT_EQ(block.prefix_depth(), 2u);
  EXPECT_NE(block.prefix_hash(), 0u);
  ASSERT_EQ(block.owners_size(), 1);
  EXPECT_EQ(block.owners(0).request_id(), "first");
  EXPECT_EQ(block.owners(0).table_index(), 1u);
  EXPECT_EQ(Block(15).state(), v1::BLOCK_STATE_FREE);
  EXPECT_EQ(Block(15).owners_size(), 0);
}

TEST_F(AdminLookTest, WrongQuestionsNameTheFieldAndTheLimit) {
  v1::DescribeBlockRequest block;
  v1::DescribeBlockResponse response;
  const auto describe = [&] { return Call(&v1::AdminService::Stub::DescribeBlock, block, &response); };
  EXPECT_EQ(describe().error_message(), "worker: is empty, and the manager has 0 workers: ");
  Join(2);
  EXPECT_EQ(describe().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(describe().error_message(), "worker: is empty, and the manager has 2 workers: a, b");
  block.set_worker("c");
  EXPECT_EQ(describe().error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(describe().error_message(), "worker: none has the address \"c\"; there are a, b");
  block.set_worker("b");
  block.set_block(16);
  EXPECT_EQ(describe().error_message(), "block: is 16, the pool of worker b has the blocks 0 .. 15");

  v1::ListRequestsRequest list;
  list.set_max_requests(1001);
  v1::ListRequestsResponse listed;
  EXPECT_EQ(Call(&v1::AdminService::Stub::ListRequests, list, &listed).error_message(),
            "max_requests: is 1001, must be 1 .. 1000");

  v1::DescribeRequestRequest nobody;
  nobody.set_request_id("nobody");
  const grpc::Status unknown = Call(&v1::AdminService::Stub::DescribeRequest, nobody, &described_);
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(unknown.error_message(), "request_id: no request \"nobody\" waits or runs");

  v1::DrainRequest drain;
  v1::DrainResponse drained;
  EXPECT_EQ(Call(&v1::AdminService::Stub::Drain, drain, &drained).error_message(),
            "worker: none has the address \"\"; there are a, b");
  drain.GetReflection()->MutableUnknownFields(&drain)->AddVarint(99, 1);
  EXPECT_THAT(Call(&v1::AdminService::Stub::Drain, drain, &drained).error_message(),
              HasSubstr("field number 99 of quire.v1.DrainRequest is not known to this server"));
}

TEST_F(AdminLookTest, AnAuditFindsAPlantedCountAndRepairsIt) {
  Join();
  workers_["a"].HoldBack();
  Begin(Request("first", 1, 9));
  EXPECT_EQ(Audit().num_differences(), 0u);
  EXPECT_EQ(Audit().num_blocks(), 16u);
  EXPECT_EQ(Audit().num_references(), 5u) << "three of a table, two of the cache";
  const uint32_t block = described_.sequences(0).blocks(2);
  Tamper([&](PagedBlockManager* blocks) { BlockManagerPeer::AddOwners(blocks, BlockId{block}, +1); });
  const v1::WorkerAudit audit = Audit();
  ASSERT_EQ(audit.differences_size(), 1);
  EXPECT_EQ(audit.differences(0).kind(), v1::AuditDifference::KIND_REFERENCES);
  EXPECT_EQ(audit.differences(0).block(), block);
  EXPECT_EQ(audit.differences(0).counted(), 2);
  EXPECT_EQ(audit.differences(0).recomputed(), 1);
  EXPECT_FALSE(audit.is_repaired());
  EXPECT_TRUE(Audit(/*repair=*/true).is_repaired());
  EXPECT_EQ(Audit().num_differences(), 0u);
  EXPECT_EQ(Audit().contradiction(), "");
}

TEST_F(AdminLookTest, AnAuditComparesTheRowsOfTheWorkerAndRepairsThem) {
  Join();
  EXPECT_EQ(Audit(false, 60'000).num_rows(), 0u) << "nothing runs";
  EXPECT_EQ(Audit(false, 60'000).rows_not_compared(), "");
  FakeWorker& worker = workers_["a"];
  worker.HoldBack();
  Begin(Request("first", 1, 9, 50));
  EXPECT_EQ(Audit().rows_not_compared(), "not asked for");
  EXPECT_EQ(Audit(false, 1).rows_not_compared(), "the worker began no step in time");

  const auto audit_steps = [&](bool repair) {
    std::atomic<bool> has_ended = false;
    std::thread answers([&] {
      while (!has_ended) {
        worker.AnswerOnce();
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    v1::WorkerAudit audit = Audit(repair, 60'000);
    has_ended = true;
    answers.join();
    return audit;
  };
  const v1::WorkerAudit clean = audit_steps(false);
  EXPECT_EQ(clean.rows_not_compared(), "");
  EXPECT_EQ(clean.num_rows(), 1u);
  EXPECT_EQ(clean.num_row_differences(), 0u);
  worker.ReportWrongFirstBlock(BlockId{15});
  const v1::WorkerAudit found = audit_steps(/*repair=*/true);
  ASSERT_EQ(found.row_differences_size(), 1);
  EXPECT_EQ(found.row_differences(0).kind(), v1::RowDifference::KIND_BLOCK);
  EXPECT_EQ(found.row_differences(0).request_id(), "first");
  EXPECT_EQ(found.row_differences(0).found(), 15u);
  EXPECT_TRUE(found.is_repaired());
  EXPECT_EQ(audit_steps(false).num_row_differences(), 0u);
  EXPECT_TRUE(worker.error().ok()) << worker.error();
  worker.Kill();
  while (is_ready_) std::this_thread::yield();
  EXPECT_EQ(Audit(false, 60'000).rows_not_compared(), "the worker is not connected");
}

TEST_F(AdminLookTest, ADrainedWorkerGetsNoRequestsAndFinishesItsOwn) {
  Join(2);
  workers_["a"].HoldBack();
  workers_["b"].HoldBack();
  Begin(Request("first", 1, 9));
  const std::string busy = described_.summary().worker();
  v1::DrainRequest drain;
  drain.set_worker(busy);
  v1::DrainResponse drained;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::Drain, drain, &drained).ok());
  EXPECT_EQ(drained.num_requests(), 1u);
  // Placement would choose the worker with the cached prefix.
  for (int i = 0; i < 3; ++i) {
    Begin(Request(absl::StrCat("later", i), 1, 9));
    EXPECT_NE(described_.summary().worker(), busy);
  }
  v1::GenerateResponse response;
  std::atomic<bool> has_ended = false;
  std::thread worker([&] {
    while (!has_ended) workers_[busy].Answer();
  });
  while (running_["first"]->reader->Read(&response)) continue;
  has_ended = true;
  worker.join();
  EXPECT_TRUE(running_["first"]->reader->Finish().ok());

  v1::GetStatusResponse status;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::GetStatus, v1::GetStatusRequest(), &status).ok());
  for (const auto& worker : status.workers()) EXPECT_EQ(worker.is_draining(), worker.address() == busy);
  EXPECT_TRUE(is_ready_);
  drain.set_worker(busy == "a" ? "b" : "a");
  ASSERT_TRUE(Call(&v1::AdminService::Stub::Drain, drain, &drained).ok());
  EXPECT_FALSE(is_ready_);
  grpc::ClientContext context;
  const auto refused = inference_->Generate(&context, Request("refused", 1, 9));
  EXPECT_FALSE(refused->Read(&response));
  const grpc::Status refusal = refused->Finish();
  EXPECT_EQ(refusal.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(refusal.error_message(), "none of 2 workers is ready; an operator drains 2, `quirectl undrain` ends that");

  v1::UndrainRequest undrain;
  undrain.set_worker(busy);
  v1::UndrainResponse undrained;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::Undrain, undrain, &undrained).ok());
  EXPECT_TRUE(is_ready_);
  workers_[busy].HoldBack();
  Begin(Request("again", 1, 9));
  EXPECT_EQ(described_.summary().worker(), busy);
}

TEST_F(AdminLookTest, AFlushFreesWhatOnlyTheCacheHolds) {
  Join();
  Finish(Request("", 1, 9, 1));
  Finish(Request("", 100, 13, 1));
  v1::PinPrefixRequest pin;
  for (int i = 1; i <= 9; ++i) pin.mutable_token_ids()->add_ids(i + 1);
  v1::PinPrefixResponse pinned;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::PinPrefix, pin, &pinned).ok());
  v1::FlushPrefixCacheRequest flush;
  v1::FlushPrefixCacheResponse flushed;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::FlushPrefixCache, flush, &flushed).ok());
  ASSERT_EQ(flushed.workers_size(), 1);
  EXPECT_EQ(flushed.workers(0).worker(), "a");
  EXPECT_EQ(flushed.workers(0).freed_blocks(), 3u);
  EXPECT_EQ(flushed.workers(0).cached_blocks(), 2u) << "pinned";
  flush.set_end_pins(true);
  ASSERT_TRUE(Call(&v1::AdminService::Stub::FlushPrefixCache, flush, &flushed).ok());
  EXPECT_EQ(flushed.workers(0).freed_blocks(), 2u);
  EXPECT_EQ(flushed.workers(0).cached_blocks(), 0u);
}

TEST_F(AdminLookTest, AFlushOfManyBlocksGoesInSlices) {
  WorkerDescription large = SmallWorker();
  large.num_blocks = 1000;
  large.max_context_tokens = 4000;
  workers_["a"].Start(large);
  Join();
  Finish(Request("", 1, 1601, 1));
  v1::FlushPrefixCacheResponse flushed;
  ASSERT_TRUE(Call(&v1::AdminService::Stub::FlushPrefixCache, v1::FlushPrefixCacheRequest(), &flushed).ok());
  EXPECT_EQ(flushed.workers(0).freed_blocks(), 400u);
}

TEST_F(AdminLookTest, AWatchBeginsWithASnapshotAndTellsChanges) {
  Join(2);
  workers_["a"].HoldBack();
  workers_["b"].HoldBack();
  v1::WatchBlocksRequest request;
  request.set_interval_ms(100);
  grpc::ClientContext context;
  const auto reader = admin_->WatchBlocks(&context, request);
  v1::WatchBlocksResponse message;
  for (const char* worker : {"a", "b"}) {
    ASSERT_TRUE(reader->Read(&message));
    EXPECT_EQ(message.worker(), worker);
    EXPECT_EQ(message.snapshot().states(), std::string(16, '\1'));
    EXPECT_EQ(message.step(), 0u);
  }
  Begin(Request("first", 1, 9));
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.worker(), described_.summary().worker());
  EXPECT_EQ(message.step(), 1u);
  EXPECT_THAT(message.delta().blocks(), ElementsAre(0, 1, 2));
  EXPECT_EQ(message.delta().states(), "\3\3\3");
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(AdminLookTest, WatchesAreBoundedAndCheckTheirFields) {
  Join();
  v1::WatchBlocksRequest request;
  v1::WatchBlocksResponse message;
  const auto error = [&] {
    grpc::ClientContext context;
    const auto reader = admin_->WatchBlocks(&context, request);
    EXPECT_FALSE(reader->Read(&message));
    return reader->Finish();
  };
  request.set_interval_ms(99);
  EXPECT_EQ(error().error_message(), "interval_ms: is 99, must be 100 .. 60000");
  request.clear_interval_ms();
  request.set_worker("c");
  EXPECT_EQ(error().error_message(), "worker: none has the address \"c\"; there is a");
  request.set_worker("a");
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::WatchBlocksResponse>>> readers;
  for (int i = 0; i < kMaxWatches; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(admin_->WatchBlocks(contexts.back().get(), request));
    ASSERT_TRUE(readers.back()->Read(&message));
  }
  EXPECT_EQ(error().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(error().error_message(), "16 calls of WatchBlocks are running, and the limit is 16");
  for (int i = 0; i < kMaxWatches; ++i) {
    contexts[i]->TryCancel();
    readers[i]->Finish();
  }
  // Other calls may take their places when the server has noticed the end.
  bool is_watching = false;
  while (!is_watching) {
    grpc::ClientContext context;
    const auto reader = admin_->WatchBlocks(&context, request);
    is_watching = reader->Read(&message);
    context.TryCancel();
    reader->Finish();
  }
}

}  // namespace
}  // namespace quire
