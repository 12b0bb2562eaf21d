// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/worker_link/grpc_worker_client.h"

#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

// Waits for events of the client, one of each kind at a time.
class Events : public WorkerClient::Listener {
 public:
  void OnDescribed(uint64_t epoch, WorkerDescription description) override {
    Set([&] { described_ = {epoch, std::move(description)}; });
  }
  void OnOpened(uint64_t epoch, std::unique_ptr<WorkerInventory> inventory) override {
    Set([&] {
      opened_ = epoch;
      inventory_ = std::move(inventory);
    });
  }
  void OnResult(uint64_t epoch, StepResult result, int64_t duration_us) override {
    EXPECT_EQ(epoch, 7u);
    EXPECT_EQ(duration_us, 99);
    Set([&] { result_ = std::move(result); });
  }
  void OnDraining(uint64_t epoch) override {
    Set([&] { draining_ = epoch; });
  }
  void OnProbed(uint64_t epoch) override {
    Set([&] { probed_ = epoch; });
  }
  void OnLost(uint64_t epoch, absl::Status reason) override {
    Set([&] { lost_ = {epoch, std::move(reason)}; });
  }

  std::pair<uint64_t, WorkerDescription> Described() { return Take(&described_); }
  uint64_t Opened() { return Take(&opened_); }
  const WorkerInventory* inventory() const { return inventory_.get(); }
  StepResult Result() { return Take(&result_); }
  uint64_t Draining() { return Take(&draining_); }
  uint64_t Probed() { return Take(&probed_); }
  std::pair<uint64_t, absl::Status> Lost() { return Take(&lost_); }

 private:
  void Set(const std::function<void()>& set) {
    const std::lock_guard lock(mutex_);
    set();
    changed_.notify_all();
  }
  template <typename T>
  T Take(std::optional<T>* event) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [event] { return event->has_value(); });
    return *std::exchange(*event, std::nullopt);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::pair<uint64_t, WorkerDescription>> described_;
  std::optional<uint64_t> opened_;
  std::unique_ptr<WorkerInventory> inventory_;
  std::optional<StepResult> result_;
  std::optional<uint64_t> draining_;
  std::optional<uint64_t> probed_;
  std::optional<std::pair<uint64_t, absl::Status>> lost_;
};

// Opens every session and answers every plan with token 3 per sampled slice, unless a test says otherwise.
class ScriptedWorker : public v1::WorkerService::Service {
 public:
  grpc::Status Describe(grpc::ServerContext* /*context*/, const v1::DescribeRequest* /*request*/,
                        v1::DescribeResponse* response) override {
    response->set_protocol_version(protocol_version);
    response->set_model_name("scripted");
    response->set_vocab_size(10);
    response->set_max_context_tokens(64);
    response->set_block_size(4);
    response->set_num_blocks(16);
    response->set_max_sequences(8);
    response->set_max_tokens_per_step(32);
    return grpc::Status::OK;
  }

  grpc::Status Steps(grpc::ServerContext* /*context*/,
                     grpc::ServerReaderWriter<v1::StepsResponse, v1::StepsRequest>* stream) override {
    v1::StepsRequest request;
    while (stream->Read(&request)) {
      v1::StepsResponse response;
      if (request.has_open()) {
        if (refuse_epoch) return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "epoch 9 is served");
        response.mutable_opened()->set_epoch(request.open().epoch());
        if (request.open().adopt() || sends_unwanted_inventory) {
          response.mutable_opened()->set_inventory_follows(!inventory.empty());
          for (v1::InventoryChunk& chunk : inventory) {
            stream->Write(response);
            *response.mutable_inventory() = chunk;
          }
        }
      } else {
        if (end_at_plan) return end_status;
        response.mutable_result()->set_step(request.plan().step());
        response.mutable_result()->set_duration_us(99);
        for (const char sample : request.plan().slice_samples()) {
          if (sample == 1) response.mutable_result()->add_token_ids(token);
        }
      }
      stream->Write(response);
      if (drains && response.has_opened()) {
        response.mutable_draining();
        stream->Write(response);
      }
      if (answer_twice && response.has_result()) stream->Write(response);
    }
    return grpc::Status::OK;
  }

  grpc::Status Refuse(grpc::ServerContext* /*context*/, const v1::RefuseRequest* request,
                      v1::RefuseResponse* /*response*/) override {
    refusal.set_value(request->reason());
    return grpc::Status::OK;
  }

  std::promise<std::string> refusal;
  uint32_t protocol_version = 1;
  uint32_t token = 3;
  bool refuse_epoch = false;
  bool end_at_plan = false;
  grpc::Status end_status;
  bool drains = false;
  bool answer_twice = false;
  std::vector<v1::InventoryChunk> inventory;  // For a session that adopts.
  bool sends_unwanted_inventory = false;
};

// Row 2 has a sequence with three tokens, of which two are computed.
std::vector<v1::InventoryChunk> SmallInventory() {
  std::vector<v1::InventoryChunk> chunks(2);
  v1::InventoryHeader* const header = chunks[0].mutable_header();
  header->set_epoch(6);
  header->set_num_blocks(16);
  header->set_block_size(4);
  header->set_max_sequences(8);
  header->set_layout_id("/block-4");
  header->set_num_rows(1);
  v1::InventoryRow* const row = chunks[1].add_rows();
  row->set_row(2);
  row->set_sequence(40);
  row->set_prompt_length(2);
  for (const uint32_t token : {5, 6, 7}) row->add_token_ids(token);
  row->set_computed_tokens(2);
  row->add_blocks(9);
  row->set_record("record");
  chunks[1].set_is_last(true);
  return chunks;
}

class GrpcWorkerClientTest : public ::testing::Test {
 protected:
  GrpcWorkerClientTest() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&worker_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<GrpcWorkerClient>(GrpcWorkerClientOptions{.address = absl::StrCat("127.0.0.1:", port)});
    client_->SetListener(&events_);
  }
  ~GrpcWorkerClientTest() override {
    client_.reset();
    server_->Shutdown();
  }

  void Open() {
    client_->Describe(7);
    EXPECT_EQ(events_.Described().first, 7u);
    client_->Open(7, /*adopts=*/false);
    EXPECT_EQ(events_.Opened(), 7u);
  }
  static StepPlan Plan(uint64_t step) {
    StepPlan plan;
    plan.step = StepId{step};
    if (step == 1) plan.starts.push_back({RowId{0}, SequenceId{1}, 0, 1, {5}, {}});
    plan.slices.push_back({RowId{0}, static_cast<int>(step) - 1, 1, 0, {BlockId{0}}, true});
    return plan;
  }

  ScriptedWorker worker_;
  Events events_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<GrpcWorkerClient> client_;
};

std::map<std::string, int> Numbers(const grpc::ChannelArguments& arguments) {
  std::map<std::string, int> numbers;
  const grpc_channel_args args = arguments.c_channel_args();
  for (size_t i = 0; i < args.num_args; ++i) {
    if (args.args[i].type == GRPC_ARG_INTEGER) numbers[args.args[i].key] = args.args[i].value.integer;
  }
  return numbers;
}

TEST(WorkerChannelArgumentsTest, OnlyOtherHostsAreProbedAndPatiently) {
  const auto tcp = Numbers(WorkerChannelArguments({.address = "host:1", .keepalive_timeout_ms = 7000}));
  EXPECT_GE(tcp.at(GRPC_ARG_KEEPALIVE_TIME_MS), 10'000);
  EXPECT_EQ(tcp.at(GRPC_ARG_KEEPALIVE_TIMEOUT_MS), 7000);
  const auto unix_socket = Numbers(WorkerChannelArguments({.address = "unix:/run/worker.sock"}));
  EXPECT_EQ(unix_socket.count(GRPC_ARG_KEEPALIVE_TIME_MS), 0u);
}

TEST(WorkerChannelArgumentsTest, ARestartedWorkerIsFoundWithin200Ms) {
  const auto arguments = Numbers(WorkerChannelArguments({.address = "host:1"}));
  EXPECT_LE(arguments.at(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS), 100) << "and WorkerLink asks every 200 ms";
}

TEST_F(GrpcWorkerClientTest, AProbeIsAnsweredAlsoByAPortThatHasNoHealthService) {
  Open();
  for (int i = 0; i < 3; ++i) {
    client_->Probe(7);
    EXPECT_EQ(events_.Probed(), 7u);
  }
}

TEST_F(GrpcWorkerClientTest, PlansGoOutAndResultsComeBack) {
  Open();
  for (uint64_t step = 1; step <= 20; ++step) {
    client_->Send(Plan(step));
    const StepResult result = events_.Result();
    EXPECT_EQ(result.step, StepId{step});
    ASSERT_EQ(result.slices.size(), 1u);
    EXPECT_EQ(result.slices[0].token.token, 3);
  }
  client_->Close();
  EXPECT_EQ(events_.Lost().first, 7u);
}

TEST_F(GrpcWorkerClientTest, ATokenOutsideTheVocabularyEndsTheSession) {
  worker_.token = 10;
  Open();
  client_->Send(Plan(1));
  EXPECT_THAT(std::string(events_.Lost().second.message()), HasSubstr("token_ids 10, expected less than 10"));
}

TEST_F(GrpcWorkerClientTest, AnAnswerThatNobodyAskedForEndsTheSession) {
  worker_.answer_twice = true;
  Open();
  client_->Send(Plan(1));
  EXPECT_THAT(std::string(events_.Lost().second.message()), HasSubstr("answered step 1, but no plan is in flight"));
}

TEST_F(GrpcWorkerClientTest, ARefusedEpochIsALossWithTheWorkersWords) {
  worker_.refuse_epoch = true;
  client_->Describe(7);
  events_.Described();
  client_->Open(7, /*adopts=*/false);
  const absl::Status reason = events_.Lost().second;
  EXPECT_EQ(reason.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(reason.message(), "epoch 9 is served");
}

TEST_F(GrpcWorkerClientTest, ASessionThatAdoptsGetsTheInventoryAndUsesItsRows) {
  worker_.inventory = SmallInventory();
  client_->Describe(7);
  events_.Described();
  client_->Open(7, /*adopts=*/true);
  EXPECT_EQ(events_.Opened(), 7u);
  ASSERT_NE(events_.inventory(), nullptr);
  ASSERT_EQ(events_.inventory()->rows.size(), 1u);
  EXPECT_EQ(events_.inventory()->rows[0].record, "record");
  StepPlan plan;
  plan.step = StepId{1};
  plan.slices.push_back({RowId{2}, 2, 1, 0, {BlockId{9}}, true});
  client_->Send(plan);
  EXPECT_EQ(events_.Result().slices.at(0).token.token, 3);
}

TEST_F(GrpcWorkerClientTest, ASessionThatAdoptsOpensWithoutAnInventoryWhenNothingIsLeft) {
  client_->Describe(7);
  events_.Described();
  client_->Open(7, /*adopts=*/true);
  EXPECT_EQ(events_.Opened(), 7u);
  EXPECT_EQ(events_.inventory(), nullptr);
}

TEST_F(GrpcWorkerClientTest, AWrongInventoryEndsTheSession) {
  worker_.inventory = SmallInventory();
  worker_.inventory[1].mutable_rows(0)->set_row(8);
  client_->Describe(7);
  events_.Described();
  client_->Open(7, /*adopts=*/true);
  EXPECT_THAT(std::string(events_.Lost().second.message()), HasSubstr("row"));
}

TEST_F(GrpcWorkerClientTest, AnInventoryThatNobodyHasAskedForEndsTheSession) {
  worker_.inventory = SmallInventory();
  worker_.sends_unwanted_inventory = true;
  client_->Describe(7);
  events_.Described();
  client_->Open(7, /*adopts=*/false);
  EXPECT_EQ(events_.Lost().second.message(), "the worker sends an inventory that nobody has asked for");
}

TEST_F(GrpcWorkerClientTest, AWorkerThatEndsTheStreamIsLost) {
  worker_.end_at_plan = true;
  Open();
  client_->Send(Plan(1));
  EXPECT_EQ(events_.Lost().second.message(), "the worker ended the session");
  client_->Send(Plan(2));  // The worker has gone. The caller learns this from OnLost.
}

TEST_F(GrpcWorkerClientTest, ACallThatTheWorkerCancelsIsLostInWords) {
  worker_.end_at_plan = true;
  worker_.end_status = grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED");
  Open();
  client_->Send(Plan(1));
  const absl::Status reason = events_.Lost().second;
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(reason.message(), "the worker has ended the session, as it does when it stops");
}

TEST_F(GrpcWorkerClientTest, AWorkerNamesTheSequenceAtWhichItFailed) {
  google::rpc::ErrorInfo info;
  info.set_reason("LOGITS_NOT_FINITE");
  (*info.mutable_metadata())["sequence"] = "17";
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  worker_.end_at_plan = true;
  worker_.end_status = grpc::Status(grpc::StatusCode::INTERNAL, "not finite", details.SerializeAsString());
  Open();
  client_->Send(Plan(1));
  const absl::Status reason = events_.Lost().second;
  EXPECT_EQ(reason.message(), "not finite");
  EXPECT_EQ(ReasonOf(reason), (StatusReason{"LOGITS_NOT_FINITE", {{"sequence", "17"}}}));
}

TEST_F(GrpcWorkerClientTest, AWorkerThatDrainsSaysSoAndStillAnswers) {
  worker_.drains = true;
  Open();
  EXPECT_EQ(events_.Draining(), 7u);
  client_->Send(Plan(1));
  EXPECT_EQ(events_.Result().step, StepId{1});
}

TEST_F(GrpcWorkerClientTest, AnotherProtocolVersionIsRefused) {
  worker_.protocol_version = 2;
  client_->Describe(7);
  const std::string reason(events_.Lost().second.message());
  EXPECT_THAT(reason, HasSubstr("protocol_version 2"));
  EXPECT_EQ(worker_.refusal.get_future().get(), reason) << "the worker is told, too";
}

TEST_F(GrpcWorkerClientTest, ARefusalReachesTheWorkerThoughTheAttemptIsClosed) {
  client_->Describe(7);
  events_.Described();
  client_->Refuse("a bad tokenizer");
  client_->Close();
  EXPECT_EQ(worker_.refusal.get_future().get(), "a bad tokenizer");
}

TEST_F(GrpcWorkerClientTest, AServerThatIsGoneIsALoss) {
  Open();
  server_->Shutdown(std::chrono::system_clock::now());
  EXPECT_EQ(events_.Lost().first, 7u);
  client_->Describe(8);
  const auto [epoch, reason] = events_.Lost();
  EXPECT_EQ(epoch, 8u);
  EXPECT_EQ(reason.code(), absl::StatusCode::kUnavailable);
}

TEST_F(GrpcWorkerClientTest, AClientMayBeDestroyedInTheMiddleOfAnything) {
  client_->Describe(7);
  client_ = std::make_unique<GrpcWorkerClient>(GrpcWorkerClientOptions{.address = "127.0.0.1:1"});
  client_->SetListener(&events_);
  client_->Describe(8);
}

}  // namespace
}  // namespace quire
