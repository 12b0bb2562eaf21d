// SPDX-License-Identifier: Apache-2.0

#include "scheduler/waiting_queue.h"

#include <algorithm>
#include <climits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Next = WaitingQueue::Next;

// Requests are numbered 1, 2, ... in the order of their submission.
class WaitingQueueTest : public ::testing::Test {
 protected:
  void Make(SchedulerOptions options) {
    queue_ = std::make_unique<WaitingQueue>(options, [this](const SequenceGroup& group) {
      ++num_looks_;
      return cached_tokens_[Value(group.id())];
    });
  }
  void Make(SchedulingPolicy policy) {
    SchedulerOptions options;
    options.policy = policy;
    Make(options);
  }

  void Add(const std::string& tenant = "", int priority = 0, int num_samples = 1) {
    Request request;
    request.id = RequestId{groups_.size() + 1};
    request.prompt = {1};
    request.tenant = tenant;
    request.priority = priority;
    request.num_samples = num_samples;
    const ServiceRank rank = queue_->RankOf(request, groups_.size());
    groups_.push_back(std::make_unique<SequenceGroup>(request, rank, SequenceId{groups_.size() + 1}));
    queue_->Add(groups_.back().get());
  }

  std::vector<int> Order() {
    std::vector<int> order;
    queue_->Visit([&](SequenceGroup* group) {
      order.push_back(static_cast<int>(Value(group->id())));
      return Next::kInOrder;
    });
    return order;
  }

  // Lets the next group enter.
  int Take() {
    int taken = 0;
    queue_->Visit([&](SequenceGroup* group) {
      taken = static_cast<int>(Value(group->id()));
      queue_->Remove(group);
      return Next::kNone;
    });
    return taken;
  }

  // Lets four groups enter, charges `num_tokens` to the tenant of each and returns their numbers.
  std::vector<int> TakeFour(int num_tokens) {
    std::vector<int> taken;
    for (int i = 0; i < 4; ++i) {
      taken.push_back(Take());
      queue_->Charge(groups_[taken.back() - 1]->request().tenant, num_tokens);
    }
    return taken;
  }

  std::map<uint64_t, int> cached_tokens_;  // Keyed by request.
  int num_looks_ = 0;                      // At cached_tokens_.
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
    return Next::kInOrder;
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

TEST_F(WaitingQueueTest, OneVisitLooksUpABoundedNumberOfPrefixes) {
  Make(SchedulingPolicy::kLongestPrefixFirst);
  for (int i = 0; i < 500; ++i) Add(std::to_string(i / 50));  // 10 tenants.
  cached_tokens_[462] = 10;                                   // Of the last tenant.
  const auto skip_all = [&] {
    std::vector<int> order;
    queue_->Visit([&](SequenceGroup* group) {
      order.push_back(static_cast<int>(Value(group->id())));
      return Next::kOfOthers;
    });
    return order;
  };
  EXPECT_THAT(skip_all(), ElementsAre(1, 51, 101, 151, 201, 251, 301, 351, 401, 451));
  EXPECT_EQ(num_looks_, 64);
  // Later visits look up the others.
  std::vector<int> order;
  for (int visit = 2; visit <= 16; ++visit) order = skip_all();
  EXPECT_LE(num_looks_, 16 * 64);
  EXPECT_THAT(order, ElementsAre(1, 51, 101, 151, 201, 251, 301, 351, 462, 401));
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
  options.tenants.by_tenant = {{"big", {.weight = 3}}};
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
  EXPECT_THAT(TakeFour(1000), ElementsAre(11, 5, 12, 6));
}

// What the queue returns is compared with a search through all groups.
TEST_F(WaitingQueueTest, EachTurnGoesToTheFirstGroupOfTheTenantServedLeast) {
  std::mt19937 random(1);
  const auto draw = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
  Make(SchedulingPolicy::kFairShare);
  std::map<std::string, double> served;
  double least_served = 0;
  std::map<std::string, std::set<int>> waiting;
  for (int round = 0; round < 300; ++round) {
    for (int i = draw(6); i > 0; --i) {
      const std::string tenant(1, static_cast<char>('a' + draw(8)));
      if (waiting[tenant].empty()) served[tenant] = std::max(served[tenant], least_served);
      Add(tenant);
      waiting[tenant].insert(static_cast<int>(groups_.size()));
    }
    std::map<std::string, int> last_visited;  // Keyed by tenant.
    queue_->Visit([&](SequenceGroup* group) {
      std::optional<std::tuple<double, int, std::string>> expected;
      for (const auto& [tenant, groups] : waiting) {
        const auto next = groups.upper_bound(last_visited[tenant]);
        if (next == groups.end()) continue;
        const std::tuple turn(served[tenant], *next, tenant);
        if (!expected.has_value() || turn < *expected) expected = turn;
      }
      const int id = static_cast<int>(Value(group->id()));
      if (!expected.has_value() || std::get<1>(*expected) != id) {
        ADD_FAILURE() << id << " is visited in round " << round;
        return Next::kNone;
      }
      const std::string tenant = group->request().tenant;
      least_served = std::max(least_served, served[tenant]);
      last_visited[tenant] = id;
      if (draw(3) == 0) {
        queue_->Remove(group);
        waiting[tenant].erase(id);
      }
      if (draw(3) == 0) {
        const std::string charged(1, static_cast<char>('a' + draw(8)));
        const int num_tokens = draw(100);
        queue_->Charge(charged, num_tokens);
        if (served.contains(charged)) served[charged] += num_tokens;
      }
      if (draw(20) == 0) return Next::kNone;
      if (draw(6) > 0) return Next::kInOrder;
      last_visited[tenant] = INT_MAX;
      return Next::kOfOthers;
    });
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(WaitingQueueTest, ATenantThatWasServedIsRememberedBehindThousandsThatWereNot) {
  Make(SchedulingPolicy::kFairShare);
  Add("hog");
  Take();
  queue_->Charge("hog", 1000);
  for (int i = 0; i < 10000; ++i) {
    Add(std::to_string(i));
    Take();
  }
  Add("hog");
  Add("new");
  EXPECT_EQ(groups_[Take() - 1]->request().tenant, "new");
}

TEST_F(WaitingQueueTest, ASkippedTenantIsPassedUnderEveryPolicy) {
  for (const auto policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kLongestPrefixFirst,
                            SchedulingPolicy::kFairShare}) {
    Make(policy);
    groups_.clear();
    for (int i = 0; i < 150; ++i) Add("hog");  // More than the policy kLongestPrefixFirst compares at a time.
    Add("other");
    Add("hog");
    Add("other");
    std::vector<int> order;
    queue_->Visit([&](SequenceGroup* group) {
      order.push_back(static_cast<int>(Value(group->id())));
      return group->request().tenant == "hog" ? Next::kOfOthers : Next::kInOrder;
    });
    EXPECT_THAT(order, ElementsAre(1, 151, 153)) << static_cast<int>(policy);
  }
}

TEST_F(WaitingQueueTest, TheTenantWithTheMostWaitingGroupsGivesUpItsLastPlace) {
  for (const auto policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kLongestPrefixFirst,
                            SchedulingPolicy::kFairShare}) {
    Make(policy);
    groups_.clear();
    for (int i = 0; i < 4; ++i) Add("hog");
    Add("other");
    EXPECT_EQ(queue_->ToDisplace("hog"), nullptr);
    EXPECT_EQ(queue_->ToDisplace("newcomer"), groups_[3].get());
    EXPECT_EQ(queue_->ToDisplace("other"), groups_[3].get());
    Add("other");
    Add("other");
    EXPECT_EQ(queue_->ToDisplace("other"), nullptr) << "both would have four";
    // Groups that have run keep their places.
    groups_[3]->progress().has_started = true;
    EXPECT_EQ(queue_->ToDisplace("newcomer"), groups_[2].get());
    for (const auto& group : groups_) group->progress().has_started = true;
    EXPECT_EQ(queue_->ToDisplace("newcomer"), nullptr);
  }
}

TEST_F(WaitingQueueTest, WhenTheGroupsOfOneTenantHaveRunTheNextTenantGivesUpAPlace) {
  for (const auto policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kLongestPrefixFirst,
                            SchedulingPolicy::kFairShare}) {
    Make(policy);
    groups_.clear();
    for (const char* tenant : {"hog", "hog", "hog", "hog", "busy", "busy", "busy", "third", "third", "modest"}) {
      Add(tenant);
    }
    for (int i = 0; i < 4; ++i) groups_[i]->progress().has_started = true;
    EXPECT_EQ(queue_->ToDisplace("newcomer"), groups_[6].get());
    EXPECT_EQ(queue_->ToDisplace("modest"), groups_[6].get());
    EXPECT_EQ(queue_->ToDisplace("third"), nullptr) << "it would have as many as the next tenant";
    for (int i = 4; i < 7; ++i) groups_[i]->progress().has_started = true;
    EXPECT_EQ(queue_->ToDisplace("newcomer"), groups_[8].get());
    EXPECT_EQ(queue_->ToDisplace("modest"), nullptr) << "it would have as many as the third tenant";
  }
}

TEST_F(WaitingQueueTest, PlacesBelongToTenantsInTheRatioOfTheirWeights) {
  SchedulerOptions options;
  options.tenants.by_tenant = {{"big", {.weight = 3}}};
  Make(options);
  for (int i = 0; i < 6; ++i) Add("big");
  Add("small");
  EXPECT_EQ(queue_->ToDisplace("small"), nullptr) << "two of one are as many as six of three";
  EXPECT_EQ(queue_->ToDisplace("other"), groups_[5].get());
  queue_->SetShares({});
  EXPECT_EQ(queue_->ToDisplace("small"), groups_[5].get());
}

TEST_F(WaitingQueueTest, NewWeightsHoldForTenantsThatAreKnown) {
  Make(SchedulingPolicy::kFairShare);
  for (int i = 0; i < 40; ++i) Add(i % 2 == 0 ? "big" : "small");
  queue_->SetShares({.by_tenant = {{"big", {.weight = 3}}}});
  std::map<std::string, int> num_taken;
  for (int i = 0; i < 20; ++i) {
    const std::string tenant = groups_[Take() - 1]->request().tenant;
    ++num_taken[tenant];
    queue_->Charge(tenant, 10);
  }
  EXPECT_EQ(num_taken["big"], 15);
}

TEST_F(WaitingQueueTest, NewWeightsHoldForTokensThatWereServedAlready) {
  Make(SchedulingPolicy::kFairShare);
  for (int i = 0; i < 40; ++i) Add(i % 2 == 0 ? "big" : "small");
  EXPECT_EQ(Take(), 1);
  queue_->Charge("big", 1000);  // By the new weight, these are 10 tokens of "small".
  queue_->SetShares({.by_tenant = {{"big", {.weight = 100}}}});
  EXPECT_THAT(TakeFour(6), ElementsAre(2, 4, 3, 5));
}

TEST_F(WaitingQueueTest, SwappedGroupsCountWithTheirTokensWhenTheWorkerIsLost) {
  Make(SchedulingPolicy::kFcfs);
  Add();
  queue_->Remove(groups_[0].get());
  groups_[0]->set_state(SequenceGroup::State::kSwapped);
  queue_->Add(groups_[0].get());
  EXPECT_EQ(queue_->num_tokens(), WaitingQueue::kTokensPerRow);
  queue_->OnSlicesAbandoned();
  EXPECT_EQ(queue_->num_tokens(), WaitingQueue::kTokensPerRow + 1);
  queue_->Remove(groups_[0].get());
  EXPECT_EQ(queue_->num_tokens(), 0);
}

TEST_F(WaitingQueueTest, TheBacklogOfEachTenantIsWhatItsNextRequestHasAhead) {
  SchedulerOptions options;
  options.policy = SchedulingPolicy::kFairShare;
  options.tenants.by_tenant = {{"b", {.weight = 3}}, {"d", {.weight = 0.5}}};
  Make(options);
  EXPECT_THAT(queue_->Backlogs(), IsEmpty());
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    Add(std::string(1, static_cast<char>('a' + std::min(random() % 6, random() % 6))));
    for (const TenantBacklog& backlog : queue_->Backlogs()) {
      Request request;
      request.tenant = std::string(backlog.queue);
      EXPECT_NEAR(static_cast<double>(backlog.num_tokens_ahead), static_cast<double>(queue_->NumTokensAhead(request)),
                  1)
          << backlog.queue;
    }
  }
  EXPECT_EQ(queue_->Backlogs().size(), 6u);
}

TEST_F(WaitingQueueTest, UnlessThePolicyIsFairTheTenantsWaitInOneQueue) {
  for (const auto policy :
       {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kLongestPrefixFirst}) {
    Make(policy);
    groups_.clear();
    for (const char* tenant : {"a", "b", "a"}) Add(tenant);
    const std::vector<TenantBacklog> backlogs = queue_->Backlogs();
    ASSERT_EQ(backlogs.size(), 1u);
    EXPECT_EQ(backlogs[0].queue, QueueNameOf(policy, "b"));
    EXPECT_EQ(backlogs[0].num_tokens_ahead, queue_->num_tokens());
  }
}

TEST_F(WaitingQueueTest, EachRowOfAGroupIsWork) {
  Make(SchedulingPolicy::kFcfs);
  Add("", 0, /*num_samples=*/3);
  Add();
  EXPECT_EQ(queue_->num_tokens(), 4 * WaitingQueue::kTokensPerRow + 2);
  EXPECT_EQ(queue_->num_uncomputed_tokens(), 2);
  queue_->OnSlicesAbandoned();
  EXPECT_EQ(queue_->num_tokens(), 4 * WaitingQueue::kTokensPerRow + 2);
  queue_->Remove(groups_[0].get());
  EXPECT_EQ(queue_->num_tokens(), WaitingQueue::kTokensPerRow + 1);
  EXPECT_EQ(queue_->num_uncomputed_tokens(), 1);
}

TEST_F(WaitingQueueTest, TokensAheadAreThoseOfThePriorityAndBefore) {
  Make(SchedulingPolicy::kPriority);
  constexpr int kTokens = WaitingQueue::kTokensPerRow + 1;
  for (const int priority : {5, 1, 5, -1}) Add("", priority);
  const auto ahead = [&](int priority) {
    Request request;
    request.priority = priority;
    return queue_->NumTokensAhead(request);
  };
  EXPECT_EQ(ahead(-2), 0);
  EXPECT_EQ(ahead(-1), kTokens);
  EXPECT_EQ(ahead(4), 2 * kTokens);
  EXPECT_EQ(ahead(5), 4 * kTokens);
  queue_->Remove(groups_[0].get());
  queue_->Remove(groups_[3].get());
  EXPECT_EQ(ahead(-1), 0);
  EXPECT_EQ(ahead(5), 2 * kTokens);
}

}  // namespace
}  // namespace quire
