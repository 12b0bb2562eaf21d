// SPDX-License-Identifier: Apache-2.0

#include "worker/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "quire/v1/worker.grpc.pb.h"
#include "serving/grpc_server.h"
#include "tests/worker/inventory_reader.h"
#include "tests/worker/model/model_files.h"
#include "tests/worker/plan_builder.h"
#include "tests/worker/test_worker.h"
#include "worker/description.h"
#include "worker/session_loop.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// The client's side of one Steps stream. All calls block. The destructor cancels a stream that has not ended.
class SessionClient {
 public:
  explicit SessionClient(v1::WorkerService::Stub* stub) : stream_(stub->Steps(&context_)) {}
  ~SessionClient() { context_.TryCancel(); }

  bool Open(uint64_t epoch, bool adopts = false, bool accepts_failures = false) {
    v1::StepsRequest request;
    request.mutable_open()->set_epoch(epoch);
    request.mutable_open()->set_accepts_failures(accepts_failures);
    request.mutable_open()->set_adopt(adopts);
    return stream_->Write(request);
  }
  bool Send(const v1::StepPlan& plan) {
    v1::StepsRequest request;
    *request.mutable_plan() = plan;
    return stream_->Write(request);
  }
  // Returns an empty message when the stream has ended.
  v1::StepsResponse Receive() {
    v1::StepsResponse response;
    if (!stream_->Read(&response)) response.Clear();
    return response;
  }
  // Opens the session, waits for the worker's greeting, and returns the epoch in it.
  uint64_t Begin(uint64_t epoch) {
    Open(epoch);
    return Receive().opened().epoch();
  }
  // Tells the worker that no more plans follow.
  void CloseWrites() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  // Reads the rest of the stream and returns its status.
  grpc::Status Finish() {
    v1::StepsResponse response;
    while (stream_->Read(&response)) {
    }
    return stream_->Finish();
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::StepsRequest, v1::StepsResponse>> stream_;
};

std::unique_ptr<GrpcServer> Listen(const TestDirectory& directory, WorkerService* service) {
  return *GrpcServer::Start(
      "unix:" + directory.path() + "/worker.sock", grpc::InsecureServerCredentials(),
      {.max_message_bytes = 1 << 20, .max_streams_per_connection = 16, .min_ping_interval_ms = 1000},
      {{v1::WorkerService::service_full_name(), service}});
}

class WorkerServiceTest : public ::testing::Test {
 protected:
  WorkerServiceTest() {
    Begin(&service_);
    server_ = Listen(directory_, &service_);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::WorkerService::NewStub(channel_);
  }
  ~WorkerServiceTest() override {
    worker_.backend().Open();
    loop_.Stop();
  }

  void Begin(WorkerService* service) {
    service->Begin(MakeDescription("tiny", worker_.model(), worker_.backend(), worker_.layout(), worker_.limits()),
                   &loop_);
  }

  static v1::StepPlan FirstPlan() { return PlanBuilder(1).Start(0, {5, 6}).Slice(0, 0, 2, true, {0}).plan(); }
  static v1::StepPlan Decode(uint64_t step) {
    return PlanBuilder(step).Slice(0, static_cast<uint32_t>(step), 1, true, {0, 1}).plan();
  }

  TestDirectory directory_;
  TestWorker worker_{{.num_host_blocks = 7}};
  WorkerStats stats_;
  SessionLoop loop_{&worker_.executor(), &stats_, /*binds_threads=*/false, nullptr,
                    OrphanHold{.duration = absl::Hours(1), .limits = {.chunk_bytes = 1}}};
  WorkerService service_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
};

TEST_F(WorkerServiceTest, DescribeTellsTheConstants) {
  grpc::ClientContext context;
  v1::DescribeResponse description;
  ASSERT_TRUE(stub_->Describe(&context, {}, &description).ok());
  EXPECT_EQ(description.protocol_version(), 1u);
  EXPECT_EQ(description.model_name(), "tiny");
  EXPECT_EQ(description.architecture(), "LlamaForCausalLM");
  EXPECT_EQ(description.vocab_size(), 96u);
  EXPECT_EQ(description.max_context_tokens(), 256u);
  EXPECT_THAT(description.eos_token_ids(), ::testing::ElementsAre(2u));
  EXPECT_EQ(description.bos_token_id(), 1u);
  EXPECT_EQ(description.block_size(), 4u);
  EXPECT_EQ(description.num_blocks(), 64u);
  EXPECT_EQ(description.num_host_blocks(), 7u);
  EXPECT_EQ(description.block_bytes(), 2u * 2 * 4 * 4 * 8 * 4);  // Layers, K and V, tokens, heads, dimensions, bytes.
  EXPECT_EQ(description.max_sequences(), 4u);
  EXPECT_EQ(description.max_tokens_per_step(), 64u);
  EXPECT_THAT(description.numerics_fingerprint(), HasSubstr(worker_.model().weights.fingerprint));
}

TEST_F(WorkerServiceTest, PlansAreAnsweredInOrder) {
  SessionClient session(stub_.get());
  EXPECT_EQ(session.Begin(7), 7u);
  session.Send(FirstPlan());
  session.Send(Decode(2));
  EXPECT_EQ(session.Receive().result().step(), 1u);
  session.Send(Decode(3));
  const v1::StepsResponse second = session.Receive();
  EXPECT_EQ(second.result().step(), 2u);
  EXPECT_EQ(second.result().token_ids_size(), 1);
  EXPECT_EQ(session.Receive().result().step(), 3u);
}

TEST_F(WorkerServiceTest, APlanThatWasSentBeforeCloseIsStillAnswered) {
  SessionClient session(stub_.get());
  session.Begin(1);
  session.Send(FirstPlan());
  session.Send(Decode(2));
  session.CloseWrites();
  EXPECT_EQ(session.Receive().result().step(), 1u);
  EXPECT_EQ(session.Receive().result().step(), 2u);
  EXPECT_TRUE(session.Finish().ok());
}

TEST_F(WorkerServiceTest, DescribeTellsWhereTheSessionsStand) {
  const auto describe = [this] {
    grpc::ClientContext context;
    v1::DescribeResponse description;
    EXPECT_TRUE(stub_->Describe(&context, {}, &description).ok());
    return std::pair(description.last_epoch(), description.has_session());
  };
  EXPECT_EQ(describe(), std::pair(uint64_t{0}, false));
  SessionClient session(stub_.get());
  session.Begin(5);
  EXPECT_EQ(describe(), std::pair(uint64_t{5}, true));
  session.CloseWrites();
  EXPECT_TRUE(session.Finish().ok());
  EXPECT_EQ(describe(), std::pair(uint64_t{5}, false));
}

// The inventory has more chunks than a manager may leave unread otherwise.
TEST_F(WorkerServiceTest, ASessionThatAdoptsGetsTheInventoryBeforeItsResults) {
  {
    SessionClient session(stub_.get());
    session.Begin(1);
    PlanBuilder plan(1);
    for (uint32_t row = 0; row < 4; ++row) {
      plan.Start(row, Tokens(static_cast<TokenId>(20 * row), 14))
          .WithRoot(std::to_string(row))
          .Slice(row, 0, 14, true, Blocks(8 * row, 8));
    }
    session.Send(plan.plan());
    EXPECT_EQ(session.Receive().result().step(), 1u);
  }
  SessionClient session(stub_.get());
  session.Open(2, true);
  session.Send(PlanBuilder(1).Slice(3, 14, 1, true).plan());
  const v1::StepsResponse opened = session.Receive();
  EXPECT_EQ(opened.opened().epoch(), 2u);
  EXPECT_TRUE(opened.opened().inventory_follows());
  std::vector<v1::InventoryChunk> chunks;
  while (chunks.empty() || !chunks.back().is_last()) {
    const v1::StepsResponse response = session.Receive();
    ASSERT_TRUE(response.has_inventory());
    chunks.push_back(response.inventory());
  }
  EXPECT_GT(chunks.size(), 16u);
  const ReadInventory inventory = Read(chunks);
  EXPECT_EQ(inventory.rows.size(), 4u);
  EXPECT_EQ(inventory.labels.size(), 16u);
  EXPECT_EQ(session.Receive().result().step(), 1u);
}

TEST_F(WorkerServiceTest, ASessionThatDoesNotAdoptGetsNoInventory) {
  {
    SessionClient session(stub_.get());
    session.Begin(1);
    session.Send(FirstPlan());
    EXPECT_EQ(session.Receive().result().step(), 1u);
  }
  SessionClient session(stub_.get());
  session.Open(2);
  const v1::StepsResponse opened = session.Receive();
  EXPECT_EQ(opened.opened().epoch(), 2u);
  EXPECT_FALSE(opened.opened().inventory_follows());
  session.Send(FirstPlan());
  EXPECT_EQ(session.Receive().result().step(), 1u);
}

TEST_F(WorkerServiceTest, AnOldEpochIsRefusedAndTheSessionGoesOn) {
  SessionClient session(stub_.get());
  session.Begin(5);
  for (uint64_t epoch : {5, 4, 0}) {
    SessionClient late(stub_.get());
    late.Open(epoch);
    const grpc::Status status = late.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(),
                HasSubstr("must be greater than the last one seen, 5; a session of that epoch has this worker"));
  }
  session.Send(FirstPlan());
  EXPECT_EQ(session.Receive().result().step(), 1u);
}

TEST_F(WorkerServiceTest, ANewerEpochFencesTheOlderSessionAfterItsRunningStep) {
  SessionClient old_session(stub_.get());
  old_session.Begin(1);
  worker_.backend().Close();
  old_session.Send(FirstPlan());
  worker_.backend().AwaitStep();

  SessionClient new_session(stub_.get());
  new_session.Open(2);
  std::atomic<bool> is_greeted{false};
  uint64_t epoch = 0;
  std::thread greeting([&] {
    epoch = new_session.Receive().opened().epoch();
    is_greeted = true;
  });
  // The worker drops plans that the old session sends while its step runs.
  old_session.Send(Decode(2));
  EXPECT_FALSE(is_greeted);
  worker_.backend().Open();
  const grpc::Status fenced = old_session.Finish();
  EXPECT_EQ(fenced.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(fenced.error_message(), "a session of the newer epoch 2 took over");
  EXPECT_THAT(fenced.error_details(), HasSubstr("SESSION_TAKEN_OVER"));
  greeting.join();
  EXPECT_EQ(epoch, 2u);

  // The rows of the old session are gone, and steps begin at 1.
  new_session.Send(PlanBuilder(1).Slice(0, 2, 1, true, {0}).plan());
  const grpc::Status status = new_session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("slice_rows[0] is 0, which no sequence has taken"));
}

TEST_F(WorkerServiceTest, ASessionThatWaitsToBeOpenedCanBeFencedToo) {
  SessionClient running(stub_.get());
  running.Begin(1);
  worker_.backend().Close();
  running.Send(FirstPlan());
  worker_.backend().AwaitStep();
  SessionClient waiting(stub_.get());
  waiting.Open(2);
  SessionClient newest(stub_.get());
  // If epoch 3 arrives before epoch 2, then epoch 2 is refused instead.
  newest.Open(3);
  const grpc::StatusCode code = waiting.Finish().error_code();
  EXPECT_TRUE(code == grpc::StatusCode::ABORTED || code == grpc::StatusCode::FAILED_PRECONDITION) << code;
  worker_.backend().Open();
  EXPECT_EQ(newest.Receive().opened().epoch(), 3u);
}

TEST_F(WorkerServiceTest, ABadPlanEndsItsSessionOnly) {
  SessionClient session(stub_.get());
  session.Begin(1);
  session.Send(PlanBuilder(2).plan());
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "step is 2, expected is 1");
  EXPECT_EQ(stats_.Snapshot().failed_steps, 1);

  SessionClient next(stub_.get());
  EXPECT_EQ(next.Begin(2), 2u);
  next.Send(FirstPlan());
  EXPECT_EQ(next.Receive().result().step(), 1u);
}

TEST_F(WorkerServiceTest, LogitsThatAreNotNumbersEndTheirSequenceAndTheSessionGoesOn) {
  worker_.backend().SpoilLogits();
  SessionClient session(stub_.get());
  session.Open(1, /*adopts=*/false, /*accepts_failures=*/true);
  session.Receive();
  session.Send(FirstPlan());
  const v1::StepsResponse response = session.Receive();
  ASSERT_EQ(response.result().failures_size(), 1);
  EXPECT_EQ(response.result().failures(0).sequence(), 100u);
  session.Send(Decode(2));
  EXPECT_EQ(session.Receive().result().step(), 2u);
  EXPECT_EQ(stats_.Snapshot().failed_steps, 0);
}

TEST_F(WorkerServiceTest, LogitsThatAreNotNumbersEndTheSessionOfAManagerThatReadsNoFailures) {
  worker_.backend().SpoilLogits();
  SessionClient session(stub_.get());
  session.Begin(1);
  session.Send(FirstPlan());
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("are not finite"));
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  ASSERT_EQ(details.details_size(), 1);
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "LOGITS_NOT_FINITE");
  EXPECT_EQ(info.metadata().at("sequence"), "100") << "the sequence of row 0, see PlanBuilder";
}

TEST_F(WorkerServiceTest, AThirdUnansweredPlanIsAProtocolError) {
  SessionClient session(stub_.get());
  session.Begin(1);
  worker_.backend().Close();
  session.Send(FirstPlan());
  worker_.backend().AwaitStep();
  session.Send(Decode(2));
  session.Send(Decode(3));
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "3 plans are unanswered, the limit is 2");
}

TEST_F(WorkerServiceTest, TheFirstMessageOpensTheSession) {
  SessionClient session(stub_.get());
  session.Send(FirstPlan());
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  SessionClient silent(stub_.get());
  silent.CloseWrites();
  EXPECT_EQ(silent.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(WorkerServiceTest, ASessionOpensOnce) {
  SessionClient session(stub_.get());
  session.Begin(1);
  session.Open(2);
  const grpc::Status status = session.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("a second `open`"));
}

TEST_F(WorkerServiceTest, ACancelledSessionMakesRoomForTheNext) {
  SessionClient session(stub_.get());
  session.Begin(1);
  worker_.backend().Close();
  session.Send(FirstPlan());
  worker_.backend().AwaitStep();
  session.Cancel();
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::CANCELLED);
  worker_.backend().Open();
  SessionClient next(stub_.get());
  EXPECT_EQ(next.Begin(2), 2u);
  next.Send(FirstPlan());
  EXPECT_EQ(next.Receive().result().step(), 1u);
}

TEST_F(WorkerServiceTest, StoppingFinishesTheStepAndEndsTheSession) {
  SessionClient session(stub_.get());
  session.Begin(1);
  worker_.backend().Close();
  session.Send(FirstPlan());
  worker_.backend().AwaitStep();
  std::thread stop([&] { loop_.Stop(); });
  worker_.backend().Open();
  stop.join();
  EXPECT_EQ(session.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);

  SessionClient late(stub_.get());
  late.Open(2);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(WorkerServiceTest, ADrainTellsTheManagerAndLastsUntilItHasEndedTheSession) {
  SessionClient session(stub_.get());
  session.Begin(1);
  EXPECT_FALSE(loop_.Drain(absl::Milliseconds(1)));
  EXPECT_TRUE(session.Receive().has_draining());
  session.Send(FirstPlan());
  EXPECT_EQ(session.Receive().result().step(), 1u);

  SessionClient late(stub_.get());
  late.Open(2);
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  grpc::ClientContext context;
  v1::DescribeResponse description;
  EXPECT_EQ(stub_->Describe(&context, {}, &description).error_message(), "the worker is draining");

  session.Cancel();
  EXPECT_TRUE(loop_.Drain(absl::Seconds(60)));
}

TEST_F(WorkerServiceTest, WithoutASessionADrainIsOverAtOnce) {
  EXPECT_TRUE(loop_.Drain(absl::ZeroDuration()));
}

TEST_F(WorkerServiceTest, CallsAreRefusedWhileTheModelIsLoaded) {
  const TestDirectory directory;
  LoadProgress loading;
  loading.Begin("/models/tales", 1, 2'000'000'000);
  loading.Add(500'000'000);
  WorkerService service(&loading);
  const std::unique_ptr<GrpcServer> server = Listen(directory, &service);
  const auto stub =
      v1::WorkerService::NewStub(grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials()));
  SessionClient early(stub.get());
  early.Open(1);
  EXPECT_EQ(early.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  {
    grpc::ClientContext context;
    v1::DescribeResponse description;
    const grpc::Status status = stub->Describe(&context, {}, &description);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(status.error_message(), "the worker is loading its model; 20 % of 1.9 GiB have been read");
  }
  Begin(&service);
  SessionClient session(stub.get());
  EXPECT_EQ(session.Begin(1), 1u);
}

TEST_F(WorkerServiceTest, AStreamThatNeverOpensEndsAtTheTimeoutAndAnOpenOneGoesOn) {
  const TestDirectory directory;
  WorkerService service(nullptr, absl::Milliseconds(50));
  Begin(&service);
  const std::unique_ptr<GrpcServer> server = Listen(directory, &service);
  const auto stub =
      v1::WorkerService::NewStub(grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials()));
  // On a slow machine it may take several attempts to open a session in time.
  std::unique_ptr<SessionClient> session;
  uint64_t epoch = 0;
  do {
    ++epoch;
    session = std::make_unique<SessionClient>(stub.get());
  } while (session->Begin(epoch) != epoch);

  SessionClient silent(stub.get());
  const grpc::Status status = silent.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "no `open` came within the limit of 50ms");
  // The open session continues, although it is older than the stream that timed out.
  session->Send(FirstPlan());
  EXPECT_EQ(session->Receive().result().step(), 1u);
}

}  // namespace
}  // namespace quire
