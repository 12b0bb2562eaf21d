// SPDX-License-Identifier: Apache-2.0

#include "kv_manager/metrics/vllm_metrics.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace quire {
namespace {

using prometheus::MetricType;

MetricLabels With(MetricLabels labels, MetricLabels more) {
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

// The sums over all workers.
struct Pool {
  int64_t running = 0;
  int64_t waiting = 0;
  int64_t blocks = 0;
  int64_t used_blocks = 0;
  int block_size = 0;  // The block size of the first worker that has joined.
};

Pool SumUp(const ManagerStatus& status) {
  Pool pool;
  for (const auto& worker : status.workers) {
    pool.running += worker->running_requests;
    pool.waiting += worker->waiting_requests;
    pool.blocks += worker->blocks.total;
    pool.used_blocks += worker->blocks.used;
    if (pool.block_size == 0) pool.block_size = worker->block_size;
  }
  return pool;
}

void RenderGauges(const Pool& pool, const MetricLabels& labels, MetricPage* page) {
  page->Begin(MetricType::Gauge, "vllm:num_requests_running", "Running requests");
  page->Value(static_cast<double>(pool.running), labels);
  page->Begin(MetricType::Gauge, "vllm:num_requests_waiting", "Waiting requests");
  page->Value(static_cast<double>(pool.waiting), labels);
  page->Begin(MetricType::Gauge, "vllm:num_requests_waiting_by_reason",
              "Waiting requests by reason; in Quire all of them wait for room (capacity)");
  page->Value(static_cast<double>(pool.waiting), With(labels, {{"reason", "capacity"}}));
  page->Value(0, With(labels, {{"reason", "deferred"}}));
  page->Begin(MetricType::Gauge, "vllm:engine_sleep_state", "1 for the state of the engine; Quire is always awake");
  page->Value(1, With(labels, {{"sleep_state", "awake"}}));
  page->Value(0, With(labels, {{"sleep_state", "weights_offloaded"}}));
  page->Value(0, With(labels, {{"sleep_state", "discard_all"}}));
  page->Begin(MetricType::Gauge, "vllm:kv_cache_usage_perc",
              "Share of the KV blocks in use, from 0 to 1; blocks that only the prefix cache holds are not in use");
  const double blocks = static_cast<double>(pool.blocks);
  page->Value(pool.blocks == 0 ? 0 : static_cast<double>(pool.used_blocks) / blocks, labels);
  page->Begin(MetricType::Gauge, "vllm:cache_config_info",
              "Always 1; the labels are the number of tokens per block and the number of blocks");
  page->Value(
      1, With(labels, {{"block_size", absl::StrCat(pool.block_size)}, {"num_gpu_blocks", absl::StrCat(pool.blocks)}}));
}

void RenderCounters(const StepLoopStats& stats, const MetricLabels& labels, MetricPage* page) {
  const auto count = [&](const char* name, const char* help, int64_t value) {
    page->Begin(MetricType::Counter, name, help);
    page->Value(static_cast<double>(value), labels);
  };
  const auto finished = [&](FinishReason reason) {
    return static_cast<double>(stats.finished[static_cast<int>(reason)]);
  };
  count("vllm:prompt_tokens_total", "Prompt tokens of requests that have begun to run", stats.started_tokens);
  count("vllm:generation_tokens_total", "Generated tokens", stats.generated_tokens);
  count("vllm:prefix_cache_queries_total", "Prompt tokens for which the prefix cache was searched",
        stats.started_tokens);
  count("vllm:prefix_cache_hits_total", "Prompt tokens that were found in the prefix cache", stats.cached_tokens);
  count("vllm:prompt_tokens_cached_total", "Prompt tokens that were found in the prefix cache", stats.cached_tokens);
  const auto by_source = [&](const char* source, int64_t value) {
    page->Value(static_cast<double>(value), With(labels, {{"source", source}}));
  };
  page->Begin(MetricType::Counter, "vllm:prompt_tokens_by_source_total",
              "Prompt tokens of requests that have begun to run, by where their K and V came from");
  by_source("local_compute", stats.started_tokens - stats.cached_tokens);
  by_source("local_cache_hit", stats.cached_tokens);
  by_source("external_kv_transfer", 0);
  count("vllm:num_preemptions_total", "Preemptions: running requests that had to wait again because blocks ran out",
        stats.preemptions);
  page->Begin(MetricType::Counter, "vllm:request_success_total", "Requests that ended, by reason");
  page->Value(finished(FinishReason::kStopToken), With(labels, {{"finished_reason", "stop"}}));
  page->Value(finished(FinishReason::kLength), With(labels, {{"finished_reason", "length"}}));
  page->Value(finished(FinishReason::kCancelled) + finished(FinishReason::kDeadline),
              With(labels, {{"finished_reason", "abort"}}));
  page->Value(static_cast<double>(stats.failed), With(labels, {{"finished_reason", "error"}}));
}

void RenderHistograms(const StepLoopStats& stats, const MetricLabels& labels, MetricPage* page) {
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    page->Begin(MetricType::Histogram, name, help);
    page->Value(values, labels);
  };
  histogram("vllm:time_to_first_token_seconds", "Time from the arrival of a request to its first token",
            stats.first_token_seconds);
  histogram("vllm:inter_token_latency_seconds", "Time between two consecutive tokens of a request",
            stats.inter_token_seconds);
  histogram("vllm:e2e_request_latency_seconds", "Time from the arrival of a request to its last token",
            stats.request_seconds);
  histogram("vllm:request_queue_time_seconds", "Time from the arrival of a request to the plan of its first step",
            stats.queue_seconds);
  histogram("vllm:request_inference_time_seconds",
            "Time from the plan of the first step of a request to its last token", stats.running_seconds);
  histogram("vllm:request_prefill_time_seconds", "Time from the plan of the first step of a request to its first token",
            stats.prefill_seconds);
  histogram("vllm:request_decode_time_seconds", "Time from the first token of a request to its last token",
            stats.decode_seconds);
  histogram(
      "vllm:request_time_per_output_token_seconds",
      "Time from the first token of a request to its last token, divided by the tokens after the first one of its "
      "longest sample",
      stats.token_seconds);
  histogram("vllm:request_prompt_tokens", "Prompt tokens of a request", stats.request_prompt_tokens);
  histogram("vllm:request_generation_tokens", "Generated tokens of a request", stats.request_generated_tokens);
  histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens of a request that were not in the prefix cache",
            stats.request_computed_tokens);
  histogram("vllm:request_max_num_generation_tokens", "Generated tokens of the longest sample of a request",
            stats.request_longest_output);
  histogram("vllm:request_params_max_tokens", "max_tokens of a request", stats.request_max_tokens);
  histogram("vllm:request_params_n", "Samples of a request, or hypotheses that its beam search returns",
            stats.request_outputs);
  histogram("vllm:iteration_tokens_total", "Number of tokens in a step", stats.step_tokens);
}

}  // namespace

void RenderVllmMetrics(const ManagerStatus& status, MetricPage* page) {
  const MetricLabels labels = {{"model_name", status.model_name}, {"engine", "0"}};
  RenderGauges(SumUp(status), labels, page);
  RenderCounters(status.totals, labels, page);
  RenderHistograms(status.totals, labels, page);
}

}  // namespace quire
