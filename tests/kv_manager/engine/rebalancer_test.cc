// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/engine/rebalancer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/clock.h"
#include "kv_manager/blocks/paged_block_manager.h"
#include "kv_manager/engine/wait_meter.h"
#include "scheduler/scheduler.h"
#include "tests/kv_manager/engine/recording_sink.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kLater = Rebalancer::kStayUs;

class RebalancerTest : public ::testing::Test {
 protected:
  RebalancerTest() : scheduler_(Options(), &blocks_), live_(&stats_, &wait_) {}

  static SchedulerOptions Options() {
    SchedulerOptions options;
    options.max_sequences = 2;
    return options;
  }

  void Submit(uint64_t id, int prompt_length = 4) {
    Request request;
    request.id = RequestId{id};
    request.prompt.assign(prompt_length, static_cast<TokenId>(id));
    request.max_tokens = 8;
    ASSERT_EQ(scheduler_.Submit(request), absl::OkStatus());
    live_.Add(request.id, {.sink = std::make_shared<RecordingSink>(), .num_prompt_tokens = prompt_length});
  }

  static SchedulerCounts Waiting(int num_waiting, int num_suspects = 0) {
    return {.waiting = num_waiting, .suspects = num_suspects};
  }

  std::vector<RequestId> Candidates(int64_t now_us = kLater) {
    return rebalancer_.TakeCandidates(scheduler_, live_, now_us);
  }

  PagedBlockManager blocks_{{.num_blocks = 64, .block_size = 4}};
  Scheduler scheduler_;
  StepLoopStats stats_;
  WaitMeter wait_;
  LiveRequests live_;
  Rebalancer rebalancer_;
};

TEST_F(RebalancerTest, RequestsMustHaveWaitedWithoutABreak) {
  EXPECT_EQ(rebalancer_.due_us(), kNever);
  rebalancer_.OnRound(Waiting(3), 1000);
  rebalancer_.OnRound(Waiting(1), 2000);
  EXPECT_EQ(rebalancer_.due_us(), 1000 + Rebalancer::kFullUs);
  rebalancer_.OnRound(Waiting(0), 3000);
  EXPECT_EQ(rebalancer_.due_us(), kNever);
  rebalancer_.OnRound(Waiting(1), 4000);
  EXPECT_EQ(rebalancer_.due_us(), 4000 + Rebalancer::kFullUs);
  rebalancer_.OnRound(Waiting(1, /*num_suspects=*/1), 5000);
  EXPECT_EQ(rebalancer_.due_us(), kNever) << "requests that wait for a suspect may be the next ones";
}

TEST_F(RebalancerTest, TheNextOnesMayMoveAfterTheInterval) {
  rebalancer_.OnRound(Waiting(1), 0);
  Candidates(Rebalancer::kFullUs);
  EXPECT_EQ(rebalancer_.due_us(), Rebalancer::kFullUs + Rebalancer::kIntervalUs);
}

TEST_F(RebalancerTest, AFewWaitingRequestsMoveInTheirOrder) {
  for (uint64_t id = 1; id <= 50; ++id) Submit(id);
  scheduler_.Plan();
  const std::vector<RequestId> candidates = Candidates();
  ASSERT_THAT(candidates, SizeIs(Rebalancer::kMaxMoves));
  EXPECT_EQ(candidates[0], RequestId{3}) << "two run";
  EXPECT_EQ(candidates.back(), RequestId{2 + Rebalancer::kMaxMoves});
  // They leave while a plan is in flight.
  EXPECT_EQ(scheduler_.Take(candidates[0]).id(), candidates[0]);
  EXPECT_THAT(Candidates(), testing::Not(testing::Contains(candidates[0])));
}

TEST_F(RebalancerTest, WhatCannotMoveDoesNotHideTheRequestsBehindIt) {
  for (uint64_t id = 1; id <= 40; ++id) Submit(id);
  EXPECT_EQ(Candidates().front(), RequestId{1});
  rebalancer_.OnMoved(0);
  const std::vector<RequestId> others = Candidates();
  ASSERT_THAT(others, SizeIs(40 - Rebalancer::kMaxMoves));
  EXPECT_EQ(others.front(), RequestId{Rebalancer::kMaxMoves + 1});
  rebalancer_.OnMoved(0);
  EXPECT_EQ(Candidates().front(), RequestId{1}) << "behind the last ones come the first ones";
  rebalancer_.OnMoved(0);
  EXPECT_EQ(Candidates(), others);
  rebalancer_.OnMoved(1);
  EXPECT_EQ(Candidates().front(), RequestId{1}) << "the first ones come first as soon as they can";
}

TEST_F(RebalancerTest, ARequestThatHasMovedStays) {
  for (uint64_t id = 1; id <= 3; ++id) Submit(id);
  LiveRequests::Entry entry = live_.Take(RequestId{2});
  entry.moved_us = 500;
  live_.Adopt(RequestId{2}, std::move(entry));
  EXPECT_THAT(Candidates(500 + Rebalancer::kStayUs - 1), ElementsAre(RequestId{1}, RequestId{3}));
  EXPECT_THAT(Candidates(500 + Rebalancer::kStayUs), SizeIs(3));
}

TEST_F(RebalancerTest, NothingMovesWhenAllRun) {
  Submit(1);
  Submit(2);
  scheduler_.Plan();
  EXPECT_THAT(Candidates(), IsEmpty());
}

}  // namespace
}  // namespace quire
