// SPDX-License-Identifier: Apache-2.0

// The streams of a leader that is lost continue with the standby, which takes over what the workers have kept.

#include <atomic>
#include <csignal>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"
#include "tests/e2e/two_managers.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNumTokens = 400;

class StandbyStreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (EtcdPath().empty()) GTEST_SKIP() << "etcd is not installed (Debian: etcd-server)";
    managers_ = std::make_unique<TwoManagers>(TwoManagersOptions{.lease = absl::Seconds(6), .num_workers = 2});
    leader_ = managers_->AwaitLeader({0, 1});
    ASSERT_NE(leader_, -1);
  }

  // A request for which a simulated worker needs at least four seconds, because each step takes 10 ms.
  static v1::GenerateRequest Long(int number) {
    v1::GenerateRequest request =
        GreedyRequest(absl::StrCat("Once upon a time there were ", number, " foxes"), kNumTokens);
    request.set_request_id(absl::StrCat("story-", number));
    request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
    request.mutable_stopping()->set_ignore_eos(true);
    request.mutable_sampling()->set_temperature(0.8);
    request.mutable_sampling()->set_seed(static_cast<uint64_t>(number));
    if (number == 2) request.set_n(2);
    return request;
  }

  // Starts the streams and waits until all of them have a token.
  void Begin(int num_streams) {
    streams_.resize(num_streams);
    for (int i = 0; i < num_streams; ++i) clients_.emplace_back([this, i] { Read(i, &streams_[i]); });
    while (num_begun_ < num_streams) absl::SleepFor(absl::Milliseconds(1));
  }

  // Waits for the ends of the streams. All of them must have what a client gets that sees no loss.
  void ExpectWhole() {
    for (std::thread& client : clients_) client.join();
    std::vector<Generations> expected(streams_.size());
    std::vector<std::thread> others;
    for (size_t i = 0; i < streams_.size(); ++i) {
      others.emplace_back([this, i, &result = expected[i]] {
        v1::GenerateRequest request = Long(static_cast<int>(i));
        request.clear_request_id();
        result = GenerateAll(managers_->client(leader_), request);
      });
    }
    for (std::thread& other : others) other.join();
    for (size_t i = 0; i < streams_.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(streams_[i].status, absl::OkStatus());
      ASSERT_EQ(streams_[i].tokens.size(), expected[i].samples.size());
      for (size_t sample = 0; sample < expected[i].samples.size(); ++sample) {
        EXPECT_EQ(expected[i].samples[sample].token_ids.size(), static_cast<size_t>(kNumTokens));
        EXPECT_EQ(streams_[i].tokens.at(static_cast<uint32_t>(sample)), expected[i].samples[sample].token_ids);
      }
    }
  }

  struct Stream {
    absl::Status status;
    std::map<uint32_t, std::vector<uint32_t>> tokens;  // By sample.
  };

  void Read(int number, Stream* stream) {
    Client client({.endpoint = managers_->endpoints()});
    const std::unique_ptr<GenerateStream> call = client.Generate(Long(number), absl::Minutes(3));
    v1::GenerateResponse response;
    while (call->Next(&response)) {
      if (response.token_ids_size() == 0) continue;
      num_begun_ += stream->tokens.empty();
      std::vector<uint32_t>& tokens = stream->tokens[response.index()];
      tokens.insert(tokens.end(), response.token_ids().begin(), response.token_ids().end());
    }
    stream->status = call->Finish();
  }

  std::unique_ptr<TwoManagers> managers_;
  int leader_ = -1;
  std::vector<std::thread> clients_;
  std::vector<Stream> streams_;
  std::atomic<int> num_begun_ = 0;
};

TEST_F(StandbyStreamsTest, ContinueWhenTheLeaderIsKilled) {
  Begin(/*num_streams=*/4);
  managers_->manager(leader_).Signal(SIGKILL);
  managers_->manager(leader_).Wait();
  const int next = 1 - leader_;
  ASSERT_EQ(managers_->AwaitLeader({next}), next) << managers_->manager(next).Output();
  leader_ = next;
  EXPECT_NE(managers_->manager(leader_).WaitForLine("of another manager: "), "");
  ExpectWhole();
}

TEST_F(StandbyStreamsTest, ContinueAtOnceWhenTheLeaderGetsSigterm) {
  Begin(/*num_streams=*/3);
  Process& old = managers_->manager(leader_);
  old.Signal(SIGTERM);
  const int next = 1 - leader_;
  ASSERT_EQ(managers_->AwaitLeader({next}), next) << managers_->manager(next).Output();
  leader_ = next;
  EXPECT_EQ(old.Wait(), 0) << old.Output();
  EXPECT_THAT(old.Output(), HasSubstr("gave the lease back"));
  // The old leader has not waited for their ends.
  EXPECT_THAT(old.Output(), HasSubstr(" for the next manager"));
  EXPECT_NE(managers_->manager(leader_).WaitForLine("of another manager: "), "");
  ExpectWhole();
}

// The leader that stops waits for a request that cannot be resumed, and takes no new one meanwhile.
TEST_F(StandbyStreamsTest, ANewRequestGoesToTheNextLeaderWhileTheOneBeforeWaitsForOthers) {
  Process& old = managers_->manager(leader_);
  std::atomic<bool> has_begun = false;
  Generations last;
  std::thread reader([&] {
    v1::GenerateRequest request = Long(0);
    request.set_on_disconnect(v1::ON_DISCONNECT_ABORT);
    last = GenerateAll(managers_->client(leader_), request, absl::Minutes(2), [&] { has_begun = true; });
  });
  while (!has_begun) absl::SleepFor(absl::Milliseconds(1));
  old.Signal(SIGTERM);
  EXPECT_NE(old.WaitForLine("draining: "), "");
  EXPECT_EQ(GenerateAll(managers_->client(leader_), GreedyRequest("Once", 3)).status.code(),
            absl::StatusCode::kUnavailable);
  Client client({.endpoint = managers_->endpoints()});
  const Generations next = GenerateAll(client, Long(1));
  EXPECT_EQ(next.status, absl::OkStatus());
  EXPECT_EQ(next.usage.completion_tokens(), static_cast<uint32_t>(kNumTokens));
  reader.join();
  EXPECT_EQ(last.status, absl::OkStatus());
  EXPECT_EQ(old.Wait(), 0) << old.Output();
}

TEST_F(StandbyStreamsTest, ContinueWhenTheLeaderStopsForLongerThanTheLeaseAndThenContinues) {
  Begin(/*num_streams=*/3);
  Process& old = managers_->manager(leader_);
  old.Signal(SIGSTOP);
  const int next = 1 - leader_;
  ASSERT_EQ(managers_->AwaitLeader({next}), next) << managers_->manager(next).Output();
  leader_ = next;
  EXPECT_NE(managers_->manager(leader_).WaitForLine("of another manager: "), "");
  const auto before = managers_->client(leader_).GetStatus();
  // The clients still have connections to the old leader, which ends them when it continues.
  old.Signal(SIGCONT);
  EXPECT_EQ(old.Wait(), 3) << old.Output();
  ExpectWhole();
  // No plan of the old leader was accepted: the sessions of the new one are the same, and it has lost none.
  const auto after = managers_->client(leader_).GetStatus();
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_EQ(after->workers(worker).epoch(), before->workers(worker).epoch());
  }
  EXPECT_THAT(managers_->manager(leader_).Output(), Not(HasSubstr(" lost in epoch ")));
}

}  // namespace
}  // namespace quire
