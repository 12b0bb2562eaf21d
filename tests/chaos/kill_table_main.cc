// SPDX-License-Identifier: Apache-2.0

// Kills workers in the middle of streams, at each position of the output. See README.md.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "base/mutex.h"
#include "tests/chaos/bystanders.h"
#include "tests/chaos/chaos_program.h"
#include "tests/chaos/recorded_stream.h"
#include "tests/chaos/simulation_files.h"
#include "tests/e2e/cluster.h"

ABSL_FLAG(std::string, device, "simulated", "The device of the workers: simulated or cpu.");
ABSL_FLAG(std::string, fault, "kill", "What happens to the workers: kill, or stop (SIGSTOP, and SIGCONT later).");
ABSL_FLAG(int32_t, rounds, 147, "Number of faults. They are spread over the positions 0 .. 63.");
ABSL_FLAG(std::string, step, "4ms", "Time of a step of the simulated workers.");

namespace quire {
namespace {

constexpr int kNumPositions = 64;
constexpr int kMaxTokens = 96;
constexpr int kNumPrompts = 4;  // The rounds take turns with these.
constexpr absl::Duration kMaxGap = absl::Seconds(3);
constexpr int kNumBystanders = 4;  // Streams that run on the other worker.
constexpr absl::Duration kWindowBefore = absl::Milliseconds(500);
constexpr absl::Duration kTimeout = absl::Minutes(2);

// The first kind is the clock: its number of tokens is the time of the kill.
constexpr const char* kKinds[] = {"greedy", "seeded top-p",           "n = 4",          "best_of 4",
                                  "beam 4", "penalties, stop string", "prompt logprobs"};
constexpr int kNumKinds = std::size(kKinds);
constexpr int kGreedy = 0;
constexpr int kBestOf = 3;
constexpr int kBeam = 4;
constexpr int kStopString = 5;

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-kill-table",
      "Starts a manager and two workers. In each round, streams of seven kinds run on one worker. It is killed when "
      "the "
      "greedy stream has received a certain number of tokens, and it does not come back before all streams have ended. "
      "With --fault=stop, it is stopped instead, and continued when the streams continue with the other worker. Every "
      "output is compared byte for byte with the output of an undisturbed run. Exits with 1 if an output differs, a "
      "request fails, or 1 % of the streams pause for more than 3 s.",
      "--rounds 147",
      {{"Run", {"device", "fault", "rounds", "step"}}}};
  return *flags;
}

// Request `kind` with prompt `number`. `stop` is its stop string; empty: it has none.
v1::GenerateRequest MakeRequest(int kind, int number, const std::string& stop) {
  v1::GenerateRequest request = LongRequest(
      absl::StrCat("Once upon a time there was a fox with ", number + 2, " friends and ", kind), kMaxTokens);
  v1::SamplingParams* const sampling = request.mutable_sampling();
  if (kind != kBeam) sampling->set_seed(static_cast<uint64_t>(100 * number + kind));  // The response repeats it.
  if (kind != kGreedy && kind != kBeam) {
    sampling->set_temperature(0.8f);
    sampling->set_top_p(0.95f);
  }
  if (kind == 2) request.set_n(4);
  if (kind == kBestOf) {
    request.set_n(2);
    request.set_best_of(4);
  }
  if (kind == kBeam) {
    request.mutable_beam()->set_width(4);
    request.mutable_beam()->set_num_return_sequences(4);
  }
  if (kind == kStopString) {
    sampling->set_repetition_penalty(1.2f);
    sampling->set_presence_penalty(0.4f);
    sampling->set_frequency_penalty(0.2f);
    if (!stop.empty()) request.mutable_stopping()->add_stop(stop);
  }
  if (kind == 6) {
    request.set_logprobs(2);
    request.set_prompt_logprobs(2);
  }
  return request;
}

// What is known of the streams of one kind.
struct Row {
  int num_streams = 0;  // Streams that were running when their worker was killed.
  int num_equal = 0;
  std::set<int> positions;  // How many tokens they had received then.
  std::vector<absl::Duration> gaps;
};

class KillTable {
 public:
  // Returns whether nothing was wrong.
  bool Run() {
    const int num_rounds = absl::GetFlag(FLAGS_rounds);
    for (int number = 0; number < std::min(kNumPrompts, num_rounds); ++number) Learn(number);
    const absl::Time start = absl::Now();
    for (int round = 0; round < num_rounds; ++round) {
      const int position = num_rounds < kNumPositions ? round * kNumPositions / num_rounds : round % kNumPositions;
      Kill(round, position);
    }
    Print(absl::Now() - start);
    const MutexLock lock(&mutex_);
    return is_good_;
  }

 private:
  std::vector<std::string> WorkerFlags() const {
    if (absl::GetFlag(FLAGS_device) == "cpu") return {"--num-blocks=1000"};
    return {"--device=simulated", "--num-blocks=1000", "--simulated-step-times=" + files_.step_times()};
  }

  Client* client() { return &cluster_.client(); }

  // The outputs without a loss.
  void Learn(int number) {
    std::vector<std::string> stops(kNumKinds);
    // Something that occurs late.
    const std::string text = RunAll(number, stops)[kStopString]->text();
    stops[kStopString] = text.substr(text.size() * 9 / 10, 8);
    for (const auto& stream : RunAll(number, stops)) expected_[number].push_back(stream->Content());
    stops_[number] = stops;
  }

  std::vector<std::unique_ptr<RecordedStream>> RunAll(int number, const std::vector<std::string>& stops) {
    std::vector<std::unique_ptr<RecordedStream>> streams;
    std::vector<std::thread> threads;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      RecordedStream* const stream = streams.emplace_back(std::make_unique<RecordedStream>()).get();
      threads.emplace_back([=, this] { stream->Run(client(), MakeRequest(kind, number, stops[kind]), [](int) {}); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& stream : streams) QUIRE_CHECK(stream->status().ok()) << stream->status();
    return streams;
  }

  // All streams run on one worker, which is killed when the first stream has received `position` tokens.
  void Kill(int round, int position) {
    const int victim = round % 2;
    const int number = round % kNumPrompts;
    QUIRE_CHECK(client()->Drain(cluster_.worker_endpoint(victim)).ok());
    Bystanders bystanders(client(), kNumBystanders);
    bystanders.WaitForTokens(1);
    QUIRE_CHECK(client()->Undrain(cluster_.worker_endpoint(victim)).ok());
    QUIRE_CHECK(client()->Drain(cluster_.worker_endpoint(1 - victim)).ok());
    absl::SleepFor(kWindowBefore);
    std::vector<std::unique_ptr<RecordedStream>> streams;
    std::vector<std::thread> threads;
    {
      const MutexLock lock(&mutex_);
      is_armed_ = false;
      is_killed_ = false;
    }
    for (int kind = 0; kind < kNumKinds; ++kind) streams.push_back(std::make_unique<RecordedStream>());
    const auto kill_at = [&](int num_tokens) {
      const MutexLock lock(&mutex_);
      if (!is_armed_ || is_killed_ || num_tokens < position) return;
      is_killed_ = true;
      killed_at_ = absl::Now();
      for (int kind = 0; kind < kNumKinds; ++kind) {
        received_[kind] = streams[kind]->is_over() ? -1 : streams[kind]->num_tokens();
      }
      cluster_.worker(victim).Signal(is_stop_ ? SIGSTOP : SIGKILL);
    };
    // No step ends before all streams have begun.
    cluster_.worker(victim).Signal(SIGSTOP);
    for (int kind = 0; kind < kNumKinds; ++kind) {
      threads.emplace_back([&, kind] {
        streams[kind]->Run(client(), MakeRequest(kind, number, stops_[number][kind]), [&](int num_tokens) {
          if (kind == kGreedy) kill_at(num_tokens);
        });
      });
    }
    AwaitRequests(victim);
    QUIRE_CHECK(client()->Undrain(cluster_.worker_endpoint(1 - victim)).ok());
    {
      const MutexLock lock(&mutex_);
      is_armed_ = true;
    }
    kill_at(streams[kGreedy]->num_tokens());
    cluster_.worker(victim).Signal(SIGCONT);
    if (is_stop_) ContinueWhenLost(victim, streams);
    for (std::thread& thread : threads) thread.join();
    Count(bystanders);
    for (int kind = 0; kind < kNumKinds; ++kind) Compare(kind, number, position, *streams[kind]);
    if (!is_stop_) {
      cluster_.worker(victim).Wait();
      cluster_.RestartWorker(victim);
    }
    QUIRE_CHECK(cluster_.WaitUntilReady());
  }

  // Continues the worker when the manager has given it up, while the streams continue with the other one. So they would
  // show it if something of the worker was accepted.
  void ContinueWhenLost(int worker, const std::vector<std::unique_ptr<RecordedStream>>& streams) {
    const auto is_over = [&] {
      return std::all_of(streams.begin(), streams.end(), [](const auto& stream) { return stream->is_over(); });
    };
    const auto is_lost = [&] {
      const absl::StatusOr<v1::GetStatusResponse> status = client()->GetStatus();
      QUIRE_CHECK(status.ok()) << status.status();
      return status->workers(worker).state() != v1::WORKER_STATE_READY;
    };
    while (!is_over() && !is_lost()) absl::SleepFor(absl::Milliseconds(1));
    cluster_.worker(worker).Signal(SIGCONT);
  }

  void AwaitRequests(int worker) {
    const absl::Time deadline = absl::Now() + kTimeout;
    for (;;) {
      const absl::StatusOr<v1::GetStatusResponse> status = client()->GetStatus();
      QUIRE_CHECK(status.ok()) << status.status();
      const v1::WorkerStatus& state = status->workers(worker);
      if (state.running_requests() + state.waiting_requests() == kNumKinds) return;
      QUIRE_CHECK(absl::Now() < deadline) << "the streams have not begun";
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // Adds what the streams on the other worker have got before and after the fault.
  void Count(const Bystanders& bystanders) {
    const MutexLock lock(&mutex_);
    if (!is_killed_) return;
    absl::SleepFor(killed_at_ + WindowAfter() - absl::Now());
    if (!bystanders.AreAllRunning()) return;
    ++num_counts_;
    tokens_before_ += bystanders.CountTokens(killed_at_ - kWindowBefore, killed_at_);
    tokens_after_ += bystanders.CountTokens(killed_at_, killed_at_ + WindowAfter());
  }
  // A worker that was stopped is noticed after 1.5 s.
  absl::Duration WindowAfter() const { return is_stop_ ? absl::Seconds(2) : kWindowBefore; }

  void Compare(int kind, int number, int position, const RecordedStream& stream) {
    const MutexLock lock(&mutex_);
    const bool is_equal = stream.status().ok() && stream.Content() == expected_[number][kind];
    if (!is_equal) {
      is_good_ = false;
      std::printf("FAILED: %s, killed at position %d: %s\n", kKinds[kind], position,
                  stream.status().ToString().c_str());
    }
    if (!is_killed_ || received_[kind] < 0) return;  // It had ended before.
    Row& row = rows_[kind];
    ++row.num_streams;
    row.num_equal += is_equal;
    row.positions.insert(received_[kind]);
    // These hold tokens back: best_of until the end, and beams until they agree.
    if (kind != kBestOf && kind != kBeam) row.gaps.push_back(stream.GapAfter(killed_at_));
  }

  void Print(absl::Duration duration) {
    const MutexLock lock(&mutex_);
    std::printf("| kind | streams | equal | tokens received at the kill | gap p50, s | gap p99, s | longest, s |\n");
    std::printf("|---|---:|---:|---|---:|---:|---:|\n");
    Row all;
    for (int kind = 0; kind < kNumKinds; ++kind) {
      PrintRow(kKinds[kind], rows_[kind]);
      all.num_streams += rows_[kind].num_streams;
      all.num_equal += rows_[kind].num_equal;
      all.positions.insert(rows_[kind].positions.begin(), rows_[kind].positions.end());
      all.gaps.insert(all.gaps.end(), rows_[kind].gaps.begin(), rows_[kind].gaps.end());
    }
    PrintRow("all", all);
    std::printf("\n%d workers %s in %.0f s\n", absl::GetFlag(FLAGS_rounds), is_stop_ ? "stopped" : "killed",
                absl::ToDoubleSeconds(duration));
    const double rate_before = tokens_before_ / absl::ToDoubleSeconds(kWindowBefore);
    const double rate_after = tokens_after_ / absl::ToDoubleSeconds(WindowAfter());
    std::printf("%d streams on the other worker: %.0f tokens/s before a fault, %.0f %% of it in the %s after it\n",
                kNumBystanders, rate_before / std::max(num_counts_, 1), 100 * rate_after / std::max(rate_before, 1.0),
                absl::FormatDuration(WindowAfter()).c_str());
    const auto num_late = std::count_if(all.gaps.begin(), all.gaps.end(), [](auto gap) { return gap > kMaxGap; });
    if (num_late * 100 > static_cast<int>(all.gaps.size())) is_good_ = false;
    if (all.num_streams == 0) is_good_ = false;
  }

  static void PrintRow(const char* name, const Row& row) {
    if (row.positions.empty()) return std::printf("| %s | 0 |\n", name), void();
    std::printf("| %s | %d | %d | %zu different numbers, %d .. %d | %s | %s | %s |\n", name, row.num_streams,
                row.num_equal, row.positions.size(), *row.positions.begin(), *row.positions.rbegin(),
                Percentile(row.gaps, 50).c_str(), Percentile(row.gaps, 99).c_str(), Percentile(row.gaps, 100).c_str());
  }

  const bool is_stop_ = absl::GetFlag(FLAGS_fault) == "stop";
  const SimulationFiles files_{absl::GetFlag(FLAGS_step)};
  std::vector<std::string> expected_[kNumPrompts];  // By kind.
  std::vector<std::string> stops_[kNumPrompts];
  Cluster cluster_{{.model = BundledModel(), .num_workers = 2, .worker_flags = WorkerFlags()}};
  Mutex mutex_;
  bool is_armed_ QUIRE_GUARDED_BY(mutex_) = false;
  bool is_killed_ QUIRE_GUARDED_BY(mutex_) = false;
  absl::Time killed_at_ QUIRE_GUARDED_BY(mutex_);
  int num_counts_ QUIRE_GUARDED_BY(mutex_) = 0;     // Rounds in which all bystanders ran long enough.
  int tokens_before_ QUIRE_GUARDED_BY(mutex_) = 0;  // Of bystanders.
  int tokens_after_ QUIRE_GUARDED_BY(mutex_) = 0;
  int received_[kNumKinds] QUIRE_GUARDED_BY(mutex_) = {};  // -1: the stream had ended.
  Row rows_[kNumKinds] QUIRE_GUARDED_BY(mutex_);
  bool is_good_ QUIRE_GUARDED_BY(mutex_) = true;
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunChaosProgram(quire::Flags(), argc, argv, [] { return quire::KillTable().Run(); });
}
