// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/requests/text_threads.h"

#include <atomic>
#include <future>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLong = kShortTextBytes + 1;

// Keeps the jobs that it has made from ending.
class Gate {
 public:
  ~Gate() { Open(); }
  void Open() {
    if (!is_open_) promise_.set_value();
    is_open_ = true;
  }
  auto Job() {
    return [opened = opened_] { opened.wait(); };
  }

 private:
  bool is_open_ = false;
  std::promise<void> promise_;
  std::shared_future<void> opened_ = promise_.get_future().share();
};

TEST(TextThreadsTest, TheBytesOfAllTextsAreBoundedForTheTenantAndInAll) {
  RpcCounts counts;
  Gate gate;  // Outlives the threads if the test fails.
  TextThreads threads(/*num_threads=*/1, /*max_waiting_texts=*/100, /*max_bytes=*/4 * kLong, &counts);
  EXPECT_TRUE(threads.RunInput("greedy", kLong, gate.Job()).ok());
  EXPECT_TRUE(threads.RunInput("greedy", kLong, gate.Job()).ok());
  const absl::Status status = threads.RunInput("greedy", kLong, gate.Job());
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("half of --max-text-bytes"));
  EXPECT_TRUE(threads.RunInput("other", kLong, gate.Job()).ok());
  EXPECT_TRUE(threads.RunInput("other", kShortTextBytes, gate.Job()).ok()) << "short texts count as well";
  EXPECT_THAT(std::string(threads.RunInput("third", kLong, gate.Job()).message()), HasSubstr("(--max-text-bytes)"));
  EXPECT_EQ(counts.count(RpcRefusal::kTooManyLongTexts), 2);
  gate.Open();
  while (!threads.RunInput("greedy", 2 * kLong, [] {}).ok()) continue;
}

TEST(TextThreadsTest, ATextThatIsLargerThanTheBoundRunsAlone) {
  RpcCounts counts;
  Gate gate;
  TextThreads threads(/*num_threads=*/1, /*max_waiting_texts=*/100, /*max_bytes=*/2 * kLong, &counts);
  EXPECT_TRUE(threads.RunInput("a", 3 * kLong, gate.Job()).ok());
  EXPECT_FALSE(threads.RunInput("b", kLong, gate.Job()).ok());
  gate.Open();
}

TEST(TextThreadsTest, ARefusedTextHoldsNothing) {
  RpcCounts counts;
  TextThreads threads(/*num_threads=*/1, /*max_waiting_texts=*/0, /*max_bytes=*/2 * kLong, &counts);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(std::string(threads.RunInput("a", kLong, [] {}).message()), HasSubstr("--max-waiting-texts"));
  }
}

TEST(TextThreadsTest, VeryLongTextsThatRunTogetherAreBounded) {
  RpcCounts counts;
  std::atomic<int> num_running = 0, most = 0, num_done = 0;
  {
    TextThreads threads(/*num_threads=*/4, /*max_waiting_texts=*/100, /*max_bytes=*/100 * kMaxRunningBytes, &counts);
    for (int i = 0; i < 20; ++i) {
      const absl::Status status = threads.RunInput(std::to_string(i % 3), kMaxRunningBytes / 2, [&] {
        const int now = ++num_running;
        int seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) continue;
        --num_running;
        ++num_done;
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  EXPECT_EQ(num_done, 20);
  EXPECT_LE(most, 2);
}

}  // namespace
}  // namespace quire
