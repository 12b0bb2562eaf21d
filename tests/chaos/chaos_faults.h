// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_CHAOS_FAULTS_H_
#define QUIRE_TESTS_CHAOS_CHAOS_FAULTS_H_

#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "tests/chaos/event_log.h"
#include "tests/chaos/fault_bag.h"
#include "tests/chaos/fault_proxy.h"
#include "tests/chaos/resuming_load.h"
#include "tests/e2e/cluster.h"
#include "tests/random.h"

namespace quire {

// The times at which the manager was not there. Thread-safe.
class ManagerOutages {
 public:
  void Begin();
  // The manager serves again.
  void End();
  // Whether the manager was away at a time since `start`.
  bool HappenedSince(absl::Time start) const;

 private:
  mutable Mutex mutex_;
  absl::Time last_end_ QUIRE_GUARDED_BY(mutex_) = absl::InfinitePast();  // InfiniteFuture during an outage.
};

struct ChaosContext {
  Cluster* cluster;  // Borrowed, as is everything here.
  int num_workers;
  ResumingLoad* load;
  ManagerOutages* outages;
  EventLog* events;
  std::vector<std::unique_ptr<FaultProxy>>* worker_proxies;  // By worker: between the manager and it.
  FaultProxy* client_proxy;                                  // Between the clients and the manager.
  Random* random;                                            // Used by the faults of one list only.
};

// Faults of the processes. All processes run when a fault is over. An error says what the service did wrong: a process
// has ended by itself, or a worker does not come back.
std::vector<Fault> ProcessFaults(const ChaosContext& context);

// Faults of the connections. No proxy has a fault when one of these is over.
std::vector<Fault> LinkFaults(const ChaosContext& context);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_CHAOS_FAULTS_H_
