#ifndef QUIRE_BENCH_SERVING_SIM_H_
#define QUIRE_BENCH_SERVING_SIM_H_

#include <cstdint>
#include <vector>

#include "client/load/request_lengths.h"
#include "client/load/samples.h"
#include "bench/step_time.h"
#include "scheduler/scheduler.h"

namespace quire {

struct ServingSimOptions {
  SchedulerOptions scheduler;  // max_waiting_requests is made large enough.
  int num_blocks = 8192;
  int block_size = 16;
  int num_host_blocks = 0;
  StepTime step_time;
};

// What callers saw, in simulated time.
struct ServingReport {
  int64_t num_finished = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  double seconds = 0;           // From the first arrival to the last token.
  Samples first_token_s;        // From arrival.
  Samples token_gaps_s;         // Between tokens of one request.
  double mean_used_blocks = 0;  // Over time.
  int most_used_blocks = 0;
  SchedulerCounts counts;

  double output_tokens_per_s() const { return static_cast<double>(output_tokens) / seconds; }
  double requests_per_s() const { return static_cast<double>(num_finished) / seconds; }
  // Computed more than once, of those that had to be.
  double recomputed_share() const {
    return static_cast<double>(counts.recomputed_tokens) / static_cast<double>(prompt_tokens + output_tokens);
  }
};

// The production scheduler and block manager, prefix cache on, with a worker that computes nothing and takes its time.
// Runs until every request has ended. Steps run one after the other; a request is seen by the first plan after its
// arrival.
ServingReport SimulateServing(const std::vector<RequestLengths>& requests, const ServingSimOptions& options);

// The same lengths arriving at `requests_per_s` on average, in the proportions of their gaps; all at once when it is 0.
std::vector<RequestLengths> AtRate(std::vector<RequestLengths> requests, double requests_per_s);

}  // namespace quire

#endif  // QUIRE_BENCH_SERVING_SIM_H_
