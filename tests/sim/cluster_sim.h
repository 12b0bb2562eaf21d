#ifndef QUIRE_TESTS_SIM_CLUSTER_SIM_H_
#define QUIRE_TESTS_SIM_CLUSTER_SIM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "tests/sim/scenario.h"
#include "tests/sim/sim_caller.h"
#include "tests/sim/sim_engine.h"
#include "tests/sim/sim_report.h"

namespace quire {

// Runs a scenario: the core of a manager over one to three shadow workers, in one thread and without a clock. What must
// hold whatever happens is checked after every event. Equal scenarios give equal runs.
class ClusterSim {
 public:
  // `scenario` is borrowed.
  explicit ClusterSim(const Scenario& scenario);

  // The error names the first contradiction. Called once.
  absl::Status Run();

  SimReport Report() const;
  uint64_t digest() const;  // Of all plans of all workers.

 private:
  struct Placed {
    std::shared_ptr<SimCaller> caller;
    SimEngine* engine;
  };

  absl::Status Handle(const SimEvent& event);
  absl::Status Submit(const SimRequest& request);
  absl::Status Probe(int request);
  absl::Status Drain();
  absl::Status CheckPlacement(const std::vector<WorkerLoad>& loads, int chosen, const PlacementRequest& request) const;

  const Scenario& scenario_;
  ShadowModel model_;
  std::vector<std::unique_ptr<SimEngine>> engines_;
  std::map<int, Placed> placed_;  // By id, those that were not refused.
  int64_t now_ = 0;               // Events handled.
};

}  // namespace quire

#endif  // QUIRE_TESTS_SIM_CLUSTER_SIM_H_
