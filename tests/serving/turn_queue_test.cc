// SPDX-License-Identifier: Apache-2.0

#include "serving/turn_queue.h"

#include <chrono>
#include <functional>
#include <future>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

// Queues turns behind one that does not end before Run.
class TurnOrder {
 public:
  TurnOrder() {
    std::promise<void> begun;
    turns_.Push("first", 0, [&begun, future = is_complete_.get_future().share()] {
      begun.set_value();
      future.wait();
    });
    begun.get_future().wait();
  }
  void Push(const std::string& name, int64_t price_us) {
    turns_.Push(name.substr(0, 1), price_us, [this, name] { order_ += name; });
  }
  void Charge(const std::string& address, int64_t price_us) { turns_.Charge(address, price_us); }
  // Returns the names in the order of their turns.
  std::string Run() {
    std::promise<void> done;
    turns_.Push("last", 0, [] {});
    turns_.Charge("z", 1'000'000);
    turns_.Push("z", 0, [&done] { done.set_value(); });
    is_complete_.set_value();
    done.get_future().wait();
    return order_;
  }

 private:
  std::promise<void> is_complete_;
  std::string order_;
  TurnQueue turns_{1000};
};

TEST(TurnQueueTest, TheAddressThatHasPaidLeastIsNext) {
  TurnOrder order;
  for (const char* name : {"a1", "a2", "a3"}) order.Push(name, 100);
  for (const char* name : {"b1", "b2", "b3", "b4"}) order.Push(name, 40);
  const std::string names = order.Run();
  EXPECT_LT(names.find("b3"), names.find("a2")) << names;
  EXPECT_LT(names.find("a2"), names.find("b4")) << names;
}

TEST(TurnQueueTest, AnAddressPaysForWorkThatHadNoTurn) {
  TurnOrder order;
  order.Charge("a", 1000);
  order.Push("a1", 1);
  for (const char* name : {"b1", "b2", "b3"}) order.Push(name, 100);
  EXPECT_EQ(order.Run(), "b1b2b3a1");
}

TEST(TurnQueueTest, AnAddressThatWaitsComesBeforeOnesThatWereNeverSeen) {
  int num_new = 0;
  std::promise<int> second;
  std::function<void()> next;
  TurnQueue turns(1000);
  next = [&] {
    if (++num_new < 1000) turns.Push(absl::StrCat("new ", num_new), 100, next);
  };
  turns.Push("a", 100, [] {});
  turns.Push("a", 100, [&] { second.set_value(num_new); });
  turns.Push("new", 100, next);
  EXPECT_LT(second.get_future().get(), 10);
}

TEST(TurnQueueTest, ChargesPostponeTheNextTurnByALimitedTime) {
  const int64_t before_us = SteadyClock().NowMicros();
  std::promise<void> turn;
  std::future<void> has_come = turn.get_future();
  TurnQueue turns(1);
  turns.Charge("a", 1'000'000);
  turns.Push("b", 0, [&turn] { turn.set_value(); });
  int num_charges = 0;
  for (; has_come.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready; ++num_charges) {
    ASSERT_LT(num_charges, 500);
    turns.Charge("a", 1'000'000);
  }
  EXPECT_GE(SteadyClock().NowMicros() - before_us, TurnQueue::kMaxWaitUs / 2);
}

TEST(TurnQueueTest, ATurnComesWhenThoseBeforeHaveHadTheirTime) {
  for (const int num_lanes : {1, 4}) {
    TurnQueue turns(num_lanes);
    const int64_t before_us = SteadyClock().NowMicros();
    for (int i = 0; i < 3; ++i) turns.Push("a", 20'000, [] {});
    std::promise<int64_t> turn;
    turns.Push("a", 0, [&turn] { turn.set_value(SteadyClock().NowMicros()); });
    EXPECT_GE(turn.get_future().get() - before_us, 60'000 / num_lanes - TurnQueue::kBurstUs);
  }
}

TEST(TurnQueueTest, ATurnIsTakenAtOnceUnlessOthersHaveUsedTheTime) {
  TurnQueue turns(1);
  EXPECT_TRUE(turns.TryTake(1'000'000));
  EXPECT_FALSE(turns.TryTake(1));
}

TEST(TurnQueueTest, TurnsWaitForWorkThatHadNone) {
  TurnQueue turns(1);
  const int64_t before_us = SteadyClock().NowMicros();
  for (int i = 0; i < 4; ++i) turns.Charge("b", 5'000);
  std::promise<int64_t> turn;
  turns.Push("a", 0, [&turn] { turn.set_value(SteadyClock().NowMicros()); });
  EXPECT_GE(turn.get_future().get() - before_us, 20'000);
}

}  // namespace
}  // namespace quire
