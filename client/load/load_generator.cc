#include "client/load/load_generator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

double MillisBetween(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

Clock::duration Ticks(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// What has come of one request so far.
class Reception {
 public:
  Reception(TimePoint scheduled, int64_t input_tokens) : scheduled_(scheduled), input_tokens_(input_tokens) {}

  // Returns the number of new tokens.
  int Add(const v1::GenerateResponse& response) {
    if (response.has_usage()) cached_tokens_ = response.usage().cached_tokens();
    if (response.token_ids_size() == 0) return 0;
    const TimePoint now = Clock::now();
    if (response.index() >= samples_.size()) samples_.resize(response.index() + 1);
    Sample& sample = samples_[response.index()];
    if (sample.num_tokens == 0) sample.first = now;
    if (sample.num_tokens > 0) gaps_ms_.push_back(MillisBetween(sample.last, now));
    sample.last = now;
    sample.num_tokens += response.token_ids_size();
    num_tokens_ += response.token_ids_size();
    if (!first_.has_value()) first_ = now;
    return response.token_ids_size();
  }

  bool has_tokens() const { return first_.has_value(); }

  // REQUIRES: has_tokens().
  void CountIn(const ServiceLevel& level, LoadReport* report) const {
    const double ttft_ms = MillisBetween(scheduled_, *first_);
    const double e2el_ms = MillisBetween(scheduled_, Clock::now());
    double worst_tpot_ms = 0;
    double worst_gap_ms = 0;
    report->ttft_ms.Add(ttft_ms);
    report->e2el_ms.Add(e2el_ms);
    for (const Sample& sample : samples_) {
      if (sample.num_tokens < 2) continue;
      const double tpot_ms = MillisBetween(sample.first, sample.last) / static_cast<double>(sample.num_tokens - 1);
      report->tpot_ms.Add(tpot_ms);
      worst_tpot_ms = std::max(worst_tpot_ms, tpot_ms);
    }
    for (const double gap_ms : gaps_ms_) {
      report->itl_ms.Add(gap_ms);
      worst_gap_ms = std::max(worst_gap_ms, gap_ms);
    }
    ++report->num_completed;
    report->input_tokens += input_tokens_;
    report->output_tokens += num_tokens_;
    report->cached_tokens += cached_tokens_;
    const auto keeps = [](const std::optional<double>& limit, double ms) { return !limit.has_value() || ms <= *limit; };
    report->num_good += keeps(level.ttft_ms, ttft_ms) && keeps(level.e2el_ms, e2el_ms) &&
                        keeps(level.tpot_ms, worst_tpot_ms) && keeps(level.itl_ms, worst_gap_ms);
  }

 private:
  struct Sample {
    TimePoint first;
    TimePoint last;
    int64_t num_tokens = 0;
  };

  const TimePoint scheduled_;
  const int64_t input_tokens_;
  int64_t cached_tokens_ = 0;
  int64_t num_tokens_ = 0;
  std::optional<TimePoint> first_;
  std::vector<Sample> samples_;  // By index.
  std::vector<double> gaps_ms_;
};

// A request on its way from the plan to its call.
struct Job {
  v1::GenerateRequest request;
  TimePoint scheduled;
  TimePoint due;  // When nothing in here has held it back any more.
};

}  // namespace

// The calling thread plans and waits for arrival times, a pool of threads makes the calls, one each; with multiplex one
// thread reads for all.
class LoadGenerator::Impl {
 public:
  Impl(Client* client, const LoadOptions& options) : client_(client), options_(options) {}

  LoadReport Run(LoadPlan* plan) {
    start_ = Clock::now();
    std::thread watcher;
    if (options_.on_progress) watcher = std::thread([this] { ReportProgress(); });
    std::thread reader;
    if (options_.multiplex) {
      {
        const std::lock_guard lock(mutex_);
        batch_ = client_->GenerateBatch();
      }
      reader = std::thread([this] { ReadBatch(); });
    }
    SendAll(plan);
    if (options_.multiplex) batch_->HalfClose();
    WaitForEnds();
    if (reader.joinable()) reader.join();
    if (watcher.joinable()) watcher.join();
    for (std::thread& caller : callers_) caller.join();
    report_.has_service_level = options_.service_level.is_set();
    return std::move(report_);
  }

  void Stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    for (GenerateStream* const stream : streams_) stream->Cancel();
    if (batch_ != nullptr) batch_->Cancel();
    changed_.notify_all();
    place_.notify_all();
  }

 private:
  bool is_closed_loop() const { return options_.concurrency > 0; }

  void SendAll(LoadPlan* plan) {
    const TimePoint end = options_.duration == absl::InfiniteDuration()
                              ? TimePoint::max()
                              : start_ + Ticks(absl::ToDoubleSeconds(options_.duration));
    PlannedRequest planned;
    for (int64_t i = 0; i < options_.max_requests && plan->Next(&planned); ++i) {
      const TimePoint arrival = start_ + Ticks(planned.arrival_s);
      if (!is_closed_loop() && arrival > end) break;
      Job job{.request = plan->MakeRequest(planned), .scheduled = arrival, .due = arrival};
      if (!WaitForTurn(end, &job)) break;
      if (options_.multiplex) {
        StartBatched(static_cast<uint64_t>(i) + 1, job);
      } else {
        Enqueue(std::move(job));
      }
    }
  }

  // Waits for the time of a request, and until it may be in flight. False when it is not to be sent any more.
  bool WaitForTurn(TimePoint end, Job* job) {
    std::unique_lock lock(mutex_);
    const int limit = is_closed_loop() ? options_.concurrency : options_.max_in_flight;
    if (!is_closed_loop()) changed_.wait_until(lock, job->scheduled, [&] { return is_stopped_; });
    const bool is_held = num_in_flight_ >= limit;
    place_.wait(lock, [&] { return is_stopped_ || num_in_flight_ < limit; });
    if (is_stopped_ || (is_closed_loop() && Clock::now() >= end)) return false;
    if (is_closed_loop()) {
      job->due = job->scheduled = num_waited_for_ < limit ? start_ : last_end_;
      ++num_waited_for_;
    } else if (is_held) {
      job->due = std::max(job->scheduled, last_end_);
      report_.held_ms.Add(MillisBetween(job->scheduled, job->due));
    }
    report_.max_in_flight = std::max(report_.max_in_flight, ++num_in_flight_);
    return true;
  }

  // REQUIRES: mutex_ is held.
  void CountSent(const Job& job) {
    const TimePoint now = Clock::now();
    ++report_.num_sent;
    report_.lag_ms.Add(std::max(0.0, MillisBetween(job.due, now)));
    report_.sending_s = MillisBetween(start_, now) / 1000;
  }

  void Enqueue(Job job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    // Never more than may be in flight.
    if (static_cast<int>(jobs_.size()) > num_idle_) callers_.emplace_back([this] { MakeCalls(); });
    job_ready_.notify_one();
  }

  void MakeCalls() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++num_idle_;
      job_ready_.wait(lock, [&] { return !jobs_.empty() || is_over_; });
      --num_idle_;
      if (jobs_.empty()) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      CountSent(job);
      Reception reception(job.scheduled, job.request.token_ids().ids_size());
      lock.unlock();
      const std::unique_ptr<GenerateStream> stream = client_->Generate(job.request, options_.timeout);
      SetOpen(stream.get(), true);
      v1::GenerateResponse response;
      while (stream->Next(&response)) AddTokens(reception.Add(response));
      const absl::Status status = stream->Finish();
      SetOpen(stream.get(), false);
      lock.lock();
      End(reception, status);
    }
  }

  void SetOpen(GenerateStream* stream, bool is_open) {
    const std::lock_guard lock(mutex_);
    if (!is_open) {
      streams_.erase(stream);
    } else {
      streams_.insert(stream);
      if (is_stopped_) stream->Cancel();
    }
  }

  void StartBatched(uint64_t tag, const Job& job) {
    {
      const std::lock_guard lock(mutex_);
      CountSent(job);
      receptions_.emplace(tag, Reception(job.scheduled, job.request.token_ids().ids_size()));
    }
    const absl::Status status = batch_->Start(tag, job.request, options_.timeout);
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (const auto it = receptions_.find(tag); it != receptions_.end()) EndBatched(it, status);
  }

  void ReadBatch() {
    v1::GenerateBatchResponse message;
    while (batch_->Next(&message)) {
      const std::lock_guard lock(mutex_);
      for (const v1::GenerateBatchEntry& entry : message.entries()) {
        const auto it = receptions_.find(entry.tag());
        if (it == receptions_.end()) continue;
        num_tokens_ += it->second.Add(entry.response());
        if (entry.has_end()) EndBatched(it, FromRpcStatus(entry.end()));
      }
    }
    absl::Status status = batch_->Finish();
    if (status.ok()) status = absl::InternalError("the stream has ended without the request's end");
    const std::lock_guard lock(mutex_);
    while (!receptions_.empty()) EndBatched(receptions_.begin(), status);
  }

  // REQUIRES: mutex_ is held.
  void EndBatched(std::unordered_map<uint64_t, Reception>::iterator it, const absl::Status& status) {
    End(it->second, status);
    receptions_.erase(it);
  }

  void AddTokens(int num_tokens) {
    if (num_tokens == 0) return;
    const std::lock_guard lock(mutex_);
    num_tokens_ += num_tokens;
  }

  // REQUIRES: mutex_ is held.
  void End(const Reception& reception, absl::Status status) {
    if (status.ok() && !reception.has_tokens()) status = absl::InternalError("the stream has ended without a token");
    if (status.ok()) {
      reception.CountIn(options_.service_level, &report_);
    } else if (is_stopped_) {
      ++report_.num_cancelled;
    } else {
      if (report_.failures.empty()) report_.first_error = status;
      ++report_.failures[status.code()];
    }
    --num_in_flight_;
    last_end_ = Clock::now();
    place_.notify_all();
  }

  void WaitForEnds() {
    std::unique_lock lock(mutex_);
    place_.wait(lock, [&] { return num_in_flight_ == 0; });
    report_.duration_s = MillisBetween(start_, Clock::now()) / 1000;
    is_over_ = true;
    changed_.notify_all();
    job_ready_.notify_all();
  }

  void ReportProgress() {
    std::unique_lock lock(mutex_);
    const Clock::duration interval = Ticks(absl::ToDoubleSeconds(options_.progress_interval));
    for (TimePoint next = start_; !is_over_; next += interval) {
      changed_.wait_until(lock, next, [&] { return is_over_; });
      if (is_over_) return;
      const LoadProgress progress = {.elapsed_s = MillisBetween(start_, Clock::now()) / 1000,
                                     .num_sent = report_.num_sent,
                                     .num_ended = report_.num_completed + report_.num_failed() + report_.num_cancelled,
                                     .num_failed = report_.num_failed(),
                                     .output_tokens = num_tokens_,
                                     .num_in_flight = num_in_flight_};
      lock.unlock();
      options_.on_progress(progress);
      lock.lock();
    }
  }

  Client* const client_;
  const LoadOptions options_;
  TimePoint start_;
  std::vector<std::thread> callers_;
  std::unique_ptr<GenerateBatchStream> batch_;  // With multiplex. Set under mutex_.

  std::mutex mutex_;
  // All below is guarded by it.
  std::condition_variable job_ready_;  // Or the end.
  std::condition_variable changed_;    // Stopped or at the end.
  std::condition_variable place_;      // A request has ended, or stopped.
  std::deque<Job> jobs_;
  std::set<GenerateStream*> streams_;                   // That run.
  std::unordered_map<uint64_t, Reception> receptions_;  // Of the stream's requests by tag.
  LoadReport report_;
  TimePoint last_end_;  // Of a request.
  int64_t num_waited_for_ = 0;
  int64_t num_tokens_ = 0;
  int num_in_flight_ = 0;
  int num_idle_ = 0;
  bool is_stopped_ = false;
  bool is_over_ = false;
};

LoadGenerator::LoadGenerator(Client* client, const LoadOptions& options)
    : impl_(std::make_unique<Impl>(client, options)) {}

LoadGenerator::~LoadGenerator() = default;

LoadReport LoadGenerator::Run(LoadPlan* plan) {
  return impl_->Run(plan);
}

void LoadGenerator::Stop() {
  impl_->Stop();
}

}  // namespace quire
