// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_METRICS_METRICS_H_
#define QUIRE_KV_MANAGER_METRICS_METRICS_H_

#include <vector>

#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/requests/resumable_requests.h"
#include "kv_manager/requests/rpc_counts.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace quire {

struct MetricsOptions {
  bool has_vllm_names = true;  // It also renders the most used metrics under vLLM's names, see RenderVllmMetrics.
};

// Renders every metric of the manager from one status, the counts of calls, and the counts of streams without a client.
// The metrics of one worker belong to one moment: in each scrape its free and used blocks add up to its pool.
std::vector<prometheus::MetricFamily> RenderMetrics(const ManagerStatus& status, const RpcCounts& rpcs,
                                                    const MetricsOptions& options = {},
                                                    const DetachedCounts& detached = {});

// Renders the metrics whenever Prometheus scrapes. Thread-safe.
class ManagerMetrics : public prometheus::Collectable {
 public:
  // All are borrowed.
  ManagerMetrics(const ManagerEngine* engine, const RpcCounts* rpcs, const ResumableRequests* resumable,
                 const MetricsOptions& options = {})
      : engine_(engine), rpcs_(rpcs), resumable_(resumable), options_(options) {}

  std::vector<prometheus::MetricFamily> Collect() const override {
    return RenderMetrics(engine_->status(), *rpcs_, options_, resumable_->counts());
  }

 private:
  const ManagerEngine* const engine_;
  const RpcCounts* const rpcs_;
  const ResumableRequests* const resumable_;
  const MetricsOptions options_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_METRICS_H_
