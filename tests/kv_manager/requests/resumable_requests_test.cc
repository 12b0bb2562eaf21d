// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/resumable_requests.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_reason.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/token_stream_harness.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

TEST(ResumeTokenTest, OnlyTheHolderOfTheKeyMakesATokenAndOnlyItsOwnerUsesIt) {
  const SealKey key = SealKey::FromSecret(std::string(32, 'k')).value();
  const ResumeToken token{.owner = "acme", .name = "r1", .nonce = 7, .expires_unix_sec = 1000};
  const std::string text = EncodeResumeToken(token, key);
  EXPECT_EQ(DecodeResumeToken(text, SealKey::FromSecret(std::string(32, 'k')).value(), "acme", 999).value(), token);

  const absl::Status foreign = DecodeResumeToken(text, key, "other", 999).status();
  EXPECT_TRUE(absl::IsPermissionDenied(foreign)) << foreign;
  EXPECT_EQ(std::string(foreign.message()).find("r1"), std::string::npos);
  const absl::Status expired = DecodeResumeToken(text, key, "acme", 1000).status();
  EXPECT_EQ(ReasonOf(expired)->word, "RESUME_TOKEN_EXPIRED");
  const absl::Status unknown = DecodeResumeToken(text, SealKey::Random(), "acme", 999).status();
  EXPECT_EQ(ReasonOf(unknown)->word, "REQUEST_UNKNOWN");
  EXPECT_EQ(ReasonOf(unknown)->metadata.at("resubmit_ok"), "true");
  for (const std::string& wrong : {std::string(), std::string("%"), std::string(5000, 'a'), std::string("garbage0"),
                                   text.substr(1), text.substr(0, text.size() - 4), text + "AAAA"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeResumeToken(wrong, key, "acme", 0).status())) << wrong;
  }
}

// REQUEST_UNKNOWN would say that the request does not run, so that it may be sent again.
TEST(ResumeTokenTest, ATokenWithAChangedLetterIsNoToken) {
  const SealKey key = SealKey::Random();
  const std::string text = EncodeResumeToken({.owner = "a", .name = "r", .nonce = 1, .expires_unix_sec = 1000}, key);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    const auto decoded = DecodeResumeToken(changed, key, "a", 0);
    EXPECT_TRUE(absl::IsInvalidArgument(decoded.status())) << i << ": " << decoded.status();
  }
}

TEST(SealKeyTest, AMessageForAnotherPurposeIsNotOpened) {
  const SealKey key = SealKey::Random();
  EXPECT_EQ(key.For("a").Open(key.For("a").Seal("message")), "message");
  EXPECT_EQ(key.For("a").Open(key.For("b").Seal("message")), std::nullopt);
  EXPECT_EQ(key.For("a").Open(key.Seal("message")), std::nullopt);
}

TEST(SealKeyTest, AShortSecretIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(SealKey::FromSecret(std::string(31, 'k')).status()));
}

// A store on a clock that stands still, and streams that a test moves by hand.
class ResumableRequestsTest : public ::testing::Test {
 protected:
  static constexpr int64_t kGraceUs = 1'000'000;

  void Make(size_t max_detached, int64_t max_replay_bytes = 1 << 20) {
    requests_ = std::make_unique<ResumableRequests>(
        DetachOptions{
            .grace = absl::Microseconds(kGraceUs), .max_detached = max_detached, .max_replay_bytes = max_replay_bytes},
        &clock_);
  }

  struct One {
    std::shared_ptr<TokenStream> stream;
    std::shared_ptr<StreamKeeper> keeper;
    ManualWriter writer = {};
  };

  ResumableRequests::Identity IdentityOf(const std::string& name, const std::string& tenant, uint8_t digest) {
    return {.owner = tenant, .name = name, .tenant = tenant, .digest = {digest}};
  }

  // A stream whose jobs run at once, except while the test calls it.
  std::shared_ptr<One> Add(const std::string& name, const std::string& tenant = "t", uint8_t digest = 1) {
    auto one = std::make_shared<One>();
    writers_.push_back(one);
    v1::GenerateRequest request;
    request.set_text("p");
    const auto valid = ValidateGenerate(request, *model_, RequestLimits(), /*drawn_seed=*/1);
    const RequestId id = registry_.NextId();
    one->keeper = requests_->NewKeeper(IdentityOf(name, tenant, digest), id, Value(id));
    const auto run_later = [](std::function<void()> job) { job(); };
    one->stream =
        std::make_shared<TokenStream>(TokenStream::Environment{.engine = &engine_,
                                                               .run_later = run_later,
                                                               .on_end = [](const StreamEnd&) {},
                                                               .max_outbox_tokens = 100,
                                                               .keeper = one->keeper},
                                      id, ResponseSet(model_, name, *valid), StreamReader{&one->writer, run_later, 1});
    last_ = requests_->Add(IdentityOf(name, tenant, digest), Value(id), one->stream, &registry_);
    return one;
  }

  // The stream of a request that an earlier manager has started, with a text of this size in bytes.
  std::shared_ptr<TokenStream> StreamToRestore(const ResumableRequests::Identity& identity, uint64_t nonce,
                                               size_t num_text_bytes = 0) {
    v1::GenerateRequest request;
    request.set_text("p");
    auto valid = ValidateGenerate(request, *model_, RequestLimits(), /*drawn_seed=*/1);
    valid->prompt_text.assign(num_text_bytes, 'x');
    const RequestId id = registry_.NextId();
    return std::make_shared<TokenStream>(TokenStream::Environment{.engine = &engine_,
                                                                  .run_later = [](std::function<void()> job) { job(); },
                                                                  .on_end = [](const StreamEnd&) {},
                                                                  .max_outbox_tokens = 100,
                                                                  .keeper = requests_->NewKeeper(identity, id, nonce)},
                                         id, ResponseSet(model_, identity.name, *valid), StreamReader());
  }

  std::shared_ptr<ServedModel> model_ = ToyModel();
  FakeEngine engine_{model_};
  ManualClock clock_;
  RequestRegistry registry_{100};
  std::vector<std::shared_ptr<One>> writers_;  // Writers that outlive the streams.
  std::unique_ptr<ResumableRequests> requests_;
  absl::StatusOr<std::shared_ptr<TokenStream>> last_;  // What Add returned.
};

TEST_F(ResumableRequestsTest, ARequestWithoutAClientEndsWhenTheGraceHasPassed) {
  Make(10);
  const auto one = Add("r");
  const std::string token = one->keeper->MakeResumeToken();
  one->stream->Close(1);
  EXPECT_EQ(requests_->counts().running, 1);
  EXPECT_TRUE(requests_->Detached().contains(one->stream->id()));
  clock_.Advance(kGraceUs - 1);
  requests_->Check();
  EXPECT_FALSE(one->stream->has_ended());
  EXPECT_TRUE(requests_->Find(token, "t").ok()) << "but only a call that takes the stream keeps it";
  clock_.Advance(1);
  requests_->Check();
  EXPECT_TRUE(one->stream->has_ended());
  EXPECT_EQ(requests_->counts().expired, 1);
  EXPECT_EQ(requests_->counts().running, 0);
  EXPECT_TRUE(absl::IsNotFound(requests_->Find(token, "t").status()));
  EXPECT_TRUE(registry_.Names().empty()) << "its name is free";
}

TEST_F(ResumableRequestsTest, AStreamThatHasEndedIsKeptForTheGraceAndItsNameIsFree) {
  Make(10);
  const auto one = Add("r");
  const std::string token = one->keeper->MakeResumeToken();
  one->stream->OnFinished(LastSample(FinishReason::kLength));
  EXPECT_EQ(one->writer.status, absl::OkStatus());
  EXPECT_EQ(requests_->counts().ended, 1);
  EXPECT_TRUE(registry_.Names().empty());
  EXPECT_EQ(requests_->Find(token, "t").value(), one->stream);
  clock_.Advance(kGraceUs);
  requests_->Check();
  EXPECT_TRUE(absl::IsNotFound(requests_->Find(token, "t").status()));
  EXPECT_EQ(requests_->counts().ended, 0);
  EXPECT_EQ(requests_->counts().expired, 0) << "that counts requests that were running";
}

TEST_F(ResumableRequestsTest, TheSameNameAndDigestIsTheSameRequest) {
  Make(10);
  const auto one = Add("r");
  Add("r");
  EXPECT_EQ(last_.value(), one->stream);
  Add("r", "t", /*digest=*/2);
  EXPECT_TRUE(absl::IsAlreadyExists(last_.status()));
  Add("r", "another tenant", /*digest=*/2);
  EXPECT_TRUE(last_.ok()) << "names belong to tenants";
  one->stream->OnFinished(LastSample(FinishReason::kLength));
  Add("r");
  EXPECT_EQ(last_.value(), one->stream) << "it gives the answer again";
  const auto two = Add("r", "t", /*digest=*/2);
  EXPECT_EQ(last_.value(), two->stream) << "a request that has ended gives its name away";
  two->stream->OnFailed(absl::UnavailableError("no"));
  const auto three = Add("r", "t", /*digest=*/2);
  EXPECT_EQ(last_.value(), three->stream) << "a request that has failed may be tried again";
}

TEST_F(ResumableRequestsTest, WhenTooManyHaveEndedTheOldestOfTheGreediestTenantGoes) {
  Make(3);
  std::vector<std::shared_ptr<One>> all;
  for (const char* tenant : {"small", "big", "big", "big"}) {
    all.push_back(Add(absl::StrCat("r", all.size()), tenant));
    all.back()->stream->OnFinished(LastSample(FinishReason::kLength));
    clock_.Advance(1);
  }
  EXPECT_TRUE(requests_->Find(all[0]->keeper->MakeResumeToken(), "small").ok());
  EXPECT_FALSE(requests_->Find(all[1]->keeper->MakeResumeToken(), "big").ok());
  EXPECT_TRUE(requests_->Find(all[2]->keeper->MakeResumeToken(), "big").ok());
  const auto running = Add("running", "big");
  running->stream->Close(1);
  EXPECT_FALSE(running->stream->has_ended());
  EXPECT_TRUE(requests_->Find(all[0]->keeper->MakeResumeToken(), "small").ok()) << "those that run are counted apart";
}

TEST_F(ResumableRequestsTest, ARequestEndsWhenTooManyRunWithoutAClient) {
  Make(2);
  std::vector<std::shared_ptr<One>> all;
  for (const char* tenant : {"small", "big", "big"}) {
    all.push_back(Add(absl::StrCat("r", all.size()), tenant));
    all.back()->stream->Close(1);
    clock_.Advance(1);
  }
  EXPECT_FALSE(all[0]->stream->has_ended());
  EXPECT_TRUE(all[1]->stream->has_ended());
  EXPECT_FALSE(all[2]->stream->has_ended());
  EXPECT_EQ(requests_->counts().displaced, 1);
}

TEST_F(ResumableRequestsTest, MemoryIsCountedAndGivenBack) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto one = Add("r");
  const int64_t num_first = requests_->counts().replay_bytes;
  EXPECT_GT(num_first, 0) << "what the record has before the first token";
  EXPECT_TRUE(one->keeper->Grow(600'000));
  EXPECT_FALSE(one->keeper->Grow(600'000));
  EXPECT_EQ(requests_->counts().replay_bytes, num_first + 600'000);
  one->keeper->OnForgotten();
  EXPECT_EQ(requests_->counts().replay_bytes, 0);
  EXPECT_EQ(requests_->counts().forgotten, 1);
}

TEST_F(ResumableRequestsTest, ARecordGetsMemoryForManyTokensAtOnceIfThereIsEnoughForAll) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto one = Add("r");
  const int64_t num_first = requests_->counts().replay_bytes;
  EXPECT_TRUE(one->keeper->Grow(1));
  const int64_t num_bytes = requests_->counts().replay_bytes - num_first;
  EXPECT_GE(num_bytes, 1000);
  for (int64_t i = 1; i < num_bytes; ++i) EXPECT_TRUE(one->keeper->Grow(1));
  EXPECT_EQ(requests_->counts().replay_bytes, num_first + num_bytes);

  const int64_t num_left = 875'000 - num_first - num_bytes;  // One eighth is kept for others.
  EXPECT_TRUE(one->keeper->Grow(num_left - 100));
  EXPECT_TRUE(one->keeper->Grow(60)) << "this fits, more does not";
  EXPECT_FALSE(one->keeper->Grow(60));
  EXPECT_TRUE(one->keeper->Grow(30));
  EXPECT_EQ(requests_->counts().replay_bytes, 875'000 - 10);
}

TEST_F(ResumableRequestsTest, ARequestThatIsForgottenKeepsItsNameUntilItIsOver) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto one = Add("r");
  const std::string token = one->keeper->MakeResumeToken();
  one->keeper->OnForgotten();
  EXPECT_EQ(registry_.Names().size(), 1u) << "Abort finds it";
  Add("r");
  EXPECT_TRUE(absl::IsAlreadyExists(last_.status())) << last_.status();
  const absl::Status found = requests_->Find(token, "t").status();
  EXPECT_TRUE(absl::IsNotFound(found)) << found;
  EXPECT_TRUE(one->stream->has_ended()) << "its client has lost the call, and may start again";
  EXPECT_EQ(one->writer.status->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(registry_.Names().empty());
  const auto two = Add("r");
  EXPECT_EQ(last_.value(), two->stream);
  two->stream->Close(1, /*ends_request=*/true);
  EXPECT_TRUE(registry_.Names().empty());
  EXPECT_EQ(requests_->counts().forgotten, 1) << "that does not count requests that were cancelled";
}

TEST_F(ResumableRequestsTest, AnAbortedRequestGivesItsNameAway) {
  Make(10);
  const auto one = Add("r");
  EXPECT_TRUE(one->stream->Abort());
  EXPECT_TRUE(requests_->Find(one->keeper->MakeResumeToken(), "t").ok()) << "its client can still get the rest";
  const auto two = Add("r");
  EXPECT_EQ(last_.value(), two->stream);
}

TEST_F(ResumableRequestsTest, StreamsThatHaveEndedMakeRoomForThoseThatRun) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  std::vector<std::shared_ptr<One>> all;
  for (const char* tenant : {"a", "b", "b"}) {
    all.push_back(Add(absl::StrCat("r", all.size()), tenant));
    EXPECT_TRUE(all.back()->keeper->Grow(200'000));
    all.back()->stream->OnFinished(LastSample(FinishReason::kLength));
    clock_.Advance(1);
  }
  const auto running = Add("running", "a");
  EXPECT_TRUE(running->keeper->Grow(400'000));
  EXPECT_FALSE(requests_->Find(all[0]->keeper->MakeResumeToken(), "a").ok()) << "requests of its own tenant go first";
  EXPECT_TRUE(requests_->Find(all[1]->keeper->MakeResumeToken(), "b").ok());
  EXPECT_TRUE(running->keeper->Grow(200'000));
  EXPECT_FALSE(requests_->Find(all[1]->keeper->MakeResumeToken(), "b").ok());
  EXPECT_TRUE(requests_->Find(all[2]->keeper->MakeResumeToken(), "b").ok());
}

TEST_F(ResumableRequestsTest, OneTenantCannotTakeAllMemory) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto greedy = Add("r", "greedy");
  EXPECT_TRUE(greedy->keeper->Grow(800'000));
  EXPECT_FALSE(greedy->keeper->Grow(100'000)) << "one eighth is kept for others";
  const auto other = Add("r", "other");
  EXPECT_TRUE(other->keeper->Grow(100'000));
}

TEST_F(ResumableRequestsTest, AStreamThatNeedsNoMoreMemoryGoesOnWhenItsTenantIsOverItsShare) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto greedy = Add("r", "greedy");
  EXPECT_TRUE(greedy->keeper->Grow(800'000));
  EXPECT_TRUE(Add("r", "other")->keeper->Grow(150'000));
  greedy->stream->Close(1);
  ManualWriter writer;
  const auto run_later = [](std::function<void()> job) { job(); };
  ASSERT_EQ(greedy->stream->Attach(StreamReader{&writer, run_later, 2}, {}), absl::OkStatus());
  EXPECT_FALSE(greedy->stream->has_ended()) << *writer.status;
  EXPECT_EQ(requests_->counts().forgotten, 0);
  greedy->stream->Close(2);
  greedy->stream->OnFailed(absl::DeadlineExceededError("too late"));
  EXPECT_EQ(requests_->counts().ended, 1) << "the end needs no memory";
}

TEST_F(ResumableRequestsTest, AStreamForWhichThereIsNoMemoryIsNotKept) {
  Make(10, /*max_replay_bytes=*/1'000'000);
  const auto greedy = Add("r1", "greedy");
  EXPECT_TRUE(greedy->keeper->Grow(875'000 - requests_->counts().replay_bytes));
  Add("r2", "greedy");
  ASSERT_FALSE(last_.ok());
  EXPECT_EQ(ReasonOf(last_.status())->word, "REPLAY_MEMORY");
  EXPECT_EQ(requests_->counts().replay_bytes, 875'000);
  EXPECT_EQ(requests_->counts().forgotten, 1);
  EXPECT_EQ(registry_.Names().size(), 1u);
  Add("r", "other");
  EXPECT_TRUE(last_.ok()) << "one eighth is kept for others";
}

// Calls a function of the test when a request is cancelled.
class CallingEngine : public CancelRecorder {
 public:
  void Cancel(RequestId request, FinishReason reason) override {
    CancelRecorder::Cancel(request, reason);
    if (on_cancel != nullptr) on_cancel();
  }
  std::function<void()> on_cancel;
};

// A client that continues its request gets the name, though the stream that it cannot use still runs.
TEST_F(ResumableRequestsTest, ARestoredStreamThatLacksTokensOfTheClientGivesItsNameAway) {
  Make(10);
  ResumableRequests::Identity identity = IdentityOf("r", "t", 1);
  CallingEngine engine;
  const auto make = [&](uint64_t nonce) {
    v1::GenerateRequest request;
    request.set_text("p");
    const auto valid = ValidateGenerate(request, *model_, RequestLimits(), /*drawn_seed=*/1);
    const RequestId id = registry_.NextId();
    return std::make_shared<TokenStream>(TokenStream::Environment{.engine = &engine,
                                                                  .run_later = [](std::function<void()> job) { job(); },
                                                                  .on_end = [](const StreamEnd&) {},
                                                                  .max_outbox_tokens = 100,
                                                                  .keeper = requests_->NewKeeper(identity, id, nonce),
                                                                  .num_promised_tokens = 60},
                                         id, ResponseSet(model_, "r", *valid), StreamReader());
  };
  const auto restored = make(7);
  restored->LimitPromise({5});
  const RestoredCopy copy{.num_moves = 0, .num_tokens = {5}};
  ASSERT_TRUE(
      requests_->Restore(identity, {.nonce = 7, .arrival_unix_us = 1, .copy = copy}, restored, &registry_).ok());
  identity.continued = {{.index = 0, .num_tokens = 5}};
  EXPECT_EQ(*requests_->FindSame(identity), restored);
  identity.continued = {{.index = 0, .num_tokens = 6}};
  EXPECT_EQ(*requests_->FindSame(identity), nullptr);
  const auto continued = make(8);
  EXPECT_EQ(*requests_->Add(identity, 8, continued, &registry_), continued);
  EXPECT_TRUE(restored->has_ended());
  EXPECT_FALSE(continued->has_ended());
  continued->Drop(absl::CancelledError("the test is over"));
}

TEST_F(ResumableRequestsTest, AClientThatComesWhileItsRequestIsRestoredKeepsIt) {
  Make(10);
  const ResumableRequests::Identity identity = IdentityOf("r", "t", 1);
  CallingEngine engine;
  const auto run_later = [](std::function<void()> job) { job(); };
  const auto restore = [&](int64_t arrival_unix_us) {
    v1::GenerateRequest request;
    request.set_text("p");
    const auto valid = ValidateGenerate(request, *model_, RequestLimits(), /*drawn_seed=*/1);
    const RequestId id = registry_.NextId();
    auto stream =
        std::make_shared<TokenStream>(TokenStream::Environment{.engine = &engine,
                                                               .run_later = run_later,
                                                               .on_end = [](const StreamEnd&) {},
                                                               .max_outbox_tokens = 100,
                                                               .keeper = requests_->NewKeeper(identity, id, 7)},
                                      id, ResponseSet(model_, "r", *valid), StreamReader());
    EXPECT_TRUE(
        requests_
            ->Restore(
                identity,
                {.nonce = static_cast<uint64_t>(6 + arrival_unix_us), .arrival_unix_us = arrival_unix_us, .copy = {}},
                stream, &registry_)
            .ok());
    return stream;
  };
  restore(1);
  ManualWriter writer;
  // The end of the first stream falls into the restoration of the second one.
  engine.on_cancel = [&] {
    const auto found = requests_->FindSame(identity);
    ASSERT_TRUE(found.ok() && *found != nullptr);
    EXPECT_TRUE((*found)->Attach({&writer, run_later, 2}, {}).ok());
  };
  const auto second = restore(2);
  engine.on_cancel = nullptr;
  EXPECT_EQ(requests_->counts().running, 0) << "the client is there";
  clock_.Advance(kGraceUs);
  requests_->Check();
  EXPECT_FALSE(second->has_ended());
  EXPECT_FALSE(writer.status.has_value());
  second->Close(2, /*ends_request=*/true);
}

TEST_F(ResumableRequestsTest, ARequestGoesOnWhenThereIsNoMemoryForTheOneThatWouldReplaceIt) {
  Make(10, /*max_replay_bytes=*/100'000);
  const ResumableRequests::Identity identity = IdentityOf("r", "t", 1);
  const auto first = StreamToRestore(identity, 7);
  ASSERT_TRUE(requests_->Restore(identity, {.nonce = 7, .arrival_unix_us = 1, .copy = {}}, first, &registry_).ok());
  const int64_t replay_bytes = requests_->counts().replay_bytes;
  clock_.Advance(kGraceUs - 1);
  const auto second = StreamToRestore(identity, 8, /*num_text_bytes=*/100'000);
  const absl::Status status =
      requests_->Restore(identity, {.nonce = 8, .arrival_unix_us = 2, .copy = {}}, second, &registry_);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(ReasonOf(status)->word, "REPLAY_MEMORY");
  EXPECT_FALSE(first->has_ended());
  EXPECT_EQ(*requests_->FindSame(identity), first);
  EXPECT_EQ(requests_->counts().replay_bytes, replay_bytes);
  EXPECT_EQ(requests_->Detached().count(first->id()), 1u);
  EXPECT_EQ(registry_.Names().size(), 1u);
  EXPECT_EQ(registry_.Names()[first->id()], "r");
  clock_.Advance(1);
  requests_->Check();
  EXPECT_TRUE(first->has_ended()) << "its grace has passed";
  EXPECT_EQ(requests_->counts().replay_bytes, 0);
  EXPECT_TRUE(registry_.Names().empty());
}

TEST_F(ResumableRequestsTest, AClientKeepsItsStreamWhenTooManyRequestsHaveNoClientForALaterCopy) {
  Make(1);
  const ResumableRequests::Identity identity = IdentityOf("r", "t", 1);
  const auto restore = [&](int num_tokens, std::optional<absl::Duration> grace_left) {
    const auto stream = StreamToRestore(identity, 7);
    const absl::Status status = requests_->Restore(identity,
                                                   {.nonce = 7,
                                                    .arrival_unix_us = 1,
                                                    .copy = {.num_moves = 0, .num_tokens = {num_tokens}},
                                                    .repeats_tokens = true},
                                                   stream, &registry_, grace_left);
    return std::pair(stream, status);
  };
  const auto [first, first_status] = restore(5, std::nullopt);
  ASSERT_TRUE(first_status.ok()) << first_status;
  ManualWriter writer;
  const auto run_later = [](std::function<void()> job) { job(); };
  ASSERT_TRUE(first->Attach({&writer, run_later, 2}, {}).ok());
  const auto other = Add("other");
  other->stream->Close(1);
  ASSERT_EQ(requests_->counts().running, 1);
  const auto [second, second_status] = restore(6, absl::Microseconds(1));  // It would end before the other one.
  EXPECT_TRUE(absl::IsResourceExhausted(second_status)) << second_status;
  EXPECT_FALSE(first->has_ended());
  EXPECT_FALSE(writer.status.has_value());
  EXPECT_EQ(*requests_->FindSame(identity), first);
  EXPECT_FALSE(other->stream->has_ended());
  EXPECT_EQ(registry_.Names().size(), 2u);
  EXPECT_EQ(registry_.Names()[first->id()], "r");
  first->Close(2, /*ends_request=*/true);
}

}  // namespace
}  // namespace quire
