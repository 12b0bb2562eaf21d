// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/request_restorer.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_reason.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/request_record.h"
#include "kv_manager/requests/tenancy.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

constexpr TokenId kToken = 65;

SealKey SecretKey(char letter = 'k') {
  return SealKey::FromSecret(std::string(32, letter)).value();
}

class RequestRestorerTest : public ::testing::Test {
 protected:
  void Make(std::optional<SealKey> key = SecretKey(), size_t max_detached = 10, size_t max_outbox_tokens = 100,
            bool logs_requests = false) {
    InferenceServiceOptions options;
    options.detach.resume_key = key;
    options.detach.max_detached = max_detached;
    options.max_outbox_tokens = max_outbox_tokens;
    options.logs_requests = logs_requests;
    environment_ = std::make_unique<RequestEnvironment>(&engine_, options, &clock_);
    model_->generation = GenerationId{3};
  }

  static RequestRecord Record() {
    RequestRecord record{.identity = {.owner = "acme", .name = "r1", .tenant = "gold", .digest = {1}},
                         .nonce = 5,
                         .cache_salt = "gold\nsalt",
                         .arrival_unix_us = absl::ToUnixMicros(absl::Now()),
                         .deadline_unix_us = std::nullopt,
                         .request = {}};
    record.request.set_request_id("r1");
    record.request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
    record.request.mutable_stopping()->set_max_tokens(60);
    record.request.mutable_sampling()->set_seed(77);
    return record;
  }

  absl::StatusOr<RequestRestored> Restore(const RequestRecord& record, const SealKey& key = SecretKey()) {
    return RestoreCopy(record, {.num_tokens = {0}}, /*repeats_tokens=*/true, key);
  }

  absl::StatusOr<RequestRestored> RestoreCopy(const RequestRecord& record, const RestoredCopy& copy,
                                              bool repeats_tokens, const SealKey& key = SecretKey()) {
    bytes_ = EncodeRequestRecord(record, key);
    absl::StatusOr<RequestRestored> restored =
        RequestRestorer(environment_.get())
            .Restore({.record = bytes_,
                      .prompt = prompt_,
                      .idle_us = idle_us_,
                      .is_over =
                          [this](const Request& /*request*/, const StopCondition* stop_strings) {
                            if (look_at_stop_ != nullptr) look_at_stop_(stop_strings);
                            return is_over_;
                          },
                      .generation = GenerationId{3},
                      .model = model_,
                      .repeats_tokens = repeats_tokens});
    if (!restored.ok()) return restored;
    const absl::Status status = restored->keep(copy);
    return status.ok() ? std::move(restored) : status;
  }

  std::shared_ptr<ServedModel> model_ = ToyModel();
  FakeEngine engine_{model_};
  ManualClock clock_;
  std::unique_ptr<RequestEnvironment> environment_;
  std::vector<TokenId> prompt_ = {1, 2, 3};
  std::string bytes_;
  int64_t idle_us_ = 0;
  bool is_over_ = false;
  std::function<void(const StopCondition*)> look_at_stop_;
};

TEST_F(RequestRestorerTest, TheRequestIsTheOldOneAndItsClientFindsTheStream) {
  Make();
  clock_.Advance(1'000'000'000);
  RequestRecord record = Record();
  record.arrival_unix_us -= 5'000'000;
  record.deadline_unix_us = absl::ToUnixMicros(absl::Now()) + 20'000'000;
  const auto restored = Restore(record);
  ASSERT_TRUE(restored.ok()) << restored.status();
  const Request& request = restored->request;
  EXPECT_EQ(request.prompt, prompt_);
  EXPECT_EQ(request.generation, GenerationId{3});
  EXPECT_EQ(request.tenant, "gold");
  EXPECT_EQ(request.cache_salt, "gold\nsalt");
  EXPECT_EQ(request.max_tokens, 60);
  EXPECT_EQ(request.sampling.seed, 77u);
  EXPECT_EQ(*request.record, bytes_) << "the manager after this one needs it, too";
  // The wall clock runs meanwhile.
  constexpr int64_t kMinuteUs = 60'000'000;
  EXPECT_LE(request.arrival_us, clock_.NowMicros() - 5'000'000);
  EXPECT_GE(request.arrival_us, clock_.NowMicros() - kMinuteUs);
  EXPECT_LE(request.deadline_us, clock_.NowMicros() + 20'000'000);
  EXPECT_GE(request.deadline_us, clock_.NowMicros() - kMinuteUs);

  const auto found = environment_->resumable.FindSame(record.identity);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(*found, restored->sink);
  EXPECT_EQ(environment_->resumable.counts().running, 1) << "it waits for its client";
  EXPECT_FALSE(restored->has_ended());
}

TEST_F(RequestRestorerTest, PinsAreMadeAgainForTheRestOfTheirTime) {
  Make();
  RequestRecord record = Record();
  record.arrival_unix_us -= 100'000'000;
  record.pins = {{.num_tokens = 2, .ttl_us = 300'000'000},
                 {.num_tokens = 2, .ttl_us = 90'000'000},
                 {.num_tokens = 9, .ttl_us = 300'000'000}};
  const auto restored = Restore(record);
  ASSERT_TRUE(restored.ok()) << restored.status();
  const std::vector<Request::PrefixPin>& pins = restored->request.pins;
  ASSERT_EQ(pins.size(), 3u) << "the usage has one entry for each";
  EXPECT_EQ(pins[0].num_tokens, 2);
  EXPECT_LE(pins[0].ttl_us, 200'000'000);
  EXPECT_GT(pins[0].ttl_us, 140'000'000);
  EXPECT_EQ(pins[1].num_tokens, 0) << "its time is over";
  EXPECT_EQ(pins[2].num_tokens, 3) << "the worker has no more tokens of the prompt";
}

TEST_F(RequestRestorerTest, TheStreamEndsWhenItsClientDoesNotComeWithinTheGrace) {
  Make();
  const auto restored = Restore(Record());
  ASSERT_TRUE(restored.ok()) << restored.status();
  clock_.Advance(absl::ToInt64Microseconds(DetachOptions().grace) + 1);
  environment_->resumable.Check();
  EXPECT_EQ(environment_->resumable.counts().running, 0);
  EXPECT_TRUE(restored->has_ended());
}

// Otherwise every restart of the manager would bring back what has expired.
TEST_F(RequestRestorerTest, ARequestThatHadEndedHasOnlyWhatIsLeftOfItsGrace) {
  const int64_t grace_us = absl::ToInt64Microseconds(DetachOptions().grace);
  Make();
  is_over_ = true;
  idle_us_ = grace_us;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Restore(Record()).status()));
  EXPECT_EQ(environment_->resumable.counts().running + environment_->resumable.counts().ended, 0);

  idle_us_ = grace_us - 1000;
  const auto restored = Restore(Record());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_TRUE(restored->is_over);
  restored->sink->OnFinished(LastSample(FinishReason::kStopToken));
  while (environment_->resumable.counts().ended == 0) std::this_thread::yield();
  clock_.Advance(999);
  environment_->resumable.Check();
  EXPECT_EQ(environment_->resumable.counts().ended, 1);
  clock_.Advance(1);
  environment_->resumable.Check();
  EXPECT_EQ(environment_->resumable.counts().ended, 0);
}

// A request that runs has waited as long as its worker has had no manager.
TEST_F(RequestRestorerTest, ARequestThatRunsHasTheWholeGrace) {
  Make();
  idle_us_ = int64_t{1} << 40;
  const auto restored = Restore(Record());
  ASSERT_TRUE(restored.ok()) << restored.status();
  EXPECT_FALSE(restored->is_over);
  clock_.Advance(absl::ToInt64Microseconds(DetachOptions().grace) - 1);
  environment_->resumable.Check();
  EXPECT_EQ(environment_->resumable.counts().running, 1);
}

// Whoever counts the lines of the log must not count a request twice.
TEST_F(RequestRestorerTest, OnlyARequestThatRunsHasALineInTheLogOfThisManager) {
  for (const bool is_over : {false, true}) {
    Make(SecretKey(), /*max_detached=*/10, /*max_outbox_tokens=*/100, /*logs_requests=*/true);
    is_over_ = is_over;
    ::testing::internal::CaptureStderr();
    auto restored = Restore(Record());
    ASSERT_TRUE(restored.ok()) << restored.status();
    restored->sink->OnFinished(LastSample(FinishReason::kStopToken));
    while (environment_->resumable.counts().ended == 0) std::this_thread::yield();
    restored = absl::CancelledError();
    environment_.reset();  // Its threads have done their jobs.
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(log.find("ended") != std::string::npos, !is_over) << log;
  }
}

TEST_F(RequestRestorerTest, AStopStringIsLookedFor) {
  Make();
  RequestRecord record = Record();
  const StopCondition* given = nullptr;
  look_at_stop_ = [&](const StopCondition* stop) { given = stop; };
  ASSERT_TRUE(Restore(record).ok());
  EXPECT_EQ(given, nullptr);
  record.identity.name = "r2";
  record.request.mutable_stopping()->add_stop("A");
  ASSERT_TRUE(Restore(record).ok());
  EXPECT_NE(given, nullptr);
}

TEST_F(RequestRestorerTest, ARequestIsRestoredOnce) {
  Make();
  const RequestRecord record = Record();
  ASSERT_TRUE(Restore(record).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Restore(record).status()));
}

// A worker keeps the rows of a request that has ended, and a client may use its name again.
TEST_F(RequestRestorerTest, TheRequestThatBeganLastHasTheName) {
  Make();
  const RequestRecord earlier = Record();
  RequestRecord later = earlier;
  later.identity.digest = {2};
  later.nonce = 6;
  later.arrival_unix_us += 1;
  const auto first = Restore(earlier);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = Restore(later);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(first->has_ended());
  EXPECT_FALSE(second->has_ended());
  EXPECT_EQ(environment_->resumable.counts().running, 1);
  EXPECT_TRUE(absl::IsAlreadyExists(Restore(earlier).status()));

  second->sink->OnFinished(LastSample(FinishReason::kStopToken));
  while (environment_->resumable.counts().ended == 0) std::this_thread::yield();
  EXPECT_TRUE(absl::IsAlreadyExists(Restore(earlier).status()));
  EXPECT_EQ(*environment_->resumable.FindSame(later.identity), second->sink);
}

// A call that has taken a stream. Nothing is written to it.
class WaitingCall : public ResponseWriter {
 public:
  void WriteResponse(const v1::GenerateResponse* /*response*/) override { ADD_FAILURE() << "nothing was generated"; }
  void LimitWrite() override {}
  void EndCall(const v1::GenerateResponse* /*response*/, const absl::Status& status) override {
    const MutexLock lock(&mutex_);
    status_ = status;
    ended_.NotifyAll();
  }
  absl::Status WaitForEnd() {
    const MutexLock lock(&mutex_);
    while (!status_.has_value()) ended_.Wait(&mutex_);
    return *status_;
  }

 private:
  Mutex mutex_;
  CondVar ended_;
  std::optional<absl::Status> status_ QUIRE_GUARDED_BY(mutex_);
};

// A worker that was silent has the rows that the request had before it moved to another worker.
TEST_F(RequestRestorerTest, TheCopyThatHasMovedMostOftenGoesOn) {
  Make();
  const RequestRecord record = Record();
  const auto first = RestoreCopy(record, {.num_moves = 0, .num_tokens = {9}}, /*repeats_tokens=*/false);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = RestoreCopy(record, {.num_moves = 1, .num_tokens = {8}}, /*repeats_tokens=*/false);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE(first->has_ended());
  EXPECT_EQ(engine_.cancelled().size(), 0u) << "the engine did not know it yet";
  EXPECT_EQ(*environment_->resumable.FindSame(record.identity), second->sink);
  EXPECT_TRUE(absl::IsAlreadyExists(
      RestoreCopy(record, {.num_moves = 0, .num_tokens = {50}}, /*repeats_tokens=*/false).status()));
  EXPECT_TRUE(absl::IsAlreadyExists(
      RestoreCopy(record, {.num_moves = 1, .num_tokens = {8}}, /*repeats_tokens=*/false).status()));
  EXPECT_FALSE(second->has_ended());
  const auto third = RestoreCopy(record, {.num_moves = 1, .num_tokens = {9}}, /*repeats_tokens=*/false);
  ASSERT_TRUE(third.ok()) << "it has moved as often and has more tokens";
  EXPECT_TRUE(second->has_ended());
  EXPECT_EQ(environment_->resumable.counts().running, 1);
}

TEST_F(RequestRestorerTest, AClientThatHasTheEarlierCopyFindsTheLaterOneWhenTokensRepeat) {
  for (const bool repeats_tokens : {true, false}) {
    Make();
    const RequestRecord record = Record();
    const auto first = RestoreCopy(record, {.num_moves = 0, .num_tokens = {5}}, repeats_tokens);
    ASSERT_TRUE(first.ok()) << first.status();
    WaitingCall call;
    const auto run_later = [](std::function<void()> job) { job(); };
    const auto stream = std::static_pointer_cast<TokenStream>(first->sink);
    ASSERT_TRUE(stream->Attach({.writer = &call, .run_later = run_later, .id = 1}, {}).ok());
    while (environment_->resumable.counts().running > 0) std::this_thread::yield();
    const auto second = RestoreCopy(record, {.num_moves = 1, .num_tokens = {9}}, repeats_tokens);
    EXPECT_EQ(second.ok(), repeats_tokens) << "other tokens would follow those that the client gets";
    EXPECT_EQ(first->has_ended(), repeats_tokens);
    EXPECT_EQ(*environment_->resumable.FindSame(record.identity), repeats_tokens ? second->sink : first->sink);
    if (!repeats_tokens) stream->Close(1, /*ends_request=*/true);
    const absl::Status end = call.WaitForEnd();
    if (repeats_tokens) {
      EXPECT_EQ(ReasonOf(end)->word, "RESTORING") << "so that our clients resume";
    }
  }
}

TEST_F(RequestRestorerTest, AStreamThatHasComeFartherIsNotReplaced) {
  Make();
  const auto first = RestoreCopy(Record(), {.num_moves = 0, .num_tokens = {1}}, /*repeats_tokens=*/true);
  ASSERT_TRUE(first.ok()) << first.status();
  for (int i = 0; i < 4; ++i) first->sink->OnToken(0, 3 + i, ScoredToken{.token = kToken, .top = {}});
  EXPECT_TRUE(absl::IsAlreadyExists(
      RestoreCopy(Record(), {.num_moves = 1, .num_tokens = {4}}, /*repeats_tokens=*/true).status()));
  EXPECT_TRUE(RestoreCopy(Record(), {.num_moves = 1, .num_tokens = {5}}, /*repeats_tokens=*/true).ok());
}

// Otherwise the tokens of this manager would follow tokens of another text.
TEST_F(RequestRestorerTest, AClientIsNotGivenOtherTokensThanThoseBehindItsOwn) {
  Make();
  RequestRecord record = Record();
  record.identity.owner = OwnerOf(std::nullopt);
  const auto resume = [&](int num_received, WaitingCall* call) {
    v1::ResumeRequest request;
    request.set_resume_token(
        environment_->resumable.NewKeeper(record.identity, RequestId{99}, record.nonce)->MakeResumeToken());
    request.add_received()->set_next_position(3 + num_received);
    auto client = std::make_unique<ClientRequest>(environment_.get(), std::nullopt, std::nullopt, request, call,
                                                  [](std::function<void()> job) { job(); });
    client->Start(kNever);
    return client;
  };
  const auto first = RestoreCopy(record, {.num_moves = 0, .num_tokens = {5}}, /*repeats_tokens=*/false);
  ASSERT_TRUE(first.ok()) << first.status();
  WaitingCall early;
  environment_->is_restoring = [] { return true; };
  resume(6, &early);
  EXPECT_EQ(ReasonOf(early.WaitForEnd())->word, "RESTORING") << "another worker may have these tokens";
  EXPECT_FALSE(first->has_ended());
  // The worker draws more tokens, but perhaps others than the client has.
  for (int i = 0; i < 10; ++i) first->sink->OnToken(0, 3 + i, ScoredToken{.token = kToken, .top = {}});
  environment_->is_restoring = [] { return false; };
  SampleProgress progress{.index = 0, .num_tokens = 6};
  ResumableRequests::Identity continued = record.identity;
  continued.continued = {progress};
  EXPECT_EQ(*environment_->resumable.FindSame(continued), nullptr) << "a new request has the name";
  WaitingCall late;
  resume(6, &late);
  EXPECT_EQ(ReasonOf(late.WaitForEnd())->word, "REQUEST_UNKNOWN") << "so that the client sends what it has";
  EXPECT_TRUE(first->has_ended()) << "nobody can continue it";

  for (const int num_received : {5, 6}) {
    const bool repeats_tokens = num_received == 6;
    Make();
    const auto other = RestoreCopy(record, {.num_moves = 0, .num_tokens = {5}}, repeats_tokens);
    ASSERT_TRUE(other.ok()) << other.status();
    WaitingCall call;
    const auto client = resume(num_received, &call);
    while (environment_->resumable.counts().running > 0) std::this_thread::yield();
    EXPECT_FALSE(other->has_ended()) << "the client continues the stream";
    client->Cancel();
    EXPECT_TRUE(absl::IsCancelled(call.WaitForEnd()));
  }
}

// Until its client comes, a restored request counts as one that the client has left.
TEST_F(RequestRestorerTest, NoMoreRequestsAreTakenOverThanMayBeWithoutTheirClients) {
  Make(SecretKey(), /*max_detached=*/2);
  for (const char* name : {"r1", "r2", "r3"}) {
    RequestRecord record = Record();
    record.identity.name = name;
    EXPECT_TRUE(Restore(record).ok()) << name;
  }
  EXPECT_EQ(environment_->resumable.counts().running, 2);
  EXPECT_EQ(environment_->resumable.counts().displaced, 1);
}

TEST_F(RequestRestorerTest, ARecordOfAnotherKeyIsNotTrusted) {
  Make();
  EXPECT_TRUE(absl::IsPermissionDenied(Restore(Record(), SecretKey('l')).status()));
  EXPECT_EQ(environment_->resumable.counts().running, 0);
}

TEST_F(RequestRestorerTest, WithoutAKeyOrPlacesNothingIsRestored) {
  Make(/*key=*/std::nullopt);
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore(Record()).status()));
  Make(SecretKey(), /*max_detached=*/0);
  EXPECT_TRUE(absl::IsFailedPrecondition(Restore(Record()).status()));
}

TEST_F(RequestRestorerTest, ARecordThatDoesNotFitThePromptOfTheWorkerIsRefused) {
  Make();
  prompt_ = {model_->vocab_size};
  EXPECT_TRUE(absl::IsInvalidArgument(Restore(Record()).status()));
  prompt_ = std::vector<TokenId>(model_->max_context_tokens + 1, 1);
  EXPECT_FALSE(Restore(Record()).ok());
  EXPECT_EQ(environment_->resumable.counts().running, 0);
}

// The engine tells all tokens at once, and no text job may have run before the last one comes.
TEST_F(RequestRestorerTest, TheStreamHasRoomForAllTokensThatTheWorkerHas) {
  Make(SecretKey(), /*max_detached=*/10, /*max_outbox_tokens=*/5);
  Mutex mutex;
  CondVar changed;
  bool is_held = true;
  int num_jobs = environment_->options.num_text_threads;
  for (int i = 0; i < environment_->options.num_text_threads; ++i) {
    environment_->text_threads.RunOutput([&] {
      const MutexLock lock(&mutex);
      while (is_held) changed.Wait(&mutex);
      --num_jobs;
      changed.NotifyAll();
    });
  }
  RequestRecord record = Record();
  record.request.set_n(2);
  const auto restored = Restore(record);
  ASSERT_TRUE(restored.ok()) << restored.status();
  restored->sink->OnStarted(0);
  for (int position = 3; position < 63; ++position) {
    for (int sample : {0, 1}) restored->sink->OnToken(sample, position, ScoredToken{.token = kToken, .top = {}});
  }
  EXPECT_FALSE(restored->has_ended());
  const MutexLock lock(&mutex);
  is_held = false;
  changed.NotifyAll();
  while (num_jobs > 0) changed.Wait(&mutex);
}

}  // namespace
}  // namespace quire
