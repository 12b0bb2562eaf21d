#ifndef QUIRE_TESTS_CHAOS_FAULTS_H_
#define QUIRE_TESTS_CHAOS_FAULTS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/chaos/mixed_load.h"
#include "tests/e2e/cluster.h"
#include "tests/random.h"

namespace quire {

// How long the service may take for something that normally takes milliseconds. The machine may be busy.
inline constexpr int kLongTimeS = 120;

// A fault: it happens, lasts for a while and is over when `run` returns. The error says what the service did wrong.
struct Fault {
  std::string name;
  std::function<absl::Status()> run;
};

// Draws faults so that each occurs once before any of them occurs again, and counts them.
class FaultBag {
 public:
  FaultBag(std::vector<Fault> faults, uint64_t seed) : faults_(std::move(faults)), random_(seed) {}

  // Runs one fault. The error begins with its name.
  absl::Status RunNext();

  const std::map<std::string, int>& counts() const { return counts_; }

 private:
  const std::vector<Fault> faults_;
  Random random_;
  std::vector<int> left_;  // Faults that this turn has not had yet.
  std::map<std::string, int> counts_;
};

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

// Faults of clients.
std::vector<Fault> ClientFaults(const FaultContext& context);

}  // namespace quire

#endif  // QUIRE_TESTS_CHAOS_FAULTS_H_
