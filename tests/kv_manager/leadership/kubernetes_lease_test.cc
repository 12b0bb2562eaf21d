// SPDX-License-Identifier: Apache-2.0

// The lease in Kubernetes, against a server in this process that answers like the API server.
#include "kv_manager/leadership/kubernetes_lease.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace quire {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr absl::Duration kCallTime = absl::Seconds(20);
constexpr int64_t kSecond = 1'000'000;
constexpr char kPath[] = "/apis/coordination.k8s.io/v1/namespaces/quire/leases/quire-manager";

// One Lease object behind HTTP/1.1 on a port of this machine. It closes the connection after each answer.
class FakeApiServer {
 public:
  FakeApiServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    url_ = absl::StrCat("http://127.0.0.1:", ntohs(address.sin_port));
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeApiServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  const std::string& url() const { return url_; }
  json lease() const {
    const MutexLock lock(&mutex_);
    return lease_;
  }
  // Another client of the API changes the object.
  template <typename Change>
  void Edit(Change change) {
    const MutexLock lock(&mutex_);
    change(lease_);
    Bump();
  }
  // The next write is done, but its answer is lost.
  void LoseNextWrite() {
    const MutexLock lock(&mutex_);
    loses_write_ = true;
  }
  // All calls are answered with this code, unless it is 0.
  void FailWith(int code) {
    const MutexLock lock(&mutex_);
    failure_ = code;
  }
  std::string last_token() const {
    const MutexLock lock(&mutex_);
    return last_token_;
  }

 private:
  struct Answer {
    int code;
    std::string body;
  };

  void Serve() {
    for (int fd = accept(listener_, nullptr, nullptr); fd >= 0; fd = accept(listener_, nullptr, nullptr)) {
      ServeOne(fd);
      close(fd);
    }
  }

  void ServeOne(int fd) {
    std::string text;
    size_t head_end = std::string::npos;
    size_t need = 0;
    while (head_end == std::string::npos || text.size() < need) {
      char part[4096];
      const ssize_t count = read(fd, part, sizeof part);
      if (count <= 0) return;
      text.append(part, static_cast<size_t>(count));
      if (head_end != std::string::npos) continue;
      head_end = text.find("\r\n\r\n");
      if (head_end == std::string::npos) continue;
      int length = 0;
      const std::string number = Header(text, "Content-Length: ");
      EXPECT_TRUE(number.empty() || absl::SimpleAtoi(number, &length));
      need = head_end + 4 + static_cast<size_t>(length);
    }
    const bool is_write = absl::StartsWith(text, "PUT ");
    EXPECT_EQ(text.substr(4, text.find(' ', 4) - 4), kPath);
    const Answer answer = Handle(is_write, text.substr(head_end + 4), Header(text, "Authorization: Bearer "));
    if (answer.code == 0) return;
    const std::string reply =
        absl::StrCat("HTTP/1.1 ", answer.code, " X\r\nConnection: close\r\nContent-Type: application/json\r\n",
                     "Content-Length: ", answer.body.size(), "\r\n\r\n", answer.body);
    EXPECT_EQ(write(fd, reply.data(), reply.size()), static_cast<ssize_t>(reply.size()));
  }

  static std::string Header(const std::string& text, const std::string& name) {
    const size_t start = text.find(name);
    if (start == std::string::npos) return "";
    return text.substr(start + name.size(), text.find("\r\n", start) - start - name.size());
  }

  Answer Handle(bool is_write, const std::string& body, const std::string& token) {
    const MutexLock lock(&mutex_);
    last_token_ = token;
    if (failure_ != 0) return {failure_, R"({"kind":"Status","message":"you may not"})"};
    if (!is_write) return {200, lease_.dump()};
    const json changed = json::parse(body);
    if (changed["metadata"]["resourceVersion"] != lease_["metadata"]["resourceVersion"]) {
      return {409, R"({"kind":"Status","message":"the object has been modified"})"};
    }
    lease_ = changed;
    Bump();
    if (std::exchange(loses_write_, false)) return {0, ""};
    return {200, lease_.dump()};
  }

  void Bump() QUIRE_REQUIRES(mutex_) { lease_["metadata"]["resourceVersion"] = absl::StrCat("v", ++version_); }

  const int listener_;
  std::string url_;
  mutable Mutex mutex_;
  json lease_ QUIRE_GUARDED_BY(mutex_) = {{"kind", "Lease"}, {"metadata", {{"resourceVersion", "v0"}}}};
  int version_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool loses_write_ QUIRE_GUARDED_BY(mutex_) = false;
  int failure_ QUIRE_GUARDED_BY(mutex_) = 0;
  std::string last_token_ QUIRE_GUARDED_BY(mutex_);
  std::thread thread_;
};

class KubernetesLeaseTest : public ::testing::Test {
 protected:
  KubernetesLeaseTest() {
    char folder[] = "/tmp/quire-account.XXXXXX";
    account_ = mkdtemp(folder);
    WriteFile("namespace", "quire\n");
    WriteFile("token", "secret-1\n");
  }
  ~KubernetesLeaseTest() override { std::filesystem::remove_all(account_); }

  void WriteFile(const std::string& name, const std::string& text) { std::ofstream(account_ + "/" + name) << text; }

  KubernetesLease Candidate(const std::string& name) {
    return KubernetesLease({.api = server_.url(),
                            .credentials = account_,
                            .name = "quire-manager",
                            .candidate = name,
                            .duration = absl::Seconds(4)},
                           &clock_);
  }

  FakeApiServer server_;
  ManualClock clock_;
  std::string account_;
};

TEST_F(KubernetesLeaseTest, TheFirstCandidateGetsTheLeaseAndTheSecondReadsItsAddress) {
  KubernetesLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  const absl::StatusOr<LeaseHolder> holder = first.TryAcquire(kCallTime);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
  EXPECT_EQ(holder->term, 2u);  // One change of the holder.
  const json spec = server_.lease()["spec"];
  EXPECT_EQ(spec["holderIdentity"], "a:1_x");
  EXPECT_EQ(spec["leaseTransitions"], 1);
  EXPECT_EQ(spec["leaseDurationSeconds"], 4);
  EXPECT_THAT(spec["renewTime"].get<std::string>(), ::testing::MatchesRegex("....-..-..T..:..:.*Z"));
  const absl::StatusOr<LeaseHolder> seen = second.TryAcquire(kCallTime);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_FALSE(seen->is_me);
  EXPECT_EQ(seen->address, "a:1");
  EXPECT_EQ(first.Renew(kCallTime), absl::OkStatus());
}

// The clock of the machine that wrote the object does not count.
TEST_F(KubernetesLeaseTest, ACandidateWaitsForTheDurationSinceItSawTheLastChangeWhateverTheTimesInTheObject) {
  KubernetesLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  ASSERT_TRUE(first.TryAcquire(kCallTime)->is_me);
  EXPECT_FALSE(second.TryAcquire(kCallTime)->is_me);
  server_.Edit([](json& lease) { lease["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"; });
  EXPECT_FALSE(second.TryAcquire(kCallTime)->is_me);
  clock_.Advance(3 * kSecond);
  ASSERT_EQ(first.Renew(kCallTime), absl::OkStatus());
  EXPECT_FALSE(second.TryAcquire(kCallTime)->is_me);
  clock_.Advance(4 * kSecond);
  EXPECT_FALSE(second.TryAcquire(kCallTime)->is_me);
  clock_.Advance(1);
  const absl::StatusOr<LeaseHolder> holder = second.TryAcquire(kCallTime);
  ASSERT_TRUE(holder.ok()) << holder.status();
  EXPECT_TRUE(holder->is_me);
  EXPECT_EQ(holder->term, 3u);
  const absl::Status renewed = first.Renew(kCallTime);
  EXPECT_EQ(renewed.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(renewed.message()), HasSubstr("the Lease quire-manager has another holder, 'b:1_y'"));
}

TEST_F(KubernetesLeaseTest, AnOrderlyEndFreesTheLeaseAtOnceAndKeepsTheTerm) {
  KubernetesLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  ASSERT_TRUE(first.TryAcquire(kCallTime)->is_me);
  EXPECT_EQ(first.Release(kCallTime), absl::OkStatus());
  EXPECT_FALSE(server_.lease()["spec"].contains("holderIdentity"));
  EXPECT_EQ(second.TryAcquire(kCallTime)->term, 3u);
}

TEST_F(KubernetesLeaseTest, ALeaseThatWasTakenWithoutAnAnswerIsGivenBack) {
  KubernetesLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  server_.LoseNextWrite();
  EXPECT_FALSE(first.TryAcquire(kCallTime).ok());
  EXPECT_EQ(first.Release(kCallTime), absl::OkStatus());
  EXPECT_TRUE(second.TryAcquire(kCallTime)->is_me);
  EXPECT_EQ(first.Release(kCallTime), absl::OkStatus()) << "it holds nothing any more";
  EXPECT_EQ(second.Renew(kCallTime), absl::OkStatus());
}

TEST_F(KubernetesLeaseTest, ACandidateWhoseAnswerWasLostFindsThatItHoldsTheLease) {
  KubernetesLease first = Candidate("a:1_x");
  server_.LoseNextWrite();
  EXPECT_FALSE(first.TryAcquire(kCallTime).ok());
  EXPECT_EQ(first.TryAcquire(kCallTime)->term, 2u);
  server_.LoseNextWrite();
  EXPECT_EQ(first.Renew(kCallTime).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(first.Renew(kCallTime), absl::OkStatus());
}

TEST_F(KubernetesLeaseTest, WhatOthersHaveAddedToTheObjectStays) {
  KubernetesLease first = Candidate("a:1_x");
  ASSERT_TRUE(first.TryAcquire(kCallTime)->is_me);
  server_.Edit([](json& lease) { lease["metadata"]["annotations"]["owner"] = "team"; });
  EXPECT_EQ(first.Renew(kCallTime), absl::OkStatus());
  EXPECT_EQ(server_.lease()["metadata"]["annotations"]["owner"], "team");
  EXPECT_EQ(server_.lease()["spec"]["holderIdentity"], "a:1_x");
}

TEST_F(KubernetesLeaseTest, ACandidateThatWasTooSlowDoesNotLead) {
  KubernetesLease first = Candidate("a:1_x"), second = Candidate("b:1_y");
  ASSERT_TRUE(first.TryAcquire(kCallTime)->is_me);
  ASSERT_FALSE(second.TryAcquire(kCallTime)->is_me);
  // Both find the lease free, and one of them writes first.
  server_.Edit([](json& lease) { lease["spec"].erase("holderIdentity"); });
  EXPECT_TRUE(second.TryAcquire(kCallTime)->is_me);
  EXPECT_EQ(first.Renew(kCallTime).code(), absl::StatusCode::kAborted);
}

TEST_F(KubernetesLeaseTest, ARefusalOfTheServerIsAnErrorWithItsReason) {
  KubernetesLease first = Candidate("a:1_x");
  server_.FailWith(403);
  const absl::Status status = first.TryAcquire(kCallTime).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("GET ", server_.url(), kPath, ": HTTP 403: you may not"));
}

TEST_F(KubernetesLeaseTest, AnObjectThatIsNoLeaseIsAnError) {
  KubernetesLease first = Candidate("a:1_x");
  server_.Edit([](json& lease) { lease["spec"] = 7; });
  EXPECT_THAT(std::string(first.TryAcquire(kCallTime).status().message()), HasSubstr("is no Lease object"));
}

TEST_F(KubernetesLeaseTest, TheTokenIsReadForEachCall) {
  KubernetesLease first = Candidate("a:1_x");
  ASSERT_TRUE(first.TryAcquire(kCallTime)->is_me);
  EXPECT_EQ(server_.last_token(), "secret-1");
  WriteFile("token", "secret-2");
  ASSERT_TRUE(first.Renew(kCallTime).ok());
  EXPECT_EQ(server_.last_token(), "secret-2");
}

TEST_F(KubernetesLeaseTest, AServerThatCannotBeReachedIsAnErrorWithoutTheToken) {
  KubernetesLease lost({.api = "http://127.0.0.1:1",
                        .credentials = account_,
                        .name = "quire-manager",
                        .candidate = "a:1_x",
                        .duration = absl::Seconds(4)},
                       &clock_);
  const absl::Status status = lost.TryAcquire(kCallTime).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(absl::StrContains(status.message(), "secret")) << status;
}

}  // namespace
}  // namespace quire
