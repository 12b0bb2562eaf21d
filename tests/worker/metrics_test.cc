// SPDX-License-Identifier: Apache-2.0

#include "worker/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <cstdlib>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/process_usage.h"
#include "tests/worker/model/model_files.h"

namespace quire {
namespace {

using ::testing::HasSubstr;

MetricsInfo Info() {
  return {.version = "1.2.3",
          .model_name = "tiny",
          .device = "cpu",
          .num_blocks = 10,
          .num_host_blocks = 5,
          .block_bytes = 2048,
          .block_size = 16,
          .max_sequences = 4};
}

std::string Scrape(const WorkerMetrics& metrics) {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, metrics.Collect());
  return out.str();
}

TEST(WorkerMetricsTest, StepsAreCountedByWhatTheyDid) {
  WorkerStats stats;
  const WorkerMetrics metrics(&stats, Info());
  stats.SetSession(12, true);
  stats.RecordStep(
      {.prefill_tokens = 30, .decode_tokens = 2, .sampled_tokens = 3, .copied_blocks = 1, .rows = 4, .seconds = 0.003});
  stats.RecordStep(
      {.prefill_tokens = 0, .decode_tokens = 3, .sampled_tokens = 3, .copied_blocks = 0, .rows = 3, .seconds = 20});
  const std::string text = Scrape(metrics);
  EXPECT_THAT(text, HasSubstr("quire_worker_steps_total 2\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_tokens_computed_total{kind=\"prefill\"} 30\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_tokens_computed_total{kind=\"decode\"} 5\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_tokens_sampled_total 6\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_blocks_copied_total 1\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_rows_in_use 3\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_session_epoch 12\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_kv_pool_bytes 20480\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_build_info{version=\"1.2.3\",model=\"tiny\",device=\"cpu\"} 1\n"));
}

TEST(WorkerMetricsTest, BucketsAreCumulativeAndTheLastTakesTheRest) {
  WorkerStats stats;
  const WorkerMetrics metrics(&stats, Info());
  for (double seconds : {0.0005, 0.003, 0.004, 20.0}) stats.RecordStep({.seconds = seconds});
  const std::string text = Scrape(metrics);
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_bucket{le=\"0.0005\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_bucket{le=\"0.0025\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_bucket{le=\"0.005\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_bucket{le=\"10\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_bucket{le=\"+Inf\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_step_duration_seconds_count 4\n"));
}

TEST(WorkerMetricsTest, AnEndedSessionUsesNoRows) {
  WorkerStats stats;
  const WorkerMetrics metrics(&stats, Info());
  stats.SetSession(3, true);
  stats.RecordStep({.rows = 4});
  stats.SetSession(3, false);
  const std::string text = Scrape(metrics);
  EXPECT_THAT(text, HasSubstr("quire_worker_rows_in_use 0\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_session_open 0\n"));
  EXPECT_THAT(text, HasSubstr("quire_worker_sessions_total 1\n"));
}

TEST(RankMetricsTest, ExchangesAreCountedByWhatTheyAreFor) {
  WorkerStats stats;
  stats.RecordExchanges({.count = 4, .seconds = 0.5}, {.count = 1, .seconds = 0.25});
  stats.RecordExchanges({.count = 4, .seconds = 1}, {.count = 1, .seconds = 0.25});
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, RankMetrics(&stats).Collect());
  for (const char* line :
       {"quire_worker_collectives_total{kind=\"step\"} 8\n", "quire_worker_collectives_total{kind=\"plan\"} 2\n",
        "quire_worker_collective_seconds_total{kind=\"step\"} 1.5\n",
        "quire_worker_collective_seconds_total{kind=\"plan\"} 0.5\n"}) {
    EXPECT_THAT(out.str(), HasSubstr(line));
  }
}

TEST(DeviceMetricsTest, EveryScrapeAsksForTheMemory) {
  size_t free = 100;
  const DeviceMetrics metrics([&free] { return DeviceBytes{.total = 1000, .free = free--}; });
  for (const char* line :
       {"quire_worker_device_memory_free_bytes 100\n", "quire_worker_device_memory_free_bytes 99\n"}) {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, metrics.Collect());
    EXPECT_THAT(out.str(), HasSubstr(line));
    EXPECT_THAT(out.str(), HasSubstr("quire_worker_device_memory_bytes 1000\n"));
  }
}

TEST(WorkerMetricsTest, HelpIsOneLineOfPlainAscii) {
  WorkerStats stats;
  for (const prometheus::MetricFamily& family : WorkerMetrics(&stats, Info()).Collect()) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    for (char c : family.help) EXPECT_TRUE(c >= ' ' && c <= '~' && c != '\\') << family.name;
  }
}

TEST(WorkerMetricsTest, PromtoolFindsNothingToCriticise) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  WorkerStats stats;
  stats.RecordStep({.seconds = 0.01});
  const TestDirectory directory;
  directory.Write("metrics", Scrape(WorkerMetrics(&stats, Info())));
  const std::string output = directory.path() + "/output";
  const int status =
      std::system(absl::StrCat("promtool check metrics <", directory.path(), "/metrics >", output, " 2>&1").c_str());
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadWholeFile(output), "");
}

TEST(ProcessUsageTest, AProcessHasMemoryAndAStart) {
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.resident_bytes, 1 << 20);
  EXPECT_GT(usage.start_time_seconds, 1.6e9);
}

}  // namespace
}  // namespace quire
