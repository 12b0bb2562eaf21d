#ifndef QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_
#define QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_

#include "kv_manager/engine/manager_engine.h"
#include "kv_manager/metrics/metric_page.h"

namespace quire {

// What dashboards made for vLLM ask for, and the endpoint picker of the Kubernetes inference gateway, under the names
// of vLLM's v1/metrics/loggers.py. Endpoint pickers take one value of each for a whole pod: so the manager shows itself
// as one engine, in which all workers are summed up. Nothing is shown of which Quire has no equal.
void RenderVllmMetrics(const ManagerStatus& status, MetricPage* page);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_VLLM_METRICS_H_
