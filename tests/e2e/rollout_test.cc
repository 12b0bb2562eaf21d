// SPDX-License-Identifier: Apache-2.0

// A rollout to another checkpoint and back, while clients send requests.

#include <atomic>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "tests/e2e/cluster.h"

namespace quire {
namespace {

constexpr int kClients = 6;

v1::GenerateRequest Story() {
  return LongRequest("Once upon a time", 60);
}

// A model with random weights and with another tokenizer than the bundled one. The destructor removes its files.
class RandomModel {
 public:
  RandomModel() {
    char directory[] = "/tmp/quire-rollout.XXXXXX";
    path_ = mkdtemp(directory);
    path_ += "/random";
    Process process({Binary("make_model"), absl::StrCat("--output=", path_), "--preset=tiny", "--dtype=f32"});
    EXPECT_EQ(process.Wait(), 0) << process.Output();
  }
  ~RandomModel() { std::filesystem::remove_all(std::filesystem::path(path_).parent_path()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a model answers, as token ids and text.
using Answer = std::pair<std::vector<uint32_t>, std::string>;

// Clients that send the same request repeatedly. They count the answers.
class Load {
 public:
  explicit Load(const std::string& endpoint) {
    for (int i = 0; i < kClients; ++i) {
      threads_.emplace_back([this, endpoint] {
        Client client(ClientOptions{.endpoint = endpoint});
        while (!is_over_) {
          const Generation generation = Generate(client, Story());
          EXPECT_TRUE(generation.status.ok()) << generation.status << " after " << generation.token_ids.size();
          if (!generation.status.ok()) return;
          const MutexLock lock(&mutex_);
          ++answers_[{generation.token_ids, generation.text}];
        }
      });
    }
  }
  ~Load() { Stop(); }

  void Stop() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  int count(const Answer& answer) {
    const MutexLock lock(&mutex_);
    return answers_[answer];
  }
  // Waits until the load has got `num` more of these answers, or a client has failed.
  void WaitForMore(const Answer& answer, int num) {
    const int enough = count(answer) + num;
    while (count(answer) < enough && !testing::Test::HasFailure()) absl::SleepFor(absl::Milliseconds(1));
  }
  std::map<Answer, int> answers() {
    const MutexLock lock(&mutex_);
    return answers_;
  }

 private:
  std::atomic<bool> is_over_ = false;
  Mutex mutex_;
  std::map<Answer, int> answers_ QUIRE_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

Answer AnswerOf(Cluster& cluster) {
  const Generation generation = Generate(cluster.client(), Story());
  EXPECT_TRUE(generation.status.ok()) << generation.status;
  return {generation.token_ids, generation.text};
}

TEST(RolloutTest, ARolloutToAnotherModelAndBackCostsNoRequestAndMixesNoAnswer) {
  const RandomModel random;
  Cluster cluster({.model = BundledModel(), .num_workers = 2});
  const Answer tale = AnswerOf(cluster);
  Answer noise;
  {
    Cluster other({.model = random.path()});
    noise = AnswerOf(other);
  }
  ASSERT_NE(tale, noise);
  Load load(cluster.endpoint());
  for (const std::string& model : {random.path(), BundledModel()}) {
    const bool is_random = model == random.path();
    for (const int i : {0, 1}) {
      load.WaitForMore((i == 0) == is_random ? tale : noise, 2 * kClients);
      cluster.worker(i).Signal(SIGTERM);
      EXPECT_EQ(cluster.worker(i).Wait(), 0);
      cluster.RestartWorker(i, {}, model);
      ASSERT_TRUE(cluster.WaitUntilReady());
      const absl::StatusOr<v1::GetModelResponse> served = cluster.client().GetModel();
      ASSERT_TRUE(served.ok()) << served.status();
      EXPECT_EQ(served->name(), is_random ? "random" : "tales") << "the newest generation is served";
    }
  }
  load.WaitForMore(tale, 2 * kClients);
  load.Stop();
  const std::map<Answer, int> answers = load.answers();
  EXPECT_EQ(answers.size(), 2u) << "every answer is one model's";
  EXPECT_TRUE(answers.contains(tale));
  EXPECT_TRUE(answers.contains(noise));
}

TEST(RolloutTest, AWorkerThatComesBackWithAnotherModelServesIt) {
  const RandomModel random;
  Cluster cluster({.model = BundledModel()});
  AnswerOf(cluster);
  cluster.worker(0).Signal(SIGKILL);
  cluster.worker(0).Wait();
  cluster.RestartWorker(0, {}, random.path());
  ASSERT_TRUE(cluster.WaitUntilReady());
  EXPECT_EQ(cluster.client().GetModel()->name(), "random");
  EXPECT_TRUE(Generate(cluster.client(), Story()).status.ok());
}

}  // namespace
}  // namespace quire
