// SPDX-License-Identifier: Apache-2.0

#include "client/library/generate_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "client/library/client.h"

namespace quire {
namespace {

// Answers with as many responses of one token as max_tokens says, and with text_delta as the name of the request. A
// request named "endless" has no end, one named "lost" loses its connection, and one named "full" is refused.
class CountingService : public v1::InferenceService::Service {
 public:
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    ++num_calls;
    if (request->request_id() == "full") return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", "details"};
    for (uint32_t i = 0; i < request->stopping().max_tokens(); ++i) {
      v1::GenerateResponse response;
      response.set_position(i);
      response.add_token_ids(i);
      response.set_text_delta(request->request_id());
      writer->Write(response);
    }
    if (request->request_id() == "lost") {
      ++num_lost;
      return {grpc::StatusCode::UNAVAILABLE, "Socket closed"};
    }
    while (request->request_id() == "endless" && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::OK;
  }

  std::atomic<int> num_calls = 0;
  std::atomic<int> num_lost = 0;  // Calls of the request "lost".
};

v1::GenerateRequest RequestOf(const std::string& name, uint32_t num_tokens) {
  v1::GenerateRequest request;
  request.set_request_id(name);
  request.set_text("p");
  request.mutable_stopping()->set_max_tokens(num_tokens);
  return request;
}

class GenerateStreamsTest : public testing::Test {
 protected:
  GenerateStreamsTest() {
    char directory[] = "/tmp/quire-streams.XXXXXX";
    QUIRE_CHECK(mkdtemp(directory) != nullptr);
    directory_ = directory;
    const std::string endpoint = absl::StrCat("unix:", directory_, "/socket");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(endpoint, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<Client>(ClientOptions{.endpoint = endpoint});
    streams_ = client_->GenerateMany();
  }
  ~GenerateStreamsTest() override {
    streams_ = nullptr;
    server_->Shutdown();
    std::filesystem::remove_all(directory_);
  }

  void Start(uint64_t tag, const v1::GenerateRequest& request) { streams_->Start(tag, request, absl::Seconds(60)); }

  // Reads until `num_ends` calls have ended.
  void ReadUntil(size_t num_ends) {
    GenerateStreams::Event event;
    while (ends_.size() < num_ends && streams_->Next(&event)) {
      EXPECT_FALSE(ends_.contains(event.tag));
      if (event.end.has_value()) {
        ends_[event.tag] = *event.end;
      } else {
        EXPECT_EQ(event.response.position(), num_responses_[event.tag]++);
        names_[event.tag] = event.response.text_delta();
      }
    }
    EXPECT_EQ(ends_.size(), num_ends);
  }

  std::string directory_;
  CountingService service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<GenerateStreams> streams_;
  // By tag.
  std::map<uint64_t, absl::Status> ends_;
  std::map<uint64_t, uint32_t> num_responses_;
  std::map<uint64_t, std::string> names_;
};

TEST_F(GenerateStreamsTest, EveryCallGetsItsOwnResponsesInOrderAndOneEnd) {
  std::thread starter([this] {
    for (uint64_t tag = 0; tag < 50; ++tag) Start(tag, RequestOf(absl::StrCat("r", tag), static_cast<uint32_t>(tag)));
    streams_->HalfClose();
  });
  ReadUntil(50);
  starter.join();
  GenerateStreams::Event event;
  EXPECT_FALSE(streams_->Next(&event));
  for (uint64_t tag = 0; tag < 50; ++tag) {
    EXPECT_EQ(ends_[tag], absl::OkStatus());
    EXPECT_EQ(num_responses_[tag], tag);
    EXPECT_EQ(names_[tag], tag == 0 ? "" : absl::StrCat("r", tag));
  }
}

TEST_F(GenerateStreamsTest, ARefusalEndsOneCallOnly) {
  Start(1, RequestOf("full", 1));
  ReadUntil(1);
  EXPECT_EQ(ends_[1].code(), absl::StatusCode::kResourceExhausted);
  Start(2, RequestOf("other", 2));
  ReadUntil(2);
  EXPECT_EQ(ends_[2], absl::OkStatus());
}

TEST_F(GenerateStreamsTest, ARequestThatCannotBeSentEnds) {
  Start(1, RequestOf("\xff", 1));
  ReadUntil(1);
  EXPECT_EQ(ends_[1].code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(service_.num_calls, 0);
}

TEST_F(GenerateStreamsTest, CancelEndsOneCall) {
  Start(1, RequestOf("endless", 1));
  Start(2, RequestOf("other", 2));
  ReadUntil(1);
  EXPECT_TRUE(ends_.contains(2));
  streams_->Cancel(1);
  streams_->Cancel(2);  // It has ended, so nothing happens.
  ReadUntil(2);
  EXPECT_EQ(ends_[1].code(), absl::StatusCode::kCancelled);
}

TEST_F(GenerateStreamsTest, ATagCanBeUsedAgainAfterTheEnd) {
  for (size_t i = 0; i < 3; ++i) {
    Start(7, RequestOf("r", 1));
    ReadUntil(1);
    EXPECT_EQ(ends_[7], absl::OkStatus());
    ends_.clear();
    num_responses_.clear();
  }
}

// A stream without its connection waits longer before each attempt, up to half a second.
TEST_F(GenerateStreamsTest, AStreamThatWaitsForItsManagerHoldsUpNoOther) {
  v1::GenerateRequest lost = RequestOf("lost", 0);
  lost.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  Start(1, lost);
  int most_between_attempts = 0;
  int num_since_attempt = 0;
  int num_attempts = 0;
  for (uint64_t tag = 2; num_attempts < 4 && !HasFailure(); ++tag) {
    Start(tag, RequestOf("other", 1));
    ReadUntil(ends_.size() + 1);
    EXPECT_FALSE(ends_.contains(1));
    const int before = std::exchange(num_attempts, service_.num_lost);
    num_since_attempt = before == num_attempts ? num_since_attempt + 1 : 0;
    most_between_attempts = std::max(most_between_attempts, num_since_attempt);
  }
  EXPECT_GE(most_between_attempts, 10);
  streams_->CancelAll();
  ReadUntil(ends_.size() + 1);
  EXPECT_FALSE(ends_[1].ok());
}

TEST_F(GenerateStreamsTest, DestructionEndsWhatRuns) {
  v1::GenerateRequest lost = RequestOf("lost", 0);
  lost.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  Start(1, lost);
  Start(2, RequestOf("endless", 5));
  Start(3, RequestOf("other", 5));
  ReadUntil(1);
  streams_ = nullptr;
}

}  // namespace
}  // namespace quire
