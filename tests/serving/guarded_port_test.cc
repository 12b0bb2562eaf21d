// SPDX-License-Identifier: Apache-2.0

#include "serving/guarded_port.h"

#include <algorithm>
#include <future>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "serving/guarded_sockets.h"
#include "tests/serving/frames.h"

namespace quire {
namespace {

constexpr int64_t kHeldPerCall = FrameGuard::kBytesPerStream + 6 * FrameGuard::kBytesPerField;

// A client that begins calls and ends none.
class Client {
 public:
  explicit Client(const std::shared_ptr<GuardedPort>& port) : connection_(port, "somebody", -1) {
    connection_.Receive(frames::Preface());
  }

  void Call(int count) {
    for (int i = 0; i < count; ++i) {
      stream_ += 2;
      connection_.Receive(frames::Frame(frames::kHeaders, frames::kEndHeaders, stream_, frames::CallFields("/a")));
    }
  }

  bool is_ended() const { return connection_.is_ended(); }

 private:
  GuardedConnection connection_;
  uint32_t stream_ = static_cast<uint32_t>(-1);
};

TEST(GuardedPortTest, AConnectionThatHoldsMoreThanHalfIsEnded) {
  const auto port = std::make_shared<GuardedPort>("test", 20 * kHeldPerCall);
  Client client(port);
  client.Call(10);
  EXPECT_FALSE(client.is_ended());
  client.Call(1);
  EXPECT_TRUE(client.is_ended());
  EXPECT_EQ(port->num_ended(), 1);
  Client second(port), third(port);
  second.Call(10);
  third.Call(10);
  EXPECT_EQ(port->num_ended(), 1) << "what was ended holds nothing";
}

TEST(GuardedPortTest, WhenAllHoldTooMuchTheOneThatHoldsMostIsEnded) {
  const auto port = std::make_shared<GuardedPort>("test", 20 * kHeldPerCall);
  Client small(port), large(port), medium(port);
  large.Call(9);
  medium.Call(6);
  small.Call(5);
  EXPECT_EQ(port->num_ended(), 0);
  small.Call(1);
  EXPECT_TRUE(large.is_ended());
  EXPECT_FALSE(medium.is_ended() || small.is_ended());
  medium.Call(4);
  small.Call(4);
  EXPECT_EQ(port->num_ended(), 1) << "20 calls have room";
}

TEST(GuardedPortTest, AConnectionThatIsGoneHoldsNothing) {
  const auto port = std::make_shared<GuardedPort>("test", 20 * kHeldPerCall);
  {
    Client client(port);
    client.Call(10);
  }
  Client second(port), third(port);
  second.Call(10);
  third.Call(10);
  EXPECT_EQ(port->num_ended(), 0);
}

TEST(GuardedPortTest, ConnectionsWaitForTheCallsOfThoseThatAreGone) {
  const auto port = std::make_shared<GuardedPort>("test", 1 << 30);
  constexpr int kMax = GuardedPort::kMaxAbandonedCalls;
  port->AddCalls(kMax + 1);
  {
    Client client(port);
    client.Call(1);
    EXPECT_FALSE(port->MustWait());
  }
  EXPECT_TRUE(port->MustWait());
  port->AddCalls(-1);
  EXPECT_FALSE(port->MustWait());
}

TEST(GuardedPortTest, TheConnectionThatBeginsMostCallsBeforeTheServerCanEndThemIsEnded) {
  const auto port = std::make_shared<GuardedPort>("test", 1 << 30);
  Client earlier(port), attacker(port), neighbour(port);
  earlier.Call(100);
  port->AddCalls(GuardedPort::kMaxAbandonedCalls + 200);
  neighbour.Call(1);
  port->AddCalls(GuardedPort::kFarTooManyAbandonedCalls);
  neighbour.Call(98);
  EXPECT_EQ(port->num_ended(), 0);
  attacker.Call(100);
  EXPECT_TRUE(attacker.is_ended());
  neighbour.Call(1);
  EXPECT_FALSE(neighbour.is_ended() || earlier.is_ended());
}

TEST(GuardedPortTest, AConnectionPaysForTheWorkOfItsCalls) {
  constexpr int64_t kWorkUs = 10'000'000;
  const auto port = std::make_shared<GuardedPort>("test", 20 * kHeldPerCall);
  const auto connection = std::make_shared<GuardedConnection>(port, "somebody", -1);
  EXPECT_GT(connection->BytesToRead(), 0u);
  connection->AddWork(kWorkUs);
  connection->BytesToRead();  // It may take a turn at once, and the next one comes late.
  connection->AddWork(kWorkUs);
  EXPECT_EQ(connection->BytesToRead(), 0u);
}

TEST(GuardedPortTest, ConnectionsWaitAfterOneWasEnded) {
  const auto port = std::make_shared<GuardedPort>("test", 2 * kHeldPerCall);
  constexpr int kNumEnded = 5;
  const int64_t before_us = SteadyClock().NowMicros();
  for (int i = 0; i < kNumEnded; ++i) {
    Client client(port);
    client.Call(2);
    ASSERT_TRUE(client.is_ended());
  }
  std::promise<int64_t> turn;
  TurnQueue* const turns = GuardedSockets::Instance().turns();
  turns->Push("somebody", GuardedPort::kConnectionPriceUs, [&] { turn.set_value(SteadyClock().NowMicros()); });
  const int num_lanes = std::max(1, static_cast<int>(std::thread::hardware_concurrency() / 2));
  EXPECT_GE(turn.get_future().get() - before_us, kNumEnded * GuardedPort::kEndedPriceUs / num_lanes);
}

}  // namespace
}  // namespace quire
