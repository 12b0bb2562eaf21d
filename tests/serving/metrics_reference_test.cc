// SPDX-License-Identifier: Apache-2.0

// docs/metrics.md lists the metrics of the programs. QUIRE_UPDATE_GOLDEN=1 rewrites it.

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "kv_manager/metrics/leadership_metrics.h"
#include "kv_manager/metrics/metrics.h"
#include "serving/port_metrics.h"
#include "serving/process_metrics.h"
#include "tests/kv_manager/metrics/some_status.h"
#include "tests/test_paths.h"
#include "worker/metrics.h"

namespace quire {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Families = std::vector<MetricFamily>;

constexpr char kIntroduction[] = R"(# Metrics

This page lists the metrics that the two programs show to Prometheus: `quire-manager` at `--metrics-listen` (by default
127.0.0.1:9460) and `quire-worker` at its own `--metrics-listen` (127.0.0.1:9461). In one scrape, all values about one
worker belong to the same moment. A histogram NAME has the series NAME_bucket, NAME_sum and NAME_count.

[operations.md](operations.md) says what to do when the values look wrong. `deploy/prometheus` has rules and alerts, and
`deploy/grafana` has dashboards. This page is made from the code, by `serving_test` with `QUIRE_UPDATE_GOLDEN=1`.
)";

constexpr char kVllm[] = R"(
vLLM's dashboards and gateways can use these names. The manager appears as one engine, so each value is the sum over
its workers. `--vllm-metrics=false` leaves these metrics out. Quire has no counterpart for the other metrics of vLLM
0.32 (LoRA, speculative decoding, media, KV transfer, residency of blocks, preemptions by request, estimates of FLOPs).
`quire_request_rejections_total` is what `vllm:admission_rejections_total` counts there. The counts of HTTP requests of
vLLM's server (`http_requests_total`) are in the metrics of the gateway, under other names.
)";

const char* NameOf(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    default:
      return "?";
  }
}

// Returns the label names of the family in the order of their first appearance.
std::vector<std::string> LabelNames(const MetricFamily& family) {
  std::vector<std::string> names;
  for (const auto& metric : family.metric) {
    for (const auto& label : metric.label) {
      if (std::find(names.begin(), names.end(), label.name) == names.end()) names.push_back(label.name);
    }
  }
  return names;
}

std::string Table(const Families& families) {
  std::string text = "\n| name | type | labels | meaning |\n|---|---|---|---|\n";
  for (const MetricFamily& family : families) {
    absl::StrAppend(&text, "| `", family.name, "` | ", NameOf(family.type), " | ",
                    absl::StrJoin(LabelNames(family), ", "), " | ", family.help, " |\n");
  }
  return text;
}

Families FileMetrics() {
  const auto file = WatchedFile::Open(
      {.flag = "tokens", .contents = "tokens", .path = "/dev/null", .read = [](auto) { return absl::OkStatus(); }});
  return WatchedFileMetrics({file->get()}).Collect();
}

std::string Reference() {
  Families own = RenderMetrics(SomeStatus(), SomeRpcs());
  const auto is_own = [](const MetricFamily& family) { return !family.name.starts_with("vllm:"); };
  const auto first_vllm = std::stable_partition(own.begin(), own.end(), is_own);
  const Families vllm(first_vllm, own.end());
  own.erase(first_vllm, own.end());
  const WorkerStats stats;
  const LoadProgress loading;
  const SpanQueue spans(/*sampling_ratio=*/1);
  const std::vector<CertificateMetrics::File> certificates = {{"server", "server.crt"}};
  return absl::StrCat(kIntroduction, "\n## The manager\n", Table(own), "\n## The manager, with --standby\n",
                      Table(LeadershipMetrics([] { return ElectionStatus(); }).Collect()),
                      "\n## The manager, about files that it reads again\n", Table(FileMetrics()),
                      "\n## The manager, under vLLM's names\n", kVllm, Table(vllm), "\n## A worker\n",
                      Table(WorkerMetrics(&stats, MetricsInfo{}).Collect()), "\n## A worker on a GPU\n",
                      Table(DeviceMetrics([] { return DeviceBytes{}; }).Collect()), "\n## A worker that is a rank\n",
                      Table(RankMetrics(&stats).Collect()), "\n## A worker, also while it loads its model\n",
                      Table(LoadMetrics(&loading).Collect()), "\n## Both, about their gRPC ports\n",
                      Table(PortMetrics([] { return std::vector(1, PortStats()); }).Collect()),
                      "\n## Both, about their logs\n", Table(LogMetrics().Collect()),
                      "\n## The manager and the gateway, with --otlp-endpoint\n", Table(SpanMetrics(&spans).Collect()),
                      "\n## Both, with TLS\n", Table(CertificateMetrics(certificates).Collect()));
}

TEST(MetricsReferenceTest, SaysWhatTheProgramsShow) {
  const std::string path = SourcePath("docs/metrics.md");
  if (std::getenv("QUIRE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << Reference();
  std::ifstream in(path);
  const std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_EQ(text, Reference()) << "Run this test with QUIRE_UPDATE_GOLDEN=1 to write docs/metrics.md again.";
}

}  // namespace
}  // namespace quire
