// SPDX-License-Identifier: Apache-2.0

// What tenants may use of a scheduler and its pool.

#include <string>

#include "base/status_reason.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/scheduler.h"
#include "tests/scheduler/scheduler_fixture.h"

namespace quire {
namespace {

class SchedulerTenantsTest : public SchedulerTest {
 protected:
  static SchedulerOptions WithShare(const std::string& tenant, double max_blocks_share) {
    SchedulerOptions options = Options();
    options.tenants.by_tenant[tenant].max_blocks_share = max_blocks_share;
    return options;
  }

  static Request RequestOf(const std::string& tenant, uint64_t id, int prompt_length, int max_tokens) {
    Request request = MakeRequest(id, prompt_length, max_tokens);
    request.tenant = tenant;
    return request;
  }
  void SubmitOf(const std::string& tenant, uint64_t id, int prompt_length, int max_tokens) {
    Submit(RequestOf(tenant, id, prompt_length, max_tokens));
  }

  WaitReason::Kind WaitOf(uint64_t id) { return scheduler_->ExplainWait(RequestId{id})->kind; }
};

TEST_F(SchedulerTenantsTest, ATenantThatHoldsItsShareWaitsAndOthersOvertake) {
  for (const auto policy : {SchedulingPolicy::kFcfs, SchedulingPolicy::kPriority, SchedulingPolicy::kLongestPrefixFirst,
                            SchedulingPolicy::kFairShare}) {
    SchedulerOptions options = WithShare("hog", 0.5);
    options.policy = policy;
    Make(8, options);
    SubmitOf("hog", 1, 7, 2);  // 2 blocks.
    SubmitOf("hog", 2, 7, 2);  // 2 blocks.
    SubmitOf("hog", 3, 7, 2);  // Too many.
    SubmitOf("hog", 4, 3, 2);  // Must not overtake request 3.
    SubmitOf("other", 5, 7, 2);
    Plan();
    EXPECT_EQ(scheduler_->counts().running, 3) << static_cast<int>(policy);
    EXPECT_EQ(WaitOf(5), WaitReason::Kind::kRuns);
    EXPECT_EQ(WaitOf(3), WaitReason::Kind::kTenantShare);
    const WaitReason reason = *scheduler_->ExplainWait(RequestId{3});
    EXPECT_EQ(reason.num_counted_blocks, 2);
    EXPECT_EQ(reason.num_tenant_blocks, 4);
    EXPECT_EQ(reason.max_tenant_blocks, 4);
    Commit();
    RunToTheEnd();
    emitted_.clear();
  }
}

TEST_F(SchedulerTenantsTest, ARequestBeyondItsShareIsRefusedWithTheNumbers) {
  Make(8, WithShare("hog", 0.5));
  const absl::Status refused = scheduler_->Submit(RequestOf("hog", 1, 10, 8));  // 5 blocks.
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_EQ(
      refused.message(),
      "prompt has 10 tokens and stopping.max_tokens is 8: this takes up to 5 KV blocks of 4 tokens, tenant \"hog\" may "
      "hold 4 of 8 (max_blocks_share is 0.5)");
  EXPECT_EQ(ReasonOf(refused)->word, "NEVER_FITS");
  EXPECT_EQ(ReasonOf(refused)->metadata.at("field"), "max_blocks_share");
  EXPECT_EQ(ReasonOf(refused)->metadata.at("tenant"), "hog");
  EXPECT_EQ(ReasonOf(refused)->metadata.at("value"), "5");
  EXPECT_EQ(ReasonOf(refused)->metadata.at("limit"), "4");
  EXPECT_TRUE(scheduler_->Submit(RequestOf("hog", 1, 10, 7)).ok());
  EXPECT_TRUE(scheduler_->Submit(RequestOf("other", 2, 10, 8)).ok());
}

TEST_F(SchedulerTenantsTest, AllTenantsThatAreNotListedHaveTheShareOfOthers) {
  SchedulerOptions options = WithShare("hog", 1);
  options.tenants.others.max_blocks_share = 0.25;
  Make(8, options);
  EXPECT_FALSE(scheduler_->Submit(RequestOf("any", 1, 10, 2)).ok());
  EXPECT_TRUE(scheduler_->Submit(RequestOf("hog", 1, 10, 2)).ok());
}

TEST_F(SchedulerTenantsTest, ATenantWithoutALimitMayCountMoreBlocksThanThePoolHas) {
  has_prefix_cache_ = true;
  Make(6, WithShare("hog", 0.5));
  SubmitOf("other", 1, 16, 2);
  Step();
  SubmitOf("other", 2, 16, 2);  // Shares four blocks with request 1.
  Plan();
  EXPECT_EQ(scheduler_->counts().running, 2);
  Commit();
  RunToTheEnd();
}

// Both grow to 4 blocks, but there are 7.
TEST_F(SchedulerTenantsTest, WhoHasGrownBeyondTheShareIsPreemptedFirst) {
  Make(7, WithShare("hog", 0.6));
  SubmitOf("hog", 1, 3, 10);
  SubmitOf("hog", 2, 3, 10);
  SubmitOf("other", 3, 3, 10);
  Plan();
  EXPECT_EQ(scheduler_->counts().running, 3);
  Commit();
  // Without shares, the request that was submitted last would be the victim.
  while (scheduler_->counts().preemptions == 0 && scheduler_->counts().running > 0) Step();
  EXPECT_EQ(WaitOf(3), WaitReason::Kind::kRuns);
  EXPECT_NE(WaitOf(2), WaitReason::Kind::kRuns);
  RunToTheEnd();
  for (const uint64_t id : {1, 2, 3}) EXPECT_EQ(Emitted(id), Solo(id));
}

TEST_F(SchedulerTenantsTest, GrowthBeyondTheShareIsFreeWhileNobodyNeedsTheBlocks) {
  Make(16, WithShare("hog", 0.25));
  for (const uint64_t id : {1, 2, 3, 4}) SubmitOf("hog", id, 3, 10);  // 1 block each, then 3.
  Plan();
  EXPECT_EQ(scheduler_->counts().running, 4);
  Commit();
  RunToTheEnd();
  EXPECT_EQ(scheduler_->counts().preemptions, 0);
}

TEST_F(SchedulerTenantsTest, AfterTheShareWasLoweredALargeRequestRunsAlone) {
  Make(8);
  SubmitOf("hog", 1, 15, 2);
  SubmitOf("hog", 2, 15, 2);
  scheduler_->SetTenants({.by_tenant = {{"hog", {.max_blocks_share = 0.1}}}});
  EXPECT_FALSE(scheduler_->Submit(RequestOf("hog", 3, 15, 2)).ok());
  Plan();
  EXPECT_EQ(scheduler_->counts().running, 1);
  EXPECT_EQ(WaitOf(2), WaitReason::Kind::kTenantShare);
  Commit();
  scheduler_->SetTenants({});
  Plan();
  EXPECT_EQ(WaitOf(2), WaitReason::Kind::kRuns);
  Commit();
  RunToTheEnd();
}

TEST_F(SchedulerTenantsTest, OnlyInAFullQueueAPlaceIsGivenUp) {
  SchedulerOptions options = Options();
  options.max_waiting_requests = 3;
  Make(8, options);
  std::optional<Displaced> displaced;
  for (const uint64_t id : {1, 2, 3}) EXPECT_TRUE(scheduler_->Submit(RequestOf("hog", id, 3, 2), &displaced).ok());
  EXPECT_FALSE(scheduler_->Submit(RequestOf("hog", 4, 3, 2), &displaced).ok());
  EXPECT_FALSE(scheduler_->Submit(RequestOf("other", 4, 100, 2), &displaced).ok()) << "it never fits";
  EXPECT_FALSE(scheduler_->Submit(RequestOf("other", 4, 3, 2)).ok());
  EXPECT_FALSE(displaced.has_value());
  EXPECT_TRUE(scheduler_->Submit(RequestOf("other", 4, 3, 2), &displaced).ok());
  ASSERT_TRUE(displaced.has_value());
  EXPECT_EQ(displaced->request, RequestId{3});
  EXPECT_EQ(displaced->tenant, "hog");
  EXPECT_EQ(scheduler_->counts().waiting, 3);
  EXPECT_TRUE(absl::IsResourceExhausted(scheduler_->Submit(RequestOf("other", 5, 3, 2), &displaced)))
      << "it would have two, and the other one";
}

// Requests that have lost their worker wait in addition to the requests of the full queue.
TEST_F(SchedulerTenantsTest, InAQueueThatIsTooLongAPlaceIsExchanged) {
  SchedulerOptions options = Options();
  options.max_waiting_requests = 2;
  Make(8, options);
  for (const uint64_t id : {1, 2}) SubmitOf("hog", id, 3, 2);
  Plan();
  for (const uint64_t id : {3, 4}) SubmitOf("hog", id, 3, 2);
  scheduler_->AbandonAll();
  EXPECT_EQ(scheduler_->counts().waiting, 4);
  std::optional<Displaced> displaced;
  EXPECT_TRUE(scheduler_->Submit(RequestOf("other", 5, 3, 2), &displaced).ok());
  EXPECT_EQ(displaced->request, RequestId{4});
  EXPECT_EQ(scheduler_->counts().waiting, 4);
}

}  // namespace
}  // namespace quire
