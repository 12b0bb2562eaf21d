// SPDX-License-Identifier: Apache-2.0

// SIGTERM under load: running requests finish, new ones are refused, and the process ends in time.

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

constexpr int kTokens = 60;
constexpr int kClients = 6;

v1::GenerateRequest Story(int num_tokens) {
  return LongRequest("Once upon a time", num_tokens);
}

// Clients that send one request after the other until Stop is called or a request is refused.
class Load {
 public:
  explicit Load(Cluster* cluster) {
    const Generation alone = Generate(cluster->client(), Story(kTokens));
    EXPECT_TRUE(alone.status.ok()) << alone.status;
    for (int i = 0; i < kClients; ++i) {
      threads_.emplace_back([this, endpoint = cluster->endpoint(), expected = alone.token_ids] {
        Client client(ClientOptions{.endpoint = endpoint});
        while (!is_over_ && Send(client, expected)) continue;
      });
    }
  }
  ~Load() { Stop(); }

  void Stop() {
    is_over_ = true;
    WaitForRefusals();
  }
  // Waits until every client was refused once.
  void WaitForRefusals() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void WaitForFinished(int num_requests) const {
    while (num_finished_ < num_requests) absl::SleepFor(absl::Milliseconds(1));
  }

  int num_finished() const { return num_finished_; }
  int num_refused() const { return num_refused_; }
  int num_cut() const { return num_cut_; }

 private:
  // Returns false when the request was not served.
  bool Send(Client& client, const std::vector<uint32_t>& expected) {
    const Generation generation = Generate(client, Story(kTokens));
    if (generation.status.ok() && generation.token_ids == expected) {
      ++num_finished_;
      return true;
    }
    if (absl::IsUnavailable(generation.status) && generation.token_ids.empty()) {
      ++num_refused_;
    } else {
      ++num_cut_;
      ADD_FAILURE() << generation.status << " after " << generation.token_ids.size() << " tokens";
    }
    return false;
  }

  std::atomic<bool> is_over_ = false;
  std::atomic<int> num_finished_ = 0;
  std::atomic<int> num_refused_ = 0;
  std::atomic<int> num_cut_ = 0;
  std::vector<std::thread> threads_;
};

std::string Health(const std::string& endpoint, const std::string& service) {
  using ::grpc::health::v1::HealthCheckResponse;
  const auto channel = grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status status = ::grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  return status.ok() ? HealthCheckResponse::ServingStatus_Name(response.status()) : status.error_message();
}

TEST(DrainTest, WorkersThatAreRestartedOneAfterTheOtherCostNoRequest) {
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  Load load(&cluster);
  for (const int i : {0, 1, 0, 1}) {
    load.WaitForFinished(load.num_finished() + 2 * kClients);
    cluster.worker(i).Signal(SIGTERM);
    EXPECT_EQ(cluster.worker(i).Wait(), 0);
    EXPECT_TRUE(absl::StrContains(cluster.worker(i).Output(), "drained")) << cluster.worker(i).Output();
    cluster.RestartWorker(i);
    ASSERT_TRUE(cluster.WaitUntilReady());
  }
  load.Stop();
  EXPECT_EQ(load.num_refused(), 0);
  EXPECT_EQ(load.num_cut(), 0);
}

TEST(DrainTest, AManagerUnderLoadCutsNoStreamAndRefusesWhatIsNew) {
  Cluster cluster({.model = BundledModel()});
  // The client of this stream does not read on until the drain is almost over.
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(Story(900), absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  Load load(&cluster);
  load.WaitForFinished(2 * kClients);
  EXPECT_EQ(Health(cluster.endpoint(), "readiness"), "SERVING");
  cluster.manager().Signal(SIGTERM);
  ASSERT_NE(cluster.manager().WaitForLine("draining"), "") << cluster.manager().Output();
  EXPECT_EQ(Health(cluster.endpoint(), "readiness"), "NOT_SERVING");
  EXPECT_EQ(Health(cluster.endpoint(), "quire.v1.InferenceService"), "NOT_SERVING");
  EXPECT_EQ(Health(cluster.endpoint(), "liveness"), "SERVING");
  load.WaitForRefusals();
  EXPECT_EQ(load.num_refused(), kClients);
  EXPECT_EQ(load.num_cut(), 0);
  int num_tokens = response.token_ids_size();
  while (stream->Next(&response)) num_tokens += response.token_ids_size();
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(num_tokens, 900);
  EXPECT_EQ(cluster.manager().Wait(), 0);
  EXPECT_TRUE(absl::StrContains(cluster.manager().Output(), "drained")) << cluster.manager().Output();
}

TEST(DrainTest, ManagerAndWorkerToldTogetherStillFinishWhatRuns) {
  Cluster cluster({.model = BundledModel()});
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(Story(900), absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  cluster.worker(0).Signal(SIGTERM);
  cluster.manager().Signal(SIGTERM);
  int num_tokens = response.token_ids_size();
  while (stream->Next(&response)) num_tokens += response.token_ids_size();
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(num_tokens, 900);
  EXPECT_EQ(cluster.manager().Wait(), 0);
  EXPECT_EQ(cluster.worker(0).Wait(), 0);
}

// Paused workers answer nothing, so the stream cannot end by itself.
TEST(DrainTest, TheTimeoutEndsWhatStillRuns) {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--drain-timeout=200ms"}});
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(Story(900), absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  cluster.worker(0).Signal(SIGSTOP);
  const absl::Time start = absl::Now();
  cluster.manager().Signal(SIGTERM);
  while (stream->Next(&response)) {
  }
  EXPECT_EQ(stream->Finish().code(), absl::StatusCode::kUnavailable) << stream->Finish();
  EXPECT_EQ(cluster.manager().Wait(), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(15)) << "200 ms, and what a busy machine needs";
}

TEST(DrainTest, AManagerThatStartsMeanwhileWaitsForTheAddressOfTheOneBefore) {
  Cluster cluster({.model = BundledModel()});
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(Story(900), absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  cluster.worker(0).Signal(SIGSTOP);
  cluster.manager().Signal(SIGTERM);
  ASSERT_NE(cluster.manager().WaitForLine("draining"), "") << cluster.manager().Output();
  Process next(cluster.ManagerCommand());
  ASSERT_NE(next.WaitForLine("another process listens at"), "") << next.Output();
  EXPECT_FALSE(next.HasEnded());
  cluster.worker(0).Signal(SIGCONT);
  while (stream->Next(&response)) {
  }
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(cluster.manager().Wait(), 0);
  EXPECT_NE(next.WaitForLine("listening on"), "") << next.Output();
}

TEST(DrainTest, ASecondSignalEndsTheProcessAtOnce) {
  Cluster cluster({.model = BundledModel(), .manager_flags = {"--drain-timeout=1h"}});
  const std::unique_ptr<GenerateStream> stream = cluster.client().Generate(Story(900), absl::Seconds(120));
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Next(&response));
  cluster.worker(0).Signal(SIGSTOP);
  cluster.manager().Signal(SIGTERM);
  ASSERT_NE(cluster.manager().WaitForLine("draining"), "") << cluster.manager().Output();
  cluster.manager().Signal(SIGTERM);
  EXPECT_EQ(cluster.manager().Wait(), 128 + SIGTERM);
}

}  // namespace
}  // namespace quire
