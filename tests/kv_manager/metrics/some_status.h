// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_KV_MANAGER_METRICS_SOME_STATUS_H_
#define QUIRE_TESTS_KV_MANAGER_METRICS_SOME_STATUS_H_

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/rpc_counts.h"

namespace quire {

// A status with two workers that serve requests.
inline ManagerStatus SomeStatus() {
  ManagerStatus status;
  status.now_us = 5'000'000;
  status.model_name = "story \"quoted\"";
  status.is_ready = true;
  status.refusals.draining = 3;
  status.tenant_labels = {TenantLabels::kOthers, "blue"};
  for (int i = 0; i < 2; ++i) {
    WorkerStatus worker;
    worker.address = absl::StrCat("worker:", i);
    worker.is_ready = i == 0;
    worker.epoch = 7;
    worker.device = "cpu";
    worker.block_size = 4;
    worker.blocks = {.total = 10,
                     .free = 6 + i,
                     .used = 4 - i,
                     .shared = 1,
                     .host_total = 5,
                     .host_used = 2,
                     .pinned = 2,
                     .table_entries = 5,
                     .live_tokens = 17};
    worker.waiting_requests = 2;
    worker.num_plans_in_flight = i == 0 ? 2 : 0;
    worker.last_step_us = 2'000'000;
    worker.progress_us = 3'000'000;
    worker.stats.started_tokens = 7;
    worker.stats.cached_tokens = 3;
    worker.stats.generated_tokens = 100;
    worker.stats.finished[static_cast<int>(FinishReason::kStopToken)] = 5;
    worker.stats.preemptions = 4;
    worker.stats.swap_outs = 1;
    worker.stats.interruptions = 2;
    worker.stats.first_token_seconds.Observe(0.03);
    worker.stats.step_tokens.Observe(33);
    worker.stats.tenants = {{}, {.requests = 1, .prompt_tokens = 7, .generated_tokens = 100, .refusals = 3}};
    if (i == 1) {
      worker.ranks = std::make_shared<const std::vector<RankState>>(
          std::vector<RankState>{{.address = "worker:1", .is_ready = true}, {.address = "worker:2"}});
    }
    status.totals.Add(worker.stats);
    status.workers.push_back(std::make_shared<WorkerStatus>(worker));
  }
  return status;
}

inline const RpcCounts& SomeRpcs() {
  static RpcCounts* const counts = [] {
    auto* const counts = new RpcCounts;
    counts->Count(RpcMethod::kGenerate, absl::StatusCode::kInvalidArgument);
    counts->Count(RpcMethod::kGenerate, absl::StatusCode::kInvalidArgument);
    counts->Count(RpcMethod::kAbort, absl::StatusCode::kUnauthenticated);
    counts->Count(RpcRefusal::kTooManyRequests);
    return counts;
  }();
  return *counts;
}

}  // namespace quire

#endif  // QUIRE_TESTS_KV_MANAGER_METRICS_SOME_STATUS_H_
