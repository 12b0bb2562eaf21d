// SPDX-License-Identifier: Apache-2.0

// Kills or stops the manager at drawn moments and starts it again, while clients resume their streams. See README.md.

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/check.h"
#include "base/flags.h"
#include "base/mutex.h"
#include "tests/chaos/chaos_program.h"
#include "tests/chaos/resuming_load.h"
#include "tests/chaos/simulation_files.h"
#include "tests/e2e/cluster.h"
#include "tests/random.h"
#include "worker/model/simulated_model.h"

ABSL_FLAG(int32_t, seconds, 600, "How long managers are killed.");
ABSL_FLAG(int32_t, clients, 12, "Number of clients. Each of them runs one request after the other.");
ABSL_FLAG(uint32_t, seed, 1, "Draws the requests, and the moments and kinds of the kills.");
ABSL_FLAG(std::string, step, "4ms", "Time of a step of the simulated workers.");
ABSL_FLAG(absl::Duration, max_gap, absl::Seconds(3),
          "How long 99 % of the streams may be without a token after the manager is back.");

namespace quire {
namespace {

const ProgramFlags& Flags() {
  static const auto* const flags = new ProgramFlags{
      "quire-kill-manager",
      "Starts a manager and two simulated workers, and clients that resume their streams. Kills the manager at drawn "
      "moments, alone, together with a worker, or again while it adopts, or stops it with SIGTERM and a drain that is "
      "too short, and starts it again. Every token is compared "
      "with the reference function of the simulated device, or with an answer recorded before. Exits with 1 if a token "
      "differs, a request fails, or more than 1 % of the streams pause for longer than --max-gap after the manager is "
      "back.",
      "--seconds 60 --seed 7",
      {{"Run", {"seconds", "clients", "seed", "step", "max_gap"}}}};
  return *flags;
}

struct Outage {
  absl::Time killed_at;
  absl::Time back_at;  // The manager listens again.
};

class ManagerKiller {
 public:
  // Returns whether nothing was wrong.
  bool Run() {
    const absl::Time start = absl::Now();
    ResumingLoad load({.client = cluster_.client_options(),
                       .rule = *TokenRuleOf(*ReadModelConfig(BundledModel()), /*mean_output_tokens=*/0),
                       .num_clients = absl::GetFlag(FLAGS_clients),
                       .seed = absl::GetFlag(FLAGS_seed),
                       .on_right = [this](const auto& arrivals, bool is_search) { FindGaps(arrivals, is_search); }});
    while (absl::Now() < start + absl::Seconds(absl::GetFlag(FLAGS_seconds))) {
      absl::SleepFor(absl::Milliseconds(random_.Between(50, 2000)));
      KillAndRestart();
    }
    load.Stop();
    QUIRE_CHECK(cluster_.WaitUntilReady());
    const bool is_idle = cluster_.WaitUntilIdle();
    if (!is_idle) std::printf("FAILED: blocks or requests are left\n");
    ReadMetrics();
    for (const std::string& error : load.errors()) std::printf("FAILED: %s\n", error.c_str());
    Print(absl::Now() - start, load.counts());
    const MutexLock lock(&mutex_);
    return is_idle && !is_late_ && load.counts().wrong == 0 && num_streams_ > 0 && num_restored_ > 0;
  }

 private:
  enum class Kind { kAlone, kStopped, kWithWorker, kTwice };
  static constexpr int kNumKinds = 4;

  // Looks for the outages during which a request ran, from the times at which its tokens arrived. What a search pauses
  // does not count, because it streams only what all its beams begin with.
  void FindGaps(const std::vector<absl::Time>& arrivals, bool is_search) {
    const MutexLock lock(&mutex_);
    bool has_outage = false;
    for (size_t i = 0; i < outages_.size(); ++i) {
      const Outage& outage = outages_[i];
      const auto next = std::upper_bound(arrivals.begin(), arrivals.end(), outage.back_at);
      if (arrivals.front() > outage.killed_at || next == arrivals.end()) continue;
      has_outage = true;
      if (is_search) continue;
      // When no token came before the next outage, the gap is one of that outage.
      if (i + 1 == outages_.size() || *next < outages_[i + 1].killed_at) gaps_.push_back(*next - outage.back_at);
    }
    num_streams_ += has_outage;
  }

  void KillAndRestart() {
    const auto kind = static_cast<Kind>(std::max(0, random_.Between(-2, kNumKinds - 1)));
    const int worker = random_.Between(0, 1);
    ReadMetrics();
    Outage outage{.killed_at = absl::Now(), .back_at = {}};
    cluster_.manager().Signal(kind == Kind::kStopped ? SIGTERM : SIGKILL);
    if (kind == Kind::kWithWorker) cluster_.worker(worker).Signal(SIGKILL);
    const int exit_code = cluster_.manager().Wait();
    if (kind == Kind::kStopped) QUIRE_CHECK_EQ(exit_code, 0) << cluster_.manager().Output();
    cluster_.RestartManager();
    if (kind == Kind::kTwice) {
      absl::SleepFor(absl::Microseconds(random_.Between(0, 20'000)));
      cluster_.manager().Signal(SIGKILL);
      cluster_.manager().Wait();
      cluster_.RestartManager();
    }
    outage.back_at = absl::Now();
    if (kind == Kind::kWithWorker) {
      cluster_.worker(worker).Wait();
      cluster_.RestartWorker(worker);
      QUIRE_CHECK(cluster_.WaitUntilReady());
    }
    ++num_kills_[static_cast<int>(kind)];
    const MutexLock lock(&mutex_);
    outages_.push_back(outage);
  }

  // Adds up what this manager has counted. The counts of one that is killed while it adopts are not known.
  void ReadMetrics() {
    num_restored_ += cluster_.ReadMetric("quire_restored_requests_total");
    num_recomputed_ += cluster_.ReadMetric("quire_recomputed_tokens_total");
  }

  void Print(absl::Duration duration, const ResumingLoad::Counts& counts) {
    const MutexLock lock(&mutex_);
    std::printf(
        "%d times the manager was killed alone, %d times it was stopped, %d times it was killed with a worker, %d "
        "times "
        "twice in a row; %.0f s\n",
        num_kills_[0], num_kills_[1], num_kills_[2], num_kills_[3], absl::ToDoubleSeconds(duration));
    std::printf("%d requests, %d of them were running when the manager ended; %d were wrong or failed\n",
                static_cast<int>(counts.right + counts.wrong), num_streams_, static_cast<int>(counts.wrong));
    std::printf("%d of them with logprobs, best_of or beams\n", static_cast<int>(counts.recorded));
    std::printf(
        "%.0f times a request was taken over from a worker, with %.0f tokens computed again; %d times one began "
        "again\n",
        num_restored_, num_recomputed_, static_cast<int>(counts.begun_again));
    std::printf("time without a token after the manager was back: p50 %s s, p99 %s s, longest %s s, %zu gaps\n",
                Percentile(gaps_, 50).c_str(), Percentile(gaps_, 99).c_str(), Percentile(gaps_, 100).c_str(),
                gaps_.size());
    const absl::Duration max_gap = absl::GetFlag(FLAGS_max_gap);
    const auto num_late = std::count_if(gaps_.begin(), gaps_.end(), [&](auto gap) { return gap > max_gap; });
    if (num_late * 100 <= static_cast<int>(gaps_.size())) return;
    std::printf("FAILED: %d gaps are longer than %s\n", static_cast<int>(num_late),
                absl::FormatDuration(max_gap).c_str());
    is_late_ = true;
  }

  const SimulationFiles files_{absl::GetFlag(FLAGS_step)};
  Random random_{absl::GetFlag(FLAGS_seed)};
  Cluster cluster_{
      {.model = BundledModel(),
       .num_workers = 2,
       .worker_flags = {"--device=simulated", "--num-blocks=1000", "--simulated-step-times=" + files_.step_times()},
       .manager_flags = {"--resume-key-file=" + files_.key(), "--drain-timeout=20ms"},
       .metrics_listen = "127.0.0.1:0"}};
  int num_kills_[kNumKinds] = {};
  double num_restored_ = 0;
  double num_recomputed_ = 0;
  bool is_late_ = false;

  Mutex mutex_;
  std::vector<Outage> outages_ QUIRE_GUARDED_BY(mutex_);
  std::vector<absl::Duration> gaps_ QUIRE_GUARDED_BY(mutex_);
  int num_streams_ QUIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::RunChaosProgram(quire::Flags(), argc, argv, [] { return quire::ManagerKiller().Run(); });
}
