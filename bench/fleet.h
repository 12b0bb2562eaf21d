// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_FLEET_H_
#define QUIRE_BENCH_FLEET_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/library/client.h"
#include "tests/e2e/process.h"

namespace quire {

struct FleetOptions {
  std::string binaries;  // The folder of quire-manager and quire-worker.
  std::string model;     // The folder with config.json and tokenizer.
  int num_workers = 8;
  int rows_per_worker = 256;
  absl::Duration step;  // Duration of a step of the simulated device.
  int max_batch_requests = 1024;
  std::vector<std::string> manager_flags = {};
};

// A real manager with simulated workers, each a process of its own on this machine, joined by unix sockets.
class Fleet {
 public:
  // Starts the processes and waits until all workers have joined.
  static absl::StatusOr<std::unique_ptr<Fleet>> Start(const FleetOptions& options);
  ~Fleet();

  // Kills worker `i` (kill -9) and starts it again.
  void RestartWorker(int i);

  const std::string& endpoint() const { return endpoint_; }
  int manager_pid() const { return manager_->pid(); }

  // The manager's metrics at one moment.
  struct Metrics {
    double cpu_seconds = 0;
    double resident_bytes = 0;
    // The buckets of a histogram, over all workers: the upper bound in seconds, and the count up to it.
    using Buckets = std::map<double, double>;
    Buckets plans;          // The time to make a plan.
    Buckets manager_parts;  // The manager's part of a step: planning, sending, commit, handing tokens to streams.
    Buckets manager_cpu;    // The CPU time of it.
  };
  absl::StatusOr<Metrics> Scrape() const;

 private:
  explicit Fleet(const FleetOptions& options);

  std::unique_ptr<Process> StartWorker(int i) const;
  absl::Status StartManager();
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }

  const FleetOptions options_;
  std::string directory_;
  std::vector<std::unique_ptr<Process>> workers_;
  std::unique_ptr<Process> manager_;
  std::string endpoint_;
  int metrics_port_ = 0;
};

// Returns the quantile, in seconds, of what a histogram has counted between two scrapes. It is linear within a bucket.
double QuantileBetween(const Fleet::Metrics::Buckets& begin, const Fleet::Metrics::Buckets& end, double quantile);

}  // namespace quire

#endif  // QUIRE_BENCH_FLEET_H_
