// SPDX-License-Identifier: Apache-2.0

// Tests the pins that requests make.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kv_manager/engine/step_loop_harness.h"

namespace quire {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

constexpr int64_t kTtl = 300 * kSecond;

// At most 4 of the 16 blocks may be pinned.
class StepLoopPinsTest : public StepLoopTest {
 protected:
  // A request whose tokens differ from those of another `text`.
  Request RequestOf(int text, int prompt_length, std::vector<int> pinned = {}) {
    Request request = MakeRequest(prompt_length, 2);
    for (TokenId& token : request.prompt) token += 100 * text;
    for (const int num_tokens : pinned) request.pins.push_back({num_tokens, kTtl});
    return request;
  }
  std::shared_ptr<RecordingSink> RunRequest(const Request& request) {
    const auto sink = Submit(request);
    Run();
    EXPECT_EQ(sink->tokens(), SoloTokens({}, request));
    return sink;
  }
  // Requests that need every block that is not pinned, so that nothing else stays cached.
  void FillPool() {
    for (const int text : {7, 8}) RunRequest(RequestOf(text, 46));
  }
  int CachedTokens(int text) { return RunRequest(RequestOf(text, 17))->num_cached_tokens(); }
  int pinned_blocks() const { return loop_->status()->blocks.pinned; }
  StepLoopStats stats() const { return loop_->status()->stats; }
};

TEST_F(StepLoopPinsTest, APinKeepsThePrefixThatOtherRequestsWouldEvict) {
  Join();
  EXPECT_THAT(RunRequest(RequestOf(1, 17, {14}))->pinned_tokens(), Optional(ElementsAre(12)));
  EXPECT_EQ(pinned_blocks(), 3);
  FillPool();
  EXPECT_EQ(CachedTokens(1), 12);
  EXPECT_EQ(RunRequest(RequestOf(2, 17))->pinned_tokens(), std::nullopt) << "it wants no pin";
  FillPool();
  EXPECT_EQ(CachedTokens(2), 0);
}

TEST_F(StepLoopPinsTest, APinEndsAtItsTimeAndARequestRenewsIt) {
  Join();
  RunRequest(RequestOf(1, 17, {12}));
  EXPECT_EQ(Run(), kTtl) << "when the loop wakes";
  Advance(kTtl - 1);
  EXPECT_EQ(pinned_blocks(), 3);
  RunRequest(RequestOf(1, 17, {12}));
  Advance(kTtl - 1);
  EXPECT_EQ(pinned_blocks(), 3);
  Advance(1);
  EXPECT_EQ(pinned_blocks(), 0);
  FillPool();
  EXPECT_EQ(CachedTokens(1), 0);
}

TEST_F(StepLoopPinsTest, PinsAreMadeWithTheFirstTokenWhichMayBeTheLast) {
  Join();
  worker_.HoldBack();
  Request request = RequestOf(1, 17, {8, 4, 3});
  request.max_tokens = 1;
  const auto sink = Submit(request);
  Run();
  EXPECT_EQ(sink->pinned_tokens(), std::nullopt);
  EXPECT_EQ(pinned_blocks(), 0);
  worker_.Answer();
  Run();
  EXPECT_TRUE(sink->ended());
  EXPECT_THAT(sink->pinned_tokens(), Optional(ElementsAre(8, 4, 0))) << "three tokens fill no block";
  EXPECT_EQ(pinned_blocks(), 2);
  EXPECT_EQ(stats().request_pins, 2);
  EXPECT_EQ(stats().failed_request_pins, 1);
}

TEST_F(StepLoopPinsTest, BeyondALimitTheRequestRunsUnpinned) {
  Join();
  EXPECT_THAT(RunRequest(RequestOf(1, 17, {12}))->pinned_tokens(), Optional(ElementsAre(12)));
  EXPECT_THAT(RunRequest(RequestOf(2, 17, {4, 8}))->pinned_tokens(), Optional(ElementsAre(4, 0)));
  EXPECT_EQ(pinned_blocks(), 4);
}

TEST_F(StepLoopPinsTest, ATenantHasItsShareOfThePins) {
  TenantTable table;
  table.by_tenant["half"].share.max_blocks_share = 0.5;
  TenantQuotas quotas(table);
  StepLoopOptions options = Options();
  options.quotas = &quotas;
  Join(options);
  Request request = RequestOf(1, 17, {8, 12});
  request.tenant = "half";
  EXPECT_THAT(RunRequest(request)->pinned_tokens(), Optional(ElementsAre(8, 0)));
  request = RequestOf(2, 17, {8});
  request.tenant = "other";
  EXPECT_THAT(RunRequest(request)->pinned_tokens(), Optional(ElementsAre(8)));
  table.by_tenant["half"].share.max_blocks_share = 1;
  quotas.SetTable(table);
  request = RequestOf(1, 17, {12});
  request.tenant = "half";
  EXPECT_THAT(RunRequest(request)->pinned_tokens(), Optional(ElementsAre(0))) << "others have the rest";
}

TEST_F(StepLoopPinsTest, WithoutAPrefixCacheNothingIsPinned) {
  StepLoopOptions options = Options();
  options.has_prefix_cache = false;
  Join(options);
  EXPECT_THAT(RunRequest(RequestOf(1, 17, {12}))->pinned_tokens(), Optional(ElementsAre(0)));
  EXPECT_EQ(pinned_blocks(), 0);
}

TEST_F(StepLoopPinsTest, PinsEndWithTheSessionOfTheWorker) {
  Join();
  RunRequest(RequestOf(1, 17, {12}));
  worker_.Kill();
  Run();
  worker_.Start(SmallWorker());
  Advance(10 * kSecond);
  ASSERT_TRUE(loop_->status()->is_ready);
  EXPECT_EQ(pinned_blocks(), 0);
}

}  // namespace
}  // namespace quire
