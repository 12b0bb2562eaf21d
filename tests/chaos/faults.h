// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_TESTS_CHAOS_FAULTS_H_
#define QUIRE_TESTS_CHAOS_FAULTS_H_

#include <string>
#include <vector>

#include "tests/chaos/fault_bag.h"
#include "tests/chaos/mixed_load.h"
#include "tests/e2e/cluster.h"
#include "tests/random.h"

namespace quire {

// How long the service may take for something that normally takes milliseconds. The machine may be busy.
inline constexpr int kLongTimeS = 120;

struct FaultContext {
  Cluster* cluster;  // Two workers. Borrowed, as is everything here.
  MixedLoad* load;
  std::string model;  // The checkpoint of both workers.
  std::string other;  // Another checkpoint, for rollouts.
  int grpc_port;      // Ports of the manager.
  int metrics_port;
  int max_connections;  // At grpc_port.
  Random* random;       // Used by the faults of one list only.
};

// Faults of the workers. `are_both_hit`: worker 1 is killed and started again as well; otherwise it is only paused and
// drained by the operator, and keeps its process.
std::vector<Fault> WorkerFaults(const FaultContext& context, bool are_both_hit);

std::vector<Fault> ClientFaults(const FaultContext& context);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_FAULTS_H_
