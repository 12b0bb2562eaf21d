// SPDX-License-Identifier: Apache-2.0

// Whole requests with all the threads that meet in the manager: the thread of the engine brings tokens, output threads
// run text jobs, threads of the client complete writes, and more threads abort or leave. Meant for ThreadSanitizer.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/thread_pool.h"
#include "kv_manager/requests/client_request.h"
#include "kv_manager/requests/job_queue.h"
#include "tests/kv_manager/requests/fake_engine.h"
#include "tests/kv_manager/requests/toy_model.h"

namespace quire {
namespace {

constexpr int kMaxTokens = 40;

// A client whose reads complete on the threads of `readers`.
class ThreadedClient : public ResponseWriter, public std::enable_shared_from_this<ThreadedClient> {
 public:
  // The text jobs run on the output threads of the environment, or in `jobs` if it is given, as in a batch.
  static std::shared_ptr<ThreadedClient> New(RequestEnvironment* environment, ThreadPool* readers,
                                             const v1::GenerateRequest& request, JobQueue* jobs) {
    const auto client = std::make_shared<ThreadedClient>(readers);
    const auto run_later = [=](std::function<void()> job) {
      if (jobs == nullptr) return environment->text_threads.RunOutput(std::move(job));
      if (jobs->Add(std::move(job))) environment->text_threads.RunOutput([jobs] { jobs->Run(); });
    };
    client->request_.emplace(environment, std::nullopt, std::nullopt, request, client.get(), run_later);
    return client;
  }
  explicit ThreadedClient(ThreadPool* readers) : readers_(readers) {}

  void WriteResponse(const v1::GenerateResponse* response) override {
    {
      const MutexLock lock(&mutex_);
      Take(*response);
    }
    readers_->Schedule([self = shared_from_this()] { self->request().OnWritten(!self->has_left_); });
  }
  void LimitWrite() override { ++num_limits_; }
  void EndCall(const v1::GenerateResponse* response, const absl::Status& status) override {
    const MutexLock lock(&mutex_);
    EXPECT_FALSE(status_.has_value()) << "a request ends once";
    if (response != nullptr) Take(*response);
    status_ = status;
    ended_.NotifyAll();
  }

  // Makes all later reads fail.
  void Leave() {
    has_left_ = true;
    request().Leave();
  }

  absl::Status WaitForEnd() {
    const MutexLock lock(&mutex_);
    while (!status_.has_value()) ended_.Wait(&mutex_);
    EXPECT_LE(num_limits_, 1);
    return *status_;
  }
  int num_tokens() const {
    const MutexLock lock(&mutex_);
    return num_tokens_;
  }
  bool has_usage() const {
    const MutexLock lock(&mutex_);
    return has_usage_;
  }
  ClientRequest& request() { return *request_; }

 private:
  void Take(const v1::GenerateResponse& response) QUIRE_REQUIRES(mutex_) {
    num_tokens_ += response.token_ids_size();
    has_usage_ = has_usage_ || response.has_usage();
  }

  ThreadPool* const readers_;
  std::optional<ClientRequest> request_;
  std::atomic<bool> has_left_ = false;
  std::atomic<int> num_limits_ = 0;
  mutable Mutex mutex_;
  CondVar ended_;
  std::optional<absl::Status> status_ QUIRE_GUARDED_BY(mutex_);
  int num_tokens_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool has_usage_ QUIRE_GUARDED_BY(mutex_) = false;
};

v1::GenerateRequest SampledRequest(const std::string& name, int num_samples) {
  v1::GenerateRequest request;
  request.set_request_id(name);
  request.set_text(name);
  request.set_n(num_samples);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_stopping()->set_max_tokens(kMaxTokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// Runs 24 requests at once. Every third is aborted and every third left by its client, at any moment of its life.
void RunManyRequests(bool in_one_queue) {
  FakeEngine engine(ToyModel());
  JobQueue jobs;
  RequestEnvironment environment(&engine, {.num_text_threads = 3});
  ThreadPool readers(2);
  std::vector<std::shared_ptr<ThreadedClient>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < 24; ++i) {
    const v1::GenerateRequest request = SampledRequest(absl::StrCat("r", i), 1 + i % 3);
    clients.push_back(ThreadedClient::New(&environment, &readers, request, in_one_queue ? &jobs : nullptr));
    threads.emplace_back([client = clients.back()] { client->request().Start(int64_t{1} << 60); });
    if (i % 3 == 0) continue;
    threads.emplace_back([&environment, client = clients.back(), i, name = request.request_id()] {
      std::minstd_rand random(i + 1);
      for (uint32_t n = random() % 200; n > 0; --n) std::this_thread::yield();
      if (i % 3 == 2) return client->Leave();
      if (const auto stream = environment.registry.Find(std::nullopt, name); stream.ok()) (*stream)->Abort();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 24; ++i) {
    const absl::Status status = clients[i]->WaitForEnd();
    if (i % 3 == 2 && absl::IsCancelled(status)) continue;
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(clients[i]->has_usage()) << i;
    if (i % 3 != 0) continue;
    EXPECT_EQ(clients[i]->num_tokens(), kMaxTokens * (1 + i % 3)) << i;
  }
  engine.WaitUntilIdle();
  EXPECT_TRUE(environment.registry.Names().empty());
  clients.clear();
  EXPECT_TRUE(environment.registry.WaitForReaders(absl::Seconds(60))) << "jobs may still hold a client";
}

TEST(ClientRequestThreadsTest, RequestsEndOnceAndLeaveNothingBehind) {
  RunManyRequests(/*in_one_queue=*/false);
}

TEST(ClientRequestThreadsTest, TheSameWithTheTextJobsOfABatch) {
  RunManyRequests(/*in_one_queue=*/true);
}

v1::GenerateRequest DetachedRequest() {
  v1::GenerateRequest request = SampledRequest("r", 2);
  request.set_on_disconnect(v1::ON_DISCONNECT_DETACH);
  request.mutable_sampling()->set_seed(5);
  return request;
}

// Calls take the stream of one request from each other and leave, at any moment. The last one gets everything.
void RunManyReaders(bool in_one_queue, int round) {
  FakeEngine engine(ToyModel());
  JobQueue jobs;
  RequestEnvironment environment(&engine, {.num_text_threads = 3});
  ThreadPool readers(2);
  const auto new_client = [&] {
    return ThreadedClient::New(&environment, &readers, DetachedRequest(), in_one_queue ? &jobs : nullptr);
  };
  std::vector<std::shared_ptr<ThreadedClient>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(new_client());
    threads.emplace_back([client = clients.back()] { client->request().Start(int64_t{1} << 60); });
    if (i % 3 == 0) continue;
    threads.emplace_back([client = clients.back(), seed = 100 * round + i] {
      std::minstd_rand random(seed + 1);
      for (uint32_t n = random() % 200; n > 0; --n) std::this_thread::yield();
      client->Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  clients.push_back(new_client());
  clients.back()->request().Start(int64_t{1} << 60);
  for (const auto& client : clients) {
    const absl::Status status = client->WaitForEnd();
    const bool is_last = client == clients.back();
    EXPECT_TRUE(status.ok() || (!is_last && (absl::IsCancelled(status) || absl::IsAborted(status)))) << status;
    if (!status.ok()) continue;
    EXPECT_EQ(client->num_tokens(), 2 * kMaxTokens);
    EXPECT_TRUE(client->has_usage());
  }
  EXPECT_EQ(engine.requests().size(), 1u);
  clients.clear();
  EXPECT_TRUE(environment.registry.WaitForReaders(absl::Seconds(60))) << "jobs may still hold a client";
}

TEST(ClientRequestThreadsTest, CallsTakeAStreamFromEachOther) {
  for (int round = 0; round < 10; ++round) RunManyReaders(/*in_one_queue=*/false, round);
}

TEST(ClientRequestThreadsTest, CallsOfABatchTakeAStreamFromEachOther) {
  for (int round = 0; round < 10; ++round) RunManyReaders(/*in_one_queue=*/true, round);
}

TEST(ClientRequestTest, AClientThatLeavesBeforeTheStartGetsNoRequest) {
  FakeEngine engine(ToyModel());
  RequestEnvironment environment(&engine, InferenceServiceOptions());
  ThreadPool readers(1);
  const auto client = ThreadedClient::New(&environment, &readers, DetachedRequest(), nullptr);
  client->Leave();
  client->request().Start(int64_t{1} << 60);
  EXPECT_TRUE(absl::IsCancelled(client->WaitForEnd()));
  EXPECT_TRUE(engine.requests().empty());
  EXPECT_TRUE(environment.registry.Names().empty());
}

TEST(ClientRequestTest, AClientThatLeavesWhileItsTextIsTokenizedGetsNoRequest) {
  FakeEngine engine(ToyModel());
  RequestEnvironment environment(&engine, InferenceServiceOptions());
  ThreadPool readers(1);
  const auto client = ThreadedClient::New(&environment, &readers, DetachedRequest(), nullptr);
  engine.model_now = [&] {
    client->Leave();
    return ToyModel();
  };
  client->request().Start(int64_t{1} << 60);
  EXPECT_TRUE(absl::IsCancelled(client->WaitForEnd()));
  EXPECT_TRUE(engine.requests().empty());
  EXPECT_TRUE(environment.registry.Names().empty());
}

TEST(ClientRequestTest, ARequestThatIsAboutToEndDoesNotHoldUpANewOneOfItsName) {
  FakeEngine engine(ToyModel());
  engine.Hold();
  RequestEnvironment environment(&engine, InferenceServiceOptions());
  ThreadPool readers(1);
  JobQueue jobs;
  ASSERT_TRUE(jobs.Add([] {}));  // From now on nothing runs the jobs of the first client.
  const auto first = ThreadedClient::New(&environment, &readers, DetachedRequest(), &jobs);
  first->request().Start(int64_t{1} << 60);
  first->request().Cancel();
  const auto second = ThreadedClient::New(&environment, &readers, DetachedRequest(), nullptr);
  second->request().Start(int64_t{1} << 60);
  EXPECT_EQ(engine.requests().size(), 2u);
  engine.Step(kMaxTokens + 2);
  EXPECT_TRUE(second->WaitForEnd().ok());
  EXPECT_EQ(second->num_tokens(), 2 * kMaxTokens);
  jobs.Run();
  EXPECT_TRUE(absl::IsCancelled(first->WaitForEnd()));
}

TEST(ClientRequestTest, TheTimeInWhichATextIsTokenizedCountsForItsRequest) {
  FakeEngine engine(ToyModel());
  ManualClock clock;
  clock.Advance(1000);
  engine.model_now = [&clock] {
    clock.Advance(500'000);
    return ToyModel();
  };
  RequestEnvironment environment(&engine, InferenceServiceOptions(), &clock);
  ThreadPool readers(1);
  const auto client = ThreadedClient::New(&environment, &readers, SampledRequest("r", 1), nullptr);
  client->request().Start(int64_t{1} << 60);
  ASSERT_TRUE(client->WaitForEnd().ok());
  ASSERT_EQ(engine.requests().size(), 1u);
  EXPECT_EQ(engine.requests()[0].arrival_us, 1000);
}

}  // namespace
}  // namespace quire
