#include "kv_manager/metrics.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kv_manager/histogram.h"
#include "prometheus/text_serializer.h"
#include "tests/kv_manager/fake_worker.h"
#include "tests/kv_manager/recording_sink.h"

namespace quire {
namespace {

// Samples of a scrape, histograms left out, as "name{label=value,...}".
std::map<std::string, double> Values(const std::vector<prometheus::MetricFamily>& families) {
  std::map<std::string, double> values;
  for (const prometheus::MetricFamily& family : families) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      std::string key = family.name;
      for (const auto& label : metric.label) absl::StrAppend(&key, " ", label.name, "=", label.value);
      if (family.type == prometheus::MetricType::Counter) values[key] = metric.counter.value;
      if (family.type == prometheus::MetricType::Gauge) values[key] = metric.gauge.value;
    }
  }
  return values;
}

// Two workers in the middle of something.
ManagerStatus SomeStatus() {
  ManagerStatus status;
  status.model_name = "story \"quoted\"";
  status.is_ready = true;
  status.refusals.draining = 3;
  for (int i = 0; i < 2; ++i) {
    WorkerStatus worker;
    worker.address = absl::StrCat("worker:", i);
    worker.is_ready = i == 0;
    worker.epoch = 7;
    worker.blocks = {.total = 10, .free = 6 + i, .used = 4 - i, .shared = 1, .pinned = 2};
    worker.waiting_requests = 2;
    worker.stats.generated_tokens = 100;
    worker.stats.finished[static_cast<int>(FinishReason::kStopToken)] = 5;
    worker.stats.first_token_seconds.Observe(0.03);
    worker.stats.step_tokens.Observe(33);
    status.totals.Add(worker.stats);
    status.workers.push_back(std::make_shared<WorkerStatus>(worker));
  }
  return status;
}

const RpcCounts& SomeRpcs() {
  static RpcCounts* const counts = [] {
    auto* const counts = new RpcCounts;
    counts->Count(RpcMethod::kGenerate, grpc::StatusCode::INVALID_ARGUMENT);
    counts->Count(RpcMethod::kGenerate, grpc::StatusCode::INVALID_ARGUMENT);
    counts->Count(RpcMethod::kAbort, grpc::StatusCode::UNAUTHENTICATED);
    return counts;
  }();
  return *counts;
}

TEST(HistogramTest, ABoundBelongsToItsBucket) {
  static constexpr double kBounds[] = {1, 10};
  Histogram histogram(kBounds);
  for (const double value : {0.5, 1.0, 1.5, 10.0, 11.0}) histogram.Observe(value);
  EXPECT_EQ(std::vector<int64_t>(histogram.counts().begin(), histogram.counts().end()),
            (std::vector<int64_t>{2, 2, 1}));
  EXPECT_DOUBLE_EQ(histogram.sum(), 24);
  Histogram twice = histogram;
  twice.Merge(histogram);
  EXPECT_EQ(twice.counts()[2], 2);
  EXPECT_DOUBLE_EQ(twice.sum(), 48);
}

TEST(MetricsTest, WorkersAreLabelledAndTotalsAreSums) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_kv_blocks worker=worker:0 state=free"], 6);
  EXPECT_EQ(values["quire_kv_blocks worker=worker:1 state=used"], 3);
  EXPECT_EQ(values["quire_kv_blocks worker=worker:1 state=shared"], 1);
  EXPECT_EQ(values["quire_kv_pinned_blocks worker=worker:1"], 2);
  EXPECT_EQ(values["quire_kv_pool_blocks worker=worker:0"], 10);
  EXPECT_EQ(values["quire_requests worker=worker:0 state=waiting"], 2);
  EXPECT_EQ(values["quire_worker_up worker=worker:0"], 1);
  EXPECT_EQ(values["quire_worker_up worker=worker:1"], 0);
  EXPECT_EQ(values["quire_worker_epoch worker=worker:1"], 7);
  EXPECT_EQ(values["quire_generated_tokens_total"], 200);
  EXPECT_EQ(values["quire_requests_finished_total reason=stop"], 10);
  EXPECT_EQ(values["quire_request_rejections_total reason=draining"], 3);
  EXPECT_GT(values["process_resident_memory_bytes"], 0);
}

TEST(MetricsTest, CallsAreCountedByMethodAndCode) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_rpcs_total method=Generate code=INVALID_ARGUMENT"], 2);
  EXPECT_EQ(values["quire_rpcs_total method=Abort code=UNAUTHENTICATED"], 1);
  EXPECT_EQ(values.count("quire_rpcs_total method=Generate code=OK"), 1u);
  EXPECT_EQ(values.count("quire_rpcs_total method=Generate code=UNAVAILABLE"), 0u);
}

TEST(MetricsTest, HistogramsAreCumulativeAndEndAtInfinity) {
  for (const prometheus::MetricFamily& family : RenderMetrics(SomeStatus(), SomeRpcs())) {
    if (family.name != "quire_time_to_first_token_seconds") continue;
    const auto& histogram = family.metric[0].histogram;
    EXPECT_EQ(histogram.sample_count, 2u);
    EXPECT_EQ(histogram.bucket.back().cumulative_count, 2u);
    EXPECT_TRUE(std::isinf(histogram.bucket.back().upper_bound));
    for (const auto& bucket : histogram.bucket) EXPECT_EQ(bucket.cumulative_count, bucket.upper_bound < 0.03 ? 0u : 2u);
    return;
  }
  FAIL() << "there is no quire_time_to_first_token_seconds";
}

TEST(MetricsTest, PromtoolFindsNothingWrong) {
  if (std::system("promtool --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  const std::string page = prometheus::TextSerializer().Serialize(RenderMetrics(SomeStatus(), SomeRpcs()));
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / absl::StrCat("quire_metrics_test.", getpid());
  std::ofstream(file) << page;
  EXPECT_EQ(std::system(absl::StrCat("promtool check metrics < ", file.string()).c_str()), 0) << page;
  std::filesystem::remove(file);
}

TEST(MetricsTest, EveryScrapeUnderLoadAddsUp) {
  FakeWorker worker;
  ManagerEngine engine(
      {}, {.make_client = [&](const std::string&) { return worker.NewClient(); }, .on_readiness = [](bool) {}},
      &SteadyClock());
  engine.SetWorkers({"w"});
  while (!engine.status().is_ready) std::this_thread::yield();
  const RpcCounts rpcs;
  const ManagerMetrics metrics(&engine, &rpcs);
  std::atomic<bool> done{false};
  std::thread scraper([&] {
    while (!done) {
      std::map<std::string, double> values = Values(metrics.Collect());
      ASSERT_EQ(values["quire_kv_blocks worker=w state=free"] + values["quire_kv_blocks worker=w state=evictable"] +
                    values["quire_kv_blocks worker=w state=used"],
                values["quire_kv_pool_blocks worker=w"]);
      ASSERT_EQ(values["quire_requests worker=w state=running"] == 0,
                values["quire_kv_blocks worker=w state=used"] == 0);
    }
  });
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 300; ++id) {
    Request request;
    request.id = RequestId{id};
    request.prompt.assign(1 + id % 20, 1);
    request.max_tokens = 20;
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine.Submit(request, sinks.back()).ok());
  }
  for (const auto& sink : sinks) sink->WaitForEnd();
  done = true;
  scraper.join();
  EXPECT_EQ(Values(metrics.Collect())["quire_generated_tokens_total"], 300 * 20);
}

}  // namespace
}  // namespace quire
