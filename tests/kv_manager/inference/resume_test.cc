// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/kv_manager/inference/batch_client.h"
#include "tests/kv_manager/inference/service_harness.h"

// Tests calls that lose their client and others that continue the stream, through real gRPC.

namespace quire {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Key;

constexpr char kName[] = "r";

v1::GenerateRequest DetachedRequest(int max_tokens = 20) {
  v1::GenerateRequest request;
  request.set_request_id(kName);
  request.set_text("a");
  request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  request.mutable_sampling()->set_seed(5);
  request.mutable_stopping()->set_max_tokens(max_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// What a client has of a request, and the calls with which it gets more.
class Client {
 public:
  explicit Client(ServiceHarness* harness) : harness_(harness) {}
  ~Client() { Leave(); }

  void Generate(const v1::GenerateRequest& request) {
    context_ = std::make_unique<grpc::ClientContext>();
    reader_ = harness_->stub->Generate(context_.get(), request);
  }
  void Resume(absl::Duration timeout = absl::InfiniteDuration()) {
    context_ = std::make_unique<grpc::ClientContext>();
    if (timeout != absl::InfiniteDuration()) context_->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    reader_ = harness_->stub->Resume(context_.get(), ResumeRequest());
  }
  v1::ResumeRequest ResumeRequest() const {
    v1::ResumeRequest request;
    request.set_resume_token(resume_token_);
    for (const auto& [index, sample] : samples_) {
      v1::ReceivedSample* const received = request.add_received();
      received->set_index(index);
      received->set_next_position(sample.position() + sample.token_ids_size());
      received->set_has_finish(sample.finish_reason() != v1::FINISH_REASON_UNSPECIFIED);
    }
    return request;
  }
  // Returns false at the end.
  bool Read() {
    v1::GenerateResponse response;
    if (!reader_->Read(&response)) return false;
    Add(response);
    return true;
  }
  void Add(const v1::GenerateResponse& response) {
    if (!response.resume_token().empty()) resume_token_ = response.resume_token();
    v1::GenerateResponse& all = samples_[response.index()];
    const bool has_tokens = all.token_ids_size() > 0;
    if (has_tokens && response.token_ids_size() > 0) {
      EXPECT_EQ(response.position(), all.position() + all.token_ids_size());
    }
    const uint32_t position = has_tokens ? all.position() : response.position();
    const std::string text = all.text_delta() + response.text_delta();
    all.MergeFrom(response);
    all.set_position(position);
    all.set_text_delta(text);
    all.clear_resume_token();
  }
  grpc::Status ReadAll() {
    while (Read()) {
    }
    return Finish();
  }
  grpc::Status Finish() {
    const grpc::Status status = reader_->Finish();
    reader_ = nullptr;
    return status;
  }
  void Leave() {
    if (reader_ == nullptr) return;
    context_->TryCancel();
    Finish();
  }
  size_t num_tokens() const {
    size_t num_tokens = 0;
    for (const auto& [index, sample] : samples_) num_tokens += sample.token_ids_size();
    return num_tokens;
  }
  std::string Text() const {
    std::string text;
    for (const auto& [index, sample] : samples_) text += sample.DebugString() + "\n";
    return text;
  }
  const v1::GenerateResponse& sample(uint32_t index) const { return samples_.at(index); }
  const std::string& resume_token() const { return resume_token_; }
  void set_resume_token(const std::string& token) { resume_token_ = token; }

 private:
  ServiceHarness* const harness_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader_;
  std::map<uint32_t, v1::GenerateResponse> samples_;
  std::string resume_token_;
};

// Starts the request, and lets the engine run `num_steps` steps of it. Further steps wait for the test.
void Begin(ServiceHarness* harness, Client* client, const v1::GenerateRequest& request, int num_steps) {
  harness->engine.Hold();
  client->Generate(request);
  harness->engine.WaitForRequests(1);
  harness->engine.Step(num_steps);
}

void WaitUntilDetached(ServiceHarness* harness, int64_t num_running = 1) {
  while (harness->resumable().counts().running != num_running) std::this_thread::yield();
}

// Everything that a request with `n` samples can ask for.
v1::GenerateRequest RichRequest() {
  v1::GenerateRequest request = DetachedRequest(60);
  request.set_n(4);
  request.mutable_sampling()->set_temperature(1);
  request.set_logprobs(2);
  request.set_prompt_logprobs(1);
  request.set_echo(true);
  return request;
}

TEST(ResumeTest, AClientThatLosesItsCallAgainAndAgainGetsEverythingOnce) {
  ServiceHarness harness(ToyModel());
  std::vector<v1::GenerateRequest> requests = {DetachedRequest(60), RichRequest(), RichRequest(), DetachedRequest(60)};
  requests[2].set_n(2);
  requests[2].set_best_of(4);
  requests[3].mutable_beam()->set_width(3);
  requests[3].mutable_beam()->set_num_return_sequences(3);
  std::vector<std::string> undisturbed;
  for (size_t i = 0; i < requests.size(); ++i) {
    Client client(&harness);
    client.Generate(requests[i]);
    ASSERT_TRUE(client.ReadAll().ok());
    undisturbed.push_back(client.Text());
  }
  std::minstd_rand random(1);
  for (size_t i = 0; i < requests.size(); ++i) {
    v1::GenerateRequest request = requests[i];
    for (int round = 0; round < 40; ++round) {
      // The answer of the first round is still there, so every round needs a request of its own.
      request.set_request_id(absl::StrCat("r", i, "-", round));
      harness.engine.Hold();
      Client client(&harness);
      client.Generate(request);
      int num_calls = 1;
      grpc::Status status;
      while (true) {
        harness.engine.Step(1 + static_cast<int>(random() % 8));
        bool has_left = false;
        const bool streams = i < 2;
        for (uint32_t reads = streams ? 1 + random() % 4 : 0; reads > 0 && !has_left; --reads) {
          harness.engine.Step();
          has_left = !client.Read();
        }
        if (has_left || num_calls == 12) {
          harness.engine.Step(100);
          status = has_left ? client.Finish() : client.ReadAll();
          break;
        }
        ++num_calls;
        if (random() % 2 == 0) client.Leave();
        client.resume_token().empty() ? client.Generate(request) : client.Resume();
      }
      ASSERT_TRUE(status.ok()) << status.error_message() << " round " << round << " of request " << i;
      std::string expected = undisturbed[i];
      for (size_t at; (at = expected.find("\"r\"")) != std::string::npos;) {
        expected.replace(at, 3, absl::StrCat("\"", request.request_id(), "\""));
      }
      ASSERT_EQ(client.Text(), expected) << "round " << round << " of request " << i << ", " << num_calls << " calls";
    }
  }
}

TEST(ResumeTest, ARequestGoesOnWithoutItsClientAndGivesTheRestAfterItsEnd) {
  ServiceHarness harness(ToyModel());
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/2);
  ASSERT_TRUE(client.Read());
  client.Leave();
  WaitUntilDetached(&harness);
  harness.engine.Step(100);
  harness.engine.WaitUntilIdle();
  EXPECT_THAT(harness.engine.cancelled(), IsEmpty());
  client.Resume();
  EXPECT_TRUE(client.ReadAll().ok());
  EXPECT_EQ(client.num_tokens(), 20u);
  EXPECT_EQ(harness.resumable().counts().resumed, 1);
  client.Resume();
  EXPECT_TRUE(client.ReadAll().ok()) << "the end may not have arrived";
  EXPECT_EQ(client.num_tokens(), 20u);
  EXPECT_EQ(harness.counts().count(RpcMethod::kResume, absl::StatusCode::kOk), 2);
}

TEST(ResumeTest, WithoutDetachTheRequestEndsWithItsCall) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  v1::GenerateRequest request = DetachedRequest();
  request.clear_on_disconnect();
  Client client(&harness);
  client.Generate(request);
  harness.engine.WaitForRequests(1);
  harness.engine.Step();
  ASSERT_TRUE(client.Read());
  EXPECT_EQ(client.resume_token(), "");
  client.Leave();
  harness.engine.WaitUntilIdle();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u);
}

TEST(ResumeTest, NoRequestOutlivesItsCallWhenTheManagerForbidsIt) {
  ServiceHarness harness(ToyModel(), {.detach = {.max_detached = 0}});
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(client.Read());
  EXPECT_EQ(client.resume_token(), "");
  client.Leave();
  harness.engine.WaitUntilIdle();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u);
}

TEST(ResumeTest, ARequestForWhichThereIsNoMemoryIsAnOrdinaryOne) {
  ServiceHarness harness(ToyModel(), {.detach = {.max_replay_bytes = 1}});
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(client.Read());
  EXPECT_EQ(client.resume_token(), "");
  EXPECT_EQ(harness.resumable().counts().replay_bytes, 0);
  client.Leave();
  harness.engine.WaitUntilIdle();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u);
}

TEST(ResumeTest, TheNewerCallTakesTheStream) {
  ServiceHarness harness(ToyModel());
  Client older(&harness);
  Begin(&harness, &older, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(older.Read());
  Client newer(&harness);
  newer.set_resume_token(older.resume_token());
  newer.Resume();
  const grpc::Status status = older.ReadAll();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ABORTED);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "TAKEN_OVER");
  harness.engine.Step(100);
  EXPECT_TRUE(newer.ReadAll().ok());
  EXPECT_EQ(newer.num_tokens(), 20u);
}

TEST(ResumeTest, ASecondGenerateWithTheSameFieldsStartsNothing) {
  ServiceHarness harness(ToyModel());
  Client first(&harness);
  Begin(&harness, &first, DetachedRequest(), /*num_steps=*/2);
  Client second(&harness);
  second.Generate(DetachedRequest());
  EXPECT_EQ(first.ReadAll().error_code(), grpc::StatusCode::ABORTED);
  v1::GenerateRequest other = DetachedRequest();
  other.set_text("b");
  Client third(&harness);
  third.Generate(other);
  const grpc::Status status = third.ReadAll();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "REQUEST_RUNNING");
  harness.engine.Step(100);
  EXPECT_TRUE(second.ReadAll().ok());
  EXPECT_EQ(second.num_tokens(), 20u);
  EXPECT_EQ(harness.engine.requests().size(), 1u);
}

// A client that does not know whether its continuation has begun sends it again.
TEST(ResumeTest, AContinuationFindsTheRequestThatItContinues) {
  for (const bool had_seed : {true, false}) {
    ServiceHarness harness(ToyModel());
    harness.engine.Hold();
    v1::GenerateRequest request = DetachedRequest();
    if (!had_seed) request.clear_sampling();
    Client whole(&harness);
    whole.Generate(request);
    harness.engine.WaitForRequests(1);
    harness.engine.Step(7);
    while (whole.num_tokens() < 7) ASSERT_TRUE(whole.Read());

    v1::GenerateRequest continuation = request;
    continuation.mutable_sampling()->set_seed(whole.sample(0).seed());
    v1::ContinuedSample* const continued = continuation.add_continue_from();
    for (int i = 0; i < 3; ++i) continued->add_token_ids(whole.sample(0).token_ids(i));
    whole.Leave();
    Client client(&harness);
    client.Generate(continuation);
    harness.engine.Step(100);
    EXPECT_TRUE(client.ReadAll().ok());
    EXPECT_EQ(client.num_tokens(), 17u);
    EXPECT_EQ(client.sample(0).position(), whole.sample(0).position() + 3);
    EXPECT_EQ(harness.engine.requests().size(), 1u);
  }
}

TEST(ResumeTest, AContinuationWithAnotherSeedOrMoreThanThereIsIsAnotherRequest) {
  ServiceHarness harness(ToyModel());
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/2);
  v1::GenerateRequest too_long = DetachedRequest();
  too_long.add_continue_from();
  for (int i = 0; i < 3; ++i) too_long.mutable_continue_from(0)->add_token_ids(66);
  v1::GenerateRequest other_sample = DetachedRequest();
  other_sample.add_continue_from()->set_index(1);
  v1::GenerateRequest other_seed = DetachedRequest();
  other_seed.mutable_sampling()->set_seed(6);
  for (const v1::GenerateRequest& other : {too_long, other_sample, other_seed}) {
    Client stranger(&harness);
    stranger.Generate(other);
    EXPECT_EQ(Detail<google::rpc::ErrorInfo>(stranger.ReadAll()).reason(), "REQUEST_RUNNING");
  }
  harness.engine.Step(100);
  EXPECT_TRUE(client.ReadAll().ok());
}

TEST(ResumeTest, AContinuedRequestIsGivenOnlyToThoseWhoHaveItsBeginning) {
  ServiceHarness harness(ToyModel());
  v1::GenerateRequest continuation = DetachedRequest();
  continuation.add_continue_from();
  for (int i = 0; i < 3; ++i) continuation.mutable_continue_from(0)->add_token_ids(66);
  Client client(&harness);
  Begin(&harness, &client, continuation, /*num_steps=*/5);
  ASSERT_TRUE(client.Read());
  Client without(&harness);
  without.Generate(DetachedRequest());
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(without.ReadAll()).reason(), "REQUEST_RUNNING");
  client.Leave();
  Client again(&harness);
  again.Generate(continuation);
  harness.engine.Step(100);
  EXPECT_TRUE(again.ReadAll().ok());
  EXPECT_EQ(again.num_tokens(), 17u);
}

TEST(ResumeTest, ARefusedRequestMayBeTriedAgain) {
  ServiceHarness harness(ToyModel());
  harness.engine.submit_status = absl::UnavailableError("draining");
  for (int i = 0; i < 2; ++i) {
    Client client(&harness);
    client.Generate(DetachedRequest());
    EXPECT_EQ(client.ReadAll().error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(harness.resumable().counts().ended, 0);
  }
  EXPECT_THAT(harness.registry().Names(), IsEmpty());
  EXPECT_TRUE(harness.registry().WaitForReaders(absl::Seconds(60)));
}

TEST(ResumeTest, TheDeadlineOfGenerateEndsTheRequestAndThatOfResumeOnlyTheCall) {
  ServiceHarness harness(ToyModel());
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(client.Read());
  client.Leave();
  client.Resume(absl::Milliseconds(50));
  EXPECT_EQ(client.ReadAll().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitUntilDetached(&harness);
  EXPECT_THAT(harness.engine.cancelled(), IsEmpty()) << "the request continues";
  // The engine has the deadline of the call that has started the request.
  EXPECT_EQ(harness.engine.requests().at(0).deadline_us, std::numeric_limits<int64_t>::max());
}

TEST(ResumeTest, AbortEndsADetachedRequest) {
  ServiceHarness harness(ToyModel());
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(client.Read());
  client.Leave();
  WaitUntilDetached(&harness);
  EXPECT_TRUE(harness.Abort(kName).ok());
  harness.engine.WaitUntilIdle();
  client.Resume();
  EXPECT_TRUE(client.ReadAll().ok());
  EXPECT_THAT(client.Text(), testing::HasSubstr("FINISH_REASON_ABORT"));
}

TEST(ResumeTest, AClientThatDoesNotComeBackLosesTheRequest) {
  ServiceHarness harness(ToyModel(), {.detach = {.grace = absl::Milliseconds(1)}});
  Client client(&harness);
  Begin(&harness, &client, DetachedRequest(), /*num_steps=*/1);
  ASSERT_TRUE(client.Read());
  client.Leave();
  harness.engine.WaitUntilIdle();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u);
  client.Resume();
  const grpc::Status status = client.ReadAll();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  const google::rpc::ErrorInfo info = Detail<google::rpc::ErrorInfo>(status);
  EXPECT_EQ(info.reason(), "REQUEST_UNKNOWN");
  EXPECT_EQ(info.metadata().at("resubmit_ok"), "true");
}

TEST(ResumeTest, WrongResumeRequestsAreRefused) {
  ServiceHarness harness(ToyModel());
  Client client(&harness);
  client.Resume();
  EXPECT_EQ(client.ReadAll().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::GenerateRequest request = DetachedRequest();
  request.set_on_disconnect(static_cast<v1::OnDisconnect>(7));
  client.Generate(request);
  const grpc::Status status = client.ReadAll();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Detail<google::rpc::BadRequest>(status).field_violations(0).field(), "on_disconnect");
}

TEST(ResumeTest, RequestsOfABatchAreDetachedAndCanBeResumedOnAnotherBatch) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  v1::ResumeRequest resume;
  v1::GenerateRequest ordinary = DetachedRequest();
  ordinary.clear_on_disconnect();
  ordinary.set_request_id("ordinary");
  Client client(&harness);
  {
    BatchClient batch(&harness);
    ASSERT_TRUE(batch.Start(1, DetachedRequest()));
    harness.engine.WaitForRequests(1);
    ASSERT_TRUE(batch.Start(2, ordinary));
    harness.engine.WaitForRequests(2);
    harness.engine.Step();
    while (batch.results[1].responses.empty()) ASSERT_TRUE(batch.Read());
    for (const auto& response : batch.results[1].responses) client.Add(response);
    batch.context.TryCancel();
    EXPECT_EQ(batch.Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  WaitUntilDetached(&harness);
  while (harness.engine.cancelled().empty()) std::this_thread::yield();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u) << "the other request ends with its stream";
  BatchClient batch(&harness);
  v1::GenerateBatchRequest message;
  message.set_tag(5);
  *message.mutable_resume() = client.ResumeRequest();
  ASSERT_TRUE(batch.stream->Write(message));
  harness.engine.Step(100);
  const BatchClient::Result result = batch.ReadUntilEnd(5);
  EXPECT_TRUE(result.status().ok()) << result.status().error_message();
  for (const auto& response : result.responses) client.Add(response);
  EXPECT_EQ(client.num_tokens(), 20u);
  EXPECT_TRUE(batch.Finish().ok());
}

// NOT_FOUND would say that the request does not run, and then it would run after all.
TEST(ResumeTest, AnAbortOfARequestThatMayStillComeIsTriedAgain) {
  ServiceHarness harness(ToyModel());
  harness.SetRestoring(true);
  const grpc::Status status = harness.Abort(kName);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Detail<google::rpc::ErrorInfo>(status).reason(), "RESTORING");
  harness.SetRestoring(false);
  EXPECT_EQ(harness.Abort(kName).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(ResumeTest, ACancelOfABatchEndsARequestThatCouldBeResumed) {
  ServiceHarness harness(ToyModel());
  harness.engine.Hold();
  BatchClient batch(&harness);
  ASSERT_TRUE(batch.Start(1, DetachedRequest()));
  harness.engine.WaitForRequests(1);
  ASSERT_TRUE(batch.Cancel(1));
  EXPECT_EQ(batch.ReadUntilEnd(1).status().error_code(), grpc::StatusCode::CANCELLED);
  harness.engine.WaitUntilIdle();
  EXPECT_EQ(harness.engine.cancelled().size(), 1u);
  EXPECT_EQ(harness.resumable().counts().running, 0);
  EXPECT_TRUE(batch.Finish().ok());
}

}  // namespace
}  // namespace quire
