// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/metrics/metrics.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "kv_manager/engine/histogram.h"
#include "prometheus/text_serializer.h"
#include "tests/kv_manager/engine/fake_worker.h"
#include "tests/kv_manager/engine/recording_sink.h"
#include "tests/kv_manager/metrics/some_status.h"

namespace quire {
namespace {

// The samples of a scrape, without histograms, as "name{label=value,...}".
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
  EXPECT_EQ(values["quire_kv_blocks worker=worker:0 tier=device state=free"], 6);
  EXPECT_EQ(values["quire_kv_blocks worker=worker:1 tier=device state=used"], 3);
  EXPECT_EQ(values["quire_kv_blocks worker=worker:1 tier=host state=free"], 3);
  EXPECT_EQ(values["quire_kv_shared_blocks worker=worker:1"], 1);
  EXPECT_EQ(values["quire_kv_pinned_blocks worker=worker:1"], 2);
  EXPECT_EQ(values["quire_kv_pool_blocks worker=worker:0 tier=device"], 10);
  EXPECT_EQ(values["quire_requests worker=worker:0 state=waiting"], 2);
  EXPECT_EQ(values["quire_worker_up worker=worker:0"], 1);
  EXPECT_EQ(values["quire_worker_up worker=worker:1"], 0);
  EXPECT_EQ(values["quire_worker_rank_up worker=worker:1 rank=0"], 1);
  EXPECT_EQ(values["quire_worker_rank_up worker=worker:1 rank=1"], 0);
  EXPECT_EQ(values.count("quire_worker_rank_up worker=worker:0 rank=0"), 0u) << "it has the whole model";
  EXPECT_EQ(values["quire_worker_epoch worker=worker:1"], 7);
  EXPECT_EQ(values["quire_generated_tokens_total"], 200);
  EXPECT_EQ(values["quire_requests_finished_total reason=stop"], 10);
  EXPECT_EQ(values["quire_request_rejections_total reason=draining"], 3);
  EXPECT_EQ(values["quire_request_rejections_total reason=too_many_requests"], 1);
  EXPECT_GT(values["process_resident_memory_bytes"], 0);
}

TEST(MetricsTest, CallsAreCountedByMethodAndCode) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_rpcs_total method=Generate code=INVALID_ARGUMENT"], 2);
  EXPECT_EQ(values["quire_rpcs_total method=Abort code=UNAUTHENTICATED"], 1);
  EXPECT_EQ(values.count("quire_rpcs_total method=Generate code=UNAVAILABLE"), 1u);
  EXPECT_EQ(values.count("quire_rpcs_total method=Abort code=OK"), 1u);
  EXPECT_EQ(values.count("quire_rpcs_total method=Abort code=UNAVAILABLE"), 0u);
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

// 5 entries of 4 tokens have 20 slots, of which 17 hold a token; 3 blocks are used for them.
TEST(MetricsTest, SlotsTokensAndWhatSharingSaves) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_kv_allocated_slots worker=worker:1"], 20);
  EXPECT_EQ(values["quire_kv_live_tokens worker=worker:1"], 17);
  EXPECT_EQ(values["quire_kv_saved_blocks worker=worker:1"], 2);
}

TEST(MetricsTest, AgesAreMeasuredAtTheScrape) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_worker_last_step_age_seconds worker=worker:0"], 3);
  EXPECT_EQ(values["quire_worker_step_age_seconds worker=worker:0"], 2);
  EXPECT_EQ(values["quire_worker_step_age_seconds worker=worker:1"], 0) << "it owes no step";
  ManagerStatus status = SomeStatus();
  status.now_us = 0;
  EXPECT_EQ(Values(RenderMetrics(status, SomeRpcs()))["quire_worker_step_age_seconds worker=worker:0"], 0);
}

TEST(MetricsTest, PreemptionsAreToldByCauseAndKind) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_preemptions_total worker=worker:0 cause=no_blocks kind=swap"], 1);
  EXPECT_EQ(values["quire_preemptions_total worker=worker:0 cause=no_blocks kind=recompute"], 3);
  EXPECT_EQ(values["quire_preemptions_total worker=worker:0 cause=worker_lost kind=recompute"], 2);
}

TEST(MetricsTest, TenantsAreSummedOverWorkers) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  EXPECT_EQ(values["quire_tenant_requests_total tenant=(others)"], 0);
  EXPECT_EQ(values["quire_tenant_requests_total tenant=blue"], 2);
  EXPECT_EQ(values["quire_tenant_prompt_tokens_total tenant=blue"], 14);
  EXPECT_EQ(values["quire_tenant_generated_tokens_total tenant=blue"], 200);
  EXPECT_EQ(values["quire_tenant_rejections_total tenant=blue"], 6);
}

TEST(MetricsTest, VllmsNamesShowOneEngine) {
  std::map<std::string, double> values = Values(RenderMetrics(SomeStatus(), SomeRpcs()));
  const std::string engine = " model_name=story \"quoted\" engine=0";
  EXPECT_EQ(values["vllm:num_requests_waiting" + engine], 4);
  EXPECT_EQ(values["vllm:kv_cache_usage_perc" + engine], 7.0 / 20);
  EXPECT_EQ(values["vllm:cache_config_info" + engine + " block_size=4 num_gpu_blocks=20"], 1);
  EXPECT_EQ(values["vllm:generation_tokens_total" + engine], 200);
  EXPECT_EQ(values["vllm:request_success_total" + engine + " finished_reason=stop"], 10);
  EXPECT_EQ(values["vllm:num_requests_waiting_by_reason" + engine + " reason=capacity"], 4);
  EXPECT_EQ(values["vllm:engine_sleep_state" + engine + " sleep_state=awake"], 1);
  EXPECT_EQ(values["vllm:prompt_tokens_cached_total" + engine], 6);
  EXPECT_EQ(values["vllm:prompt_tokens_by_source_total" + engine + " source=local_compute"], 8);
  EXPECT_EQ(values["vllm:prompt_tokens_by_source_total" + engine + " source=local_cache_hit"], 6);
  for (const auto& family : RenderMetrics(SomeStatus(), SomeRpcs(), {.has_vllm_names = false})) {
    EXPECT_FALSE(family.name.starts_with("vllm:")) << family.name;
  }
}

// The metrics that the dashboards of vLLM 0.32 read, except for features that Quire does not have.
TEST(MetricsTest, DashboardsOfVllmFindTheirMetrics) {
  std::map<std::string, prometheus::MetricType> types;
  for (const auto& family : RenderMetrics(SomeStatus(), SomeRpcs())) types[family.name] = family.type;
  for (const char* name : {"num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason",
                           "engine_sleep_state", "kv_cache_usage_perc", "cache_config_info"}) {
    EXPECT_EQ(types.count(absl::StrCat("vllm:", name)), 1u) << name;
    EXPECT_EQ(types[absl::StrCat("vllm:", name)], prometheus::MetricType::Gauge) << name;
  }
  for (const char* name :
       {"prompt_tokens_total", "prompt_tokens_cached_total", "prompt_tokens_by_source_total", "generation_tokens_total",
        "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total", "request_success_total"}) {
    EXPECT_EQ(types.count(absl::StrCat("vllm:", name)), 1u) << name;
    EXPECT_EQ(types[absl::StrCat("vllm:", name)], prometheus::MetricType::Counter) << name;
  }
  for (const char* name :
       {"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
        "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
        "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
        "request_generation_tokens", "request_max_num_generation_tokens", "request_params_max_tokens",
        "request_params_n", "request_prefill_kv_computed_tokens", "iteration_tokens_total"}) {
    EXPECT_EQ(types.count(absl::StrCat("vllm:", name)), 1u) << name;
    EXPECT_EQ(types[absl::StrCat("vllm:", name)], prometheus::MetricType::Histogram) << name;
  }
}

TEST(MetricsTest, HelpIsOneLineOfPlainAscii) {
  for (const prometheus::MetricFamily& family : RenderMetrics(SomeStatus(), SomeRpcs())) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    for (const char c : family.help) EXPECT_TRUE(c >= ' ' && c <= '~' && c != '\\') << family.name;
  }
}

// Returns the complaints of promtool about these metrics.
std::string PromtoolSays(const std::vector<prometheus::MetricFamily>& families) {
  const std::string path = (std::filesystem::temp_directory_path() / absl::StrCat("quire_metrics_test.", getpid()));
  std::ofstream(path) << prometheus::TextSerializer().Serialize(families);
  const int status = std::system(absl::StrCat("promtool check metrics <", path, " >", path, ".out 2>&1").c_str());
  std::ifstream in(path + ".out");
  std::string said(std::istreambuf_iterator<char>(in), {});
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".out");
  return said.empty() && status != 0 ? absl::StrCat("status ", status) : said;
}

// promtool dislikes the colon in vLLM's names and a suffix that one of them has. Every other complaint is an error.
TEST(MetricsTest, PromtoolFindsNothingWrong) {
  if (std::system("promtool --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  EXPECT_EQ(PromtoolSays(RenderMetrics(SomeStatus(), SomeRpcs(), {.has_vllm_names = false})), "");
  std::istringstream said(PromtoolSays(RenderMetrics(SomeStatus(), SomeRpcs())));
  for (std::string line; std::getline(said, line);) {
    const bool is_known = line == "vllm:iteration_tokens_total non-counter metrics should not have \"_total\" suffix" ||
                          line.ends_with("metric names should not contain ':'");
    EXPECT_TRUE(line.starts_with("vllm:") && is_known) << line;
  }
}

TEST(TenantLabelsTest, TheFirstOnesHaveASlotAndTheOthersShareOne) {
  TenantLabels labels(2);
  EXPECT_EQ(labels.SlotOf("blue"), 1);
  EXPECT_EQ(labels.SlotOf(""), 2);
  EXPECT_EQ(labels.SlotOf("red"), 0);
  EXPECT_EQ(labels.SlotOf("green"), 0);
  EXPECT_EQ(labels.SlotOf("blue"), 1);
  EXPECT_EQ(labels.labels(), (std::vector<std::string>{"(others)", "blue", "(none)"}));
}

TEST(MetricsTest, EveryScrapeUnderLoadAddsUp) {
  FakeWorker worker;
  ManagerEngine engine(
      {}, {.make_client = [&](const std::string&) { return worker.NewClient(); }, .on_readiness = [](bool) {}},
      &SteadyClock());
  engine.SetWorkers({"w"});
  while (!engine.status().is_ready) std::this_thread::yield();
  const RpcCounts rpcs;
  const ResumableRequests resumable(DetachOptions{}, &SteadyClock());
  const ManagerMetrics metrics(&engine, &rpcs, &resumable);
  std::atomic<bool> done{false};
  std::thread scraper([&] {
    while (!done) {
      std::map<std::string, double> values = Values(metrics.Collect());
      const double used = values["quire_kv_blocks worker=w tier=device state=used"];
      ASSERT_EQ(values["quire_kv_blocks worker=w tier=device state=free"] +
                    values["quire_kv_blocks worker=w tier=device state=evictable"] + used,
                values["quire_kv_pool_blocks worker=w tier=device"]);
      ASSERT_EQ(values["quire_requests worker=w state=running"] == 0, used == 0);
      ASSERT_LE(values["quire_kv_live_tokens worker=w"], values["quire_kv_allocated_slots worker=w"]);
      ASSERT_EQ(values["quire_kv_live_tokens worker=w"] == 0, used == 0);
      double of_tenants = 0;
      for (const char* tenant : {"(others)", "(none)", "0", "1", "2"}) {
        of_tenants += values[absl::StrCat("quire_tenant_generated_tokens_total tenant=", tenant)];
      }
      ASSERT_EQ(of_tenants, values["quire_generated_tokens_total"]);
    }
  });
  std::vector<std::shared_ptr<RecordingSink>> sinks;
  for (uint64_t id = 1; id <= 300; ++id) {
    Request request;
    request.id = RequestId{id};
    request.prompt.assign(1 + id % 20, 1);
    request.generation = GenerationId{1};
    request.max_tokens = 20;
    if (id % 4 > 0) request.tenant = absl::StrCat(id % 4 - 1);
    sinks.push_back(std::make_shared<RecordingSink>());
    ASSERT_TRUE(engine.Submit(request, sinks.back()).ok());
  }
  for (const auto& sink : sinks) sink->WaitForEnd();
  done = true;
  scraper.join();
  // A sink hears of its end before the loop publishes the round that ended it.
  while (Values(metrics.Collect())["quire_kv_live_tokens worker=w"] > 0) std::this_thread::yield();
  std::map<std::string, double> values = Values(metrics.Collect());
  EXPECT_EQ(values["quire_generated_tokens_total"], 300 * 20);
  EXPECT_EQ(values["quire_tenant_generated_tokens_total tenant=2"], 75 * 20);
}

}  // namespace
}  // namespace quire
