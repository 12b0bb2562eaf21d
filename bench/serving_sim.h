// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_BENCH_SERVING_SIM_H_
#define QUIRE_BENCH_SERVING_SIM_H_

#include <cstdint>
#include <vector>

#include "bench/step_time.h"
#include "client/load/request_lengths.h"
#include "client/load/samples.h"
#include "scheduler/scheduler.h"

namespace quire {

struct ServingSimOptions {
  SchedulerOptions scheduler;  // The simulation sets max_waiting_requests.
  int num_blocks = 8192;
  int block_size = 16;
  int num_host_blocks = 0;
  StepTime step_time;
};

// The results that callers saw, in simulated time.
struct ServingReport {
  int64_t num_finished = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double seconds = 0;           // Time from the first arrival to the last token.
  Samples first_token_s;        // Time from arrival to the first token.
  Samples token_gaps_s;         // Time between tokens of one request.
  double mean_used_blocks = 0;  // Mean over time.
  int most_used_blocks = 0;
  SchedulerCounts counts;

  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
  double requests_per_s() const { return static_cast<double>(num_finished) / seconds; }
  // Tokens that were computed again after a preemption, as a share of all tokens that had to be computed.
  double recomputed_share() const {
    return static_cast<double>(counts.recomputed_tokens) / static_cast<double>(prompt_tokens + output_tokens);
  }
};

// Runs the production scheduler and block manager with the prefix cache and a worker that computes nothing but takes
// the simulated time. Returns when every request has ended. Steps run one after the other. The first plan after a
// request's arrival sees it.
ServingReport SimulateServing(const std::vector<RequestLengths>& requests, const ServingSimOptions& options);

// Returns the same lengths with arrival times scaled to `requests_per_s` on average. With 0 all arrive at once.
std::vector<RequestLengths> AtRate(std::vector<RequestLengths> requests, double requests_per_s);

}  // namespace quire

#endif  // QUIRE_BENCH_SERVING_SIM_H_
