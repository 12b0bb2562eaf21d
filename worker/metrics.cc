// SPDX-License-Identifier: Apache-2.0

#include "worker/metrics.h"

#include <utility>

#include "base/process_usage.h"

namespace quire {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Makes an empty family. HELP texts are one line of ASCII without backslashes, because prometheus-cpp does not escape
// them.
MetricFamily Family(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

MetricFamily Counter(const char* name, const char* help, double value, Labels labels = {}) {
  MetricFamily family = Family(name, help, MetricType::Counter);
  family.metric.emplace_back();
  family.metric.back().label = std::move(labels);
  family.metric.back().counter.value = value;
  return family;
}

MetricFamily Gauge(const char* name, const char* help, double value, Labels labels = {}) {
  MetricFamily family = Family(name, help, MetricType::Gauge);
  family.metric.emplace_back();
  family.metric.back().label = std::move(labels);
  family.metric.back().gauge.value = value;
  return family;
}

// Adds a value with other labels to a counter.
MetricFamily And(MetricFamily family, double value, Labels labels) {
  family.metric.emplace_back();
  family.metric.back().label = std::move(labels);
  family.metric.back().counter.value = value;
  return family;
}

MetricFamily StepDuration(const WorkerStatsSnapshot& stats) {
  MetricFamily family =
      Family("quire_worker_step_duration_seconds", "Time of a step on the worker.", MetricType::Histogram);
  family.metric.emplace_back();
  ClientMetric::Histogram& histogram = family.metric.back().histogram;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < kStepSecondsBounds.size(); ++i) {
    cumulative += stats.step_seconds_counts[i];
    histogram.bucket.push_back({cumulative, kStepSecondsBounds[i]});
  }
  histogram.sample_count = cumulative + stats.step_seconds_counts.back();
  histogram.sample_sum = stats.step_seconds;
  return family;
}

}  // namespace

std::vector<MetricFamily> LoadMetrics::Collect() const {
  const LoadProgress::Snapshot progress = progress_->Get();
  return {
      Gauge("quire_worker_loading", "1 until the weights of the model were read.", progress.is_done ? 0 : 1),
      Gauge("quire_worker_weights_bytes", "Size of the weights of the model; 0 until its files were opened.",
            static_cast<double>(progress.total_bytes)),
      Gauge("quire_worker_weights_read_bytes", "How much of the weights was read.",
            static_cast<double>(progress.read_bytes)),
      Gauge("quire_worker_load_seconds", "How long the weights have been loading, or took to load.", progress.seconds),
  };
}

std::vector<MetricFamily> DeviceMetrics::Collect() const {
  const DeviceBytes bytes = ask_();
  return {
      Gauge("quire_worker_device_memory_bytes", "Size of the memory of the GPU, used or free.",
            static_cast<double>(bytes.total)),
      Gauge("quire_worker_device_memory_free_bytes", "Memory of the GPU that no process has taken.",
            static_cast<double>(bytes.free)),
  };
}

std::vector<MetricFamily> RankMetrics::Collect() const {
  const WorkerStatsSnapshot stats = stats_->Snapshot();
  const auto by_kind = [](const char* name, const char* help, double of_steps, double of_plans) {
    return And(Counter(name, help, of_steps, {{"kind", "step"}}), of_plans, {{"kind", "plan"}});
  };
  return {
      by_kind("quire_worker_collectives_total",
              "Exchanges with the other ranks: sums of a step, and agreements on a plan before its step.",
              stats.step_exchanges.count, stats.plan_exchanges.count),
      by_kind("quire_worker_collective_seconds_total",
              "Time in these exchanges, which includes the wait for the slowest rank and for its plan.",
              stats.step_exchanges.seconds, stats.plan_exchanges.seconds),
  };
}

WorkerMetrics::WorkerMetrics(const WorkerStats* stats, MetricsInfo info) : stats_(stats), info_(std::move(info)) {}

std::vector<MetricFamily> WorkerMetrics::Collect() const {
  const WorkerStatsSnapshot stats = stats_->Snapshot();
  const ProcessUsage usage = ReadProcessUsage();
  const double num_blocks = info_.num_blocks;
  const double num_host_blocks = info_.num_host_blocks;
  const double block_bytes = static_cast<double>(info_.block_bytes);
  return {
      Counter("quire_worker_steps_total", "Steps completed.", stats.steps),
      Counter("quire_worker_failed_steps_total", "Steps that failed and ended their session.", stats.failed_steps),
      StepDuration(stats),
      And(Counter("quire_worker_tokens_computed_total", "Tokens whose K and V were computed.", stats.prefill_tokens,
                  {{"kind", "prefill"}}),
          stats.decode_tokens, {{"kind", "decode"}}),
      Counter("quire_worker_tokens_sampled_total", "Sampled tokens.", stats.sampled_tokens),
      And(Counter("quire_worker_swapped_bytes_total", "Bytes swapped between the pool and the host tier.",
                  static_cast<double>(stats.swapped_out_blocks) * block_bytes, {{"direction", "out"}}),
          static_cast<double>(stats.swapped_in_blocks) * block_bytes, {{"direction", "in"}}),
      Counter("quire_worker_blocks_copied_total", "Blocks copied because of a write to a shared block (copy-on-write).",
              stats.copied_blocks),
      Gauge("quire_worker_rows_in_use", "Rows that had a slice in the last step.", stats.rows_in_use),
      Gauge("quire_worker_rows",
            "Number of rows, which is the largest number of sequences that can run at the same time.",
            info_.max_sequences),
      Gauge("quire_worker_kv_blocks", "Number of blocks in the pool.", num_blocks),
      Gauge("quire_worker_kv_block_size_tokens", "Tokens per block.", info_.block_size),
      Gauge("quire_worker_kv_pool_bytes", "Size of the pool in bytes.", num_blocks * block_bytes),
      Gauge("quire_worker_kv_host_bytes", "Size of the host tier in bytes.", num_host_blocks * block_bytes),
      Counter("quire_worker_sessions_total", "Sessions opened.", stats.sessions),
      Counter("quire_worker_stale_terms_total",
              "Sessions that were refused because the term of the manager is over: another one leads.",
              stats.stale_terms),
      Gauge("quire_worker_session_open", "1 while a session is served.", stats.is_open ? 1 : 0),
      Gauge("quire_worker_refused",
            "1 while the worker is not ready because its manager has refused it; the log has the reason.",
            stats.is_refused ? 1 : 0),
      Gauge("quire_worker_session_epoch", "Epoch of the last session.", static_cast<double>(stats.epoch)),
      Gauge("quire_worker_build_info", "Always 1; the labels are the version, the model and the device.", 1,
            {{"version", info_.version}, {"model", info_.model_name}, {"device", info_.device}}),
      Counter("process_cpu_seconds_total", "User and system CPU time of the process.", usage.cpu_seconds),
      Gauge("process_resident_memory_bytes", "Resident memory of the process.",
            static_cast<double>(usage.resident_bytes)),
      Gauge("process_start_time_seconds", "Start time of the process, in seconds since the Unix epoch.",
            usage.start_time_seconds),
  };
}

}  // namespace quire
