#include "bench/load_generator.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/random.h"

namespace quire {
namespace {

using TimePoint = std::chrono::steady_clock::time_point;

double MillisBetween(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

v1::GenerateRequest MakeRequest(const LoadOptions& options, size_t index) {
  const RequestLengths& lengths = options.requests[index];
  v1::GenerateRequest request;
  BenchRandom shared(~options.seed);
  BenchRandom own(options.seed + index);
  for (int i = 0; i < lengths.prompt; ++i) {
    BenchRandom& random = i < options.shared_tokens ? shared : own;
    request.mutable_token_ids()->add_ids(static_cast<uint32_t>(random.Next() % options.vocab_size));
  }
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_tokens(lengths.output);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

// What has come of one request so far.
struct Reception {
  int64_t input_tokens = 0;
  TimePoint sent = {};
  std::vector<TimePoint> times = {};  // Of responses with tokens.
  int64_t num_tokens = 0;

  void Add(const v1::GenerateResponse& response) {
    if (response.token_ids_size() == 0) return;
    times.push_back(std::chrono::steady_clock::now());
    num_tokens += response.token_ids_size();
  }
};

// The requests in flight and what they bring together.
class LoadRun {
 public:
  LoadRun(Client* client, const LoadOptions& options) : client_(client), options_(options) {}

  LoadReport Run() {
    const TimePoint start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    if (options_.multiplex) {
      stream_ = client_->GenerateBatch();
      threads.emplace_back([this] { ReadStream(); });
    }
    for (size_t i = 0; i < options_.requests.size(); ++i) {
      v1::GenerateRequest request = MakeRequest(options_, i);
      const auto arrival = std::chrono::duration<double>(options_.requests[i].arrival_s);
      std::this_thread::sleep_until(start + std::chrono::duration_cast<TimePoint::duration>(arrival));
      WaitForPlace();
      if (options_.multiplex) {
        Start(i + 1, request);
      } else {
        threads.emplace_back([this, request = std::move(request)] { Call(request); });
      }
    }
    if (options_.multiplex) stream_->HalfClose();
    for (std::thread& thread : threads) thread.join();
    report_.duration_s = MillisBetween(start, std::chrono::steady_clock::now()) / 1000;
    return std::move(report_);
  }

 private:
  void WaitForPlace() {
    std::unique_lock lock(mutex_);
    place_.wait(lock, [&] { return options_.max_concurrency == 0 || num_open_ < options_.max_concurrency; });
    ++num_open_;
  }

  void Call(const v1::GenerateRequest& request) {
    Reception reception{.input_tokens = request.token_ids().ids_size(), .sent = std::chrono::steady_clock::now()};
    const std::unique_ptr<GenerateStream> stream = client_->Generate(request, options_.timeout);
    v1::GenerateResponse response;
    while (stream->Next(&response)) reception.Add(response);
    const absl::Status status = stream->Finish();
    const std::lock_guard lock(mutex_);
    End(reception, status);
  }

  void Start(uint64_t tag, const v1::GenerateRequest& request) {
    {
      const std::lock_guard lock(mutex_);
      receptions_[tag] = {.input_tokens = request.token_ids().ids_size(), .sent = std::chrono::steady_clock::now()};
    }
    const absl::Status status = stream_->Start(tag, request, options_.timeout);
    if (status.ok()) return;
    const std::lock_guard lock(mutex_);
    if (const auto it = receptions_.find(tag); it != receptions_.end()) EndBatched(it, status);
  }

  void ReadStream() {
    v1::GenerateBatchResponse message;
    while (stream_->Next(&message)) {
      const std::lock_guard lock(mutex_);
      for (const v1::GenerateBatchEntry& entry : message.entries()) {
        const auto it = receptions_.find(entry.tag());
        if (it == receptions_.end()) continue;
        it->second.Add(entry.response());
        if (entry.has_end()) EndBatched(it, FromRpcStatus(entry.end()));
      }
    }
    absl::Status status = stream_->Finish();
    if (status.ok()) status = absl::InternalError("the stream has ended without the request's end");
    const std::lock_guard lock(mutex_);
    while (!receptions_.empty()) EndBatched(receptions_.begin(), status);
  }

  // REQUIRES: mutex_ is held.
  void EndBatched(std::unordered_map<uint64_t, Reception>::iterator it, const absl::Status& status) {
    End(it->second, status);
    receptions_.erase(it);
  }

  // REQUIRES: mutex_ is held.
  void End(const Reception& reception, absl::Status status) {
    if (status.ok() && reception.num_tokens == 0) {
      status = absl::InternalError("the stream has ended without a token");
    }
    if (status.ok()) {
      Count(reception);
    } else {
      if (report_.num_failed++ == 0) report_.first_error = status;
    }
    --num_open_;
    place_.notify_one();
  }

  // REQUIRES: mutex_ is held.
  void Count(const Reception& reception) {
    const std::vector<TimePoint>& times = reception.times;
    ++report_.num_completed;
    report_.input_tokens += reception.input_tokens;
    report_.output_tokens += reception.num_tokens;
    report_.ttft_ms.Add(MillisBetween(reception.sent, times.front()));
    report_.e2el_ms.Add(MillisBetween(reception.sent, std::chrono::steady_clock::now()));
    if (reception.num_tokens > 1) {
      report_.tpot_ms.Add(MillisBetween(times.front(), times.back()) / static_cast<double>(reception.num_tokens - 1));
    }
    for (size_t i = 1; i < times.size(); ++i) report_.itl_ms.Add(MillisBetween(times[i - 1], times[i]));
  }

  Client* const client_;
  const LoadOptions& options_;
  std::unique_ptr<GenerateBatchStream> stream_;  // When they are multiplexed.
  std::mutex mutex_;
  std::condition_variable place_;
  int num_open_ = 0;                                    // Guarded by mutex_.
  std::unordered_map<uint64_t, Reception> receptions_;  // Of the stream's requests by tag. Guarded by mutex_.
  LoadReport report_;                                   // Guarded by mutex_ until all requests have ended.
};

struct Times {
  const char* name;
  const char* title;
  const Samples* ms;
};

std::vector<Times> TimesOf(const LoadReport& report) {
  return {{"ttft", "Time to first token", &report.ttft_ms},
          {"tpot", "Time per output token", &report.tpot_ms},
          {"itl", "Inter-token latency", &report.itl_ms},
          {"e2el", "End-to-end latency", &report.e2el_ms}};
}

double PerSecond(int64_t count, const LoadReport& report) {
  return report.duration_s > 0 ? static_cast<double>(count) / report.duration_s : 0;
}

}  // namespace

LoadReport GenerateLoad(Client* client, const LoadOptions& options) {
  return LoadRun(client, options).Run();
}

std::string ToJson(const LoadReport& report) {
  nlohmann::ordered_json json = {
      {"completed", report.num_completed},
      {"failed", report.num_failed},
      {"duration", report.duration_s},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"request_throughput", PerSecond(report.num_completed, report)},
      {"output_throughput", PerSecond(report.output_tokens, report)},
      {"total_token_throughput", PerSecond(report.input_tokens + report.output_tokens, report)}};
  for (const Times& times : TimesOf(report)) {
    json[absl::StrCat("mean_", times.name, "_ms")] = times.ms->Mean();
    json[absl::StrCat("median_", times.name, "_ms")] = times.ms->Median();
    json[absl::StrCat("p90_", times.name, "_ms")] = times.ms->Quantile(0.9);
    json[absl::StrCat("p99_", times.name, "_ms")] = times.ms->Quantile(0.99);
  }
  return json.dump(2) + "\n";
}

std::string ToText(const LoadReport& report) {
  std::string text = absl::StrFormat(
      "%d requests completed, %d failed, in %.2f s\n%d input and %d output tokens\n"
      "%.2f requests/s, %.1f output tokens/s, %.1f tokens/s in all\n\n%-24s %10s %10s %10s %10s\n",
      report.num_completed, report.num_failed, report.duration_s, report.input_tokens, report.output_tokens,
      PerSecond(report.num_completed, report), PerSecond(report.output_tokens, report),
      PerSecond(report.input_tokens + report.output_tokens, report), "ms", "mean", "median", "p90", "p99");
  for (const Times& times : TimesOf(report)) {
    absl::StrAppendFormat(&text, "%-24s %10.2f %10.2f %10.2f %10.2f\n", times.title, times.ms->Mean(),
                          times.ms->Median(), times.ms->Quantile(0.9), times.ms->Quantile(0.99));
  }
  return text;
}

}  // namespace quire
