#include "kv_manager/metrics.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/process_usage.h"
#include "base/version.h"
#include "kv_manager/histogram.h"
#include "kv_manager/worker_status.h"

namespace quire {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// The families in the making.
class Page {
 public:
  void Begin(MetricType type, std::string name, std::string help) {
    families_.push_back({std::move(name), std::move(help), type, {}});
  }
  void Value(double value, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    if (families_.back().type == MetricType::Counter) {
      metric.counter.value = value;
    } else {
      metric.gauge.value = value;
    }
    families_.back().metric.push_back(std::move(metric));
  }
  void Value(const Histogram& histogram, Labels labels = {}) {
    ClientMetric metric;
    metric.label = std::move(labels);
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      count += histogram.counts()[i];
      const bool is_last = i == histogram.bounds().size();
      metric.histogram.bucket.push_back(
          {count, is_last ? std::numeric_limits<double>::infinity() : histogram.bounds()[i]});
    }
    metric.histogram.sample_count = count;
    metric.histogram.sample_sum = histogram.sum();
    families_.back().metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  std::vector<MetricFamily> families_;
};

using Workers = std::vector<std::shared_ptr<const WorkerStatus>>;

// One value per worker, labelled by it.
template <typename Get>
void PerWorker(const Workers& workers, Page* page, const Get& get) {
  for (const auto& worker : workers) page->Value(get(*worker), {{"worker", worker->address}});
}

void RenderBlocks(const Workers& workers, Page* page) {
  page->Begin(
      MetricType::Gauge, "quire_kv_blocks",
      "KV blocks by state: free, evictable (held by the prefix cache alone) and used add up to the pool; shared "
      "ones, which more than one sequence holds, are part of used");
  for (const auto& worker : workers) {
    const std::pair<const char*, int> states[] = {{"free", worker->blocks.free},
                                                  {"evictable", worker->blocks.evictable},
                                                  {"used", worker->blocks.used},
                                                  {"shared", worker->blocks.shared}};
    for (const auto& [state, count] : states) page->Value(count, {{"worker", worker->address}, {"state", state}});
  }
  page->Begin(MetricType::Gauge, "quire_kv_pool_blocks", "KV blocks of the pool");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.total; });
  page->Begin(MetricType::Gauge, "quire_kv_pinned_blocks", "KV blocks that pins hold; part of used");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.pinned; });
  page->Begin(MetricType::Gauge, "quire_kv_host_blocks", "KV blocks of the host tier that hold swapped sequences");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.host_used; });
  page->Begin(MetricType::Gauge, "quire_kv_host_pool_blocks", "KV blocks of the host tier");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.host_total; });
  page->Begin(MetricType::Counter, "quire_kv_evictions_total", "Blocks that the prefix cache gave up for others");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.evictions; });
  page->Begin(MetricType::Counter, "quire_kv_forks_total", "Samples and beams that began as a copy of another");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.forks; });
  page->Begin(MetricType::Counter, "quire_kv_cow_copies_total",
              "Blocks copied because a sequence wrote to a shared one");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.cow_copies; });
}

void RenderRequests(const ManagerStatus& status, Page* page) {
  page->Begin(MetricType::Gauge, "quire_requests", "Requests by state");
  for (const auto& worker : status.workers) {
    page->Value(worker->waiting_requests, {{"worker", worker->address}, {"state", "waiting"}});
    page->Value(worker->running_requests, {{"worker", worker->address}, {"state", "running"}});
  }
  const StepLoopStats& stats = status.totals;
  page->Begin(MetricType::Counter, "quire_requests_finished_total",
              "Requests that ended, by reason; stop: by a stop token or a stop string");
  page->Value(stats.finished[static_cast<int>(FinishReason::kLength)], {{"reason", "length"}});
  page->Value(stats.finished[static_cast<int>(FinishReason::kStopToken)], {{"reason", "stop"}});
  page->Value(stats.finished[static_cast<int>(FinishReason::kCancelled)], {{"reason", "cancelled"}});
  page->Value(stats.finished[static_cast<int>(FinishReason::kDeadline)], {{"reason", "deadline"}});
  page->Value(stats.failed, {{"reason", "failed"}});
  page->Begin(MetricType::Counter, "quire_request_rejections_total", "Valid requests that were refused, by reason");
  page->Value(status.refusals.no_worker + stats.refused_worker_lost, {{"reason", "no_worker"}});
  page->Value(status.refusals.draining, {{"reason", "draining"}});
  page->Value(status.refusals.inbox_full, {{"reason", "inbox_full"}});
  page->Value(stats.refused_queue_full, {{"reason", "queue_full"}});
  page->Value(stats.refused_never_fits, {{"reason", "never_fits"}});
  page->Begin(MetricType::Counter, "quire_prompt_tokens_total", "Prompt tokens of accepted requests");
  page->Value(stats.prompt_tokens);
  page->Begin(MetricType::Counter, "quire_generated_tokens_total", "Tokens generated");
  page->Value(stats.generated_tokens);
  page->Begin(MetricType::Histogram, "quire_queue_time_seconds",
              "From a request's arrival to the plan of its first step");
  page->Value(stats.queue_seconds);
  page->Begin(MetricType::Histogram, "quire_time_to_first_token_seconds",
              "From a request's arrival to its first token");
  page->Value(stats.first_token_seconds);
  page->Begin(MetricType::Histogram, "quire_inter_token_latency_seconds", "Between two tokens of a request");
  page->Value(stats.inter_token_seconds);
  page->Begin(MetricType::Histogram, "quire_request_duration_seconds", "From a request's arrival to its last token");
  page->Value(stats.request_seconds);
}

// A code that no call of the method has ended with has no value, but for OK.
void RenderRpcs(const RpcCounts& rpcs, Page* page) {
  page->Begin(
      MetricType::Counter, "quire_rpcs_total",
      "Calls of InferenceService that ended, by method and gRPC code; INVALID_ARGUMENT ones never became requests. A "
      "request of GenerateBatch counts as a call of Generate");
  for (size_t method = 0; method < kRpcMethodNames.size(); ++method) {
    for (size_t code = 0; code < kRpcCodeNames.size(); ++code) {
      const int64_t count = rpcs.count(static_cast<RpcMethod>(method), static_cast<grpc::StatusCode>(code));
      if (count == 0 && code != grpc::StatusCode::OK) continue;
      page->Value(count, {{"method", kRpcMethodNames[method]}, {"code", kRpcCodeNames[code]}});
    }
  }
}

void RenderWorkers(const Workers& workers, Page* page) {
  page->Begin(MetricType::Gauge, "quire_worker_up", "1 while the worker serves steps");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.is_ready ? 1 : 0; });
  page->Begin(MetricType::Gauge, "quire_worker_epoch", "Epoch of the session, or of the last attempt to open one");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return static_cast<double>(worker.epoch); });
  page->Begin(MetricType::Counter, "quire_worker_losses_total", "Sessions that ended");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.worker_losses; });
  page->Begin(MetricType::Counter, "quire_preemptions_total", "Requests put back to waiting because blocks ran out");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.preemptions; });
  page->Begin(MetricType::Counter, "quire_swap_outs_total", "Of those, the ones whose blocks went to the host tier");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.swap_outs; });
  page->Begin(MetricType::Counter, "quire_cached_prompt_tokens_total",
              "Prompt tokens that the prefix cache held when their request first ran");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.cached_tokens; });
  page->Begin(MetricType::Counter, "quire_recomputed_tokens_total",
              "Tokens computed again after a preemption or the loss of a worker");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.recomputed_tokens; });
  page->Begin(MetricType::Histogram, "quire_step_duration_seconds", "From a plan's sending to its result");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.step_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_worker_seconds",
              "The part of a step that the worker was busy with it");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.worker_step_seconds; });
  page->Begin(MetricType::Histogram, "quire_plan_duration_seconds", "Making one plan");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.plan_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_tokens", "Tokens of a plan");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.step_tokens; });
}

void RenderProcess(const ManagerStatus& status, Page* page) {
  page->Begin(MetricType::Gauge, "quire_ready", "1 while a worker serves steps and the manager is not draining");
  page->Value(status.is_ready ? 1 : 0);
  page->Begin(MetricType::Gauge, "quire_build_info", "1; the labels tell what runs");
  page->Value(1, {{"version", kVersion}, {"model", status.model_name}});
  const ProcessUsage usage = ReadProcessUsage();
  page->Begin(MetricType::Counter, "process_cpu_seconds_total", "User and system CPU time of the process");
  page->Value(usage.cpu_seconds);
  page->Begin(MetricType::Gauge, "process_resident_memory_bytes", "Resident memory of the process");
  page->Value(static_cast<double>(usage.resident_bytes));
  page->Begin(MetricType::Gauge, "process_start_time_seconds", "Start of the process since the Unix epoch");
  page->Value(usage.start_time_seconds);
}

}  // namespace

std::vector<MetricFamily> RenderMetrics(const ManagerStatus& status, const RpcCounts& rpcs) {
  Page page;
  RenderBlocks(status.workers, &page);
  RenderRequests(status, &page);
  RenderRpcs(rpcs, &page);
  RenderWorkers(status.workers, &page);
  RenderProcess(status, &page);
  return page.Take();
}

}  // namespace quire
