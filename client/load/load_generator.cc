// SPDX-License-Identifier: Apache-2.0

#include "client/load/load_generator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mutex.h"
#include "client/library/generate_streams.h"
#include "client/load/free_places.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

constexpr int64_t kMaxCountedUnsent = 1'000'000;

double MillisBetween(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

Clock::duration Ticks(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

size_t NumSamplesOf(const v1::GenerateRequest& request) {
  return request.has_beam() ? request.beam().width() : std::max<size_t>(request.n(), 1);
}

// The responses to one request so far.
class Reception {
 public:
  Reception(const v1::GenerateRequest& request, TimePoint scheduled)
      : scheduled_(scheduled), input_tokens_(request.token_ids().ids_size()), samples_(NumSamplesOf(request)) {}

  // Returns the number of new tokens.
  int Add(const v1::GenerateResponse& response, TimePoint now) {
    if (response.has_usage()) cached_tokens_ = response.usage().cached_tokens();
    if (response.token_ids_size() == 0) return 0;
    if (response.index() >= samples_.size()) {
      error_ = absl::InternalError(
          absl::StrCat("a response is of sample ", response.index(), ", the request has ", samples_.size()));
      return 0;
    }
    Sample& sample = samples_[response.index()];
    if (sample.num_tokens == 0) sample.first = now;
    if (sample.num_tokens > 0) gaps_ms_.push_back(MillisBetween(sample.last, now));
    sample.last = now;
    sample.num_tokens += response.token_ids_size();
    num_tokens_ += response.token_ids_size();
    if (!first_.has_value()) first_ = now;
    return response.token_ids_size();
  }

  // OK when the responses make a whole answer.
  absl::Status Check() const {
    if (!error_.ok() || first_.has_value()) return error_;
    return absl::InternalError("the stream has ended without a token");
  }

  // REQUIRES: Check() is OK.
  void CountIn(const ServiceLevel& level, TimePoint now, LoadReport* report) const {
    const double ttft_ms = MillisBetween(scheduled_, *first_);
    const double e2el_ms = MillisBetween(scheduled_, now);
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
  absl::Status error_;
  std::vector<Sample> samples_;  // [samples of the request]
  std::vector<double> gaps_ms_;
};

// A request on its way from the plan to its call.
struct Job {
  v1::GenerateRequest request;
  TimePoint scheduled;
  TimePoint due;  // The time at which max_in_flight let the request go.
};

}  // namespace

// The calling thread plans the requests, waits for their arrival times and starts the calls. One thread for each client
// reads the responses. With multiplex there is one stream for all requests, and one thread that reads it.
class LoadGenerator::Impl {
 public:
  Impl(std::vector<Client*> clients, const LoadOptions& options) : clients_(std::move(clients)), options_(options) {
    QUIRE_CHECK(static_cast<int>(clients_.size()) >= options_.num_clients()) << clients_.size();
  }

  LoadReport Run(LoadPlan* plan) {
    start_ = options_.now();
    {
      const MutexLock lock(&mutex_);
      free_places_ = FreePlaces(options_.limit(), start_);
    }
    std::thread watcher;
    if (options_.on_progress) watcher = std::thread([this] { ReportProgress(); });
    std::thread reader;
    if (options_.multiplex) {
      {
        const MutexLock lock(&mutex_);
        batch_ = clients_.front()->GenerateBatch();
      }
      reader = std::thread([this] { ReadBatch(); });
    }
    SendAll(plan);
    if (options_.multiplex) batch_->HalfClose();
    WaitForEnds();
    if (reader.joinable()) reader.join();
    if (watcher.joinable()) watcher.join();
    for (Lane& lane : lanes_) {
      lane.streams->HalfClose();
      lane.reader.join();
    }
    const MutexLock lock(&mutex_);
    report_.has_service_level = options_.service_level.is_set();
    return std::move(report_);
  }

  void Stop() QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    is_stopped_ = true;
    for (const Lane& lane : lanes_) lane.streams->CancelAll();
    if (batch_ != nullptr) batch_->Cancel();
    changed_.NotifyAll();
    place_.NotifyAll();
  }

 private:
  // The calls of one client.
  struct Lane {
    std::unique_ptr<GenerateStreams> streams;
    std::thread reader;
    int num_calls = 0;  // Guarded by mutex_.
  };

  bool is_closed_loop() const { return options_.concurrency > 0; }

  void SendAll(LoadPlan* plan) {
    const TimePoint end = options_.duration == absl::InfiniteDuration()
                              ? TimePoint::max()
                              : start_ + Ticks(absl::ToDoubleSeconds(options_.duration));
    PlannedRequest planned;
    for (int64_t i = 0; i < options_.max_requests && plan->Next(&planned); ++i) {
      const TimePoint arrival = ArrivalOf(planned);
      if (!is_closed_loop() && arrival > end) break;
      Job job{.request = plan->MakeRequest(planned), .scheduled = arrival, .due = arrival};
      if (!WaitForTurn(end, &job)) return CountUnsent(plan, options_.max_requests - i, end);
      const uint64_t tag = static_cast<uint64_t>(i) + 1;
      if (options_.multiplex) {
        StartBatched(tag, job);
      } else {
        StartCall(tag, job);
      }
    }
  }

  TimePoint ArrivalOf(const PlannedRequest& planned) const { return start_ + Ticks(planned.arrival_s); }

  // Counts the request at which an open loop has ended and the later ones that have arrived by then, `num_left` at
  // most.
  void CountUnsent(LoadPlan* plan, int64_t num_left, TimePoint end) {
    if (is_closed_loop() || is_stopped()) return;
    const int64_t most = std::min(num_left, kMaxCountedUnsent);
    PlannedRequest planned;
    int64_t num_unsent = 1;
    while (num_unsent < most && plan->Next(&planned) && ArrivalOf(planned) <= end) ++num_unsent;
    const MutexLock lock(&mutex_);
    report_.num_unsent = num_unsent;
  }

  bool is_stopped() QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    return is_stopped_;
  }

  // Waits for the time of a request, and until it may be in flight. False when it is not to be sent any more.
  bool WaitForTurn(TimePoint end, Job* job) QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    if (!is_closed_loop()) {
      while (!is_stopped_ && changed_.WaitUntil(&mutex_, job->scheduled)) continue;
    }
    while (!is_stopped_ && !free_places_.any()) {
      if (end == TimePoint::max()) {
        place_.Wait(&mutex_);
      } else if (!place_.WaitUntil(&mutex_, end)) {
        break;
      }
    }
    if (is_stopped_ || !free_places_.any() || options_.now() >= end) return false;
    const TimePoint free_since = free_places_.Take();
    if (is_closed_loop()) {
      job->due = job->scheduled = free_since;
    } else if (free_since > job->scheduled) {
      job->due = free_since;
      report_.held_ms.Add(MillisBetween(job->scheduled, job->due));
    }
    report_.max_in_flight = std::max(report_.max_in_flight, ++num_in_flight_);
    return true;
  }

  void CountSent(const Job& job) QUIRE_REQUIRES(mutex_) {
    const TimePoint now = options_.now();
    ++report_.num_sent;
    report_.lag_ms.Add(std::max(0.0, MillisBetween(job.due, now)));
    report_.sending_s = MillisBetween(start_, now) / 1000;
  }

  void StartCall(uint64_t tag, const Job& job) QUIRE_EXCLUDES(mutex_) {
    GenerateStreams* streams;
    {
      const MutexLock lock(&mutex_);
      CountSent(job);
      receptions_.emplace(tag, Reception(job.request, job.scheduled));
      Lane* const lane = LaneWithRoom();
      ++lane->num_calls;
      streams = lane->streams.get();
    }
    streams->Start(tag, job.request, options_.timeout);
    const MutexLock lock(&mutex_);
    if (is_stopped_) streams->Cancel(tag);
  }

  // Returns the first one that may have another call. There are enough clients for all requests that may be in flight.
  Lane* LaneWithRoom() QUIRE_REQUIRES(mutex_) {
    for (Lane& lane : lanes_) {
      if (lane.num_calls < options_.max_calls_per_client) return &lane;
    }
    Lane* const lane = &lanes_.emplace_back();
    lane->streams = clients_.at(lanes_.size() - 1)->GenerateMany();
    lane->reader = std::thread([this, lane] { ReadCalls(lane, lane->streams.get()); });
    return lane;
  }

  void ReadCalls(Lane* lane, GenerateStreams* streams) QUIRE_EXCLUDES(mutex_) {
    GenerateStreams::Event event;
    while (streams->Next(&event)) {
      const MutexLock lock(&mutex_);
      const auto it = receptions_.find(event.tag);
      if (event.end.has_value()) {
        --lane->num_calls;
        EndReception(it, *event.end);
      } else {
        num_tokens_ += it->second.Add(event.response, options_.now());
      }
    }
  }

  void StartBatched(uint64_t tag, const Job& job) {
    {
      const MutexLock lock(&mutex_);
      CountSent(job);
      receptions_.emplace(tag, Reception(job.request, job.scheduled));
    }
    const absl::Status status = batch_->Start(tag, job.request, options_.timeout);
    if (status.ok()) return;
    const MutexLock lock(&mutex_);
    if (const auto it = receptions_.find(tag); it != receptions_.end()) EndReception(it, status);
  }

  void ReadBatch() {
    v1::GenerateBatchResponse message;
    while (batch_->Next(&message)) {
      const MutexLock lock(&mutex_);
      for (const v1::GenerateBatchEntry& entry : message.entries()) {
        const auto it = receptions_.find(entry.tag());
        if (it == receptions_.end()) continue;
        num_tokens_ += it->second.Add(entry.response(), options_.now());
        if (entry.has_end()) EndReception(it, FromRpcStatus(entry.end()));
      }
    }
    absl::Status status = batch_->Finish();
    if (status.ok()) status = absl::InternalError("the stream has ended without the request's end");
    const MutexLock lock(&mutex_);
    while (!receptions_.empty()) EndReception(receptions_.begin(), status);
  }

  void EndReception(std::unordered_map<uint64_t, Reception>::iterator it, const absl::Status& status)
      QUIRE_REQUIRES(mutex_) {
    End(it->second, status);
    receptions_.erase(it);
  }

  void End(const Reception& reception, absl::Status status) QUIRE_REQUIRES(mutex_) {
    const TimePoint now = options_.now();
    if (status.ok()) status = reception.Check();
    if (status.ok()) {
      reception.CountIn(options_.service_level, now, &report_);
    } else if (is_stopped_) {
      ++report_.num_cancelled;
    } else {
      if (report_.failures.empty()) report_.first_error = status;
      ++report_.failures[status.code()];
    }
    --num_in_flight_;
    free_places_.Return(now);
    place_.NotifyAll();
  }

  void WaitForEnds() QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    while (num_in_flight_ > 0) place_.Wait(&mutex_);
    report_.duration_s = MillisBetween(start_, options_.now()) / 1000;
    is_over_ = true;
    changed_.NotifyAll();
  }

  void ReportProgress() QUIRE_EXCLUDES(mutex_) {
    const Clock::duration interval = Ticks(absl::ToDoubleSeconds(options_.progress_interval));
    for (TimePoint next = start_;; next += interval) {
      const std::optional<LoadTestProgress> progress = WaitForProgress(next);
      if (!progress.has_value()) return;
      options_.on_progress(*progress);
    }
  }

  // The progress at `time`. Returns nothing when Run is over before.
  std::optional<LoadTestProgress> WaitForProgress(TimePoint time) QUIRE_EXCLUDES(mutex_) {
    const MutexLock lock(&mutex_);
    while (!is_over_ && changed_.WaitUntil(&mutex_, time)) continue;
    if (is_over_) return std::nullopt;
    return LoadTestProgress{.elapsed_s = MillisBetween(start_, options_.now()) / 1000,
                            .num_sent = report_.num_sent,
                            .num_ended = report_.num_completed + report_.num_failed() + report_.num_cancelled,
                            .num_failed = report_.num_failed(),
                            .output_tokens = num_tokens_,
                            .num_in_flight = num_in_flight_};
  }

  const std::vector<Client*> clients_;
  const LoadOptions options_;
  TimePoint start_;
  // Without multiplex, each client that has had a call has one. The calling thread adds to them, under the mutex.
  std::deque<Lane> lanes_;
  // Set once, under the mutex, before the threads that use it start. It is used with multiplex only.
  std::unique_ptr<GenerateBatchStream> batch_;

  Mutex mutex_;
  CondVar changed_;  // The generator was stopped, or the load is over.
  CondVar place_;    // A request has ended, or the generator was stopped.
  // It has the requests in flight. The key is the tag.
  std::unordered_map<uint64_t, Reception> receptions_ QUIRE_GUARDED_BY(mutex_);
  LoadReport report_ QUIRE_GUARDED_BY(mutex_);
  FreePlaces free_places_ QUIRE_GUARDED_BY(mutex_);
  int64_t num_tokens_ QUIRE_GUARDED_BY(mutex_) = 0;
  int num_in_flight_ QUIRE_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_over_ QUIRE_GUARDED_BY(mutex_) = false;
};

int LoadOptions::num_clients() const {
  return multiplex ? 1 : (limit() + max_calls_per_client - 1) / max_calls_per_client;
}

LoadGenerator::LoadGenerator(std::vector<Client*> clients, const LoadOptions& options)
    : impl_(std::make_unique<Impl>(std::move(clients), options)) {}

LoadGenerator::~LoadGenerator() = default;

LoadReport LoadGenerator::Run(LoadPlan* plan) {
  return impl_->Run(plan);
}

void LoadGenerator::Stop() {
  impl_->Stop();
}

}  // namespace quire
