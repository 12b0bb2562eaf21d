// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_
#define QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "client/library/client.h"
#include "client/load/load_plan.h"
#include "client/load/load_report.h"

namespace quire {

struct LoadTestProgress {
  double elapsed_s = 0;
  int64_t num_sent = 0;
  int64_t num_ended = 0;   // Completed, failed or cancelled requests.
  int64_t num_failed = 0;  // Part of num_ended.
  int64_t output_tokens = 0;
  int num_in_flight = 0;
};

struct LoadOptions {
  int64_t max_requests = std::numeric_limits<int64_t>::max();
  // Nothing is sent after this time. Running requests finish.
  absl::Duration duration = absl::InfiniteDuration();
  // Above 0, the number of callers of a closed loop. Each sends its next request when its last one has ended, and
  // arrival times do not count. 0 means an open loop: every request is sent at its arrival time.
  int concurrency = 0;
  // In an open loop, requests beyond this number of running ones are held back.
  int max_in_flight = 1024;
  absl::Duration timeout = absl::Minutes(10);  // Time limit of each request.
  // Sends all requests over one GenerateBatch call. Otherwise each has its own Generate call.
  bool multiplex = false;
  // The calls that may run at a time on a client, without multiplex. A manager admits 1024 on a connection. More would
  // wait inside gRPC, where the generator cannot measure the wait.
  int max_calls_per_client = 1000;
  ServiceLevel service_level = {};
  // Called every `progress_interval` by one thread, and not after Run has returned.
  std::function<void(const LoadTestProgress&)> on_progress = {};
  absl::Duration progress_interval = absl::Seconds(1);
  // The clock of all measurements. Waiting always uses the steady clock. Must be thread-safe.
  std::function<std::chrono::steady_clock::time_point()> now = &std::chrono::steady_clock::now;

  // The largest number of requests in flight.
  int limit() const { return concurrency > 0 ? concurrency : max_in_flight; }
  // The number of clients that the load needs.
  int num_clients() const;
};

// Sends the requests of a plan and measures what their callers see, on this machine's steady clock. Every latency
// counts from the time at which the request was due. In an open loop that is its arrival time, so the time for which
// the generator held it back counts. In a closed loop it is the end of the caller's last request.
class LoadGenerator {
 public:
  // The clients are borrowed. REQUIRES: there are at least options.num_clients().
  LoadGenerator(std::vector<Client*> clients, const LoadOptions& options);
  ~LoadGenerator();

  // Sends the load and returns when all requests have ended. Call it once.
  LoadReport Run(LoadPlan* plan);

  // Ends Run early, even if it has not begun: sends nothing more and cancels the running requests. Thread-safe.
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_
