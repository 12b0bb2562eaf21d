// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_
#define QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_

#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/metrics/metric_page.h"

namespace quire {

// Renders the metrics that dashboards for vLLM and the endpoint picker of the Kubernetes inference gateway read, under
// the names of vLLM's v1/metrics/loggers.py. An endpoint picker expects one value per pod, so the manager shows itself
// as one engine that sums up all workers. Metrics that have no equivalent in Quire are left out.
void RenderVllmMetrics(const ManagerStatus& status, MetricPage* page);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_
