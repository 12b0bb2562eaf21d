// SPDX-License-Identifier: Apache-2.0

#include "bench/serving_sim.h"

#include <algorithm>

#include "base/check.h"
#include "bench/null_worker.h"
#include "kv_manager/blocks/paged_block_manager.h"

namespace quire {
namespace {

class ServingSim {
 public:
  ServingSim(const std::vector<RequestLengths>& requests, const ServingSimOptions& options)
      : requests_(requests),
        step_time_(options.step_time),
        blocks_({.num_blocks = options.num_blocks,
                 .block_size = options.block_size,
                 .num_host_blocks = options.num_host_blocks}),
        scheduler_(WithRoomFor(requests.size(), options.scheduler), &blocks_),
        last_token_s_(requests.size(), -1) {}

  ServingReport Run() {
    double used_seconds = 0;
    while (report_.num_finished < static_cast<int64_t>(requests_.size())) {
      Arrive();
      const StepPlan plan = scheduler_.Plan();
      if (plan.empty()) {
        QUIRE_CHECK_LT(num_arrived_, requests_.size()) << "nothing runs, " << report_.num_finished << " have ended";
        now_s_ = std::max(now_s_, requests_[num_arrived_].arrival_s);
        continue;
      }
      const double seconds = step_time_.Seconds(WorkOf(plan));
      const int used = blocks_.counts().used;
      used_seconds += seconds * used;
      report_.most_used_blocks = std::max(report_.most_used_blocks, used);
      now_s_ += seconds;
      Receive(scheduler_.Commit(worker_.Execute(plan)));
    }
    report_.seconds = now_s_;
    report_.mean_used_blocks = used_seconds / now_s_;
    report_.counts = scheduler_.counts();
    return std::move(report_);
  }

 private:
  static SchedulerOptions WithRoomFor(size_t num_requests, SchedulerOptions options) {
    options.max_waiting_requests = static_cast<int>(num_requests);
    return options;
  }

  void Arrive() {
    for (; num_arrived_ < requests_.size() && requests_[num_arrived_].arrival_s <= now_s_; ++num_arrived_) {
      const RequestLengths& lengths = requests_[num_arrived_];
      Request request;
      request.id = RequestId{num_arrived_};
      request.prompt.assign(lengths.prompt, static_cast<TokenId>(NullWorker::kVocabSize + num_arrived_));
      request.max_tokens = lengths.output;
      const absl::Status status = scheduler_.Submit(std::move(request));
      QUIRE_CHECK(status.ok()) << status;
      report_.prompt_tokens += lengths.prompt;
      report_.output_tokens += lengths.output;
    }
  }

  void Receive(const StepOutput& output) {
    for (const Emission& emission : output.emissions) {
      double& last_s = last_token_s_[Value(emission.request)];
      if (last_s < 0) {
        report_.first_token_s.Add(now_s_ - requests_[Value(emission.request)].arrival_s);
      } else {
        report_.token_gaps_s.Add(now_s_ - last_s);
      }
      last_s = now_s_;
    }
    report_.num_finished += static_cast<int64_t>(output.finished.size());
  }

  const std::vector<RequestLengths>& requests_;
  const StepTime step_time_;
  PagedBlockManager blocks_;
  Scheduler scheduler_;
  NullWorker worker_;
  std::vector<double> last_token_s_;  // [requests]; negative before the first token.
  size_t num_arrived_ = 0;
  double now_s_ = 0;
  ServingReport report_;
};

}  // namespace

ServingReport SimulateServing(const std::vector<RequestLengths>& requests, const ServingSimOptions& options) {
  return ServingSim(requests, options).Run();
}

std::vector<RequestLengths> AtRate(std::vector<RequestLengths> requests, double requests_per_s) {
  if (requests.empty()) return requests;
  const double seconds = requests_per_s > 0 ? static_cast<double>(requests.size()) / requests_per_s : 0;
  const double first_s = requests.front().arrival_s;
  const double last_s = requests.back().arrival_s;
  const double scale = last_s > first_s ? seconds / (last_s - first_s) : 0;
  for (RequestLengths& request : requests) request.arrival_s = (request.arrival_s - first_s) * scale;
  return requests;
}

}  // namespace quire
