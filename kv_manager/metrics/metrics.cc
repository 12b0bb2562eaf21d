// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/metrics/metrics.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process_usage.h"
#include "base/version.h"
#include "kv_manager/engine/worker_status.h"
#include "kv_manager/metrics/metric_page.h"
#include "kv_manager/metrics/vllm_metrics.h"

namespace quire {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

using Workers = std::vector<std::shared_ptr<const WorkerStatus>>;

// Renders one value per worker, with the label "worker".
template <typename Get>
void PerWorker(const Workers& workers, MetricPage* page, const Get& get) {
  for (const auto& worker : workers) page->Value(get(*worker), {{"worker", worker->address}});
}

// The states of a tier add up to its size. Properties that blocks of several states have are families of their own.
void RenderBlockStates(const Workers& workers, MetricPage* page) {
  page->Begin(MetricType::Gauge, "quire_kv_blocks",
              "KV blocks by tier and state; the states add up to the size of the tier. used: a sequence or a pin holds "
              "the block; evictable: only the prefix cache holds it, so it is evicted when a sequence needs a block");
  for (const auto& worker : workers) {
    const BlockCounts& blocks = worker->blocks;
    const auto state = [&](const char* tier, const char* state, int count) {
      page->Value(count, {{"worker", worker->address}, {"tier", tier}, {"state", state}});
    };
    state("device", "free", blocks.free);
    state("device", "evictable", blocks.evictable);
    state("device", "used", blocks.used);
    state("host", "free", blocks.host_total - blocks.host_used);
    state("host", "used", blocks.host_used);
  }
  page->Begin(MetricType::Gauge, "quire_kv_pool_blocks",
              "Size of a tier in KV blocks: device is the pool of the worker, host is the memory for swapped blocks");
  for (const auto& worker : workers) {
    page->Value(worker->blocks.total, {{"worker", worker->address}, {"tier", "device"}});
    page->Value(worker->blocks.host_total, {{"worker", worker->address}, {"tier", "host"}});
  }
  page->Begin(MetricType::Gauge, "quire_kv_shared_blocks",
              "Used KV blocks of the device that are held by more than one sequence or pin");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.shared; });
  page->Begin(MetricType::Gauge, "quire_kv_pinned_blocks", "Used KV blocks of the device that are held by pins");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.blocks.pinned; });
}

void RenderBlockUse(const Workers& workers, MetricPage* page) {
  page->Begin(MetricType::Gauge, "quire_kv_block_size_tokens", "Number of tokens per KV block");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.block_size; });
  page->Begin(MetricType::Gauge, "quire_kv_allocated_slots",
              "Token slots in the block tables of all sequences; a shared slot counts once for each sequence");
  PerWorker(workers, page, [](const WorkerStatus& worker) {
    return static_cast<double>(worker.blocks.table_entries * worker.block_size);
  });
  page->Begin(MetricType::Gauge, "quire_kv_live_tokens",
              "The part of quire_kv_allocated_slots that holds a token; the rest is fragmentation");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return static_cast<double>(worker.blocks.live_tokens); });
  page->Begin(MetricType::Gauge, "quire_kv_saved_blocks",
              "Blocks saved by sharing: the entries of all block tables minus the used blocks");
  PerWorker(workers, page, [](const WorkerStatus& worker) {
    return static_cast<double>(std::max<int64_t>(0, worker.blocks.table_entries - worker.blocks.used));
  });
  page->Begin(MetricType::Counter, "quire_kv_evictions_total",
              "Cached blocks that were evicted because a sequence needed a block");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.evictions; });
  page->Begin(MetricType::Counter, "quire_kv_request_pins_total",
              "Prefixes that requests asked to pin (cache_control): pinned, or not because of a limit or because they "
              "fill no block (failed)");
  for (const auto& worker : workers) {
    page->Value(static_cast<double>(worker->stats.request_pins), {{"worker", worker->address}, {"result", "pinned"}});
    page->Value(static_cast<double>(worker->stats.failed_request_pins),
                {{"worker", worker->address}, {"result", "failed"}});
  }
  page->Begin(MetricType::Counter, "quire_kv_forks_total",
              "Samples and beams that began as a copy of another sequence");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.forks; });
  page->Begin(MetricType::Counter, "quire_kv_cow_copies_total",
              "Blocks copied because a sequence wrote to a shared block (copy-on-write)");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.cow_copies; });
  page->Begin(MetricType::Counter, "quire_kv_swapped_blocks_total",
              "Blocks swapped to the host tier (out) and back (in); quire_worker_swapped_bytes_total of the worker "
              "counts the bytes");
  for (const auto& worker : workers) {
    page->Value(static_cast<double>(worker->stats.swapped_out_blocks),
                {{"worker", worker->address}, {"direction", "out"}});
    page->Value(static_cast<double>(worker->stats.swapped_in_blocks),
                {{"worker", worker->address}, {"direction", "in"}});
  }
}

void RenderRequestStates(const ManagerStatus& status, MetricPage* page) {
  page->Begin(MetricType::Gauge, "quire_requests", "Requests by state");
  for (const auto& worker : status.workers) {
    page->Value(worker->waiting_requests, {{"worker", worker->address}, {"state", "waiting"}});
    page->Value(worker->running_requests, {{"worker", worker->address}, {"state", "running"}});
  }
  page->Begin(MetricType::Gauge, "quire_swapped_requests", "Waiting requests whose blocks are in the host tier");
  PerWorker(status.workers, page, [](const WorkerStatus& worker) { return worker.swapped_requests; });
  page->Begin(
      MetricType::Gauge, "quire_expected_wait_seconds",
      "How long a request that comes now will wait for its first step, judging by the last seconds; 0 if it will "
      "not wait or nothing is known");
  PerWorker(status.workers, page, [](const WorkerStatus& worker) { return Seconds(worker.expected_wait_us); });
}

void RenderRequestEnds(const ManagerStatus& status, const RpcCounts& rpcs, MetricPage* page) {
  const StepLoopStats& stats = status.totals;
  page->Begin(MetricType::Counter, "quire_requests_finished_total",
              "Requests that ended, by reason; stop: a stop token or a stop string");
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
  page->Value(status.refusals.tenant_limit, {{"reason", "tenant_limit"}});
  page->Value(stats.displaced, {{"reason", "displaced"}});
  page->Value(status.refusals.overloaded + stats.refused_overloaded, {{"reason", "overloaded"}});
  page->Value(stats.refused_never_fits, {{"reason", "never_fits"}});
  for (size_t i = 0; i < kRpcRefusalNames.size(); ++i) {
    page->Value(static_cast<double>(rpcs.count(static_cast<RpcRefusal>(i))), {{"reason", kRpcRefusalNames[i]}});
  }
}

void RenderRequestWork(const StepLoopStats& stats, MetricPage* page) {
  page->Begin(MetricType::Counter, "quire_prompt_tokens_total", "Prompt tokens of accepted requests");
  page->Value(stats.prompt_tokens);
  page->Begin(MetricType::Counter, "quire_generated_tokens_total", "Generated tokens");
  page->Value(stats.generated_tokens);
  page->Begin(MetricType::Histogram, "quire_queue_time_seconds",
              "Time from the arrival of a request to the plan of its first step");
  page->Value(stats.queue_seconds);
  page->Begin(MetricType::Histogram, "quire_time_to_first_token_seconds",
              "Time from the arrival of a request to its first token");
  page->Value(stats.first_token_seconds);
  page->Begin(MetricType::Histogram, "quire_inter_token_latency_seconds",
              "Time between two consecutive tokens of a request");
  page->Value(stats.inter_token_seconds);
  page->Begin(MetricType::Histogram, "quire_request_duration_seconds",
              "Time from the arrival of a request to its last token");
  page->Value(stats.request_seconds);
  page->Begin(MetricType::Histogram, "quire_request_prefill_seconds",
              "Time from the plan of the first step of a request to its first token");
  page->Value(stats.prefill_seconds);
  page->Begin(MetricType::Histogram, "quire_request_decode_seconds",
              "Time from the first token of a request to its last token");
  page->Value(stats.decode_seconds);
  page->Begin(MetricType::Histogram, "quire_request_prompt_tokens", "Prompt tokens of a finished request");
  page->Value(stats.request_prompt_tokens);
  page->Begin(MetricType::Histogram, "quire_request_generated_tokens",
              "Generated tokens of a finished request, all samples together");
  page->Value(stats.request_generated_tokens);
}

void RenderTenants(const ManagerStatus& status, MetricPage* page) {
  const std::vector<TenantUsage>& tenants = status.totals.tenants;
  const auto per_tenant = [&](const char* name, const char* help, int64_t TenantUsage::*count) {
    page->Begin(MetricType::Counter, name, help);
    for (size_t slot = 0; slot < tenants.size(); ++slot) {
      page->Value(static_cast<double>(tenants[slot].*count), {{"tenant", status.tenant_labels[slot]}});
    }
  };
  per_tenant("quire_tenant_requests_total",
             "Accepted requests by tenant; (none): requests without a tenant, (others): all tenants beyond "
             "--max-tenant-labels",
             &TenantUsage::requests);
  per_tenant("quire_tenant_prompt_tokens_total", "Prompt tokens of accepted requests by tenant",
             &TenantUsage::prompt_tokens);
  per_tenant("quire_tenant_generated_tokens_total", "Generated tokens by tenant", &TenantUsage::generated_tokens);
  per_tenant("quire_tenant_rejections_total",
             "Valid requests that were refused, or that were accepted and gave their place in a full queue to another "
             "tenant, by tenant; without those beyond --max-requests",
             &TenantUsage::refusals);
}

// Generate has a value for every code, so that a rate sees even the first error. The other methods have OK and the
// codes that have occurred.
void RenderRpcs(const RpcCounts& rpcs, MetricPage* page) {
  page->Begin(MetricType::Counter, "quire_rpcs_total",
              "Calls of InferenceService that ended, by method and gRPC code. A call with INVALID_ARGUMENT is not "
              "counted as a request. A request of GenerateBatch counts as a call of Generate");
  for (size_t method = 0; method < kRpcMethodNames.size(); ++method) {
    for (size_t code = 0; code < kRpcCodeNames.size(); ++code) {
      const int64_t count = rpcs.count(static_cast<RpcMethod>(method), static_cast<absl::StatusCode>(code));
      const bool is_generate = static_cast<RpcMethod>(method) == RpcMethod::kGenerate;
      if (count == 0 && code != 0 && !is_generate) continue;
      page->Value(count, {{"method", kRpcMethodNames[method]}, {"code", kRpcCodeNames[code]}});
    }
  }
}

void RenderDetached(const DetachedCounts& detached, MetricPage* page) {
  page->Begin(MetricType::Gauge, "quire_detached_requests",
              "Requests that continue without a client, which has left and may resume the stream");
  page->Value(detached.running);
  page->Begin(MetricType::Gauge, "quire_replayable_requests",
              "Requests that have ended and whose stream can still be resumed");
  page->Value(detached.ended);
  page->Begin(MetricType::Gauge, "quire_replay_bytes", "Memory of all streams that can be resumed");
  page->Value(detached.replay_bytes);
  page->Begin(MetricType::Counter, "quire_resumed_streams_total", "Streams that another call has taken over");
  page->Value(detached.resumed);
  page->Begin(MetricType::Counter, "quire_detached_requests_ended_total",
              "Requests without a client that were ended, by reason; grace: the client did not come back within "
              "--detach-grace, limit: there were more than --max-detached-requests");
  page->Value(detached.expired, {{"reason", "grace"}});
  page->Value(detached.displaced, {{"reason", "limit"}});
  page->Begin(MetricType::Counter, "quire_unresumable_streams_total",
              "Streams that could no longer be resumed, because --max-replay-bytes was used up");
  page->Value(detached.forgotten);
}

// The age of an event that has not happened yet is 0.
double SecondsSince(int64_t time_us, int64_t now_us) {
  return Seconds(std::max<int64_t>(0, now_us - time_us));
}

void RenderWorkers(const ManagerStatus& status, MetricPage* page) {
  const Workers& workers = status.workers;
  page->Begin(MetricType::Gauge, "quire_worker_up", "1 while the worker serves steps");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.is_ready ? 1 : 0; });
  page->Begin(
      MetricType::Gauge, "quire_worker_info",
      "Always 1; the labels are the device of the worker, its model, its generation and its numerics fingerprint");
  for (const auto& worker : workers) {
    page->Value(1, {{"worker", worker->address},
                    {"device", worker->device},
                    {"model", worker->model_name},
                    {"generation", std::to_string(Value(worker->generation))},
                    {"numerics", worker->numerics_fingerprint}});
  }
  page->Begin(MetricType::Gauge, "quire_worker_current",
              "1 while the worker belongs to the generation that new requests go to");
  PerWorker(workers, page, [&](const WorkerStatus& worker) {
    return worker.generation != GenerationId{0} && worker.generation == status.generation ? 1 : 0;
  });
  page->Begin(MetricType::Gauge, "quire_worker_epoch",
              "Epoch of the session, or of the last attempt to open a session");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return static_cast<double>(worker.epoch); });
  page->Begin(MetricType::Gauge, "quire_worker_rank_up",
              "1 while a rank of a divided model has joined the session of its worker");
  for (const auto& worker : workers) {
    if (worker->ranks == nullptr) continue;
    for (size_t rank = 0; rank < worker->ranks->size(); ++rank) {
      page->Value((*worker->ranks)[rank].is_ready ? 1 : 0,
                  {{"worker", worker->address}, {"rank", std::to_string(rank)}});
    }
  }
  page->Begin(MetricType::Counter, "quire_worker_losses_total",
              "Sessions that were lost; sessions that ended with a drain do not count");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.worker_losses; });
  page->Begin(MetricType::Gauge, "quire_worker_plans_in_flight", "Plans sent to the worker and not yet answered");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.num_plans_in_flight; });
  page->Begin(
      MetricType::Gauge, "quire_worker_last_step_age_seconds",
      "Time since the last result of a step, or since the session began; it also grows while the worker is idle");
  PerWorker(workers, page, [&](const WorkerStatus& worker) {
    return worker.last_step_us == 0 ? 0 : SecondsSince(worker.last_step_us, status.now_us);
  });
  page->Begin(MetricType::Gauge, "quire_worker_step_age_seconds",
              "How long the worker has been busy with the oldest unanswered plan; 0 while there is none");
  PerWorker(workers, page, [&](const WorkerStatus& worker) {
    return worker.num_plans_in_flight == 0 ? 0 : SecondsSince(worker.progress_us, status.now_us);
  });
}

void RenderPreemptions(const Workers& workers, MetricPage* page) {
  page->Begin(MetricType::Counter, "quire_preemptions_total",
              "Running requests that had to wait again, by cause (no_blocks, worker_lost) and kind (swap: the blocks "
              "were moved to the host tier, recompute: the blocks were freed)");
  for (const auto& worker : workers) {
    const StepLoopStats& stats = worker->stats;
    const auto count = [&](const char* cause, const char* kind, int64_t value) {
      page->Value(static_cast<double>(value), {{"worker", worker->address}, {"cause", cause}, {"kind", kind}});
    };
    count("no_blocks", "swap", stats.swap_outs);
    count("no_blocks", "recompute", stats.preemptions - stats.swap_outs);
    count("worker_lost", "recompute", stats.interruptions);
  }
  page->Begin(
      MetricType::Counter, "quire_restored_requests_total",
      "Requests of an earlier manager that this one continues or restarts, because the worker still had them; finished "
      "requests do not count");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.restored_requests; });
  page->Begin(
      MetricType::Counter, "quire_moved_requests_total",
      "Requests that continued on another worker, because this one was lost or drained, or could no longer serve them");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.moved_requests; });
  page->Begin(MetricType::Counter, "quire_rebalanced_requests_total",
              "The part of quire_moved_requests_total that waited here and moved to an idle worker, see --rebalance");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.rebalanced_requests; });
  page->Begin(MetricType::Counter, "quire_numerics_changes_total",
              "Requests that this worker has continued after a worker with other numerics, see --failover=approximate");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.numerics_changes; });
  page->Begin(MetricType::Counter, "quire_recomputed_tokens_total",
              "Tokens computed again after a preemption or the loss of a worker");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.recomputed_tokens; });
}

void RenderPrefixes(const Workers& workers, MetricPage* page) {
  page->Begin(MetricType::Counter, "quire_started_prompt_tokens_total",
              "Prompt tokens of requests that have begun to run; the prefix cache was searched for all of them");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.started_tokens; });
  page->Begin(MetricType::Counter, "quire_cached_prompt_tokens_total",
              "The part of quire_started_prompt_tokens_total that was found in the prefix cache");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.cached_tokens; });
}

void RenderSteps(const Workers& workers, MetricPage* page) {
  page->Begin(MetricType::Histogram, "quire_step_duration_seconds", "Time from sending a plan to receiving its result");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.step_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_worker_seconds",
              "Time of a step on the worker, as the worker measures it");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.worker_step_seconds; });
  page->Begin(MetricType::Histogram, "quire_plan_duration_seconds", "Time to make one plan");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.plan_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_manager_seconds",
              "The manager's part of a step: it makes and sends the plan, commits the result, and hands the tokens to "
              "the streams");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.manager_step_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_manager_cpu_seconds",
              "CPU time of the manager's part of a step; less than its time when the machine has too few cores");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.manager_step_cpu_seconds; });
  page->Begin(MetricType::Histogram, "quire_step_tokens", "Number of tokens in a plan");
  PerWorker(workers, page, [](const WorkerStatus& worker) { return worker.stats.step_tokens; });
}

void RenderProcess(const ManagerStatus& status, MetricPage* page) {
  page->Begin(MetricType::Gauge, "quire_ready", "1 while a worker serves steps and the manager is not draining");
  page->Value(status.is_ready ? 1 : 0);
  page->Begin(MetricType::Gauge, "quire_draining", "1 while the manager drains: it refuses new requests and will exit");
  page->Value(status.is_draining ? 1 : 0);
  page->Begin(MetricType::Gauge, "quire_build_info", "Always 1; the labels are the version and the model");
  page->Value(1, {{"version", kVersion}, {"model", status.model_name}});
  const ProcessUsage usage = ReadProcessUsage();
  page->Begin(MetricType::Counter, "process_cpu_seconds_total", "User and system CPU time of the process");
  page->Value(usage.cpu_seconds);
  page->Begin(MetricType::Gauge, "process_resident_memory_bytes", "Resident memory of the process");
  page->Value(static_cast<double>(usage.resident_bytes));
  page->Begin(MetricType::Gauge, "process_start_time_seconds",
              "Start time of the process, in seconds since the Unix epoch");
  page->Value(usage.start_time_seconds);
}

}  // namespace

std::vector<MetricFamily> RenderMetrics(const ManagerStatus& status, const RpcCounts& rpcs,
                                        const MetricsOptions& options, const DetachedCounts& detached) {
  MetricPage page;
  RenderBlockStates(status.workers, &page);
  RenderBlockUse(status.workers, &page);
  RenderRequestStates(status, &page);
  RenderRequestEnds(status, rpcs, &page);
  RenderRequestWork(status.totals, &page);
  RenderTenants(status, &page);
  RenderRpcs(rpcs, &page);
  RenderDetached(detached, &page);
  RenderWorkers(status, &page);
  RenderPreemptions(status.workers, &page);
  RenderPrefixes(status.workers, &page);
  RenderSteps(status.workers, &page);
  RenderProcess(status, &page);
  if (options.has_vllm_names) RenderVllmMetrics(status, &page);
  return page.Take();
}

}  // namespace quire
