// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "client/library/client.h"
#include "client/library/generate_streams.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

// Tests how a client with the addresses of several managers finds the one that leads.

namespace quire {
namespace {

grpc::Status Unavailable(const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  google::rpc::Status details;
  details.set_code(static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  details.set_message(reason == "DRAINING" ? "this manager stops" : "this manager stands by");
  details.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, details.message(), details.SerializeAsString());
}

// Counts its calls, and refuses all but Abort while it stands by.
class Inference : public v1::InferenceService::Service {
 public:
  explicit Inference(const std::string& name) : name_(name) {}

  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*, v1::GetModelResponse* response) override {
    ++num_calls;
    response->set_name(name_);
    while (hangs) absl::SleepFor(absl::Milliseconds(1));
    return leads ? grpc::Status::OK : Unavailable("NOT_LEADER");
  }
  grpc::Status Abort(grpc::ServerContext*, const v1::AbortRequest*, v1::AbortResponse*) override {
    ++num_calls;
    return num_calls <= num_restoring ? Unavailable("RESTORING") : grpc::Status::OK;
  }
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest*,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    ++num_calls;
    if (!leads) return Unavailable("NOT_LEADER");
    if (stops) return Unavailable("DRAINING");
    v1::GenerateResponse response;
    response.add_token_ids(1);
    response.set_text_delta(name_);
    response.set_resume_token("token");
    writer->Write(response);
    while (is_endless && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    if (!is_cut && !is_drained) return grpc::Status::OK;
    leads = false;
    return is_drained ? Unavailable("DRAINING") : grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  }
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest*,
                      grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    ++num_calls;
    if (!leads) return Unavailable("NOT_LEADER");
    v1::GenerateResponse response;
    response.set_position(1);
    response.add_token_ids(2);
    response.set_text_delta(name_);
    writer->Write(response);
    return grpc::Status::OK;
  }

  std::atomic<bool> leads = true;
  std::atomic<bool> hangs = false;
  std::atomic<bool> stops = false;       // Refuses new requests, and answers other calls.
  std::atomic<bool> is_cut = false;      // Loses the stream after its first response, and stands by then.
  std::atomic<bool> is_drained = false;  // The same, but ends the stream because the manager stops.
  std::atomic<bool> is_endless = false;  // Continues the stream after its first response until it is cancelled.
  std::atomic<int> num_restoring = 0;    // Number of first calls that find that the manager still restores requests.
  std::atomic<int> num_calls = 0;

 private:
  const std::string name_;
};

class Admin : public v1::AdminService::Service {
 public:
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::GetStatusResponse*) override {
    ++num_calls;
    return grpc::Status::OK;
  }
  std::atomic<int> num_calls = 0;
};

// Each test runs with a stream of its own for each request and with one of GenerateStreams.
class SeveralManagersTest : public testing::TestWithParam<bool> {
 protected:
  SeveralManagersTest() {
    char directory[] = "/tmp/quire-managers.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    Start(0);
    Start(1);
    client_ = std::make_unique<Client>(ClientOptions{.endpoint = absl::StrCat(Endpoint(0), ",", Endpoint(1))});
    request_.set_request_id("r");
    request_.set_text("p");
  }
  ~SeveralManagersTest() override {
    for (const auto& server : servers_) {
      if (server != nullptr) server->Shutdown();
    }
    std::filesystem::remove_all(directory_);
  }

  std::string Endpoint(int i) const { return absl::StrCat("unix:", directory_, "/", i); }
  void Start(int i) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    builder.AddListeningPort(Endpoint(i), grpc::InsecureServerCredentials());
    builder.RegisterService(&inference_[i]);
    builder.RegisterService(&admin_[i]);
    servers_[i] = builder.BuildAndStart();
  }
  void Stop(int i) {
    servers_[i]->Shutdown();
    servers_[i] = nullptr;
  }
  std::string ModelName() {
    const absl::StatusOr<v1::GetModelResponse> model = client_->GetModel();
    return model.ok() ? model->name() : model.status().ToString();
  }
  // The texts of all responses.
  std::string Generate(absl::Duration timeout = absl::Seconds(60)) {
    if (GetParam()) return GenerateAmongMany(timeout);
    const auto stream = client_->Generate(request_, timeout);
    std::string text;
    v1::GenerateResponse response;
    while (stream->Next(&response)) text += response.text_delta();
    const absl::Status status = stream->Finish();
    return status.ok() ? text : status.ToString();
  }
  std::string GenerateAmongMany(absl::Duration timeout) {
    const auto streams = client_->GenerateMany();
    streams->Start(/*tag=*/0, request_, timeout);
    std::string text;
    GenerateStreams::Event event;
    while (streams->Next(&event) && !event.end.has_value()) text += event.response.text_delta();
    return event.end->ok() ? text : event.end->ToString();
  }

  std::string directory_;
  Inference inference_[2] = {Inference("a"), Inference("b")};
  Admin admin_[2];
  std::unique_ptr<grpc::Server> servers_[2];
  std::unique_ptr<Client> client_;
  v1::GenerateRequest request_;
};

INSTANTIATE_TEST_SUITE_P(AloneAndAmongMany, SeveralManagersTest, testing::Bool());

TEST_P(SeveralManagersTest, CallsGoPastTheOneThatStandsByAndStayWithTheLeader) {
  inference_[0].leads = false;
  EXPECT_EQ(ModelName(), "b");
  EXPECT_EQ(Generate(), "b");
  EXPECT_EQ(ModelName(), "b");
  EXPECT_EQ(inference_[0].num_calls, 1);
  inference_[0].leads = true;
  inference_[1].leads = false;
  EXPECT_EQ(Generate(), "a");
  EXPECT_EQ(ModelName(), "a");
}

TEST_P(SeveralManagersTest, CallsGoPastTheOneThatIsGone) {
  Stop(0);
  EXPECT_EQ(ModelName(), "b");
  EXPECT_EQ(Generate(), "b");
  // The client finds the one that is started again.
  Start(0);
  inference_[1].leads = false;
  EXPECT_EQ(ModelName(), "a");
  Stop(1);
  EXPECT_EQ(Generate(), "a");
}

TEST_P(SeveralManagersTest, CallsThatEveryManagerAnswersGoToTheLeader) {
  inference_[0].leads = false;
  EXPECT_EQ(client_->GetStatus().status(), absl::OkStatus());
  EXPECT_EQ(admin_[0].num_calls, 0);
  EXPECT_EQ(admin_[1].num_calls, 1);
}

TEST_P(SeveralManagersTest, HealthIsThatOfTheOneThatServes) {
  servers_[0]->GetHealthCheckService()->SetServingStatus("readiness", false);
  servers_[1]->GetHealthCheckService()->SetServingStatus("readiness", true);
  EXPECT_TRUE(client_->IsServing("readiness").value());
  servers_[1]->GetHealthCheckService()->SetServingStatus("readiness", false);
  EXPECT_FALSE(client_->IsServing("readiness").value());
  Stop(0);
  EXPECT_FALSE(client_->IsServing("readiness").value());
  Stop(1);
  EXPECT_TRUE(IsConnectionError(client_->IsServing("readiness").status()));
}

TEST_P(SeveralManagersTest, AManagerThatDoesNotAnswerKeepsOneCallAndNotTheNext) {
  client_ = std::make_unique<Client>(
      ClientOptions{.endpoint = absl::StrCat(Endpoint(0), ",", Endpoint(1)), .timeout = absl::Seconds(1)});
  inference_[0].hangs = true;
  EXPECT_THAT(ModelName(), testing::HasSubstr("DEADLINE_EXCEEDED"));
  EXPECT_EQ(ModelName(), "b");
  inference_[0].hangs = false;
}

TEST_P(SeveralManagersTest, ALeaderIsFoundBesideAManagerThatHangs) {
  client_ = std::make_unique<Client>(
      ClientOptions{.endpoint = absl::StrCat(Endpoint(0), ",", Endpoint(1)), .timeout = absl::Minutes(1)});
  inference_[0].hangs = true;
  EXPECT_EQ(client_->GetStatus().status(), absl::OkStatus());
  EXPECT_EQ(admin_[1].num_calls, 1);
  inference_[0].hangs = false;
}

TEST_P(SeveralManagersTest, AStandbyErrorIsToldFromOthers) {
  inference_[0].leads = false;
  EXPECT_TRUE(IsStandbyError(Client(ClientOptions{.endpoint = Endpoint(0)}).GetModel().status()));
  Stop(0);
  EXPECT_FALSE(IsStandbyError(Client(ClientOptions{.endpoint = Endpoint(0)}).GetModel().status()));
}

TEST_P(SeveralManagersTest, AStreamResumesWhereTheNextLeaderIs) {
  request_.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  inference_[0].is_cut = true;
  EXPECT_EQ(Generate(), "ab");
  EXPECT_EQ(inference_[1].num_calls, 1);
}

TEST_P(SeveralManagersTest, ARequestGoesPastTheManagerThatStops) {
  inference_[0].stops = true;
  EXPECT_EQ(Generate(), "b");
  EXPECT_EQ(inference_[0].num_calls, 1);
  EXPECT_EQ(Generate(), "b");
  EXPECT_EQ(inference_[0].num_calls, 1);
}

TEST_P(SeveralManagersTest, ARequestWaitsUntilTheNextManagerLeadsAfterTheOneThatStops) {
  inference_[0].stops = true;
  inference_[1].leads = false;
  EXPECT_THAT(Generate(absl::Seconds(1)), testing::AnyOf(testing::HasSubstr("stops"), testing::HasSubstr("by")));
  std::thread election([this] {
    for (const int before = inference_[1].num_calls; inference_[1].num_calls < before + 2;) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    inference_[1].leads = true;
  });
  EXPECT_EQ(Generate(), "b");
  election.join();
}

TEST_P(SeveralManagersTest, AClientOfOneManagerHearsAtOnceThatItStops) {
  client_ = std::make_unique<Client>(ClientOptions{.endpoint = Endpoint(0)});
  inference_[0].stops = true;
  EXPECT_THAT(Generate(), testing::HasSubstr("this manager stops"));
  EXPECT_EQ(inference_[0].num_calls, 1);
}

TEST_P(SeveralManagersTest, AStreamThatAStoppingManagerEndsContinuesWithTheNextOne) {
  request_.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  inference_[0].is_drained = true;
  EXPECT_EQ(Generate(), "ab");
  request_.set_on_disconnect(v1::ON_DISCONNECT_ABORT);
  inference_[1].is_drained = true;
  EXPECT_THAT(Generate(), testing::HasSubstr("this manager stops"));
}

TEST_P(SeveralManagersTest, ACancelledStreamLeavesTheClientWithTheLeader) {
  inference_[0].is_endless = true;
  const auto stream = client_->Generate(request_, absl::Seconds(60));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  stream->Cancel();
  EXPECT_FALSE(stream->Next(&response));
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ModelName(), "a");
  EXPECT_EQ(inference_[1].num_calls, 0);
}

TEST_P(SeveralManagersTest, ACallWaitsWhileTheManagerRestoresItsRequests) {
  for (const std::string& endpoint : {Endpoint(0), absl::StrCat(Endpoint(0), ",", Endpoint(1))}) {
    inference_[0].num_calls = 0;
    inference_[0].num_restoring = 2;
    EXPECT_EQ(Client(ClientOptions{.endpoint = endpoint}).Abort("r"), absl::OkStatus());
    EXPECT_EQ(inference_[0].num_calls, 3);
    inference_[0].num_restoring = 1'000'000;
    Client hasty(ClientOptions{.endpoint = endpoint});
    EXPECT_EQ(hasty.Abort("r", absl::Seconds(1)).code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(inference_[1].num_calls, 0);
}

TEST_P(SeveralManagersTest, ACallWaitsForALeaderUntilItsDeadline) {
  for (Inference& inference : inference_) inference.leads = false;
  EXPECT_THAT(Generate(absl::Seconds(1)), testing::HasSubstr("stands by"));
  Client hasty(ClientOptions{.endpoint = absl::StrCat(Endpoint(0), ",", Endpoint(1)), .timeout = absl::Seconds(1)});
  EXPECT_TRUE(IsStandbyError(hasty.GetModel().status()));
  std::thread election([this] {
    while (inference_[1].num_calls < 4) absl::SleepFor(absl::Milliseconds(1));
    inference_[1].leads = true;
  });
  EXPECT_EQ(ModelName(), "b");
  election.join();
}

TEST_P(SeveralManagersTest, ACallFailsAtOnceWhenNobodyIsThere) {
  Stop(0);
  Stop(1);
  const absl::Time start = absl::Now();
  EXPECT_THAT(ModelName(), testing::HasSubstr("UNAVAILABLE"));
  EXPECT_THAT(Generate(), testing::HasSubstr("UNAVAILABLE"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(30)) << "the deadlines are 10 and 60 s";
}

}  // namespace
}  // namespace quire
