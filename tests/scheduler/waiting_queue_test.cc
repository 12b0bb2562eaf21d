#include "scheduler/waiting_queue.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Requests are numbered 1, 2, ... in the order of their submission.
class WaitingQueueTest : public ::testing::Test {
 protected:
  void Make(SchedulerOptions options) {
    queue_ = std::make_unique<WaitingQueue>(
        options, [this](const SequenceGroup& group) { return cached_tokens_[Value(group.id())]; });
  }
  void Make(SchedulingPolicy policy) {
    SchedulerOptions options;
    options.policy = policy;
    Make(options);
  }

  void Add(const std::string& tenant = "", int priority = 0) {
    Request request;
    request.id = RequestId{groups_.size() + 1};
    request.prompt = {1};
    request.tenant = tenant;
    request.priority = priority;
    const ServiceRank rank = queue_->RankOf(request, groups_.size());
    groups_.push_back(std::make_unique<SequenceGroup>(request, rank, SequenceId{groups_.size() + 1}));
    queue_->Add(groups_.back().get());
  }

  std::vector<int> Order() {
    std::vector<int> order;
    queue_->Visit([&](SequenceGroup* group) {
      order.push_back(static_cast<int>(Value(group->id())));
      return true;
    });
    return order;
  }

  // Lets the next group enter.
  int Take() {
    int taken = 0;
    queue_->Visit([&](SequenceGroup* group) {
      taken = static_cast<int>(Value(group->id()));
      queue_->Remove(group);
      return false;
    });
    return taken;
  }

  std::map<uint64_t, int> cached_tokens_;  // Keyed by request.
  std::unique_ptr<WaitingQueue> queue_;
  std::vector<std::unique_ptr<SequenceGroup>> groups_;
};

TEST_F(WaitingQueueTest, FcfsIsTheOrderOfArrival) {
  Make(SchedulingPolicy::kFcfs);
  Add("a", 5);
  Add("b", 1);
  Add("a", 3);
  EXPECT_THAT(Order(), ElementsAre(1, 2, 3));
  EXPECT_EQ(queue_->NumAhead(*groups_[2]), 2);
}

TEST_F(WaitingQueueTest, PriorityGoesBeforeArrival) {
  Make(SchedulingPolicy::kPriority);
  Add("", 5);
  Add("", 1);
  Add("", 5);
  Add("", -1);
  EXPECT_THAT(Order(), ElementsAre(4, 2, 1, 3));
}

TEST_F(WaitingQueueTest, AVisitMayTakeTheGroupOut) {
  Make(SchedulingPolicy::kFcfs);
  for (int i = 0; i < 4; ++i) Add();
  queue_->Visit([&](SequenceGroup* group) {
    if (Value(group->id()) % 2 == 0) queue_->Remove(group);
    return true;
  });
  EXPECT_THAT(Order(), ElementsAre(1, 3));
  EXPECT_EQ(queue_->size(), 2);
}

TEST_F(WaitingQueueTest, OfAnEmptyQueueNobodyIsVisited) {
  for (const auto policy :
       {SchedulingPolicy::kFcfs, SchedulingPolicy::kLongestPrefixFirst, SchedulingPolicy::kFairShare}) {
    Make(policy);
    EXPECT_THAT(Order(), IsEmpty());
  }
}

TEST_F(WaitingQueueTest, TheLongestCachedPrefixGoesFirst) {
  Make(SchedulingPolicy::kLongestPrefixFirst);
  cached_tokens_ = {{2, 10}, {3, 30}, {4, 10}};
  for (int i = 0; i < 4; ++i) Add();
  EXPECT_THAT(Order(), ElementsAre(3, 2, 4, 1));
}

TEST_F(WaitingQueueTest, NobodyIsPassedForEverByLongerPrefixes) {
  Make(SchedulingPolicy::kLongestPrefixFirst);
  Add();
  int num_passed = 0;
  for (int next = 2; next < 200; ++next) {
    cached_tokens_[next] = 10;
    Add();
    if (Take() == 1) break;
    ++num_passed;
  }
  EXPECT_EQ(num_passed, 64);
}

TEST_F(WaitingQueueTest, TheTenantServedLeastIsNext) {
  Make(SchedulingPolicy::kFairShare);
  for (int i = 0; i < 3; ++i) Add("greedy");
  Add("modest");
  EXPECT_EQ(Take(), 1);
  queue_->Charge("greedy", 100);
  EXPECT_EQ(Take(), 4);
  queue_->Charge("modest", 10);
  EXPECT_EQ(Take(), 2);
}

TEST_F(WaitingQueueTest, WeightsDivideWhatATenantWasServed) {
  SchedulerOptions options;
  options.policy = SchedulingPolicy::kFairShare;
  options.tenant_weights = {{"big", 3}};
  Make(options);
  for (int i = 0; i < 40; ++i) Add(i % 2 == 0 ? "big" : "small");
  std::map<std::string, int> num_taken;
  for (int i = 0; i < 20; ++i) {
    const std::string tenant = groups_[Take() - 1]->request().tenant;
    ++num_taken[tenant];
    queue_->Charge(tenant, 10);
  }
  EXPECT_EQ(num_taken["big"], 15);
  EXPECT_EQ(num_taken["small"], 5);
}

TEST_F(WaitingQueueTest, ATenantCannotSaveUpWhileItIsIdle) {
  Make(SchedulingPolicy::kFairShare);
  for (int i = 0; i < 10; ++i) Add("busy");
  for (int i = 0; i < 4; ++i) {
    Take();
    queue_->Charge("busy", 1000);
  }
  for (int i = 0; i < 4; ++i) Add("late");  // Requests 11 to 14.
  std::vector<int> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(Take());
    queue_->Charge(groups_[taken.back() - 1]->request().tenant, 1000);
  }
  EXPECT_THAT(taken, ElementsAre(11, 5, 12, 6));
}

}  // namespace
}  // namespace quire
