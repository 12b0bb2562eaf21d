// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/loop_inbox.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {
namespace {

class LoopInboxTest : public ::testing::Test {
 protected:
  void Submit(uint64_t id, std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    Request request;
    request.id = RequestId{id};
    request.prompt = std::move(prompt);
    PromptHashes hashes(request.cache_salt, request.prompt);
    ASSERT_TRUE(inbox_.Submit(request, std::make_shared<RecordingSink>(), &hashes).ok());
  }
  absl::Status SubmitOf(const std::string& tenant) {
    Request request;
    request.id = RequestId{++last_id_};
    request.prompt = {1};
    request.tenant = tenant;
    PromptHashes hashes(request.cache_salt, request.prompt);
    return inbox_.Submit(request, std::make_shared<RecordingSink>(), &hashes);
  }
  std::vector<LoopEvent> Take() {
    std::vector<LoopEvent> events;
    std::vector<LoopQuestion> questions;
    inbox_.Take(&events, &questions);
    return events;
  }
  // Publishes a load without requests.
  void Publish(const std::vector<RequestId>& ended) {
    inbox_.Publish(WorkerLoad{.groups = CacheGroups(4)}, /*is_drained_by_worker=*/false, WorkerStatus(), ended);
  }
  int NumCachedTokens() {
    Request request;
    request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    PromptHashes hashes(request.cache_salt, request.prompt);
    return inbox_.load(request, &hashes).num_cached_tokens;
  }

  uint64_t last_id_ = 1000;
  StepLoopOptions options_;
  ManualClock clock_;
  LoopInbox inbox_{&options_, &clock_};
};

TEST_F(LoopInboxTest, OneCancelIsKeptOfEachRequestThatMayStillRun) {
  Submit(1);
  Submit(2);
  Take();
  Publish({RequestId{1}});
  for (int i = 0; i < 3; ++i) {
    inbox_.Cancel(RequestId{1}, FinishReason::kCancelled);
    inbox_.Cancel(RequestId{2}, FinishReason::kStopToken);
    inbox_.Cancel(RequestId{1000}, FinishReason::kCancelled);
  }
  const std::vector<LoopEvent> events = Take();
  ASSERT_EQ(events.size(), 1u);
  const auto* cancelled = std::get_if<RequestCancelled>(&events[0]);
  ASSERT_NE(cancelled, nullptr);
  EXPECT_EQ(cancelled->request, RequestId{2});
  EXPECT_EQ(cancelled->reason, FinishReason::kStopToken);
}

TEST_F(LoopInboxTest, ACancelledRequestLeavesTheInboxBeforeTheLoopTakesIt) {
  inbox_.SetPrefixIndex(std::make_shared<PrefixIndex>(/*block_size=*/4));
  Publish({});
  Submit(1);
  Submit(2, {1});
  const std::optional<RequestSubmitted> withdrawn = inbox_.Cancel(RequestId{1}, FinishReason::kCancelled);
  ASSERT_TRUE(withdrawn.has_value());
  EXPECT_EQ(withdrawn->request.id, RequestId{1});
  EXPECT_EQ(inbox_.load().num_requests, 1);
  EXPECT_EQ(inbox_.load().wanted_blocks, 1);
  EXPECT_EQ(NumCachedTokens(), 0);
  EXPECT_EQ(inbox_.Cancel(RequestId{1}, FinishReason::kCancelled), std::nullopt);
  const std::vector<LoopEvent> events = Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<RequestSubmitted>(events[0]).request.id, RequestId{2});
  EXPECT_EQ(inbox_.Cancel(RequestId{2}, FinishReason::kCancelled), std::nullopt);
  EXPECT_EQ(Take().size(), 1u) << "the loop has taken it, so it must be told";
}

TEST_F(LoopInboxTest, CancelledRequestsTakeNoRoom) {
  options_.max_inbox_requests = 1;
  for (uint64_t id = 1; id < 10; ++id) {
    Submit(id);
    EXPECT_TRUE(inbox_.Cancel(RequestId{id}, FinishReason::kCancelled).has_value());
  }
  EXPECT_EQ(Take().size(), 0u);
}

// Otherwise a drain would wait for the end of a request that the loop has never seen.
TEST_F(LoopInboxTest, ThatARequestHasLeftTheInboxIsAChange) {
  Publish({});
  EXPECT_FALSE(inbox_.Publish(WorkerLoad(), /*is_drained_by_worker=*/false, WorkerStatus(), {}));
  Submit(1);
  inbox_.Cancel(RequestId{1}, FinishReason::kCancelled);
  EXPECT_TRUE(inbox_.Wait(kNever)) << "the loop must run a round";
  EXPECT_TRUE(inbox_.Publish(WorkerLoad(), /*is_drained_by_worker=*/false, WorkerStatus(), {}));
  EXPECT_FALSE(inbox_.Publish(WorkerLoad(), /*is_drained_by_worker=*/false, WorkerStatus(), {}));
}

TEST_F(LoopInboxTest, EachTenantHasItsShareOfAFullInbox) {
  options_.max_inbox_requests = 6;
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(SubmitOf("greedy").ok()) << "one tenant alone may fill it";
  EXPECT_EQ(SubmitOf("greedy").code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(SubmitOf("other").ok());
  EXPECT_EQ(SubmitOf("other").code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(SubmitOf("third").ok());
  EXPECT_EQ(SubmitOf("third").code(), absl::StatusCode::kResourceExhausted);
  Take();
  EXPECT_TRUE(SubmitOf("greedy").ok());
}

TEST_F(LoopInboxTest, ManyTenantsFindRoomForOneRequestEachUntilTheInboxIsTwiceAsFull) {
  options_.max_inbox_requests = 2;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(SubmitOf(std::to_string(i)).ok());
  EXPECT_EQ(SubmitOf("0").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(SubmitOf("4").code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(LoopInboxTest, CancelOfASampleIsIgnoredAfterItsRequestHasEndedOrWasCancelled) {
  Submit(1);
  Submit(2);
  inbox_.CancelSample(RequestId{1}, 0);
  EXPECT_EQ(Take().size(), 3u);
  Publish({RequestId{1}});
  inbox_.Cancel(RequestId{2}, FinishReason::kCancelled);
  EXPECT_EQ(Take().size(), 1u);
  inbox_.CancelSample(RequestId{1}, 0);
  inbox_.CancelSample(RequestId{2}, 0);
  EXPECT_EQ(Take().size(), 0u);
}

TEST_F(LoopInboxTest, ARequestThatLeavesTakesItsCancelsAlongWhetherTheLoopHasTakenThemOrNot) {
  Submit(1);
  Submit(2);
  inbox_.CancelSample(RequestId{1}, 3);
  inbox_.CancelSample(RequestId{2}, 4);
  std::vector<LoopEvent> events;
  std::vector<LoopQuestion> questions;
  inbox_.Take(&events, &questions);
  inbox_.CancelSample(RequestId{1}, 5);
  MovingRequest::Wishes wishes = inbox_.Release(RequestId{1});
  EXPECT_TRUE(wishes.is_cancellable);
  EXPECT_EQ(wishes.cancelled, std::nullopt);
  EXPECT_EQ(wishes.cancelled_samples, (std::vector<int>{3, 5}));
  events.clear();
  inbox_.Cancel(RequestId{2}, FinishReason::kStopToken);
  inbox_.Take(&events, &questions);
  wishes = inbox_.Release(RequestId{2});
  EXPECT_FALSE(wishes.is_cancellable);
  EXPECT_EQ(wishes.cancelled, FinishReason::kStopToken);
  events.clear();
  inbox_.Take(&events, &questions);
  EXPECT_TRUE(events.empty());
}

TEST_F(LoopInboxTest, ASubmittedRequestIsLoadFromTheCallToTheNextPublish) {
  Publish({});
  Submit(1);
  EXPECT_EQ(inbox_.load().num_requests, 1);
  EXPECT_EQ(inbox_.load().wanted_blocks, 3);
  Take();
  EXPECT_EQ(inbox_.load().num_requests, 1);
  EXPECT_EQ(inbox_.load().wanted_blocks, 3);
  Publish({});
  EXPECT_EQ(inbox_.load().num_requests, 0);
  EXPECT_EQ(inbox_.load().wanted_blocks, 0);
}

TEST_F(LoopInboxTest, ARequestWantsBlocksForItsPromptAndOneToken) {
  Publish({});
  Submit(1, {1, 2, 3});
  EXPECT_EQ(inbox_.load().wanted_blocks, 1);
  Submit(2, {1, 2, 3, 4});
  EXPECT_EQ(inbox_.load().wanted_blocks, 1 + 2);
}

TEST_F(LoopInboxTest, ThePromptOfASubmittedRequestIsExpectedInTheCacheUntilItHasEnded) {
  inbox_.SetPrefixIndex(std::make_shared<PrefixIndex>(/*block_size=*/4));
  EXPECT_EQ(NumCachedTokens(), 0);
  Submit(1);
  EXPECT_EQ(NumCachedTokens(), 8);
  Take();
  Publish({RequestId{1}});
  EXPECT_EQ(NumCachedTokens(), 0);
}

TEST_F(LoopInboxTest, ARefusedRequestIsNotExpectedInTheCache) {
  inbox_.SetPrefixIndex(std::make_shared<PrefixIndex>(/*block_size=*/4));
  inbox_.Stop();
  Request request;
  request.id = RequestId{1};
  request.prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  PromptHashes hashes(request.cache_salt, request.prompt);
  const absl::Status status = inbox_.Submit(request, std::make_shared<RecordingSink>(), &hashes);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(NumCachedTokens(), 0);
}

TEST_F(LoopInboxTest, ReadinessAndTheLastEndAreReasonsToTellOthers) {
  const auto publish = [this](bool is_ready, int num_requests) {
    return inbox_.Publish({.is_ready = is_ready, .num_requests = num_requests}, false, WorkerStatus(), {});
  };
  EXPECT_TRUE(publish(true, 0));
  EXPECT_FALSE(publish(true, 2));
  EXPECT_FALSE(publish(true, 1));
  EXPECT_TRUE(publish(true, 0));
  EXPECT_FALSE(publish(true, 0));
  EXPECT_TRUE(publish(false, 0));
}

TEST_F(LoopInboxTest, TheOperatorsDrainAndTheWorkersOwnAreToldTogether) {
  inbox_.SetDrainedByOperator(true);
  EXPECT_TRUE(inbox_.status()->is_draining);
  EXPECT_TRUE(inbox_.load().is_drained_by_operator);
  inbox_.Publish({}, /*is_drained_by_worker=*/true, WorkerStatus(), {});
  inbox_.SetDrainedByOperator(false);
  EXPECT_TRUE(inbox_.status()->is_draining) << "by the worker";
  EXPECT_FALSE(inbox_.load().is_drained_by_operator);
  inbox_.Publish({}, /*is_drained_by_worker=*/false, WorkerStatus(), {});
  EXPECT_FALSE(inbox_.status()->is_draining);
}

}  // namespace
}  // namespace quire
