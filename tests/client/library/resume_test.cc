// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/mutex.h"
#include "client/library/client.h"
#include "client/library/generate_streams.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/chaos/fault_proxy.h"

// Tests how a GenerateStream continues after its call has ended, with a service that follows a script. Each test runs
// with a stream of its own and with one of GenerateStreams.

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

using Writer = grpc::ServerWriter<v1::GenerateResponse>;

grpc::Status Cut(const std::string& message = "Socket closed") {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, message);
}

v1::GenerateResponse Response(uint32_t position, const std::string& text, const std::string& resume_token = "") {
  v1::GenerateResponse response;
  response.set_position(position);
  response.add_token_ids(position);
  response.set_text_delta(text);
  response.set_resume_token(resume_token);
  return response;
}

// Answers each call with the next step of its script, and the last step repeatedly.
class ScriptedService : public v1::InferenceService::Service {
 public:
  using OnGenerate = std::function<grpc::Status(const v1::GenerateRequest&, Writer*)>;
  using OnResume = std::function<grpc::Status(const v1::ResumeRequest&, Writer*)>;

  grpc::Status Generate(grpc::ServerContext*, const v1::GenerateRequest* request, Writer* writer) override {
    OnGenerate step;
    {
      const MutexLock lock(&mutex);
      step = generate.at(std::min(generates.size(), generate.size() - 1));
      generates.push_back(*request);
    }
    return step(*request, writer);
  }
  grpc::Status Resume(grpc::ServerContext*, const v1::ResumeRequest* request, Writer* writer) override {
    OnResume step;
    {
      const MutexLock lock(&mutex);
      step = resume.at(std::min(resumes.size(), resume.size() - 1));
      resumes.push_back(*request);
    }
    return step(*request, writer);
  }

  std::vector<OnGenerate> generate;
  std::vector<OnResume> resume;
  Mutex mutex;
  std::vector<v1::GenerateRequest> generates;  // The calls that have come.
  std::vector<v1::ResumeRequest> resumes;
};

class GenerateStreamTest : public testing::TestWithParam<bool> {
 protected:
  GenerateStreamTest() {
    char directory[] = "/tmp/quire-resume.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    Start();
    client_ = std::make_unique<Client>(ClientOptions{.endpoint = endpoint()});
    request_.set_request_id("r");
    request_.set_text("p");
    request_.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  }
  ~GenerateStreamTest() override {
    if (server_ != nullptr) server_->Shutdown();
    std::filesystem::remove_all(directory_);
  }

  std::string endpoint() const { return "unix:" + directory_ + "/socket"; }

  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint(), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  // Reads to the end. The texts of the responses are in texts_.
  absl::Status ReadAll(absl::Duration timeout = absl::Seconds(60)) {
    if (GetParam()) return ReadAllOfMany(timeout);
    const auto stream = client_->Generate(request_, timeout);
    v1::GenerateResponse response;
    while (stream->Next(&response)) texts_.push_back(response.text_delta());
    return stream->Finish();
  }

  absl::Status ReadAllOfMany(absl::Duration timeout) {
    const auto streams = client_->GenerateMany();
    streams->Start(/*tag=*/3, request_, timeout);
    streams->HalfClose();
    GenerateStreams::Event event;
    while (streams->Next(&event) && !event.end.has_value()) texts_.push_back(event.response.text_delta());
    EXPECT_EQ(event.tag, 3u);
    const absl::Status status = event.end.value_or(absl::UnknownError("no end"));
    EXPECT_FALSE(streams->Next(&event));
    return status;
  }

  std::string directory_;
  ScriptedService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  v1::GenerateRequest request_;
  std::vector<std::string> texts_;
};

INSTANTIATE_TEST_SUITE_P(AloneAndAmongMany, GenerateStreamTest, testing::Bool());

TEST_P(GenerateStreamTest, ACallThatWasCutContinuesWithWhatIsMissing) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    return Cut();
  }};
  service_.resume = {[](const auto&, Writer*) { return Cut(); },
                     [](const auto&, Writer* writer) {
                       writer->Write(Response(6, "b", "token-2"));
                       return Cut();
                     },
                     [](const auto&, Writer* writer) {
                       writer->Write(Response(7, "c", "token-3"));
                       return grpc::Status::OK;
                     }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  EXPECT_THAT(texts_, ElementsAre("a", "b", "c"));
  ASSERT_THAT(service_.resumes, SizeIs(3));
  EXPECT_EQ(service_.resumes[1].resume_token(), "token-1");
  EXPECT_EQ(service_.resumes[1].received(0).next_position(), 6u);
  EXPECT_EQ(service_.resumes[2].resume_token(), "token-2");
  EXPECT_EQ(service_.resumes[2].received(0).next_position(), 7u);
}

TEST_P(GenerateStreamTest, ResumeTellsWhereTheNumericsHaveChanged) {
  service_.generate = {[](const auto&, Writer* writer) {
    v1::GenerateResponse response = Response(5, "a", "token-1");
    response.set_numerics_changed_at(5);
    writer->Write(response);
    writer->Write(Response(6, "b", ""));
    return Cut();
  }};
  service_.resume = {[](const auto&, Writer*) { return grpc::Status::OK; }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  ASSERT_THAT(service_.resumes, SizeIs(1));
  EXPECT_TRUE(service_.resumes[0].received(0).has_numerics_changed_at());
  EXPECT_EQ(service_.resumes[0].received(0).numerics_changed_at(), 5u);
}

// An error as a manager sends it.
grpc::Status Error(grpc::StatusCode code, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_reason(reason);
  google::rpc::Status details;
  details.set_code(code);
  details.add_details()->PackFrom(info);
  return grpc::Status(code, "the manager says so", details.SerializeAsString());
}

grpc::Status Unknown() {
  return Error(grpc::StatusCode::NOT_FOUND, "REQUEST_UNKNOWN");
}

TEST_P(GenerateStreamTest, ARequestThatTheManagerDoesNotKnowIsContinued) {
  request_.clear_request_id();
  request_.set_n(2);
  service_.generate = {[](const auto&, Writer* writer) {
                         v1::GenerateResponse first = Response(5, "a", "token-1");
                         first.set_request_id("chosen");
                         first.set_index(1);
                         first.set_seed(9);
                         first.set_numerics_fingerprint("bits");
                         writer->Write(first);
                         v1::GenerateResponse end = Response(6, "b");
                         end.set_index(1);
                         end.set_finish_reason(v1::FINISH_REASON_LENGTH);
                         writer->Write(end);
                         return Cut();
                       },
                       [](const auto&, Writer*) { return Error(grpc::StatusCode::UNAVAILABLE, "NO_WORKER"); },
                       [](const auto&, Writer*) { return Cut(); },
                       [](const auto&, Writer* writer) {
                         v1::GenerateResponse response = Response(5, "c", "token-2");
                         writer->Write(response);
                         return Cut();
                       },
                       [](const auto&, Writer* writer) {
                         writer->Write(Response(6, "d", "token-3"));
                         return grpc::Status::OK;
                       }};
  service_.resume = {[](const auto&, Writer*) { return Unknown(); }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  EXPECT_THAT(texts_, ElementsAre("a", "b", "c", "d"));
  ASSERT_THAT(service_.generates, SizeIs(5));
  for (int i = 1; i <= 3; ++i) {
    const v1::GenerateRequest& again = service_.generates[i];
    EXPECT_EQ(again.request_id(), "chosen") << "so it cannot start twice";
    EXPECT_EQ(again.sampling().seed(), 8u);
    EXPECT_EQ(again.continue_numerics(), "bits");
    ASSERT_EQ(again.continue_from_size(), 1);
    EXPECT_EQ(again.continue_from(0).index(), 1u);
    EXPECT_THAT(again.continue_from(0).token_ids(), ElementsAre(5, 6));
    EXPECT_TRUE(again.continue_from(0).has_finish());
  }
  const v1::GenerateRequest& last = service_.generates[4];
  ASSERT_EQ(last.continue_from_size(), 2);
  EXPECT_THAT(last.continue_from(0).token_ids(), ElementsAre(5));
  EXPECT_FALSE(last.continue_from(0).has_finish());
}

// The manager that continues it may have no memory for streams that can be resumed.
TEST_P(GenerateStreamTest, ARequestThatWasContinuedIsContinuedAgainWithAllThatWasReceived) {
  service_.generate = {[](const auto&, Writer* writer) {
                         writer->Write(Response(5, "a", "token-1"));
                         return Cut();
                       },
                       [](const auto&, Writer* writer) {
                         writer->Write(Response(6, "b"));
                         return Cut();
                       },
                       [](const auto&, Writer* writer) {
                         writer->Write(Response(7, "c"));
                         return grpc::Status::OK;
                       }};
  service_.resume = {[](const auto&, Writer*) { return Unknown(); }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  EXPECT_THAT(texts_, ElementsAre("a", "b", "c"));
  ASSERT_THAT(service_.generates, SizeIs(3));
  EXPECT_THAT(service_.generates[2].continue_from(0).token_ids(), ElementsAre(5, 6));
}

// It ends with its call, and a second call gives the same tokens.
TEST_P(GenerateStreamTest, ARequestThatContinuesAnotherOneIsSentAgainWithAllThatWasReceived) {
  request_.clear_on_disconnect();
  request_.add_continue_from()->add_token_ids(4);
  service_.generate = {[](const auto&, Writer*) { return Cut(); },
                       [](const auto&, Writer* writer) {
                         v1::GenerateResponse response = Response(5, "a");
                         response.set_request_id("of the call that ends");
                         writer->Write(response);
                         return Cut();
                       },
                       [](const auto&, Writer*) { return Error(grpc::StatusCode::ALREADY_EXISTS, "REQUEST_RUNNING"); },
                       [](const auto&, Writer* writer) {
                         writer->Write(Response(6, "b"));
                         return grpc::Status::OK;
                       }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  EXPECT_THAT(texts_, ElementsAre("a", "b"));
  ASSERT_THAT(service_.generates, SizeIs(4));
  EXPECT_THAT(service_.generates[1].continue_from(0).token_ids(), ElementsAre(4));
  EXPECT_THAT(service_.generates[3].continue_from(0).token_ids(), ElementsAre(4, 5));
  EXPECT_EQ(service_.generates[3].request_id(), "r");
}

TEST_P(GenerateStreamTest, AnyRequestIsSentAgainWhileTheManagerRestores) {
  request_.clear_on_disconnect();
  request_.clear_request_id();
  service_.generate = {[](const auto&, Writer*) { return Error(grpc::StatusCode::UNAVAILABLE, "RESTORING"); },
                       [](const auto&, Writer* writer) {
                         writer->Write(Response(0, "a"));
                         return Cut();
                       }};
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(texts_, ElementsAre("a"));
  EXPECT_THAT(service_.generates, SizeIs(2));
}

TEST_P(GenerateStreamTest, TokensThatWereReceivedBeforeAreAnError) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    writer->Write(Response(5, "a", "token-1"));
    return grpc::Status::OK;
  }};
  EXPECT_EQ(ReadAll(), absl::InternalError("the manager has sent position 5 of sample 0 again, the next one is 6"));
  EXPECT_THAT(texts_, ElementsAre("a"));
}

TEST_P(GenerateStreamTest, WhatCannotBeContinuedFailsWithTheFirstError) {
  const std::vector<std::function<void(v1::GenerateRequest*)>> changes = {
      [](auto* request) { request->mutable_beam()->set_width(2); },
      [](auto* request) { request->set_best_of(3); },
  };
  for (const auto& change : changes) {
    service_.generates.clear();
    service_.resumes.clear();
    service_.generate = {[](const auto&, Writer* writer) {
      writer->Write(Response(5, "a", "token-1"));
      return Cut();
    }};
    service_.resume = {[](const auto&, Writer*) { return Unknown(); }};
    const v1::GenerateRequest request = request_;
    change(&request_);
    EXPECT_EQ(ReadAll().code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(service_.generates, SizeIs(1));
    request_ = request;
  }
}

TEST_P(GenerateStreamTest, AnOlderManagerThatCannotContinueFailsWithTheFirstError) {
  service_.generate = {[](const auto&, Writer* writer) {
                         writer->Write(Response(5, "a", "token-1"));
                         return Cut();
                       },
                       [](const auto&, Writer*) {
                         return grpc::Status(
                             grpc::StatusCode::INVALID_ARGUMENT,
                             "20: field number 20 of quire.v1.GenerateRequest is not known to this server");
                       }};
  service_.resume = {[](const auto&, Writer*) { return Unknown(); }};
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kNotFound);
}

TEST_P(GenerateStreamTest, ARequestThatCannotBeResumedIsNotSentAgainAfterItsFirstResponse) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a"));  // Without a token: the manager lets no request outlive its call.
    return Cut();
  }};
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(texts_, ElementsAre("a"));
  EXPECT_THAT(service_.generates, SizeIs(1));
}

TEST_P(GenerateStreamTest, AManagerThatDoesNotKnowOnDisconnectGetsTheRequestWithoutIt) {
  service_.generate = {[](const v1::GenerateRequest& request, Writer* writer) {
    if (request.on_disconnect() != v1::ON_DISCONNECT_UNSPECIFIED) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "19: field number 19 of quire.v1.GenerateRequest is not known to this server", "details");
    }
    writer->Write(Response(5, "a"));
    return grpc::Status::OK;
  }};
  EXPECT_EQ(ReadAll(), absl::OkStatus());
  EXPECT_THAT(texts_, ElementsAre("a"));
  EXPECT_THAT(service_.generates, SizeIs(2));
}

TEST_P(GenerateStreamTest, OtherUnknownFieldsAreAnError) {
  service_.generate = {[](const auto&, Writer*) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                        "18: field number 18 of quire.v1.GenerateRequest is not known to this server", "details");
  }};
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(service_.generates, SizeIs(1));
}

TEST_P(GenerateStreamTest, WhenNoAttemptSucceedsTheFirstErrorIsReturned) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    return Cut("first");
  }};
  service_.resume = {[](const auto&, Writer*) { return Cut("later"); }};
  const absl::Status status = ReadAll(absl::Seconds(2));
  EXPECT_EQ(status.message(), "first");
  EXPECT_FALSE(service_.resumes.empty());
}

// A search that is lost twice, with more time between than a stream tries to resume, has sent nothing yet.
TEST_P(GenerateStreamTest, ACallThatWasTakenIsProgressWithoutAResponse) {
  service_.generate = {[](const auto&, Writer*) { return Cut("the first loss"); },
                       [](const auto&, Writer*) {
                         absl::SleepFor(absl::Milliseconds(2100));
                         return Cut("the second loss");
                       },
                       [](const auto&, Writer*) { return Cut("the last loss"); }};
  EXPECT_EQ(ReadAll(absl::Seconds(4)).message(), "the second loss");
}

TEST_P(GenerateStreamTest, ALossThatLastsIsToldOnce) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    return Cut();
  }};
  std::atomic<int> num_told = 0;
  int num_cuts_after_it = 0;  // Only one call runs at a time.
  service_.resume = {[&](const auto&, Writer* writer) {
    if (num_told == 0 || ++num_cuts_after_it < 3) return Cut();
    writer->Write(Response(6, "b", "token-2"));
    return grpc::Status::OK;
  }};
  const auto stream = client_->Generate(request_, absl::Seconds(60));
  stream->OnLoss([&num_told] { ++num_told; });
  v1::GenerateResponse response;
  while (stream->Next(&response)) continue;
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
  EXPECT_EQ(num_told, 1);
}

TEST_P(GenerateStreamTest, AnErrorOfTheManagerEndsTheAttempts) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    return Cut("first");
  }};
  service_.resume = {
      [](const auto&, Writer*) { return grpc::Status(grpc::StatusCode::NOT_FOUND, "not known", "details"); }};
  EXPECT_EQ(ReadAll().message(), "not known");
  EXPECT_THAT(service_.resumes, SizeIs(1));
}

TEST_P(GenerateStreamTest, TheStreamContinuesWithAServerThatWasStartedAgain) {
  service_.generate = {[](const auto&, Writer* writer) {
    writer->Write(Response(5, "a", "token-1"));
    return Cut();
  }};
  service_.resume = {[](const auto&, Writer* writer) {
    writer->Write(Response(6, "b", "token-2"));
    return grpc::Status::OK;
  }};
  const auto stream = client_->Generate(request_, absl::Seconds(60));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  server_->Shutdown();
  server_ = nullptr;
  // Several attempts fail before the server is back.
  std::thread restart([this] {
    absl::SleepFor(absl::Seconds(1));
    Start();
  });
  EXPECT_TRUE(stream->Next(&response));
  EXPECT_EQ(response.text_delta(), "b");
  EXPECT_FALSE(stream->Next(&response));
  EXPECT_EQ(stream->Finish(), absl::OkStatus());
  restart.join();
}

// Each new client finds that its first connection is closed. A busy machine may be too late for the second one, so
// there are several clients.
TEST_P(GenerateStreamTest, ACallIsSentAgainIfTheSecondAttemptToConnectSucceeds) {
  service_.generate = {[](const auto&, Writer*) { return Cut("second"); }};
  request_.clear_on_disconnect();
  FaultProxy proxy(endpoint());
  absl::Status status;
  for (int i = 0; i < 10 && service_.generates.empty(); ++i) {
    proxy.RefuseNext(1);
    client_ = std::make_unique<Client>(ClientOptions{.endpoint = proxy.endpoint()});
    status = ReadAll();
  }
  EXPECT_THAT(service_.generates, SizeIs(1));
  EXPECT_EQ(status.message(), "second");
}

}  // namespace
}  // namespace quire
