#ifndef QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_
#define QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "client/client.h"
#include "client/load/load_plan.h"
#include "client/load/load_report.h"

namespace quire {

struct LoadProgress {
  double elapsed_s = 0;
  int64_t num_sent = 0;
  int64_t num_ended = 0;   // Completed, failed and cancelled.
  int64_t num_failed = 0;  // Part of ended.
  int64_t output_tokens = 0;
  int num_in_flight = 0;
};

struct LoadOptions {
  int64_t max_requests = std::numeric_limits<int64_t>::max();
  absl::Duration duration = absl::InfiniteDuration();  // After which nothing is sent, held or not; what runs ends.
  // Above 0: a closed loop of so many callers, each of which sends its next request when the one before has ended;
  // arrival times do not count. 0: an open loop, requests are sent at their arrival times whatever became of others.
  int concurrency = 0;
  int max_in_flight = 1024;                    // Of an open loop: requests that arrive while so many run wait here.
  absl::Duration timeout = absl::Minutes(10);  // Of a request.
  bool multiplex = false;  // All requests over one GenerateBatch; else a Generate and a thread for each.
  // That may run at a time, without multiplex. More than a manager admits on a connection (1024) would wait in gRPC,
  // where nothing sees it.
  int max_calls_per_client = 1000;
  ServiceLevel service_level = {};
  // Called from time to time by one thread, not called again once Run has returned.
  std::function<void(const LoadProgress&)> on_progress = {};
  absl::Duration progress_interval = absl::Seconds(1);
  // What times are measured by; waiting is always by the steady clock. Thread-safe.
  std::function<std::chrono::steady_clock::time_point()> now = &std::chrono::steady_clock::now;

  // Requests that may be in flight at a time.
  int limit() const { return concurrency > 0 ? concurrency : max_in_flight; }
  // How many clients such a load needs.
  int num_clients() const;
};

// Sends the requests of a plan and measures what their callers see, on this machine's steady clock. Every latency
// counts from the time at which the request was to be sent: in an open loop its arrival time, so that a request which
// had to wait in here has waited; in a closed loop the end of the caller's request before.
class LoadGenerator {
 public:
  // The clients are borrowed. REQUIRES: there are at least options.num_clients().
  LoadGenerator(std::vector<Client*> clients, const LoadOptions& options);
  ~LoadGenerator();

  // Returns when all requests have ended. To be called once.
  LoadReport Run(LoadPlan* plan);

  // Ends Run early, whether or not it has begun: sends no more and cancels what runs. From any thread.
  void Stop();

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace quire

#endif  // QUIRE_CLIENT_LOAD_LOAD_GENERATOR_H_
