// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WAIT_FORECAST_H_
#define QUIRE_KV_MANAGER_ENGINE_WAIT_FORECAST_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/request.h"

namespace quire {

// Says how long a request may wait before its first step.
struct WaitLimits {
  int64_t max_wait_us = kNever;  // For a request without a deadline.
  // For a request with a deadline: the share of the time until it. The rest is for its prompt and its output. During
  // a lasting overload, a request without a deadline may wait for this share of max_wait_us.
  double max_deadline_share = 0.1;

  int64_t overloaded_wait_us() const {
    if (max_wait_us == kNever) return kNever;
    return static_cast<int64_t>(max_deadline_share * static_cast<double>(max_wait_us));
  }
};

// The names of the queues whose overload lasts, see QueueNameOf. Never changed once it is shared. Null: there are none.
using OverloadedQueues = std::shared_ptr<const absl::flat_hash_set<std::string>>;

// Holds what a step loop has measured of the time that requests take. A value of 0 means that it is not known, or that
// nothing holds requests up.
struct WaitForecast {
  // Outputs are counted by the size of Request::max_tokens: sizes 2^i .. 2^(i+1) - 1 belong together.
  static constexpr int kNumOutputSizes = 24;
  static int OutputSizeOf(int max_tokens);

  // The tokens that wait before a request that comes now, see Scheduler::NumTokensAhead. It is 0 when this depends on
  // the request, see WorkerLoad::waiting_tenant. Then only the step loop can tell.
  int64_t waiting_tokens = 0;
  double us_per_waiting_token = 0;
  bool is_overloaded = false;  // The overload of the queue of the request lasts, see WaitMeter::NoteQueues.
  // When a plan last left requests waiting; kNever while some wait. Without steps, nothing else tells that the overload
  // has ended.
  int64_t calm_since_us = kNever;
  // The mean time of the last steps, and the mean number of requests that ran in them.
  double step_us = 0;
  double step_requests = 0;
  double least_step_us = 0;   // The time of a step with few requests.
  double us_per_request = 0;  // Time by which each further request makes a step longer, see StepModel.
  int num_requests = 0;       // The requests that wait or run now.
  int num_running = 0;        // The part of these that runs.
  int num_free_rows = 0;      // A request that comes now and has fewer requests ahead gets one of these.
  // The times until requests that run now have probably ended: the first one, the last one, and at equal distances the
  // ones between, in the order of their ends.
  static constexpr int kNumEnds = 8;
  std::array<float, kNumEnds> ends_us = {};
  double tokens_per_waiting = 0;  // The mean of the waiting requests.
  // The mean number of tokens that a sample of a request with this size has generated.
  std::array<float, kNumOutputSizes> output_tokens = {};

  // By the rate at which requests have started.
  int64_t WaitUs(int64_t num_tokens_ahead) const;
  // The time until there is a row for the request, by the ends of the requests that run now and of those that start
  // before it, which are expected to be like this one. Requests that began together end together, and then the rate of
  // the last seconds says too little about a single request. Returns 0 when it is not known.
  int64_t RowWaitUs(int64_t num_tokens_ahead, const Request& request) const;
  // Returns the time until the request with this index, in the order of their ends, has probably ended.
  // REQUIRES: 0 <= index < num_running.
  int64_t EndUs(int index) const;
  // Returns the time from the first step to the end of the request. The more requests run together, the longer is a
  // step. This one is expected to run together with all others, or, when there is a queue, with the number that runs
  // now. Returns 0 when this does not make steps slow, for example when there are no others.
  int64_t OutputUs(const Request& request) const;
};

// RESOURCE_EXHAUSTED with the reason OVERLOADED and a delay for the next attempt when the request would wait longer
// than the limits allow, or would end too close to its deadline. `num_tokens_ahead` tokens wait before it. A request
// whose deadline has passed is not refused, because it ends with DEADLINE_EXCEEDED before it runs. Takes less than a
// microsecond when it is OK.
absl::Status CheckWait(const WaitLimits& limits, const WaitForecast& forecast, int64_t num_tokens_ahead,
                       const Request& request, int64_t now_us);

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WAIT_FORECAST_H_
