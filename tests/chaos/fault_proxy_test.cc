// SPDX-License-Identifier: Apache-2.0

#include "tests/chaos/fault_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr int kLongMs = 60'000;  // Longer than everything that must happen.
constexpr int kBrieflyMs = 100;  // For what must not happen.

// One end of a connection.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(fd_); }

  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  void End() { shutdown(fd_, SHUT_WR); }
  // Reads `num_bytes` bytes, or fewer at the end of the connection or of the time.
  std::string Read(size_t num_bytes, int timeout_ms = kLongMs) {
    std::string bytes;
    while (bytes.size() < num_bytes && WaitForInput(timeout_ms)) {
      char buffer[4096];
      const ssize_t size = recv(fd_, buffer, std::min(sizeof(buffer), num_bytes - bytes.size()), 0);
      if (size <= 0) break;
      bytes.append(buffer, static_cast<size_t>(size));
    }
    return bytes;
  }
  // Whether the other end is closed, or closes in time.
  bool IsClosed(int timeout_ms = kLongMs) {
    char byte;
    return WaitForInput(timeout_ms) && recv(fd_, &byte, 1, MSG_PEEK) <= 0;
  }

 private:
  bool WaitForInput(int timeout_ms) const {
    pollfd polled{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, timeout_ms) == 1;
  }

  const int fd_;
};

int ListenOnAnyPort(std::string* endpoint) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(fd, 8), 0);
  socklen_t size = sizeof(address);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  *endpoint = absl::StrCat("127.0.0.1:", ntohs(address.sin_port));
  return fd;
}

std::unique_ptr<Socket> ConnectTo(const std::string& endpoint) {
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(endpoint.substr(endpoint.find(':') + 1), &port));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return std::make_unique<Socket>(fd);
}

class FaultProxyTest : public ::testing::Test {
 protected:
  FaultProxyTest() : listener_(ListenOnAnyPort(&target_)), proxy_(target_) { Reconnect(); }
  ~FaultProxyTest() override { close(listener_); }

  void Reconnect() {
    client_ = ConnectTo(proxy_.endpoint());
    server_ = std::make_unique<Socket>(accept(listener_, nullptr, nullptr));
  }
  void ExpectWorking() {
    client_->Send("question");
    EXPECT_EQ(server_->Read(8), "question");
    server_->Send("answer");
    EXPECT_EQ(client_->Read(6), "answer");
  }

  std::string target_;
  const int listener_;
  FaultProxy proxy_;
  std::unique_ptr<Socket> client_;
  std::unique_ptr<Socket> server_;
};

TEST_F(FaultProxyTest, PassesBytesAndEndsOn) {
  ExpectWorking();
  const std::string big(3 << 20, 'x');
  std::thread sender([&] { client_->Send(big); });
  EXPECT_EQ(server_->Read(big.size()), big);
  sender.join();
  client_->End();
  EXPECT_TRUE(server_->IsClosed());
  server_->Send("late");
  EXPECT_EQ(client_->Read(4), "late") << "the other direction continues";
  const FaultProxy::Counts counts = proxy_.counts();
  EXPECT_EQ(counts.connections, 1);
  EXPECT_EQ(counts.bytes[FaultProxy::kToServer], static_cast<int64_t>(8 + big.size()));
  EXPECT_EQ(counts.bytes[FaultProxy::kToClient], 10);
}

TEST_F(FaultProxyTest, CutClosesBothEndsAndNewConnectionsWork) {
  ExpectWorking();
  proxy_.Cut();
  EXPECT_TRUE(client_->IsClosed());
  EXPECT_TRUE(server_->IsClosed());
  Reconnect();
  ExpectWorking();
}

TEST_F(FaultProxyTest, DelayedBytesArriveLaterAndInTheirOrder) {
  proxy_.Delay(FaultProxy::kToServer, absl::Milliseconds(300));
  const absl::Time start = absl::Now();
  client_->Send("a");
  client_->Send("b");
  EXPECT_EQ(server_->Read(2), "ab");
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(300));
  server_->Send("x");
  EXPECT_EQ(client_->Read(1), "x");
  proxy_.Delay(FaultProxy::kToServer, absl::Hours(1));
  client_->Send("c");
  EXPECT_EQ(server_->Read(1, kBrieflyMs), "");
}

TEST_F(FaultProxyTest, HeldBytesWaitAndNoneIsLost) {
  proxy_.Hold(FaultProxy::kToClient);
  server_->Send("held");
  EXPECT_EQ(client_->Read(1, kBrieflyMs), "");
  client_->Send("other direction");
  EXPECT_EQ(server_->Read(15), "other direction");
  proxy_.Heal();
  EXPECT_EQ(client_->Read(4), "held");
  ExpectWorking();
}

TEST_F(FaultProxyTest, SwallowedBytesVanishInOneDirection) {
  proxy_.Swallow(FaultProxy::kToServer);
  client_->Send("lost");
  EXPECT_EQ(server_->Read(1, kBrieflyMs), "");
  server_->Send("here");
  EXPECT_EQ(client_->Read(4), "here");
  EXPECT_FALSE(client_->IsClosed(0)) << "nobody is told";
  proxy_.Heal();
  EXPECT_TRUE(client_->IsClosed()) << "a connection with a hole cannot continue";
  Reconnect();
  ExpectWorking();
}

TEST_F(FaultProxyTest, ASwallowedEndIsNotSeenUntilTheFaultIsOver) {
  proxy_.Swallow(FaultProxy::kToServer);
  client_->End();
  EXPECT_FALSE(server_->IsClosed(kBrieflyMs));
  proxy_.Heal();
  EXPECT_TRUE(server_->IsClosed());
}

TEST_F(FaultProxyTest, NewConnectionsAreAcceptedAndSwallowed) {
  proxy_.AcceptAndSwallow();
  ExpectWorking();
  const std::unique_ptr<Socket> other = ConnectTo(proxy_.endpoint());
  other->Send("nobody hears this");
  EXPECT_FALSE(other->IsClosed(kBrieflyMs));
  proxy_.Heal();
  EXPECT_TRUE(other->IsClosed());
  ExpectWorking();
}

TEST_F(FaultProxyTest, ConnectionsAreClosedWhileNobodyListensBehindTheProxy) {
  proxy_.SetTarget("");
  EXPECT_TRUE(ConnectTo(proxy_.endpoint())->IsClosed());
  proxy_.SetTarget("unix:/nowhere/at.all");
  EXPECT_TRUE(ConnectTo(proxy_.endpoint())->IsClosed());
  proxy_.SetTarget(target_);
  Reconnect();
  ExpectWorking();
}

}  // namespace
}  // namespace quire
