// SPDX-License-Identifier: Apache-2.0

#ifndef QUIRE_KV_MANAGER_ENGINE_WAIT_METER_H_
#define QUIRE_KV_MANAGER_ENGINE_WAIT_METER_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kv_manager/engine/step_model.h"
#include "kv_manager/engine/wait_forecast.h"
#include "scheduler/scheduler.h"
#include "scheduler/waiting_queue.h"

namespace quire {

// Measures how fast waiting requests start and how long they run, for a WaitForecast. Owned by the step-loop thread.
//
// By Little's law, a request waits as long as the tokens before it take to start. Tokens stand for the work of a
// request, because a long prompt takes longer than a short one. Only the time in which a plan has left requests waiting
// counts: at other times the rate of starts is that of the arrivals, and nobody waits for more than a step. Nothing is
// known before requests have waited for kMinBusyUs, nor when the last plan has left none. Nor is it before kMinStarts
// requests have started meanwhile, or the number that runs if this is smaller: when the rows are full of requests that
// began together, none ends for a while, and then many do.
class WaitMeter {
 public:
  static constexpr int64_t kMinBusyUs = 200'000;
  // The rate is the mean over this time, and over more if fewer than kMinStarts requests have started in it.
  static constexpr int64_t kWindowUs = 2'000'000;
  static constexpr int kMinStarts = 8;
  // After this time in which nobody waited, the old rate says nothing.
  static constexpr int64_t kForgetUs = 10'000'000;

  // A plan has just been made, or nothing could be planned. `counts` are the counts after it.
  void OnPlanned(int64_t now_us, const SchedulerCounts& counts);
  // These wait after the last plan. The overload of a queue lasts from the moment at which it is nearly as long as a
  // request without a deadline may wait, until it has been short for the same time, or empty for as long as requests
  // may wait during an overload: more requests than are served would have filled it again. Those who come during a
  // burst may wait, because it ends. While more requests come than are served, a long queue serves nobody more, and
  // makes everybody in it wait. The requests of tenants with other queues do not wait for it, so they may come as
  // before.
  void NoteQueues(int64_t now_us, absl::Span<const TenantBacklog> backlogs, const WaitLimits& limits);
  // Looks which rows are free, and when the others will be.
  void NoteEnds(const Scheduler& scheduler);
  // A step in which `num_requests` requests ran, and which computed `num_tokens` tokens for `num_slices` sequences, has
  // ended, `step_us` after the step before it, or after its plan was sent.
  void OnStep(int64_t step_us, int num_requests, int num_slices, int num_tokens);
  // A request has ended by itself, with this number of tokens in each of its samples. `num_prompt_tokens` tokens of its
  // prompt were computed.
  void OnFinished(int max_tokens, double num_tokens, int num_prompt_tokens);
  // A request was ended by its caller or its deadline when it had this number of tokens in each of its samples. It
  // would have got more, so it counts only if that is above the mean.
  void OnEndedEarly(int max_tokens, double num_tokens);
  // The session has ended: steps of the next one say how fast its worker is.
  void OnLost();

  // Returns whether the last plan has left requests waiting.
  bool is_busy() const { return is_busy_; }
  // For a request that joins this queue. It has no waiting_tokens and num_requests.
  WaitForecast Forecast(absl::string_view queue = "") const;
  const OverloadedQueues& overloaded_queues() const { return overloaded_queues_; }
  // The mean time of the last steps.
  int64_t step_us() const { return static_cast<int64_t>(step_us_); }

 private:
  struct Span {
    int64_t us = 0;
    int64_t tokens = 0;  // Tokens of the requests that have started.
    int64_t starts = 0;
  };

  struct Overload {
    int64_t long_us;     // When the queue was last not short.
    int64_t waiting_us;  // When it was last not empty.
  };

  void Add(const Span& span);
  void LearnOutput(int max_tokens, double num_tokens);

  bool is_busy_ = false;
  int64_t last_plan_us_ = 0;
  int64_t last_entered_ = 0;
  int64_t last_entered_tokens_ = 0;
  double waiting_mean_tokens_ = 0;  // Per waiting request.
  std::deque<Span> spans_;          // Requests waited in these spans; the oldest comes first.
  Span sum_;                        // Sum of spans_.

  double step_us_ = 0;  // 0: no step was measured.
  double step_requests_ = 0;
  double least_step_us_ = 0;  // The smallest value of step_us_ in this session.
  StepModel step_model_;
  // The means of the requests that have ended by themselves.
  double prompt_tokens_ = 0;
  double sample_tokens_ = 0;
  absl::flat_hash_map<std::string, Overload> overloads_;  // By queue.
  OverloadedQueues overloaded_queues_;                    // The keys of overloads_.
  int num_running_ = 0;
  int num_free_rows_ = 0;
  std::array<float, WaitForecast::kNumEnds> ends_us_ = {};
  std::vector<float> steps_left_;  // Scratch memory of NoteEnds.
  std::array<float, WaitForecast::kNumOutputSizes> output_tokens_ = {};
  std::array<int, WaitForecast::kNumOutputSizes> num_outputs_ = {};  // In output_tokens_, at most kMeanOutputs.
};

}  // namespace quire

#endif  // QUIRE_KV_MANAGER_ENGINE_WAIT_METER_H_
