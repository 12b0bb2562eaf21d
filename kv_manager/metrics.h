#ifndef QUIRE_KV_MANAGER_METRICS_H_
#define QUIRE_KV_MANAGER_METRICS_H_

#include <vector>

#include "kv_manager/manager_engine.h"
#include "prometheus/collectable.h"
#include "prometheus/metric_family.h"

namespace quire {

// Every metric of the manager, rendered from one status. What one worker's metrics say belongs to one moment: in each
// scrape its free and used blocks add up to its pool.
std::vector<prometheus::MetricFamily> RenderMetrics(const ManagerStatus& status);

// Looks at the engine when Prometheus scrapes. Thread-safe.
class ManagerMetrics : public prometheus::Collectable {
 public:
  // `engine` is borrowed.
  explicit ManagerMetrics(const ManagerEngine* engine) : engine_(engine) {}

  std::vector<prometheus::MetricFamily> Collect() const override { return RenderMetrics(engine_->status()); }

 private:
  const ManagerEngine* const engine_;
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_METRICS_H_
