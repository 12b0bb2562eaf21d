// SPDX-License-Identifier: Apache-2.0

#include "serving/acceptor.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/serving/sockets.h"

namespace quire {
namespace {

using ::testing::ElementsAre;

constexpr std::chrono::seconds kLongTime(60);

// Keeps the connections that an acceptor hands over, and greets each with a byte.
class Keeper {
 public:
  ~Keeper() { CloseAll(); }

  Acceptor::Handler Handler() {
    return [this](int fd, const std::string& peer) {
      const MutexLock lock(&mutex_);
      fds_.push_back(fd);
      peers_.push_back(peer);
      EXPECT_EQ(send(fd, "!", 1, MSG_NOSIGNAL), 1);
    };
  }

  void CloseAll() {
    const MutexLock lock(&mutex_);
    for (const int fd : fds_) close(fd);
    fds_.clear();
  }

  std::vector<std::string> peers() {
    const MutexLock lock(&mutex_);
    return peers_;
  }

 private:
  Mutex mutex_;
  std::vector<int> fds_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::string> peers_ QUIRE_GUARDED_BY(mutex_);
};

std::unique_ptr<Acceptor> Start(const std::string& address, AcceptorOptions options, Keeper* keeper) {
  options.port = "test";
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Start(address, options, keeper->Handler());
  EXPECT_TRUE(acceptor.ok()) << acceptor.status();
  return *std::move(acceptor);
}

// Connects to a unix socket and waits for the byte of the keeper. Returns whether it came.
bool IsGreetedAt(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof(name.sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  char byte;
  const bool is_greeted =
      connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 && recv(fd, &byte, 1, 0) == 1;
  close(fd);
  return is_greeted;
}

TEST(AcceptorTest, RefusesConnectionsBeyondTheLimitUntilOneIsClosed) {
  Keeper keeper;
  const auto acceptor = Start("127.0.0.1:0", {.max_connections = 2}, &keeper);
  TestSocket first, second, third, fourth;
  ASSERT_TRUE(first.Connect(acceptor->port()) && second.Connect(acceptor->port(), 2));
  EXPECT_FALSE(first.IsClosed());
  EXPECT_FALSE(second.IsClosed());
  third.Connect(acceptor->port());
  EXPECT_TRUE(third.IsClosed());
  EXPECT_EQ(acceptor->stats().connections, 2);
  EXPECT_EQ(acceptor->stats().max_connections, 2);
  EXPECT_EQ(acceptor->stats().refused_at_limit, 1);
  keeper.CloseAll();
  EXPECT_EQ(acceptor->stats().connections, 0);
  ASSERT_TRUE(fourth.Connect(acceptor->port()));
  EXPECT_FALSE(fourth.IsClosed());
  EXPECT_THAT(keeper.peers(), ElementsAre("127.0.0.1", "127.0.0.2", "127.0.0.1"));
}

TEST(AcceptorTest, AnAddressWithManyConnectionsLeavesRoomForOthers) {
  Keeper keeper;
  const auto acceptor = Start("127.0.0.1:0", {.max_connections = 10, .max_per_address = 2}, &keeper);
  TestSocket first, second, third, other;
  ASSERT_TRUE(first.Connect(acceptor->port()) && second.Connect(acceptor->port()));
  third.Connect(acceptor->port());
  EXPECT_TRUE(third.IsClosed());
  ASSERT_TRUE(other.Connect(acceptor->port(), 2));
  EXPECT_FALSE(other.IsClosed());
}

TEST(AcceptorTest, ConnectionsWaitWhileTheServerMustWait) {
  Keeper keeper;
  std::atomic<int> num_questions = 0;
  const auto acceptor =
      Start("127.0.0.1:0", {.max_connections = 2, .must_wait = [&] { return ++num_questions < 4; }}, &keeper);
  TestSocket socket;
  ASSERT_TRUE(socket.Connect(acceptor->port()));
  EXPECT_FALSE(socket.IsClosed());
  EXPECT_GE(num_questions, 4);
}

TEST(AcceptorTest, AUnixSocketWhoseFileWasRemovedListensAgain) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire_acceptor_test.", getpid());
  Keeper keeper;
  const auto acceptor =
      Start("unix:" + path, {.max_connections = 1000, .probe_interval = std::chrono::milliseconds(20)}, &keeper);
  EXPECT_TRUE(IsGreetedAt(path));
  ASSERT_EQ(unlink(path.c_str()), 0);
  const auto deadline = std::chrono::steady_clock::now() + kLongTime;
  while (!IsGreetedAt(path) && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 5);
  EXPECT_TRUE(IsGreetedAt(path));
  EXPECT_EQ(acceptor->stats().listened_again, 1);
  EXPECT_TRUE(acceptor->stats().is_listening);
  acceptor->Stop();
  EXPECT_NE(access(path.c_str(), F_OK), 0) << "the file stays";
}

TEST(AcceptorTest, ProbesOfAPortThatHearsAreNotConnections) {
  Keeper keeper;
  for (const std::string address : {"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "localhost:0"}) {
    const auto acceptor =
        Start(address, {.max_connections = 1, .probe_interval = std::chrono::milliseconds(1)}, &keeper);
    poll(nullptr, 0, 100);  // There is nothing to wait for: nothing must happen.
    EXPECT_EQ(acceptor->stats().listened_again, 0) << address;
    EXPECT_EQ(acceptor->stats().refused_at_limit, 0) << address;
  }
  EXPECT_THAT(keeper.peers(), ElementsAre());
}

TEST(AcceptorTest, AProbeThatWaitsBehindClientsIsNotAConnection) {
  constexpr int kNumClients = 100;  // The acceptor starts a probe before it has accepted all of them.
  std::atomic<bool> has_begun = false;
  std::atomic<bool> are_waiting = false;
  std::atomic<int> num_connections = 0;
  const absl::StatusOr<std::unique_ptr<Acceptor>> acceptor = Acceptor::Start(
      "127.0.0.1:0",
      {.port = "test", .max_connections = 2 * kNumClients, .probe_interval = std::chrono::milliseconds(1)},
      [&](int fd, const std::string& /*peer*/) {
        has_begun = true;
        while (!are_waiting) poll(nullptr, 0, 1);
        poll(nullptr, 0, 2);  // Longer than the interval.
        close(fd);
        ++num_connections;
      });
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  std::vector<TestSocket> clients(kNumClients);
  const auto deadline = std::chrono::steady_clock::now() + kLongTime;
  for (TestSocket& client : clients) {
    EXPECT_TRUE(client.Connect((*acceptor)->port()));
    while (!has_begun && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 1);
  }
  are_waiting = true;
  while (num_connections < kNumClients && std::chrono::steady_clock::now() < deadline) poll(nullptr, 0, 5);
  poll(nullptr, 0, 100);  // There is nothing to wait for: nothing must happen.
  EXPECT_EQ(num_connections, kNumClients);
  (*acceptor)->Stop();
}

TEST(AcceptorTest, AProbeThatWaitsForALateThreadIsHeard) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire_acceptor_test.", getpid());
  Keeper keeper;
  const auto acceptor = Start("unix:" + path,
                              {.max_connections = 1,
                               .probe_interval = std::chrono::milliseconds(1),
                               .probe_timeout = std::chrono::milliseconds(0)},
                              &keeper);
  poll(nullptr, 0, 100);  // There is nothing to wait for: nothing must happen.
  EXPECT_EQ(acceptor->stats().listened_again, 0);
}

TEST(AcceptorTest, AProbeWithoutFilesToAcceptItSaysNothingAboutThePort) {
  const std::string path = absl::StrCat(testing::TempDir(), "/quire_acceptor_test.", getpid());
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  Keeper keeper;
  const auto acceptor = Start("unix:" + path,
                              {.max_connections = 1,
                               .probe_interval = std::chrono::milliseconds(50),
                               .probe_timeout = std::chrono::milliseconds(0)},
                              &keeper);
  const int next = dup(0);
  close(next);
  // One descriptor is left, which the probe takes.
  const rlimit few{.rlim_cur = static_cast<rlim_t>(next + 1), .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  poll(nullptr, 0, 400);  // There is nothing to wait for: nothing must happen.
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(acceptor->stats().listened_again, 0);
  EXPECT_EQ(acceptor->stats().refused_for_files, 0);
  EXPECT_TRUE(IsGreetedAt(path));
}

TEST(AcceptorTest, AWildcardTakesConnectionsOfIpv4UnderTheirOwnAddress) {
  Keeper keeper;
  const auto acceptor = Start("0.0.0.0:0", {.max_connections = 10}, &keeper);
  TestSocket client;
  ASSERT_TRUE(client.Connect(acceptor->port(), 3));
  EXPECT_FALSE(client.IsClosed());
  EXPECT_THAT(keeper.peers(), ElementsAre("127.0.0.3"));
}

}  // namespace
}  // namespace quire
